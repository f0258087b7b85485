"""Time limits: a clock, and training that does not start jobs that cannot finish in time."""

import time
from collections.abc import Sequence

import numpy as np

from crcen.theory.rows import Array, Index
from crcen.training.engines import Engine, trainer_on_some
from crcen.training.jobs import TrainingJob, TrainingResult


class OutOfTime(Exception):
    """A step cannot finish in time and was not started."""

    def __str__(self) -> str:
        return "no time was left for it"


class Clock:
    """The remaining seconds of a time limit; infinite without a limit."""

    def __init__(self, seconds: float | None) -> None:
        self._end = None if seconds is None else time.perf_counter() + seconds

    @property
    def left(self) -> float:
        """Seconds left."""
        return np.inf if self._end is None else self._end - time.perf_counter()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit."""
        return self._end is not None

    def share(self, part: float) -> "Clock":
        """A clock with this part of the seconds that are left."""
        return Clock(max(0.0, part * self.left) if self.is_limited else None)


class TimedTraining:
    """An engine that raises `OutOfTime` if jobs would take too long, estimated from the time of earlier jobs."""

    def __init__(self, train: Engine, n_rows: int, clock: Clock) -> None:
        self._train, self._n_rows, self.clock = train, n_rows, clock
        self._seconds, self._work = 0.0, 0.0
        self.reserve = 0.0

    def __call__(self, jobs: Sequence[TrainingJob], **how: object) -> list[TrainingResult]:
        """Train every job, or none."""
        work = sum(map(self.work, jobs))
        if self.clock.is_limited and self._work and self.seconds(work + self.reserve) > self.clock.left:
            raise OutOfTime
        start = time.perf_counter()
        found = self._train(jobs, **how)
        self._seconds, self._work = self._seconds + time.perf_counter() - start, self._work + work
        return found

    def work(self, job: TrainingJob) -> float:
        """Row epochs of a job."""
        return job.n_trained(self._n_rows) * max(1, (job.stop_epoch or job.max_epochs) - job.first_epoch)

    def seconds(self, work: float) -> float:
        """Estimated time of this number of row epochs."""
        return work * self._seconds / self._work if self._work else 0.0

    def learn_from(self, other: "TimedTraining") -> None:
        """Use the measured times of another engine."""
        self._seconds, self._work = other._seconds, other._work

    def on(self, rows: Index, factors: Array | float = 1.0) -> "TimedTraining":
        """The engine on some of the rows, with their weights times ``factors`` and the same clock."""
        found = TimedTraining(trainer_on_some(self._train, rows, factors), len(rows), self.clock)
        found.learn_from(self)
        found.reserve = self.reserve
        return found
