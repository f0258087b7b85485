"""The forms of an epoch of Adam that are made of single operations: in one call on a CPU, or as a graph on CUDA.

On a CPU the epoch is compiled, or the same function runs as it is (`crcen.training.solvers.compiled`). On CUDA some
steps are recorded as a graph, which the others replay: launching their many small kernels one by one takes most of the
time.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from crcen.training.epoch_rows import BatchIndex
from crcen.training.rows import RowFeed
from crcen.training.solvers.adam_step import (
    STEPS_TO_DUST,
    AdamState,
    adam_factors,
    drop_dust,
    take_captured_step,
)
from crcen.training.solvers.compiled import compiled_adam_epoch
from crcen.training.solvers.objective import Objective
from crcen.training.stack import Stack
from crcen.training.transfers import sent

__all__ = ["Epochs", "EpochWork", "GraphEpochs", "HostEpochs"]

# Multiplications forward in one call of compiled code, a fraction of a second.
_OPERATIONS_A_CALL = 2**31
# Steps of a graph on CUDA.
_FEWEST_AT_ONCE, _MOST_AT_ONCE = 16, 48


@dataclass(frozen=True)
class EpochWork:
    """What an epoch of Adam works on.

    Parameters
    ----------
    stack, feed, state
        The networks, their rows, and Adam's vectors.
    objective
        As a batch counts it.
    n_batches
        Of an epoch.
    rate
        The learning rate of a step, from 0.
    with_loss
        Whether somebody asks for the loss.
    """

    stack: Stack
    feed: RowFeed
    state: AdamState
    objective: Objective
    n_batches: int
    rate: Callable[[int], float]
    with_loss: bool

    def factors(self, first_step: int) -> Tensor:
        """Step length and ε of an epoch's steps, corrected for the moments' start at zero, (batches, 2)."""
        betas = self.state.beta1, self.state.beta2, self.state.epsilon
        steps = range(first_step, first_step + self.n_batches)
        table = [adam_factors(self.rate(step), step, *betas) for step in steps]
        return sent(torch.tensor(table, dtype=self.stack.dtype), self.stack.device)

    def mean_objective(self, total: Tensor) -> Tensor:
        """The mean loss of an epoch's batches plus the penalty at its end, from their sum; or the zeros it is."""
        if not self.with_loss:
            return total
        penalty = self.stack.per_model(self.state.penalty * self.stack.flat**2)
        return total / self.n_batches + 0.5 * penalty


class Epochs(Protocol):
    """One form of an epoch."""

    def run(self, index: BatchIndex, first_step: int) -> Tensor:
        """Train on the batches of an index, the first being such a step; the objective of every network, (G, M)."""


class HostEpochs:
    """On a CPU, compiled or as it is."""

    def __init__(self, work: EpochWork) -> None:
        self.work = work

    def run(self, index: BatchIndex, first_step: int) -> Tensor:
        """One epoch."""
        work, stack, epoch = self.work, self.work.stack, compiled_adam_epoch()
        rows = work.feed.epoch_rows(index)
        losses = torch.zeros_like(work.objective.l2)
        views = (stack.design, stack.own, stack.grads, stack.buffers(rows.batch.shape[1]))
        what = (work.objective.class_weights, work.state, losses if work.with_loss else None)
        # Ctrl-C is heard between calls.
        most = _OPERATIONS_A_CALL // (stack.own.first.numel() * rows.batch.shape[1])
        at_once = max(1, min(most, STEPS_TO_DUST))
        for start in range(0, work.n_batches, at_once):
            taken = first_step + start
            rates = [work.rate(taken + i) for i in range(min(at_once, work.n_batches - start))]
            ramps = work.feed.ramps(index, slice(start, start + len(rates)))
            epoch(*views, rows, ramps, *what, start, rates, taken)
            drop_dust(work.state)
        return work.mean_objective(losses)


class Recorded:
    """A function of no arguments recorded on CUDA: to call it is to run all its kernels by one launch."""

    def __init__(self, function: Callable[[], Tensor]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        was_collecting = gc.isenabled()
        gc.disable()  # an older graph that is freed meanwhile would end the recording
        try:
            with torch.cuda.graph(self._graph):
                self._result = function()
        finally:
            if was_collecting:
                gc.enable()

    def __call__(self) -> Tensor:
        """Run it; the result is written over by the next call."""
        self._graph.replay()
        return self._result


class GraphEpochs:
    """On CUDA, some steps at a time as one graph: batch order and rates are copied into its buffers.

    The first few steps run one by one and warm the kernels up, the next few are recorded, and all others replay them.
    A search trains most settings for an epoch at a time, so a graph of a whole epoch would never be replayed.
    """

    def __init__(self, work: EpochWork) -> None:
        self.work = work
        self.steps_at_once = steps_at_once(work.n_batches)
        self._factors = torch.zeros(self.steps_at_once, 2, dtype=work.stack.dtype, device=work.stack.device)
        self._index: BatchIndex | None = None
        self._recorded: Recorded | None = None

    def run(self, index: BatchIndex, first_step: int) -> Tensor:
        """One epoch."""
        work = self.work
        factors, total = work.factors(first_step), torch.zeros_like(work.objective.l2)
        for start in range(0, work.n_batches, self.steps_at_once):
            steps = slice(start, start + self.steps_at_once)
            total += self._some(index.part(steps), factors[steps])
        return work.mean_objective(total)

    def _some(self, index: BatchIndex, factors: Tensor) -> Tensor:
        """Some steps: as they are, recorded, or replayed."""
        if len(factors) < self.steps_at_once:
            return self.run_eagerly(index, factors)
        self._factors.copy_(factors)
        if self._index is None:
            self._index = index.copy()
            return self.run_eagerly(self._index, self._factors)
        self._index.copy_(index)
        if self._recorded is None:
            own = self._index
            self._recorded = Recorded(lambda: self.run_eagerly(own, self._factors))
        return self._recorded()

    def run_eagerly(self, index: BatchIndex, factors: Tensor) -> Tensor:
        """Step by step, the sum of the losses; a recorded graph cannot take rates as numbers."""
        work, stack, state = self.work, self.work.stack, self.work.state
        total = torch.zeros_like(work.objective.l2)
        for i, (x, y, base) in enumerate(work.feed.batches(index)):
            weights = work.objective.row_weights(y, base)
            if work.with_loss:
                total += stack.loss_and_gradient(x, y, weights)
            else:
                stack.gradient(x, y, weights)
            take_captured_step(state, factors[i])
        drop_dust(state)
        return total


def steps_at_once(n_batches: int) -> int:
    """Steps of a graph: between 16 and 48, so that as few as can be are left over at the end of an epoch."""
    if n_batches <= _MOST_AT_ONCE:
        return n_batches
    return min(range(_MOST_AT_ONCE, _FEWEST_AT_ONCE - 1, -1), key=lambda size: n_batches % size)
