"""ClassEnsemble: a fitted model of K classes as one frozen value, from which every answer comes."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crcen.models.classes.probability import apply_class_map, no_class_map
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.decision import log_softmax, softmax
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.training.network import Member

__all__ = ["ClassEnsemble"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassEnsemble:
    """Members' logits averaged or weighed, then shifted and mapped to probabilities, decided at a price.

    The same as `crcen.models.ensemble.Ensemble` with a column for each class: methods of one name answer alike.

    Parameters
    ----------
    labels : Labels
        The classes.
    weighting : Price
        The price of decisions, and the weights that weighted logits are at.
    training_weighting : Price
        What the loss was weighted by.
    members : tuple of Member
        What is averaged.
    shift : float64 array of shape (K,)
        Added to the averaged logits.
    probability_map : float64 array of shape (1 + K,)
        From natural logits to those of probabilities: one slope, an intercept a class.
    member_weights : float64 array, optional
        What each member's logits are multiplied by; without them the members are averaged.
    """

    labels: Labels
    weighting: Price
    training_weighting: Price
    members: tuple[Member, ...]
    shift: Array
    probability_map: Array
    member_weights: Array | None = None

    @property
    def costs(self) -> CostMatrix | None:
        """What is decided by instead of the weights."""
        return self.weighting.costs

    @classmethod
    def of(
        cls,
        labels: Labels,
        weighting: Price,
        members: tuple[Member, ...],
        member_weights: Array | None = None,
    ) -> "ClassEnsemble":
        """Members as they were trained."""
        n_classes = labels.n_classes
        return cls(labels, weighting, weighting, members, np.zeros(n_classes), no_class_map(n_classes), member_weights)

    def mean_logits(self, X: Array) -> Array:
        """The members' average or weighted sum, before the shift, (n, K)."""
        if self.member_weights is not None:
            total = np.zeros((len(X), self.labels.n_classes))
            for member, weight in zip(self.members, self.member_weights, strict=True):
                total += weight * member.logits(X)
            return total
        if len(self.members) == 1:
            return self.members[0].logits(X)
        return np.asarray(np.mean([member.logits(X) for member in self.members], axis=0))

    def priced(self, logits: Array) -> tuple[Array, Array]:
        """Natural and weighted logits of shifted averages: all answers come from these."""
        natural = apply_class_map(self.probability_map, logits - self.weighting.log_weights)
        return natural, natural + self.weighting.log_weights

    def logits(self, X: Array) -> tuple[Array, Array]:
        """Natural and weighted logits for rows of X, (n, K) each."""
        return self.priced(self.mean_logits(X) + self.shift)

    def decision(self, weighted: Array) -> Array:
        """What `decided` takes the largest of: weighted logits with the mean 0, or minus the expected costs."""
        if self.costs is not None:
            return -self.costs.expected(self.posterior(weighted - self.weighting.log_weights, weighted))
        return np.asarray(weighted - weighted.mean(axis=1, keepdims=True))

    def decided(self, weighted: Array) -> NDArray[np.generic]:
        """Labels of decisions, or names of actions; the first of equals."""
        if self.costs is not None:
            return self.costs.decide(self.posterior(weighted - self.weighting.log_weights, weighted))
        return self.labels.decode(weighted.argmax(axis=1))

    def posterior(self, natural: Array, weighted: Array) -> Array:
        """Natural probabilities, (n, K) in the order of the classes."""
        return softmax(natural)

    def log_posterior(self, natural: Array, weighted: Array) -> Array:
        """Logarithms of `posterior`."""
        return log_softmax(natural)

    def weighted_posterior(self, weighted: Array) -> Array:
        """Probabilities under the weighting, (n, K) in the order of the classes."""
        return softmax(weighted)

    def key_equation(self, logits: Array, target: Index, weights: Array) -> KeyEquation:
        """The key equations of rows with these shifted averages."""
        return key_equation_of_logits(target, self.priced(logits)[1], self.weighting, weights)

    def shifted(self, shift: Array) -> "ClassEnsemble":
        """The same with something added to the averaged logits."""
        return replace(self, shift=self.shift + shift)

    def mapped(self, probability_map: Array) -> "ClassEnsemble":
        """The same with another map to probabilities."""
        return replace(self, probability_map=probability_map)

    def moved(self, shift: Array) -> "ClassEnsemble":
        """The same with something added to the logits that the map gives."""
        moved = self.probability_map.copy()
        moved[1:] += shift
        return replace(self, probability_map=moved)

    def at_price(self, price: Price) -> "ClassEnsemble":
        """The same natural probabilities, decided at another price."""
        moved = price.log_weights - self.weighting.log_weights
        return replace(self, weighting=price, shift=self.shift + moved)
