"""A streamed fit on disk, whole or not at all, so that it can go on after any interruption."""

import json
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.whole_files import whole_file
from crcen.exceptions import DataUnavailable

__all__ = ["Progress", "read_checkpoint", "write_checkpoint"]


@dataclass
class Progress:
    """Where a streamed fit stands.

    Parameters
    ----------
    fingerprint
        Of data and settings: a checkpoint of another fit is refused.
    seed
        All randomness derives from it and the position.
    epoch, block, batch
        What comes next.
    loss_curve, val_loss_curve
        One value an epoch that is over.
    since_best
        Epochs since any member was best on the held-out rows.
    arrays
        The trainer's state, and each member's best parameters so far.
    """

    fingerprint: str
    seed: int
    epoch: int = 0
    block: int = 0
    batch: int = 0
    loss_curve: list[float] = field(default_factory=list)
    val_loss_curve: list[list[float]] = field(default_factory=list)
    since_best: int = 0
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)


def write_checkpoint(path: Path, progress: Progress) -> None:
    """Replace the file at once, after the new one is safely on disk."""
    about = {name: value for name, value in vars(progress).items() if name != "arrays"}
    header = np.frombuffer(json.dumps(about).encode(), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        np.savez(file, allow_pickle=False, header=header, **progress.arrays)


def read_checkpoint(path: Path) -> Progress | None:
    """What was written last, or ``None``; nothing in the file is executed."""
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
        return Progress(**json.loads(arrays.pop("header").tobytes()), arrays=arrays)
    except (OSError, ValueError, KeyError, TypeError, zipfile.BadZipFile) as error:
        raise DataUnavailable(
            f"{path} is no checkpoint of a streamed fit, or damaged: remove it to start anew."
        ) from error
