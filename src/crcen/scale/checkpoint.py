"""Checkpoints of a streamed fit, written atomically, from which it continues after an interruption."""

import hashlib
import json
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from crcen._support.files import atomic_file, exclusive_lock
from crcen.exceptions import CrcenError, DataUnavailable
from crcen.theory.rows import LabelArray


@dataclass
class Progress:
    """The state of a streamed fit."""

    fingerprint: str  # of data and settings: a checkpoint of another fit is rejected
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
    arrays: dict[str, LabelArray] = field(default_factory=dict)


def lock_storage(
    storage: str | Path | None, name: str = "", what: str = "storage folder"
) -> AbstractContextManager[None]:
    """Keep other fits from a storage folder, or from a name in it; there is no lock for an address."""
    if storage is None or "://" in str(storage):
        return nullcontext()
    try:
        Path(storage).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataUnavailable(f"nothing can be kept in {storage}: {error.strerror}.") from error
    return exclusive_lock(Path(storage) / name, instead=f"give another {what}")


@contextmanager
def kept_in(folder: Path | None, what: str, instead: str) -> Iterator[None]:
    """Turn errors of a disk into a sentence that names the folder."""
    try:
        yield
    except CrcenError:  # of what is read, some of which are an OSError, too
        raise
    except OSError as error:
        place, reason = folder or tempfile.gettempdir(), error.strerror or error
        raise DataUnavailable(f"{what} cannot be kept in {place}: {reason}; make room, or {instead}.") from error


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file atomically; if it cannot be written, the earlier checkpoint is kept."""
    about = {name: value for name, value in vars(progress).items() if name != "arrays"}
    about["digest"] = _digest(progress.arrays)
    header = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    try:
        with atomic_file(path) as file:
            np.savez(file, allow_pickle=False, header=header, **progress.arrays)
    except DataUnavailable as error:
        advice = "the last whole checkpoint is kept, make room and start again from it"
        raise DataUnavailable(f"{str(error).rstrip('.')}; {advice}.") from error


def _digest(arrays: dict[str, LabelArray]) -> str:
    """Of names and content: the file's own sums do not cover the names."""
    found = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        found.update(repr((name, array.dtype.str, array.shape)).encode() + array.tobytes())
    return found.hexdigest()


def read_checkpoint(path: Path) -> Progress | None:
    """The checkpoint, or None if there is no file; nothing in the file is executed."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        about = json.loads(arrays.pop("header").tobytes())
        if about.pop("digest") != _digest(arrays):
            raise ValueError("arrays are others than those written")
        return Progress(**about, arrays=arrays)
    except Exception as error:  # of a file that is empty, truncated, altered or no checkpoint
        message = f"{path} is no checkpoint of a streamed fit, or damaged: remove it to start again."
        raise DataUnavailable(message) from error
