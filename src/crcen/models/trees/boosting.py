"""Boosting by scikit-learn's histogram trees, a tree at a time, on rows that were binned once.

`HistGradientBoostingClassifier` bins and checks its rows anew at each warm start, and predicts held-out rows by all
trees again. A search of many settings in several parts spends more on that than on trees.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.private_scikit_learn import tree_parts
from crcen.models.trees.bins import Bins
from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.class_trees import ClassTrees
from crcen.models.trees.setting import TreeSetting
from crcen.theory.classes.log_sums import log_softmax, softmax
from crcen.theory.decision import sigmoid

__all__ = ["BinnedRows", "Booster", "log_loss"]

Array = NDArray[np.float64]
Bytes = NDArray[np.uint8]

_NO_CATEGORIES = np.zeros((0, 8), dtype=np.uint32)


@dataclass(frozen=True, eq=False)
class BinnedRows:
    """Rows to grow trees on and rows held out, in bins; targets are as in `search_trees`.

    Parameters
    ----------
    bins
        Where columns are cut.
    cells, target, weights
        The rows to grow on.
    has_gaps
        For each column whether a value is missing in them.
    held_out, held_target, held_weights
        The rows that trees are judged by.
    n_classes
        How many classes there are; None where targets say which rows are positive.
    """

    bins: Bins
    cells: Bytes
    target: NDArray[Any]
    weights: Array
    has_gaps: Bytes
    held_out: Bytes
    held_target: NDArray[Any]
    held_weights: Array
    n_classes: int | None

    @classmethod
    def of(
        cls, X: Array, target: NDArray[Any], weights: Array, own: NDArray[Any], held_out: NDArray[Any]
    ) -> "BinnedRows":
        """Bins of the rows ``own`` that weigh anything; those held out are put into them."""
        counted = own[weights[own] > 0]
        rows = X[counted]
        bins = Bins.of(rows, weights[counted])
        cells = bins(rows)
        return cls(
            bins,
            cells,
            target[counted],
            weights[counted],
            (cells == bins.gaps).any(axis=0).astype(np.uint8),
            bins(X[held_out], "C"),
            target[held_out],
            weights[held_out],
            None if target.dtype == np.bool_ else int(target.max()) + 1,
        )

    @property
    def n_logits(self) -> int:
        """Trees a round: one a class, or a single one for two classes."""
        return self.n_classes if self.n_classes is not None and self.n_classes > 2 else 1


class Booster:
    """One setting on some rows, with its loss on the rows held out after every round."""

    def __init__(self, rows: BinnedRows, setting: TreeSetting, seed: int) -> None:
        self.rows, self.setting = rows, setting
        self.losses: list[float] = []
        self._rng = np.random.default_rng(seed % 2**32)
        self._baseline = _baseline(rows)
        self._nodes: list[list[NDArray[Any]]] = []
        self._logits = np.asfortranarray(np.tile(self._baseline, (len(rows.cells), 1)))
        self._held = np.asfortranarray(np.tile(self._baseline, (len(rows.held_out), 1)))

    @property
    def n_rounds(self) -> int:
        """Rounds so far."""
        return len(self._nodes)

    def grow(self, n_rounds: int, threads: int = 1) -> None:
        """Go on until there are so many rounds."""
        grower, _, kind, add_leaves = tree_parts()
        rows, setting = self.rows, self.setting
        fixed = {
            "max_leaf_nodes": setting.leaves,
            "min_samples_leaf": setting.rows_a_leaf,
            "n_bins": rows.bins.gaps + 1,
            "n_bins_non_missing": rows.bins.counts,
            "has_missing_values": rows.has_gaps,
            "l2_regularization": setting.l2,
            "feature_fraction_per_split": setting.columns,
            "rng": self._rng,
            "shrinkage": setting.rate,
            "n_threads": threads,
        }
        while self.n_rounds < n_rounds:
            found = []
            for k, (slope, curvature) in enumerate(_derivatives(self._logits, rows)):
                tree = grower(rows.cells, slope, curvature, **fixed)
                tree.grow()
                add_leaves(self._logits[:, k], tree, threads)
                found.append(_nodes(tree, kind, rows.bins))
            self._nodes.append(found)
            if len(rows.held_out):
                self._held += self._predicted(self.n_rounds - 1, threads)
                self.losses.append(log_loss(self._held, rows.held_target, rows.held_weights))

    def held_out_logits(self, n_rounds: int) -> Array:
        """Natural logits of the rows held out after so many rounds: (n,), or a column for each class."""
        logits = self._held.copy()
        for later in range(n_rounds, self.n_rounds):
            logits -= self._predicted(later, 1)
        if self.rows.n_classes is None:
            return np.asarray(logits[:, 0])
        return np.column_stack([np.zeros(len(logits)), logits]) if logits.shape[1] == 1 else logits

    def trees(self) -> BoostedTrees | ClassTrees:
        """All trees as plain arrays."""
        n_features = self.rows.cells.shape[1]
        by_logit = [
            BoostedTrees.from_nodes([found[k] for found in self._nodes], float(baseline), n_features)
            for k, baseline in enumerate(self._baseline)
        ]
        return by_logit[0] if self.rows.n_classes is None else ClassTrees(tuple(by_logit))

    def _predicted(self, number: int, threads: int) -> Array:
        """What one round adds to the logits of the rows held out."""
        _, predictor, _, _ = tree_parts()
        by_class = [predictor(nodes, _NO_CATEGORIES, _NO_CATEGORIES) for nodes in self._nodes[number]]
        cells, gaps = self.rows.held_out, self.rows.bins.gaps
        return np.stack([one.predict_binned(cells, gaps, threads) for one in by_class], axis=1)


def _baseline(rows: BinnedRows) -> Array:
    """The log-odds of the positive class, or logarithms of the classes' shares, about their mean."""
    tiny = np.finfo(np.float64).eps
    n_classes = 2 if rows.n_logits == 1 else rows.n_logits
    counts = np.bincount(rows.target.astype(np.int64), rows.weights, n_classes)
    logs = np.log(np.clip(counts / max(counts.sum(), tiny), tiny, 1.0))
    return np.array([logs[1] - logs[0]]) if rows.n_logits == 1 else logs - logs.mean()


def _derivatives(logits: Array, rows: BinnedRows) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """First and second derivatives of the rows' log loss by each logit."""
    p = sigmoid(logits) if logits.shape[1] == 1 else softmax(logits)
    is_weighted = not np.all(rows.weights == 1.0)
    found = []
    for k in range(p.shape[1]):
        own = p[:, k]
        slope, curvature = own - (rows.target == (k if p.shape[1] > 1 else 1)), own * (1.0 - own)
        if is_weighted:
            slope, curvature = slope * rows.weights, curvature * rows.weights
        found.append((slope.astype(np.float32), curvature.astype(np.float32)))
    return found


def log_loss(logits: Array, target: NDArray[Any], weights: Array) -> float:
    """Mean log loss of rows by logits (n, 1) or (n, K); single precision is far finer than what settings differ by."""
    if logits.shape[1] > 1:
        own = log_softmax(logits)[np.arange(len(target)), target.astype(np.int64)]
        return float(-(own @ weights) / weights.sum())
    away = np.where(target, -1.0, 1.0).astype(np.float32) * logits[:, 0].astype(np.float32)
    losses = np.maximum(away, 0.0) + np.log1p(np.exp(-np.abs(away)))
    return float((losses @ weights.astype(np.float32)) / weights.sum())


def _nodes(tree: Any, kind: Any, bins: Bins) -> NDArray[Any]:
    """A grown tree's nodes, parents first and all that is left of a node before what is right of it.

    It is what the tree's own `make_predictor` gives, a column at a time instead of a node at a time.
    """
    found: list[list[Any]] = []  # value, depth, left, right, column, bin, whether gaps go left
    waiting: list[tuple[Any, list[Any]]] = [(tree.root, [])]
    while waiting:
        node, parent = waiting.pop()
        if parent:
            parent[3] = len(found)
        own = [node.value, node.depth, 0, 0, 0, 0, False]
        found.append(own)
        if not node.is_leaf:
            split = node.split_info
            own[2], own[4:] = len(found), (split.feature_idx, split.bin_idx, split.missing_go_to_left)
            waiting.append((node.right_child, own))
            waiting.append((node.left_child, []))
    values, depths, lefts, rights, columns, places, gaps_left = zip(*found, strict=True)
    nodes = np.zeros(len(found), dtype=kind)
    nodes["value"], nodes["depth"], nodes["left"], nodes["right"] = values, depths, lefts, rights
    nodes["feature_idx"], nodes["bin_threshold"], nodes["missing_go_to_left"] = columns, places, gaps_left
    nodes["is_leaf"] = nodes["left"] == 0
    nodes["num_threshold"] = bins.above[nodes["feature_idx"], nodes["bin_threshold"]]
    return nodes
