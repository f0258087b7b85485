"""The local engine: jobs in, trained networks out, without output or warnings.

Jobs that can share work form stacks under a memory bound. On a CPU stacks are split into pieces, each on one thread:
steps of small networks are too short to be shared. The number of threads sets how many pieces run at the same time, not
how stacks are split, so it does not change a bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from itertools import pairwise
from math import ceil, inf, prod
from threading import Event, Lock
from typing import Any

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from crcen._support import files
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.checks import check_row_weights
from crcen.theory.rows import Array, Index
from crcen.training.device import THREADS, find_device, outputs_on, reproducible_arithmetic
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState, digest
from crcen.training.network import Network, NetworkGroup, log_sigmoid
from crcen.training.recipe import ONE_AGAINST_ALL, n_batches
from crcen.training.rows import VALIDATION_ROWS, RowFeed, TrainingData, float_type
from crcen.training.solvers import LBFGS, Adam, Objective, adam_epoch, compiled
from crcen.training.stack import Stack, logits_of_batches, row_weights

Progress = Callable[[float], None]
# Called with the completed share of a stack's work; raises to stop the run.
Report = Callable[[float], None]

_SHARE_OF_FREE_MEMORY = 0.5
# A stack is planned to need half the bound, if networks are small enough: then two can run at the same time.
_AT_A_TIME = 2

# The number of encoded columns of a job.
Inputs = Callable[[TrainingJob], int]

# Positions in a list of jobs, one row per group.
Groups = tuple[tuple[int, ...], ...]

# Memory apart from stacks: rows processed at a time in float64; labels, weights and indices of every row.
_WORK_BYTES, _BYTES_A_ROW, _CELL_BYTES, _ACTIVATION_COPIES = 2**23, 64, 8, 4
_ROWS_AT_ONCE = 2048  # for a solver that reads all rows

# Further pieces are useful with more than two cores and must cost others hardly anything. Adam reaches that with these
# operations per step: for groups of their own, and for networks that share the rows of a group in batches of 128 rows
# (the shared work, table lookups of a batch, grows with its rows).
_OPERATIONS_OF_GROUPS, _OPERATIONS_OF_NETWORKS, _ROWS_OF_A_BATCH = 1e7, 1.5e7, 128
_MOST_PIECES = 16

# Epochs without a lower validation loss before a network is stopped.
_PATIENCE = 10
# Validation rows that a GPU processes at a time, and first hidden units of all of them.
_ROWS_ON_A_GPU, _UNITS_AT_ONCE = 2**13, 2**24
# Logits of the balance solve at a time; it holds about ten times as many numbers.
_LOGITS_AT_ONCE = 2**24


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
        free = torch.cuda.mem_get_info(where)[0] if where.type == "cuda" else files.free_memory()
        self.bound = memory_bytes if memory_bytes is not None else int(_SHARE_OF_FREE_MEMORY * free)
        self.data = TrainingData(features, target, weights, n_classes, where)

    def __call__(self, jobs: Sequence[TrainingJob], *, progress: Progress | None = None) -> list[TrainingResult]:
        """Train every job."""
        data = self.data
        # Many jobs have the same rows.
        different = {(id(job.rows), id(job.validation), job.encoding): job for job in jobs}
        for job in different.values():
            own = job.trained(data.n_rows)
            if not np.bincount(data.y[own], data.sample_weight[own], data.n_classes).all():
                raise InvalidInput("a training job needs rows of every class with positive weight.")
            if job.validation is not None and not data.sample_weight[job.validation].any():
                raise InvalidInput("validation rows must have positive weight.")
        if not (stacks := self._stacks(jobs)):
            return []
        work = pieces(stacks, jobs, data.n_rows, data.n_inputs) if data.device.type == "cpu" else stacks
        meter = _Meter(work, jobs, progress)
        workers, results = self._workers(work, jobs), dict[int, TrainingResult]()
        with reproducible_arithmetic():
            data.prepare(different.values())
            if workers > 1:
                results = _run_in_parallel(work, jobs, data, workers, meter)
            else:
                for i, groups in enumerate(work):
                    results |= _train_or_split(groups, jobs, data, meter.reporter(i))
        return [results[position] for position in range(len(jobs))]

    def on(self, rows: NDArray[np.int64], factors: NDArray[np.float64] | float = 1.0) -> Trainer:
        """A trainer on a subset of the rows, their weights times ``factors``, with the same memory bound."""
        data = self.data
        bound = self.bound if self.is_bound_given else None
        how: dict[str, Any] = {"n_classes": data.n_classes, "device": str(data.device), "memory_bytes": bound}
        return Trainer(data.X[rows], data.y[rows], sample_weight=data.sample_weight[rows] * factors, **how)

    def _stacks(self, jobs: Sequence[TrainingJob]) -> list[Groups]:
        """Stacks of which two, or at least one, fit into the memory bound."""
        data = self.data
        shared = shared_bytes(data.n_rows, data.X.shape[1], on_gpu=data.device.type == "cuda")
        for count in range(_AT_A_TIME if data.device.type == "cpu" else 1, 0, -1):
            limit = max(self.bound - shared, 0) // count
            stacks = plan(jobs, data.n_rows, data.n_inputs, limit)
            largest = max(self._sizes(stacks, jobs), default=0)
            if largest <= limit:
                break
        if self.is_bound_given and largest > limit:
            times = ceil(10 * (largest + shared) / max(self.bound, 1)) / 10
            message = f"memory_bytes is too small: the largest network needs {times} times as much"
            raise InvalidParameter(
                f"{message}; give more, or use a smaller network, fewer bins or encoding='standard'."
            )
        return stacks

    def _workers(self, work: Sequence[Groups], jobs: Sequence[TrainingJob]) -> int:
        """How many pieces run at the same time: limited by threads, cores and memory."""
        data = self.data
        if data.device.type != "cpu":
            return 1
        most = min(len(work), THREADS.get(), cpu_count())
        sizes = sorted(self._sizes(work, jobs), reverse=True)
        free = self.bound - shared_bytes(data.n_rows, data.X.shape[1])
        return max([count for count in range(1, most + 1) if sum(sizes[:count]) <= free], default=1)

    def _sizes(self, work: Sequence[Groups], jobs: Sequence[TrainingJob]) -> list[int]:
        return [stack_bytes(groups, jobs, self.data.n_rows, self.data.n_inputs) for groups in work]


class _Meter:
    """Sums the progress of pieces from any thread, and signals them to stop."""

    def __init__(self, work: Sequence[Groups], jobs: Sequence[TrainingJob], progress: Progress | None) -> None:
        # An estimate of each piece's time.
        costs = [sum(map(len, own)) * jobs[own[0][0]].max_epochs * (20.0 + sum(jobs[own[0][0]].hidden)) for own in work]
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
    results: dict[int, TrainingResult] = {}
    compiled(adam_epoch)  # once, before several threads ask for it
    with ThreadPoolExecutor(workers, initializer=THREADS.keep_one) as pool:
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


def plan(jobs: Sequence[TrainingJob], n_rows: int, n_inputs: Inputs, memory_bytes: int) -> list[Groups]:
    """Stacks that together hold every job once.

    Jobs with equal rows and batch order form a group; groups with equal settings and sizes share a stack. A stack above
    the bound is split, groups first, then networks; a single network is planned in any case.
    """
    stacks: dict[tuple[object, ...], dict[tuple[object, ...], list[int]]] = {}
    for position, job in enumerate(jobs):
        group = digest(job.rows), digest(job.validation), job.shuffle_seed if job.draws_batches else 0
        stacks.setdefault(_common_key(job, n_rows), {}).setdefault(group, []).append(position)
    found: list[Groups] = []
    for members in stacks.values():
        for size in dict.fromkeys(map(len, members.values())):  # all groups of a stack have as many networks
            todo: list[Groups] = [tuple(tuple(own) for own in members.values() if len(own) == size)]
            while todo:
                groups = todo.pop()
                if len(groups) == len(groups[0]) == 1 or stack_bytes(groups, jobs, n_rows, n_inputs) <= memory_bytes:
                    found.append(groups)
                else:
                    todo += reversed(halves(groups))
    return found


def _common_key(job: TrainingJob, n_rows: int) -> tuple[object, ...]:
    batches = n_batches(job.n_trained(n_rows), job.batch_size) if job.draws_batches else 0
    rate = job.learning_rate if job.draws_batches else job.tol
    encoded = (job.standardize, job.encoding, job.bins, job.missing, job.column_scales)
    course = (job.validation is not None, job.stop_epoch, job.record_every, job.first_epoch, job.leaves_state)
    network = (job.hidden, job.activation, job.loss, job.n_outputs)
    return (job.solver, *network, job.max_epochs, batches, rate, *course, *encoded)


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


def pieces(stacks: Sequence[Groups], jobs: Sequence[TrainingJob], n_rows: int, n_inputs: Inputs) -> list[Groups]:
    """Split stacks into pieces that can run in parallel, longest first.

    Only their size decides, not the number of threads: the last digits of a network may depend on its stack.
    """

    def work(groups: Groups) -> float:
        example = jobs[groups[0][0]]
        n_read = (example.last_epoch - example.first_epoch) * example.n_trained(n_rows)
        return n_read * step_operations(groups, jobs, n_inputs) / example.batch_size

    def can_be_split(groups: Groups) -> bool:
        return step_operations(groups, jobs, n_inputs) >= 2 * _least(groups, jobs[groups[0][0]], len(parts))

    parts = sorted(stacks, key=work, reverse=True)
    while len(parts) < _MOST_PIECES and (longest := next(filter(can_be_split, parts), None)):
        parts.remove(longest)
        parts = sorted([*parts, *halves(longest)], key=work, reverse=True)
    return parts


def _least(groups: Groups, example: TrainingJob, n_parts: int) -> float:
    """Operations that each half of a part must have."""
    if sum(map(len, groups)) == 1 or not (n_parts == 1 or example.draws_batches):
        return inf
    if n_parts == 1:
        return example.solver_kind.cut_operations
    if len(groups) > 1:
        return _OPERATIONS_OF_GROUPS
    return _OPERATIONS_OF_NETWORKS * max(1.0, example.batch_size / _ROWS_OF_A_BATCH)


def n_parameters(job: TrainingJob, n_inputs: Inputs) -> int:
    """Number of trained parameters of a network."""
    sizes = (n_inputs(job), *job.hidden, job.n_outputs)
    return sum(prod(pair) + pair[1] for pair in pairwise(sizes)) + (sizes[0] if job.column_scales else 0)


def shared_bytes(n_rows: int, n_features: int, *, on_gpu: bool = False) -> int:
    """Memory that all stacks share, with the order of every column, apart from the rows, of which a GPU has a copy."""
    return n_rows * (_BYTES_A_ROW + n_features * (4 + (_CELL_BYTES if on_gpu else 0))) + _WORK_BYTES


def stack_bytes(groups: Groups, jobs: Sequence[TrainingJob], n_rows: int, n_inputs: Inputs) -> int:
    """Memory that a stack needs during training."""
    example = jobs[groups[0][0]]
    solver, in_batches, n_models = example.solver_kind, example.draws_batches, len(groups[0])
    n_own = max(jobs[group[0]].n_trained(n_rows) for group in groups)  # groups are padded to the longest
    at_once = min(example.batch_size if in_batches else _ROWS_AT_ONCE, n_own)
    validation = [found for group in groups if (found := jobs[group[0]].validation) is not None]
    n_validation = max(map(len, validation), default=0)
    if validation:
        at_once += VALIDATION_ROWS
    width, units = n_inputs(example), n_models * sum((*example.hidden, example.n_outputs))
    parameters = (solver.copies + example.column_scales) * n_models * n_parameters(example, n_inputs)
    # All rows are encoded; L-BFGS keeps a copy of its own, with the weights of every row and network.
    held = n_rows * width + n_own * (4 + (0 if in_batches else width + n_models)) + n_validation * (width + 4)
    return len(groups) * solver.itemsize * (parameters + _ACTIVATION_COPIES * at_once * units + held)


# -- one stack ---------------------------------------------------------------------------------------------------------


class StackRun:
    """One stack from initial parameters to results; C classes."""

    def __init__(self, groups: tuple[tuple[int, ...], ...], jobs: Sequence[TrainingJob], data: TrainingData) -> None:
        self.groups, self.data = groups, data
        self.jobs = [[jobs[p] for p in group] for group in groups]
        self.example = self.jobs[0][0]
        self.leads = [group[0] for group in self.jobs]  # the jobs of a group share rows and encoding
        self.dtype = float_type(self.example.solver_kind)
        self.rows = [job.trained(data.n_rows) for job in self.leads]
        self.encodings = [data.encoding(self.example, rows) for rows in self.rows]
        self.is_one_against_all = self.example.loss == ONE_AGAINST_ALL
        # Weight of a row and of all rows of each class in every network, (G, M, C).
        self.class_weights = np.array([[job.class_weights for job in group] for group in self.jobs])
        labels, s = range(data.n_classes), data.sample_weight
        counts = np.array([[s[rows[data.y[rows] == label]].sum() for label in labels] for rows in self.rows])
        self.class_sums = self.class_weights * counts[:, None]
        self.stack = self._initial_stack()
        self.objective = self._objective()

    def _initial_stack(self) -> Stack:
        job, device = self.example, self.data.device
        network = job.hidden, job.activation, job.loss, self.dtype, device
        n_groups, n_models, size = len(self.groups), len(self.jobs[0]), self.encodings[0].size
        stack = Stack(n_groups, n_models, size, *network, scaled=bool(job.column_scales), n_outputs=job.n_outputs)
        seeds = torch.tensor([[one.seed & (2**63 - 1) for one in group] for group in self.jobs], device=device)
        stack.initialise(seeds, torch.from_numpy(self._prior()).to(device, self.dtype))
        return stack

    def _prior(self) -> Array:
        """Initial output biases (G, M, outputs), from the weighted class shares."""
        logs = np.log(self.class_sums)
        if self.example.n_outputs == 1:
            return np.asarray(logs[..., 1:] - logs[..., :1])
        if self.is_one_against_all:
            return np.asarray(logs - np.log(self.class_sums.sum(axis=2, keepdims=True) - self.class_sums))
        return np.asarray(logs - logs.mean(axis=2, keepdims=True))

    def _objective(self) -> Objective:
        by_class = self.class_weights / self.class_sums.sum(axis=2, keepdims=True)
        l2 = np.array([[job.l2 for job in group] for group in self.jobs])
        parts = np.ascontiguousarray(by_class.transpose(0, 2, 1)), l2
        return Objective(*(torch.from_numpy(part).to(self.data.device, self.dtype) for part in parts))

    def solver(self) -> Adam | LBFGS:
        """The solver, before its first step."""
        feed = RowFeed(self.data, self.rows, self.encodings, self.dtype)
        if not self.example.draws_batches:
            return LBFGS(self.stack, feed, self.objective, tol=self.example.tol)
        seeds = [lead.shuffle_seed for lead in self.leads]
        adam = Adam(self.stack, feed, self.objective, self.example, seeds, len(self.rows[0]))
        if self.example.start:
            places = self.stack.places()[0]  # (G, M, parameters)
            states = [[job.start.values for job in group if job.start] for group in self.jobs]
            for flat, values in zip(adam.state(), np.moveaxis(np.array(states), 2, 0), strict=True):
                flat[places] = torch.from_numpy(values).to(flat.device, flat.dtype)
        return adam

    @torch.no_grad()
    def run(self, report: Report) -> dict[int, TrainingResult]:
        """Train, keep each network's best epoch if there are validation rows, balance, and return the results."""
        job, first, epochs = self.example, self.example.first_epoch, self.example.last_epoch
        solver, validation = self.solver(), self.validation()
        losses: list[Tensor] = []
        records: dict[int, Tensor] = {}
        converged_at = torch.full_like(self.objective.l2, torch.inf)
        for epoch in range(first + 1, epochs + 1):
            losses.append(solver.step())
            done = solver.converged()
            converged_at = torch.where(done & torch.isinf(converged_at), float(epoch), converged_at)
            if validation and job.stops_early:
                done = done | validation.keep_best(epoch)
            is_over = False
            if job.stops_early or not job.draws_batches:
                is_over = bool((done | ~losses[-1].isfinite()).all())
            if validation and job.record_every and (epoch % job.record_every == 0 or epoch == epochs or is_over):
                records[epoch] = validation.logits()
            report((epoch - first) / (epochs - first))
            if is_over:
                break
        report(1.0)
        if isinstance(solver, Adam) and job.leaves_state:
            results = self._states(solver, first + len(losses))
        else:
            results = self._results(losses, validation if job.stops_early else None, converged_at.cpu().numpy())
        if validation and records:  # the results have synchronised the device
            self._add_records(results, records, validation)
        return results

    def _add_records(
        self, results: dict[int, TrainingResult], records: dict[int, Tensor], validation: _Validation
    ) -> None:
        """Add the validation logits of some epochs, as `Network.logits` gives them, to the results."""
        for g, group in enumerate(self.groups):
            chunks, size = torch.stack([record[g] for record in records.values()], 1), validation.sizes[g]
            own = -(-size // chunks.shape[2])  # each group's rows are split evenly into chunks, then padded
            logits = chunks[:, :, :, :own].flatten(2, 3)[:, :, :size].numpy()  # (M, records, rows[, C])
            if self.is_one_against_all:
                logits = log_sigmoid(logits)
            for m, position in enumerate(group):
                results[position] = replace(
                    results[position], recorded_epochs=tuple(records), val_logits=np.asarray(logits[m])
                )

    def _states(self, adam: Adam, epoch: int) -> dict[int, TrainingResult]:
        places = self.stack.places()[0]
        values = torch.stack([flat[places] for flat in adam.state()], dim=2).cpu().numpy()  # (G, M, 3, parameters)
        n_iter, results = epoch - self.example.first_epoch, dict[int, TrainingResult]()
        for position, own in zip(np.ravel(self.groups).tolist(), values.reshape(-1, *values.shape[2:]), strict=True):
            status = Status.COMPLETED if np.isfinite(own).all() else Status.DIVERGED
            results[position] = TrainingResult(None, status, n_iter, np.empty(0), state=TrainingState(epoch, own))
        return results

    def validation(self) -> _Validation | None:
        """The validation rows, if any."""
        rows = [lead.validation for lead in self.leads if lead.validation is not None]
        at_once = VALIDATION_ROWS
        if self.data.device.type == "cuda":  # few large products, within limits
            at_once = max(at_once, min(_ROWS_ON_A_GPU, _UNITS_AT_ONCE // (len(self.groups) * self.stack.width)))
        return _Validation(self, rows, at_once) if rows else None

    def _results(
        self, losses: list[Tensor], validation: _Validation | None, converged_at: Array
    ) -> dict[int, TrainingResult]:
        """Results of all networks, with the best epochs by validation rows."""
        results: dict[int, TrainingResult] = {}
        curves = torch.stack(losses, -1).double().cpu().numpy()  # (G, M, epochs)
        val_curves = np.empty((*curves.shape[:2], 0))
        flat, stopped_at = self.stack.flat, np.full_like(converged_at, np.inf)
        if validation:
            flat, stopped_at = validation.best_flat, validation.stopped_at.cpu().numpy()
            val_curves = torch.stack(validation.losses, -1).double().cpu().numpy()
        ends = np.minimum(stopped_at, converged_at) - self.example.first_epoch
        n_iters = np.minimum(ends, curves.shape[2]).astype(np.int64)
        # Whether all training losses, or any validation loss, are finite up to an epoch (index 0: before the first).
        shape = (*curves.shape[:2], 1)
        all_fine = np.concatenate([np.ones(shape, bool), np.logical_and.accumulate(np.isfinite(curves), axis=2)], 2)
        any_fine = np.concatenate([np.zeros(shape, bool), np.logical_or.accumulate(np.isfinite(val_curves), axis=2)], 2)
        weights, biases = self.stack.arrays(flat)
        parameters = [*weights, *biases]
        finite = np.all([np.isfinite(p).reshape(*p.shape[:2], -1).all(axis=2) for p in parameters], axis=0)
        for g, group in enumerate(self.groups):
            shifts = self._balance(g, weights, biases, finite[g])
            solved = [*(b[g] for b in biases[:-1]), biases[-1][g] + shifts]
            # Lists of views: indexing an array thousands of times is slow.
            own_weights = zip(*(list(w[g]) for w in weights), strict=True)
            layers = zip(own_weights, zip(*map(list, solved), strict=True), strict=True)
            for m, (position, own) in enumerate(zip(group, layers, strict=True)):
                n_iter = int(n_iters[g, m])
                # With validation rows the best epoch is kept, even if training diverged later.
                has_best = any_fine[g, m, min(n_iter, val_curves.shape[2])]
                is_finite = bool(finite[g, m] and (all_fine[g, m, n_iter] or has_best))
                status = self._status(is_finite, converged_at[g, m], stopped_at[g, m], n_iter)
                network = Network(self.encodings[g], *own, self.example.activation, self.is_one_against_all)
                found = None if status is Status.DIVERGED else network
                own_curves = curves[g, m, :n_iter], val_curves[g, m, :n_iter]
                results[position] = TrainingResult(found, status, n_iter, *own_curves, shifts[m])
        return results

    def _status(self, is_finite: bool, converged_at: float, stopped_at: float, n_iter: int) -> Status:
        if not is_finite:
            return Status.DIVERGED
        if converged_at <= n_iter:
            return Status.CONVERGED
        if stopped_at < self.example.last_epoch:
            return Status.EARLY_STOPPED
        return Status.COMPLETED if self.example.draws_batches else Status.MAX_EPOCHS

    def _balance(self, g: int, weights: list[Array], biases: list[Array], finite: NDArray[np.bool_]) -> Array:
        """Shifts of the output biases, (M, outputs), for the networks of a group."""
        lead, data = self.leads[g], self.data
        shifts = np.zeros((len(finite), lead.n_outputs))
        wanted = np.flatnonzero(finite & np.array([job.balance for job in self.jobs[g]]))
        rows = lead.balanced(data.n_rows)
        y, s = data.y[rows], data.sample_weight[rows]
        if not wanted.size:
            return shifts
        numbers = wanted.size * lead.n_outputs * len(rows)
        for own in np.array_split(wanted, min(wanted.size, -(-numbers // _LOGITS_AT_ONCE))):
            parameters = tuple(w[g][own] for w in weights), tuple(b[g][own] for b in biases)
            group = NetworkGroup(self.encodings[g], *parameters, lead.activation)
            for k, outputs in zip(own, outputs_on(data.device, group, data.X[rows]).cpu().numpy(), strict=True):
                class_weights = self.class_weights[g, k]
                if lead.n_outputs > 1 and not self.is_one_against_all:
                    shifts[k] = class_shifts(y, outputs, class_weights, s)
                    continue
                # Σ w (1{y=c} − σ(o_c)) = 0 for the class c of every output
                classes = range(data.n_classes)[-lead.n_outputs :]
                columns = zip(classes, outputs.reshape(len(rows), -1).T, strict=True)
                shifts[k] = [solve_shift(y == c, column, class_weights[y] * s) for c, column in columns]
        return shifts


class _Validation:
    """Validation rows, encoded once, and the best epoch of each network on them, (G, M)."""

    def __init__(self, run: StackRun, rows: list[Index], rows_at_once: int) -> None:
        feed = RowFeed(run.data, rows, run.encodings, run.dtype)
        index = feed.index_in_order(rows_at_once)
        self.stack, self.objective, self.sizes = run.stack, run.objective, list(map(len, rows))
        self.batches = [(x.clone(), y, base) for x, y, base in feed.batches(index)]
        self.ramps = feed.ramps(index, with_readers=False)
        self.losses: list[Tensor] = []
        self.best_flat = self.stack.flat.clone() if run.example.stops_early else self.stack.flat
        self.best_value = self.stopped_at = torch.full_like(self.objective.l2, np.inf)
        self.since_best = torch.zeros_like(self.objective.l2)

    def keep_best(self, epoch: int) -> Tensor:
        """Keep the parameters of networks whose weighted loss is the lowest so far; return which have stopped."""
        total, weight = torch.zeros_like(self.objective.l2), torch.zeros_like(self.objective.l2)
        for logits, (_, y, base) in zip(self._outputs(), self.batches, strict=True):
            weights = row_weights(self.objective.by_class, y, base)
            total += (weights * self.stack.row_loss(logits, y)).sum(1)
            weight += weights.sum(1)
        self.losses.append(total / weight)
        running = self.since_best < _PATIENCE
        better = running & (self.losses[-1] < self.best_value)
        self.best_value = torch.where(better, self.losses[-1], self.best_value)
        self.since_best = torch.where(better, 0.0, self.since_best + 1)
        self.best_flat = torch.where(self.stack.spread(better), self.stack.flat, self.best_flat)
        stopped = self.since_best >= _PATIENCE
        self.stopped_at = torch.where(running & stopped, float(epoch), self.stopped_at)
        return stopped

    def logits(self) -> Tensor:
        """Logits of every network, (G, M, chunks, rows[, C]), float32, copied to the host asynchronously."""
        logits = torch.stack([self.stack.by_network(own) for own in self._outputs()], dim=2)
        return logits.to("cpu", torch.float32, non_blocking=True)

    def _outputs(self) -> Tensor:
        """Logits (chunks, G, rows, M·C)."""
        stack, chunks = self.stack, [x for x, _, _ in self.batches]
        logits = compiled(logits_of_batches) if stack.device.type == "cpu" else logits_of_batches
        return logits(stack.workspace(chunks[0].shape[1]), chunks, self.ramps)


# -- fitted networks ---------------------------------------------------------------------------------------------------


def gradients_of(
    group: NetworkGroup,
    X: Array,
    y: NDArray[np.bool_] | NDArray[np.int64],
    row_weights: Array,
    loss: str,
    l2: float,
    *,
    scaled: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Gradients of fitted networks' objectives in float64: Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus l2·W on weights.

    For cross entropy without penalty a component is the paper's −λ Σ_pos (1 − q) ∂o/∂θ + (1 − λ) Σ_neg q ∂o/∂θ, divided
    by Σ w. With column scales the penalty on the first layer is l2·Σ‖W_j‖ over its columns j, which has no gradient at
    W_j = 0. The change by a proximal step of length one replaces it: it is zero exactly where the objective is
    stationary, and equals g + l2·W_j/‖W_j‖ to first order elsewhere.
    """
    hidden, n_outputs = tuple(weight.shape[2] for weight in group.weights[:-1]), group.weights[-1].shape[2]
    network = group.encoding.size, hidden, group.activation, loss, torch.float64, torch.device("cpu")
    stack = Stack(1, len(group), *network, n_outputs=n_outputs)
    stack.set_networks(group.weights, group.biases)
    x = torch.from_numpy(np.column_stack([group.encoding(X), np.ones(len(X))]))[None]
    target = torch.from_numpy(y.astype(np.float64))[None, :, None]
    weight = torch.from_numpy(row_weights / row_weights.sum())[None, :, None].expand(-1, -1, len(group))
    with torch.no_grad(), reproducible_arithmetic():
        stack.loss_and_gradient(x, target, weight, add=True)
    weights, biases = ([part[0] for part in parts] for parts in stack.arrays(stack.grad))
    penalised = [grad + l2 * own for grad, own in zip(weights, group.weights, strict=True)]
    if scaled:
        first = group.weights[0]
        ahead = first - weights[0]
        sizes = np.linalg.norm(ahead, axis=2, keepdims=True)
        penalised[0] = first - ahead * np.maximum(1.0 - l2 / np.maximum(sizes, np.finfo(np.float64).tiny), 0.0)
    return penalised, biases
