"""Trees as arrays against the predictions of the libraries that grew them."""

import gc
import weakref

import numpy as np
import pytest

from crcen.models.members import catboost_trees, forest, lightgbm_trees
from crcen.models.members.lightgbm_trees import TreeSetting
from crcen.models.members.member import MemberTask
from crcen.models.members.tree_arrays import TreeEnsemble, TreeWalk, float32_threshold
from example_rows import interaction_rows

RNG = np.random.default_rng(0)


def draw(n_classes, n=700, gaps=0.1):
    """Rows with missing values everywhere except in the last column, and class numbers."""
    X, target = interaction_rows(n, n_classes=n_classes)
    X = np.column_stack([X, np.round(X[:, 0])])
    X[:, :5][RNG.random((n, 5)) < gaps] = np.nan
    return X, target


def task_of(X, target, weights=None):
    return MemberTask(X, target, np.ones(len(X)) if weights is None else weights, int(target.max()) + 1)


SETTING = TreeSetting(12, 5, 1.0, 0.7)


def lightgbm_model(task, setting=SETTING, n_trees=25):
    data = lightgbm_trees._data(task.X, task.target, task.weights, 1)
    booster = lightgbm_trees._Booster(data, None, setting, task.n_classes, 3)
    booster.grow(n_trees)
    return booster.model, lightgbm_trees.tree_ensemble(booster.model, task.n_classes)


def new_rows(trees, n=3000):
    """Rows many of whose cells are a threshold, its neighbour in double precision, or missing."""
    X = RNG.normal(scale=2.0, size=(n, trees.n_features))
    for column in range(trees.n_features):
        known = trees.threshold[(trees.feature == column) & np.isfinite(trees.threshold)]
        cells = RNG.choice(known, n) if len(known) else X[:, column]
        moved = np.nextafter(cells, RNG.choice([-np.inf, np.inf], n))
        X[:, column] = np.where(RNG.random(n) < 0.5, np.where(RNG.random(n) < 0.5, cells, moved), X[:, column])
    X[RNG.random(X.shape) < 0.1] = np.nan
    return X


def expanded(raw):
    return np.column_stack([np.zeros(len(raw)), raw]) if raw.ndim == 1 else raw


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("library", ["lightgbm", "catboost"])
def test_logits_equal_those_of_the_library(library, n_classes):
    task = task_of(*draw(n_classes))
    if library == "lightgbm":
        model, trees = lightgbm_model(task)
        X = new_rows(trees)
        raw = model.predict(X, raw_score=True)
    else:
        pytest.importorskip("catboost")
        model = catboost_trees._fit(task, np.arange(len(task.X)), None, 25)
        trees = catboost_trees.tree_ensemble(model, n_classes)
        X = new_rows(trees)
        raw = model.predict(X, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(trees.logits(X), expanded(raw), atol=1e-12)


def test_catboost_without_missing_values_and_constant_trees():
    pytest.importorskip("catboost")
    X, target = draw(2, gaps=0.0)
    X[:, 1:] = 1.0
    model = catboost_trees._fit(task_of(X, target), np.arange(len(X)), None, 5)
    new = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    raw = model.predict(new, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(catboost_trees.tree_ensemble(model, 2).logits(new)[:, 1], raw, atol=1e-12)


def test_lightgbm_trees_that_never_split_are_a_constant():
    X, target = draw(3)
    model, trees = lightgbm_model(task_of(X, target), TreeSetting(8, 600, 1.0, 1.0), 2)
    np.testing.assert_allclose(trees.logits(X), model.predict(X, raw_score=True), atol=1e-12)
    assert trees.depth == 0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n", [1, 7, 1500])
def test_walk_of_several_ensembles_equals_each_of_them(n_classes, n):
    task = task_of(*draw(n_classes))
    ensembles = [lightgbm_model(task)[1], forest._forest(task, np.arange(len(task.X)), 8, 3)]
    X = new_rows(ensembles[0])
    for found, one in zip(TreeWalk(ensembles).logits(X[:n]), ensembles, strict=True):
        logits = one.logits(X)  # those of many rows are those of few, and of single outputs
        np.testing.assert_array_equal(one.logits(X[:n]), logits[:n])
        np.testing.assert_array_equal(found, logits[:n])
        for k in () if one.has_shares else range(n_classes):
            np.testing.assert_array_equal(one.column(k).logits(X)[:, 0], logits[:, k])
        reached = leaves_by_hand(one, X[:n])
        outputs = [one.value[reached[:, one.output == k]].sum(axis=1) for k in np.unique(one.output)]
        total = one.baseline[-1] + outputs[-1][:, -1]
        np.testing.assert_allclose(found[:, -1], np.log(total) if one.has_shares else total, atol=1e-12)


def test_float32_thresholds_compare_as_single_precision_does():
    borders = (RNG.normal(size=500) * 10.0 ** RNG.integers(-30, 30, 500)).astype(np.float32)
    borders[:2] = 0.0, np.float32(1.0)
    t = float32_threshold(borders)
    assert (t.astype(np.float32) <= borders).all()
    assert (np.nextafter(t, np.inf).astype(np.float32) > borders).all()
    between = borders[2:50].astype(np.float64) * (1 + 1e-12)  # no single-precision number
    assert (float32_threshold(between).astype(np.float32).astype(np.float64) <= between).all()


def leaves_by_hand(trees: TreeEnsemble, X):
    found = np.empty((len(X), trees.n_trees), dtype=int)
    for i, row in enumerate(X):
        for t, root in enumerate(trees.roots.tolist()):
            node = root
            while trees.left[node] != node:
                cell = row[trees.feature[node]]
                left = trees.missing_left[node] if np.isnan(cell) else cell <= trees.threshold[node]
                node = int(trees.left[node] if left else trees.right[node])
            found[i, t] = node
    return found


@pytest.mark.parametrize("n_classes", [2, 3])
def test_forest_logits_are_those_of_the_mean_class_shares_of_leaves(n_classes):
    X, target = draw(n_classes, n=300)
    weights = RNG.integers(1, 4, len(X)).astype(float)
    weights /= weights.mean()
    trees = forest._forest(task_of(X, target, weights), np.arange(len(X)), 8, 3)
    shares = np.full((len(X), n_classes), 0.5 / len(X))
    for own in leaves_by_hand(trees, X).T:
        for leaf in np.unique(own):
            inside = own == leaf
            counts = np.bincount(target[inside], weights[inside], n_classes)
            shares[inside] += counts / counts.sum() / 8
    np.testing.assert_allclose(trees.logits(X), np.log(shares), atol=1e-9)
    if n_classes == 2:
        odds = np.log(shares[:, [1]] / shares[:, [0]])
        np.testing.assert_allclose(trees.column(1).logits(X), odds, atol=1e-9)


def test_forest_tells_values_apart_that_single_precision_does_not():
    X = np.array([[1e300 + 1e290 * (i % 2), 1.0 + 1e-12 * (i % 2)] for i in range(200)])
    target = np.arange(200) % 2
    p = forest._forest(task_of(X, target), np.arange(200), 25, 0).column(1).logits(X)[:, 0]
    assert p[target == 1].min() > 2 > -2 > p[target == 0].max()


def test_used_trees_are_freed_and_rows_of_another_width_are_refused():
    _, trees = lightgbm_model(task_of(*draw(2)))
    assert trees.logits(np.zeros((0, 6))).shape == (0, 2)
    with pytest.raises(ValueError, match="grown on 6"):
        trees.logits(np.zeros((1, 5)))
    found = weakref.ref(trees)
    del trees
    gc.collect()
    assert found() is None
