"""Exact probabilities of counts in two samples of one population: what chance allows between training and new rows."""

import math

import numpy as np
from scipy.special import gammaln

__all__ = ["beyond_extreme", "chance_of_more", "kolmogorov_smirnov"]

_TERMS = 20_000


def chance_of_more(count: int, n: int, count_before: int, n_before: int) -> float:
    """Probability that of all marked rows at least ``count`` are among the ``n`` new ones: Fisher's exact test."""
    marked, total = count + count_before, n + n_before
    if count <= n * marked / total:
        return 1.0
    k = np.arange(count, min(n, marked, count + _TERMS) + 1, dtype=np.float64)
    logs = _log_choose(n, k) + _log_choose(n_before, marked - k) - _log_choose(total, marked)
    return float(min(1.0, np.exp(logs).sum()))


def beyond_extreme(count: int, n: int, n_before: int) -> float:
    """Probability that at least ``count`` of ``n`` new rows lie beyond the largest of ``n_before`` earlier ones.

    That is the probability that the ``count`` largest of all are new ones, whatever their distribution; with ties it
    is smaller.
    """
    if count <= 0:
        return 1.0
    log = gammaln(n + 1) - gammaln(n - count + 1) - gammaln(n + n_before + 1) + gammaln(n + n_before - count + 1)
    return math.exp(min(0.0, float(log)))


def kolmogorov_smirnov(distance: float, n: int, n_before: int) -> float:
    """Bound on the probability of a distance between two distribution functions: 2 exp(−2 d² n m / (n + m))."""
    return min(1.0, 2.0 * math.exp(-2.0 * distance**2 * n * n_before / (n + n_before)))


def _log_choose(n: float, k: np.ndarray | float) -> np.ndarray:
    return np.asarray(gammaln(n + 1) - gammaln(np.asarray(k) + 1) - gammaln(n - np.asarray(k) + 1))
