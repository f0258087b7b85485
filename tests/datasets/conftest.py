import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from crcen.datasets import benchmark


@pytest.fixture
def no_places(monkeypatch, tmp_path):
    """Remove the environment's places; the cache is an empty folder, which is returned."""
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


@pytest.fixture
def write_npz():
    """Write an npz file (arrays, or the bytes of members) into a data home under a benchmark file's name."""

    def write(home, filename, content=None, **arrays):
        path = home / "zenodo" / filename
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
                for name, array in arrays.items():
                    member = io.BytesIO()
                    if not isinstance(array, bytes):
                        np.lib.format.write_array(member, np.asanyarray(array))
                    archive.writestr(f"{name}.npy", array if isinstance(array, bytes) else member.getvalue())
            content = buffer.getvalue()
        path.write_bytes(content)
        return path

    return write
