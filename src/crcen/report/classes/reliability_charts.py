"""Small drawings of reliability, one for each class: observed shares against stated probabilities, in log-odds."""

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from crcen.report.reliability_groups import ReliabilityGroup

__all__ = ["reliability_charts"]

# The frame inside of a drawing of 240 × 210.
_LEFT, _RIGHT, _TOP, _BOTTOM = 40.0, 230.0, 10.0, 170.0
_TICKS = (1e-4, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_EDGE, _APART = 1e-5, 34.0


def reliability_charts(
    groups: Sequence[Sequence[ReliabilityGroup]], labels: Sequence[Any], counts: NDArray[Any], most: int
) -> list[dict[str, Any]]:
    """Places of dots, whiskers and ticks for the commonest classes.

    Parameters
    ----------
    groups : sequence of sequences of ReliabilityGroup
        For each class.
    labels, counts
        The classes and their rows.
    most : int
        Drawings.
    """
    order = sorted(range(len(labels)), key=lambda k: -int(counts[k]))[:most]
    return [{"label": str(labels[k]), **_chart(groups[k])} for k in sorted(order)]


def _logit(p: float) -> float:
    inside = min(max(p, _EDGE), 1.0 - _EDGE)
    return math.log(inside / (1.0 - inside))


def _chart(groups: Sequence[ReliabilityGroup]) -> dict[str, Any]:
    values = [_logit(one) for group in groups for one in (group.mean_p, group.observed) if 0.0 < one < 1.0]
    low, high = min([*values, -1.5]) - 0.5, max([*values, 1.5]) + 0.5

    def x(p: float) -> float:
        return round(_LEFT + (min(max(_logit(p), low), high) - low) / (high - low) * (_RIGHT - _LEFT), 1)

    def y(p: float) -> float:
        return round(_BOTTOM - (min(max(_logit(p), low), high) - low) / (high - low) * (_BOTTOM - _TOP), 1)

    dots = [{"x": x(one.mean_p), "y": y(one.observed), "from": y(one.low), "to": y(one.high)} for one in groups]
    inside: list[float] = []
    for tick in _TICKS:  # those that would touch the one before are left out
        if low <= _logit(tick) <= high and (not inside or x(tick) - x(inside[-1]) >= _APART):
            inside.append(tick)
    ticks = [{"x": x(tick), "y": y(tick) + 4, "text": f"{100 * tick:g} %"} for tick in inside]
    return {"dots": dots, "ticks": ticks}
