"""Members of a committee: out-of-fold logits, threads, sample weights, time and failures."""

from functools import partial

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from crcen import CommitteeClassifier, InvalidParameter
from crcen.exceptions import MissingExtra, TrainingFailed
from crcen.models.clock import Clock, OutOfTime
from crcen.models.members import catboost_trees, lightgbm_trees, registry
from crcen.models.members.external import External
from crcen.models.members.lightgbm_trees import TreeSetting
from crcen.models.members.member import MemberTask, best_prefix, log_loss
from crcen.models.members.registry import MEMBERS
from example_rows import interaction_rows

TREE_KINDS = ["trees", "random_trees", "catboost", "forest"]


@pytest.fixture(autouse=True)
def light(monkeypatch):
    settings = (TreeSetting(8, 20, 1.0, 0.7), TreeSetting(4, 10, 1.0, 1.0))
    monkeypatch.setattr(lightgbm_trees.LightGBMTrees, "settings", settings)
    monkeypatch.setattr(catboost_trees, "_TREES", 40)


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
    found = MEMBERS[name].search(late())
    assert np.isfinite(found.logits).all()
    with pytest.raises(OutOfTime):
        MEMBERS[name].search(late(is_needed=False))


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
        assert [kind.name for kind in registry.default_members(n_rows, effort)[0]] == names
    (note,) = registry.default_members(100, "standard")[1]
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
