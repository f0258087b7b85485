"""Checks whether results are bit-identical in any batch of networks. If so, stacks may be split by core count.

Nothing reduces over networks, and batches and parameters are whole vectors of a processor (see `crcen.training.rows`
and `crcen.training.stack`). What remains is whether a matrix product gives a column the same digits whatever other
columns there are. Most libraries do, none guarantees it. So it is tested, once for every shape, by a few steps on the
rows.
"""

from collections.abc import Sequence
from threading import Lock

import torch
from torch import Tensor

from crcen.training.jobs import TrainingJob
from crcen.training.planner import Groups, halves
from crcen.training.rows import TrainingData
from crcen.training.solvers import Adam
from crcen.training.stack_run import StackRun
from crcen.training.threads import reproducible_arithmetic

_STEPS = 2

_LOCK = Lock()
_KNOWN: dict[tuple[object, ...], bool] = {}


def is_batch_invariant(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> bool:
    """Whether the networks of one group give the same bits together, in halves and alone."""
    first = jobs[groups[0][0]]
    shapes = tuple(jobs[position].hidden for position in groups[0])
    inputs = data.n_inputs(first), data.X.shape[1], first.encoding, first.missing, first.column_scales
    network = first.activation, first.loss, first.n_outputs
    watched = 0 if first.rows.watched is None else len(first.rows.watched)
    key = (shapes, *inputs, *network, first.batch_size, first.rows.n_drawn(data.n_rows), watched)
    with _LOCK:
        if key not in _KNOWN:
            with reproducible_arithmetic():
                _KNOWN[key] = _is_invariant(groups, jobs, data)
        return _KNOWN[key]


@torch.inference_mode()
def _is_invariant(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> bool:
    together = _after_steps(groups, jobs, data)
    for parts in (halves(groups), [((position,),) for position in groups[0]]):
        apart: dict[int, list[Tensor]] = {}
        for part in parts:
            apart |= _after_steps(part, jobs, data)
        if not all(all(map(torch.equal, values, apart[position])) for position, values in together.items()):
            return False
    return True


def _after_steps(groups: Groups, jobs: Sequence[TrainingJob], data: TrainingData) -> dict[int, list[Tensor]]:
    """Parameters, moments and validation logits of every network after a few steps."""
    run = StackRun(groups, jobs, data)
    solver = run.solver()
    assert isinstance(solver, Adam)
    index = solver.feed.epoch_index(solver.seeds, 0, solver.batch_size).part(slice(_STEPS))
    solver.run_on_host(index, torch.zeros_like(run.objective.l2))
    validation, stack = run.validation(), run.stack
    states = [stack.vectors(flat) for flat in solver.state()]
    logits = validation.logits(stack) if validation else torch.zeros(1, stack.n_models)
    found: dict[int, list[Tensor]] = {}
    for block, models in enumerate(stack.models):
        for place, position in enumerate(groups[0][models]):
            own = [state[block][0, place] for state in states]
            found[position] = [*own, logits[0, models.start + place]]
    return found
