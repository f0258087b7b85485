"""Encode rows given as dicts cell by cell: faster than a data frame for the few rows that a service receives.

Readers handle numbers, strings and None; other cells are encoded by the column itself.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from crcen.exceptions import InvalidInput
from crcen.tables.columns import BOOLEAN_WORDS, BooleanColumn, CategoryColumn, Column, DateColumn, NumberColumn
from crcen.tables.notation import PLAIN
from crcen.tables.typing import Array

# What may be odd about a cell.
ODD_KINDS = ("unseen", "unreadable", "missing", "clipped")
# A cell as numbers, and what is odd about it, or nothing.
Read = tuple[Sequence[float], str]
Reader = Callable[[Any], Read]

# More rows than this are read faster as a data frame.
_MOST_ROWS = 64
_LARGEST_INTEGER = 2**53
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

_READERS: WeakKeyDictionary[Column, Reader | None] = WeakKeyDictionary()


class _NotPlain(Exception):
    """A cell that only the column itself can read."""


def as_dicts(X: Any) -> list[Mapping[str, Any]] | None:
    """One dict, or a short list of them, as a list; None for anything else."""
    if isinstance(X, Mapping):
        return [X]
    if isinstance(X, list | tuple) and 0 < len(X) <= _MOST_ROWS and all(isinstance(row, Mapping) for row in X):
        return list(X)
    return None


def encode_dicts(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Any]]
) -> tuple[Array, dict[str, dict[str, int]]]:
    """Rows as a data frame of them would be encoded, and odd cells counted by kind and column."""
    found: list[list[float]] = [[] for _ in rows]
    odd: dict[str, dict[str, int]] = {kind: {} for kind in ODD_KINDS}
    for column in columns:
        cells = [_plain(row.get(column.name)) for row in rows]
        try:
            values, kinds = zip(*map(_reader(column), cells), strict=True)
        except _NotPlain:
            if any(isinstance(cell, list | tuple | dict | np.ndarray) for cell in cells):
                raise InvalidInput(
                    f"a dict is one row, with one cell a column: got several for {column.name!r}; give a list of "
                    f"dicts, or a data frame, for several rows."
                ) from None
            import pandas

            part = column.encode(pandas.Series(cells, name=column.name))
            values = part.values.tolist()
            for kind, counts in odd.items():
                if number := getattr(part, f"n_{kind}"):
                    counts[column.name] = number
            kinds = ()
        for own, numbers in zip(found, values, strict=True):
            own.extend(numbers)
        for kind in filter(None, kinds):
            odd[kind][column.name] = odd[kind].get(column.name, 0) + 1
    return np.array(found, dtype=np.float64), odd


def _plain(cell: Any) -> Any:
    """A cell without NumPy's types; None for NaN."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    return None if type(cell) is float and math.isnan(cell) else cell


def _reader(column: Column) -> Reader:
    """What reads the plain cells of a column; made once."""
    found = _READERS.get(column)
    if found is None:
        found = _READERS[column] = _READER_OF.get(type(column), lambda _: _no_reader)(column)
    return found


def _no_reader(cell: Any) -> Read:
    raise _NotPlain


def _indicator(column: Column, fill: list[float]) -> tuple[list[float], Read]:
    """The indicator of a cell that is there, and what is read where it is missing."""
    return ([0.0], ([*fill, 1.0], "")) if column.has_missing else ([], (fill, "missing"))


def _number_reader(column: NumberColumn) -> Reader:
    is_plain = column.notation == PLAIN
    there, gap = _indicator(column, [column.fill])
    low, high = column.low, column.high

    def read(cell: Any) -> Read:
        kind = type(cell)
        if kind is int and -_LARGEST_INTEGER <= cell <= _LARGEST_INTEGER:
            cell, kind = float(cell), float
        if kind is str and is_plain and _NUMBER.fullmatch(cell):
            cell, kind = float(cell), float
        if kind is float:
            if low <= cell <= high:
                return [cell, *there], ""
            return ([min(max(cell, low), high), *there], "clipped") if math.isfinite(cell) else (gap[0], "unreadable")
        if cell is None:
            return gap
        raise _NotPlain

    return read


def _boolean_reader(column: BooleanColumn) -> Reader:
    there, gap = _indicator(column, [column.fill])

    def read(cell: Any) -> Read:
        if cell is None:
            return gap
        if type(cell) not in (bool, int, str):
            raise _NotPlain
        value = BOOLEAN_WORDS.get(str(cell).strip().lower())
        return (gap[0], "unreadable") if value is None else ([value, *there], "")

    return read


def _category_reader(column: CategoryColumn) -> Reader:
    width = len(column.encoded_names)
    place = {category: i for i, category in enumerate(column.categories)}
    zeros = [0.0] * width
    gap = [*zeros[:-1], 1.0] if column.has_missing else zeros

    def read(cell: Any) -> Read:
        if type(cell) not in (str, int) and cell is not None:
            raise _NotPlain
        text = "" if cell is None else str(cell).strip()
        if not text:
            return gap, "" if column.has_missing else "missing"
        at = place.get(text, len(column.categories) if column.has_other else None)
        values = list(zeros)
        if at is not None:
            values[at] = 1.0
        return values, "" if text in place else "unseen"

    return read


def _date_reader(column: DateColumn) -> Reader:
    there, gap = _indicator(column, column.fill.tolist())

    def read(cell: Any) -> Read:
        if cell is None:
            return gap
        if type(cell) is not str:
            raise _NotPlain
        time = _time_of(cell.strip(), column.date_format)
        days = (time - _EPOCH).total_seconds() / 86_400.0
        parts = {
            "days": min(max(days, column.low), column.high),
            "month": time.month,
            "day": time.day,
            "weekday": time.weekday(),
            "hour": time.hour + time.minute / 60.0,
        }
        odd = "" if parts["days"] == days else "clipped"
        return [*(float(parts[part]) for part in column.parts), *there], odd

    return read


def _time_of(text: str, date_format: str | None) -> datetime:
    """A time, of the common forms alone."""
    if date_format is None and not _ISO_TIME.fullmatch(text):
        raise _NotPlain
    try:
        time = datetime.fromisoformat(text) if date_format is None else datetime.strptime(text, date_format)
    except ValueError as error:
        raise _NotPlain from error
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


_READER_OF: dict[type[Column], Callable[[Any], Reader]] = {
    NumberColumn: _number_reader,
    BooleanColumn: _boolean_reader,
    CategoryColumn: _category_reader,
    DateColumn: _date_reader,
}
