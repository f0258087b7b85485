"""Any classifier with probabilities, decided at a price."""

from inspect import signature
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.goals import ThresholdGoal
from crcen.theory.key_equation import key_equation
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.theory.rows import check_row_weights

__all__ = ["PricedClassifier", "check_priceable"]

Array = NDArray[np.float64]

# Settings that multiply the odds a classifier learns; 1 and None do not.
_WEIGHTS = ("class_weight", "scale_pos_weight", "is_unbalance", "auto_class_weights", "class_weights")


class PricedClassifier(ClassifierMixin, BaseEstimator):
    """What `TableClassifier` makes of a classifier that knows no price: its probabilities, decisions at the price.

    Parameters
    ----------
    estimator : classifier
        With ``predict_proba``, which is taken for the natural posterior.
    weighting : as in CRCENClassifier, default="balanced"
        What a miss is worth.
    """

    weighting_: Price

    def __init__(self, estimator: Any, weighting: Any = "balanced") -> None:
        self.estimator = estimator
        self.weighting = weighting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "PricedClassifier":
        """Fit the classifier, and resolve the price with the class counts."""
        check_priceable(self.estimator)
        labels = np.asarray(y)
        self.classes_ = np.unique(labels)
        if len(self.classes_) < 2:
            raise InvalidInput(f"y must hold two classes: got {len(self.classes_)}.")
        weights = check_row_weights(sample_weight, labels.size)
        options = {}
        if sample_weight is not None:
            if "sample_weight" not in signature(self.estimator.fit).parameters:
                raise InvalidParameter(f"{type(self.estimator).__name__} takes no sample weights.")
            options["sample_weight"] = weights
        self.__dict__.pop("pos_label_", None)
        if isinstance(self.weighting, ThresholdGoal):
            raise InvalidParameter(
                f"{self.weighting!r} is met on out-of-fold rows, and {type(self.estimator).__name__} has none: fit at "
                f"a price, then choose_weighting(model, {self.weighting!r}, X, y) on rows that were held out"
            )
        known = Labels.from_rows(self.classes_, labels, weights, weighting=self.weighting)
        if known.positive is not None:
            self.pos_label_ = known.positive
        numbers = known.encode(labels)
        self.weighting_ = known.resolve(self.weighting, known.counts(numbers, weights))
        self.estimator_ = clone(self.estimator).fit(X, labels, **options)
        self.key_equation_ = key_equation(numbers, self.weighted_proba(X), self.weighting_, weights)
        return self

    @property
    def costs_(self) -> CostMatrix | None:
        """The costs that are decided by, where the weighting is a `CostMatrix`."""
        return self.weighting_.costs

    def predict_proba(self, X: Any) -> Array:
        """The classifier's own probabilities, (n, K) in the order of ``classes_``."""
        return np.asarray(self.estimator_.predict_proba(X), dtype=np.float64)

    def weighted_proba(self, X: Any) -> Array:
        """Probabilities under the weighting, in the shape of `predict_proba`."""
        return self.weighting_.weighted(self.predict_proba(X))

    def decision_function(self, X: Any) -> Array:
        """Weighted logit of ``classes_[1]``: above 0 exactly where `predict` gives ``classes_[1]``.

        With more classes a column for each, of which the largest is `predict`: weighted logits with the mean 0, or
        minus the expected cost of every action.
        """
        if self.costs_ is not None:
            return -self.costs_.expected(self.predict_proba(X))
        logits = self._logits(X)
        if self.weighting_.positive is None:
            return np.asarray(logits - logits.mean(axis=1, keepdims=True))
        return np.asarray(logits[:, 1] - logits[:, 0])

    def predict(self, X: Any) -> NDArray[Any]:
        """Decide at the price."""
        if self.costs_ is not None:
            return self.costs_.decide(self.predict_proba(X))
        known = Labels(self.classes_, getattr(self, "pos_label_", None))
        return known.decode(known.choose(self._logits(X)))

    def _logits(self, X: Any) -> Array:
        """Weighted logits, (n, K)."""
        p = np.clip(self.predict_proba(X), 1e-300, 1.0)
        return np.asarray(np.log(p) + self.weighting_.log_weights)


def check_priceable(estimator: Any) -> None:
    """Refuse what has no probabilities, or such as a weight has moved."""
    name = type(estimator).__name__
    if isinstance(estimator, type) or not hasattr(estimator, "fit") or not hasattr(estimator, "get_params"):
        raise InvalidParameter(f"estimator must be a classifier, such as CRCENClassifier(): got {estimator!r}.")
    if not hasattr(estimator, "predict_proba"):
        raise InvalidParameter(
            f"a price needs probabilities, and {name} has no predict_proba: wrap it in "
            f"sklearn.calibration.CalibratedClassifierCV."
        )
    last = estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator
    settings = last.get_params(deep=False) if hasattr(last, "get_params") else {}
    for setting in _WEIGHTS:
        value = settings.get(setting)
        if value is not None and value is not False and not (isinstance(value, int | float) and value == 1):
            raise InvalidParameter(
                f"{name} with {setting}={value!r} gives weighted probabilities: wrap it in crcen.PosteriorCorrection, "
                f"or leave {setting} out and state the price as weighting."
            )
