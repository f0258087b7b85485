"""Boosted trees of K classes: as many additive models, one logit each."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.trees.boosted_trees import BoostedTrees

__all__ = ["ClassTrees"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassTrees:
    """The trees of every class.

    Parameters
    ----------
    by_class : tuple of BoostedTrees
        In the order of the classes; those of the second one alone where there are two.
    """

    by_class: tuple[BoostedTrees, ...]

    def logits(self, X: Array) -> Array:
        """Natural logits of the rows of X, float64 (n, K)."""
        columns = [trees.logits(X)[:, 0] for trees in self.by_class]
        return np.column_stack([np.zeros(len(X)), *columns] if len(columns) == 1 else columns)

    def arrays(self) -> dict[str, Any]:
        """The state of each class's trees."""
        return {"by_class": [trees.arrays() for trees in self.by_class]}
