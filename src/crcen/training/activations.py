"""Hidden activations with the derivative that the backward pass of a stack needs.

These are functions of a name, not a table of functions: TorchScript compiles them (see `solvers.compiled`).
"""

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from crcen.training.names import ACTIVATIONS

__all__ = ["ACTIVATIONS", "activate_in_place", "before_activation", "gain", "may_write_over"]


def gain(name: str) -> float:
    """Numerator of the uniform initialisation bound sqrt(gain / (fan_in + fan_out))."""
    if name not in ACTIVATIONS:
        raise ValueError("no such activation: " + name)
    return 24.0 if name == "sigmoid" else 6.0


def may_write_over(name: str) -> bool:
    """Whether the derivative is a function of the units, so that pre-activations may be written over."""
    return name != "gelu" and name != "silu"


def activate_in_place(name: str, pre: Tensor) -> Tensor:
    """Pre-activations → units, written over them unless the derivative needs them."""
    if name == "relu":
        return torch.relu_(pre)
    if name == "tanh":
        return torch.tanh_(pre)
    if name == "sigmoid":
        return torch.sigmoid_(pre)
    if name == "gelu":
        return gelu(pre)
    if name == "silu":
        return silu(pre)
    raise ValueError("no such activation: " + name)


def before_activation(name: str, grad: Tensor, kept: Tensor) -> None:
    """Turn the gradient at the units into that before them, in place; ``kept`` is what `activate_in_place` wrote to."""
    if name == "relu":
        torch.ops.aten.threshold_backward(grad, kept, 0, grad_input=grad)
    elif name == "tanh":
        torch.ops.aten.tanh_backward(grad, kept, grad_input=grad)
    elif name == "sigmoid":
        torch.ops.aten.sigmoid_backward(grad, kept, grad_input=grad)
    elif name == "gelu":
        torch.ops.aten.gelu_backward(grad, kept, grad_input=grad)
    elif name == "silu":
        torch.ops.aten.silu_backward(grad, kept, grad_input=grad)
    else:
        raise ValueError("no such activation: " + name)
