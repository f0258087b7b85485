"""The frozen input layer: plain definitions, scikit-learn, copies of rows, missing cells, and rows on a device."""

import numpy as np
import pytest
import torch
from sklearn.preprocessing import QuantileTransformer, RobustScaler
from sklearn.tree import DecisionTreeClassifier
from training_reference import assert_same_result, binary_job

from crcen.training.device import _encoded, encoded_on
from crcen.training.engine import train
from crcen.training.network import ENCODINGS, column_layout, fit_encoding, incomplete_columns, standardization

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
N = 300
each_encoding = pytest.mark.parametrize("kind", ENCODINGS)


def mixed_columns(n=N, has_gaps=False):
    """Normal, skewed, three-valued, binary and further columns; labels depend on the second by a step.

    With gaps, a quarter of the first four is missing and the last is normal; without, the last is constant.
    """
    rng = np.random.default_rng(0)
    end = rng.normal(size=n) if has_gaps else np.full(n, 7.0)
    X = np.column_stack([rng.normal(5, 2, n), rng.exponential(1, n), rng.integers(0, 3, n), rng.integers(0, 2, n), end])
    y = (X[:, 1] > 1.5) & (rng.random(n) < 0.8)
    if has_gaps:
        X[:, :4][rng.random((n, 4)) < 0.25] = np.nan
    return X, y


def fitted(kind, X, y, weights=None, bins=4, columns=None, **options):
    """The encoding of rows whose layout is that of all."""
    weights = np.ones(len(X)) if weights is None else weights
    columns = column_layout(X, kind, bins) if columns is None else columns
    return fit_encoding(kind, columns, X, y, weights, **{"indicators": incomplete_columns(X), **options})


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


def test_columns_of_extreme_magnitude_and_constant_ones_are_standardised():
    unit, sizes = np.array([1.0, -1.0, 3.0, 0.5]), np.array([1e-150, 1e-30, 1.0, 1e30, 1e200, 1e307])
    mean, scale = standardization(unit[:, None] * sizes, np.ones(4))
    np.testing.assert_allclose(mean / sizes, np.full(6, unit.mean()), rtol=1e-12)
    np.testing.assert_allclose(scale / sizes, np.full(6, unit.std()), rtol=1e-12)
    values = np.array([0.0, 1.0, 0.1, -1e30, 1e200, 1e-200, 1e-308])
    mean, scale = standardization(np.tile(values, (37, 1)), np.random.default_rng(0).exponential(size=37))
    np.testing.assert_allclose(mean, values, rtol=1e-12)
    assert (scale == 1.0).all()


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
    encoding, fitted_on = fitted(kind, X, y), X.copy()
    X[0], X[1], X[2, 0] = 1e12, -1e12, np.inf
    columns = slice(None) if encoding.columns is None else encoding.columns
    by_hand = np.minimum(np.maximum((X[:, columns] - encoding.mean) / encoding.scale, encoding.low), encoding.high)
    np.testing.assert_array_equal(encoding(X), by_hand)
    assert (len({*encoding.low, *encoding.high}) == 2) == (kind == "standard")
    if kind == "steps":  # a cell beyond the range of the training rows is as one at its end
        ends = np.array([fitted_on.min(axis=0), fitted_on.max(axis=0)])
        np.testing.assert_allclose(encoding(np.array([X[1], X[0]])), encoding(ends), rtol=1e-12)


@pytest.mark.parametrize("kind", ["standard", "robust", "quantile", "steps", "tree"])
def test_limits_can_cover_more_training_rows(kind):
    X, y = mixed_columns()
    encoding = fitted(kind, X, y)
    wider = encoding.covering(2.0 * X)
    np.testing.assert_array_equal(wider(X), encoding(X))
    if kind not in ("steps", "tree"):
        assert wider is encoding
        return
    own = slice(X.shape[1])
    varies = X.std(axis=0) > 0
    by_hand = (2.0 * X - encoding.mean[own]) / encoding.scale[own]
    np.testing.assert_array_equal(wider(2.0 * X)[:, own][:, varies], by_hand[:, varies])
    assert not np.array_equal(encoding(2.0 * X), wider(2.0 * X))


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


# -- missing cells: statistics of what is there, 0 for what is not, indicators beside it -------------------------------

X, Y = mixed_columns(has_gaps=True)


def column_of(encoding):
    """Which column each encoded one is made of, indicators left out."""
    return np.arange(5) if encoding.columns is None else encoding.columns[:-4]


@each_encoding
def test_cells_that_are_there_are_encoded_as_if_alone_and_missing_ones_are_zero_their_mean_or_middle(kind):
    encoding = fitted(kind, X, Y)
    z, columns, own_column = encoding(X), column_layout(X, kind, 4), column_of(encoding)
    for column in range(5):
        there = ~np.isnan(X[:, column])
        rows = np.zeros((there.sum(), 5))
        rows[:, column] = X[there, column]
        alone = fit_encoding(kind, columns, rows, Y[there], np.ones(len(rows)))
        own = np.flatnonzero(own_column == column)
        present = z[np.ix_(there, own)]
        np.testing.assert_allclose(present, alone(rows)[:, own], rtol=1e-12, atol=1e-12)
        assert (z[np.ix_(~there, own)] == 0).all()
        if kind == "robust":
            assert max((present < 0).mean(axis=0).max(), (present > 0).mean(axis=0).max()) <= 0.5  # the median
        else:
            assert np.abs(present.mean(axis=0)).max() < (0.1 if kind == "quantile" else 1e-12)


@pytest.mark.parametrize("kind", [kind for kind in ENCODINGS if kind != "robust"])
def test_indicators_are_standard_scores_of_being_missing(kind):
    weights = np.random.default_rng(1).random(N)
    is_missing = np.isnan(X[:, :4]).astype(float)
    mean = np.average(is_missing, axis=0, weights=weights)
    expected = (is_missing - mean) / np.sqrt(mean * (1 - mean))
    encoding = fitted(kind, X, Y, weights)
    np.testing.assert_allclose(encoding(X)[:, -4:], expected, rtol=1e-12)
    np.testing.assert_array_equal(encoding.indicators, range(4))


@each_encoding
def test_a_column_that_lacks_all_cells_here_or_those_of_one_class(kind):
    empty = X.copy()
    empty[:, 0] = np.nan
    empty[Y, 1] = np.nan
    encoding = fitted(kind, empty, Y, columns=column_layout(X, kind, 4))
    z, columns = encoding(X), column_of(encoding)
    np.testing.assert_allclose(z[:, :-4][:, columns == 0], 0, atol=1e-15)
    assert (z[:, -4] == 0).all()  # it says nothing here
    assert np.isfinite(z).all()
    assert np.ptp(z[:, 1]) > 1


@each_encoding
def test_cells_that_only_new_rows_lack_are_zero_without_an_indicator(kind):
    full = np.where(np.isnan(X), 1.0, X)
    encoding = fitted(kind, full, Y)
    plain = fit_encoding(kind, column_layout(full, kind, 4), full, Y, np.ones(N))
    assert encoding.size == plain.size
    np.testing.assert_array_equal(encoding(full), plain(full))
    gone = full[:1].copy()
    gone[0, 1] = np.nan
    changed = encoding(gone) != encoding(full[:1])
    made_of_it = np.arange(5) == 1 if plain.columns is None else plain.columns == 1
    assert (encoding(gone)[0, made_of_it] == 0).all()
    assert not changed[0, ~made_of_it].any()


def test_inputs_as_they_are_have_zeros_and_plain_indicators():
    z = fitted("steps", X, Y, standardize=False)(X)
    np.testing.assert_array_equal(z, np.column_stack([np.nan_to_num(X), np.isnan(X[:, :4])]))


@each_encoding
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_stack_of_folds_encodes_each_by_its_own_rows_and_equals_them_alone(kind, solver):
    folds = [np.flatnonzero(np.arange(N) % 3 != fold) for fold in range(3)]
    how = {"encoding": kind, "bins": 4, "missing": "indicator", "solver": solver, "max_epochs": 3}
    jobs = [binary_job(0.8, hidden=(5,), seed=3, rows=rows, **how) for rows in folds]
    for job, result in zip(jobs, train(X, Y, jobs, device="cpu"), strict=True):
        assert_same_result(train(X, Y, [job], device="cpu")[0], result, rtol=1e-4, atol=1e-5)
        rows, columns, indicators = job.rows, column_layout(X, kind, 4), incomplete_columns(X)
        expected = fitted(kind, X[rows], Y[rows], columns=columns, indicators=indicators)
        np.testing.assert_array_equal(result.network.encoding(X), expected(X))


@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@each_encoding
def test_values_and_labels_of_other_rows_do_not_reach_a_fold(kind, solver, hidden):
    how = {"encoding": kind, "missing": "indicator", "max_epochs": 2, "solver": solver}
    job = binary_job(0.5, hidden=hidden, rows=np.arange(200), **how)
    before = train(X, Y, [job], device="cpu")[0].network
    other, labels = X.copy(), Y.copy()
    other[200:, [1, 4]] *= -1e200  # as many different values, and no other column lacks cells
    other[200:, 0] = np.nan
    labels[200:] = ~labels[200:]
    after = train(other, labels, [job], device="cpu")[0].network
    np.testing.assert_array_equal(before.encoding(X), after.encoding(X))
    np.testing.assert_array_equal(before.logits(X), after.logits(X))


def test_a_missing_cell_in_a_row_without_weight_changes_nothing():
    weights = np.ones(N)
    weights[7] = 0.0
    rows, gap = np.nan_to_num(X), np.nan_to_num(X)
    gap[7, 4] = np.nan
    job = binary_job(0.5, hidden=(3,), missing="indicator", max_epochs=2)
    one, other = (train(Z, Y, [job], sample_weight=weights, device="cpu")[0].network for Z in (rows, gap))
    np.testing.assert_array_equal(one.logits(rows), other.logits(rows))


# -- on a device (a GPU if there is one) -------------------------------------------------------------------------------


def table(n):
    """Columns of many values, few, two, one, ties, wide tails and large numbers."""
    rng = np.random.default_rng(0)
    z, few, many = rng.normal(size=(n, 5)).T, rng.integers(0, 2, n), rng.integers(0, 400, n)
    return np.column_stack([z[0], np.round(3 * z[1]), few, np.full(n, 1e30), np.exp(4 * z[2]), many, 1e8 + z[3], z[4]])


@pytest.mark.parametrize("has_gaps", [False, True])
@each_encoding
def test_encoded_rows_equal_those_of_the_host(kind, has_gaps):
    X = table(400)
    y = X[:, 0] > 1
    if has_gaps:
        X[np.random.default_rng(0).random(X.shape) < 0.1] = np.nan
    how = {"columns": column_layout(X, kind, 4), "indicators": incomplete_columns(X) if has_gaps else None}
    encoding = fitted(kind, X[:200], y[:200], **how)
    np.testing.assert_array_equal(encoded_on(torch.device("cpu"), encoding, X), encoding(X))
    if encoding.knots is None:  # only the host interpolates
        np.testing.assert_allclose(_encoded(DEVICE, encoding, X).cpu(), encoding(X), rtol=1e-14)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="needs CUDA")
@pytest.mark.parametrize("weights", [None, "uneven"])
def test_networks_on_a_gpu_equal_those_on_a_cpu(weights):
    X = table(1000)[:, [0, 1, 4, 5]]
    y = X[:, 0] > 0
    rows = None if weights is None else np.random.default_rng(2).uniform(1, 2, len(X))
    jobs = [binary_job(0.5, hidden=(8, 4), encoding=k, column_scales=True, max_epochs=3) for k in ("standard", "steps")]
    for here, there in zip(*(train(X, y, jobs, sample_weight=rows, device=d) for d in ("cpu", "cuda")), strict=True):
        for name in ("mean", "scale", "low", "high"):
            parts = [getattr(one.network.encoding, name) for one in (here, there)]
            np.testing.assert_allclose(*parts, rtol=1e-12)
        np.testing.assert_equal(there.network.encoding.columns, here.network.encoding.columns)
        np.testing.assert_allclose(there.network.logits(X), here.network.logits(X), atol=1e-4)
