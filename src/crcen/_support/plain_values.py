"""Values as JSON knows them."""

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

__all__ = ["plain"]


def plain(value: Any, *, shorten: bool = False) -> Any:
    """A value without NumPy: scalars and arrays unwrapped, None for NaN and infinities, dataclasses as dicts.

    Parameters
    ----------
    value
        Anything; what is neither a number nor a container of values stays as it is.
    shorten : bool, default=False
        Write whole numbers without a decimal point, to save room.

    Examples
    --------
    >>> plain({"a": (1.0, float("nan"))}), plain(2.0, shorten=True)
    ({'a': [1.0, None]}, 2)
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): plain(one, shorten=shorten) for name, one in value.items()}
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one, shorten=shorten) for one in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if shorten and value.is_integer() and abs(value) < 2**53 else value
    return value
