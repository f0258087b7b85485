"""The two solvers: one `step` is an epoch of mini-batches (Adam) or an iteration over all rows (L-BFGS).

A solver owns the optimiser state of a stack and touches nothing else: the loop over steps, early stopping and status
are the engine's. Every quantity, the line search included, is per network.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from crcen.training.adam import BETAS, STEPS_TO_DUST, AdamState, adam_factors, drop_dust, has_one_pass, move_moments
from crcen.training.compiled import compiled_adam_epoch
from crcen.training.fused import FusedEpochs, is_fusable
from crcen.training.passes import ClassWeights, row_weights
from crcen.training.rows import BatchIndex, RowFeed
from crcen.training.schedule import n_batches, one_cycle
from crcen.training.stack import Stack

__all__ = ["LBFGS", "Adam", "Objective", "Solver"]

_CHUNK_ROWS = 2048
# Multiplications forward in one call of compiled code, a fraction of a second.
_OPERATIONS_A_CALL = 2**31


@dataclass(frozen=True)
class Objective:
    """Per-network constants of the objective, each (G, M): weights of the classes over Σ w, and the penalty."""

    pos_weight: Tensor
    neg_weight: Tensor
    l2: Tensor

    @cached_property
    def class_weights(self) -> ClassWeights:
        """For `row_weights`."""
        return ClassWeights(self.neg_weight[:, None], (self.pos_weight - self.neg_weight)[:, None])

    def row_weights(self, y: Tensor, base: Tensor) -> Tensor:
        """y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
        return row_weights(self.class_weights, y, base)


class Solver(Protocol):
    """What the engine's loop asks of a solver."""

    def step(self) -> Tensor:
        """Advance once; return the objective of every network, (G, M)."""

    def converged(self) -> Tensor:
        """Networks that need no further step, (G, M) bool."""


class Adam:
    """Mini-batch Adam whose rate rises over the first fifth of the schedule and falls along a cosine."""

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
        self.state = AdamState.start(stack.flat, stack.grad, stack.penalties(objective.l2))
        self.first_moment, self.second_moment = self.state.first_moment[0], self.state.second_moment[0]
        # A batch holds 1/batches of the weight, so this makes its gradient an unbiased estimate of the whole.
        self.batch_objective = Objective(
            objective.pos_weight * self.batches_an_epoch, objective.neg_weight * self.batches_an_epoch, objective.l2
        )
        # On CUDA an epoch is one kernel, or else is captured as one graph: launching its many small kernels one by one
        # takes most of the time.
        both, moments = self.batch_objective, (self.first_moment, self.second_moment)
        weights = (both.pos_weight, both.neg_weight, both.l2)
        can_fuse = is_fusable(stack, tells_loss=tells_loss)
        self._fused = FusedEpochs(stack, moments, weights, BETAS) if can_fuse else None
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
            return self._run_here(index)
        self._set_factors()
        if self._index is None:  # the first epoch runs as it is and warms the kernels up
            self._index = index
            return self._run_there(index)
        self._index.copy_(index)
        if self._graph is None:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._captured = self._run_there(self._index)
        self._graph.replay()
        self.taken = self.epoch * self.batches_an_epoch
        return self._captured.clone()

    def _run_here(self, index: BatchIndex) -> Tensor:
        """An epoch on the CPU."""
        stack, count, run = self.stack, self.batches_an_epoch, compiled_adam_epoch()
        rows = self.feed.epoch_rows(index)
        losses = torch.zeros_like(self.objective.l2)
        views = (stack.design, stack.own, stack.grads, stack.buffers(rows.batch.shape[1]))
        what = (rows, self.batch_objective.class_weights, self.state, losses if self.tells_loss else None)
        # Ctrl-C is heard between calls.
        most = _OPERATIONS_A_CALL // (stack.own.first.numel() * rows.batch.shape[1])
        at_once = max(1, min(most, STEPS_TO_DUST))
        for start in range(0, count, at_once):
            rates = [self.rate(self.taken + i) for i in range(min(at_once, count - start))]
            run(*views, *what, start, rates, self.taken, has_one_pass())
            self.taken += len(rates)
            drop_dust(self.state)
        return self._objective_from(losses) if self.tells_loss else losses

    def _run_there(self, index: BatchIndex) -> Tensor:
        """An epoch on CUDA, step by step; a captured graph cannot take rates as numbers."""
        stack, state = self.stack, self.state
        total = torch.zeros_like(self.objective.l2)
        for i, (x, y, base) in enumerate(self.feed.batches(index)):
            weights = self.batch_objective.row_weights(y, base)
            if self.tells_loss:
                total += stack.loss_and_gradient(x, y, weights)
            else:
                stack.gradient(x, y, weights)
            move_moments(state)
            length, epsilon = self._device_factors[i]
            torch.sqrt(self.second_moment, out=state.scratch).add_(epsilon)
            stack.flat.sub_(torch.div(self.first_moment, state.scratch, out=state.scratch).mul_(length))
        self.taken += self.batches_an_epoch
        drop_dust(state)
        return self._objective_from(total) if self.tells_loss else total

    def _objective_from(self, total: Tensor) -> Tensor:
        """The mean loss of an epoch's batches plus the penalty at its end, from their sum."""
        penalty = self.stack.per_model(self.state.penalty * self.stack.flat**2)
        return total / self.batches_an_epoch + 0.5 * penalty

    def factors(self, step: int) -> tuple[float, float]:
        """Step length and ε of a step, both corrected for the moments' start at zero."""
        return adam_factors(self.rate(step), step, self.state.beta1, self.state.beta2, self.state.epsilon)

    def _set_factors(self) -> None:
        """Put an epoch's factors on the device."""
        table = [self.factors(self.taken + i) for i in range(self.batches_an_epoch)]
        self._device_factors.copy_(torch.tensor(table, dtype=self._device_factors.dtype))

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
