import pytest

import crcen
from crcen.datasets.benchmark import Dataset
from crcen.paper.protocol import RunFolder
from crcen.paper.reproduce import read_settings


@pytest.fixture
def protocol():
    """The smallest settings that still have two of everything."""
    small = {"folds": 2, "hidden": [2, 4], "l2": [1e-3, 1e-1], "epochs": 2, "members": 2}
    return read_settings(quick=True)["protocol"] | {"sets": ["toy"], **small}


@pytest.fixture
def toy(rare_rows):
    """A function that makes a small data set of that name."""

    def make(name="toy", seed=0):
        X, y = rare_rows(n=240, seed=seed)
        return Dataset(name, X, y, tuple(f"x{j}" for j in range(X.shape[1])), "drawn in a test")

    return make


@pytest.fixture
def toy_sets(monkeypatch, toy):
    """Let the experiments load toy sets under any name; the names that were loaded are listed."""
    loaded = []

    def load(name, data_home=None):
        loaded.append(name)
        return toy(name, seed=sum(map(ord, name)))

    monkeypatch.setattr(crcen, "load_dataset", load)
    return loaded


@pytest.fixture
def selection(tmp_path, protocol):
    """An empty folder of chosen hyperparameters."""
    return RunFolder(tmp_path / "selection", protocol, key=("dataset", "split", "method"))


@pytest.fixture(scope="session")
def paper_tex(data_home):
    """The paper's source, where it lies beside the benchmark's files."""
    path = data_home.parent / "paper.tex"
    if not path.is_file():
        pytest.skip("the paper's source does not lie beside CRCEN_DATA_HOME")
    return path.read_text(encoding="utf-8")
