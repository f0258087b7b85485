"""The paper's stationarity condition in every parameter, against finite differences of an objective written here."""

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import NotFittedError

from crcen import Budget, CSMLPClassifier, InvalidInput, Lam, stationarity
from crcen.training.encoding import ENCODINGS
from grouped_settings import grouped
from papers_training import CRCENClassifier

EXACT = {
    "solver": "lbfgs", "activation": "tanh", "tol": 1e-9, "max_epochs": 4000, "l2": 1e-2, "random_state": 0,
    "encoding": "standard", "n_members": 1,
}  # fmt: skip
HIDDEN = [(), (4,), (4, 3), (4, 3, 3), (4, 3, 3, 2)]


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("weighting", ["balanced", Lam(0.95)], ids=repr)
def test_a_converged_network_is_stationary_in_every_parameter(rare_rows, hidden, weighting):
    X, y = rare_rows()
    model = CRCENClassifier(weighting, hidden=hidden, balance=False, **EXACT).fit(X, y)
    found = stationarity(model, X, y)
    assert found.largest_bias <= 1e-6
    assert found.largest_weight <= 1e-6
    assert found.output_bias <= found.largest_bias
    assert model.key_equation_.residual <= 1e-6


@pytest.mark.parametrize("hidden", HIDDEN, ids=len)
@pytest.mark.parametrize("solver", ["lbfgs", "adam"])
def test_the_balance_solve_makes_the_output_bias_stationary(rare_rows, hidden, solver):
    X, y = rare_rows()
    s = np.random.default_rng(1).uniform(0.5, 2.0, len(y))
    settings = {"activation": "tanh", "solver": solver, "max_epochs": 4, "random_state": 0}
    model = CRCENClassifier(Budget(5), hidden=hidden, **settings).fit(X, y, s)
    found = stationarity(model, X, y, s)
    assert found.output_bias <= 1e-12
    assert found.output_bias == pytest.approx(model.key_equation_.residual, abs=1e-14)
    assert found.largest_weight > 1e-4


def objective(model, X, y, s, parameters, loss):
    """Σ w ℓ / Σ w + ½ l2 ‖W‖² of one network, in plain NumPy."""
    depth = len(parameters) // 2
    weights, biases = parameters[:depth], parameters[depth:]
    h = (X - model.input_encoding_["mean"]) / model.input_encoding_["scale"]
    for W, b in zip(weights[:-1], biases[:-1], strict=True):
        h = np.tanh(h @ W + b)
    o = (h @ weights[-1] + biases[-1])[:, 0]
    lam = model.weighting_.lam
    w = s * np.where(y == 1, lam, 1 - lam)
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
def test_it_is_the_gradient_of_the_stated_objective(rare_rows, kind, loss, hidden):
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


def test_csmlp_has_a_condition_of_its_own(rare_rows):
    """Stationary means Σ w (y − q) q (1 − q) = 0 there, so the key equation does not hold."""
    X, y = rare_rows()
    model = CSMLPClassifier(Budget(5), **grouped(hidden=(4,), **EXACT)).fit(X, y)
    found = stationarity(model, X, y)
    assert found.largest_bias <= 1e-6
    assert found.largest_weight <= 1e-6
    q, w = model.weighted_proba(X)[:, 1], model.weighting_.row_weights(y)
    assert abs(np.sum(w * (y - q) * q * (1 - q))) / np.sum(w) <= 1e-6
    assert model.key_equation_.residual > 1e-4


def test_without_penalty_output_weights_obey_the_papers_equation(rare_rows):
    """−λ Σ_pos (1 − q) h + (1 − λ) Σ_neg q h = 0 for every unit h of the last hidden layer."""
    X, y = rare_rows()
    model = CRCENClassifier(Lam(0.8), hidden=(), **{**EXACT, "l2": 0.0}).fit(X, y)
    q = model.weighted_proba(X)[:, 1]
    h = np.column_stack([np.ones(len(y)), (X - model.input_encoding_["mean"]) / model.input_encoding_["scale"]])
    sums = -0.8 * (1 - q[y == 1]) @ h[y == 1] + 0.2 * q[y == 0] @ h[y == 0]
    np.testing.assert_allclose(sums, 0.0, atol=1e-6)
    assert stationarity(model, X, y).largest_weight <= 1e-8


def test_labels_of_any_kind_and_either_order(rare_rows):
    X, y = rare_rows()
    settings = {"hidden": (3,), "max_epochs": 3, "random_state": 0}
    plain = stationarity(CRCENClassifier(**settings).fit(X, y), X, y)
    named = np.where(y == 1, "fraud", "ok")
    other = stationarity(CRCENClassifier(**settings).fit(X, named), X, named)
    for one, two in zip(plain.weights + plain.biases, other.weights + other.biases, strict=True):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(
    "bad", [[0, 1], np.full(150, 2), np.full(150, "ok"), np.zeros((150, 1))], ids=["short", 2, "ok", "2-D"]
)
def test_labels_the_model_does_not_know_are_refused(rare_rows, bad):
    X, y = rare_rows()
    with pytest.raises(NotFittedError):
        stationarity(CRCENClassifier(), X, y)
    model = CRCENClassifier(hidden=()).fit(X, y)
    with pytest.raises(InvalidInput, match="y must hold one label of 0, 1 for each of the 150 rows"):
        stationarity(model, X, bad)
    assert all(word in str(stationarity(model, X, y)) for word in ("output bias", "any bias", "any weight"))


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_it_reads_inputs_through_the_networks_own_encoding(rare_rows, encoding):
    X, y = rare_rows()
    model = CRCENClassifier("balanced", hidden=(4,), **(EXACT | {"encoding": encoding, "l2": 0.1})).fit(X, y)
    assert stationarity(model, X, y).largest_weight < 1e-6
