"""Time and threads: training that cannot finish in time is not begun, parallel fits have the bits of serial ones."""

import time
import warnings
from threading import Barrier
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

import crcen
from crcen import CRCENClassifier, CRCENClassifierCV
from crcen.models.classifier import parallel_fits
from crcen.models.clock import Clock, OutOfTime, TimedTraining
from crcen.models.members.member import parallel_map
from crcen.training.device import THREADS
from crcen.training.jobs import TrainingJob


def with_threads(monkeypatch, count):
    monkeypatch.setattr("crcen.models.classifier.parallel_map", lambda _, *how: parallel_map(count, *how))


def test_two_run_at_a_time_and_each_trains_on_one_thread(monkeypatch):
    with_threads(monkeypatch, 2)
    both = Barrier(2)

    def fit(part):
        both.wait(timeout=30)  # breaks where one comes after the other
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        return part, THREADS.get()

    before = THREADS.get()
    assert (parallel_fits(CRCENClassifier(), fit, [3, 4]), THREADS.get()) == ([(3, 1), (4, 1)], before)


@pytest.mark.parametrize("search", [False, True])
def test_the_models_own_error_has_the_same_bits(search, monkeypatch):
    X, y = make_classification(400, 5, weights=[0.8], random_state=0)
    model = CRCENClassifier(None, hidden=(4,), n_members=2, max_epochs=3, random_state=0, device="cpu")
    if search:
        model = CRCENClassifierCV(None, hidden=[(4,)], l2=[1e-3], max_epochs=3, random_state=0, device="cpu")
    model.fit(X, y)
    found = []
    for count in (1, 3):
        with_threads(monkeypatch, count)
        found.append(crcen.training_error(model, X, y, n_fits=3).log_odds)
    assert found[0] == found[1] > 0
    assert np.isfinite(found).all()


class Engine:
    def __init__(self, seconds):
        self.seconds, self.calls = seconds, 0

    def __call__(self, jobs, progress=None):
        self.calls += 1
        time.sleep(self.seconds)
        return [SimpleNamespace() for _ in jobs]

    def on(self, rows, factors=1.0):
        return self


def job(n_rows, epochs):
    return TrainingJob((0.5, 0.5), rows=np.arange(n_rows), max_epochs=epochs)


def test_a_clock_counts_down_and_is_shared():
    clock = Clock(10.0)
    assert 9.0 < clock.left <= 10.0
    assert clock.share(0.25).left <= 2.5
    assert Clock(None).left == np.inf
    assert not Clock(None).share(0.5).is_limited


def test_training_that_would_exceed_the_limit_is_not_begun():
    engine = Engine(0.02)
    train = TimedTraining(engine, 1000, Clock(1.0))
    train([job(100, 10)])  # 20 ms for 1,000 row epochs
    with pytest.raises(OutOfTime):
        train([job(1000, 100)])  # 2 s
    assert engine.calls == 1
    train([job(100, 10)])
    train.reserve = 100_000.0
    with pytest.raises(OutOfTime):
        train([job(100, 10)])
    part = train.on(np.arange(10))
    assert part.seconds(1000) == pytest.approx(train.seconds(1000))
    TimedTraining(engine, 1000, Clock(None))([job(1000, 1000)])
