"""Tests of residuals Σ w(e_y − q): sums over rows, their variance under the model, and tail probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.lazy import special
from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_class_numbers, check_class_probabilities, check_row_weights
from crcen.theory.price import Price
from crcen.theory.rows import AddsUp, Array, Clusters, EqualByArrays, Index, Shown, effective_rows, normalised, p_text

# With fewer rows of a class among new rows the residual is not nearly normal.
FEWEST_TO_TEST = 20
_BALANCED = 1e-10  # of all flows: a residual below this share was solved for
_DEPENDENT = 1e-10  # of the largest eigenvalue: dependent equations add no information
_MANY_DEGREES = 1e6
# Methods of p-values that are not those of a χ² statistic.
BY_F, BY_CLASS = "F distribution, with the estimated model uncertainty", "smallest of the classes, adjusted by Holm"


def two_sided(z: float) -> float:
    """The two-sided p-value of a standard normal value."""
    return math.erfc(abs(z) / math.sqrt(2.0))


@dataclass(frozen=True)
class JointTest(Shown):
    """One χ² statistic for several equations at once."""

    statistic: float  # NaN, as the p-value, if there is no test
    degrees: int  # independent equations
    p_value: float
    reason: str = ""  # why there is no test
    method: str = field(default="", metadata={"is_stored": False})  # of a p-value that is not the statistic's own

    def __str__(self) -> str:
        if self.reason:
            return f"not available: {self.reason}"
        s = "" if self.degrees == 1 else "s"
        text = f"χ² = {self.statistic:.4g} with {self.degrees} degree{s} of freedom, p-value {p_text(self.p_value, 3)}"
        return f"{text} ({self.method})" if self.method else text

    @classmethod
    def none(cls, degrees: int, reason: str) -> "JointTest":
        """No test, with the reason."""
        return cls(math.nan, degrees, math.nan, reason)


def quadratic_form(sums: Array, variance: Array) -> tuple[float, int]:
    """sumsᵀ variance⁻¹ sums, and the number of independent sums."""
    scale = np.sqrt(np.diag(variance))
    values, vectors = np.linalg.eigh(variance / scale[:, None] / scale[None])
    kept = values > _DEPENDENT * values.max()
    along = (vectors.T @ (sums / scale))[kept]
    return float((along**2 / values[kept]).sum()), int(kept.sum())


def joint_test(
    sums: Array, variance: Array, total: float, error: "TrainingError | None" = None, jacobian: Array | None = None
) -> JointTest:
    """Test that sums (m,) with this covariance have mean 0; ``jacobian`` (m, K) is the effect of log-odds on them."""
    if not (np.diag(variance) > 0.0).all():
        return JointTest.none(len(sums), "every output is 0 or 1, so the residual has no variance under the model")
    if np.abs(sums).max() <= _BALANCED * total:
        return JointTest.none(len(sums), "these rows were balanced, so the key equation holds on them by construction")
    if error is not None and jacobian is not None:
        return JointTest(*error.test(sums, variance, jacobian), method=BY_F)
    statistic, degrees = quadratic_form(sums, variance)
    return JointTest(statistic, degrees, float(special.chdtrc(degrees, statistic)))


@dataclass(frozen=True, eq=False)
class TrainingError(EqualByArrays):
    """Uncertainty of a fitted model's mean log-odds that its finite training set leaves."""

    covariance: Array  # (K, K), over training sets, of the mean log-odds of all classes as the residuals weigh them
    degrees: float  # of freedom of its scale as an estimate; infinite if it is known
    least: Array  # (K, K), its lower limit
    pairs: float = 0.0  # how much each new row raises the variances of the pairwise equations

    def __post_init__(self) -> None:
        for name in ("covariance", "least"):
            object.__setattr__(self, name, np.array(getattr(self, name), dtype=np.float64))
        shape = self.covariance.shape
        is_fine = len(shape) == 2 and shape[0] == shape[1] >= 2 and self.least.shape == shape
        is_fine = is_fine and self.degrees > 0.0 and 0.0 <= self.pairs < math.inf
        if not is_fine or not all(np.isfinite(part).all() for part in (self.covariance, self.least)):
            raise InvalidInput("a training error needs finite (K, K) covariances, degrees above 0 and pairs from 0.")

    @classmethod
    def binary(cls, log_odds: float, degrees: float = math.inf, least: float = 0.0) -> "TrainingError":
        """By standard deviations of the mean log-odds of the positive class."""
        if not (0.0 <= log_odds < math.inf and 0.0 <= least < math.inf and degrees > 0.0):
            raise InvalidInput(f"log_odds and least must be from 0, degrees > 0: got {log_odds}, {least}, {degrees}")
        sign = np.array([[0.25, -0.25], [-0.25, 0.25]])
        return cls(log_odds**2 * sign, degrees, least**2 * sign)

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:.2g}" for size in ([self.size] if len(self.least) == 2 else self.sizes))
        return f"standard deviation of the mean log-odds: {sizes} (uncertainty from the training rows)"

    @property
    def log_odds(self) -> float:
        """For two classes: the estimated standard deviation of the mean log-odds of the positive class."""
        return self._of_two(self.covariance)

    @property
    def size(self) -> float:
        """The same, not below its lower limit."""
        return max(self._of_two(self.covariance), self._of_two(self.least))

    def _of_two(self, part: Array) -> float:
        if len(part) != 2:
            raise AttributeError(f"a training error of {len(part)} classes has sizes, one for each class.")
        return 2.0 * math.sqrt(max(part[1, 1], 0.0))

    @property
    def sizes(self) -> Array:
        """Standard deviation of the mean log-odds of each class, (K,)."""
        return np.asarray(np.sqrt(np.maximum(np.maximum(np.diag(self.covariance), np.diag(self.least)), 0.0)))

    def _added(self, jacobian: Array) -> tuple[Array, Array]:
        return jacobian @ self.covariance @ jacobian.T, jacobian @ self.least @ jacobian.T

    def variances(self, variance: Array, jacobian: Array) -> Array:
        """Variances of sums with the model's error in them."""
        estimated, least = (np.diag(part) for part in self._added(jacobian))
        return np.asarray(np.diag(variance) + np.maximum(estimated, least))

    def test(self, sums: Array, variance: Array, jacobian: Array) -> tuple[float, int, float]:
        """Statistic, degrees of freedom, p-value: the larger one of F with the estimate and χ² with its lower limit."""
        found = []
        for part, is_estimate in zip(self._added(jacobian), (True, False), strict=True):
            whole = variance + part
            statistic, degrees = quadratic_form(sums, whole)
            below = math.inf
            if is_estimate:  # Satterthwaite: only the model's part of the variance was estimated
                share = float(np.trace(np.linalg.pinv(whole, hermitian=True) @ part)) / degrees
                below = self.degrees / max(share, 1e-6) ** 2
            found.append((_f_tail(statistic, degrees, below), statistic, degrees))
        p_value, statistic, degrees = max(found)
        return statistic, degrees, p_value


def _f_tail(statistic: float, degrees: int, below: float) -> float:
    """P(F > statistic / degrees), of χ² with many degrees of freedom below."""
    is_known = below > _MANY_DEGREES
    return float(special.chdtrc(degrees, statistic) if is_known else special.fdtrc(degrees, below, statistic / degrees))


class ResidualSums(NamedTuple):
    """Sums over rows, with sample weight s, for one class against the rest."""

    n_pos: float
    missed: float  # left side of the key equation, Σ sλ(1−q) over positives
    alarmed: float  # right side, Σ s(1−λ)q over negatives
    slope: float  # Σ sλ(1−q)p: what one unit of log-odds adds to the expected residual, to first order
    variance: float  # Σ s²[λ²p(1−q)² + (1−λ)²(1−p)q²]: of the residual if p is the true posterior

    @property
    def residual(self) -> float:
        """Σ w(y−q)."""
        return self.missed - self.alarmed

    @property
    def z(self) -> float:
        """Residual over its standard deviation, N(0, 1) for the true posterior; NaN if it has no variance."""
        return self.residual / math.sqrt(self.variance) if self.variance > 0.0 else math.nan


@dataclass(frozen=True, eq=False)
class JointResidualSums(AddsUp):
    """Sums over rows for K classes; sums of parts of the rows add up."""

    n_rows: int
    counts: Index  # rows of each class
    flows: Array  # F_jk = w_j Σ_{y=j} s q_k; the residual of a class is its outflow less its inflow
    slope: Array  # A = Σ s (w·p)(diag q − q qᵀ): log-odds off by d make a mean residual of A d, to first order
    variance: Array  # of the residuals if the model is right, (K, K)
    squares: Array  # Σ of the rows' squared residuals

    @classmethod
    def none(cls, n_classes: int) -> Self:
        """Of no rows."""
        square = np.zeros((n_classes, n_classes))
        return cls(0, np.zeros(n_classes, dtype=np.int64), square, square, square, np.zeros(n_classes))

    @property
    def between(self) -> Array:
        """Flows between different classes."""
        return self.flows * (1.0 - np.eye(len(self.counts)))

    @property
    def residuals(self) -> Array:
        """Σ s w_y (e_y − q); they sum to zero."""
        return np.asarray(self.between.sum(axis=1) - self.between.sum(axis=0))

    def of_class(self, k: int) -> ResidualSums:
        """One class against the rest."""
        sides = self.between[k].sum(), self.between[:, k].sum(), self.slope[k, k], self.variance[k, k]
        return ResidualSums(int(self.counts[k]), *map(float, sides))


def joint_residual_sums(
    y: ArrayLike, q: ArrayLike, price: Price, sample_weight: ArrayLike | None = None
) -> JointResidualSums:
    """Sums of the residual tests, from class numbers and weighted probabilities (n, K)."""
    numbers = check_class_numbers(y, price.n_classes)
    outputs = check_class_probabilities(q, numbers.size, price.n_classes)
    sums = sums_of_columns(numbers, outputs, check_row_weights(sample_weight, numbers.size), price.weights)
    if not all(np.isfinite(part).all() for part in (sums.flows, sums.squares, sums.variance, sums.slope)):
        raise InvalidInput("sample_weight must have squares with a finite sum, got weights too large for that")
    return sums


def sums_of_columns(y: Index, q: Array, sizes: Array, w: Array) -> JointResidualSums:
    """Sums of rows with class numbers y, weighted probabilities q (n, K) and sample weights, at class weights w."""
    n_classes = len(w)
    p = normalised(q / w)
    # 1 − q with its own digits, as far as they are known.
    rest = q[:, ::-1] if n_classes == 2 else 1.0 - q
    flows, others = np.zeros((n_classes, n_classes)), np.arange(n_classes)[None] != y[:, None]
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by the caller
        mass = (sizes * w[y])[:, None]
        np.add.at(flows, y, mass * q)
        squares = np.where(others, mass * q, mass * rest)
        squares = (squares**2).sum(axis=0)
        second = sizes[:, None] ** 2 * p * w**2
        crossed = second.T @ q
        variance = np.diag(second.sum(axis=0)) - crossed - crossed.T + (q * second.sum(axis=1)[:, None]).T @ q
        weight = (sizes * (p @ w))[:, None] * q
        slope = np.diag(weight.sum(axis=0)) - weight.T @ q
        # Differences of nearly equal sums lose the digits of a tiny diagonal: sum it by itself.
        np.fill_diagonal(slope, (weight * rest).sum(axis=0))
        of_others = second[:, ::-1] if n_classes == 2 else np.maximum(second.sum(axis=1)[:, None] - second, 0.0)
        np.fill_diagonal(variance, (second * rest**2 + of_others * q**2).sum(axis=0))
        if n_classes == 2:
            slope, variance = (np.array([[1.0, -1.0], [-1.0, 1.0]]) * np.diag(part) for part in (slope, variance))
    return JointResidualSums(y.size, np.bincount(y, minlength=n_classes), flows, slope, variance, squares)


@dataclass(frozen=True, eq=False)
class PairSums(AddsUp):
    """Σ s (w_j 1{y=j} q_k − w_k 1{y=k} q_j) of pairs of classes j < k, (P,), and their variance under the model."""

    sums: Array
    variance: Array

    def test(self, total: float, error: TrainingError | None, noise: float, share: float) -> JointTest:
        """Test of all pairwise equations; a measured error raises their variances by ``share``."""
        test = joint_test(self.sums, noise * self.variance, total)
        if error is None or test.reason:
            return test
        statistic, degrees = quadratic_form(self.sums, (1.0 + share) * self.variance)
        below = error.degrees * ((1.0 + share) / max(share, 1e-6)) ** 2
        return JointTest(statistic, degrees, _f_tail(statistic, degrees, below), method=BY_F)

    def among(self, classes: Index) -> "PairSums":
        """Those of pairs of some classes."""
        first, second = np.triu_indices(math.isqrt(2 * len(self.sums)) + 1, 1)
        own = np.flatnonzero(np.isin(first, classes) & np.isin(second, classes))
        return PairSums(self.sums[own], self.variance[np.ix_(own, own)])


def pair_sums(y: Index, q: Array, sizes: Array, w: Array) -> PairSums:
    """The sums of all pairs of classes; each has mean 0 for the true posterior."""
    p = normalised(q / w)
    first, second = np.triu_indices(len(w), 1)
    sums, variance = np.zeros(len(first)), np.zeros((len(first), len(first)))
    for label in range(len(w)):
        mine = (first == label) | (second == label)
        is_first = first[mine] == label
        sign, other = np.where(is_first, 1.0, -1.0), np.where(is_first, second[mine], first[mine])
        value = sizes[:, None] * w[label] * sign * q[:, other]
        sums[mine] += value[y == label].sum(axis=0)
        variance[np.ix_(mine, mine)] += (value * p[:, [label]]).T @ value
    return PairSums(sums, variance)


_NEAR_ZERO = 1e-3  # of r: below this 1/u − 1/r is replaced by its limit
_MOST_STEPS = 100


def residual_values(p: Array, weights: Array, k: int, sample_weight: Array | None = None) -> Array:
    """Contributions s·w_y(1{y = k} − q_k) to the residual of class k, (n, K), by natural p (n, K) and class weights."""
    q = normalised(p * weights)
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
    """P(S ≥ total) by Lugannani and Rice, exact at the ends of the range; ``extra`` is a normal error's variance.

    The formula is for continuous sums. The probabilities of no and of exactly one unexpected label bound the tail from
    both sides: they are nearly everything for a model that is almost certain of all rows.
    """
    variance = variance_of(values, p) + extra
    if variance <= 0.0:
        return 0.5
    unit = math.sqrt(variance)
    x, z, rest = values / unit, total / unit, extra / variance
    slack, likeliest = 1e-12 * float(np.abs(x).max(axis=1).sum()), p.argmax(axis=1)[:, None]
    usual, most = np.take_along_axis(x, likeliest, 1), np.take_along_axis(p, likeliest, 1)
    ahead = usual.sum() - z + np.append(x - usual, 0.0)  # of sums with one other label, and with none
    chances = most.prod() * np.append(np.where(np.arange(p.shape[1]) == likeliest, 0.0, p / most), 1.0)
    is_above = special.ndtr(ahead / math.sqrt(rest)) if extra else ahead >= -slack
    least, greatest = float(chances @ is_above), 1.0 - float(chances @ (1.0 - is_above))
    if not extra:
        top, bottom = np.where(p > 0.0, x, -np.inf).max(axis=1), np.where(p > 0.0, x, np.inf).min(axis=1)
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
    tail = float(special.ndtr(-r)) + math.exp(-0.5 * r * r) / math.sqrt(2.0 * math.pi) * correction
    if not 0.0 <= tail <= 1.0:  # far out: Barndorff-Nielsen's form of the same approximation stays inside
        tail = float(special.ndtr(-r - math.log(t * math.sqrt(curvature) / r) / r))
    return min(max(tail, least), greatest)


def _cumulants(x: Array, p: Array, t: float, extra: float) -> tuple[float, float, float, float]:
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
    squares = np.asarray(np.bincount(which.ravel(), contributions) ** 2, dtype=np.float64)
    if not squares.any():
        return variance, math.inf
    return max(variance, float(squares.sum())), effective_rows(squares)


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
    # (variance that the model's error adds, degrees of freedom of its estimate); the largest p-value counts
    uncertainty: Sequence[tuple[float, float]] = (),
    clusters: Clusters | None = None,  # with Student's t
    is_stratified: bool = False,  # whether the class counts were fixed when rows were drawn
) -> ResidualTest:
    """Test whether S has mean zero; the unit of the values does not matter."""
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
            p_value = max(p_value, 2.0 * float(special.stdtr(freedom, -abs(total) / math.sqrt(variance))))
        found.append((p_value, variance))
    p_value, variance = max(found, key=lambda one: one[0])
    return ResidualTest(total, variance, p_value)


def student_p_value(p_value: float, degrees: float) -> float:
    """The p-value of Student's t at the normal value with this p-value."""
    if degrees > 1e6 or not 0.0 < p_value < 1.0:
        return p_value
    return 2.0 * float(special.stdtr(degrees, special.ndtri(p_value / 2.0)))


def holm(p_values: Sequence[float] | Array) -> Array:
    """Holm's adjusted p-values: rejecting those below α keeps the family-wise error at α; NaN stay NaN."""
    values = np.asarray(p_values, dtype=np.float64)
    known = np.flatnonzero(~np.isnan(values))
    order = known[np.argsort(values[known], kind="stable")]
    adjusted = np.full(values.shape, np.nan)
    adjusted[order] = np.minimum(np.maximum.accumulate(values[order] * np.arange(len(order), 0, -1)), 1.0)
    return adjusted
