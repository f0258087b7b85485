"""A model that answers requests: rows in, probabilities, decisions, notes and reasons out."""

import hashlib
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import CrcenError, InvalidInput, TableClassifier, load
from crcen._support.text import closest, listed
from crcen._support.values import json_value
from crcen.commands.inputs import require, require_input
from crcen.commands.rules import RowRule, with_default
from crcen.serve.requests import FrameRows, Row, shown
from crcen.theory.goals import ThresholdGoal
from crcen.theory.price import Goal, Price, sigmoid
from crcen.theory.selective import AUDIT_FLOOR, audit_probabilities, audit_scores

Array = NDArray[np.float64]

# Up to this many rows are read cell by cell, with notes for each row; more are read as a data frame.
FEW_ROWS = 64
_MOST_EXPLAINED = 1_000
_CHUNK_ROWS = 20_000
_DATATYPES = {"number": "FP64", "boolean": "BOOL"}
_NOTES = {
    "clipped": "is far outside the training range",
    "unseen": "was not seen in training, or was rare",
    "missing": "is missing, which never occurred in training",
}
_UNREADABLE = {"number": "a finite number", "boolean": "true or false", "date": "a date"}


@dataclass(frozen=True, eq=False)
class Scored:
    """Decided rows."""

    p: Array  # natural probabilities
    chosen: NDArray[np.int64]  # decisions as positions in `names`
    names: list[object]  # labels, then actions
    threshold: float | None  # probability above which a row gets an alarm, for two classes without further actions
    notes: list[list[str]]  # how each row is unlike training; empty lists for many rows
    all_notes: list[str]  # the same counted over all rows
    n_unlike: int  # rows with a note; cells with one for many rows

    @property
    def decisions(self) -> list[object]:
        """Label or action of each row."""
        return [self.names[i] for i in self.chosen.tolist()]


class ServedModel:
    """A loaded model file; its name without the extension is the name of the model."""

    def __init__(self, path: Path, default_action: str | None = None, audit: float = 0.0) -> None:
        self.path, self.name = path, path.name.removesuffix(".crcen")
        try:
            self.version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            self.model: TableClassifier = load(path)
        except OSError as error:
            if isinstance(error, CrcenError):
                raise
            raise InvalidInput(f"{path} cannot be read: {error.strerror or error}.") from error
        of_table = f"{path} must be a model of a table, as crcen fit writes it: got {type(self.model).__name__}."
        require_input(hasattr(self.model, "columns_"), of_table)
        self.columns = {column.name: column for column in self.model.columns_}
        self.classes: list[int | str] = [json_value(label) for label in self.model.classes_]
        self.target: str | None = getattr(self.model, "target_name_", None)
        self._known = {*map(str, self.model.feature_names_in_), str(self.target)}
        own, costs = self.model.weighting_, getattr(self.model, "costs_", None)
        self.price: Price = own if costs is None or own.costs else Price(own.weights, own.counts, costs, own.positive)
        self.positive: int | None = own.positive
        rule = with_default(RowRule(tuple(self.classes), self.price), default_action)
        # The decision that raises no alarm: the negative class, or by default the most frequent one
        self.default: object = rule.names[rule.default]
        self._audit, self._audit_scale = audit, self._scale_of_audits(audit) if audit else None

    def metadata(self) -> dict[str, object]:
        """Inputs and outputs for the inference protocol."""
        inputs = [
            {
                "name": name,
                "datatype": _DATATYPES.get(one.kind, "BYTES"),
                "shape": [-1],
                "parameters": {"kind": one.kind},
            }
            for name, one in self.columns.items()
        ]
        if self.positive is not None:
            shape, labels = [-1], {"positive": str(self.classes[self.positive])}
        else:
            shape, labels = [-1, len(self.classes)], {"classes": ",".join(map(str, self.classes))}
        outputs = [
            {"name": "probability", "datatype": "FP64", "shape": shape, "parameters": labels},
            {"name": "decision", "datatype": "BYTES", "shape": [-1]},
        ]
        about = {"name": self.name, "versions": [self.version], "platform": "crcen"}
        return {**about, "inputs": inputs, "outputs": outputs}

    def score(self, rows: Sequence[Row], price: Price | Goal, id_column: str | None = None) -> Scored:
        """Decide rows."""
        X, notes, all_notes, n_unlike = self._encode(
            rows, self._known if id_column is None else self._known | {id_column}
        )
        pieces = [X[i : i + _CHUNK_ROWS] for i in range(0, len(X), _CHUNK_ROWS)]
        p = np.concatenate([self.model.estimator_.predict_proba(piece) for piece in pieces])
        actions = price.costs.actions if isinstance(price, Price) and price.costs is not None else ()
        if isinstance(price, ThresholdGoal):
            assert self.positive is not None  # goals are refused without a positive class
            met = price.meet(p[:, self.positive])
            chosen, threshold = np.where(met.alarms, self.positive, 1 - self.positive), json_value(met.thresholds[0])
        else:
            assert isinstance(price, Price)
            chosen = np.asarray(price.decide(p), dtype=np.int64)
            threshold = price.threshold if price.positive is not None and not actions else None
        return Scored(p, chosen, [*self.classes, *actions], threshold, notes, all_notes, n_unlike)

    def probabilities(self, scored: Scored) -> Sequence[object]:
        """Of the positive class, or an object with one for each class."""
        if self.positive is not None:
            found: list[float] = scored.p[:, self.positive].tolist()
            return found
        labels = [str(label) for label in self.classes]
        return [dict(zip(labels, row, strict=True)) for row in scored.p.tolist()]

    def _scale_of_audits(self, share: float) -> float | None:
        """What multiplies audit scores so that the expected share holds on training rows; None for equal shares."""
        profile, price = getattr(self.model, "profile_", None), self.model.weighting_
        if price.positive is None or profile is None or not profile.scores:
            return None
        p = sigmoid(np.asarray(profile.scores[-1]))
        scores, quiet = audit_scores(price.by_column(p, 1.0 - p), price.weights), p <= price.threshold
        if not quiet.any():
            return None
        e = audit_probabilities(scores, quiet, share * float(quiet.sum()))[quiet]
        inside = (e > 1.0001 * e.min()) & (e < 1.0) & (scores[quiet] > 0.0)
        return float(np.median(e[inside] / scores[quiet][inside])) if inside.any() else None

    def audit_probabilities(self, p: Array, quiet: NDArray[np.bool_]) -> Array:
        """The probability of an audit of each row: 1 for alarms."""
        e = np.full(len(p), self._audit)
        if self._audit_scale is not None:
            scores = audit_scores(p, self.model.weighting_.weights)
            e = np.clip(self._audit_scale * scores, AUDIT_FLOOR * self._audit, 1.0)
        return np.where(quiet, e, 1.0)

    def plain_rows(self, rows: Iterable[Row]) -> list[Row]:
        """The model's columns of each row."""
        return [{name: row.get(name) for name in self.columns} for row in rows]

    def input_hashes(self, rows: Iterable[Row]) -> list[str]:
        """A hash of the model's columns of each row."""
        texts = (json.dumps(list(row.values()), default=str) for row in self.plain_rows(rows))
        return [hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in texts]

    def _encode(self, rows: Sequence[Row], known: set[str]) -> tuple[Array, list[list[str]], list[str], int]:
        """Encoded rows, notes of each of few rows, notes about all rows, and rows (for many: cells) with a note."""
        columns, unknown = self.columns.keys(), dict[str, None]()
        frame = rows.frame if isinstance(rows, FrameRows) and len(rows) > FEW_ROWS else None
        key_sets = dict.fromkeys(map(frozenset, rows) if frame is None else [frozenset(frame.columns)])
        for keys in key_sets:
            if not keys & columns:
                number = next(i for i, row in enumerate(rows, 1) if row.keys() == keys)
                raise InvalidInput(
                    f"{f'row {number}' if len(rows) > 1 else 'the row'} has none of the model's columns, "
                    f"{listed(columns)}: got {listed(sorted(keys), longest=40) or 'no column'}."
                )
            extra, left_out = sorted(keys - known), columns - keys
            for name in extra if left_out else ():
                if (meant := closest(name, left_out)) is not None:
                    raise InvalidInput(f"unknown column {name[:60]!r}: did you mean {meant}?")
            unknown.update(dict.fromkeys(extra))
        cells = {} if frame is not None else {name: [row.get(name) for row in rows] for name in self.columns}
        for name, values in cells.items():
            if not _is_plain(values):
                for number, cell in enumerate(values, 1):
                    if isinstance(cell, float | int | list | dict) and (wanted := _wanted(cell)) is not None:
                        raise _invalid_cell(name, wanted, cell, number, len(rows))
        all_notes = [f"unknown column ignored: {name}" for name in unknown]
        if len(rows) <= FEW_ROWS:
            found, notes = [], []
            for number, row in enumerate(rows, 1):
                encoded = self.model.encode({name: row.get(name) for name in self.columns})
                for name in encoded.unreadable:
                    raise self._unreadable(name, row[name], number, len(rows))
                found.append(encoded.X)
                notes.append([f"column missing: {name}" for name in self.columns if name not in row])
                for kind, text in _NOTES.items():
                    names = [name for name in getattr(encoded, kind) if name in row]
                    notes[-1] += [f"{name}: {shown(row[name])} {text}" for name in names]
            return np.concatenate(found), notes, all_notes, sum(map(bool, notes))
        absent = [name for name in self.columns if not any(name in keys for keys in key_sets)]
        frame = pd.DataFrame(cells) if frame is None else frame.assign(**dict.fromkeys(absent))
        encoded = self.model.encode(frame)
        for name in encoded.unreadable:
            for number, cell in enumerate(frame[name].tolist(), 1):
                if self.model.encode({**dict.fromkeys(self.columns), name: cell}).unreadable:
                    raise self._unreadable(name, cell, number, len(rows))
        counts, n_unlike = [f"column missing: {name}" for name in absent], 0
        for kind, text in _NOTES.items():
            for name, n in getattr(encoded, kind).items():
                if name not in absent:
                    n_unlike += n
                    counts.append(f"{name}: {n} {'cell' if n == 1 else 'cells'} where the value {text}")
        return encoded.X, [[]] * len(rows), counts + all_notes, n_unlike

    def _unreadable(self, name: str, cell: object, number: int, n: int) -> InvalidInput:
        kind = self.columns[name].kind
        return _invalid_cell(name, _UNREADABLE.get(kind, f"a {kind}"), cell, number, n)

    def reasons(self, rows: Sequence[Row], number: int, scored: Scored) -> dict[str, Sequence[object]]:
        """The strongest reasons of every row in words; for several classes also the two classes that they compare."""
        require(1 <= number <= 100, f"reasons must be a whole number from 0 to 100: got {number}.")
        most = f"reasons are given for at most {_MOST_EXPLAINED:,} rows a request: got {len(rows):,}."
        require_input(len(rows) <= _MOST_EXPLAINED, most)
        frame = pd.DataFrame({name: [row.get(name) for row in rows] for name in self.model.feature_names_in_})
        if self.positive is not None:
            return {"reasons": self.model.reasons(frame).sentences(number)}
        # For another action than a class, the most probable class is explained.
        numbers = np.where(scored.chosen < len(self.classes), scored.chosen, scored.p.argmax(axis=1))
        found = self.model.reasons(frame, classes=self.model.classes_[numbers])
        return {"reasons_for": found.comparisons, "reasons": found.sentences(number)}


def _is_plain(values: list[object]) -> bool:
    """Whether a column has texts alone, or finite numbers alone; other columns are checked cell by cell."""
    kinds = {*map(type, values)}
    if len(values) <= FEW_ROWS or not kinds <= {float, int, type(None)}:
        return kinds <= {str, bool, type(None)}
    try:
        return not np.isinf(np.array(values, dtype=np.float64)).any()
    except OverflowError:
        return False


def _wanted(cell: float | int | list[object] | dict[str, object]) -> str | None:
    """What a cell must be, if it holds several values or a number that is not finite in double precision."""
    if isinstance(cell, list | dict):
        return "one value"
    if isinstance(cell, float):
        return "a finite number" if math.isinf(cell) else None
    return None if abs(cell) <= 1e300 else "a number below 1e300"


def _invalid_cell(name: str, wanted: str, cell: object, number: int, n: int) -> InvalidInput:
    where = "" if n == 1 else f" in row {number}"
    return InvalidInput(f"{name} must be {wanted}{where}: got {shown(cell)}; null is missing.")
