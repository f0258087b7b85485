"""Boosting on binned rows against scikit-learn's histogram boosting, and bins against quantiles."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from crcen.models.trees.bins import Bins
from crcen.models.trees.boosting import BinnedRows, Booster
from crcen.models.trees.setting import TreeSetting

SETTING = TreeSetting(8, 10, 1.0, 1.0)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 20, size=(600, 5)).astype(float)  # few values: both cut between all of them
    z = 0.3 * X[:, 0] - 0.01 * X[:, 1] * X[:, 2] + rng.normal(size=600)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X, z


def reference(X, y, weights, n_trees):
    model = HistGradientBoostingClassifier(
        max_iter=n_trees,
        max_leaf_nodes=SETTING.leaves,
        min_samples_leaf=SETTING.rows_a_leaf,
        l2_regularization=SETTING.l2,
        early_stopping=False,
    )
    return model.fit(X, y, sample_weight=weights)


@pytest.mark.parametrize("n_classes", [None, 2, 4])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_it_is_histogram_boosting(rows, n_classes, is_weighted):
    X, z = rows
    cuts = [np.quantile(z, 0.8)] if n_classes is None or n_classes == 2 else np.quantile(z, [0.3, 0.6, 0.9])
    target = z > cuts[0] if n_classes is None else np.searchsorted(cuts, z)
    weights = np.random.default_rng(1).integers(1, 4, len(z)).astype(float) if is_weighted else np.ones(len(z))
    own, held_out = np.arange(450), np.arange(450, 600)
    booster = Booster(BinnedRows.of(X, target, weights, own, held_out), SETTING, 0)
    booster.grow(7)
    booster.grow(25)
    model = reference(X[own], target[own], weights[own], 25)
    staged = list(model.staged_decision_function(X[held_out]))
    for count in (25, 10):
        found, expected = booster.held_out_logits(count), staged[count - 1]
        if n_classes == 2:
            assert not found[:, 0].any()
            found = found[:, 1]
        assert found == pytest.approx(expected, abs=1e-5)
    logits = booster.trees().logits(X[held_out])
    ours = logits if n_classes else logits[:, 0]
    assert np.squeeze(ours) == pytest.approx(booster.held_out_logits(25), abs=1e-12)
    p = model.predict_proba(X[held_out])
    chosen = p[np.arange(len(p)), target[held_out].astype(int)]
    assert booster.losses[-1] == pytest.approx(
        -(weights[held_out] @ np.log(chosen)) / weights[held_out].sum(), rel=1e-5
    )
    assert len(booster.losses) == booster.n_rounds == 25


def test_rows_without_weight_are_not_there(rows):
    X, z = rows
    weights = np.where(np.arange(len(z)) % 3 == 0, 0.0, 1.0)
    nobody = np.empty(0, dtype=int)
    everyone, counted = np.arange(len(z)), np.flatnonzero(weights)
    ones = np.ones(len(z))
    found = []
    for own, by in ((everyone, weights), (counted, ones)):
        booster = Booster(BinnedRows.of(X, z > 1.0, by, own, nobody), SETTING, 3)
        booster.grow(5)
        assert booster.losses == []
        found.append(booster.trees().logits(X))
    assert np.array_equal(*found)


def test_a_column_of_many_values_is_cut_at_its_quantiles():
    values = np.random.default_rng(0).lognormal(size=(10_000, 1))
    bins = Bins.of(values, np.ones(10_000))
    counts = np.bincount(bins(values)[:, 0])
    assert len(counts) == bins.counts[0] == bins.gaps == 255
    assert counts.min() >= 38
    assert counts.max() <= 41
    few = Bins.of(values[:300], np.ones(300))
    assert few.counts[0] == 100  # three rows a bin


def test_weights_are_as_good_as_rows_that_stand_there_several_times():
    rng = np.random.default_rng(1)
    values, times = rng.normal(size=3000), rng.integers(1, 5, 3000)
    weighted = Bins.of(values[:, None], times.astype(float))
    repeated = Bins.of(np.repeat(values, times)[:, None], np.ones(times.sum()))
    assert np.array_equal(weighted(values[:, None]), repeated(values[:, None]))


def test_every_cell_has_a_bin():
    X = np.array([[np.nan, 3.0, 1.0], [np.nan, 3.0, 2.0], [np.nan, 3.0, np.nan], [np.nan, 3.0, 5.0]])
    bins = Bins.of(X, np.ones(4))
    assert bins.counts.tolist() == [1, 1, 3]
    assert bins.gaps == 3
    assert bins(X).tolist() == [[3, 0, 0], [3, 0, 1], [3, 0, 3], [3, 0, 2]]
    assert bins(np.array([[0.0, -np.inf, 1.5], [0.0, np.inf, np.inf]])).tolist() == [[0, 0, 0], [0, 0, 2]]
