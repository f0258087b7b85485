"""A served model: takes rows (JSON, CSV, tensors) and a price; returns probabilities, decisions and notes."""

import hashlib
import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import crcen
from crcen import CostMatrix, CrcenError, InvalidInput, InvalidParameter, ReadOptions, TableClassifier, load
from crcen._support.text import closest, json_value, listed, plural, reject_constant
from crcen.commands.inputs import require, require_input
from crcen.commands.rules import RowRule, stated_costs, weights_by_label, with_default
from crcen.exceptions import DataUnavailable
from crcen.tables.reading import open_table
from crcen.theory.goals import GOALS, ThresholdGoal, goal_of
from crcen.theory.price import Price, sigmoid
from crcen.theory.rows import Array, Bools, Index, alarms_above
from crcen.theory.selective import AUDIT_FLOOR, audit_probabilities, audit_scores

Row = dict[str, object]  # cells as JSON has them
Options = dict[str, object]

_NUMPY = {
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    "BOOL": "?",
}


class Option(NamedTuple):
    """What a request may set."""

    kind: str  # type in JSON Schema
    text: str
    make: Callable[[Any], object] | None = None  # the price or goal of two classes from a number


OPTIONS = {
    "model": Option("string", "Name of the model; not needed if one is served"),
    "id": Option("string", "Column with the identifier of each row"),
    "reasons": Option("integer", "Reasons for each row"),
    "budget": Option("number", "False alarms that one more catch may cost", crcen.Budget),
    "cost_ratio": Option("number", "Cost of a miss in false alarms", crcen.CostRatio),
    "alpha": Option("number", "Cost ratio over negatives per positive", crcen.Alpha),
    "lam": Option("number", "Weight of a positive row", crcen.Lam),
    **{name: Option(*kind.statement.request, kind) for name, kind in GOALS.items()},
    "balanced": Option("boolean", "Equal total weight of all classes"),
    "weighting": Option("string", "Weight of each class: fine=1,worn=5, balanced or none"),
    "costs": Option("array", "Cost matrix: a list of rows, or an object with costs, labels and actions"),
}


def json_body(body: bytes) -> object:
    """Strict JSON: no NaN, no infinity, no lone surrogates."""
    try:
        found: object = json.loads(body, parse_constant=reject_constant)
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise InvalidInput("the body must be JSON: got too many nested brackets.") from None
    except ValueError as error:
        raise InvalidInput(f"the body must be JSON in UTF-8: {str(error)[:120]}.") from None
    return found


def json_rows(body: bytes, most_rows: int) -> tuple[list[Row], Options, bool]:
    """Rows, options, and whether the body is one row instead of a list of rows or an object with ``rows``."""
    found = json_body(body)
    options: Options = {}
    if isinstance(found, dict) and isinstance(found.get("rows"), list):
        options = {name: value for name, value in found.items() if name != "rows"}
        found = found["rows"]
    if isinstance(found, dict):
        return [found], options, True
    if not isinstance(found, list):
        raise InvalidInput(f"the body must be a row (object) or a list of rows: got {type(found).__name__}.")
    _check_number(len(found), most_rows, "an empty list")
    for number, row in enumerate(found, 1):
        if not isinstance(row, dict):
            raise InvalidInput(f"each row must be an object of columns: row {number} is a {type(row).__name__}.")
    return found, options, False


def csv_rows(body: bytes, model: TableClassifier, most_rows: int) -> list[Row]:
    """The rows of a text table, read as `crcen predict` reads one."""
    require_input(body.strip(), "the CSV body must have a line of column names and at least one row: got nothing.")
    with tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        path = Path(folder) / "body.csv"
        path.write_bytes(body)
        try:
            frame = open_table(path, ReadOptions().with_training(model)).read()
        except (InvalidInput, DataUnavailable) as error:
            raise InvalidInput(str(error).replace(str(path), "the CSV body")) from None
    _check_number(len(frame), most_rows, "column names alone")
    cells = frame.astype(object).where(frame.notna(), None)
    return by_row({str(name): cells[name].tolist() for name in cells.columns})


def by_row(columns: Mapping[str, Iterable[object]]) -> list[Row]:
    """Rows of columns."""
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def tensor_rows(body: bytes, header_length: str | None, most_rows: int) -> tuple[list[Row], Options, dict[str, object]]:
    """Rows, options and JSON of an inference request, with one input for each column.

    The body is JSON, followed by the data of binary tensors if there is a header length.
    """
    binary = b""
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdigit() and int(header_length) <= len(body)):
            raise InvalidInput("Inference-Header-Content-Length must be the length of the JSON part of the body.")
        body, binary = body[: int(header_length)], body[int(header_length) :]
    request = json_body(body)
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(request, dict) or not isinstance(inputs, list) or not inputs:
        raise InvalidInput("an inference request needs inputs, a list with one tensor for each column.")
    parameters = request.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"parameters must be an object: got {type(parameters).__name__}.")
    columns: dict[str, list[object]] = {}
    for tensor in inputs:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise InvalidInput("each input must be an object with name, shape, datatype and data.")
        require_input(tensor["name"] not in columns, f"duplicate input: {tensor['name'][:60]}.")
        columns[tensor["name"]], binary = _cells(tensor, binary)
    lengths = {len(cells) for cells in columns.values()}
    require_input(len(lengths) == 1, f"all inputs must have the same number of rows: got {sorted(lengths)[:5]}.")
    _check_number(lengths.pop(), most_rows, "an empty tensor")
    # Parameters of clients that are not options of crcen are ignored, as the protocol requires.
    return by_row(columns), {name: value for name, value in parameters.items() if name in OPTIONS}, request


def _cells(tensor: dict[str, object], binary: bytes) -> tuple[list[object], bytes]:
    """The cells of a tensor, and the binary data that is left."""
    name, datatype = str(tensor["name"])[:60], str(tensor.get("datatype"))
    if datatype != "BYTES" and datatype not in _NUMPY:
        raise InvalidInput(f"datatype of {name} must be BYTES or one of {', '.join(_NUMPY)}: got {datatype[:60]}.")
    shape = tensor.get("shape")
    is_list = isinstance(shape, list) and shape and all(type(one) is int and one >= 0 for one in shape)
    if not isinstance(shape, list) or not is_list or math.prod(shape[1:]) != 1:
        raise InvalidInput(f"shape of {name} must be [rows] or [rows, 1]: got {str(shape)[:60]}.")
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None:
        if type(size) is not int or not 0 <= size <= len(binary):
            raise InvalidInput(f"binary_data_size of {name} must fit the body: got {str(size)[:60]}.")
        cells, binary = _from_binary(binary[:size], datatype, name), binary[size:]
    else:
        data = tensor.get("data")
        if not isinstance(data, list):
            raise InvalidInput(f"data of {name} must be a list of values: got {type(data).__name__}.")
        cells = [one[0] if isinstance(one, list) and len(one) == 1 and len(shape) > 1 else one for one in data]
    require_input(len(cells) == shape[0], f"data of {name} must fit its shape {shape}: got {len(cells)} values.")
    return cells, binary


def _from_binary(data: bytes, datatype: str, name: str) -> list[object]:
    if datatype != "BYTES":
        kind = np.dtype(_NUMPY[datatype])
        if len(data) % kind.itemsize:
            raise InvalidInput(f"binary data of {name} must be whole values of {datatype}: got {len(data)} bytes.")
        return [None if one != one else one for one in np.frombuffer(data, kind).tolist()]
    found: list[object] = []
    start = 0
    while start < len(data):
        size = int.from_bytes(data[start : start + 4], "little")
        start += 4
        require_input(start + size <= len(data), f"binary data of {name} must be strings, each after its length.")
        try:
            found.append(data[start : start + size].decode())
        except UnicodeDecodeError:
            raise InvalidInput(f"strings of {name} must be UTF-8.") from None
        start += size
    return found


def tensor_bytes(cells: Sequence[object], datatype: str) -> bytes:
    """Cells as a binary tensor; each string follows its length in 4 bytes."""
    if datatype != "BYTES":
        return np.asarray(cells, dtype=_NUMPY[datatype]).tobytes()
    return b"".join(len(text).to_bytes(4, "little") + text for text in [str(cell).encode() for cell in cells])


def _check_number(n: int, most_rows: int, none: str) -> None:
    require_input(n, f"a request must have at least one row: got {none}.")
    most = f"a request has at most {plural(most_rows, 'row')}: got {n:,}; send several requests."
    require_input(n <= most_rows, most)


def price_of(own: Price, labels: list[object], options: Options) -> Price | ThresholdGoal:
    """The price or goal that decides the rows of a request; the price of the model, ``own``, if none is stated.

    Options have at most one price: a number (also as text), ``balanced``, ``capacity``, ``weighting`` (a dict, or
    "fine=1,broken=40") or ``costs`` (a matrix, or a dict with ``costs``, ``labels`` and ``actions``).
    """
    for name in options:
        require(name in OPTIONS, f"unknown option {name!r}: allowed are {', '.join(OPTIONS)}.")
    others = ("model", "id", "reasons")
    given = [one for one in OPTIONS if one not in others and options.get(one) is not None and options[one] is not False]
    require(len(given) <= 1, f"{' and '.join(given)} both state the price: give one of them.")
    if not given:
        return own
    (name,), value = given, options[given[0]]
    if name == "costs":
        return own.replace(_costs(value, labels))
    if name == "weighting":
        return own.replace(_weights(value, labels))
    if name == "balanced":
        is_true, is_false = (str(value).lower() in words for words in (("true", "1", "yes", ""), ("false", "0", "no")))
        require(is_true or is_false, f"balanced must be true or false: got {shown(value)}.")
        return own.replace("balanced") if is_true else own
    for_two = f"{name} is for two classes, and this model has {len(labels)}: state costs or weighting."
    require(own.positive is not None, for_two)
    option = OPTIONS[name]
    assert option.make is not None
    found = option.make(whole_number(value, name) if option.kind == "integer" else number(value, name))
    return goal_of(found) or own.replace(found)


def whole_number(value: object, name: str) -> int:
    """A whole number, also as text."""
    found = number(value, name)
    require(found.is_integer() and abs(found) <= 2**31, f"{name} must be a whole number: got {shown(value)}.")
    return int(found)


def number(value: object, name: str) -> float:
    """A number, also as text with a decimal point or comma; 1,000 may be either and is rejected."""
    text = value
    if isinstance(value, str) and value.count(",") == 1 and not re.search(r"[1-9]\d*,\d{3}$|\.", value.strip()):
        text = value.replace(",", ".")
    try:
        if isinstance(text, str | int | float) and not isinstance(text, bool):
            return float(text)
    except (ValueError, OverflowError):
        pass
    raise InvalidParameter(f"{name} must be a number: got {shown(value)}.")


def shown(value: object) -> str:
    """A value for an error message, shortened."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _weights(value: object, labels: list[object]) -> list[float] | str | None:
    if value in ("balanced", "none"):
        return None if value == "none" else str(value)
    if isinstance(value, str) and "=" in value:
        value = dict(part.rpartition("=")[::2] for part in value.split(","))
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"weighting must have a weight for each class: got {shown(value)}.")
    weights = {label: number(weight, f"the weight of {shown(label)}") for label, weight in value.items()}
    found = weights_by_label(weights, labels, "the target")
    return [found[label] for label in labels]


def _costs(value: object, labels: list[object]) -> CostMatrix:
    stated: Mapping[str, Any] = value if isinstance(value, Mapping) else {"costs": value}
    if set(stated) - {"costs", "labels", "actions"} or not isinstance(stated.get("costs"), list):
        raise InvalidParameter(f"costs must be a matrix or an object with costs, labels, actions: got {shown(value)}.")
    try:
        actions = [str(one) for one in stated.get("actions") or ()]
        return stated_costs(CostMatrix(stated["costs"], labels=stated.get("labels") or None, actions=actions), labels)
    except InvalidParameter:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"costs must be a matrix of numbers: got {shown(value)}.") from None


# Up to this many rows are read cell by cell, with notes for each row; more are read as a data frame.
FEW_ROWS = 64
_MOST_EXPLAINED = 1_000
_CHUNK_ROWS = 20_000
_TYPES = {"number": "FP64", "boolean": "BOOL"}
_NOTES = {
    "clipped": "is far outside the training range",
    "unseen": "was not seen in training, or was rare",
    "missing": "is missing, which did not occur in training",
}
_UNREADABLE = {"number": "a finite number", "boolean": "true or false", "date": "a date"}


@dataclass(frozen=True, eq=False)
class Scored:
    """Decided rows."""

    p: Array  # natural probabilities
    chosen: Index  # decisions as positions in `names`
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
            {"name": name, "datatype": _TYPES.get(one.kind, "BYTES"), "shape": [-1], "parameters": {"kind": one.kind}}
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

    def score(self, rows: Sequence[Row], price: Price | ThresholdGoal, id_column: str | None = None) -> Scored:
        """Decide rows."""
        known = self._known if id_column is None else self._known | {id_column}
        X, notes, all_notes, n_unlike = self._encode(rows, known)
        pieces = [X[i : i + _CHUNK_ROWS] for i in range(0, len(X), _CHUNK_ROWS)]
        p = np.concatenate([self.model.estimator_.predict_proba(piece) for piece in pieces])
        actions: tuple[Any, ...] = ()
        if isinstance(price, Price):
            actions = () if price.costs is None else price.costs.actions
            chosen = np.asarray(price.decide(p), dtype=np.int64)
            threshold = price.threshold if price.positive is not None and not actions else None
        else:
            assert self.positive is not None  # goals are refused without a positive class
            met = price.meet(p[:, self.positive])
            chosen, threshold = np.where(met.alarms, self.positive, 1 - self.positive), json_value(met.thresholds[0])
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
        scores, quiet = audit_scores(price.by_column(p, 1.0 - p), price.weights), ~alarms_above(p, price.threshold)
        if not quiet.any():
            return None
        e = audit_probabilities(scores, quiet, share * float(quiet.sum()))[quiet]
        inside = (e > 1.0001 * e.min()) & (e < 1.0) & (scores[quiet] > 0.0)
        return float(np.median(e[inside] / scores[quiet][inside])) if inside.any() else None

    def audit_probabilities(self, p: Array, quiet: Bools) -> Array:
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
        key_sets = dict.fromkeys(map(frozenset, rows))
        for keys in key_sets:
            if not keys & columns:
                number = next(i for i, row in enumerate(rows, 1) if row.keys() == keys)
                where = f"row {number}" if len(rows) > 1 else "the row"
                got = listed(sorted(keys), longest=40) or "no column"
                raise InvalidInput(f"{where} has none of the model's columns, {listed(columns)}: got {got}.")
            extra, left_out = sorted(keys - known), columns - keys
            for name in extra if left_out else ():
                if (meant := closest(name, left_out)) is not None:
                    raise InvalidInput(f"unknown column {name[:60]!r}: did you mean {meant}?")
            unknown.update(dict.fromkeys(extra))
        cells = {name: [row.get(name) for row in rows] for name in self.columns}
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
        frame = pd.DataFrame(cells)
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
        most = f"reasons are computed for at most {_MOST_EXPLAINED:,} rows per request: got {len(rows):,}."
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
