"""The paper's analysis: what the key equation says about class means, and with variances about recall."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_not_negative, check_probabilities
from crcen.theory.price import WeightingLike, alpha_of, cost_ratio_of
from crcen.theory.rows import Array, FloatOrArray

_ROUNDING = 1e-12


def _probability(values: Array, what: str) -> FloatOrArray:
    """Values in [0, 1] up to rounding; anything further out is an error about `what`."""
    is_inside = (values >= -_ROUNDING) & (values <= 1.0 + _ROUNDING)
    if not is_inside.all():
        outside = values[~is_inside].ravel()[0]
        raise InvalidInput(f"{what} must lie in [0, 1], but the key equation gives {outside:.6g}")
    inside = np.clip(values, 0.0, 1.0)
    return float(inside) if inside.ndim == 0 else inside


def means_by_law(discrimination: float, alpha: float) -> tuple[float, float]:
    """Class means by the general-λ law, (1 + rD) / (1 + r) and (1 − D) / (1 + r), r = 1/α; possibly outside [0, 1]."""
    return (alpha + discrimination) / (1.0 + alpha), alpha * (1.0 - discrimination) / (1.0 + alpha)


def class_means(discrimination: float, weighting: WeightingLike) -> tuple[float, float]:
    """Both class means (positives, negatives) of a network from its discrimination: the general-λ law.

    With r = 1/α: (1 + rD) / (1 + r) and (1 − D) / (1 + r). The key equation alone promises no accuracy, as a constant
    output satisfies it (D = 0); together with D it determines the class means.

    Parameters
    ----------
    discrimination : float
        D = mean_pos − mean_neg, in [−1, 1]; an error if it is so negative that a class mean would leave [0, 1].
    weighting : Price, Alpha or "balanced"
        What gives α.
    """
    alpha = alpha_of(weighting)
    if not -1.0 <= discrimination <= 1.0:
        raise InvalidInput(f"discrimination is a difference of probabilities in [-1, 1], got {discrimination}")
    described = f" at discrimination {discrimination:g} and α = {alpha:g}"
    pos, neg = (
        float(_probability(np.asarray(mean), f"{name}{described}"))
        for name, mean in zip(("mean_pos", "mean_neg"), means_by_law(discrimination, alpha), strict=True)
    )
    return pos, neg


def mean_pos_given(mean_neg: ArrayLike, weighting: WeightingLike) -> FloatOrArray:
    """Mean output on positives from that on negatives, 1 − mean_neg / α; an error if it leaves [0, 1]."""
    alpha = alpha_of(weighting)
    given = check_probabilities(mean_neg, "mean_neg")
    with np.errstate(over="ignore"):  # a tiny α is refused by the check that follows
        implied = np.asarray(1.0 - given / alpha)
    return _probability(implied, f"mean_pos at α = {alpha:g}")


def mean_neg_given(mean_pos: ArrayLike, weighting: WeightingLike) -> FloatOrArray:
    """Mean output on negatives from that on positives, α · (1 − mean_pos); an error if it leaves [0, 1]."""
    alpha = alpha_of(weighting)
    given = check_probabilities(mean_pos, "mean_pos")
    return _probability(np.asarray(alpha * (1.0 - given)), f"mean_neg at α = {alpha:g}")


@dataclass(frozen=True)
class MeanBounds:
    """Bounds of the class means by the key equation alone: a lower one for positives, an upper one for negatives."""

    min_mean_pos: float
    max_mean_neg: float


def mean_bounds(weighting: WeightingLike) -> MeanBounds:
    """Bounds for any network that satisfies the key equation: mean_pos ≥ 1 − 1/α and mean_neg ≤ α."""
    alpha = alpha_of(weighting)
    return MeanBounds(min_mean_pos=max(0.0, 1.0 - 1.0 / alpha), max_mean_neg=min(1.0, alpha))


def _cantelli(distance: Array, variance: ArrayLike, name: str) -> FloatOrArray:
    """Lower bound of the share of values within `distance` of their mean on one side: d² / (v + d²) for d > 0."""
    spread = check_not_negative(variance, name)
    squared = np.maximum(distance, 0.0) ** 2
    total = np.asarray(squared + spread)
    bound = np.divide(squared, total, out=np.zeros(total.shape), where=total > 0.0)
    return float(bound) if bound.ndim == 0 else bound


def recall_bound(mean_pos: ArrayLike, var_pos: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """Lower bound of recall by Cantelli's inequality, 1 − v / (v + (mean − threshold)²).

    From mean and population variance of the positives' weighted probabilities, with an alarm above the threshold; 0,
    nothing promised, if the mean is not above it.
    """
    distance = check_probabilities(mean_pos, "mean_pos") - check_probabilities(threshold, "threshold")
    return _cantelli(distance, var_pos, "var_pos")


def specificity_bound(mean_neg: ArrayLike, var_neg: ArrayLike, threshold: ArrayLike = 0.5) -> FloatOrArray:
    """The same for specificity: 1 − v / (v + (threshold − mean)²), 0 if the mean is not below the threshold."""
    distance = check_probabilities(threshold, "threshold") - check_probabilities(mean_neg, "mean_neg")
    return _cantelli(distance, var_neg, "var_neg")


def copies_per_positive(weighting: WeightingLike) -> float:
    """Copies of each minority row, itself included, that would replace the weights: λ / (1 − λ)."""
    return cost_ratio_of(weighting)
