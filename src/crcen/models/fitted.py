"""What fitted networks answer: logits, decisions and probabilities, all from NumPy state in float64."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.probability import logits_at_price, posterior_at_price
from crcen.models.validation import check_rows
from crcen.theory.decision import sigmoid
from crcen.theory.weighting import ClassWeighting
from crcen.training.encoding import InputEncoding
from crcen.training.network import Network, stacked_logits

__all__ = ["FittedNetworks"]

Array = NDArray[np.float64]


class FittedNetworks:
    """The answers of an estimator that holds ``coefs_``, ``intercepts_``, ``shift_`` and their input encoding."""

    classes_: NDArray[Any]
    pos_label_: Any
    weighting_: ClassWeighting
    input_encoding_: dict[str, Any]
    coefs_: list[Array]
    intercepts_: list[Array]
    shift_: float
    probability_map_: Array
    activation: str

    def decision_function(self, X: Any) -> Array:
        """Weighted logit of ``classes_[1]``, float64: above 0 exactly where `predict` gives ``classes_[1]``."""
        _, logits = self._logits(X)
        return logits if self._positive_is_last() else -logits

    def predict(self, X: Any) -> NDArray[Any]:
        """Decide at the stated price c: positive where `predict_proba` is above 1/(1 + c), not at a tie.

        This need not be the larger of both probabilities.
        """
        is_last = self.decision_function(X) > 0
        return self.classes_[is_last.astype(int)]

    def predict_proba(self, X: Any) -> Array:
        """Natural posterior, (n, 2) in the order of ``classes_``: the weighting is taken out again."""
        columns = posterior_at_price(*self._logits(X), self.weighting_)
        return columns if self._positive_is_last() else columns[:, ::-1]

    def weighted_proba(self, X: Any) -> Array:
        """The paper's q: probabilities under the weighting, in the shape of `predict_proba`."""
        _, logits = self._logits(X)
        columns = [sigmoid(-logits), sigmoid(logits)]
        return np.column_stack(columns if self._positive_is_last() else columns[::-1])

    def _mean_logits(self, X: Array) -> Array:
        """The members' average, before the shift."""
        logits = stacked_logits(X, self._encoding(), self.coefs_, self.intercepts_, self.activation)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by the caller, in words
            mean: Array = logits.mean(axis=0)
        return mean

    def _encoding(self) -> InputEncoding:
        return InputEncoding(**self.input_encoding_)

    @property
    def input_mean_(self) -> Array:
        """What is taken off every encoded column."""
        return self._encoding().mean

    @property
    def input_scale_(self) -> Array:
        """What every encoded column is divided by."""
        return self._encoding().scale

    def _networks(self) -> list[Network]:
        """The members as networks of their own."""
        return [
            Network(
                self._encoding(),
                tuple(layer[m] for layer in self.coefs_),
                tuple(layer[m] for layer in self.intercepts_),
                self.activation,
            )
            for m in range(len(self.coefs_[0]))
        ]

    def _logits(self, X: Any) -> tuple[Array, Array]:
        """Natural and weighted logit of the positive class, under the probability map: all answers come from these."""
        check_is_fitted(self)
        logits = self._mean_logits(check_rows(self, X, reset=False)) + self.shift_
        if not np.isfinite(logits).all():
            raise InvalidInput(
                "X holds values too large for this network: its output overflows; standardize=True helps."
            )
        return logits_at_price(self.probability_map_, logits, self.weighting_)

    def _positive_is_last(self) -> bool:
        return bool(self.classes_[1] == self.pos_label_)
