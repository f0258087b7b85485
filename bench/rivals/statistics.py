"""Comparing methods over data sets: ranks, Friedman and Nemenyi, a corrected t-test, Bayesian signed ranks.

Everything here takes scores where higher is better. References: Demšar 2006 (ranks, critical difference), Nadeau and
Bengio 2003 (variance over overlapping splits), Benavoli, Corani, Demšar and Zaffalon 2017 (Bayesian signed ranks).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

import crcen

__all__ = [
    "Comparison",
    "bayesian_signed_ranks",
    "corrected_t_test",
    "critical_difference",
    "friedman",
    "mean_ranks",
    "set_ranks",
]

Array = NDArray[np.float64]


def _table(scores: ArrayLike) -> Array:
    table = np.asarray(scores, dtype=np.float64)
    if table.ndim != 2 or 0 in table.shape:
        raise crcen.InvalidInput(f"scores must be a table of sets by methods: got shape {table.shape}.")
    return table


def set_ranks(scores: ArrayLike) -> Array:
    """Ranks within each row, 1 is best, ties averaged; NaN, a method that failed there, comes last.

    Parameters
    ----------
    scores : array of shape (sets, methods)
        Higher is better.
    """
    table = _table(scores)
    return stats.rankdata(-np.where(np.isnan(table), -np.inf, table), axis=1)


def mean_ranks(scores: ArrayLike) -> Array:
    """Mean of `set_ranks` over the sets, one number a method."""
    return set_ranks(scores).mean(axis=0)


def friedman(scores: ArrayLike) -> float:
    """P-value of Friedman's test that all methods are alike; NaN below three methods or two sets."""
    ranks = set_ranks(scores)
    if ranks.shape[0] < 2 or ranks.shape[1] < 3:
        return float("nan")
    if np.ptp(ranks) == 0:  # all alike everywhere: 0/0 in the statistic
        return 1.0
    return float(stats.friedmanchisquare(*ranks.T).pvalue)


def critical_difference(n_methods: int, n_sets: int, level: float = 0.05) -> float:
    """Nemenyi's critical difference of mean ranks."""
    if n_methods < 2 or n_sets < 1:
        raise crcen.InvalidInput(f"a difference needs two methods and a set: got {n_methods} methods, {n_sets} sets.")
    quantile = stats.studentized_range.ppf(1.0 - level, n_methods, np.inf) / np.sqrt(2.0)
    return float(quantile * np.sqrt(n_methods * (n_methods + 1) / (6.0 * n_sets)))


def corrected_t_test(left: ArrayLike, right: ArrayLike, test_share: float) -> tuple[float, float]:
    """t and two-sided p of a difference over repeated splits of one set, corrected for their overlap.

    Parameters
    ----------
    left, right : array of shape (splits,)
        Scores of two methods on the same splits.
    test_share : float
        Share of a split's rows that are test rows; the variance is multiplied by 1/splits + test/train.

    Returns
    -------
    tuple of float
        (0, 1) where the methods are equal on all splits; infinite t where all differences are one number.
    """
    difference = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
    if difference.ndim != 1 or len(difference) < 2:
        raise crcen.InvalidInput(f"the test needs at least two splits: got shape {difference.shape}.")
    if not 0.0 < test_share < 1.0:
        raise crcen.InvalidParameter(f"test_share must lie between 0 and 1: got {test_share!r}.")
    n = len(difference)
    mean, variance = difference.mean(), difference.var(ddof=1)
    if variance == 0.0:
        return (0.0, 1.0) if mean == 0.0 else (float(np.copysign(np.inf, mean)), 0.0)
    t = mean / np.sqrt(variance * (1.0 / n + test_share / (1.0 - test_share)))
    return float(t), float(2.0 * stats.t.sf(abs(t), n - 1))


@dataclass(frozen=True)
class Comparison:
    """Probabilities that the left method is better, that both are equivalent, and that the right one is better."""

    left: float
    rope: float
    right: float


def bayesian_signed_ranks(
    left: ArrayLike, right: ArrayLike, rope: float = 0.01, *, samples: int = 20_000, seed: int = 0
) -> Comparison:
    """The Bayesian signed-rank test of two methods over data sets.

    A Dirichlet process over the differences, with a prior observation of weight one in the region of equivalence, gives
    posterior weights of the sets; in each draw the Walsh sums zᵢ + zⱼ fall left of, inside or right of that region, and
    the probability of an answer is the share of draws in which it has most weight.

    Parameters
    ----------
    left, right : array of shape (sets,)
        Scores of two methods on the same sets, higher is better.
    rope : float
        Differences smaller than this are no difference.
    samples, seed
        Draws, and the seed of the draws.
    """
    z = np.asarray(left, dtype=np.float64) - np.asarray(right, dtype=np.float64)
    if z.ndim != 1 or not len(z) or not np.isfinite(z).all():
        raise crcen.InvalidInput("the test needs finite scores of both methods on the same sets, at least one.")
    if rope < 0:
        raise crcen.InvalidParameter(f"rope must not be negative: got {rope!r}.")
    z = np.append(0.0, z)
    walsh = z[:, None] + z[None, :]
    weights = np.random.default_rng(seed).dirichlet(np.ones(len(z)), samples)
    shares = {}
    for side, sums in (("left", walsh), ("right", -walsh)):
        beyond = (sums > 2 * rope) + 0.5 * (sums == 2 * rope)
        shares[side] = np.einsum("si,ij,sj->s", weights, beyond, weights, optimize=True)
    table = np.stack([shares["left"], 1.0 - shares["left"] - shares["right"], shares["right"]], axis=1)
    # A draw in which two answers weigh the same counts for both alike.
    first = np.isclose(table, table.max(axis=1, keepdims=True), rtol=0.0, atol=1e-12)
    better, equal, worse = (first / first.sum(axis=1, keepdims=True)).mean(axis=0).tolist()
    return Comparison(better, equal, worse)
