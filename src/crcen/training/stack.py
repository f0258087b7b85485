"""Many small networks as a few large tensors: the parameters of a stack, and its loss and gradient on a batch.

The networks of a group see the same rows with the same input encoding, so the first layer of all of them is one matrix
product; groups are a batch axis of it. Networks of one hidden shape in a group form a block. Nothing reduces over
groups or networks.

Shape letters: G groups, M networks of a group, K networks of a block, B rows of a batch, F features, H hidden units, C
outputs of a network.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.theory.rows import Array
from crcen.training.network import Network
from crcen.training.passes import (
    BlockBuffers,
    BlockLayers,
    BlockShape,
    Buffers,
    Design,
    Layers,
    forward,
    gradient,
    row_loss,
    units_of,
)
from crcen.training.ramp_lookup import NO_RAMPS, RampLookup
from crcen.training.threads import reproducible_arithmetic

# A scale moves this many times as fast as a weight, as in RealMLP. The step length of Adam does not depend on the size
# of the gradient, so a stored number that counts this many times has that effect.
_SCALE_SPEED = 6.0
# Numbers that the vectors of any processor divide.
_VECTOR = 32
# Batch sizes whose buffers are kept: training batches, validation batches, and one of a stream with varying batches.
_KEPT_BUFFERS = 3
# Constants of splitmix64, as signed 64-bit numbers.
_GOLDEN, _MIX_1, _MIX_2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


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


def _blocks_of(shapes: Sequence[tuple[int, ...]], n_outputs: int) -> list[BlockShape]:
    """One block for each hidden shape; equal shapes are consecutive."""
    blocks: list[BlockShape] = []
    model = column = 0
    for hidden in dict.fromkeys(shapes):
        size, units = shapes.count(hidden), hidden[0] if hidden else n_outputs
        blocks.append(BlockShape(model, size, column, list(hidden), units))
        model, column = model + size, column + size * units
    return blocks


def _models(block: BlockShape) -> slice:
    return slice(block.first_model, block.first_model + block.size)


def _columns(block: BlockShape) -> slice:
    return slice(block.first_column, block.first_column + block.size * block.units)


def padded_size(n_parameters: int, device: torch.device) -> int:
    """Length of a flat vector: on a CPU whole vectors, because the remainder of a vector uses another code path."""
    return -(-n_parameters // _VECTOR) * _VECTOR if device.type == "cpu" else n_parameters


class Stack:
    """Parameters of G × M networks in one flat vector, with their loss and gradient on a batch."""

    def __init__(
        self,
        n_groups: int,
        n_features: int,
        shapes: Sequence[tuple[int, ...]],
        activation: str,
        loss: str,
        dtype: torch.dtype,
        device: torch.device,
        *,
        scaled: bool = False,
        n_outputs: int = 1,
    ) -> None:
        self.n_groups, self.n_features, self.n_models = n_groups, n_features, len(shapes)
        self.n_outputs = n_outputs
        self._blocks = _blocks_of(shapes, n_outputs)
        self.is_linear = not shapes[0]
        self.width = _columns(self._blocks[-1]).stop
        self.dtype, self.device, self.is_scaled = dtype, device, scaled
        self.design = Design(
            self._blocks,
            activation,
            loss,
            self.is_linear,
            scaled,
            _SCALE_SPEED,
            n_outputs,
        )
        self.n_parameters = sum(prod(shape) for shape in self._shapes())
        self.flat = torch.zeros(padded_size(self.n_parameters, device), dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.own, self.grads = (self._with_blocks(self.views(own)) for own in (self.flat, self.grad))
        self._scale_buffers = (
            torch.empty_like(self.own.first if scaled else self.flat[:0]),
            torch.empty_like(self.own.scales),
        )
        # By number of rows of a batch.
        self._buffers: dict[int, Buffers] = {}

    @property
    def models(self) -> list[slice]:
        """For each block the positions of its networks among a group's M, in the order of `arrays` and `vectors`."""
        return [_models(block) for block in self._blocks]

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of the tensors in the flat vector, in order; the last input row of the first layer is its bias."""
        yield (self.n_groups, self.n_features + 1, self.width)
        for block in self._blocks:
            lead = (self.n_groups, block.size)
            for h_in, h_out in pairwise(block.hidden):
                yield (*lead, h_in, h_out)
                yield (*lead, 1, h_out)
        if not self.is_linear:
            yield (self.n_groups, sum(block.size * block.hidden[-1] for block in self._blocks) * self.n_outputs)
            yield (self.n_groups, self.n_models * self.n_outputs)
        if self.is_scaled:
            yield (self.n_groups, self.n_features, self.n_models)

    def views(self, flat: Tensor) -> Layers:
        """The layers of all networks, as views of a vector over the flat parameters."""
        views: list[Tensor] = []
        start = 0
        for shape in self._shapes():
            views.append(flat[start : start + prod(shape)].view(shape))
            start += prod(shape)
        scales = views.pop() if self.is_scaled else flat[:0].view(self.n_groups, 0, self.n_models)
        first, tail = views[0], flat[views[0].numel() :]
        if self.is_linear:
            return Layers(first, [], tail[:0], tail[:0], scales, tail, [])
        tensors, (out_weight, out_bias) = iter(views[1:-2]), views[-2:]
        inner = [[next(tensors) for _ in block.hidden[1:] for _ in ("weight", "bias")] for block in self._blocks]
        return Layers(first, inner, out_weight, out_bias, scales, tail, [])

    def _out_weights(self, out_weight: Tensor) -> list[Tensor]:
        """Output weights of each block, (G, K, H, C)."""
        found, start = [], 0
        for block in self._blocks:
            shape = (self.n_groups, block.size, block.hidden[-1], self.n_outputs)
            width = prod(shape[1:])
            found.append(out_weight.narrow(1, start, width).view(shape))
            start += width
        return found

    def _with_blocks(self, layers: Layers) -> Layers:
        """The same layers with views of each block."""
        found = []
        weights = [layers.out_weight] * len(self._blocks) if self.is_linear else self._out_weights(layers.out_weight)
        for i, (block, weight) in enumerate(zip(self._blocks, weights, strict=True)):
            inner, bias = [], layers.out_bias
            if not self.is_linear:
                start, size = block.first_model * self.n_outputs, block.size * self.n_outputs
                inner, bias = [tensor.flatten(0, 1) for tensor in layers.inner[i]], bias.narrow(1, start, size)[:, None]
                weight = weight if self.n_outputs > 1 else weight[..., 0]
            own = BlockLayers(self._first(block, layers.first), self._scales(block, layers.scales), inner, weight, bias)
            found.append(own)
        return layers._replace(blocks=found)

    def _first(self, block: BlockShape, first: Tensor) -> Tensor:
        """A block's first weights, without biases, as (G, F, K, H)."""
        own = first[:, :-1, _columns(block)]
        return own.view(first.shape[0], first.shape[1] - 1, block.size, block.units)

    def _scales(self, block: BlockShape, scales: Tensor) -> Tensor:
        """A block's scales as (G, F, K, 1)."""
        return scales[:, :, _models(block), None]

    # -- networks in and out -----------------------------------------------------------------------------------------

    def initialise(self, seeds: Tensor, output_bias: Tensor) -> None:
        """Glorot-uniform weights and biases from the seed of each network (G, M), given output biases (G, M[, C])."""
        self.own.scales.fill_(1.0 / _SCALE_SPEED)
        gain = 24.0 if self.design.activation == "sigmoid" else 6.0
        for block, (weights, biases) in zip(self._blocks, self.layers(self.flat), strict=True):
            biases[-1].copy_(output_bias[:, _models(block)].view(self.n_groups, block.size, self.n_outputs))
            if not block.hidden:
                continue
            sizes = (self.n_features, *block.hidden, self.n_outputs)
            count = sum(h_in * h_out + h_out for h_in, h_out in pairwise(sizes))
            numbers = uniform(seeds[:, _models(block)], count)
            start = 0
            for layer, (h_in, h_out) in enumerate(pairwise(sizes)):
                bound = math.sqrt(gain / (h_in + h_out))
                own = numbers[..., start : start + h_in * h_out + h_out] * bound
                weights[layer].copy_(own[..., : h_in * h_out].view(self.n_groups, block.size, h_in, h_out))
                if layer < len(sizes) - 2:
                    biases[layer].copy_(own[..., h_in * h_out :])
                start += h_in * h_out + h_out

    def layers(self, flat: Tensor) -> list[tuple[list[Tensor], list[Tensor]]]:
        """For each block its weights (G, K, in, out) and biases (G, K, out) by layer, as views of ``flat``."""
        layers, found = self.views(flat), []
        for block in self._blocks:
            shape = (self.n_groups, self.n_features + 1, block.size, block.units)
            columns = layers.first[:, :, _columns(block)].view(shape).transpose(1, 2)
            found.append(([columns[:, :, :-1]], [columns[:, :, -1]]))
        if not self.is_linear:
            outputs = layers.out_bias.view(self.n_groups, self.n_models, self.n_outputs)
            last = self._out_weights(layers.out_weight)
            for (weights, biases), models, inner, out_weight in zip(
                found, self.models, layers.inner, last, strict=True
            ):
                weights += [*inner[::2], out_weight]
                biases += [*(bias[:, :, 0] for bias in inner[1::2]), outputs[:, models]]
        return found

    def set_network(self, group: int, model: int, weights: Sequence[Array], biases: Sequence[Array]) -> None:
        """Write the parameters of one network."""
        position = next(i for i, models in enumerate(self.models) if models.start <= model < models.stop)
        own_weights, own_biases = self.layers(self.flat)[position]
        for own, new in zip((*own_weights, *own_biases), (*weights, *biases), strict=True):
            own[group, model - self.models[position].start] = torch.from_numpy(new)

    def arrays(self, flat: Tensor) -> list[tuple[list[Array], list[Array]]]:
        """`layers` as float64 arrays on the host, multiplied by the scales."""
        host = flat.detach().to("cpu", torch.float64, copy=True)
        if self.is_scaled:
            for block in self._with_blocks(self.views(host)).blocks:
                block.columns.mul_(block.scales * _SCALE_SPEED)
        return [
            ([w.contiguous().numpy() for w in weights], [b.contiguous().numpy() for b in biases])
            for weights, biases in self.layers(host)
        ]

    def vectors(self, flat: Tensor) -> list[Tensor]:
        """For each block a copy of the parameters of its networks, (G, K, parameters of a network)."""
        return [flat[places] for places, _ in self.places()]

    def load(self, flat: Tensor, vectors: Sequence[Tensor]) -> None:
        """Write the output of `vectors` to ``flat``."""
        for (places, _), values in zip(self.places(), vectors, strict=True):
            flat[places] = values

    def places(self) -> list[tuple[Tensor, Tensor]]:
        """For each block where its networks' parameters are in a flat vector, (G, K, P), and which are biases, (P,)."""
        positions, found = torch.arange(self.flat.numel(), device=self.device), []
        scales = self.views(positions).scales.transpose(1, 2)
        for block, (weights, biases) in zip(self._blocks, self.layers(positions), strict=True):
            layers = [part for pair in zip(weights, biases, strict=True) for part in pair]
            parts = [part.reshape(self.n_groups, block.size, -1) for part in (*layers, scales[:, _models(block)])]
            is_bias = [torch.full_like(part[0, 0], i % 2, dtype=torch.bool) for i, part in enumerate(parts)]
            found.append((torch.cat(parts, 2), torch.cat(is_bias)))
        return found

    def penalties(self, l2: Tensor) -> Tensor:
        """The penalty of every parameter, zero for biases, from that of every network (G, M)."""
        flat = self.spread(l2)
        self.views(flat).scales.mul_(_SCALE_SPEED**2)
        return flat

    def spread(self, per_model: Tensor, *, biases: bool = False) -> Tensor:
        """A value per network (G, M) as a vector over the flat parameters; zero for biases unless requested."""
        flat = torch.zeros_like(self.flat, dtype=per_model.dtype)
        for models, (places, is_bias) in zip(self.models, self.places(), strict=True):
            own = places if biases else places[..., ~is_bias]
            flat[own] = per_model[:, models, None].expand_as(own)
        return flat

    def per_model(self, values: Tensor) -> Tensor:
        """Sums of a vector over the flat parameters by network: (G, M)."""
        return torch.cat([values[places].sum(-1) for places, _ in self.places()], dim=1)

    # -- a batch ---------------------------------------------------------------------------------------------------

    def buffers(self, rows: int) -> Buffers:
        """Memory for a batch of ``rows`` rows."""
        if rows not in self._buffers:
            if len(self._buffers) == _KEPT_BUFFERS:
                self._buffers.popitem()  # the latest: earlier ones may be part of a captured graph
            hidden = torch.empty(self.n_groups, rows, self.width, dtype=self.dtype, device=self.device)
            back = torch.empty_like(hidden)
            effective, scales = self._scale_buffers
            blocks = [
                BlockBuffers(
                    self._first(block, effective) if self.is_scaled else effective,
                    self._scales(block, scales),
                    units_of(block, hidden),
                    units_of(block, back),
                )
                for block in self._blocks
            ]
            self._buffers[rows] = Buffers(effective, scales, hidden, back, blocks)
        return self._buffers[rows]

    def logits(self, x: Tensor, ramps: RampLookup = NO_RAMPS, batch: int = 0) -> Tensor:
        """Logits (G, B, M·C) of a batch of encoded rows (G, B, F+1), in memory of their own."""
        logits = forward(self.design, self.own, self.buffers(x.shape[1]), x, ramps, batch)[0]
        return logits.clone() if self.is_linear else logits  # those of a linear network are in a buffer

    def by_network(self, logits: Tensor) -> Tensor:
        """Logits (G, B, M·C) as (G, M, B), or (G, M, B, C) for C > 1 outputs."""
        if self.n_outputs == 1:
            return logits.transpose(1, 2)
        return logits.view(*logits.shape[:2], self.n_models, self.n_outputs).transpose(1, 2)

    def loss_and_gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """Write or add the gradient of Σ_B w ℓ to `grad`; return the loss of every network, (G, M).

        Shape
        -----
        x (G, B, F+1); y (G or 1, B, 1); row_weight (G, B, M), already divided by each network's weight sum.
        """
        logits = self.gradient(x, y, row_weight, add=add)
        return (row_weight * self.row_loss(logits, y)).sum(1)

    def gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """The same, returning the logits."""
        return gradient(self.design, self.own, self.grads, self.buffers(x.shape[1]), x, NO_RAMPS, 0, y, row_weight, add)

    def row_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every row and network."""
        return row_loss(self.design.loss, logits, y, self.n_outputs)


def gradient_of(
    network: Network,
    X: Array,
    y: NDArray[np.bool_] | NDArray[np.int64],
    row_weights: Array,
    loss: str,
    l2: float,
    *,
    scaled: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Gradient of a fitted network's objective in float64: Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus l2·W on weights.

    For cross entropy without penalty a component is the paper's −λ Σ_pos (1 − q) ∂o/∂θ + (1 − λ) Σ_neg q ∂o/∂θ, divided
    by Σ w. With column scales the penalty on the first layer is l2·Σ‖W_j‖ over its columns j, which has no gradient at
    W_j = 0. The change by a proximal step of length one replaces it: it is zero exactly where the objective is
    stationary, and equals g + l2·W_j/‖W_j‖ to first order elsewhere.
    """
    hidden = tuple(weight.shape[1] for weight in network.weights[:-1])
    cpu = torch.device("cpu")
    size, n_outputs = network.encoding.size, network.weights[-1].shape[1]
    stack = Stack(1, size, [hidden], network.activation, loss, torch.float64, cpu, n_outputs=n_outputs)
    stack.set_network(0, 0, network.weights, network.biases)
    x = torch.from_numpy(np.column_stack([network.encoding(X), np.ones(len(X))]))[None]
    target = torch.from_numpy(y.astype(np.float64))[None, :, None]
    weight = torch.from_numpy(row_weights / row_weights.sum())[None, :, None]
    with torch.no_grad(), reproducible_arithmetic():
        stack.loss_and_gradient(x, target, weight, add=True)
    weights, biases = stack.arrays(stack.grad)[0]
    penalised = [grad[0, 0] + l2 * own for grad, own in zip(weights, network.weights, strict=True)]
    if scaled:
        first = network.weights[0]
        ahead = first - weights[0][0, 0]
        sizes = np.linalg.norm(ahead, axis=1, keepdims=True)
        penalised[0] = first - ahead * np.maximum(1.0 - l2 / np.maximum(sizes, np.finfo(np.float64).tiny), 0.0)
    return penalised, [grad[0, 0] for grad in biases]
