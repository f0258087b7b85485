"""A monitor's state as JSON can hold it, and back, every entry checked: a damaged file ends in one sentence."""

import math
from dataclasses import Field, fields
from types import NoneType
from typing import Any, ClassVar, NoReturn, Protocol, TypeVar, get_args

import numpy as np

from crcen._support.values import json_value
from crcen.exceptions import InvalidInput
from crcen.theory.sequential import StreamSums


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

    def sums(self, key: str, like: T) -> T:
        """What `plain_sums` made of a dataclass with numbers and arrays of the shapes and types of ``like``."""
        parts = [np.asarray(getattr(like, one.name)) for one in fields(like)]
        ends = np.cumsum([part.size for part in parts])
        found = []
        for part, values in zip(parts, np.split(np.array(self.numbers(key, int(ends[-1]))), ends[:-1]), strict=True):
            if part.dtype.kind == "i" and ((values < 0.0) | (values > 2.0**53) | (values % 1.0 > 0.0)).any():
                refuse(f"hold whole numbers that are not negative as {key!r}, got {short(values.tolist())}")
            found.append(values.astype(part.dtype).reshape(part.shape)[()])
        return type(like)(*(one if one.ndim else one.item() for one in found))

    def stream_sums(self, key: str, n_classes: int) -> StreamSums:
        """The sums of K classes."""
        found = self.sums(key, StreamSums.none(n_classes))
        amounts = (found.flows.min(), found.squares.min(), np.diag(found.variance).min(), found.weight_unit)
        if min(amounts) < 0.0 or found.counts.sum() != found.n_rows:
            refuse(f"hold amounts that are not negative and class counts that sum to the rows as {key!r}")
        return found


def _number(value: object, key: str) -> float:
    try:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return float(value)
    except OverflowError:  # an integer beyond all floats
        pass
    refuse(f"hold a finite number as {key!r}, got {short(value)}")


def plain_sums(sums: Record) -> list[float]:
    """All numbers of a dataclass of numbers and arrays, as one list."""
    return [number for one in fields(sums) for number in np.ravel(getattr(sums, one.name)).tolist()]


def plain(value: Record) -> dict[str, object]:
    """A reading or an alarm as JSON can hold it; null stands for NaN."""
    found: dict[str, object] = json_value(value)
    return found


def short(value: object) -> str:
    """A value for an error message, shortened."""
    shown = repr(value) if not isinstance(value, int) or abs(value) < 10**15 else "a number of many digits"
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
