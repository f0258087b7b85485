"""The output bias of a module: found by what is called last, and tried before it is believed."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from crcen.exceptions import InvalidParameter

__all__ = ["bias_of", "check_moves_logits", "last_layer", "named_bias"]

_LAYERS = (
    *(nn.Linear, nn.Bilinear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d),
)
_INSTEAD = "name it by bias=, or wrap the module in crcen.torch.NaturalLogits, which brings a shift of its own."


def last_layer(module: nn.Module, call: Callable[[], Tensor]) -> tuple[Tensor, tuple[str, nn.Module] | None]:
    """What a call of the module answers, and the layer that was reached last in it."""
    reached: list[tuple[str, nn.Module]] = []

    def watch(name: str) -> Callable[..., None]:
        def note(layer: nn.Module, inputs: Any, output: Any) -> None:
            reached[:] = [(name, layer)]

        return note

    hooks = [
        part.register_forward_hook(watch(name)) for name, part in module.named_modules() if isinstance(part, _LAYERS)
    ]
    try:
        return call(), reached[0] if reached else None
    finally:
        for hook in hooks:
            hook.remove()


def bias_of(last: tuple[str, nn.Module] | None, columns: int) -> tuple[str, Tensor]:
    """Name and bias of the layer reached last, if it may be the output layer."""
    if last is None:
        raise InvalidParameter(f"no linear or convolutional layer was reached, so there is no output bias: {_INSTEAD}")
    name, layer = last
    bias = layer.bias
    if not isinstance(bias, Tensor):
        raise InvalidParameter(f"the last layer, {name or type(layer).__name__!r}, has no bias: {_INSTEAD}")
    if bias.numel() != columns:
        raise InvalidParameter(
            f"the last layer, {name!r}, has {bias.numel()} biases and the module answers {columns} logits a row, so "
            f"its bias is not that of the output: {_INSTEAD}"
        )
    return f"{name}.bias" if name else "bias", bias


def named_bias(module: nn.Module, name: str, columns: int) -> Tensor:
    """The parameter of that name, as long as there are logits."""
    parameters = dict(module.named_parameters())
    if name not in parameters or parameters[name].numel() != columns:
        fitting = [one for one, value in parameters.items() if value.ndim < 2 and value.numel() == columns]
        got = f"{parameters[name].numel()} numbers" if name in parameters else "no parameter of that name"
        raise InvalidParameter(
            f"bias={name!r} must name a parameter with {columns} number{'s' if columns > 1 else ''}, one a logit: got "
            f"{got}; such are {', '.join(fitting) or 'none'}."
        )
    return parameters[name]


def check_moves_logits(name: str, bias: Tensor, logits: Tensor, call: Callable[[], Tensor]) -> None:
    """Try the bias: what is added to it must be added to the logits, and nothing else."""
    before = bias.detach().clone()
    steps = torch.linspace(1.0, 2.0, bias.numel(), dtype=torch.float64)
    try:
        bias.copy_((before.double() + steps.reshape(bias.shape).to(bias.device)).to(bias.dtype))
        tried = (bias.detach().double() - before.double()).reshape(-1)
        moved = call().double() - logits.double()
    finally:
        bias.copy_(before)
    slack = 64 * torch.finfo(logits.dtype).eps * (2.0 + float(logits.detach().abs().max()))
    if not bool(((moved - tried.to(moved.device)).abs() <= slack).all()):
        raise InvalidParameter(
            f"what is added to {name!r} does not come out as added to the logits, so it is not the output bias: "
            f"{_INSTEAD}"
        )
