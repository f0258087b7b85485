"""How a text table is written: its encoding, separator and decimal mark, found out from the file itself."""

import codecs
import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from crcen.exceptions import DataUnavailable, InvalidInput

__all__ = ["TextFormat", "detect_format"]

SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_BYTES = 2**18
_BLOCK_BYTES = 2**20
_SAMPLE_ROWS = 200
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_DECIMAL_POINT = re.compile(r"[+-]?\d+\.\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class TextFormat:
    """What a reader must know of a text table.

    Parameters
    ----------
    encoding : str
        A codec's name.
    separator : str
        One of ``, ; | `` and the tabulator.
    decimal : str
        ``"."``, or ``","`` where numbers are written 3,14.
    columns : tuple of str
        Column names of the first line, without spaces around them.
    n_lines : int
        Line ends in the file: about the number of rows.
    """

    encoding: str
    separator: str
    decimal: str
    columns: tuple[str, ...]
    n_lines: int


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block


def _by_first_bytes(start: bytes) -> str | None:
    """The encoding that a byte-order mark, or the zero bytes of UTF-16 text, give away."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start[1::2].count(0) > 0.3 * len(start[1::2]):
        return "utf-16-le"
    return "utf-16-be" if start[::2].count(0) > 0.3 * len(start[::2]) else None


def _scan(file: BinaryIO) -> tuple[bytes, bytes, str, int]:
    """One pass over the whole file: its first bytes, its last ones, its encoding and its line ends.

    The whole file, since one byte that is not UTF-8 may stand in the last row.
    """
    start, last, encoding, n_lines = b"", b"", "", 0
    decoder: codecs.IncrementalDecoder | None = None
    for block in _blocks(file):
        if not start:
            encoding = _by_first_bytes(block[:_SAMPLE_BYTES]) or "utf-8"
            decoder = codecs.getincrementaldecoder("utf-8")() if encoding.startswith("utf-8") else None
        if len(start) < _SAMPLE_BYTES:
            start += block[: _SAMPLE_BYTES - len(start)]
        last = (last + block)[-_SAMPLE_BYTES:]
        n_lines += block.count(b"\n") or block.count(b"\r")
        if decoder is not None:
            try:
                decoder.decode(block)
            except UnicodeDecodeError:
                encoding, decoder = "latin-1", None
    if decoder is not None:
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            encoding = "latin-1"
    return start, last, encoding, n_lines


def _rows(text: str, separator: str) -> list[list[str]]:
    """The first rows of a text, blank ones left out; none where the text is no such table."""
    try:
        found = islice(csv.reader(io.StringIO(text, newline=None), delimiter=separator), _SAMPLE_ROWS)
        return [row for row in found if row]
    except csv.Error:
        return []


def _separator(text: str, likely: str) -> str:
    """The separator under which most rows are as wide as the header, the wider table where that ties."""
    best, best_merit = likely, (0.0, 0, False)
    for separator in SEPARATORS:
        rows = _rows(text, separator)
        if not rows or len(rows[0]) < 2:
            continue
        agreeing = sum(len(row) == len(rows[0]) for row in rows) / len(rows)
        merit = (round(agreeing, 1), len(rows[0]), separator == likely)
        if merit > best_merit:
            best, best_merit = separator, merit
    return best


def _decimal(rows: list[list[str]], separator: str) -> str:
    if separator == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(_DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells)
    points = sum(_DECIMAL_POINT.fullmatch(cell) is not None for cell in cells)
    return "," if commas > points else "."


def _column_names(header: list[str], name: str) -> tuple[str, ...]:
    columns = [cell.strip() or f"column_{i + 1}" for i, cell in enumerate(header)]
    if all(_NUMBER.fullmatch(cell.strip()) for cell in header):
        raise InvalidInput(
            f"the first line of {name} must hold column names: got the numbers {', '.join(columns[:4])}; put a line "
            f"of names above them."
        )
    twice = sorted({column for column in columns if columns.count(column) > 1})
    if twice:
        raise InvalidInput(
            f"columns must have names of their own: {', '.join(twice[:5])} stands more than once in the first line of "
            f"{name}; rename or remove one."
        )
    return tuple(columns)


def _check_end(last: str, separator: str, n_columns: int, name: str) -> None:
    """A last line without a line end and with too few values was cut off; quotes may hide line ends and separators."""
    if last.endswith(("\n", "\r")):
        return
    line = re.split(r"[\r\n]", last)[-1]
    if '"' not in line and 1 < line.count(separator) + 1 < n_columns:
        raise DataUnavailable(
            f"{name} ends in the middle of its last row ({line.count(separator) + 1} of {n_columns} values): it was "
            f"cut off; get it again, or delete that row."
        )


def detect_format(file: BinaryIO, name: str, suffix: str) -> TextFormat:
    """Find out how a text table is written.

    Parameters
    ----------
    file : binary file
        Open at its start; read to its end.
    name : str
        What to call it in errors.
    suffix : str
        ``.tsv`` and ``.tab`` make the tabulator the likely separator.

    Returns
    -------
    TextFormat
        Encoding, separator, decimal mark, columns.

    Raises
    ------
    DataUnavailable
        If the file is empty or its last row was cut off.
    InvalidInput
        If its first line has no names, or one twice, or rows are wider than it.
    """
    start, last, encoding, n_lines = _scan(file)
    text = start.decode(encoding, errors="replace").lstrip("\ufeff")
    if len(start) == _SAMPLE_BYTES:  # up to the last whole row
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    if not text.strip():
        raise DataUnavailable(f"{name} is empty; a table needs a line of column names and rows under it.")
    separator = _separator(text, "\t" if suffix in (".tsv", ".tab") else ",")
    rows = _rows(text, separator)
    if not rows:
        raise InvalidInput(f"{name} is not a text table: no line of it can be read; try CSV, TSV or Parquet.")
    if "\0" in rows[0][0]:
        raise InvalidInput(f"{name} is not a text table: it holds zero bytes; try CSV, TSV or Parquet.")
    columns = _column_names(rows[0], name)
    if len(rows) > 1 and all(len(row) > len(columns) for row in rows[1:]):
        raise InvalidInput(
            f"{name} has {len(columns)} column names over rows of {len(rows[1])} values; name every column in the "
            f"first line."
        )
    _check_end(last.decode(encoding, errors="replace"), separator, len(columns), name)
    return TextFormat(encoding, separator, _decimal(rows[1:], separator), columns, n_lines)
