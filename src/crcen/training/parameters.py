"""Checks of single parameters, each refused with one sentence; what passes comes back in its plain type."""

import numbers
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from crcen.exceptions import InvalidParameter

__all__ = ["Checked", "choice", "flag", "group", "layer_sizes", "number"]

_Group = TypeVar("_Group")


class Checked:
    """A frozen dataclass whose fields are replaced by their checked, plain forms; shown by what was set in it."""

    def _set(self, **values: Any) -> None:
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        own: Any = self
        told = [(field.name, getattr(self, field.name), field.default) for field in fields(own)]
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value, usual in told if value != usual)})"
        )


def group(name: str, value: Any, kind: type[_Group], example: str) -> _Group:
    """Parameters that go together, as one value; ``None`` is all of their defaults."""
    if value is None:
        return kind()
    if type(value) is not kind:
        raise InvalidParameter(
            f"{name} must be None or a {kind.__name__} as {kind.__name__}({example}): got {value!r}."
        )
    return value


def number(
    name: str, value: Any, *, low: float, high: float = np.inf, integer: bool = False, open_low: bool = False
) -> Any:
    """A finite number in [low, high] (or above low where ``open_low``), as int or float."""
    kind = numbers.Integral if integer else numbers.Real
    fine = isinstance(value, kind) and not isinstance(value, bool | np.bool_) and _is_finite(value)
    if fine and (value > low if open_low else value >= low) and value <= high:
        return int(value) if integer else float(value)
    what = "a whole number" if integer else "a number"
    start = f"above {low:g}" if open_low else f"at least {low:g}"
    end = "" if np.isinf(high) else f" and at most {high:g}"
    raise InvalidParameter(f"{name} must be {what} {start}{end}: got {value!r}.")


def choice(name: str, value: Any, allowed: Iterable[Any]) -> Any:
    """One of a few values, of the same type."""
    for one in allowed:
        if value is one or (type(value) is type(one) and value == one):
            return value
    listed = ", ".join(repr(one) for one in allowed)
    raise InvalidParameter(f"{name} must be one of {listed}: got {value!r}.")


def flag(name: str, value: Any) -> bool:
    """A bool."""
    if not isinstance(value, bool | np.bool_):
        raise InvalidParameter(f"{name} must be True or False: got {value!r}.")
    return bool(value)


def layer_sizes(name: str, value: Any) -> tuple[int, ...]:
    """Hidden layer sizes as a tuple; a bare number is one layer."""
    layers: tuple[Any, ...] = tuple(value) if isinstance(value, tuple | list | np.ndarray) else (value,)
    if all(isinstance(h, numbers.Integral) and not isinstance(h, bool) and int(h) > 0 for h in layers):
        return tuple(int(h) for h in layers)
    raise InvalidParameter(
        f"{name} must be a tuple of layer sizes such as (32,) or (64, 32), or () for none: got {value!r}."
    )


def _is_finite(value: Any) -> bool:
    try:
        return bool(np.isfinite(float(value)))
    except OverflowError:
        return False
