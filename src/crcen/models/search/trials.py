"""Trials: settings trained on every fold in parts of the schedule; those far behind are dropped."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import part_of
from crcen.models.clock import OutOfTime
from crcen.models.search.grid import Outcome, Setting
from crcen.theory.rows import Array
from crcen.training.jobs import TrainingJob, TrainingResult, TrainingState
from crcen.training.network import Network

Rungs = Sequence[tuple[float, float]]
Progress = Callable[[float], None]

# After these shares of the schedule, these shares of the settings go on. Chosen on the benchmark's development half.
RUNGS = ((1 / 6, 0.75), (1 / 3, 0.5), (1 / 2, 0.25), (2 / 3, 0.125))
_FEWEST = 2
# Fewer settings than this are all run in full; on many rows, where scores tell settings apart early and training is
# dear, fewer than that.
_WORTH_HALVING, _WORTH_HALVING_MANY_ROWS = 8, 4
_MANY_ROWS = 10_000
_SHORTEST_SCHEDULE = 5
# From half of the schedule on, a setting that has not gained in this last share of its epochs is done.
_FINISHED_FROM, _WITHOUT_GAIN = 1 / 2, 1 / 2


class Trial:
    """One setting on every fold: its jobs and their results so far."""

    def __init__(self, setting: Setting, jobs: Sequence[TrainingJob]) -> None:
        self.setting, self.jobs = setting, jobs
        self.epochs: list[int] = []
        # Log loss of every record, the mean over folds; whoever scores the trial adds to it.
        self.losses: list[float] = []
        self.schedule = jobs[0].max_epochs  # epochs of the whole schedule
        self.goes_in_parts = jobs[0].draws_batches  # whether training can stop and go on
        self._states: list[TrainingState | None] = [None] * len(jobs)
        self._records: list[list[NDArray[np.float32] | Network | None]] = [[] for _ in jobs]

    @property
    def n_rows(self) -> int:
        """Training rows of the smallest fold; 0 if the jobs have no list of rows."""
        return min(job.n_trained(0) for job in self.jobs)

    def next_jobs(self, stop: int) -> Iterable[TrainingJob]:
        """The jobs that continue every fold up to an epoch."""
        for job, state in zip(self.jobs, self._states, strict=True):
            yield job.replace(start=state, stop_epoch=stop, leaves_state=True) if self.goes_in_parts else job

    def take(self, results: Sequence[TrainingResult]) -> None:
        """Add the results of the folds: held-out logits recorded in training, or the final network."""
        self.epochs += results[0].recorded_epochs
        self._states = [result.state for result in results]
        if results[0].state is not None and results[0].state.epoch == self.schedule:
            self._states = [None] * len(results)
        for own, result in zip(self._records, results, strict=True):
            own += list(result.val_logits) if self.epochs else [result.network]

    def forget(self) -> None:
        """Free everything that only a further part would need."""
        self._states, self._records = [None] * len(self.jobs), [[] for _ in self.jobs]

    def latest(self, fold: int, X: Array) -> Array:
        """Held-out logits of the records without a loss, (records, n[, K])."""
        new = range(len(self.losses), len(self._records[fold]))
        return np.array([self.record(fold, position, X) for position in new])

    def record(self, fold: int, position: int, X: Array) -> Array:
        """Held-out logits of one record of all parts, (n,) or (n, K)."""
        found = self._records[fold][position]
        if isinstance(found, np.ndarray):
            return found.astype(np.float64)
        if found is None:
            n_outputs = self.jobs[fold].outputs
            return np.full((len(X),) if n_outputs is None else (len(X), n_outputs), np.nan)
        return found.logits(X)


def run_trials(
    trials: Sequence[Trial],
    train: Callable[..., list[TrainingResult]],
    score: Callable[[Trial], Outcome],
    *,
    halving: bool,
    progress: Progress,
    rungs: Rungs = RUNGS,
) -> list[Outcome]:
    """The outcome of every trial; those far behind are marked as dropped."""
    schedule = max((trial.schedule for trial in trials if trial.goes_in_parts), default=1)
    in_parts = halving and schedule >= _SHORTEST_SCHEDULE
    stops = {round(share * schedule): keep for share, keep in rungs} if in_parts else {}
    outcomes: dict[int, Outcome] = {}
    running, begun = list(range(len(trials))), 0
    for stop, keep in [*stops.items(), (schedule, 1.0)]:
        try:
            _run_part([trials[i] for i in running], stop, train, part_of(progress, begun / schedule, stop / schedule))
        except OutOfTime:
            if not outcomes:
                raise
            break
        outcomes |= {i: score(trials[i]) for i in running}
        unfinished = [i for i in running if trials[i].goes_in_parts]  # the others have been run in full
        running, begun = _going_on(unfinished, trials, outcomes, keep, stop, schedule), stop
        for i in set(outcomes).difference(running):
            trials[i].forget()
        if not running:
            break
    progress(1.0)
    return [outcomes[i] for i in range(len(trials))]


def _run_part(
    trials: Sequence[Trial], stop: int, train: Callable[..., list[TrainingResult]], progress: Progress
) -> None:
    """Train trials up to an epoch; only the trials keep the results."""
    found = iter(train([job for trial in trials for job in trial.next_jobs(stop)], progress=progress))
    for trial in trials:
        trial.take([next(found) for _ in trial.jobs])


def _going_on(
    running: list[int], trials: Sequence[Trial], outcomes: dict[int, Outcome], keep: float, stop: int, schedule: int
) -> list[int]:
    """Trials that continue after a part: not those far behind, which are marked, nor those that no longer improve."""
    if stop == schedule:
        return []
    by_weighting: dict[int, list[int]] = {}
    for i, outcome in outcomes.items():
        if trials[i].goes_in_parts:  # a setting that is through would be compared with one at a sixth of its way
            by_weighting.setdefault(outcome.setting.weighting_index, []).append(i)
    for rivals in by_weighting.values():
        has_many_rows = min(trials[i].n_rows for i in rivals) >= _MANY_ROWS
        if len(rivals) < (_WORTH_HALVING_MANY_ROWS if has_many_rows else _WORTH_HALVING):
            continue
        left = (i for i in rivals if not outcomes[i].is_dropped)
        # Scores of decisions are often equal early on; the loss, by which the epoch is chosen, then decides.
        ahead = sorted(left, key=lambda i: (-outcomes[i].merit, min(trials[i].losses)))
        for i in ahead[max(_FEWEST, math.ceil(keep * len(rivals))) :]:
            if i in running:
                outcomes[i] = replace(outcomes[i], is_dropped=True)
    may_finish = stop >= _FINISHED_FROM * schedule
    return [
        i
        for i in running
        if not outcomes[i].is_dropped
        and not (may_finish and stop - (outcomes[i].epochs or stop) >= _WITHOUT_GAIN * stop)
    ]
