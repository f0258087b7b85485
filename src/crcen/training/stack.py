"""Many small networks as a few large tensors: parameters, losses, forward and backward pass of a stack.

The networks of a group see the same rows with the same input encoding, so the first layer of all of them is one matrix
product; groups are a batch axis of it. Nothing reduces over groups or networks.

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

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu, softplus

from crcen.theory.rows import Array

# A scale moves this many times as fast as a weight, as in RealMLP. The step length of Adam does not depend on the size
# of the gradient, so a stored number that counts this many times has that effect.
_SCALE_SPEED = 6.0
# Numbers that the vectors of any processor divide.
_VECTOR = 32
# Batch sizes whose buffers are kept: training batches, validation batches, and one of a stream with varying batches.
_KEPT_BUFFERS = 3
# Constants of splitmix64, as signed 64-bit numbers.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15

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
    return by_class.gather(1, y.long().expand(by_class.size(0), y.size(1), by_class.size(2))).mul_(base)


# -- activations -------------------------------------------------------------------------------------------------------


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
    """Constants of a `Stack`."""

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
    return values.sum(1) if values.is_cuda else values.transpose(1, 2).contiguous().sum(-1)


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
    padded: Tensor  # (G·C·S,): the ramp at each place, any where a column has fewer than S; empty if none has
    filled: Tensor  # (G·R,): the place of every ramp; empty if all are in order
    starts: Tensor  # (G·B,): where in `codes` a row of the batch begins
    codes: Tensor  # (batches, entries): table rows, by row of the batch
    code_weights: Tensor  # (batches, entries)
    readers: Tensor  # (batches, entries): rows of the batch, by table row
    reader_starts: Tensor  # (batches, G·C·N)
    reader_weights: Tensor  # (batches, entries)


NO_RAMPS = RampLookup(0, 0, *[torch.empty(0)] * 9)


def _summed(table: Tensor, lookup_rows: Tensor, starts: Tensor, weights: Tensor, batch: int) -> Tensor:
    """Sums of rows of a table in a batch, one for each start."""
    own: Tensor | None = None
    if weights.numel() > 0:
        own = weights.select(0, batch)
    return torch.embedding_bag(table, lookup_rows.select(0, batch), starts, False, 0, False, own, False)[0]


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
    out.view([-1, width]).add_(_summed(table, lookup.codes, lookup.starts, lookup.code_weights, batch))


def ramps_gradient(lookup: RampLookup, batch: int, x: Tensor, back: Tensor, found: Tensor) -> None:
    """Write the first layer's gradient, in the shape of ``first``, to ``found``, given that at its outputs."""
    n_groups, width = back.size(0), back.size(2)
    after = lookup.n_plain + lookup.n_ramps
    plain = torch.bmm(x.transpose(1, 2), back)
    found.narrow(1, 0, lookup.n_plain).copy_(plain.narrow(1, 0, lookup.n_plain))
    n_after = found.size(1) - after
    found.narrow(1, after, n_after).copy_(plain.narrow(1, lookup.n_plain, n_after))
    starts = lookup.reader_starts.select(0, batch)
    table = _summed(back.view([-1, width]), lookup.readers, starts, lookup.reader_weights, batch)
    table = table.view([lookup.values.size(0), lookup.values.size(1), width])
    own = torch.bmm(lookup.values.transpose(1, 2), table).view([-1, width])
    if lookup.filled.numel() > 0:
        own = own.index_select(0, lookup.filled)
    found.narrow(1, lookup.n_plain, lookup.n_ramps).copy_(own.view([n_groups, lookup.n_ramps, width]))


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
        found.append(logits.clone() if work.design.n_hidden == 0 else logits)  # a linear network's are in a buffer
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

    Shapes are x (G, B, F+1), without ramps that are looked up, y (G or 1, B, 1), and row_weight (G, B, M), already
    divided by each network's weight sum.
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
        if design.activation in ("gelu", "silu"):  # their derivatives need the pre-activations, which are kept
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

    Shapes are error (G, B, M·C), units (G, M, B, H), out_weight and out_grad (G, M, H, C).
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


# -- stacks ------------------------------------------------------------------------------------------------------------


def uniform(seeds: Tensor, count: int) -> Tensor:
    """``count`` numbers in [−1, 1) for every seed, float64 (*seeds.shape, count), the same on any device."""
    counters = torch.arange(1, count + 1, device=seeds.device) * _GOLDEN
    bits = _mix(_mix(seeds + _GOLDEN)[..., None] + counters)
    return _shifted(bits, 11).double() * 2.0**-52 - 1.0


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shifted(x, 30)) * _MIX_1
    x = (x ^ _shifted(x, 27)) * _MIX_2
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, by: int) -> Tensor:
    """Logical shift to the right (the shift of torch keeps the sign)."""
    return (x >> by) & ((1 << (64 - by)) - 1)


class Stack:
    """Parameters of G × M networks of one shape in one flat vector, with their loss and gradient on a batch."""

    def __init__(
        self,
        n_groups: int,
        n_models: int,
        n_features: int,
        hidden: tuple[int, ...],
        activation: str,
        loss: str,
        dtype: torch.dtype,
        device: torch.device,
        *,
        scaled: bool = False,
        n_outputs: int = 1,
    ) -> None:
        self.n_groups, self.n_models, self.n_outputs = n_groups, n_models, n_outputs
        self.sizes = (n_features, *hidden, n_outputs)
        self.width = n_models * self.sizes[1]
        self.dtype, self.device, self.is_scaled = dtype, device, scaled
        self.design = Design(len(hidden), activation, loss, scaled, _SCALE_SPEED, n_outputs)
        size = sum(prod(shape) for shape in self._shapes())
        if device.type == "cpu":  # whole vectors, because the remainder of a vector uses another code path
            size = -(-size // _VECTOR) * _VECTOR
        self.flat = torch.zeros(size, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.own, self.grads = self._layers(self.flat), self._layers(self.grad)
        self._effective = torch.empty_like(self.own.first if scaled else self.flat[:0])
        self._scale_values = torch.empty_like(self.own.scales)
        self._workspaces: dict[int, Workspace] = {}  # by number of rows of a batch

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of the tensors in the flat vector, in order; the last input row of the first layer is its bias."""
        lead = (self.n_groups, self.n_models)
        yield (self.n_groups, self.sizes[0] + 1, self.width)
        for h_in, h_out in pairwise(self.sizes[1:-1]):
            yield (*lead, h_in, h_out)
            yield (*lead, 1, h_out)
        if len(self.sizes) > 2:
            yield (*lead, self.sizes[-2], self.n_outputs)
            yield (*lead, 1, self.n_outputs)
        if self.is_scaled:
            yield (self.n_groups, self.sizes[0], self.n_models, 1)

    def _views(self, flat: Tensor) -> tuple[list[Tensor], Tensor]:
        """The tensors in a vector over the flat parameters, and the scales, which are empty without scales."""
        views, start = [], 0
        for shape in self._shapes():
            views.append(flat[start : start + prod(shape)].view(shape))
            start += prod(shape)
        return views, views.pop() if self.is_scaled else flat[:0].view(self.n_groups, 0, self.n_models, 1)

    def _layers(self, flat: Tensor) -> Layers:
        """The layers of all networks as a pass takes them."""
        (first, *others), scales = self._views(flat)
        tail = flat[first.numel() :]
        columns = self._by_model(first[:, :-1])
        if not others:
            return Layers(first, columns, [], tail[:0], tail[:0], scales, tail)
        *inner, weight, bias = others
        weight = weight if self.n_outputs > 1 else weight[..., 0]
        bias = bias.view(self.n_groups, 1, -1)
        return Layers(first, columns, [one.flatten(0, 1) for one in inner], weight, bias, scales, tail)

    def _by_model(self, values: Tensor) -> Tensor:
        """A tensor (G, n, M·H) as (G, n, M, H)."""
        return values.view(*values.shape[:2], self.n_models, -1)

    # -- networks in and out -----------------------------------------------------------------------------------------

    def initialise(self, seeds: Tensor, output_bias: Tensor) -> None:
        """Glorot-uniform weights and biases from the seed of each network (G, M), given output biases (G, M[, C])."""
        self.own.scales.fill_(1.0 / _SCALE_SPEED)
        gain = 24.0 if self.design.activation == "sigmoid" else 6.0
        weights, biases = self.layers(self.flat)
        biases[-1].copy_(output_bias.view_as(biases[-1]))
        if len(self.sizes) == 2:
            return
        numbers = uniform(seeds, sum(h_in * h_out + h_out for h_in, h_out in pairwise(self.sizes)))
        start = 0
        for layer, (h_in, h_out) in enumerate(pairwise(self.sizes)):
            bound = math.sqrt(gain / (h_in + h_out))
            own = numbers[..., start : start + h_in * h_out + h_out] * bound
            weights[layer].copy_(own[..., : h_in * h_out].view(weights[layer].shape))
            if layer < len(self.sizes) - 2:
                biases[layer].copy_(own[..., h_in * h_out :])
            start += h_in * h_out + h_out

    def layers(self, flat: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Weights (G, M, in, out) and biases (G, M, out) by layer, as views of ``flat``."""
        (first, *others), _ = self._views(flat)
        columns = self._by_model(first).transpose(1, 2)
        return [columns[:, :, :-1], *others[::2]], [columns[:, :, -1], *(bias[:, :, 0] for bias in others[1::2])]

    def set_networks(self, weights: Sequence[Array], biases: Sequence[Array]) -> None:
        """Write parameters, (G, M, in, out) and (G, M, out) by layer; one group needs no first axis."""
        own_weights, own_biases = self.layers(self.flat)
        for own, new in zip((*own_weights, *own_biases), (*weights, *biases), strict=True):
            own[:] = torch.from_numpy(new)

    def arrays(self, flat: Tensor) -> tuple[list[Array], list[Array]]:
        """`layers` as float64 arrays on the host, multiplied by the scales."""
        host = flat.detach().to("cpu", torch.float64, copy=True)
        if self.is_scaled:
            layers = self._layers(host)
            layers.columns.mul_(layers.scales * _SCALE_SPEED)
        weights, biases = self.layers(host)
        return [w.contiguous().numpy() for w in weights], [b.contiguous().numpy() for b in biases]

    def places(self) -> tuple[Tensor, Tensor]:
        """Where the networks' parameters are in a flat vector, (G, M, P), and which of them are biases, (P,)."""
        positions = torch.arange(self.flat.numel(), device=self.device)
        weights, biases = self.layers(positions)
        layers = [part for pair in zip(weights, biases, strict=True) for part in pair]
        scales = self._views(positions)[1].transpose(1, 2)
        parts = [part.reshape(self.n_groups, self.n_models, -1) for part in (*layers, scales)]
        is_bias = [torch.full_like(part[0, 0], i % 2, dtype=torch.bool) for i, part in enumerate(parts)]
        return torch.cat(parts, 2), torch.cat(is_bias)

    def penalties(self, l2: Tensor) -> Tensor:
        """The penalty of every parameter, zero for biases, from that of every network (G, M)."""
        flat = self.spread(l2)
        places, is_bias = self.places()
        flat[places[..., is_bias]] = 0.0
        self._views(flat)[1].mul_(_SCALE_SPEED**2)
        return flat

    def spread(self, per_model: Tensor) -> Tensor:
        """A value per network (G, M) as a vector over the flat parameters."""
        flat, places = torch.zeros_like(self.flat, dtype=per_model.dtype), self.places()[0]
        flat[places] = per_model[..., None].expand_as(places)
        return flat

    def per_model(self, values: Tensor) -> Tensor:
        """Sums of a vector over the flat parameters by network: (G, M)."""
        return values[self.places()[0]].sum(-1)

    # -- a batch ---------------------------------------------------------------------------------------------------

    def workspace(self, rows: int) -> Workspace:
        """The parameters with memory for a batch of ``rows`` rows."""
        if rows not in self._workspaces:
            if len(self._workspaces) == _KEPT_BUFFERS:
                self._workspaces.popitem()  # the latest: earlier ones may be part of a captured graph
            hidden = torch.empty(self.n_groups, rows, self.width, dtype=self.dtype, device=self.device)
            back = torch.empty_like(hidden)
            columns = self._by_model(self._effective[:, :-1]) if self.is_scaled else self._effective
            scaled = (self._effective, columns, self._scale_values)
            buffers = Buffers(*scaled, hidden, self._by_model(hidden), back, self._by_model(back))
            self._workspaces[rows] = Workspace(self.design, self.own, self.grads, buffers)
        return self._workspaces[rows]

    def logits(self, x: Tensor) -> Tensor:
        """Logits (G, B, M·C) of a batch of encoded rows (G, B, F+1), in memory of their own."""
        return logits_of_batches(self.workspace(x.shape[1]), [x], NO_RAMPS)[0]

    def by_network(self, logits: Tensor) -> Tensor:
        """Logits (G, B, M·C) as (G, M, B), or (G, M, B, C) for C > 1 outputs."""
        return (logits if self.n_outputs == 1 else self._by_model(logits)).transpose(1, 2)

    def loss_and_gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """Write or add the `gradient` of Σ_B w ℓ to `grad`; return the loss of every network, (G, M)."""
        logits = gradient(self.workspace(x.shape[1]), x, NO_RAMPS, 0, y, row_weight, add)
        return (row_weight * self.row_loss(logits, y)).sum(1)

    def row_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every row and network."""
        return row_loss(self.design.loss, logits, y, self.n_outputs)
