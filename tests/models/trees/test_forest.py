"""The forest: its answers from its leaves counted by hand, gaps, weights, classes, folds and time."""

import numpy as np
import pytest

from crcen.models.trees.forest import N_TREES, fit_forest, forest_out_of_fold


def draw(n=400, seed=0, gaps=0.15):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    X[:, 3] = np.round(X[:, 3])
    y = X[:, 0] + X[:, 1] * X[:, 3] + rng.normal(size=n) > 1.5
    X[rng.random(X.shape) < gaps] = np.nan
    return X, y


def leaves_of(trees, X):
    """The leaf of every row in every tree, by walking from the roots."""
    found = np.empty((len(X), trees.n_trees), dtype=int)
    for i, row in enumerate(X):
        for t, node in enumerate(trees.roots.tolist()):
            while trees.left[node] != node:
                cell = row[trees.feature[node]]
                left = trees.missing_left[node] if np.isnan(cell) else cell <= trees.threshold[node]
                node = int(trees.left[node] if left else trees.right[node])
            found[i, t] = node
    return found


def log_odds_by_hand(leaves, y, weights):
    """Each tree's leaf: its own rows and two of the whole table's class ratio; the mean over trees."""
    share = weights[y].sum() / weights.sum()
    total = np.zeros(len(y))
    for own in leaves.T:
        for leaf in np.unique(own):
            inside = own == leaf
            pos, neg = weights[inside & y].sum(), weights[inside & ~y].sum()
            total[inside] += np.log(pos + 2 * share) - np.log(neg + 2 * (1 - share))
    return total / leaves.shape[1]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_leaf_answers_with_the_log_odds_of_its_rows(is_weighted):
    X, y = draw()
    weights = np.random.default_rng(1).integers(1, 4, len(y)) * 1.0 if is_weighted else np.ones(len(y))
    forest = fit_forest(X, y, weights, 10, seed=3)
    leaves = leaves_of(forest, X)
    by_hand = log_odds_by_hand(leaves, y, weights / weights.mean())
    assert forest.logits(X)[:, 0] == pytest.approx(by_hand, abs=1e-9)
    assert np.unique(leaves, return_counts=True)[1].min() >= 2
    # Only ratios of weights count, and a row without weight is none.
    more, labels, lighter = np.vstack([X, X[:50] + 9]), np.append(y, ~y[:50]), np.append(weights / 8, np.zeros(50))
    again = fit_forest(more, labels, lighter, 10, seed=3)
    assert again.logits(X) == pytest.approx(forest.logits(X), abs=1e-9)


def test_a_gap_can_decide():
    X, _ = draw(gaps=0.0)
    y = np.arange(400) % 5 == 0
    X[y, 2] = np.nan
    forest = fit_forest(X, y, np.ones(400), 25, seed=0)
    row = np.zeros((2, 4))
    row[1, 2] = np.nan
    no, yes = forest.logits(row)[:, 0]
    assert yes > no + 1


def test_held_out_rows_are_answered_by_forests_that_did_not_see_them():
    X, y = draw()
    folds = [(np.arange(200, 400), np.arange(100)), (np.arange(200), np.arange(200, 350))]
    logits, n_trees = forest_out_of_fold(X, y, np.ones(400), folds, seed=5)
    assert n_trees == N_TREES
    assert np.isfinite(logits[:100]).all()
    assert np.isnan(logits[100:200]).all()
    assert np.isnan(logits[350:]).all()
    for i, (own, held_out) in enumerate(folds):
        alone = fit_forest(X[own], y[own], np.ones(len(own)), seed=5 + 1 + i)
        assert logits[held_out] == pytest.approx(alone.logits(X[held_out])[:, 0], abs=1e-12)
    turned = y.copy()
    turned[:100] = ~turned[:100]
    again, _ = forest_out_of_fold(X, turned, np.ones(400), folds, seed=5, threads=2)
    assert np.array_equal(again[:100], logits[:100])  # their own labels say nothing about them
    few, n_few = forest_out_of_fold(X, y, np.ones(400), folds, seed=5, is_late=lambda: True)
    assert n_few < N_TREES
    assert np.isfinite(few[:100]).all()


def test_classes_have_a_logarithm_each():
    rng = np.random.default_rng(2)
    target = rng.integers(0, 3, 300)
    X = np.column_stack([target + 0.3 * rng.normal(size=300), rng.normal(size=300)])
    forest = fit_forest(X, target, np.ones(300), 20, seed=0)
    logits = forest.logits(X)
    assert logits.shape == (300, 3)
    assert (logits.argmax(axis=1) == target).mean() > 0.9
    is_second = (target == 1).astype(np.int64)
    two = fit_forest(X, is_second, np.ones(300), 20, seed=0).logits(X)
    one = fit_forest(X, is_second == 1, np.ones(300), 20, seed=0).logits(X)
    assert two[:, 1] - two[:, 0] == pytest.approx(one[:, 0], abs=1e-12)


def test_values_that_single_precision_lacks_are_told_apart():
    X = np.array([[1e300 + 1e290 * (i % 2), 1.0 + 1e-12 * (i % 2)] for i in range(200)])
    y = np.arange(200) % 2 == 0
    p = fit_forest(X, y, np.ones(200), 25, seed=0).logits(X)[:, 0]
    assert p[y].min() > 2 > -2 > p[~y].max()
