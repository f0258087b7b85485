"""Tests of residual sums S = Σ x_i(y_i), with contributions x and probabilities p (n, K) with Σ_k p_ik x_ik = 0."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr
from scipy.stats import norm
from scipy.stats import t as student_t

from crcen.theory.rows import Array, Clusters, Index

_NEAR_ZERO = 1e-3  # of r: below this 1/u − 1/r is replaced by its limit
_MOST_STEPS = 100


def residual_values(p: Array, weights: Array, k: int, sample_weight: Array | None = None) -> Array:
    """Contributions s·w_y(1{y = k} − q_k) to the residual of class k, (n, K), by natural p (n, K) and class weights."""
    q = p * weights
    q = q / q.sum(axis=1, keepdims=True)
    values = -q[:, [k]] * weights
    others = np.delete(q, k, axis=1).sum(axis=1)  # 1 − q_k would lose small values
    values[:, k] = others * weights[k]
    return values if sample_weight is None else np.asarray(values * sample_weight[:, None])


def variance_of(values: Array, p: Array) -> float:
    """Variance of S for independent rows under the model."""
    return float(np.einsum("nk,nk,nk->", p, values, values))


def is_lopsided(values: Array, p: Array) -> bool:
    """Whether S is too far from normal for a normal tail: about 20 effective events or fewer, on either side."""
    second = np.einsum("nk,nk,nk->n", p, values, values)
    variance = float(second.sum())
    if variance <= 0.0:
        return False
    third, fourth = (float(np.einsum("nk,nk->", p, values**power)) for power in (3, 4))
    kurtosis = (fourth - 3.0 * float((second**2).sum())) / variance**2
    return abs(third) > 0.25 * variance**1.5 or kurtosis > 0.05


def stratified_factor(values: Array, p: Array) -> float:
    """Variance of S given the class counts, over that of rows drawn at random: 1 − Σ_k (Σ_i p_ik x_ik)² / (n π_k V)."""
    variance, counts = variance_of(values, p), p.sum(axis=0)
    if variance <= 0.0:
        return 1.0
    covariance = np.einsum("nk,nk->k", p, values)
    known = counts > 0.0
    explained = float((covariance[known] ** 2 / counts[known]).sum())
    return float(np.clip(1.0 - explained / variance, 0.0, 1.0))


def upper_tail(values: Array, p: Array, total: float, extra: float = 0.0) -> float:
    """P(S ≥ total) by Lugannani and Rice, exact at the ends of the range; ``extra`` is a normal error's variance."""
    variance = variance_of(values, p) + extra
    if variance <= 0.0:
        return 0.5
    unit = math.sqrt(variance)
    x, z, rest = values / unit, total / unit, extra / variance
    if not extra:
        top, bottom = np.where(p > 0.0, x, -np.inf).max(axis=1), np.where(p > 0.0, x, np.inf).min(axis=1)
        slack = 1e-12 * float(np.abs(x).max(axis=1).sum())
        if z >= top.sum() - slack:
            return float(np.exp(np.log((p * (x >= top[:, None])).sum(axis=1)).sum()))
        if z <= bottom.sum() + slack:
            return 1.0 - float(np.exp(np.log((p * (x <= bottom[:, None])).sum(axis=1)).sum()))
    t, low, high = z, -math.inf, math.inf
    for _ in range(_MOST_STEPS):
        cgf, slope, curvature, third = _cumulants(x, p, t, rest)
        gap = slope - z
        if abs(gap) <= 1e-10 * (1.0 + abs(z)):
            break
        low, high = (t, high) if gap < 0.0 else (low, t)
        step = t - gap / curvature if curvature > 0.0 else math.inf
        if not low < step < high or abs(step - t) > 4.0 * (1.0 + abs(t)):
            if math.isinf(low) or math.isinf(high):
                step = t + math.copysign(2.0 * (1.0 + abs(t)), -gap)
            else:
                step = 0.5 * (low + high)
        t = step
    r = math.copysign(math.sqrt(max(2.0 * (t * z - cgf), 0.0)), t)
    if abs(r) < _NEAR_ZERO:
        correction = -third / (6.0 * curvature**1.5)
    else:
        correction = 1.0 / (t * math.sqrt(curvature)) - 1.0 / r
    tail = float(ndtr(-r)) + math.exp(-0.5 * r * r) / math.sqrt(2.0 * math.pi) * correction
    if not 0.0 <= tail <= 1.0:  # far out: Barndorff-Nielsen's form of the same approximation stays inside
        tail = float(ndtr(-r - math.log(t * math.sqrt(curvature) / r) / r))
    return min(max(tail, 0.0), 1.0)


def _cumulants(x: Array, p: Array, t: float, extra: float) -> tuple[float, float, float, float]:
    """K(t) and its first three derivatives."""
    exponent = t * x
    largest = exponent.max(axis=1)
    mass = p * np.exp(exponent - largest[:, None])
    total = mass.sum(axis=1)
    mass /= total[:, None]
    mean = np.einsum("nk,nk->n", mass, x)
    centred = x - mean[:, None]
    spread = mass * centred**2
    # log1p keeps the digits of rows whose sum is 1 up to rounding.
    moved = np.where(
        np.abs(largest) < 0.5, np.log1p((p * np.expm1(np.minimum(exponent, 0.5))).sum(axis=1)), largest + np.log(total)
    )
    return (
        float(moved.sum()) + 0.5 * t * t * extra,
        float(mean.sum()) + t * extra,
        float(spread.sum()) + extra,
        float((spread * centred).sum()),
    )


def tail_p_value(values: Array, p: Array, total: float, extra: float = 0.0) -> float:
    """Two-sided p-value: twice the smaller of both tails."""
    upper = upper_tail(values, p, total, extra)
    # The lower tail by reflection: 1 − upper has no digits left where it is small.
    lower = upper_tail(-values, p, -total, extra) if upper > 0.5 else 1.0
    return min(1.0, 2.0 * min(upper, lower))


def clustered_variance(contributions: Array, variance: float, clusters: Clusters | None) -> tuple[float, float]:
    """Variance of a sum, at least that of independent rows, and its degrees of freedom (Σg²)²/Σg⁴ of cluster sums g."""
    if clusters is None:
        return variance, math.inf
    _, which = np.unique(clusters, return_inverse=True)
    squares = np.bincount(which.ravel(), contributions) ** 2
    if not squares.any():
        return variance, math.inf
    unit = squares / squares.max()
    return max(variance, float(squares.sum())), float(unit.sum() ** 2 / (unit**2).sum())


def residual_effect(y: Index, p: Array, weights: Array, clusters: Clusters | None) -> float:
    """How much more the residual of any class varies than for independent rows, at least 1."""
    found = [1.0]
    for k in range(p.shape[1] if clusters is not None else 0):
        alone = float((weights**2 * p[:, k] * (1.0 - p[:, k])).sum())
        if alone > 0.0:
            found.append(clustered_variance(weights * ((y == k) - p[:, k]), alone, clusters)[0] / alone)
    return max(found)


@dataclass(frozen=True)
class ResidualTest:
    """A residual sum with its test."""

    total: float  # observed S
    variance: float  # under the model, with everything that was allowed for
    p_value: float  # two-sided; NaN if S has no variance

    @property
    def z(self) -> float:
        """S in standard deviations; NaN if it has no variance."""
        return self.total / math.sqrt(self.variance) if self.variance > 0.0 else math.nan


def residual_test(
    values: Array,
    p: Array,
    y: Index,
    uncertainty: Sequence[tuple[float, float]] = (),
    clusters: Clusters | None = None,
    is_stratified: bool = False,
) -> ResidualTest:
    """Test whether S has mean zero; the unit of the values does not matter.

    ``uncertainty`` holds pairs (variance that the model's error adds, degrees of freedom of its estimate); the largest
    p-value counts. ``clusters`` use Student's t; ``is_stratified``: class counts were fixed when rows were drawn.
    """
    contributions = np.take_along_axis(values, y[:, None], axis=1)[:, 0]
    factor = stratified_factor(values, p) if is_stratified else 1.0
    x, total, label_variance = values * math.sqrt(factor), float(contributions.sum()), factor * variance_of(values, p)
    own, degrees_own = clustered_variance(contributions * math.sqrt(factor), label_variance, clusters)
    found = []
    for extra, degrees in uncertainty or [(0.0, math.inf)]:
        variance = own + extra
        if variance <= 0.0:
            found.append((math.nan, variance))
            continue
        # Satterthwaite: each part of the variance was estimated with its own degrees of freedom.
        freedom = 1.0 / max((own / variance) ** 2 / degrees_own + (extra / variance) ** 2 / degrees, 1e-300)
        p_value = student_p_value(tail_p_value(x, p, total, extra), 1.0 / ((extra / variance) ** 2 / degrees or 1e-300))
        if clusters is not None:
            p_value = max(p_value, 2.0 * float(student_t.sf(abs(total) / math.sqrt(variance), freedom)))
        found.append((p_value, variance))
    p_value, variance = max(found, key=lambda one: one[0])
    return ResidualTest(total, variance, p_value)


def student_p_value(p_value: float, degrees: float) -> float:
    """The p-value of Student's t at the normal value with this p-value."""
    if degrees > 1e6 or not 0.0 < p_value < 1.0:
        return p_value
    return 2.0 * float(student_t.sf(norm.isf(p_value / 2.0), degrees))


def holm(p_values: Sequence[float] | Array) -> Array:
    """Holm's adjusted p-values: rejecting those below α keeps the family-wise error at α; NaN stay NaN."""
    values = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    adjusted = np.full(values.shape, np.nan)
    scaled = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted
