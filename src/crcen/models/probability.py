"""Probability maps: from natural logits to natural probabilities, by a map fitted on out-of-fold logits.

A map is one float64 array, so that a fitted model stays plain NumPy. For a binary problem it maps the log-odds of the
positive class: two numbers are slope and intercept, two rows of numbers are the corners (old, new) of a piecewise
linear function. For K classes it is (1 + K,): a common slope, and an intercept for each class.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import StratifiedKFold

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import class_shifts, solve_shift
from crcen.theory.price import Labels, log_softmax, sigmoid
from crcen.theory.rows import Array, Bools, Index

PROBABILITIES = ("shift", "balance", "temperature", "isotonic")
_FOLDS = 4


def identity_map(labels: Labels) -> Array:
    """The map that changes nothing."""
    return np.append(1.0, np.zeros(labels.n_classes if labels.positive is None else 1))


def is_identity(state: Array) -> bool:
    """Whether a map changes nothing."""
    return state.ndim == 1 and bool(state[0] == 1.0) and not state[1:].any()


def fit_map(kind: str, target: NDArray[np.generic], logits: Array, weights: Array) -> Array:
    """The map of a kind, fitted on natural logits of rows that their networks did not see."""
    is_binary = logits.ndim == 1
    if kind == "isotonic" and not is_binary:
        raise InvalidParameter("Only binary classification is supported by probability='isotonic': use 'temperature'.")
    if kind == "shift":
        return np.append(1.0, np.zeros(1 if is_binary else logits.shape[1]))
    used = weights > 0
    target, logits, weights = target[used], logits[used], weights[used] / weights[used].mean()  # for any scale
    if not np.bincount(target.astype(np.int64), minlength=2 if is_binary else logits.shape[1]).all():
        which = "both classes" if is_binary else "every class"
        raise InvalidInput(f"probability={kind!r} needs out-of-fold rows of {which}; use probability='shift'.")
    if is_binary:
        is_positive = target.astype(np.bool_)
        if kind == "balance":
            return np.array([1.0, solve_shift(is_positive, logits, weights)])
        fit = _temperature if kind == "temperature" else _isotonic
        return fit(is_positive, logits, weights)
    numbers, equal = target.astype(np.int64), np.ones(logits.shape[1])
    slope = 1.0 if kind == "balance" else _slope(numbers, logits, weights)
    return np.append(slope, class_shifts(numbers, slope * logits, equal, weights))


def apply_map(state: Array, logits: Array, labels: Labels | None = None) -> Array:
    """New logits of old ones under a map: (n,) log-odds, or (n, K) with ``labels``."""
    if labels is not None and labels.positive is not None:
        return labels.columns(apply_map(state, labels.margin(logits)))
    if state.ndim == 2:
        return np.interp(logits, state[0], state[1])
    return np.asarray(state[0] * logits + (state[1:] if logits.ndim > 1 else state[1]))


def moved_map(state: Array, shift: Array, labels: Labels) -> Array:
    """A map with a shift (K,) added to the logits that it returns."""
    moved = np.array(state, dtype=np.float64)
    if labels.positive is None:
        moved[1:] += shift
    else:
        moved[1] += labels.margin(shift)
    return moved


def probability_folds(
    target: NDArray[np.generic], weights: Array, seed: int, fewest: int = 2
) -> list[tuple[Index, Index]]:
    """Stratified folds (training rows, held-out rows) of the rows that have weight; ``fewest`` of each class."""
    used = np.flatnonzero(weights > 0)
    numbers = target[used].astype(np.int64)
    rarest = int(np.bincount(numbers, minlength=2).min())
    if rarest < fewest:
        raise InvalidInput(
            f"folds need {fewest} rows of each class with weight, got {rarest} of one class; use balance=True, "
            f"probability='shift'."
        )
    splitter = StratifiedKFold(min(_FOLDS, rarest), shuffle=True, random_state=seed)
    return [(used[rows], used[held_out]) for rows, held_out in splitter.split(used, numbers)]


def _temperature(target: Bools, logits: Array, weights: Array) -> Array:
    """Slope and intercept of least log loss; log slope ~ N(0, 1) a priori keeps it finite on separable rows."""
    total, sign = weights.sum(), np.where(target, -1.0, 1.0)

    def objective(parameters: Array) -> tuple[float, Array]:
        slope, intercept = np.exp(parameters[0]), parameters[1]
        new = slope * logits + intercept
        error = weights * (sigmoid(new) - target) / total
        # Not products of BLAS, which add up by the number of threads.
        loss = (weights * np.logaddexp(0.0, sign * new)).sum() / total + 0.5 * parameters[0] ** 2 / total
        return float(loss), np.array([slope * (error * logits).sum() + parameters[0] / total, error.sum()])

    start = np.array([0.0, solve_shift(target, logits, weights)])
    limits, close = [(-5.0, 5.0), (None, None)], {"ftol": 1e-14, "gtol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    slope = float(np.exp(found.x[0]))
    # The prior is on the slope alone, so the best intercept is a balance solve: Σ w (y − p) = 0 holds exactly.
    return np.array([slope, solve_shift(target, slope * logits, weights)])


def _isotonic(target: Bools, logits: Array, weights: Array) -> Array:
    """Corners of the isotonic regression, in logits.

    The lowest step often holds no positive row and the highest no negative one. To claim certainty there would cost an
    infinite log loss, so a step of k rows says (0 + ½)/(k + 1) instead of 0 and 1 − ½/(k + 1) instead of 1.
    """
    regression = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
    values = regression.fit_transform(logits, target.astype(np.float64), sample_weight=weights)
    none, all_of_them = weights[values <= 0.0], weights[values >= 1.0]
    low = 0.5 / (none.sum() + 1.0) if none.size else 0.0
    high = 1.0 - 0.5 / (all_of_them.sum() + 1.0) if all_of_them.size else 1.0
    p = np.clip(regression.y_thresholds_, low, high)
    return np.stack([regression.X_thresholds_, np.log(p) - np.log1p(-p)])


def _slope(target: Index, logits: Array, weights: Array) -> float:
    """The slope of least log loss with its intercepts, for K classes; the same prior as in `_temperature`."""
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

    start = np.append(0.0, class_shifts(target, logits, np.ones(n_classes), weights))
    limits, close = [(-5.0, 5.0), *[(None, None)] * n_classes], {"ftol": 1e-14, "gtol": 1e-10, "maxiter": 500}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    return float(np.exp(found.x[0]))
