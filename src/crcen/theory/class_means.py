"""The paper's analysis: what the key equation says about class means, and with variances about recall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.metrics import FloatOrArray
from crcen.theory.price import WeightingLike, alpha_of, cost_ratio_of
from crcen.theory.rows import check_not_negative, check_probabilities

__all__ = [
    "MeanBounds",
    "class_means",
    "copies_per_positive",
    "mean_bounds",
    "mean_neg_given",
    "mean_pos_given",
    "means_by_law",
    "recall_bound",
    "specificity_bound",
]

_ROUNDING = 1e-12


def _probability(values: NDArray[np.float64], what: str) -> FloatOrArray:
    """Return values in [0, 1], forgiving rounding only; anything further out is an error that says `what`."""
    if not ((values >= -_ROUNDING) & (values <= 1.0 + _ROUNDING)).all():
        outside = values[~((values >= -_ROUNDING) & (values <= 1.0 + _ROUNDING))].ravel()[0]
        raise InvalidInput(f"{what} must lie in [0, 1], but the key equation gives {outside:.6g}")
    inside = np.clip(values, 0.0, 1.0)
    return float(inside) if inside.ndim == 0 else inside


def means_by_law(discrimination: float, alpha: float) -> tuple[float, float]:
    """Evaluate the general-λ law without asking whether such class means can exist.

    Parameters
    ----------
    discrimination : float
        D = mean_pos − mean_neg.
    alpha : float
        The paper's multiplier.

    Returns
    -------
    mean_pos, mean_neg : float
        With r = 1/α: (1 + rD) / (1 + r) and (1 − D) / (1 + r).
    """
    return (alpha + discrimination) / (1.0 + alpha), alpha * (1.0 - discrimination) / (1.0 + alpha)


def class_means(discrimination: float, weighting: WeightingLike) -> tuple[float, float]:
    """Find both class means of a network from its discrimination: the general-λ law.

    The key equation alone promises no accuracy, as a constant output satisfies it (D = 0); together with D it says
    everything about the class means.

    Parameters
    ----------
    discrimination : float
        D = mean_pos − mean_neg, in [−1, 1].
    weighting : Price, Alpha or "balanced"
        What gives α.

    Returns
    -------
    mean_pos, mean_neg : float
        With r = 1/α: (1 + rD) / (1 + r) and (1 − D) / (1 + r).

    Raises
    ------
    InvalidInput
        If D is not a number in [−1, 1], or so negative that a class mean would leave [0, 1].
    """
    alpha = alpha_of(weighting)
    if not -1.0 <= discrimination <= 1.0:
        raise InvalidInput(f"discrimination is a difference of probabilities in [-1, 1], got {discrimination}")
    mean_pos, mean_neg = means_by_law(discrimination, alpha)
    described = f" at discrimination {discrimination:g} and α = {alpha:g}"
    return (
        float(_probability(np.asarray(mean_pos), f"mean_pos{described}")),
        float(_probability(np.asarray(mean_neg), f"mean_neg{described}")),
    )


def mean_pos_given(mean_neg: ArrayLike, weighting: WeightingLike) -> FloatOrArray:
    """Find the mean output on positives from that on negatives.

    Parameters
    ----------
    mean_neg : float or array
        Mean weighted probability of the negatives, in [0, 1].
    weighting : Price, Alpha or "balanced"
        What gives α.

    Returns
    -------
    float or array
        1 − mean_neg / α.

    Raises
    ------
    InvalidInput
        If no mean in [0, 1] satisfies the key equation.
    """
    alpha = alpha_of(weighting)
    given = check_probabilities(mean_neg, "mean_neg")
    with np.errstate(over="ignore"):  # a tiny α: the check that follows says so
        implied = np.asarray(1.0 - given / alpha)
    return _probability(implied, f"mean_pos at α = {alpha:g}")


def mean_neg_given(mean_pos: ArrayLike, weighting: WeightingLike) -> FloatOrArray:
    """Find the mean output on negatives from that on positives.

    Parameters
    ----------
    mean_pos : float or array
        Mean weighted probability of the positives, in [0, 1].
    weighting : Price, Alpha or "balanced"
        What gives α.

    Returns
    -------
    float or array
        α · (1 − mean_pos).

    Raises
    ------
    InvalidInput
        If no mean in [0, 1] satisfies the key equation.
    """
    alpha = alpha_of(weighting)
    given = check_probabilities(mean_pos, "mean_pos")
    return _probability(np.asarray(alpha * (1.0 - given)), f"mean_neg at α = {alpha:g}")


@dataclass(frozen=True)
class MeanBounds:
    """What the key equation alone says about the class means, since probabilities lie in [0, 1].

    Parameters
    ----------
    min_mean_pos : float
        The mean output on positives is at least this.
    max_mean_neg : float
        The mean output on negatives is at most this.
    """

    min_mean_pos: float
    max_mean_neg: float


def mean_bounds(weighting: WeightingLike) -> MeanBounds:
    """Bound the class means of any network that satisfies the key equation.

    Parameters
    ----------
    weighting : Price, Alpha or "balanced"
        What gives α.

    Returns
    -------
    MeanBounds
        mean_pos ≥ 1 − 1/α and mean_neg ≤ α, where these say anything.
    """
    alpha = alpha_of(weighting)
    return MeanBounds(min_mean_pos=max(0.0, 1.0 - 1.0 / alpha), max_mean_neg=min(1.0, alpha))


def _cantelli(distance: NDArray[np.float64], variance: ArrayLike, name: str) -> FloatOrArray:
    """Bound from below the share of values within `distance` of their mean on one side: d² / (v + d²) for d > 0."""
    spread = check_not_negative(variance, name)
    squared = np.maximum(distance, 0.0) ** 2
    total = np.asarray(squared + spread)
    bound = np.divide(squared, total, out=np.zeros(total.shape), where=total > 0.0)
    return float(bound) if bound.ndim == 0 else bound


def recall_bound(mean_pos: ArrayLike, var_pos: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """Bound recall from below by Cantelli's inequality.

    Parameters
    ----------
    mean_pos, var_pos : float or array
        Mean and population variance of the positives' weighted probabilities.
    threshold : float or array
        A row is called positive above it.

    Returns
    -------
    float or array
        1 − v / (v + (mean − threshold)²); 0, nothing promised, where the mean is not above the threshold.
    """
    distance = check_probabilities(mean_pos, "mean_pos") - check_probabilities(threshold, "threshold")
    return _cantelli(distance, var_pos, "var_pos")


def specificity_bound(mean_neg: ArrayLike, var_neg: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """Bound specificity from below by Cantelli's inequality.

    Parameters
    ----------
    mean_neg, var_neg : float or array
        Mean and population variance of the negatives' weighted probabilities.
    threshold : float or array
        A row is called positive above it.

    Returns
    -------
    float or array
        1 − v / (v + (threshold − mean)²); 0, nothing promised, where the mean is not below the threshold.
    """
    distance = check_probabilities(threshold, "threshold") - check_probabilities(mean_neg, "mean_neg")
    return _cantelli(distance, var_neg, "var_neg")


def copies_per_positive(weighting: WeightingLike) -> float:
    """Count how often each minority row would be there if copies replaced the weights.

    Parameters
    ----------
    weighting : Price, Lam, CostRatio, Budget, float or None
        What gives the cost ratio.

    Returns
    -------
    float
        λ / (1 − λ), the row itself included: plain cross entropy on rows copied so often has the same minimum.
    """
    return cost_ratio_of(weighting)
