"""Losses, activations, forward and backward pass of a stack.

The objective of every network is Σ wᵢ ℓ(oᵢ, yᵢ) / Σ wᵢ + ½ · l2 · ‖W‖² with output logits o, row weights wᵢ (sample
weight times class weight) and W all weights without biases. Two classes have one logit with q = σ(o), others one logit
per class with q = softmax(o). Cross entropy has ∂ℓ/∂o = q − y, so that a stationary output bias implies the key
equation. The squared error is that of CSMLP: output tanh(o/2) on targets ±1. One against all is the sum of K binary
cross entropies (Li, Li, Pan and Zhu 2020).

The functions use the subset of Python that TorchScript compiles. The backward pass is written out: on a CPU it takes
less than half the time of autograd.

Shape letters: G groups, M networks of a group, B rows of a batch, F features, H hidden units, C outputs of a network.
Logits are stored side by side, (G, B, M·C), network by network.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu, softplus

# -- losses ------------------------------------------------------------------------------------------------------------


def _is_own(logits: Tensor, y: Tensor) -> Tensor:
    """Which output belongs to the row's class: (G or 1, B, 1, C) bool."""
    return y.unsqueeze(3) == torch.arange(logits.size(3), dtype=y.dtype, device=y.device)


def row_loss(name: str, logits: Tensor, y: Tensor, n_outputs: int) -> Tensor:
    """ℓ of every row and network: logits (G, B, M·C), class numbers y (G or 1, B, 1) → (G, B, M)."""
    if n_outputs == 1:
        if name == "squared_error":
            return 4.0 * (y - torch.sigmoid(logits)) ** 2
        # softplus(o) − o·y would cancel for confident correct rows: torch's softplus is linear above 20.
        return softplus((1.0 - 2.0 * y) * logits)
    o = logits.view(logits.size(0), logits.size(1), -1, n_outputs)
    own = _is_own(o, y)
    if name == "squared_error":
        return 2.0 * ((own.to(o.dtype) - o.softmax(3)) ** 2).sum(3)
    if name == "one_against_all":
        return softplus((1.0 - 2.0 * own.to(o.dtype)) * o).sum(3)
    # The sum over the other classes keeps its precision where the own class has nearly all probability.
    others = (o - (o * own).sum(3, keepdim=True)).masked_fill(own, float("-inf"))
    return softplus(others.logsumexp(3))


def row_derivative(name: str, logits: Tensor, y: Tensor, row_weight: Tensor, n_outputs: int) -> Tensor:
    """w ∂ℓ/∂o of every logit, (G, B, M·C), with row weights (G, B, M)."""
    if n_outputs == 1:
        q = torch.sigmoid(logits)
        if name == "squared_error":
            return (-8.0 * (y - q) * q * (1.0 - q)).mul_(row_weight)
        return q.sub_(y).mul_(row_weight)
    o = logits.view(logits.size(0), logits.size(1), -1, n_outputs)
    own = _is_own(o, y).to(o.dtype)
    if name == "one_against_all":
        derivative = torch.sigmoid(o).sub_(own)
    elif name == "squared_error":
        q = o.softmax(3)
        error = q - own
        derivative = 4.0 * q * (error - (error * q).sum(3, keepdim=True))
    else:
        derivative = o.softmax(3).sub_(own)
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
    return gelu(pre) if name == "gelu" else silu(pre)


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
    else:
        torch.ops.aten.silu_backward(grad, kept, grad_input=grad)


# -- the tensors of a stack --------------------------------------------------------------------------------------------


class Design(NamedTuple):
    """Constants of a stack; see `crcen.training.stack.Stack`."""

    n_hidden: int  # hidden layers
    activation: str
    loss: str
    is_scaled: bool
    scale_speed: float
    n_outputs: int


class Layers(NamedTuple):
    """Views into a flat vector of parameters or gradients, created once: steps of small networks are short."""

    first: Tensor  # (G, F+1, M·H); the last input row is the bias
    columns: Tensor  # (G, F, M, H): the same without biases
    inner: list[Tensor]  # weight (G·M, H_in, H_out), bias (G·M, 1, H_out), weight, …
    out_weight: Tensor  # (G, M, H), or (G, M, H, C) for several outputs; empty for a linear network
    out_bias: Tensor  # (G, 1, M·C); empty for a linear network
    scales: Tensor  # (G, F, M, 1); empty without scales
    tail: Tensor  # everything after the first layer, flat


class Buffers(NamedTuple):
    """Memory that every step reuses."""

    effective: Tensor  # the scaled first layer, and later its gradient; only with scales
    effective_columns: Tensor  # (G, F, M, H): the same without biases
    scale_values: Tensor  # (G, F, M, 1)
    hidden: Tensor  # (G, B, M·H)
    units: Tensor  # (G, B, M, H): the same
    back: Tensor  # (G, B, M·H)
    back_units: Tensor  # (G, B, M, H): the same


class Workspace(NamedTuple):
    """Everything that a pass over a batch reads and writes, apart from the batch."""

    design: Design
    own: Layers
    grads: Layers
    buffers: Buffers


def sum_of_rows(values: Tensor) -> Tensor:
    """Sums (G, M) of values (G, B, M); on a CPU in an order that does not depend on the number of networks."""
    if values.is_cuda:
        return values.sum(1)
    return values.transpose(1, 2).contiguous().sum(-1)


# -- ramps -------------------------------------------------------------------------------------------------------------

# A cell is between two neighbouring knots of its column, so its contribution to the first layer is a row of a table
# (knots × hidden units) of its column, or a mean of two neighbouring rows. The table costs a small product per step. In
# the gradient, each table row adds up the rows of the batch that read it. This replaces products with zeros and ones.
#
# Shape letters: C columns with ramps, S the most ramps of a column, N knots, R ramps in all, W first hidden units.


class RampLookup(NamedTuple):
    """Table rows that the rows of some batches read; tensors are empty without ramps or without weights."""

    n_plain: int  # inputs before the ramps; indicators and the bias follow them
    n_ramps: int  # R
    values: Tensor  # (G·C, N, S): the value of every ramp at every knot of its column
    padded: Tensor  # (G·C·S,): the ramp at each place, any where a column has fewer than S; empty if none has fewer
    filled: Tensor  # (G·R,): the place of every ramp; empty likewise
    starts: Tensor  # (G·B,): where in `codes` a row of the batch begins
    codes: Tensor  # (batches, entries): table rows, by row of the batch
    code_weights: Tensor  # (batches, entries)
    readers: Tensor  # (batches, entries): rows of the batch, by table row
    reader_starts: Tensor  # (batches, G·C·N)
    reader_weights: Tensor  # (batches, entries)


NO_RAMPS = RampLookup(0, 0, *[torch.empty(0)] * 9)


def _summed(table: Tensor, lookup_rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Sums of rows of a table, one for each start."""
    given: Tensor | None = None
    if weights.numel() > 0:
        given = weights
    return torch.embedding_bag(table, lookup_rows, starts, False, 0, False, given, False)[0]


def add_ramps(lookup: RampLookup, batch: int, first: Tensor, x: Tensor, out: Tensor) -> None:
    """Write the first layer's product (G, B, W) of a batch to ``out``; x (G, B, plain + indicators + 1) has no ramps.

    ``first`` is (G, plain + ramps + indicators + 1, W).
    """
    n_groups, width = first.size(0), first.size(2)
    after = lookup.n_plain + lookup.n_ramps
    plain = torch.cat([first.narrow(1, 0, lookup.n_plain), first.narrow(1, after, first.size(1) - after)], 1)
    torch.bmm(x, plain, out=out)
    own = first.narrow(1, lookup.n_plain, lookup.n_ramps).reshape([n_groups * lookup.n_ramps, width])
    if lookup.padded.numel() > 0:
        own = own.index_select(0, lookup.padded)
    own = own.view([lookup.values.size(0), lookup.values.size(2), width])
    table = torch.bmm(lookup.values, own).view([-1, width])
    weights = lookup.code_weights
    if weights.numel() > 0:
        weights = weights.select(0, batch)
    out.view([-1, width]).add_(_summed(table, lookup.codes.select(0, batch), lookup.starts, weights))


def ramps_gradient(lookup: RampLookup, batch: int, x: Tensor, back: Tensor, found: Tensor) -> None:
    """Write the first layer's gradient, in the shape of ``first``, to ``found``, given that at its outputs."""
    n_groups, width = back.size(0), back.size(2)
    after = lookup.n_plain + lookup.n_ramps
    plain = torch.bmm(x.transpose(1, 2), back)
    found.narrow(1, 0, lookup.n_plain).copy_(plain.narrow(1, 0, lookup.n_plain))
    n_after = found.size(1) - after
    found.narrow(1, after, n_after).copy_(plain.narrow(1, lookup.n_plain, n_after))
    weights = lookup.reader_weights
    if weights.numel() > 0:
        weights = weights.select(0, batch)
    starts, readers = lookup.reader_starts.select(0, batch), lookup.readers.select(0, batch)
    table = _summed(back.view([-1, width]), readers, starts, weights)
    table = table.view([lookup.values.size(0), lookup.values.size(1), width])
    by_column = lookup.values.transpose(1, 2)
    if lookup.filled.numel() > 0:
        own = torch.bmm(by_column, table).view([-1, width]).index_select(0, lookup.filled)
        found.narrow(1, lookup.n_plain, lookup.n_ramps).copy_(own.view([n_groups, lookup.n_ramps, width]))
        return
    columns = table.size(0) // n_groups
    for group in range(n_groups):
        place = found.select(0, group).narrow(0, lookup.n_plain, lookup.n_ramps).view([columns, -1, width])
        here = group * columns
        torch.bmm(by_column.narrow(0, here, columns), table.narrow(0, here, columns), out=place)


# -- forward and backward ----------------------------------------------------------------------------------------------


def forward(work: Workspace, x: Tensor, ramps: RampLookup, batch: int) -> tuple[Tensor, list[Tensor]]:
    """Logits (G, B, M·C) of encoded rows x (G, B, F+1), whose last column is ones, and what the inner layers keep.

    If ramps are looked up, x does not contain them; ``batch`` is the number of the batch in the lookup. The buffer
    ``hidden`` holds the first layer's units (or pre-activations, if the backward pass needs them), and the logits of a
    linear network.
    """
    design, own, buffers = work.design, work.own, work.buffers
    first = own.first
    if design.is_scaled:
        torch.mul(own.scales, design.scale_speed, out=buffers.scale_values)
        buffers.effective.select(1, -1).copy_(own.first.select(1, -1))
        torch.mul(own.columns, buffers.scale_values, out=buffers.effective_columns)
        first = buffers.effective
    if ramps.n_ramps > 0:
        add_ramps(ramps, batch, first, x, buffers.hidden)
    else:
        torch.bmm(x, first, out=buffers.hidden)
    inner: list[Tensor] = []
    if design.n_hidden == 0:
        return buffers.hidden, inner
    units = activate_in_place(design.activation, buffers.hidden).view(buffers.units.size())
    if design.n_hidden > 1:
        inner = _inner_forward(design.activation, units, own.inner)
    n_groups, n_rows, n_models, _ = units.size()
    if design.n_outputs > 1:
        last = inner[-1].view([n_groups, n_models, n_rows, -1]) if design.n_hidden > 1 else units.transpose(1, 2)
        out = torch.matmul(last, own.out_weight).transpose(1, 2).reshape(n_groups, n_rows, -1)
    elif design.n_hidden > 1:
        out_weight = own.out_weight.reshape([-1, 1, own.out_weight.size(2)])
        out = (inner[-1] * out_weight).sum(-1).view([n_groups, n_models, n_rows]).transpose(1, 2)
    else:
        out = torch.mul(units, own.out_weight.unsqueeze(1), out=buffers.back_units).sum(-1)
    logits = torch.empty([n_groups, n_rows, own.out_bias.size(2)], dtype=out.dtype, device=out.device)
    return torch.add(out, own.out_bias, out=logits), inner


def logits_of_batches(work: Workspace, batches: list[Tensor], ramps: RampLookup) -> Tensor:
    """Logits (batches, G, B, M·C) of batches of one size."""
    found: list[Tensor] = []
    for i in range(len(batches)):
        logits = forward(work, batches[i], ramps, i)[0]
        found.append(
            logits.clone() if work.design.n_hidden == 0 else logits
        )  # those of a linear network are in a buffer
    return torch.stack(found)


def _inner_forward(activation: str, units: Tensor, layers: list[Tensor]) -> list[Tensor]:
    """Hidden layers after the first: their input (G·M, B, H), then the pre-activations and units of each layer."""
    h = units.transpose(1, 2).contiguous().flatten(0, 1)
    kept = [h]
    for i in range(0, len(layers), 2):
        pre = torch.bmm(h, layers[i]).add_(layers[i + 1])
        h = activate_in_place(activation, pre)
        kept.append(pre)
        kept.append(h)
    return kept


def gradient(
    work: Workspace, x: Tensor, ramps: RampLookup, batch: int, y: Tensor, row_weight: Tensor, add: bool
) -> Tensor:
    """Write the gradient of Σ_B w ℓ to ``work.grads``, or add it; return the logits.

    Shape
    -----
    x (G, B, F+1), without ramps that are looked up; y (G or 1, B, 1); row_weight (G, B, M), already divided by each
    network's weight sum.
    """
    design, own, grads, buffers = work.design, work.own, work.grads, work.buffers
    logits, inner = forward(work, x, ramps, batch)
    error = row_derivative(design.loss, logits, y, row_weight, design.n_outputs)  # (G, B, M·C)
    if not add:
        grads.tail.zero_()
    if design.n_hidden == 0:
        _first_gradient(work, x, ramps, batch, error, add)
        return logits
    grads.out_bias.add_(sum_of_rows(error).unsqueeze(1))
    back = buffers.back_units
    if design.n_hidden > 1:
        back.copy_(_inner_backward(design.activation, error, inner, own, grads).transpose(1, 2))
    else:
        units = buffers.units
        if not is_in_place(design.activation):
            units = activate_in_place(design.activation, units)  # a new tensor
        if design.n_outputs > 1:
            found = _output_backward(error, units.transpose(1, 2), own.out_weight, grads.out_weight)
            back.copy_(found.transpose(1, 2))
        else:
            grads.out_weight.add_(torch.mul(units, error.unsqueeze(3), out=back).sum(1))
            torch.mul(error.unsqueeze(3), own.out_weight.unsqueeze(1), out=back)
    before_activation(design.activation, buffers.back, buffers.hidden)
    _first_gradient(work, x, ramps, batch, buffers.back, add)
    return logits


def _output_backward(error: Tensor, units: Tensor, out_weight: Tensor, out_grad: Tensor) -> Tensor:
    """Several outputs: add the gradient of the weights to ``out_grad``; return that of the units, (G, M, B, H).

    Shape
    -----
    error (G, B, M·C); units (G, M, B, H); out_weight, out_grad (G, M, H, C).
    """
    n_groups, n_models, _, n_outputs = out_weight.size()
    own = error.reshape(n_groups, error.size(1), n_models, n_outputs).transpose(1, 2)  # (G, M, B, C)
    out_grad.add_(torch.matmul(units.transpose(2, 3), own))
    return torch.matmul(own, out_weight.transpose(2, 3))


def _inner_backward(activation: str, error: Tensor, kept: list[Tensor], layers: Layers, grads: Layers) -> Tensor:
    """Gradient at the first hidden layer's units, (G, M, B, H)."""
    out_weight = layers.out_weight
    n_groups, n_models, n_rows = out_weight.size(0), out_weight.size(1), kept[0].size(1)
    if out_weight.dim() == 4:
        units = kept[-1].view([n_groups, n_models, n_rows, -1])
        back = _output_backward(error, units, out_weight, grads.out_weight).flatten(0, 1)
    else:
        own = error.transpose(1, 2).reshape([-1, n_rows, 1])  # (G·M, B, 1)
        grads.out_weight.add_(torch.bmm(kept[-1].transpose(1, 2), own).view(out_weight.size()))
        back = own * out_weight.reshape([-1, 1, out_weight.size(2)])
    for i in range(len(layers.inner) - 2, -1, -2):
        below, written = kept[i], kept[i + 1]
        before_activation(activation, back, written)
        grads.inner[i].add_(torch.bmm(below.transpose(1, 2), back))
        grads.inner[i + 1].add_(back.sum(1, keepdim=True))
        back = torch.bmm(back, layers.inner[i].transpose(1, 2))
    return back.view([n_groups, n_models, n_rows, -1])


def _first_gradient(work: Workspace, x: Tensor, ramps: RampLookup, batch: int, back: Tensor, add: bool) -> None:
    """Write or add the gradient of the first layer, given the gradient at its outputs."""
    design, grads, buffers = work.design, work.grads, work.buffers
    if not design.is_scaled and ramps.n_ramps == 0:
        grads.first.baddbmm_(x.transpose(1, 2), back, beta=1.0 if add else 0.0)
        return
    found = grads.first
    if design.is_scaled:
        found = buffers.effective
    elif add:
        found = torch.empty_like(grads.first)
    if ramps.n_ramps > 0:
        ramps_gradient(ramps, batch, x, back, found)
    else:
        torch.bmm(x.transpose(1, 2), back, out=found)
    if design.is_scaled:
        here = buffers.effective_columns
        grads.scales.add_((here * work.own.columns).sum(-1, keepdim=True).mul_(design.scale_speed))
        torch.mul(here, buffers.scale_values, out=here if add else grads.columns)
        if not add:
            grads.first.select(1, -1).copy_(found.select(1, -1))
    if add:
        grads.first.add_(found)
