"""Has the log-odds error of a model changed? Evidence that may be looked at after every batch; see docs/monitor.md."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from crcen.theory.rows import AddsUp, Array, divided
from crcen.theory.sequential import GRID_SIZE, DriftProcess, StreamSums, n_tests, peak

# Share of the evidence for a change that begins with the stream; the validity does not depend on it.
_FROM_THE_START = 0.5
_GROWTH = 1.12  # of the information since the last starting point, from which the next one is opened
_MOST_STARTS = 40  # kept: the first one and the latest ones
_UNKNOWN = 2.0  # standard deviation, in log-odds, of the error of a model without reference rows
_Z_OF_OWN_ERROR = 2.2414  # two-sided 2.5 %: half of the error of the drift interval


def _share(number: int) -> float:
    """Share of a starting point in the evidence: those after the first have 1/2, 1/6, 1/12, … of the rest."""
    return (1.0 - _FROM_THE_START) / (number * (number + 1.0)) if number else _FROM_THE_START


@dataclass(frozen=True, eq=False)
class Tally(AddsUp):
    """Score, information and likelihood of rows about the log-odds of each class against all others."""

    score: Array  # (K,)
    information: Array  # (K,)
    out: Array  # (K,): sides of the key equation of each class
    into: Array  # (K,)
    likelihood: Array  # (tests, GRID_SIZE), as in `StreamSums`

    @classmethod
    def none(cls, n_classes: int) -> "Tally":
        """Of no rows."""
        return cls(*map(np.zeros, [(n_classes,)] * 4 + [(n_tests(n_classes), GRID_SIZE)]))

    @classmethod
    def of(cls, sums: StreamSums, dispersion: float = 1.0) -> "Tally":
        """Tally rows whose residuals have `dispersion` times the variance that the model gives them."""
        variance, slope, between = dispersion * np.diag(sums.variance), np.diag(sums.slope), sums.between
        weights = divided(slope, variance, 0.0)
        sides = between.sum(axis=1), between.sum(axis=0)
        return cls(weights * sums.residuals, weights * slope, *sides, sums.likelihood / dispersion)

    @property
    def drift(self) -> Array:
        """Error of each class's log-odds against all others, log(out / into), (K,); linear if a side is 0."""
        both = (self.out > 0.0) & (self.into > 0.0)
        linear = divided(self.score, self.information, 0.0)
        return np.where(both, np.log(divided(self.out, np.where(both, self.into, 0.0), 1.0)), linear)

    @property
    def error(self) -> Array:
        """Standard error of `drift`, (K,); infinite without information."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / np.sqrt(self.information))

    def own_error(self, k: int) -> tuple[float, float]:
        """Error of the log-odds of test k as these rows show it, and its standard error."""
        column = k - len(self.likelihood)  # the tested classes are the last ones
        if self.information[column] <= 0.0:
            return 0.0, _UNKNOWN
        clipped = float(np.clip(self.drift[column], -2.0, 2.0))
        return peak(self.likelihood[k]) or (clipped, float(self.error[column]))


class Start(NamedTuple):
    """A starting point: its first batch, how many came before it, and the tally of the stream up to it."""

    batch: int
    number: int
    before: Tally


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

    There is one e-process for each tested class (the positive one of two) and each starting point, all with a share.
    """

    def __init__(self, reference: Tally, scale: float, tolerance: float) -> None:
        self.reference, self.scale, self.tolerance = reference, scale, tolerance
        self.total = Tally.none(len(reference.score))
        self.starts: list[Start] = []

    def add(self, tally: Tally, batch: int) -> None:
        """Take the next rows, of the batch of this number."""
        if self._is_time():  # before the labels of this batch are seen
            self.starts.append(Start(batch, self.starts[-1].number + 1 if self.starts else 0, self.total))
            if len(self.starts) > _MOST_STARTS:
                del self.starts[1]
        self.total = self.total + tally

    def _is_time(self) -> bool:
        if not self.starts:
            return True
        before, last = (
            float((self.reference.information + one.information).sum()) for one in (self.total, self.starts[-1].before)
        )
        return before > 0.0 and before >= _GROWTH * last

    @cached_property
    def processes(self) -> list[DriftProcess]:
        """The e-process of each test."""
        errors = (self.reference.own_error(k) for k in range(len(self.total.likelihood)))
        return [DriftProcess(self.tolerance, spread, centre, self.scale) for centre, spread in errors]

    def log_evidence_by_test(self) -> Array:
        """Log of the evidence of each test from each starting point, (starts, tests), by its share."""
        before = np.array([start.before.likelihood for start in self.starts])
        since = self.total.likelihood - before
        parts = [process.log_evidence(since[:, k], before[:, k]) for k, process in enumerate(self.processes)]
        shares = np.array([_share(start.number) for start in self.starts]) / len(parts)
        return np.stack(parts, axis=1) + np.log(shares)[:, None]

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a is raised when it first reaches log(1/a)."""
        if not self.starts:
            return 0.0
        unopened = (1.0 - _FROM_THE_START) / (self.starts[-1].number + 1.0)
        return float(logsumexp(np.append(self.log_evidence_by_test(), math.log(unopened))))

    def change(self) -> Change | None:
        """The change with most evidence, with an interval that is valid at an alarm; None before any starting point."""
        if not self.starts:
            return None
        parts = self.log_evidence_by_test()
        best, k = (int(place) for place in np.unravel_index(int(np.argmax(parts)), parts.shape))
        process, start = self.processes[k], self.starts[best]
        before = start.before.likelihood[k]
        since = self.total.likelihood[k] - before
        own, own_deviation = process.own_error(before)
        drift, deviation = process.estimate(since)
        low, high = process.interval(since, 0.025 * _share(start.number) / len(self.processes))
        slack = _Z_OF_OWN_ERROR * own_deviation
        error = math.hypot(deviation, own_deviation)
        return Change(k, start.batch, drift - own, error, low - own - slack, high - own + slack)
