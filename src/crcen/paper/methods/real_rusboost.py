"""RealRUSBoostClassifier: RUSBoost by SAMME.R, as imbalanced-learn had it in 2019."""

from typing import Any

import numpy as np
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen.models.validation import check_number
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier

__all__ = ["RealRUSBoostClassifier"]

_SMALLEST = np.finfo(np.float64).eps


class RealRUSBoostClassifier(SignedScoreClassifier):
    """Boosted stumps, each on all positives and as many negatives drawn at random, combined by their probabilities.

    Sources: C. Seiffert and others, "RUSBoost: a hybrid approach to alleviating class imbalance", 2010; J. Zhu and
    others, "Multi-class AdaBoost", 2009 (SAMME.R). Libraries of 2019 used SAMME.R; scikit-learn has left it since, and
    with SAMME a single stump that is worse than chance on all rows ends the boosting.

    Parameters
    ----------
    n_estimators : int, default=50
        Stumps.
    random_state : int, RandomState or None
        Seed of the draws.

    Attributes
    ----------
    estimators_ : list of DecisionTreeClassifier
        The stumps.
    """

    def __init__(self, n_estimators: int = 50, *, random_state: Any = None) -> None:
        self.n_estimators = n_estimators
        self.random_state = random_state

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_number(self, "n_estimators", low=1, integer=True)
        random = check_random_state(self.random_state)
        weights = np.full(len(X), 1.0 / len(X))
        pos, neg = np.flatnonzero(is_pos), np.flatnonzero(~is_pos)
        sign = np.where(is_pos, 1.0, -1.0)
        self.estimators_ = []
        for _ in range(self.n_estimators):
            rows = np.concatenate([pos, random.choice(neg, len(pos), replace=False)])
            stump = DecisionTreeClassifier(max_depth=1, random_state=random.randint(2**31 - 1))
            stump.fit(X[rows], is_pos[rows], sample_weight=weights[rows])
            self.estimators_.append(stump)
            half = _half_log_odds(stump, X)
            if not (stump.predict(X) != is_pos).any():
                break
            weights = weights * np.exp(-sign * half)
            weights /= weights.sum()

    def _score(self, X: Array) -> Array:
        """Σ over stumps of half the log-odds of each."""
        return np.asarray(np.sum([_half_log_odds(stump, X) for stump in self.estimators_], axis=0))


def _half_log_odds(stump: DecisionTreeClassifier, X: Array) -> Array:
    p = np.clip(stump.predict_proba(X), _SMALLEST, None)
    return np.asarray((np.log(p[:, 1]) - np.log(p[:, 0])) / 2.0)
