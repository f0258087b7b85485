"""Columns as numbers of bins, cut once for all trees that grow on the same rows."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bins"]

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

MOST_BINS = 255  # of numbers; one more is for gaps, and a bin is a byte
_ROWS_A_BIN = 3  # few rows need no more bins: each costs time at every node, whether or not a row is in it
_FEWEST_BINS = 32
_FURTHEST = 1e300  # a cut at infinity is a split of gaps from numbers


@dataclass(frozen=True, eq=False)
class Bins:
    """Where columns are cut.

    Parameters
    ----------
    cuts
        For each column, rising; a value belongs to bin i where it is above cut i − 1 and not above cut i.
    """

    cuts: tuple[Array, ...]

    @classmethod
    def of(cls, X: Array, weights: Array) -> "Bins":
        """Cuts between all values of a column, or at quantiles by weight where there are many."""
        most = int(np.clip(len(X) // _ROWS_A_BIN, _FEWEST_BINS, MOST_BINS))
        is_weighted = bool(len(weights)) and not np.all(weights == weights[0])
        return cls(tuple(_cuts(X[:, j], weights if is_weighted else None, most) for j in range(X.shape[1])))

    @cached_property
    def counts(self) -> NDArray[np.uint32]:
        """Bins of each column."""
        return np.array([len(cuts) + 1 for cuts in self.cuts], dtype=np.uint32)

    @cached_property
    def gaps(self) -> int:
        """The bin of missing values, after those of any column."""
        return max((len(cuts) for cuts in self.cuts), default=0) + 1

    @cached_property
    def above(self) -> Array:
        """The largest value of each column's bins, (columns, bins): infinite for the last one and those not there."""
        table = np.full((len(self.cuts), self.gaps), np.inf)
        for own, cuts in zip(table, self.cuts, strict=True):
            own[: len(cuts)] = cuts
        return table

    def __call__(self, X: Array, order: Any = "F") -> Bytes:
        """The bin of every cell."""
        found = np.empty(X.shape, dtype=np.uint8, order=order)
        for j, cuts in enumerate(self.cuts):
            column = X[:, j]
            found[:, j] = np.where(np.isnan(column), self.gaps, np.searchsorted(cuts, column))
        return found


def _cuts(column: Array, weights: Array | None, most: int) -> Array:
    """Cuts of one column; none where it has no two values."""
    present: NDArray[np.bool_] = ~np.isnan(column)
    values = column[present]
    if weights is None:
        values = np.sort(values)
    else:
        order = np.argsort(values, kind="stable")
        values, weights = values[order], weights[present][order]
    is_new = np.append(True, values[1:] > values[:-1]) if len(values) else np.empty(0, dtype=bool)
    distinct = values[is_new]
    if len(distinct) <= most:
        before, after = distinct[:-1], distinct[1:]
    else:
        below = np.arange(1.0, len(values)) if weights is None else np.cumsum(weights)[:-1]
        whole = float(len(values)) if weights is None else float(np.sum(weights))
        places = 1 + np.searchsorted(below, np.arange(1, most) * (whole / most) * (1.0 - 1e-12))
        places = np.minimum(places, len(values) - 1)
        before, after = values[places - 1], values[places]
    cuts = np.unique(0.5 * before + 0.5 * after)
    return np.clip(cuts, -_FURTHEST, _FURTHEST)
