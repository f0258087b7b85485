"""Groups jobs that can share work into stacks under a memory bound, and splits stacks into pieces for threads."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import inf, prod
from pathlib import Path

import torch

from crcen.training.jobs import TrainingJob, digest
from crcen.training.recipe import n_batches
from crcen.training.rows import VALIDATION_ROWS

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
