"""Solvers: mini-batch Adam and full-batch L-BFGS; every quantity is per network.

One ``step`` is an epoch of mini-batches or an iteration over all rows; it returns the objective of every network.

On a CPU TorchScript compiles an epoch of Adam (1.6 times as fast in the default fit and search with two threads); where
it is not available (Python 3.14, ``PYTORCH_JIT=0``) the same functions run uncompiled. On CUDA some steps are captured
as a graph and replayed (1.9 to 2.9 times as fast).

Shape letters: G groups, M networks of a group, N = G·M, P parameters of a network.
"""

import gc
import logging
import math
import sys
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from crcen.training.device import sent
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import n_batches, one_cycle
from crcen.training.rows import EpochRows, RowFeed, fill_batch
from crcen.training.stack import NO_RAMPS, RampLookup, Stack, Workspace, gradient, row_loss, row_weights, sum_of_rows

_BETAS, _EPSILON = (0.9, 0.999), 1e-8
# Steps between two calls of `flush_denormals`, and its limits. Squares of gradients just below are still normal
# numbers.
STEPS_TO_FLUSH = 64
_SMALL_PARAMETER, _SMALL_MOMENT, _SMALL_ALONE, _SMALL_SQUARE = 1e-10, 1e-14, 1e-25, 1e-30
# Forward multiplications in one call of compiled code, a fraction of a second: Ctrl-C is handled between calls.
_OPERATIONS_A_CALL = 2**31
# Steps of a CUDA graph.
_FEWEST_STEPS, _MOST_STEPS = 16, 48
# Rows of a chunk in L-BFGS.
_CHUNK_ROWS = 2048


class Objective(NamedTuple):
    """Constants of the objective."""

    by_class: Tensor  # (G, classes, M): class weights divided by Σ w
    l2: Tensor  # (G, M)


class AdamState(NamedTuple):
    """Vectors over the flat parameters, and constants (TorchScript has no global ones)."""

    flat: Tensor
    grad: Tensor
    first_moment: Tensor
    second_moment: Tensor
    penalty: Tensor
    scratch: Tensor
    beta1: float
    beta2: float

    @classmethod
    def start(cls, flat: Tensor, grad: Tensor, penalty: Tensor) -> "AdamState":
        """The state before the first step; ``flat`` and ``grad`` are used in place."""
        moments = torch.zeros_like(flat), torch.zeros_like(flat)
        return cls(flat, grad, *moments, penalty, torch.empty_like(flat), *_BETAS)


def adam_factors(rate: float, step: int) -> tuple[float, float]:
    """Step length and ε of a step (from 0) with Adam's bias correction."""
    first, second = (1 - beta ** (step + 1) for beta in _BETAS)
    return rate * math.sqrt(second) / first, _EPSILON * math.sqrt(second)


def take_step(state: AdamState, factors: tuple[float, float], captured: Tensor | None = None) -> None:
    """A step along the gradient; a captured graph cannot take numbers that change, so it has factors in a tensor."""
    grad = state.grad.addcmul_(state.penalty, state.flat)
    state.first_moment.lerp_(grad, 1 - state.beta1)
    state.second_moment.mul_(state.beta2).addcmul_(grad, grad, value=1 - state.beta2)

    torch.sqrt(state.second_moment, out=state.scratch)
    if captured is None:
        state.flat.addcdiv_(state.first_moment, state.scratch.add_(factors[1]), value=-factors[0])
    else:
        state.scratch.add_(captured.select(0, 1))
        state.flat.sub_(torch.div(state.first_moment, state.scratch, out=state.scratch).mul_(captured.select(0, 0)))


def flush_denormals(state: AdamState) -> None:
    """Set vanishing parameters and moments to zero, every `STEPS_TO_FLUSH` steps.

    Weights of constant inputs or inactive units decrease by a few percent per step. Below these limits neither they nor
    their next steps have an effect in float32. Below 1e-38 they would become denormal, and every operation on them
    slow.
    """
    flat, first, second = state.flat, state.first_moment, state.second_moment
    size = first.abs()
    vanishing = (flat.abs() < _SMALL_PARAMETER) & (size < _SMALL_MOMENT)
    flat.masked_fill_(vanishing, 0.0)
    first.masked_fill_(vanishing | (size < _SMALL_ALONE), 0.0)  # a moment fades alone if its gradient became zero
    second.masked_fill_(second < _SMALL_SQUARE, 0.0)


def adam_epoch(
    work: Workspace,
    rows: EpochRows,
    ramps: RampLookup,
    by_class: Tensor,
    state: AdamState,
    losses: Tensor | None,
    first: int,
    factors: list[tuple[float, float]],
    captured: Tensor | None = None,
) -> None:
    """Steps of Adam on the batches of an epoch from ``first``, one for each of the factors of `adam_factors`.

    ``ramps`` are the lookups of these batches. The loss of each batch is added to ``losses`` (G, M), if given.
    ``captured`` (steps, 2) replaces the factors in a captured graph.
    """
    for i in range(len(factors)):
        fill_batch(rows, first + i)
        y = rows.y.select(1, first + i).unsqueeze(2)
        row_weight = row_weights(by_class, y, rows.weights.select(1, first + i).unsqueeze(2))
        logits = gradient(work, rows.batch, ramps, i, y, row_weight, False)
        if losses is not None:
            losses.add_(sum_of_rows(row_weight * row_loss(work.design.loss, logits, y, work.design.n_outputs)))
        take_step(state, factors[i], None if captured is None else captured.select(0, i))


_COMPILING = Lock()
_Function = TypeVar("_Function", bound=Callable[..., object])


def compiled(function: _Function) -> _Function:
    """`adam_epoch` or `logits_of_batches`, compiled if possible."""
    with _COMPILING:
        return _compiled(function)


@cache
def _compiled(function: Any) -> Any:
    if sys.version_info >= (3, 14):  # not supported by TorchScript
        return function
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            script = torch.jit.script(function)
    except Exception:  # of a later torch: the uncompiled functions need nothing of it
        logging.getLogger(__name__).debug("TorchScript is not available", exc_info=True)
        return function

    def run(*arguments: object) -> object:
        # The search for optimisations takes longer than a small fit and finds nothing.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return script(*arguments)

    return run


class Adam:
    """Mini-batch Adam with a one-cycle learning rate."""

    def __init__(
        self, stack: Stack, feed: RowFeed, objective: Objective, job: TrainingJob, seeds: Sequence[int], n_rows: int
    ) -> None:
        self.stack, self.feed, self.job, self.seeds = stack, feed, job, seeds
        self.n_batches = n_batches(n_rows, job.batch_size)
        self.epoch, self.with_loss = job.first_epoch, not job.leaves_state
        self.vectors = AdamState.start(stack.flat, stack.grad, stack.penalties(objective.l2))
        self.objective = Objective(objective.by_class * self.n_batches, objective.l2)  # unbiased for one batch
        self._graph = _StepGraph(self) if stack.device.type == "cuda" else None

    def factors(self, step: int) -> tuple[float, float]:
        """The `adam_factors` of a step, from 0."""
        rate = self.job.learning_rate * one_cycle((step + 1) / (self.job.max_epochs * self.n_batches + 1))
        return adam_factors(rate, step)

    def step(self) -> Tensor:
        """One epoch; the mean loss of its batches plus the penalty at its end, (G, M)."""
        index = self.feed.epoch_index(self.seeds, self.epoch, self.job.batch_size)
        losses = torch.zeros_like(self.objective.l2)
        (self._graph.run if self._graph else self.run_on_host)(index, losses)
        self.epoch += 1
        if not self.with_loss:
            return losses
        penalty = self.stack.per_model(self.vectors.penalty * self.stack.flat**2)
        return losses / self.n_batches + 0.5 * penalty

    def run_on_host(self, index: Tensor, losses: Tensor) -> None:
        """The batches of an index on a CPU; the sum of their losses is added to ``losses``."""
        stack, epoch = self.stack, compiled(adam_epoch)
        rows = self.feed.epoch_rows(index)
        work = stack.workspace(rows.batch.shape[1])
        fixed = (self.objective.by_class, self.vectors, losses if self.with_loss else None)
        first_step, count = self.epoch * self.n_batches, index.shape[2]
        most = _OPERATIONS_A_CALL // (stack.own.first.numel() * rows.batch.shape[1])
        at_once = max(1, min(most, STEPS_TO_FLUSH))
        for start in range(0, count, at_once):
            factors = [self.factors(first_step + i) for i in range(start, min(start + at_once, count))]
            ramps = self.feed.ramps(index, slice(start, start + len(factors)))
            epoch(work, rows, ramps, *fixed, start, factors)
            flush_denormals(self.vectors)

    def converged(self) -> Tensor:
        """Adam runs its whole schedule."""
        return torch.zeros_like(self.objective.l2, dtype=torch.bool)

    def state(self) -> tuple[Tensor, ...]:
        """Parameters and both moments."""
        return self.vectors.flat, self.vectors.first_moment, self.vectors.second_moment


class _StepGraph:
    """Steps of Adam on CUDA, some at a time as one graph; batch order and rates are copied into its buffers.

    The first few steps run one by one to initialise the kernels, the next few are captured, and all others replay them.
    A search trains most settings for one epoch at a time, so a graph of a whole epoch would never be replayed.
    """

    def __init__(self, adam: Adam) -> None:
        self.adam, stack = adam, adam.stack
        self.n_steps = graph_steps(adam.n_batches)
        self._factors = torch.zeros(self.n_steps, 2, dtype=stack.dtype, device=stack.device)
        self._index: Tensor | None = None
        self._captured: CapturedGraph | None = None

    def run(self, index: Tensor, losses: Tensor) -> None:
        """The batches of an index; the sum of their losses is added to ``losses``."""
        adam = self.adam
        table = [adam.factors(adam.epoch * adam.n_batches + i) for i in range(adam.n_batches)]
        factors = sent(torch.tensor(table, dtype=adam.stack.dtype), adam.stack.device)
        for start in range(0, adam.n_batches, self.n_steps):
            part = slice(start, start + self.n_steps)
            losses += self._some(index[:, :, part], factors[part])

    def _some(self, index: Tensor, factors: Tensor) -> Tensor:
        if len(factors) < self.n_steps:
            return self.run_eagerly(index, factors)
        self._factors.copy_(factors)
        if self._index is None:
            self._index = index.clone()
            return self.run_eagerly(self._index, self._factors)
        self._index.copy_(index)
        if self._captured is None:
            own = self._index
            self._captured = CapturedGraph(lambda: self.run_eagerly(own, self._factors))
        return self._captured()

    def run_eagerly(self, index: Tensor, factors: Tensor) -> Tensor:
        """Step by step; the sum of the losses."""
        adam, rows = self.adam, self.adam.feed.epoch_rows(index)
        total = torch.zeros_like(adam.objective.l2)
        fixed = adam.objective.by_class, adam.vectors, total if adam.with_loss else None
        none = [(0.0, 0.0)] * len(factors)
        adam_epoch(adam.stack.workspace(rows.batch.shape[1]), rows, NO_RAMPS, *fixed, 0, none, factors)
        flush_denormals(adam.vectors)
        return total


class CapturedGraph:
    """A function without arguments captured on CUDA: a call runs all its kernels with one launch."""

    def __init__(self, function: Callable[[], Tensor]) -> None:
        self._graph = torch.cuda.CUDAGraph()
        was_collecting = gc.isenabled()
        gc.disable()  # freeing an older graph would end the capture
        try:
            with torch.cuda.graph(self._graph):
                self._result = function()
        finally:
            if was_collecting:
                gc.enable()

    def __call__(self) -> Tensor:
        """Run it; the next call overwrites the result."""
        self._graph.replay()
        return self._result


def graph_steps(n_batches: int) -> int:
    """Steps of a graph: between 16 and 48, so that few are left over at the end of an epoch."""
    if n_batches <= _MOST_STEPS:
        return n_batches
    return min(range(_MOST_STEPS, _FEWEST_STEPS - 1, -1), key=lambda size: n_batches % size)


class _History(deque[tuple[Tensor, Tensor, Tensor]]):
    """The latest steps of every network, changes of the gradient, and their inverse products, newest last.

    A pair that is not usable has an inverse product of zero for that network.
    """

    def add(self, step: Tensor, change: Tensor) -> None:
        product = (step * change).sum(1)
        usable = product > 1e-12 * step.norm(dim=1) * change.norm(dim=1)
        self.append((step, change, torch.where(usable, 1 / product, 0.0)))

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the inverse-Hessian estimate times the gradient, by the two-loop recursion."""
        if not self:
            return -gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1.0)
        d, shares = -gradient, []
        for step, change, inverse in reversed(self):
            shares.append(inverse * (step * d).sum(1))
            d = d - shares[-1][:, None] * change
        _, latest, newest = self[-1]
        scale = torch.where(newest > 0, 1 / (newest * (latest**2).sum(1)), 1.0)
        d = d * torch.where(torch.isfinite(scale), scale, 1.0)[:, None]
        for (step, change, inverse), share in zip(self, reversed(shares), strict=True):
            d = d + (share - inverse * (change * d).sum(1))[:, None] * step
        return d


class LBFGS:
    """Full-batch L-BFGS in float64; the line search finds a weak Wolfe point by doubling and halving."""

    memory = 10
    sufficient_decrease = 1e-4
    curvature = 0.9
    max_trials = 30
    # A network has also converged if the loss stays constant to this relative precision for so many steps.
    patience = 5
    no_change = 1e-14

    def __init__(self, stack: Stack, feed: RowFeed, objective: Objective, *, tol: float) -> None:
        self.stack, self.objective, self.tol = stack, objective, tol
        self.penalty = stack.penalties(objective.l2)
        chunks = feed.batches(feed.index_in_order(_CHUNK_ROWS))
        self.batches = [(x.clone(), y, row_weights(objective.by_class, y, base)) for x, y, base in chunks]
        self.columns = stack.places()[0].flatten(0, 1)  # (N, P)
        self.point = self.stack.flat[self.columns]  # (N, P)
        self.value, self.gradient = self._evaluate(self.point)
        self.history = _History(maxlen=self.memory)
        self.idle = torch.zeros_like(self.value, dtype=torch.int64)

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (N,) and gradient (N, P) at a point."""
        stack = self.stack
        stack.flat[self.columns] = point
        stack.grad.zero_()
        total = torch.zeros_like(self.objective.l2)
        for x, y, weights in self.batches:
            total += stack.loss_and_gradient(x, y, weights, add=True)
        penalised = self.penalty * stack.flat
        value = total.flatten() + 0.5 * (penalised * stack.flat)[self.columns].sum(1)
        return value, stack.grad.add_(penalised)[self.columns]

    def step(self) -> Tensor:
        """One direction and its line search; networks that have converged do not move."""
        active = ~self.converged().flatten()
        d = self.history.direction(self.gradient)
        slope = (d * self.gradient).sum(1)
        bad = ~(slope < 0)
        d = torch.where(bad[:, None], -self.gradient, d)
        slope = torch.where(bad, -(self.gradient**2).sum(1), slope)
        point, value, gradient = self._line_search(d, slope, active)
        moved = value < self.value - self.no_change * self.value.abs()
        self.idle = torch.where(moved, 0, self.idle + 1)
        self.history.add(point - self.point, gradient - self.gradient)
        self.point, self.value, self.gradient = point, value, gradient
        self.stack.flat[self.columns] = point
        return value.view_as(self.objective.l2)

    def _line_search(self, d: Tensor, slope: Tensor, active: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        low, high, length = (torch.full_like(slope, value) for value in (0.0, math.inf, 1.0))
        best = (self.point.clone(), self.value.clone(), self.gradient.clone())
        searching = active.clone()
        # Near the optimum a decrease is smaller than the rounding error; equal up to rounding is then low enough.
        slack = 1e-15 * self.value.abs()
        for trial in range(self.max_trials):
            point = self.point + length[:, None] * d
            value, gradient = self._evaluate(point)
            low_enough = value <= self.value + self.sufficient_decrease * length * slope + slack
            flat_enough = (gradient * d).sum(1) >= self.curvature * slope
            better = searching & low_enough
            for kept, new in zip(best, (point, value, gradient), strict=True):
                kept.copy_(torch.where(better.view(-1, *([1] * (new.dim() - 1))), new, kept))
            searching = searching & ~(low_enough & flat_enough)
            if not bool(searching.any()):
                break
            high = torch.where(searching & ~low_enough, length, high)
            low = torch.where(searching & low_enough, length, low)
            longer = torch.where(torch.isinf(high), 2 * length, 0.5 * (low + high))
            if trial >= 5:  # far too long: a raw column of 1e10 needs steps of 1e-10
                longer = torch.where(low == 0, 0.05 * high, longer)
            length = torch.where(searching, longer, length)
        return best

    def converged(self) -> Tensor:
        """Networks with a gradient below the tolerance or a constant loss."""
        largest = self.gradient.abs().amax(dim=1)
        # A search that finds no lower point although the gradient is large has failed, not converged.
        is_idle = (largest <= self.tol**0.5) & (self.idle >= self.patience)
        return ((largest <= self.tol) | is_idle).view_as(self.objective.l2)
