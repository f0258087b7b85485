"""Rows that are held out: the folds of a search, and a share for early stopping, each checked to hold what it must."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv, train_test_split

from crcen.exceptions import InvalidInput

__all__ = ["checked_folds", "early_stopping_split"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def checked_folds(
    cv: Any, X: Array, y: NDArray[Any], target: NDArray[Any], weights: Array, groups: Any, seed: int
) -> list[tuple[Index, Index]]:
    """Row numbers of each fold's training and held-out rows; an int is stratified folds shuffled by ``seed``."""
    try:
        splitter = check_cv(cv, y, classifier=True)
        if isinstance(cv, int | np.integer):
            splitter.shuffle, splitter.random_state = True, seed
        with warnings.catch_warnings():
            if target.dtype != np.bool_:  # said below, with what is done
                warnings.filterwarnings("ignore", "The least populated class", UserWarning)
            folds = [(_positions(a), _positions(b)) for a, b in splitter.split(X, y, groups)]
    except ValueError as error:
        raise InvalidInput(f"cross-validation by {cv!r} cannot split these rows: {error}") from error
    if isinstance(cv, int | np.integer) and target.dtype != np.bool_:
        folds = _with_every_class(folds, target, weights)
    for train_rows, held_out in folds:
        if not weights[held_out].any():
            raise InvalidInput("a test fold holds no row with weight; use fewer folds or drop rows of weight 0.")
        if target.dtype != np.bool_:
            if not np.bincount(target[train_rows], weights[train_rows], target.max() + 1).all():
                raise InvalidInput(
                    f"a training fold holds no row of a class: got {int(np.bincount(target).min())} rows of the rarest "
                    f"class for {len(folds)} folds; use fewer folds or stratified ones."
                )
        elif not weights[train_rows][target[train_rows]].any() or not weights[train_rows][~target[train_rows]].any():
            raise InvalidInput(
                f"a training fold holds one class only: got {int(target.sum())} positive rows for {len(folds)} "
                f"folds; use fewer folds or stratified ones."
            )
    return folds


def _with_every_class(folds: list[tuple[Index, Index]], target: Index, weights: Array) -> list[tuple[Index, Index]]:
    """Training folds without a row of some class get that class's rows back, though they are held out there, too.

    A class with one row cannot be trained on and held out at once: refused, a table with one such class among many
    could not be searched at all.
    """
    found, lone = [], set()
    for train_rows, held_out in folds:
        absent = np.flatnonzero(np.bincount(target[train_rows], weights[train_rows], target.max() + 1) == 0)
        back = held_out[np.isin(target[held_out], absent) & (weights[held_out] > 0)]
        lone |= {*target[back].tolist()}
        found.append((np.sort(np.concatenate([train_rows, back])), held_out))
    if lone:
        warnings.warn(
            f"{len(lone)} classes have too few rows to be trained on and held out: their rows are trained on in every "
            f"fold, and what is said of these rows out of fold is too good.",
            UserWarning,
            stacklevel=2,
        )
    return found


def early_stopping_split(
    target: NDArray[np.bool_], weights: Array, validation_fraction: float, seed: int
) -> tuple[Index, Index]:
    """Rows to train on and rows to watch, of those that have weight, with positives among both."""
    used = np.flatnonzero(weights > 0)
    n_pos = int(target[used].sum())
    try:
        rows, val_rows = train_test_split(used, test_size=validation_fraction, stratify=target[used], random_state=seed)
    except ValueError as error:
        raise InvalidInput(
            f"early_stopping needs rows of both classes in its validation part: got {n_pos} positive of "
            f"{len(used)} rows with validation_fraction={validation_fraction}; raise it or turn early_stopping off."
        ) from error
    if not target[val_rows].any() or not target[rows].any():
        raise InvalidInput(
            f"early_stopping needs a positive row in both parts: got {n_pos} positive rows; raise "
            f"validation_fraction or turn early_stopping off."
        )
    return np.sort(rows), np.sort(val_rows)


def _positions(rows: Any) -> Index:
    """Row numbers in order, also from a mask."""
    found = np.asarray(rows)
    return np.flatnonzero(found) if found.dtype == bool else np.sort(found)
