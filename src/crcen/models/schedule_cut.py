"""The number of epochs with the lowest loss on held-out rows, one number for all folds."""

from collections.abc import Sequence

import numpy as np

from crcen._support.progress import part_of
from crcen.models.fitting import FitRows, has_many_rows
from crcen.models.search.folds import Fold
from crcen.models.search.grid import log_losses
from crcen.models.search.trials import Progress
from crcen.theory.price import Price
from crcen.theory.rows import Array, Estimator
from crcen.training.engines import Engine
from crcen.training.jobs import TrainingJob, TrainingResult, TrainingState
from crcen.training.recipe import Recipe, n_batches

States = list[TrainingState | None]

_RECORD_BYTES = 2**28  # held-out logits are kept for every epoch while they take no more than this
_SHARE_OF_CHOICE = 0.6  # of the time of a fit, about
_FEW_BATCHES = 2  # of an epoch on a fold
# Shares of the schedule after which folds stop, and end where the best epoch is in this first share of those so far.
# Before the half the loss may rise with the rate, by a third and more, and then fall below all that was before.
_STOPS = ((1 / 3, 0.0), (1 / 2, 1 / 3), (2 / 3, 2 / 3), (5 / 6, 2 / 3))
_STOPS_OF_MANY_ROWS = ((2 / 3, 2 / 3),)  # the end is best there as a rule, and a stop takes time
_SHORTEST_SCHEDULE = 12  # that goes in parts


def is_cut(model: Estimator, recipe: Recipe, folds: Sequence[Fold], balance: bool | str) -> bool:
    """Whether folds choose the number of epochs: where it was left to the data and they end in nothing but logits."""
    left_open = model.max_epochs is None and recipe.draws_batches and not recipe.early_stopping
    return bool(folds) and left_open and isinstance(balance, str) and model.can_cut and not model.is_control


def train_to_cut(
    train: Engine,
    jobs: list[TrainingJob],
    fold_jobs: list[TrainingJob],
    folds: Sequence[Fold],
    rows: FitRows,
    trained: Price,
    progress: Progress,
) -> list[TrainingResult]:
    """Results of the jobs on all rows and of those on folds, cut where rows held out are predicted best."""
    n_rows = len(rows.X)
    share = part_of(progress, 0.0, _SHARE_OF_CHOICE)
    epochs, found, states = _chosen_epochs(train, fold_jobs, folds, rows, trained, share)
    on_all, on_folds = _cut_after(epochs, jobs, fold_jobs, folds, n_rows)
    on_folds = [job.replace(start=state) for job, state in zip(on_folds, states, strict=True)]
    rest = part_of(progress, _SHARE_OF_CHOICE, 1.0)
    if _are_ready(found, epochs == fold_jobs[0].max_epochs, len(folds)):
        return [*train(on_all, progress=rest), *found]
    return train(on_all + on_folds, progress=rest)


def _are_ready(found: Sequence[TrainingResult], is_whole: bool, n_folds: int) -> bool:
    """Whether the networks that chose, after the whole schedule or not, can stand for those of the folds.

    They are not balanced on their own rows. The average of several is, as a whole, and its parts' biases cancel there.
    """
    return is_whole and len(found) > n_folds and all(one.network is not None for one in found)


def _chosen_epochs(
    train: Engine,
    fold_jobs: list[TrainingJob],
    folds: Sequence[Fold],
    rows: FitRows,
    trained: Price,
    progress: Progress,
) -> tuple[int | None, list[TrainingResult], States]:
    """After how many epochs networks on folds have the least loss on rows held out, these networks, and states before.

    The networks are those of the whole schedule, where it was not ended before. States are of the last stop before the
    best epoch, ``None`` where that is the start. The number is ``None`` where all diverge.
    """
    members = len(fold_jobs) // len(folds)
    first = fold_jobs[0]
    schedule = first.max_epochs
    size = 4 * members * first.n_outputs * schedule * sum(len(held_out) for _, held_out in folds)
    every = -(-size // _RECORD_BYTES)
    watched = [
        job.replace(watched=folds[i // members][1], record_every=every, balance=False)
        for i, job in enumerate(fold_jobs)
    ]
    states: States = [None] * len(watched)
    best, least, before_best = None, np.inf, states
    shares = _STOPS_OF_MANY_ROWS if has_many_rows(len(rows.X)) else _STOPS
    stops = [(round(share * schedule), limit) for share, limit in shares if schedule >= _SHORTEST_SCHEDULE]
    begun = 0
    for stop, limit in [*stops, (schedule, 0.0)]:
        goes_on = stop < schedule
        part = [
            job.replace(start=state, stop_epoch=stop, leaves_state=goes_on)
            for job, state in zip(watched, states, strict=True)
        ]
        found = train(part, progress=part_of(progress, begun / schedule, stop / schedule))
        curve = _curve(found, folds, rows, trained)
        lowest = int(np.argmin(curve)) if len(curve) else 0
        if len(curve) and curve[lowest] < least:
            recorded = next(one.recorded_epochs for one in found if one.status.is_finite)
            best, least, before_best = recorded[lowest], curve[lowest], states
        states, begun = [one.state for one in found], stop
        if goes_on and best is not None and best <= limit * stop:
            break
    return best, found, before_best


def _curve(found: Sequence[TrainingResult], folds: Sequence[Fold], rows: FitRows, trained: Price) -> Array:
    """The folds' mean natural log loss of held-out rows at each record; empty if all networks diverged."""
    members = len(found) // len(folds)
    curves = []
    for i, (_, held_out) in enumerate(folds):
        own = [one.val_logits for one in found[i * members : (i + 1) * members] if one.status.is_finite]
        if own:
            logits = rows.labels.columns(np.mean(own, axis=0, dtype=np.float64))
            curves.append(log_losses(logits, rows.target[held_out], rows.weights[held_out], trained, natural=True))
    curve = np.mean(curves, axis=0) if curves else np.empty(0)
    return np.where(np.isfinite(curve), curve, np.inf)


def _cut_after(
    epochs: int | None, jobs: list[TrainingJob], fold_jobs: list[TrainingJob], folds: Sequence[Fold], n_rows: int
) -> tuple[list[TrainingJob], list[TrainingJob]]:
    """Jobs on all rows and on folds, cut where the folds said.

    Steps grow as rows do, or not at all where batches are few. Where as many epochs would be more, as a small last
    batch makes them, those on all rows get fewer, and the rate is as far along its cycle.
    """
    if epochs is None:
        return jobs, fold_jobs
    size = jobs[0].batch_size
    rows_of_fold = sum(len(own) for own, _ in folds) / len(folds)
    steps_of_fold = sum(n_batches(len(own), size) for own, _ in folds) / len(folds)
    growth = n_rows / rows_of_fold if steps_of_fold > _FEW_BATCHES else 1.0
    share = min(1.0, growth * steps_of_fold / n_batches(n_rows, size))
    whole, stop = (max(1, round(share * count)) for count in (jobs[0].max_epochs, epochs))
    on_all = [job.replace(max_epochs=whole, stop_epoch=min(stop, whole)) for job in jobs]
    return on_all, [job.replace(stop_epoch=epochs) for job in fold_jobs]
