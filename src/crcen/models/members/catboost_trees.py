"""Symmetric boosted trees by CatBoost, one setting: their errors differ from those of LightGBM's trees."""

import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.extras import need
from crcen.models.members.member import (
    MOST_COLUMNS,
    Chosen,
    FittedMember,
    MemberKind,
    MemberTask,
    affordable_trees,
    fold_logits,
    parallel_map,
)
from crcen.models.members.tree_arrays import TreeArrays, TreeEnsemble, float32_threshold
from crcen.theory.rows import Array, Estimator, Index
from crcen.training.network import Member

# For two classes and for more, where each tree takes several times as long, and smaller ones are no worse.
_TREES, _DEPTH, _LEAF_STEPS, _BORDERS = (400, 270), (6, 4), (10, 3), 32
# From some number of rows on, and with several classes, slower learning costs more than it gains.
_SLOW, _FAST, _SEVERAL, _MANY_ROWS = 0.06, 0.1, 0.15, 6_000
_WAIT = 3.0  # a fold ends after _WAIT / rate trees without gain on its held-out rows
# With a time limit: trees to estimate the time, and the fewest that are useful.
_TRIAL = {"trial": 5, "fewest": 60}


class CatBoostTrees(MemberKind):
    """The member ``"catboost"``."""

    name = "catboost"
    max_rows = 60_000  # above, its weight beside LightGBM's trees was 0 to .02 on five of six tables
    is_per_class = True
    package = "catboost"

    def search(self, task: MemberTask) -> FittedMember:
        """The number of trees with the lowest mean loss on the folds, then a fit on all rows."""
        rounds = -(-len(task.folds) // task.threads) + 1.5  # of fits on folds side by side, and the fit on all rows
        several = task.n_classes > 2
        rate = _SEVERAL if several else _FAST if len(task.X) >= _MANY_ROWS else _SLOW
        fit = partial(_fit, task, rate)
        most = affordable_trees(task, partial(fit, task.folds[0][0]), rounds, most=_TREES[several], **_TRIAL)
        own = task.folds[0][1]
        found = parallel_map(task.threads, lambda fold: fit(fold[0], most, fold[1]), task.folds[: task.threads])
        task.check_weight(_logits(found[0], task.X[own], int(np.argmin(_losses(found[0]))) + 1), own)
        found += parallel_map(task.threads, lambda fold: fit(fold[0], most, fold[1]), task.folds[task.threads :])
        task.progress(0.8)
        grown = min(one.tree_count_ for one in found)
        losses = np.mean([_losses(one)[:grown] for one in found], axis=0)
        n_trees = int(np.argmin(losses)) + 1
        logits = [_logits(one, task.X[own], n_trees) for one, (_, own) in zip(found, task.folds, strict=True)]
        parts = self.refit(task, chosen := ((n_trees, rate),))
        line = f"{n_trees} symmetric trees of depth {_DEPTH[several]}: log loss {losses.min():.4g}"
        return FittedMember(self.name, parts, fold_logits(task, logits), (line,), 1, chosen)

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """Trees on all rows."""
        rows = np.arange(len(task.X))
        return tuple(tree_ensemble(_fit(task, rate, rows, n_trees), task.n_classes) for n_trees, rate in chosen)


def _fit(task: MemberTask, rate: float, rows: Index, n_trees: int, held_out: Index | None = None) -> Estimator:
    catboost, is_multiclass = need("catboost", "boosting"), task.n_classes > 2
    rows = rows[task.weights[rows] > 0]
    model = catboost.CatBoostClassifier(
        iterations=n_trees,
        learning_rate=rate,
        depth=_DEPTH[is_multiclass],
        border_count=_BORDERS,
        rsm=min(1.0, MOST_COLUMNS / task.X.shape[1]),
        leaf_estimation_iterations=_LEAF_STEPS[is_multiclass],  # by default they depend on the number of trees
        loss_function="Logloss" if task.n_classes == 2 else "MultiClass",
        classes_count=None if task.n_classes == 2 else task.n_classes,
        boosting_type="Plain",
        random_seed=task.seed % 2**31,
        thread_count=1,
        verbose=False,
        allow_writing_files=False,
    )

    def pool(own: Index) -> Any:
        return catboost.Pool(task.X[own], task.target[own], weight=task.weights[own])

    if held_out is None:
        return model.fit(pool(rows))
    judged = pool(held_out)
    return model.fit(pool(rows), eval_set=judged, use_best_model=False, early_stopping_rounds=round(_WAIT / rate))


def _losses(model: Estimator) -> list[float]:
    """Losses on the held-out rows after every tree."""
    return list(next(iter(model.get_evals_result()["validation"].values())))


def _logits(model: Estimator, X: Array, n_trees: int) -> Array:
    raw = np.asarray(model.predict(X, prediction_type="RawFormulaVal", ntree_end=n_trees, thread_count=1))
    return np.column_stack([np.zeros(len(X)), raw]) if raw.ndim == 1 else raw


def tree_ensemble(model: Estimator, n_classes: int) -> TreeEnsemble:
    """CatBoost's symmetric trees as arrays, with logits (n, K); two classes have zeros for the first one."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        found = json.loads(path.read_text())
    features = found["features_info"]["float_features"]
    column = np.array([one["flat_feature_index"] for one in features])
    missing_left = np.array([one["nan_value_treatment"] != "AsTrue" for one in features])
    trees = [_tree(one, column, missing_left, 1 if n_classes == 2 else n_classes) for one in found["oblivious_trees"]]
    scale, bias = found["scale_and_bias"]
    for tree in trees:
        tree["value"] *= scale
    baseline = np.array([0.0, *bias] if n_classes == 2 else bias, dtype=np.float64)
    return TreeEnsemble.join(trees, [int(n_classes == 2)] * len(trees), baseline, len(model.feature_names_))


def _tree(tree: dict[str, Any], column: Index, missing_left: NDArray[np.generic], width: int) -> TreeArrays:
    """A complete binary tree, level by level; the first split of the list is the lowest bit of a leaf's number."""
    splits = tree.get("splits") or []
    depth, n_inner = len(splits), 2 ** len(splits) - 1
    level = np.repeat(np.arange(depth), 2 ** np.arange(depth))  # of each inner node, the root first
    feature = np.array([one["float_feature_index"] for one in splits], dtype=np.int64)
    border = np.array([one["border"] for one in splits], dtype=np.float64)
    values = np.asarray(tree["leaf_values"], dtype=np.float64).reshape(2**depth, width)
    # The path to the leaf at a place takes the bits of the place from the highest to the lowest, one per split.
    places = np.arange(2**depth)
    leaf = sum((((places >> (depth - 1 - i)) & 1) << i for i in range(depth)), np.zeros_like(places))
    inner, none = np.arange(n_inner), np.full(2**depth, -1)
    return {
        "feature": np.concatenate([column[feature][level], none]),
        "threshold": np.concatenate([float32_threshold(border)[level], np.zeros(2**depth)]),
        "missing_left": np.concatenate([missing_left[feature][level], none > 0]),
        "left": np.concatenate([2 * inner + 1, none]),
        "right": np.concatenate([2 * inner + 2, none]),
        "value": np.concatenate([np.zeros((n_inner, width)), values[leaf]]),
    }
