"""SHA-256 of the rows of a table that depends neither on their order nor on the format of the file."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["RowDigest"]

# Numbers as text; 007 is a code and stays what it is.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?")
_FIRST_OF_NUMBER = frozenset("+-0123456789")
_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00:00(?:\.0+)?")


class RowDigest:
    """Digest of rows that arrive in chunks.

    Cells are compared by value: 1, 1.0 and "1" are equal, as are a date and the same date at midnight. Columns have
    digests of their own, so that a difference can be named.

    Parameters
    ----------
    columns : sequence of str
        The columns that count, in any order.
    label : str, optional
        Column that counts in `labelled` only.
    """

    def __init__(self, columns: Sequence[str], label: str | None = None) -> None:
        self.columns, self._label = tuple(sorted(columns)), label
        self._rows: list[bytes] = []
        self._labelled: list[bytes] = []
        self._cells: dict[str, dict[str, int]] = {name: {} for name in self.columns}

    def add(self, frame: Any) -> None:
        """Add the rows of a data frame."""
        parts = []
        for name in self.columns:
            numbers, cells = _cells_of(frame[name])
            counts, own = self._cells[name], np.bincount(numbers + 1, minlength=len(cells)).tolist()
            for cell, count in zip([cells[-1], *cells[:-1]], own, strict=True):
                if count:
                    counts[cell] = counts.get(cell, 0) + count
            parts.append([cells[number] for number in numbers.tolist()])
        own_rows = [hashlib.sha256(_bytes("".join(row))).digest() for row in zip(*parts, strict=True)]
        self._rows += own_rows
        if self._label is not None:
            numbers, cells = _cells_of(frame[self._label])
            labels = [_bytes(cell) for cell in cells]
            pairs = zip(own_rows, numbers.tolist(), strict=True)
            self._labelled += [hashlib.sha256(row + labels[number]).digest() for row, number in pairs]

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return len(self._rows)

    @property
    def rows(self) -> str:
        """Hexadecimal digest of all rows with the names of the columns."""
        return self._of(self.columns, self._rows)

    @property
    def labelled(self) -> str:
        """The same of rows with their labels."""
        return self._of((*self.columns, self._label or ""), self._labelled)

    @staticmethod
    def _of(names: Sequence[str], rows: list[bytes]) -> str:
        head = hashlib.sha256(_bytes("\0".join(names))).digest()
        return hashlib.sha256(b"".join([head, *sorted(rows)])).hexdigest()

    @property
    def by_column(self) -> dict[str, str]:
        """Digest of the values of each column and of how often each occurs."""
        found = {}
        for name, counts in self._cells.items():
            text = "\n".join(f"{count} {cell}" for cell, count in sorted(counts.items()))
            found[name] = hashlib.sha256(_bytes(text)).hexdigest()
        return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _cells_of(column: Any) -> tuple[NDArray[np.int64], list[str]]:
    """Number of each cell's value, and the values with their length first; the last stands for missing cells, −1."""
    import pandas as pd

    numbers, values = pd.factorize(column.astype(object))
    return numbers, [f"{len(text)}:{text}" for text in (*map(canonical, values), "")]


def canonical(cell: Any) -> str:
    """The value of a cell as text that is the same in all formats."""
    if isinstance(cell, str):
        text = cell.strip()
    elif hasattr(cell, "isoformat"):
        text = cell.isoformat()
    else:
        text = str(cell)
    if text[:1] not in _FIRST_OF_NUMBER:
        lower = text.casefold()
        return lower if lower in ("true", "false") else text
    if _NUMBER.fullmatch(text):
        number = float(text)
        if abs(number) < 2**53:
            return repr(number + 0.0)  # −0 is 0
        return text if text.lstrip("+-").isdecimal() else repr(number)
    midnight = _MIDNIGHT.fullmatch(text)
    return midnight[1] if midnight else text
