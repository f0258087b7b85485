"""Trees of any library as plain arrays: predictions need NumPy alone."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from crcen.theory.rows import Array, Bools

Index = NDArray[np.int32]

TreeArrays: TypeAlias = dict[str, NDArray[Any]]  # nodes of one tree, by field of `TreeEnsemble`

_CELLS_AT_ONCE = 2**15  # of the (rows, trees) matrix of current nodes: fits into the cache


@dataclass(frozen=True, eq=False)
class TreeEnsemble:
    """Binary trees with C outputs.

    A row starts at the root of every tree. It goes left at a node if its value is at most the threshold, or if the
    value is missing and ``missing_left`` is set. A leaf is its own child. The outputs are the baseline plus the values
    of all leaves reached. They are logits or, with ``has_shares``, class shares whose logarithms are the logits; a
    single share is that of the positive class.
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
    has_shares: bool = False

    @classmethod
    def join(
        cls,
        trees: Sequence[TreeArrays],
        output: Sequence[int],
        baseline: Array,
        n_features: int,
        has_shares: bool = False,
    ) -> "TreeEnsemble":
        """Trees with node numbers of their own, parents before children and −1 for the children of leaves."""
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
            has_shares=has_shares,
        )

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def logits(self, X: Array) -> Array:
        """Natural logits of the rows of X, float64 (n, C)."""
        return tree_walk(self, [replace(self)]).logits(X)[0]  # of a copy: a walk must not keep its owner alive

    def trees_of_outputs(self) -> list[tuple[int, Index | slice]]:
        """First output column, and the numbers of the trees whose values are added from there."""
        columns = sorted(set(self.output.tolist()))
        if len(columns) == 1:
            return [(columns[0], slice(None))]
        return [(k, np.flatnonzero(self.output == k).astype(np.int32)) for k in columns]

    def sum_leaves(self, leaves: NDArray[np.integer], outputs: list[tuple[int, Index | slice]]) -> Array:
        """Logits of rows from the leaf nodes that they reach, (rows, trees); ``outputs`` are `trees_of_outputs`."""
        total, width = np.tile(self.baseline, (len(leaves), 1)), self.value.shape[1]
        for k, own in outputs:
            total[:, k : k + width] += self.value.take(leaves[:, own], axis=0).sum(axis=1)
        if not self.has_shares:
            return total
        return np.asarray(np.log(total) - np.log(self.share_of_both - total) if total.shape[1] == 1 else np.log(total))

    @property
    def share_of_both(self) -> float:
        """Sum of the shares of two classes where only that of the positive class is kept."""
        return 1.0 + 2.0 * float(self.baseline[0])

    def arrays(self) -> dict[str, Any]:
        """Its state as plain values and arrays."""
        return dict(vars(self))

    def column(self, k: int) -> "TreeEnsemble":
        """The trees of output ``k`` alone, as an ensemble with one output."""
        own = np.flatnonzero((self.output <= k) & (k < self.output + self.value.shape[1]))
        ends = np.append(self.roots[1:], len(self.left))
        trees: list[TreeArrays] = []
        for tree in own:
            nodes = slice(self.roots[tree], ends[tree])
            is_leaf = self.left[nodes] == np.arange(nodes.start, nodes.stop)
            children = {name: getattr(self, name)[nodes] - nodes.start for name in ("left", "right")}
            nodes_of = {name: getattr(self, name)[nodes] for name in ("feature", "threshold", "missing_left")}
            nodes_of |= {name: np.where(is_leaf, -1, child) for name, child in children.items()}
            trees.append(nodes_of | {"value": self.value[nodes, k - self.output[tree]]})
        if not trees:  # a constant
            trees = [dict.fromkeys(("feature", "threshold", "missing_left", "value"), np.zeros(1))]
            trees[0] |= dict.fromkeys(("left", "right"), np.full(1, -1))
        return TreeEnsemble.join(trees, [0] * len(trees), self.baseline[[k]], self.n_features, self.has_shares)


class TreeWalk:
    """The trees of several ensembles side by side: one step moves every row down a level of every tree.

    Siblings are neighbours, so that the next node is the left child plus 1 for the right one. Deep trees come first, so
    that a step leaves out the trees that have ended.
    """

    def __init__(self, ensembles: Sequence[TreeEnsemble]) -> None:
        starts = np.cumsum([0, *(len(one.left) for one in ensembles)])
        left, right, roots = (
            np.concatenate([getattr(one, name) + start for one, start in zip(ensembles, starts, strict=False)])
            for name in ("left", "right", "roots")
        )
        order, at, tree = [roots], roots, np.arange(len(roots))
        depth = np.zeros(len(roots), dtype=np.intp)
        while len(inner := np.flatnonzero(left[at] != at)):
            tree = np.repeat(tree[inner], 2)
            at = np.stack([left[at[inner]], right[at[inner]]], axis=1).ravel()
            depth[tree] = len(order)
            order.append(at)
        self._node = np.concatenate(order)
        place = np.empty(len(left), dtype=np.intp)
        place[self._node] = np.arange(len(self._node))
        self._left = place[left[self._node]]
        self._feature = np.concatenate([one.feature for one in ensembles])[self._node].astype(np.intp)
        self._threshold = np.concatenate([one.threshold for one in ensembles])[self._node]
        goes_left = np.concatenate([one.missing_left for one in ensembles]) | (left == np.arange(len(left)))
        self._missing_right = ~goes_left[self._node]
        self._roots = np.argsort(-depth, kind="stable")  # nodes begin with the roots
        self._n_walking = [int((depth > level).sum()) for level in range(len(order) - 1)]
        own = np.split(np.argsort(self._roots), np.cumsum([one.n_trees for one in ensembles])[:-1])
        self._parts = [
            (one, int(start), trees, one.trees_of_outputs())
            for one, start, trees in zip(ensembles, starts, own, strict=False)
        ]

    def logits(self, X: Array) -> list[Array]:
        """Natural logits of the rows of X by each ensemble, float64 (n, C)."""
        for one, *_ in self._parts:
            if X.shape[1] != one.n_features:
                raise ValueError(f"rows have {X.shape[1]} columns, and these trees were grown on {one.n_features}")
        at_once = max(1, _CELLS_AT_ONCE // max(len(self._roots), 1))
        blocks = [np.ascontiguousarray(X[i : i + at_once], dtype=np.float64) for i in range(0, max(len(X), 1), at_once)]
        found = [
            [one.sum_leaves(leaves[trees].T - start, outputs) for one, start, trees, outputs in self._parts]
            for leaves in map(self._leaves, blocks)
        ]
        return found[0] if len(found) == 1 else [np.concatenate(parts) for parts in zip(*found, strict=True)]

    def _leaves(self, rows: Array) -> NDArray[np.intp]:
        """Node numbers (trees, rows); for one row `take` costs half of what indexing does."""
        has_missing = bool(np.isnan(rows).any())
        cells, first = rows.ravel(), np.arange(len(rows)) * rows.shape[1]
        at = np.repeat(self._roots[:, None], len(rows), axis=1)
        for n_walking in self._n_walking:
            now = at[:n_walking]
            places = self._feature.take(now)
            values = cells.take(places if len(rows) == 1 else places + first)
            goes_right: Bools = values > self._threshold.take(now)
            if has_missing:
                goes_right |= np.isnan(values) & self._missing_right.take(now)
            np.add(self._left.take(now), goes_right, out=now)
        return self._node.take(at)


_WALKS: WeakKeyDictionary[object, TreeWalk] = WeakKeyDictionary()


def tree_walk(owner: object, ensembles: Sequence[TreeEnsemble]) -> TreeWalk:
    """The walk of ensembles; made once for the object that owns them, and kept as long as that lives."""
    found = _WALKS.get(owner)
    if found is None:
        found = _WALKS[owner] = TreeWalk(ensembles)
    return found


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
        middle = 0.5 * below.astype(np.float64) + 0.5 * np.nextafter(below, np.float32(np.inf)).astype(np.float64)
        rounds_up = middle.astype(np.float32) > below
    return np.where(rounds_up, np.nextafter(middle, -np.inf), middle)


def _depth(roots: NDArray[np.generic], left: Index, right: Index) -> int:
    at, depth = np.asarray(roots), 0
    while len(at := at[left[at] != at]):
        at, depth = np.concatenate([left[at], right[at]]), depth + 1
    return depth
