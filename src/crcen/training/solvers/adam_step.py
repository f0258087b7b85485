"""Adam's arithmetic on flat vectors: the one step, in the forms that an epoch of it needs.

`take_step` is that of a CPU, by the formula or in torch's one pass, `take_captured_step` that of a graph on CUDA. The
kernel's `_step` (see `solvers.fused_kernel`) is the same in Triton. Tests hold each to the formula.

`take_step` is compiled by TorchScript as part of an epoch (see `solvers.compiled`), so it takes its constants
from the state: TorchScript knows no global ones.
"""

import math
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = [
    "BETAS",
    "STEPS_TO_DUST",
    "AdamState",
    "adam_factors",
    "drop_dust",
    "has_one_pass",
    "move_moments",
    "take_captured_step",
    "take_step",
]

BETAS = (0.9, 0.999)
_EPSILON = 1e-8
# How often dust is looked for, and what is dust. Squares of gradients a little smaller are still normal numbers.
STEPS_TO_DUST = 64
_DUST_PARAMETER, _DUST_MOMENT, _DUST_ALONE, _DUST_SQUARE = 1e-10, 1e-14, 1e-25, 1e-30

# Parts of a vector that one launch of a GPU's step takes, and the fewest numbers of each; they begin at whole lines.
_VECTORS, _FEWEST_NUMBERS, _ALIGNED = 28, 2048, 64


class AdamState(NamedTuple):
    """Vectors over the flat parameters, each the only one of its list: torch's own step takes lists.

    TorchScript leaves a step out that changes nothing but lists made for it, so they are made here.
    """

    flat: list[Tensor]
    grad: list[Tensor]
    first_moment: list[Tensor]
    second_moment: list[Tensor]
    none: list[Tensor]
    steps: list[Tensor]
    penalty: Tensor
    scratch: Tensor
    beta1: float
    beta2: float
    epsilon: float

    @classmethod
    def start(cls, flat: Tensor, grad: Tensor, penalty: Tensor) -> "AdamState":
        """Before the first step; ``flat`` and ``grad`` are used in place."""
        moments = [torch.zeros_like(flat)], [torch.zeros_like(flat)]
        steps = [torch.zeros((), device=flat.device)]
        return cls([flat], [grad], *moments, [], steps, penalty, torch.empty_like(flat), *BETAS, _EPSILON)


def adam_factors(rate: float, step: int, beta1: float, beta2: float, epsilon: float) -> tuple[float, float]:
    """Adam's step length and ε at a step, from 0, both corrected for the moments' start at zero."""
    correction = math.sqrt(1 - beta2 ** (step + 1))
    return rate * correction / (1 - beta1 ** (step + 1)), epsilon * correction


def move_moments(state: AdamState) -> None:
    """Add the penalty's part to the gradient, and let Adam's running means take it in."""
    grad = state.grad[0].addcmul_(state.penalty, state.flat[0])
    state.first_moment[0].lerp_(grad, 1 - state.beta1)
    state.second_moment[0].mul_(state.beta2).addcmul_(grad, grad, value=1 - state.beta2)


def take_step(state: AdamState, rate: float, step: int, in_one_pass: bool) -> None:
    """A step, from 0, along the gradient; in one pass over the parameters where torch has that (`has_one_pass`)."""
    if in_one_pass:
        state.grad[0].addcmul_(state.penalty, state.flat[0])
        state.steps[0].fill_(step + 1)
        torch._fused_adam_(
            state.flat, state.grad, state.first_moment, state.second_moment, state.none, state.steps, lr=rate,
            beta1=state.beta1, beta2=state.beta2, weight_decay=0.0, eps=state.epsilon, amsgrad=False, maximize=False,
        )  # fmt: skip
    else:
        move_moments(state)
        length, small = adam_factors(rate, step, state.beta1, state.beta2, state.epsilon)
        torch.sqrt(state.second_moment[0], out=state.scratch).add_(small)
        state.flat[0].addcdiv_(state.first_moment[0], state.scratch, value=-length)


def take_captured_step(state: AdamState, numbers: Tensor, in_one_pass: bool) -> None:
    """The same from a step's numbers as a tensor (4,): a captured graph cannot take rates as numbers.

    They are its `adam_factors`, its rate, and how many steps there are with it.
    """
    length, small, rate, count = numbers
    if in_one_pass:
        state.grad[0].addcmul_(state.penalty, state.flat[0])
        _in_one_pass(state, rate, count)
        return
    move_moments(state)
    torch.sqrt(state.second_moment[0], out=state.scratch).add_(small)
    state.flat[0].sub_(torch.div(state.first_moment[0], state.scratch, out=state.scratch).mul_(length))


def _in_one_pass(state: AdamState, rate: Tensor, count: Tensor) -> None:
    """One kernel on a GPU. It gives a block of threads up to 65,536 numbers of a vector, so vectors are cut for it."""
    vectors = state.flat[0], state.grad[0], state.first_moment[0], state.second_moment[0]
    size = max(_FEWEST_NUMBERS, -(-vectors[0].numel() // _VECTORS // _ALIGNED) * _ALIGNED)
    flat, grad, first, second = (list(torch.split(vector, size)) for vector in vectors)
    torch._fused_adam_(
        flat, grad, first, second, state.none, [count] * len(flat), lr=rate,
        beta1=state.beta1, beta2=state.beta2, weight_decay=0.0, eps=state.epsilon, amsgrad=False, maximize=False,
    )  # fmt: skip


def drop_dust(state: AdamState) -> None:
    """Set to zero what the penalty has driven to nothing, before it becomes denormal; every `STEPS_TO_DUST` steps.

    Weights of inputs that never vary, or of units that never fire, fall by a few percent a step. Below the limits here
    neither they nor their next steps can be seen in float32, whatever the inputs: a column of large numbers has a large
    gradient. Left alone they end below 1e-38, where every operation on them is slow.
    """
    flat, first, second = state.flat[0], state.first_moment[0], state.second_moment[0]
    size = first.abs()
    dust = (flat.abs() < _DUST_PARAMETER) & (size < _DUST_MOMENT)
    flat.masked_fill_(dust, 0.0)
    first.masked_fill_(dust | (size < _DUST_ALONE), 0.0)  # a moment alone fades where a gradient has become zero
    second.masked_fill_(second < _DUST_SQUARE, 0.0)


@cache
def has_one_pass(device: str = "cpu") -> bool:
    """Whether torch has that pass on a device, and it gives what the formula does: it is not part of its interface."""
    found = []
    for in_one_pass in (True, False):
        vectors = (torch.tensor([value], device=device) for value in (1.0, 0.5, 0.1))
        state = AdamState.start(*vectors)
        state.first_moment[0].fill_(0.25)
        state.second_moment[0].fill_(0.125)
        try:
            if device == "cpu":
                take_step(state, 0.1, 2, in_one_pass)
            else:
                numbers = (*adam_factors(0.1, 2, state.beta1, state.beta2, state.epsilon), 0.1, 3.0)
                take_captured_step(state, torch.tensor(numbers, device=device), in_one_pass)
        except (AttributeError, NotImplementedError, RuntimeError, TypeError):
            return False
        found.append(torch.cat(state.flat + state.first_moment + state.second_moment))
    return torch.allclose(found[0], found[1])
