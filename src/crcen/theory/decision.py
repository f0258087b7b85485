"""From the weighted probability to the natural one and back: logit p = logit q − log c."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.theory.price import WeightingLike, cost_ratio_of
from crcen.theory.rows import check_probabilities

__all__ = ["posterior", "sigmoid", "weighted_probability"]


def posterior(q: ArrayLike, weighting: WeightingLike) -> NDArray[np.float64]:
    """Undo the weighting: the natural posterior of a network's weighted output.

    Parameters
    ----------
    q : array of any shape
        Weighted probabilities of the positive class, in [0, 1].
    weighting : Price, Lam, CostRatio, Budget, float or None
        The weighting q was trained under; an unresolved α needs class counts first.

    Returns
    -------
    float64 array of the same shape
        p with logit p = logit q − log cost ratio; 0 and 1 stay what they are, and p > 1 − λ exactly where q > ½ up to
        rounding.
    """
    cost = cost_ratio_of(weighting)
    weighted = check_probabilities(q, "q")
    # q/(1−q) divided by c, without a logarithm: nothing to overflow, and 0 and 1 are exact.
    return np.asarray(weighted / (weighted + cost * (1.0 - weighted)), dtype=np.float64)[()]


def weighted_probability(p: ArrayLike, weighting: WeightingLike) -> NDArray[np.float64]:
    """Apply the weighting: what a right network outputs under it where the natural posterior is p.

    Parameters
    ----------
    p : array of any shape
        Natural posteriors of the positive class, in [0, 1].
    weighting : Price, Lam, CostRatio, Budget, float or None
        As in `posterior`, of which this is the inverse.

    Returns
    -------
    float64 array of the same shape
        q with logit q = logit p + log cost ratio.
    """
    cost = cost_ratio_of(weighting)
    natural = check_probabilities(p, "p")
    return np.asarray(cost * natural / (cost * natural + (1.0 - natural)), dtype=np.float64)[()]


def sigmoid(logits: ArrayLike) -> NDArray[np.float64]:
    """Turn logits into probabilities in float64 without overflow.

    Parameters
    ----------
    logits : array of any shape
        Any numbers; infinities become 0 and 1, NaN stays NaN.

    Returns
    -------
    float64 array of the same shape
        1 / (1 + exp(−logits)).
    """
    values = np.asarray(logits, dtype=np.float64)
    decay = np.exp(-np.abs(values))
    return np.asarray(np.where(values >= 0.0, 1.0, decay) / (1.0 + decay), dtype=np.float64)[()]
