"""The search beside and inside scikit-learn's own tools."""

import numpy as np
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedKFold, cross_validate
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

import crcen
from crcen import Budget
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

TRAINING = {
    "solver": "adam", "max_epochs": 12, "batch_size": 32, "learning_rate": 0.03, "encoding": "standard", "n_members": 1,
}  # fmt: skip
LIGHT = {"hidden": [(2,), (4,)], "l2": [1e-3, 0.1], "cv": 2, "random_state": 0} | TRAINING | {"max_epochs": 4}


def weighted_log_loss(estimator, X, y):
    """The default score of the search, for a fitted CRCENClassifier."""
    q = estimator.weighted_proba(X)[np.arange(len(y)), (y == estimator.classes_[1]).astype(int)]
    weights = np.where(y == estimator.pos_label_, estimator.weighting_.lam, 1 - estimator.weighting_.lam)
    return np.sum(weights * np.log(q)) / weights.sum()


class TestTheSameWinner:
    @pytest.mark.parametrize(
        ("seed", "mine", "theirs"), [(0, "neg_log_loss", "neg_log_loss"), (1, None, weighted_log_loss)]
    )
    def test_of_penalties(self, rare_rows, seed, mine, theirs):
        X, y = rare_rows(n=240, shift=0.8, seed=seed)
        folds = StratifiedKFold(3, shuffle=True, random_state=seed)
        penalties = [30.0, 1e-3, 3.0]
        plain = CRCENClassifier(hidden=(8,), random_state=seed, **TRAINING)
        loop = GridSearchCV(plain, {"l2": penalties}, cv=folds, scoring=theirs).fit(X, y)
        search = CRCENClassifierCV(hidden=(8,), l2=penalties, cv=folds, scoring=mine, random_state=seed, **TRAINING)
        search.fit(X, y)
        assert search.best_params_["l2"] == loop.best_params_["l2"] == 1e-3
        assert search.best_index_ == loop.best_index_
        # The search may cut the schedule, so it is at least as good; the folds' batches may differ.
        assert search.best_score_ > loop.best_score_ - 0.02

    def test_of_weightings(self, rare_rows):
        X, y = rare_rows(n=240)
        folds = StratifiedKFold(3, shuffle=True, random_state=0)
        weightings = [1e-3, Budget(3), 0.999]
        plain = CRCENClassifier(hidden=(4,), l2=1e-3, random_state=0, **TRAINING)
        loop = GridSearchCV(plain, {"weighting": weightings}, cv=folds, scoring="f1").fit(X, y)
        search = CRCENClassifierCV(weightings, hidden=(4,), l2=1e-3, cv=folds, scoring="f1", random_state=0, **TRAINING)
        assert search.fit(X, y).best_params_["weighting"] == loop.best_params_["weighting"] == Budget(3)


class TestTools:
    def test_grid_search_over_the_search(self, rare_rows):
        X, y = rare_rows()
        grid = {"hidden": [[(2,), (4,)], (3,)], "calibration__balance": [True, "oof"], "n_members": [1, 2]}
        found = GridSearchCV(CRCENClassifierCV(**LIGHT), grid, cv=2, scoring="roc_auc").fit(X, y)
        assert found.best_estimator_.best_params_["l2"] in LIGHT["l2"]
        assert np.isfinite(found.cv_results_["mean_test_score"]).all()

    def test_pipeline(self, rare_rows):
        X, y = rare_rows()
        weights = np.random.default_rng(0).exponential(size=len(y))
        pipe = Pipeline([("scale", StandardScaler()), ("search", CRCENClassifierCV(**LIGHT))])
        pipe.fit(X, y, search__sample_weight=weights)
        alone = CRCENClassifierCV(**LIGHT).fit(StandardScaler().fit_transform(X), y, sample_weight=weights)
        np.testing.assert_array_equal(
            pipe.decision_function(X), alone.decision_function(StandardScaler().fit_transform(X))
        )
        pipe.set_params(search__l2=[0.5], search__hidden=(2,)).fit(X, y)
        best = {"weighting": "balanced", "hidden": (2,), "l2": 0.5, "encoding": "standard"}
        assert pipe["search"].best_params_ == best


class TestRouting:
    def test_weights_and_groups(self, rare_rows):
        X, y = rare_rows()
        weights = np.random.default_rng(0).exponential(size=len(y))
        groups = np.arange(len(y)) % 10
        seen = []

        class Recorder(crcen.CRCENClassifierCV):
            def fit(self, X, y, sample_weight=None, groups=None):
                seen.append((sample_weight, groups))
                return super().fit(X, y, sample_weight=sample_weight, groups=groups)

        with config_context(enable_metadata_routing=True):
            clf = Recorder(**grouped(**LIGHT | {"cv": GroupKFold(2)}))
            clf.set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=False)
            params = {"sample_weight": weights, "groups": groups}
            found = cross_validate(clf, X, y, cv=GroupKFold(2), params=params, error_score="raise")
        assert np.isfinite(found["test_score"]).all()
        for (train, _), (got_weights, got_groups) in zip(GroupKFold(2).split(X, y, groups), seen, strict=True):
            np.testing.assert_array_equal(got_weights, weights[train])
            np.testing.assert_array_equal(got_groups, groups[train])
