"""Ensemble: a fitted model as one frozen value, from which every answer comes."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from crcen.models.probability import logits_at_price, posterior_at_price
from crcen.theory.decision import sigmoid
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.network import Member

__all__ = ["Ensemble"]

Array = NDArray[np.float64]


# Probabilities below e to minus this lose digits before their logarithm is taken.
_SMALL_LOG = 30.0


def _no_map() -> Array:
    return np.array([1.0, 0.0])


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members' logits averaged or weighed, then shifted and mapped to probabilities, decided at a price.

    Parameters
    ----------
    labels : Labels
        Both classes, and the positive one.
    weighting : Price
        The price of decisions, which weighted logits are at.
    training_weighting : Price
        What the loss was weighted by.
    members : tuple of Member
        What is averaged.
    shift : float
        Added to the averaged logit.
    member_weights : float64 array, optional
        What each member's logit is multiplied by; without them the members are averaged.
    probability_map : float64 array
        From natural logits to those of probabilities (see `crcen.models.probability`).
    """

    labels: Labels
    weighting: Price
    training_weighting: Price
    members: tuple[Member, ...]
    shift: float = 0.0
    probability_map: Array = field(default_factory=_no_map)
    member_weights: Array | None = None

    def mean_logits(self, X: Array) -> Array:
        """The members' average or weighted sum, before the shift, (n,)."""
        if self.member_weights is not None:
            total = np.zeros(len(X))
            for member, weight in zip(self.members, self.member_weights, strict=True):
                total += weight * member.logits(X)[:, 0]
            return total
        if len(self.members) == 1:
            return self.members[0].logits(X)[:, 0]
        return np.asarray(np.mean([member.logits(X) for member in self.members], axis=0)[:, 0])

    def priced(self, logits: Array) -> tuple[Array, Array]:
        """Natural and weighted logit of the positive class, of shifted averages: all answers come from these."""
        return logits_at_price(self.probability_map, logits, self.weighting)

    def logits(self, X: Array) -> tuple[Array, Array]:
        """Natural and weighted logit of the positive class for rows of X."""
        return self.priced(self.mean_logits(X) + self.shift)

    def decision(self, weighted: Array) -> Array:
        """Weighted logit of ``classes[1]``."""
        return self.labels.signed(weighted)

    def decided(self, weighted: Array) -> NDArray[np.generic]:
        """Labels of decisions: positive above 0."""
        return self.labels.decode(weighted > 0)

    def posterior(self, natural: Array, weighted: Array) -> Array:
        """Natural probabilities, (n, 2) in the order of the classes."""
        return self.labels.in_order(posterior_at_price(natural, weighted, self.weighting))

    def log_posterior(self, natural: Array, weighted: Array) -> Array:
        """Logarithms of `posterior`, from logits where the probability itself would lose digits."""
        exact = self.labels.in_order(np.column_stack([-np.logaddexp(0.0, natural), -np.logaddexp(0.0, -natural)]))
        with np.errstate(divide="ignore"):
            plain = np.log(self.posterior(natural, weighted))
        return np.asarray(np.where(np.abs(exact) > _SMALL_LOG, exact, plain))

    def weighted_posterior(self, weighted: Array) -> Array:
        """Probabilities under the weighting, (n, 2) in the order of the classes."""
        return self.labels.in_order(np.column_stack([sigmoid(-weighted), sigmoid(weighted)]))

    def key_equation(self, logits: Array, target: NDArray[np.bool_], weights: Array) -> KeyEquation:
        """The key equation of rows with these shifted averages."""
        return key_equation_of_logits(target, self.priced(logits)[1], self.weighting, weights)

    def shifted(self, shift: float) -> "Ensemble":
        """The same with something added to the averaged logit."""
        return replace(self, shift=self.shift + shift)

    def mapped(self, probability_map: Array) -> "Ensemble":
        """The same with another map to probabilities."""
        return replace(self, probability_map=probability_map)

    def at_price(self, price: Price) -> "Ensemble":
        """The same natural probabilities, decided at another price."""
        if price is self.weighting:
            return self
        moved = price.logit_shift - self.weighting.logit_shift
        return replace(self, weighting=price, shift=self.shift + moved)
