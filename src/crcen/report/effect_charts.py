"""Effects of columns as small drawings: places on a scale, worked out here, so that the page needs no script."""

from collections.abc import Sequence
from typing import Any

from crcen.report.effects import ColumnEffect

__all__ = ["effect_charts"]

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320.0, 128.0, 38.0, 8.0, 8.0, 26.0
ROW_HEIGHT, NAME_WIDTH = 20.0, 116.0


def effect_charts(effects: Sequence[ColumnEffect]) -> list[dict[str, Any]]:
    """What each drawing is made of; all share one scale of log-odds, so that columns can be compared."""
    if not effects:
        return []
    ends = [end for one in effects for point in one.points for end in (point.low, point.high)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    pad = 0.05 * (high - low) or 0.5
    low, high = low - pad, high + pad
    return [_ordered(one, low, high) if one.is_ordered else _unordered(one, low, high) for one in effects]


def _ordered(one: ColumnEffect, low: float, high: float) -> dict[str, Any]:
    """A line with a band: values to the right, log-odds upwards."""
    first, last = one.points[0].place, one.points[-1].place
    span = (last - first) or 1.0

    def x(place: float) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * (place - first) / span, 1)

    def y(value: float) -> float:
        return round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)

    line = " ".join(f"{x(point.place)},{y(point.effect)}" for point in one.points)
    upper = [f"{x(point.place)},{y(point.high)}" for point in one.points]
    lower = [f"{x(point.place)},{y(point.low)}" for point in reversed(one.points)]
    return {
        "name": one.name,
        "shape": one.shape,
        "is_ordered": True,
        "width": WIDTH,
        "height": HEIGHT,
        "line": line,
        "band": " ".join([*upper, *lower]),
        "dots": [{"x": x(point.place), "y": y(point.effect)} for point in one.points],
        "zero": y(0.0),
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "ticks": [{"y": y(value) + 4, "text": f"{value:+.2g}" if value else "0"} for value in _ticks(low, high)],
        "from": one.points[0].label,
        "to": one.points[-1].label,
        "points": _listed(one),
    }


def _unordered(one: ColumnEffect, low: float, high: float) -> dict[str, Any]:
    """A dot with a whisker for each value, one below the other."""

    def x(value: float) -> float:
        return round(NAME_WIDTH + (WIDTH - NAME_WIDTH - RIGHT) * (value - low) / (high - low), 1)

    height = TOP + ROW_HEIGHT * len(one.points) + 20.0
    rows = [
        {
            "label": point.label,
            "y": TOP + ROW_HEIGHT * (i + 0.5),
            "x": x(point.effect),
            "from": x(point.low),
            "to": x(point.high),
        }
        for i, point in enumerate(one.points)
    ]
    return {
        "name": one.name,
        "shape": one.shape,
        "is_ordered": False,
        "width": WIDTH,
        "height": height,
        "rows": rows,
        "zero": x(0.0),
        "bottom": height - 20.0,
        "ticks": [{"x": x(value), "text": f"{value:+.2g}" if value else "0"} for value in _ticks(low, high)],
        "points": _listed(one),
    }


def _listed(one: ColumnEffect) -> list[dict[str, Any]]:
    return [{"label": p.label, "effect": p.effect, "low": p.low, "high": p.high} for p in one.points]


def _ticks(low: float, high: float) -> list[float]:
    """Zero and a round number on each side that has room for it."""
    found = [0.0]
    for end in (low, high):
        size = abs(end)
        steps = [step for step in (10.0, 5.0, 2.0, 1.0, 0.5, 0.2, 0.1, 0.05) if step <= 0.9 * size]
        if steps and size > 0.25 * (high - low):
            found.append(steps[0] if end > 0 else -steps[0])
    return sorted(found)
