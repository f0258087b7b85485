"""The key equation on the rows given to fit, recomputed by anyone from weighted_proba."""

import numpy as np
import pytest
from scipy.special import expit

from crcen import Alpha, Budget, CSMLPClassifier, Lam, key_equation
from grouped_settings import grouped
from papers_training import CRCENClassifier

LAMS = [0.01, 0.5, 0.999]
SOLVERS = {
    "adam": {"solver": "adam", "max_epochs": 3, "batch_size": 32},
    "lbfgs": {"solver": "lbfgs", "max_epochs": 15},
}


def residual_of(model, X, y, sample_weight=None):
    """|Σ w (y − q)| / Σ w in plain NumPy, from what the model says and λ alone; classes 0/1, 1 positive."""
    q = model.weighted_proba(X)[:, 1]
    assert q.dtype == np.float64
    s = np.ones(len(y)) if sample_weight is None else sample_weight
    w = s * np.where(y == 1, model.weighting_.lam, 1 - model.weighting_.lam)
    return abs(np.sum(w * (y - q))) / np.sum(w)


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("early_stopping", [False, True])
@pytest.mark.parametrize("weighting", [*map(Lam, LAMS), Budget(6)], ids=repr)
def test_it_holds_for_every_weight(rare_rows, solver, n_members, early_stopping, weighting):
    X, y = rare_rows(n=160)
    weight = None
    if weighting == Budget(6):
        weight = np.random.default_rng(3).exponential(size=len(y)) * (np.arange(len(y)) % 7 > 0)
    how = {"hidden": (4,), "n_members": n_members, "early_stopping": early_stopping, "random_state": 0}
    model = CRCENClassifier(weighting, **how, **SOLVERS[solver]).fit(X, y, weight)
    assert residual_of(model, X, y, weight) <= 1e-12
    assert model.key_equation_.residual <= 1e-12
    if weight is not None:
        assert residual_of(model, X, y) > 1e-4


@pytest.mark.parametrize("hidden", [(), (3,), (4, 3), (3, 3, 3, 3)], ids=len)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "silu"])
def test_it_holds_at_every_depth(rare_rows, hidden, activation):
    X, y = rare_rows()
    model = CRCENClassifier(Alpha(2), hidden=hidden, activation=activation, random_state=0, **SOLVERS["adam"]).fit(X, y)
    assert residual_of(model, X, y) <= 1e-12


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("lam", LAMS)
def test_it_holds_on_separable_rows(solver, n_members, lam):
    rng = np.random.default_rng(0)
    y = (np.arange(80) % 8 == 0).astype(int)
    X = rng.normal(size=(80, 2)) + 20.0 * y[:, None]
    settings = {**SOLVERS[solver], "max_epochs": 60, "learning_rate": 0.3, "l2": 0.0}
    model = CRCENClassifier(lam, hidden=(4,), n_members=n_members, random_state=0, **settings).fit(X, y)
    assert residual_of(model, X, y) <= 1e-12
    # Here every error is tiny, so a small residual says little: the two sums agree in relative terms too. 1 − q has
    # lost its digits where q is near 1, the logit has not.
    logits = model.decision_function(X)
    missed, alarmed = lam * expit(-logits[y == 1]).sum(), (1 - lam) * expit(logits[y == 0]).sum()
    assert missed == pytest.approx(alarmed, rel=1e-11)
    assert model.key_equation_.lhs == pytest.approx(model.key_equation_.rhs, rel=1e-9)
    assert model.key_equation_.imbalance <= 1e-9


@pytest.mark.parametrize("n_members", [1, 3])
def test_the_attribute_is_the_public_function_on_the_same_rows(rare_rows, n_members):
    X, y = rare_rows()
    weight = np.random.default_rng(3).uniform(0.5, 2.0, len(y))
    model = CRCENClassifier(Alpha(2), hidden=(4,), n_members=n_members, random_state=0, **SOLVERS["adam"])
    model.fit(X, y, weight)
    own, again = model.key_equation_, key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_, weight)
    assert own.weighting == again.weighting == model.weighting_
    for field in ("lhs", "rhs", "mean_pos", "mean_neg", "var_pos", "var_neg", "discrimination"):
        assert getattr(own, field) == pytest.approx(getattr(again, field), rel=1e-12), field
    assert own.residual == pytest.approx(again.residual, abs=1e-14)
    assert own.lhs == pytest.approx(0.5, rel=1e-12)
    assert own.rhs == pytest.approx(0.5, rel=1e-12)
    assert np.isnan(own.z)
    assert "balanced" in own.z_reason
    assert own.mean_pos == pytest.approx(own.predicted_mean_pos, rel=1e-12)


def test_it_is_about_the_rows_given_to_fit_only(rare_rows):
    X, y = rare_rows()
    model = CRCENClassifier(hidden=(4,), random_state=0, **SOLVERS["lbfgs"]).fit(X, y)
    X_new, y_new = rare_rows(seed=1)
    assert residual_of(model, X_new, y_new) > 1e-4
    assert np.isfinite(key_equation(y_new, model.weighted_proba(X_new)[:, 1], model.weighting_).z)


@pytest.mark.parametrize("model", [CRCENClassifier(balance=False), CSMLPClassifier()], ids=["unbalanced", "csmlp"])
def test_a_short_run_does_not_hold_it_without_the_solve_and_does_with_it(rare_rows, model):
    X, y = rare_rows(n=300)
    model.set_params(hidden=(4,), random_state=0, weighting=Budget(20), **grouped(**SOLVERS["adam"])).fit(X, y)
    assert residual_of(model, X, y) > 1e-4
    assert model.key_equation_.residual == pytest.approx(residual_of(model, X, y), rel=1e-9)
    assert residual_of(model.set_params(calibration__balance=True, n_members=2).fit(X, y), X, y) <= 1e-12


def test_the_solve_moves_the_output_bias_and_nothing_else(rare_rows):
    X, y = rare_rows(n=300)
    settings = {"hidden": (4,), "random_state": 0, **SOLVERS["adam"]}
    free = CRCENClassifier(balance=False, **settings).fit(X, y)
    solved = CRCENClassifier(balance=True, **settings).fit(X, y)
    for one, other in zip(free.coefs_, solved.coefs_, strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(free.intercepts_[0], solved.intercepts_[0])
    moved = solved.decision_function(X) - free.decision_function(X)
    assert np.ptp(moved) < 1e-12
    assert abs(moved[0]) > 1e-6
