"""From natural logits of K classes to natural probabilities: as they are, or through a map fitted out of fold.

A map is one float64 array (1 + K,): a slope, which all classes share, and an intercept for each.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.model_selection import StratifiedKFold

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import class_shifts
from crcen.theory.decision import log_softmax

__all__ = ["apply_class_map", "class_folds", "fit_class_map", "no_class_map", "solved_shifts"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Fold = tuple[Index, Index]

_FOLDS = 4


def no_class_map(n_classes: int) -> Array:
    """The map that changes nothing."""
    return np.append(1.0, np.zeros(n_classes))


def apply_class_map(state: Array, logits: Array) -> Array:
    """New logits (n, K) of old ones."""
    return np.asarray(state[0] * logits + state[1:])


def solved_shifts(target: Index, logits: Array, class_weights: Array, weights: Array) -> Array:
    """The balance solve, its shifts with the mean 0: one that all classes share would change nothing."""
    return class_shifts(target, logits, class_weights, weights)


def fit_class_map(kind: str, target: Index, logits: Array, weights: Array) -> Array:
    """The map of a kind, fitted on natural logits (n, K) of rows that their networks did not see.

    ``"shift"`` changes nothing, ``"balance"`` is an intercept a class, ``"temperature"`` a slope and the intercepts,
    of least log loss.
    """
    n_classes = logits.shape[1]
    if kind == "isotonic":
        raise InvalidParameter("Only binary classification is supported by probability='isotonic': use 'temperature'.")
    if kind == "shift":
        return no_class_map(n_classes)
    used = weights > 0
    target, logits, weights = target[used], logits[used], weights[used]
    if not np.bincount(target, minlength=n_classes).all():
        raise InvalidInput(f"probability={kind!r} needs out-of-fold rows of every class; use probability='shift'.")
    slope = 1.0 if kind == "balance" else _slope(target, logits, weights)
    return np.append(slope, solved_shifts(target, slope * logits, np.ones(n_classes), weights))


def _slope(target: Index, logits: Array, weights: Array) -> float:
    """The slope of least log loss with its intercepts; log slope ~ N(0, 1) a priori keeps it finite."""
    total, rows, n_classes = weights.sum(), np.arange(len(target)), logits.shape[1]

    def objective(parameters: Array) -> tuple[float, Array]:
        slope = np.exp(parameters[0])
        log_p = log_softmax(slope * logits + parameters[1:])
        loss = -(weights * log_p[rows, target]).sum() / total + 0.5 * parameters[0] ** 2 / total
        error = np.exp(log_p)
        error[rows, target] -= 1.0
        error *= (weights / total)[:, None]
        along = slope * (error * logits).sum() + parameters[0] / total
        return float(loss), np.append(along, error.sum(axis=0))

    start = np.append(0.0, solved_shifts(target, logits, np.ones(n_classes), weights))
    limits, close = [(-5.0, 5.0), *[(None, None)] * n_classes], {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 500}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    return float(np.exp(found.x[0]))


def class_folds(target: Index, weights: Array, seed: int, fewest: int = 2) -> list[Fold]:
    """Stratified folds (training rows, held-out rows) of the rows that have weight; ``fewest`` of each class."""
    used = np.flatnonzero(weights > 0)
    rarest = int(np.bincount(target[used]).min())
    if rarest < fewest:
        raise InvalidInput(
            f"folds need {fewest} rows of each class with weight, got {rarest} of one class; use balance=True, "
            f"probability='shift'."
        )
    splitter = StratifiedKFold(min(_FOLDS, rarest), shuffle=True, random_state=seed)
    return [(used[rows], used[held_out]) for rows, held_out in splitter.split(used, target[used])]
