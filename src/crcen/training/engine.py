"""Jobs in, fitted networks out: the one training path.

A plain fit is a list of one job, a search a longer list of the same. The engine returns results; it never prints, warns
or raises for slow convergence.

On a CPU the stacks are cut into pieces, and each runs on one thread of its own. The steps of small networks are too
short to be shared out: threads that meet after every operation gain little on an idle machine and lose tenfold and more
on a busy one, where one of them keeps waiting for the other. The number of threads says how many pieces run at a time.
It says how they are cut only where a network has the same bits alone as beside others, which is tried. So it does not
change a result by a single bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from math import ceil
from threading import Event, Lock

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import DeviceMissing, InvalidInput, InvalidParameter
from crcen.theory.rows import check_binary_target, check_class_numbers, check_row_weights
from crcen.training.classes.stack_run import ClassStackRun
from crcen.training.company import has_own_bits
from crcen.training.jobs import TrainingJob, TrainingResult
from crcen.training.planner import (
    Groups,
    finer,
    free_memory,
    halves,
    n_parameters,
    pieces,
    plan,
    shared_bytes,
    stack_bytes,
)
from crcen.training.ramp_lookup import has_ramps
from crcen.training.rows import TrainingData
from crcen.training.solvers.compiled import compiled_adam_epoch
from crcen.training.stack_run import Report, StackRun
from crcen.training.threads import THREADS, reproducible_arithmetic, usable_cores

__all__ = ["Trainer", "find_device", "train"]

Progress = Callable[[float], None]

_SHARE_OF_FREE_MEMORY = 0.5
# A stack is planned to take half the bound where networks are small enough for that: then two run at a time.
_AT_A_TIME = 2
# Encodings of so many rows are worth a thread each.
_WORTH_THREADS = 5_000


def find_device(name: str) -> torch.device:
    """``"auto"`` is CUDA where there is one; a device that was asked for and is missing is an error."""
    if name not in ("auto", "cpu", "cuda") and not name.startswith("cuda:"):
        raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {name!r}.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceMissing(f"device={name!r} was asked for, but torch sees no CUDA device; use 'auto' or 'cpu'.")
    return torch.device(name)


def train(
    X: ArrayLike,
    y: ArrayLike,
    jobs: Sequence[TrainingJob],
    *,
    sample_weight: ArrayLike | None = None,
    device: str = "auto",
    memory_bytes: int | None = None,
    progress: Progress | None = None,
) -> list[TrainingResult]:
    """Train every job on its rows of X, as many at a time as can share work.

    Parameters
    ----------
    X, y
        All rows that any job names: (n, F) finite numbers (or NaN, where every job has ``missing="indicator"``), and
        0/1 or bool with 1 = positive; class numbers from 0 for jobs with ``class_weights``.
    jobs
        What to train; the result of a job depends on that job and the data alone.
    sample_weight
        Row weights, or ``None``.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    memory_bytes
        Bound on memory beside the rows; default half of what is free. A stack that does not fit is split; a bound that
        a single network exceeds is refused.
    progress
        Called with the share of all work that is done, from 0 to 1.

    Returns
    -------
    list of TrainingResult
        In the order of ``jobs``.
    """
    n_classes = jobs[0].n_outputs if jobs and jobs[0].class_weights else None
    trainer = Trainer(X, y, n_classes=n_classes, sample_weight=sample_weight, device=device, memory_bytes=memory_bytes)
    return trainer(jobs, progress=progress)


class Trainer:
    """`train` for several lists of jobs on the same rows: fitted encodings and copies on the device are kept.

    With ``n_classes`` y holds class numbers, and all jobs have ``class_weights`` for so many.
    """

    def __init__(
        self,
        X: ArrayLike,
        y: ArrayLike,
        *,
        n_classes: int | None = None,
        sample_weight: ArrayLike | None = None,
        device: str = "auto",
        memory_bytes: int | None = None,
    ) -> None:
        features = np.ascontiguousarray(X, dtype=np.float64)
        target = check_binary_target(y) if n_classes is None else check_class_numbers(y, n_classes)
        self.n_classes = n_classes
        if features.ndim != 2 or features.shape[0] != target.size or features.shape[1] == 0:
            raise InvalidInput(
                f"X must be (rows, features) with one row a label: got {features.shape} for {target.size}."
            )
        if np.isinf(features).any():
            raise InvalidInput("X must be finite: got infinity.")
        weights = check_row_weights(sample_weight, target.size)
        if weights.any():  # only their ratios count, and float32 holds no weight of 1e-45
            weights = weights / weights[weights > 0].mean()
        where = find_device(device)
        self.is_bound_given = memory_bytes is not None
        self.bound = memory_bytes if memory_bytes is not None else int(_SHARE_OF_FREE_MEMORY * free_memory(where))
        self.data = TrainingData(features, target, weights, where)
        self.has_missing = bool(np.isnan(features).any())

    def __call__(self, jobs: Sequence[TrainingJob], *, progress: Progress | None = None) -> list[TrainingResult]:
        """Train every job."""
        data = self.data
        if any((job.n_outputs if job.class_weights else None) != self.n_classes for job in jobs):
            raise InvalidInput(f"all training jobs must have class_weights for {self.n_classes} classes.")
        if self.has_missing and any(job.missing == "error" for job in jobs):
            raise InvalidInput("X must be finite: got NaN; jobs with missing='indicator' take it.")
        checked = set()
        for job in jobs:  # many jobs name the same rows
            key = (id(job.rows.own), id(job.rows.pool), id(job.rows.watched))
            if key not in checked:
                checked.add(key)
                _check(job, data.y, data.sample_weight)
        stacks = self._stacks(jobs)
        if not stacks:
            return []
        data.prepare(jobs)
        _fit_encodings(data, jobs, min(THREADS.get(), usable_cores()))
        work = self._pieces(stacks, jobs) if data.device.type == "cpu" else stacks
        meter = _Meter([_cost(groups, jobs) for groups in work], progress)
        workers = self._workers(work, jobs)
        if workers > 1:
            results = _run_apart(work, jobs, data, workers, meter)
        else:
            results = {}
            with reproducible_arithmetic():
                for i, groups in enumerate(work):
                    results |= _train_or_split(groups, jobs, data, meter.reporter(i))
        return [results[position] for position in range(len(jobs))]

    def on(self, rows: NDArray[np.int64]) -> Trainer:
        """A trainer on some of the rows, within the same bound."""
        data = self.data
        return Trainer(
            data.X[rows],
            data.y[rows],
            n_classes=self.n_classes,
            sample_weight=data.sample_weight[rows],
            device=str(data.device),
            memory_bytes=self.bound if self.is_bound_given else None,
        )

    def _stacks(self, jobs: Sequence[TrainingJob]) -> list[Groups]:
        """Stacks of which two, or if need be one, keep the bound."""
        data = self.data
        shared = shared_bytes(jobs, data.n_rows, data.X.shape[1], on_gpu=data.device.type == "cuda")
        for count in range(_AT_A_TIME if data.device.type == "cpu" else 1, 0, -1):
            limit = max(self.bound - shared, 0) // count
            stacks = plan(jobs, data.n_rows, data.n_inputs, limit)
            largest = max((stack.n_bytes for stack in stacks), default=0)
            if largest <= limit:
                break
        if self.is_bound_given and largest > limit:
            times = ceil(10 * (largest + shared) / max(self.bound, 1)) / 10
            raise InvalidParameter(
                f"memory_bytes is too small: the largest network needs {times} times as much; give more, or take a "
                f"smaller network, fewer bins or the standard encoding."
            )
        return [stack.groups for stack in stacks]

    def _pieces(self, stacks: list[Groups], jobs: Sequence[TrainingJob]) -> list[Groups]:
        """Pieces by size, and more of them for cores that would have nothing to do, where that changes no bit."""
        data, cores = self.data, min(THREADS.get(), usable_cores())
        work = pieces(stacks, jobs, data.n_inputs)
        return finer(work, jobs, data.n_inputs, cores, lambda groups: has_own_bits(groups, jobs, data))

    def _workers(self, work: Sequence[Groups], jobs: Sequence[TrainingJob]) -> int:
        """How many pieces run at a time: as many as there are threads and cores, while the largest keep the bound."""
        data = self.data
        if data.device.type != "cpu":
            return 1
        most = min(len(work), THREADS.get(), usable_cores())
        sizes = sorted((stack_bytes(groups, jobs, data.n_rows, data.n_inputs) for groups in work), reverse=True)
        free = self.bound - shared_bytes(jobs, data.n_rows, data.X.shape[1])
        return max([count for count in range(1, most + 1) if sum(sizes[:count]) <= free], default=1)

    def state_bytes(self, job: TrainingJob) -> int:
        """Size of the state that a job leaves."""
        return 12 * n_parameters(job, self.data.n_inputs)


def _fit_encodings(data: TrainingData, jobs: Sequence[TrainingJob], threads: int) -> None:
    """Fit the encodings that these jobs will read, several at a time: on many rows that takes a while."""
    if threads < 2 or data.n_rows < _WORTH_THREADS or data.device.type != "cpu":
        return
    leads: dict[tuple[object, ...], TrainingJob] = {}
    for job in jobs:
        rows = id(job.rows.own), id(job.rows.pool)
        leads.setdefault((*rows, job.encoding, job.bins, job.missing, job.standardize), job)

    def fit(job: TrainingJob) -> None:
        encoding = data.encoding(job, job.rows.trained(data.n_rows))
        if job.draws_batches and has_ramps(encoding):
            data.coded(encoding)

    if len(leads) > 1:
        with ThreadPoolExecutor(threads, initializer=THREADS.keep_one) as pool:
            list(pool.map(fit, leads.values()))


def _check(job: TrainingJob, y: NDArray[np.bool_] | NDArray[np.int64], sample_weight: NDArray[np.float64]) -> None:
    own = slice(None) if job.rows.is_whole_table else job.rows.trained(len(y))
    labels, weights = y[own], sample_weight[own]
    if job.class_weights is not None:
        if not np.bincount(labels, weights, job.n_outputs).all():
            raise InvalidInput("a training job needs rows of every class with weight.")
    elif not weights[labels].any() or not weights[~labels].any():
        raise InvalidInput("a training job needs rows of both classes with weight.")
    if job.rows.watched is not None and not sample_weight[job.rows.watched].any():
        raise InvalidInput("validation rows must have weight.")


def _cost(groups: Groups, jobs: Sequence[TrainingJob]) -> float:
    """A rough measure of a piece's time, for the progress bar alone."""
    return sum(jobs[p].max_epochs * (20.0 + sum(jobs[p].hidden)) for group in groups for p in group)


class _Meter:
    """Adds up the progress of pieces, from any thread, and carries the word to stop."""

    def __init__(self, costs: Sequence[float], progress: Progress | None) -> None:
        self._shares = [cost / sum(costs) for cost in costs]
        self._done = [0.0] * len(costs)
        self._progress, self._lock = progress, Lock()
        self.stop = Event()

    def reporter(self, piece: int) -> Report:
        """The function that a piece reports to; it raises once the work is to stop."""

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


def _run_apart(
    work: Sequence[Groups], jobs: Sequence[TrainingJob], data: TrainingData, workers: int, meter: _Meter
) -> dict[int, TrainingResult]:
    """Run the pieces side by side, each on one thread."""
    results: dict[int, TrainingResult] = {}
    with reproducible_arithmetic():
        compiled_adam_epoch()  # once, before several threads ask for it
    with (
        THREADS.set(1),
        ThreadPoolExecutor(workers, initializer=THREADS.keep_one) as pool,
    ):
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


@torch.inference_mode()
def _train_or_split(
    groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData, report: Report
) -> dict[int, TrainingResult]:
    """Train a stack; where the memory does not suffice after all, train its halves.

    Outside of autograd altogether: what torch keeps of a view for it takes as long as a small operation.
    """
    try:
        stack_run = StackRun if data.y.dtype == np.bool_ else ClassStackRun
        return stack_run(groups, jobs, data).run(report)
    except (MemoryError, RuntimeError) as error:  # torch's CPU allocator raises a plain RuntimeError
        is_memory = isinstance(error, MemoryError | torch.cuda.OutOfMemoryError) or "allocate memory" in str(error)
        if not is_memory or (len(groups) == 1 and len(groups[0]) == 1):
            raise
    if data.device.type == "cuda":
        torch.cuda.empty_cache()
    first, second = halves(groups)
    return _train_or_split(first, jobs, data, report) | _train_or_split(second, jobs, data, report)
