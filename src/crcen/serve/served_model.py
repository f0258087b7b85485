"""A model that answers requests: rows in, probabilities, decisions, notes and reasons out."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import CrcenError, InvalidInput, InvalidParameter, TableClassifier, load
from crcen._support.text import closest, listed
from crcen._support.values import json_value
from crcen.commands.audits import with_default
from crcen.commands.rules import RowRule
from crcen.serve.requests import Row, model_price, shown
from crcen.theory.goals import ThresholdGoal
from crcen.theory.price import Goal, Price

if TYPE_CHECKING:
    from crcen.serve.requests import Rows

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
    names: list[Any]  # labels, then actions
    threshold: float | None  # probability above which a row gets an alarm, for two classes without further actions
    notes: list[list[str]]  # how each row is unlike training; empty lists for many rows
    all_notes: list[str]  # the same counted over all rows
    n_unlike: int  # rows with a note; cells with one for many rows

    @property
    def decisions(self) -> list[Any]:
        """Label or action of each row."""
        return [self.names[i] for i in self.chosen.tolist()]

    def is_decided(self, name: object) -> NDArray[np.bool_]:
        """Rows with this decision."""
        return np.asarray(self.chosen == (self.names.index(name) if name in self.names else -1))


class ServedModel:
    """A loaded model file; its name without the extension is the name of the model."""

    def __init__(self, path: Path, default_action: str | None = None) -> None:
        self.path, self.name = path, path.name.removesuffix(".crcen")
        try:
            self.version = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
            self.model: TableClassifier = load(path)
        except OSError as error:
            if isinstance(error, CrcenError):
                raise
            raise InvalidInput(f"{path} cannot be read: {error.strerror or error}.") from error
        if not hasattr(self.model, "columns_"):
            raise InvalidInput(
                f"{path} must be a model of a table, as crcen fit writes it: got {type(self.model).__name__}."
            )
        self.columns = {column.name: column for column in self.model.columns_}
        self.classes: list[Any] = [json_value(label) for label in self.model.classes_]
        self.positive: int | None = self.model.weighting_.positive
        self.target: str | None = getattr(self.model, "target_name_", None)
        self._expected = {*map(str, self.model.feature_names_in_), str(self.target)}
        self.price = model_price(self.model)
        rule = with_default(RowRule(tuple(self.classes), self.price), default_action)
        # The decision that raises no alarm: the negative class, or by default the most frequent one
        self.default = rule.names[rule.default]

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

    def score(self, rows: Rows, price: Price | Goal, id_column: str | None = None) -> Scored:
        """Decide rows given as dicts, or as a data frame."""
        expected = self._expected if id_column is None else self._expected | {id_column}
        if isinstance(rows, list) and len(rows) <= FEW_ROWS:
            X, notes, all_notes = self._few(rows, expected)
            n_unlike = sum(map(bool, notes))
        else:
            X, all_notes, n_unlike = self._many(rows, expected)
            notes = [[]] * len(X)
        pieces = [X[i : i + _CHUNK_ROWS] for i in range(0, len(X), _CHUNK_ROWS)]
        p = np.concatenate([self.model.estimator_.predict_proba(piece) for piece in pieces])
        chosen, threshold = self._decide(p, price)
        actions = price.costs.actions if isinstance(price, Price) and price.costs is not None else ()
        return Scored(p, chosen, [*self.classes, *actions], threshold, notes, all_notes, n_unlike)

    def probabilities(self, scored: Scored) -> list[Any]:
        """Of the positive class, or an object with one for each class."""
        if self.positive is not None:
            return scored.p[:, self.positive].tolist()
        labels = [str(label) for label in self.classes]
        return [dict(zip(labels, row, strict=True)) for row in scored.p.tolist()]

    def plain_rows(self, rows: Rows) -> list[Row]:
        """The model's columns of each row, ready for JSON."""
        if isinstance(rows, list):
            return [{name: row.get(name) for name in self.columns} for row in rows]
        columns = {
            name: json_value([None if cell != cell else cell for cell in rows[name].tolist()]) for name in self.columns
        }
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]

    def input_hashes(self, rows: Rows) -> list[str]:
        """A hash of the model's columns of each row."""
        texts = (json.dumps(list(row.values()), default=str) for row in self.plain_rows(rows))
        return [hashlib.blake2b(text.encode(), digest_size=8).hexdigest() for text in texts]

    def _decide(self, p: Array, price: Price | Goal) -> tuple[NDArray[np.int64], float | None]:
        if isinstance(price, ThresholdGoal):
            column = self.positive
            assert column is not None  # goals are refused without a positive class
            met = price.meet(p[:, column])
            return np.where(met.alarms, column, 1 - column), json_value(met.thresholds[0])
        assert isinstance(price, Price)
        is_one_number = price.positive is not None and (price.costs is None or not price.costs.actions)
        return np.asarray(price.decide(p), dtype=np.int64), price.threshold if is_one_number else None

    def _few(self, rows: Sequence[Row], expected: set[str]) -> tuple[Array, list[list[str]], list[str]]:
        """Rows read cell by cell."""
        found, notes, unknown = [], [], dict[str, None]()
        for number, row in enumerate(rows, 1):
            if not (row.keys() & self.columns.keys()):
                raise self._no_column(row, number, len(rows))
            absent = self.columns.keys() - row.keys()
            extra = row.keys() - expected
            self._check_spelling(absent, extra)
            for name, cell in row.items():
                if name in self.columns:
                    _check_cell(cell, name, number, len(rows))
            unknown.update(dict.fromkeys(sorted(extra)))
            cells = {name: row.get(name) for name in self.columns}
            encoded = self.model.encode(cells)
            if encoded.unreadable:
                raise self._unreadable(next(iter(encoded.unreadable)), cells, number, len(rows))
            found.append(encoded.X)
            notes.append([f"column missing: {name}" for name in self.columns if name in absent])
            for kind, text in _NOTES.items():
                names = [name for name in getattr(encoded, kind) if name not in absent]
                notes[-1] += [f"{name}: {shown(cells[name])} {text}" for name in names]
        return np.concatenate(found), notes, [f"unknown column ignored: {name}" for name in unknown]

    def _many(self, rows: Rows, expected: set[str]) -> tuple[Array, list[str], int]:
        """Rows read as a data frame."""
        if isinstance(rows, list):
            import pandas as pd

            for number, row in enumerate(rows, 1):
                if not (row.keys() & self.columns.keys()):
                    raise self._no_column(row, number, len(rows))
            cells = {name: [row.get(name) for row in rows] for name in self.columns}
            for name, values in cells.items():
                kinds = {*map(type, values)}
                if kinds & {list, dict} or (kinds & {int, float} and _has_infinite(values)):
                    for number, cell in enumerate(values, 1):
                        _check_cell(cell, name, number, len(rows))
            frame = pd.DataFrame(cells)
            unknown = sorted({name for row in rows for name in row} - expected)
            absent = {name for name in self.columns if not any(name in row for row in rows)}
            self._check_spelling(absent, unknown)
        else:
            frame = rows
            unknown = [str(name) for name in frame.columns if str(name) not in expected]
            absent = set()
        encoded = self.model.encode(frame)
        if encoded.unreadable:
            name = next(iter(encoded.unreadable))
            for number, cell in enumerate(frame[name].tolist(), 1):
                one = {other: None for other in self.columns} | {name: cell}
                if self.model.encode(one).unreadable:
                    raise self._unreadable(name, one, number, len(frame))
        notes = [f"column missing: {name}" for name in self.columns if name in absent]
        n_odd = 0
        for kind, text in _NOTES.items():
            counts = {name: n for name, n in getattr(encoded, kind).items() if name not in absent}
            n_odd += sum(counts.values())
            notes += [
                f"{name}: {n} {'cell' if n == 1 else 'cells'} where the value {text}" for name, n in counts.items()
            ]
        return encoded.X, notes + [f"unknown column ignored: {name}" for name in unknown], n_odd

    def _no_column(self, row: Row, number: int, n: int) -> InvalidInput:
        where = "the row" if n == 1 else f"row {number}"
        return InvalidInput(
            f"{where} has none of the model's columns, {listed(self.columns)}: got "
            f"{listed(row, longest=40) or 'no column'}."
        )

    def _check_spelling(self, absent: Collection[str], extra: Collection[str]) -> None:
        """Refuse an unknown column that is probably a misspelt one."""
        for name in extra if absent else ():
            if (meant := closest(name, absent)) is not None:
                raise InvalidInput(f"unknown column {name[:60]!r}: did you mean {meant}?")

    def _unreadable(self, name: str, cells: Row, number: int, n: int) -> InvalidInput:
        kind = self.columns[name].kind
        where = "" if n == 1 else f" in row {number}"
        return InvalidInput(
            f"{name} must be {_UNREADABLE.get(kind, f'a {kind}')}{where}: got {shown(cells[name])}; null is missing."
        )

    def reasons(self, rows: Rows, number: int, scored: Scored) -> dict[str, list[Any]]:
        """The strongest reasons of every row in words; for several classes also the two classes that they compare."""
        if not 1 <= number <= 100:
            raise InvalidParameter(f"reasons must be a whole number from 0 to 100: got {number}.")
        if len(rows) > _MOST_EXPLAINED:
            raise InvalidInput(f"reasons are given for at most {_MOST_EXPLAINED:,} rows a request: got {len(rows):,}.")
        if isinstance(rows, list):
            import pandas as pd

            rows = pd.DataFrame({name: [row.get(name) for row in rows] for name in self.model.feature_names_in_})
        if self.positive is not None:
            return {"reasons": self.model.reasons(rows).sentences(number)}
        # For another action than a class, the most probable class is explained.
        numbers = np.where(scored.chosen < len(self.classes), scored.chosen, scored.p.argmax(axis=1))
        found = self.model.reasons(rows, classes=self.model.classes_[numbers])
        return {"reasons_for": found.comparisons, "reasons": found.sentences(number)}


def _has_infinite(values: list[object]) -> bool:
    """Whether a column may hold numbers that are not finite in double precision."""
    try:
        return bool(np.isinf(np.array(values, dtype=np.float64)).any())
    except (TypeError, ValueError, OverflowError):  # texts among them are checked by the column
        return any(isinstance(cell, int | float) for cell in values)


def _check_cell(cell: object, name: str, number: int, n: int) -> None:
    """Refuse infinite numbers, and cells that hold several values."""
    where = "" if n == 1 else f" in row {number}"
    if isinstance(cell, list | dict):
        raise InvalidInput(f"{name} must be one value{where}: got a {'list' if isinstance(cell, list) else 'object'}.")
    if isinstance(cell, float) and math.isinf(cell):
        raise InvalidInput(f"{name} must be a finite number{where}: got {cell}.")
    if isinstance(cell, int) and abs(cell) > 1e300:
        raise InvalidInput(f"{name} must be a number below 1e300{where}: got one with {len(str(cell))} digits.")
