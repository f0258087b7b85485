"""Content of requests: rows as JSON, CSV or tensors of the Open Inference Protocol v2, and the price that decides."""

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import crcen
from crcen import CostMatrix, InvalidInput, InvalidParameter, ReadOptions, TableClassifier
from crcen._support.text import plural
from crcen.commands.inputs import require, require_input
from crcen.commands.prices import costs_from, weights_by_label
from crcen.commands.results import reject_constant
from crcen.tables.reading import open_table
from crcen.theory.price import Goal, Price

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
    "cost_ratio": Option("number", "What a miss costs, in false alarms", crcen.CostRatio),
    "alpha": Option("number", "Cost ratio over negatives per positive", crcen.Alpha),
    "lam": Option("number", "Weight of a positive row", crcen.Lam),
    "recall": Option("number", "Expected recall on the rows of this request", crcen.RecallAtLeast),
    "precision": Option("number", "Expected precision on the rows of this request", crcen.PrecisionAtLeast),
    "capacity": Option("integer", "Alarms among the rows of this request", crcen.Capacity),
    "balanced": Option("boolean", "All classes weigh the same"),
    "weighting": Option("string", "Weight of each class: fine=1,worn=5"),
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
    except UnicodeError:
        raise InvalidInput("the body must be JSON in UTF-8.") from None
    except ValueError as error:
        raise InvalidInput(f"the body must be JSON: {str(error)[:120]}.") from None
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


class FrameRows(Sequence[Row]):
    """Rows of a data frame, converted when they are first read: many rows are encoded without them."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self.frame = frame

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, i):  # type: ignore[no-untyped-def]
        return self._rows[i]

    @cached_property
    def _rows(self) -> list[Row]:
        cells = self.frame.astype(object).where(self.frame.notna(), None)
        return by_row({name: cells[name].tolist() for name in cells.columns})


def csv_rows(body: bytes, model: TableClassifier, most_rows: int) -> FrameRows:
    """The rows of a text table, read as `crcen predict` reads one."""
    require_input(body.strip(), "the CSV body must have a line of column names and at least one row: got nothing.")
    with tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        path = Path(folder) / "body.csv"
        path.write_bytes(body)
        frame = open_table(path, ReadOptions().with_training(model)).read()
    _check_number(len(frame), most_rows, "column names alone")
    return FrameRows(frame.rename(columns=str))


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
    if len(cells) != shape[0]:
        raise InvalidInput(f"data of {name} must have as many values as its shape {shape}: got {len(cells)}.")
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
        if start + size > len(data):
            raise InvalidInput(f"binary data of {name} must be strings, each after its length in 4 bytes.")
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
    texts = [str(cell).encode() for cell in cells]
    return b"".join(len(text).to_bytes(4, "little") + text for text in texts)


def _check_number(n: int, most_rows: int, none: str) -> None:
    require_input(n, f"a request must have at least one row: got {none}.")
    most = f"a request has at most {plural(most_rows, 'row')}: got {n:,}; send several requests."
    require_input(n <= most_rows, most)


def price_of(own: Price, labels: list[object], options: Options) -> Price | Goal:
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
    return found if isinstance(found, Goal) else own.replace(found)


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
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _weights(value: object, labels: list[object]) -> list[float]:
    if isinstance(value, str):
        value = dict(part.rpartition("=")[::2] for part in value.split(","))
    if not isinstance(value, Mapping):
        raise InvalidParameter(f"weighting must have a weight for each class: got {shown(value)}.")
    weights = {label: number(weight, f"the weight of {shown(label)}") for label, weight in value.items()}
    found = weights_by_label(weights, labels, "the target")
    return [found[label] for label in labels]


def _costs(value: object, labels: list[object]) -> CostMatrix:
    stated: Mapping[str, Any] = value if isinstance(value, Mapping) else {"costs": value}
    if set(stated) - {"costs", "labels", "actions"} or not isinstance(stated.get("costs"), list):
        raise InvalidParameter(
            f"costs must be a matrix, or an object with costs, labels and actions: got {shown(value)}."
        )
    try:
        actions = [str(one) for one in stated.get("actions") or ()]
        return costs_from(CostMatrix(stated["costs"], labels=stated.get("labels") or labels, actions=actions), labels)
    except InvalidParameter:
        raise
    except (TypeError, ValueError, OverflowError):
        raise InvalidParameter(f"costs must be a matrix of numbers: got {shown(value)}.") from None
