"""The frozen input layer against plain definitions, scikit-learn, and copies of rows."""

import numpy as np
import pytest
from sklearn.preprocessing import QuantileTransformer, RobustScaler
from sklearn.tree import DecisionTreeClassifier
from training_reference import binary_job

from crcen.training.encoding import column_layout, fit_encoding
from crcen.training.engine import train


def mixed_columns(n=300, seed=0):
    """Normal, skewed, three-valued, binary and constant columns, with labels that depend on the second by a step."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(5, 2, n), rng.exponential(1, n), rng.integers(0, 3, n), rng.integers(0, 2, n), np.full(n, 7.0)]
    )
    y = (X[:, 1] > 1.5) & (rng.random(n) < 0.8)
    return X, y


def fitted(kind, X, y, weights=None, bins=4):
    weights = np.ones(len(X)) if weights is None else weights
    return fit_encoding(kind, column_layout(X, kind, bins), X, y, weights)


def test_layout_gives_bins_to_columns_that_can_fill_them():
    X, _ = mixed_columns()
    np.testing.assert_array_equal(column_layout(X, "piecewise", 4), [0, 1, 2, 3, 4, *[0] * 4, *[1] * 4, *[2] * 2])
    assert all(column_layout(X, kind, 4) is None for kind in ("standard", "robust", "quantile"))


def test_standard_is_the_weighted_standard_score():
    X, y = mixed_columns()
    w = np.random.default_rng(1).random(300)
    mean = np.average(X, axis=0, weights=w)
    std = np.sqrt(np.average((X - mean) ** 2, axis=0, weights=w))
    np.testing.assert_allclose(fitted("standard", X, y, w)(X)[:, :4], ((X - mean) / np.where(std, std, 1))[:, :4])


def test_robust_is_scikit_learns_scaler_bent_to_three():
    X, y = mixed_columns(1001)
    scaled = RobustScaler(unit_variance=True).fit_transform(X[:, :2])
    z = fitted("robust", X, y)(X)[:, :2]
    np.testing.assert_allclose(z, scaled / np.sqrt(1 + (scaled / 3) ** 2), atol=0.01)
    assert np.abs(fitted("robust", X, y)(X * 1e6)).max() <= 3.0


def test_quantile_agrees_with_scikit_learn_and_keeps_the_order():
    X, y = mixed_columns(2000)
    theirs = QuantileTransformer(n_quantiles=100, output_distribution="normal").fit_transform(X[:, :2])
    ours = fitted("quantile", X, y)(X)
    inner = np.abs(theirs) < 2
    assert np.abs(ours[:, :2] - theirs)[inner].max() < 0.06
    for column in range(4):
        order = np.argsort(X[:, column], kind="stable")
        assert (np.diff(ours[order, column]) >= 0).all()
    # The scores of shared values are centred: a binary column is not pushed to the ends.
    assert np.abs(ours[:, 3]).max() < 1.5


@pytest.mark.parametrize("kind", ["standard", "steps"])
def test_cells_are_clipped_to_bounds_shared_or_not(kind):
    X, y = mixed_columns()
    encoding = fitted(kind, X, y)
    X[0], X[1], X[2, 0] = 1e12, -1e12, np.inf
    columns = slice(None) if encoding.columns is None else encoding.columns
    by_hand = np.minimum(np.maximum((X[:, columns] - encoding.mean) / encoding.scale, encoding.low), encoding.high)
    np.testing.assert_array_equal(encoding(X), by_hand)
    assert (len({*encoding.low, *encoding.high}) == 2) == (kind == "standard")


def test_piecewise_ramps_between_quantiles_add_up_to_the_clipped_column():
    X, y = mixed_columns(400)
    encoding = fitted("piecewise", X, y)
    z = encoding(X)
    edges = np.quantile(X[:, 0], np.linspace(0, 1, 5), method="inverted_cdf")
    for place, left, right in zip(range(5, 9), edges[:-1], edges[1:], strict=True):
        ramp = np.clip((X[:, 0] - left) / (right - left), 0, 1)
        np.testing.assert_allclose(z[:, place], ramp - ramp.mean(), atol=1e-12)
    # Weighted by the widths of the bins they are the column itself, up to its mean.
    np.testing.assert_allclose(z[:, 5:9] @ np.diff(edges), X[:, 0] - X[:, 0].mean(), atol=1e-9)
    assert np.abs(encoding(X * 1e9)[:, 5:]).max() <= 1.0


def test_tree_edges_are_those_of_a_small_decision_tree():
    X, y = mixed_columns(600)
    encoding = fitted("tree", X, y, bins=4)
    tree = DecisionTreeClassifier(max_leaf_nodes=4, class_weight="balanced").fit(X[:, [1]], y)
    splits = np.sort(tree.tree_.threshold[tree.tree_.feature == 0])
    places = np.flatnonzero(encoding.columns == 1)[1:]
    widths = encoding.scale[places]
    left = encoding.mean[places] + encoding.low[places] * widths
    found = left[1 : 1 + len(splits)]
    assert np.abs(found[:, None] - splits[None]).min(axis=0)[np.abs(splits - 1.5).argmin()] < 0.05


def test_steps_are_placed_where_classes_change():
    """Three classes on one line: the tree splits at both borders and nowhere else, whatever the counts are."""
    x = np.concatenate([np.linspace(0, 0.9, 60), np.linspace(1, 1.9, 20), np.linspace(2, 2.9, 30)])[:, None]
    encoding = fitted("steps", x, np.repeat([2, 0, 1], [60, 20, 30]), bins=3)
    inside = encoding(np.array([[0.5], [1.5], [2.5]]))[:, 1:]
    assert np.allclose(np.abs(np.diff(inside, axis=0)).sum(axis=1), 1.0)


def test_a_fold_without_some_values_has_empty_bins_and_trains():
    X, y = mixed_columns()
    X[:150, 2] = 0.0
    job = binary_job(0.5, hidden=(4,), rows=np.arange(150), encoding="piecewise", bins=3, max_epochs=2)
    network = train(X, y, [job], device="cpu")[0].network
    empty = np.flatnonzero(network.encoding.columns == 2)[1:]
    assert (network.encoding(X)[:, empty] == 0).all()
    assert np.isfinite(network.logits(X)).all()


@pytest.mark.parametrize("kind", ["steps", "tree"])
def test_a_row_of_weight_k_splits_as_k_rows_do_where_splits_are_as_good_as_each_other(kind):
    # Few values and few rows give many ties, which rounding decided in three of these tables.
    for seed in range(400):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(12, 60))
        X = rng.integers(0, int(rng.integers(4, 20)), size=(n, 3)).astype(float)
        y, weight = rng.random(n) < 0.4, rng.integers(1, 6, n)
        copies = np.repeat(np.arange(n), weight)
        layout = column_layout(X, kind, 5)
        weighted, scaled = (fit_encoding(kind, layout, X, y, w) for w in (weight.astype(float), weight / 3.0))
        copied = fit_encoding(kind, layout, X[copies], y[copies], np.ones(len(copies)))
        for other in (copied, scaled):
            for name in ("mean", "scale", "low", "high"):
                np.testing.assert_allclose(getattr(other, name), getattr(weighted, name), rtol=1e-9, atol=1e-9)
