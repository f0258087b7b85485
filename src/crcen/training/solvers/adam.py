"""Mini-batch Adam whose rate rises over the first fifth of the schedule and falls along a cosine."""

from collections.abc import Sequence

import torch
from torch import Tensor

from crcen.training.rows import RowFeed
from crcen.training.schedule import n_batches, one_cycle
from crcen.training.solvers.adam_step import AdamState
from crcen.training.solvers.epochs import Epochs, EpochWork, GraphEpochs, HostEpochs
from crcen.training.solvers.objective import Objective
from crcen.training.stack import Stack

__all__ = ["Adam"]


class Adam:
    """The solver; an epoch has one of several forms (see `crcen.training.solvers.epochs`).

    Parameters
    ----------
    stack, feed, objective
        The networks, their rows, and what is minimised.
    seeds
        Batch order of every group.
    max_epochs, batch_size, learning_rate, n_rows
        The schedule: passes over so many rows, rows of a batch, peak rate.
    epoch
        After which epoch to go on.
    with_loss
        Whether somebody asks for the loss; else `step` gives zeros.
    """

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
        with_loss: bool = True,
    ) -> None:
        self.feed, self.objective = feed, objective
        self.seeds, self.batch_size, self.learning_rate = seeds, batch_size, learning_rate
        self.batches_an_epoch = n_batches(n_rows, batch_size)
        self.total_steps = max_epochs * self.batches_an_epoch
        self.epoch = epoch
        self.vectors = AdamState.start(stack.flat, stack.grad, stack.penalties(objective.l2))
        batch_objective = objective.of_a_batch(self.batches_an_epoch)
        self.work = EpochWork(stack, feed, self.vectors, batch_objective, self.batches_an_epoch, self.rate, with_loss)
        self.epochs = epochs_for(self.work)

    def rate(self, step: int) -> float:
        """The learning rate of a step, from 0."""
        return self.learning_rate * one_cycle((step + 1) / (self.total_steps + 1))

    def step(self) -> Tensor:
        """One epoch; the loss is the mean over its batches, plus the penalty at its end (zero where nobody asks)."""
        index = self.feed.epoch_index(self.seeds, self.epoch, self.batch_size)
        loss = self.epochs.run(index, self.epoch * self.batches_an_epoch)
        self.epoch += 1
        return loss

    def converged(self) -> Tensor:
        """Adam runs its whole schedule."""
        return torch.zeros_like(self.objective.l2, dtype=torch.bool)

    def state(self) -> tuple[Tensor, ...]:
        """Parameters and both moments."""
        return self.vectors.flat, self.vectors.first_moment, self.vectors.second_moment

    def restore(self, state: Sequence[Tensor]) -> None:
        """Go on from such vectors."""
        for own, given in zip(self.state(), state, strict=True):
            own.copy_(given)


def epochs_for(work: EpochWork) -> Epochs:
    """The form of an epoch for this device."""
    return GraphEpochs(work) if work.stack.device.type == "cuda" else HostEpochs(work)
