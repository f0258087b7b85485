"""Rows of a request: JSON, CSV, and tensors of the Open Inference Protocol v2 with its binary extension."""

import json
import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crcen import InvalidInput, ReadOptions
from crcen.tables.reading import open_table

__all__ = ["RequestRows", "csv_rows", "json_body", "json_rows", "tensor_rows"]

_NUMPY = {
    **{f"INT{bits}": f"<i{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"UINT{bits}": f"<u{bits // 8}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    "BOOL": "?",
}


@dataclass(frozen=True, eq=False)
class RequestRows:
    """Rows with the options of their request.

    Parameters
    ----------
    rows : list of dict, or data frame
        At least one row.
    options : dict
        Options in the body.
    is_single : bool
        Whether the body was one row instead of a list.
    """

    rows: Any
    options: dict[str, Any] = field(default_factory=dict)
    is_single: bool = False


def json_body(body: bytes) -> Any:
    """Strict JSON: no NaN, no infinity, no lone surrogates."""
    try:
        found = json.loads(body, parse_constant=_no_constant)
        if b"\\u" in body:
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise InvalidInput("the body must be JSON: got too many nested brackets.") from None
    except UnicodeError:
        raise InvalidInput("the body must be JSON in UTF-8.") from None
    except ValueError as error:
        raise InvalidInput(f"the body must be JSON: {str(error)[:120]}.") from None
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON; null is missing")


def json_rows(body: bytes, most_rows: int) -> RequestRows:
    """One row as an object, a list of rows, or an object with ``rows`` and options."""
    found = json_body(body)
    options: dict[str, Any] = {}
    if isinstance(found, dict) and isinstance(found.get("rows"), list):
        options = {name: value for name, value in found.items() if name != "rows"}
        found = found["rows"]
    if isinstance(found, dict):
        return RequestRows([found], is_single=True)
    if not isinstance(found, list):
        raise InvalidInput(f"the body must be a row (object) or a list of rows: got {type(found).__name__}.")
    if not found:
        raise InvalidInput("the list of rows must have at least one row: got an empty list.")
    _check_number(len(found), most_rows)
    for number, row in enumerate(found, 1):
        if not isinstance(row, dict):
            raise InvalidInput(f"each row must be an object of columns: row {number} is a {type(row).__name__}.")
    return RequestRows(found, options)


def csv_rows(body: bytes, model: Any, most_rows: int) -> RequestRows:
    """A text table, read as `crcen predict` reads one."""
    if not body.strip():
        raise InvalidInput("the CSV body must have a line of column names and at least one row: got nothing.")
    with tempfile.TemporaryDirectory(prefix="crcen-serve-") as folder:
        path = Path(folder) / "body.csv"
        path.write_bytes(body)
        frame = open_table(path, ReadOptions().with_training(model)).read()
    if not len(frame):
        raise InvalidInput("the CSV body must have at least one row: got column names alone.")
    _check_number(len(frame), most_rows)
    return RequestRows(frame)


def tensor_rows(body: bytes, header_length: str | None, most_rows: int) -> tuple[RequestRows, dict[str, Any]]:
    """Rows of an inference request, one input for each column; the request itself too.

    Parameters
    ----------
    body : bytes
        JSON, followed by the data of binary tensors.
    header_length : str or None
        Length of the JSON part if there are binary tensors.
    most_rows : int
        More are refused.
    """
    binary = b""
    if header_length is not None:
        if not (header_length.isascii() and header_length.isdigit() and int(header_length) <= len(body)):
            raise InvalidInput("Inference-Header-Content-Length must be the length of the JSON part of the body.")
        body, binary = body[: int(header_length)], body[int(header_length) :]
    request = json_body(body)
    inputs = request.get("inputs") if isinstance(request, dict) else None
    if not isinstance(inputs, list) or not inputs:
        raise InvalidInput("an inference request needs inputs, a list with one tensor for each column.")
    parameters = request.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise InvalidInput(f"parameters must be an object: got {type(parameters).__name__}.")
    columns: dict[str, list[Any]] = {}
    for tensor in inputs:
        if not isinstance(tensor, dict) or not isinstance(tensor.get("name"), str):
            raise InvalidInput("each input must be an object with name, shape, datatype and data.")
        name = tensor["name"]
        if name in columns:
            raise InvalidInput(f"duplicate input: {name[:60]}.")
        cells, binary = _cells(tensor, binary)
        columns[name] = cells
    lengths = {len(cells) for cells in columns.values()}
    if len(lengths) > 1:
        raise InvalidInput(f"all inputs must have the same number of rows: got {sorted(lengths)[:5]}.")
    (n,) = lengths
    if not n:
        raise InvalidInput("inputs must have at least one row: got an empty tensor.")
    _check_number(n, most_rows)
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    # Parameters of clients that are not options of crcen are ignored, as the protocol requires.
    return RequestRows(rows, parameters), request


def _cells(tensor: dict[str, Any], binary: bytes) -> tuple[list[Any], bytes]:
    """The cells of a tensor, and the binary data that is left."""
    name, datatype = tensor["name"][:60], tensor.get("datatype")
    if datatype != "BYTES" and datatype not in _NUMPY:
        raise InvalidInput(f"datatype of {name} must be BYTES or one of {', '.join(_NUMPY)}: got {str(datatype)[:60]}.")
    shape = tensor.get("shape")
    if (
        not isinstance(shape, list)
        or not all(type(one) is int and one >= 0 for one in shape)
        or math.prod(shape[1:]) != 1
    ):
        raise InvalidInput(f"shape of {name} must be [rows] or [rows, 1]: got {str(shape)[:60]}.")
    parameters = tensor.get("parameters")
    size = parameters.get("binary_data_size") if isinstance(parameters, dict) else None
    if size is not None:
        if type(size) is not int or not 0 <= size <= len(binary):
            raise InvalidInput(f"binary_data_size of {name} must fit the body: got {str(size)[:60]}.")
        cells, binary = _from_binary(binary[:size], str(datatype), name), binary[size:]
    else:
        data = tensor.get("data")
        if not isinstance(data, list):
            raise InvalidInput(f"data of {name} must be a list of values: got {type(data).__name__}.")
        cells = [one[0] if isinstance(one, list) and len(one) == 1 and len(shape) > 1 else one for one in data]
    if not shape or len(cells) != shape[0]:
        raise InvalidInput(f"data of {name} must have as many values as its shape {shape}: got {len(cells)}.")
    return cells, binary


def _from_binary(data: bytes, datatype: str, name: str) -> list[Any]:
    if datatype != "BYTES":
        kind = np.dtype(_NUMPY[datatype])
        if len(data) % kind.itemsize:
            raise InvalidInput(f"binary data of {name} must be whole values of {datatype}: got {len(data)} bytes.")
        values = np.frombuffer(data, kind)
        return [None if one != one else one for one in values.tolist()]
    found, start = [], 0
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


def _check_number(n: int, most_rows: int) -> None:
    if n > most_rows:
        raise InvalidInput(f"a request has at most {most_rows:,} rows: got {n:,}; send several requests.")
