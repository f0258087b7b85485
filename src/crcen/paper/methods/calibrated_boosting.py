"""CalibratedBoostingClassifier: plain AdaBoost, calibrated, decided at a price; the control of costs in boosting."""

from typing import Any

import numpy as np
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import AdaBoostClassifier
from sklearn.model_selection import StratifiedKFold
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen.exceptions import InvalidInput
from crcen.models.validation import check_number
from crcen.paper.methods.signed_scores import Array, Bools, SignedScoreClassifier
from crcen.theory.labels import Labels

__all__ = ["CalibratedBoostingClassifier"]


class CalibratedBoostingClassifier(SignedScoreClassifier):
    """AdaBoost without costs, Platt's sigmoid on rows it did not see, positive where p > 1/(1 + c).

    Source: N. Nikolaou, N. Edakunni, M. Kull, P. Flach, G. Brown, "Cost-sensitive boosting algorithms: do we really
    need them?", Machine Learning 104 (2016). They hold out half of the rows for the sigmoid; here every row is held out
    once (``cv`` folds) and one booster is fitted on all, which wastes fewer positives.

    Parameters
    ----------
    weighting : default="balanced"
        The price of the decision, as in `CRCENClassifier`. Training does not see it.
    n_estimators, max_depth
        Of the boosted trees, by default those of `AdaCClassifier`, so that the two differ in the costs alone.
    cv : int, default=3
        Folds of the calibration; fewer where a class has fewer rows.
    random_state : int, RandomState or None

    Attributes
    ----------
    calibrated_ : CalibratedClassifierCV
        What answers with natural probabilities.
    weighting_ : ClassWeighting
        The price with the class counts.
    """

    def __init__(
        self,
        weighting: Any = "balanced",
        *,
        n_estimators: int = 50,
        max_depth: int = 3,
        cv: int = 3,
        random_state: Any = None,
    ) -> None:
        self.weighting = weighting
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.cv = cv
        self.random_state = random_state

    def _learn(self, X: Array, is_pos: Bools) -> None:
        check_number(self, "n_estimators", low=1, integer=True)
        check_number(self, "max_depth", low=1, integer=True)
        check_number(self, "cv", low=2, integer=True)
        n_pos = int(is_pos.sum())
        if n_pos < 2:
            raise InvalidInput(
                f"{type(self).__name__} calibrates out of fold: class {self.pos_label_} needs two rows, got 1 sample."
            )
        labels = Labels(self.classes_, self.pos_label_)
        self.weighting_ = labels.resolve(self.weighting, n_pos, len(is_pos) - n_pos)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        booster = AdaBoostClassifier(
            DecisionTreeClassifier(max_depth=self.max_depth), n_estimators=self.n_estimators, random_state=seed
        )
        folds = StratifiedKFold(min(self.cv, n_pos), shuffle=True, random_state=seed)
        self.calibrated_ = CalibratedClassifierCV(booster, method="sigmoid", cv=folds, ensemble=False)
        self.calibrated_.fit(X, is_pos)

    def _natural(self, X: Array) -> Array:
        p: Array = self.calibrated_.predict_proba(X)
        return p

    def _score(self, X: Array) -> Array:
        tiny = np.finfo(np.float64).tiny
        score: Array = logit(np.clip(self._natural(X)[:, 1], tiny, 1 - 1e-16)) + self.weighting_.logit_shift
        return score

    def predict_proba(self, X: Any) -> Array:
        """Natural probabilities, whatever the price."""
        score = self.decision_function(X)
        labels = Labels(self.classes_, self.pos_label_)
        p = 1 / (1 + np.exp(self.weighting_.logit_shift - labels.signed(score)))
        return labels.in_order(np.column_stack([1 - p, p]))
