"""The paper's two simulations, with the posterior that is known for them.

Sim1, one feature: a positive is N(−1.5, 1) + U(0, 0.5), a negative N(1.5, 1) + U(−0.5, 0).
Sim2, three features: a positive is N((0, 0, 0), 1.2² I), a negative N((1, 1, 1), I).
"""

from __future__ import annotations

import math
import operator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.datasets.dataset import Dataset
from crcen.exceptions import InvalidInput, InvalidParameter

__all__ = ["make_sim1", "make_sim2", "sim1_log_ratio", "sim1_posterior", "sim2_log_ratio", "sim2_posterior"]

_SIM1_MEAN = 1.5  # of the negatives' normal part; the positives' is its negative
_SIM1_WIDTH = 0.5  # of both uniform parts, each towards the other class
_SIM2_SD_POS = 1.2  # a standard deviation: Table 1 agrees with this reading
_SIM2_FEATURES = 3
_NODES, _NODE_WEIGHTS = np.polynomial.legendre.leggauss(32)

Floats = NDArray[np.float64]


def make_sim1(n_pos: int = 1000, n_neg: int = 10000, seed: int | np.random.SeedSequence = 0) -> Dataset:
    """Draw rows of the paper's Sim1, in random order.

    Parameters
    ----------
    n_pos, n_neg : int, default=1000 and 10000
        Rows of each class; the defaults are the paper's training data.
    seed : int or SeedSequence, default=0
        The same seed and counts give the same rows.

    Returns
    -------
    Dataset
        One feature.

    Examples
    --------
    >>> from crcen.datasets import make_sim1
    >>> make_sim1(seed=1).imbalance_ratio
    10.0
    """
    rng, n_pos, n_neg = _generator(seed), _count("n_pos", n_pos), _count("n_neg", n_neg)
    pos = rng.normal(-_SIM1_MEAN, 1.0, (n_pos, 1)) + rng.uniform(0.0, _SIM1_WIDTH, (n_pos, 1))
    neg = rng.normal(_SIM1_MEAN, 1.0, (n_neg, 1)) + rng.uniform(-_SIM1_WIDTH, 0.0, (n_neg, 1))
    return _shuffled("sim1", pos, neg, rng, "simulated: N(-1.5, 1) + U(0, 0.5) against N(1.5, 1) + U(-0.5, 0)")


def make_sim2(n_pos: int = 1000, n_neg: int = 10000, seed: int | np.random.SeedSequence = 0) -> Dataset:
    """Draw rows of the paper's Sim2, in random order.

    Parameters
    ----------
    n_pos, n_neg : int, default=1000 and 10000
        Rows of each class; the defaults are the paper's training data.
    seed : int or SeedSequence, default=0
        The same seed and counts give the same rows.

    Returns
    -------
    Dataset
        Three features.
    """
    rng, n_pos, n_neg = _generator(seed), _count("n_pos", n_pos), _count("n_neg", n_neg)
    pos = rng.normal(0.0, _SIM2_SD_POS, (n_pos, _SIM2_FEATURES))
    neg = rng.normal(1.0, 1.0, (n_neg, _SIM2_FEATURES))
    return _shuffled("sim2", pos, neg, rng, "simulated: N((0, 0, 0), 1.2² I) against N((1, 1, 1), I)")


def sim1_log_ratio(X: ArrayLike) -> Floats:
    """Compute the logarithm of Sim1's density ratio, positive over negative.

    Each density is a normal's mass over an interval of width 0.5, divided by 0.5. The masses are integrated relative
    to the density at the interval's end nearer to zero, so the result stays exact far out in the tails.

    Parameters
    ----------
    X : array-like of shape (n_samples, 1)
        Rows.

    Returns
    -------
    ndarray of shape (n_samples,)
        log f(x | y = 1) − log f(x | y = 0).
    """
    x = _rows(X, 1, "Sim1")[:, 0]
    near_pos = _nearer_end(x + _SIM1_MEAN - _SIM1_WIDTH)
    near_neg = _nearer_end(x - _SIM1_MEAN)
    # Outside ±1.25 both ends are on one side of zero and their distance is known; a subtraction would lose it.
    distance = 2.0 * _SIM1_MEAN - _SIM1_WIDTH
    apart = np.where(np.abs(x) < 0.5 * distance, near_neg - near_pos, -np.sign(x) * distance)
    log_density_ratio_at_ends = apart * (0.5 * near_neg + 0.5 * near_pos)
    return log_density_ratio_at_ends + _log_relative_mass(near_pos) - _log_relative_mass(near_neg)


def sim2_log_ratio(X: ArrayLike) -> Floats:
    """Compute the logarithm of Sim2's density ratio, positive over negative.

    Parameters
    ----------
    X : array-like of shape (n_samples, 3)
        Rows.

    Returns
    -------
    ndarray of shape (n_samples,)
        log f(x | y = 1) − log f(x | y = 0).
    """
    rows = _rows(X, _SIM2_FEATURES, "Sim2")
    curvature = 0.5 - 0.5 / _SIM2_SD_POS**2
    with np.errstate(over="ignore"):  # beyond 1e154 the ratio is infinite, as it should be
        terms = rows * (curvature * rows - 1.0) + (0.5 - math.log(_SIM2_SD_POS))
        log_ratio: Floats = np.sum(terms, axis=1)
    return log_ratio


def sim1_posterior(X: ArrayLike, imbalance_ratio: float) -> Floats:
    """Compute Sim1's true probability of the positive class.

    Parameters
    ----------
    X : array-like of shape (n_samples, 1)
        Rows.
    imbalance_ratio : float
        Negatives per positive in the population, 10 for the paper's training data.

    Returns
    -------
    ndarray of shape (n_samples,)
        P(y = 1 | x).
    """
    return _posterior(sim1_log_ratio(X), imbalance_ratio)


def sim2_posterior(X: ArrayLike, imbalance_ratio: float) -> Floats:
    """Compute Sim2's true probability of the positive class.

    Parameters
    ----------
    X : array-like of shape (n_samples, 3)
        Rows.
    imbalance_ratio : float
        Negatives per positive in the population, 10 for the paper's training data.

    Returns
    -------
    ndarray of shape (n_samples,)
        P(y = 1 | x).
    """
    return _posterior(sim2_log_ratio(X), imbalance_ratio)


def _nearer_end(low: Floats) -> Floats:
    """Reflect the interval [low, low + width] to the right of zero (or across it) and return its lower end."""
    return np.where(low + 0.5 * _SIM1_WIDTH < 0.0, -(low + _SIM1_WIDTH), low)


def _log_relative_mass(end: Floats) -> Floats:
    """Compute log ∫₀ʷ exp(−end·t − t²/2) dt: a standard normal's mass over [end, end + w] over its density at end.

    Where the integrand falls fast, the range stops at 40/end; what is left out is below e⁻⁴⁰ of the whole.
    """
    width = np.minimum(_SIM1_WIDTH, 40.0 / np.maximum(end, 1.0))[:, None]
    t = 0.5 * width * (_NODES + 1.0)
    return np.log(0.5 * width[:, 0] * (np.exp(-end[:, None] * t - 0.5 * t * t) @ _NODE_WEIGHTS))


def _posterior(log_ratio: Floats, imbalance_ratio: float) -> Floats:
    if not (imbalance_ratio > 0 and math.isfinite(imbalance_ratio)):
        raise InvalidParameter(
            f"Got imbalance_ratio={imbalance_ratio!r}, but only a finite number above 0 is allowed; try n_neg / n_pos."
        )
    logit = log_ratio - math.log(imbalance_ratio)
    small = np.exp(-np.abs(logit))
    return np.where(logit >= 0, 1.0, small) / (1.0 + small)


def _rows(X: ArrayLike, n_features: int, name: str) -> Floats:
    rows = np.asarray(X, dtype=np.float64)
    if rows.ndim != 2 or rows.shape[1] != n_features or not np.isfinite(rows).all():
        what = "NaN or infinite values" if rows.shape[1:] == (n_features,) else f"shape {rows.shape}"
        raise InvalidInput(
            f"{name} got X with {what}, but only finite values of shape (n_samples, {n_features}) are allowed; "
            f"try X.reshape(-1, {n_features})."
        )
    return rows


def _generator(seed: int | np.random.SeedSequence) -> np.random.Generator:
    if not isinstance(seed, np.random.SeedSequence):
        seed = _whole("seed", seed, 0)
    return np.random.Generator(np.random.PCG64(seed))


def _count(name: str, value: int) -> int:
    return _whole(name, value, 1)


def _whole(name: str, value: int, least: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        number = least - 1
    if number < least or isinstance(value, bool):
        raise InvalidParameter(
            f"Got {name}={value!r}, but only a whole number of at least {least} is allowed; try {name}={least}."
        )
    return number


def _shuffled(name: str, pos: Floats, neg: Floats, rng: np.random.Generator, source: str) -> Dataset:
    order = rng.permutation(len(pos) + len(neg))
    X = np.concatenate([pos, neg])[order]
    y = np.concatenate([np.ones(len(pos), dtype=np.int64), np.zeros(len(neg), dtype=np.int64)])[order]
    return Dataset(name, X, y, tuple(f"x{j}" for j in range(X.shape[1])), source)
