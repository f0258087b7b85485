"""SHA-256 of the rows of a table that depends neither on their order nor on the format of the file."""

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

__all__ = ["RowDigest"]

# Numbers as text; 007 is a code and stays what it is.
_NUMBER = re.compile(r"[+-]?(?:0|[1-9]\d*)(?:\.\d*)?(?:[eE][+-]?\d+)?")
_MIDNIGHT = re.compile(r"(\d{4}-\d{2}-\d{2})[T ]00:00:00(?:\.0+)?")


class RowDigest:
    """Digest of rows that arrive in chunks.

    Cells are compared by value: 1, 1.0 and "1" are equal, as are a date and the same date at midnight. Columns have
    digests of their own, so that a difference can be named.

    Parameters
    ----------
    columns : sequence of str
        The columns that count, in any order.
    """

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = tuple(sorted(columns))
        self._rows: list[bytes] = []
        self._cells: dict[str, Counter[bytes]] = {name: Counter() for name in self.columns}

    def add(self, frame: Any) -> None:
        """Add the rows of a data frame."""
        import pandas as pd

        parts = []
        for name in self.columns:
            numbers, values = pd.factorize(frame[name].astype(object), use_na_sentinel=True)
            cells = [hashlib.sha256(canonical(value)).digest() for value in values]
            cells.append(hashlib.sha256(b"").digest())  # the place of missing cells, −1
            own = [cells[number] for number in numbers]
            self._cells[name].update(own)
            parts.append(own)
        self._rows += [hashlib.sha256(b"".join(row)).digest() for row in zip(*parts, strict=True)]

    @property
    def n_rows(self) -> int:
        """Rows so far."""
        return len(self._rows)

    @property
    def rows(self) -> str:
        """Hexadecimal digest of all rows with the names of the columns."""
        head = "\0".join(self.columns).encode()
        return hashlib.sha256(b"".join([hashlib.sha256(head).digest(), *sorted(self._rows)])).hexdigest()

    @property
    def by_column(self) -> dict[str, str]:
        """Digest of the values of each column and of how often each occurs."""
        found = {}
        for name, counts in self._cells.items():
            parts = [cell + number.to_bytes(8, "big") for cell, number in sorted(counts.items())]
            found[name] = hashlib.sha256(b"".join(parts)).hexdigest()
        return found


def canonical(cell: Any) -> bytes:
    """The value of a cell as bytes."""
    text = str(cell.isoformat() if hasattr(cell, "isoformat") else cell).strip()
    if _NUMBER.fullmatch(text):
        number = float(text)
        if abs(number) < 2**53:
            return repr(number + 0.0).encode()  # −0 is 0
        return text.encode() if text.lstrip("+-").isdecimal() else repr(number).encode()
    if text.casefold() in ("true", "false"):
        return text.casefold().encode()
    midnight = _MIDNIGHT.fullmatch(text)
    return (midnight[1] if midnight else text).encode("utf-8", "surrogatepass")
