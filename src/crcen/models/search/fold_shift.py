"""How far the output bias is moved after a search: what held-out rows ask for, as far as their folds agree on it."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crcen.theory.balance import solve_shift
from crcen.theory.decision import sigmoid

__all__ = ["agreed_shift", "shifts_of_folds"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]


def shifts_of_folds(target: Bools, logits: Array, row_weights: Array, held_out: Sequence[Index]) -> tuple[Array, Array]:
    """The balance solve on each fold's held-out rows alone.

    Parameters
    ----------
    target, logits, row_weights
        All rows: whether positive, out-of-fold logit (NaN for rows in no test fold), weight in the loss.
    held_out
        Row numbers of each test fold.

    Returns
    -------
    shifts, variances : float64 arrays of shape (folds,)
        NaN for a fold without weight in one of the classes, or whose networks diverged. The variances are those of
        sampling rows: Σ w² (y − q)² / (Σ w q (1 − q))².
    """
    shifts, variances = np.full(len(held_out), np.nan), np.full(len(held_out), np.nan)
    for i, rows in enumerate(held_out):
        own, is_positive, weights = logits[rows], target[rows], row_weights[rows]
        has_both = (weights[is_positive] > 0).any() and (weights[~is_positive] > 0).any()
        if not has_both or not np.isfinite(own).all():
            continue
        shifts[i] = solve_shift(is_positive, own, weights)
        q = sigmoid(own + shifts[i])
        slope = float((weights * q * (1.0 - q)).sum())
        variances[i] = float((weights**2 * (is_positive - q) ** 2).sum()) / slope**2 if slope > 0 else np.nan
    return shifts, variances


def agreed_shift(pooled: float, shifts: Array, variances: Array) -> float:
    """The shift that folds over different stretches of time have in common.

    A network that is too sure of itself is off in the same way in every fold, and the shift mends it. A drift moves
    each stretch its own way: then the pooled shift is an accident of the stretches, and the model, which has learnt
    from all of them, must not be moved by it. So where folds differ beyond sampling, by a variance τ² (DerSimonian and
    Laird 1986), it is their mean m, shrunk by 1 − (τ²/K) / m², or 0 where that is negative.

    Parameters
    ----------
    pooled
        The balance solve on all held-out rows: the answer where folds do not differ beyond sampling.
    shifts, variances
        As `shifts_of_folds` gives them.
    """
    known = np.isfinite(shifts) & np.isfinite(variances) & (variances > 0)
    if known.sum() < 2:
        return pooled
    values, precision = shifts[known], 1.0 / variances[known]
    common = float(precision @ values / precision.sum())
    excess = float(precision @ (values - common) ** 2) - (len(values) - 1)
    spread = excess / float(precision.sum() - (precision**2).sum() / precision.sum())
    if spread <= 0.0:
        return pooled
    precision = 1.0 / (variances[known] + spread)
    mean = float(precision @ values / precision.sum())
    kept = 1.0 - spread / len(values) / mean**2 if mean else 0.0
    return mean * kept if kept > 0.0 else 0.0
