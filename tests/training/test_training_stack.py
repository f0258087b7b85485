from itertools import pairwise

import numpy as np
import pytest
import torch
from training_reference import ACTIVATION_NAMES, initial_parameters, networks_of, torch_logits, torch_row_loss

from crcen.training.stack import Stack

LOSSES = ("cross_entropy", "squared_error")
HIDDEN = {"depth 0": (), "width 1": (1,), "depth 1": (5,), "depth 2": (3, 2), "depth 4": (2, 3, 2, 4)}
N_FEATURES, N_ROWS, N_GROUPS, N_MODELS = 3, 7, 2, 3


def make(hidden, activation, loss, *, n_groups=N_GROUPS, seed=0):
    """A stack of random networks, the same networks as plain arrays, and a batch."""
    rng = np.random.default_rng(seed)
    stack = Stack(n_groups, N_MODELS, N_FEATURES, hidden, activation, loss, torch.float64, torch.device("cpu"))
    networks = {}
    for group in range(n_groups):
        for model in range(N_MODELS):
            sizes = (N_FEATURES, *hidden, 1)
            weights = [rng.normal(size=pair) for pair in pairwise(sizes)]
            biases = [rng.normal(size=size) for size in sizes[1:]]
            stack.set_network(group, model, weights, biases)
            networks[group, model] = weights, biases
    x = torch.ones(n_groups, N_ROWS, N_FEATURES + 1, dtype=torch.float64)
    x[..., :-1] = torch.from_numpy(rng.normal(size=(n_groups, N_ROWS, N_FEATURES)))
    y = torch.from_numpy((rng.random((n_groups, N_ROWS, 1)) < 0.4).astype(float))
    weight = torch.from_numpy(rng.exponential(size=(n_groups, N_ROWS, N_MODELS)))
    return stack, networks, x, y, weight


def reference(networks, x, y, weight, activation, loss):
    """One network at a time through autograd."""
    answers = {}
    for (group, model), (weights, biases) in networks.items():
        parameters = [torch.from_numpy(p.copy()).requires_grad_() for p in (*weights, *biases)]
        depth = len(weights)
        logits = torch_logits(x[group, :, :-1], parameters[:depth], parameters[depth:], activation)
        value = (weight[group, :, model] * torch_row_loss(loss, logits, y[group if len(y) > 1 else 0, :, 0])).sum()
        value.backward()
        grads = [p.grad.numpy() for p in parameters]
        answers[group, model] = value.item(), logits.detach().numpy(), grads[:depth], grads[depth:]
    return answers


def check_against(stack, loss_values, logits, answers, *, times=1):
    seen = 0
    for group, model, weight_grads, bias_grads in networks_of(stack, stack.grad):
        value, row_logits, expected_weights, expected_biases = answers[group, model]
        np.testing.assert_allclose(loss_values[group, model].item(), value, rtol=1e-10)
        np.testing.assert_allclose(logits[group, :, model].numpy(), row_logits, rtol=1e-10, atol=1e-12)
        for got, expected in zip((*weight_grads, *bias_grads), (*expected_weights, *expected_biases), strict=True):
            np.testing.assert_allclose(got, times * expected, rtol=1e-10, atol=1e-12)
        seen += 1
    assert seen == len(answers)


@pytest.mark.parametrize("loss", sorted(LOSSES))
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


@pytest.mark.parametrize("activation", ["relu", "silu"])
def test_gradient_adds_up_over_batches_of_different_length(activation):
    stack, networks, x, y, weight = make(HIDDEN["depth 2"], activation, "cross_entropy")
    logits = stack.logits(x).clone()
    values = stack.loss_and_gradient(x[:, :5], y[:, :5], weight[:, :5])
    values = values + stack.loss_and_gradient(x[:, 5:], y[:, 5:], weight[:, 5:], add=True)
    check_against(stack, values, logits, reference(networks, x, y, weight, activation, "cross_entropy"))
    stack.loss_and_gradient(x, y, weight, add=True)
    check_against(stack, values, logits, reference(networks, x, y, weight, activation, "cross_entropy"), times=2)


@pytest.mark.parametrize("name", ["depth 0", "depth 1", "depth 4"])
def test_gradient_forgets_what_was_there(name):
    stack, networks, x, y, weight = make(HIDDEN[name], "tanh", "cross_entropy")
    logits = stack.logits(x).clone()
    expected = reference(networks, x, y, weight, "tanh", "cross_entropy")
    for before in (1e6, np.nan, np.inf):
        stack.grad.fill_(before)
        check_against(stack, stack.loss_and_gradient(x, y, weight), logits, expected)
    whole = stack.grad.clone()
    stack.grad.fill_(np.nan)
    np.testing.assert_array_equal(stack.gradient(x, y, weight).numpy(), logits.numpy())
    np.testing.assert_array_equal(stack.grad.numpy(), whole.numpy())


@pytest.mark.parametrize("hidden", HIDDEN.values(), ids=HIDDEN.keys())
def test_initial_networks_depend_on_their_own_seed_alone(hidden):
    stack = Stack(2, N_MODELS, N_FEATURES, hidden, "sigmoid", "cross_entropy", torch.float64, torch.device("cpu"))
    seeds = torch.tensor([[7 * model + 1000003 * group for model in range(N_MODELS)] for group in range(2)])
    bias = torch.arange(2.0 * N_MODELS, dtype=torch.float64).view(2, -1)
    stack.initialise(seeds, bias)
    for group, model, weights, biases in networks_of(stack, stack.flat):
        expected = initial_parameters(N_FEATURES, hidden, "sigmoid", int(seeds[group, model]))
        expected[1][-1][:] = bias[group, model].item()
        for got, want in zip((*weights, *biases), (*expected[0], *expected[1]), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-15)
