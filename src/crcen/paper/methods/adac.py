"""AdaC1, AdaC2 and AdaC3: boosting with costs in the weights of rows (Sun and others 2007)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidInput
from crcen.models.validation import check_choice, check_number
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier
from crcen.theory.labels import Labels

__all__ = ["AdaCClassifier", "next_row_weights", "vote_weight"]

# A learner without an error would have all say; this much is enough to overrule any other.
_LARGEST_VOTE = 10.0


def vote_weight(variant: str, weights: Array, costs: Array, is_right: Bools) -> float:
    """α of a learner, the least point of its bound on training cost; +∞ for one that the bound rewards without end.

    Parameters
    ----------
    variant : {"adac1", "adac2", "adac3"}
    weights, costs : array of shape (n,)
        D with sum 1, and C in (0, 1].
    is_right : array of bool, shape (n,)
        Where the learner is right.
    """
    sign = np.where(is_right, 1.0, -1.0)
    if variant == "adac1":
        total, edge = weights.sum(), float((sign * costs * weights).sum())
    elif variant == "adac2":
        total, edge = (costs * weights).sum(), float((sign * costs * weights).sum())
    else:
        total, edge = (costs * weights).sum(), float((sign * costs**2 * weights).sum())
    against = float(total) - edge
    return 0.5 * float(np.log((total + edge) / against)) if against > 1e-12 * total else float("inf")


def next_row_weights(variant: str, weights: Array, costs: Array, is_right: Bools, vote: float) -> Array:
    """D of the next round, with sum 1."""
    sign = np.where(is_right, 1.0, -1.0)
    inside = costs if variant in ("adac1", "adac3") else 1.0
    outside = costs if variant in ("adac2", "adac3") else 1.0
    new: NDArray[np.float64] = outside * weights * np.exp(-vote * inside * sign)
    return new / new.sum()


class AdaCClassifier(SignedScoreClassifier):
    """AdaBoost with a cost for each class in the weights of its rows.

    With u = +1 where a learner h is right and −1 where it is wrong, Σ₊ and Σ₋ over those rows, ΣD = 1:

    ======= ====================== =======================================================
    variant D becomes, normalised  α
    ======= ====================== =======================================================
    adac1   D·e^(−αCu)             ½ ln[(1 + Σ₊CD − Σ₋CD) / (1 − Σ₊CD + Σ₋CD)]
    adac2   C·D·e^(−αu)            ½ ln[Σ₊CD / Σ₋CD]
    adac3   C·D·e^(−αCu)           ½ ln[(ΣCD + Σ₊C²D − Σ₋C²D) / (ΣCD − Σ₊C²D + Σ₋C²D)]
    ======= ====================== =======================================================

    The vote is the sign of Σ αh. With C = 1 all three are AdaBoost.

    Source: Y. Sun, M. S. Kamel, A. K. C. Wong, Y. Wang, "Cost-sensitive boosting for classification of imbalanced
    data", Pattern Recognition 40 (2007).

    Left open there, and chosen here:

    - Costs: 1 for the dearer class and 1/c for the other, c the cost ratio of ``weighting``. The paper searches them.
    - Learner: a tree of depth 3, where the paper has C4.5.
    - D starts equal. If the first learner is then worth nothing (α ≤ 0), as one that never says "positive" is at the
      balanced price, D starts at C instead.
    - Boosting ends with the first learner of α ≤ 0, and with one that makes no error, whose α is held to 10.

    What to expect: the cost of ``adac2`` and ``adac3`` multiplies the weights anew in every round: after t rounds it
    stands there as c^t; at a large c they soon alarm on most rows. ``adac1`` may end before it heeds its costs.

    N. Nikolaou and others (Machine Learning 104, 2016) show that these votes follow no loss whose probabilities could
    be had back; `CalibratedBoostingClassifier` is their control.

    Parameters
    ----------
    variant : {"adac1", "adac2", "adac3"}, default="adac2"
    weighting : default="balanced"
        The price, as in `CRCENClassifier`.
    n_estimators : int, default=50
        Rounds at most.
    max_depth : int, default=3
        Of each tree.
    random_state : int, RandomState or None

    Attributes
    ----------
    estimators_, votes_
        Learners of "is positive", and their α.
    weighting_ : ClassWeighting
        The price with the class counts.
    """

    _why_no_posterior = "boosts with costs in its row weights, and its votes are no probabilities under any prior"

    def __init__(
        self,
        variant: str = "adac2",
        weighting: Any = "balanced",
        *,
        n_estimators: int = 50,
        max_depth: int = 3,
        random_state: Any = None,
    ) -> None:
        self.variant = variant
        self.weighting = weighting
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.random_state = random_state

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_choice(self, "variant", ("adac1", "adac2", "adac3"))
        check_number(self, "n_estimators", low=1, integer=True)
        check_number(self, "max_depth", low=1, integer=True)
        labels = Labels(self.classes_, self.pos_label_)
        self.weighting_ = labels.resolve(self.weighting, is_pos.sum(), (~is_pos).sum())
        costs = np.where(is_pos, self.weighting_.cost_ratio, 1.0)
        costs /= costs.max()
        for start in (np.ones(len(X)), costs):
            self._boost(X, is_pos, costs, start / start.sum())
            if self.estimators_:
                return
        raise InvalidInput(
            f"{self.variant} cannot boost these rows: its first tree is worth nothing at a cost ratio of "
            f"{self.weighting_.cost_ratio:g}; try another weighting or a larger max_depth."
        )

    def _boost(self, X: Array, is_pos: Bools, costs: Array, weights: Array) -> None:
        """Rounds from given weights of rows; none where the first learner is worth nothing."""
        random = check_random_state(self.random_state)
        X = np.asarray(X, dtype=np.float32)  # as trees have it, once instead of in every round
        self.estimators_: list[DecisionTreeClassifier] = []
        votes: list[float] = []
        for _ in range(self.n_estimators):
            seed = random.randint(np.iinfo(np.int32).max)
            tree = DecisionTreeClassifier(max_depth=self.max_depth, random_state=seed)
            is_right = tree.fit(X, is_pos, sample_weight=weights).predict(X) == is_pos
            vote = vote_weight(self.variant, weights, costs, is_right)
            if vote <= 1e-12:  # rounding aside, as good as chance
                break
            self.estimators_.append(tree)
            votes.append(min(vote, _LARGEST_VOTE))
            if is_right.all():
                break
            weights = next_row_weights(self.variant, weights, costs, is_right, votes[-1])
        self.votes_ = np.array(votes)

    def _score(self, X: Array) -> Array:
        score, X = np.zeros(len(X)), np.asarray(X, dtype=np.float32)
        for tree, vote in zip(self.estimators_, self.votes_, strict=True):
            score += np.where(tree.predict(X), vote, -vote)
        return score
