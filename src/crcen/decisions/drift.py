"""The running tests of a monitor, of all rows and of segments: evidence, history, alarms, state and plot."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import logsumexp

from crcen._support.extras import need
from crcen._support.text import Values, json_value
from crcen.theory.limits import DRIFT_SCALE
from crcen.theory.rows import AddsUp, Array, Axes, Shown, divided
from crcen.theory.sequential import GRID_SIZE, DriftProcess, StreamSums, n_tests, peak

# Readings kept: the latest, and a quarter of all spread evenly over the time before them.
MAX_READINGS = 512


@dataclass(frozen=True)
class MonitorReading:
    """State of a test after a batch."""

    segment: str | None  # None for all rows
    batch: int  # from 1
    n_rows: int  # labelled rows so far
    counts: tuple[int, ...]  # of each class; two classes are (negative, positive)
    # Residual of each tested class (the positive one of two) over its standard deviation if the model were the truth:
    # beyond ±2 without drift too, by the model's own error and repeated looks. NaN before any row with a variance.
    z_by_class: tuple[float, ...]
    z_reference_by_class: tuple[float, ...]  # of the difference from the reference rows; NaN without them
    drift_by_class: tuple[float, ...]  # error of the log-odds against all others, less that on the reference rows
    log_evidence: float  # that something changed; valid at any time

    def to_dict(self) -> dict[str, object]:
        """Plain values, None for NaN; those of the positive class are None for more than two classes."""
        of_two = {
            "n_pos": self.counts[1],
            "z": self.z_by_class[0],
            "z_reference": self.z_reference_by_class[0],
            "drift": self.drift_by_class[0],
        }
        return json_value(self) | (json_value(of_two) if len(self.counts) == 2 else dict.fromkeys(of_two))

    @classmethod
    def from_plain(cls, stored: Values) -> "MonitorReading":
        """The inverse of `json_value`."""
        lists = {name: one for name, one in stored.items() if isinstance(one, list)}
        return cls(**stored | {name: tuple(math.nan if v is None else v for v in one) for name, one in lists.items()})


@dataclass(frozen=True)
class DriftAlarm(Shown):
    """The first time that the evidence of a test passed its bar."""

    segment: str | None  # None for all rows
    batch: int  # from 1
    when: str | None  # name of the batch in `KeyEquationMonitor.update`
    n_rows: int  # labelled rows up to then
    label: object  # the class with most evidence that its log-odds moved; the positive one of two
    since_batch: int  # first batch of the change, by the comparison with most evidence
    drift: float  # change of the class's log-odds against all others since then
    drift_error: float  # its standard error if nothing else is wrong
    drift_low: float  # 95 % interval that is valid at an alarm; infinite beyond 3 log-odds
    drift_high: float
    log_evidence: float

    def __str__(self) -> str:
        where = "all rows" if self.segment is None else f"segment {self.segment!r}"
        when = "" if self.when is None else f" ({self.when})"
        low, high = self.drift_low, self.drift_high
        size = f"{self.drift:+.2f} ({low:+.2f} to {high:+.2f})"
        if math.isinf(low) != math.isinf(high):  # estimates stop at ±3
            limit = f"{low:+.2f} or more" if math.isinf(high) else f"{high:+.2f} or less"
            size = f"{self.drift:+.2f} ({limit})"
        evidence = f"evidence {math.exp(min(self.log_evidence, 700.0)):.3g} : 1"
        found = f"log-odds {size} since batch {self.since_batch}, {evidence}"
        return f"drift of class {self.label!r} in {where} at batch {self.batch}{when}, row {self.n_rows:,}: {found}"

    @classmethod
    def from_plain(cls, stored: Values) -> "DriftAlarm":
        """The inverse of `json_value`."""
        open_ends = {"drift_low": -math.inf, "drift_high": math.inf}
        return cls(**{**stored, **{name: end for name, end in open_ends.items() if stored[name] is None}})


class Track:
    """The running test of all rows (``segment`` None) or of one segment, at the false-alarm rate ``level``."""

    def __init__(
        self,
        classes: tuple[object, ...],
        segment: str | None,
        level: float,
        reference: StreamSums,
        dispersion: float,
        tolerance: float,
    ) -> None:
        self.classes, self.segment, self.level, self.reference = classes, segment, level, reference
        self.tested = slice(1, None) if len(classes) == 2 else slice(None)
        # Within the tolerance the variance of a label may be larger by this factor, p(1−p) at other log-odds.
        self.dispersion = dispersion * math.exp(tolerance)
        self.test = DriftTest(Tally.of(reference, self.dispersion), DRIFT_SCALE, tolerance)
        self.sums = StreamSums.none(len(classes))
        self.history: list[MonitorReading] = []

    def add(self, sums: StreamSums, batch: int) -> MonitorReading:
        """Add the rows of a batch and return the entry of the history."""
        self.sums = self.sums + sums
        self.test.add(Tally.of(sums, self.dispersion), batch)
        self.history.append(self._reading(batch))
        if len(self.history) > MAX_READINGS:
            self.history = thinned(self.history)
        return self.history[-1]

    def alarm(self, when: str | None) -> DriftAlarm:
        """Describe an alarm at the last entry of the history."""
        reading, change = self.history[-1], self.test.change()
        assert change is not None  # without a starting point the evidence is 1
        where = (self.segment, reading.batch, when, reading.n_rows, self.classes[self.tested][change.test])
        return DriftAlarm(*where, *change[1:], reading.log_evidence)

    def _reading(self, batch: int) -> MonitorReading:
        own, stream, before = np.diag(self.sums.variance), self.test.total, self.test.reference
        z = divided(self.sums.residuals, np.sqrt(own))
        drift = stream.drift - before.drift
        error = np.hypot(stream.error, before.error)
        z_reference = np.where(np.isfinite(error), drift / error, np.nan)
        own_z, other_z, drifts = (tuple(one[self.tested].tolist()) for one in (z, z_reference, drift))
        rows = (self.segment, batch, self.sums.n_rows, tuple(self.sums.counts.tolist()))
        return MonitorReading(*rows, own_z, other_z, drifts, self.test.log_evidence())

    def state(self) -> Values:
        """Everything that changes, as JSON can hold it; the settings are the monitor's."""
        return {
            "segment": self.segment,
            "reference": self.reference.to_list(),
            "sums": self.sums.to_list(),
            "total": self.test.total.to_list(),
            "starts": [[one.batch, one.number, *one.before.to_list()] for one in self.test.starts],
            "history": [json_value(reading) for reading in self.history],
        }

    def restore(self, state: Values) -> None:
        """Take what `state` returned; the reference is given to the constructor."""
        none, tally = StreamSums.none(len(self.classes)), Tally.none(len(self.classes))
        self.sums, self.test.total = none.from_list(state["sums"]), tally.from_list(state["total"])
        self.test.starts = [Start(b, number, tally.from_list(rest)) for b, number, *rest in state["starts"]]
        self.history = [MonitorReading.from_plain(reading) for reading in state["history"]]


def thinned(history: list[MonitorReading]) -> list[MonitorReading]:
    """The latest half, and half of the rest: those nearest to evenly spread batches, the first one among them."""
    old, latest = history[: -MAX_READINGS // 2], history[-MAX_READINGS // 2 :]
    batches = np.array([reading.batch for reading in old])
    wanted = np.unique(np.searchsorted(batches, np.linspace(batches[0], batches[-1], MAX_READINGS // 4)))
    return [old[place] for place in wanted] + latest


Tracks = dict[str | None, Track]


def table_of_readings(tracks: Tracks) -> list[str]:
    """One line for each test and class that it tests, below a line of heads."""
    heads = (("rows", 10), ("of class", 10), ("Z", 8), ("Z (ref.)", 10), ("drift", 8), ("evidence", 12), ("bar", 9))
    lines = [f"  {'rows of':<16}{'class':<12}" + "".join(f"{head:>{width}}" for head, width in heads)]
    for name, track in tracks.items():
        label = "all" if name is None else name
        if not track.history:
            lines.append(f"  {label:<16}no rows yet")
            continue
        last, tested = track.history[-1], track.tested
        figures = (last.counts[tested], last.z_by_class, last.z_reference_by_class, last.drift_by_class)
        test = f"{math.exp(min(last.log_evidence, 700.0)):>12.3g}{1.0 / track.level:>9.4g}"
        lines += [
            f"  {label:<16}{one!s:<12}{last.n_rows:>10,}{count:>10,}{z:>8.2f}{z_reference:>10.2f}{drift:>+8.2f}{test}"
            for one, count, z, z_reference, drift in zip(track.classes[tested], *figures, strict=True)
        ]
    return lines


def draw_readings(tracks: Tracks, alarms: list[DriftAlarm], ax: Axes) -> Axes:
    """Draw the evidence of every test over batches, with its alarms."""
    if ax is None:
        _, ax = need("matplotlib.pyplot", "plots").subplots()
    for name, track in tracks.items():
        width, label = (2.0, "all rows") if name is None else (1.0, name)
        over_bar = [(one.log_evidence + math.log(track.level)) / math.log(10.0) for one in track.history]
        (line,) = ax.plot([one.batch for one in track.history], over_bar, marker=".", linewidth=width, label=label)
        for alarm in alarms:
            if alarm.segment == name:
                ax.axvline(alarm.batch, color=line.get_color(), linestyle=":")
    ax.axhline(0.0, color="black", label="alarm", linestyle="--")
    ax.set(xlabel="batch", ylabel="evidence over its limit, in powers of ten")
    ax.legend()
    return ax


# Share of the evidence for a change that begins with the stream; the validity does not depend on it.
_FROM_THE_START = 0.5
_GROWTH = 1.12  # of the information since the last starting point, from which the next one is opened
_MOST_STARTS = 40  # kept: the first one and the latest ones
_UNKNOWN = 2.0  # standard deviation, in log-odds, of the error of a model without reference rows
_Z_OF_UNCERTAINTY = 2.2414  # two-sided 2.5 %: half of the error of the drift interval


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

    def model_uncertainty(self, k: int) -> tuple[float, float]:
        """Error of the log-odds of test k as these rows show it, and its standard error."""
        column = k - len(self.likelihood)  # the tested classes are the last ones
        if self.information[column] <= 0.0:
            return 0.0, _UNKNOWN
        return peak(self.likelihood[k]) or (float(np.clip(self.drift[column], -2.0, 2.0)), float(self.error[column]))


class Start(NamedTuple):
    """A starting point: its first batch, how many came before it, and the tally of the stream up to it."""

    batch: int
    number: int
    before: Tally


class Change(NamedTuple):
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
        known, then = (
            float((self.reference.information + one.information).sum())
            for one in (self.total, self.starts[-1].before if self.starts else self.total)
        )
        if not self.starts or (known > 0.0 and known >= _GROWTH * then):  # before the labels of this batch are seen
            self.starts.append(Start(batch, self.starts[-1].number + 1 if self.starts else 0, self.total))
            if len(self.starts) > _MOST_STARTS:
                del self.starts[1]
        self.total = self.total + tally

    @cached_property
    def processes(self) -> list[DriftProcess]:
        """The e-process of each test."""
        errors = (self.reference.model_uncertainty(k) for k in range(len(self.total.likelihood)))
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
        own, own_deviation = process.model_uncertainty(before)
        drift, deviation = process.estimate(since)
        low, high = process.interval(since, 0.025 * _share(start.number) / len(self.processes))
        slack = _Z_OF_UNCERTAINTY * own_deviation
        error = math.hypot(deviation, own_deviation)
        return Change(k, start.batch, drift - own, error, low - own - slack, high - own + slack)
