"""Exact Shapley values of boosted trees (Lundberg and others 2020, for one reference row).

A leaf is reached where every column on its path is satisfied by the row's cell or, for columns still at the background
row z, by that of z. With n₁ columns satisfied by the row alone and n₀ by z alone, each of the first kind has
(n₁−1)! n₀! / (n₁+n₀)! of the leaf's value, and each of the second loses n₁! (n₀−1)! / (n₁+n₀)! of it.
"""

from collections.abc import Sequence
from functools import cache
from math import comb

import numpy as np

from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.theory.rows import Array, Bools, Index

# Columns on a path up to which a table of all patterns is kept.
_TABLED = 12


def tree_values(trees: TreeEnsemble, X: Array, background: Array, blocks: Sequence[Index]) -> Array:
    """Shapley values (n, blocks) of the trees' logit."""
    block_of = np.zeros(trees.n_features, dtype=np.int64)
    for j, block in enumerate(blocks):
        block_of[block] = j
    values = np.zeros((len(blocks), len(X)))
    ends = np.append(trees.roots[1:], len(trees.value))
    for root, end in zip(trees.roots, ends, strict=True):
        inner = [node for node in range(int(root), int(end)) if trees.left[node] != node]
        left = {node: (_goes_left(trees, X, node), _goes_left(trees, background, node)) for node in inner}
        for value, path in _leaves(trees, int(root)):
            own: dict[int, tuple[Bools, Bools]] = {}
            for node, is_left in path:
                j = int(block_of[trees.feature[node]])
                here, there = left[node] if is_left else (~left[node][0], ~left[node][1])
                own[j] = (own[j][0] & here, own[j][1] & there) if j in own else (here, there)
            if own:
                _add_leaf(values, value, own)
    return values.T


def _goes_left(trees: TreeEnsemble, X: Array, node: int) -> Bools:
    cells = X[:, trees.feature[node]]
    is_left: Bools = cells <= trees.threshold[node]
    return is_left | np.isnan(cells) if trees.missing_left[node] else is_left


def _leaves(trees: TreeEnsemble, root: int) -> list[tuple[float, list[tuple[int, bool]]]]:
    """Every leaf's value, and the nodes on the way to it with the side that was taken."""
    found: list[tuple[float, list[tuple[int, bool]]]] = []
    waiting: list[tuple[int, list[tuple[int, bool]]]] = [(root, [])]
    while waiting:
        node, path = waiting.pop()
        if trees.left[node] == node:
            found.append((float(trees.value[node, 0]), path))
        else:
            sides = ((int(trees.left[node]), True), (int(trees.right[node]), False))
            waiting += [(child, [*path, (node, is_left)]) for child, is_left in sides]
    return found


def _add_leaf(values: Array, value: float, own: dict[int, tuple[Bools, Bools]]) -> None:
    """Add what one leaf gives to every row."""
    codes = _codes([here for here, _ in own.values()])
    patterns, at = _patterns(codes, len(own))
    others, counts = np.unique(_codes([there for _, there in own.values()]), return_counts=True)
    bits = np.arange(len(own))
    a, b = ((one[:, None] >> bits & 1).astype(np.float64) for one in (patterns, others))
    n_gained, n_lost = (a @ (1.0 - b).T).astype(np.int64), ((1.0 - a) @ b.T).astype(np.int64)
    share = np.where((1.0 - a) @ (1.0 - b).T > 0.0, 0.0, value * counts / counts.sum())
    gains, losses = _shares(len(own))
    table = a * ((share * gains[n_gained, n_lost]) @ (1.0 - b))
    table -= (1.0 - a) * ((share * losses[n_gained, n_lost]) @ b)
    for j, column in zip(own, table.T, strict=True):
        values[j] += column[at]


def _codes(satisfied: list[Bools]) -> Index:
    """Truth values of each row as the bits of one number."""
    found = np.zeros(len(satisfied[0]), dtype=np.int64)
    for bit, one in enumerate(satisfied):
        found |= one.astype(np.int64) << bit
    return found


def _patterns(codes: Index, n_bits: int) -> tuple[Index, Index]:
    """The different numbers, and which of them each row has."""
    if n_bits > _TABLED:
        found, at = np.unique(codes, return_inverse=True)
        return found, at
    found = np.flatnonzero(np.bincount(codes, minlength=1 << n_bits))
    place = np.zeros(1 << n_bits, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[codes]


@cache
def _shares(most: int) -> tuple[Array, Array]:
    """(n₁−1)! n₀! / (n₁+n₀)! and n₁! (n₀−1)! / (n₁+n₀)! by n₁ and n₀; 0 where there is no such column."""
    gains = np.zeros((most + 1, most + 1))
    for n_gained in range(1, most + 1):
        for n_lost in range(most + 1):
            gains[n_gained, n_lost] = 1.0 / (n_gained * comb(n_gained + n_lost, n_gained))
    return gains, gains.T
