"""What rows held out of training said about a model's error, in a few sums: what a watch compares new labels with."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.residual_test import JointResidualSums, residual_sums
from crcen.theory.rows import check_row_weights
from crcen.theory.sequential import StreamSums, stream_sums

__all__ = ["held_out_sums"]


def held_out_sums(estimator: Any, y: Any, sample_weight: Any) -> StreamSums | JointResidualSums:
    """Residual sums of the out-of-fold rows of a fitted estimator; empty where it held none out.

    Those of a model of K classes are `JointResidualSums`.

    Parameters
    ----------
    estimator : fitted classifier
        With ``oof_decision_function_`` where it was cross-validated.
    y, sample_weight : arrays of shape (n,)
        As they were given to its fit.
    """
    chances: NDArray[np.float64] | None = getattr(estimator, "oof_proba_", None)
    if chances is not None:
        seen = np.isfinite(chances).all(axis=1)
        numbers = Labels(estimator.classes_).encode(y)[seen]
        sizes, weighting = check_row_weights(sample_weight, len(chances))[seen], estimator.weighting_
        return residual_sums(numbers, weighting.weighted(chances[seen]), weighting, sizes)
    logits: NDArray[np.float64] | None = getattr(estimator, "oof_decision_function_", None)
    if logits is None or logits.ndim != 1:
        return StreamSums()
    labels = Labels.of_model(estimator)
    positive, known = labels.is_positive(y), np.isfinite(logits)
    weights = check_row_weights(sample_weight, positive.size)[known]
    if not known.any():
        return StreamSums()
    q = sigmoid(labels.signed(logits[known]))
    return stream_sums(positive[known], q, estimator.weighting_, weights)
