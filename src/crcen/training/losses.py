"""The two training losses, per row and per model, from logits.

The objective of every network, stated once for all solvers::

    Σ wᵢ ℓ(oᵢ, yᵢ) / Σ wᵢ  +  ½ · l2 · ‖W‖²        wᵢ = sᵢ · (λ for a positive, 1−λ for a negative row)

with o the output logit, q = σ(o), sᵢ the sample weight and W all weights without any bias. A loss gives the row
value ℓ and its derivative ∂ℓ/∂o; the weights are applied by the stack. Of the two only cross entropy has ∂ℓ/∂o = q − y,
so that a stationary output bias implies the key equation.

These are functions of a name, not a table of functions: TorchScript compiles them (see `solvers.compiled`).
"""

import torch
from torch import Tensor
from torch.nn.functional import softplus

from crcen.training.names import LOSSES

__all__ = ["LOSSES", "row_derivative", "row_loss"]


def row_loss(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """ℓ of every logit."""
    if name == "cross_entropy":
        # For y in {0, 1}; softplus(o) − o would cancel for confident right rows: torch's softplus is linear past 20.
        return softplus((1.0 - 2.0 * y) * logits)
    if name == "squared_error":
        # CSMLP: output tanh(o/2) = 2q − 1 on targets ±1 = 2y − 1, so the square is 4 (y − q)².
        return 4.0 * (y - torch.sigmoid(logits)) ** 2
    raise ValueError("no such loss: " + name)


def row_derivative(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """∂ℓ/∂o of every logit."""
    if name == "cross_entropy":
        return torch.sigmoid(logits).sub_(y)
    if name == "squared_error":
        q = torch.sigmoid(logits)
        return -8.0 * (y - q) * q * (1.0 - q)
    raise ValueError("no such loss: " + name)
