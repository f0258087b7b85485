"""Class shares of rows without labels, estimated from probabilities under label shift."""

import math

import numpy as np
from scipy.optimize import brentq
from scipy.stats import chi2

from crcen.exceptions import InvalidInput
from crcen.theory.intervals import LEVEL, Interval, design_effect
from crcen.theory.rows import Array, Clusters

_MOST_STEPS = 2_000


def shifted_probabilities(p: Array, trained: Array, shares: Array) -> Array:
    """Probabilities if the class shares are `shares` instead of those of training: p_k · shares_k / trained_k."""
    moved = p * (shares / trained)
    return np.asarray(moved / moved.sum(axis=1, keepdims=True))


def estimate_shares(
    p: Array,
    trained: Array,
    *,
    level: float = LEVEL,
    uncertainty: Array | None = None,
    clusters: Clusters | None = None,
) -> tuple[Interval, ...]:
    """Maximum-likelihood class shares of rows without labels under label shift, with likelihood-ratio intervals.

    By EM (Saerens, Latinne and Decaestecker 2002) from calibrated probabilities (n, K). ``uncertainty`` (K,) is the
    model's own error in log-odds, which makes the intervals longer. So do ``clusters`` of rows that depend on each
    other: by the design effect of the score of a share.
    """
    if p.ndim != 2 or len(p) < 1 or trained.shape != (p.shape[1],) or not (trained > 0.0).all():
        raise InvalidInput(f"shares need probabilities (n, K) and K shares above 0, got {p.shape} and {trained.shape}")
    ratio, n_classes = p / (trained / trained.sum()), p.shape[1]
    shares, top = _maximise(ratio, trained / trained.sum())
    posterior, found = shifted_probabilities(p, trained / trained.sum(), np.maximum(shares, 1e-12)), []
    for k in range(n_classes):
        drop = float(chi2.ppf(level, 1)) / 2.0 * design_effect(posterior[:, k], np.ones(len(p)), clusters)
        ends = []
        for outer in (0.0, 1.0):
            if abs(shares[k] - outer) < 1e-9:
                ends.append(outer)
                continue

            def surplus(value: float, k: int = k, drop: float = drop) -> float:
                return _profile(ratio, shares, k, value) - top + drop

            edge = 1e-9 if outer == 0.0 else 1.0 - 1e-9
            ends.append(outer if surplus(edge) >= 0.0 else float(brentq(surplus, edge, shares[k], xtol=1e-9)))
        low, high = ends
        if uncertainty is not None and uncertainty[k] > 0.0:
            low, high = (_wider(float(shares[k]), end, float(uncertainty[k]), level) for end in (low, high))
        found.append(Interval(float(shares[k]), low, high))
    return tuple(found)


def _maximise(ratio: Array, start: Array, fixed: tuple[int, float] | None = None) -> tuple[Array, float]:
    """EM for the shares, one of them fixed if asked; the shares and the log-likelihood."""
    shares, value = start.copy(), -math.inf
    for _ in range(_MOST_STEPS):
        mass = ratio * shares
        total = mass.sum(axis=1)
        new_value = float(np.log(np.maximum(total, 1e-300)).sum())
        shares = (mass / np.maximum(total, 1e-300)[:, None]).mean(axis=0)
        if fixed is not None:
            k, held = fixed
            shares[k] = 0.0
            rest = shares.sum()
            shares *= (1.0 - held) / rest if rest > 0.0 else 0.0
            shares[k] = held
        if new_value - value < 1e-9:
            break
        value = new_value
    return shares, float(np.log(np.maximum((ratio * shares).sum(axis=1), 1e-300)).sum())


def _profile(ratio: Array, best: Array, k: int, value: float) -> float:
    """Log-likelihood with one share fixed, maximised over the others."""
    start = best.copy()
    start[k] = 0.0
    start = start * ((1.0 - value) / start.sum()) if start.sum() > 0.0 else np.full(len(best), (1.0 - value))
    start[k] = value
    if len(best) == 2:
        return float(np.log(np.maximum((ratio * start).sum(axis=1), 1e-300)).sum())
    return _maximise(ratio, start, (k, value))[1]


def _wider(value: float, end: float, uncertainty: float, level: float) -> float:
    """A limit moved out by the model's own error: both distances in log-odds add in squares."""
    if not (0.0 < value < 1.0 and 0.0 < end < 1.0):
        return end
    middle, distance = math.log(value / (1.0 - value)), math.log(end / (1.0 - end))
    reach = math.hypot(distance - middle, math.sqrt(float(chi2.ppf(level, 1))) * uncertainty)
    return 1.0 / (1.0 + math.exp(-middle - math.copysign(reach, distance - middle)))
