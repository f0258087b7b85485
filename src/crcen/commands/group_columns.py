"""Columns that name groups of rows, for those who ask whether one price serves them alike."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter
from crcen.commands.inputs import Source, check_column
from crcen.theory.groups import GroupComparison

__all__ = ["CODE", "group_columns", "group_lines", "group_values"]

# The check of the report that compares groups.
CODE = "CRC010"
_MOST_COLUMNS = 10
# Numbers of more values than this are cut, into so many parts of equal size.
_MOST_PARTS, _PARTS = 20, 5


def group_columns(groups: Any, source: Source, target: str) -> list[str]:
    """Names of columns whose values are groups, each once."""
    names = [groups] if isinstance(groups, str) else list(dict.fromkeys(map(str, groups or ())))
    for name in names:
        check_column(name, source.columns, "groups", source.name)
        if name == target:
            raise InvalidInput(f"groups must not be the target: got {name}.", parameter="groups")
    if len(names) > _MOST_COLUMNS:
        raise InvalidParameter(f"groups must be at most {_MOST_COLUMNS} columns: got {len(names)}.", parameter="groups")
    return names


def group_values(cells: list[Any]) -> NDArray[np.object_]:
    """Cells of a column as text, None where they are missing; numbers of many values in parts of equal size."""
    import pandas as pd

    column = pd.concat(cells, ignore_index=True)
    numbers = pd.to_numeric(column, errors="coerce")
    is_number = bool((numbers.notna() == column.notna()).all()) and numbers.nunique() > _MOST_PARTS
    if is_number:
        parts = pd.qcut(numbers, _PARTS, duplicates="drop")
        texts = parts.map(lambda part: f"{_number(part.left)} to {_number(part.right)}").astype(object)
        return np.array([None if pd.isna(cell) else cell for cell in texts], dtype=object)
    return np.array([None if pd.isna(cell) else str(cell) for cell in column], dtype=object)


def _number(value: float) -> str:
    if abs(value) < 1000:
        return f"{value:.4g}"
    return f"{value:,.0f}" if abs(value) >= 10_000 else f"{value:.0f}"  # years are written without a comma


def group_lines(comparisons: Sequence[GroupComparison]) -> list[str]:
    """Comparisons as lines of text."""
    lines: list[str] = []
    for one in comparisons:
        word = f"Warning {CODE}: {one.sentence}" if one.differing else f"{one.sentence[0].upper()}{one.sentence[1:]}"
        lines += ["", f"Groups of {one.column}", *one.lines(), f"{word}."]
    return lines
