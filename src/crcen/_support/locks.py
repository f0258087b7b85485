"""One process at a time: for folders and files that two runs would spoil for each other.

The lock is the operating system's. It ends with its process, kill -9 included, so nothing has to be found stale. The
lock's file says who holds it, and is removed when the work is over.
"""

import errno
import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crcen.exceptions import DataUnavailable

__all__ = ["sole_use"]

_BUSY = (errno.EACCES, errno.EAGAIN, errno.EDEADLK)
_TRIES = 100


@contextmanager
def sole_use(place: str | Path, *, instead: str = "give another place") -> Iterator[None]:
    """Keep other processes, and other threads of this one, from the same folder or file.

    Wrap whatever reads, changes and writes it, not only the writing::

        with sole_use(checkpoint, instead="give another checkpoint="):
            progress = read_checkpoint(checkpoint)
            ...

    Parameters
    ----------
    place : str or Path
        A folder that is there, or a file that may not be there yet in a folder that is. The lock is ``.lock`` in the
        folder, or ``.NAME.lock`` beside the file.
    instead : str
        What the one who comes too late can do, besides waiting.

    Raises
    ------
    DataUnavailable
        If someone else holds it, or no lock can be made there. It does not wait.
    """
    place = Path(os.path.realpath(place))
    path = place / ".lock" if place.is_dir() else place.with_name(f".{place.name}.lock")
    descriptor = _acquired(path, place, instead)
    try:
        yield
    finally:
        with suppress(OSError):  # while it is held: whoever opened it meanwhile sees that it is gone, and makes another
            os.unlink(path)
        os.close(descriptor)


def _acquired(path: Path, place: Path, instead: str) -> int:
    for _ in range(_TRIES):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
        except OSError as error:
            raise DataUnavailable(f"{place} cannot be used: its lock {path}: {error.strerror}.") from error
        try:
            _lock(descriptor)
            if _is_current(descriptor, path):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode())
                return descriptor
        except OSError as error:
            holder = _holder(descriptor)
            os.close(descriptor)
            if error.errno in _BUSY:
                raise DataUnavailable(f"{place} is in use by {holder}; wait until it ends, or {instead}.") from error
            raise DataUnavailable(f"{place} cannot be used: its lock {path}: {error.strerror}.") from error
        os.close(descriptor)
    raise DataUnavailable(f"{place} is in use by many others; wait until they end, or {instead}.")


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the file that was locked still has its name; the one before us may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _holder(descriptor: int) -> str:
    with suppress(OSError):
        os.lseek(descriptor, 0, os.SEEK_SET)
        said = "".join(c for c in os.read(descriptor, 200).decode("utf-8", "replace") if c.isprintable())
        if said.startswith("process "):
            return said
    return "another process"


def _lock(descriptor: int) -> None:
    """Take the lock or raise at once."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        warnings.warn("this file system has no locks: see to it that no two runs use one folder.", stacklevel=5)
