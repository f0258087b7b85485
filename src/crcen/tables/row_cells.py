"""Encode rows given as dicts cell by cell: faster than a data frame for the few rows that a service receives.

Readers handle numbers, strings and None; other cells are encoded by the column itself.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from crcen._support.lazy import pd
from crcen.exceptions import InvalidInput
from crcen.tables.cells import ColumnCells
from crcen.tables.columns import (
    BOOLEAN_WORDS,
    ODD_KINDS,
    BooleanColumn,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
)
from crcen.tables.notation import PLAIN
from crcen.tables.typing import Array, Cell, TableLike

# A cell as numbers, and what is odd about it, or nothing.
Read = tuple[Sequence[float], str]

# More rows than this are read faster as a data frame.
_MOST_ROWS = 64
_LARGEST_INTEGER = 2**53
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _NotPlain(Exception):
    """A cell that only the column itself can read."""


def as_dicts(X: TableLike) -> list[Mapping[str, Cell]] | None:
    """One dict, or a short list of them, as a list; None for anything else."""
    if isinstance(X, Mapping):
        return [X]
    if isinstance(X, list | tuple) and 0 < len(X) <= _MOST_ROWS and all(isinstance(row, Mapping) for row in X):
        return list(X)
    return None


def encode_dicts(
    columns: Sequence[Column], rows: Sequence[Mapping[str, Cell]]
) -> tuple[Array, dict[str, dict[str, int]]]:
    """Rows as a data frame of them would be encoded, and odd cells counted by kind and column."""
    found: list[list[float]] = [[] for _ in rows]
    odd: dict[str, dict[str, int]] = {kind: {} for kind in ODD_KINDS}
    for column in columns:
        cells = [_plain(row.get(column.name)) for row in rows]
        try:
            values, kinds = zip(*(_READERS[type(column)](column, cell) for cell in cells), strict=True)
        except (_NotPlain, KeyError):
            if any(isinstance(cell, list | tuple | dict | np.ndarray) for cell in cells):
                message = f"a dict is one row, but {column.name!r} has several cells: give a list of dicts for more."
                raise InvalidInput(message) from None
            part = column.encode(ColumnCells(pd.Series(cells, name=column.name)))
            values = part.values.tolist()
            for kind, number in part.odd.items():
                odd[kind].update({column.name: number} if number else {})
            kinds = ()
        for own, numbers in zip(found, values, strict=True):
            own.extend(numbers)
        for kind in filter(None, kinds):
            odd[kind][column.name] = odd[kind].get(column.name, 0) + 1
    return np.array(found, dtype=np.float64), odd


def _plain(cell: Cell) -> Cell:
    """A cell without NumPy's types; None for NaN."""
    if isinstance(cell, np.generic):
        cell = cell.item()
    return None if type(cell) is float and math.isnan(cell) else cell


def _there(column: Column, values: list[float], odd: str = "") -> Read:
    return [*values, 0.0] if column.has_missing else values, odd


def _gap(column: Column, fill: list[float], odd: str = "") -> Read:
    return ([*fill, 1.0], odd) if column.has_missing else (fill, odd or "missing")


def _number(column: NumberColumn, cell: Cell) -> Read:
    kind = type(cell)
    is_exact = kind is int and -_LARGEST_INTEGER <= cell <= _LARGEST_INTEGER
    if is_exact or (kind is str and column.notation == PLAIN and _NUMBER.fullmatch(cell)):
        cell, kind = float(cell), float
    if cell is None:
        return _gap(column, [column.fill])
    if kind is not float:
        raise _NotPlain
    if not math.isfinite(cell):
        return _gap(column, [column.fill], "unreadable")
    value = min(max(cell, column.low), column.high)
    return _there(column, [value], "" if value == cell else "clipped")


def _boolean(column: BooleanColumn, cell: Cell) -> Read:
    if cell is None:
        return _gap(column, [column.fill])
    if type(cell) not in (bool, int, str):
        raise _NotPlain
    value = BOOLEAN_WORDS.get(str(cell).strip().lower())
    return _gap(column, [column.fill], "unreadable") if value is None else _there(column, [value])


def _category(column: CategoryColumn, cell: Cell) -> Read:
    if type(cell) not in (str, int) and cell is not None:
        raise _NotPlain
    text = "" if cell is None else str(cell).strip()
    n_categories = len(column.categories)
    values = [0.0] * (n_categories + column.has_other)
    if not text:
        return _gap(column, values)
    place = column.places.get(text, n_categories)
    if place < len(values):
        values[place] = 1.0
    return _there(column, values, "unseen" if place == n_categories else "")


def _date(column: DateColumn, cell: Cell) -> Read:
    if cell is None:
        return _gap(column, column.fill.tolist())
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
    values = [float(parts[part]) for part in column.parts]
    return _there(column, values, "" if parts["days"] == days else "clipped")


def _time_of(text: str, date_format: str | None) -> datetime:
    """A time, of the common forms alone."""
    if date_format is None and not _ISO_TIME.fullmatch(text):
        raise _NotPlain
    try:
        time = datetime.fromisoformat(text) if date_format is None else datetime.strptime(text, date_format)
    except ValueError as error:
        raise _NotPlain from error
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)


_READERS: dict[type[Column], Callable[[Any, Cell], Read]] = {
    NumberColumn: _number,
    BooleanColumn: _boolean,
    CategoryColumn: _category,
    DateColumn: _date,
}
