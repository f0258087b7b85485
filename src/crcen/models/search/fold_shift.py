"""How far the output biases are moved after a search: what held-out rows ask for, as far as their folds agree."""

import numpy as np
from numpy.typing import NDArray

from crcen.models.fitting import FitRows, seen_rows, solved_shifts
from crcen.theory.decision import softmax
from crcen.theory.price import Price

__all__ = ["agreed_shift", "held_out_shifts", "shifts_of_folds"]

Array = NDArray[np.float64]


def held_out_shifts(logits: Array, rows: FitRows, price: Price) -> Array:
    """The balance solve on out-of-fold rows, (K,).

    Where folds leave rows out, as those over time do, the shift that folds agree on, for each class.
    """
    seen = seen_rows(logits)
    pooled = solved_shifts(rows.target[seen], logits[seen], price, rows.weights[seen])
    if seen.all():
        return pooled
    shifts, variances = shifts_of_folds(logits, rows, price)
    return np.array([agreed_shift(pooled[k], shifts[:, k], variances[:, k]) for k in range(len(pooled))])


def shifts_of_folds(logits: Array, rows: FitRows, price: Price) -> tuple[Array, Array]:
    """The balance solve on each fold's held-out rows alone.

    Returns
    -------
    shifts, variances : float64 arrays of shape (folds, K)
        NaN for a fold without weight in one of the classes, or whose networks diverged. The variances are those of
        sampling rows: Σ w² (y − q)² / (Σ w q (1 − q))².
    """
    n_classes = rows.labels.n_classes
    shifts, variances = np.full((2, len(rows.folds), n_classes), np.nan)
    for i, (_, test) in enumerate(rows.folds):
        own, target, weights = logits[test], rows.target[test], rows.weights[test]
        if not np.isfinite(own).all() or not np.bincount(target, weights, n_classes).all():
            continue
        shifts[i] = solved_shifts(target, own, price, weights)
        mass, q = (weights * price.weights[target])[:, None], softmax(own + shifts[i])
        error = (target[:, None] == np.arange(n_classes)) - q
        slope = (mass * q * (1.0 - q)).sum(axis=0)
        variances[i] = np.divide((mass**2 * error**2).sum(axis=0), slope**2, out=variances[i], where=slope > 0)
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
        The balance solve on all held-out rows: the result where folds do not differ beyond sampling.
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
