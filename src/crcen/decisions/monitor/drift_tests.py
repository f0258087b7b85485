"""Has the log-odds error of a model changed? Evidence that may be looked at after every batch, for ever.

For a growing list of starting points the rows since that point are compared with what is known about the model's error
from the reference rows and the rows before it. Two classes have an exact e-process over a grid of drifts; more classes
have a mixture over normal residuals, which detects a drift sooner than one e-process for each class. docs/monitor.md
derives both.
"""

import math
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from crcen.theory.limits import LEAST_INFORMATION
from crcen.theory.sequential import GRID_SIZE, DriftProcess, StreamSums, n_tests, peak

__all__ = ["Change", "DriftTest", "Tally", "comparison", "log_evidence", "stacked"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class _Prior:
    """What is likely beforehand, on which the guarantee does not depend.

    Parameters
    ----------
    from_the_start : float
        Share of the evidence for a change that begins with the stream.
    growth : float
        How much the information before a starting point must have grown since the last one.
    most_starts : int
        Starting points kept: the first one and the latest ones.
    """

    from_the_start: float
    growth: float
    most_starts: int

    def log_share(self, number: int) -> float:
        """Log of a starting point's share of the evidence: the others have 1/2, 1/6, 1/12, … of the rest."""
        share = (1.0 - self.from_the_start) / (number * (number + 1.0)) if number else self.from_the_start
        return math.log(share)

    def log_unopened(self, last: int) -> float:
        """Log of the share of starting points that come after this one."""
        return math.log((1.0 - self.from_the_start) / (last + 1.0))


_OF_TWO, _OF_MORE = _Prior(0.5, 1.12, 40), _Prior(0.7, 1.45, 40)
# For more than two classes: the share of the evidence for a change of all classes at once, and the size of drifts over
# the scale of the test.
_OF_ALL, _WIDE = 0.2, 2.0
_ROUNDING = 1e-12  # of a correlation matrix: what is below it is no direction
_UNKNOWN = 2.0  # standard deviation, in log-odds, of the error of a model without reference rows
_Z_OF_OWN_ERROR = 2.2414  # two-sided 2.5 %: half of the error of the drift interval


@dataclass(frozen=True, eq=False)
class Tally:
    """Score and information of rows about log-odds d_k − d_0; the first class is what the others are held against.

    Parameters
    ----------
    score : float64 array of shape (K − 1,)
        A V⁻¹ R.
    information : float64 array of shape (K − 1, K − 1)
        A V⁻¹ A.
    reach : float64 array of shape (K − 1,)
        What log-odds that are all off by less than t can add to the mean score, at most, over eᵗ − 1.
    by_class : float64 array of shape (K,)
        Information that a class's own residual has about its log-odds against all others.
    out, into : float64 array of shape (K,)
        The sides of the key equation of each class.
    likelihood : float64 array of shape (tests, GRID_SIZE)
        As in `StreamSums`.
    """

    score: Floats
    information: Floats
    reach: Floats
    by_class: Floats
    out: Floats
    into: Floats
    likelihood: Floats

    @classmethod
    def none(cls, n_classes: int) -> "Tally":
        """Of no rows."""
        return cls(*(np.zeros(shape) for shape in cls.shapes(n_classes)))

    @classmethod
    def shapes(cls, n_classes: int) -> list[tuple[int, ...]]:
        """Shapes of the parts."""
        width, each = n_classes - 1, (n_classes,)
        return [(width,), (width, width), (width,), each, each, each, (n_tests(n_classes), GRID_SIZE)]

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

    @classmethod
    def binary(
        cls, score: float, information: float, likelihood: Floats, missed: float = 1.0, alarmed: float = 1.0
    ) -> "Tally":
        """Of two classes, by the numbers of the positive one."""
        one, sides = np.array([information], dtype=np.float64), np.array([alarmed, missed], dtype=np.float64)
        return cls(np.array([score]), one[None], one, np.repeat(one, 2), sides, sides[::-1], likelihood[None])

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    @property
    def n_classes(self) -> int:
        """K."""
        return self.by_class.shape[-1]

    @property
    def drift(self) -> Floats:
        """Error of each class's log-odds against all others, log(out / into), (K,).

        If one class's log-odds alone are off, by d, E[out] = e^d · E[into] exactly, for any d and any weights. If a
        side is 0, two classes have score / information and more have NaN.
        """
        both = (self.out > 0.0) & (self.into > 0.0)
        ratio = np.divide(self.out, self.into, out=np.ones(len(both)), where=both)
        linear = math.nan
        if self.n_classes == 2:
            linear = float(self.score[0] / self.information[0, 0]) if self.information[0, 0] > 0.0 else 0.0
        other = np.array([-linear, linear]) if self.n_classes == 2 else np.full(len(both), linear)
        return np.where(both, np.log(ratio), other)

    @property
    def error(self) -> Floats:
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

    def plain(self) -> list[float]:
        """All numbers in one list."""
        return [number for one in fields(self) for number in getattr(self, one.name).ravel().tolist()]

    @classmethod
    def n_numbers(cls, n_classes: int) -> int:
        """Length of that list."""
        return sum(math.prod(shape) for shape in cls.shapes(n_classes))

    @classmethod
    def from_plain(cls, values: list[float], n_classes: int) -> "Tally":
        """The inverse of `plain`."""
        shapes = cls.shapes(n_classes)
        parts = np.split(np.array(values), np.cumsum([math.prod(shape) for shape in shapes])[:-1])
        return cls(*(part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)))


def stacked(tallies: list[Tally]) -> Tally:
    """Several tallies along a first axis."""
    return Tally(*(np.array([getattr(one, field.name) for one in tallies]) for field in fields(Tally)))


def log_evidence(difference: Floats, clock: Floats, allowance: Floats, scale: float) -> Floats:
    """Log of Robbins' mixture for a drift beyond an allowance; without one its mean is at most 1 at any stopping time.

    Parameters
    ----------
    difference : array
        Estimated drift D in log-odds. Without a drift, clock · D is Brownian motion on the clock.
    clock : array of the same shape
        1 / Var D, not negative.
    allowance : array of the same shape
        Size of drift that is tolerated, not negative.
    scale : float
        The excess over the allowance is mixed over a half-normal law of this scale, half of it on either side.

    Returns
    -------
    array of the same shape
        log ½(e⁺ + e⁻), 0 where the clock is 0.
    """
    spread = 1.0 + scale**2 * clock
    log_sides = []
    for side in (1.0, -1.0):
        z = scale * clock * (side * difference - allowance) / np.sqrt(spread)
        log_sides.append(0.5 * z**2 + log_ndtr(z))
    return np.logaddexp(*log_sides) - 0.5 * np.log(spread)


def comparison(before: Tally, since: Tally, moved_before: Floats) -> tuple[Floats, Floats, Floats]:
    """X = u D, the clock u, and how far X may be moved by log-odds that are off by less than t, over eᵗ − 1.

    Parameters
    ----------
    before, since : Tally
        Stacks of m comparisons: score G₀ and information B of the rows before, G and C of those since.
    moved_before : array of shape (m, K − 1)
        Reach of that part of the rows before which may have been off.

    Returns
    -------
    X of shape (m, K), u of shape (m, K, K), reach of shape (m, K)
        For a drift of each class alone. D = C⁻¹G − B⁻¹G₀ has the variance u⁻¹ = B⁻¹ + C⁻¹ without drift, and X is
        Brownian motion on the clock u. Both are written so that neither B nor C needs an inverse: u = B (B + C)⁻¹ C.
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


def _log_mixture_of_all(moved: Floats, clock: Floats, scale: float) -> Floats:
    """Log of Robbins' mixture over independent drifts N(0, scale²) of all classes, (m,)."""
    spread = np.eye(moved.shape[-1]) + scale**2 * clock
    gain = np.einsum("mi,mi->m", moved, np.linalg.solve(spread, moved[..., None])[..., 0])
    return np.asarray(0.5 * scale**2 * gain - 0.5 * np.linalg.slogdet(spread)[1])


@dataclass(frozen=True)
class Change:
    """The test and the starting point with most evidence.

    Parameters
    ----------
    test : int
        Number of the class, or 0 for two classes.
    batch : int
        Of the starting point.
    drift, error : float
        Estimated change in log-odds since then, and its standard error.
    low, high : float
        Its 95 % interval, valid at any time, also at an alarm.
    """

    test: int
    batch: int
    drift: float
    error: float
    low: float
    high: float


class DriftTest:
    """Evidence, valid at any time, that the model's log-odds errors are not what they were.

    Parameters
    ----------
    reference : Tally
        Rows on which the model's error was seen before; an empty one compares the stream with its own past alone.
    scale : float
        Drift in log-odds to which the test is tuned.
    tolerance : float
        Drift in log-odds, of any class against any other, that is no reason for an alarm. With one, more than two
        classes are tested one by one only.
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
            if len(self.starts) > self.prior.most_starts:
                del self.starts[1], self.start_batches[1], self.start_numbers[1]
        self.total = self.total + tally

    def _is_time(self, before: Floats) -> bool:
        known = before >= LEAST_INFORMATION
        if not self.starts:
            return self.n_classes == 2 or bool(known.any())
        last = self.reference.by_class + self.starts[-1].by_class
        is_new = self.n_classes > 2 and bool((known & (last < LEAST_INFORMATION)).any())
        return is_new or bool(before.sum() >= self.prior.growth * last.sum())

    def process(self, k: int) -> DriftProcess:
        """The e-process of test k."""
        centre, spread = self.reference.own_error(k)
        return DriftProcess(self.tolerance, spread, centre, self.scale)

    def log_evidence_by_part(self) -> Floats:
        """Weighted log evidence of each comparison; the weights of all that may come sum to 1.

        Two classes have one column. More have K + 1, of each class alone and of all together; a class whose log-odds
        were not known well enough before a starting point is not tested from there: it counts as 1.
        """
        shares = np.array([self.prior.log_share(number) for number in self.start_numbers])[:, None]
        if not self.starts:
            return np.empty((0, 1 if self.n_classes == 2 else self.n_classes + 1))
        if self.n_classes == 2:
            before = np.array([start.likelihood[0] for start in self.starts])
            return np.asarray(self._process.log_evidence(self.total.likelihood[0] - before, before)[:, None] + shares)
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

    @cached_property
    def _process(self) -> DriftProcess:
        """Of two classes."""
        return self.process(0)

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a belongs where it reaches log(1/a) for the first time."""
        if not self.starts:
            return 0.0
        parts = self.log_evidence_by_part().ravel()
        return float(logsumexp(np.append(parts, self.prior.log_unopened(self.start_numbers[-1]))))

    def change(self) -> Change | None:
        """The change with most evidence; None before any starting point.

        The interval is that of the rows since, with the share of the evidence that the starting point has, and the
        error that the model had before.
        """
        parts = self.log_evidence_by_part()[:, : n_tests(self.n_classes)]
        if not len(parts):
            return None
        best, k = (int(place) for place in np.unravel_index(int(np.argmax(parts)), parts.shape))
        process, start = self.process(k), self.starts[best].likelihood[k]
        since = self.total.likelihood[k] - start
        own, own_deviation = process.own_error(start)
        drift, deviation = process.estimate(since)
        share = math.exp(self.prior.log_share(self.start_numbers[best])) / len(parts[0])
        low, high = process.interval(since, 0.025 * share)
        slack = _Z_OF_OWN_ERROR * own_deviation
        error = math.hypot(deviation, own_deviation)
        return Change(k, self.start_batches[best], drift - own, error, low - own - slack, high - own + slack)
