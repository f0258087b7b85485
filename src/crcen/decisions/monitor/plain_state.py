"""A monitor's state as JSON can hold it, and back, every entry checked: a damaged file ends in one sentence."""

import math
from dataclasses import asdict, fields
from typing import Any, TypeVar

import numpy as np

from crcen.exceptions import InvalidInput
from crcen.theory.residual_test import JointResidualSums, ResidualSums
from crcen.theory.sequential import GRID_SIZE, StreamSums

__all__ = [
    "class_sums_from",
    "count_of",
    "from_plain",
    "item_of",
    "list_of",
    "number_of",
    "numbers_of",
    "plain",
    "plain_sums",
    "short",
    "stream_sums_from",
    "sums_from",
    "text_or_none",
]

Value = TypeVar("Value")


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


def plain_sums(sums: ResidualSums | JointResidualSums) -> list[float]:
    """Sums as a list of numbers."""
    return [number for one in fields(sums) for number in np.ravel(getattr(sums, one.name)).tolist()]


def sums_from(state: Any, key: str) -> ResidualSums:
    """Read the sums stored under a key of a state."""
    n_rows, n_pos, *rest = values = numbers_of(state, key, len(fields(ResidualSums)))
    if min(values) < 0.0:
        raise InvalidInput(
            f"the monitor's state must hold numbers that are not negative as {key!r}, got {min(values):g}"
        )
    return ResidualSums(int(n_rows), int(n_pos), *rest)


def stream_sums_from(state: Any, key: str) -> StreamSums:
    """Read sums with likelihoods stored under a key of a state."""
    n_plain = len(fields(ResidualSums))
    values = numbers_of(state, key, n_plain + GRID_SIZE + 1)
    residuals = sums_from({key: values[:n_plain]}, key)
    return StreamSums(**asdict(residuals), likelihood=np.array(values[n_plain:-1]), weight_unit=values[-1])


def class_sums_from(state: Any, key: str, n_classes: int) -> JointResidualSums:
    """Read the sums of K classes stored under a key of a state."""
    sizes = [1, n_classes, *[n_classes**2] * 3, n_classes]
    values = np.array(numbers_of(state, key, sum(sizes)))
    n_rows, counts, *squares, last = np.split(values, np.cumsum(sizes)[:-1])
    if n_rows[0] < 0.0 or min(counts.min(), squares[0].min(), last.min()) < 0.0:
        raise InvalidInput(f"the monitor's state must hold numbers that are not negative as {key!r}")
    flows, slope, variance = (one.reshape(n_classes, n_classes) for one in squares)
    return JointResidualSums(int(n_rows[0]), counts.astype(np.int64), flows, slope, variance, last)


def plain(value: Any) -> dict[str, Any]:
    """A reading or an alarm as JSON can hold it; null stands for NaN."""
    return {key: _finite(one) for key, one in asdict(value).items()}


def _finite(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def from_plain(kind: type[Value], stored: Any) -> Value:
    """The inverse of `plain`, checked."""
    values: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]
        value = item_of(stored, field.name)
        if field.type is float:
            values[field.name] = math.nan if value is None else number_of(stored, field.name)
        elif field.type is int:
            values[field.name] = count_of(stored, field.name)
        else:
            values[field.name] = text_or_none(stored, field.name)
    return kind(**values)


def short(value: Any) -> str:
    """A value as a sentence can hold it."""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**15 else "a number of many digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
