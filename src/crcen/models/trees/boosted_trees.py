"""Boosted trees as plain arrays: read off scikit-learn's histogram boosting once, answered by NumPy alone."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["BoostedTrees"]

Array = NDArray[np.float64]
Index = NDArray[np.int32]

_MANY_ROWS = 2048  # from so many on, walking the nodes one by one costs less than taking all rows to the deepest leaf
_CELLS_AT_ONCE = 2**17  # of a (rows, trees) matrix of places in trees, which should stay in the cache
_CELLS_OF_MANY = 2**22  # of the leaves' values of many rows


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """An additive model of binary trees with one output logit.

    A row starts at the root of every tree. At a node it goes left where its value is at most the threshold, or is
    missing and missing values go left there. A leaf is its own child. The logit is the baseline and the values of all
    leaves that the row ends in.

    Parameters
    ----------
    feature, threshold, missing_left, left, right, value
        One entry a node, the nodes of all trees one after another; children are numbers of nodes.
    roots
        The first node of every tree, in the order of boosting.
    depth
        Steps from a root to the deepest leaf.
    baseline
        What every row starts from, a logit.
    n_features
        Columns of the rows.
    """

    feature: Index
    threshold: Array
    missing_left: NDArray[np.bool_]
    left: Index
    right: Index
    value: Array
    roots: Index
    depth: int
    baseline: float
    n_features: int

    @classmethod
    def from_nodes(cls, nodes: Sequence[NDArray[Any]], baseline: float, n_features: int) -> "BoostedTrees":
        """The trees whose nodes scikit-learn's histogram boosting has, one array a tree; their columns are numeric."""
        sizes = [len(one) for one in nodes]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        whole = np.concatenate(nodes)
        if whole["is_categorical"].any():
            raise ValueError("trees that split categories are not read: encode them as numbers first")
        is_leaf = whole["is_leaf"].astype(bool)
        own, offset = np.arange(len(whole)), np.repeat(starts, sizes)
        return cls(
            feature=np.where(is_leaf, 0, whole["feature_idx"]).astype(np.int32),
            threshold=np.where(is_leaf, np.inf, whole["num_threshold"]),
            missing_left=whole["missing_go_to_left"].astype(bool),
            left=np.where(is_leaf, own, whole["left"] + offset).astype(np.int32),
            right=np.where(is_leaf, own, whole["right"] + offset).astype(np.int32),
            value=np.where(is_leaf, whole["value"], 0.0),
            roots=starts.astype(np.int32),
            depth=int(whole["depth"].max()),
            baseline=baseline,
            n_features=n_features,
        )

    @property
    def n_trees(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def logits(self, X: Array) -> Array:
        """Natural logits of the rows of X, float64 (n, 1)."""
        logits = np.empty((len(X), 1))
        for start, values in self._leaf_values(X):
            logits[start : start + len(values), 0] = self.baseline + values.sum(axis=1)
        return logits

    def arrays(self) -> dict[str, Any]:
        """Its state as plain values and arrays."""
        return dict(vars(self))

    def _leaf_values(self, X: Array) -> Any:
        """(first row, leaf values (rows, trees)) of one piece of rows after another."""
        if X.shape[1] != self.n_features:
            raise ValueError(f"rows have {X.shape[1]} columns, and these trees were grown on {self.n_features}")
        is_many = len(X) >= _MANY_ROWS
        find = self._values_of_many if is_many else self._values_of_few
        at_once = max(1, (_CELLS_OF_MANY if is_many else _CELLS_AT_ONCE) // max(self.n_trees, 1))
        for start in range(0, len(X), at_once):
            yield start, find(np.asarray(X[start : start + at_once], dtype=np.float64))

    def _values_of_few(self, X: Array) -> Array:
        """All rows and trees go down a step at a time; `take` costs a single row half of what indexing does."""
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
        return self.value.take(at)

    def _values_of_many(self, X: Array) -> Array:
        """Tree after tree, a node's rows are split among its children: nothing is done to rows that are in a leaf."""
        columns = np.asfortranarray(X).T
        lacks: NDArray[np.bool_] = np.isnan(columns)
        lacks_any = np.flatnonzero(lacks.any(axis=1)).tolist()
        values = np.empty((self.n_trees, len(X)))
        everyone = np.arange(len(X), dtype=np.intp)
        for tree, root in enumerate(self.roots.tolist()):
            waiting = [(root, everyone)]
            while waiting:
                node, rows = waiting.pop()
                if self.left[node] == node:
                    values[tree, rows] = self.value[node]
                    continue
                column = int(self.feature[node])
                goes_left: NDArray[np.bool_] = columns[column][rows] <= self.threshold[node]
                if column in lacks_any and self.missing_left[node]:
                    goes_left |= lacks[column][rows]
                waiting.append((int(self.left[node]), rows[goes_left]))
                waiting.append((int(self.right[node]), rows[~goes_left]))
        return np.ascontiguousarray(values.T)
