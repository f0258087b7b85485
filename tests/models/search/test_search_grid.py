"""What is searched, the table of it, and how a setting is chosen."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import crcen.models.search.run
from crcen import Alpha, Budget, InvalidInput, Schedule, Search
from crcen.training.engine import Trainer
from papers_training import CRCENClassifier, CRCENClassifierCV

QUICK = {
    "solver": "adam", "max_epochs": 8, "batch_size": 32, "learning_rate": 0.05, "random_state": 0, "cv": 3,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
HIDDEN = ([4, 2], [(4,), (2, 2)], [(4,), (2,)], [()], [(), (2,)])
EIGHT = {"hidden": [(2,), (8,)], "l2": [1e-3, 3.0, 10.0, 30.0]}


@pytest.fixture
def searched(monkeypatch):
    """The jobs of every call to the engine: the search's parts, then the refit's."""
    calls = []
    original = Trainer.__call__

    def spy(trainer, jobs, **kwargs):
        calls.append(list(jobs))
        return original(trainer, jobs, **kwargs)

    monkeypatch.setattr(Trainer, "__call__", spy)
    return calls


@pytest.fixture(scope="module")
def clf(rare_rows):
    X, y = rare_rows()
    weighting = [Budget(1), Alpha(1.0), {0: 1.0, 1: 4.0}]
    return CRCENClassifierCV(weighting, hidden=[(2,), (3, 2)], l2=[1e-3, 10.0], **QUICK).fit(X, y)


class TestGrid:
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
    def test_lists_are_searched_and_scalars_fixed(self, rare_rows, given, hidden, penalty, l2):
        X, y = rare_rows()
        clf = CRCENClassifierCV(**QUICK | {"hidden": given, "l2": penalty, "max_epochs": 2}).fit(X, y)
        expected = [{"weighting": "balanced", "hidden": h, "l2": p, "encoding": "standard"} for h in hidden for p in l2]
        assert clf.cv_results_["params"] == expected
        assert clf.best_params_ in expected
        assert [w.shape[2] for w in clf.coefs_[:-1]] == list(clf.best_params_["hidden"])

    def test_default_grid(self, rare_rows):
        X, y = rare_rows()
        clf = CRCENClassifierCV(
            schedule=Schedule(solver="adam"), max_epochs=2, random_state=0, search=Search(widen=False)
        ).fit(X, y)
        assert len(clf.cv_results_["params"]) == 16
        assert clf.n_splits_ == 4


class TestTable:
    def test_form_of_grid_search(self, clf, rare_rows):
        X, y = rare_rows()
        plain = CRCENClassifier(schedule=Schedule(solver="adam"), max_epochs=1)
        points = {"hidden": [(2,)], "l2": [1e-3], "weighting": [None], "encoding": ["standard"]}
        grid = GridSearchCV(plain, points, cv=3).fit(X, y)
        times = {"mean_fit_time", "std_fit_time", "mean_score_time", "std_score_time"}  # a stack has no time a setting
        assert set(grid.cv_results_) - times == set(clf.cv_results_) - {"epochs", "is_dropped"}
        for name, column in grid.cv_results_.items():
            if name not in times:
                assert type(clf.cv_results_[name]) is type(column), name
                assert name == "params" or clf.cv_results_[name].dtype == column.dtype, name

    def test_the_settings_in_their_order_and_the_best_of_them(self, clf):
        found = [(p["weighting"], p["hidden"], p["l2"]) for p in clf.cv_results_["params"]]
        assert found == [(w, h, l2) for w in clf.weighting for h in ((2,), (3, 2)) for l2 in (1e-3, 10.0)]
        for name, column in clf.cv_results_.items():
            assert len(column) == 12, name
            assert name == "params" or column.shape == (12,), name
        table = clf.cv_results_
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

    def test_settings_without_a_score_come_last(self, rare_rows):
        X, y = rare_rows()
        calls = iter([np.nan, 0.2, 0.2, 0.1, 0.1, 0.1, 0.3, 0.3, 0.3])
        grid = {"hidden": [(2,), (3,), (4,)], "l2": 1e-2, "halving": False}
        clf = CRCENClassifierCV(scoring=lambda e, X, y: next(calls), **grid, **QUICK).fit(X, y)
        assert clf.cv_results_["rank_test_score"].tolist() == [3, 2, 1]
        assert clf.best_params_["hidden"] == (4,)

    def test_diverged_settings_lose(self, rare_rows, monkeypatch):
        X, y = rare_rows()
        original = Trainer.__call__

        def first_diverges(trainer, jobs, **kwargs):
            results = original(trainer, jobs, **kwargs)
            for i, (job, result) in enumerate(zip(jobs, results, strict=True)):
                if job.record_every and job.hidden == (4,):
                    results[i] = replace(result, val_logits=np.full_like(result.val_logits, np.nan))
            return results

        monkeypatch.setattr(Trainer, "__call__", first_diverges)
        clf = CRCENClassifierCV(hidden=[(4,), (2,)], l2=1e-2, **QUICK).fit(X, y)
        assert clf.best_params_["hidden"] == (2,)
        assert clf.cv_results_["rank_test_score"].tolist() == [2, 1]
        assert clf.cv_results_["mean_test_score"][0] == -np.inf
        with pytest.raises(InvalidInput, match="no setting has a finite score"):
            CRCENClassifierCV(hidden=(4,), l2=1e-2, **QUICK).fit(X, y)

    def test_ties_share_a_rank_and_the_first_wins(self, rare_rows):
        X, y = rare_rows()
        clf = CRCENClassifierCV(hidden=[(3,), (2,), (2,), (2,)], l2=1e-2, scoring=lambda e, X, y: 0.5, **QUICK)
        assert clf.fit(X, y).cv_results_["rank_test_score"].tolist() == [1, 1, 1, 1]
        assert clf.best_index_ == 0
        clf = CRCENClassifierCV(hidden=[(2,), (4,), (4,)], l2=1e-2, **QUICK).fit(X, y)
        ranks = clf.cv_results_["rank_test_score"].tolist()
        assert ranks[1] == ranks[2]
        assert ranks in ([1, 2, 2], [3, 1, 1])


class TestChoice:
    def grid(self, X, y, **more):
        settings = QUICK | {"max_epochs": 10, "halving": False} | more
        return CRCENClassifierCV(hidden=[(8,), (2,), (4,)], l2=[1e-4, 1e-2, 1e-1], **settings).fit(X, y)

    def test_one_standard_error(self, rare_rows):
        differs = [self.chosen_within_one_standard_error(*rare_rows(seed=seed)) for seed in range(4)]
        assert any(differs)

    def chosen_within_one_standard_error(self, X, y):
        plain, simple = self.grid(X, y), self.grid(X, y, one_standard_error=True)
        table = simple.cv_results_
        np.testing.assert_array_equal(table["mean_test_score"], plain.cv_results_["mean_test_score"])
        means = table["mean_test_score"]
        best = np.array([table[f"split{i}_test_score"][plain.best_index_] for i in range(3)])
        floor = means.max() - np.std(best, ddof=1) / np.sqrt(3)
        good = [i for i in range(9) if means[i] >= floor]
        expected = min(good, key=lambda i: (sum(table["params"][i]["hidden"]), -table["params"][i]["l2"]))
        assert simple.best_index_ == expected
        assert simple.best_score_ == means[expected] >= floor
        assert [w.shape[2] for w in simple.coefs_[:-1]] == list(simple.best_params_["hidden"])
        return simple.best_index_ != plain.best_index_


def epochs_of(calls):
    """Epochs that networks were trained for in all."""
    return sum(job.stop_epoch - (job.start.epoch if job.start else 0) for jobs in calls for job in jobs)


class TestHalving:
    def test_same_winner_on_an_easy_problem(self, rare_rows, searched):
        X, y = rare_rows(n=200, shift=0.8)
        settings = EIGHT | QUICK | {"max_epochs": 18}
        full = CRCENClassifierCV(halving=False, **settings).fit(X, y)
        in_full = epochs_of(searched[:-1])
        assert in_full == 8 * 3 * 18
        searched.clear()
        fast = CRCENClassifierCV(**settings).fit(X, y)
        assert full.best_params_["l2"] == 1e-3
        assert fast.best_params_ == full.best_params_
        assert fast.best_epochs_ == full.best_epochs_
        assert fast.best_score_ == pytest.approx(full.best_score_, rel=1e-3)
        np.testing.assert_allclose(fast.decision_function(X), full.decision_function(X), rtol=1e-3, atol=1e-3)
        dropped = fast.cv_results_["is_dropped"]
        assert dropped.dtype == bool
        assert dropped.sum() == 6
        assert not dropped[fast.best_index_]
        assert not full.cv_results_["is_dropped"].any()
        assert (fast.cv_results_["epochs"][dropped] <= 9).all()
        kept = np.flatnonzero(~dropped)
        np.testing.assert_allclose(
            fast.cv_results_["mean_test_score"][kept], full.cv_results_["mean_test_score"][kept], rtol=1e-3
        )
        # 8 settings for 3 epochs, 6 for 3 more, 4 for 3 more and 2 to the end, if they gain so long.
        most = 3 * (8 * 3 + 6 * 3 + 4 * 3 + 2 * 9)
        assert epochs_of(searched[:-1]) <= most < in_full

    def test_a_dropped_setting_cannot_win(self, rare_rows):
        X, y = rare_rows()
        calls = []

        def higher_in_the_first_part(estimator, X, y):
            calls.append(1)
            return 10.0 + len(calls) if len(calls) <= 24 else 1.0 + len(calls) / 100

        clf = CRCENClassifierCV([Budget(1)], scoring=higher_in_the_first_part, **EIGHT, **QUICK).fit(X, y)
        table = clf.cv_results_
        # Two were dropped after the first part, when scores were high.
        assert (table["mean_test_score"][table["is_dropped"]] > clf.best_score_).sum() == 2
        assert table["is_dropped"].sum() == 6
        assert not table["is_dropped"][clf.best_index_]
        assert set(table["rank_test_score"][~table["is_dropped"]]) == {1, 2}
        assert table["rank_test_score"][table["is_dropped"]].min() == 3

    def test_one_standard_error_wants_all_settings(self, rare_rows):
        X, y = rare_rows()
        clf = CRCENClassifierCV(one_standard_error=True, **EIGHT, **QUICK).fit(X, y)
        assert not clf.cv_results_["is_dropped"].any()

    @pytest.mark.parametrize(
        ("n_members", "balance", "halving", "expected"),
        [(1, "oof", True, 1), (3, "oof", False, 3 + 2 * 4), (3, False, True, 3 + 2 * 4), (3, True, True, 15)],
    )
    def test_jobs_of_the_refit(self, rare_rows, searched, n_members, balance, halving, expected):
        X, y = rare_rows()
        own = QUICK | {"n_members": n_members, "cv": 4, "max_epochs": 6}
        clf = CRCENClassifierCV(hidden=(3,), l2=[1e-3, 0.1], balance=balance, halving=halving, **own).fit(X, y)
        assert len(searched[-1]) == expected
        assert sum(job.rows is None for job in searched[-1]) == n_members
        assert {job.stop_epoch for job in searched[-1]} == {clf.best_epochs_}
        assert np.isfinite(clf.oof_decision_function_).all()


class TestMemory:
    def test_records_are_thinned(self, rare_rows, searched, monkeypatch):
        X, y = rare_rows()
        settings = QUICK | {"hidden": [(2,), (4,)], "l2": [1e-3, 0.1], "max_epochs": 10, "halving": False}
        full = CRCENClassifierCV(**settings).fit(X, y)
        assert {job.record_every for job in searched[0]} == {1}
        # 4 settings, every row once, 10 epochs of float32; a third of that is room for every third epoch.
        monkeypatch.setattr(crcen.models.search.run, "_RECORD_BYTES", 4 * 4 * len(y) * 10 // 3 + 1)
        thin = CRCENClassifierCV(**settings).fit(X, y)
        assert {job.record_every for job in searched[2]} == {3}
        assert set(thin.cv_results_["epochs"]) <= {3, 6, 9, 10}
        assert thin.best_epochs_ in {3, 6, 9, 10}
        assert (thin.cv_results_["mean_test_score"] <= full.cv_results_["mean_test_score"] + 1e-6).all()
        same = thin.cv_results_["epochs"] == full.cv_results_["epochs"]
        assert same.any()
        for split in ("split0_test_score", "split2_test_score"):
            np.testing.assert_allclose(thin.cv_results_[split][same], full.cv_results_[split][same], rtol=1e-6)
        assert np.isfinite(thin.oof_decision_function_).all()
        assert np.isfinite(thin.decision_function(X)).all()
        assert thin.n_iter_ == thin.best_epochs_
