"""Plain values: data for JSON, and labels that files spell differently (1, 1.0 and "1" are one label)."""

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from operator import attrgetter
from pathlib import PurePath
from typing import Any, TypeAlias

# Plain values, ready for JSON.
Values: TypeAlias = dict[str, Any]


def json_value(value: Any, *, shorten: bool = False) -> Any:
    """Convert a value for JSON: NumPy to Python, NaN and infinities to None, dataclasses to dicts.

    With ``shorten``, whole numbers have no decimal point.

    >>> json_value({"a": (1.0, float("nan"))}), json_value(2.0, shorten=True)
    ({'a': [1.0, None]}, 2)
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): json_value(one, shorten=shorten) for name, one in value.items()}
    if hasattr(value, "tolist"):  # NumPy's scalars and arrays
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [json_value(one, shorten=shorten) for one in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return int(value) if shorten and value.is_integer() and abs(value) < 2**53 else value
    return value


def attributes(result: object, names: str) -> dict[str, Any]:
    """Attributes of a result as plain values, by name; ``key=attribute`` (also ``a.b``) where the key differs.

    Examples
    --------
    >>> attributes(3 + 4j, "real im=imag")
    {'real': 3.0, 'im': 4.0}
    """

    def plain(value: Any) -> Any:
        if hasattr(value, "to_dict"):
            return value.to_dict()
        if isinstance(value, list | tuple):
            return [plain(one) for one in value]
        if isinstance(value, Mapping):
            return {str(name): plain(one) for name, one in value.items()}
        return str(value) if isinstance(value, PurePath) else json_value(value)

    pairs = (one.partition("=") for one in names.split())
    return {key: plain(attrgetter(name or key)(result)) for key, _, name in pairs}


def plain_label(cell: Any) -> Any:
    """A label as int if it is a whole number, also one written as text; bool and other text stay."""
    cell = cell.item() if hasattr(cell, "item") else cell  # of NumPy
    if isinstance(cell, bool):
        return cell
    if isinstance(cell, numbers.Integral):
        return int(cell)  # a float would be inexact above 2**53
    text = str(cell).strip()
    try:
        return int(text)
    except ValueError:
        pass
    try:
        value = float(text)
    except ValueError:
        return text
    return int(value) if value.is_integer() else text


def label_key(label: Any) -> str:
    """A key that is equal for all spellings of a label."""
    return str(plain_label(label)).casefold()


def plain_labels(cells: Iterable[Any]) -> dict[Any, Any]:
    """Cell → label, where the labels are all bool, all int, or all text."""
    found = {cell: plain_label(cell) for cell in cells}
    if {type(label) for label in found.values()} not in ({bool}, {int}):
        return {cell: str(label) for cell, label in found.items()}
    return found


def rest_of(positive: Any) -> str:
    """The label of all values but the positive one, if a target has more than two."""
    return f"not {positive}"
