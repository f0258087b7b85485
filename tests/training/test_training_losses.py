"""Losses of one and of several outputs, and activations, against formulas and autograd."""

import numpy as np
import pytest
import torch
from scipy.special import log_expit, log_softmax, softmax
from training_reference import ACTIVATION_NAMES, TORCH_ACTIVATIONS

from crcen.training.passes import activate_in_place, before_activation, is_in_place, row_derivative, row_loss
from crcen.training.recipe import LOSSES

LOGITS = torch.cat([torch.linspace(-12.0, 12.0, 97, dtype=torch.float64), torch.tensor([-0.5, 0.0, 1e-3]).double()])
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


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_losses_of_one_logit_equal_their_formulas(y):
    target = torch.full_like(LOGITS, y)
    cross_entropy = torch.nn.functional.binary_cross_entropy_with_logits(LOGITS, target, reduction="none")
    torch.testing.assert_close(one_logit("cross_entropy", LOGITS, y)[0], cross_entropy, rtol=1e-9, atol=1e-14)
    squared_error = (torch.tanh(LOGITS / 2) - (2 * y - 1)) ** 2  # CSMLP's output on targets ±1
    torch.testing.assert_close(one_logit("squared_error", LOGITS, y)[0], squared_error, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("name", BINARY)
def test_derivative_of_one_logit_matches_autograd(name, y):
    logits = LOGITS.clone().requires_grad_()
    loss, derivative = one_logit(name, logits, y)
    loss.sum().backward()
    torch.testing.assert_close(derivative.detach(), logits.grad, rtol=1e-10, atol=1e-14)


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


@pytest.mark.parametrize("name", BINARY)
def test_two_outputs_have_the_loss_of_their_difference(name):
    rng = np.random.default_rng(2)
    logits, y = torch.from_numpy(rng.normal(0.0, 3.0, (1, 7, 2))), torch.from_numpy(rng.integers(0, 2, (1, 7, 1)))
    one, target, weight = logits[..., 1:] - logits[..., :1], y.double(), torch.ones(1, 7, 1, dtype=torch.float64)
    torch.testing.assert_close(row_loss(name, logits, target, 2), row_loss(name, one, target, 1))
    derivative = row_derivative(name, logits, target, weight, 2)
    torch.testing.assert_close(derivative[..., 1:], row_derivative(name, one, target, weight, 1))
    torch.testing.assert_close(derivative.sum(2), torch.zeros(1, 7, dtype=torch.float64))


@pytest.mark.parametrize("magnitude", [15.0, 20.5, 25.0, 30.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_cross_entropy_of_confident_rows_keeps_its_digits(y, magnitude):
    # log(1 + e^−|o|) is about e^−|o|, never 0: the L-BFGS line search and validation losses compare such values.
    logits = torch.tensor([magnitude if y else -magnitude], dtype=torch.float64)
    np.testing.assert_allclose(one_logit("cross_entropy", logits, y)[0], np.log1p(np.exp(-magnitude)), rtol=1e-8)
    several = torch.tensor([[[magnitude, 0.0, 1.0]]], dtype=torch.float64)
    loss = row_loss("cross_entropy", several, torch.zeros(1, 1, 1, dtype=torch.float64), 3)
    assert float(loss) == pytest.approx(np.log1p(np.exp(-magnitude) + np.exp(1.0 - magnitude)), rel=1e-8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", BINARY)
def test_extreme_logits_stay_finite(name, dtype):
    logits = torch.tensor([-1e30, -1e4, -800.0, -89.0, 89.0, 800.0, 1e4, 1e30], dtype=dtype)
    for y in (0.0, 1.0):
        value, derivative = one_logit(name, logits, y)
        assert torch.isfinite(value).all()
        assert torch.isfinite(derivative).all()
        wrong = (logits < 0) == bool(y)
        assert (value[wrong] >= 3.9).all()
        assert ((value[~wrong] >= 0) & (value[~wrong] <= 1e-30)).all()
        assert (derivative.abs() <= 8.0 / 4).all()


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_activation_forward_and_backward_match_autograd(name):
    pre = torch.linspace(-6, 6, 50, dtype=torch.float64).requires_grad_()
    upstream = torch.linspace(-2, 3, 50, dtype=torch.float64)
    expected = TORCH_ACTIVATIONS[name](pre)
    (expected * upstream).sum().backward()
    plain = pre.detach()
    written = plain.clone()
    torch.testing.assert_close(activate_in_place(name, written), expected.detach(), rtol=1e-12, atol=1e-14)
    kept = expected.detach() if is_in_place(name) else plain
    torch.testing.assert_close(written, kept, rtol=1e-12, atol=1e-14)
    before_activation(name, upstream, written)
    torch.testing.assert_close(upstream, pre.grad, rtol=1e-10, atol=1e-14)
