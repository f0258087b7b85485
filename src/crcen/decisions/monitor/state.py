"""A monitor's state as JSON can hold it, and back, every entry checked: a damaged file ends in one sentence."""

import math
from collections.abc import Callable, Sequence
from dataclasses import Field, asdict, fields
from types import NoneType
from typing import Any, ClassVar, Protocol, TypeVar, get_args

import numpy as np

from crcen.exceptions import InvalidInput
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Array
from crcen.theory.sequential import GRID_SIZE, StreamSums, n_tests


class Record(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Record)


def item_of(state: object, key: str) -> object:
    """Read an entry that must be there."""
    if not isinstance(state, dict) or key not in state:
        raise InvalidInput(f"the monitor's state must have an entry {key!r}; was the file written by another program?")
    return state[key]


def number_of(state: object, key: str) -> float:
    """Read one finite number."""
    value = item_of(state, key)
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer beyond all floats
        pass
    raise InvalidInput(f"the monitor's state must hold a finite number as {key!r}, got {short(value)}")


def count_of(state: object, key: str, least: float = 0.0) -> int:
    """Read a whole number, by default not negative."""
    value = number_of(state, key)
    if not least <= value <= 2.0**53 or value != int(value):
        raise InvalidInput(f"the monitor's state must hold a whole number from {least:g} as {key!r}, got {value:g}")
    return int(value)


def list_of(state: object, key: str) -> list[object]:
    """Read a list."""
    value = item_of(state, key)
    if not isinstance(value, list):
        raise InvalidInput(f"the monitor's state must hold a list as {key!r}, got {type(value).__name__}")
    return value


def numbers_of(state: object, key: str, count: int) -> list[float]:
    """Read this number of finite numbers."""
    values = list_of(state, key)
    if len(values) != count:
        raise InvalidInput(f"the monitor's state must hold {count} numbers as {key!r}, got {len(values)}")
    return [number_of({key: value}, key) for value in values]


def numbers_or_nan(state: object, key: str, count: int) -> tuple[float, ...]:
    """Read this number of numbers, null for NaN."""
    values = list_of(state, key)
    zeros = numbers_of({key: [0.0 if value is None else value for value in values]}, key, count)
    return tuple(math.nan if value is None else number for value, number in zip(values, zeros, strict=True))


def text_or_none(state: object, key: str) -> str | None:
    """Read a name, or null."""
    value = item_of(state, key)
    if value is not None and not isinstance(value, str):
        raise InvalidInput(f"the monitor's state must hold text or null as {key!r}, got {short(value)}")
    return value


def flag_of(state: object, key: str) -> bool:
    """Read true or false."""
    value = item_of(state, key)
    if not isinstance(value, bool):
        raise InvalidInput(f"the monitor's state must hold true or false as {key!r}, got {short(value)}")
    return value


_READERS: dict[object, Callable[[object, str], object]] = {
    int: count_of,
    float: number_of,
    bool: flag_of,
    object: item_of,
}


def record_of(kind: type[T], stored: object, **given: object) -> T:
    """Read a flat dataclass by the types of its fields; some values may be given."""
    for one in fields(kind):
        if one.name not in given:
            reader = text_or_none if get_args(one.type) == (str, NoneType) else _READERS[one.type]
            given[one.name] = reader(stored, one.name)
    return kind(**given)


def plain_sums(sums: Record) -> list[float]:
    """All numbers of a dataclass of numbers and arrays, as one list."""
    return [number for one in fields(sums) for number in np.ravel(getattr(sums, one.name)).tolist()]


def arrays_of(state: object, key: str, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Read arrays of these shapes from one list of numbers."""
    sizes = [math.prod(shape) for shape in shapes]
    parts = np.split(np.array(numbers_of(state, key, sum(sizes))), np.cumsum(sizes)[:-1])
    return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]


def residual_sums_from(state: object, key: str) -> ResidualSums:
    """Read the sums of one class stored under a key of a state."""
    n_rows, n_pos, *rest = numbers_of(state, key, len(fields(ResidualSums)))
    _check_counts(np.array([n_rows, n_pos]), np.array(rest), key, n_pos <= n_rows)
    return ResidualSums(int(n_rows), int(n_pos), *rest)


def sums_from(state: object, key: str, n_classes: int) -> StreamSums:
    """Read the sums of K classes stored under a key of a state."""
    each, square = (n_classes,), (n_classes, n_classes)
    shapes = [(1,), each, square, square, square, each, (n_tests(n_classes), GRID_SIZE), (1,)]
    n_rows, counts, flows, slope, variance, squares, likelihood, unit = arrays_of(state, key, shapes)
    sums = np.concatenate([flows.ravel(), squares, np.diag(variance), unit])
    _check_counts(np.append(n_rows, counts), sums, key, counts.sum() == n_rows[0])
    whole = counts.astype(np.int64)
    return StreamSums(int(n_rows[0]), whole, flows, slope, variance, squares, likelihood, float(unit[0]))


def _check_counts(counts: Array, sums: Array, key: str, is_consistent: bool) -> None:
    """Refuse negative numbers, counts that are not whole numbers, and classes that are not part of the rows."""
    if min(counts.min(), sums.min()) < 0.0:
        raise InvalidInput(f"the monitor's state must hold numbers that are not negative as {key!r}")
    if (counts != np.round(counts)).any():
        raise InvalidInput(f"the monitor's state must hold whole numbers of rows as {key!r}, got {counts.tolist()}")
    if not is_consistent:
        raise InvalidInput(f"the monitor's state must hold class counts that sum to the rows as {key!r}")


def plain(value: Record) -> dict[str, object]:
    """A reading or an alarm as JSON can hold it; null stands for NaN."""
    return {key: plain_value(one) for key, one in asdict(value).items()}


def plain_value(value: object) -> object:
    """A value as JSON can hold it; null stands for NaN and infinity."""
    if isinstance(value, tuple):
        return [plain_value(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def short(value: object) -> str:
    """A value for an error message, shortened."""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**15 else "a number of many digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
