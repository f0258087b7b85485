"""SignedScoreClassifier: two classes told apart by the sign of one score."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from crcen.models.atomic import all_or_nothing
from crcen.models.validation import check_labels, check_rows
from crcen.theory.labels import Labels

__all__ = ["SignedScoreClassifier"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


class SignedScoreClassifier(ClassifierMixin, BaseEstimator):
    """What methods of two classes share: a method learns and scores, the rarer class is positive, the sign decides.

    Attributes
    ----------
    classes_, pos_label_
        Both labels, and the rarer one (the last where they tie).
    """

    @abstractmethod
    def _learn(self, X: Array, is_pos: Bools) -> None:
        """Learn from checked rows; write the fitted attributes."""

    @abstractmethod
    def _score(self, X: Array) -> Array:
        """Half the evidence for the positive class: above 0 it is predicted."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and labels."""
        with all_or_nothing(self):
            X, y = check_rows(self, X, y, reset=True)
            self.classes_ = check_labels(y)
            labels = Labels.from_rows(self.classes_, y, np.ones(len(y)))
            self.pos_label_ = labels.positive
            self._learn(X, labels.encode(y))
        return self

    def decision_function(self, X: Any) -> Array:
        """The score with the sign of ``classes_[1]``."""
        check_is_fitted(self)
        score = self._score(check_rows(self, X, reset=False))
        return Labels(self.classes_, self.pos_label_).signed(score)

    def predict(self, X: Any) -> NDArray[Any]:
        """The class that the sign says."""
        is_last = self.decision_function(X) > 0
        return self.classes_[is_last.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """1/(1 + e^(−2·score)): a score of boosted votes read as half a log-odds. Ranks rows; it is no posterior."""
        p = expit(2 * self.decision_function(X))
        return np.column_stack([1 - p, p])

    def __sklearn_tags__(self) -> Any:
        """Binary."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.input_tags.sparse = True
        return tags
