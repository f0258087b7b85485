"""A monitor's state as JSON can hold it, and back, every entry checked: a damaged file ends in one sentence."""

import math
from dataclasses import asdict, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.residual_test import ResidualSums
from crcen.theory.sequential import GRID_SIZE, StreamSums, n_tests

__all__ = [
    "count_of",
    "item_of",
    "list_of",
    "number_of",
    "numbers_of",
    "numbers_or_nan",
    "plain",
    "plain_sums",
    "plain_value",
    "residual_sums_from",
    "short",
    "sums_from",
    "text_or_none",
]


def item_of(state: Any, key: str) -> Any:
    """Read an entry that must be there."""
    if not isinstance(state, dict) or key not in state:
        raise InvalidInput(f"the monitor's state must have an entry {key!r}; was the file written by another program?")
    return state[key]


def number_of(state: Any, key: str) -> float:
    """Read one finite number."""
    value = item_of(state, key)
    try:
        finite = not isinstance(value, bool) and isinstance(value, int | float) and math.isfinite(value)
    except OverflowError:  # an integer beyond all floats
        finite = False
    if not finite:
        raise InvalidInput(f"the monitor's state must hold a finite number as {key!r}, got {short(value)}")
    return float(value)


def count_of(state: Any, key: str, least: float = 0.0) -> int:
    """Read a whole number, by default not negative."""
    value = number_of(state, key)
    if not least <= value <= 2.0**53 or value != int(value):
        raise InvalidInput(f"the monitor's state must hold a whole number from {least:g} as {key!r}, got {value:g}")
    return int(value)


def list_of(state: Any, key: str) -> list[Any]:
    """Read a list."""
    value = item_of(state, key)
    if not isinstance(value, list):
        raise InvalidInput(f"the monitor's state must hold a list as {key!r}, got {type(value).__name__}")
    return value


def numbers_of(state: Any, key: str, count: int) -> list[float]:
    """Read so many finite numbers."""
    values = list_of(state, key)
    if len(values) != count:
        raise InvalidInput(f"the monitor's state must hold {count} numbers as {key!r}, got {len(values)}")
    return [number_of({key: value}, key) for value in values]


def text_or_none(state: Any, key: str) -> str | None:
    """Read a name, or null."""
    value = item_of(state, key)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"the monitor's state must hold text or null as {key!r}, got {short(value)}")
    return value


def plain_sums(sums: ResidualSums | StreamSums) -> list[float]:
    """Sums as a list of numbers."""
    return [number for one in fields(sums) for number in np.ravel(getattr(sums, one.name)).tolist()]


def residual_sums_from(state: Any, key: str) -> ResidualSums:
    """Read the sums of one class stored under a key of a state."""
    n_rows, n_pos, *rest = values = numbers_of(state, key, len(fields(ResidualSums)))
    _check_counts(np.array([n_rows, n_pos]), np.array(rest), key)
    if values[1] > values[0]:
        raise _more_than_rows(key)
    return ResidualSums(int(n_rows), int(n_pos), *rest)


def sums_from(state: Any, key: str, n_classes: int) -> StreamSums:
    """Read the sums of K classes stored under a key of a state."""
    sizes = [1, n_classes, *[n_classes**2] * 3, n_classes, n_tests(n_classes) * GRID_SIZE, 1]
    n_rows, counts, flows, slope, variance, squares, likelihood, unit = np.split(
        np.array(numbers_of(state, key, sum(sizes))), np.cumsum(sizes)[:-1]
    )
    own = np.diag(variance.reshape(n_classes, n_classes))
    _check_counts(np.append(n_rows, counts), np.concatenate([flows, squares, own, unit]), key)
    if counts.sum() != n_rows[0]:
        raise _more_than_rows(key)
    square = (n_classes, n_classes)
    return StreamSums(
        int(n_rows[0]),
        counts.astype(np.int64),
        flows.reshape(square),
        slope.reshape(square),
        variance.reshape(square),
        squares,
        likelihood.reshape(-1, GRID_SIZE),
        float(unit[0]),
    )


def _check_counts(counts: NDArray[np.float64], sums: NDArray[np.float64], key: str) -> None:
    """Refuse counts that are no whole numbers, and negative sums."""
    if min(counts.min(), sums.min()) < 0.0:
        raise InvalidInput(f"the monitor's state must hold numbers that are not negative as {key!r}")
    if (counts != np.round(counts)).any():
        raise InvalidInput(f"the monitor's state must hold whole numbers of rows as {key!r}, got {counts.tolist()}")


def _more_than_rows(key: str) -> InvalidInput:
    return InvalidInput(f"the monitor's state must hold class counts that sum to the rows as {key!r}")


def plain(value: Any) -> dict[str, Any]:
    """A reading or an alarm as JSON can hold it; null stands for NaN."""
    return {key: plain_value(one) for key, one in asdict(value).items()}


def plain_value(value: Any) -> Any:
    """A value as JSON can hold it; null stands for NaN and infinity."""
    if isinstance(value, tuple):
        return [plain_value(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def numbers_or_nan(state: Any, key: str, count: int) -> tuple[float, ...]:
    """Read so many numbers, null for NaN."""
    values = list_of(state, key)
    zeros = numbers_of({key: [0.0 if value is None else value for value in values]}, key, count)
    return tuple(math.nan if value is None else number for value, number in zip(values, zeros, strict=True))


def short(value: Any) -> str:
    """A value as a sentence can hold it."""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**15 else "a number of many digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
