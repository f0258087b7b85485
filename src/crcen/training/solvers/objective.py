"""The objective's constants, and what the engine's loop asks of a solver.

A solver owns the optimiser state of a stack and touches nothing else: the loop over steps, early stopping and status
are the engine's. Every quantity is per network.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from crcen.training.passes import ClassWeights, row_weights

__all__ = ["ClassObjective", "Objective", "Solver"]


@dataclass(frozen=True)
class Objective:
    """Per-network constants of the objective, each (G, M): weights of the classes over Σ w, and the penalty."""

    pos_weight: Tensor
    neg_weight: Tensor
    l2: Tensor

    @cached_property
    def class_weights(self) -> ClassWeights:
        """For `row_weights`."""
        none = self.neg_weight[:, None][:, :0]
        return ClassWeights(self.neg_weight[:, None], (self.pos_weight - self.neg_weight)[:, None], none)

    def row_weights(self, y: Tensor, base: Tensor) -> Tensor:
        """y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
        return row_weights(self.class_weights, y, base)

    def of_a_batch(self, count: int) -> "Objective":
        """For batches of which an epoch has so many, each with that part of the weight: an unbiased estimate."""
        return Objective(self.pos_weight * count, self.neg_weight * count, self.l2)


@dataclass(frozen=True)
class ClassObjective(Objective):
    """The same for networks with an output for each class: ``by_class`` (G, C, M) instead of two weights."""

    by_class: Tensor

    @classmethod
    def of(cls, by_class: Tensor, l2: Tensor) -> "ClassObjective":
        """From the weight of every class over Σ w (G, C, M) and the penalty (G, M)."""
        none = torch.zeros_like(l2)
        return cls(none, none, l2, by_class)

    @cached_property
    def class_weights(self) -> ClassWeights:
        """For `row_weights`."""
        return ClassWeights(self.neg_weight[:, None], self.pos_weight[:, None], self.by_class)

    def of_a_batch(self, count: int) -> "ClassObjective":
        """For batches of which an epoch has so many, each with that part of the weight."""
        return ClassObjective.of(self.by_class * count, self.l2)


class Solver(Protocol):
    """What the engine's loop asks of a solver; one `step` is an epoch of mini-batches or an iteration over all rows."""

    def step(self) -> Tensor:
        """Advance once; return the objective of every network, (G, M)."""

    def converged(self) -> Tensor:
        """Networks that need no further step, (G, M) bool."""

    def state(self) -> tuple[Tensor, ...]:
        """Vectors over the flat parameters, these first, from which another solver can go on."""

    def restore(self, state: Sequence[Tensor]) -> None:
        """Go on from such vectors."""
