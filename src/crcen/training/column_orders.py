"""Rows in the order of every column, sorted once: the encodings of folds need not sort their rows anew."""

from collections.abc import Callable
from concurrent.futures import Executor
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnOrders", "OrderOf"]

# From the number of a column to rows in its order, missing cells last.
OrderOf = Callable[[int], NDArray[np.integer[Any]]]

# From so many rows on it pays, and while the orders take no more than so many bytes.
_WORTH_ORDERS, _MOST_BYTES = 5_000, 2**25


class ColumnOrders:
    """The orders of the columns of a table, each found when it is first asked for, by any thread.

    Parameters
    ----------
    X
        All rows, (n, F).
    """

    def __init__(self, X: NDArray[np.float64]) -> None:
        self._X = X
        self._orders: dict[int, NDArray[np.int32]] = {}
        self._locks = [Lock() for _ in range(X.shape[1])]

    def within(self, rows: NDArray[np.int64]) -> OrderOf | None:
        """The orders of some rows, counted among them; ``None`` where a sort of these rows is as good."""
        n_rows = len(self._X)
        if not self._pays:
            return None
        place = np.full(n_rows, -1, dtype=np.int32)
        place[rows] = np.arange(len(rows), dtype=np.int32)

        def order(column: int) -> NDArray[np.int32]:
            found = place[self._of_all(column)]
            return found[found >= 0]

        return order

    @property
    def _pays(self) -> bool:
        n_rows, n_columns = self._X.shape
        return n_rows >= _WORTH_ORDERS and 4 * n_rows * n_columns <= _MOST_BYTES

    def find(self, pool: Executor) -> None:
        """Find the orders of all columns, several at a time: folds that ask for the same one wait for each other."""
        if self._pays:
            list(pool.map(self._of_all, range(self._X.shape[1])))

    def _of_all(self, column: int) -> NDArray[np.int32]:
        with self._locks[column]:
            if column not in self._orders:
                self._orders[column] = np.argsort(self._X[:, column], kind="stable").astype(np.int32)
            return self._orders[column]
