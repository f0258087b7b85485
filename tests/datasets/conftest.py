import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from crcen.datasets import benchmark


@pytest.fixture(scope="session")
def shared_home(data_home):
    """The benchmark's files, from outside the repository."""
    return data_home


@pytest.fixture
def no_places(monkeypatch, tmp_path):
    """Take away the environment's places; the cache is an empty folder, which is returned."""
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    cache = tmp_path / "cache"
    monkeypatch.setenv("CRCEN_CACHE", str(cache))
    return cache


@pytest.fixture
def bundled_folder():
    return Path(benchmark.__file__).parent / "bundled"


@pytest.fixture
def abalone_arrays(bundled_folder):
    with np.load(bundled_folder / "x5data.npz", allow_pickle=False) as stored:
        return stored["data"], stored["label"]


def npz_bytes(**arrays):
    """An npz as NumPy writes it, from arrays or from the bytes of a member."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in arrays.items():
            content = array
            if not isinstance(array, bytes):
                member = io.BytesIO()
                np.lib.format.write_array(member, np.asanyarray(array))
                content = member.getvalue()
            archive.writestr(f"{name}.npy", content)
    return buffer.getvalue()


@pytest.fixture
def write_npz():
    """Write an npz file into a data home under a benchmark file's name."""

    def write(home, filename, content=None, **arrays):
        path = home / "zenodo" / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(npz_bytes(**arrays) if content is None else content)
        return path

    return write
