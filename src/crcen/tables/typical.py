"""Typical rows of a mixed table, made up column by column, and cells of rows as people would read them."""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.reasons.reasons import shortened, spelled, typical_rows
from crcen.tables.columns import Column, NumberColumn, as_numbers, as_text, is_text, nice_step, rounded
from crcen.tables.number_notation import Notation

__all__ = ["blocks_of", "cell_texts", "typical_table"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

Array = NDArray[np.float64]


def blocks_of(columns: list[Column]) -> list[NDArray[np.int64]]:
    """The encoded columns of each column."""
    ends = np.cumsum([0, *(len(column.encoded_names) for column in columns)])
    return [np.arange(a, b) for a, b in itertools.pairwise(ends)]


def typical_table(columns: list[Column], X: Array) -> Array:
    """Typical rows of encoded training rows: numbers rounded, and means of the components of texts."""
    blocks = blocks_of(columns)
    found = typical_rows(X, blocks, [column.kind == "text" for column in columns])
    for column, block in zip(columns, blocks, strict=True):
        if column.kind in ("number", "date"):
            low, high = np.quantile(X[:, block[0]], [0.25, 0.75])
            spread = float(high - low) or float(np.ptp(X[:, block[0]]))
            found[:, block[0]] = rounded(found[:, block[0]], nice_step(spread, 50))
    return found


def cell_texts(columns: list[Column], frame: DataFrame) -> NDArray[np.object_]:
    """The cells of each column as they are written, numbers with commas between thousands: (n, columns)."""
    return np.column_stack([_texts(column, frame[column.name]) for column in columns])


def _texts(column: Column, series: Any) -> NDArray[np.object_]:
    """A number that is written with a currency or unit stays as it is written."""
    if isinstance(column, NumberColumn) and not (column.affix and is_text(series)):
        found = spelled(as_numbers(series, Notation(column.decimal, column.thousands, column.affix)))
        unknown = np.flatnonzero(found == "missing")
        if len(unknown):
            found[unknown] = _written(series.iloc[unknown])
        return found
    return _written(series)


def _written(series: Any) -> NDArray[np.object_]:
    return np.array([shortened(str(cell)) for cell in as_text(series).fillna("missing")], dtype=object)
