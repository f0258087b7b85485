"""Ensemble: a fitted model as one immutable value, from which every prediction is computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crcen.models.members.tree_arrays import TreeEnsemble, tree_walk
from crcen.models.probability import apply_map, identity_map, is_identity, moved_map
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits
from crcen.theory.price import Labels, Price, sigmoid, softmax
from crcen.theory.rows import Array, Index
from crcen.training.network import Member

# A mapped log-odds this close to the threshold lies on it: a whole step of an isotonic map can, and rounding must not
# decide. It becomes the largest number below 0, so that a tie is no alarm in either order of the labels.
_TIE = 1e-12
_NO_ALARM = -np.finfo(np.float64).tiny


@dataclass(frozen=True, eq=False)
class Ensemble:
    """Members' logits averaged or weighted, then shifted and mapped to natural probabilities, decided at a price.

    Logits have a column for each class. Of two classes with a positive one the negative class has the logit 0.
    """

    labels: Labels  # the classes; for a binary problem also the positive one
    weighting: Price  # the price of decisions. Weighted logits are natural logits plus its log weights
    training_weighting: Price  # the class weights of the loss
    members: tuple[Member, ...]  # the models that are averaged
    shift: Array  # added to the averaged logits
    probability_map: Array  # from natural logits to those of probabilities (see `crcen.models.probability`)
    member_weights: Array | None = None  # factor of each member's logits; without them the members are averaged

    @classmethod
    def of(
        cls, labels: Labels, weighting: Price, members: tuple[Member, ...], member_weights: Array | None = None
    ) -> Ensemble:
        """Members as they were trained, at their training weights."""
        no_shift = np.zeros(labels.n_classes)
        return cls(labels, weighting, weighting, members, no_shift, identity_map(labels), member_weights)

    def mean_logits(self, X: Array) -> Array:
        """The members' average or weighted sum before the shift, (n, K)."""
        found = self._member_logits(X)
        if self.member_weights is not None:
            pairs = zip(found, self.member_weights, strict=True)
            total = sum((weight * logits for logits, weight in pairs), start=np.zeros((len(X), 1)))
        else:
            total = found[0] if len(found) == 1 else np.mean(found, axis=0)
        return total if self.labels.positive is None else self.labels.columns(total[:, 0])

    def _member_logits(self, X: Array) -> list[Array]:
        """Logits of each member; all trees are walked together, which is faster for a single row."""
        trees = [member for member in self.members if isinstance(member, TreeEnsemble)]
        if len(trees) < 2:
            return [member.logits(X) for member in self.members]
        of_trees = iter(tree_walk(self, trees).logits(X))
        return [next(of_trees) if isinstance(member, TreeEnsemble) else member.logits(X) for member in self.members]

    def priced(self, logits: Array) -> tuple[Array, Array]:
        """Natural and weighted logits, (n, K) each, of shifted averages: every prediction comes from these."""
        natural, weighted = logits - self.weighting.log_weights, logits
        if not is_identity(self.probability_map):
            natural = apply_map(self.probability_map, natural, self.labels)
            weighted = natural + self.weighting.log_weights
        if self.labels.positive is not None:
            log_odds = self.labels.margin(weighted)
            closest = 0.0 if is_identity(self.probability_map) else _TIE
            weighted = self.labels.columns(np.where(np.abs(log_odds) <= closest, _NO_ALARM, log_odds))
        return natural, weighted

    def logits(self, X: Array) -> tuple[Array, Array]:
        """Natural and weighted logits of the rows of X, (n, K) each."""
        return self.priced(self.mean_logits(X) + self.shift)

    def decision(self, weighted: Array) -> Array:
        """Scores of the decision.

        (n,) log-odds of ``classes[1]`` for a binary problem; otherwise weighted logits with mean 0, (n, K), or minus
        the expected costs, (n, actions).
        """
        if self.weighting.costs is not None:
            return -self.weighting.costs.expected(softmax(weighted - self.weighting.log_weights))
        if self.labels.positive is not None:
            return np.asarray(weighted[:, 1] - weighted[:, 0])
        return np.asarray(weighted - weighted.mean(axis=1, keepdims=True))

    def decided(self, weighted: Array) -> NDArray[np.generic]:
        """Labels of decisions, or names of actions; of equals the negative class, or the first one."""
        if self.weighting.costs is not None:
            return self.weighting.costs.decide(softmax(weighted - self.weighting.log_weights))
        return self.labels.decode(self.labels.choose(weighted))

    def posterior(self, natural: Array, weighted: Array) -> Array:
        """Natural probabilities, (n, K) in the order of the classes.

        Next to the threshold of a binary problem a probability is rounded to the side of its log-odds, so that a
        comparison with the threshold decides as `decided` does.
        """
        if self.labels.positive is None:
            return softmax(natural)
        log_odds, price = self.labels.margin(natural), self.weighting
        thresholds = price.threshold, 1.0 / (1.0 + price.cost_ratio)  # the same number, up to rounding
        p, is_alarm = sigmoid(log_odds), self.labels.margin(weighted) > 0
        p = np.where(is_alarm, np.maximum(p, np.nextafter(max(thresholds), 1.0)), np.minimum(p, min(thresholds)))
        return self.labels.in_order(np.column_stack([sigmoid(-log_odds), p]))

    def key_equation(self, logits: Array, target: Index, weights: Array) -> KeyEquation:
        """The key equation of rows with these shifted averages and class numbers."""
        return key_equation_of_logits(target, self.priced(logits)[1], self.weighting, weights)

    def shifted(self, shift: Array) -> Ensemble:
        """The same with a shift (K,) added to the averaged logits."""
        return replace(self, shift=self.shift + shift)

    def mapped(self, probability_map: Array) -> Ensemble:
        """The same with another probability map."""
        return replace(self, probability_map=probability_map)

    def moved(self, shift: Array) -> Ensemble:
        """The same with a shift (K,) added to the logits that the map returns."""
        return self.mapped(moved_map(self.probability_map, shift, self.labels))

    def at_price(self, price: Price) -> Ensemble:
        """The same natural probabilities, decided at another price."""
        if price is self.weighting:
            return self
        moved = price.log_weights - self.weighting.log_weights
        return replace(self, weighting=price, shift=self.shift + moved)
