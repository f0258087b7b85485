"""Trees as arrays against scikit-learn's own answers."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import StratifiedKFold

from crcen.models.trees import search
from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.search import fit_trees, search_trees
from crcen.models.trees.setting import TreeSetting


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


def trees_of(model):
    nodes = [trees[0].nodes for trees in model._predictors]
    return BoostedTrees.from_nodes(nodes, float(model._baseline_prediction[0, 0]), model.n_features_in_)


def test_logits_are_those_of_the_model_with_gaps_and_infinities(rows, model):
    X, _ = rows
    new = np.random.default_rng(2).normal(scale=3.0, size=(500, 6))
    new[:20, 0], new[20:40, 1], new[40:60] = np.inf, -np.inf, np.nan
    trees = trees_of(model)
    for part in (X, new, new[:1]):
        assert trees.logits(part)[:, 0] == pytest.approx(model.decision_function(part), abs=1e-12)


def test_a_row_alone_gets_what_it_gets_in_company(rows, model):
    X, _ = rows
    trees = trees_of(model)
    together = trees.logits(X[:50])[:, 0]
    assert [trees.logits(X[i : i + 1])[0, 0] for i in range(50)] == together.tolist()


def test_many_rows_get_the_bits_that_each_gets_alone(model):
    X = np.random.default_rng(3).normal(scale=2.0, size=(2500, 6))
    X[::7, 0], X[::11, 3], X[::13] = np.nan, np.inf, -np.inf
    trees = trees_of(model)
    X[:200, 0] = np.resize(trees.threshold[trees.feature == 0][:20], 200)  # rows exactly at a threshold go left
    few = np.concatenate([trees.logits(X[start : start + 100]) for start in range(0, len(X), 100)])
    assert np.array_equal(trees.logits(X), few)


def test_the_search_counts_trees_by_held_out_rows_and_its_logits_are_theirs(rows):
    X, y = rows
    folds = list(StratifiedKFold(3, shuffle=True, random_state=0).split(X, y))
    settings = [TreeSetting(8, 20, 1.0, 1.0), TreeSetting(2, 300, 1.0, 1.0)]
    (best,) = search_trees(X, y, np.ones(len(y)), folds, seed=5, settings=settings)
    assert best.setting == settings[0]  # the other one would spoil the mean of both
    losses = []
    for number, (train, held_out) in enumerate(folds):
        alone = fit_trees(X[train], y[train], np.ones(len(train)), [(best.setting, best.n_trees)], seed=6 + number)[0]
        logits = alone.logits(X[held_out])[:, 0]
        assert best.logits[held_out] == pytest.approx(logits, abs=1e-5)
        losses.append(np.mean(np.logaddexp(0, np.where(y[held_out], -logits, logits))))
    assert best.loss == pytest.approx(np.mean(losses), abs=1e-5)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_settings_are_averaged_where_that_serves_held_out_rows(n_classes):
    rng = np.random.default_rng(0)
    truth = 2.0 * rng.normal(size=(2000, n_classes))
    drawn = (truth + rng.gumbel(size=truth.shape)).argmax(axis=1)
    target = drawn == 1 if n_classes == 2 else drawn
    noisy = [truth + rng.normal(size=truth.shape) for _ in range(2)]  # errors of their own, which the mean halves
    outcomes = [
        search.TreeOutcome(TreeSetting(8, 20, 1.0, 1.0), 1, 0.0, one[:, 1] - one[:, 0] if n_classes == 2 else one)
        for one in (*noisy, -truth)
    ]
    for outcome in outcomes:
        outcome.logits[::10] = np.nan  # rows in no test fold
    assert search._how_many(outcomes, target, np.ones(2000)) == 2
    assert search._how_many([outcomes[0], outcomes[2]], target, np.ones(2000)) == 1


def test_the_number_of_threads_changes_nothing(rows):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(6000, 5))
    y = X[:, 0] * X[:, 1] + rng.normal(size=6000) > 2.0
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    settings = [TreeSetting(8, 20, 1.0, 0.5)]
    one, two = (
        search_trees(X, y, np.ones(len(y)), folds, seed=5, settings=settings, threads=count)[0] for count in (1, 5)
    )
    assert one.n_trees == two.n_trees
    assert np.array_equal(one.logits, two.logits)
    weights = rng.random(6000)
    fitted = [fit_trees(X, y, weights, [(settings[0], 30)], seed=1, threads=count)[0].arrays() for count in (1, 3)]
    assert all(np.array_equal(fitted[0][name], fitted[1][name]) for name in fitted[0])


def test_many_rows_are_first_compared_on_samples(monkeypatch):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(3000, 4))
    y = X[:, 0] + rng.normal(size=3000) > 1.5
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    seen = []
    race = search._race
    monkeypatch.setattr(search, "_SAMPLE_ROWS", 300)
    monkeypatch.setattr(search, "_SAMPLE_RARE", 20)
    monkeypatch.setattr(search, "_SAMPLE_PARTS", ((5, 0.5), (10, 0.0)))
    monkeypatch.setattr(search, "_MANY_PARTS", ((10, 1.0), (20, 0.0)))
    monkeypatch.setattr(search, "_race", lambda trials, *rest: seen.append(trials) or race(trials, *rest))
    settings = [TreeSetting(leaves, 5, 1.0, 1.0) for leaves in (2, 4, 8, 16)]
    outcomes = search_trees(X, y, np.ones(len(y)), folds, seed=1, settings=settings, n_best=2)
    sampled, whole = seen
    assert [trial.setting for trial in sampled] == settings
    assert [len(booster.rows.cells) for booster in sampled[0].boosters] == [300, 300]
    shares = [booster.rows.target.mean() for booster in sampled[0].boosters]
    assert shares == pytest.approx([y.mean()] * 2, abs=0.003)
    assert len(whole) == 2
    assert [len(booster.rows.cells) for booster in whole[0].boosters] == [1500, 1500]
    assert np.isfinite(outcomes[0].logits).all()


def test_rare_rows_are_kept_in_samples():
    y = np.zeros(200_000, dtype=bool)
    y[:1500] = True
    folds = list(StratifiedKFold(4, shuffle=True, random_state=0).split(y, y))
    assert search._sampled(folds, y, np.ones(len(y)), 0) is None  # 1,125 in a fold: too few to sample from
    y[:20_000] = True
    (rows, held_out), *_ = search._sampled(folds, y, np.ones(len(y)), 0)
    assert len(rows) == 30_000
    assert len(held_out) == 30_000
    assert set(rows) <= set(folds[0][0])
    assert set(held_out) <= set(folds[0][1])
    weights = np.ones(len(y))
    weights[1000:] = 0.0
    assert search._sampled(folds, y, weights, 0) is None


def test_categories_are_refused(rows):
    X, y = rows
    X = np.abs(np.round(np.nan_to_num(X)))
    model = HistGradientBoostingClassifier(max_iter=3, categorical_features=[0, 1, 2, 3, 4, 5]).fit(X, y)
    with pytest.raises(ValueError, match="categories"):
        trees_of(model)


@pytest.mark.parametrize("where", ["everywhere", "in the training rows of a fold", "in rows that count"])
def test_a_column_without_a_number_is_left_alone(where):
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=200), np.full(200, np.nan)])
    target, weights = rng.random(200) < 1 / (1 + np.exp(-3 * X[:, 0])), np.ones(200)
    if where == "in the training rows of a fold":
        X[:50, 1] = rng.normal(size=50)
    if where == "in rows that count":
        X[::4, 1], weights[::4] = 1.0, 0.0
    rows = np.arange(200)
    folds = [(rows[50:], rows[:50]), (rows[:150], rows[150:])]
    settings = [TreeSetting(4, 10, 1.0, 1.0)]
    found, alone = (search_trees(part, target, weights, folds, seed=0, settings=settings)[0] for part in (X, X[:, :1]))
    if where == "everywhere":
        assert np.array_equal(found.logits, alone.logits, equal_nan=True)
    assert found.loss == pytest.approx(alone.loss, rel=0.1)
    (trees,) = fit_trees(X, target, weights, [(settings[0], 5)], seed=0)
    assert np.isfinite(trees.logits(X)).all()


def test_out_of_time_one_setting_grows_and_no_more(rows, monkeypatch):
    X, y = np.nan_to_num(rows[0]), rows[1]
    folds = list(StratifiedKFold(3).split(X, y))
    fits = []
    grow = search.Booster.grow

    def counted(self, n_rounds, threads):
        fits.append(self.setting.leaves)
        grow(self, n_rounds, threads)

    monkeypatch.setattr(search.Booster, "grow", counted)
    settings = [TreeSetting(leaves, 20, 1.0, 1.0) for leaves in (4, 8, 16)]
    how = {"seed": 0, "settings": settings, "n_best": 2}
    (found,) = search_trees(X, y, np.ones(len(y)), folds, time_limit=1e-9, **how)
    assert fits == [4, 4, 4]
    assert found.setting.leaves == 4
    assert np.isfinite(found.logits).all()
    # Time that runs out after two settings of the first part: both count, the third is never begun.
    clock = iter([0.0, *[1.0] * 6, *[99.0] * 100])
    monkeypatch.setattr(search.time, "perf_counter", lambda: next(clock))
    fits.clear()
    (found,) = search_trees(X, y, np.ones(len(y)), folds, time_limit=10.0, **how)
    assert fits == [4, 4, 4, 8, 8, 8]
    assert found.setting.leaves in (4, 8)
