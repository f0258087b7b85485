"""Hidden activations with the derivative that the stack's backward pass needs."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["ACTIVATIONS", "Activation"]

_aten = torch.ops.aten


@dataclass(frozen=True)
class Activation:
    """A hidden activation.

    Parameters
    ----------
    forward
        Pre-activations → activations.
    forward_in_place
        The same, allowed to overwrite its argument; ``None`` where the backward pass needs the pre-activations.
    backward
        ``backward(grad, saved)`` → gradient before the activation, written into ``grad``; ``saved`` is the
        activation, or the pre-activation where ``forward_in_place`` is ``None``.
    gain
        Numerator of the uniform initialisation bound sqrt(gain / (fan_in + fan_out)).
    """

    forward: Callable[[Tensor], Tensor]
    forward_in_place: Callable[[Tensor], Tensor] | None
    backward: Callable[[Tensor, Tensor], Tensor]
    gain: float = 6.0


ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(
        torch.relu, torch.relu_, lambda grad, out: _aten.threshold_backward.grad_input(grad, out, 0, grad_input=grad)
    ),
    "tanh": Activation(
        torch.tanh, torch.tanh_, lambda grad, out: _aten.tanh_backward.grad_input(grad, out, grad_input=grad)
    ),
    "sigmoid": Activation(
        torch.sigmoid,
        torch.sigmoid_,
        lambda grad, out: _aten.sigmoid_backward.grad_input(grad, out, grad_input=grad),
        gain=24.0,
    ),
    "gelu": Activation(
        torch.nn.functional.gelu, None, lambda grad, pre: _aten.gelu_backward.grad_input(grad, pre, grad_input=grad)
    ),
    "silu": Activation(
        torch.nn.functional.silu, None, lambda grad, pre: _aten.silu_backward.grad_input(grad, pre, grad_input=grad)
    ),
}
