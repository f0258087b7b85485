"""Has the log-odds error of a model changed? An exact e-process that may be looked at after every batch, for ever.

The likelihood of drifts on a grid is summed over the stream. For a growing list of starting points the rows since that
point are compared with what is known about the model's error from the reference rows and the rows before it.
docs/monitor.md derives the test.
"""

import math
from dataclasses import dataclass, field, fields

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, logsumexp

from crcen.theory.residual_test import ResidualSums
from crcen.theory.sequential import GRID_SIZE, DriftProcess, StreamSums, peak

__all__ = ["DriftTest", "Tally", "dispersion_of", "log_evidence"]

Floats = NDArray[np.float64]

# A new starting point is opened when the information before it has grown by this factor since the last one.
GROWTH = 1.12
_MOST_STARTS = 40  # the first starting point and the latest ones are kept
_FROM_THE_START = 0.5  # share of the evidence for a change that begins with the stream
_UNKNOWN = 2.0  # standard deviation, in log-odds, of the error of a model without reference rows
_Z_OF_OWN_ERROR = 2.2414  # two-sided 2.5 %: half of the error of the drift interval


@dataclass(frozen=True, eq=False)
class Tally:
    """Score and information of rows about the model's log-odds error, both sides of the key equation, likelihood."""

    score: float = 0.0
    information: float = 0.0
    missed: float = 0.0
    alarmed: float = 0.0
    likelihood: Floats = field(default_factory=lambda: np.zeros(GRID_SIZE))

    @classmethod
    def of(cls, sums: ResidualSums, dispersion: float = 1.0) -> "Tally":
        """Tally rows whose residual has `dispersion` times the variance that the model gives it."""
        ratio = sums.slope / (dispersion * sums.variance) if sums.variance > 0.0 else 0.0
        likelihood = sums.likelihood if isinstance(sums, StreamSums) else np.zeros(GRID_SIZE)
        return cls(ratio * sums.residual, ratio * sums.slope, sums.missed, sums.alarmed, likelihood / dispersion)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    def __sub__(self, other: "Tally") -> "Tally":
        return Tally(*(getattr(self, one.name) - getattr(other, one.name) for one in fields(self)))

    def plain(self) -> list[float]:
        """All numbers in one list."""
        return [self.score, self.information, self.missed, self.alarmed, *self.likelihood.tolist()]

    @classmethod
    def from_plain(cls, values: list[float]) -> "Tally":
        """The inverse of `plain`."""
        score, information, missed, alarmed, *likelihood = values
        return cls(score, information, missed, alarmed, np.array(likelihood))

    @property
    def mean(self) -> float:
        """Estimated error in log-odds, to first order; 0 without information."""
        return self.score / self.information if self.information > 0.0 else 0.0

    @property
    def drift(self) -> float:
        """Estimated error in log-odds, log(missed / alarmed), or `mean` if a side is 0.

        If the true log-odds are the model's plus d on every row, E[missed] = e^d · E[alarmed] exactly, for any d and
        any λ: the ratio of the key equation is its own estimate of the drift.
        """
        if self.missed > 0.0 and self.alarmed > 0.0:
            return math.log(self.missed / self.alarmed)
        return self.mean

    @property
    def own_error(self) -> tuple[float, float]:
        """The model's error as these rows show it, in log-odds, and its standard error."""
        if self.information <= 0.0:
            return 0.0, _UNKNOWN
        return peak(self.likelihood) or (max(-2.0, min(2.0, self.mean)), 1.0 / math.sqrt(self.information))


def dispersion_of(reference: ResidualSums) -> float:
    """How much larger than the model says the residual's variance was on reference rows; at least 1."""
    return max(1.0, reference.squares / reference.variance) if reference.variance > 0.0 else 1.0


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


class DriftTest:
    """Evidence, valid at any time, that the model's log-odds error is not what it was.

    Parameters
    ----------
    reference : Tally
        Rows on which the model's error was seen before; an empty one compares the stream with its own past alone.
    scale : float
        Drift in log-odds to which the test is tuned.
    tolerance : float
        Drift in log-odds, on any of the stream's rows, that is no reason for an alarm.
    """

    def __init__(self, reference: Tally, scale: float, tolerance: float) -> None:
        self.reference = reference
        centre, spread = reference.own_error
        self.process = DriftProcess(tolerance, spread, centre, scale)
        self.total = Tally()
        # Where the stream stood at each starting point, and how many batches it had had.
        self.starts: list[Tally] = []
        self.start_batches: list[int] = []
        self.start_numbers: list[int] = []

    def add(self, tally: Tally, batch: int) -> None:
        """Take the next rows, of the batch of this number."""
        known = self.reference.information + self.total.information
        # Decided before the labels of this batch are looked at.
        if not self.starts or known >= GROWTH * (self.reference.information + self.starts[-1].information):
            self.starts.append(self.total)
            self.start_batches.append(batch)
            self.start_numbers.append(self.start_numbers[-1] + 1 if self.start_numbers else 0)
            if len(self.starts) > _MOST_STARTS:
                del self.starts[1], self.start_batches[1], self.start_numbers[1]
        self.total = self.total + tally

    def log_evidence_by_start(self) -> Floats:
        """Weighted log evidence of each comparison; the weights of all that may come sum to 1."""
        if not self.starts:
            return np.empty(0)
        before = np.array([start.likelihood for start in self.starts])
        since = self.total.likelihood - before
        return np.asarray(
            self.process.log_evidence(since, before) + np.log([self._share(k) for k in self.start_numbers])
        )

    @staticmethod
    def _share(number: int) -> float:
        """Share of the evidence: the first starting point has most, others 1/2, 1/6, 1/12, … of the rest."""
        return (1.0 - _FROM_THE_START) / (number * (number + 1.0)) if number else _FROM_THE_START

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a belongs where it reaches log(1/a) for the first time."""
        by_start = self.log_evidence_by_start()
        left = math.log((1.0 - _FROM_THE_START) / (self.start_numbers[-1] + 1.0)) if self.starts else 0.0  # not opened
        return float(logsumexp(np.append(by_start, left)))

    def change(self) -> tuple[int, Tally, Tally] | None:
        """The starting point with most evidence: its batch, the rows before it and the rows since; None before any."""
        if not self.starts:
            return None
        best = int(np.argmax(self.log_evidence_by_start()))
        return self.start_batches[best], self.reference + self.starts[best], self.total - self.starts[best]

    def change_interval(self) -> tuple[float, float, float, float]:
        """Estimated change since the likeliest starting point, its standard error, and its 95 % interval.

        The interval is valid at any time, also at an alarm: that of the rows since, with the share of the evidence that
        the starting point has, and the error that the model had before.
        """
        by_start = self.log_evidence_by_start()
        best = int(np.argmax(by_start))
        start = self.starts[best].likelihood
        since = self.total.likelihood - start
        own, own_deviation = self.process.own_error(start)
        drift, deviation = self.process.estimate(since)
        low, high = self.process.interval(since, 0.025 * self._share(self.start_numbers[best]))
        slack = _Z_OF_OWN_ERROR * own_deviation
        return drift - own, math.hypot(deviation, own_deviation), low - own - slack, high - own + slack
