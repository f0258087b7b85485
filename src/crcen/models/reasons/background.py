"""What rows are compared with: made-up typical rows, or rows that the caller gives.

A model file holds no rows of the training table. The typical rows that it holds are made up: every column takes its
values at evenly spread ranks of the training rows, each once, and the columns are put together in orders that have as
little to do with each other as can be had. They have each column's own distribution, and no row of them was ever seen.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_TYPICAL", "chosen_rows", "typical_rows"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Typical rows kept, and rows used of a background that the caller gives.
N_TYPICAL, MOST_ROWS = 32, 64
# Training rows that are looked at, and orders that are tried for a column.
_LOOKED_AT, _ORDERS = 50_000, 64


def typical_rows(X: Array, blocks: Sequence[Index], averaged: Sequence[bool] = (), n_rows: int = N_TYPICAL) -> Array:
    """Made-up rows with the distribution of every column, (n_rows, n_features).

    Parameters
    ----------
    X : float64 array of shape (n, n_features)
        Training rows.
    blocks : sequence of int arrays
        The columns that belong together, as those of one category do: their cells stay together.
    averaged : sequence of bool, optional
        Blocks whose cells are means over all rows of a rank instead of the cells of one row, as for texts.
    n_rows : int
        How many.
    """
    rng = np.random.default_rng(0)
    if len(X) > _LOOKED_AT:
        X = X[np.sort(rng.choice(len(X), _LOOKED_AT, replace=False))]
    ranks = ((np.arange(n_rows) + 0.5) / n_rows * len(X)).astype(np.int64)
    edges = (np.arange(n_rows + 1) / n_rows * len(X)).astype(np.int64)
    found = np.empty((n_rows, X.shape[1]))
    placed = np.empty((0, n_rows))
    for j, block in enumerate(blocks):
        part = X[:, block]
        order = np.lexsort(part.T[::-1])
        cells = part[order[ranks]]
        if len(averaged) and averaged[j]:
            pieces = [part[order[a : max(b, a + 1)]] for a, b in itertools.pairwise(edges)]
            cells = np.array([piece.mean(axis=0) for piece in pieces])
        place = _apart_from(placed, n_rows, rng)
        placed = np.vstack([placed, place - place.mean()])
        found[:, block] = cells[place]
    return found


def _apart_from(placed: Array, n_rows: int, rng: np.random.Generator) -> Index:
    """Of some random orders the one that has least to do with those before."""
    tried = np.array([rng.permutation(n_rows) for _ in range(_ORDERS)])
    together = (tried @ placed.T) ** 2
    return np.asarray(tried[int(np.argmin(together.sum(axis=1)))])


def chosen_rows(X: Array, seed: int) -> Array:
    """Given rows, a random part of them where there are many."""
    if len(X) <= MOST_ROWS:
        return X
    return X[np.sort(np.random.default_rng(seed).choice(len(X), MOST_ROWS, replace=False))]
