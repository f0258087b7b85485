"""The local engine: jobs in, trained networks out, without output or warnings.

On a CPU stacks are split into pieces, each on one thread: steps of small networks are too short to be shared. The
number of threads sets how many pieces run at the same time, not how stacks are split, so it does not change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import ceil
from threading import Event, Lock
from typing import Any

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_row_weights
from crcen.training.device import find_device
from crcen.training.jobs import TrainingJob, TrainingResult
from crcen.training.planner import Groups, free_memory, halves, n_parameters, pieces, plan, shared_bytes, stack_bytes
from crcen.training.rows import TrainingData, float_type
from crcen.training.solvers import adam_epoch, compiled
from crcen.training.stack_run import Report, StackRun
from crcen.training.threads import THREADS, reproducible_arithmetic

Progress = Callable[[float], None]

_SHARE_OF_FREE_MEMORY = 0.5
# A stack is planned to need half the bound, if networks are small enough: then two can run at the same time.
_AT_A_TIME = 2


def train(
    X: ArrayLike, y: ArrayLike, jobs: Sequence[TrainingJob], *, progress: Progress | None = None, **options: Any
) -> list[TrainingResult]:
    """Train every job on its rows of X, as many at a time as can share work; ``options`` are those of `Trainer`."""
    n_classes = len(jobs[0].class_weights) if jobs else 2
    return Trainer(X, y, n_classes=n_classes, **options)(jobs, progress=progress)


class Trainer:
    """`train` for several lists of jobs on the same rows: fitted encodings and device copies are kept.

    X is finite (NaN only for jobs with ``missing="indicator"``), y holds class numbers below ``n_classes``, and all
    jobs have a weight for each of these classes.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_classes: int = 2,
        sample_weight: ArrayLike | None = None,
        device: str = "auto",
        memory_bytes: int | None = None,
    ) -> None:
        features, target = np.ascontiguousarray(X, dtype=np.float64), np.asarray(y).astype(np.int64)
        weights = check_row_weights(sample_weight, target.size)
        if weights.any():  # only their ratios count, and float32 has no weight of 1e-45
            weights = weights / weights[weights > 0].mean()
        where = find_device(device)
        self.is_bound_given = memory_bytes is not None
        self.bound = memory_bytes if memory_bytes is not None else int(_SHARE_OF_FREE_MEMORY * free_memory(where))
        self.data = TrainingData(features, target, weights, n_classes, where)

    def __call__(self, jobs: Sequence[TrainingJob], *, progress: Progress | None = None) -> list[TrainingResult]:
        """Train every job."""
        data = self.data
        for job in {(id(job.rows), id(job.watched)): job for job in jobs}.values():  # many jobs have the same rows
            own = job.trained(data.n_rows)
            if not np.bincount(data.y[own], data.sample_weight[own], data.n_classes).all():
                raise InvalidInput("a training job needs rows of every class with positive weight.")
            if job.watched is not None and not data.sample_weight[job.watched].any():
                raise InvalidInput("validation rows must have positive weight.")
        stacks = self._stacks(jobs)
        if not stacks:
            return []
        for job in jobs:  # several threads would ask for these at the same time
            data.layout(job.encoding, job.bins)
            data.labels(float_type(job.solver_kind))
        work = pieces(stacks, jobs, data.n_inputs) if data.device.type == "cpu" else stacks
        meter = _Meter(work, jobs, progress)
        workers = self._workers(work, jobs)
        if workers > 1:
            results = _run_in_parallel(work, jobs, data, workers, meter)
        else:
            results = {}
            with reproducible_arithmetic():
                for i, groups in enumerate(work):
                    results |= _train_or_split(groups, jobs, data, meter.reporter(i))
        return [results[position] for position in range(len(jobs))]

    def on(self, rows: NDArray[np.int64], factors: NDArray[np.float64] | float = 1.0) -> Trainer:
        """A trainer on a subset of the rows, their weights times ``factors``, with the same memory bound."""
        data = self.data
        return Trainer(
            data.X[rows],
            data.y[rows],
            n_classes=data.n_classes,
            sample_weight=data.sample_weight[rows] * factors,
            device=str(data.device),
            memory_bytes=self.bound if self.is_bound_given else None,
        )

    def _stacks(self, jobs: Sequence[TrainingJob]) -> list[Groups]:
        """Stacks of which two, or at least one, fit into the memory bound."""
        data = self.data
        shared = shared_bytes(data.n_rows, data.X.shape[1], on_gpu=data.device.type == "cuda")
        for count in range(_AT_A_TIME if data.device.type == "cpu" else 1, 0, -1):
            limit = max(self.bound - shared, 0) // count
            stacks = plan(jobs, data.n_rows, data.n_inputs, limit)
            largest = max((stack.n_bytes for stack in stacks), default=0)
            if largest <= limit:
                break
        if self.is_bound_given and largest > limit:
            times = ceil(10 * (largest + shared) / max(self.bound, 1)) / 10
            raise InvalidParameter(
                f"memory_bytes is too small: the largest network needs {times} times as much; give more, or use a "
                f"smaller network, fewer bins or the standard encoding."
            )
        return [stack.groups for stack in stacks]

    def _workers(self, work: Sequence[Groups], jobs: Sequence[TrainingJob]) -> int:
        """How many pieces run at the same time: limited by threads, cores and memory."""
        data = self.data
        if data.device.type != "cpu":
            return 1
        most = min(len(work), THREADS.get(), cpu_count())
        sizes = sorted((stack_bytes(groups, jobs, data.n_rows, data.n_inputs) for groups in work), reverse=True)
        free = self.bound - shared_bytes(data.n_rows, data.X.shape[1])
        return max([count for count in range(1, most + 1) if sum(sizes[:count]) <= free], default=1)

    def state_bytes(self, job: TrainingJob) -> int:
        """Size of the state of a job."""
        return 12 * n_parameters(job, self.data.n_inputs)


class _Meter:
    """Adds up the progress of pieces from any thread, and tells them to stop."""

    def __init__(self, work: Sequence[Groups], jobs: Sequence[TrainingJob], progress: Progress | None) -> None:
        # An estimate of each piece's time.
        costs = [
            sum(jobs[p].max_epochs * (20.0 + sum(jobs[p].hidden)) for own in groups for p in own) for groups in work
        ]
        self._shares = [cost / sum(costs) for cost in costs]
        self._done = [0.0] * len(costs)
        self._progress, self._lock = progress, Lock()
        self.stop = Event()

    def reporter(self, piece: int) -> Report:
        """The function that a piece reports to; it raises if the work is to stop."""

        def report(part: float) -> None:
            if self.stop.is_set():
                raise InterruptedError
            if self._progress is None:
                return
            with self._lock:
                self._done[piece] = max(self._done[piece], part)  # a piece that is split starts again
                total = sum(share * done for share, done in zip(self._shares, self._done, strict=True))
                self._progress(1.0 if min(self._done) >= 1.0 else min(total, 1.0))

        return report


def _run_in_parallel(
    work: Sequence[Groups], jobs: Sequence[TrainingJob], data: TrainingData, workers: int, meter: _Meter
) -> dict[int, TrainingResult]:
    """Run the pieces in parallel, each on one thread."""
    results: dict[int, TrainingResult] = {}
    with reproducible_arithmetic():
        compiled(adam_epoch)  # once, before several threads ask for it
    with THREADS.set(1), ThreadPoolExecutor(workers, initializer=THREADS.keep_one) as pool:
        futures = [pool.submit(_train_or_split, g, jobs, data, meter.reporter(i)) for i, g in enumerate(work)]
        try:
            for future in as_completed(futures):
                results |= future.result()
        except BaseException:
            meter.stop.set()
            for future in futures:
                future.cancel()
            raise
    return results


@torch.inference_mode()  # autograd's records of views take as long as a small operation
def _train_or_split(
    groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData, report: Report
) -> dict[int, TrainingResult]:
    """Train a stack; if memory is not sufficient, train its halves."""
    try:
        return StackRun(groups, jobs, data).run(report)
    except (MemoryError, RuntimeError) as error:  # torch's CPU allocator raises a plain RuntimeError
        is_memory = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in str(error)
        if not is_memory or (len(groups) == 1 and len(groups[0]) == 1):
            raise
    if data.device.type == "cuda":
        torch.cuda.empty_cache()
    first, second = halves(groups)
    return _train_or_split(first, jobs, data, report) | _train_or_split(second, jobs, data, report)
