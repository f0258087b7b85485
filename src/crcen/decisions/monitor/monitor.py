"""KeyEquationMonitor: is the model still right, as labels arrive? One false-alarm rate for a stream's whole life."""

import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.files import write_atomic
from crcen._support.values import Values, json_value
from crcen.decisions.monitor.rows import (
    ArrivalOrder,
    AuditArrival,
    Batch,
    Cohorts,
    Sums,
    WatchedModel,
    check_audits,
    cohort_numbers,
    labelled_rows,
    segment_names,
)
from crcen.decisions.monitor.track import DriftAlarm, MonitorReading, Track, draw_readings, table_of_readings
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.validation import take_rows
from crcen.theory.checks import check_whole_number, in_units
from crcen.theory.limits import FALSE_ALARM_RATE
from crcen.theory.price import WeightingLike, positive_number
from crcen.theory.rows import Array, Axes, Bools, Estimator, Rows, ShownInOneLine, as_numpy, short
from crcen.theory.sequential import StreamSums, typical_weight

_FORMAT, _VERSION = "crcen monitor", 7
_SETTINGS = ("false_alarm_rate", "tolerance", "segments", "delay")


class KeyEquationMonitor(ShownInOneLine):
    """Test the key equation on new rows as their labels arrive, and raise an alarm when the log-odds drift.

    New rows are compared with reference rows after every batch. The chance of *any* false alarm, over all segments and
    the whole life of the stream, is at most ``false_alarm_rate``. Rows or clusters are independent, at the natural
    class ratio, and arrive independently of their class (see ``delay``). docs/monitor.md derives and measures the test.

    Parameters
    ----------
    model : fitted classifier, optional
        With ``weighted_proba`` and ``weighting_``, or ``predict_proba``. Without a model pass ``q`` to `update`, and
        0/1 labels or class numbers.
    weighting : Lam, CostRatio, Budget, float, class weights or None
        What q was trained under, if the model has no ``weighting_``; None (λ = ½) for natural probabilities. More than
        two classes without a model need a weight for each.
    y_reference : array of shape (n,), optional
        Labels of rows that the model was not fitted on, else a stream is compared with its own past. Without
        ``q_reference`` the training labels of a `CRCENClassifierCV`, for its out-of-fold probabilities.
    q_reference : array of shape (n,), or (n, K), optional
        Weighted probabilities of the reference rows, of the positive class or of every class.
    segment_reference, sample_weight_reference, clusters_reference, audit_probability_reference : arrays, optional
        Of the reference rows, (n,); see `update`.
    segments : sequence of str, optional
        Segments to watch one by one besides all rows, at half of the rate; by default those of ``segment_reference``.
    false_alarm_rate : float, default=0.05
        Chance of any false alarm, ever.
    tolerance : float, default=0
        Drifts in log-odds that are no reason for an alarm.
    delay : int, optional
        Cohorts (days, if they are dates) that must pass before all labels of a cohort are known. Rows are given to
        `update` with their ``cohort`` and held back until it is complete.

    Attributes
    ----------
    alarms : list of DriftAlarm
        The first alarm of every test that had one.
    n_batches : int
        Batches so far; with ``delay`` the cohorts that were complete.
    """

    def __init__(
        self,
        model: Estimator = None,
        *,
        weighting: WeightingLike = None,
        y_reference: ArrayLike | None = None,
        q_reference: ArrayLike | None = None,
        segment_reference: ArrayLike | None = None,
        sample_weight_reference: ArrayLike | None = None,
        clusters_reference: ArrayLike | None = None,
        audit_probability_reference: ArrayLike | None = None,
        segments: Iterable[object] | None = None,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        tolerance: float = 0.0,
        delay: int | None = None,
    ) -> None:
        self.model = model
        reference = np.asarray(() if q_reference is None else as_numpy(q_reference))
        self._watched = WatchedModel(model, weighting, reference.shape[1] if reference.ndim == 2 else 0)
        self.false_alarm_rate = positive_number(false_alarm_rate, "false_alarm_rate")
        if self.false_alarm_rate >= 1.0:
            raise InvalidParameter(f"false_alarm_rate must lie between 0 and 1, got {self.false_alarm_rate:g}")
        self.tolerance = 0.0 if tolerance == 0 else positive_number(tolerance, "tolerance")
        if self.tolerance > 3.0:
            raise InvalidParameter(f"tolerance must be at most 3 log-odds, got {self.tolerance:g}: is it a share?")
        self._audits: AuditArrival | None = None
        given = {
            "q": q_reference,
            "segment": segment_reference,
            "sample_weight": sample_weight_reference,
            "clusters": clusters_reference,
            "audit_probability": audit_probability_reference,
        }
        references = self._reference_sums(y_reference, given)
        named = [name for name in references if name is not None]
        self.segments = named if segments is None else segment_names(segments)
        self.alarms: list[DriftAlarm] = []
        self.n_batches = 0
        self._weight_unit = 0.0  # the weight of a typical row, by the first rows of the stream; 0 before any
        self._tracks = self._make_tracks(references)
        self.delay = None if delay is None else check_whole_number(delay, "delay", 0)
        self._cohorts = None if self.delay is None else Cohorts(self.delay)
        classes = self._watched.classes  # the positive one of two is tested, or all of more
        self._arrivals = [ArrivalOrder(f"class {one!r}") for one in (classes[1:] if len(classes) == 2 else classes)]

    def _reference_sums(self, y: ArrayLike | None, given: Mapping[str, ArrayLike | None]) -> Sums:
        """Sums of the reference rows: all of them, and those of each segment."""
        if y is None:
            for name, values in given.items():
                if values is not None:
                    raise InvalidInput(f"{name}_reference needs the labels y_reference of the same rows")
            return {None: StreamSums.none(len(self._watched.classes))}
        q, segment, weights, clusters, audits = given.values()
        numbers = self._watched.encode(y)
        outputs = self._watched.out_of_fold(numbers, weights) if q is None else self._watched.columns(q, numbers.size)
        present = np.unique(numbers)
        if len(present) < 2:
            raise InvalidInput(
                f"y_reference must have both classes, or two of more, got {numbers.size} rows of "
                f"{self._watched.classes[present[0]]!r}"
            )
        batch = Batch(numbers, outputs, weights, segment, clusters)
        if audits is not None:
            e, is_labelled = check_audits(y, audits)
            self._audits, _ = self._audited(e, is_labelled)
            batch.weights = batch.weights / (e * typical_weight(1.0 / e))
        return batch.sums(self._watched.price, 0.0)

    def use_reference(self, sums: StreamSums) -> None:
        """Compare with rows of which only sums are known, such as those held out of training; before any update."""
        if (sums.counts > 0).sum() > 1:
            self._tracks = self._make_tracks({None: sums})

    def update(
        self,
        X: Rows = None,
        y: ArrayLike | None = None,
        *,
        q: ArrayLike | None = None,
        segment: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        audit_probability: ArrayLike | None = None,
        when: str | None = None,
        cohort: object = None,
        now: object = None,
    ) -> list[DriftAlarm]:
        """Take a batch of rows whose labels are known.

        Parameters
        ----------
        X, q : rows as the model takes them, or their weighted probabilities (n,) or (n, K)
            New rows.
        y : array of shape (n,)
            Their labels, as the model knows them; 0/1 or class numbers without a model. One class alone is fine.
        segment : str or array of shape (n,), optional
            Segment of each row, or of all of them.
        sample_weight : array of shape (n,), optional
            Finite and not negative. A weight above the typical one of the reference rows counts as that one.
        clusters : array of shape (n,), optional
            Rows of the same cluster, such as those of one patient, count as one arrival.
        audit_probability : array of shape (n,), optional
            Probability e with which the label of each row was asked for, 1 for alarms. Rows count with the weight 1/e.
            Pass rows without a label too, so that the monitor can warn when audits stop arriving.
        when : str, optional
            Name of the batch in records, such as "2024-05"; with ``delay`` the cohort is the name.
        cohort, now : int, date or array of shape (n,) of them; int or date
            With ``delay``: when each row was scored, and the present cohort (by default the latest one seen).

        Returns
        -------
        list of DriftAlarm
            New alarms, possibly empty. Invalid input leaves the monitor unchanged.
        """
        if y is None:
            raise InvalidInput("update needs the labels y of the rows")
        if (X is None) == (q is None):
            raise InvalidInput("update needs either the rows X or their weighted probabilities q, not both")
        if when is not None and (self._cohorts is not None or not isinstance(when, str)):
            raise InvalidInput(f"when must be text such as '2024-05', and is not given with delay=, got {when!r}")
        if self._cohorts is None and (cohort is not None or now is not None):
            raise InvalidInput("cohort and now need a monitor that holds rows back: make it with delay=")
        if self._cohorts is not None and cohort is None:
            raise InvalidInput("a monitor with delay= needs the cohort of the rows, such as the date of their scoring")
        e = is_labelled = None
        if audit_probability is not None:
            e, is_labelled = check_audits(y, audit_probability)
            if not is_labelled.all():
                rows = np.flatnonzero(is_labelled)
                X, q = (None if one is None else take_rows(one, rows) for one in (X, q))
                y = take_rows(y, rows)
                segment, sample_weight, clusters, cohort = (
                    labelled_rows(one, is_labelled) for one in (segment, sample_weight, clusters, cohort)
                )
        audits, words = self._audited(e, is_labelled)
        if is_labelled is not None and not is_labelled.any():
            self._audits = audits
            return self._take([], words)
        numbers = self._watched.encode(y)
        outputs = self._watched.outputs(X) if q is None else self._watched.columns(q, numbers.size)
        if sample_weight is None and self._weight_unit:
            sample_weight = np.full(numbers.size, self._weight_unit)
        batch = Batch(numbers, outputs, sample_weight, segment, clusters)
        if e is not None and is_labelled is not None and audits is not None:
            batch.weights = batch.weights / (e[is_labelled] * audits.unit)
        unknown = [] if batch.segments is None else sorted(set(batch.segments.tolist()) - set(self.segments))
        if unknown:
            raise InvalidInput(
                f"segment must be one of those the monitor was made with ({', '.join(self.segments) or 'none'}), got "
                f"{unknown[0]!r}: their number shares out the false-alarm rate, so name them all in segments="
            )
        unit = self._weight_unit or typical_weight(batch.weights)
        batch.weights = in_units(batch.weights, unit)
        if self._cohorts is None:
            sums = batch.sums(self._watched.price, 1.0)
            self._weight_unit, self._audits = unit, audits
            return self._take([(when, sums)], words)
        cohorts, are_dates = cohort_numbers(cohort, numbers.size)
        present, late = self._cohorts.present_of(now, cohorts, are_dates), self._cohorts.is_closed(cohorts)
        pieces = {int(one): batch.sums(self._watched.price, 1.0, cohorts == one) for one in np.unique(cohorts[~late])}
        # From here on nothing can fail.
        self._weight_unit, self._audits = unit, audits
        for one, sums in pieces.items():
            self._cohorts.hold(one, sums)
        if late.any():
            self._cohorts.n_late += int(late.sum())
            words.append(
                f"{late.sum()} rows ({self._watched.kinds(numbers[late])}) came after their cohort was complete and "
                f"are left out: a delay of {self._cohorts.delay} is too short for them"
            )
        return self._take(self._cohorts.release(present, are_dates), words)

    def _audited(self, e: Array | None, is_labelled: Bools | None) -> tuple[AuditArrival | None, list[str]]:
        """The arrival of audits after a batch, and warnings."""
        if e is None or is_labelled is None:
            return self._audits, []
        if self._audits is None and not is_labelled.any():
            return None, []
        found = AuditArrival(typical_weight(1.0 / e[is_labelled])) if self._audits is None else replace(self._audits)
        return found, [found.add(e, is_labelled)]

    def release(self, now: object) -> list[DriftAlarm]:
        """With ``delay``: move on to the present cohort ``now`` without new rows; new alarms, as of `update`."""
        if self._cohorts is None:
            raise InvalidInput("release needs a monitor that holds rows back: make it with delay=")
        number, are_dates = cohort_numbers(now, 1)
        present = self._cohorts.present_of(None, number, are_dates)
        return self._take(self._cohorts.release(present, are_dates))

    def _take(self, batches: Iterable[tuple[str | None, Sums]], words: Iterable[str] = ()) -> list[DriftAlarm]:
        """Count named batches, look at every test that has rows in them, and warn last: nothing can fail before."""
        new, sentences = [], list(words)
        for when, pieces in batches:
            self.n_batches += 1
            for name, sums in pieces.items():
                track = self._tracks[name]
                is_over = track.add(sums, self.n_batches).log_evidence >= -math.log(track.level)
                if is_over and not any(alarm.segment == name for alarm in self.alarms):
                    new.append(track.alarm(when))
                    self.alarms.append(new[-1])
            first = len(self._watched.classes) - len(self._arrivals)
            sentences += [order.add(pieces[None].of_class(first + k)) for k, order in enumerate(self._arrivals)]
        for sentence in filter(None, sentences):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return new

    def _make_tracks(self, known: Sums) -> dict[str | None, Track]:
        share = self.false_alarm_rate / 2.0 if self.segments else self.false_alarm_rate
        levels: dict[str | None, float] = {None: share}
        levels |= {name: share / len(self.segments) for name in self.segments}
        classes, self.dispersion = self._watched.classes, known[None].dispersion
        none, settings = StreamSums.none(len(classes)), (self.dispersion, self.tolerance)
        return {name: Track(classes, name, level, known.get(name, none), *settings) for name, level in levels.items()}

    @property
    def n_held(self) -> int:
        """Rows that wait for their cohort to be complete."""
        return 0 if self._cohorts is None else self._cohorts.n_held

    @property
    def n_late(self) -> int:
        """Rows left out because their cohort was complete already."""
        return 0 if self._cohorts is None else self._cohorts.n_late

    @property
    def history(self) -> dict[str | None, list[MonitorReading]]:
        """Readings by segment, None for all rows: the latest 256, and at most as many of the time before."""
        return {name: list(track.history) for name, track in self._tracks.items()}

    @property
    def audits_have_stopped(self) -> bool:
        """Whether far fewer audited labels arrive than audit probabilities promise."""
        return self._audits is not None and self._audits.has_stopped

    @property
    def reference_error(self) -> float | Array:
        """Standard error, in log-odds, of the model's error on reference rows (by class for K > 2); maybe infinite."""
        error = self._tracks[None].reference_error
        return float(error[0]) if len(error) == 1 else error

    def __str__(self) -> str:
        n_reference = self._tracks[None].reference.n_rows
        against = "the stream's own past"
        if n_reference:
            known = np.max(self.reference_error)
            against = f"{n_reference:,} reference rows, which know the model to ± {known:.2g} log-odds"
        tolerated = f", tolerance {self.tolerance:g} log-odds" if self.tolerance else ""
        lines = [
            f"Key equation monitor: {self.n_batches} batches against {against}",
            f"  chance of any false alarm, ever: at most {self.false_alarm_rate:g}{tolerated}",
            *table_of_readings(self._tracks),
        ]
        if self._cohorts is not None:
            late = f", {self.n_late:,} left out: too late" if self.n_late else ""
            lines.append(f"  {self.n_held:,} rows wait for their cohort (delay {self._cohorts.delay}){late}")
        if self.audits_have_stopped:
            lines.append("  audits have stopped: nothing is known about rows without an alarm since then")
        lines += [f"  ALARM: {alarm}" for alarm in self.alarms] or ["  no alarm"]
        return "\n".join(lines)

    def plot(self, ax: Axes = None) -> Axes:
        """Draw the evidence of each test against its bar, on axes given or on a new figure, and return the axes."""
        return draw_readings(self._tracks, self.alarms, ax)

    def state(self) -> Values:
        """Everything but the model, as JSON can hold it; its size does not grow with the number of batches."""
        state = {
            "format": _FORMAT,
            "version": _VERSION,
            "classes": list(self._watched.classes),
            "class_weights": self._watched.price.weights.tolist(),
            **{name: getattr(self, name) for name in _SETTINGS},
            "n_batches": self.n_batches,
            "cohorts": None if self._cohorts is None else self._cohorts.state(),
            "weight_unit": self._weight_unit,
            "audits": json_value(self._audits),
            "arrival": json_value(self._arrivals),
            "tracks": [track.state() for track in self._tracks.values()],
            "alarms": json_value(self.alarms),
        }
        return {**state, "digest": state_digest(state)}

    def to_json(self, path: str | Path) -> None:
        """Write the state to a file atomically."""
        write_atomic(path, json.dumps(self.state(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def from_json(cls, path: str | Path, model: Estimator = None) -> "KeyEquationMonitor":
        """Resume from a file that `to_json` wrote; the model is not in it."""
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{path} must be a JSON file of KeyEquationMonitor.to_json, got {error}") from error
        return cls.from_state(state, model)

    @classmethod
    def from_state(cls, state: object, model: Estimator = None) -> "KeyEquationMonitor":
        """Resume from what `state` returned: the next update gives the same as if there had been no break."""
        stored = _opened(state)
        classes, weights, n_classes = stored["classes"], stored["class_weights"], len(stored["classes"])
        has_price = hasattr(model, "weighted_proba") and hasattr(model, "weighting_")
        is_other = model is not None and set(np.asarray(getattr(model, "classes_", ())).tolist()) != set(classes)
        weighting = None if has_price or is_other else dict(zip(classes, weights, strict=True))
        made = cls(model, weighting=weighting, **{name: stored[name] for name in _SETTINGS})
        own = made._watched
        if list(own.classes) != classes or not np.array_equal(own.price.weights, weights):
            raise InvalidInput(
                f"the state belongs to a model with the classes {short(classes, 60)} and the weights "
                f"{short(weights, 60)}, got one with {short(list(own.classes), 60)} and "
                f"{short(own.price.weights.tolist(), 60)}"
            )
        none, tracks = StreamSums.none(n_classes), {track["segment"]: track for track in stored["tracks"]}
        made._tracks = made._make_tracks({name: none.from_list(track["reference"]) for name, track in tracks.items()})
        for name, track in tracks.items():
            made._tracks[name].restore(track)
        made.alarms = [DriftAlarm.from_plain(alarm) for alarm in stored["alarms"]]
        made.n_batches, made._weight_unit = stored["n_batches"], stored["weight_unit"]
        held, audits = stored["cohorts"], stored["audits"]
        made._cohorts = None if held is None else Cohorts.from_state(held, n_classes)
        made._audits = None if audits is None else AuditArrival(**audits)
        made._arrivals = [ArrivalOrder(**order) for order in stored["arrival"]]
        return made


def _opened(state: object) -> Values:
    """The state of a monitor, perhaps read from a file; an error for any other value."""
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (_FORMAT, _VERSION):
        found = {name: state.get(name) for name in ("format", "version")} if isinstance(state, dict) else state
        raise InvalidInput(
            f"the state must be of the format {_FORMAT!r}, version {_VERSION}, got {short(found, 60)}: start a new one"
        )
    digest = state_digest({name: value for name, value in state.items() if name != "digest"})
    if not digest or state.get("digest") != digest:
        raise InvalidInput("the state of the monitor is damaged: its digest does not match; start a new monitor")
    return state


def state_digest(state: Values) -> str:
    """SHA-256 of the values; programs that store JSON may write 1.0 as 1."""
    try:
        values = json.loads(json.dumps(state), parse_int=float)
    except (TypeError, ValueError, RecursionError):  # no JSON
        return ""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
