"""Has the log-odds error of a model changed? Evidence that may be looked at after every batch; see docs/monitor.md."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr, logsumexp

from crcen.theory.limits import LEAST_INFORMATION
from crcen.theory.rows import AddsUp, Array, Bools
from crcen.theory.sequential import GRID_SIZE, DriftProcess, StreamSums, n_tests, peak


@dataclass(frozen=True)
class _Prior:
    """Prior weights of starting points, on which the guarantee does not depend."""

    from_the_start: float  # share of the evidence for a change that begins with the stream
    growth: float  # of the information before a starting point since the last one, at least

    def log_share(self, number: int) -> float:
        """Log of a starting point's share of the evidence: the others have 1/2, 1/6, 1/12, … of the rest."""
        share = (1.0 - self.from_the_start) / (number * (number + 1.0)) if number else self.from_the_start
        return math.log(share)

    def log_unopened(self, last: int) -> float:
        """Log of the share of starting points that come after this one."""
        return math.log((1.0 - self.from_the_start) / (last + 1.0))


_OF_TWO, _OF_MORE = _Prior(0.5, 1.12), _Prior(0.7, 1.45)
_MOST_STARTS = 40  # kept: the first one and the latest ones
# For more than two classes: the share of the evidence for a change of all classes at once, and the size of drifts over
# the scale of the test.
_OF_ALL, _WIDE = 0.2, 2.0
_ROUNDING = 1e-12  # of a correlation matrix: what is below it is no direction
_UNKNOWN = 2.0  # standard deviation, in log-odds, of the error of a model without reference rows
_Z_OF_OWN_ERROR = 2.2414  # two-sided 2.5 %: half of the error of the drift interval


@dataclass(frozen=True, eq=False)
class Tally(AddsUp):
    """Score and information of rows about log-odds d_k − d_0; the first class is what the others are held against."""

    score: Array  # A V⁻¹ R, (K − 1,)
    information: Array  # A V⁻¹ A, (K − 1, K − 1)
    reach: Array  # (K − 1,): most that log-odds off by less than t add to the mean score, over eᵗ − 1
    by_class: Array  # (K,): information of a class's own residual about its log-odds against all others
    out: Array  # (K,): sides of the key equation of each class
    into: Array  # (K,)
    likelihood: Array  # (tests, GRID_SIZE), as in `StreamSums`

    @classmethod
    def none(cls, n_classes: int) -> "Tally":
        """Of no rows."""
        width, each = n_classes - 1, (n_classes,)
        shapes = [(width,), (width, width), (width,), each, each, each, (n_tests(n_classes), GRID_SIZE)]
        return cls(*map(np.zeros, shapes))

    @classmethod
    def of(cls, sums: StreamSums, dispersion: float = 1.0) -> "Tally":
        """Tally rows whose residuals have `dispersion` times the variance that the model gives them."""
        own, steep = np.diag(sums.variance), np.diag(sums.slope)
        unit = np.sqrt(np.where(own > 0.0, own, 1.0))[1:]
        slope = sums.slope[1:, 1:] / unit[:, None]
        inverse = np.linalg.pinv(sums.variance[1:, 1:] / unit / unit[:, None], rcond=_ROUNDING, hermitian=True)
        weights = slope.T @ inverse / dispersion
        information = weights @ slope
        between = sums.between
        return cls(
            weights @ (sums.residuals[1:] / unit),
            0.5 * (information + information.T),
            np.abs(weights) @ (steep[1:] / unit),
            np.divide(steep**2, dispersion * own, out=np.zeros(len(own)), where=own > 0.0),
            between.sum(axis=1),
            between.sum(axis=0),
            sums.likelihood / dispersion,
        )

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(*(a - b for a, b in zip(vars(self).values(), vars(other).values(), strict=True)))

    @property
    def n_classes(self) -> int:
        """K."""
        return self.by_class.shape[-1]

    @property
    def drift(self) -> Array:
        """Error of each class's log-odds against all others, log(out / into), (K,); linear for K = 2 if a side is 0."""
        both = (self.out > 0.0) & (self.into > 0.0)
        ratio = np.divide(self.out, self.into, out=np.ones(len(both)), where=both)
        linear = math.nan
        if self.n_classes == 2:
            linear = float(self.score[0] / self.information[0, 0]) if self.information[0, 0] > 0.0 else 0.0
        other = np.array([-linear, linear]) if self.n_classes == 2 else np.full(len(both), linear)
        return np.where(both, np.log(ratio), other)

    @property
    def error(self) -> Array:
        """Standard error of `drift`, (K,); infinite without information."""
        known = self.by_class > 0.0
        return np.where(known, 1.0 / np.sqrt(np.where(known, self.by_class, 1.0)), np.inf)

    def own_error(self, k: int) -> tuple[float, float]:
        """Error of the log-odds of test k as these rows show it, and its standard error."""
        column = k if self.n_classes > 2 else 1
        information = float(self.by_class[column])
        if information <= 0.0:
            return 0.0, _UNKNOWN
        drift = float(np.nan_to_num(self.drift[column]))
        return peak(self.likelihood[k]) or (max(-2.0, min(2.0, drift)), 1.0 / math.sqrt(information))


def stacked(tallies: list[Tally]) -> Tally:
    """Several tallies along a first axis."""
    return Tally(*map(np.array, zip(*(vars(one).values() for one in tallies), strict=True)))


def log_evidence(difference: Array, clock: Array, allowance: Array, scale: float) -> Array:
    """Log of Robbins' mixture for a drift beyond an allowance, by the estimated drift and its clock, 1 / variance."""
    spread = 1.0 + scale**2 * clock
    log_sides = []
    for side in (1.0, -1.0):
        z = scale * clock * (side * difference - allowance) / np.sqrt(spread)
        log_sides.append(0.5 * z**2 + log_ndtr(z))
    return np.logaddexp(*log_sides) - 0.5 * np.log(spread)


def comparison(before: Tally, since: Tally, moved_before: Array) -> tuple[Array, Array, Array]:
    """X = u D (m, K), the clock u (m, K, K), and how far X may be moved by log-odds off by less than t, over eᵗ − 1.

    ``before`` and ``since`` are stacks of m comparisons with information B and C; D = C⁻¹G − B⁻¹G₀ has the variance
    u⁻¹ = B⁻¹ + C⁻¹ without drift, and X is Brownian motion on the clock u = B (B + C)⁻¹ C.
    """
    total = before.information + since.information
    unit = np.sqrt(np.maximum(np.diagonal(total, axis1=-2, axis2=-1), np.finfo(float).tiny))
    inverse = np.linalg.pinv(total / unit[..., None] / unit[..., None, :], rcond=_ROUNDING, hermitian=True)
    inverse = inverse / unit[..., None] / unit[..., None, :]
    width = total.shape[-1]
    alone = np.vstack([-np.ones(width), np.eye(width)])  # one class's drift as differences from the first class
    left, right = alone @ before.information @ inverse, alone @ since.information @ inverse
    moved = np.einsum("mij,mj->mi", left, since.score) - np.einsum("mij,mj->mi", right, before.score)
    reach = np.einsum("mij,mj->mi", abs(left), since.reach) + np.einsum("mij,mj->mi", abs(right), moved_before)
    clock = left @ since.information @ alone.T
    return moved, 0.5 * (clock + np.swapaxes(clock, -1, -2)), reach


def _log_mixture_of_all(moved: Array, clock: Array, scale: float) -> Array:
    """Log of Robbins' mixture over independent drifts N(0, scale²) of all classes, (m,)."""
    spread = np.eye(moved.shape[-1]) + scale**2 * clock
    gain = np.einsum("mi,mi->m", moved, np.linalg.solve(spread, moved[..., None])[..., 0])
    return np.asarray(0.5 * scale**2 * gain - 0.5 * np.linalg.slogdet(spread)[1])


@dataclass(frozen=True)
class Change:
    """The test (number of the class, 0 for two) and the starting point with most evidence; log-odds, 95 % interval."""

    test: int
    batch: int
    drift: float
    error: float
    low: float
    high: float


class DriftTest:
    """Evidence, valid at any time, that the model's log-odds errors have changed since the ``reference`` rows.

    With a tolerance, more than two classes are tested one by one only.
    """

    def __init__(self, reference: Tally, scale: float, tolerance: float) -> None:
        self.reference, self.scale, self.tolerance = reference, scale, tolerance
        self.n_classes = reference.n_classes
        self.prior = _OF_TWO if self.n_classes == 2 else _OF_MORE
        self.total = Tally.none(self.n_classes)
        # Where the stream stood at each starting point, its batch, and how many starting points came before.
        self.starts: list[Tally] = []
        self.start_batches: list[int] = []
        self.start_numbers: list[int] = []

    def add(self, tally: Tally, batch: int) -> None:
        """Take the next rows, of the batch of this number."""
        if self._is_time(self.reference.by_class + self.total.by_class):  # before the labels of this batch are seen
            self.starts.append(self.total)
            self.start_batches.append(batch)
            self.start_numbers.append(self.start_numbers[-1] + 1 if self.start_numbers else 0)
            if len(self.starts) > _MOST_STARTS:
                del self.starts[1], self.start_batches[1], self.start_numbers[1]
        self.total = self.total + tally

    def _is_time(self, before: Array) -> bool:
        known = before >= LEAST_INFORMATION
        if not self.starts:
            return self.n_classes == 2 or bool(known.any())
        last = self.reference.by_class + self.starts[-1].by_class
        is_new = self.n_classes > 2 and bool((known & (last < LEAST_INFORMATION)).any())
        return is_new or bool(before.sum() >= self.prior.growth * last.sum())

    @cached_property
    def processes(self) -> list[DriftProcess]:
        """The e-process of each test."""
        errors = (self.reference.own_error(k) for k in range(n_tests(self.n_classes)))
        return [DriftProcess(self.tolerance, spread, centre, self.scale) for centre, spread in errors]

    def log_evidence_by_part(self) -> Array:
        """Weighted log evidence of each comparison: one column for K = 2, otherwise of each class alone and of all."""
        shares = np.array([self.prior.log_share(number) for number in self.start_numbers])[:, None]
        if not self.starts:
            return np.empty((0, 1 if self.n_classes == 2 else self.n_classes + 1))
        if self.n_classes == 2:
            before = np.array([start.likelihood[0] for start in self.starts])
            return np.asarray(
                self.processes[0].log_evidence(self.total.likelihood[0] - before, before)[:, None] + shares
            )
        seen = stacked(self.starts)
        before_start = stacked([self.reference + start for start in self.starts])
        since = stacked([self.total - start for start in self.starts])
        known: Bools = before_start.by_class >= LEAST_INFORMATION
        moved, clock, reach = comparison(before_start, since, seen.reach)
        own = np.maximum(np.diagonal(clock, axis1=-2, axis2=-1), 0.0)
        safe = np.where(own > 0.0, own, 1.0)
        allowance, scale = math.expm1(self.tolerance) * reach / safe, _WIDE * self.scale
        alone = np.where(known & (own > 0.0), log_evidence(moved / safe, own, allowance, scale), 0.0)
        share_of_all = 0.0 if self.tolerance else _OF_ALL
        together = np.full(len(self.starts), -np.inf)
        if share_of_all:
            mixed = np.where(known.all(axis=1), _log_mixture_of_all(moved, clock, scale), 0.0)
            together = mixed + math.log(share_of_all)
        return np.column_stack([alone + math.log((1.0 - share_of_all) / self.n_classes), together]) + shares

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a is raised when it first reaches log(1/a)."""
        if not self.starts:
            return 0.0
        parts = self.log_evidence_by_part().ravel()
        return float(logsumexp(np.append(parts, self.prior.log_unopened(self.start_numbers[-1]))))

    def change(self) -> Change | None:
        """The change with most evidence, with an interval that is valid at an alarm; None before any starting point."""
        parts = self.log_evidence_by_part()[:, : n_tests(self.n_classes)]
        if not len(parts):
            return None
        best, k = (int(place) for place in np.unravel_index(int(np.argmax(parts)), parts.shape))
        process, start = self.processes[k], self.starts[best].likelihood[k]
        since = self.total.likelihood[k] - start
        own, own_deviation = process.own_error(start)
        drift, deviation = process.estimate(since)
        share = math.exp(self.prior.log_share(self.start_numbers[best])) / len(parts[0])
        low, high = process.interval(since, 0.025 * share)
        slack = _Z_OF_OWN_ERROR * own_deviation
        error = math.hypot(deviation, own_deviation)
        return Change(k, self.start_batches[best], drift - own, error, low - own - slack, high - own + slack)
