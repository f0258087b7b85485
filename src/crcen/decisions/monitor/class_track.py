"""One running test of K classes, of all rows or of a segment: its sums, readings and plain state."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.decisions.monitor.joint_test import JointDriftTest, JointTally
from crcen.decisions.monitor.plain_state import (
    class_sums_from,
    count_of,
    item_of,
    list_of,
    number_of,
    numbers_of,
    text_or_none,
)
from crcen.decisions.monitor.running_test import RunningTest
from crcen.theory.residual_test import JointResidualSums
from crcen.theory.rows import Shown

__all__ = ["ClassDriftAlarm", "ClassReading", "ClassTrack", "class_dispersion"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class ClassReading:
    """Where a test of K classes stands after a batch.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    batch : int
        Number of the batch, from 1.
    n_rows : int
        Labelled rows so far.
    counts : tuple of int
        Rows of each class among them.
    z : tuple of float
        Residual of each class over its standard deviation under the model as if that were the truth; NaN where it has
        none.
    drift : tuple of float
        Estimated error of each class's log-odds against all others on the rows so far, less that on the reference rows;
        NaN where nothing is known.
    log_evidence : float
        Log evidence that something changed; valid at any time. 0 before anything could be compared.
    """

    segment: str | None
    batch: int
    n_rows: int
    counts: tuple[int, ...]
    z: tuple[float, ...]
    drift: tuple[float, ...]
    log_evidence: float


@dataclass(frozen=True)
class ClassDriftAlarm(Shown):
    """The first time that the evidence of a test passed its bar.

    Parameters
    ----------
    segment : str or None
        None for all rows.
    batch, when : int, str or None
        The batch of the alarm, from 1, and what it was called in `KeyEquationMonitor.update`.
    n_rows : int
        Labelled rows up to then.
    label : label of a class
        The class with most evidence that its log-odds moved.
    since_batch : int
        First batch of the change, by the comparison with most evidence.
    drift, drift_error : float
        Estimated change of this class's log-odds against all others since then, and its standard error where nothing
        else is wrong.
    drifts : tuple of float
        The same for every class. Where one class's log-odds rise, those of others against all the rest fall a little.
    log_evidence : float
        Log evidence at the alarm.
    """

    segment: str | None
    batch: int
    when: str | None
    n_rows: int
    label: Any
    since_batch: int
    drift: float
    drift_error: float
    drifts: tuple[float, ...]
    log_evidence: float

    def __str__(self) -> str:
        where = "all rows" if self.segment is None else f"segment {self.segment!r}"
        when = "" if self.when is None else f" ({self.when})"
        return (
            f"drift of class {self.label!r} in {where} at batch {self.batch}{when}, row {self.n_rows:,}: log-odds "
            f"{self.drift:+.2f} ± {self.drift_error:.2f} since batch {self.since_batch}, "
            f"evidence {math.exp(min(self.log_evidence, 700.0)):.3g} : 1"
        )


def class_dispersion(reference: JointResidualSums) -> float:
    """How much larger than the model says the residuals' variance was on reference rows, in the mean; at least 1."""
    own = np.diag(reference.variance)
    known = own > 0.0
    return max(1.0, float(np.mean(reference.squares[known] / own[known]))) if known.any() else 1.0


class ClassTrack(RunningTest[JointResidualSums, ClassReading]):
    """The running test of K classes, of all rows or of one segment.

    Parameters
    ----------
    classes : tuple of labels
        In the order of the columns of q.
    *settings
        As in `RunningTest`.
    """

    def __init__(self, classes: tuple[Any, ...], *settings: Any) -> None:
        self.classes = classes
        super().__init__(*settings)

    def _begin(self, scale: float, tolerance: float) -> JointDriftTest:
        return JointDriftTest(JointTally.of(self.reference, self.dispersion), scale, tolerance)

    def _none(self) -> JointResidualSums:
        return JointResidualSums.none(len(self.classes))

    def _tally(self, sums: JointResidualSums) -> JointTally | None:
        return JointTally.of(sums, self.dispersion) if np.diag(sums.variance).any() else None

    def _plain_tally(self, tally: Any) -> list[float]:
        return list(tally.plain())

    def _tally_from(self, stored: Any) -> JointTally:
        n_classes = len(self.classes)
        return JointTally.from_plain(numbers_of(stored, "total", JointTally.n_numbers(n_classes)), n_classes)

    def _sums_from(self, state: dict[str, Any], key: str) -> JointResidualSums:
        return class_sums_from(state, key, len(self.classes))

    def _reading_from(self, stored: Any) -> ClassReading:
        n_classes = len(self.classes)
        return ClassReading(
            segment=text_or_none(stored, "segment"),
            batch=count_of(stored, "batch"),
            n_rows=count_of(stored, "n_rows"),
            counts=tuple(int(count) for count in numbers_of(stored, "counts", n_classes)),
            z=_with_gaps(stored, "z", n_classes),
            drift=_with_gaps(stored, "drift", n_classes),
            log_evidence=number_of(stored, "log_evidence"),
        )

    @property
    def reference_error(self) -> Floats:
        """Standard error of what reference rows say about each class's log-odds against all others, (K,)."""
        return self.test.reference.error

    @property
    def known_to(self) -> str:
        """The same in words: of the class that is known best and of the one that is known least."""
        error = self.reference_error
        best, least = int(np.argmin(error)), int(np.argmax(error))
        return f"± {error[best]:.2g} (class {self.classes[best]!r}) to ± {error[least]:.2g} ({self.classes[least]!r})"

    def alarm(self, when: str | None) -> ClassDriftAlarm:
        """Describe an alarm at the last reading."""
        reading, change = self.history[-1], self.test.change()
        assert change is not None  # without a starting point the evidence is 1
        k, batch, before, since = change
        drift = since.drift - before.drift
        return ClassDriftAlarm(
            segment=self.segment,
            batch=reading.batch,
            when=when,
            n_rows=reading.n_rows,
            label=self.classes[k],
            since_batch=batch,
            drift=float(drift[k]),
            drift_error=float(np.hypot(since.error, before.error)[k]),
            drifts=tuple(drift.tolist()),
            log_evidence=reading.log_evidence,
        )

    def _reading(self, batch: int) -> ClassReading:
        own = np.diag(self.sums.variance)
        z = np.divide(self.sums.residuals, np.sqrt(own), out=np.full(len(own), np.nan), where=own > 0.0)
        drift, before = self.test.total.drift, self.test.reference.drift
        return ClassReading(
            segment=self.segment,
            batch=batch,
            n_rows=self.sums.n_rows,
            counts=tuple(self.sums.counts.tolist()),
            z=tuple(z.tolist()),
            drift=tuple((drift - np.where(np.isnan(before), 0.0, before)).tolist()),
            log_evidence=self.test.log_evidence(),
        )


def class_alarm_from(stored: Any, n_classes: int) -> ClassDriftAlarm:
    """An alarm as `plain` wrote it, checked."""
    label = item_of(stored, "label")
    return ClassDriftAlarm(
        segment=text_or_none(stored, "segment"),
        batch=count_of(stored, "batch"),
        when=text_or_none(stored, "when"),
        n_rows=count_of(stored, "n_rows"),
        label=label,
        since_batch=count_of(stored, "since_batch"),
        drift=_with_gaps({"drift": [item_of(stored, "drift")]}, "drift", 1)[0],
        drift_error=_with_gaps({"drift_error": [item_of(stored, "drift_error")]}, "drift_error", 1)[0],
        drifts=_with_gaps(stored, "drifts", n_classes),
        log_evidence=number_of(stored, "log_evidence"),
    )


def _with_gaps(stored: Any, key: str, count: int) -> tuple[float, ...]:
    """So many numbers, null for NaN."""
    zeros = [0.0 if value is None else value for value in list_of(stored, key)]
    numbers = numbers_of({key: zeros}, key, count)
    return tuple(math.nan if value is None else number for value, number in zip(stored[key], numbers, strict=True))
