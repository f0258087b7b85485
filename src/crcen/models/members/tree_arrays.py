"""Trees of any library as plain arrays: predictions need NumPy alone."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crcen.theory.rows import Array, Bools

Index = NDArray[np.int32]

TreeArrays: TypeAlias = dict[str, NDArray[Any]]  # nodes of one tree, by field of `TreeEnsemble`

_MANY_ROWS = 2048  # from here on, splitting the rows of each node is faster than moving all rows level by level
_CELLS_AT_ONCE = 2**17  # of the (rows, trees) matrix of current nodes: fits into the cache
_CELLS_OF_MANY = 2**22


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """An additive model of binary trees with C output logits.

    A row starts at the root of every tree. It goes left at a node if its value is at most the threshold, or if the
    value is missing and ``missing_left`` is set. A leaf is its own child. The logits are the baseline plus the values
    of all leaves reached.
    """

    feature: Index  # one entry per node, the trees one after another; children are node numbers
    threshold: Array
    missing_left: Bools
    left: Index
    right: Index
    value: Array  # leaf values; the width is 1, or C where every leaf has a value for each output
    roots: Index  # first node of every tree, and the first output column that its values are added to
    output: Index
    depth: int  # steps from a root to the deepest leaf
    baseline: Array  # logits before the first tree
    n_features: int  # columns of the rows

    @classmethod
    def join(
        cls, trees: Sequence[TreeArrays], output: Sequence[int], baseline: Array, n_features: int
    ) -> "TreeEnsemble":
        """Trees with node numbers of their own, parents before children and −1 for the children of leaves.

        Each has the arrays ``feature``, ``threshold``, ``missing_left``, ``left``, ``right`` and ``value``.
        """
        sizes = np.array([len(one["left"]) for one in trees])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        whole = {name: np.concatenate([one[name] for one in trees]) for name in trees[0]}
        own, offset = np.arange(sizes.sum()), np.repeat(roots, sizes)
        is_leaf = whole["left"] < 0
        left = np.where(is_leaf, own, whole["left"] + offset).astype(np.int32)
        right = np.where(is_leaf, own, whole["right"] + offset).astype(np.int32)
        value = whole["value"].reshape(len(own), -1)
        return cls(
            feature=np.where(is_leaf, 0, whole["feature"]).astype(np.int32),
            threshold=np.where(is_leaf, np.inf, whole["threshold"]),
            missing_left=whole["missing_left"].astype(bool),
            left=left,
            right=right,
            value=np.where(is_leaf[:, None], value, 0.0),
            roots=roots.astype(np.int32),
            output=np.asarray(output, dtype=np.int32),
            depth=_depth(roots, left, right),
            baseline=np.asarray(baseline, dtype=np.float64),
            n_features=n_features,
        )

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def logits(self, X: Array) -> Array:
        """Natural logits of the rows of X, float64 (n, C)."""
        logits, width = np.tile(self.baseline, (len(X), 1)), self.value.shape[1]
        columns = [(k, np.flatnonzero(self.output == k)) for k in np.unique(self.output).tolist()]
        for start, leaves in self._leaves(X):
            part = logits[start : start + len(leaves)]
            for k, own in columns:
                mine = leaves if len(columns) == 1 else leaves[:, own]
                part[:, k : k + width] += self.value.take(mine, axis=0).sum(axis=1)
        return logits

    def arrays(self) -> dict[str, Any]:
        """Its state as plain values and arrays."""
        return dict(vars(self))

    def column(self, k: int) -> "TreeEnsemble":
        """The trees of output ``k`` alone, as an ensemble with one output."""
        width = self.value.shape[1]
        own = np.flatnonzero((self.output <= k) & (k < self.output + width))
        ends = np.append(self.roots[1:], len(self.left))
        trees: list[TreeArrays] = []
        for tree in own:
            nodes = slice(self.roots[tree], ends[tree])
            is_leaf = self.left[nodes] == np.arange(nodes.start, nodes.stop)
            trees.append(
                {
                    "feature": self.feature[nodes],
                    "threshold": self.threshold[nodes],
                    "missing_left": self.missing_left[nodes],
                    "left": np.where(is_leaf, -1, self.left[nodes] - nodes.start),
                    "right": np.where(is_leaf, -1, self.right[nodes] - nodes.start),
                    "value": self.value[nodes, k - self.output[tree]],
                }
            )
        return TreeEnsemble.join(
            trees or [_constant_tree()], [0] * max(1, len(own)), self.baseline[[k]], self.n_features
        )

    def _leaves(self, X: Array) -> Iterator[tuple[int, Index]]:
        """(first row, leaf nodes (rows, trees)) of one block of rows after another."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"rows have {X.shape[1]} columns, and these trees were grown on {self.n_features}")
        is_many = len(X) >= _MANY_ROWS
        find = self._leaves_of_many if is_many else self._leaves_of_few
        at_once = max(1, (_CELLS_OF_MANY if is_many else _CELLS_AT_ONCE) // max(self.n_trees, 1))
        for start in range(0, len(X), at_once):
            yield start, find(np.asarray(X[start : start + at_once], dtype=np.float64))

    def _leaves_of_few(self, X: Array) -> Index:
        """All rows and trees go down one level at a time; for one row `take` costs half of what indexing does."""
        rows = np.ascontiguousarray(X)
        has_missing = bool(np.isnan(rows).any())
        flat, first = rows.ravel(), (np.arange(len(rows)) * rows.shape[1])[:, None]
        at = np.repeat(self.roots[None], len(rows), axis=0)
        for _ in range(self.depth):
            place = self.feature.take(at)
            cells = flat.take(place if len(rows) == 1 else place + first)
            goes_left = cells <= self.threshold.take(at)
            if has_missing:
                goes_left |= np.isnan(cells) & self.missing_left.take(at)
            at = np.where(goes_left, self.left.take(at), self.right.take(at))
        return at

    def _leaves_of_many(self, X: Array) -> Index:
        """Tree after tree, the rows of a node are split among its children."""
        columns = np.asfortranarray(X).T
        is_missing: Bools = np.isnan(columns)
        with_missing = set(np.flatnonzero(is_missing.any(axis=1)).tolist())
        leaves = np.empty((self.n_trees, len(X)), dtype=np.int32)
        all_rows = np.arange(len(X), dtype=np.intp)
        for tree, root in enumerate(self.roots.tolist()):
            waiting = [(root, all_rows)]
            while waiting:
                node, rows = waiting.pop()
                if self.left[node] == node:
                    leaves[tree, rows] = node
                    continue
                column = int(self.feature[node])
                goes_left: Bools = columns[column][rows] <= self.threshold[node]
                if column in with_missing and self.missing_left[node]:
                    goes_left |= is_missing[column][rows]
                waiting.append((int(self.left[node]), rows[goes_left]))
                waiting.append((int(self.right[node]), rows[~goes_left]))
        return np.ascontiguousarray(leaves.T)


def float32_threshold(border: NDArray[np.generic]) -> Array:
    """The doubles t for which x <= t holds exactly where float32(x) <= border.

    Libraries that store rows in single precision compare rounded values. The largest double that rounds to the float32
    value f at or below the border is the midpoint between f and its successor, or the double before it where the
    midpoint rounds up (ties go to the even neighbour).
    """
    exact = np.asarray(border, dtype=np.float64)
    with np.errstate(over="ignore"):
        below = exact.astype(np.float32)
        below = np.where(below > exact, np.nextafter(below, np.float32(-np.inf)), below)
        above = np.nextafter(below, np.float32(np.inf))
        middle = 0.5 * below.astype(np.float64) + 0.5 * above.astype(np.float64)
        rounds_up = middle.astype(np.float32) > below
    return np.where(rounds_up, np.nextafter(middle, -np.inf), middle)


def _constant_tree() -> TreeArrays:
    whole, real = np.zeros(1, dtype=np.int32), np.zeros(1)
    return {
        "feature": whole,
        "threshold": real,
        "missing_left": whole,
        "left": whole - 1,
        "right": whole - 1,
        "value": real,
    }


def _depth(roots: NDArray[np.generic], left: Index, right: Index) -> int:
    at, depth = np.asarray(roots), 0
    while len(at := at[left[at] != at]):
        at, depth = np.concatenate([left[at], right[at]]), depth + 1
    return depth
