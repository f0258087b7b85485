"""A monitor's state as JSON can hold it, with a digest by which a damaged state is recognised."""

import hashlib
import json
import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from crcen._support.values import Values
from crcen.exceptions import InvalidInput
from crcen.theory.rows import AddsUp

_FORMAT, _VERSION = "crcen monitor", 6


T = TypeVar("T", bound=AddsUp)


def sealed(entries: Values) -> Values:
    """Entries with the format, its version and their digest."""
    state = {"format": _FORMAT, "version": _VERSION, **entries}
    return {**state, "digest": _digest(state)}


def opened(state: object) -> Values:
    """The state that `sealed` returned, perhaps read from a file; an error for any other value."""
    if not isinstance(state, dict) or (state.get("format"), state.get("version")) != (_FORMAT, _VERSION):
        found = {name: state.get(name) for name in ("format", "version")} if isinstance(state, dict) else state
        raise InvalidInput(
            f"the state must be of the format {_FORMAT!r}, version {_VERSION}, got {short(found)}: begin a new one"
        )
    if state.get("digest") != _digest({name: value for name, value in state.items() if name != "digest"}):
        raise InvalidInput("the state of the monitor is damaged, its digest is another one: begin a new one")
    return state


def _digest(state: Values) -> str:
    """SHA-256 of the values; programs that store JSON may write 1.0 as 1."""
    try:
        values = json.loads(json.dumps(state), parse_int=float)
    except (TypeError, ValueError, RecursionError):  # no JSON
        return ""
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()


def plain_sums(sums: AddsUp) -> list[float]:
    """All numbers of sums, as one list."""
    return [number for one in vars(sums).values() for number in np.ravel(one).tolist()]


def sums_like(like: T, numbers: Sequence[float]) -> T:
    """The inverse of `plain_sums`, for sums with the shapes and types of ``like``."""
    parts = [np.asarray(one) for one in vars(like).values()]
    pieces = np.split(np.asarray(numbers), np.cumsum([part.size for part in parts])[:-1])
    found = [piece.astype(part.dtype).reshape(part.shape) for part, piece in zip(parts, pieces, strict=True)]
    return type(like)(*(one if one.ndim else one.item() for one in found))


def or_nan(values: Sequence[float | None]) -> tuple[float, ...]:
    """Numbers of a state, in which null stands for NaN."""
    return tuple(math.nan if value is None else value for value in values)


def short(value: object) -> str:
    """A value for an error message, shortened."""
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
