"""How much each member of a committee counts: weights of out-of-fold logits, none negative, drawn to equal ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crcen.theory.decision import sigmoid

__all__ = ["RIDGE", "Stacking", "cross_fitted_logits", "fit_stacking"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

# In units of rows: how many of them it takes to leave equal weights. Chosen on four splits of sixteen tables of the
# benchmark's development half.
RIDGE = 5.0


@dataclass(frozen=True, eq=False)
class Stacking:
    """The committee's natural logit: intercept + Σ weight × member's natural logit."""

    weights: Array
    intercept: float

    def __call__(self, logits: Array) -> Array:
        """Combine (n, members) logits to (n,)."""
        combined: Array = logits @ self.weights + self.intercept
        return combined


def fit_stacking(logits: Array, target: Bools, row_weights: Array, ridge: float = RIDGE) -> Stacking:
    """Weights ≥ 0 and an intercept of least log loss, with ``ridge``·Σ (w − 1/K)² against leaving equal weights.

    Parameters
    ----------
    logits
        (n, K) natural logits of rows that no member saw.
    target, row_weights
        Which rows are positive, and their weights; only ratios of weights count.
    ridge
        Strength of the pull; the loss is a sum over rows of mean weight 1.

    Returns
    -------
    Stacking
        With one member: weight and intercept by the same rule.
    """
    n_members = logits.shape[1]
    equal, scale = 1.0 / n_members, row_weights / row_weights.mean()
    sign = np.where(target, -1.0, 1.0)

    def objective(parameters: Array) -> tuple[float, Array]:
        away = parameters[:-1] - equal
        combined = logits @ parameters[:-1] + parameters[-1]
        error = scale * (sigmoid(combined) - target)
        loss = scale @ np.logaddexp(0.0, sign * combined) + ridge * (away @ away)
        return float(loss), np.append(logits.T @ error + 2.0 * ridge * away, error.sum())

    start = np.append(np.full(n_members, equal), 0.0)
    bounds = [(0.0, None)] * n_members + [(None, None)]
    found = minimize(
        objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"ftol": 1e-13, "gtol": 1e-8}
    )
    return Stacking(np.asarray(found.x[:-1]), float(found.x[-1]))


def cross_fitted_logits(
    logits: Array, target: Bools, row_weights: Array, held_out: Sequence[Index], ridge: float = RIDGE
) -> Array:
    """Combined logits of each fold's rows by weights that were fitted on the other folds' rows alone.

    Weights fitted on a row's own label make its loss look better than that of a new row; these do not. A row in no
    fold, or in a fold whose other rows lack a class, is NaN.
    """
    combined = np.full(len(logits), np.nan)
    seen = np.zeros(len(logits), dtype=bool)
    seen[np.concatenate(held_out)] = True
    seen &= np.isfinite(logits).all(axis=1)
    for rows in held_out:
        others = seen.copy()
        others[rows] = False
        own = rows[seen[rows]]
        weighed = others & (row_weights > 0)
        if len(held_out) == 1:  # one fold of later rows: nothing is left to fit on but equal weights
            combined[own] = logits[own].mean(axis=1)
        elif target[weighed].any() and not target[weighed].all():
            combined[own] = fit_stacking(logits[others], target[others], row_weights[others], ridge)(logits[own])
    return combined
