"""What is searched, on which folds, how settings are ranked, chosen and averaged, refusals and interruptions."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit
from sklearn import model_selection
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.utils.validation import check_is_fitted

import crcen
import crcen.models.search.run
from crcen import Budget, InvalidInput, InvalidParameter, TimeSplit, balance_shift
from crcen.models.fitting import FitRows, agreed_shift, shifts_of_folds
from crcen.models.search.run import Outcome, Setting, best_few
from crcen.theory.price import Labels, sigmoid
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
    grid = model_selection.GridSearchCV(CRCENClassifier(solver="adam", max_epochs=1), points, cv=3).fit(X, y)
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
    best = [table[name][clf.best_index_] for name in ("mean_test_score", "params", "epochs", "rank_test_score")]
    assert best == [clf.best_score_, clf.best_params_, clf.best_epochs_, 1]
    assert (np.diff(table["rank_test_score"][np.argsort(-table["mean_test_score"])]) >= 0).all()
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
    assert np.isfinite([thin.oof_decision_function_, thin.decision_function(X)]).all()
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


GRID = {"hidden": (3,), "l2": [1e-3, 0.3], "solver": "adam", "max_epochs": 5, "batch_size": 32, "random_state": 0,
        "encoding": "standard", "n_members": 1}  # fmt: skip
CONVEX = {"hidden": (), "l2": [1e-3, 0.3], "tol": 1e-9, "max_epochs": 300, "random_state": 0, "encoding": "standard"}
SMALL = {**GRID, "hidden": [(2,), (4,)], "cv": 3}


def same_search(one, other):
    assert one.n_splits_ == other.n_splits_
    for name, column in one.cv_results_.items():
        if name not in ("params", "param_weighting", "param_hidden", "param_l2", "param_encoding"):
            np.testing.assert_array_equal(column, other.cv_results_[name], err_msg=name)
    np.testing.assert_array_equal(one.oof_decision_function_, other.oof_decision_function_)
    assert (one.best_params_, one.best_epochs_) == (other.best_params_, other.best_epochs_)


@pytest.mark.parametrize(
    "splitter",
    [
        model_selection.StratifiedKFold(3),
        model_selection.StratifiedKFold(4, shuffle=True, random_state=1),
        model_selection.KFold(3, shuffle=True, random_state=0),
        model_selection.ShuffleSplit(3, test_size=0.4, random_state=0),
        model_selection.ShuffleSplit(1, test_size=0.3, random_state=0),  # one fold is enough
        model_selection.RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        model_selection.GroupKFold(3),
        model_selection.StratifiedGroupKFold(3),
        model_selection.LeaveOneGroupOut(),
    ],
    ids=lambda s: type(s).__name__,
)
def test_a_splitter_is_its_folds(splitter):
    groups = np.arange(len(y)) % 6 if "Group" in type(splitter).__name__ else None
    named = CRCENClassifierCV(cv=splitter, **GRID).fit(X, y, groups=groups)
    assert named.n_splits_ == splitter.get_n_splits(X, y, groups)
    pairs = list(splitter.split(X, y, groups))
    masks = [tuple(np.isin(np.arange(len(y)), part) for part in pair) for pair in pairs]
    turned = [(train[::-1], test[::-1]) for train, test in pairs]  # the order within a part means nothing
    for cv in (pairs, iter(pairs), masks, turned):
        same_search(CRCENClassifierCV(cv=cv, **GRID).fit(X, y), named)
    if groups is not None:
        assert all(not np.isin(groups[test], groups[train]).any() for train, test in pairs)


@pytest.mark.parametrize("cv", [2, 5, np.int64(3)], ids=str)
def test_a_number_is_stratified_shuffled_folds(cv):
    clf = CRCENClassifierCV(cv=cv, **GRID).fit(X, y)
    seed = int(np.random.RandomState(0).randint(2**31 - 1))
    same_search(
        CRCENClassifierCV(cv=model_selection.StratifiedKFold(cv, shuffle=True, random_state=seed), **GRID).fit(X, y),
        clf,
    )
    other = CRCENClassifierCV(cv=cv, **(GRID | {"random_state": 1})).fit(X, y)
    assert (other.cv_results_["mean_test_score"] != clf.cv_results_["mean_test_score"]).all()


# -- the bias that held-out rows may move: one that all folds share, not a drift between them --------------------------


def by_fold(y, logits, held_out):
    """Shifts and variances of the positive class."""
    labels = Labels(np.array([False, True]), True)
    folds = [(np.empty(0, dtype=np.int64), rows) for rows in held_out]
    rows = FitRows(np.empty((len(y), 0)), y, np.ones(len(y)), labels, folds)
    shifts, variances = shifts_of_folds(labels.columns(logits), rows, rows.resolve(0.5))
    assert not np.nan_to_num(shifts[:, 0]).any()  # the negative class stays
    return shifts[:, 1], variances[:, 1]


def test_a_model_over_seasons_keeps_the_share_of_its_rows():
    """The pooled shift of the folds comes from seasons that they had not seen; the refit has seen all of them."""
    rng = np.random.default_rng(1)
    time, x = np.sort(rng.random(4000)), rng.normal(size=4000)
    season = np.select([time < 0.3, time < 0.45], [0.0, 0.8], -0.7)
    X, y = np.column_stack([x, time]), (rng.random(4000) < expit(-2.2 + 0.3 * x + season)).astype(int)
    how = GRID | {"hidden": (8,), "l2": 1e-3, "max_epochs": 8, "batch_size": 128, "cv": TimeSplit(4)}
    clf, plain = (CRCENClassifierCV(Budget(5), balance=b, **how).fit(X, y, groups=time) for b in ("oof", False))
    seen, q = np.isfinite(clf.oof_decision_function_), expit(clf.oof_decision_function_)
    pooled = balance_shift(y[seen], (clf.oof_decision_function_ - clf.oof_shift_)[seen], clf.weighting_)
    assert abs(pooled) > 0.15
    assert clf.oof_shift_ == 0.0
    # The natural probabilities of training rows sum to about their positives.
    assert clf.predict_proba(X)[:, 1].sum() == pytest.approx(y.sum(), rel=0.1)
    # The attributes are those of the model that was kept.
    moved = plain.decision_function(X) + clf.oof_shift_
    np.testing.assert_allclose(clf.decision_function(X), moved, rtol=0, atol=1e-12)
    assert clf.probability_map_.tolist() == [1.0, clf.oof_shift_]
    # On the rows it was solved on, with the counts of all rows.
    missed = 5 * (y == 1).sum() * (1 - q[seen & (y == 1)].mean())
    alarmed = (y == 0).sum() * q[seen & (y == 0)].mean()
    total = 5 * (y == 1).sum() + (y == 0).sum()
    assert clf.key_equation_.residual == pytest.approx(abs(missed - alarmed) / total, rel=1e-9)


@pytest.mark.parametrize(("drifts", "low", "high"), [([0.0] * 4, 0.95, 1.0), ([1.5, -1.5, 1.0, -1.2], 0.0, 0.0)])
def test_a_common_bias_is_kept_and_a_drift_is_not(drifts, low, high):
    rng = np.random.default_rng(0)
    n, folds = 20_000, np.array_split(np.arange(20_000), 5)[1:]
    truth = rng.normal(-2, 1, n)
    y = rng.random(n) < expit(truth)
    logits = truth + 0.7  # a network that says too much, by 0.7 everywhere
    logits[folds[0][0] :] += np.repeat(drifts, [len(fold) for fold in folds])
    logits[: folds[0][0]] = np.nan
    seen = np.isfinite(logits)
    pooled = balance_shift(y[seen], logits[seen], 0.5)
    shifts, variances = by_fold(y, logits, folds)
    np.testing.assert_allclose(shifts, -0.7 - np.array(drifts), atol=0.15)
    assert low * abs(pooled) <= abs(agreed_shift(pooled, shifts, variances)) <= high * abs(pooled)


def test_the_variance_is_that_of_repeated_draws_and_a_fold_without_one_class_has_no_say():
    rng = np.random.default_rng(1)
    logits = rng.normal(-1.5, 1, 800)
    draws = [by_fold(rng.random(800) < expit(logits), logits, [np.arange(800)]) for _ in range(300)]
    shifts, variances = np.array(draws)[..., 0].T
    assert variances.mean() == pytest.approx(shifts.var(), rel=0.2)
    y, logits = np.array([1, 0, 0, 1, 0, 0], dtype=bool), np.zeros(6)
    shifts, variances = by_fold(y, logits, [np.arange(3), np.array([4, 5])])
    np.testing.assert_array_equal(np.isfinite([shifts, variances]), [[True, False], [True, False]])
    assert agreed_shift(-0.4, shifts, variances) == -0.4


def rare_at(*rows):
    return lambda X, y: (X, np.isin(np.arange(len(X)), rows))


HALVES = [(np.arange(50, 150), np.arange(50)), (np.arange(100), np.arange(100, 150))]
ONE_CLASS = "a training fold holds one class only: got {} of the rarest class for {}"
EMPTY = ("hidden", "l2", "weighting", "encoding")


@pytest.mark.parametrize(
    ("cv", "rows", "fit", "words"),
    [
        (model_selection.KFold(2), rare_at(*range(10)), {}, ONE_CLASS.format(r"\d+ rows?", 2)),
        (200, None, {}, r"by 200 cannot split these rows: .*n_splits=200"),
        (HALVES, None, {"sample_weight": (np.arange(150) < 100).astype(float)}, "a test fold holds no row with"),
        (model_selection.GroupKFold(3), None, {}, r"cross-validation by GroupKFold.*'groups' parameter"),
        (model_selection.GroupKFold(3), None, {"groups": [1, 2, 3]}, "groups must have one value for each"),
        *((cv, None, {}, rf"cross-validation by {cv!r} cannot split") for cv in (1, 0, -2, True, 2.5, "three")),
    ],
)
@pytest.mark.parametrize("settings", [GRID, CONVEX], ids=["adam", "lbfgs"])
def test_folds_that_cannot_be_used(cv, rows, fit, words, settings):
    X, y = rare_rows() if rows is None else rows(*rare_rows())
    with pytest.raises(InvalidInput, match=words):
        CRCENClassifierCV(cv=cv, **settings).fit(X, y, **fit)


def test_fewer_rare_rows_than_folds():
    one, two = (rare_at(*rows)(*rare_rows()) for rows in ((7,), (7, 90)))
    refused = pytest.raises(InvalidInput, match=ONE_CLASS.format("1 row", "3 folds"))
    with pytest.warns(UserWarning, match="least populated class"), refused:
        CRCENClassifierCV(cv=3, **GRID).fit(*one)
    with pytest.warns(UserWarning, match="least populated class"):
        clf = CRCENClassifierCV(cv=3, **GRID).fit(*two)
    assert np.isfinite(clf.best_score_)  # though a test fold has no rare row


def test_classes_that_are_not_there():
    folds = [(np.arange(100), 100 + np.flatnonzero(y[100:] == 0))]
    for balance in (True, "oof"):
        with pytest.raises(InvalidInput, match="class"):
            CRCENClassifierCV(cv=folds, balance=balance, **GRID).fit(X, y)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"hidden": [(4,), (0,)]}, r"hidden .*got \(0,\)"),
        ({"hidden": ((4,), (2,))}, r"hidden .*a search takes a list of such tuples: got \(\(4,\), \(2,\)\)"),
        ({"l2": [1e-3, -1.0]}, r"l2 .*got -1.0"),
        ({"l2": (1e-3, None)}, r"l2 .*got None"),
        ({"weighting": [0.5, 2.0]}, r"2(\.0)?"),
        ({"weighting": [Budget(2), "cheap"]}, "cheap"),
        ({"weighting": [{0: 1}]}, "weighting dict"),
        ({"weighting": [Budget(2), Budget(5)], "training_weighting": None}, "calibration must be 'paper', None or"),
        *(({name: []}, f"{name} of CRCENClassifierCV must not be an empty list") for name in EMPTY),
        ({"balance": "out of fold"}, r"balance .*'oof'.*got 'out of fold'"),
        ({"halving": "yes"}, "halving"),
        ({"widen": "yes"}, "widen"),
        ({"early_stopping": True}, "chooses the number of epochs by its folds: early_stopping must be False"),
        ({"n_settings": 0}, "n_settings"),
        ({"device": "tpu"}, "device"),
        ({"scoring": "beauty"}, r"scoring must be .*g_mean.*got 'beauty'"),
        ({"scoring": 3}, "scoring must be .* or a callable: got 3"),
        ({"scoring": ["f1"]}, "scoring must be .* or a callable"),
    ],
    ids=str,
)
def test_a_bad_value_is_named_before_training(monkeypatch, given, sentence):
    monkeypatch.setattr(Trainer, "__call__", lambda *_, **__: pytest.fail("trained"))
    with pytest.raises(InvalidParameter, match=sentence):
        CRCENClassifierCV(**(SMALL | given)).fit(*rare_rows())


@pytest.mark.parametrize("part", [1, 2, "refit"])
def test_an_interrupted_search_keeps_what_was_fitted(monkeypatch, part):
    clf = CRCENClassifierCV(**SMALL).fit(X, y)
    before, logits = dict(vars(clf)), clf.decision_function(X)
    calls, original = [], Trainer.__call__

    def interrupted(trainer, jobs, **kwargs):
        calls.append(1)
        if (part == "refit" and jobs[0].validation is None) or part == len(calls):
            raise KeyboardInterrupt
        return original(trainer, jobs, **kwargs)

    monkeypatch.setattr(Trainer, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X[:, :2], np.where(y == 1, "b", "a"))
    assert vars(clf) == before
    calls.clear()
    new = CRCENClassifierCV(**SMALL)
    with pytest.raises(KeyboardInterrupt):
        new.fit(X, y)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    np.testing.assert_array_equal(clf.decision_function(X), logits)
    assert clf.classes_.tolist() == [0, 1]


def test_shuffled_labels_are_not_predicted():
    """Labels that have nothing to do with X: choosing by the held-out rows gains little over log 2, and no more."""
    noise, areas, losses = {**QUICK, "max_epochs": 25, "learning_rate": 0.03, "cv": 4}, [], []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rows, labels = rng.normal(size=(160, 5)), rng.permutation(np.arange(160) < 40).astype(int)
        found = CRCENClassifierCV(hidden=[(4,), (16,)], l2=[1e-4, 1e-2], **noise | {"random_state": seed})
        areas.append(roc_auc_score(labels, found.fit(rows, labels).oof_decision_function_))
        losses.append(-found.best_score_)
    assert abs(np.mean(areas) - 0.5) < 4 * np.sqrt(161 / (12 * 40 * 120) / 8)  # standard error of an AUC by chance
    assert np.mean(losses) > np.log(2.0) - 0.02


def test_the_same_seed_gives_the_same_search():
    one, other, instance, again = (
        CRCENClassifierCV(**SMALL | {"n_members": 2, "random_state": state}).fit(X, y)
        for state in (3, 3, np.random.RandomState(3), np.random.RandomState(3))
    )
    logits = one.decision_function(X)
    for same in (other, instance, again):
        same_search(one, same)
        np.testing.assert_array_equal(same.decision_function(X), logits)
    np.testing.assert_array_equal(one.fit(X, y).decision_function(X), logits)
    assert (instance.fit(X, y).decision_function(X) != logits).any()  # the stream went on
