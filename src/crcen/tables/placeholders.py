"""Values that stand for a missing cell: numbers far from all others, and words such as "unknown"."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.tables.columns import as_text, is_text
from crcen.tables.number_notation import is_missing_mark

__all__ = ["placeholder_words", "sentinels"]

# Cells that have such a value, at least, and as a share; different other values that show what is usual.
_FEWEST_CELLS, _FEWEST_SHARE, _FEWEST_OTHERS = 3, 0.001, 5
_USUAL = {float(sign * int(digits)) for digits in ("9", "99", "999", "9999", "99999", "999999") for sign in (1, -1)}
_MOST = 3


def sentinels(values: NDArray[np.float64]) -> dict[float, int]:
    """Numbers that repeat, and are farther from all others than these are from each other, with their cells.

    Also the only negative number of a column, if it is −1 or made of nines.
    """
    known = values[np.isfinite(values)]
    distinct, counts = np.unique(known, return_counts=True)
    found: dict[float, int] = {}
    while len(distinct) > _FEWEST_OTHERS and len(found) < _MOST:
        ends = {-1: (distinct[-1] - distinct[-2], distinct[-2] - distinct[0])}
        ends[0] = distinct[1] - distinct[0], distinct[-1] - distinct[1]
        for place, (gap, span) in ends.items():
            value, count = float(distinct[place]), int(counts[place])
            is_frequent = count >= max(_FEWEST_CELLS, _FEWEST_SHARE * len(known)) and value != 0.0
            is_far = gap > (0.5 if value in _USUAL else 1.0) * span
            is_odd_sign = place == 0 and value < 0.0 <= distinct[1] and (value == -1.0 or value in _USUAL)
            if is_frequent and (is_far or is_odd_sign):
                found[value] = count
                distinct, counts = np.delete(distinct, place), np.delete(counts, place)
                break
        else:
            break
    return found


def placeholder_words(cells: Any, marks: Mapping[str, int]) -> dict[str, int]:
    """Words such as "unknown", "n/a" and "?" among the cells of a text column, and those already read as missing."""
    found = dict(marks)
    if is_text(cells):
        for word, count in as_text(cells).value_counts().items():
            if is_missing_mark(str(word)):
                found[str(word)] = found.get(str(word), 0) + int(count)
    return dict(sorted(found.items(), key=lambda one: -one[1]))
