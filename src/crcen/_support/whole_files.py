"""Files are written whole or not at all: the one place that writes what others read later.

A file takes shape under a name that nobody can guess, beside the one it replaces, open to its owner alone. It takes the
final name, with the mode of the file it replaces, when all of it is on the disk. Links stay: what they point to is
replaced. Devices such as ``/dev/stdout`` get the content when it is complete.
"""

import errno
import io
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from crcen.exceptions import DataUnavailable

__all__ = ["check_place", "is_device", "is_standard_output", "whole_file", "write_whole"]

_FULL = (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC))
_MOST_LINKS = 40
_UNFIT = (
    (stat.S_ISDIR, "it is a folder; give the name of a file"),
    (stat.S_ISFIFO, "it is a FIFO, which cannot be replaced whole; write a file, or use /dev/stdout and a pipe"),
    (stat.S_ISSOCK, "it is a socket; give the name of a file"),
    (stat.S_ISBLK, "it is a disk; give the name of a file"),
)


def check_place(path: str | Path, *read: Any) -> Path:
    """Say before hours of work whether a file could be written here.

    Parameters
    ----------
    path : str or Path
        The file to be.
    *read
        What is read for it; where that is a file, it must be another one.

    Returns
    -------
    Path
        The same.

    Raises
    ------
    DataUnavailable
        If it is a folder, FIFO, socket or disk, if it or its folder is closed or missing, or if it would be written
        over what is read.
    """
    place = _behind_links(Path(path))
    found = _look(place, path)
    for source in read:
        if (
            found is not None
            and stat.S_ISREG(found.st_mode)
            and isinstance(source, str | Path)
            and Path(source).exists()
            and os.path.samestat(found, os.stat(source))
        ):
            raise _refusal(path, "it is the file that is read; give another name")
    return Path(path)


def is_device(path: str | Path) -> bool:
    """Whether this is no file but a device, such as ``/dev/stdout`` or ``/dev/null``, which is written through."""
    place = _behind_links(Path(path))
    return _stream_number(place) is not None or place.is_char_device()


def is_standard_output(path: str | Path) -> bool:
    """Whether this is a name of standard output, such as ``/dev/stdout``, where nothing else may be printed then."""
    return _stream_number(_behind_links(Path(path))) == 1


def write_whole(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all, text as UTF-8; what it raises is what `whole_file` does."""
    with whole_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """Give a file to write to; it takes its name when the block ends well, and is gone otherwise, Ctrl-C included.

    Parameters
    ----------
    path : str or Path
        The file to be; one that is there stays as it is until the new one is whole, and its mode is kept.

    Yields
    ------
    binary file
        May be closed inside the block, as text wrappers do.

    Raises
    ------
    DataUnavailable
        If the place cannot take a file, or the disk is full.
    """
    check_place(path)
    place = _behind_links(Path(path))
    is_through = is_device(place)
    try:
        descriptor, temporary = tempfile.mkstemp() if is_through else _exclusive(place)
    except OSError as error:
        raise _failure(path, error) from error
    owner = os.getpid()
    file = io.BufferedWriter(_Sink(descriptor, path))
    try:
        try:
            yield file
            if not file.closed:
                file.flush()
            os.fsync(descriptor)
        except DataUnavailable:
            raise
        except OSError as error:
            if error.errno in _FULL and error.filename is None:
                raise _failure(path, error) from error
            raise  # about another file than this one
        finally:
            with suppress(OSError):  # what is still in the buffer may fail again
                file.close()
            os.close(descriptor)
        try:
            _pour(temporary, place) if is_through else _put(temporary, place)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise _failure(path, error) from error
    finally:
        if os.getpid() == owner:  # not in a process that was forked meanwhile
            with suppress(OSError):
                os.unlink(temporary)


class _Sink(io.FileIO):
    """The bytes on their way to the disk; an error says which file it is about."""

    def __init__(self, descriptor: int, path: str | Path) -> None:
        super().__init__(descriptor, "wb", closefd=False)
        self._path = path

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise _failure(self._path, error) from error


def _failure(path: str | Path, error: OSError) -> DataUnavailable:
    return DataUnavailable(f"{path} was not written: {error.strerror or error}.")


def _refusal(path: str | Path, why: str) -> DataUnavailable:
    return DataUnavailable(f"{path} cannot be written: {why}.")


def _stream_number(place: Path) -> int | None:
    """The descriptor that a name such as /dev/stdout stands for; it may be a pipe, and is not ours to replace."""
    name = os.path.normpath(place)
    if name in ("/dev/stdout", "/dev/stderr"):
        return 1 if name == "/dev/stdout" else 2
    found = re.fullmatch(r"/(?:dev|proc/self)/fd/(\d{1,6})", name)
    return int(found[1]) if found else None


def _behind_links(path: Path) -> Path:
    place = path
    for _ in range(_MOST_LINKS):
        if _stream_number(place) is not None:
            return place
        try:
            place = place.parent / os.readlink(place)
        except (OSError, ValueError):  # no link; whatever else is wrong shows when it is looked at
            return place
    raise _refusal(path, "its links lead in a circle")


def _look(place: Path, path: str | Path) -> os.stat_result | None:
    """What stands there now, if it can be replaced or written through."""
    number = _stream_number(place)
    try:
        found = os.stat(place) if number is None else os.fstat(number)
    except FileNotFoundError:
        found = None
    except NotADirectoryError as error:
        raise _refusal(path, f"{place.parent} is no folder") from error
    except (OSError, ValueError) as error:
        raise _refusal(path, getattr(error, "strerror", None) or str(error)) from error
    if number is not None:
        if found is None:
            raise _refusal(path, "it is not open")
        return found
    for is_kind, why in _UNFIT:
        if found is not None and is_kind(found.st_mode):
            raise _refusal(path, why)
    if found is not None and not _may(place, os.W_OK):
        raise _refusal(path, "it is write-protected; give another name, or allow writing to it")
    if found is not None and stat.S_ISCHR(found.st_mode):
        return found
    if not place.parent.is_dir():
        raise _refusal(path, f"the folder {place.parent} is not there; make it first")
    if not _may(place.parent, os.W_OK | os.X_OK):
        raise _refusal(path, f"no permission to write in the folder {place.parent}")
    return found


def _may(place: Path, what: int) -> bool:
    return os.access(place, what, effective_ids=os.access in os.supports_effective_ids)


def _exclusive(place: Path) -> tuple[int, str]:
    """A new file beside another one: never one that is there, never through a link."""
    temporary = place.parent / f".{place.name[:40]}.{secrets.token_hex(8)}.part"
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
    return os.open(temporary, flags | getattr(os, "O_CLOEXEC", 0), 0o600), str(temporary)


def _put(temporary: str, place: Path) -> None:
    """Give the finished file its mode and name."""
    try:
        found = os.stat(place)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    else:
        mode = stat.S_IMODE(found.st_mode) & 0o777
        if hasattr(os, "chown"):
            try:
                os.chown(temporary, found.st_uid, found.st_gid)
            except OSError:  # only root may; then those rights must not pass to another group
                mode &= 0o777 if found.st_gid == os.stat(temporary).st_gid else 0o707
    os.chmod(temporary, mode)
    os.replace(temporary, place)
    if os.name == "posix":
        with suppress(OSError):  # some file systems cannot sync a folder
            folder = os.open(place.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)


def _umask() -> int:
    """What new files may not have. Setting it, the usual way to read it, would reach files of other threads."""
    with suppress(OSError, StopIteration, ValueError), open("/proc/self/status") as lines:
        return int(next(line for line in lines if line.startswith("Umask:")).split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found


def _pour(temporary: str, place: Path) -> None:
    """Copy the finished content to a device or an open stream."""
    number = _stream_number(place)
    if number == 1:
        sys.stdout.flush()
    with (
        open(temporary, "rb") as content,
        open(place if number is None else number, "wb", closefd=number is None) as out,
    ):
        shutil.copyfileobj(content, out)
