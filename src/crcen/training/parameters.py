"""Validation of single parameters: each function returns the value in a plain type or raises `InvalidParameter`."""

import numbers
from collections.abc import Callable, Iterable
from dataclasses import field, fields
from functools import cache
from typing import Any, Self, TypeVar

import numpy as np

from crcen.exceptions import InvalidParameter

_Value = TypeVar("_Value")


def option(default: object, check: Callable[..., object], **limits: object) -> Any:
    """A field of a `Checked` class: its check gets its name, its value and the limits; a default of None passes."""
    return field(default=default, metadata={"check": (check, limits, default is None)})


@cache
def _checks(kind: type) -> dict[str, tuple[Callable[..., object], dict[str, object], bool]]:
    """The checks of a class's fields; a subclass may change a default without repeating the check."""
    declared: list[Any] = [getattr(base, "__dataclass_fields__", {}) for base in reversed(kind.__mro__)]
    return {one.name: one.metadata["check"] for own in declared for one in own.values() if one.metadata}


class Checked:
    """Base of frozen dataclasses that validate their fields in the constructor; the repr lists non-default values."""

    def __post_init__(self) -> None:
        """Validate."""
        kind: Any = type(self)
        for name, (check, limits, is_optional) in _checks(kind).items():
            value = getattr(self, name)
            if value is not None or not is_optional:
                object.__setattr__(self, name, check(name, value, **limits))

    @classmethod
    def of(cls, value: object) -> Self:
        """The group that is the value of a parameter; ``None`` stands for its defaults."""
        if value is None:
            return cls()
        if type(value) is not cls:
            name = cls.__name__
            raise InvalidParameter(f"{name.lower()} must be None or a {name}, as {name}(…): got {value!r}.")
        return value

    def replace(self, **changes: object) -> Self:
        """Return a copy with some fields changed and no validation, for values that the library computes itself."""
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__, **changes)
        return new

    def __repr__(self) -> str:
        own: Any = self
        values = [(field.name, getattr(self, field.name), field.default) for field in fields(own)]
        shown = ", ".join(f"{name}={value!r}" for name, value, default in values if value != default)
        return f"{type(self).__name__}({shown})"


def number(
    name: str, value: Any, *, low: float, high: float = np.inf, integer: bool = False, open_low: bool = False
) -> float:
    """A finite number in [low, high], or in (low, high] if ``open_low``, as int or float."""
    kind = numbers.Integral if integer else numbers.Real
    valid = isinstance(value, kind) and not isinstance(value, bool | np.bool_) and _is_finite(value)
    if valid and (value > low if open_low else value >= low) and value <= high:
        return int(value) if integer else float(value)
    what = "a whole number" if integer else "a number"
    start = f"above {low:g}" if open_low else f"at least {low:g}"
    end = "" if np.isinf(high) else f" and at most {high:g}"
    raise InvalidParameter(f"{name} must be {what} {start}{end}: got {value!r}.")


def choice(name: str, value: _Value, allowed: Iterable[object]) -> _Value:
    """One of a few values, of the same type."""
    value = bool(value) if isinstance(value, np.bool_) else value  # type: ignore[assignment]
    for one in allowed:
        if value is one or (type(value) is type(one) and value == one):
            return value
    listed = ", ".join(repr(one) for one in allowed)
    raise InvalidParameter(f"{name} must be one of {listed}: got {value!r}.")


def flag(name: str, value: object) -> bool:
    """A bool."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameter(f"{name} must be True or False: got {value!r}.")
    return bool(value)


def layer_sizes(name: str, value: object) -> tuple[int, ...]:
    """Hidden layer sizes as a tuple; a single number is one layer."""
    layers = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value,)
    sizes = [int(h) for h in layers if isinstance(h, numbers.Integral) and not isinstance(h, bool) and int(h) > 0]
    if len(sizes) == len(layers):
        return tuple(sizes)
    raise InvalidParameter(
        f"{name} must be a tuple of layer sizes such as (32,) or (64, 32), or () for none; a search takes a list of "
        f"such tuples: got {value!r}."
    )


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:
        return False
