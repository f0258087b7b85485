"""Folds in time: train on earlier rows, judge on later ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput

__all__ = ["TimeSplit"]

Index = NDArray[np.int64]


class TimeSplit:
    """A splitter for scikit-learn: each test fold is a stretch of time, trained on everything before it.

    The first stretch is only trained on. Stretches have about the same number of rows of the rarer class, so that a
    rare event is in each; rows of one moment stay together. Times are passed as ``groups``.

    Parameters
    ----------
    n_splits : int, default=4
        Test folds.
    """

    def __init__(self, n_splits: int = 4) -> None:
        self.n_splits = n_splits

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """The number of test folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Index, Index]]:
        """Row numbers of each training and test fold.

        Parameters
        ----------
        X : ignored
        y : array of shape (n,)
            Labels, two classes or more; the rarest one sets the cuts.
        groups : array of shape (n,)
            When each row was: numbers or times, not missing.
        """
        if groups is None or y is None:
            raise InvalidInput("TimeSplit needs y, and the times of the rows as groups.")
        moments, when = np.unique(np.asarray(groups), return_inverse=True)
        labels = np.asarray(y)
        classes, counts = np.unique(labels, return_counts=True)
        rare = classes[np.argmin(counts)]
        is_rare = labels == rare
        events = np.cumsum(np.bincount(when, weights=is_rare, minlength=len(moments)))
        shares = np.arange(1, self.n_splits + 1) / (self.n_splits + 1)
        ends = np.searchsorted(events, shares * events[-1] * (1.0 - 1e-12)) + 1  # moments before each test fold
        bounds = [*ends.tolist(), len(moments)]
        if any(start >= end for start, end in pairwise(bounds)):
            raise InvalidInput(
                f"time cannot be cut into {self.n_splits + 1} stretches with a row of class {rare} in each: "
                f"got {int(is_rare.sum())} such rows at {len(moments)} different times; use fewer folds."
            )
        for start, end in pairwise(bounds):
            yield np.flatnonzero(when < start), np.flatnonzero((when >= start) & (when < end))
