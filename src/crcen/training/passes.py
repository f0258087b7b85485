"""Forward and backward pass of a stack, and an epoch of Adam on them.

Written in the part of Python that TorchScript compiles (see `solvers.compiled`); a GPU and the other solver run
the same functions as they are.

The backward pass is written out: on a CPU it takes less than half the time of autograd, because the large
intermediate (rows × all first hidden units) is written into two buffers that are used again at every step.

Shape letters: G groups, M networks of a group, K networks of a block, B rows of a batch, F features, H hidden units, C
outputs of a network: one for two classes, else one for each. Logits lie side by side, (G, B, M·C), network by network.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from crcen.training.activations import activate_in_place, before_activation, may_write_over
from crcen.training.block_views import BlockBuffers, BlockLayers, BlockShape, units_of
from crcen.training.classes.losses import class_row_derivative, class_row_loss, class_row_weights
from crcen.training.classes.outputs import class_output, class_output_gradient
from crcen.training.epoch_rows import EpochRows, fill_batch
from crcen.training.losses import row_derivative, row_loss
from crcen.training.ramp_lookup import RampLookup, add_ramps, ramps_gradient
from crcen.training.solvers.adam_step import AdamState, take_step

__all__ = [
    "Buffers",
    "ClassWeights",
    "Design",
    "Layers",
    "adam_epoch",
    "forward",
    "gradient",
    "logits_of_batches",
    "loss_of_rows",
    "row_weights",
]


class Design(NamedTuple):
    """What a stack is; see `crcen.training.stack.Stack`."""

    blocks: list[BlockShape]
    activation: str
    loss: str
    is_linear: bool
    is_scaled: bool
    by_products: bool
    scale_speed: float
    n_outputs: int


class Layers(NamedTuple):
    """Views into a flat vector of parameters, or of their gradients."""

    first: Tensor  # (G, F+1, all first hidden units); the last input row is the bias
    inner: list[list[Tensor]]  # for each block weight (G, K, H_in, H_out), bias (G, K, 1, H_out), weight, …
    out_weight: Tensor  # (G, all last hidden units), each with its C weights
    out_bias: Tensor  # (G, M·C)
    scales: Tensor  # (G, F, M); empty where there are none
    tail: Tensor  # all that follows the first layer, flat
    blocks: list[BlockLayers]  # the same, block by block


class Buffers(NamedTuple):
    """Memory that is used again at every step."""

    effective: Tensor  # the first layer as it takes effect, and then its gradient; where there are scales
    scale_values: Tensor
    hidden: Tensor  # (G, B, all first hidden units)
    back: Tensor  # the same
    blocks: list[BlockBuffers]  # these, block by block


class ClassWeights(NamedTuple):
    """What a row weighs in every network by its class: a negative one, and a positive one more, (G, 1, M) each.

    Or, for networks with an output for each class, ``by_class`` (G, C, M), which has no class in it elsewhere.
    """

    negative: Tensor
    positive_extra: Tensor
    by_class: Tensor


def row_weights(weights: ClassWeights, y: Tensor, base: Tensor) -> Tensor:
    """y (G or 1, B, 1), base (G, B, 1) → (G, B, M)."""
    if weights.by_class.size(1) > 0:
        return class_row_weights(weights.by_class, y, base)
    return torch.addcmul(weights.negative, y, weights.positive_extra).mul_(base)


def forward(
    design: Design, own: Layers, buffers: Buffers, x: Tensor, ramps: RampLookup, batch: int
) -> tuple[Tensor, list[list[Tensor]]]:
    """Logits (G, B, M·C) of encoded rows (G, B, F+1), whose last column is ones, and what the inner layers keep.

    Where ramps are looked up, x is without them, and they are those of this batch of the lookup.

    The first layer's units, or where the backward pass needs them its pre-activations, are in the buffer ``hidden``;
    so are the logits of a linear network.
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
    n_outputs, in_place = design.n_outputs, may_write_over(design.activation)
    for block, layers, place in zip(design.blocks, own.blocks, buffers.blocks):  # noqa: B905
        units = place.hidden if in_place else units_of(block, h)
        inner: list[Tensor] = []
        if len(block.hidden) > 1:
            inner = _inner_forward(design.activation, units, layers.inner)
        if n_outputs > 1:
            last = units.transpose(1, 2)
            if len(block.hidden) > 1:
                last = inner[-1].view([last.size(0), last.size(1), last.size(2), -1])
            out = class_output(last, layers.out_weight)
        elif len(block.hidden) > 1:
            out_weight = layers.out_weight.reshape([-1, 1, layers.out_weight.size(2)])
            if design.by_products:
                out = torch.bmm(inner[-1], out_weight.transpose(1, 2))
            else:
                out = (inner[-1] * out_weight).sum(-1)
            out = out.view([h.size(0), block.size, h.size(1)]).transpose(1, 2)
        elif design.by_products:
            out = torch.matmul(units.transpose(1, 2), layers.out_weight.unsqueeze(3)).squeeze(3).transpose(1, 2)
        else:
            out = torch.mul(units, layers.out_weight.unsqueeze(1), out=place.back).sum(-1)
        kept.append(inner)
        torch.add(out, layers.out_bias, out=logits.narrow(2, block.first_model * n_outputs, block.size * n_outputs))
    return logits, kept


def logits_of_batches(
    design: Design, own: Layers, buffers: Buffers, batches: list[Tensor], ramps: RampLookup
) -> Tensor:
    """Logits (batches, G, B, M·C) of batches of one size; ``ramps`` are those of all of them."""
    found: list[Tensor] = []
    for i in range(len(batches)):
        logits = forward(design, own, buffers, batches[i], ramps, i)[0]
        found.append(logits.clone() if design.is_linear else logits)  # a linear network's are a buffer of the next
    return torch.stack(found)


def _inner_forward(activation: str, units: Tensor, layers: list[Tensor]) -> list[Tensor]:
    """Hidden layers after the first: their inputs (G·K, B, H), then what each layer wrote to and its units."""
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
    """Put the gradient of Σ_B w ℓ into ``grads``, or add it; return the logits.

    Shape
    -----
    x (G, B, F+1), or without the ramps that are looked up; y (G or 1, B, 1); row_weight (G, B, M), already divided by
    each network's weight sum.
    """
    logits, kept = forward(design, own, buffers, x, ramps, batch)
    error = _weighted_error(design, logits, y, row_weight)
    if not add:
        grads.tail.zero_()
    if design.is_linear:
        _take_first_gradient(design, own, grads, buffers, x, ramps, batch, error, add)
        return logits
    h, back = buffers.hidden, buffers.back
    in_place = may_write_over(design.activation)
    if not in_place:
        h = activate_in_place(design.activation, h)  # which leaves what it is given
    grads.out_bias.add_(sum_of_rows(error))
    n_outputs = design.n_outputs
    for i, (block, place) in enumerate(zip(design.blocks, buffers.blocks)):  # noqa: B905
        error_here = error.narrow(2, block.first_model * n_outputs, block.size * n_outputs)  # (G, B, K·C)
        layers, layer_grads, target = own.blocks[i], grads.blocks[i], place.back
        if len(block.hidden) > 1:
            found = _inner_backward(design.activation, error_here, kept[i], layers, layer_grads)
            target.copy_(found.transpose(1, 2))
            continue
        units = place.hidden if in_place else units_of(block, h)
        if n_outputs > 1:
            found = class_output_gradient(error_here, units.transpose(1, 2), layers.out_weight, layer_grads.out_weight)
            target.copy_(found.transpose(1, 2))
            continue
        if design.by_products:
            products = torch.matmul(error_here.transpose(1, 2).unsqueeze(2), units.transpose(1, 2))
            layer_grads.out_weight.add_(products.squeeze(2))
        else:
            layer_grads.out_weight.add_(torch.mul(units, error_here.unsqueeze(3), out=target).sum(1))
        torch.mul(error_here.unsqueeze(3), layers.out_weight.unsqueeze(1), out=target)
    before_activation(design.activation, back, buffers.hidden)
    _take_first_gradient(design, own, grads, buffers, x, ramps, batch, back, add)
    return logits


def sum_of_rows(values: Tensor) -> Tensor:
    """Sums (G, M) of values (G, B, M); on a CPU in an order that does not depend on how many networks there are."""
    if values.is_cuda:
        return values.sum(1)
    return values.transpose(1, 2).contiguous().sum(-1)


def _weighted_error(design: Design, logits: Tensor, y: Tensor, row_weight: Tensor) -> Tensor:
    """w ∂ℓ/∂o of every logit, (G, B, M·C)."""
    if design.n_outputs == 1:
        return row_derivative(design.loss, logits, y).mul_(row_weight)
    derivative = class_row_derivative(design.loss, _by_class(design, logits), y)
    return derivative.mul_(row_weight.unsqueeze(3)).flatten(2)


def loss_of_rows(design: Design, logits: Tensor, y: Tensor) -> Tensor:
    """ℓ of every row and network, (G, B, M)."""
    if design.n_outputs == 1:
        return row_loss(design.loss, logits, y)
    return class_row_loss(design.loss, _by_class(design, logits), y)


def _by_class(design: Design, logits: Tensor) -> Tensor:
    """Logits (G, B, M·C) as (G, B, M, C)."""
    return logits.view(logits.size(0), logits.size(1), -1, design.n_outputs)


def _inner_backward(
    activation: str, error: Tensor, kept: list[Tensor], layers: BlockLayers, grads: BlockLayers
) -> Tensor:
    """Gradient at the first hidden layer's units, (G, K, B, H)."""
    out_weight = layers.out_weight
    n_groups, size, n_rows = out_weight.size(0), out_weight.size(1), kept[0].size(1)
    if out_weight.dim() == 4:
        units = kept[-1].view([n_groups, size, n_rows, -1])
        back = class_output_gradient(error, units, out_weight, grads.out_weight).flatten(0, 1)
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


def _take_first_gradient(
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
    """Put, or add, the gradient of the first layer, from that at its outputs."""
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


def adam_epoch(
    design: Design,
    own: Layers,
    grads: Layers,
    buffers: Buffers,
    rows: EpochRows,
    ramps: RampLookup,
    weights: ClassWeights,
    state: AdamState,
    losses: Tensor | None,
    first: int,
    rates: list[float],
    taken: int,
) -> None:
    """Steps of Adam on an epoch's batches from ``first`` on, as many as there are rates, after ``taken`` steps in all.

    ``ramps`` are the lookups of these batches alone. Each batch's losses are added to ``losses`` (G, M), if somebody
    asks for them.
    """
    for i in range(len(rates)):
        fill_batch(rows, first + i)
        y = rows.y.select(1, first + i).unsqueeze(2)
        row_weight = row_weights(weights, y, rows.weights.select(1, first + i).unsqueeze(2))
        logits = gradient(design, own, grads, buffers, rows.batch, ramps, i, y, row_weight, False)
        if losses is not None:
            losses.add_(sum_of_rows(row_weight * loss_of_rows(design, logits, y)))
        take_step(state, rates[i], taken + i)
