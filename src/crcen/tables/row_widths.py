"""Count the values of every row of a text table in passing, and find the first row that is too wide or too narrow."""

import csv
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

__all__ = ["OddRow", "RowCount", "count_rows", "long_values"]

# A quoted value that goes on for longer is left to the slow reader.
_LONGEST_CARRY = 2**24
_BLANKS = b" \t"


@dataclass(frozen=True)
class OddRow:
    """A row that is not as wide as the header.

    Parameters
    ----------
    line : int
        Its first line in the file, counted from 1.
    width : int
        Its values.
    is_last : bool
        Whether it ends with the file, without a line end.
    """

    line: int
    width: int
    is_last: bool


@dataclass(frozen=True)
class RowCount:
    """Rows of a text table.

    Parameters
    ----------
    n_rows : int
        Rows, the header and blank lines left out.
    n_lines : int
        Lines of the file.
    odd : OddRow or None
        The first row that is not as wide as the header; counting ends there.
    """

    n_rows: int
    n_lines: int
    odd: OddRow | None = None


@contextmanager
def long_values() -> Iterator[None]:
    """Let the csv module read values of any length."""
    before = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def count_rows(blocks: Iterator[bytes], separator: str, n_columns: int) -> RowCount:
    """Count rows up to the first that is not as wide as the header.

    Whole blocks are counted at once, with what stands between quotation marks left out. Where a row seems odd, or a
    quotation mark stands inside a value, the csv module reads on from there and has the last word.

    Parameters
    ----------
    blocks : iterator of bytes
        The file in an encoding that holds ASCII as it is, cut anywhere.
    separator : str
        Between values.
    n_columns : int
        Width of the header.

    Returns
    -------
    RowCount
        Rows and lines, and the odd row if there is one.
    """
    n_rows, n_lines, rest = -1, 0, b""  # the header is no row
    fed = _with_line_feeds(blocks)
    for block in fed:
        block = rest + block
        ends, widths, n_line_ends, is_plain = _row_ends(block, separator)
        starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
        is_odd = widths != n_columns
        for i in np.flatnonzero(is_odd):
            is_odd[i] = not _is_blank(block[starts[i] : ends[i]], separator)
        if not is_plain or is_odd.any() or (not len(ends) and len(block) > _LONGEST_CARRY):
            return _read_slowly(chain([block], fed), separator, n_columns, n_rows, n_lines)
        n_rows += int(((widths == n_columns) & (ends > starts)).sum())
        n_lines += n_line_ends
        rest = block[ends[-1] + 1 :] if len(ends) else block
    if not rest.strip():
        return RowCount(max(n_rows, 0), n_lines)
    return _read_slowly(iter([rest]), separator, n_columns, n_rows, n_lines)


def _with_line_feeds(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Blocks in which every line ends in a line feed, whatever it ended in."""
    held = b""
    for block in blocks:
        block = held + block
        held = b"\r" if block.endswith(b"\r") else b""  # a line feed may follow
        block = block[: len(block) - len(held)]
        yield block.replace(b"\r\n", b"\n").replace(b"\r", b"\n") if b"\r" in block else block
    if held:
        yield b"\n"


def _row_ends(block: bytes, separator: str) -> tuple[NDArray[np.int64], NDArray[np.int64], int, bool]:
    """Where rows end, how many values each has, how many lines they are, and whether quotation marks stand plainly.

    The block begins with a row.
    """
    is_plain = True
    cells = np.frombuffer(block, dtype=np.uint8)
    line_ends = np.flatnonzero(cells == 10)
    ends, separators = line_ends, np.flatnonzero(cells == ord(separator))
    if b'"' in block:  # inside where the quotation marks before are odd in number; doubled ones cancel
        quotes = np.flatnonzero(cells == 34)
        # One inside of a value, as in 5" pipe, quotes nothing: each opens behind a value's end and closes before one.
        around = np.concatenate([[10], cells, [10]])[np.where(np.arange(len(quotes)) % 2, quotes + 2, quotes)]
        is_plain = bool(np.isin(around, [10, 34, ord(separator)]).all())
        ends = ends[np.searchsorted(quotes, ends) % 2 == 0]
        separators = separators[np.searchsorted(quotes, separators) % 2 == 0]
    before = np.searchsorted(separators, ends)
    n_line_ends = int(np.searchsorted(line_ends, ends[-1], side="right")) if len(ends) else 0
    return ends, np.diff(before, prepend=0) + 1, n_line_ends, is_plain


def _is_blank(row: bytes, separator: str) -> bool:
    return not row.strip(_BLANKS.replace(separator.encode(), b""))


def _read_slowly(blocks: Iterator[bytes], separator: str, n_columns: int, n_rows: int, n_lines: int) -> RowCount:
    """The same by the csv module, from the start of a row."""
    lines = _Lines(blocks)
    reader = csv.reader(lines, delimiter=separator)
    line = n_lines + 1
    with long_values():
        try:
            for row in reader:
                is_blank = len(row) < 2 and not "".join(row).strip()
                if len(row) != n_columns and not is_blank:
                    is_last = next(lines, None) is None and not lines.has_end
                    return RowCount(max(n_rows, 0), n_lines + reader.line_num, OddRow(line, len(row), is_last))
                n_rows += not is_blank
                line = n_lines + reader.line_num + 1
        except csv.Error:  # what it cannot read is for the reader of the rows to refuse
            pass
    return RowCount(max(n_rows, 0), n_lines + reader.line_num)


class _Lines:
    """Lines of blocks with their ends, and whether the last one had one."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self.has_end = True
        self._found = self._cut(blocks)

    def _cut(self, blocks: Iterator[bytes]) -> Iterator[str]:
        rest = io.BytesIO()
        for block in blocks:
            *whole, last = block.split(b"\n")
            for line in whole:
                rest.write(line)
                yield rest.getvalue().decode("latin-1") + "\n"  # only separators and quotation marks matter
                rest = io.BytesIO()
            rest.write(last)
        if rest.getvalue():
            self.has_end = False
            yield rest.getvalue().decode("latin-1")

    def __iter__(self) -> Iterator[str]:
        return self._found

    def __next__(self) -> str:
        return next(self._found)
