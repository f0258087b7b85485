"""The grid of a search: its points, the rows they are tried on, and their outcomes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Outcome", "SearchRows", "Setting", "is_list_of_networks"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True)
class Setting:
    """One point of the grid; ``weighting_index`` tells weightings apart that need not be hashable."""

    weighting_index: int
    weighting: Any
    hidden: tuple[int, ...]
    l2: float

    def params(self) -> dict[str, Any]:
        """As keyword arguments of `CRCENClassifier`."""
        return {"weighting": self.weighting, "hidden": self.hidden, "l2": self.l2}


@dataclass(frozen=True, eq=False)
class SearchRows:
    """What every part of the search reads."""

    X: Array
    y: NDArray[Any]
    target: NDArray[np.bool_]
    weights: Array
    folds: list[tuple[Index, Index]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """A setting's fold scores at the epoch chosen for it, and its out-of-fold logits there.

    A setting that halving dropped keeps the scores of its short schedule and may not win by them.
    """

    setting: Setting
    epochs: int | None
    scores: Array
    logits: Array
    is_dropped: bool = False

    @property
    def merit(self) -> float:
        """Mean score over the folds; none where a fold has none."""
        mean = float(self.scores.mean())
        return -np.inf if np.isnan(mean) else mean


def is_list_of_networks(hidden: Any) -> bool:
    """A list, or a tuple of tuples, is searched; a tuple of numbers is one network."""
    if isinstance(hidden, list):
        return True
    return isinstance(hidden, tuple) and len(hidden) > 0 and all(isinstance(h, tuple | list) for h in hidden)
