"""KeyEquationMonitor: is the model still right, as labels arrive? One false-alarm rate for a stream's whole life."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.files import write_atomic
from crcen.decisions.monitor.class_track import ClassTrack
from crcen.decisions.monitor.cohorts import Cohorts, Sums, check_delay, cohort_numbers
from crcen.decisions.monitor.display import draw_readings, table_of_readings
from crcen.decisions.monitor.plain_state import count_of, item_of, list_of, number_of, plain, short
from crcen.decisions.monitor.rows import reference_sums, row_segments, segment_names, sums_by_segment
from crcen.decisions.monitor.several_classes import SeveralClasses, n_classes_of
from crcen.decisions.monitor.track import Track
from crcen.decisions.monitor.two_classes import TwoClasses
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.limits import DRIFT_SCALE, FALSE_ALARM_RATE
from crcen.theory.price import Price, positive_number
from crcen.theory.rows import ShownInOneLine

__all__ = ["KeyEquationMonitor"]

# 4 is of two classes, 3 of several.
_FORMAT, _READABLE = "crcen monitor", (3, 4)

Kind = TwoClasses | SeveralClasses


class KeyEquationMonitor(ShownInOneLine):
    """Watch the key equation on new rows as their labels arrive, and raise an alarm when the model has gone wrong.

    After every batch the residual Σ w(y−q) of new rows is compared with that of reference rows, both with their own
    error. The chance of *any* false alarm, over all segments and the whole life of the stream, is at most
    ``false_alarm_rate``. The monitor looks for changes after a quiet time as well as for those from the first row on.

    Parameters
    ----------
    model : fitted classifier, optional
        One of ours, whose weighted probabilities q are used with their weighting, or any classifier with
        ``predict_proba``, of two classes or more. Without a model pass ``q`` to `update`, and 0/1 labels or class
        numbers.
    weighting : Lam, CostRatio, Budget, float, class weights or None
        What q was trained under, where no model of ours says it; None (λ = ½) for natural probabilities. For more than
        two classes a weight for each, as an array or a dict; without a model it says how many classes there are.
    y_reference : array of shape (n,), optional
        Labels of rows that the model was not fitted on. With a `CRCENClassifierCV` and no ``q_reference`` they are its
        training labels in the order of `fit`, used with its out-of-fold probabilities. Without them each stream is
        compared with its own past alone: a model that is wrong from the first row on is not found then.
    q_reference : array of shape (n,), or (n, K), optional
        Weighted probabilities of the reference rows, of the positive class or of every class.
    segment_reference, sample_weight_reference, clusters_reference : arrays of shape (n,), optional
        Segments, weights and clusters of the reference rows.
    segments : sequence of str, optional
        Segments to watch one by one besides all rows; by default those of ``segment_reference``. All rows spend half of
        the false-alarm rate and the segments an equal share of the other half (Bonferroni).
    false_alarm_rate : float, default=0.05
        Chance of any false alarm, ever.
    tolerance : float, default=0
        Drift in log-odds that is no reason for an alarm.
    drift_scale : float, default=0.3
        Size of drift in log-odds, beyond the tolerance, to which the test is tuned. It detects others too.
    delay : int, optional
        Where positives become known later than negatives, or the other way round: how many cohorts must pass before
        all labels of a cohort are known (days, where cohorts are dates). Rows are then given to `update` with their
        ``cohort`` and held back until it is complete.

    Attributes
    ----------
    alarms : list of DriftAlarm, or of ClassDriftAlarm for more than two classes
        The first alarm of every test that had one. With more than two classes it names the class that moved.
    history : dict of lists of MonitorReading, or of ClassReading
        Readings by segment, None for all rows: the latest 256, and at most as many of the time before.
    n_batches : int
        Batches so far; with ``delay`` the cohorts that were complete.
    n_held, n_late : int
        With ``delay``: rows that wait for their cohort, and rows left out as too late.

    Notes
    -----
    It assumes independent rows at the natural class ratio, labels whose arrival does not depend on what they are (see
    ``delay``), and reference rows from the time when the model was right. docs/monitor.md derives the test and
    measures it, also where rows of another kind come.

    Examples
    --------
    >>> import numpy as np
    >>> from crcen import KeyEquationMonitor
    >>> rng = np.random.default_rng(0)
    >>> p = rng.beta(1, 9, 20000)
    >>> y = rng.random(20000) < p
    >>> monitor = KeyEquationMonitor(y_reference=y[:10000], q_reference=p[:10000])
    >>> monitor.update(q=p[10000:], y=y[10000:])
    []
    """

    def __init__(
        self,
        model: Any = None,
        *,
        weighting: Any = None,
        y_reference: ArrayLike | None = None,
        q_reference: ArrayLike | None = None,
        segment_reference: ArrayLike | None = None,
        sample_weight_reference: ArrayLike | None = None,
        clusters_reference: ArrayLike | None = None,
        segments: Any = None,
        false_alarm_rate: float = FALSE_ALARM_RATE,
        tolerance: float = 0.0,
        drift_scale: float = DRIFT_SCALE,
        delay: int | None = None,
    ) -> None:
        self.model = model
        self._kind = _kind_of(model, weighting, q_reference)
        self.false_alarm_rate = positive_number(false_alarm_rate, "false_alarm_rate")
        if self.false_alarm_rate >= 1.0:
            raise InvalidParameter(f"false_alarm_rate must lie between 0 and 1, got {self.false_alarm_rate:g}")
        self.drift_scale = positive_number(drift_scale, "drift_scale")
        self.tolerance = 0.0 if tolerance == 0 else positive_number(tolerance, "tolerance")
        if self.tolerance > 3.0:
            raise InvalidParameter(
                f"tolerance must be at most 3 log-odds, got {self.tolerance:g}: did you mean a share?"
            )
        rows = (y_reference, q_reference, segment_reference, sample_weight_reference, clusters_reference)
        references = reference_sums(self._kind, *rows)
        named = [name for name in references if name is not None]
        self.segments = named if segments is None else segment_names(segments)
        self.dispersion = self._kind.dispersion(references[None])
        self._tracks = self._make_tracks(references)
        self._cohorts = None if delay is None else Cohorts(check_delay(delay))
        self._arrivals = self._kind.arrivals()
        self.alarms: list[Any] = []
        self.n_batches = 0

    # -- rows in ---------------------------------------------------------------------------------------------------

    def update(
        self,
        X: Any = None,
        y: ArrayLike | None = None,
        *,
        q: ArrayLike | None = None,
        segment: Any = None,
        sample_weight: ArrayLike | None = None,
        clusters: ArrayLike | None = None,
        when: str | None = None,
        cohort: Any = None,
        now: Any = None,
    ) -> list[Any]:
        """Take a batch of rows whose labels are known.

        Parameters
        ----------
        X : rows as the model takes them, or use q
            New rows.
        y : array of shape (n,)
            Their labels, as the model knows them; 0/1 or class numbers without a model. One class alone is fine.
        q : array of shape (n,), or (n, K), optional
            Weighted probabilities of the positive class, or of every class, instead of X.
        segment : str or array of shape (n,), optional
            Segment of each row, or of all of them.
        sample_weight : array of shape (n,), optional
            Finite and not negative. A weight above the typical one of the reference rows counts as that one.
        clusters : array of shape (n,), optional
            Rows of the same cluster, such as those of one patient, count as one arrival.
        when : str, optional
            What the batch is called in records, such as "2024-05"; with ``delay`` it is called after its cohort.
        cohort : int, date or array of shape (n,) of them
            With ``delay``: the day, week or month in which each row was scored, as whole numbers or dates.
        now : int or date, optional
            With ``delay``: the present cohort; by default the latest one seen.

        Returns
        -------
        list of DriftAlarm, or of ClassDriftAlarm
            New alarms, empty where there are none.

        Raises
        ------
        InvalidInput
            If something cannot be used; the monitor is then as it was before.
        """
        if y is None:
            raise InvalidInput("update needs the labels y of the rows")
        if (X is None) == (q is None):
            raise InvalidInput("update needs either the rows X or their weighted probabilities q, and not both")
        if when is not None and (self._cohorts is not None or not isinstance(when, str)):
            raise InvalidInput(f"when must be text such as '2024-05', and is not given with delay=, got {when!r}")
        encoded = self._kind.encode(y)
        names = None if segment is None else row_segments(segment, encoded.size)
        unknown = [] if names is None else sorted(set(names.tolist()) - set(self.segments))
        if unknown:
            raise InvalidInput(
                f"segment must be one of those the monitor was made with ({', '.join(self.segments) or 'none'}), got "
                f"{unknown[0]!r}: their number shares out the false-alarm rate, so name them all in segments="
            )
        if self._cohorts is None and (cohort is not None or now is not None):
            raise InvalidInput("cohort and now need a monitor that holds rows back: make it with delay=")
        outputs = self._kind.outputs(X) if q is None else q
        if self._cohorts is None:
            return self._take(
                [(when, sums_by_segment(self._kind, encoded, outputs, sample_weight, names, None, clusters))]
            )
        if cohort is None:
            raise InvalidInput("a monitor with delay= needs the cohort of the rows, such as the date of their scoring")
        cohorts, are_dates = cohort_numbers(cohort, encoded.size)
        present, late = self._cohorts.present_of(now, cohorts, are_dates), self._cohorts.is_closed(cohorts)
        pieces = {
            int(one): sums_by_segment(self._kind, encoded, outputs, sample_weight, names, cohorts == one, clusters)
            for one in np.unique(cohorts[~late])
        }
        # From here on nothing can fail.
        for one, sums in pieces.items():
            self._cohorts.hold(one, sums)
        words = self._cohorts.leave_out(int(late.sum()), *self._kind.kinds(encoded[late])) if late.any() else ""
        return self._take(self._cohorts.release(present, are_dates), words)

    def release(self, now: Any) -> list[Any]:
        """With ``delay``: move on to the present cohort ``now`` without new rows; new alarms, as of `update`."""
        if self._cohorts is None:
            raise InvalidInput("release needs a monitor that holds rows back: make it with delay=")
        number, are_dates = cohort_numbers(now, 1)
        present = self._cohorts.present_of(None, number, are_dates)
        return self._take(self._cohorts.release(present, are_dates))

    def _take(self, batches: Iterable[tuple[str | None, Sums]], words: str = "") -> list[Any]:
        """Count named batches, look at every test that has rows in them, and warn last: nothing can fail before."""
        new, sentences = [], [words]
        for when, pieces in batches:
            self.n_batches += 1
            for name, sums in pieces.items():
                track: Any = self._tracks[name]
                track.add(sums, self.n_batches)
                if track.is_over and not any(alarm.segment == name for alarm in self.alarms):
                    new.append(track.alarm(when))
                    self.alarms.append(new[-1])
            sentences += [order.add(part(pieces[None])) for order, part in self._arrivals]
        for sentence in filter(None, sentences):
            warnings.warn(sentence, UserWarning, stacklevel=3)
        return new

    def _make_tracks(self, references: dict[str | None, Any]) -> dict[str | None, Track | ClassTrack]:
        share = self.false_alarm_rate / 2.0 if self.segments else self.false_alarm_rate
        levels: dict[str | None, float] = {None: share}
        levels |= {name: share / len(self.segments) for name in self.segments}
        none, settings = self._kind.no_sums(), (self.dispersion, self.drift_scale, self.tolerance)
        return {
            name: self._kind.track(name, level, references.get(name, none), *settings) for name, level in levels.items()
        }

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def delay(self) -> int | None:
        """Cohorts that labels are held back for, or None."""
        return None if self._cohorts is None else self._cohorts.delay

    @property
    def n_held(self) -> int:
        """Rows that wait for their cohort to be complete."""
        return 0 if self._cohorts is None else self._cohorts.n_held

    @property
    def n_late(self) -> int:
        """Rows left out because their cohort was complete already."""
        return 0 if self._cohorts is None else self._cohorts.n_late

    @property
    def history(self) -> dict[str | None, list[Any]]:
        """Readings by segment, None for all rows; old ones more coarsely."""
        return {name: list(track.history) for name, track in self._tracks.items()}

    @property
    def reference_error(self) -> Any:
        """Standard error, in log-odds, of what reference rows say about the model: infinite without such rows.

        A drift from the first row on that is not several times as large cannot be found, however long the stream. With
        more than two classes it is an array: of each class against all others.
        """
        return self._tracks[None].reference_error

    def __str__(self) -> str:
        n_reference = self._tracks[None].reference.n_rows
        against = "the stream's own past"
        if n_reference:
            known = self._tracks[None].known_to
            against = f"{n_reference:,} reference rows, which know the model to {known} log-odds"
        tolerated = f", tolerance {self.tolerance:g} log-odds" if self.tolerance else ""
        lines = [
            f"Key equation monitor: {self.n_batches} batches against {against}",
            f"  chance of any false alarm, ever: at most {self.false_alarm_rate:g}{tolerated}",
            *table_of_readings(self._tracks),
        ]
        if self._cohorts is not None:
            late = f", {self.n_late:,} left out: too late" if self.n_late else ""
            lines.append(f"  {self.n_held:,} rows wait for their cohort (delay {self._cohorts.delay}){late}")
        lines += [f"  ALARM: {alarm}" for alarm in self.alarms] or ["  no alarm"]
        return "\n".join(lines)

    def plot(self, ax: Any = None, *, quantity: str = "evidence") -> Any:
        """Draw the readings of every test.

        Parameters
        ----------
        ax : matplotlib axes, optional
            Where to draw; a new figure otherwise.
        quantity : "evidence", "z" or "drift"
            What to draw: evidence against the bar of each test, Z, or the estimated drift.

        Returns
        -------
        matplotlib axes
        """
        return draw_readings(self._tracks, self.alarms, ax, quantity)

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but the model, as JSON can hold it; its size does not grow with the number of batches."""
        return {
            "format": _FORMAT,
            "version": self._kind.version,
            **self._kind.state(),
            "false_alarm_rate": self.false_alarm_rate,
            "tolerance": self.tolerance,
            "drift_scale": self.drift_scale,
            "segments": list(self.segments),
            "n_batches": self.n_batches,
            "cohorts": None if self._cohorts is None else self._cohorts.state(),
            "arrival": self._kind.arrival_state(self._arrivals),
            "tracks": [track.state() for track in self._tracks.values()],
            "alarms": [plain(alarm) for alarm in self.alarms],
        }

    def to_json(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all."""
        content = json.dumps(self.state(), indent=1, allow_nan=False) + "\n"
        write_atomic(path, content)

    @classmethod
    def from_json(cls, path: str | Path, model: Any = None) -> KeyEquationMonitor:
        """Resume from a file that `to_json` wrote; the model is not in it.

        Raises
        ------
        InvalidInput
            If the file is no state of a monitor, or belongs to a model with another weighting.
        """
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"{path} must be a JSON file that KeyEquationMonitor.to_json wrote, got {error}"
            ) from error
        return cls.from_state(state, model)

    @classmethod
    def from_state(cls, state: Any, model: Any = None) -> KeyEquationMonitor:
        """Resume from what `state` gave: the next update gives the same as if there had been no break."""
        if item_of(state, "format") != _FORMAT or item_of(state, "version") not in _READABLE:
            raise InvalidInput(
                f"the state must be of the format {_FORMAT!r}, version {max(_READABLE)}, got "
                f"{short(state['format'])}, version {short(state['version'])}"
            )
        of = SeveralClasses if state["version"] == SeveralClasses.version else TwoClasses
        kind = of.from_state(state, model)
        made = cls(
            segments=list_of(state, "segments"),
            false_alarm_rate=number_of(state, "false_alarm_rate"),
            tolerance=number_of(state, "tolerance"),
            drift_scale=number_of(state, "drift_scale"),
        )
        made.model, made._kind, made._arrivals = model, kind, kind.arrivals()
        stored = list_of(state, "tracks")
        names = [item_of(track, "segment") for track in stored]
        if names != list(made._tracks):
            raise InvalidInput(f"the state must have one track for all rows and for each segment, got {short(names)}")
        references = {name: kind.read_sums(track, "reference") for name, track in zip(names, stored, strict=True)}
        made.dispersion = kind.dispersion(references[None])
        made._tracks = made._make_tracks(references)
        for name, track in zip(names, stored, strict=True):
            made._tracks[name].restore(track)
        made.alarms = [kind.read_alarm(alarm) for alarm in list_of(state, "alarms")]
        made.n_batches = count_of(state, "n_batches")
        held = item_of(state, "cohorts")
        made._cohorts = None if held is None else Cohorts.from_state(held, made.segments, kind.read_sums)
        kind.restore_arrivals(made._arrivals, state)
        return made


def _kind_of(model: Any, weighting: Any, q_reference: Any) -> Kind:
    n_classes = n_classes_of(model, weighting, q_reference)
    price = getattr(model, "weighting_", weighting)
    is_of_classes = isinstance(price, Price) and price.positive is None
    if n_classes > 2 or is_of_classes:
        return SeveralClasses(model, weighting, n_classes)
    return TwoClasses(model, weighting)
