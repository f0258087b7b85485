"""How many epochs of a schedule: as many as predict rows best that were held out, one number for all folds."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import part_of
from crcen.training.jobs import TrainingJob, TrainingResult
from crcen.training.recipe import Recipe

__all__ = ["is_cut", "train_to_cut"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Progress = Callable[[float], None]

_RECORD_BYTES = 2**28  # held-out logits are kept for every epoch while they take no more than this
_SHARE_OF_FOLDS = 0.8  # of the time, about


def is_cut(model: Any, recipe: Recipe, folds: Sequence[Any], balance: Any) -> bool:
    """Whether folds choose the number of epochs: where it was left to the data and they end in nothing but logits."""
    left_open = model.max_epochs is None and recipe.draws_batches and not recipe.early_stopping
    return bool(folds) and left_open and isinstance(balance, str) and model.can_cut and not model.is_control


def train_to_cut(
    train: Callable[[list[TrainingJob], Progress], list[TrainingResult]],
    jobs: list[TrainingJob],
    fold_jobs: list[TrainingJob],
    folds: Sequence[tuple[Index, Index]],
    losses: Callable[[Array, Index], Array],
    oof: Array,
    progress: Progress,
) -> list[TrainingResult]:
    """Networks on all rows, cut where those of the folds had the least loss; fills in the held-out logits there.

    Parameters
    ----------
    train
        Trains jobs, and says how far it is.
    jobs, fold_jobs
        One a member on all rows, and as many on each fold, fold by fold.
    folds
        Training and held-out rows.
    losses
        From the members' mean logits (records, held-out rows[, classes]) and these rows to a loss of each record.
    oof
        Filled with logits of held-out rows; those of a fold whose networks all diverged stay as they are.
    progress
        Called with the share of the work that is done.
    """
    members = len(jobs)
    size = 4 * members * jobs[0].n_outputs * jobs[0].max_epochs * sum(len(held_out) for _, held_out in folds)
    every = -(-size // _RECORD_BYTES)
    watched = [
        replace(job, rows=replace(job.rows, watched=folds[i // members][1]), record_every=every, balance=False)
        for i, job in enumerate(fold_jobs)
    ]
    found = train(watched, part_of(progress, 0.0, _SHARE_OF_FOLDS))
    records: list[tuple[Index, Array]] = []
    for i, (_, held_out) in enumerate(folds):
        own = [one.val_logits for one in found[i * members : (i + 1) * members] if one.network is not None]
        if own:
            records.append((held_out, np.mean(own, axis=0, dtype=np.float64)))
    stop = None
    if records:
        curve = np.mean([losses(logits, held_out) for held_out, logits in records], axis=0)
        best = int(np.argmin(np.where(np.isfinite(curve), curve, np.inf)))
        stop = next(one.recorded_epochs[best] for one in found if one.network is not None)
        for held_out, logits in records:
            oof[held_out] = logits[best]
    cut = [replace(job, stop_epoch=stop, balance=False) for job in jobs]
    return train(cut, part_of(progress, _SHARE_OF_FOLDS, 1.0))
