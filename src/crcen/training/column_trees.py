"""Where small trees on single columns split: the gaps that steps stand in.

A column's candidates are found first, a few of its values (here, or on a GPU: see `device_encoding`). Then the trees of
all columns grow at a time: a call for each leaf of each column would take longer than sorting the columns.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_CANDIDATES", "Candidates", "candidate_targets", "candidates_of", "tree_splits"]

# Candidate edges of the trees that place bins: finer ones cost time and follow single rows.
MOST_CANDIDATES = 128
_LEAF_SHARE = 0.005
# Splits as good as each other to this precision are a tie, which the first one wins. Rounding must not decide: it is
# another one for a row of weight 3 than for three rows.
_TIE = 1e-10

Array = NDArray[np.float64]
Index = NDArray[np.int64]


class Candidates(NamedTuple):
    """Values of a column after which a tree may split, in order; the last one ends the column."""

    left: Array  # (k,): the values
    right: Array  # (k,): the next values of the column
    shares: Array  # (k, classes): of every class's weight, up to and with the value; zero for a class without cells
    below: Array  # (k,): of all weight

    @classmethod
    def none(cls) -> "Candidates":
        """Of a column that no split can tell classes apart by."""
        return cls(np.empty(0), np.empty(0), np.empty((0, 2)), np.empty(0))

    @property
    def n_classes(self) -> int:
        """Number of classes that have cells."""
        return int(self.shares[-1:].any(axis=0).sum())


def candidate_targets(total: float) -> Array:
    """The shares of all classes' weight, up to ``total``, at which a column of many values has its candidates."""
    return np.asarray(np.linspace(0, 1, MOST_CANDIDATES + 1)[1:] * total * (1 - 1e-12))


def candidates_of(values: Array, y: NDArray[Any], weights: Array, cumulative: Array, labels: Index) -> Candidates:
    """The candidates of a sorted column, whose rows have such labels and weights; the classes weigh the same.

    ``cumulative`` is the weight up to each row.
    """
    if not len(values):
        return Candidates.none()
    shares = np.empty((len(labels), len(values)))
    n_there = 0
    for own, label in zip(shares, labels, strict=True):
        np.cumsum(weights * (y == label), out=own)
        if own[-1] > 0:  # of a class that is not there all cells are missing
            own /= own[-1]
            n_there += 1
    if n_there < 2:
        return Candidates.none()
    is_end = np.append(values[1:] > values[:-1], True)  # the last row of each distinct value
    if np.count_nonzero(is_end) > MOST_CANDIDATES:
        mass = shares.sum(axis=0) / n_there
        first = np.searchsorted(mass, candidate_targets(float(mass[-1])))
        ends = np.unique(np.searchsorted(values, values[first], side="right") - 1)
    else:
        ends = np.flatnonzero(is_end)
    following = values[np.minimum(ends + 1, len(values) - 1)]
    return Candidates(values[ends], following, shares[:, ends].T.copy(), cumulative[ends] / cumulative[-1])


def tree_splits(columns: Sequence[Candidates], leaves_at_most: Sequence[int]) -> list[Index]:
    """For each column the candidates after which its tree splits, in order, for so many leaves.

    The split with the largest gain in Gini impurity goes first.
    """
    grown = [i for i, own in enumerate(columns) if len(own.left)]
    found: list[Index] = [np.empty(0, dtype=np.int64)] * len(columns)
    if not grown:
        return found
    longest = max(len(columns[i].left) for i in grown)
    shares = np.zeros((len(grown), longest, columns[grown[0]].shares.shape[1]))
    for own, i in zip(shares, grown, strict=True):
        own[: len(columns[i].left)] = columns[i].shares
    trees = _Trees(shares, np.array([len(columns[i].left) for i in grown]), max(leaves_at_most))
    trees.least = _LEAF_SHARE * np.array([columns[i].n_classes / 2 for i in grown]) - _TIE
    trees.grow(np.array([leaves_at_most[i] for i in grown]))
    for own_splits, i in zip(trees.splits(), grown, strict=True):
        found[i] = own_splits
    return found


class _Trees:
    """Trees on C columns of up to k candidates: leaves (C, L) as candidates start…stop−1, and their best cuts."""

    def __init__(self, shares: Array, lengths: Index, most_leaves: int) -> None:
        self.shares, self.least = shares, np.zeros(len(shares))
        shape = len(shares), max(most_leaves, 1)
        self.start, self.stop, self.cut = (np.zeros(shape, dtype=np.int64) for _ in range(3))
        self.gain = np.full(shape, -np.inf)  # where there is no leaf
        self.n_leaves = np.ones(len(shares), dtype=np.int64)
        self.stop[:, 0] = lengths

    def grow(self, leaves_at_most: Index) -> None:
        """Split the best leaf of every column, as long as that gains and it may have more."""
        everywhere = np.arange(len(self.shares))
        self._judge(everywhere, np.zeros_like(everywhere))
        for _ in range(1, self.gain.shape[1]):
            most = self.gain.max(axis=1)
            own = np.flatnonzero((most > 0) & (self.n_leaves < leaves_at_most))
            if not len(own):
                break
            is_tie = self.gain[own] >= most[own, None] - _TIE
            leaf = np.argmin(np.where(is_tie, self.start[own], self.shares.shape[1]), axis=1)
            new, cut = self.n_leaves[own], self.cut[own, leaf]
            self.start[own, new], self.stop[own, new] = cut, self.stop[own, leaf]
            self.stop[own, leaf] = cut
            self.n_leaves[own] += 1
            self._judge(np.concatenate([own, own]), np.concatenate([leaf, new]))

    def splits(self) -> list[Index]:
        """For each column the last candidates of all leaves but the last."""
        return [np.sort(start[:count])[1:] - 1 for start, count in zip(self.start, self.n_leaves.tolist(), strict=True)]

    def _judge(self, own: Index, leaf: Index) -> None:
        """Find the best cut of some leaves, and its gain in Gini impurity."""
        start, stop, rows = self.start[own, leaf], self.stop[own, leaf], np.arange(len(own))
        shares = self.shares[own]
        before = np.where((start > 0)[:, None], shares[rows, start - 1], 0.0)
        inside = shares[rows, stop - 1] - before
        left = shares - before[:, None]
        right = inside[:, None] - left
        left_mass, right_mass = left.sum(axis=2), right.sum(axis=2)
        place = np.arange(shares.shape[1])
        fine = np.minimum(left_mass, right_mass) >= self.least[own, None]
        fine &= (place >= start[:, None]) & (place < stop[:, None] - 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            purity = (left**2).sum(axis=2) / left_mass + (right**2).sum(axis=2) / right_mass
            whole = (inside**2).sum(axis=1) / inside.sum(axis=1)
        purity = np.where(fine, purity, -np.inf)
        at = np.argmax(purity >= purity.max(axis=1, keepdims=True) - _TIE, axis=1)
        gain = purity[rows, at] - whole
        self.gain[own, leaf] = np.where(gain > 1e-9, gain, 0.0)
        self.cut[own, leaf] = at + 1
