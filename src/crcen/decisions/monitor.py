"""KeyEquationMonitor: is the model still right, as labels arrive? One false-alarm rate for a stream's whole life."""

import hashlib
import json
import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import pdtr

from crcen._support.files import write_atomic
from crcen._support.text import Values, json_value
from crcen.decisions.drift import DriftAlarm, MonitorReading, Track, draw_readings, table_of_readings
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.validation import count_rows, take_rows
from crcen.theory.checks import check_clusters, check_probabilities, check_row_weights, check_whole_number, in_units
from crcen.theory.limits import ARRIVAL_TURNS, ARRIVAL_Z, FALSE_ALARM_RATE
from crcen.theory.price import Alpha, Labels, Price, WeightingLike, positive_number, sigmoid
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Array, Axes, Bools, Estimator, Index, Rows, ShownInOneLine, as_numpy, short
from crcen.theory.sequential import StreamSums, stream_sums, typical_weight

Sums = dict[str | None, StreamSums]
_FORMAT, _VERSION = "crcen monitor", 8
_SETTINGS = ("false_alarm_rate", "tolerance", "segments", "delay")


class KeyEquationMonitor(ShownInOneLine):
    """Test the key equation on new rows as their labels arrive, and raise an alarm when the log-odds drift.

    New rows are compared with reference rows after every batch. The probability of *any* false alarm, over all segments
    and the whole stream, is at most ``false_alarm_rate``. Rows or clusters are independent, at the natural class ratio,
    and arrive independently of their class (see ``delay``). docs/monitor.md derives and measures the test.

    Parameters
    ----------
    model : fitted classifier, optional
        With ``weighted_proba`` and ``weighting_``, or ``predict_proba``; else `update` takes ``q`` and class numbers.
    weighting : Lam, CostRatio, Budget, float, class weights or None
        The weighting of q, if the model has no ``weighting_``; None (λ = ½) for natural probabilities. More than
        two classes without a model need a weight for each.
    y_reference : array of shape (n,), optional
        Labels of rows that the model was not fitted on, else a stream is compared with its own past. Without
        ``q_reference`` the training labels of a `CRCENClassifierCV`, for its out-of-fold probabilities.
    q_reference : array of shape (n,), or (n, K), optional
        Weighted probabilities of the reference rows, of the positive class or of every class.
    segment_reference, sample_weight_reference, clusters_reference, audit_probability_reference : arrays, optional
        Of the reference rows, (n,); see `update`.
    segments : sequence of str, optional
        Segments to test in addition to all rows, with half of the rate; by default those of ``segment_reference``.
    false_alarm_rate : float, default=0.05
        Probability of any false alarm over the life of the monitor.
    tolerance : float, default=0
        Size of drifts, in log-odds, that raise no alarm.
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
        self._monitored = MonitoredModel(model, weighting, reference.shape[1] if reference.ndim == 2 else 0)
        self.false_alarm_rate = positive_number(false_alarm_rate, "false_alarm_rate")
        if self.false_alarm_rate >= 1.0:
            raise InvalidParameter(f"false_alarm_rate must lie between 0 and 1, got {self.false_alarm_rate:g}")
        self.tolerance = 0.0 if tolerance == 0 else positive_number(tolerance, "tolerance")
        if self.tolerance > 3.0:
            raise InvalidParameter(f"tolerance must be at most 3 log-odds, got {self.tolerance:g}: is it a share?")
        self._audits = AuditArrival()
        given = {
            "q": q_reference,
            "segment": segment_reference,
            "sample_weight": sample_weight_reference,
            "clusters": clusters_reference,
            "audit_probability": audit_probability_reference,
        }
        references = self._reference_sums(y_reference, given)
        named = [name for name in references if name is not None]
        self.segments = named if segments is None else [str(name) for name in segments]
        if isinstance(segments, str) or len(set(self.segments)) != len(self.segments):
            raise InvalidParameter(f"segments must be a list of distinct names, got {segments!r}")
        self.alarms: list[DriftAlarm] = []
        self.n_batches = 0
        self._weight_unit = 0.0  # the weight of a typical row, by the first rows of the stream; 0 before any
        self._tracks = self._make_tracks(references)
        self.delay = None if delay is None else check_whole_number(delay, "delay", 0)
        self._cohorts = None if self.delay is None else Cohorts(self.delay)
        classes = self._monitored.classes  # the positive one of two is tested, or all of more
        self._arrivals = [ArrivalOrder(f"class {one!r}") for one in (classes[1:] if len(classes) == 2 else classes)]

    def _reference_sums(self, y: ArrayLike | None, given: Mapping[str, ArrayLike | None]) -> Sums:
        """Sums of the reference rows: all of them, and those of each segment."""
        if y is None:
            for name, values in given.items():
                if values is not None:
                    raise InvalidInput(f"{name}_reference needs the labels y_reference of the same rows")
            return {None: StreamSums.none(len(self._monitored.classes))}
        q, segment, weights, clusters, audits = given.values()
        own, numbers = self._monitored, self._monitored.encode(y)
        outputs = own.out_of_fold(numbers, weights) if q is None else own.columns(q, numbers.size)
        present = np.unique(numbers)
        if len(present) < 2:
            got = f"{numbers.size} rows of {self._monitored.classes[present[0]]!r}"
            raise InvalidInput(f"y_reference must have both classes, or two of more, got {got}")
        batch = Batch(numbers, outputs, weights, segment, clusters)
        if audits is not None:
            e, is_labelled = check_audits(y, audits)
            self._audits.add(e, is_labelled)
            batch.weights = batch.weights / (e * self._audits.unit)
        return batch.sums(self._monitored.price, 0.0)

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
        """Add a batch of rows whose labels are known; return new alarms. Invalid input leaves the monitor unchanged.

        Parameters
        ----------
        X, q : rows as the model takes them, or their weighted probabilities (n,) or (n, K)
            New rows.
        y : array of shape (n,)
            Their labels, as in training; 0/1 or class numbers without a model. They may all be of one class.
        segment : str or array of shape (n,), optional
            Segment of each row, or of all of them.
        sample_weight : array of shape (n,), optional
            Finite and not negative. A weight above the typical one of the reference rows counts as that one.
        clusters : array of shape (n,), optional
            Rows of the same cluster, such as those of one patient, count as one arrival.
        audit_probability : array of shape (n,), optional
            Probability e with which each row was selected for a label, 1 for alarms. Rows have the weight 1/e.
            Pass rows without a label too, so that the monitor can warn when audits stop arriving.
        when : str, optional
            Name of the batch in records, such as "2024-05"; with ``delay`` the cohort is the name.
        cohort, now : int, date or array of shape (n,) of them; int or date
            With ``delay``: when each row was scored, and the present cohort (by default the latest one seen).
        """
        if y is None:
            raise InvalidInput("update needs the labels y of the rows")
        if (X is None) == (q is None):
            raise InvalidInput("update needs either the rows X or their weighted probabilities q, not both")
        if when is not None and (self._cohorts is not None or not isinstance(when, str)):
            raise InvalidInput(f"when must be text such as '2024-05', and is not given with delay=, got {when!r}")
        if self._cohorts is None and (cohort is not None or now is not None):
            raise InvalidInput("cohort and now need a monitor that holds rows back: create it with delay=")
        if self._cohorts is not None and cohort is None:
            raise InvalidInput("a monitor with delay= needs the cohort of the rows, such as the date of their scoring")
        inclusion: float | Array = 1.0
        words, audits = [], replace(self._audits)
        if audit_probability is not None:
            e, is_labelled = check_audits(y, audit_probability)
            words = [audits.add(e, is_labelled)]
            if not is_labelled.any():
                self._audits = audits
                return self._take([], words)
            rows = np.flatnonzero(is_labelled)
            inclusion = e[rows] * audits.unit
            given: list[Rows] = [X, y, q, segment, sample_weight, clusters, cohort]
            X, y, q, segment, sample_weight, clusters, cohort = (
                # One value for all rows stays, and so does a wrong number of values, which is refused below.
                one if one is None or np.ndim(one) == 0 or count_rows(one) != e.size else take_rows(one, rows)
                for one in given
            )
        numbers = self._monitored.encode(y)
        outputs = self._monitored.outputs(X) if q is None else self._monitored.columns(q, numbers.size)
        if sample_weight is None and self._weight_unit:
            sample_weight = np.full(numbers.size, self._weight_unit)
        batch = Batch(numbers, outputs, sample_weight, segment, clusters)
        batch.weights = batch.weights / inclusion
        unknown = [] if batch.segments is None else sorted(set(batch.segments.tolist()) - set(self.segments))
        if unknown:
            known = ", ".join(self.segments) or "none"
            message = f"segment must be one of those the monitor was made with ({known}), got {unknown[0]!r}"
            raise InvalidInput(f"{message}: the false-alarm rate is divided among them, so name all in segments=")
        unit = self._weight_unit or typical_weight(batch.weights)
        batch.weights = in_units(batch.weights, unit)
        if self._cohorts is None:
            sums = batch.sums(self._monitored.price, 1.0)
            self._weight_unit, self._audits = unit, audits
            return self._take([(when, sums)], words)
        cohorts, are_dates = cohort_numbers(cohort, numbers.size)
        present, last = self._cohorts.present_of(now, cohorts, are_dates), self._cohorts.present
        late = cohorts + self._cohorts.delay < (-np.inf if last is None else last)  # their cohorts have been released
        pieces = {int(one): batch.sums(self._monitored.price, 1.0, cohorts == one) for one in np.unique(cohorts[~late])}
        # From here on nothing can fail.
        self._weight_unit, self._audits = unit, audits
        for one, sums in pieces.items():
            self._cohorts.hold(one, sums)
        if late.any():
            self._cohorts.n_late += int(late.sum())
            why = f"a delay of {self._cohorts.delay} is too short for them"
            words.append(f"{late.sum()} rows came after their cohort was complete and are left out: {why}")
        return self._take(self._cohorts.release(present, are_dates), words)

    def release(self, now: object) -> list[DriftAlarm]:
        """With ``delay``: move on to the present cohort ``now`` without new rows; new alarms, as of `update`."""
        if self._cohorts is None:
            raise InvalidInput("release needs a monitor that holds rows back: create it with delay=")
        number, are_dates = cohort_numbers(now, 1)
        return self._take(self._cohorts.release(self._cohorts.present_of(None, number, are_dates), are_dates))

    def _take(self, batches: Iterable[tuple[str | None, Sums]], words: Iterable[str] = ()) -> list[DriftAlarm]:
        """Count named batches and update every test that has rows in them; warnings come last."""
        new, sentences = [], list(words)
        for when, pieces in batches:
            self.n_batches += 1
            for name, sums in pieces.items():
                track = self._tracks[name]
                is_over = track.add(sums, self.n_batches).log_evidence >= -math.log(track.level)
                if is_over and not any(alarm.segment == name for alarm in self.alarms):
                    new.append(track.alarm(when))
                    self.alarms.append(new[-1])
            first = len(self._monitored.classes) - len(self._arrivals)
            sentences += [order.add(pieces[None].of_class(first + k)) for k, order in enumerate(self._arrivals)]
        for sentence in filter(None, sentences):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return new

    def _make_tracks(self, known: Sums) -> dict[str | None, Track]:
        share = self.false_alarm_rate / 2.0 if self.segments else self.false_alarm_rate
        levels: dict[str | None, float] = {None: share}
        levels |= {name: share / len(self.segments) for name in self.segments}
        classes, self.dispersion = self._monitored.classes, known[None].dispersion
        none, settings = StreamSums.none(len(classes)), (self.dispersion, self.tolerance)
        return {name: Track(classes, name, level, known.get(name, none), *settings) for name, level in levels.items()}

    @property
    def n_held(self) -> int:
        """Rows that wait for their cohort to be complete."""
        return 0 if self._cohorts is None else self._cohorts.n_held

    @property
    def n_late(self) -> int:
        """Rows left out because their cohort was already complete."""
        return 0 if self._cohorts is None else self._cohorts.n_late

    @property
    def history(self) -> dict[str | None, list[MonitorReading]]:
        """History by segment (None for all rows): the latest 256 entries, and at most as many earlier ones."""
        return {name: list(track.history) for name, track in self._tracks.items()}

    @property
    def audits_have_stopped(self) -> bool:
        """Whether far fewer audited labels arrive than the audit probabilities imply."""
        return self._audits.has_stopped

    @property
    def reference_error(self) -> float | Array:
        """Standard error, in log-odds, of the model's error on reference rows (by class for K > 2); maybe infinite."""
        track = self._tracks[None]
        error = track.test.reference.error[track.tested]
        return float(error[0]) if len(error) == 1 else error

    def __str__(self) -> str:
        n_reference = self._tracks[None].reference.n_rows
        against = "the stream's own past"
        if n_reference:
            known = np.max(self.reference_error)
            against = f"{n_reference:,} reference rows, model uncertainty ± {known:.2g} log-odds"
        tolerated = f", tolerance {self.tolerance:g} log-odds" if self.tolerance else ""
        lines = [
            f"Key equation monitor: {self.n_batches} batches against {against}",
            f"  probability of any false alarm: at most {self.false_alarm_rate:g}{tolerated}",
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
        """Draw the evidence of each test and its limit, on the given axes or on a new figure, and return the axes."""
        return draw_readings(self._tracks, self.alarms, ax)

    def state(self) -> Values:
        """Everything but the model, as JSON can hold it; its size does not grow with the number of batches."""
        state = {
            "format": _FORMAT,
            "version": _VERSION,
            "classes": list(self._monitored.classes),
            "class_weights": self._monitored.price.weights.tolist(),
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
        """Resume from the result of `state`; later updates give the same results as without the interruption."""
        stored = _opened(state)
        classes, weights, n_classes = stored["classes"], stored["class_weights"], len(stored["classes"])
        has_price = hasattr(model, "weighted_proba") and hasattr(model, "weighting_")
        is_other = model is not None and set(np.asarray(getattr(model, "classes_", ())).tolist()) != set(classes)
        weighting = None if has_price or is_other else dict(zip(classes, weights, strict=True))
        made = cls(model, weighting=weighting, **{name: stored[name] for name in _SETTINGS})
        own = made._monitored
        if list(own.classes) != classes or not np.array_equal(own.price.weights, weights):
            stated = f"the classes {short(classes, 60)} and the weights {short(weights, 60)}"
            got = f"{short(list(own.classes), 60)} and {short(own.price.weights.tolist(), 60)}"
            raise InvalidInput(f"the state belongs to a model with {stated}, got one with {got}")
        none, tracks = StreamSums.none(n_classes), {track["segment"]: track for track in stored["tracks"]}
        made._tracks = made._make_tracks({name: none.from_list(track["reference"]) for name, track in tracks.items()})
        for name, track in tracks.items():
            made._tracks[name].restore(track)
        made.alarms = [DriftAlarm.from_plain(alarm) for alarm in stored["alarms"]]
        made.n_batches, made._weight_unit = stored["n_batches"], stored["weight_unit"]
        made._cohorts = stored["cohorts"] and Cohorts.from_state(stored["cohorts"], n_classes)
        made._audits = AuditArrival(**stored["audits"])
        made._arrivals = [ArrivalOrder(**order) for order in stored["arrival"]]
        return made


def _opened(state: object) -> Values:
    """The state of a monitor, perhaps read from a file; an error for any other value."""
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (_FORMAT, _VERSION):
        found = {name: state.get(name) for name in ("format", "version")} if isinstance(state, dict) else state
        wanted = f"the format {_FORMAT!r}, version {_VERSION}"
        raise InvalidInput(f"the state must be of {wanted}, got {short(found, 60)}: start a new one")
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


class MonitoredModel:
    """The model of a monitor: its classes and the price of its probabilities; two classes are (negative, positive)."""

    def __init__(self, model: Estimator, weighting: WeightingLike, n_columns: int = 0) -> None:
        self.model = model
        self.has_price = hasattr(model, "weighted_proba") and hasattr(model, "weighting_")
        if self.has_price and weighting is not None:
            raise InvalidParameter(f"weighting={weighting!r} must not be given: the model's own weighting_ is used")
        price = model.weighting_ if self.has_price else weighting
        if isinstance(price, str | Alpha):
            raise InvalidParameter(f"weighting={price!r} needs class counts: give the weights that q was made with")
        classes = None if model is None else np.asarray(getattr(model, "classes_", ()))
        n_classes = n_columns if classes is None else len(classes)
        if classes is None and isinstance(price, Price | dict | list | tuple | np.ndarray):
            n_classes = price.n_classes if isinstance(price, Price) else len(price)
        if n_classes > 2:
            self.labels = Labels(np.arange(n_classes) if classes is None else classes)
        else:
            self.labels = Labels(np.arange(2), 1) if model is None else Labels.of_model(model)
        ones, names = np.ones(self.labels.n_classes), self.labels.classes.tolist()
        weights = self.labels.in_order(self.labels.resolve(price, ones).weights)
        self.price = Price(weights, ones, None, 1 if len(ones) == 2 else None)
        self.classes: tuple[object, ...] = tuple(names if n_classes > 2 or self.labels.is_last else names[::-1])

    def encode(self, y: ArrayLike) -> Index:
        """Class numbers of labels in the order of `classes`; without a model y must hold 0/1 or class numbers."""
        labels = np.asarray(as_numpy(y))
        if labels.ndim != 1 or labels.size == 0:
            raise InvalidInput(f"y must be 1-D with at least one row, got an array of shape {labels.shape}")
        return self.labels.target(labels).astype(np.int64)

    def outputs(self, X: Rows) -> Array:
        """Weighted probabilities by the model, natural ones if it has no weighting, in the order of `classes`."""
        if self.model is None:
            raise InvalidInput("this monitor has no model: pass q, or give it one with KeyEquationMonitor(model, ...)")
        return self._in_order(self.model.weighted_proba(X) if self.has_price else self.model.predict_proba(X))

    def columns(self, q: ArrayLike, n_rows: int) -> Array:
        """Given probabilities, (n, K) in the order of the model's classes or (n,) of the positive one, checked."""
        values, n_classes = np.asarray(as_numpy(q)), self.labels.n_classes
        if n_classes == 2 and values.shape == (n_rows,):
            chance = check_probabilities(values)
            return np.column_stack([1.0 - chance, chance])
        if values.shape == (n_rows, n_classes):
            return self._in_order(check_probabilities(values))
        shapes = f"{(n_rows, n_classes)}{f' or {(n_rows,)}' if n_classes == 2 else ''}, got {values.shape}"
        advice = "for other classes give the monitor a model of them, or their weights as weighting="
        raise InvalidInput(f"q must have shape {shapes}: {advice}")

    def _in_order(self, columns: ArrayLike) -> Array:
        return self.labels.in_order(np.asarray(columns, dtype=np.float64))

    def out_of_fold(self, numbers: Index, sample_weight: ArrayLike | None) -> Array:
        """Out-of-fold q of the training rows of a `CRCENClassifierCV`, whose labels and weights these must be."""
        is_binary = self.has_price and self.model.weighting_.positive is not None
        found = getattr(self.model, "oof_decision_function_" if is_binary else "oof_proba_", None)
        if found is None or not self.has_price:
            message = "y_reference needs q_reference, the weighted probabilities of rows that the model did not see"
            raise InvalidInput(f"{message}; only a CRCENClassifierCV has out-of-fold probabilities of its own")
        counts = np.bincount(numbers, check_row_weights(sample_weight, numbers.size), self.labels.n_classes)
        fitted = self._in_order(self.model.weighting_.counts[None])[0]
        if len(found) != numbers.size or not np.allclose(counts, fitted, rtol=1e-6) or not np.isfinite(found).all():
            labels = f"the {len(found)} training labels in the order of fit, {fitted.tolist()} by class"
            message = f"y_reference must be {labels} with sample_weight_reference, each in a test fold"
            raise InvalidInput(f"{message}, got {counts.tolist()}: else pass q_reference too")
        if not is_binary:
            return self.price.weighted(self._in_order(found))
        signed = self.labels.signed(np.asarray(found))
        return np.column_stack([sigmoid(-signed), sigmoid(signed)])


class Batch:
    """Checked rows: class numbers (n,), weighted probabilities (n, K), weights, segments and clusters (n,)."""

    def __init__(
        self, y: Index, q: Array, weights: ArrayLike | None, segments: ArrayLike | None, clusters: ArrayLike | None
    ) -> None:
        if len(q) != y.size:
            raise InvalidInput(f"y must have one label for each of {len(q)} rows: got {y.size}.")
        self.numbers, self.q, self.weights = y, q, check_row_weights(weights, y.size)
        self.segments = None if segments is None else row_segments(segments, y.size)
        self.clusters = check_clusters(clusters, y.size)

    def sums(self, price: Price, unit: float, rows: Bools | None = None) -> Sums:
        """Sums over all rows (or those given), under None, and over the rows of each segment."""
        chosen = np.ones(self.numbers.size, dtype=bool) if rows is None else rows
        parts: dict[str | None, Bools] = {None: chosen}
        if self.segments is not None:
            parts |= {name: chosen & (self.segments == name) for name in sorted(set(self.segments[chosen].tolist()))}
        found: Sums = {}
        for name, mine in parts.items():
            sizes = None
            if self.clusters is not None:  # rows of the same cluster
                _, which, counts = np.unique(self.clusters[mine], return_inverse=True, return_counts=True)
                sizes = counts[which.ravel()].astype(np.float64)
            whole = stream_sums(
                self.numbers[mine], self.q[mine], price, self.weights[mine], cluster_sizes=sizes, weight_unit=unit
            )
            found[name], unit = whole, whole.weight_unit
        return found


def check_audits(y: ArrayLike, audit_probability: ArrayLike) -> tuple[Array, Bools]:
    """Audit probabilities, 0 for unknown ones of rows without a label, and which rows have a label."""
    labels = np.asarray(as_numpy(y))
    is_labelled = np.array([one is not None and one == one for one in labels.ravel().tolist()], dtype=bool)
    e = np.asarray(as_numpy(audit_probability), dtype=np.float64)
    if e.shape != labels.shape:
        raise InvalidInput(f"audit_probability must have one value for each of {labels.size} rows, got {e.shape}")
    e = np.where(is_labelled, e, np.nan_to_num(e))
    wrong = np.flatnonzero(is_labelled & ~((e > 0.0) & (e <= 1.0)) | (e < 0.0) | (e > 1.0))
    if len(wrong):
        raise InvalidInput(f"audit_probability must lie in (0, 1], got {e[wrong[0]]:g} in row {wrong[0] + 1}")
    return e, is_labelled


def row_segments(segment: ArrayLike, n: int) -> NDArray[np.object_]:
    """The segment of each row as text; one name stands for all rows."""
    values = np.asarray(segment, dtype=object)
    if values.ndim == 0:
        values = np.full(n, values)
    if values.shape != (n,):
        raise InvalidInput(f"segment must have one name for each of the {n} rows, got shape {values.shape}")
    if any(value is None or value != value for value in values.tolist()):
        raise InvalidInput("segment must be known for every row, got None or NaN: name such rows 'unknown'")
    # Objects: an array of strings would be as wide as the longest name, for every row.
    return np.array([str(value) for value in values.tolist()], dtype=object)


# Batches are pooled until they should hold this many positives: with fewer, no positive at all is not yet unusual. A
# piece with far too many ends as soon as it holds a few.
_ENOUGH, _FEW = 10.0, 5
# Chance of so few audited labels below which audits have stopped.
_AUDIT_LEVEL = 1e-4


def cohort_numbers(cohort: object, n: int | None = None) -> tuple[Index, bool]:
    """Cohorts as whole numbers, one for each of n rows, and whether they were dates (then: days since 1970)."""
    values = np.asarray(cohort)
    is_text = values.dtype.kind in "US"
    if is_text or (values.dtype.kind == "O" and all(isinstance(value, date) for value in values.ravel().tolist())):
        try:
            values = values.astype("datetime64[D]")
        except ValueError:
            values = np.array(np.nan)
    are_dates = values.dtype.kind == "M"
    is_known = values.dtype.kind in "Miuf" and np.isfinite(values).all()
    is_whole = is_known and (are_dates or (values == np.round(values)).all())
    if not is_whole or (n is not None and values.shape not in ((), (n,))):
        of_rows = "" if n is None else f", one for all rows or for each of the {n} rows"
        raise InvalidInput(
            f"cohort must be whole numbers or dates such as '2024-05-01'{of_rows}, got {short(cohort, 60)}",
            parameter="cohort",
        )
    numbers = (values.astype("datetime64[D]") if are_dates else values).astype(np.int64)
    return (numbers if n is None else np.broadcast_to(numbers, n)), are_dates


@dataclass
class Cohorts:
    """Sums of cohorts whose labels may still be coming; c is complete when the present cohort is beyond c + delay."""

    delay: int
    present: int | None = None
    are_dates: bool | None = None
    held: dict[int, Sums] = field(default_factory=dict)
    n_late: int = 0

    def present_of(self, now: object, cohorts: Index, are_dates: bool) -> int:
        """The present cohort: the one stated, or the latest given."""
        number, is_date = (cohorts.max(), are_dates) if now is None else cohort_numbers(now)
        for other in (is_date, self.are_dates):
            if other not in (None, are_dates):
                raise InvalidInput(
                    "cohort and now must be dates every time, or numbers every time, got both", parameter="cohort"
                )
        if np.ndim(number) or number < cohorts.max():
            raise InvalidInput(f"now must be one cohort, none of the rows being later, got {now!r}", parameter="now")
        return int(number)

    def hold(self, cohort: int, sums: Sums) -> None:
        """Add sums of rows to a cohort that is open."""
        mine = self.held.setdefault(cohort, {})
        for name, piece in sums.items():
            mine[name] = mine[name] + piece if name in mine else piece

    def release(self, present: int, are_dates: bool) -> list[tuple[str, Sums]]:
        """Move on to a present cohort; the names and sums of those that are now complete, oldest first."""
        self.are_dates = are_dates
        self.present = present if self.present is None else max(self.present, present)
        complete = sorted(cohort for cohort in self.held if cohort + self.delay < self.present)
        names = [str(np.datetime64(cohort, "D")) if are_dates else f"cohort {cohort}" for cohort in complete]
        return [(name, self.held.pop(cohort)) for name, cohort in zip(names, complete, strict=True)]

    @property
    def n_held(self) -> int:
        """Rows held back."""
        return sum(sums[None].n_rows for sums in self.held.values())

    def state(self) -> Values:
        """Everything, as JSON can hold it."""
        held = [
            {"cohort": cohort, "sums": [{"segment": name, "sums": s.to_list()} for name, s in sums.items()]}
            for cohort, sums in self.held.items()
        ]
        return {**vars(self), "held": held}

    @classmethod
    def from_state(cls, state: Values, n_classes: int) -> "Cohorts":
        """The inverse of `state`."""
        none = StreamSums.none(n_classes)
        held = {
            entry["cohort"]: {piece["segment"]: none.from_list(piece["sums"]) for piece in entry["sums"]}
            for entry in state["held"]
        }
        return cls(**{**state, "held": held})


@dataclass
class ArrivalOrder:
    """Counts how often the residual of a class turns from far above to far below what chance allows."""

    label: str
    pending: list[float] = field(default_factory=lambda: [0.0] * 5)  # `ResidualSums`
    last_z: float = 0.0
    turns: int = 0

    def add(self, sums: ResidualSums) -> str:
        """Take a batch; a warning if it is the one that shows it, else nothing."""
        self.pending = [before + new for before, new in zip(self.pending, sums, strict=True)]
        own = ResidualSums(*self.pending)
        if own.variance <= 0.0:
            return ""
        z, is_crowded = own.z, own.z > ARRIVAL_Z and own.n_pos >= _FEW
        if not is_crowded and own.slope**2 < _ENOUGH * own.variance:
            return ""
        turned = min(abs(z), abs(self.last_z)) > ARRIVAL_Z and (z > 0.0) != (self.last_z > 0.0)
        self.pending, self.last_z, self.turns = [0.0] * 5, z, self.turns + turned
        if not turned or self.turns != ARRIVAL_TURNS:
            return ""
        found = f"{self.turns} times many more of them than the model expects came next to far fewer"
        advice = "evidence is only valid if the arrival of a label does not depend on its class; use delay= for cohorts"
        return f"rows of {self.label} and others seem to arrive at different times: {found}; {advice}"


@dataclass
class AuditArrival:
    """Compares the audited labels that arrive with the number that audit probabilities promise."""

    unit: float = 0.0  # weight 1/e that counts as 1, fixed by the first audited rows
    expected: float = 0.0  # labels of rows with an audit probability below 1, in the present window
    found: int = 0
    has_stopped: bool = False

    def add(self, e: Array, is_labelled: Bools) -> str:
        """Take the audit probabilities of all rows of a batch; a warning if audits stopped, else nothing."""
        if not self.unit and not is_labelled.any():
            return ""
        self.unit = self.unit or typical_weight(1.0 / e[is_labelled])
        drawn = e < 1.0
        self.expected += float(e[drawn].sum())
        self.found += int((is_labelled & drawn).sum())
        if float(pdtr(self.found, self.expected)) < _AUDIT_LEVEL:
            if self.has_stopped:
                return ""
            self.has_stopped = True
            found = f"{self.expected:.0f} labels of rows without an alarm were expected and {self.found} arrived"
            return f"audits seem to have stopped: {found}; labels of alarms say nothing about the other rows"
        if self.expected >= _ENOUGH:  # begin a new window: a later stop shows soon
            self.expected, self.found, self.has_stopped = 0.0, 0, False
        return ""
