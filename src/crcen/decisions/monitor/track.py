"""One running test of a monitor, of all rows or of a segment: its sums, readings and plain state."""

import math
from dataclasses import dataclass
from typing import Any

from crcen.decisions.monitor.plain_state import from_plain, numbers_of, stream_sums_from
from crcen.decisions.monitor.running_test import RunningTest
from crcen.decisions.monitor.sequential_test import DriftTest, Tally
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Shown
from crcen.theory.sequential import StreamSums

__all__ = ["DriftAlarm", "MonitorReading", "Track"]


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
    drift_low, drift_high : float
        Limits of the change, a 95 % interval that is valid at an alarm; infinite beyond 3 log-odds.
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
    drift_low: float
    drift_high: float
    log_evidence: float

    def __str__(self) -> str:
        where = "all rows" if self.segment is None else f"segment {self.segment!r}"
        when = "" if self.when is None else f" ({self.when})"
        return (
            f"drift in {where} at batch {self.batch}{when}, row {self.n_rows:,}: log-odds {self.drift:+.2f} "
            f"({self.drift_low:+.2f} to {self.drift_high:+.2f}) since batch {self.since_batch}, Z = {self.z:.1f}, "
            f"evidence {math.exp(min(self.log_evidence, 700.0)):.3g} : 1"
        )


class Track(RunningTest[ResidualSums, MonitorReading]):
    """The running test of two classes, of all rows or of one segment."""

    def _begin(self, scale: float, tolerance: float) -> DriftTest:
        return DriftTest(Tally.of(self.reference, self.dispersion), scale, tolerance)

    def _none(self) -> StreamSums:
        return StreamSums()

    def _tally(self, sums: ResidualSums) -> Tally | None:
        return Tally.of(sums, self.dispersion) if sums.variance > 0.0 else None

    def _plain_tally(self, tally: Any) -> list[float]:
        return list(tally.plain())

    def _tally_from(self, stored: Any) -> Tally:
        return Tally.from_plain(numbers_of(stored, "total", len(Tally().plain())))

    def _sums_from(self, state: dict[str, Any], key: str) -> StreamSums:
        return stream_sums_from(state, key)

    def _reading_from(self, stored: Any) -> MonitorReading:
        return from_plain(MonitorReading, stored)

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
        drift, drift_error, low, high = self.test.change_interval()
        return DriftAlarm(
            segment=self.segment,
            batch=reading.batch,
            when=when,
            n_rows=reading.n_rows,
            z=reading.z,
            since_batch=change[0],
            drift=drift,
            drift_error=drift_error,
            drift_low=low,
            drift_high=high,
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
