"""A search while it runs: settings tried on folds, one chosen, its networks trained on all rows and on every fold."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import part_of
from crcen.exceptions import InvalidInput
from crcen.models.fitting import FitRows, engine_logits, fold_members, training_job
from crcen.models.search.grid import Outcome, Setting, to_price
from crcen.models.search.scoring import LOG_LOSSES, held_out_score, log_losses
from crcen.models.search.subsample_screening import screen_on_subsample
from crcen.models.search.trials import RUNGS, Rungs, Trial, run_trials
from crcen.training.engines import Engine
from crcen.training.jobs import RowSets, TrainingJob, TrainingResult

__all__ = ["SearchRun", "choose"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Progress = Callable[[float], None]

# Held-out logits of a search are kept for every epoch while they take no more than this, or than a quarter of the bound
# on memory; else for every second epoch, every third, and so on.
_RECORD_BYTES = 2**30


@dataclass(frozen=True, eq=False)
class SearchRun:
    """What all parts of a search share.

    Parameters
    ----------
    rows
        Rows and folds.
    scoring
        What `check_scoring` lets pass.
    seed
        Of initial weights and batches.
    train
        Trains a list of jobs on these rows.
    memory_bytes
        Bound on memory, or ``None``.
    """

    rows: FitRows
    scoring: Any
    seed: int
    train: Engine
    memory_bytes: int | None

    def screened(self, settings: list[Setting], *, progress: Progress) -> list[Outcome]:
        """`outcomes` with settings left behind on the way: where rows are many, first on some of them."""
        behind = screen_on_subsample(self, settings, progress=part_of(progress, 0.0, 0.3))
        ahead = [setting for i, setting in enumerate(settings) if i not in behind]
        rest = part_of(progress, 0.3, 1.0) if behind else progress
        found = iter(self.outcomes(ahead, halving=True, progress=rest))
        return [behind[i] if i in behind else next(found) for i in range(len(settings))]

    def outcomes(
        self,
        settings: list[Setting],
        *,
        halving: bool,
        progress: Progress,
        rungs: Rungs = RUNGS,
    ) -> list[Outcome]:
        """Every setting's outcome at its best epoch (L-BFGS: where it ended)."""
        rows, trials = self.rows, []
        n_held_out = sum(len(test) for _, test in rows.folds)
        for setting in settings:
            jobs = []
            for train_rows, held_out in rows.folds:
                job = self.job(setting, train_rows, 0).replace(rows=RowSets(pool=train_rows), balance=False)
                if job.draws_batches:
                    size = 4 * len(settings) * n_held_out * job.max_epochs * job.n_outputs
                    both = replace(job.rows, watched=held_out)
                    job = job.replace(rows=both, record_every=-(-size // self._record_bytes()))
                jobs.append(job)
            trials.append(Trial(setting, jobs))
        halving = halving and self._has_room_for_states(trials)
        return run_trials(trials, self.train, self._outcome, halving=halving, progress=progress, rungs=rungs)

    def refit(self, chosen: Outcome, n_members: int, progress: Progress) -> tuple[list[TrainingResult], Array]:
        """The members on all rows, and their out-of-fold logits at the price, by networks on each fold, in one stack.

        The first member's networks on the folds are those of the search, unless they are to be balanced. On many rows
        not all members have networks there.
        """
        rows, recipe = self.rows, chosen.setting.recipe
        known, most = 0 if recipe.balance else 1, fold_members(n_members, len(rows.X))
        jobs = []
        for member in range(n_members):
            for fold in (None, *(train_rows for train_rows, _ in rows.folds)):
                if fold is not None and not known <= member < most:
                    continue
                job = self.job(chosen.setting, fold, member)
                jobs.append(job.replace(rows=RowSets(pool=fold), stop_epoch=chosen.epochs))
        results = self.train(jobs, progress=progress)
        members = [result for job, result in zip(jobs, results, strict=True) if job.rows.is_whole_table]
        on_folds = [result.network for job, result in zip(jobs, results, strict=True) if not job.rows.is_whole_table]
        oof = self._no_logits()
        for i, (train_rows, held_out) in enumerate(rows.folds):
            networks = [network for network in on_folds[i :: len(rows.folds)] if network is not None]
            moved = to_price(rows, chosen.setting, train_rows)
            logits = [engine_logits([network], rows, held_out) + moved for network in networks]
            oof[held_out] = np.mean([*logits, chosen.logits[held_out]] if known else logits, axis=0)
        return members, oof

    def job(self, setting: Setting, own: Index | None, member: int) -> TrainingJob:
        """The job of a setting at its training weight, as rows of a fold or all rows resolve it."""
        return training_job(setting.recipe, self.rows.resolve(setting.trained_at, own), self.seed, member)

    def _no_logits(self) -> Array:
        return np.full((len(self.rows.X), self.rows.labels.n_classes), np.nan)

    def _outcome(self, trial: Trial) -> Outcome:
        """Choose the epoch by the folds' mean log loss, then score there."""
        rows, scoring = self.rows, self.scoring
        natural = LOG_LOSSES.get(scoring, False) if isinstance(scoring, str) else False
        prices = [rows.resolve(trial.setting.weighting, train_rows) for train_rows, _ in rows.folds]
        moved = [to_price(rows, trial.setting, train_rows) for train_rows, _ in rows.folds]
        losses = []
        for fold, (price, (_, test)) in enumerate(zip(prices, rows.folds, strict=True)):
            latest = rows.labels.columns(trial.latest(fold, rows.X[test])) + moved[fold]
            curve = log_losses(latest, rows.target[test], rows.weights[test], price, natural=natural)
            losses.append(np.where(np.isfinite(curve), curve, np.inf))
        trial.losses += np.mean(losses, axis=0).tolist()
        record = int(np.argmin(trial.losses))
        logits = self._no_logits()
        scores = []
        for fold, (price, (_, held_out)) in enumerate(zip(prices, rows.folds, strict=True)):
            own = rows.labels.columns(trial.record(fold, record, rows.X[held_out])) + moved[fold]
            logits[held_out] = own
            is_finite = bool(np.isfinite(own).all())
            scores.append(held_out_score(scoring, own, rows, held_out, price) if is_finite else -np.inf)
        return Outcome(trial.setting, trial.epochs[record] if trial.epochs else None, np.array(scores), logits)

    def _has_room_for_states(self, trials: list[Trial]) -> bool:
        """Whether what one part of a schedule leaves to the next takes no more than a quarter of the bound."""
        from crcen.training.engine import Trainer

        if self.memory_bytes is None or not isinstance(self.train, Trainer):
            return True
        # Those that go on and those they started from are there at a time.
        return 2 * sum(self.train.state_bytes(job) for trial in trials for job in trial.jobs) <= self.memory_bytes // 4

    def _record_bytes(self) -> int:
        return _RECORD_BYTES if self.memory_bytes is None else min(_RECORD_BYTES, max(1, self.memory_bytes // 4))


def choose(outcomes: list[Outcome], *, one_standard_error: bool) -> int:
    """Position of the best outcome, or of the simplest within one standard error of it."""
    means = np.array([-np.inf if outcome.is_dropped else outcome.merit for outcome in outcomes])
    best = int(np.argmax(means))
    if not np.isfinite(means[best]):
        raise InvalidInput("no setting has a finite score; look for extreme values, or lower the learning rate.")
    if not one_standard_error:
        return best
    scores = outcomes[best].scores
    floor = means[best] - scores.std(ddof=1) / np.sqrt(len(scores))
    good = np.flatnonzero(means >= floor).tolist()
    recipes = [outcome.setting.recipe for outcome in outcomes]
    return min(good, key=lambda i: (sum(recipes[i].hidden), -recipes[i].l2, -means[i]))
