"""A streamed fit on disk, whole or not at all, so that it can go on after any interruption."""

import hashlib
import json
import os
import secrets
import warnings
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.files import atomic_file, exclusive_lock
from crcen.exceptions import DataUnavailable

Values = NDArray[Any]  # of any type


@dataclass
class Progress:
    """Where a streamed fit stands."""

    fingerprint: str  # of data and settings: a checkpoint of another fit is refused
    seed: int  # all randomness derives from it and the position
    # What comes next
    epoch: int = 0
    block: int = 0
    batch: int = 0
    # One value an epoch that is over
    loss_curve: list[float] = field(default_factory=list)
    val_loss_curve: list[list[float]] = field(default_factory=list)
    since_best: int = 0  # epochs since any member was best on the held-out rows
    # The trainer's state, and each member's best parameters so far
    arrays: dict[str, Values] = field(default_factory=dict)


def lock_storage(storage: str | Path | None, name: str = "") -> AbstractContextManager[None]:
    """Keep other fits from a storage folder, or from a name in it; there is no lock for an address."""
    if storage is None or "://" in str(storage):
        return nullcontext()
    try:
        Path(storage).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataUnavailable(f"nothing can be kept in {storage}: {error.strerror}.") from error
    return exclusive_lock(Path(storage) / name, instead="give another storage folder")


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file at once, after the new one is safely on disk; the one before it is kept beside it.

    Raises
    ------
    DataUnavailable
        If the disk is full, say: the checkpoints that are there stay as they are.
    """
    about = {name: value for name, value in vars(progress).items() if name != "arrays"}
    about["digest"] = _digest(progress.arrays)
    header = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    try:
        with atomic_file(path) as file:
            np.savez(file, allow_pickle=False, header=header, **progress.arrays)
            file.flush()
            _keep_previous(path)
    except DataUnavailable as error:
        kept = "the last whole checkpoint is kept, make room and start again from it"
        raise DataUnavailable(f"{str(error).rstrip('.')}; {kept}.") from error


def _digest(arrays: dict[str, Values]) -> str:
    """Of names and content: the file's own sums do not cover the names."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
    return found.hexdigest()


def _previous(path: Path) -> Path:
    return path.with_name(f"{path.name}.previous")


def _keep_previous(path: Path) -> None:
    """Give the file that is about to be replaced a second name, which takes no room."""
    spare = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    with suppress(OSError):  # there is none yet, or a file system without links: then there is one checkpoint alone
        os.link(path, spare)
        os.replace(spare, _previous(path))


def read_checkpoint(path: Path) -> Progress | None:
    """The last whole one of what was written, or ``None``; nothing in the file is executed.

    Warns
    -----
    UserWarning
        If the last one is damaged and that before it is taken.
    """
    damage: Exception | None = None
    for place in (path, _previous(path)):
        if not place.exists():
            continue
        try:
            found = _read(place)
        except Exception as error:  # of a file that is empty, cut short, altered or no checkpoint
            damage = damage or error
            continue
        if damage is not None:
            warnings.warn(f"{path} is damaged; going on from the checkpoint before it.", UserWarning, stacklevel=3)
        return found
    if damage is None:
        return None
    raise DataUnavailable(
        f"{path} is no checkpoint of a streamed fit, or damaged: remove it to start anew."
    ) from damage


def _read(path: Path) -> Progress:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
        arrays = {name: found[name] for name in found.files}
    about = json.loads(arrays.pop("header").tobytes())
    if about.pop("digest") != _digest(arrays):
        raise ValueError("arrays are others than those written")
    return Progress(**about, arrays=arrays)
