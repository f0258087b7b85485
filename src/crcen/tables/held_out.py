"""Sums over the rows held out of training, with which a monitor compares new labels."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.price import Price
from crcen.theory.rows import check_row_weights
from crcen.theory.sequential import StreamSums, stream_sums

__all__ = ["held_out_sums"]


def held_out_sums(estimator: Any, y: Any, sample_weight: Any) -> StreamSums:
    """Residual sums of the out-of-fold rows of a fitted estimator; empty if it held none out.

    Two classes are in the order (negative, positive).

    Parameters
    ----------
    estimator : fitted classifier
        With ``oof_decision_function_`` or ``oof_proba_`` if it was cross-validated.
    y, sample_weight : arrays of shape (n,)
        As they were given to its fit.
    """
    price: Price = estimator.weighting_
    known: NDArray[np.bool_]
    chances: NDArray[np.float64] | None = getattr(estimator, "oof_proba_", None)
    logits: NDArray[np.float64] | None = getattr(estimator, "oof_decision_function_", None)
    if chances is not None and price.positive is None:
        labels = Labels(estimator.classes_)
        q = np.full(chances.shape, np.nan)
        known = np.asarray(np.isfinite(chances).all(axis=1))
        q[known] = price.weighted(chances[known])
        numbers = labels.encode(y)
    elif logits is not None and logits.ndim == 1:
        labels = Labels.of_model(estimator)
        known, signed = np.atleast_1d(np.isfinite(logits)), labels.signed(logits)
        q, numbers = np.column_stack([sigmoid(-signed), sigmoid(signed)]), labels.is_positive(y).astype(np.int64)
        price = Price.binary(price.lam, price.n_pos, price.n_neg)
    else:
        return StreamSums.none(len(estimator.classes_))
    if not known.any():
        return StreamSums.none(price.n_classes)
    weights = check_row_weights(sample_weight, len(known))[known]
    return stream_sums(numbers[known], q[known], price, weights)
