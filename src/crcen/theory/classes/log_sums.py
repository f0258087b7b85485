"""Softmax and sums of exponentials that keep their digits where probabilities are 0 or 1 to double precision."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["log_softmax", "log_sum_exp", "softmax"]

Array = NDArray[np.float64]


def log_sum_exp(values: Array, axis: int) -> Array:
    """log Σ exp along an axis; −inf where there is nothing but −inf."""
    if values.shape[axis] == 0:
        return np.full(np.delete(values.shape, axis), -np.inf)
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis=axis))


def log_softmax(logits: Array) -> Array:
    """Logarithms of the softmax of each row."""
    return logits - log_sum_exp(logits, 1)[:, None]


def softmax(logits: Array) -> Array:
    """Probabilities of each row of logits, (n, K)."""
    return np.asarray(np.exp(log_softmax(logits)))
