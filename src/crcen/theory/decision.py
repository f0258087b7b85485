"""Conversions between logits, weighted and natural probabilities: logit p = logit q − log c, p_k ∝ q_k / w_k."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_softmax as _log_softmax
from scipy.special import softmax as _softmax

from crcen.theory.checks import check_probabilities
from crcen.theory.price import Price, WeightingLike, cost_ratio_of
from crcen.theory.rows import Array


def posterior(q: ArrayLike, weighting: WeightingLike) -> Array:
    """Natural posterior of a network's weighted output: logit p = logit q − log cost ratio; 0 and 1 stay.

    Parameters
    ----------
    q : array of any shape, or (n, K) with a `Price` of K > 2 classes
        Weighted probabilities of the positive class, in [0, 1], or of every class.
    weighting : Price, Lam, CostRatio, Budget, float or None
        The weighting q was trained under; an unresolved α needs class counts first.
    """
    if isinstance(weighting, Price) and weighting.positive is None:
        return weighting.posterior(q)
    cost, weighted = cost_ratio_of(weighting), check_probabilities(q, "q")
    # Odds divided by c without a logarithm: nothing overflows, and 0 and 1 are exact.
    return np.asarray(weighted / (weighted + cost * (1.0 - weighted)), dtype=np.float64)[()]


def weighted_probability(p: ArrayLike, weighting: WeightingLike) -> Array:
    """Output of a right network under a weighting if the natural posterior is p: the inverse of `posterior`."""
    if isinstance(weighting, Price) and weighting.positive is None:
        return weighting.weighted(p)
    cost, natural = cost_ratio_of(weighting), check_probabilities(p, "p")
    return np.asarray(cost * natural / (cost * natural + (1.0 - natural)), dtype=np.float64)[()]


def sigmoid(logits: ArrayLike) -> Array:
    """1 / (1 + exp(−logits)) in float64 without overflow; infinities become 0 and 1, NaN stays NaN."""
    values = np.asarray(logits, dtype=np.float64)
    decay = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0.0, 1.0, decay) / (1.0 + decay), dtype=np.float64)[()]


def softmax(logits: Array) -> Array:
    """Probabilities of each row of logits, (n, K)."""
    return np.asarray(_softmax(logits, axis=1))


def log_softmax(logits: Array) -> Array:
    """Their logarithms, which keep their digits if a probability rounds to 1."""
    return np.asarray(_log_softmax(logits, axis=1))


def log_sum_exp(values: Array, axis: int) -> Array:
    """log Σ exp along an axis, −inf of nothing; several times faster than SciPy's, which inner loops need."""
    if values.shape[axis] == 0:
        return np.full(np.delete(values.shape, axis), -np.inf)
    top = values.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(values - top).sum(axis=axis)) + np.squeeze(top, axis=axis))
