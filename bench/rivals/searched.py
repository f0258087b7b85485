"""What a search of a peer's settings is given and what it gives back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SearchRows", "Searched"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SearchRows:
    """Training rows, their folds (training and held-out positions) and the seed."""

    X: Array
    y: NDArray[np.int64]
    folds: Sequence[tuple[Index, Index]]
    seed: int


@dataclass(frozen=True, eq=False)
class Searched:
    """The best setting refitted on all rows, its out-of-fold probabilities, and how many settings were tried."""

    model: Any
    oof: Array
    setting: Mapping[str, Any]
    n_settings: int
