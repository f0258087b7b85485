"""Drawings whose positions are computed here, so that the page needs no script for them."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from crcen._support.values import Values
from crcen.report.columns import ColumnEffect, Importances
from crcen.report.evidence import log_odds
from crcen.report.measurements import ReliabilityGroup

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 320.0, 128.0, 38.0, 8.0, 8.0, 26.0
ROW_HEIGHT, NAME_WIDTH = 20.0, 116.0


def effect_charts(effects: Sequence[ColumnEffect]) -> list[Values]:
    """Positions of each drawing; all share one scale of log-odds, so that columns can be compared."""
    if not effects:
        return []
    ends = [end for one in effects for point in one.points for end in (point.low, point.high)]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    pad = 0.05 * (high - low) or 0.5
    low, high = low - pad, high + pad
    drawn = [_ordered(one, low, high) if one.is_ordered else _unordered(one, low, high) for one in effects]
    return [{**vars(one), "width": WIDTH, **drawing} for one, drawing in zip(effects, drawn, strict=True)]


def scale(low: float, high: float, start: float, end: float, digits: int = 1) -> Callable[[float], float]:
    """From values to positions."""
    return lambda value: round(start + (end - start) * (value - low) / (high - low), digits)


def _ordered(one: ColumnEffect, low: float, high: float) -> Values:
    """A line with a band: values to the right, log-odds upwards."""
    first, last = one.points[0], one.points[-1]
    x = scale(first.place, last.place if last.place > first.place else first.place + 1.0, LEFT, WIDTH - RIGHT)
    y = scale(low, high, HEIGHT - BOTTOM, TOP)
    upper = [f"{x(point.place)},{y(point.high)}" for point in one.points]
    lower = [f"{x(point.place)},{y(point.low)}" for point in reversed(one.points)]
    return {
        "height": HEIGHT,
        "line": " ".join(f"{x(point.place)},{y(point.effect)}" for point in one.points),
        "band": " ".join([*upper, *lower]),
        "dots": [{"x": x(point.place), "y": y(point.effect)} for point in one.points],
        "zero": y(0.0),
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "bottom": HEIGHT - BOTTOM,
        "ticks": [{"y": y(value) + 4, "text": f"{value:+g}" if value else "0"} for value in round_ticks(low, high)],
        "from": first.label,
        "to": last.label,
    }


def _unordered(one: ColumnEffect, low: float, high: float) -> Values:
    """A dot with a whisker for each value, one below the other."""
    x, height = scale(low, high, NAME_WIDTH, WIDTH - RIGHT), TOP + ROW_HEIGHT * len(one.points) + 20.0
    rows = [
        {"label": p.label, "y": TOP + ROW_HEIGHT * (i + 0.5), "x": x(p.effect), "from": x(p.low), "to": x(p.high)}
        for i, p in enumerate(one.points)
    ]
    return {
        "height": height,
        "rows": rows,
        "zero": x(0.0),
        "bottom": height - 20.0,
        "ticks": [{"x": x(value), "text": f"{value:+g}" if value else "0"} for value in round_ticks(low, high)],
    }


def round_ticks(low: float, high: float, wanted: int = 3) -> list[float]:
    """About this number of round numbers between two ends, 1, 2 or 5 times a power of ten apart; zero if inside."""
    span = high - low
    if not span > 0.0:
        return [low]
    unit = 10.0 ** math.floor(math.log10(span / wanted))
    step = next(one * unit for one in (1.0, 2.0, 5.0, 10.0) if one * unit >= 0.999 * span / wanted)
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{number * step:.6g}") for number in numbers]


def call_chart(
    points: Sequence[tuple[float, float]],
    title: str,
    below: str,
    bands: Sequence[tuple[float, float, float]] = (),
    bar: float | None = None,
) -> Values:
    """Positions of a line over calls in a picture of 640 × 220, with a dashed bar or the band of each point."""
    values = [value for _, value in points] + [end for _, *ends in bands for end in ends]
    values += [] if bar is None else [bar]
    pad = 0.06 * (max(values) - min(values)) or 0.5
    low, high, first, last = min(values) - pad, max(values) + pad, points[0][0], points[-1][0]
    x = scale(first, last, 60.0, 624.0) if last > first else scale(first - 1.0, first + 1.0, 60.0, 624.0)
    y = scale(low, high, 196.0, 6.0)
    return {
        "title": title,
        "below": below,
        "points": [(x(call), y(value)) for call, value in points],
        "bands": [(x(call), y(start), y(end)) for call, start, end in bands],
        "bar": None if bar is None else y(bar),
        "ticks": [(tick, y(tick)) for tick in round_ticks(low, high)],
        "first": f"{first:g}",
        "last": f"{last:g}",
    }


_SHOWN_COLUMNS = 40


def importance_bars(importances: Importances) -> list[Values]:
    """The first columns with the ends of bar and whiskers, on a scale from 0 to 100."""
    shown = importances.columns[:_SHOWN_COLUMNS]
    low, high = min([0.0, *(one.low for one in shown)]), max([0.0, *(one.high for one in shown)])
    place = scale(low, high if high > low else low + 1.0, 0.0, 100.0, digits=2)
    return [
        {
            **vars(one),
            "zero": place(0.0),
            "left": min(place(0.0), place(one.increase)),
            "width": round(abs(place(one.increase) - place(0.0)), 2),
            "from": place(one.low),
            "to": place(one.high),
            "is_clear": one.low > 0.0,
        }
        for one in shown
    ]


# The frame of a reliability drawing of 240 × 210.
_FRAME_LEFT, _FRAME_RIGHT, _FRAME_TOP, _FRAME_BOTTOM = 40.0, 230.0, 10.0, 170.0
_TICKS = (1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_EDGE, _APART = 1e-5, 34.0


def reliability_charts(
    groups: Mapping[int, Sequence[ReliabilityGroup]], names: Sequence[str], counts: Sequence[int], most: int
) -> list[Values]:
    """Places of dots, whiskers and ticks for the commonest classes, observed shares against stated probabilities."""
    order = sorted(groups, key=lambda k: -counts[k])[:most]
    return [{"label": names[k], **_chart(groups[k])} for k in sorted(order)]


def _log_odds(p: float) -> float:
    return float(log_odds(np.array(p), _EDGE))


def _chart(groups: Sequence[ReliabilityGroup]) -> Values:
    values = [_log_odds(one) for group in groups for one in (group.mean_p, group.observed) if 0.0 < one < 1.0]
    low, high = min([*values, -1.5]) - 0.5, max([*values, 1.5]) + 0.5

    across, up = scale(low, high, _FRAME_LEFT, _FRAME_RIGHT), scale(low, high, _FRAME_BOTTOM, _FRAME_TOP)

    def x(p: float, place: Callable[[float], float] = across) -> float:
        return place(min(max(_log_odds(p), low), high))

    def y(p: float) -> float:
        return x(p, up)

    dots = [{"x": x(one.mean_p), "y": y(one.observed), "from": y(one.low), "to": y(one.high)} for one in groups]
    kept: list[float] = []
    for tick in _TICKS:  # those that would touch the one before are left out
        if low <= _log_odds(tick) <= high and (not kept or x(tick) - x(kept[-1]) >= _APART):
            kept.append(tick)
    ticks = [{"x": x(tick), "y": y(tick) + 4, "text": f"{100 * tick:g} %"} for tick in kept]
    return {"dots": dots, "ticks": ticks}
