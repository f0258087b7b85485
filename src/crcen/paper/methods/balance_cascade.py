"""BalanceCascade: boosters on balanced draws, each of which sends the negatives it is sure of away (Liu 2009)."""

from typing import Any

import numpy as np
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidInput
from crcen.models.validation import check_number
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier

__all__ = ["BalanceCascadeClassifier"]


class BalanceCascadeClassifier(SignedScoreClassifier):
    """T rounds of AdaBoost, each on all positives and as many of the negatives that are left.

    With P positives and N negatives, f = (P/N)^(1/(T−1)). In round i

    1. AdaBoost learns F_i = Σ_j α_ij h_ij from the positives and P random ones of the negatives that are left;
    2. θ_i is set so that F_i > θ_i holds for the share f of the negatives left: the false positive rate;
    3. the others, which the round gets right, are dropped, so that N·f^i are left, and P of them for round T.

    The vote is joint: positive where Σ_i (F_i − θ_i) > 0.

    Source: X.-Y. Liu, J. Wu, Z.-H. Zhou, "Exploratory undersampling for class-imbalance learning", IEEE Transactions on
    Systems, Man, and Cybernetics B 39 (2009).

    Left open there, and chosen here: N·f^i is rounded; of equal scores at θ_i a random one stays, so that the number is
    kept; θ_i is the middle between the last that stays and the first that goes; θ_T is set by the same rate, though
    nothing comes after it; trees of depth 3 for CART, since a full tree leaves nothing to boost; the score is divided
    by T.

    Parameters
    ----------
    n_rounds : int, default=4
        T.
    n_estimators : int, default=10
        Learners of each AdaBoost.
    max_depth : int, default=3
        Of each tree.
    random_state : int, RandomState or None

    Attributes
    ----------
    estimators_, thresholds_
        The T boosters, and their θ.
    negatives_left_ : array of int, shape (n_rounds,)
        Negatives that each round draws from.
    """

    _why_no_posterior = "picks rows by their score and adds up boosted votes, which are no probabilities"

    def __init__(
        self, n_rounds: int = 4, *, n_estimators: int = 10, max_depth: int = 3, random_state: Any = None
    ) -> None:
        self.n_rounds = n_rounds
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.random_state = random_state

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_number(self, "n_rounds", low=2, integer=True)
        check_number(self, "n_estimators", low=1, integer=True)
        check_number(self, "max_depth", low=1, integer=True)
        random = check_random_state(self.random_state)
        positives, left = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        n_neg, rate = len(left), (len(positives) / len(left)) ** (1 / (self.n_rounds - 1))
        self.estimators_: list[AdaBoostClassifier] = []
        thresholds, counts = [], []
        for number in range(1, self.n_rounds + 1):
            left = random.permutation(left)  # among equal scores, chance decides
            counts.append(len(left))
            rows = np.concatenate([positives, left[: len(positives)]])
            booster = self._booster(X[rows], is_pos[rows], int(random.randint(2**31 - 1)))
            scores = _votes(booster, X[left])
            order = np.argsort(-scores, kind="stable")
            n_stay = round(n_neg * rate**number) if number < self.n_rounds else round(len(left) * rate)
            n_stay = min(max(n_stay, 1), len(left))
            edge = scores[order[n_stay - 1 : n_stay + 1]]
            self.estimators_.append(booster)
            # Where all stay, as in classes of equal size, there is nothing to set a threshold by.
            thresholds.append(float(edge.mean()) if n_stay < len(left) else 0.0)
            left = left[order[:n_stay]]
        self.thresholds_, self.negatives_left_ = np.array(thresholds), np.array(counts)

    def _booster(self, X: Array, is_pos: Bools, seed: int) -> AdaBoostClassifier:
        tree = DecisionTreeClassifier(max_depth=self.max_depth)
        try:
            return AdaBoostClassifier(tree, n_estimators=self.n_estimators, random_state=seed).fit(X, is_pos)
        except ValueError as error:
            raise InvalidInput(f"{type(self).__name__} cannot boost a balanced draw of these rows: {error}") from error

    def _score(self, X: Array) -> Array:
        votes = [_votes(e, X) - threshold for e, threshold in zip(self.estimators_, self.thresholds_, strict=True)]
        mean: Array = np.mean(votes, axis=0)
        return mean


def _votes(booster: AdaBoostClassifier, X: Array) -> Array:
    """Σ α h: scikit-learn's weights are 2α, and its score runs from −2 to 2 whatever they add up to."""
    score: Array = booster.decision_function(X) * booster.estimator_weights_.sum() / 4
    return score
