"""One number under four names: λ, α, cost ratio and budget, resolved with the class counts."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.rows import check_binary_target, check_row_weights, class_totals
from crcen.theory.shown import Shown
from crcen.theory.specs import Alpha, Budget, CostRatio, Lam, Spec, as_spec, positive_number

__all__ = [
    "Alpha",
    "Budget",
    "ClassWeighting",
    "CostRatio",
    "Lam",
    "WeightingLike",
    "alpha_of",
    "cost_ratio_of",
    "resolve",
    "resolve_on",
]


def _is_normal(value: float) -> bool:
    """Say whether both `value` and 1 / `value` are finite."""
    return sys.float_info.min <= value <= sys.float_info.max


@dataclass(frozen=True)
class ClassWeighting(Shown):
    """A weighting together with the class counts that give it all its names.

    λ is what is stored and everything else derives from it, so that the names always agree with each other to the last
    digits; a cost ratio c comes back with a relative error of about c · 1e-16.

    Parameters
    ----------
    lam : float
        λ, strictly between 0 and 1.
    n_pos, n_neg : float
        Class counts, weighted where sample weights were given; above 0.
    """

    lam: float
    n_pos: float
    n_neg: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "lam", Lam(self.lam).value)
        object.__setattr__(self, "n_pos", positive_number(self.n_pos, "n_pos"))
        object.__setattr__(self, "n_neg", positive_number(self.n_neg, "n_neg"))
        if not (_is_normal(self.cost_ratio) and _is_normal(self.imbalance_ratio) and _is_normal(self.alpha)):
            raise InvalidParameter(
                f"a cost ratio and an α must lie between about 1e-308 and 1e308, got λ = {self.lam!r} with counts "
                f"{self.n_pos:g} and {self.n_neg:g}: did you mean a milder weighting?"
            )

    @property
    def cost_ratio(self) -> float:
        """What one miss is worth in false alarms, λ / (1 − λ); also the budget per extra catch."""
        return self.lam / (1.0 - self.lam)

    @property
    def alpha(self) -> float:
        """The paper's α, cost ratio · n_pos / n_neg; 1 is "balanced"."""
        return self.cost_ratio / self.imbalance_ratio

    @property
    def threshold(self) -> float:
        """The natural posterior above which a row is called positive, 1 − λ = 1 / (1 + cost ratio)."""
        return 1.0 - self.lam

    @property
    def logit_shift(self) -> float:
        """What the weighting adds to the logit of the natural posterior, log cost ratio."""
        return math.log(self.cost_ratio)

    @property
    def imbalance_ratio(self) -> float:
        """Negatives per positive, n_neg / n_pos."""
        return self.n_neg / self.n_pos

    def row_weights(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> NDArray[np.float64]:
        """Weigh rows as the loss does.

        Parameters
        ----------
        y : array of shape (n,)
            0/1 or bool, 1 is positive.
        sample_weight : array of shape (n,), optional
            Finite and not negative.

        Returns
        -------
        float64 array of shape (n,)
            λ times the sample weight for positive rows, 1 − λ times it for negative rows.
        """
        positive = check_binary_target(y)
        return check_row_weights(sample_weight, positive.size) * np.where(positive, self.lam, 1.0 - self.lam)

    def __str__(self) -> str:
        price = f"{self.cost_ratio:.6g}"
        return (
            f"λ = {self.lam:.6g}, α = {self.alpha:.6g}, cost ratio = {price} (a miss is worth {price} false alarms), "
            f"budget = {price} false alarms per extra catch; positive above posterior {self.threshold:.6g}; "
            f"counts {self.n_pos:.12g} positive, {self.n_neg:.12g} negative"
        )


WeightingLike: TypeAlias = ClassWeighting | Spec | float | str | None


def resolve(weighting: WeightingLike, n_pos: float, n_neg: float) -> ClassWeighting:
    """Give a weighting all its names with the class counts.

    Parameters
    ----------
    weighting : ClassWeighting, Lam, Alpha, CostRatio, Budget, float, "balanced" or None
        A plain number is λ, None is λ = ½, "balanced" is α = 1. What is resolved already keeps its own counts.
    n_pos, n_neg : float
        Class counts, above 0.

    Returns
    -------
    ClassWeighting
        The resolved weighting.

    Raises
    ------
    InvalidParameter
        If the weighting means nothing, with a guess of what was meant, or is too extreme for double precision.
    """
    if isinstance(weighting, ClassWeighting):
        return weighting
    spec = as_spec(weighting)
    pos, neg = positive_number(n_pos, "n_pos"), positive_number(n_neg, "n_neg")
    if isinstance(spec, Lam):
        return ClassWeighting(spec.value, pos, neg)
    cost = spec.value * (neg / pos) if isinstance(spec, Alpha) else spec.value
    lam = cost / (1.0 + cost) if cost < 1.0 else 1.0 / (1.0 + 1.0 / cost)
    if not 0.0 < lam < 1.0:
        raise InvalidParameter(
            f"{spec!r} with counts {pos:g} and {neg:g} must give a λ that double precision can tell from 0 and 1, "
            f"got a cost ratio of {cost:g}: did you mean one below 1e15?"
        )
    return ClassWeighting(lam, pos, neg)


def resolve_on(weighting: WeightingLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ClassWeighting:
    """Resolve a weighting with the (weighted) class counts of rows.

    Parameters
    ----------
    weighting : ClassWeighting, Lam, Alpha, CostRatio, Budget, float, "balanced" or None
        As in `resolve`.
    y : array of shape (n,)
        0/1 or bool, 1 is positive; both classes must be there.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Returns
    -------
    ClassWeighting
        The resolved weighting; one that is resolved already is returned as it is, with its training counts.
    """
    positive = check_binary_target(y)
    n_pos, n_neg = class_totals(positive, check_row_weights(sample_weight, positive.size))
    return resolve(weighting, n_pos, n_neg)


def cost_ratio_of(weighting: WeightingLike) -> float:
    """Find the cost ratio of a weighting that needs no class counts for it.

    Parameters
    ----------
    weighting : ClassWeighting, Lam, CostRatio, Budget, float or None
        Anything but an unresolved α.

    Returns
    -------
    float
        What one miss is worth in false alarms.

    Raises
    ------
    InvalidParameter
        If class counts are needed, or the weighting means nothing.
    """
    if isinstance(weighting, ClassWeighting):
        return weighting.cost_ratio
    spec = as_spec(weighting)
    if isinstance(spec, Alpha):
        raise InvalidParameter(
            f"class counts are needed to turn {weighting!r} into a cost ratio: resolve it first with "
            "resolve(weighting, n_pos, n_neg), or pass the weighting_ of a fitted model"
        )
    return spec.value / (1.0 - spec.value) if isinstance(spec, Lam) else spec.value


def alpha_of(weighting: WeightingLike) -> float:
    """Find the α of a weighting that needs no class counts for it.

    Parameters
    ----------
    weighting : ClassWeighting, Alpha or "balanced"
        Anything resolved, or stated as α.

    Returns
    -------
    float
        The paper's multiplier.

    Raises
    ------
    InvalidParameter
        If class counts are needed, or the weighting means nothing.
    """
    if isinstance(weighting, ClassWeighting):
        return weighting.alpha
    spec = as_spec(weighting)
    if not isinstance(spec, Alpha):
        raise InvalidParameter(
            f"class counts are needed to turn {weighting!r} into α: resolve it first with "
            "resolve(weighting, n_pos, n_neg), or pass the weighting_ of a fitted model"
        )
    return spec.value
