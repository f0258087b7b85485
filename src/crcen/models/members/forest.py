"""A forest of extremely randomised trees (scikit-learn): no search, little time, errors unlike those of boosting.

Columns are cut into bins first, so that random cuts are spread over the rows and not over the range of values. The
forest's class shares are the mean over the leaves that a row falls into, as in scikit-learn. Half a row is added to
each class, so that the logits are finite.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from crcen.models.members.member import Chosen, FittedMember, MemberKind, MemberTask, affordable_trees, fold_logits
from crcen.models.members.tree_arrays import TreeArrays, TreeEnsemble
from crcen.theory.rows import Array, Estimator, Index
from crcen.training.network import Member

_TREES, _FEW_ROWS = 100, 6_000  # on more rows half as many trees serve as well beside boosted ones
# With a time limit: trees to estimate the time, and the fewest that are useful.
_TRIAL = {"trial": 4, "fewest": 25}
_LEAVES, _MAX_DEPTH = 1000, 32
_MAX_CUTS = 254


class Forest(MemberKind):
    """The member ``"forest"``."""

    name = "forest"
    max_rows = 10_000  # above, leaving it out changed the cost on one of four development tables only
    time_share = 0.1

    def search(self, task: MemberTask) -> FittedMember:
        """One forest per fold, and one on all rows."""
        rounds = len(task.folds) + 1.5
        fit = partial(_forest, task, task.folds[0][0], seed=task.seed)
        most = _TREES if len(task.X) <= _FEW_ROWS else _TREES // 2
        n_trees, logits = affordable_trees(task, fit, rounds, most=most, **_TRIAL), list[Array]()
        for i, (rows, held_out) in enumerate(task.folds):
            logits.append(_forest(task, rows, n_trees, task.seed + 1 + i).logits(task.X[held_out]))
            if i == 0:
                task.check_weight(logits[0], held_out)
            task.progress((i + 1) / (len(task.folds) + 1))
        parts = self.refit(task, [n_trees])
        lines = (f"{n_trees} randomised trees",)
        return FittedMember(self.name, parts, fold_logits(task, logits), lines, 1, (n_trees,))

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """The forest of all rows."""
        return (_forest(task, np.arange(len(task.X)), chosen[0], task.seed),)


def _forest(task: MemberTask, rows: Index, n_trees: int, seed: int) -> TreeEnsemble:
    from sklearn.ensemble import ExtraTreesClassifier

    rows = rows[task.weights[rows] > 0]
    X, target, weights = task.X[rows], task.target[rows], task.weights[rows]
    cuts = [_cuts(column) for column in X.T]
    model = ExtraTreesClassifier(
        n_trees, max_leaf_nodes=_LEAVES, max_depth=_MAX_DEPTH, n_jobs=task.threads, random_state=seed % 2**32
    )
    model.fit(_bins(X, cuts), target, sample_weight=weights)
    known = np.asarray(model.classes_, dtype=np.int64)
    places = np.full((len(cuts), 2 + max(map(len, cuts), default=0)), np.inf)
    for own, values in zip(places, cuts, strict=True):
        own[: len(values)] = values
    trees = [_tree(one.tree_, places, known, task.n_classes, n_trees) for one in model.estimators_]
    baseline = np.full(task.n_classes, 0.5 / len(target))
    return TreeEnsemble.join(trees, [0] * len(trees), baseline, X.shape[1], has_shares=True)


def _tree(tree: Estimator, places: Array, known: Index, n_classes: int, n_trees: int) -> TreeArrays:
    """A tree of bins as a tree of values; ``places`` holds the cuts of each column, then infinity."""
    share = np.zeros((tree.node_count, n_classes))
    share[:, known] = tree.value[:, 0, :] / tree.value[:, 0, :].sum(axis=1, keepdims=True)
    inner = tree.children_left >= 0
    threshold = np.zeros(tree.node_count)
    # A bin at or below a cut of bins is a value at or below the cut of values; the last bin holds missing values.
    threshold[inner] = places[tree.feature[inner], tree.threshold[inner].astype(np.int64)]
    return {
        "feature": tree.feature,
        "threshold": threshold,
        "missing_left": np.zeros(tree.node_count, dtype=bool),
        "left": tree.children_left,
        "right": tree.children_right,
        "value": share / n_trees,
    }


def _cuts(column: Array) -> Array:
    """Cuts between all values of a column, or at quantiles where there are many."""
    values = np.sort(column[~np.isnan(column)])
    distinct = values[np.append(True, values[1:] > values[:-1])] if len(values) else values
    if len(distinct) <= _MAX_CUTS:
        low, high = distinct[:-1], distinct[1:]
    else:
        places = np.linspace(0, len(values), _MAX_CUTS + 2)[1:-1].astype(np.int64)
        low, high = values[places - 1], values[places]
    return np.clip(np.unique(0.5 * low + 0.5 * high), -1e300, 1e300)


def _bins(X: Array, cuts: Sequence[Array]) -> NDArray[np.float32]:
    """The number of the bin of every cell; one more for missing values."""
    found = np.empty(X.shape, dtype=np.float32)
    for j, own in enumerate(cuts):
        found[:, j] = np.where(np.isnan(X[:, j]), len(own) + 1, np.searchsorted(own, X[:, j]))
    return found
