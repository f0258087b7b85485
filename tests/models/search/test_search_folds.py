"""Folds of a search: any splitter, no leak of held-out rows, the bias they agree on, refusals and interruptions."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
)
from sklearn.utils.validation import check_is_fitted

from crcen import Budget, InvalidInput, InvalidParameter, TimeSplit, balance_shift
from crcen.models.fitting import FitRows, agreed_shift, shifts_of_folds
from crcen.theory.price import Labels
from crcen.training.engine import Trainer
from example_rows import rare_rows
from papers_training import CRCENClassifierCV

GRID = {"hidden": (3,), "l2": [1e-3, 0.3], "solver": "adam", "max_epochs": 5, "batch_size": 32, "random_state": 0,
        "encoding": "standard", "n_members": 1}  # fmt: skip
CONVEX = {"hidden": (), "l2": [1e-3, 0.3], "tol": 1e-9, "max_epochs": 300, "random_state": 0, "encoding": "standard"}
FOUR = {**GRID, "hidden": [(2,), (4,)], "cv": 3}
X, y = rare_rows()


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
        StratifiedKFold(3),
        StratifiedKFold(4, shuffle=True, random_state=1),
        KFold(3, shuffle=True, random_state=0),
        ShuffleSplit(3, test_size=0.4, random_state=0),
        RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        GroupKFold(3),
        StratifiedGroupKFold(3),
        LeaveOneGroupOut(),
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
    same_search(CRCENClassifierCV(cv=StratifiedKFold(cv, shuffle=True, random_state=seed), **GRID).fit(X, y), clf)
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
        (KFold(2), rare_at(*range(10)), {}, ONE_CLASS.format(r"\d+ rows?", 2)),
        (200, None, {}, r"by 200 cannot split these rows: .*n_splits=200"),
        (HALVES, None, {"sample_weight": (np.arange(150) < 100).astype(float)}, "a test fold holds no row with"),
        (GroupKFold(3), None, {}, r"cross-validation by GroupKFold.*'groups' parameter"),
        (GroupKFold(3), None, {"groups": [1, 2, 3]}, "cannot split these rows"),
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


def test_one_fold_is_enough():
    cv = ShuffleSplit(1, test_size=0.3, random_state=0)
    assert CRCENClassifierCV(cv=cv, **GRID).fit(*rare_rows()).n_splits_ == 1


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
        CRCENClassifierCV(**(FOUR | given)).fit(*rare_rows())


@pytest.mark.parametrize("part", [1, 2, "refit"])
def test_an_interrupted_search_keeps_what_was_fitted(monkeypatch, part):
    clf = CRCENClassifierCV(**FOUR).fit(X, y)
    before, logits = dict(vars(clf)), clf.decision_function(X)
    calls, original = [], Trainer.__call__

    def interrupted(trainer, jobs, **kwargs):
        calls.append(1)
        if (part == "refit" and jobs[0].watched is None) or part == len(calls):
            raise KeyboardInterrupt
        return original(trainer, jobs, **kwargs)

    monkeypatch.setattr(Trainer, "__call__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        clf.fit(X[:, :2], np.where(y == 1, "b", "a"))
    assert vars(clf) == before
    calls.clear()
    new = CRCENClassifierCV(**FOUR)
    with pytest.raises(KeyboardInterrupt):
        new.fit(X, y)
    with pytest.raises(NotFittedError):
        check_is_fitted(new)
    np.testing.assert_array_equal(clf.decision_function(X), logits)
    assert clf.classes_.tolist() == [0, 1]


def test_the_same_seed_gives_the_same_search():
    one, other, instance, again = (
        CRCENClassifierCV(**FOUR | {"n_members": 2, "random_state": state}).fit(X, y)
        for state in (3, 3, np.random.RandomState(3), np.random.RandomState(3))
    )
    logits = one.decision_function(X)
    for same in (other, instance, again):
        same_search(one, same)
        np.testing.assert_array_equal(same.decision_function(X), logits)
    np.testing.assert_array_equal(one.fit(X, y).decision_function(X), logits)
    assert (instance.fit(X, y).decision_function(X) != logits).any()  # the stream went on
