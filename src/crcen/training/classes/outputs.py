"""The output layer of networks with K outputs, forward and backward.

Compiled by TorchScript as a part of `crcen.training.passes`. A stack keeps the logits of a group's M networks side by
side, (G, B, M·C), so that the first layer of networks without hidden units and the joint output layer are what they
are for one logit.

Shape letters: G groups, M networks of a group, K networks of a block, B rows of a batch, H hidden units, C outputs.
"""

import torch
from torch import Tensor

__all__ = ["class_output", "class_output_gradient"]


def class_output(units: Tensor, out_weight: Tensor) -> Tensor:
    """Last hidden units (G, K, B, H) times weights (G, K, H, C) → (G, B, K·C)."""
    out = torch.matmul(units, out_weight).transpose(1, 2)
    return out.reshape(out.size(0), out.size(1), -1)


def class_output_gradient(error: Tensor, units: Tensor, out_weight: Tensor, out_grad: Tensor) -> Tensor:
    """Add the gradient of the weights to ``out_grad``; return that of the units, (G, K, B, H).

    Shape
    -----
    error (G, B, K·C); units (G, K, B, H); out_weight, out_grad (G, K, H, C).
    """
    n_groups, size, _, n_outputs = out_weight.size()
    own = error.reshape(n_groups, error.size(1), size, n_outputs).transpose(1, 2)  # (G, K, B, C)
    out_grad.add_(torch.matmul(units.transpose(2, 3), own))
    return torch.matmul(own, out_weight.transpose(2, 3))
