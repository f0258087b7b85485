"""The two solvers: one `step` is an epoch of mini-batches (Adam) or an iteration over all rows (L-BFGS).

A solver owns the optimiser state of a stack and touches nothing else: the loop over steps, early stopping and status
are the engine's. Every quantity, the line search included, is per network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Protocol

import torch
from torch import Tensor

from crcen.training.fused import FusedEpochs, is_fusable
from crcen.training.rows import BatchIndex, RowFeed, n_batches
from crcen.training.stack import Stack

__all__ = ["LBFGS", "Adam", "Objective", "Solver", "adam_factors", "move_moments", "one_cycle"]

_CHUNK_ROWS = 2048
_BETAS = (0.9, 0.999)
_EPSILON = 1e-8
_WARM_UP = 0.2


@dataclass(frozen=True)
class Objective:
    """Per-network constants of the objective, each (G, M): weights of the classes over Σ w, and the penalty."""

    pos_weight: Tensor
    neg_weight: Tensor
    l2: Tensor

    def row_weights(self, y: Tensor, base: Tensor) -> Tensor:
        """y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
        between = (self.pos_weight - self.neg_weight)[:, None]
        return torch.addcmul(self.neg_weight[:, None], y, between).mul_(base)


class Solver(Protocol):
    """What the engine's loop asks of a solver."""

    def step(self) -> Tensor:
        """Advance once; return the objective of every network, (G, M)."""

    def converged(self) -> Tensor:
        """Networks that need no further step, (G, M) bool."""


def one_cycle(progress: float) -> float:
    """Share of the peak rate at a share of the schedule: it rises over the first fifth and falls along a cosine."""
    if progress < _WARM_UP:
        return progress / _WARM_UP
    return 0.5 * (1 + math.cos(math.pi * (progress - _WARM_UP) / (1 - _WARM_UP)))


def adam_factors(rate: float, step: int) -> tuple[float, float]:
    """Adam's step length and ε at a step, from 0, both corrected for the moments' start at zero."""
    beta1, beta2 = _BETAS
    correction = math.sqrt(1 - beta2 ** (step + 1))
    return rate * correction / (1 - beta1 ** (step + 1)), _EPSILON * correction


def move_moments(first: Tensor, second: Tensor, grad: Tensor) -> None:
    """Let Adam's running means take in a gradient."""
    beta1, beta2 = _BETAS
    first.lerp_(grad, 1 - beta1)
    second.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)


def fused_adam(flat: Tensor, grad: Tensor, first: Tensor, second: Tensor, count: Tensor, rate: float) -> None:
    """A step of Adam in one pass over the parameters; ``count`` is the number of the step, from 1."""
    beta1, beta2 = _BETAS
    torch._fused_adam_(
        [flat], [grad], [first], [second], [], [count], lr=rate, beta1=beta1, beta2=beta2, weight_decay=0.0,
        eps=_EPSILON, amsgrad=False, maximize=False,
    )  # fmt: skip


@cache
def has_fused_adam() -> bool:
    """Whether torch has that pass on a CPU, and it gives what the formula does: it is not part of torch's interface."""
    flat, grad, first, second = (torch.tensor([value]) for value in (1.0, 0.5, 0.25, 0.125))
    try:
        fused_adam(flat, grad, first, second, torch.tensor(3.0), 0.1)
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    length, small = adam_factors(0.1, 2)
    mean, square = 0.9 * 0.25 + 0.1 * 0.5, 0.999 * 0.125 + 0.001 * 0.5**2
    found = torch.cat([flat, first, second])
    return torch.allclose(found, torch.tensor([1.0 - length * mean / (math.sqrt(square) + small), mean, square]))


class Adam:
    """Mini-batch Adam whose rate rises over the first fifth of the schedule and falls along a cosine."""

    betas = _BETAS

    def __init__(
        self,
        stack: Stack,
        feed: RowFeed,
        objective: Objective,
        *,
        seeds: Sequence[int],
        max_epochs: int,
        batch_size: int,
        learning_rate: float,
        n_rows: int,
        epoch: int = 0,
        tells_loss: bool = True,
    ) -> None:
        self.stack, self.feed, self.objective = stack, feed, objective
        self.seeds, self.batch_size, self.learning_rate = seeds, batch_size, learning_rate
        self.tells_loss = tells_loss
        self.batches_an_epoch = n_batches(n_rows, batch_size)
        self.total_steps = max_epochs * self.batches_an_epoch
        self.epoch, self.taken = epoch, epoch * self.batches_an_epoch
        self.penalty = stack.penalties(objective.l2)
        # A batch holds 1/batches of the weight, so this makes its gradient an unbiased estimate of the whole.
        self.batch_objective = Objective(
            objective.pos_weight * self.batches_an_epoch, objective.neg_weight * self.batches_an_epoch, objective.l2
        )
        self.first_moment = torch.zeros_like(stack.flat)
        self.second_moment = torch.zeros_like(stack.flat)
        self.scratch = torch.empty_like(stack.flat)
        self._in_one_pass = stack.device.type == "cpu" and has_fused_adam()
        self._count = torch.zeros(())
        # On CUDA an epoch is one kernel, or else is captured as one graph: launching its many small kernels one by one
        # takes most of the time.
        both, moments = self.batch_objective, (self.first_moment, self.second_moment)
        weights = (both.pos_weight, both.neg_weight, both.l2)
        can_fuse = is_fusable(stack, tells_loss=tells_loss)
        self._fused = FusedEpochs(stack, moments, weights, _BETAS) if can_fuse else None
        self._index: BatchIndex | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._captured = torch.empty(0)
        self._device_factors = torch.zeros(self.batches_an_epoch, 2, dtype=stack.dtype, device=stack.device)

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        return self.learning_rate * one_cycle((step + 1) / (self.total_steps + 1))

    def step(self) -> Tensor:
        """One epoch; the loss is the mean over its batches, plus the penalty at its end (zero where nobody asks)."""
        index = self.feed.epoch_index(self.seeds, self.epoch, self.batch_size)
        self.epoch += 1
        if self._fused:
            self._set_factors()
            self.taken = self.epoch * self.batches_an_epoch
            return self._fused.run(self.feed, index, self._device_factors, tells_loss=self.tells_loss)
        if self.stack.device.type != "cuda":
            return self._run(index)
        self._set_factors()
        if self._index is None:  # the first epoch runs as it is and warms the kernels up
            self._index = index
            return self._run(index)
        self._index.copy_(index)
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._captured = self._run(self._index)
        self._graph.replay()
        self.taken = self.epoch * self.batches_an_epoch
        return self._captured.clone()

    def _run(self, index: BatchIndex) -> Tensor:
        stack = self.stack
        total = torch.zeros_like(self.objective.l2)
        for i, (x, y, base) in enumerate(self.feed.batches(index)):
            weights = self.batch_objective.row_weights(y, base)
            if self.tells_loss:
                total += stack.loss_and_gradient(x, y, weights)
            else:
                stack.gradient(x, y, weights)
            self._update(i)
        if not self.tells_loss:
            return total
        penalty = stack.per_model(self.penalty * stack.flat**2)
        return total / self.batches_an_epoch + 0.5 * penalty

    def _factors(self, step: int) -> tuple[float, float]:
        """Step length and ε of a step, both corrected for the moments' start at zero."""
        return adam_factors(self.rate(step), step)

    def _set_factors(self) -> None:
        """Put an epoch's factors on the device: a captured graph cannot take them as numbers."""
        table = [self._factors(self.taken + i) for i in range(self.batches_an_epoch)]
        self._device_factors.copy_(torch.tensor(table, dtype=self._device_factors.dtype))

    def _update(self, i: int) -> None:
        grad = self.stack.grad.addcmul_(self.penalty, self.stack.flat)
        if self._in_one_pass:
            self._count.fill_(self.taken + 1)
            moments = (self.first_moment, self.second_moment)
            fused_adam(self.stack.flat, grad, *moments, self._count, self.rate(self.taken))
            self.taken += 1
            return
        move_moments(self.first_moment, self.second_moment, grad)
        if self.stack.device.type == "cuda":
            length, epsilon = self._device_factors[i]
            torch.sqrt(self.second_moment, out=self.scratch).add_(epsilon)
            self.stack.flat.sub_(torch.div(self.first_moment, self.scratch, out=self.scratch).mul_(length))
        else:
            step_length, small = self._factors(self.taken)
            torch.sqrt(self.second_moment, out=self.scratch).add_(small)
            self.stack.flat.addcdiv_(self.first_moment, self.scratch, value=-step_length)
        self.taken += 1

    def converged(self) -> Tensor:
        """Adam runs its whole schedule."""
        return torch.zeros_like(self.objective.l2, dtype=torch.bool)


@dataclass
class _History:
    """Curvature pairs of every network, newest last; a pair that does not fit a network weighs nothing there."""

    size: int
    steps: list[Tensor] = field(default_factory=list)
    changes: list[Tensor] = field(default_factory=list)
    inverse_products: list[Tensor] = field(default_factory=list)

    def add(self, step: Tensor, change: Tensor) -> None:
        product = (step * change).sum(1)
        usable = product > 1e-12 * step.norm(dim=1) * change.norm(dim=1)
        self.steps.append(step)
        self.changes.append(change)
        self.inverse_products.append(torch.where(usable, 1 / product, 0.0))
        if len(self.steps) > self.size:
            for entries in (self.steps, self.changes, self.inverse_products):
                entries.pop(0)

    def direction(self, gradient: Tensor) -> Tensor:
        """Minus the inverse-Hessian estimate times the gradient, by the two-loop recursion, per network."""
        if not self.steps:
            return -gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1.0)
        d = -gradient
        shares = []
        for step, change, inverse in zip(
            *map(reversed, (self.steps, self.changes, self.inverse_products)), strict=True
        ):
            share = inverse * (step * d).sum(1)
            shares.append(share)
            d = d - share[:, None] * change
        newest = self.inverse_products[-1]
        scale = torch.where(newest > 0, 1 / (newest * (self.changes[-1] ** 2).sum(1)), 1.0)
        d = d * torch.where(torch.isfinite(scale), scale, 1.0)[:, None]
        for step, change, inverse, share in zip(
            self.steps, self.changes, self.inverse_products, reversed(shares), strict=True
        ):
            d = d + (share - inverse * (change * d).sum(1))[:, None] * step
        return d


class LBFGS:
    """Full-batch L-BFGS; the line search finds a weak Wolfe point by doubling and halving, per network."""

    memory = 10
    sufficient_decrease = 1e-4
    curvature = 0.9
    max_trials = 30
    # A network is done as well when this many steps in a row left the loss where it was, to this relative precision.
    patience = 5
    no_change = 1e-14

    def __init__(self, stack: Stack, feed: RowFeed, objective: Objective, *, tol: float) -> None:
        self.stack, self.objective, self.tol = stack, objective, tol
        self.penalty = stack.spread(objective.l2)
        self.batches = [(x.clone(), y, objective.row_weights(y, base)) for x, y, base in feed.in_order(_CHUNK_ROWS)]
        self.columns = self._columns()
        self.point = stack.flat[self.columns]  # (G·M, parameters of a network)
        self.value, self.gradient = self._evaluate(self.point)
        self.history = _History(self.memory)
        self.idle = torch.zeros_like(self.value, dtype=torch.int64)

    def _columns(self) -> Tensor:
        """Positions of each network's parameters in the flat vector: a stack for L-BFGS holds one shape only."""
        stack = self.stack
        first, tail, _ = stack._views(torch.arange(stack.flat.numel(), device=stack.device))
        groups, models = stack.n_groups, stack.n_models
        parts = [first.view(groups, stack.n_features + 1, models, -1).transpose(1, 2)]
        for tensors in tail:
            for weight, bias in tensors.inner:
                parts += [weight, bias]
            parts += [tensors.out_weight, tensors.out_bias]
        return torch.cat([part.reshape(groups * models, -1) for part in parts], dim=1)

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Objective (N,) and gradient (N, P) of all N networks at a point."""
        stack = self.stack
        stack.flat[self.columns] = point
        stack.grad.zero_()
        total = torch.zeros_like(self.objective.l2)
        for x, y, weights in self.batches:
            total += stack.loss_and_gradient(x, y, weights, add=True)
        penalised = self.penalty * stack.flat
        value = total + 0.5 * stack.per_model(penalised * stack.flat)
        return value.flatten(), stack.grad.add_(penalised)[self.columns]

    def step(self) -> Tensor:
        """One direction and its line search; networks that have converged stay where they are."""
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
        low = torch.zeros_like(slope)
        high = torch.full_like(slope, math.inf)
        length = torch.ones_like(slope)
        best = (self.point.clone(), self.value.clone(), self.gradient.clone())
        searching = active.clone()
        # Near the optimum a decrease drowns in rounding; equal to rounding then counts as low enough.
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
            if trial >= 5:  # far too long: a raw column of 1e10 wants steps of 1e-10
                longer = torch.where(low == 0, 0.05 * high, longer)
            length = torch.where(searching, longer, length)
        return best

    def converged(self) -> Tensor:
        """Networks whose gradient is below the tolerance or whose loss no longer moves."""
        small = self.gradient.abs().amax(dim=1) <= self.tol
        # A search that finds nothing lower where the gradient is large has failed, not converged.
        near = self.gradient.abs().amax(dim=1) <= self.tol**0.5
        return (small | (near & (self.idle >= self.patience))).view_as(self.objective.l2)
