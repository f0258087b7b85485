"""The importance of columns as it is drawn."""

from collections.abc import Mapping
from typing import Any

__all__ = ["importance_bars"]

_SHOWN_COLUMNS = 40


def importance_bars(importance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The first columns with where bar and whiskers begin and end, on a scale from 0 to 100."""
    shown = importance["columns"][:_SHOWN_COLUMNS]
    low = min([0.0, *(one["low"] for one in shown)])
    high = max([0.0, *(one["high"] for one in shown)])
    span = (high - low) or 1.0

    def place(value: float) -> float:
        return round(100.0 * (value - low) / span, 2)

    return [
        {
            **one,
            "zero": place(0.0),
            "left": min(place(0.0), place(one["increase"])),
            "width": round(abs(place(one["increase"]) - place(0.0)), 2),
            "from": place(one["low"]),
            "to": place(one["high"]),
            "is_clear": one["low"] > 0.0,
        }
        for one in shown
    ]
