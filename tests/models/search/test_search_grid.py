"""What is searched, the table of it, how settings are chosen and averaged, and weightings as operating points."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import crcen
import crcen.models.search.run
from crcen.models.search.run import Outcome, Setting, best_few
from crcen.theory.price import sigmoid
from crcen.training.engine import Trainer
from example_rows import rare_rows
from papers_training import CRCENClassifier, CRCENClassifierCV

QUICK = {
    "solver": "adam", "max_epochs": 8, "batch_size": 32, "learning_rate": 0.05, "random_state": 0, "cv": 3,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
HIDDEN = ([4, 2], [(4,), (2, 2)], [(4,), (2,)], [()], [(), (2,)])
EIGHT = {"hidden": [(2,), (8,)], "l2": [1e-3, 3.0, 10.0, 30.0]}
FOUR = {"hidden": [(2,), (4,)], "l2": [1e-3, 0.1]}
X, y = rare_rows()


@pytest.mark.parametrize(
    ("given", "hidden", "penalty", "l2"),
    [
        *((given, [given], 0.1, [0.1]) for given in ((4,), (4, 2), ())),
        *((given, [h if isinstance(h, tuple) else (h,) for h in given], 0.1, [0.1]) for given in HIDDEN),
        (4, [(4,)], 0.1, [0.1]),
        *(((4,), [(4,)], given, [0.1, 1.0]) for given in ([0.1, 1], (0.1, 1), np.array([0.1, 1]))),
    ],
    ids=str,
)
def test_lists_are_searched_and_scalars_fixed(given, hidden, penalty, l2):
    assert (len(crcen.CRCENClassifierCV().grid(100)), crcen.CRCENClassifierCV().cv) == (16, 4)  # by default
    clf = CRCENClassifierCV(**QUICK | {"hidden": given, "l2": penalty, "max_epochs": 2}).fit(*rare_rows())
    expected = [{"weighting": "balanced", "hidden": h, "l2": p, "encoding": "standard"} for h in hidden for p in l2]
    assert clf.cv_results_["params"] == expected
    assert clf.best_params_ in expected
    assert [w.shape[2] for w in clf.coefs_[:-1]] == list(clf.best_params_["hidden"])


def test_the_table_has_the_form_of_grid_search_and_the_settings_in_their_order():
    weighting = [crcen.Budget(1), crcen.Alpha(1.0), {0: 1.0, 1: 4.0}]
    clf = CRCENClassifierCV(weighting, hidden=[(2,), (3, 2)], l2=[1e-3, 10.0], **QUICK).fit(X, y)
    points = {"hidden": [(2,)], "l2": [1e-3], "weighting": [None], "encoding": ["standard"]}
    grid = GridSearchCV(CRCENClassifier(solver="adam", max_epochs=1), points, cv=3).fit(X, y)
    table, times = clf.cv_results_, {"mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time"}
    assert set(grid.cv_results_) - times == set(table) - {"epochs", "is_dropped"}  # a stack has no time a setting
    for name in set(grid.cv_results_) - times:
        assert type(table[name]) is type(grid.cv_results_[name]), name
        assert name == "params" or table[name].dtype == grid.cv_results_[name].dtype, name
    found = [(p["weighting"], p["hidden"], p["l2"]) for p in table["params"]]
    assert found == [(w, h, l2) for w in weighting for h in ((2,), (3, 2)) for l2 in (1e-3, 10.0)]
    for name, column in table.items():
        assert len(column) == 12, name
        assert name == "params" or column.shape == (12,), name
    assert clf.n_splits_ == sum(name.startswith("split") for name in table) == 3
    scores = np.array([table[f"split{i}_test_score"] for i in range(3)])
    np.testing.assert_allclose(table["mean_test_score"], scores.mean(axis=0))
    np.testing.assert_allclose(table["std_test_score"], scores.std(axis=0))
    assert clf.best_index_ == np.argmax(table["mean_test_score"])
    assert clf.best_score_ == table["mean_test_score"][clf.best_index_]
    assert clf.best_params_ == table["params"][clf.best_index_]
    assert clf.best_epochs_ == table["epochs"][clf.best_index_]
    assert table["rank_test_score"][clf.best_index_] == 1
    order = np.argsort(-table["mean_test_score"])
    assert (np.diff(table["rank_test_score"][order]) >= 0).all()
    assert not table["is_dropped"].any()
    assert ((table["epochs"] >= 1) & (table["epochs"] <= 8)).all()
    assert clf.search_time_ > 0


def test_settings_without_a_score_come_last_and_diverged_ones_lose(monkeypatch):
    calls = iter([np.nan, 0.2, 0.2, 0.1, 0.1, 0.1, 0.3, 0.3, 0.3])
    grid = {"hidden": [(2,), (3,), (4,)], "l2": 1e-2, "halving": False}
    clf = CRCENClassifierCV(scoring=lambda e, X, y: next(calls), **grid, **QUICK).fit(X, y)
    assert (clf.cv_results_["rank_test_score"].tolist(), clf.best_params_["hidden"]) == ([3, 2, 1], (4,))
    original = Trainer.__call__

    def four_units_diverge(trainer, jobs, **kwargs):
        results = original(trainer, jobs, **kwargs)
        for i, (job, result) in enumerate(zip(jobs, results, strict=True)):
            if job.record_every and job.hidden == (4,):
                results[i] = replace(result, val_logits=np.full_like(result.val_logits, np.nan))
        return results

    monkeypatch.setattr(Trainer, "__call__", four_units_diverge)
    clf = CRCENClassifierCV(hidden=[(4,), (2,)], l2=1e-2, **QUICK).fit(X, y)
    assert (clf.best_params_["hidden"], clf.cv_results_["rank_test_score"].tolist()) == ((2,), [2, 1])
    assert clf.cv_results_["mean_test_score"][0] == -np.inf
    with pytest.raises(crcen.InvalidInput, match="no setting has a finite score"):
        CRCENClassifierCV(hidden=(4,), l2=1e-2, **QUICK).fit(X, y)


def test_ties_share_a_rank_and_the_first_wins():
    clf = CRCENClassifierCV(hidden=[(3,), (2,), (2,), (2,)], l2=1e-2, scoring=lambda e, X, y: 0.5, **QUICK)
    assert (clf.fit(X, y).cv_results_["rank_test_score"].tolist(), clf.best_index_) == ([1, 1, 1, 1], 0)
    clf = CRCENClassifierCV(hidden=[(2,), (4,), (4,)], l2=1e-2, **QUICK).fit(X, y)
    assert clf.cv_results_["rank_test_score"].tolist() in ([1, 2, 2], [3, 1, 1])


def epochs_of(calls):
    """Epochs that networks were trained for in all."""
    return sum(job.stop_epoch - (job.start.epoch if job.start else 0) for call in calls for job in call.jobs)


def test_halving_has_the_same_winner_on_an_easy_problem(trained):
    X, y = rare_rows(n=200, shift=0.8)
    settings = EIGHT | QUICK | {"max_epochs": 18}
    full = CRCENClassifierCV(halving=False, **settings).fit(X, y)
    in_full = epochs_of(trained[:-1])
    assert in_full == 8 * 3 * 18
    trained.clear()
    fast = CRCENClassifierCV(**settings).fit(X, y)
    assert (full.best_params_["l2"], fast.best_params_) == (1e-3, full.best_params_)
    assert fast.best_epochs_ == full.best_epochs_
    assert fast.best_score_ == pytest.approx(full.best_score_, rel=1e-3)
    np.testing.assert_allclose(fast.decision_function(X), full.decision_function(X), rtol=1e-3, atol=1e-3)
    dropped = fast.cv_results_["is_dropped"]
    assert (dropped.dtype, dropped.sum()) == (bool, 6)
    assert not dropped[fast.best_index_]
    assert not full.cv_results_["is_dropped"].any()
    assert (fast.cv_results_["epochs"][dropped] <= 9).all()
    means = [clf.cv_results_["mean_test_score"][~dropped] for clf in (fast, full)]
    np.testing.assert_allclose(*means, rtol=1e-3)
    # 8 settings for 3 epochs, 6 for 3 more, 4 for 3 more and 2 to the end, if they gain so long.
    assert epochs_of(trained[:-1]) <= 3 * (8 * 3 + 6 * 3 + 4 * 3 + 2 * 9) < in_full


def test_a_dropped_setting_cannot_win():
    calls = []

    def higher_in_the_first_part(estimator, X, y):
        calls.append(1)
        return 10.0 + len(calls) if len(calls) <= 24 else 1.0 + len(calls) / 100

    clf = CRCENClassifierCV([crcen.Budget(1)], scoring=higher_in_the_first_part, **EIGHT, **QUICK).fit(*rare_rows())
    table = clf.cv_results_
    # Two were dropped after the first part, when scores were high.
    assert (table["mean_test_score"][table["is_dropped"]] > clf.best_score_).sum() == 2
    assert table["is_dropped"].sum() == 6
    assert not table["is_dropped"][clf.best_index_]
    assert set(table["rank_test_score"][~table["is_dropped"]]) == {1, 2}
    assert table["rank_test_score"][table["is_dropped"]].min() == 3


@pytest.mark.parametrize(
    ("n_members", "balance", "halving", "expected"),
    [(1, "oof", True, 1), (3, "oof", False, 3 + 2 * 4), (3, False, True, 3 + 2 * 4), (3, True, True, 15)],
)
def test_jobs_of_the_refit(trained, n_members, balance, halving, expected):
    own = QUICK | {"n_members": n_members, "cv": 4, "max_epochs": 6}
    clf = CRCENClassifierCV(hidden=(3,), l2=[1e-3, 0.1], balance=balance, halving=halving, **own).fit(*rare_rows())
    jobs = trained[-1].jobs
    assert (len(jobs), sum(job.rows is None for job in jobs)) == (expected, n_members)
    assert {job.stop_epoch for job in jobs} == {clf.best_epochs_}
    assert np.isfinite(clf.oof_decision_function_).all()


def test_records_are_thinned_where_memory_is_short(trained, monkeypatch):
    settings = QUICK | FOUR | {"max_epochs": 10, "halving": False}
    full = CRCENClassifierCV(**settings).fit(X, y)
    # 4 settings, every row once, 10 epochs of float32; a third of that is room for every third epoch.
    monkeypatch.setattr(crcen.models.search.run, "_RECORD_BYTES", 4 * 4 * len(y) * 10 // 3 + 1)
    thin = CRCENClassifierCV(**settings).fit(X, y)
    assert [{job.record_every for job in trained[i].jobs} for i in (0, 2)] == [{1}, {3}]
    assert {*thin.cv_results_["epochs"], thin.best_epochs_} <= {3, 6, 9, 10}
    assert (thin.cv_results_["mean_test_score"] <= full.cv_results_["mean_test_score"] + 1e-6).all()
    same = thin.cv_results_["epochs"] == full.cv_results_["epochs"]
    assert same.any()
    for split in ("split0_test_score", "split2_test_score"):
        np.testing.assert_allclose(thin.cv_results_[split][same], full.cv_results_[split][same], rtol=1e-6)
    assert np.isfinite(thin.oof_decision_function_).all()
    assert np.isfinite(thin.decision_function(X)).all()
    assert thin.n_iter_ == thin.best_epochs_


# -- the average of the best few settings ------------------------------------------------------------------------------

AVERAGED = {"hidden": [(4,), (8,)], "l2": [1e-3, 1e-1], **QUICK, "n_members": 2, "max_epochs": 4}


@pytest.fixture(scope="module")
def three():
    return CRCENClassifierCV(crcen.Budget(6), n_settings=3, **AVERAGED).fit(*rare_rows(400))


def test_the_logit_is_the_mean_of_the_best_settings_fitted_alone(three):
    X, y = rare_rows(400)
    table = three.cv_results_
    order = np.argsort(-table["mean_test_score"], kind="stable")[:3]
    assert [table["params"][i] for i in order] == [
        {name: kept[name] for name in ("weighting", "hidden", "l2", "encoding")} for kept in three.best_settings_
    ]
    assert three.best_settings_[0]["score"] == three.best_score_
    assert three.best_settings_[0]["hidden"] == three.best_params_["hidden"]
    alone = []
    for kept in three.best_settings_:
        setting = {"hidden": [kept["hidden"]], "l2": [kept["l2"]], "encoding": kept["encoding"]}
        one = CRCENClassifierCV(crcen.Budget(6), balance=False, **AVERAGED | setting).fit(X, y)
        assert one.best_epochs_ == kept["epochs"]
        alone.append(one.decision_function(X))
    raw = three.decision_function(X) - three.probability_map_[1]
    assert raw == pytest.approx(np.mean(alone, axis=0), abs=1e-5)


def test_an_average_is_balanced_saved_and_decides_as_one_setting_does(three, tmp_path):
    X, y = rare_rows(400)
    assert crcen.key_equation(y, sigmoid(three.oof_decision_function_), crcen.Budget(6)).residual < 1e-12
    assert three.oof_key_equation_.residual > 1e-6  # before the solve
    balanced = CRCENClassifierCV(crcen.Budget(6), n_settings=2, balance=True, **AVERAGED).fit(X, y)
    assert balanced.key_equation_.residual < 1e-12
    loaded = crcen.load(crcen.save(three, tmp_path / "model.crcen"))
    assert np.array_equal(loaded.predict_proba(X), three.predict_proba(X))
    assert loaded.best_settings_ == three.best_settings_
    assert np.array_equal(three.predict(X) == 1, three.predict_proba(X)[:, 1] > three.weighting_.threshold)
    with pytest.raises(crcen.InvalidInput, match="n_settings=1"):
        crcen.stationarity(three, X, y)
    with pytest.raises(AttributeError, match="3 settings"):
        _ = three.coefs_


@pytest.mark.parametrize(("n_settings", "penalty", "kept"), [(1, [1e-3, 1e-1], 1), (9, 1e-2, 2)])  # of two at most
def test_how_many_settings_are_kept(n_settings, penalty, kept):
    clf = CRCENClassifierCV(crcen.Budget(6), n_settings=n_settings, **AVERAGED | {"l2": penalty}).fit(*rare_rows())
    assert len(clf.best_settings_) == len(clf.ensemble_.members) == kept


def test_only_settings_of_the_chosen_weighting_that_ran_to_their_end_are_kept():
    def outcome(index, score, *, is_dropped=False):
        return Outcome(Setting(index, None, None), 3, np.array([score]), np.zeros(2), is_dropped)

    outcomes = [outcome(0, 5.0), outcome(1, 4.0), outcome(0, 3.0, is_dropped=True), outcome(0, np.nan), outcome(0, 1.0)]
    assert (best_few(outcomes, 4), best_few(outcomes[1:], 4)) == ([outcomes[0], outcomes[4]], [outcomes[1]])


def of_weightings(weighting, **how):
    return CRCENClassifierCV(weighting, hidden=(4,), l2=[1e-3, 0.1], **how, **QUICK)


def test_one_weighting_is_compared_by_its_own_loss_and_several_by_the_natural_loss():
    rows, two = rare_rows(n=160), [crcen.Budget(1), crcen.Budget(9)]
    for weighting in ("balanced", ["balanced"], crcen.Budget(4)):
        assert of_weightings(weighting).fit(*rows).scorer_ == "neg_weighted_log_loss"
    default, asked = of_weightings(two).fit(*rows), of_weightings(two, scoring="neg_log_loss").fit(*rows)
    assert default.scorer_ == "neg_log_loss"
    np.testing.assert_array_equal(default.cv_results_["mean_test_score"], asked.cv_results_["mean_test_score"])
    assert default.search is None
    with pytest.raises(crcen.InvalidParameter, match=r"cannot compare weightings.*minimum depends on the weight"):
        of_weightings(two, scoring="neg_weighted_log_loss").fit(*rows)
    assert of_weightings(two[:1], scoring="neg_weighted_log_loss").fit(*rows).scorer_ == "neg_weighted_log_loss"


@pytest.mark.parametrize("scoring", ["f1", "g_mean", "average_precision", "balanced_accuracy"])
def test_other_scores_may_choose_a_weight(scoring):
    clf = of_weightings([crcen.Lam(0.05), crcen.Budget(4)], scoring=scoring).fit(*rare_rows(n=160))
    assert clf.scorer_ == scoring
    assert clf.weighting_.cost_ratio == pytest.approx(crcen.resolve(clf.best_params_["weighting"], 1, 1).cost_ratio)
    if scoring == "g_mean":  # nothing is called at λ = .05
        assert clf.best_params_["weighting"] == crcen.Budget(4)
