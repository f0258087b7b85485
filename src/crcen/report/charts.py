"""Drawings whose positions are computed here, so that the page needs no script for them."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from crcen._support.values import Values
from crcen.report.columns import ColumnEffect
from crcen.report.evidence import log_odds
from crcen.report.measurements import ReliabilityGroup
from crcen.report.rendering import scale


def effect_range(effects: Sequence[ColumnEffect]) -> tuple[float, float]:
    """Ends of the scale of log-odds that all drawings of effects share, so that columns can be compared."""
    ends = [0.0, *(end for one in effects for point in one.points for end in (point.low, point.high))]
    pad = 0.05 * (max(ends) - min(ends)) or 0.5
    return min(ends) - pad, max(ends) + pad


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
