import pytest

import crcen
from crcen.datasets.dataset import Dataset


@pytest.fixture(autouse=True, scope="session")
def _one_thread(one_thread):
    """All tests of this folder are tiny."""


@pytest.fixture
def toy(rare_rows):
    """A function that makes a small data set of that name."""

    def make(name="toy", seed=0):
        X, y = rare_rows(n=240, seed=seed)
        return Dataset(name, X, y, tuple(f"x{j}" for j in range(X.shape[1])), "drawn in a test")

    return make


@pytest.fixture
def toy_sets(monkeypatch, toy):
    """Load toy sets under any name; returns the list of loaded names."""
    loaded = []

    def load(name, data_home=None):
        loaded.append(name)
        return toy(name, seed=sum(map(ord, name)))

    monkeypatch.setattr(crcen, "load_dataset", load)
    return loaded
