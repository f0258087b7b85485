"""A model of several classes at work: new rows beside those of training, decisions and their cost, what labels say."""

import hashlib
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crcen import CostMatrix, InvalidInput
from crcen._support.files import write_atomic
from crcen._support.progress import counted
from crcen._support.text import listed
from crcen._support.values import json_value
from crcen.commands.inputs import Source, labels_as
from crcen.commands.prices import stated_costs
from crcen.commands.scored_chunks import CHUNK_ROWS, Oddities, class_chunks
from crcen.commands.watch_page import watch_page
from crcen.commands.watch_state import WatchState
from crcen.theory.rows import Shown

__all__ = ["ClassTableWatch", "watch_classes"]


@dataclass(frozen=True, eq=False)
class ClassTableWatch(Shown):
    """What a call of a watch of several classes found; prints itself as a paragraph.

    Parameters
    ----------
    data : str
        The rows.
    call : int
        Number of the call, from 1.
    n_rows, n_labelled : int
        Rows, and those with a label.
    decided : dict of label to int
        How many rows got each decision.
    expected_cost : float
        What a row is expected to cost, if the probabilities are still right.
    unlike : tuple of Difference
        In what the rows differ from training rows beyond chance.
    alarms : tuple of ClassDriftAlarm
        Of the labels, over all calls so far.
    reading : ClassReading or None
        Where the test of labels stands; None before the first label.
    labels : tuple
        The classes.
    error_rate : float
        Chance of any false alarm over all calls.
    notes : tuple of str
        What was odd about the table.
    path, page : Path or None
        The state and the HTML page, where they were written.
    """

    data: str
    call: int
    n_rows: int
    n_labelled: int
    decided: dict[Any, int]
    expected_cost: float
    unlike: tuple[Any, ...]
    alarms: tuple[Any, ...]
    reading: Any
    labels: tuple[Any, ...]
    error_rate: float
    notes: tuple[str, ...] = ()
    path: Path | None = None
    page: Path | None = None

    @property
    def is_alarm(self) -> bool:
        """Whether columns or labels say that something changed."""
        return bool(self.unlike or self.alarms)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        reading = None
        if self.reading is not None:
            reading = {
                "rows": self.reading.n_rows,
                "by_class": list(self.reading.counts),
                "drift": [json_value(one) for one in self.reading.drift],
                "log_evidence": json_value(self.reading.log_evidence),
            }
        return {
            "data": self.data,
            "call": self.call,
            "is_alarm": self.is_alarm,
            "rows": self.n_rows,
            "labelled": self.n_labelled,
            "decided": {str(json_value(label)): n for label, n in self.decided.items()},
            "expected_cost_per_row": self.expected_cost,
            "expected": {"cost_per_1000": dict.fromkeys(("value", "low", "high"), 1000.0 * self.expected_cost)},
            "unlike": [one.to_dict() for one in self.unlike],
            "alarms": [str(one) for one in self.alarms],
            "labels": reading,
            "error_rate": self.error_rate,
            "notes": list(self.notes),
            "path": None if self.path is None else str(self.path),
            "page": None if self.page is None else str(self.page),
        }

    def __repr__(self) -> str:
        word = "alarm" if self.is_alarm else "quiet"
        return f"<ClassTableWatch {word}: call {self.call}, {self.n_rows:,} rows, {self.n_labelled:,} with labels>"

    def __str__(self) -> str:
        lines = ["ALARM" if self.is_alarm else "Quiet", self._sentences()]
        lines += [f"Note: {note}." for note in self.notes]
        lines += [f"State in {self.path}"] if self.path is not None else []
        lines += [f"Page in {self.page}"] if self.page is not None else []
        return "\n".join(lines)

    def _sentences(self) -> str:
        """The paragraph."""
        decided = listed((f"{n:,} {label}" for label, n in self.decided.items()), most=12)
        columns = "The columns are like those of training as far as chance can tell."
        if self.unlike:
            columns = f"Unlike training: {'; '.join(one.sentence for one in self.unlike)}."
        return " ".join(
            [
                f"{self.data}, call {self.call}: {self.n_rows:,} rows, decided {decided}.",
                columns,
                "If the probabilities are still right, which no column can tell, a row is expected to cost "
                f"{self.expected_cost:.4g}.",
                self.label_sentence,
                f"All calls of this watch together raise a false alarm with a chance of at most {self.error_rate:g}.",
            ]
        )

    @property
    def label_sentence(self) -> str:
        """What labels say so far."""
        if self.reading is None:
            return "No label has come yet."
        so_far = f"{self.reading.n_rows:,} labels so far"
        if self.alarms:
            return f"Of the labels ({so_far}): {'; '.join(map(str, self.alarms))}."
        known = [k for k, drift in enumerate(self.reading.drift) if math.isfinite(drift)]
        if not known:
            return f"{so_far}: too few to say anything."
        most = max(known, key=lambda k: abs(self.reading.drift[k]))
        said = f"{so_far}: most off is {self.labels[most]}, by {self.reading.drift[most]:+.2f} in log-odds"
        if self.reading.log_evidence == 0.0:  # exactly: the test has not been opened
            return f"{said}, which was not tested yet: too few rows of a class, here or held out of training."
        return f"{said}, which is no alarm (evidence {math.exp(min(self.reading.log_evidence, 700.0)):.3g} : 1)."


@dataclass
class _Looked:
    """Rows scored."""

    n_rows: int = 0
    cost: float = 0.0
    decided: Any = 0
    y: list[Any] = field(default_factory=list)
    p: list[Any] = field(default_factory=list)


def watch_classes(
    model: Any,
    source: Source,
    kept: WatchState,
    *,
    label: str | None,
    weighting: Any,
    costs: Any,
    when: str,
    state: Any,
    page: Any,
    verbose: int,
) -> ClassTableWatch:
    """A call of a watch: rows scored and compared, labels given to the test, state and page written."""
    rule = stated_costs(weighting, costs, model)
    odd, digest = Oddities.none(model), hashlib.blake2b(digest_size=16)
    found = _scored(model, source, rule, odd, label, digest, verbose)
    notes = [*source.notes, *odd.notes]
    if found.y:
        _count_labels(kept, np.concatenate(found.y), np.concatenate(found.p), model, when, digest.hexdigest(), notes)
    readings = kept.monitor.history[None]
    names = [*model.classes_.tolist(), *rule.actions]
    watch = ClassTableWatch(
        data=source.name,
        call=kept.n_calls + 1,
        n_rows=found.n_rows,
        n_labelled=sum(len(one) for one in found.y),
        decided=dict(zip(names, found.decided.tolist(), strict=True)),
        expected_cost=found.cost / found.n_rows,
        unlike=odd.watch.unlike(0, -1, None, kept.input_error_rate),
        alarms=tuple(kept.monitor.alarms),
        reading=readings[-1] if readings else None,
        labels=tuple(model.classes_.tolist()),
        error_rate=kept.error_rate,
        notes=tuple(notes),
        path=None if state is None else Path(state),
        page=None if page is None else Path(page),
    )
    kept.add({"when": when, "digest": digest.hexdigest(), **watch.to_dict()})
    if page is not None:
        write_atomic(page, watch_page(watch, kept))
    if state is not None:
        write_atomic(state, kept.text())
    return watch


def _scored(
    model: Any, source: Source, rule: CostMatrix, odd: Oddities, label: str | None, digest: Any, verbose: int
) -> _Looked:
    found = _Looked(decided=np.zeros(rule.costs.shape[1], dtype=np.int64))
    ignored = set() if label is None else {label}
    with counted("rows", source.n_rows, visible=bool(verbose)) as done:
        for chunk, p in class_chunks(model, source, odd, ignored, CHUNK_ROWS):
            expected = rule.expected(p)
            found.n_rows, found.cost = found.n_rows + len(p), found.cost + float(expected.min(axis=1).sum())
            found.decided += np.bincount(expected.argmin(axis=1), minlength=expected.shape[1])
            known = None if label is None else chunk[label].notna().to_numpy()
            if known is not None and known.any():
                found.y.append(labels_as(chunk[label][known], model.classes_, str(label)))
                found.p.append(p[known])
                digest.update(found.y[-1].tobytes() + found.p[-1].tobytes())
            done(len(p))
    return found


def _count_labels(kept: WatchState, y: Any, p: Any, model: Any, when: str, digest: str, notes: list[str]) -> None:
    """Give labelled rows to the test; those that were given before are refused."""
    for call in kept.history:
        if call.get("digest") == digest and call.get("labelled"):
            raise InvalidInput(
                f"these labelled rows were counted before, in call {call.get('call')} ({call.get('when')}): counted "
                "twice they would pass for new evidence."
            )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        kept.monitor.update(q=model.weighting_.weighted(p), y=model.classes_[y], when=when)
    notes.extend(str(one.message).rstrip(".") for one in said)
