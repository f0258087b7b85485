"""The number of epochs with the lowest loss on held-out rows, one number for all folds."""

from dataclasses import dataclass

import numpy as np

from crcen._support.progress import part_of
from crcen.models.fitting import FitRows, has_many_rows
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
# Shares of the schedule after which folds pause, and end if the best epoch is in this first share of the epochs so far.
# Before the half the loss may rise with the rate, by a third and more, and then fall below all earlier values.
_STOPS = ((1 / 3, 0.0), (1 / 2, 1 / 3), (2 / 3, 2 / 3), (5 / 6, 2 / 3))
_STOPS_OF_MANY_ROWS = ((2 / 3, 2 / 3),)  # the end is usually best there, and a pause takes time
_SHORTEST_SCHEDULE = 12  # with pauses


def is_cut(model: Estimator, recipe: Recipe, rows: FitRows, balance: bool | str) -> bool:
    """Whether folds choose the number of epochs: if it was left to the data, and folds are needed for logits only."""
    left_open = model.max_epochs is None and recipe.draws_batches and not recipe.early_stopping
    return bool(rows.folds) and left_open and isinstance(balance, str) and model.can_cut and not model.is_control


@dataclass(frozen=True, eq=False)
class CutSchedule:
    """Training on all rows and on folds, stopped after the epoch with the lowest loss on held-out rows."""

    train: Engine
    rows: FitRows  # with folds
    trained: Price  # the class weights of the loss
    jobs: list[TrainingJob]  # on all rows
    fold_jobs: list[TrainingJob]  # fold by fold, as many members on each

    def results(self, progress: Progress) -> list[TrainingResult]:
        """Results of the jobs on all rows, then of those on folds."""
        epochs, found, states = self._chosen_epochs(part_of(progress, 0.0, _SHARE_OF_CHOICE))
        on_all, on_folds = self._stopped_after(epochs)
        on_folds = [job.replace(start=state) for job, state in zip(on_folds, states, strict=True)]
        rest = part_of(progress, _SHARE_OF_CHOICE, 1.0)
        if epochs == self.fold_jobs[0].max_epochs and self._are_ready(found):
            return [*self.train(on_all, progress=rest), *found]
        return self.train(on_all + on_folds, progress=rest)

    def _are_ready(self, found: list[TrainingResult]) -> bool:
        """Whether networks of the whole schedule, which are not balanced, can be used as the networks of the folds.

        The average of several networks is balanced as a whole, and the biases of its parts cancel there.
        """
        return len(found) > len(self.rows.folds) and all(one.network is not None for one in found)

    def _chosen_epochs(self, progress: Progress) -> tuple[int | None, list[TrainingResult], States]:
        """The best number of epochs (``None`` if all networks diverge), the last networks, and earlier states.

        The states are those of the last pause before the best epoch, ``None`` for the start.
        """
        folds, first = self.rows.folds, self.fold_jobs[0]
        members, schedule = len(self.fold_jobs) // len(folds), first.max_epochs
        size = 4 * members * first.n_outputs * schedule * sum(len(held_out) for _, held_out in folds)
        how = {"record_every": -(-size // _RECORD_BYTES), "balance": False}
        watched = [job.replace(watched=folds[i // members][1], **how) for i, job in enumerate(self.fold_jobs)]
        states: States = [None] * len(watched)
        best, least, before_best, begun = None, np.inf, states, 0
        shares = _STOPS_OF_MANY_ROWS if has_many_rows(len(self.rows.X)) else _STOPS
        stops = [(round(share * schedule), limit) for share, limit in shares if schedule >= _SHORTEST_SCHEDULE]
        for stop, limit in [*stops, (schedule, 0.0)]:
            own = {"stop_epoch": stop, "leaves_state": stop < schedule}
            part = [job.replace(start=state, **own) for job, state in zip(watched, states, strict=True)]
            found = self.train(part, progress=part_of(progress, begun / schedule, stop / schedule))
            curve = self._curve(found)
            lowest = int(np.argmin(curve)) if len(curve) else 0
            if len(curve) and curve[lowest] < least:
                recorded = next(one.recorded_epochs for one in found if one.status.is_finite)
                best, least, before_best = recorded[lowest], curve[lowest], states
            states, begun = [one.state for one in found], stop
            if stop < schedule and best is not None and best <= limit * stop:
                break
        return best, found, before_best

    def _curve(self, found: list[TrainingResult]) -> Array:
        """The folds' mean natural log loss of held-out rows at each record; empty if all networks diverged."""
        rows, members, curves = self.rows, len(found) // len(self.rows.folds), []
        for i, (_, held_out) in enumerate(rows.folds):
            own = [one.val_logits for one in found[i * members : (i + 1) * members] if one.status.is_finite]
            if own:
                logits, target = rows.labels.columns(np.mean(own, axis=0, dtype=np.float64)), rows.target[held_out]
                curves.append(log_losses(logits, target, rows.weights[held_out], self.trained, natural=True))
        curve = np.mean(curves, axis=0) if curves else np.empty(0)
        return np.where(np.isfinite(curve), curve, np.inf)

    def _stopped_after(self, epochs: int | None) -> tuple[list[TrainingJob], list[TrainingJob]]:
        """Jobs on all rows and on folds, stopped after the chosen epoch.

        The number of steps grows with the rows, or stays if batches are few. If as many epochs would be more steps,
        because of a small last batch, jobs on all rows get fewer epochs, at the same share of the rate's cycle.
        """
        if epochs is None:
            return self.jobs, self.fold_jobs
        size, n_rows, folds = self.jobs[0].batch_size, len(self.rows.X), self.rows.folds
        rows_of_fold = sum(len(own) for own, _ in folds) / len(folds)
        steps_of_fold = sum(n_batches(len(own), size) for own, _ in folds) / len(folds)
        growth = n_rows / rows_of_fold if steps_of_fold > _FEW_BATCHES else 1.0
        share = min(1.0, growth * steps_of_fold / n_batches(n_rows, size))
        whole, stop = (max(1, round(share * count)) for count in (self.jobs[0].max_epochs, epochs))
        on_all = [job.replace(max_epochs=whole, stop_epoch=min(stop, whole)) for job in self.jobs]
        return on_all, [job.replace(stop_epoch=epochs) for job in self.fold_jobs]
