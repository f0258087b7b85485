"""What the running tests of two and of K classes share: rows taken in, readings kept, and the plain state."""

import math
from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

from crcen.decisions.monitor.plain_state import count_of, list_of, plain, plain_sums
from crcen.theory.residual_test import JointResidualSums, ResidualSums

__all__ = ["MAX_READINGS", "RunningTest", "thinned"]

# Readings kept: the latest, and a quarter of all spread evenly over the time before them.
MAX_READINGS = 512

Sums = TypeVar("Sums", ResidualSums, JointResidualSums)
Reading = TypeVar("Reading")


class RunningTest(ABC, Generic[Sums, Reading]):
    """The running test of all rows or of one segment, whatever its sums are.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    level : float
        False-alarm rate that this test may spend.
    reference
        Sums of its reference rows, empty where there are none.
    dispersion : float
        How much larger the residual's variance is than the model says.
    scale, tolerance : float
        As in `DriftTest`.
    """

    test: Any

    def __init__(
        self, segment: str | None, level: float, reference: Sums, dispersion: float, scale: float, tolerance: float
    ) -> None:
        self.segment, self.level = segment, level
        self.reference: Sums = reference
        # Within the tolerance the variance of a label may be larger by this factor, p(1−p) at other log-odds.
        self.dispersion = dispersion * math.exp(tolerance)
        self.test = self._begin(scale, tolerance)
        self.sums: Any = self._none()
        self.pending: Any = self._none()
        self.history: list[Reading] = []

    @abstractmethod
    def _begin(self, scale: float, tolerance: float) -> Any:
        """The test of evidence, before any row."""

    @abstractmethod
    def _none(self) -> Sums:
        """Sums of no rows."""

    @abstractmethod
    def _tally(self, sums: Sums) -> Any:
        """What the test takes of the sums of some rows; None where the model leaves these rows no variance."""

    @abstractmethod
    def _reading(self, batch: int) -> Reading:
        """Where the test stands."""

    @abstractmethod
    def _plain_tally(self, tally: Any) -> list[float]:
        """A tally as JSON can hold it."""

    @abstractmethod
    def _tally_from(self, stored: Any) -> Any:
        """A tally as `_plain_tally` wrote it, checked."""

    @abstractmethod
    def _sums_from(self, state: dict[str, Any], key: str) -> Sums:
        """Sums as they were written, checked."""

    @abstractmethod
    def _reading_from(self, stored: Any) -> Reading:
        """A reading as it was written, checked."""

    def add(self, sums: Sums, batch: int) -> Reading:
        """Take the rows of a batch and say where the test stands."""
        self.sums = self.sums + sums
        # Rows whose q are all 0 or 1 have no variance under the model; they wait for rows that have.
        self.pending = self.pending + sums
        tally = self._tally(self.pending)
        if tally is not None:
            self.test.add(tally, batch)
            self.pending = self._none()
        self.history.append(self._reading(batch))
        if len(self.history) > MAX_READINGS:
            self.history = thinned(self.history)
        return self.history[-1]

    @property
    def is_over(self) -> bool:
        """Whether the evidence is at the bar now."""
        latest: Any = self.history[-1] if self.history else None
        return latest is not None and latest.log_evidence >= -math.log(self.level)

    def state(self) -> dict[str, Any]:
        """Everything that changes, as JSON can hold it; the settings are the monitor's."""
        starts = zip(self.test.start_batches, self.test.start_numbers, self.test.starts, strict=True)
        return {
            "segment": self.segment,
            "reference": plain_sums(self.reference),
            "sums": plain_sums(self.sums),
            "pending": plain_sums(self.pending),
            "total": self._plain_tally(self.test.total),
            "starts": [{"batch": b, "number": number, "total": self._plain_tally(one)} for b, number, one in starts],
            "history": [plain(reading) for reading in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take what `state` gave, checked; the reference is given to the constructor."""
        self.sums = self._sums_from(state, "sums")
        self.pending = self._sums_from(state, "pending")
        self.test.total = self._tally_from(state)
        starts = list_of(state, "starts")
        self.test.starts = [self._tally_from(start) for start in starts]
        self.test.start_batches = [count_of(start, "batch") for start in starts]
        self.test.start_numbers = [count_of(start, "number") for start in starts]
        self.history = [self._reading_from(stored) for stored in list_of(state, "history")]


def thinned(history: list[Any]) -> list[Any]:
    """The latest half, and half of the rest: those nearest to evenly spread batches, the first one among them."""
    old, latest = history[: -MAX_READINGS // 2], history[-MAX_READINGS // 2 :]
    batches = np.array([reading.batch for reading in old])
    wanted = np.unique(np.searchsorted(batches, np.linspace(batches[0], batches[-1], MAX_READINGS // 4)))
    return [old[place] for place in wanted] + latest
