"""What every folder of tests shares: one thread a worker, the benchmark's place, and small rare-event rows."""

import os
from pathlib import Path

# Read by OpenMP when torch loads it, so it must be set before. Two workers with two threads each only wait.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest


@pytest.fixture(scope="session")
def data_home():
    """The benchmark's files in imbalanced-learn's cache layout, from CRCEN_DATA_HOME."""
    home = Path(os.environ.get("CRCEN_DATA_HOME") or "nowhere")
    if not (home / "zenodo").is_dir():
        pytest.skip("no copy of the benchmark: set CRCEN_DATA_HOME")
    return home


@pytest.fixture(scope="session")
def rare_rows():
    """A function that draws overlapping classes, 1 = rare, in columns of different place and size."""

    def draw(n=150, n_features=3, seed=0, shift=1.2):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(n, n_features))
        y = (z @ np.linspace(1.0, -0.5, n_features) + rng.normal(size=n) > shift).astype(int)
        y[:2] = 0, 1
        return z * np.linspace(0.5, 3.0, n_features) + np.linspace(-2.0, 5.0, n_features), y

    return draw


@pytest.fixture
def crcen_command(monkeypatch, capsys, tmp_path):
    """Run the entry point with these arguments → exit code, standard output, standard error."""
    from crcen import cli

    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.setenv("CRCEN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TERMINAL_WIDTH", "200")

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["crcen", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            cli.main()
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err + printed.out
        return caught.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture(scope="session")
def one_thread():
    """For tiny problems: a second thread costs more than it brings, above all beside other test processes."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
