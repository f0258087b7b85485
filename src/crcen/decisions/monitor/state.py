"""A monitor's state as JSON can hold it, and back, every entry checked: a damaged file ends in one sentence."""

import math
from collections.abc import Sequence
from dataclasses import Field, asdict, fields
from types import NoneType
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, get_args

import numpy as np

from crcen.exceptions import InvalidInput
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import Array
from crcen.theory.sequential import GRID_SIZE, StreamSums, n_tests


class Record(Protocol):
    """Any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]


T = TypeVar("T", bound=Record)


def refuse(needed: str) -> NoReturn:
    """Refuse a state without what it needs."""
    raise InvalidInput(f"the monitor's state must {needed}")


class Stored:
    """A part of a stored state, whose entries are read by type."""

    def __init__(self, state: object) -> None:
        self.state = state

    def item(self, key: str) -> object:
        """An entry that must be there."""
        if not isinstance(self.state, dict) or key not in self.state:
            refuse(f"have an entry {key!r}; was the file written by another program?")
        return self.state[key]

    def number(self, key: str) -> float:
        """One finite number."""
        return _number(self.item(key), key)

    def count(self, key: str, least: float = 0.0) -> int:
        """A whole number, by default not negative."""
        value = self.number(key)
        if not least <= value <= 2.0**53 or value != int(value):
            refuse(f"hold a whole number from {least:g} as {key!r}, got {value:g}")
        return int(value)

    def entries(self, key: str) -> list[Any]:
        """A list."""
        value = self.item(key)
        if not isinstance(value, list):
            refuse(f"hold a list as {key!r}, got {type(value).__name__}")
        return value

    def parts(self, key: str) -> "list[Stored]":
        """A list of parts."""
        return [Stored(one) for one in self.entries(key)]

    def numbers(self, key: str, count: int, *, or_nan: bool = False) -> list[float]:
        """A number of finite numbers; null may stand for NaN."""
        values = self.entries(key)
        if len(values) != count:
            refuse(f"hold {count} numbers as {key!r}, got {len(values)}")
        return [math.nan if or_nan and value is None else _number(value, key) for value in values]

    def text(self, key: str) -> str | None:
        """A name, or null."""
        value = self.item(key)
        if value is not None and not isinstance(value, str):
            refuse(f"hold text or null as {key!r}, got {short(value)}")
        return value

    def flag(self, key: str) -> bool:
        """True or false."""
        value = self.item(key)
        if not isinstance(value, bool):
            refuse(f"hold true or false as {key!r}, got {short(value)}")
        return value

    def record(self, kind: type[T], **given: object) -> T:
        """A flat dataclass, by the types of its fields; some values may be given."""
        readers = {int: self.count, float: self.number, bool: self.flag, object: self.item}
        for one in fields(kind):
            if one.name not in given:
                reader: Any = self.text if get_args(one.type) == (str, NoneType) else readers[one.type]  # type: ignore[index]
                given[one.name] = reader(one.name)
        return kind(**given)

    def arrays(self, key: str, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
        """Arrays of these shapes from one list of numbers."""
        sizes = [math.prod(shape) for shape in shapes]
        parts = np.split(np.array(self.numbers(key, sum(sizes))), np.cumsum(sizes)[:-1])
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]

    def sums_of_one(self, key: str) -> ResidualSums:
        """The sums of one class."""
        n_rows, n_pos, *rest = self.numbers(key, len(fields(ResidualSums)))
        _check_counts(np.array([n_rows, n_pos]), np.array(rest), key, n_pos <= n_rows)
        return ResidualSums(int(n_rows), int(n_pos), *rest)

    def sums(self, key: str, n_classes: int) -> StreamSums:
        """The sums of K classes."""
        each, square = (n_classes,), (n_classes, n_classes)
        shapes = [(1,), each, square, square, square, each, (n_tests(n_classes), GRID_SIZE), (1,)]
        n_rows, counts, flows, slope, variance, squares, likelihood, unit = self.arrays(key, shapes)
        sums = np.concatenate([flows.ravel(), squares, np.diag(variance), unit])
        _check_counts(np.append(n_rows, counts), sums, key, counts.sum() == n_rows[0])
        whole = counts.astype(np.int64)
        return StreamSums(int(n_rows[0]), whole, flows, slope, variance, squares, likelihood, float(unit[0]))


def _number(value: object, key: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer beyond all floats
        pass
    refuse(f"hold a finite number as {key!r}, got {short(value)}")


def _check_counts(counts: Array, sums: Array, key: str, is_consistent: bool) -> None:
    if min(counts.min(), sums.min()) < 0.0:
        refuse(f"hold numbers that are not negative as {key!r}")
    if (counts != np.round(counts)).any():
        refuse(f"hold whole numbers of rows as {key!r}, got {counts.tolist()}")
    if not is_consistent:
        refuse(f"hold class counts that sum to the rows as {key!r}")


def plain_sums(sums: Record) -> list[float]:
    """All numbers of a dataclass of numbers and arrays, as one list."""
    return [number for one in fields(sums) for number in np.ravel(getattr(sums, one.name)).tolist()]


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
