"""Torch's number of threads: one for small work, and what was found afterwards."""

from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident

import numpy as np
import pytest
import torch
from training_reference import binary_job

import crcen.training.engine
from crcen import CRCENClassifierCV
from crcen.training.engine import train
from crcen.training.threads import THREADS
from grouped_settings import grouped


@pytest.fixture(autouse=True)
def three():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_the_last_of_two_at_a_time_puts_back():
    first_is_in, second_is_out = Event(), Event()

    def first():
        with THREADS.set(1):
            first_is_in.set()
            assert second_is_out.wait(10)
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(first)
        assert first_is_in.wait(10)
        with THREADS.set(1):
            assert torch.get_num_threads() == 1
            assert THREADS.get() == 3  # what others may have afterwards
        second_is_out.set()
        assert found.result() == 1  # the other's end did not disturb it
    assert torch.get_num_threads() == THREADS.get() == 3


class TestCallers:
    def test_workers_keep_to_one_thread(self, monkeypatch):
        # Two pieces side by side, and a balance solve in each: afterwards the worker still has one thread.
        found = []
        original = crcen.training.engine._train_or_split

        def spy(*args):
            results = original(*args)
            found.append((get_ident(), torch.get_num_threads()))
            return results

        monkeypatch.setattr(crcen.training.engine, "_train_or_split", spy)
        monkeypatch.setattr(crcen.training.engine, "cpu_count", lambda: 2)
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(300, 20)), rng.random(300) < 0.3
        jobs = [binary_job(0.5, hidden=(200,), max_epochs=1, seed=seed) for seed in range(16)]
        train(X, y, jobs, device="cpu")
        assert len(found) == 2
        assert get_ident() not in {thread for thread, _ in found}
        assert [count for _, count in found] == [1, 1]
        assert torch.get_num_threads() == 3

    @pytest.mark.parametrize("fails", [False, True])
    def test_a_search_and_its_predictions(self, rare_rows, fails):
        X, y = rare_rows()

        def scoring(estimator, X, y):
            if fails:
                raise KeyboardInterrupt
            return 0.0

        how = {"hidden": [(2,), (3,)], "l2": 1e-2, "cv": 2, "max_epochs": 6, "scoring": scoring, "solver": "adam"}
        clf = CRCENClassifierCV(**grouped(random_state=0, **how))
        if fails:
            with pytest.raises(KeyboardInterrupt):
                clf.fit(X, y)
        else:
            clf.fit(X, y).predict_proba(X)
        assert torch.get_num_threads() == 3
