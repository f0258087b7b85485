"""Any scikit-learn splitter, groups, and rows with weights."""

import numpy as np
import pytest
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    RepeatedStratifiedKFold,
    ShuffleSplit,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from crcen import InvalidInput, resolve
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from papers_training import CRCENClassifierCV

GRID = {"hidden": (3,), "l2": [1e-3, 0.3], "solver": "adam", "max_epochs": 5, "batch_size": 32, "random_state": 0,
        "encoding": "standard", "n_members": 1}  # fmt: skip
CONVEX = {"hidden": (), "l2": [1e-3, 0.3], "tol": 1e-9, "max_epochs": 300, "random_state": 0, "encoding": "standard"}


def same_search(one, other):
    assert one.n_splits_ == other.n_splits_
    for name, column in one.cv_results_.items():
        if name not in ("params", "param_weighting", "param_hidden", "param_l2", "param_encoding"):
            np.testing.assert_array_equal(column, other.cv_results_[name], err_msg=name)
    np.testing.assert_array_equal(one.oof_decision_function_, other.oof_decision_function_)


class TestSplitters:
    @pytest.mark.parametrize(
        "splitter",
        [
            StratifiedKFold(3),
            StratifiedKFold(4, shuffle=True, random_state=1),
            KFold(3, shuffle=True, random_state=0),
            ShuffleSplit(3, test_size=0.4, random_state=0),
            RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        ],
        ids=lambda s: type(s).__name__,
    )
    def test_a_splitter_is_its_folds(self, rare_rows, splitter):
        X, y = rare_rows()
        named = CRCENClassifierCV(cv=splitter, **GRID).fit(X, y)
        assert named.n_splits_ == splitter.get_n_splits(X, y)
        pairs = list(splitter.split(X, y))
        same_search(CRCENClassifierCV(cv=pairs, **GRID).fit(X, y), named)
        same_search(CRCENClassifierCV(cv=iter(pairs), **GRID).fit(X, y), named)
        masks = [tuple(np.isin(np.arange(len(y)), part) for part in pair) for pair in pairs]
        same_search(CRCENClassifierCV(cv=masks, **GRID).fit(X, y), named)
        turned = [(train[::-1], test[::-1]) for train, test in pairs]  # the order within a part means nothing
        same_search(CRCENClassifierCV(cv=turned, **GRID).fit(X, y), named)

    @pytest.mark.parametrize("cv", [2, 5, np.int64(3)], ids=str)
    def test_a_number_is_stratified_shuffled_folds(self, rare_rows, cv):
        X, y = rare_rows()
        clf = CRCENClassifierCV(cv=cv, **GRID).fit(X, y)
        seed = int(np.random.RandomState(0).randint(2**31 - 1))
        same_search(CRCENClassifierCV(cv=StratifiedKFold(cv, shuffle=True, random_state=seed), **GRID).fit(X, y), clf)
        other = CRCENClassifierCV(cv=cv, **(GRID | {"random_state": 1})).fit(X, y)
        assert (other.cv_results_["mean_test_score"] != clf.cv_results_["mean_test_score"]).all()

    @pytest.mark.parametrize(
        "splitter", [GroupKFold(3), StratifiedGroupKFold(3), LeaveOneGroupOut()], ids=lambda s: type(s).__name__
    )
    def test_groups(self, rare_rows, splitter):
        X, y = rare_rows()
        groups = np.arange(len(y)) % 6
        clf = CRCENClassifierCV(cv=splitter, **GRID).fit(X, y, groups=groups)
        pairs = list(splitter.split(X, y, groups))
        assert all(not np.isin(groups[test], groups[train]).any() for train, test in pairs)
        same_search(CRCENClassifierCV(cv=pairs, **GRID).fit(X, y), clf)

    @pytest.mark.parametrize("n_members", [1, 2])
    @pytest.mark.parametrize(
        "splitter",
        [
            RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
            ShuffleSplit(3, test_size=0.5, random_state=0),
        ],
        ids=lambda s: type(s).__name__,
    )
    def test_rows_tested_twice_have_all_members_of_the_last_fold(self, rare_rows, splitter, n_members):
        # The first member's logits are recorded in the search, the others' come from the refit: of one fold for a row.
        X, y = rare_rows()
        settings = {"l2": 1e-3, "max_epochs": 12, "learning_rate": 0.05, "n_members": n_members, "balance": False}
        clf = CRCENClassifierCV(cv=splitter, **GRID | settings).fit(X, y)
        counts = clf.oof_counts_[0]
        assert counts.tp + counts.fp + counts.fn + counts.tn == np.isfinite(clf.oof_decision_function_).sum()
        base = int(np.random.RandomState(0).randint(2**31 - 1))
        seeds = [int(np.random.SeedSequence([base, member]).generate_state(1)[0]) for member in range(n_members)]
        expected, others = np.full(len(y), np.nan), []
        for rows, test in splitter.split(X, y):
            rows = np.sort(rows)
            lam = resolve("balanced", y[rows].sum(), (y[rows] == 0).sum()).lam
            how = {"hidden": (3,), "l2": 1e-3, "max_epochs": 12, "batch_size": 32, "learning_rate": 0.05}
            how |= {"rows": rows, "shuffle_seed": base, "balance": False, "stop_epoch": clf.best_epochs_}
            jobs = [TrainingJob((1 - lam, lam), seed=seed, **how) for seed in seeds]
            logits = np.mean([r.network.logits(X[test]) for r in train(X, y, jobs, device="cpu")], axis=0)
            others.append(np.abs(logits - expected[test]))
            expected[test] = logits
        np.testing.assert_allclose(clf.oof_decision_function_, expected, rtol=1e-3, atol=1e-3)  # float32 on the way
        assert np.nanmax(np.concatenate(others)) > 0.05  # an earlier fold would have been seen


def rare_at(*rows):
    return lambda X, y: (X, np.isin(np.arange(len(X)), rows))


HALVES = [(np.arange(50, 150), np.arange(50)), (np.arange(100), np.arange(100, 150))]
ONE_CLASS = "a training fold holds one class only: got {} of the rarest class for {}"


class TestRefusals:
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
    def test_folds_that_cannot_be_used(self, rare_rows, cv, rows, fit, words, settings):
        X, y = rare_rows() if rows is None else rows(*rare_rows())
        with pytest.raises(InvalidInput, match=words):
            CRCENClassifierCV(cv=cv, **settings).fit(X, y, **fit)

    def test_fewer_rare_rows_than_folds(self, rare_rows):
        one, two = (rare_at(*rows)(*rare_rows()) for rows in ((7,), (7, 90)))
        refused = pytest.raises(InvalidInput, match=ONE_CLASS.format("1 row", "3 folds"))
        with pytest.warns(UserWarning, match="least populated class"), refused:
            CRCENClassifierCV(cv=3, **GRID).fit(*one)
        with pytest.warns(UserWarning, match="least populated class"):
            clf = CRCENClassifierCV(cv=3, **GRID).fit(*two)
        assert np.isfinite(clf.best_score_)  # though a test fold has no rare row

    @pytest.mark.parametrize("balance", [True, "oof"])
    def test_test_folds_of_one_class(self, rare_rows, balance):
        X, y = rare_rows()
        folds = [(np.arange(100), 100 + np.flatnonzero(y[100:] == 0))]
        with pytest.raises(InvalidInput, match="class"):
            CRCENClassifierCV(cv=folds, balance=balance, **GRID).fit(X, y)

    def test_one_fold_is_enough_unless_one_standard_error_is_asked_for(self, rare_rows):
        cv = ShuffleSplit(1, test_size=0.3, random_state=0)
        assert CRCENClassifierCV(cv=cv, **GRID).fit(*rare_rows()).n_splits_ == 1
        with pytest.raises(ValueError, match="one_standard_error needs at least two folds"):
            CRCENClassifierCV(cv=cv, one_standard_error=True, **GRID).fit(*rare_rows())


class TestSampleWeight:
    @pytest.mark.parametrize("balance", [True, "oof"])
    @pytest.mark.parametrize("scoring", [None, "neg_log_loss", "f1", "g_mean", "average_precision"])
    def test_weight_k_is_k_copies(self, rare_rows, scoring, balance):
        X, y = rare_rows()
        weights = np.random.default_rng(0).integers(0, 4, len(y))
        copies = np.repeat(np.arange(len(y)), weights)
        folds = list(StratifiedKFold(3).split(X, y))
        copied = [tuple(np.flatnonzero(np.isin(copies, part)) for part in pair) for pair in folds]
        settings = CONVEX | {"scoring": scoring, "balance": balance}
        weighted = CRCENClassifierCV(cv=folds, **settings).fit(X, y, sample_weight=weights)
        repeated = CRCENClassifierCV(cv=copied, **settings).fit(X[copies], y[copies])
        for i in range(3):
            name = f"split{i}_test_score"
            np.testing.assert_allclose(weighted.cv_results_[name], repeated.cv_results_[name], atol=1e-6)
        assert weighted.best_params_ == repeated.best_params_
        np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-5)
        np.testing.assert_allclose(weighted.oof_decision_function_[copies], repeated.oof_decision_function_, atol=1e-5)
        assert weighted.oof_counts_ == repeated.oof_counts_
        assert weighted.oof_key_equation_.lhs == pytest.approx(repeated.oof_key_equation_.lhs, rel=1e-5)
