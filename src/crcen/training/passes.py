"""Losses, activations, forward and backward pass of a stack.

The objective of every network is Σ wᵢ ℓ(oᵢ, yᵢ) / Σ wᵢ + ½ · l2 · ‖W‖² with output logits o, row weights wᵢ (sample
weight times class weight) and W all weights without biases. Two classes have one logit with q = σ(o), others one logit
per class with q = softmax(o). Cross entropy has ∂ℓ/∂o = q − y, so that a stationary output bias implies the key
equation. The squared error is that of CSMLP: output tanh(o/2) on targets ±1. One against all is the sum of K binary
cross entropies (Li, Li, Pan and Zhu 2020).

The functions use the subset of Python that TorchScript compiles. The backward pass is written out: on a CPU it takes
less than half the time of autograd.

Shape letters: G groups, M networks of a group, K networks of a block (one hidden shape), B rows of a batch, F features,
H hidden units, C outputs of a network. Logits are stored side by side, (G, B, M·C), network by network.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu, softplus

from crcen.training.ramp_lookup import RampLookup, add_ramps, ramps_gradient

# -- losses ------------------------------------------------------------------------------------------------------------


def _is_own(logits: Tensor, y: Tensor) -> Tensor:
    """Which output belongs to the row's class: (G or 1, B, 1, C) bool."""
    return y.unsqueeze(3) == torch.arange(logits.size(3), dtype=y.dtype, device=y.device)


def row_loss(name: str, logits: Tensor, y: Tensor, n_outputs: int) -> Tensor:
    """ℓ of every row and network: logits (G, B, M·C), class numbers y (G or 1, B, 1) → (G, B, M)."""
    if n_outputs == 1:
        if name == "cross_entropy":
            # softplus(o) − o·y would cancel for confident correct rows: torch's softplus is linear above 20.
            return softplus((1.0 - 2.0 * y) * logits)
        if name == "squared_error":
            return 4.0 * (y - torch.sigmoid(logits)) ** 2
        raise ValueError("no such loss: " + name)
    o = logits.view(logits.size(0), logits.size(1), -1, n_outputs)
    own = _is_own(o, y)
    if name == "cross_entropy":
        # The sum over the other classes keeps its precision where the own class has nearly all probability.
        others = (o - (o * own).sum(3, keepdim=True)).masked_fill(own, float("-inf"))
        return softplus(others.logsumexp(3))
    if name == "squared_error":
        return 2.0 * ((own.to(o.dtype) - o.softmax(3)) ** 2).sum(3)
    if name == "one_against_all":
        return softplus((1.0 - 2.0 * own.to(o.dtype)) * o).sum(3)
    raise ValueError("no such loss: " + name)


def row_derivative(name: str, logits: Tensor, y: Tensor, row_weight: Tensor, n_outputs: int) -> Tensor:
    """w ∂ℓ/∂o of every logit, (G, B, M·C), with row weights (G, B, M)."""
    if n_outputs == 1:
        q = torch.sigmoid(logits)
        if name == "cross_entropy":
            return q.sub_(y).mul_(row_weight)
        if name == "squared_error":
            return (-8.0 * (y - q) * q * (1.0 - q)).mul_(row_weight)
        raise ValueError("no such loss: " + name)
    o = logits.view(logits.size(0), logits.size(1), -1, n_outputs)
    own = _is_own(o, y).to(o.dtype)
    if name == "one_against_all":
        derivative = torch.sigmoid(o).sub_(own)
    else:
        q = o.softmax(3)
        if name == "cross_entropy":
            derivative = q.sub_(own)
        elif name == "squared_error":
            error = q - own
            derivative = 4.0 * q * (error - (error * q).sum(3, keepdim=True))
        else:
            raise ValueError("no such loss: " + name)
    return derivative.mul_(row_weight.unsqueeze(3)).flatten(2)


def row_weights(by_class: Tensor, y: Tensor, base: Tensor) -> Tensor:
    """Class weight times row weight: by_class (G, classes, M), y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
    if by_class.size(1) == 2:  # faster than a gather
        negative, positive = by_class.narrow(1, 0, 1), by_class.narrow(1, 1, 1)
        return torch.addcmul(negative, y, positive - negative).mul_(base)
    places = y.long().expand(by_class.size(0), y.size(1), by_class.size(2))
    return by_class.gather(1, places).mul_(base)


# -- activations -------------------------------------------------------------------------------------------------------


def is_in_place(name: str) -> bool:
    """Whether the derivative is a function of the units, so that pre-activations can be overwritten."""
    return name != "gelu" and name != "silu"


def activate_in_place(name: str, pre: Tensor) -> Tensor:
    """Pre-activations → units, in place unless the derivative needs the pre-activations."""
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
    """Gradient at the units → at the pre-activations, in place; ``kept`` is the input of `activate_in_place`."""
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


# -- the tensors of a stack --------------------------------------------------------------------------------------------


class BlockShape(NamedTuple):
    """The networks of one hidden shape: the first among a group's M, how many, first column, hidden sizes.

    ``units`` are the columns of each network in the first layer.
    """

    first_model: int
    size: int
    first_column: int
    hidden: list[int]
    units: int


class BlockLayers(NamedTuple):
    """A block's part of the parameters or gradients. The views are created once: steps of small networks are short."""

    columns: Tensor  # (G, F, K, H): first weights, without biases
    scales: Tensor  # (G, F, K, 1); empty without scales
    inner: list[Tensor]  # weight (G·K, H_in, H_out), bias (G·K, 1, H_out), weight, …
    out_weight: Tensor  # (G, K, H), or (G, K, H, C) for several outputs; empty for a linear network
    out_bias: Tensor  # (G, 1, K·C)


class BlockBuffers(NamedTuple):
    """A block's part of the buffers."""

    effective: Tensor  # (G, F, K, H); empty without scales
    scale_values: Tensor  # (G, F, K, 1)
    hidden: Tensor  # (G, B, K, H)
    back: Tensor  # (G, B, K, H)


class Design(NamedTuple):
    """Constants of a stack; see `crcen.training.stack.Stack`."""

    blocks: list[BlockShape]
    activation: str
    loss: str
    is_linear: bool
    is_scaled: bool
    scale_speed: float
    n_outputs: int


class Layers(NamedTuple):
    """Views into a flat vector of parameters or gradients."""

    first: Tensor  # (G, F+1, all first hidden units); the last input row is the bias
    inner: list[list[Tensor]]  # for each block weight (G, K, H_in, H_out), bias (G, K, 1, H_out), weight, …
    out_weight: Tensor  # (G, all last hidden units), each with its C weights
    out_bias: Tensor  # (G, M·C)
    scales: Tensor  # (G, F, M); empty without scales
    tail: Tensor  # everything after the first layer, flat
    blocks: list[BlockLayers]  # the same, block by block


class Buffers(NamedTuple):
    """Memory that every step reuses."""

    effective: Tensor  # the scaled first layer, and later its gradient; only with scales
    scale_values: Tensor
    hidden: Tensor  # (G, B, all first hidden units)
    back: Tensor  # the same shape
    blocks: list[BlockBuffers]


def units_of(block: BlockShape, h: Tensor) -> Tensor:
    """A block's first hidden units as (G, B, K, H)."""
    own = h.narrow(2, block.first_column, block.size * block.units)
    return own.view(h.size(0), h.size(1), block.size, block.units)


def sum_of_rows(values: Tensor) -> Tensor:
    """Sums (G, M) of values (G, B, M); on a CPU in an order that does not depend on the number of networks."""
    if values.is_cuda:
        return values.sum(1)
    return values.transpose(1, 2).contiguous().sum(-1)


# -- forward and backward ----------------------------------------------------------------------------------------------


def forward(
    design: Design, own: Layers, buffers: Buffers, x: Tensor, ramps: RampLookup, batch: int
) -> tuple[Tensor, list[list[Tensor]]]:
    """Logits (G, B, M·C) of encoded rows x (G, B, F+1), whose last column is ones, and what the inner layers keep.

    If ramps are looked up, x does not contain them; ``batch`` is the number of the batch in the lookup. The buffer
    ``hidden`` holds the first layer's units (or pre-activations, if the backward pass needs them), and the logits of a
    linear network.
    """
    first = own.first
    if design.is_scaled:
        torch.mul(own.scales, design.scale_speed, out=buffers.scale_values)
        buffers.effective.select(1, -1).copy_(own.first.select(1, -1))
        for layers, place in zip(own.blocks, buffers.blocks):  # noqa: B905
            torch.mul(layers.columns, place.scale_values, out=place.effective)
        first = buffers.effective
    if ramps.n_ramps > 0:
        add_ramps(ramps, batch, first, x, buffers.hidden)
    else:
        torch.bmm(x, first, out=buffers.hidden)
    kept: list[list[Tensor]] = []
    if design.is_linear:
        return buffers.hidden, kept
    h = activate_in_place(design.activation, buffers.hidden)
    logits = torch.empty([h.size(0), h.size(1), own.out_bias.size(1)], dtype=h.dtype, device=h.device)
    n_outputs, in_place = design.n_outputs, is_in_place(design.activation)
    for block, layers, place in zip(design.blocks, own.blocks, buffers.blocks):  # noqa: B905
        units = place.hidden if in_place else units_of(block, h)
        inner: list[Tensor] = []
        if len(block.hidden) > 1:
            inner = _inner_forward(design.activation, units, layers.inner)
        if n_outputs > 1:
            last = units.transpose(1, 2)
            if len(block.hidden) > 1:
                last = inner[-1].view([last.size(0), last.size(1), last.size(2), -1])
            out = torch.matmul(last, layers.out_weight).transpose(1, 2)
            out = out.reshape(out.size(0), out.size(1), -1)
        elif len(block.hidden) > 1:
            out_weight = layers.out_weight.reshape([-1, 1, layers.out_weight.size(2)])
            out = (inner[-1] * out_weight).sum(-1).view([h.size(0), block.size, h.size(1)]).transpose(1, 2)
        else:
            out = torch.mul(units, layers.out_weight.unsqueeze(1), out=place.back).sum(-1)
        kept.append(inner)
        torch.add(out, layers.out_bias, out=logits.narrow(2, block.first_model * n_outputs, block.size * n_outputs))
    return logits, kept


def logits_of_batches(
    design: Design, own: Layers, buffers: Buffers, batches: list[Tensor], ramps: RampLookup
) -> Tensor:
    """Logits (batches, G, B, M·C) of batches of one size."""
    found: list[Tensor] = []
    for i in range(len(batches)):
        logits = forward(design, own, buffers, batches[i], ramps, i)[0]
        found.append(logits.clone() if design.is_linear else logits)  # those of a linear network are in a buffer
    return torch.stack(found)


def _inner_forward(activation: str, units: Tensor, layers: list[Tensor]) -> list[Tensor]:
    """Hidden layers after the first: their input (G·K, B, H), then the pre-activations and units of each layer."""
    h = units.transpose(1, 2).contiguous().flatten(0, 1)
    kept = [h]
    for i in range(0, len(layers), 2):
        pre = torch.bmm(h, layers[i]).add_(layers[i + 1])
        h = activate_in_place(activation, pre)
        kept.append(pre)
        kept.append(h)
    return kept


def gradient(
    design: Design,
    own: Layers,
    grads: Layers,
    buffers: Buffers,
    x: Tensor,
    ramps: RampLookup,
    batch: int,
    y: Tensor,
    row_weight: Tensor,
    add: bool,
) -> Tensor:
    """Write the gradient of Σ_B w ℓ to ``grads``, or add it; return the logits.

    Shape
    -----
    x (G, B, F+1), without ramps that are looked up; y (G or 1, B, 1); row_weight (G, B, M), already divided by each
    network's weight sum.
    """
    logits, kept = forward(design, own, buffers, x, ramps, batch)
    n_outputs = design.n_outputs
    error = row_derivative(design.loss, logits, y, row_weight, n_outputs)
    if not add:
        grads.tail.zero_()
    if design.is_linear:
        _first_gradient(design, own, grads, buffers, x, ramps, batch, error, add)
        return logits
    h, back = buffers.hidden, buffers.back
    in_place = is_in_place(design.activation)
    if not in_place:
        h = activate_in_place(design.activation, h)  # a new tensor
    grads.out_bias.add_(sum_of_rows(error))
    for i, (block, place) in enumerate(zip(design.blocks, buffers.blocks)):  # noqa: B905
        error_here = error.narrow(2, block.first_model * n_outputs, block.size * n_outputs)  # (G, B, K·C)
        layers, layer_grads, target = own.blocks[i], grads.blocks[i], place.back
        if len(block.hidden) > 1:
            found = _inner_backward(design.activation, error_here, kept[i], layers, layer_grads)
            target.copy_(found.transpose(1, 2))
            continue
        units = place.hidden if in_place else units_of(block, h)
        if n_outputs > 1:
            found = _output_backward(error_here, units.transpose(1, 2), layers.out_weight, layer_grads.out_weight)
            target.copy_(found.transpose(1, 2))
            continue
        layer_grads.out_weight.add_(torch.mul(units, error_here.unsqueeze(3), out=target).sum(1))
        torch.mul(error_here.unsqueeze(3), layers.out_weight.unsqueeze(1), out=target)
    before_activation(design.activation, back, buffers.hidden)
    _first_gradient(design, own, grads, buffers, x, ramps, batch, back, add)
    return logits


def _output_backward(error: Tensor, units: Tensor, out_weight: Tensor, out_grad: Tensor) -> Tensor:
    """Several outputs: add the gradient of the weights to ``out_grad``; return that of the units, (G, K, B, H).

    Shape
    -----
    error (G, B, K·C); units (G, K, B, H); out_weight, out_grad (G, K, H, C).
    """
    n_groups, size, _, n_outputs = out_weight.size()
    own = error.reshape(n_groups, error.size(1), size, n_outputs).transpose(1, 2)  # (G, K, B, C)
    out_grad.add_(torch.matmul(units.transpose(2, 3), own))
    return torch.matmul(own, out_weight.transpose(2, 3))


def _inner_backward(
    activation: str, error: Tensor, kept: list[Tensor], layers: BlockLayers, grads: BlockLayers
) -> Tensor:
    """Gradient at the first hidden layer's units, (G, K, B, H)."""
    out_weight = layers.out_weight
    n_groups, size, n_rows = out_weight.size(0), out_weight.size(1), kept[0].size(1)
    if out_weight.dim() == 4:
        units = kept[-1].view([n_groups, size, n_rows, -1])
        back = _output_backward(error, units, out_weight, grads.out_weight).flatten(0, 1)
    else:
        own = error.transpose(1, 2).reshape([-1, n_rows, 1])  # (G·K, B, 1)
        grads.out_weight.add_(torch.bmm(kept[-1].transpose(1, 2), own).view(out_weight.size()))
        back = own * out_weight.reshape([-1, 1, out_weight.size(2)])
    for i in range(len(layers.inner) - 2, -1, -2):
        below, written = kept[i], kept[i + 1]
        before_activation(activation, back, written)
        grads.inner[i].add_(torch.bmm(below.transpose(1, 2), back))
        grads.inner[i + 1].add_(back.sum(1, keepdim=True))
        back = torch.bmm(back, layers.inner[i].transpose(1, 2))
    return back.view([n_groups, size, n_rows, -1])


def _first_gradient(
    design: Design,
    own: Layers,
    grads: Layers,
    buffers: Buffers,
    x: Tensor,
    ramps: RampLookup,
    batch: int,
    back: Tensor,
    add: bool,
) -> None:
    """Write or add the gradient of the first layer, given the gradient at its outputs."""
    if not design.is_scaled:
        if ramps.n_ramps == 0:
            grads.first.baddbmm_(x.transpose(1, 2), back, beta=1.0 if add else 0.0)
        elif add:
            own_part = torch.empty_like(grads.first)
            ramps_gradient(ramps, batch, x, back, own_part)
            grads.first.add_(own_part)
        else:
            ramps_gradient(ramps, batch, x, back, grads.first)
        return
    found = buffers.effective
    if ramps.n_ramps > 0:
        ramps_gradient(ramps, batch, x, back, found)
    else:
        torch.bmm(x.transpose(1, 2), back, out=found)
    for layers, layer_grads, place in zip(own.blocks, grads.blocks, buffers.blocks):  # noqa: B905
        products = (place.effective * layers.columns).sum(-1, keepdim=True)
        layer_grads.scales.add_(products.mul_(design.scale_speed))
        torch.mul(place.effective, place.scale_values, out=place.effective if add else layer_grads.columns)
    if add:
        grads.first.add_(found)
    else:
        grads.first.select(1, -1).copy_(found.select(1, -1))
