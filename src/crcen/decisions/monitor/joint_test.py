"""Evidence, valid at any time, that the log-odds of K classes have moved: the vector of residuals as one test.

The same comparison of rows since a starting point with all rows before it as for two classes, on a matrix clock.
docs/monitor.md derives it.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from crcen.decisions.monitor.sequential_test import log_evidence
from crcen.theory.limits import LEAST_INFORMATION
from crcen.theory.residual_test import JointResidualSums

__all__ = ["JointDriftTest", "JointTally", "comparison"]

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

_ROUNDING = 1e-12  # of a correlation matrix: what is below it is no direction
# What is likely beforehand, on which the guarantee does not depend: shares of the evidence for a change that begins
# with the stream, and for one of all classes at once; how many times the scale of the test drifts have; how much the
# information must have grown for another starting point: each of many would have little of the evidence.
_FROM_THE_START, _OF_ALL, _WIDE, _GROWTH = 0.7, 0.2, 2.0, 1.45


@dataclass(frozen=True, eq=False)
class JointTally:
    """Score and information of rows about log-odds d_k − d_0, the first class being what the others are held against.

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
    """

    score: Floats
    information: Floats
    reach: Floats
    by_class: Floats
    out: Floats
    into: Floats

    @classmethod
    def none(cls, n_classes: int) -> "JointTally":
        """Of no rows."""
        vector, by_class = np.zeros(n_classes - 1), np.zeros(n_classes)
        return cls(vector, np.zeros((n_classes - 1, n_classes - 1)), vector, by_class, by_class, by_class)

    @classmethod
    def of(cls, sums: JointResidualSums, dispersion: float = 1.0) -> "JointTally":
        """Tally rows whose residuals have `dispersion` times the variance that the model gives them."""
        own, steep = np.diag(sums.variance), np.diag(sums.slope)
        unit = np.sqrt(np.where(own > 0.0, own, 1.0))[1:]
        slope = sums.slope[1:, 1:] / unit[:, None]
        inverse = np.linalg.pinv(sums.variance[1:, 1:] / unit / unit[:, None], rcond=_ROUNDING, hermitian=True)
        weights = slope.T @ inverse / dispersion
        information = weights @ slope
        between = sums.flows - np.diag(np.diag(sums.flows))
        return cls(
            weights @ (sums.residuals[1:] / unit),
            0.5 * (information + information.T),
            np.abs(weights) @ (steep[1:] / unit),
            np.divide(steep**2, dispersion * own, out=np.zeros(len(own)), where=own > 0.0),
            between.sum(axis=1),
            between.sum(axis=0),
        )

    def __add__(self, other: "JointTally") -> "JointTally":
        return JointTally(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __sub__(self, other: "JointTally") -> "JointTally":
        return JointTally(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    @property
    def drift(self) -> Floats:
        """Error of each class's log-odds against all others, log(out / into); NaN where a side is 0.

        Where one class's log-odds alone are off, by d, what flows out of it is e^d times what flows in, in expectation.
        """
        both = (self.out > 0.0) & (self.into > 0.0)
        ratio = np.divide(self.out, self.into, out=np.ones(len(both)), where=both)
        return np.where(both, np.log(ratio, out=np.zeros(len(both)), where=ratio > 0.0), np.nan)

    @property
    def error(self) -> Floats:
        """Standard error of `drift`; infinite without information."""
        known = self.by_class > 0.0
        return np.where(known, 1.0 / np.sqrt(np.where(known, self.by_class, 1.0)), np.inf)

    def plain(self) -> list[float]:
        """All numbers in one list."""
        return [number for one in fields(self) for number in getattr(self, one.name).ravel().tolist()]

    @classmethod
    def n_numbers(cls, n_classes: int) -> int:
        """Length of that list."""
        return (n_classes - 1) * (n_classes + 1) + 3 * n_classes

    @classmethod
    def from_plain(cls, values: list[float], n_classes: int) -> "JointTally":
        """The inverse of `plain`."""
        width = n_classes - 1
        ends = np.cumsum([width, width**2, width, n_classes, n_classes])
        score, information, *rest = np.split(np.array(values), ends)
        return cls(score, information.reshape(width, width), *rest)


def stacked(tallies: list[JointTally]) -> JointTally:
    """Several tallies along a first axis."""
    return JointTally(*(np.array([getattr(one, field.name) for one in tallies]) for field in fields(JointTally)))


def comparison(before: JointTally, since: JointTally, moved_before: Floats) -> tuple[Floats, Floats, Floats]:
    """X = u D, the clock u, and how far X may be moved by log-odds that are off by less than t, over eᵗ − 1.

    Parameters
    ----------
    before, since : JointTally
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
    n_classes = moved.shape[-1]
    spread = np.eye(n_classes) + scale**2 * clock
    gain = np.einsum("mi,mi->m", moved, np.linalg.solve(spread, moved[..., None])[..., 0])
    return np.asarray(0.5 * scale**2 * gain - 0.5 * np.linalg.slogdet(spread)[1])


def _log_share(k: Floats) -> Floats:
    """Log of the k-th starting point's share of the evidence: the first most, others 1/2, 1/6, … of the rest."""
    rest = (1.0 - _FROM_THE_START) / (np.maximum(k - 1.0, 1.0) * k)
    return np.asarray(np.log(np.where(k == 1.0, _FROM_THE_START, rest)))


class JointDriftTest:
    """`DriftTest` for K classes: most of the mixture for a drift of one class, a part for drifts of all at once.

    Parameters
    ----------
    reference : JointTally
        Rows on which the model's error was seen before.
    scale : float
        Drift in log-odds to which the test is tuned.
    tolerance : float
        Drift in log-odds, of any class against any other, that is no reason for an alarm. With one, drifts of single
        classes alone are looked for.
    """

    def __init__(self, reference: JointTally, scale: float, tolerance: float) -> None:
        self.reference, self.scale, self.tolerance = reference, scale, tolerance
        self.total = JointTally.none(len(reference.by_class))
        self.starts: list[JointTally] = []
        self.start_batches: list[int] = []
        self.start_numbers: list[int] = []

    def add(self, tally: JointTally, batch: int) -> None:
        """Take the next rows, of the batch of this number."""
        if self._is_time(self.reference.by_class + self.total.by_class):  # before the labels of this batch are seen
            self.starts.append(self.total)
            self.start_batches.append(batch)
            self.start_numbers.append(len(self.start_numbers))
        self.total = self.total + tally

    def _is_time(self, before: Floats) -> bool:
        known = before >= LEAST_INFORMATION
        if not self.starts:
            return bool(known.any())
        last = self.reference.by_class + self.starts[-1].by_class
        return bool((known & (last < LEAST_INFORMATION)).any()) or before.sum() >= _GROWTH * last.sum()

    def log_evidence_by_part(self) -> Floats:
        """Weighted log evidence of each comparison, (starts, K + 1): of each class alone, and of all together.

        A class whose log-odds were known too little before a starting point is not tested from there: it counts as 1.
        """
        n_classes = len(self.reference.by_class)
        if not self.starts:
            return np.empty((0, n_classes + 1))
        seen = stacked(self.starts)
        before = stacked([self.reference + start for start in self.starts])
        since = stacked([self.total - start for start in self.starts])
        known: Bools = before.by_class >= LEAST_INFORMATION
        moved, clock, reach = comparison(before, since, seen.reach)
        own = np.maximum(np.diagonal(clock, axis1=-2, axis2=-1), 0.0)
        safe = np.where(own > 0.0, own, 1.0)
        allowance = math.expm1(self.tolerance) * reach / safe
        scale = _WIDE * self.scale
        alone = np.where(known & (own > 0.0), log_evidence(moved / safe, own, allowance, scale), 0.0)
        share_of_all = 0.0 if self.tolerance else _OF_ALL
        parts = [alone + math.log((1.0 - share_of_all) / n_classes)]
        if share_of_all:
            together = np.where(known.all(axis=1), _log_mixture_of_all(moved, clock, scale), 0.0)
            parts.append(together[:, None] + math.log(share_of_all))
        else:
            parts.append(np.full((len(self.starts), 1), -np.inf))
        return np.hstack(parts) + _log_share(np.arange(1.0, len(self.starts) + 1.0))[:, None]

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a belongs where it reaches log(1/a) for the first time."""
        parts = self.log_evidence_by_part()
        unopened = math.log((1.0 - _FROM_THE_START) / len(parts)) if len(parts) else 0.0
        return float(np.logaddexp.reduce(parts.ravel(), initial=unopened))

    def change(self) -> tuple[int, int, JointTally, JointTally] | None:
        """The class and the starting point with most evidence: both numbers, the rows before and the rows since."""
        parts = self.log_evidence_by_part()
        if not len(parts):
            return None
        best, k = np.unravel_index(int(np.argmax(parts[:, :-1])), parts[:, :-1].shape)
        start = self.starts[best]
        return int(k), self.start_batches[best], self.reference + start, self.total - start
