"""The rows of an epoch: which they are, and what its batches are made of."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["BatchIndex", "EpochRows", "fill_batch"]


class EpochRows(NamedTuple):
    """The rows of an epoch, in batches."""

    shared: Tensor  # (G or 1, batches, B, F): rows of the one copy, of which each group's are an affine map; or nothing
    slope: Tensor  # (G, 1, F)
    offset: Tensor  # (G, 1, F)
    own: list[Tensor]  # all rows as each group encodes them, or nothing
    places: Tensor  # (G or 1, batches, B): which of them
    y: Tensor  # (G or 1, batches, B)
    weights: Tensor  # (G, batches, B)
    batch: Tensor  # (G, B, F+1): where a batch is made; the last column is ones


def fill_batch(rows: EpochRows, i: int) -> None:
    """Put the encoded rows of batch ``i`` into ``rows.batch``; for TorchScript too (see `solvers.compiled`)."""
    encoded = rows.batch.narrow(2, 0, rows.batch.size(2) - 1)
    if len(rows.own) == 0:
        torch.addcmul(rows.offset, rows.shared.select(1, i), rows.slope, out=encoded)
    for group in range(len(rows.own)):
        places = rows.places[min(group, rows.places.size(0) - 1), i]
        if rows.batch.is_cuda:  # one kernel instead of two
            torch.index_select(rows.own[group], 0, places, out=encoded.select(0, group))
        else:
            encoded.select(0, group).copy_(rows.own[group].index_select(0, places))


@dataclass(frozen=True)
class BatchIndex:
    """Which rows make up the batches of an epoch: (groups or 1, batches, rows of a batch) each.

    ``rows`` counts in the data, ``positions`` in the pool (one past its end for rows that only fill up a batch).
    """

    rows: Tensor
    positions: Tensor

    def part(self, batches: slice) -> "BatchIndex":
        """Some of the batches, as views."""
        return BatchIndex(self.rows[:, batches], self.positions[:, batches])

    def copy(self) -> "BatchIndex":
        """The same in memory of its own."""
        return BatchIndex(self.rows.clone(), self.positions.clone())

    def copy_(self, other: "BatchIndex") -> None:
        """Take over another index of the same shape, in place."""
        self.rows.copy_(other.rows)
        self.positions.copy_(other.positions)
