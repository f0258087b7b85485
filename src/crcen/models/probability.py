"""From natural logits to natural probabilities: the analytic shift alone, or a map fitted on out-of-fold logits.

A map is one float64 array, so that a fitted model stays plain NumPy: two numbers are the slope and the intercept of the
new logit in the old one, two rows of numbers are the corners (old logit, new logit) of a piecewise linear one.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.isotonic import IsotonicRegression
from sklearn.model_selection import StratifiedKFold

from crcen.exceptions import InvalidInput
from crcen.theory.balance import solve_shift
from crcen.theory.decision import sigmoid
from crcen.theory.price import Price
from crcen.training.engines import mean_logits
from crcen.training.jobs import TrainingResult

__all__ = [
    "PROBABILITIES",
    "apply_map",
    "fit_map",
    "held_out_logits",
    "is_identity",
    "logits_at_price",
    "posterior_at_price",
    "probability_folds",
    "shifted_map",
]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

PROBABILITIES = ("shift", "balance", "temperature", "isotonic")
_FOLDS = 4
# A mapped logit this close to the threshold lies on it. A whole step of an isotonic map can: rounding must not decide.
_TIE = 1e-12
# What stands for 0 among weighted logits: a tie is no alarm, in whichever order the labels are.
_NO_ALARM = -np.finfo(np.float64).tiny


def fit_map(kind: str, target: Bools, logits: Array, weights: Array) -> Array:
    """The map of a kind, fitted on logits of rows that their network did not see.

    Parameters
    ----------
    kind
        One of `PROBABILITIES`. ``"shift"`` is the identity; ``"balance"`` an intercept, the balance solve at λ = ½;
        ``"temperature"`` a positive slope and an intercept (Platt 1999, on logits): a slope alone would turn about
        logit 0, far from where the rows of a rare event lie; ``"isotonic"`` any rising function.
    target, logits, weights
        Whether a row is positive, its natural logit out of fold, and its sample weight; both classes have weight.

    Returns
    -------
    float64 array
        (2,) slope and intercept, or (2, corners).
    """
    used = weights > 0
    target, logits, weights = target[used], logits[used], weights[used]
    if kind == "shift":
        return np.array([1.0, 0.0])
    if not target.any() or target.all():
        raise InvalidInput(f"probability={kind!r} needs out-of-fold rows of both classes; use probability='shift'.")
    if kind == "balance":
        return np.array([1.0, _intercept(target, logits, weights)])
    return _temperature(target, logits, weights) if kind == "temperature" else _isotonic(target, logits, weights)


def apply_map(state: Array, logits: Array) -> Array:
    """New logits of old ones under a map from `fit_map`."""
    if state.ndim == 1:
        return state[0] * logits + state[1]
    return np.interp(logits, state[0], state[1])


def shifted_map(state: Array, shift: float) -> Array:
    """A map with something added to the logits that it gives."""
    moved = np.array(state, dtype=np.float64)
    moved[1] += shift
    return moved


def is_identity(state: Array) -> bool:
    """Whether a map changes nothing."""
    return state.ndim == 1 and bool(state[0] == 1.0 and state[1] == 0.0)


def logits_at_price(state: Array, weighted: Array, weighting: Price) -> tuple[Array, Array]:
    """Natural and weighted logits under a map, of weighted logits without it.

    The weighted one, mapped natural logit + log c, decides: above 0 is an alarm. A tie is none, and its logit is the
    largest number below 0, so that the sign says so in both orders of the labels.
    """
    natural = weighted - weighting.logit_shift
    if not is_identity(state):
        natural = apply_map(state, natural)
        weighted = natural + weighting.logit_shift
        weighted = np.where(np.abs(weighted) <= _TIE, 0.0, weighted)
    return natural, np.where(weighted == 0.0, _NO_ALARM, weighted)


def posterior_at_price(natural: Array, weighted: Array, weighting: Price) -> Array:
    """Natural probabilities (n, 2), negative and positive: above the threshold exactly where the logits alarm.

    Next to the threshold a probability is rounded to the side that its logit is on, so that whoever compares it with
    the threshold decides as `predict` does.
    """
    p = sigmoid(natural)
    thresholds = weighting.threshold, 1.0 / (1.0 + weighting.cost_ratio)  # the same number, up to rounding
    p = np.where(weighted > 0, np.maximum(p, np.nextafter(max(thresholds), 1.0)), np.minimum(p, min(thresholds)))
    return np.column_stack([sigmoid(-natural), p])


def probability_folds(target: Bools, weights: Array, seed: int, fewest: int = 2) -> list[tuple[Index, Index]]:
    """Stratified folds (training rows, held-out rows) of the rows that have weight; ``fewest`` of each class."""
    used = np.flatnonzero(weights > 0)
    rarest = int(min(target[used].sum(), (~target[used]).sum()))
    if rarest < fewest:
        raise InvalidInput(
            f"folds need {fewest} rows of each class with weight, got {rarest} of one class; use balance=True, "
            f"probability='shift'."
        )
    splitter = StratifiedKFold(min(_FOLDS, rarest), shuffle=True, random_state=seed)
    return [(used[rows], used[held_out]) for rows, held_out in splitter.split(used, target[used])]


def held_out_logits(
    folds: list[tuple[Index, Index]],
    results: list[TrainingResult],
    X: Array,
    target: Bools,
    row_weights: Array | None,
) -> Array:
    """Logits of held-out rows, members averaged; NaN for rows in no fold or of a fold whose networks all diverged.

    Parameters
    ----------
    folds, results
        Training and held-out rows, and as many results a fold, fold by fold, as there are members.
    X, target
        All rows.
    row_weights
        Weights of the loss, to balance the average of several members on a fold's training rows as that of the whole
        model is on all rows; ``None`` to leave it.
    """
    logits = np.full(len(X), np.nan)
    members = len(results) // max(len(folds), 1)
    for i, (rows, held_out) in enumerate(folds):
        own = results[i * members : (i + 1) * members]
        networks = [result.network for result in own if result.network is not None]
        if not networks:
            continue
        logits[held_out] = mean_logits(networks, X[held_out])[:, 0]
        if row_weights is not None and len(networks) > 1:
            average = mean_logits(networks, X[rows])[:, 0]
            logits[held_out] += _intercept(target[rows], average, row_weights[rows])
    return logits


def _intercept(target: Bools, logits: Array, weights: Array) -> float:
    return solve_shift(target, logits, weights)


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

    start = np.array([0.0, _intercept(target, logits, weights)])
    limits, close = [(-5.0, 5.0), (None, None)], {"ftol": 1e-14, "gtol": 1e-10}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits, options=close)
    slope = float(np.exp(found.x[0]))
    # The prior is on the slope alone, so the best intercept is a balance solve: Σ w (y − p) = 0 holds exactly.
    return np.array([slope, _intercept(target, slope * logits, weights)])


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
