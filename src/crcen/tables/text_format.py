"""How a text table is written: its encoding, separator and decimal mark, found out from the file itself."""

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO

from crcen.exceptions import DataUnavailable, InvalidInput
from crcen.tables.row_widths import OddRow, count_rows, long_values

__all__ = ["TextFormat", "detect_format"]

SEPARATORS = (",", ";", "\t", "|")
_SAMPLE_BYTES = 2**18
# The header and two rows, however long they are; up to here.
_SAMPLE_LINES = 3
_LONGEST_START = 2**30
_BLOCK_BYTES = 2**20
_SAMPLE_ROWS = 200
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+")
_GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+")
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
    thousands : str
        Empty, or ``"."`` where numbers are written 1.234,50.
    columns : tuple of str
        Column names of the first line, without spaces around them.
    n_rows : int
        Rows under the header, blank lines left out.
    is_line_per_row : bool
        Whether the i-th row stands in line i + 1: no line is blank, none is inside of quotation marks.
    """

    encoding: str
    separator: str
    decimal: str
    thousands: str
    columns: tuple[str, ...]
    n_rows: int
    is_line_per_row: bool


def _by_first_bytes(start: bytes) -> str | None:
    """The encoding that a byte-order mark, or the zero bytes of UTF-16 text, give away."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start[1::2].count(0) > 0.3 * len(start[1::2]):
        return "utf-16-le"
    return "utf-16-be" if start[::2].count(0) > 0.3 * len(start[::2]) else None


class _Scan:
    """One pass over a file: its first lines, then its blocks, and by the end its encoding.

    The whole file, since one byte that is not UTF-8 may stand in the last row.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self.start = self._first_lines(name)
        self.encoding = _by_first_bytes(self.start[:_SAMPLE_BYTES]) or "utf-8"

    def _first_lines(self, name: str) -> bytes:
        """At least `_SAMPLE_BYTES` and the header line, however long it is, and two more."""
        start, n_line_ends = bytearray(), 0
        while len(start) < _SAMPLE_BYTES or n_line_ends < _SAMPLE_LINES:
            if len(start) >= _LONGEST_START:
                raise InvalidInput(
                    f"{name} is not a text table: its first {_SAMPLE_LINES} lines are longer than 1 GiB."
                )
            block = self._file.read(_BLOCK_BYTES)
            if not block:
                break
            start += block
            n_line_ends += block.count(b"\n") or block.count(b"\r")
        return bytes(start)

    def blocks(self) -> Iterator[bytes]:
        """The file from its start, in an encoding that holds ASCII as it is."""
        as_text = codecs.getincrementaldecoder(self.encoding)("strict" if self.is_utf_8 else "replace")
        for block in self._raw():
            if not self.is_utf_8:
                yield block if self.encoding == "latin-1" else as_text.decode(block, final=not block).encode()
                continue
            try:
                as_text.decode(block, final=not block)
            except UnicodeDecodeError:
                self.encoding = "latin-1"
            yield block

    @property
    def is_utf_8(self) -> bool:
        """Whether nothing spoke against it so far."""
        return self.encoding.startswith("utf-8")

    def _raw(self) -> Iterator[bytes]:
        """The blocks, and an empty one at the end."""
        yield self.start
        while block := self._file.read(_BLOCK_BYTES):
            yield block
        yield b""


def _rows(text: str, separator: str) -> list[list[str]]:
    """The first rows of a text, blank ones left out; none where the text is no such table."""
    try:
        with long_values():
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


def _marks(rows: list[list[str]], separator: str) -> tuple[str, str]:
    """The decimal mark, and the mark between thousands, of plain numbers."""
    if separator == ",":
        return ".", ""
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(_DECIMAL_COMMA.fullmatch(cell) is not None for cell in cells)
    points = sum(_DECIMAL_POINT.fullmatch(cell) is not None for cell in cells)
    grouped = sum(_GROUPED.fullmatch(cell) is not None for cell in cells)
    if grouped:  # 1.234,50: then 1.234 has no decimals either
        return ",", "."
    return (",", "") if commas > points else (".", "")


def _column_names(header: list[str], name: str) -> tuple[str, ...]:
    columns = [cell.strip() for cell in header]
    named = set(columns)
    for place, column in enumerate(columns):
        if not column:
            columns[place] = f"column_{place + 1}"
            while columns[place] in named:  # as in a table that was written with its index twice
                columns[place] += "_"
    if all(_NUMBER.fullmatch(cell.strip()) for cell in header):
        raise InvalidInput(
            f"the first line of {name} must hold column names: got the numbers {', '.join(columns[:4])}; put a line "
            f"of names above them."
        )
    twice = sorted(column for column, count in Counter(columns).items() if count > 1)
    if twice:
        raise InvalidInput(
            f"columns must have names of their own: {', '.join(twice[:5])} stands more than once in the first line of "
            f"{name}; rename or remove one."
        )
    return tuple(columns)


def _check_width(odd: OddRow | None, separator: str, n_columns: int, name: str) -> None:
    """Refuse a row that is not as wide as the header."""
    if odd is None:
        return
    if odd.is_last and odd.width < n_columns:
        raise DataUnavailable(
            f"{name} ends in the middle of its last row ({odd.width} of {n_columns} values): it was cut off; get it "
            f"again, or delete that row."
        )
    mark = {"\t": "a tabulator", ",": "a comma", ";": "a semicolon", "|": "a bar"}[separator]
    raise InvalidInput(
        f"line {odd.line} of {name} has {odd.width} value{'s' * (odd.width != 1)} under {n_columns} column names; "
        f"repair or delete that line (a value with {mark} in it stands in quotation marks)."
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
        If its first line has no names, or one twice, or a row is wider or narrower than it.
    """
    scan = _Scan(file, name)
    text = scan.start.decode(scan.encoding, errors="replace").lstrip("\ufeff")
    if len(scan.start) >= _SAMPLE_BYTES:  # up to the last whole row
        text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
    if not text.strip():
        raise DataUnavailable(f"{name} is empty; a table needs a line of column names and rows under it.")
    separator = _separator(text, "\t" if suffix in (".tsv", ".tab") else ",")
    rows = _rows(text, separator)
    if not rows:
        raise InvalidInput(f"{name} is not a text table: no line of it can be read; try CSV, TSV or Parquet.")
    if any("\0" in cell for cell in rows[0]):
        raise InvalidInput(f"{name} is not a text table: it holds zero bytes; try CSV, TSV or Parquet.")
    is_comment = text.startswith("#") and len(rows[-1]) != len(rows[0])  # "#" alone may be a name
    if is_comment or re.match(r"sep=.[\r\n]", text):
        raise InvalidInput(
            f"the first line of {name} must hold column names: got {text.splitlines()[0][:40]!r}, a remark to another "
            f"program; delete such lines above the names."
        )
    columns = _column_names(rows[0], name)
    if len(rows) > 1 and all(len(row) > len(columns) for row in rows[1:]):
        raise InvalidInput(
            f"{name} has {len(columns)} column names over rows of {len(rows[1])} values; name every column in the "
            f"first line."
        )
    counted = count_rows(scan.blocks(), separator, len(columns))
    _check_width(counted.odd, separator, len(columns), name)
    is_line_per_row = counted.n_lines - counted.n_rows <= 1
    return TextFormat(scan.encoding, separator, *_marks(rows[1:], separator), columns, counted.n_rows, is_line_per_row)
