"""Trees as arrays against scikit-learn's own answers."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.search import TreeSetting, fit_trees, search_trees


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, 6))
    X[:, 3] = np.round(X[:, 3])
    y = X[:, 0] * X[:, 1] + X[:, 3] + rng.normal(size=700) > 1.5
    X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


@pytest.fixture(scope="module")
def model(rows):
    return HistGradientBoostingClassifier(max_iter=30, max_features=0.5, random_state=1).fit(*rows)


def test_logits_are_those_of_the_model_with_gaps_and_infinities(rows, model):
    X, _ = rows
    new = np.random.default_rng(2).normal(scale=3.0, size=(500, 6))
    new[:20, 0], new[20:40, 1], new[40:60] = np.inf, -np.inf, np.nan
    trees = BoostedTrees.from_histogram_boosting(model)
    for part in (X, new, new[:1]):
        assert trees.logits(part)[:, 0] == pytest.approx(model.decision_function(part), abs=1e-12)


def test_a_row_alone_gets_what_it_gets_in_company(rows, model):
    X, _ = rows
    trees = BoostedTrees.from_histogram_boosting(model)
    together = trees.logits(X[:50])[:, 0]
    assert [trees.logits(X[i : i + 1])[0, 0] for i in range(50)] == together.tolist()


def test_fewer_trees_are_an_earlier_stage(rows, model):
    X, y = rows
    trees = BoostedTrees.from_histogram_boosting(model)
    staged = trees.staged_logits(X)
    for count, reference in ((1, 0), (10, 9), (30, 29)):
        assert trees.first(count).logits(X)[:, 0] == pytest.approx(staged[reference], abs=1e-12)
    short = HistGradientBoostingClassifier(max_iter=10, max_features=0.5, random_state=1).fit(X, y)
    assert trees.first(10).logits(X)[:, 0] == pytest.approx(short.decision_function(X), abs=1e-12)


def test_the_search_counts_trees_by_held_out_rows_and_its_logits_are_theirs(rows):
    X, y = rows
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    settings = [TreeSetting(8, 20, 1.0, 1.0), TreeSetting(2, 300, 1.0, 1.0)]
    best, other = search_trees(X, y, np.ones(len(y)), folds, seed=5, settings=settings)
    assert best.setting == settings[0]
    assert best.loss < other.loss
    losses = []
    for number, (train, held_out) in enumerate(folds):
        alone = fit_trees(X[train], y[train], np.ones(len(train)), [(best.setting, best.n_trees)], seed=6 + number)[0]
        logits = alone.logits(X[held_out])[:, 0]
        assert best.logits[held_out] == pytest.approx(logits, abs=1e-5)
        losses.append(np.mean(np.logaddexp(0, np.where(y[held_out], -logits, logits))))
    assert best.loss == pytest.approx(np.mean(losses), abs=1e-5)


def test_the_number_of_threads_changes_nothing(rows):
    X, y = rows
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    settings = [TreeSetting(8, 20, 1.0, 0.5)]
    one, two = (
        search_trees(X, y, np.ones(len(y)), folds, seed=5, settings=settings, threads=count)[0] for count in (1, 2)
    )
    assert one.n_trees == two.n_trees
    assert np.array_equal(one.logits, two.logits)


def test_categories_are_refused(rows):
    X, y = rows
    X = np.abs(np.round(np.nan_to_num(X)))
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features=[0, 1, 2, 3, 4, 5]).fit(X, y)
    with pytest.raises(ValueError, match="categories"):
        BoostedTrees.from_histogram_boosting(model)
