"""Has the log-odds error of a model changed? A test that may be looked at after every batch, for ever.

A piece of rows becomes a `Tally`: a score and its information, so that score / information estimates the error of the
model's log-odds with variance 1 / information. Reference rows, on which the model's error was seen before the stream
began, are one such tally. `DriftTest` compares, for a growing list of starting points, the rows since that point with
all rows before it. docs/monitor.md derives the boundary.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from crcen.theory.limits import LEAST_INFORMATION
from crcen.theory.residual_test import ResidualSums

__all__ = ["DriftTest", "Tally", "dispersion_of", "log_evidence"]

Floats = NDArray[np.float64]

# A new starting point is opened when the information before it has grown by this factor since the last one.
GROWTH = 1.2


@dataclass(frozen=True)
class Tally:
    """Score and information of rows about the model's log-odds error, with the sides of the key equation."""

    score: float = 0.0
    information: float = 0.0
    missed: float = 0.0
    alarmed: float = 0.0

    @classmethod
    def of(cls, sums: ResidualSums, dispersion: float = 1.0) -> "Tally":
        """Tally a piece of rows whose residual has `dispersion` times the variance that the model gives it."""
        ratio = sums.slope / (dispersion * sums.variance) if sums.variance > 0.0 else 0.0
        return cls(ratio * sums.residual, ratio * sums.slope, sums.missed, sums.alarmed)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.score + other.score,
            self.information + other.information,
            self.missed + other.missed,
            self.alarmed + other.alarmed,
        )

    def __sub__(self, other: "Tally") -> "Tally":
        return self + Tally(-other.score, -other.information, -other.missed, -other.alarmed)

    @property
    def mean(self) -> float:
        """Estimated error in log-odds, to first order; 0 without information."""
        return self.score / self.information if self.information > 0.0 else 0.0

    @property
    def drift(self) -> float:
        """Estimated error in log-odds, log(missed / alarmed), or `mean` where a side is 0.

        Where the true log-odds are the model's plus d on every row, E[missed] = e^d · E[alarmed] exactly, for any d and
        any λ: the ratio of the key equation is its own estimate of the drift.
        """
        if self.missed > 0.0 and self.alarmed > 0.0:
            return math.log(self.missed / self.alarmed)
        return self.mean


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
        self.reference, self.scale, self.tolerance = reference, scale, tolerance
        self.total = Tally()
        # Where the stream stood at each starting point, and how many batches it had had.
        self.starts: list[Tally] = []
        self.start_batches: list[int] = []

    def add(self, tally: Tally, batch: int) -> None:
        """Take the next rows, of the batch of this number."""
        before = self.reference.information + self.total.information
        enough = LEAST_INFORMATION
        if self.starts:
            enough = GROWTH * (self.reference.information + self.starts[-1].information)
        if before >= enough:  # decided before the labels of this batch are looked at
            self.starts.append(self.total)
            self.start_batches.append(batch)
        self.total = self.total + tally

    def log_evidence_by_start(self) -> Floats:
        """Weighted log evidence of each comparison; the weights 1/2, 1/6, 1/12, … of all that may come sum to 1."""
        if not self.starts:
            return np.empty(0)
        score = np.array([start.score for start in self.starts])
        seen = np.array([start.information for start in self.starts])
        before = self.reference.information + seen
        since = np.maximum(self.total.information - seen, 0.0)
        clock = before * since / (before + since)
        past = (self.reference.score + score) / before
        difference = np.where(since > 0.0, (self.total.score - score) / np.where(since > 0.0, since, 1.0) - past, 0.0)
        # A tolerated drift may also have moved the stream's share of the rows before.
        allowance = math.expm1(self.tolerance) * (1.0 + seen / before)
        k = np.arange(1, len(self.starts) + 1)
        return log_evidence(difference, clock, allowance, self.scale) - np.log(k * (k + 1.0))

    def log_evidence(self) -> float:
        """Log of the evidence; an alarm at rate a belongs where it reaches log(1/a) for the first time."""
        by_start = self.log_evidence_by_start()
        return float(np.logaddexp.reduce(by_start, initial=-math.log(len(by_start) + 1.0)))  # that: not yet opened

    def change(self) -> tuple[int, Tally, Tally] | None:
        """The starting point with most evidence: its batch, the rows before it and the rows since; None before any."""
        if not self.starts:
            return None
        best = int(np.argmax(self.log_evidence_by_start()))
        return self.start_batches[best], self.reference + self.starts[best], self.total - self.starts[best]
