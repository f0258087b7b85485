"""Full-batch L-BFGS in float64; every quantity, the line search included, is per network."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from crcen.training.rows import RowFeed
from crcen.training.solvers.objective import Objective
from crcen.training.stack import Stack

__all__ = ["LBFGS"]

_CHUNK_ROWS = 2048


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
        layers = stack.views(torch.arange(stack.flat.numel(), device=stack.device))
        groups, models = stack.n_groups, stack.n_models
        parts = [layers.first.view(groups, stack.n_features + 1, models, -1).transpose(1, 2)]
        if not stack.is_linear:
            parts += [*layers.inner[0], layers.out_weight, layers.out_bias]
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

    def state(self) -> tuple[Tensor, ...]:
        """The parameters; curvature is learned anew."""
        return (self.stack.flat,)

    def restore(self, state: Sequence[Tensor]) -> None:
        """Start again from parameters."""
        self.stack.flat.copy_(state[0])
        self.point = self.stack.flat[self.columns]
        self.value, self.gradient = self._evaluate(self.point)
        self.history = _History(self.memory)
        self.idle = torch.zeros_like(self.idle)
