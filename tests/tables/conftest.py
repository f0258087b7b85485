"""A user without rights, and a disk that is full."""

import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def closed_folder():
    """A folder with a file in it that this user may not read, and a folder that they may not enter."""
    if os.name == "nt":
        pytest.skip("Windows keeps permissions another way")
    with tempfile.TemporaryDirectory() as name:  # not tmp_path, which others may not enter
        home = Path(name)
        home.chmod(0o755)
        for folder, file in (("open", "closed.csv"), ("closed", "open.csv")):
            (home / folder).mkdir()
            (home / folder / file).write_text("a,b\n1,2\n")
        (home / "open" / "closed.csv").chmod(0)
        (home / "closed").chmod(0)
        is_root = os.geteuid() == 0
        if is_root:
            os.seteuid(65534)  # root may read anything
        try:
            yield home
        finally:
            if is_root:
                os.seteuid(0)
            (home / "closed").chmod(0o755)


@pytest.fixture
def small_files():
    """No file may grow beyond 4,096 bytes: a write then fails in the middle, as on a full disk."""
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 32 kB."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode:
        pytest.skip("a small tmpfs cannot be mounted here; the limit on file sizes stands in for it")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], check=True)
