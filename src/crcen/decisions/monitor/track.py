"""One running test of a monitor, of all rows or of a segment: its sums, readings and plain state."""

import math
from dataclasses import astuple, dataclass
from typing import Any

import numpy as np

from crcen.decisions.monitor.plain_state import count_of, from_plain, list_of, numbers_of, plain, plain_sums, sums_from
from crcen.decisions.monitor.sequential_test import DriftTest, Tally
from crcen.theory.residual_test import ResidualSums
from crcen.theory.shown import Shown

__all__ = ["DriftAlarm", "MAX_READINGS", "MonitorReading", "Track", "thinned"]

# Readings kept: the latest, and a quarter of all spread evenly over the time before them.
MAX_READINGS = 512


@dataclass(frozen=True)
class MonitorReading:
    """Where a test stands after a batch.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    batch : int
        Number of the batch, from 1.
    n_rows, n_pos : int
        Labelled rows so far, and positives among them.
    z : float
        Σ w(y−q) over its standard deviation under the model as if that were the truth. It wanders beyond ±2 without any
        drift, by the model's own error and by being looked at often; NaN before any row with a variance.
    z_reference : float
        The same as a difference from the reference rows, both with their errors; NaN without reference rows.
    drift : float
        Estimated error of the model's log-odds on the rows so far, less that on the reference rows.
    log_evidence : float
        Log evidence that something changed; valid at any time.
    """

    segment: str | None
    batch: int
    n_rows: int
    n_pos: int
    z: float
    z_reference: float
    drift: float
    log_evidence: float


@dataclass(frozen=True)
class DriftAlarm(Shown):
    """The first time that the evidence of a test passed its bar.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    batch, when : int, str or None
        The batch of the alarm, from 1, and what it was called in `KeyEquationMonitor.update`.
    n_rows : int
        Labelled rows up to then.
    z : float
        As in `MonitorReading`.
    since_batch : int
        First batch of the change, by the comparison with most evidence.
    drift, drift_error : float
        Estimated change in log-odds since then, and its standard error where nothing else is wrong.
    log_evidence : float
        Log evidence at the alarm.
    """

    segment: str | None
    batch: int
    when: str | None
    n_rows: int
    z: float
    since_batch: int
    drift: float
    drift_error: float
    log_evidence: float

    def __str__(self) -> str:
        where = "all rows" if self.segment is None else f"segment {self.segment!r}"
        when = "" if self.when is None else f" ({self.when})"
        return (
            f"drift in {where} at batch {self.batch}{when}, row {self.n_rows:,}: log-odds {self.drift:+.2f} "
            f"± {self.drift_error:.2f} since batch {self.since_batch}, Z = {self.z:.1f}, "
            f"evidence {math.exp(min(self.log_evidence, 700.0)):.3g} : 1"
        )


class Track:
    """The running test of all rows or of one segment.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    level : float
        False-alarm rate that this test may spend.
    reference : ResidualSums
        Sums of its reference rows, empty where there are none.
    dispersion : float
        How much larger the residual's variance is than the model says.
    scale, tolerance : float
        As in `DriftTest`.
    """

    def __init__(
        self,
        segment: str | None,
        level: float,
        reference: ResidualSums,
        dispersion: float,
        scale: float,
        tolerance: float,
    ) -> None:
        self.segment, self.level, self.reference = segment, level, reference
        # Within the tolerance the variance of a label may be larger by this factor, p(1−p) at other log-odds.
        self.dispersion = dispersion * math.exp(tolerance)
        self.test = DriftTest(Tally.of(reference, self.dispersion), scale, tolerance)
        self.sums = ResidualSums()
        self.pending = ResidualSums()
        self.history: list[MonitorReading] = []

    def add(self, sums: ResidualSums, batch: int) -> MonitorReading:
        """Take the rows of a batch and say where the test stands."""
        self.sums = self.sums + sums
        # Rows whose q are all 0 or 1 have no variance under the model; they wait for rows that have.
        self.pending = self.pending + sums
        if self.pending.variance > 0.0:
            self.test.add(Tally.of(self.pending, self.dispersion), batch)
            self.pending = ResidualSums()
        self.history.append(self._reading(batch))
        if len(self.history) > MAX_READINGS:
            self.history = thinned(self.history)
        return self.history[-1]

    @property
    def is_over(self) -> bool:
        """Whether the evidence is at the bar now."""
        return bool(self.history) and self.history[-1].log_evidence >= -math.log(self.level)

    @property
    def reference_error(self) -> float:
        """Standard error, in log-odds, of what reference rows say about the model: infinite without such rows."""
        information = self.test.reference.information
        return 1.0 / math.sqrt(information) if information > 0.0 else math.inf

    @property
    def known_to(self) -> str:
        """The same in words."""
        return f"± {self.reference_error:.2g}"

    def alarm(self, when: str | None) -> DriftAlarm:
        """Describe an alarm at the last reading."""
        reading, change = self.history[-1], self.test.change()
        assert change is not None  # without a starting point the evidence is 1
        batch, before, since = change
        return DriftAlarm(
            segment=self.segment,
            batch=reading.batch,
            when=when,
            n_rows=reading.n_rows,
            z=reading.z,
            since_batch=batch,
            drift=since.drift - before.drift,
            drift_error=math.sqrt(1.0 / since.information + 1.0 / before.information),
            log_evidence=reading.log_evidence,
        )

    def _reading(self, batch: int) -> MonitorReading:
        stream, before = self.test.total, self.test.reference
        z_reference = math.nan
        if stream.information > 0.0 and before.information > 0.0:
            error = math.sqrt(1.0 / stream.information + 1.0 / before.information)
            z_reference = (stream.mean - before.mean) / error
        return MonitorReading(
            segment=self.segment,
            batch=batch,
            n_rows=self.sums.n_rows,
            n_pos=self.sums.n_pos,
            z=self.sums.z,
            z_reference=z_reference,
            drift=stream.drift - before.drift,
            log_evidence=self.test.log_evidence(),
        )

    def state(self) -> dict[str, Any]:
        """Everything that changes, as JSON can hold it; the settings are the monitor's."""
        return {
            "segment": self.segment,
            "reference": plain_sums(self.reference),
            "sums": plain_sums(self.sums),
            "pending": plain_sums(self.pending),
            "total": list(astuple(self.test.total)),
            "starts": [
                {"batch": batch, "total": list(astuple(start))}
                for batch, start in zip(self.test.start_batches, self.test.starts, strict=True)
            ],
            "history": [plain(reading) for reading in self.history],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take what `state` gave, checked; the reference is given to the constructor."""
        self.sums = sums_from(state, "sums")
        self.pending = sums_from(state, "pending")
        self.test.total = Tally(*numbers_of(state, "total", 4))
        starts = list_of(state, "starts")
        self.test.starts = [Tally(*numbers_of(start, "total", 4)) for start in starts]
        self.test.start_batches = [count_of(start, "batch") for start in starts]
        self.history = [from_plain(MonitorReading, reading) for reading in list_of(state, "history")]


def thinned(history: list[Any]) -> list[Any]:
    """The latest half, and half of the rest: those nearest to evenly spread batches, the first one among them."""
    old, latest = history[: -MAX_READINGS // 2], history[-MAX_READINGS // 2 :]
    batches = np.array([reading.batch for reading in old])
    wanted = np.unique(np.searchsorted(batches, np.linspace(batches[0], batches[-1], MAX_READINGS // 4)))
    return [old[place] for place in wanted] + latest
