"""A plain network whose threshold is moved instead of its weight."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.classifier import CRCENClassifier
from crcen.theory.weighting import ClassWeighting, resolve

__all__ = ["MovedThresholdClassifier"]


class MovedThresholdClassifier(CRCENClassifier):
    """Train with plain cross entropy (λ = ½), decide at the price of ``weighting``: positive where p > 1 − λ.

    The theory says that this nearly ties with training at λ, since both estimate the same posterior; it is the control
    of every claim about weighting. Parameters and attributes are those of `CRCENClassifier`; ``weighting_`` is the
    price of the decision and ``key_equation_`` that of the plain network.
    """

    def _resolve(self, target: NDArray[np.bool_], weights: NDArray[np.float64]) -> ClassWeighting:
        self._price = super()._resolve(target, weights)
        return resolve(None, self._price.n_pos, self._price.n_neg)

    def _training_weighting(self) -> ClassWeighting:
        return resolve(None, self._price.n_pos, self._price.n_neg)

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "MovedThresholdClassifier":
        """Train as `CRCENClassifier` does at λ = ½, then set the price."""
        super().fit(X, y, sample_weight)
        self.weighting_ = self._price
        # The weighted logit is the natural one plus log c: the shift that `predict_proba` takes out again.
        self.shift_ += self._price.logit_shift
        return self
