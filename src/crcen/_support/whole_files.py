"""Files are written whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crcen.exceptions import DataUnavailable

__all__ = ["check_place", "whole_file"]


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
        If it is a folder, or its folder is missing or closed, or it would be written over what is read.
    """
    place = Path(path)
    if place.is_dir():
        raise DataUnavailable(f"{place} cannot be written: it is a folder; give the name of a file.")
    if not place.parent.is_dir():
        raise DataUnavailable(f"{place} cannot be written: the folder {place.parent} is not there; make it first.")
    if not os.access(place.parent, os.W_OK | os.X_OK):
        raise DataUnavailable(f"{place} cannot be written: no permission to write in the folder {place.parent}.")
    for source in read:
        if isinstance(source, str | Path) and place.exists() and Path(source).exists() and place.samefile(source):
            raise DataUnavailable(f"{place} cannot be written: it is the file that is read; give another name.")
    return place


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside a file; it takes the file's name when the block ends well, Ctrl-C included.

    Parameters
    ----------
    path : str or Path
        The file to be; one that is there stays as it is until the new one is whole.

    Yields
    ------
    Path
        Where to write. Gone afterwards, whatever happened.

    Raises
    ------
    DataUnavailable
        If the place cannot take a file, or the disk is full.
    """
    place = check_place(path)
    temporary = place.with_name(f".{place.name}.{os.getpid()}.part")
    try:
        yield temporary
        os.replace(temporary, place)
    except DataUnavailable:
        raise
    except OSError as error:
        if error.filename is not None and Path(error.filename) != temporary:
            raise  # about another file than this one
        raise DataUnavailable(f"{place} was not written: {error.strerror or error}.") from error
    finally:
        temporary.unlink(missing_ok=True)
