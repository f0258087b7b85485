"""Anytime-valid tests: an e-process for drift (an alarm at 1/α is false with probability at most α), and means."""

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.lazy import optimize, special
from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_row_weights
from crcen.theory.price import Price
from crcen.theory.residual_test import JointResidualSums, joint_residual_sums
from crcen.theory.rows import Array, effective_rows

GRID_SIZE = 81
# Drifts in log-odds up to ±3, denser near 0.
GRID = 3.0 * np.sinh(np.linspace(-3.2, 3.2, GRID_SIZE)) / math.sinh(3.2)
GRID.setflags(write=False)
_CHUNK = 2**17
_FAR = 1e3  # log-odds


def log_likelihoods(hit: ArrayLike, p: Array, weights: Array | None = None) -> Array:
    """ℓ(d) = Σ w[d·y − log(1 + p(e^d − 1))] of each drift d; with weights in [0, 1] E e^ℓ stays at most 1 (Jensen)."""
    y, rise, total = np.asarray(hit, dtype=np.float64), np.expm1(GRID), np.zeros(GRID_SIZE)
    w = np.ones(len(y)) if weights is None else weights
    for start in range(0, len(y), _CHUNK):
        part = slice(start, start + _CHUNK)
        total += w[part] @ np.log1p(p[part, None] * rise)
    return np.asarray(GRID * float(w @ y) - total)


@dataclass(frozen=True, eq=False)
class StreamSums(JointResidualSums):
    """Sums of the residual tests of K classes with the log-likelihood of drifts; sums of parts of the rows add up."""

    likelihood: Array  # of the second of two classes (1, GRID_SIZE), or of each of more (K, GRID_SIZE)
    weight_unit: float = 0.0  # sample weight that counts as 1 in it, fixed by the first rows; 0 before any

    @classmethod
    def none(cls, n_classes: int) -> Self:
        """Of no rows."""
        return cls(**vars(JointResidualSums.none(n_classes)), likelihood=np.zeros((n_tests(n_classes), GRID_SIZE)))

    def __add__(self, other: Self) -> Self:
        return replace(super().__add__(other), weight_unit=self.weight_unit or other.weight_unit)

    @property
    def dispersion(self) -> float:
        """Mean over classes of the residual's observed variance over that under the model; at least 1."""
        own = np.diag(self.variance)
        known = own > 0.0
        return max(1.0, float(np.mean(self.squares[known] / own[known]))) if known.any() else 1.0


def n_tests(n_classes: int) -> int:
    """Classes whose drift is estimated: one of two, each of more."""
    return 1 if n_classes == 2 else n_classes


def stream_sums(
    numbers: NDArray[np.int64],
    q: Array,
    price: Price,
    sample_weight: ArrayLike | None = None,
    *,
    cluster_sizes: Array | None = None,  # rows of a cluster share the weight of one
    weight_unit: float = 0.0,  # weights from here on count as 1 in the likelihood; 0: the typical weight of these rows
) -> StreamSums:
    """Sum rows with class numbers and weighted probabilities (n, K); of two classes the second is positive."""
    weights = check_row_weights(sample_weight, numbers.size)
    sizes = np.ones(numbers.size) if cluster_sizes is None else cluster_sizes
    found = joint_residual_sums(numbers, q, price, weights / sizes)
    if cluster_sizes is not None:
        found = replace(found, variance=joint_residual_sums(numbers, q, price, weights / np.sqrt(sizes)).variance)
    unit = weight_unit or typical_weight(weights)
    p, shares = price.posterior(q), np.minimum(weights / unit, 1.0) / sizes
    classes = range(1, 2) if price.n_classes == 2 else range(price.n_classes)
    likelihood = np.array([log_likelihoods(numbers == k, p[:, k], shares) for k in classes])
    return StreamSums(**vars(found), likelihood=likelihood, weight_unit=unit)


def typical_weight(weights: Array) -> float:
    """Σw² / Σw, the weight of a typical unit of weight; 1 without weight."""
    return float(weights.sum()) / effective_rows(weights) if weights.any() else 1.0


@dataclass(frozen=True)
class DriftProcess:
    """E-process for a drift of the log-odds: E = Σ_d g(d)e^{ℓ(d)} / Σ_c M_c sup_{ε ∈ c} e^{ℓ(ε)}.

    The denominator bounds what may be wrong without drift: constant errors within the tolerance and the model's own
    error, normal with `centre` and `spread`, in cells c of mass M_c. Concavity bounds ℓ between grid points.
    """

    tolerance: float = 0.0  # constant drift in log-odds that is no reason for an alarm; fixed in advance
    spread: float = 0.0  # standard deviation of the model's own error in log-odds
    centre: float = 0.0  # its mean
    scale: float = 0.3  # drift to which the mixture is tuned: affects the detection delay, not the validity

    @cached_property
    def _log_prior(self) -> Array:
        """Log of g: a normal law, one on each side at the scale, and a part with heavy tails."""
        d = (GRID - self.centre) / self.scale
        sides = np.exp(-2.0 * (d - 1.0) ** 2) + np.exp(-2.0 * (d + 1.0) ** 2)
        density = 0.45 * (np.exp(-0.5 * d**2) + sides) / math.sqrt(2.0 * math.pi) + 0.1 * (2.0 + d**2) ** -1.5
        mass = density * np.gradient(GRID)
        return np.asarray(np.log(mass / mass.sum()))

    @cached_property
    def _cells(self) -> tuple[Array, Array, Array, NDArray[np.int64], Array]:
        """Log masses of the own error's cells, their lower and upper ends, and a point inside, between grid points."""
        if self.spread == 0.0:
            point = np.array([self.centre])
            place = np.clip(np.searchsorted(GRID, point, "right") - 1, 0, GRID_SIZE - 2)
            part = np.clip((point - GRID[place]) / (GRID[place + 1] - GRID[place]), 0.0, 1.0)
            return np.zeros(1), point - self.tolerance, point + self.tolerance, place, part
        edges = np.concatenate([[-np.inf], GRID, [np.inf]])
        mass = np.diff(special.ndtr((edges - self.centre) / self.spread))
        known = mass > 1e-12
        low, high = edges[:-1][known], edges[1:][known]
        place = np.clip(np.flatnonzero(known) - 1, 0, GRID_SIZE - 2)
        log_mass = np.log(mass[known] / mass[known].sum())
        return log_mass, low - self.tolerance, high + self.tolerance, place, np.full(len(place), 0.5)

    def _largest(self, likelihood: Array, low: Array, high: Array) -> Array:
        """Upper bounds on ℓ over intervals [low, high], (…, intervals), by secants of neighbouring grid intervals."""
        x, f = GRID, np.asarray(likelihood)[..., None, :]
        slope = np.diff(f) / np.diff(x)
        steep, flat = slope[..., :1], slope[..., -1:]
        # The outer lines: the only neighbour at the ends, twice.
        before = np.concatenate([slope[..., 1:2], slope[..., :-1]], -1)
        after = np.concatenate([slope[..., 1:], slope[..., -2:-1]], -1)
        left, right = x[:-1], x[1:]
        at_left, at_right = f[..., :-1].copy(), f[..., 1:].copy()
        at_left[..., 0] = f[..., 1] + slope[..., 1] * (x[0] - x[1])
        at_right[..., -1] = f[..., -2] + slope[..., -2] * (x[-1] - x[-2])
        start, end = np.maximum(low[:, None], left), np.minimum(high[:, None], right)
        gap = before - after
        meet = (at_right - after * right - at_left + before * left) / np.where(gap > 0.0, gap, 1.0)
        # The smaller line rises with the slope `before` up to `meet`, then with `after`.
        at = np.where(after > 0.0, end, np.where(before < 0.0, start, np.clip(meet, start, end)))
        bound = np.minimum(at_left + before * (at - left), at_right + after * (at - right))
        inside = np.where(start <= end, bound, -np.inf).max(axis=-1)
        reach = np.maximum(x[0] - np.maximum(low, -_FAR), 0.0), np.maximum(np.minimum(high, _FAR) - x[-1], 0.0)
        below = np.where(low < x[0], f[..., 0] + np.maximum(-steep[..., 0], 0.0) * reach[0], -np.inf)
        above = np.where(high > x[-1], f[..., -1] + np.maximum(flat[..., 0], 0.0) * reach[1], -np.inf)
        return np.asarray(np.maximum(inside, np.maximum(below, above)))

    def log_evidence(self, since: Array, before: Array | None = None) -> Array:
        """Log E of a change at points fixed in advance, by ℓ (…, GRID_SIZE) of the rows since and before them."""
        log_mass, low, high, place, part = self._cells
        evidence = special.logsumexp(self._log_prior + since, axis=-1)
        if before is None:
            return np.asarray(evidence - special.logsumexp(log_mass + self._largest(since, low, high), axis=-1))
        if self.tolerance:  # a tolerated error may have changed at that point
            largest = self._largest(since, low, high) + self._largest(before, low, high)
        else:  # the rows of a stream together are the same, wherever it is cut
            total = since + before
            largest = self._largest(total if total.ndim == 1 else total[..., :1, :], low, high)
        # Any law of the rows before may stand here; that of grid points is one.
        known = special.logsumexp(log_mass + (1.0 - part) * before[..., place] + part * before[..., place + 1], axis=-1)
        return np.asarray(evidence + known - special.logsumexp(log_mass + largest, axis=-1))

    def estimate(self, since: Array) -> tuple[float, float]:
        """Mean and standard deviation of the drift under the mixture; less biased at an alarm than the likelihood."""
        return _moments(GRID, self._log_prior + since)

    def model_uncertainty(self, before: Array) -> tuple[float, float]:
        """Mean and standard deviation of the model's own error, given rows without drift."""
        log_mass, _, _, place, part = self._cells
        points = (1.0 - part) * GRID[place] + part * GRID[place + 1]
        return _moments(points, log_mass + (1.0 - part) * before[place] + part * before[place + 1])

    def interval(self, since: Array, alpha: float = 0.05) -> tuple[float, float]:
        """Drifts that are not excluded: Σ_d g(d)e^{ℓ(d) − ℓ(ε)} < 1/α; valid at any time, also at an alarm."""
        bar = float(special.logsumexp(self._log_prior + since)) + math.log(alpha)
        points = np.linspace(GRID[0], GRID[-1], 1 + 600)
        fits = np.flatnonzero(self._largest(since, points[:-1], points[1:]) > bar)
        if not len(fits):  # beyond the grid
            return (float(GRID[-1]), math.inf) if since[-1] > since[0] else (-math.inf, float(GRID[0]))
        low, high = float(points[fits[0]]), float(points[fits[-1] + 1])
        return -math.inf if since[0] > bar else low, math.inf if since[-1] > bar else high


def _moments(points: Array, log_mass: Array) -> tuple[float, float]:
    mass = np.exp(log_mass - log_mass.max())
    mean = float(mass @ points / mass.sum())
    return mean, math.sqrt(float(mass @ (points - mean) ** 2 / mass.sum()))


def peak(likelihood: Array) -> tuple[float, float] | None:
    """Drift with the largest ℓ and its standard error, by a parabola through three grid points; None at the ends."""
    j = int(np.argmax(likelihood))
    if not 0 < j < GRID_SIZE - 1:
        return None
    x, f = GRID[j - 1 : j + 2] - GRID[j], likelihood[j - 1 : j + 2] - likelihood[j]
    curve, slope = np.linalg.solve([[x[0] ** 2, x[0]], [x[2] ** 2, x[2]]], [f[0], f[2]])
    return None if curve >= 0.0 else (float(GRID[j] - slope / (2.0 * curve)), float(1.0 / math.sqrt(-2.0 * curve)))


# Bets as shares of the largest one that cannot lose everything, with their share of the stake.
_BETS = 0.95 * 2.0 ** (-np.arange(20) / 2.0)
_STAKES = np.full(len(_BETS), 1.0 / len(_BETS))


@dataclass(frozen=True)
class ConfidenceSequence:
    """Confidence interval of a mean of bounded values, valid at all times (betting: Waudby-Smith and Ramdas 2024)."""

    low: float
    high: float
    values: Array = field(default_factory=lambda: np.empty(0))
    counts: Array = field(default_factory=lambda: np.empty(0))

    def add(self, values: ArrayLike) -> "ConfidenceSequence":
        """The sequence after further values."""
        new = np.asarray(values, dtype=np.float64).ravel()
        if new.size and not (self.low <= new.min() and new.max() <= self.high):
            raise InvalidInput(f"values must lie in [{self.low:g}, {self.high:g}], got {new.min():g} to {new.max():g}")
        distinct, which = np.unique(np.concatenate([self.values, new]), return_inverse=True)
        weights = np.concatenate([self.counts, np.ones(new.size)])
        counts = np.bincount(which.ravel(), weights, len(distinct)).astype(np.float64)
        return replace(self, values=distinct, counts=counts)

    @property
    def n_values(self) -> int:
        """Values so far."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Their mean; NaN without any."""
        return float(self.counts @ self.values / self.counts.sum()) if self.n_values else math.nan

    def log_capital(self, mean: float, side: int) -> float:
        """Log capital of bets that the true mean is above (side = 1) or below (side = −1) this one."""
        room = mean - self.low if side > 0 else self.high - mean
        if room <= 0.0:  # the mean is at its end: one value inside excludes it
            return math.inf if self.n_values and side * (self.mean - mean) > 0.0 else 0.0
        growth = np.log1p(np.outer(_BETS / room * side, self.values - mean)) @ self.counts
        return float(special.logsumexp(growth, b=_STAKES))

    def interval(self, alpha: float = 0.05) -> tuple[float, float]:
        """Means that are not excluded at rate α, each side at α/2."""
        if not self.n_values:
            return self.low, self.high
        bar, mean = math.log(2.0 / alpha), self.mean

        def excess(m: float, side: int) -> float:
            return min(self.log_capital(m, side), 1e6) - bar

        span, root = 1e-9 * (self.high - self.low), optimize.brentq
        low = self.low if excess(self.low + span, 1) < 0.0 else root(excess, self.low + span, mean, args=(1,))
        high = self.high if excess(self.high - span, -1) < 0.0 else root(excess, mean, self.high - span, args=(-1,))
        return float(low), float(high)

    def decides(self, alpha: float = 0.05) -> int:
        """1 if the mean is above 0, −1 if it is below, 0 if undecided; wrong ever with probability at most α."""
        bar = math.log(2.0 / alpha)
        return (self.log_capital(0.0, 1) >= bar) - (self.log_capital(0.0, -1) >= bar)
