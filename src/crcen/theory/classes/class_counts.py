"""ClassCounts: how rows of each class were decided, and the shares that follow from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.rows import check_class_numbers, check_row_weights

__all__ = ["ClassCounts", "class_counts"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassCounts:
    """Rows are the truth, columns what was decided.

    Parameters
    ----------
    table : float64 array of shape (K, A)
        The first K columns decide for a class, further ones are actions of their own.
    """

    table: Array

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.table)

    @property
    def recalls(self) -> Array:
        """Share of each class's rows that were given to it; NaN for a class without rows."""
        return _ratio(np.diag(self.table), self.table.sum(axis=1))

    @property
    def precisions(self) -> Array:
        """Share of the rows given to each class that are of it; NaN where none were."""
        return _ratio(np.diag(self.table), self.table[:, : self.n_classes].sum(axis=0))

    @property
    def f1s(self) -> Array:
        """Harmonic mean of both for each class; 0 where nothing is right, NaN for a class that is not there at all."""
        sizes = self.table.sum(axis=1) + self.table[:, : self.n_classes].sum(axis=0)
        return _ratio(2.0 * np.diag(self.table), sizes)

    @property
    def accuracy(self) -> float:
        """Share of all rows that were given to their class."""
        return float(np.trace(self.table[:, : self.n_classes]) / self.table.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have rows."""
        return float(np.nanmean(self.recalls))

    @property
    def g_mean(self) -> float:
        """Geometric mean of their recalls."""
        recalls = self.recalls[np.isfinite(self.recalls)]
        return float(np.prod(recalls) ** (1.0 / len(recalls)))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes that are there, in truth or as a decision."""
        return float(np.nanmean(self.f1s))

    def cost(self, costs: ArrayLike) -> float:
        """What these decisions cost, by a matrix (K, A)."""
        return float((self.table * np.asarray(costs, dtype=np.float64)).sum())

    def table_of(self, names: Sequence[Any]) -> str:
        """A readable table; ``names`` are those of the columns, the classes first."""
        texts = [str(name) for name in names]
        width = max(10, *map(len, texts)) + 2
        head = " " * width + "".join(f"{text:>{width}}" for text in texts) + f"{'recall':>10}"
        rows = [
            f"{text:<{width}}" + "".join(f"{count:>{width}.6g}" for count in row) + f"{recall:>10.3f}"
            for text, row, recall in zip(texts, self.table.tolist(), self.recalls.tolist(), strict=False)
        ]
        return "\n".join(["true ↓ decided →", head, *rows])

    def __str__(self) -> str:
        return self.table_of(range(self.table.shape[1]))


def class_counts(
    y: ArrayLike,
    decided: ArrayLike,
    n_classes: int,
    sample_weight: ArrayLike | None = None,
    *,
    n_actions: int | None = None,
) -> ClassCounts:
    """Count decisions by the true class.

    Parameters
    ----------
    y, decided : arrays of shape (n,)
        Class numbers, and numbers of classes or, from ``n_classes`` on, of further actions.
    n_classes : int
        K.
    sample_weight : array of shape (n,), optional
        Finite and not negative; then the counts are sums of weights.
    n_actions : int, optional
        How many things can be decided; K by default.
    """
    width = n_classes if n_actions is None else n_actions
    truth, chosen = check_class_numbers(y, n_classes), check_class_numbers(decided, width)
    if len(truth) != len(chosen):
        raise InvalidInput(f"y and decisions must have one value a row each: got {len(truth)} and {len(chosen)}.")
    table = np.zeros((n_classes, width))
    np.add.at(table, (truth, chosen), check_row_weights(sample_weight, truth.size))
    return ClassCounts(table)


def _ratio(above: Array, below: Array) -> Array:
    return np.divide(above, below, out=np.full(len(below), np.nan), where=below > 0.0)
