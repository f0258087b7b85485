"""Logits along a walk from one row to another, in which columns change over one after another."""

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crcen.training.network import NetworkGroup, activate

__all__ = ["FunctionWalks", "NetworkWalks", "Walks"]

Array = NDArray[np.float64]
Floats = NDArray[np.float32]
Index = NDArray[np.int64]


class Walks(Protocol):
    """What gives logits along walks that begin at a background row and end at rows of a table."""

    def arrive_at(self, X: Array) -> None:
        """Take the rows at which walks end."""

    def leave_from(self, Z: Array) -> None:
        """Take the rows at which they begin."""

    def along(self, start: int, order: Index, out: Array) -> None:
        """Add logits (steps + 1, n) of the walk from row ``start``, its columns changed over in this order."""


class NetworkWalks:
    """Walks of networks: a column enters their first layer as a sum, so that a step is an addition there.

    Single precision is enough for differences that are known to hundredths, and half the work.

    Parameters
    ----------
    group
        The networks, averaged.
    blocks
        Columns of the rows that change over together.
    weight
        What the logits are multiplied by.
    """

    def __init__(self, group: NetworkGroup, blocks: Sequence[Index], weight: float) -> None:
        self._group, n = group, len(group)
        weights, biases = group.weights, group.biases
        self._first = weights[0]
        self._bias = biases[0].astype(np.float32)[:, None, :]
        self._inner = [
            (w.astype(np.float32), b.astype(np.float32)[:, None, :])
            for w, b in zip(weights[1:-1], biases[1:-1], strict=True)
        ]
        # With no hidden layer the first layer is the output; its units are the networks' logits.
        self._last = (weights[-1] * (weight / n)).astype(np.float32) if len(weights) > 1 else None
        self._last_bias = float(biases[-1].sum() * weight / n)
        self._share = weight / n
        self._inputs = [np.flatnonzero(np.isin(sources_of(group), block)) for block in blocks]

    def arrive_at(self, X: Array) -> None:
        """Take the rows at which walks end."""
        self._ends = self._parts(X)
        self._units = np.empty_like(self._ends[0])

    def leave_from(self, Z: Array) -> None:
        """Take the rows at which they begin."""
        self._starts = self._parts(Z)

    def _parts(self, X: Array) -> list[Floats]:
        """What each block adds to the first layer, (networks, n, units)."""
        encoded = self._group.encoding(X)
        return [(encoded[:, own] @ self._first[:, own]).astype(np.float32) for own in self._inputs]

    def along(self, start: int, order: Index, out: Array) -> None:
        """Add logits of the walk."""
        here = self._bias + sum(part[:, start : start + 1] for part in self._starts)
        out[0] += self._logits(here.copy())
        # What rows add so far; what the background still adds is the same for all of them.
        added = np.zeros_like(self._units)
        for step, j in enumerate(order):
            added += self._ends[j]
            here = here - self._starts[j][:, start : start + 1]
            out[step + 1] += self._logits(np.add(added, here, out=self._units))

    def _logits(self, units: Floats) -> Floats:
        """Logits of pre-activations (networks, n, units), which are written over."""
        if self._last is None:
            return np.asarray(units[:, :, 0].sum(axis=0) * self._share)
        activate(self._group.activation, units)
        for weight, bias in self._inner:
            units = np.matmul(units, weight)
            units += bias
            activate(self._group.activation, units)
        return np.asarray(np.matmul(units, self._last)[:, :, 0].sum(axis=0) + self._last_bias)


def sources_of(group: NetworkGroup) -> Index:
    """The column of the rows that each input of the networks is made of."""
    encoding = group.encoding
    columns = np.arange(encoding.size) if encoding.columns is None else np.asarray(encoding.columns)
    if encoding.indicators is None:
        return columns
    n_features = encoding.size - len(encoding.indicators) if encoding.columns is None else None
    if n_features is None:
        n_features = int(columns.max()) + 1 - len(encoding.indicators)
    return np.where(columns < n_features, columns, encoding.indicators[np.maximum(columns - n_features, 0)])


class FunctionWalks:
    """Walks of anything that gives logits of rows.

    Parameters
    ----------
    logits
        Rows in, (n,) out.
    blocks
        Columns of the rows that change over together.
    weight
        What the logits are multiplied by.
    """

    def __init__(self, logits: Callable[[Array], Array], blocks: Sequence[Index], weight: float) -> None:
        self._logits, self._blocks, self._weight = logits, blocks, weight

    def arrive_at(self, X: Array) -> None:
        """Take the rows at which walks end."""
        self._X = X

    def leave_from(self, Z: Array) -> None:
        """Take the rows at which they begin."""
        self._Z = Z

    def along(self, start: int, order: Index, out: Array) -> None:
        """Add logits of the walk."""
        n, n_features = self._X.shape
        rows = np.empty((len(order) + 1, n, n_features))
        rows[0] = self._Z[start]
        for step, j in enumerate(order):
            rows[step + 1] = rows[step]
            rows[step + 1][:, self._blocks[j]] = self._X[:, self._blocks[j]]
        out += self._weight * self._logits(rows.reshape(-1, n_features)).reshape(len(order) + 1, n)
