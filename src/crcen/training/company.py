"""Whether a network trains to the same bits beside others as alone: where it does, cores may decide how to cut a stack.

Nothing reduces over networks, and batches and parameters are whole vectors of a processor (see `rows` and `stack`). So
what is left to decide is whether a library's product of matrices gives a column the same digits whatever stands beside
it. Most do; nobody promises it. So it is tried, once for every shape: a few steps on the very rows.
"""

from collections.abc import Sequence
from dataclasses import replace
from threading import Lock

import torch
from torch import Tensor

from crcen.training.classes.stack_run import ClassStackRun
from crcen.training.jobs import TrainingJob
from crcen.training.planner import Groups, halves
from crcen.training.rows import TrainingData
from crcen.training.solvers.adam import Adam
from crcen.training.solvers.epochs import HostEpochs
from crcen.training.stack_run import StackRun
from crcen.training.threads import reproducible_arithmetic

__all__ = ["has_own_bits"]

_STEPS = 2

_LOCK = Lock()
_KNOWN: dict[tuple[object, ...], bool] = {}


def has_own_bits(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> bool:
    """Whether the networks of a piece, all of one group, have the same bits together, in halves and alone."""
    first = jobs[groups[0][0]]
    shapes = tuple(jobs[position].hidden for position in groups[0])
    inputs = data.n_inputs(first), data.X.shape[1], first.encoding, first.missing, first.column_scales
    network = first.activation, first.loss, first.n_outputs
    watched = 0 if first.rows.watched is None else len(first.rows.watched)
    key = (shapes, *inputs, *network, first.batch_size, first.rows.n_drawn(data.n_rows), watched)
    with _LOCK:
        if key not in _KNOWN:
            with reproducible_arithmetic():
                _KNOWN[key] = _are_alike(groups, jobs, data)
        return _KNOWN[key]


@torch.inference_mode()
def _are_alike(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> bool:
    together = _after_steps(groups, jobs, data)
    if together is None:
        return False
    for parts in (halves(groups), [((position,),) for position in groups[0]]):
        apart: dict[int, list[Tensor]] = {}
        for part in parts:
            found = _after_steps(part, jobs, data)
            if found is None:
                return False
            apart |= found
        for position, values in together.items():
            if not all(map(torch.equal, values, apart[position])):
                return False
    return True


def _after_steps(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> dict[int, list[Tensor]] | None:
    """Parameters, moments and held-out logits of every network after a few steps; None where that cannot be tried."""
    run = (StackRun if data.y.dtype == bool else ClassStackRun)(groups, jobs, data)
    solver = run.solver()
    if not isinstance(solver, Adam) or not isinstance(solver.epochs, HostEpochs):
        return None
    index = solver.feed.epoch_index(solver.seeds, 0, solver.batch_size).part(slice(_STEPS))
    HostEpochs(replace(solver.work, n_batches=index.rows.shape[1])).run(index, 0)
    validation, stack = run.validation(), run.stack
    states = [stack.vectors(flat) for flat in solver.state()]
    logits = validation.logits(stack) if validation else torch.zeros(1, stack.n_models)
    found: dict[int, list[Tensor]] = {}
    for block, models in enumerate(stack.models):
        for place, position in enumerate(groups[0][models]):
            own = [state[block][0, place] for state in states]
            found[position] = [*own, logits[0, models.start + place]]
    return found
