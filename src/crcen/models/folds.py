"""The folds of a search: any scikit-learn splitter, each fold checked to hold what it must."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from crcen.exceptions import InvalidInput

__all__ = ["checked_folds"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def checked_folds(
    cv: Any, X: Array, y: NDArray[Any], target: NDArray[np.bool_], weights: Array, groups: Any, seed: int
) -> list[tuple[Index, Index]]:
    """Row numbers of each fold's training and held-out rows; an int is stratified folds shuffled by ``seed``."""
    try:
        splitter = check_cv(cv, y, classifier=True)
        if isinstance(cv, int | np.integer):
            splitter.shuffle, splitter.random_state = True, seed
        folds = [(_positions(a), _positions(b)) for a, b in splitter.split(X, y, groups)]
    except ValueError as error:
        raise InvalidInput(f"cv={cv!r} cannot split these rows: {error}") from error
    for train_rows, held_out in folds:
        if not weights[held_out].any():
            raise InvalidInput("a test fold holds no row with weight; use fewer folds or drop rows of weight 0.")
        if not weights[train_rows][target[train_rows]].any() or not weights[train_rows][~target[train_rows]].any():
            raise InvalidInput(
                f"a training fold holds one class only: got {int(target.sum())} positive rows for {len(folds)} "
                f"folds; use fewer folds or stratified ones."
            )
    return folds


def _positions(rows: Any) -> Index:
    """Row numbers in order, also from a mask."""
    found = np.asarray(rows)
    return np.flatnonzero(found) if found.dtype == bool else np.sort(found)
