"""Held-out rows: the folds of a search, and a share for early stopping, both validated."""

import warnings
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.lazy import model_selection
from crcen._support.text import plural
from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_clusters
from crcen.theory.price import Labels
from crcen.theory.rows import Array, Clusters, Index, Rows, Splitter

Fold = tuple[Index, Index]

_PROBABILITY_FOLDS = 4
_GROUP_SPLITS = 100  # random splits of groups, of which the first with every class in both parts is taken


class TimeSplit:
    """A splitter for scikit-learn: each test fold is a period, and its training fold is everything before it.

    The first period is used for training only. Periods have about the same number of rows of the rarer class, so that
    each contains rare events; rows of one time stay together. Times are passed as ``groups``.

    Parameters
    ----------
    n_splits : int, default=4
        Test folds.
    """

    def __init__(self, n_splits: int = 4) -> None:
        self.n_splits = n_splits

    def get_n_splits(self, X: Rows = None, y: ArrayLike | None = None, groups: ArrayLike | None = None) -> int:
        """The number of test folds."""
        return self.n_splits

    def split(
        self, X: Rows, y: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> Iterator[tuple[Index, Index]]:
        """Row numbers of each training and test fold; X is ignored.

        ``y`` holds labels (n,) of two classes or more, of which the rarest one sets the cuts; ``groups`` the time of
        each row (n,), numbers or times, not missing.
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
            message = f"time cannot be split into {self.n_splits + 1} periods with a row of class {rare} in each"
            got = f"{plural(is_rare.sum(), 'such row')} at {plural(len(moments), 'different time')}"
            raise InvalidInput(f"{message}: got {got}; use fewer folds.")
        for start, end in pairwise(bounds):
            yield np.flatnonzero(when < start), np.flatnonzero((when >= start) & (when < end))


def checked_folds(
    cv: Splitter, X: Array, y: NDArray[np.generic], weights: Array, labels: Labels, groups: ArrayLike | None, seed: int
) -> list[Fold]:
    """Row numbers of each fold's training and held-out rows; an int is stratified folds shuffled by ``seed``.

    Such folds keep ``groups`` together.
    """
    numbers, n_classes = labels.encode(y), labels.n_classes
    with warnings.catch_warnings():
        if n_classes > 2:  # `_with_every_class` warns
            warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        folds = split_rows(cv, X, y, check_clusters(groups, len(y), "groups"), seed)
    if isinstance(cv, int | np.integer) and n_classes > 2:
        folds = _with_every_class(folds, numbers, weights)
    for train_rows, held_out in folds:
        if not weights[held_out].any():
            raise InvalidInput("a test fold holds no row with weight; use fewer folds or drop rows of weight 0.")
        if not np.bincount(numbers[train_rows], weights[train_rows], n_classes).all():
            absent = "one class only" if n_classes == 2 else "no row of a class"
            got = f"{plural(np.bincount(numbers).min(), 'row')} of the rarest class for {plural(len(folds), 'fold')}"
            advice = "it needs at least 2, or fewer folds, or stratified ones"
            raise InvalidInput(f"a training fold holds {absent}: got {got}; {advice}.")
    return folds


def _with_every_class(folds: list[Fold], target: Index, weights: Array) -> list[Fold]:
    """Add the rows of a class to training folds that have none, although they are also held out there.

    A class with one row cannot be both trained on and held out, and a table with such a class must be searchable.
    """
    found, lone = [], set()
    for train_rows, held_out in folds:
        absent = np.flatnonzero(np.bincount(target[train_rows], weights[train_rows], target.max() + 1) == 0)
        back = held_out[np.isin(target[held_out], absent) & (weights[held_out] > 0)]
        lone |= {*target[back].tolist()}
        found.append((np.sort(np.concatenate([train_rows, back])), held_out))
    if lone:
        few = f"too few rows for training and validation of {plural(len(lone), 'label')}"
        where = "these rows are in the training part of every fold, and their out-of-fold results are too good"
        warnings.warn(f"{few}: {where}.", UserWarning, stacklevel=2)
    return found


def split_rows(
    cv: Splitter, X: Rows, y: ArrayLike, groups: ArrayLike | None = None, seed: int | None = None
) -> list[Fold]:
    """Row numbers of folds: an int is stratified ones that keep groups together, shuffled by a seed if there is one."""
    is_default = isinstance(cv, int | np.integer)
    try:
        splitter = model_selection.check_cv(cv, y, classifier=True)
        if is_default and groups is not None:
            splitter = model_selection.StratifiedGroupKFold(cv)
        if is_default and seed is not None:
            splitter.shuffle, splitter.random_state = True, seed
        return [(row_numbers(a), row_numbers(b)) for a, b in splitter.split(X, y, groups)]
    except ValueError as error:
        raise InvalidInput(f"cross-validation by {cv!r} cannot split these rows: {error}") from error


def early_stopping_split(
    target: NDArray[np.generic], used: Index, validation_fraction: float, seed: int, groups: Clusters | None = None
) -> Fold:
    """Rows to train on and rows to watch, of the used ones, with every class among both; groups stay together."""
    labels, counts = np.unique(target[used], return_counts=True)
    try:
        kind = model_selection.StratifiedShuffleSplit if groups is None else model_selection.GroupShuffleSplit
        splitter = kind(1 if groups is None else _GROUP_SPLITS, test_size=validation_fraction, random_state=seed)
        splits = splitter.split(used, target[used], None if groups is None else groups[used])
        parts = ([used[rows] for rows in split] for split in splits)
        own, validation = next(two for two in parts if all(len(np.unique(target[one])) == len(labels) for one in two))
    except (ValueError, StopIteration) as error:
        got = f"got {plural(counts.min(), 'row')} of the rarest class with validation_fraction={validation_fraction}"
        needs = "early_stopping needs rows of every class in its validation part"
        raise InvalidInput(f"{needs}: {got}; raise it or turn early_stopping off.") from error
    return np.sort(own), np.sort(validation)


def row_numbers(rows: ArrayLike) -> Index:
    """Row numbers in order, also from a mask."""
    found = np.asarray(rows)
    return np.flatnonzero(found) if found.dtype == bool else np.sort(found)


def probability_folds(
    target: NDArray[np.generic], weights: Array, seed: int, fewest: int = 2, groups: Clusters | None = None
) -> list[Fold]:
    """Stratified folds (training rows, held-out rows) of the rows that have weight; ``fewest`` of each class.

    Each class has rows in ``fewest`` groups, which stay together.
    """
    used = np.flatnonzero(weights > 0)
    numbers = target[used].astype(np.int64)
    own = np.arange(len(used)) if groups is None else np.unique(groups[used], return_inverse=True)[1].ravel()
    rarest = int(np.bincount(np.unique(np.column_stack([numbers, own]), axis=0)[:, 0], minlength=2).min())
    if rarest < fewest:
        units = "rows" if groups is None else "groups with rows"
        message = f"folds need {fewest} {units} of each class with weight, got {rarest} of one class"
        raise InvalidInput(f"{message}; use balance=True, probability='shift'.")
    kind = model_selection.StratifiedKFold if groups is None else model_selection.StratifiedGroupKFold
    splitter = kind(min(_PROBABILITY_FOLDS, rarest), shuffle=True, random_state=seed)
    folds = splitter.split(used, numbers, None if groups is None else own)
    return [(used[rows], used[held_out]) for rows, held_out in folds]
