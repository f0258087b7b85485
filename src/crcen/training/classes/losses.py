"""The losses of K classes, per row and per model, from K logits.

The objective is that of `crcen.training.losses` with wᵢ = sᵢ · (the weight of the row's class). Cross entropy has
∂ℓ/∂o_k = q_k − 1{y=k}, with q the softmax, so that stationary output biases imply the key equations. For two classes it
and the squared error equal the losses of one logit.

One against all is the sum of K binary cross entropies of sigmoids, each class against all others by the same row
weights. Its derivative has the same form with q_k the sigmoid, so that each class has the binary key equation by
itself: the "deterministic" case of Li, Li, Pan and Zhu (2020). Its best sigmoids are the weighted posterior, too.

These are functions of a name, not a table of functions: TorchScript compiles them (see `solvers.compiled`).

Shape letters: G groups, B rows of a batch, M networks of a group, C classes.
"""

import torch
from torch import Tensor

__all__ = ["class_row_derivative", "class_row_loss", "class_row_weights"]


def _is_own(logits: Tensor, y: Tensor) -> Tensor:
    """Which output is the row's class: y (G or 1, B, 1) class numbers → (G or 1, B, 1, C) bool."""
    return y.unsqueeze(3) == torch.arange(logits.size(3), dtype=y.dtype, device=y.device)


def class_row_loss(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """ℓ of every row and network: logits (G, B, M, C), y (G or 1, B, 1) → (G, B, M)."""
    own = _is_own(logits, y)
    if name == "cross_entropy":
        # The sum over the other classes keeps its digits where the own class has nearly all probability.
        others = (logits - (logits * own).sum(3, keepdim=True)).masked_fill(own, float("-inf"))
        return torch.nn.functional.softplus(others.logsumexp(3))
    if name == "squared_error":
        return 2.0 * ((own.to(logits.dtype) - logits.softmax(3)) ** 2).sum(3)
    if name == "one_against_all":
        return torch.nn.functional.softplus((1.0 - 2.0 * own.to(logits.dtype)) * logits).sum(3)
    raise ValueError("no such loss: " + name)


def class_row_derivative(name: str, logits: Tensor, y: Tensor) -> Tensor:
    """∂ℓ/∂o of every logit, (G, B, M, C)."""
    own = _is_own(logits, y).to(logits.dtype)
    if name == "one_against_all":
        return torch.sigmoid(logits).sub_(own)
    q = logits.softmax(3)
    if name == "cross_entropy":
        return q.sub_(own)
    if name == "squared_error":
        error = q - own
        return 4.0 * q * (error - (error * q).sum(3, keepdim=True))
    raise ValueError("no such loss: " + name)


def class_row_weights(by_class: Tensor, y: Tensor, base: Tensor) -> Tensor:
    """What rows weigh: weights (G, C, M), y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
    places = y.long().expand(by_class.size(0), y.size(1), by_class.size(2))
    return by_class.gather(1, places).mul_(base)
