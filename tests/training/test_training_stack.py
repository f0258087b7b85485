"""Losses, activations, stacks and stored networks: formulas, autograd, the same bits in any batch and after a fork."""

from dataclasses import replace
from itertools import chain, pairwise

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.special import log_expit, log_softmax, softmax
from training_reference import ACTIVATION_NAMES, TORCH_ACTIVATIONS, networks_of, torch_logits, torch_row_loss

from crcen import CRCENClassifier, TableClassifier, save
from crcen.training.network import ACTIVATIONS, Network, NetworkGroup, column_layout, fit_encoding
from crcen.training.recipe import LOSSES
from crcen.training.stack import Stack, row_derivative, row_loss
from processes import run_python

BINARY = ("cross_entropy", "squared_error")


def one_logit(name, logits, y):
    """Loss and derivative of single logits."""
    shape = (1, -1, 1)
    target = torch.full_like(logits, y).view(shape)
    parts = logits.view(shape), target
    return row_loss(name, *parts, 1).flatten(), row_derivative(name, *parts, torch.ones_like(target), 1).flatten()


def reference_loss(name, logits, y):
    """Losses of logits (…, C) in NumPy, from probabilities."""
    own = np.eye(logits.shape[-1])[y]
    if name == "one_against_all":
        return -np.where(own, log_expit(logits), log_expit(-logits)).sum(-1)
    if name == "cross_entropy":
        return -(log_softmax(logits, axis=-1) * own).sum(-1)
    return 2.0 * ((own - softmax(logits, axis=-1)) ** 2).sum(-1)


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_several_outputs_equal_their_formulas_and_autograd(name):
    rng = np.random.default_rng(1)
    logits = torch.from_numpy(rng.normal(0.0, 2.0, (2, 5, 12))).requires_grad_()  # three networks, four classes
    y, weight = rng.integers(0, 4, (2, 5, 1)), torch.from_numpy(rng.uniform(0.5, 2.0, (2, 5, 3)))
    target = torch.from_numpy(y.astype(float))
    loss = row_loss(name, logits, target, 4)
    expected = reference_loss(name, logits.detach().numpy().reshape(2, 5, 3, 4), np.broadcast_to(y, (2, 5, 3)))
    np.testing.assert_allclose(loss.detach().numpy(), expected, rtol=1e-12)
    (loss * weight).sum().backward()
    derivative = row_derivative(name, logits.detach(), target, weight, 4)
    np.testing.assert_allclose(derivative.numpy(), logits.grad.numpy(), atol=1e-14)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_cross_entropy_of_confident_rows_keeps_its_digits(y):
    # log(1 + e^−|o|) is about e^−|o|, never 0: the L-BFGS line search and validation losses compare such values.
    size = np.array([15.0, 20.5, 25.0, 30.0])
    one = one_logit("cross_entropy", torch.from_numpy(size * (2 * y - 1)), y)[0]
    np.testing.assert_allclose(one, np.log1p(np.exp(-size)), rtol=1e-8)
    several = torch.from_numpy(np.column_stack([size, 0 * size, 0 * size + 1]))[None]
    loss = row_loss("cross_entropy", several, torch.zeros(1, 4, 1, dtype=torch.float64), 3)
    np.testing.assert_allclose(loss[0, :, 0], np.log1p(np.exp(-size) + np.exp(1.0 - size)), rtol=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BINARY)
def test_extreme_logits_stay_finite(name, dtype):
    logits = torch.tensor([-1e30, -1e4, -800.0, -89.0, 89.0, 800.0, 1e4, 1e30], dtype=dtype)
    for y in (0.0, 1.0):
        value, derivative = one_logit(name, logits, y)
        wrong = (logits < 0) == bool(y)
        assert torch.isfinite(value).all()
        assert (value[wrong] >= 3.9).all()
        assert ((value[~wrong] >= 0) & (value[~wrong] <= 1e-30)).all()
        assert (derivative.abs() <= 8.0 / 4).all()  # not for NaN


# -- stacks ------------------------------------------------------------------------------------------------------------

HIDDEN = {"depth 0": (), "width 1": (1,), "depth 1": (5,), "depth 2": (3, 2), "depth 4": (2, 3, 2, 4)}
N_FEATURES, N_ROWS, N_GROUPS, N_MODELS = 3, 7, 2, 3


def make(hidden, activation, loss):
    """A stack of random networks, the same networks as plain arrays, and a batch."""
    rng = np.random.default_rng(0)
    stack = Stack(N_GROUPS, N_MODELS, N_FEATURES, hidden, activation, loss, torch.float64, torch.device("cpu"))
    networks, sizes = {}, (N_FEATURES, *hidden, 1)
    for group, model in np.ndindex(N_GROUPS, N_MODELS):
        weights, biases = [rng.normal(size=pair) for pair in pairwise(sizes)], [rng.normal(size=k) for k in sizes[1:]]
        networks[group, model] = weights, biases
    for (group, model), own in networks.items():
        for part, new in zip(chain(*stack.layers(stack.flat)), chain(*own), strict=True):
            part[group, model] = torch.from_numpy(new)
    x = torch.ones(N_GROUPS, N_ROWS, N_FEATURES + 1, dtype=torch.float64)
    x[..., :-1] = torch.from_numpy(rng.normal(size=(N_GROUPS, N_ROWS, N_FEATURES)))
    y = torch.from_numpy((rng.random((N_GROUPS, N_ROWS, 1)) < 0.4).astype(float))
    weight = torch.from_numpy(rng.exponential(size=(N_GROUPS, N_ROWS, N_MODELS)))
    return stack, networks, x, y, weight


def reference(networks, x, y, weight, activation, loss):
    """One network at a time through autograd."""
    answers = {}
    for (group, model), (weights, biases) in networks.items():
        parameters = [torch.from_numpy(p.copy()).requires_grad_() for p in (*weights, *biases)]
        depth = len(weights)
        logits = torch_logits(x[group, :, :-1], parameters[:depth], parameters[depth:], activation)
        value = (weight[group, :, model] * torch_row_loss(loss, logits, y[group, :, 0])).sum()
        value.backward()
        grads = [p.grad.numpy() for p in parameters]
        answers[group, model] = value.item(), logits.detach().numpy(), grads[:depth], grads[depth:]
    return answers


def check_against(stack, loss_values, logits, answers, *, times=1):
    for group, model, weight_grads, bias_grads in networks_of(stack, stack.grad):
        value, row_logits, expected_weights, expected_biases = answers[group, model]
        np.testing.assert_allclose(loss_values[group, model].item(), value, rtol=1e-10)
        np.testing.assert_allclose(logits[group, :, model].numpy(), row_logits, rtol=1e-10, atol=1e-12)
        for got, expected in zip((*weight_grads, *bias_grads), (*expected_weights, *expected_biases), strict=True):
            np.testing.assert_allclose(got, times * expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("loss", BINARY)
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN.keys())
def test_loss_and_gradient_match_autograd_on_each_network(hidden, activation, loss):
    stack, networks, x, y, weight = make(hidden, activation, loss)
    logits = stack.logits(x).clone()
    values = stack.loss_and_gradient(x, y, weight)
    check_against(stack, values, logits, reference(networks, x, y, weight, activation, loss))


@pytest.mark.parametrize("activation", ["tanh", "gelu"])
@pytest.mark.parametrize("n_outputs", [1, 3])
@pytest.mark.parametrize("hidden", [(), (4,), (3, 2)], ids=len)
def test_gradient_with_column_scales_is_that_of_central_differences(hidden, n_outputs, activation):
    rng = np.random.default_rng(3)
    how = activation, "cross_entropy", torch.float64, torch.device("cpu")
    stack = Stack(2, 2, N_FEATURES, hidden, *how, scaled=True, n_outputs=n_outputs)
    stack.flat.copy_(torch.from_numpy(rng.normal(0.0, 0.5, stack.flat.numel())))
    x = torch.from_numpy(np.concatenate([rng.normal(size=(2, 6, N_FEATURES)), np.ones((2, 6, 1))], axis=2))
    y = torch.from_numpy(rng.integers(0, max(2, n_outputs), (2, 6, 1)).astype(float))
    weight = torch.from_numpy(rng.uniform(0.1, 1.0, (2, 6, 2)))
    stack.loss_and_gradient(x, y, weight)
    found, start, step = stack.grad.clone(), stack.flat.clone(), 1e-5
    for i in range(stack.flat.numel()):
        losses = []
        for sign in (1.0, -1.0):
            stack.flat[i] = start[i] + sign * step
            losses.append(float((weight * stack.row_loss(stack.logits(x), y)).sum()))
        stack.flat[i] = start[i]
        assert (losses[0] - losses[1]) / (2 * step) == pytest.approx(float(found[i]), abs=1e-7)


@pytest.mark.parametrize(
    ("name", "activation"), [("depth 0", "tanh"), ("depth 1", "tanh"), ("depth 2", "relu"), ("depth 4", "silu")]
)
def test_gradient_forgets_what_was_there_and_adds_up_over_batches_of_different_length(name, activation):
    stack, networks, x, y, weight = make(HIDDEN[name], activation, "cross_entropy")
    expected, logits = reference(networks, x, y, weight, activation, "cross_entropy"), stack.logits(x).clone()
    for before in (1e6, np.nan, np.inf):
        stack.grad.fill_(before)
        values = stack.loss_and_gradient(x[:, :5], y[:, :5], weight[:, :5])
        values = values + stack.loss_and_gradient(x[:, 5:], y[:, 5:], weight[:, 5:], add=True)
        check_against(stack, values, logits, expected)
    stack.loss_and_gradient(x, y, weight, add=True)
    check_against(stack, values, logits, expected, times=2)


def networks(hidden, activation, n_features=7, members=3, encoding="steps"):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(700, n_features))
    layout = column_layout(X, encoding, 12)
    fitted = fit_encoding(encoding, layout, X, X[:, 0] > 1, np.ones(len(X)))
    sizes = (fitted.size, *hidden, 1)
    weights = [rng.normal(size=(members, a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
    biases = [rng.normal(size=(members, b)) for b in sizes[1:]]
    return X, NetworkGroup(fitted, tuple(weights), tuple(biases), activation)


def by_torch(X, network):
    """The same with torch, in float64."""
    h, weights, biases = torch.from_numpy(network.encoding(X)), network.weights, network.biases
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        h = TORCH_ACTIVATIONS[network.activation](h @ torch.from_numpy(weight) + torch.from_numpy(bias)[:, None])
    return (h @ torch.from_numpy(weights[-1]) + torch.from_numpy(biases[-1])[:, None])[..., 0].numpy()


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (1,), (33,), (64, 32)])
def test_logits_are_torchs(hidden, activation):
    X, network = networks(hidden, activation)
    expected = by_torch(X, network)
    np.testing.assert_allclose(network.outputs(X), expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max())


def test_an_unknown_activation_is_an_error_and_overflow_is_infinite():
    X, network = networks((4,), "swish", encoding="standard")
    with pytest.raises(ValueError, match=r"'relu', 'tanh'.*'swish'"):
        network.outputs(X)
    huge = replace(network, weights=tuple(1e200 * weight for weight in network.weights), activation="relu")
    assert not np.isfinite(huge.outputs(X)).all()


# Wider than what one product adds up, than what BLAS takes one thread for, and a single output of many inputs.
@pytest.mark.parametrize(
    ("hidden", "n_features", "encoding"),
    [
        ((64, 32), 30, "steps"),
        ((100,), 30, "standard"),
        ((5,), 700, "standard"),
        ((600, 700), 9, "standard"),
        ((), 600, "robust"),
    ],
)
def test_a_row_has_the_same_bits_in_any_batch(hidden, n_features, encoding):
    X, network = networks(hidden, "relu", n_features, encoding=encoding)
    together = network.outputs(X)
    order = np.random.default_rng(1).permutation(len(X))
    np.testing.assert_array_equal(network.outputs(X[order]), together[:, order])
    np.testing.assert_array_equal(network.outputs(np.asfortranarray(X)), together)
    for size in (1, 2, 15, 16, 17, 333):
        rows = slice(5, 5 + size)
        np.testing.assert_array_equal(network.outputs(X[rows]), together[:, rows])
    own = tuple(w[1] for w in network.weights), tuple(b[1] for b in network.biases)
    alone = Network(network.encoding, *own, "relu")
    np.testing.assert_array_equal(alone.logits(X), together[1])
    several = replace(
        alone,
        weights=(*alone.weights[:-1], alone.weights[-1] @ np.ones((1, 4))),
        biases=(*alone.biases[:-1], np.arange(4.0)),
    )
    np.testing.assert_array_equal(np.vstack([several.logits(X[i : i + 1]) for i in range(9)]), several.logits(X)[:9])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A saved model, rows, and its probabilities."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 6))
    model = CRCENClassifier(max_epochs=3, random_state=0).fit(X, X[:, 0] + rng.normal(size=400) > 1)
    save(model, folder / "model.crcen")
    np.save(folder / "X.npy", X)
    np.save(folder / "p.npy", model.predict_proba(X))
    return folder


PREDICT = """
import sys
import numpy as np
import crcen
folder = sys.argv[1]
model = crcen.load(f"{folder}/model.crcen")
X, expected = np.load(f"{folder}/X.npy"), np.load(f"{folder}/p.npy")
def answer(_):
    return model.predict_proba(np.tile(X, (50, 1)))[: len(X)]
"""


WITHOUT_TORCH = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
sys.meta_path.insert(0, Blocked())
"""

LEAN = """
import crcen.commands.environment
from crcen.exceptions import MissingExtra
table = crcen.load(f"{folder}/table.crcen")
print(len(table.predict({"amount": 1.5, "country": "NL"})), len(table.predict_proba([{"amount": 2, "country": "NO"}])))
crcen.predict_table(f"{folder}/table.crcen", f"{folder}/new.csv", out=f"{folder}/scored.csv")
print(crcen.commands.environment.environment_info().device)
for fit in (
    lambda: crcen.CRCENClassifier().fit(X, X[:, 0] > 0),
    lambda: crcen.CRCENClassifierCV().fit(X, X[:, 0] > 0),
    lambda: crcen.CRCENClassifier().partial_fit(X, X[:, 0] > 0, classes=[False, True]),
):
    try:
        fit()
    except MissingExtra as error:
        print(error)
"""


def test_an_installation_without_torch_predicts_the_same_bits_and_says_what_fits_need(files):
    frame = pd.DataFrame({"amount": np.arange(60) % 7 + 0.5, "country": ["NL", "NO", "DE"] * 20})
    table = TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(frame, np.arange(60) % 4 == 0)
    save(table, files / "table.crcen")
    frame.to_csv(files / "new.csv", index=False)
    code = WITHOUT_TORCH + PREDICT + "assert (model.predict_proba(X) == expected).all()\n" + LEAN
    lines = run_python("-c", code, files, OMP_NUM_THREADS="8", OPENBLAS_NUM_THREADS="8").splitlines()
    assert (lines[0], len(pd.read_csv(files / "scored.csv"))) == ("1 1", 60)
    assert "torch is not installed" in lines[1]
    assert len(lines[2:]) == 3
    assert all("crcen[train]" in line for line in lines[2:])


FORK = """
import multiprocessing
if __name__ == "__main__":
    np.ones((1500, 1500)) @ np.ones((1500, 1500))  # BLAS has threads now
    answer(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for p in pool.map_async(answer, range(2)).get(timeout=60):
            assert (p == expected).all()
    print("answered")
"""


FIT = """
import torch
torch.set_num_threads(2)
torch.ones(1500, 1500) @ torch.ones(1500, 1500)  # torch has threads now
fit = np.tile(X, (5, 1)), np.tile(X[:, 0] > 1, 5)
"""
LOADED = "assert (model.predict_proba(X) == expected).all()\nassert 'torch' not in sys.modules\n"
NETWORKS = FIT + "model = crcen.CRCENClassifier(max_epochs=2, random_state=0).fit(*fit)\nexpected = answer(0)\n"
MODULE = f"""{FIT}
layers = torch.nn.Linear(6, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)
model = crcen.ModuleClassifier(torch.nn.Sequential(*layers), max_epochs=2, random_state=0).fit(*fit)
expected = answer(0)
"""


@pytest.mark.parametrize("model", [LOADED, NETWORKS, MODULE], ids=["loaded without torch", "networks", "module"])
def test_a_forked_process_predicts_the_same_bits(files, model):
    """As with ``gunicorn --preload``: a forked process has none of its parent's threads."""
    code = PREDICT + model + FORK
    assert run_python("-c", code, files, OMP_NUM_THREADS="2", OPENBLAS_NUM_THREADS="2") == "answered\n"
