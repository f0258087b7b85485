"""Members of a committee: out-of-fold logits, threads, time and failures; trees as arrays against their libraries."""

import gc
import time
import weakref
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from crcen import CommitteeClassifier, InvalidParameter
from crcen.exceptions import MissingExtra, TrainingFailed
from crcen.models.clock import Clock, OutOfTime, TimedTraining
from crcen.models.fitting import FitRows
from crcen.models.members import catboost_trees, forest, lightgbm_trees, member, networks, registry
from crcen.models.members.lightgbm_trees import TreeSetting
from crcen.models.members.member import MemberTask, affordable_trees, best_prefix, log_loss
from crcen.models.members.registry import MEMBERS, External
from crcen.models.members.tree_arrays import TreeEnsemble, TreeWalk, float32_threshold
from crcen.models.search.run import SearchRun
from crcen.theory.price import Labels
from crcen.training.jobs import TrainingJob
from example_rows import interaction_rows

TREE_KINDS = ["trees", "random_trees", "catboost", "forest"]


@pytest.fixture(autouse=True)
def light(monkeypatch):
    settings = (TreeSetting(8, 20, 1.0, 0.7), TreeSetting(4, 10, 1.0, 1.0))
    monkeypatch.setattr(lightgbm_trees.LightGBMTrees, "settings", settings)
    monkeypatch.setattr(catboost_trees, "_TREES", (40, 40))


def task_of(n=500, n_classes=2, n_folds=3, **how):
    X, target = interaction_rows(n, n_classes=n_classes)
    folds = list(StratifiedKFold(n_folds, shuffle=True, random_state=0).split(X, target))
    how = {"weights": np.ones(n), "seed": 5} | how
    return MemberTask(X=X, target=target, n_classes=n_classes, folds=folds, y=target, classes=range(n_classes), **how)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", TREE_KINDS)
def test_out_of_fold_logits_do_not_depend_on_the_rows_own_labels(name, n_classes):
    task = task_of(n_classes=n_classes)
    found = MEMBERS[name].search(task)
    assert found.logits.shape == (500, n_classes)
    assert log_loss(found.logits, task.target, task.weights) < 0.95 * log_loss(
        np.tile(np.log(np.bincount(task.target) / 500), (500, 1)), task.target, task.weights
    )
    # A model of another fold that never saw these labels: turn them, and the answers of this fold stay.
    rows, held_out = task.folds[0]
    turned = task.target.copy()
    turned[held_out] = (turned[held_out] + 1) % n_classes
    alone, again = (
        MEMBERS[name].search(MemberTask(**{**vars(task), "target": target, "folds": task.folds[:1]}))
        for target in (task.target, turned)
    )
    assert np.isnan(alone.logits[rows]).all()
    if again.chosen == alone.chosen:  # the number of trees is chosen by held-out labels
        np.testing.assert_array_equal(again.logits, alone.logits)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("name", TREE_KINDS)
def test_results_do_not_depend_on_threads_and_a_refit_on_the_same_rows_is_the_same_model(name, n_classes):
    weights = np.random.default_rng(1).uniform(0.5, 2.0, 500)
    tasks = [task_of(n_classes=n_classes, weights=weights, threads=n) for n in (1, 3)]
    one, several = (MEMBERS[name].search(task) for task in tasks)
    np.testing.assert_array_equal(one.logits, several.logits)
    for parts in (several.parts, MEMBERS[name].refit(tasks[0], one.chosen)):
        for first, second in zip(one.parts, parts, strict=True):
            arrays = first.arrays(), second.arrays()
            assert all(np.array_equal(arrays[0][key], arrays[1][key]) for key in arrays[0])


def test_a_missing_value_and_a_column_without_values_are_learned_from():
    task = task_of()
    X = np.column_stack([task.X, np.full(500, np.nan)])
    X[task.target == 1, 4] = np.nan
    for name in TREE_KINDS:
        found = MEMBERS[name].search(MemberTask(**{**vars(task), "X": X}))
        assert log_loss(found.logits, task.target, task.weights) < 0.2
        row = np.zeros((2, 6))
        row[1, 4] = np.nan
        no, yes = np.mean([part.logits(row)[:, 1] for part in found.parts], axis=0)
        assert yes > no + 1


def network_task(n_classes=2, **how):
    task = task_of(n_classes=n_classes, **how)
    labels = Labels.from_rows(np.arange(n_classes), task.target, task.weights, 1 if n_classes == 2 else None)
    return replace(task, search_rows=FitRows(task.X, task.target, task.weights, labels, list(task.folds)))


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize(("compared", "n_folds"), [(10, 1), (10**6, 3)])
def test_networks_are_compared_on_the_first_folds_and_predict_all(n_classes, compared, n_folds, monkeypatch):
    outcomes, used = SearchRun.outcomes, []

    def validation(run, *settings, **how):
        used.append(len(run.rows.folds))
        return outcomes(run, *settings, **how)

    monkeypatch.setattr(SearchRun, "outcomes", validation)
    monkeypatch.setattr(networks, "_COMPARED_ROWS", compared)
    monkeypatch.setattr(networks, "N_NETWORKS", 1)
    task = network_task(n_classes, effort="quick", best_loss=lambda: 0.0)
    found = MEMBERS["networks"].search(task)
    assert used == [n_folds]
    for own, held_out in task.folds:  # networks of the other folds' rows alone give the same logits
        part = replace(task, X=task.X[own], target=task.target[own], weights=task.weights[own])
        alone = np.mean([one.logits(task.X[held_out]) for one in MEMBERS["networks"].refit(part, found.chosen)], axis=0)
        alone = np.column_stack([np.zeros(len(alone)), alone]) if alone.shape[1] == 1 else alone
        np.testing.assert_allclose(
            found.logits[held_out] - found.logits[held_out][:, :1], alone - alone[:, :1], rtol=0, atol=1e-4
        )


@pytest.mark.parametrize(
    ("best_loss", "effort", "n_networks"),
    [(9.0, "standard", 5), (0.0, "standard", 2), (9.0, "quick", 1), (np.inf, "standard", 2), (np.inf, "quick", 1)],
)
def test_a_member_of_networks_far_ahead_has_more_of_them(best_loss, effort, n_networks):
    found = MEMBERS["networks"].search(network_task(best_loss=lambda: best_loss, effort=effort))
    assert [len(group) for group in found.parts] == [n_networks]


def test_members_of_very_wide_tables_look_at_a_part_of_the_columns(monkeypatch):
    for module in (lightgbm_trees, catboost_trees, networks):
        monkeypatch.setattr(module, "MOST_COLUMNS", 2)
    task = task_of()
    booster = lightgbm_trees._Booster(
        lightgbm_trees._data(task.X, task.target, task.weights, 1), None, TreeSetting(8, 20, 1.0, 1.0), 2, 0
    )
    booster.grow(5)
    for tree in booster.model.trees_to_dataframe().groupby("tree_index"):
        assert tree[1]["split_feature"].nunique() <= 2
    assert {setting.recipe.encoding for setting in networks._plans(network_task())[0].grid} == {"standard"}


def test_large_data_compares_settings_on_samples(monkeypatch):
    monkeypatch.setattr(lightgbm_trees, "_SAMPLE_ROWS", 300)
    monkeypatch.setattr(lightgbm_trees, "_SAMPLE_RARE", 20)
    task = task_of(n=3000, n_folds=2)
    sample = lightgbm_trees._sampled(task)
    for (rows, held_out), (all_rows, all_held_out) in zip(sample, task.folds, strict=True):
        assert len(rows) == 300
        assert set(rows) <= set(all_rows)
        assert len(held_out) == 300
        assert set(held_out) <= set(all_held_out)
        assert task.target[rows].mean() == pytest.approx(task.target.mean(), abs=0.01)
    monkeypatch.setattr(lightgbm_trees, "_SAMPLE_RARE", 400)  # a rare class is not sampled
    assert lightgbm_trees._sampled(task) is None
    monkeypatch.setattr(lightgbm_trees, "_SAMPLE_RARE", 20)
    settings = tuple(TreeSetting(k, 5, 1.0, 1.0) for k in (2, 4, 8, 16))
    monkeypatch.setattr(lightgbm_trees.LightGBMTrees, "large_settings", settings)
    found = MEMBERS["trees"].search(task)
    assert found.n_tried == 4
    assert len(found.chosen) <= 2
    assert np.isfinite(found.logits).all()


@pytest.mark.parametrize("name", TREE_KINDS)
def test_without_time_a_needed_member_is_small_and_another_is_left_out(name):
    late = partial(task_of, clock=Clock(1e-9))
    assert np.isfinite(MEMBERS[name].search(late()).logits).all()
    with pytest.raises(OutOfTime):
        MEMBERS[name].search(late(is_needed=False))


def test_preparing_the_rows_does_not_count_as_time_of_a_tree(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(member.time, "perf_counter", lambda: now[0])
    task = MemberTask(np.zeros((2, 1)), np.array([0, 1]), np.ones(2), 2, clock=Clock(100.0), is_needed=False)

    def fit(n_trees, prepare=2.0, tree=0.1):
        now[0] += prepare + tree * n_trees

    # 70 % of the 93 seconds that a trial leaves, less the preparation, in trees of .1 seconds each.
    found = affordable_trees(task, fit, 1.0, trial=5, fewest=60, most=10_000)
    assert found == pytest.approx(10 * (0.7 * (100 - 6.7) - 2.1), abs=2)
    with pytest.raises(OutOfTime):
        affordable_trees(task, partial(fit, prepare=30.0), 1.0, trial=5, fewest=60, most=10_000)


def test_registry_entries_have_unique_names_and_unknown_ones_are_refused(monkeypatch):
    assert list(MEMBERS) == ["networks", "trees", "random_trees", "catboost", "forest"]
    with pytest.raises(InvalidParameter, match="members must be of"):
        registry.member_kind("woods")
    with pytest.raises(InvalidParameter, match="predict_proba"):
        registry.member_kind(3)
    monkeypatch.setattr(catboost_trees.CatBoostTrees, "package", "no_such_package")
    with pytest.raises(MissingExtra, match=r"crcen\[boosting\]"):
        registry.member_kind("catboost")
    for n_rows, effort, names in (
        (100, "standard", ["networks", "trees", "forest"]),
        (100, "best", ["networks", "trees", "random_trees", "forest"]),
        (100, "quick", ["networks"]),
        (10**6, "standard", ["networks", "trees"]),
    ):
        assert [kind.name for kind in registry.default_members(n_rows, 2, effort)[0]] == names
    (note,) = registry.default_members(30_000, 3, "standard")[1]
    assert not registry.default_members(30_001, 3, "standard")[1]  # a tree for every class: too long with more rows
    assert "catboost is not installed" in note


@pytest.mark.parametrize("labels", [(0, 1), ("b", "a")])
def test_external_classifiers_give_logits_in_the_order_of_the_classes(labels):
    task = task_of()
    y = np.array(labels)[task.target]
    found = External(LogisticRegression()).search(MemberTask(**{**vars(task), "y": y, "classes": list(labels)}))
    reference = LogisticRegression().fit(task.X, task.target)
    logits = found.parts[0].logits(task.X)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], reference.decision_function(task.X), atol=1e-6)


class Broken(DummyClassifier):
    def fit(self, X, y, sample_weight=None):
        raise RuntimeError("no such device")


def test_a_failing_member_is_left_out_with_a_message():
    task = task_of()
    with pytest.warns(UserWarning, match="Broken failed and was left out: no such device"):
        model = CommitteeClassifier(members=("trees", Broken()), cv=2, random_state=0).fit(task.X, task.y)
    assert [line.name for line in model.leaderboard_] == ["trees", "committee"]
    assert model.notes_ == ["Broken failed and was left out: no such device"]
    with pytest.warns(UserWarning, match="Broken failed"), pytest.raises(TrainingFailed, match="every member failed"):
        CommitteeClassifier(members=(Broken(),), cv=2, random_state=0).fit(task.X, task.y)


def test_the_mean_of_the_best_settings_is_never_worse_than_the_first_alone():
    rng = np.random.default_rng(0)
    target, weights = rng.integers(0, 3, 400), np.ones(400)
    good, again = (3.0 * np.eye(3)[target] + rng.normal(0, 1, (400, 3)) for _ in range(2))
    noise = rng.normal(0, 5, (400, 3))
    assert best_prefix(np.array([good, noise]), target, weights) == 1
    assert best_prefix(np.array([good, again, noise]), target, weights) == 2
    good[:50] = np.nan  # rows in no fold
    assert best_prefix(np.array([good, again]), target, weights) == 2


# -- trees as arrays against the predictions of the libraries that grew them -------------------------------------------

RNG = np.random.default_rng(0)
SETTING = TreeSetting(12, 5, 1.0, 0.7)


def draw(n_classes, n=700, gaps=0.1):
    """Rows with missing values everywhere except in the last column, and class numbers."""
    X, target = interaction_rows(n, n_classes=n_classes)
    X = np.column_stack([X, np.round(X[:, 0])])
    X[:, :5][RNG.random((n, 5)) < gaps] = np.nan
    return X, target


def task_on(X, target, weights=None):
    return MemberTask(X, target, np.ones(len(X)) if weights is None else weights, int(target.max()) + 1)


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
    task = task_on(*draw(n_classes))
    if library == "lightgbm":
        model, trees = lightgbm_model(task)
        X = new_rows(trees)
        raw = model.predict(X, raw_score=True)
    else:
        pytest.importorskip("catboost")
        model = catboost_trees._fit(task, 0.06, np.arange(len(task.X)), 25)
        trees = catboost_trees.tree_ensemble(model, n_classes)
        X = new_rows(trees)
        raw = model.predict(X, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(trees.logits(X), expanded(raw), atol=1e-12)


def test_catboost_without_missing_values_and_constant_trees():
    pytest.importorskip("catboost")
    X, target = draw(2, gaps=0.0)
    X[:, 1:] = 1.0
    model = catboost_trees._fit(task_on(X, target), 0.06, np.arange(len(X)), 5)
    new = np.where(RNG.random(X.shape) < 0.3, np.nan, X)
    raw = model.predict(new, prediction_type="RawFormulaVal")
    np.testing.assert_allclose(catboost_trees.tree_ensemble(model, 2).logits(new)[:, 1], raw, atol=1e-12)


def test_lightgbm_trees_that_never_split_are_a_constant():
    X, target = draw(3)
    model, trees = lightgbm_model(task_on(X, target), TreeSetting(8, 600, 1.0, 1.0), 2)
    np.testing.assert_allclose(trees.logits(X), model.predict(X, raw_score=True), atol=1e-12)
    assert trees.depth == 0


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n", [1, 7, 1500])
def test_walk_of_several_ensembles_equals_each_of_them(n_classes, n):
    task = task_on(*draw(n_classes))
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
    trees = forest._forest(task_on(X, target, weights), np.arange(len(X)), 8, 3)
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
    p = forest._forest(task_on(X, target), np.arange(200), 25, 0).column(1).logits(X)[:, 0]
    assert p[target == 1].min() > 2 > -2 > p[target == 0].max()


def test_used_trees_are_freed_and_rows_of_another_width_are_refused():
    _, trees = lightgbm_model(task_on(*draw(2)))
    assert trees.logits(np.zeros((0, 6))).shape == (0, 2)
    with pytest.raises(ValueError, match="grown on 6"):
        trees.logits(np.zeros((1, 5)))
    found = weakref.ref(trees)
    del trees
    gc.collect()
    assert found() is None


def job(n_rows, epochs):
    return TrainingJob((0.5, 0.5), rows=np.arange(n_rows), max_epochs=epochs)


def test_a_clock_counts_down_and_is_shared():
    clock = Clock(10.0)
    assert 9.0 < clock.left <= 10.0
    assert clock.share(0.25).left <= 2.5
    assert Clock(None).left == np.inf
    assert not Clock(None).share(0.5).is_limited


def test_training_that_would_exceed_the_limit_is_not_begun():
    engine = Mock(side_effect=lambda jobs, **how: time.sleep(0.02))
    train = TimedTraining(engine, 1000, Clock(1.0))
    train([job(100, 10)])  # 20 ms for 1,000 row epochs
    with pytest.raises(OutOfTime):
        train([job(1000, 100)])  # 2 s
    assert engine.call_count == 1
    train([job(100, 10)])
    train.reserve = 100_000.0
    with pytest.raises(OutOfTime):
        train([job(100, 10)])
    assert train.on(np.arange(10)).seconds(1000) == pytest.approx(train.seconds(1000))
    TimedTraining(engine, 1000, Clock(None))([job(1000, 1000)])
