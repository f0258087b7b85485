"""Candidate settings: a package's defaults first, then points that fill a space evenly, the same on every machine."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["Pick", "Range", "candidates"]


@dataclass(frozen=True)
class Range:
    """Numbers from low to high, evenly or by ratio."""

    low: float
    high: float
    log: bool = False
    integer: bool = False

    def at(self, place: float) -> float | int:
        """The number at a place from 0 to 1."""
        if self.log:
            value = float(self.low * (self.high / self.low) ** place)
        else:
            value = float(self.low + (self.high - self.low) * place)
        return round(value) if self.integer else float(f"{value:.4g}")


@dataclass(frozen=True)
class Pick:
    """One of several values."""

    values: Sequence[Any]

    def at(self, place: float) -> Any:
        """The value at a place from 0 to 1."""
        return self.values[min(int(place * len(self.values)), len(self.values) - 1)]


def candidates(default: Mapping[str, Any], space: Mapping[str, Range | Pick], count: int) -> list[dict[str, Any]]:
    """``count`` settings: the default, then points of the space; fewer settings are the first of more.

    The points are the additive recurrence ½ + k·g mod 1 with g_j = φ^−j, where φ is the root of φ^(d+1) = φ + 1: it
    covers d dimensions more evenly than random numbers and needs no seed.
    """
    if not space:
        return [dict(default)]
    dimensions = len(space)
    root = 2.0
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (dimensions + 1))
    steps = root ** -np.arange(1.0, dimensions + 1)
    points = (0.5 + np.outer(np.arange(1, count), steps)) % 1.0
    drawn = [
        {name: part.at(place) for (name, part), place in zip(space.items(), point.tolist(), strict=True)}
        for point in points
    ]
    return [dict(default), *(dict(default) | setting for setting in drawn)]
