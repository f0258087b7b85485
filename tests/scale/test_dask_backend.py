"""Dask as a backend of joblib, for people who search with scikit-learn."""

import joblib
import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV

import crcen

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # dask's own, and those of what it loads
def test_a_search_through_dask_is_the_search_without():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = X[:, 0] + rng.normal(size=200) > 0.8
    model = crcen.CRCENClassifier(hidden=(4,), max_epochs=2, random_state=0)
    grid = {"l2": [1e-4, 1e-1]}
    alone = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss").fit(X, y)
    settings = {"n_workers": 1, "threads_per_worker": 2, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster), joblib.parallel_config("dask"):
        found = GridSearchCV(model, grid, cv=3, scoring="neg_log_loss").fit(X, y)
    np.testing.assert_allclose(found.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"], rtol=1e-6)
    assert found.best_params_ == alone.best_params_
