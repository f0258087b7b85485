"""KeyEquationMonitor: is the model still right, as labels arrive? One false-alarm rate for a stream's whole life."""

import json
import math
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from crcen._support.extras import need
from crcen._support.whole_files import write_whole
from crcen.decisions.monitor.rows import (
    has_weighting,
    lam_of,
    out_of_fold_outputs,
    outputs_of,
    positive_rows,
    row_segments,
    segment_names,
    sums_by_segment,
)
from crcen.decisions.monitor.sequential_test import dispersion_of
from crcen.decisions.monitor.track import (
    DriftAlarm,
    MonitorReading,
    Track,
    from_plain,
    item_of,
    list_of,
    number_of,
    plain,
    sums_from,
)
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.residual_test import ResidualSums
from crcen.theory.specs import positive_number
from crcen.theory.weighting import WeightingLike

__all__ = ["KeyEquationMonitor"]

_FORMAT, _VERSION = "crcen monitor", 1
_QUANTITIES = {
    "evidence": "evidence, powers of ten over the bar",
    "z": "Z against the model alone",
    "drift": "drift in log-odds",
}


class KeyEquationMonitor:
    """Watch the key equation on new rows as their labels arrive, and raise an alarm when the model has gone wrong.

    The residual Σ w(y−q) of new rows is compared with that of reference rows, both with their own error, after every
    batch and for as long as one likes: the chance of *any* false alarm, over all segments and the whole life of the
    stream, is at most ``false_alarm_rate``. Changes after a quiet time are looked for as well as those from the first
    row on.

    Parameters
    ----------
    model : fitted classifier, optional
        One of ours, whose weighted probabilities q are used with their weighting, or any binary classifier with
        ``predict_proba``. Without a model pass ``q`` to `update`, and 0/1 labels.
    weighting : Lam, CostRatio, Budget, float or None
        What q was trained under, where no model of ours says it; None (λ = ½) for natural probabilities.
    y_reference : array of shape (n,), optional
        Labels of rows that the model was not fitted on. With a `CRCENClassifierCV` and no ``q_reference`` they are its
        training labels in the order of `fit`, used with its out-of-fold probabilities. Without them each stream is
        compared with its own past alone: a model that is wrong from the first row on is not found then.
    q_reference : array of shape (n,), optional
        Weighted probabilities of the reference rows.
    segment_reference, sample_weight_reference : arrays of shape (n,), optional
        Segments and weights of the reference rows.
    segments : sequence of str, optional
        Segments to watch one by one besides all rows; by default those of ``segment_reference``. All rows spend half of
        the false-alarm rate and the segments an equal share of the other half (Bonferroni).
    false_alarm_rate : float, default=0.05
        Chance of any false alarm, ever.
    tolerance : float, default=0
        Drift in log-odds that is no reason for an alarm.
    drift_scale : float, default=0.3
        Size of drift in log-odds, beyond the tolerance, to which the test is tuned. It detects others too.

    Attributes
    ----------
    alarms : list of DriftAlarm
        The first alarm of every test that had one.
    history : dict of lists of MonitorReading
        Readings after each batch, by segment; None is the key of all rows.
    n_batches : int
        Batches so far.

    Notes
    -----
    It assumes independent rows at the natural class ratio, labels that arrive whatever they are, and reference rows
    from the time when the model was right. docs/monitor.md derives the test and measures it.

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
        weighting: WeightingLike = None,
        y_reference: ArrayLike | None = None,
        q_reference: ArrayLike | None = None,
        segment_reference: ArrayLike | None = None,
        sample_weight_reference: ArrayLike | None = None,
        segments: Any = None,
        false_alarm_rate: float = 0.05,
        tolerance: float = 0.0,
        drift_scale: float = 0.3,
    ) -> None:
        self.model = model
        self._lam = lam_of(model, weighting)
        self.false_alarm_rate = positive_number(false_alarm_rate, "false_alarm_rate")
        if self.false_alarm_rate >= 1.0:
            raise InvalidParameter(f"false_alarm_rate must lie between 0 and 1, got {self.false_alarm_rate:g}")
        self.drift_scale = positive_number(drift_scale, "drift_scale")
        self.tolerance = 0.0 if tolerance == 0 else positive_number(tolerance, "tolerance")
        if self.tolerance > 3.0:
            raise InvalidParameter(
                f"tolerance must be at most 3 log-odds, got {self.tolerance:g}: did you mean a share?"
            )
        references = self._references(y_reference, q_reference, segment_reference, sample_weight_reference)
        named = [name for name in references if name is not None]
        self.segments = named if segments is None else segment_names(segments)
        self.dispersion = dispersion_of(references[None])
        self._tracks = self._make_tracks(references)
        self.alarms: list[DriftAlarm] = []
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
        when: str | None = None,
    ) -> list[DriftAlarm]:
        """Take a batch of rows whose labels are known.

        Parameters
        ----------
        X : rows as the model takes them, or use q
            New rows.
        y : array of shape (n,)
            Their labels, as the model knows them; 0/1 without a model. One class alone is fine.
        q : array of shape (n,), optional
            Weighted probabilities of the positive class instead of X.
        segment : str or array of shape (n,), optional
            Segment of each row, or of all of them.
        sample_weight : array of shape (n,), optional
            Finite and not negative.
        when : str, optional
            What the batch is called in records, such as "2024-05".

        Returns
        -------
        list of DriftAlarm
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
        if when is not None and not isinstance(when, str):
            raise InvalidInput(f"when must be text such as '2024-05', got {when!r}")
        positive = positive_rows(self.model, y)
        names = None if segment is None else row_segments(segment, positive.size)
        unknown = [] if names is None else sorted(set(names.tolist()) - set(self.segments))
        if unknown:
            raise InvalidInput(
                f"segment must be one of those the monitor was made with ({', '.join(self.segments) or 'none'}), got "
                f"{unknown[0]!r}: their number shares out the false-alarm rate, so name them all in segments="
            )
        outputs = outputs_of(self.model, X) if q is None else q
        pieces = sums_by_segment(positive, outputs, self._lam, sample_weight, names)
        # From here on nothing can fail.
        self.n_batches += 1
        new = []
        for name, sums in pieces.items():
            track = self._tracks[name]
            track.add(sums, self.n_batches)
            if track.is_over and not any(alarm.segment == name for alarm in self.alarms):
                new.append(track.alarm(when))
                self.alarms.append(new[-1])
        return new

    # -- the reference -----------------------------------------------------------------------------------------------

    def _references(
        self, y: ArrayLike | None, q: ArrayLike | None, segment: Any, sample_weight: ArrayLike | None
    ) -> dict[str | None, ResidualSums]:
        """Sums of the reference rows: all of them, and each segment's."""
        if y is None:
            for name, given in (("q", q), ("segment", segment), ("sample_weight", sample_weight)):
                if given is not None:
                    raise InvalidInput(f"{name}_reference needs the labels y_reference of the same rows")
            return {None: ResidualSums()}
        positive = positive_rows(self.model, y)
        outputs = out_of_fold_outputs(self.model, positive, sample_weight) if q is None else q
        names = None if segment is None else row_segments(segment, positive.size)
        n_pos = int(positive.sum())
        if not 0 < n_pos < positive.size:
            raise InvalidInput(f"y_reference must have both classes, got {n_pos} positives of {positive.size} rows")
        return sums_by_segment(positive, outputs, self._lam, sample_weight, names)

    def _make_tracks(self, references: dict[str | None, ResidualSums]) -> dict[str | None, Track]:
        share = self.false_alarm_rate / 2.0 if self.segments else self.false_alarm_rate
        levels: dict[str | None, float] = {None: share}
        levels |= {name: share / len(self.segments) for name in self.segments}
        return {
            name: Track(
                name, level, references.get(name, ResidualSums()), self.dispersion, self.drift_scale, self.tolerance
            )
            for name, level in levels.items()
        }

    # -- what it says ----------------------------------------------------------------------------------------------

    @property
    def history(self) -> dict[str | None, list[MonitorReading]]:
        """Readings after each batch, by segment; None is the key of all rows."""
        return {name: list(track.history) for name, track in self._tracks.items()}

    @property
    def reference_error(self) -> float:
        """Standard error, in log-odds, of what reference rows say about the model: infinite without such rows.

        A drift from the first row on that is not several times as large cannot be found, however long the stream.
        """
        information = self._tracks[None].test.reference.information
        return 1.0 / math.sqrt(information) if information > 0.0 else math.inf

    def __str__(self) -> str:
        n_reference = self._tracks[None].reference.n_rows
        against = "the stream's own past"
        if n_reference:
            against = f"{n_reference:,} reference rows, which know the model to ± {self.reference_error:.2g} log-odds"
        tolerated = f", tolerance {self.tolerance:g} log-odds" if self.tolerance else ""
        heads = (("rows", 10), ("positive", 10), ("Z", 8), ("Z (ref.)", 10), ("drift", 8), ("evidence", 12), ("bar", 9))
        lines = [
            f"Key equation monitor: {self.n_batches} batches against {against}",
            f"  chance of any false alarm, ever: at most {self.false_alarm_rate:g}{tolerated}",
            f"  {'rows of':<16}" + "".join(f"{head:>{width}}" for head, width in heads),
        ]
        for name, track in self._tracks.items():
            label = "all" if name is None else name
            if not track.history:
                lines.append(f"  {label:<16}{'no rows yet':>10}")
                continue
            last = track.history[-1]
            evidence = math.exp(min(last.log_evidence, 700.0))
            lines.append(
                f"  {label:<16}{last.n_rows:>10,}{last.n_pos:>10,}{last.z:>8.2f}{last.z_reference:>10.2f}"
                f"{last.drift:>+8.2f}{evidence:>12.3g}{1.0 / track.level:>9.4g}"
            )
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
        if quantity not in _QUANTITIES:
            raise InvalidParameter(f"quantity must be one of {', '.join(_QUANTITIES)}, got {quantity!r}")
        if ax is None:
            _, ax = need("matplotlib.pyplot", "plots").subplots()
        for name, track in self._tracks.items():
            values = [
                (r.log_evidence + math.log(track.level)) / math.log(10.0)
                if quantity == "evidence"
                else getattr(r, quantity)
                for r in track.history
            ]
            label, width = ("all rows", 2.0) if name is None else (name, 1.0)
            (line,) = ax.plot([r.batch for r in track.history], values, marker=".", linewidth=width, label=label)
            for alarm in self.alarms:
                if alarm.segment == name:
                    ax.axvline(alarm.batch, color=line.get_color(), linestyle=":")
        bar = {"label": "alarm", "linestyle": "--"} if quantity == "evidence" else {"linewidth": 0.8}
        ax.axhline(0.0, color="black", **bar)
        ax.set(xlabel="batch", ylabel=_QUANTITIES[quantity])
        ax.legend()
        return ax

    # -- state -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Everything but the model, as JSON can hold it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "lam": self._lam,
            "false_alarm_rate": self.false_alarm_rate,
            "tolerance": self.tolerance,
            "drift_scale": self.drift_scale,
            "segments": list(self.segments),
            "n_batches": self.n_batches,
            "tracks": [track.state() for track in self._tracks.values()],
            "alarms": [plain(alarm) for alarm in self.alarms],
        }

    def to_json(self, path: str | Path) -> None:
        """Write the state to a file, whole or not at all."""
        content = json.dumps(self.state(), indent=1, allow_nan=False) + "\n"
        write_whole(path, content)

    @classmethod
    def from_json(cls, path: str | Path, model: Any = None) -> "KeyEquationMonitor":
        """Resume from a file that `to_json` wrote; the model is not in it.

        Raises
        ------
        InvalidInput
            If the file is no state of a monitor, or belongs to a model with another weighting.
        """
        try:
            state = json.loads(Path(path).read_text(encoding="utf-8"))
        except ValueError as error:
            raise InvalidInput(
                f"{path} must be a JSON file that KeyEquationMonitor.to_json wrote, got {error}"
            ) from error
        return cls.from_state(state, model)

    @classmethod
    def from_state(cls, state: Any, model: Any = None) -> "KeyEquationMonitor":
        """Resume from what `state` gave: the next update gives the same as if there had been no break."""
        if item_of(state, "format") != _FORMAT or item_of(state, "version") != _VERSION:
            raise InvalidInput(
                f"the state must be of the format {_FORMAT!r}, version {_VERSION}, got {state['format']!r}, "
                f"version {state['version']!r}"
            )
        lam = float(number_of(state, "lam"))
        made = cls(
            model,
            weighting=None if has_weighting(model) else lam,
            segments=list_of(state, "segments"),
            false_alarm_rate=float(number_of(state, "false_alarm_rate")),
            tolerance=float(number_of(state, "tolerance")),
            drift_scale=float(number_of(state, "drift_scale")),
        )
        if made._lam != lam:
            raise InvalidInput(f"the state belongs to a model with λ = {lam!r}, got one with λ = {made._lam!r}")
        stored = list_of(state, "tracks")
        names = [item_of(track, "segment") for track in stored]
        if names != list(made._tracks):
            raise InvalidInput(f"the state must have one track for all rows and for each segment, got {names}")
        references = {name: sums_from(track, "reference") for name, track in zip(names, stored, strict=True)}
        made.dispersion = dispersion_of(references[None])
        made._tracks = made._make_tracks(references)
        for name, track in zip(names, stored, strict=True):
            made._tracks[name].restore(track)
        made.alarms = [from_plain(DriftAlarm, alarm) for alarm in list_of(state, "alarms")]
        made.n_batches = int(number_of(state, "n_batches"))
        return made
