"""The models against independent truth: logistic regression, copied rows, absent rows."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from crcen import Alpha, CostRatio, CSMLPClassifier, Lam, Schedule
from grouped_settings import grouped
from papers_training import CRCENClassifier

EXACT = {"solver": "lbfgs", "tol": 1e-10, "max_epochs": 2000, "random_state": 0}


def logistic(X, y, row_weights, l2):
    """scikit-learn's own optimum of Σ w ℓ / Σ w + ½ l2 ‖W‖²."""
    reference = LogisticRegression(C=1 / (l2 * row_weights.sum()), tol=1e-12, solver="newton-cholesky", max_iter=500)
    return reference.fit(X, y, sample_weight=row_weights)


@pytest.mark.parametrize("weighting", [None, "balanced", Lam(0.95), CostRatio(0.2), Alpha(3)], ids=repr)
@pytest.mark.parametrize("l2", [1e-3, 0.1])
def test_no_hidden_layer_is_weighted_logistic_regression(rare_rows, weighting, l2):
    X, y = rare_rows(n=300)
    s = np.random.default_rng(5).uniform(0.2, 3.0, len(y))
    model = CRCENClassifier(weighting, hidden=(), l2=l2, standardize=False, **EXACT).fit(X, y, s)
    reference = logistic(X, y, model.weighting_.row_weights(y, s), l2)
    np.testing.assert_allclose(model.coefs_[0][0, :, 0], reference.coef_[0], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(model.weighted_proba(X), reference.predict_proba(X), atol=1e-7)
    assert model.status_ == "converged"
    if weighting is None:
        np.testing.assert_array_equal(model.predict_proba(X), model.weighted_proba(X))


def copied(X, y, copies):
    return np.repeat(X, copies, axis=0), np.repeat(y, copies)


@pytest.mark.parametrize("price", [2, 5, 9])
@pytest.mark.parametrize("hidden", [(), (3,)], ids=repr)
def test_a_whole_cost_ratio_is_that_many_copies_of_the_rare_rows(rare_rows, price, hidden):
    X, y = rare_rows()
    settings = {**EXACT, "hidden": hidden, "activation": "tanh", "l2": 1e-2, "standardize": False, "pos_label": 1}
    if hidden:
        settings["max_epochs"] = 30  # the same path, before rounding parts two paths of a loss that is not convex
    weighted = CRCENClassifier(CostRatio(price), **settings).fit(X, y)
    repeated = CRCENClassifier(None, **settings).fit(*copied(X, y, np.where(y == 1, price, 1)))
    np.testing.assert_allclose(weighted.weighted_proba(X), repeated.weighted_proba(X), atol=1e-7)


@pytest.mark.parametrize("kind", [CRCENClassifier, CSMLPClassifier])
@pytest.mark.parametrize("hidden", [(), (3,)], ids=repr)
@pytest.mark.parametrize("weighting", ["balanced", Lam(0.8)], ids=repr)
def test_weight_k_is_k_copies(rare_rows, kind, hidden, weighting):
    X, y = rare_rows()
    k = np.random.default_rng(7).integers(0, 4, len(y))
    settings = {**EXACT, "hidden": hidden, "activation": "tanh", "l2": 1e-2, "max_epochs": 30, "n_members": 2}
    weighted = kind(weighting, **grouped(**settings)).fit(X, y, k)
    repeated = kind(weighting, **grouped(**settings)).fit(*copied(X, y, k))
    assert weighted.weighting_ == repeated.weighting_
    np.testing.assert_allclose(weighted.input_encoding_["mean"], repeated.input_encoding_["mean"], rtol=1e-12)
    np.testing.assert_allclose(weighted.input_encoding_["scale"], repeated.input_encoding_["scale"], rtol=1e-12)
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-7)


@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
@pytest.mark.parametrize("early_stopping", [False, True])
def test_weights_of_one_are_no_weights(rare_rows, solver, early_stopping):
    X, y = rare_rows()
    settings = {"hidden": (3,), "solver": solver, "max_epochs": 8, "batch_size": 32, "early_stopping": early_stopping}
    ones = CRCENClassifier(random_state=0, **settings).fit(X, y, np.ones(len(y)))
    none = CRCENClassifier(random_state=0, **settings).fit(X, y)
    np.testing.assert_array_equal(ones.decision_function(X), none.decision_function(X))


def test_units_of_a_column_do_not_matter(rare_rows):
    X, y = rare_rows()
    scale, place = np.array([1e-6, 1.0, 1e5]), np.array([0.0, -7.0, 1e5])
    settings = {"hidden": (3,), "activation": "tanh", "l2": 1e-2, **EXACT, "max_epochs": 30}
    one = CRCENClassifier(**settings).fit(X, y).predict_proba(X)
    other = CRCENClassifier(**settings).fit(X * scale + place, y).predict_proba(X * scale + place)
    np.testing.assert_allclose(one, other, atol=1e-6)


def test_auto_is_lbfgs_without_hidden_layer_and_adam_with_one(rare_rows):
    X, y = rare_rows(n=300)

    def same(hidden, rows, solver):
        chosen = [
            CRCENClassifier(
                hidden=hidden, schedule=Schedule(solver=s, batch_size=64), random_state=0, max_epochs=3
            ).fit(X[:rows], y[:rows])
            for s in ("auto", solver)
        ]
        return np.array_equal(*(model.decision_function(X) for model in chosen))

    assert same((), 300, "lbfgs")
    assert same((3,), 100, "adam")
    assert same((3,), 300, "adam")
