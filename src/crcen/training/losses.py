"""The two training losses, per row and per model, from logits.

The objective of every network, stated once for all solvers::

    Σ wᵢ ℓ(oᵢ, yᵢ) / Σ wᵢ  +  ½ · l2 · ‖W‖²        wᵢ = sᵢ · (λ for a positive, 1−λ for a negative row)

with o the output logit, q = σ(o), sᵢ the sample weight and W all weights without any bias. A loss gives the row
value ℓ and its derivative ∂ℓ/∂o; the weights are applied by the stack.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import softplus

__all__ = ["LOSSES", "Loss"]


@dataclass(frozen=True)
class Loss:
    """A pointwise loss on logits.

    Parameters
    ----------
    value
        ``value(logits, y)`` → row losses, same shape as ``logits``.
    derivative
        ``derivative(logits, y)`` → ∂ℓ/∂o, same shape.
    is_balanced_at_optimum
        Whether a stationary output bias implies the key equation Σ w (y − q) = 0.
    """

    value: Callable[[Tensor, Tensor], Tensor]
    derivative: Callable[[Tensor, Tensor], Tensor]
    is_balanced_at_optimum: bool


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    # For y in {0, 1}; softplus(o) − o would cancel for confident right rows, and torch's softplus is linear past 20.
    return softplus((1.0 - 2.0 * y) * logits)


def _cross_entropy_derivative(logits: Tensor, y: Tensor) -> Tensor:
    return torch.sigmoid(logits).sub_(y)


def _squared_error(logits: Tensor, y: Tensor) -> Tensor:
    # CSMLP: output tanh(o/2) = 2q − 1 on targets ±1 = 2y − 1, so the square is 4 (y − q)².
    return 4.0 * (y - torch.sigmoid(logits)) ** 2


def _squared_error_derivative(logits: Tensor, y: Tensor) -> Tensor:
    q = torch.sigmoid(logits)
    return -8.0 * (y - q) * q * (1.0 - q)


LOSSES: dict[str, Loss] = {
    "cross_entropy": Loss(_cross_entropy, _cross_entropy_derivative, is_balanced_at_optimum=True),
    "squared_error": Loss(_squared_error, _squared_error_derivative, is_balanced_at_optimum=False),
}
