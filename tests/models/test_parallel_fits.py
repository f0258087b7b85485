"""Parallel fits: at the same time, each on one thread, with the bits of one after another."""

import warnings
from threading import Barrier

import numpy as np
import pytest
from sklearn.datasets import make_classification
from sklearn.exceptions import ConvergenceWarning

import crcen
from crcen import CRCENClassifier, CRCENClassifierCV
from crcen.models import parallel as module
from crcen.models.parallel import parallel_fits
from crcen.training.threads import THREADS


def with_threads(monkeypatch, count):
    monkeypatch.setattr(module, "_threads_of", lambda model: count)


def test_two_run_at_a_time_and_each_trains_on_one_thread(monkeypatch):
    with_threads(monkeypatch, 2)
    both = Barrier(2)

    def fit(part):
        both.wait(timeout=30)  # breaks where one comes after the other
        warnings.warn("not converged", ConvergenceWarning, stacklevel=2)
        return part, THREADS.get()

    before = THREADS.get()
    assert parallel_fits(CRCENClassifier(), fit, [3, 4]) == [(3, 1), (4, 1)]
    assert THREADS.get() == before


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
