"""Adam's arithmetic on flat vectors: the one step, in the forms that an epoch of it needs.

`take_step` is that of a CPU, `take_captured_step` that of a graph on CUDA. Tests hold each to the formula.

`take_step` is compiled by TorchScript as part of an epoch (see `solvers.compiled`), so it takes its constants
from the state: TorchScript knows no global ones.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "BETAS",
    "STEPS_TO_DUST",
    "AdamState",
    "adam_factors",
    "drop_dust",
    "move_moments",
    "take_captured_step",
    "take_step",
]

BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# How often dust is looked for, and what is dust. Squares of gradients a little smaller are still normal numbers.
STEPS_TO_DUST = 64
_DUST_PARAMETER, _DUST_MOMENT, _DUST_ALONE, _DUST_SQUARE = 1e-10, 1e-14, 1e-25, 1e-30


class AdamState(NamedTuple):
    """Vectors over the flat parameters, and Adam's constants."""

    flat: Tensor
    grad: Tensor
    first_moment: Tensor
    second_moment: Tensor
    penalty: Tensor
    scratch: Tensor
    beta1: float
    beta2: float
    epsilon: float

    @classmethod
    def start(cls, flat: Tensor, grad: Tensor, penalty: Tensor) -> "AdamState":
        """Before the first step; ``flat`` and ``grad`` are used in place."""
        moments = torch.zeros_like(flat), torch.zeros_like(flat)
        return cls(flat, grad, *moments, penalty, torch.empty_like(flat), *BETAS, _EPSILON)


def adam_factors(rate: float, step: int, beta1: float, beta2: float, epsilon: float) -> tuple[float, float]:
    """Adam's step length and ε at a step, from 0, both corrected for the moments' start at zero."""
    correction = math.sqrt(1 - beta2 ** (step + 1))
    return rate * correction / (1 - beta1 ** (step + 1)), epsilon * correction


def move_moments(state: AdamState) -> None:
    """Add the penalty's part to the gradient, and let Adam's running means take it in."""
    grad = state.grad.addcmul_(state.penalty, state.flat)
    state.first_moment.lerp_(grad, 1 - state.beta1)
    state.second_moment.mul_(state.beta2).addcmul_(grad, grad, value=1 - state.beta2)


def take_step(state: AdamState, rate: float, step: int) -> None:
    """A step, from 0, along the gradient."""
    move_moments(state)
    length, small = adam_factors(rate, step, state.beta1, state.beta2, state.epsilon)
    torch.sqrt(state.second_moment, out=state.scratch).add_(small)
    state.flat.addcdiv_(state.first_moment, state.scratch, value=-length)


def take_captured_step(state: AdamState, factors: Tensor) -> None:
    """The same from the step's `adam_factors` as a tensor (2,): a captured graph cannot take rates as numbers."""
    length, small = factors
    move_moments(state)
    torch.sqrt(state.second_moment, out=state.scratch).add_(small)
    state.flat.sub_(torch.div(state.first_moment, state.scratch, out=state.scratch).mul_(length))


def drop_dust(state: AdamState) -> None:
    """Set to zero what the penalty has driven to nothing, before it becomes denormal; every `STEPS_TO_DUST` steps.

    Weights of inputs that never vary, or of units that never fire, fall by a few percent a step. Below the limits here
    neither they nor their next steps can be seen in float32, whatever the inputs: a column of large numbers has a large
    gradient. Left alone they end below 1e-38, where every operation on them is slow.
    """
    flat, first, second = state.flat, state.first_moment, state.second_moment
    size = first.abs()
    dust = (flat.abs() < _DUST_PARAMETER) & (size < _DUST_MOMENT)
    flat.masked_fill_(dust, 0.0)
    first.masked_fill_(dust | (size < _DUST_ALONE), 0.0)  # a moment alone fades where a gradient has become zero
    second.masked_fill_(second < _DUST_SQUARE, 0.0)
