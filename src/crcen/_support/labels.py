"""Labels of a target column, however a file spells them: 1, 1.0 and "1" are one label."""

import numbers
from collections.abc import Iterable
from typing import Any

__all__ = ["label_key", "plain_label", "plain_labels", "rest_of"]


def plain_label(cell: Any) -> Any:
    """A label as int where it is a whole number, also one written as text; bool and other text stay."""
    cell = cell.item() if hasattr(cell, "item") else cell  # of NumPy
    if isinstance(cell, bool):
        return cell
    if isinstance(cell, numbers.Integral):
        return int(cell)  # not by way of a float, which ends at 2**53
    if isinstance(cell, numbers.Real) and float(cell).is_integer():
        return int(float(cell))
    text = str(cell).strip()
    for whole in (int, _whole):
        try:
            return whole(text)
        except (ValueError, OverflowError):
            continue
    return text


def _whole(text: str) -> int:
    """The whole number in a text such as ``1.0``; ValueError where there is none."""
    value = float(text)
    if not value.is_integer():
        raise ValueError(text)
    return int(value)


def label_key(label: Any) -> str:
    """What makes two labels the same, however a file spells them."""
    return str(plain_label(label)).casefold()


def plain_labels(cells: Iterable[Any]) -> dict[Any, Any]:
    """What each of these cells stands for: all bool, all int, or all text."""
    found = {cell: plain_label(cell) for cell in cells}
    if {type(label) for label in found.values()} not in ({bool}, {int}):
        return {cell: str(label) for cell, label in found.items()}
    return found


def rest_of(positive: Any) -> str:
    """The label of all values but the one to be found, where a target has more than two."""
    return f"not {positive}"
