import numpy as np
import pytest
import torch
from training_reference import ACTIVATION_NAMES, TORCH_ACTIVATIONS

from crcen.training.activations import (
    ACTIVATIONS,
    activate_in_place,
    before_activation,
    gain,
    may_write_over,
)
from crcen.training.losses import LOSSES, row_derivative, row_loss

LOGITS = torch.cat([torch.linspace(-12.0, 12.0, 97, dtype=torch.float64), torch.tensor([-0.5, 0.0, 1e-3]).double()])


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_derivative_matches_finite_differences(name, y):
    target, step = torch.full_like(LOGITS, y), 1e-5
    numeric = (row_loss(name, LOGITS + step, target) - row_loss(name, LOGITS - step, target)) / (2 * step)
    torch.testing.assert_close(row_derivative(name, LOGITS, target), numeric, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("y", [0.0, 1.0])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_derivative_matches_autograd_of_the_value(name, y):
    logits, target = LOGITS.clone().requires_grad_(), torch.full_like(LOGITS, y)
    row_loss(name, logits, target).sum().backward()
    torch.testing.assert_close(row_derivative(name, LOGITS, target), logits.grad, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_cross_entropy_is_torchs_binary_cross_entropy(y):
    target = torch.full_like(LOGITS, y)
    expected = torch.nn.functional.binary_cross_entropy_with_logits(LOGITS, target, reduction="none")
    torch.testing.assert_close(row_loss("cross_entropy", LOGITS, target), expected, rtol=1e-9, atol=1e-14)


@pytest.mark.parametrize("magnitude", [15.0, 20.5, 25.0, 30.0])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_cross_entropy_of_confident_right_rows_keeps_its_digits(y, magnitude):
    # log(1 + e^−|o|) is about e^−|o|, never 0: the L-BFGS line search and validation losses compare such values.
    logits = torch.tensor([magnitude if y else -magnitude], dtype=torch.float64)
    got = row_loss("cross_entropy", logits, torch.full_like(logits, y))
    np.testing.assert_allclose(got.numpy(), np.log1p(np.exp(-magnitude)), rtol=1e-8)


@pytest.mark.parametrize("y", [0.0, 1.0])
def test_squared_error_is_that_of_tanh_on_plus_minus_one(y):
    target = torch.full_like(LOGITS, y)
    expected = (torch.tanh(LOGITS / 2) - (2 * y - 1)) ** 2
    torch.testing.assert_close(row_loss("squared_error", LOGITS, target), expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_extreme_logits_stay_finite(name, dtype):
    logits = torch.tensor([-1e30, -1e4, -800.0, -89.0, 89.0, 800.0, 1e4, 1e30], dtype=dtype)
    for y in (0.0, 1.0):
        target = torch.full_like(logits, y)
        value, derivative = row_loss(name, logits, target), row_derivative(name, logits, target)
        assert torch.isfinite(value).all()
        assert torch.isfinite(derivative).all()
        assert (value >= 0).all()
        wrong = (logits < 0) == bool(y)
        assert (value[wrong] >= 3.9).all()
        assert (value[~wrong] <= 1e-30).all()
        assert (derivative.abs() <= 8.0 / 4).all()


def test_only_cross_entropy_implies_the_key_equation():
    # Stationarity of the output bias is Σ w ∂ℓ/∂o = 0, which is Σ w (q − y) = 0 exactly when ∂ℓ/∂o ∝ q − y.
    for name in LOSSES:
        ratios = []
        for y in (0.0, 1.0):
            target = torch.full_like(LOGITS, y)
            ratios.append(row_derivative(name, LOGITS, target) / (torch.sigmoid(LOGITS) - target))
        ratio = torch.cat(ratios)
        assert (name == "cross_entropy") == bool((ratio.max() - ratio.min()) < 1e-8), name


@pytest.mark.parametrize("name", ACTIVATION_NAMES)
def test_activation_forward_and_backward_match_autograd(name):
    pre = torch.linspace(-6, 6, 50, dtype=torch.float64).requires_grad_()
    upstream = torch.linspace(-2, 3, 50, dtype=torch.float64)
    expected = TORCH_ACTIVATIONS[name](pre)
    (expected * upstream).sum().backward()
    plain = pre.detach()
    written = plain.clone()
    torch.testing.assert_close(activate_in_place(name, written), expected.detach(), rtol=1e-12, atol=1e-14)
    kept = expected.detach() if may_write_over(name) else plain
    torch.testing.assert_close(written, kept, rtol=1e-12, atol=1e-14)
    before_activation(name, upstream, written)
    torch.testing.assert_close(upstream, pre.grad, rtol=1e-10, atol=1e-14)


def test_every_activation_is_covered_here():
    assert set(ACTIVATIONS) == set(ACTIVATION_NAMES)


def test_names_that_are_not_listed_are_errors():
    values = torch.zeros(3)
    for call in (
        lambda: row_loss("hinge", values, values),
        lambda: row_derivative("hinge", values, values),
        lambda: activate_in_place("swish", values),
        lambda: before_activation("swish", values, values),
        lambda: gain("swish"),
    ):
        with pytest.raises(ValueError, match="no such"):
            call()
