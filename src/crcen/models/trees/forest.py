"""A forest of extremely randomised trees: no search, little time, and mistakes that boosted trees do not make.

Each tree splits at random cuts of random columns. A leaf answers with the log-odds of its rows, drawn towards those of
all rows, and the forest with the mean over its trees. So it is an additive model of trees, as boosted ones are.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.boosting import BinnedRows
from crcen.models.trees.class_trees import ClassTrees

__all__ = ["N_TREES", "fit_forest", "forest_out_of_fold"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

N_TREES = 100
_ROUND = 25  # trees after which it is seen whether time is left
_LEAVES, _ROWS_A_LEAF, _DEEPEST = 256, 2, 32
_DRAWN = 2.0  # rows of the whole table's class ratio that each leaf has on top of its own


class _Forest:
    """A forest on some rows."""

    def __init__(self, rows: BinnedRows, seed: int, threads: int) -> None:
        from sklearn.ensemble import ExtraTreesClassifier

        self.rows, self.n_features = rows, len(rows.bins.cuts)
        self._model = ExtraTreesClassifier(
            max_leaf_nodes=_LEAVES,
            min_samples_leaf=_ROWS_A_LEAF,
            max_depth=_DEEPEST,
            warm_start=True,
            n_jobs=threads,
            random_state=seed % 2**32,
        )

    def grow(self, n_trees: int) -> None:
        """Go on until there are so many trees."""
        rows = self.rows
        self._model.set_params(n_estimators=n_trees).fit(rows.cells, rows.target, sample_weight=self._scale())

    def _scale(self) -> Array:
        """Weights of mean 1, so that what leaves are drawn by is a number of rows."""
        return self.rows.weights / self.rows.weights.mean()

    def trees(self) -> BoostedTrees | ClassTrees:
        """The forest as plain arrays: a mean of log-odds, or of a logarithm for each class."""
        rows, trees = self.rows, [one.tree_ for one in self._model.estimators_]
        n_classes = 2 if rows.n_classes is None else rows.n_classes
        share = np.zeros(n_classes)
        known = np.asarray(self._model.classes_, dtype=np.int64)
        np.add.at(share, rows.target.astype(np.int64), self._scale() / len(rows.target))
        counts = [np.zeros((one.node_count, n_classes)) for one in trees]
        for tree, own in zip(trees, counts, strict=True):
            within = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
            own[:, known] = within * tree.weighted_n_node_samples[:, None]
        # A class that is in none of these rows has half a row's share of what a leaf is drawn by.
        drawn = _DRAWN * np.maximum(share, 0.5 / (1.0 + len(rows.target)))
        logs = np.concatenate([np.log(own + drawn) for own in counts]) / len(trees)
        if n_classes == 2:
            found = self._additive(trees, logs[:, 1] - logs[:, 0])
            return found if rows.n_classes is None else ClassTrees((found,))
        return ClassTrees(tuple(self._additive(trees, logs[:, k]) for k in range(n_classes)))

    def _additive(self, trees: Sequence[Any], value: Array) -> BoostedTrees:
        sizes = [one.node_count for one in trees]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
        own, offset = np.arange(sum(sizes)), np.repeat(starts, sizes)
        left, right, feature, cut = (
            np.concatenate([getattr(one, name) for one in trees])
            for name in ("children_left", "children_right", "feature", "threshold")
        )
        is_leaf = left < 0
        return BoostedTrees(
            feature=np.where(is_leaf, 0, feature).astype(np.int32),
            threshold=np.where(is_leaf, np.inf, self._thresholds(np.where(is_leaf, 0, feature), cut)),
            missing_left=np.zeros(len(own), dtype=bool),  # gaps are in the last bin
            left=np.where(is_leaf, own, left + offset).astype(np.int32),
            right=np.where(is_leaf, own, right + offset).astype(np.int32),
            value=np.where(is_leaf, value, 0.0),
            roots=starts.astype(np.int32),
            depth=max(one.max_depth for one in trees),
            baseline=0.0,
            n_features=self.n_features,
        )

    def _thresholds(self, feature: Index, cut: Array) -> Array:
        """What a cut between bins is among a column's values; beyond the last bin of numbers are gaps alone."""
        found = np.full(len(cut), np.inf)
        last = np.floor(cut).astype(np.int64)
        for j, cuts in enumerate(self.rows.bins.cuts):
            own = np.flatnonzero((feature == j) & (last < len(cuts)) & (last >= 0))
            found[own] = cuts[last[own]]
        return found


def forest_out_of_fold(
    X: Array,
    target: NDArray[Any],
    weights: Array,
    folds: Sequence[tuple[Index, Index]],
    *,
    seed: int,
    threads: int = 1,
    is_late: Callable[[], bool] = lambda: False,
    progress: Callable[[float], None] = lambda share: None,
) -> tuple[Array, int]:
    """Out-of-fold logits, NaN for rows in no fold, and the number of trees: fewer than usual where time is short.

    Parameters
    ----------
    X, target, weights
        All rows, which are positive (or class numbers from 0 where there are more than two), their weights.
    folds
        Training and held-out rows.
    seed
        Of columns and cuts.
    threads
        Processors to use; the forest does not depend on their number.
    is_late
        Whether no further trees should begin.
    progress
        Called with the share of the work that is done.
    """
    nobody = np.empty(0, dtype=np.int64)
    forests = [
        _Forest(BinnedRows.of(X, target, weights, own, nobody), seed + 1 + i, threads)
        for i, (own, _) in enumerate(folds)
    ]
    for n_trees in range(_ROUND, N_TREES + 1, _ROUND):
        for forest in forests:
            forest.grow(n_trees)
        progress(n_trees / N_TREES)
        if is_late():
            break
    answers = [forest.trees().logits(X[held_out]) for forest, (_, held_out) in zip(forests, folds, strict=True)]
    is_of_classes = target.dtype != np.bool_
    logits = np.full((len(X), answers[0].shape[1]) if is_of_classes else len(X), np.nan)
    for (_, held_out), found in zip(folds, answers, strict=True):
        logits[held_out] = found if is_of_classes else found[:, 0]
    return logits, n_trees


def fit_forest(
    X: Array, target: NDArray[Any], weights: Array, n_trees: int = N_TREES, *, seed: int, threads: int = 1
) -> BoostedTrees | ClassTrees:
    """The forest of all rows."""
    nobody = np.empty(0, dtype=np.int64)
    forest = _Forest(BinnedRows.of(X, target, weights, np.arange(len(X)), nobody), seed, threads)
    forest.grow(n_trees)
    return forest.trees()
