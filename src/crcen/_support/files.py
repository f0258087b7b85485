"""Atomic writes and exclusive locks.

A file is written under an unpredictable name beside its destination, and renamed with the mode and owner of the file
that it replaces. Symbolic links are followed; devices receive the content when it is complete.
"""

import errno
import os
import re
import secrets
import shutil
import socket
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import glob
from pathlib import Path
from typing import BinaryIO

from crcen.exceptions import DataUnavailable

_OF_THIS_FILE = {errno.ENOSPC, errno.EFBIG, errno.EIO, getattr(errno, "EDQUOT", errno.ENOSPC)}
_NOT_A_FILE = {stat.S_IFDIR: "folder", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFBLK: "disk"}


@contextmanager
def exclusive_lock(path: str | Path, *, instead: str = "choose another path", seconds: float = 0.0) -> Iterator[None]:
    """Hold a lock on a folder (``.lock`` in it) or file (``.NAME.lock``) that ends if the process dies.

    Another holder is waited for so many ``seconds``, then named in a `DataUnavailable` with what to do ``instead``.
    """
    from filelock import FileLock, Timeout

    place = Path(os.path.realpath(path))
    marker = place / ".lock" if place.is_dir() else place.with_name(f".{place.name}.lock")
    if not marker.parent.is_dir():  # filelock would create it
        raise DataUnavailable(f"{place} cannot be locked: the folder {marker.parent} does not exist; create it first.")
    lock = FileLock(marker, timeout=seconds, mode=0o644)
    try:
        lock.acquire()
    except Timeout as error:
        raise DataUnavailable(f"{place} is in use by {_holder(marker)}; wait until it ends, or {instead}.") from error
    except OSError as error:
        raise DataUnavailable(f"{place} cannot be locked: {marker}: {error.strerror}.") from error
    try:
        with suppress(OSError):  # Windows does not let others read a locked file
            marker.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
        yield
    finally:
        with suppress(OSError):  # before the release: filelock does not accept a lock on a removed file
            marker.unlink()
        lock.release()


def _holder(marker: Path) -> str:
    with suppress(OSError):
        name = marker.read_text(encoding="utf-8", errors="replace")[:200].strip()
        if name.startswith("process ") and name.isprintable():
            return name
    return "another process"


def check_writable(path: str | Path, *read: object) -> Path:
    """Check before long work that a file can be written here and is none of the files ``read``; returns the path."""
    place = _resolved(path)
    number = _descriptor(place)
    try:
        found = os.stat(place) if number is None else os.fstat(number)
    except FileNotFoundError:
        found = None
    except NotADirectoryError as error:
        raise _refusal(path, f"{Path(path).parent} is not a folder") from error
    except (OSError, ValueError) as error:
        raise _refusal(path, getattr(error, "strerror", None) or str(error)) from error
    if number is not None:
        return Path(path)
    if found is not None:
        if kind := _NOT_A_FILE.get(stat.S_IFMT(found.st_mode)):
            raise _refusal(path, f"it is a {kind}; give the name of a file")
        if not _may(place, os.W_OK):
            raise _refusal(path, "it is write-protected; give another name, or allow writing to it")
        if stat.S_ISCHR(found.st_mode):
            return Path(path)
        several = (one for source in read for one in (source if isinstance(source, list | tuple) else [source]))
        names = (str(one) for one in several if isinstance(one, str | Path))
        for source in (file for name in names for file in [name, *glob(name)]):
            if Path(source).exists() and os.path.samestat(found, os.stat(source)):
                raise _refusal(path, "it is the file that is read; give another name")
    if not place.parent.is_dir():
        raise _refusal(path, f"the folder {place.parent} does not exist; create it first")
    if not _may(place.parent, os.W_OK | os.X_OK):
        raise _refusal(path, f"no permission to write in the folder {place.parent}")
    return Path(path)


def is_device(path: str | Path) -> bool:
    """Whether this is a device such as ``/dev/stdout`` or ``/dev/null``, which is written to directly."""
    place = _resolved(path)
    return _descriptor(place) is not None or place.is_char_device()


def is_standard_output(path: str | Path) -> bool:
    """Whether this is a name of standard output, such as ``/dev/stdout``; nothing else may be printed there then."""
    return _descriptor(_resolved(path)) == 1


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file atomically, text as UTF-8; raises what `atomic_file` raises."""
    with atomic_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """Yield a binary file that replaces ``path`` if the block succeeds; an existing file keeps its mode."""
    check_writable(path)
    place = _resolved(path)
    through = is_device(place)
    try:
        descriptor, temporary = tempfile.mkstemp() if through else _create_beside(place)
    except OSError as error:
        raise _failure(path, error) from error
    try:
        file = open(descriptor, "wb", closefd=False)  # noqa: SIM115  the block may close it, as text wrappers do
        try:
            yield file
            if not file.closed:
                file.flush()
            os.fsync(descriptor)
        except DataUnavailable:
            raise
        except OSError as error:
            if error.errno in _OF_THIS_FILE and error.filename is None:
                raise _failure(path, error) from error
            raise
        finally:
            with suppress(OSError):  # a full disk fails here again
                file.close()
            os.close(descriptor)
        try:
            _copy_to_device(temporary, place) if through else _replace(temporary, place)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _failure(path, error) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def _failure(path: str | Path, error: OSError) -> DataUnavailable:
    return DataUnavailable(f"{path} was not written: {error.strerror or error}.")


def _refusal(path: str | Path, why: str) -> DataUnavailable:
    return DataUnavailable(f"{path} cannot be written: {why}.")


def _descriptor(place: Path) -> int | None:
    """The open descriptor that a name such as /dev/stdout stands for."""
    name = os.path.normpath(place)
    if name in ("/dev/stdout", "/dev/stderr"):
        return 1 if name == "/dev/stdout" else 2
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,6})", name)
    return int(found[1]) if found else None


def _resolved(path: str | Path) -> Path:
    """The target of a symbolic link; a link to the name of an open descriptor ends there."""
    place = Path(path)
    try:
        for _ in range(40):
            if _descriptor(place) is not None:
                return place
            if not os.path.islink(place):
                break
            place = place.parent / os.readlink(place)
        return Path(os.path.realpath(path))
    except (OSError, ValueError) as error:  # the current folder was removed, or the name holds a NUL
        raise _refusal(path, getattr(error, "strerror", None) or str(error)) from error


def _may(place: Path, what: int) -> bool:
    return os.access(place, what, effective_ids=os.access in os.supports_effective_ids)


def _create_beside(place: Path) -> tuple[int, str]:
    """A new file in the same folder: never an existing one, never through a link; private if it replaces a file."""
    temporary = place.parent / f".{place.name[:40]}.{secrets.token_hex(8)}.part"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    mode = 0o600 if place.exists() else 0o666  # less the umask
    return os.open(temporary, flags | getattr(os, "O_CLOEXEC", 0), mode), str(temporary)


def _replace(temporary: str, place: Path) -> None:
    """Give the finished file the mode and owner of the file that it replaces, and its name."""
    with suppress(FileNotFoundError):
        found = os.stat(place)
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if hasattr(os, "chown"):
            try:
                os.chown(temporary, found.st_uid, found.st_gid)
            except OSError:  # only root may; do not grant the group's rights to another group
                mode &= 0o777 if found.st_gid == os.stat(temporary).st_gid else 0o707
        os.chmod(temporary, mode)
    os.replace(temporary, place)


def _copy_to_device(temporary: str, place: Path) -> None:
    number = _descriptor(place)
    if number == 1:
        sys.stdout.flush()
    target = place if number is None else number
    with open(temporary, "rb") as content, open(target, "wb", closefd=number is None) as out:
        shutil.copyfileobj(content, out)


def free_memory() -> int:
    """Free bytes; in a container at most its limit."""
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        with suppress(OSError, ValueError):  # no file, or "max"
            free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        return free
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**31
