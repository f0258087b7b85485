"""Comparing methods over data sets: ranks, Friedman and Nemenyi, a corrected t-test, Bayesian signed ranks.

Scores are such that higher is better. References: Demšar 2006 (ranks, critical difference), Nadeau and Bengio 2003
(variance over overlapping splits), Benavoli, Corani, Demšar and Zaffalon 2017 (Bayesian signed ranks).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

__all__ = [
    "Comparison",
    "bayesian_signed_ranks",
    "corrected_t_test",
    "critical_difference",
    "friedman",
    "mean_ranks",
    "set_ranks",
]


def set_ranks(scores: ArrayLike) -> NDArray[np.float64]:
    """Ranks within each row of (sets, methods), 1 is best, ties averaged; NaN (failed) comes last."""
    table = np.asarray(scores, dtype=np.float64)
    return stats.rankdata(-np.where(np.isnan(table), -np.inf, table), axis=1)


def mean_ranks(scores: ArrayLike) -> NDArray[np.float64]:
    """Mean of `set_ranks` over the sets."""
    return set_ranks(scores).mean(axis=0)


def friedman(scores: ArrayLike) -> float:
    """P-value of Friedman's test that all methods are equal; NaN below three methods or two sets."""
    ranks = set_ranks(scores)
    if ranks.shape[0] < 2 or ranks.shape[1] < 3:
        return float("nan")
    if np.ptp(ranks) == 0:  # 0/0 in the statistic
        return 1.0
    return float(stats.friedmanchisquare(*ranks.T).pvalue)


def critical_difference(n_methods: int, n_sets: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks."""
    quantile = stats.studentized_range.ppf(1.0 - level, n_methods, np.inf) / np.sqrt(2.0)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets)))


def corrected_t_test(left: ArrayLike, right: ArrayLike, test_share: float) -> tuple[float, float]:
    """t and two-sided p of a difference over repeated splits of one set, corrected for their overlap.

    The variance is multiplied by 1/splits + test/train. Equal scores give (0, 1); one constant difference infinite t.
    """
    difference = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
    n = len(difference)
    mean, variance = difference.mean(), difference.var(ddof=1)
    if variance == 0.0:
        return (0.0, 1.0) if mean == 0.0 else (float(np.copysign(np.inf, mean)), 0.0)
    t = mean / np.sqrt(variance * (1.0 / n + test_share / (1.0 - test_share)))
    return float(t), float(2.0 * stats.t.sf(abs(t), n - 1))


class Comparison(NamedTuple):
    """Probabilities that the left method is better, that both are equivalent, and that the right one is better."""

    left: float
    rope: float
    right: float


def bayesian_signed_ranks(
    left: ArrayLike, right: ArrayLike, rope: float = 0.01, *, samples: int = 20_000, seed: int = 0
) -> Comparison:
    """The Bayesian signed-rank test of two methods over data sets; differences below ``rope`` are none.

    A Dirichlet process over the differences, with a prior observation of weight one in the region of equivalence, gives
    posterior weights of the sets; in each draw the Walsh sums zᵢ + zⱼ fall left of, inside or right of that region, and
    the probability of an answer is the share of draws in which it has most weight.
    """
    z = np.append(0.0, np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64))
    walsh = z[:, None] + z[None, :]
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(z)), samples)
    shares = []
    for sums in (walsh, -walsh):
        beyond = (sums > 2 * rope) + 0.5 * (sums == 2 * rope)
        shares.append(np.einsum("si,ij,sj->s", weights, beyond, weights, optimize=True))
    table = np.stack([shares[0], 1.0 - shares[0] - shares[1], shares[1]], axis=1)
    # A draw in which two answers weigh the same counts for both.
    first = np.isclose(table, table.max(axis=1, keepdims=True), rtol=0.0, atol=1e-12)
    return Comparison(*(first / first.sum(axis=1, keepdims=True)).mean(axis=0).tolist())
