"""The local engine: jobs in, trained networks out, without output or warnings.

Jobs that can share work form stacks under a memory bound. On a CPU stacks are split into pieces, each on one thread:
steps of small networks are too short to be shared. The number of threads sets how many pieces run at the same time, not
how stacks are split, so it does not change a bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil, inf, prod
from pathlib import Path
from threading import Event, Lock
from typing import Any

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_row_weights
from crcen.training.device import THREADS, find_device, reproducible_arithmetic
from crcen.training.jobs import TrainingJob, TrainingResult, digest
from crcen.training.recipe import n_batches
from crcen.training.rows import VALIDATION_ROWS, TrainingData, float_type
from crcen.training.solvers import adam_epoch, compiled
from crcen.training.stack_run import Report, StackRun

Progress = Callable[[float], None]

_SHARE_OF_FREE_MEMORY = 0.5
# A stack is planned to need half the bound, if networks are small enough: then two can run at the same time.
_AT_A_TIME = 2

# The number of encoded columns of a job.
Inputs = Callable[[TrainingJob], int]

# Positions in a list of jobs, one row per group.
Groups = tuple[tuple[int, ...], ...]

# Memory apart from stacks: rows processed at a time in float64; labels, weights and indices of every row.
_WORK_BYTES = 2**23
_BYTES_A_ROW, _CELL_BYTES = 64, 8
_ACTIVATION_COPIES = 4
_ROWS_AT_ONCE = 2048  # for a solver that reads all rows

# Further pieces are useful with more than two cores and must cost others nothing. Adam reaches that with these
# operations per step: for groups of their own, and for networks that share the rows of a group in batches of 128 rows
# (the shared work, table lookups of a batch, grows with its rows).
_OPERATIONS_OF_GROUPS, _OPERATIONS_OF_NETWORKS, _ROWS_OF_A_BATCH = 1e7, 2e7, 128
_MOST_PIECES = 16


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


# -- plans -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedStack:
    """Positions in the list of jobs: one row per group, all of one length."""

    groups: Groups
    n_bytes: int


def free_memory(device: torch.device) -> int:
    """Free bytes on a device; in a container at most its limit."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    with suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
        with suppress(OSError, ValueError):  # no file, or "max"
            free = min(free, int(Path("/sys/fs/cgroup/memory.max").read_text()))
        return free
    with suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    return 2**31


def plan(jobs: Sequence[TrainingJob], n_rows: int, n_inputs: Inputs, memory_bytes: int) -> list[PlannedStack]:
    """Stacks that together hold every job once.

    Jobs with equal rows and batch order form a group; groups with equal settings and sizes share a stack. A stack above
    the bound is split, groups first, then networks; a single network is planned in any case.
    """
    stacks: dict[tuple[object, ...], dict[tuple[object, ...], list[int]]] = {}
    for position, job in enumerate(jobs):
        group = digest(job.rows), digest(job.watched), job.shuffle_seed if job.draws_batches else 0
        stacks.setdefault(_common_key(job, n_rows), {}).setdefault(group, []).append(position)
    n_bytes = partial(stack_bytes, jobs=jobs, n_rows=n_rows, n_inputs=n_inputs)
    found: list[PlannedStack] = []
    for members in stacks.values():
        for size in dict.fromkeys(map(len, members.values())):  # all groups of a stack have as many networks
            groups = tuple(tuple(positions) for positions in members.values() if len(positions) == size)
            found += _bounded(groups, n_bytes, memory_bytes)
    return found


def _common_key(job: TrainingJob, n_rows: int) -> tuple[object, ...]:
    """Settings that all networks of a stack share."""
    batches = n_batches(job.n_trained(n_rows), job.batch_size) if job.draws_batches else 0
    rate = job.learning_rate if job.draws_batches else job.tol
    encoded = (job.standardize, job.encoding, job.bins, job.missing, job.column_scales)
    watched = (job.watched is not None, job.stop_epoch, job.record_every)
    resumed = (job.first_epoch, job.leaves_state)
    network = (job.hidden, job.activation, job.loss, job.n_outputs)
    return (job.solver, *network, job.max_epochs, batches, rate, *watched, *resumed, *encoded)


def _bounded(groups: Groups, n_bytes: Callable[[Groups], int], limit: int) -> list[PlannedStack]:
    needed = n_bytes(groups)
    if needed <= limit or (len(groups) == 1 and len(groups[0]) == 1):
        return [PlannedStack(groups, needed)]
    return [piece for half in halves(groups) for piece in _bounded(half, n_bytes, limit)]


def halves(groups: Groups) -> list[Groups]:
    """Split a stack in two: groups if there are several, otherwise networks."""
    if len(groups) > 1:
        middle = len(groups) // 2
        return [groups[:middle], groups[middle:]]
    middle = len(groups[0]) // 2
    return [(groups[0][:middle],), (groups[0][middle:],)]


def step_operations(groups: Groups, jobs: Sequence[TrainingJob], n_inputs: Inputs) -> float:
    """Multiplications of one step of a stack, forward and backward."""
    example = jobs[groups[0][0]]
    total = sum(map(prod, pairwise((n_inputs(example), *example.hidden, example.n_outputs))))
    n_at_once = example.batch_size if example.draws_batches else _ROWS_AT_ONCE
    return 3.0 * total * sum(map(len, groups)) * n_at_once


def pieces(stacks: Sequence[Groups], jobs: Sequence[TrainingJob], n_inputs: Inputs) -> list[Groups]:
    """Split stacks into pieces that can run in parallel, largest first.

    Only their size decides, not the number of threads: the last digits of a network may depend on its stack.
    """
    parts = [(step_operations(groups, jobs, n_inputs), groups) for groups in stacks]
    while 0 < len(parts) < _MOST_PIECES:
        parts.sort(key=lambda part: -part[0])
        splittable = (i for i, (cost, groups) in enumerate(parts) if cost >= 2 * _least(groups, jobs, len(parts)))
        position = next(splittable, None)
        if position is None:
            break
        largest = parts.pop(position)[1]
        parts += [(step_operations(half, jobs, n_inputs), half) for half in halves(largest)]
    return [groups for _, groups in sorted(parts, key=lambda part: -part[0])]


def _least(groups: Groups, jobs: Sequence[TrainingJob], n_parts: int) -> float:
    """Operations that each half of a part must have."""
    if sum(map(len, groups)) == 1:
        return inf
    example = jobs[groups[0][0]]
    if n_parts == 1:
        return example.solver_kind.cut_operations
    if not example.draws_batches:
        return inf
    if len(groups) > 1:
        return _OPERATIONS_OF_GROUPS
    return _OPERATIONS_OF_NETWORKS * max(1.0, example.batch_size / _ROWS_OF_A_BATCH)


def n_parameters(job: TrainingJob, n_inputs: Inputs) -> int:
    """Number of trained parameters of a network."""
    sizes = (n_inputs(job), *job.hidden, job.n_outputs)
    return sum(prod(pair) + pair[1] for pair in pairwise(sizes)) + (sizes[0] if job.column_scales else 0)


def shared_bytes(n_rows: int, n_features: int, *, on_gpu: bool = False) -> int:
    """Memory that all stacks share, apart from the rows, of which a GPU has a copy."""
    return n_rows * (_BYTES_A_ROW + (n_features * _CELL_BYTES if on_gpu else 0)) + _WORK_BYTES


def stack_bytes(groups: Groups, jobs: Sequence[TrainingJob], n_rows: int, n_inputs: Inputs) -> int:
    """Memory that a stack needs during training."""
    example = jobs[groups[0][0]]
    solver, in_batches, n_models = example.solver_kind, example.draws_batches, len(groups[0])
    n_own = max(jobs[group[0]].n_trained(n_rows) for group in groups)  # groups are padded to the longest
    at_once = min(example.batch_size if in_batches else _ROWS_AT_ONCE, n_own)
    watched = [found for group in groups if (found := jobs[group[0]].watched) is not None]
    n_watched = max(map(len, watched), default=0)
    if watched:
        at_once += VALIDATION_ROWS
    width, units = n_inputs(example), n_models * sum((*example.hidden, example.n_outputs))
    parameters = (solver.copies + example.column_scales) * n_models * n_parameters(example, n_inputs)
    # All rows are encoded; L-BFGS keeps a copy of its own, with the weights of every row and network.
    held = n_rows * width + n_own * (4 + (0 if in_batches else width + n_models)) + n_watched * (width + 4)
    return len(groups) * solver.itemsize * (parameters + _ACTIVATION_COPIES * at_once * units + held)
