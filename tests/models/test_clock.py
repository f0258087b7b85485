"""Time limits: training is refused where the time so far says that it cannot finish."""

import time
from types import SimpleNamespace

import numpy as np
import pytest

from crcen.models.clock import Clock, OutOfTime, TimedTraining
from crcen.training.jobs import TrainingJob


class Engine:
    def __init__(self, seconds):
        self.seconds, self.calls = seconds, 0

    def __call__(self, jobs, progress=None):
        self.calls += 1
        time.sleep(self.seconds)
        return [SimpleNamespace() for _ in jobs]

    def on(self, rows, factors=1.0):
        return self


def job(n_rows, epochs, stop=None):
    return TrainingJob((0.5, 0.5), rows=np.arange(n_rows), max_epochs=epochs, stop_epoch=stop)


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
