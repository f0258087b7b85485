"""The key equation on the rows given to fit, and the paper's stationarity condition in every parameter.

Both are recomputed here: from `weighted_proba` and λ alone, and by finite differences of an objective in NumPy.
"""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from crcen import Alpha, Budget, CSMLPClassifier, InvalidInput, Lam, key_equation, stationarity
from crcen.training.network import ENCODINGS
from example_rows import rare_rows
from grouped_settings import grouped
from papers_training import CRCENClassifier

LAMS = [0.01, 0.5, 0.999]
SOLVERS = {
    "adam": {"solver": "adam", "max_epochs": 3, "batch_size": 32},
    "lbfgs": {"solver": "lbfgs", "max_epochs": 15},
}
EXACT = {
    "solver": "lbfgs", "activation": "tanh", "tol": 1e-9, "max_epochs": 4000, "l2": 1e-2, "random_state": 0,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
HIDDEN = [(), (4,), (4, 3), (4, 3, 3), (4, 3, 3, 2)]
X, y = rare_rows()


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
def test_it_holds_for_every_weight(solver, n_members, early_stopping, weighting):
    X, y = rare_rows(n=160)
    weight = None
    if weighting == Budget(6):
        weight = np.random.default_rng(3).exponential(size=len(y)) * (np.arange(len(y)) % 7 > 0)
    how = {"hidden": (4,), "n_members": n_members, "early_stopping": early_stopping, "random_state": 0}
    model = CRCENClassifier(weighting, **how, **SOLVERS[solver]).fit(X, y, weight)
    assert residual_of(model, X, y, weight) <= 1e-12
    own, again = model.key_equation_, key_equation(y, model.weighted_proba(X)[:, 1], model.weighting_, weight)
    assert own.weighting == again.weighting == model.weighting_
    for field in ("lhs", "rhs", "mean_pos", "mean_neg", "var_pos", "var_neg", "discrimination"):
        assert getattr(own, field) == pytest.approx(getattr(again, field), rel=1e-10), field
    assert own.residual == pytest.approx(again.residual, abs=1e-14)
    assert own.lhs == pytest.approx(own.rhs, rel=1e-10)
    assert np.isnan(own.z)
    assert "balanced" in own.z_reason
    assert own.mean_pos == pytest.approx(own.predicted_mean_pos, rel=1e-10)
    # On other weights and on other rows it does not hold.
    if weight is not None:
        assert residual_of(model, X, y) > 1e-4
    X_new, y_new = rare_rows(seed=1)
    assert residual_of(model, X_new, y_new) > 1e-5
    assert np.isfinite(key_equation(y_new, model.weighted_proba(X_new)[:, 1], model.weighting_).z)


@pytest.mark.parametrize("hidden", [(), (3,), (4, 3), (3, 3, 3, 3)], ids=len)
@pytest.mark.parametrize("activation", ["relu", "tanh", "sigmoid", "gelu", "silu"])
def test_it_holds_at_every_depth(hidden, activation):
    model = CRCENClassifier(Alpha(2), hidden=hidden, activation=activation, random_state=0, **SOLVERS["adam"]).fit(X, y)
    assert residual_of(model, X, y) <= 1e-12


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("n_members", [1, 4])
@pytest.mark.parametrize("lam", LAMS)
def test_it_holds_on_separable_rows(solver, n_members, lam):
    y = (np.arange(80) % 8 == 0).astype(int)
    X = np.random.default_rng(0).normal(size=(80, 2)) + 20.0 * y[:, None]
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


@pytest.mark.parametrize("model", [CRCENClassifier(balance=False), CSMLPClassifier()], ids=["unbalanced", "csmlp"])
def test_the_solve_makes_a_short_run_hold_it_and_moves_the_output_bias_alone(model):
    X, y = rare_rows(n=300)
    free = model.set_params(hidden=(4,), random_state=0, weighting=Budget(20), **grouped(**SOLVERS["adam"])).fit(X, y)
    assert residual_of(free, X, y) > 1e-4
    assert free.key_equation_.residual == pytest.approx(residual_of(free, X, y), rel=1e-9)
    before, coefs, intercepts = free.decision_function(X), free.coefs_, free.intercepts_
    solved = model.set_params(calibration__balance=True).fit(X, y)
    assert residual_of(solved, X, y) <= 1e-12
    for one, other in zip([*coefs, intercepts[0]], [*solved.coefs_, solved.intercepts_[0]], strict=True):
        np.testing.assert_array_equal(one, other)
    moved = solved.decision_function(X) - before
    assert np.ptp(moved) < 1e-12
    assert abs(moved[0]) > 1e-6


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("weighting", ["balanced", Lam(0.95)], ids=repr)
def test_a_converged_network_is_stationary_in_every_parameter(hidden, weighting):
    model = CRCENClassifier(weighting, hidden=hidden, balance=False, **EXACT).fit(X, y)
    found = stationarity(model, X, y)
    assert found.output_bias <= found.largest_bias <= 1e-6
    assert found.largest_weight <= 1e-6
    assert model.key_equation_.residual <= 1e-6


def objective(model, X, y, s, parameters, loss):
    """Σ w ℓ / Σ w + ½ l2 ‖W‖² of one network, in plain NumPy."""
    depth = len(parameters) // 2
    weights, biases = parameters[:depth], parameters[depth:]
    h = (X - model.input_encoding_["mean"]) / model.input_encoding_["scale"]
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = np.tanh(h @ W + b)
    o = (h @ weights[-1] + biases[-1])[:, 0]
    w = s * np.where(y == 1, model.weighting_.lam, 1 - model.weighting_.lam)
    if loss == "cross entropy":
        rows = -np.where(y == 1, np.log(expit(o)), np.log(expit(-o)))
    else:
        rows = (np.tanh(o / 2) - np.where(y == 1, 1.0, -1.0)) ** 2
    return np.sum(w * rows) / np.sum(w) + 0.5 * model.l2 * sum(np.sum(W**2) for W in weights)


def finite_differences(model, X, y, s, member, loss, step=1e-6):
    parameters = [layer[member].copy() for layer in (*model.coefs_, *model.intercepts_)]
    gradients = [np.zeros_like(part) for part in parameters]
    for part, gradient in zip(parameters, gradients, strict=True):
        for at in np.ndindex(part.shape):
            kept = part[at]
            for sign in (1, -1):
                part[at] = kept + sign * step
                gradient[at] += sign * objective(model, X, y, s, parameters, loss) / (2 * step)
            part[at] = kept
    return gradients


@pytest.mark.parametrize(
    ("kind", "loss"), [(CRCENClassifier, "cross entropy"), (CSMLPClassifier, "squared error")], ids=["crcen", "csmlp"]
)
@pytest.mark.parametrize("hidden", [(), (3,), (3, 2)], ids=len)
def test_it_is_the_gradient_of_the_stated_objective(kind, loss, hidden):
    X, y = rare_rows(n=60)
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    how = {"solver": "adam", "activation": "tanh", "max_epochs": 2, "l2": 0.05, "n_members": 2, "encoding": "standard"}
    model = kind(Budget(4), **grouped(hidden=hidden, random_state=0, **how))
    model.set_params(calibration__balance=False).fit(X, y, s)
    found = stationarity(model, X, y, s)
    for member in range(2):
        expected = finite_differences(model, X, y, s, member, loss)
        own = [layer[member] for layer in (*found.weights, *found.biases)]
        for mine, theirs in zip(own, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-8)
    assert found.largest_weight > 1e-3
    if kind is CRCENClassifier:  # the output bias alone is stationary after the solve, which is the key equation
        solved = stationarity(model.set_params(calibration__balance=True, n_members=1).fit(X, y, s), X, y, s)
        assert solved.output_bias <= 1e-12
        assert solved.output_bias == pytest.approx(model.key_equation_.residual, abs=1e-14)
        assert solved.largest_weight > 1e-4


def test_csmlp_has_a_condition_of_its_own():
    """Stationary means Σ w (y − q) q (1 − q) = 0 there, so the key equation does not hold."""
    model = CSMLPClassifier(Budget(5), **grouped(hidden=(4,), **EXACT)).fit(X, y)
    found = stationarity(model, X, y)
    assert max(found.largest_bias, found.largest_weight) <= 1e-6
    q, w = model.weighted_proba(X)[:, 1], model.weighting_.row_weights(y)
    assert abs(np.sum(w * (y - q) * q * (1 - q))) / np.sum(w) <= 1e-6
    assert model.key_equation_.residual > 1e-4


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_it_reads_inputs_through_the_networks_own_encoding_and_labels_of_any_kind(encoding):
    how = EXACT | {"encoding": encoding, "l2": 0.1, "hidden": (4,)}
    found, named = (
        stationarity(CRCENClassifier("balanced", **how).fit(X, labels), X, labels)
        for labels in (y, np.where(y == 1, "fraud", "ok"))
    )
    assert found.largest_weight < 1e-6
    for one, other in zip(found.weights + found.biases, named.weights + named.biases, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "bad", [[0, 1], np.full(150, 2), np.full(150, "ok"), np.zeros((150, 1))], ids=["short", 2, "ok", "2-D"]
)
def test_labels_the_model_does_not_know_are_refused(bad):
    with pytest.raises(NotFittedError):
        stationarity(CRCENClassifier(), X, y)
    model = CRCENClassifier(hidden=()).fit(X, y)
    with pytest.raises(InvalidInput, match="y must hold one label of 0, 1 for each of the 150 rows"):
        stationarity(model, X, bad)
    assert all(word in str(stationarity(model, X, y)) for word in ("output bias", "any bias", "any weight"))
