"""Many small networks as a few large tensors: parameters, forward and backward pass of a stack.

A stack has G groups of M networks. The networks of a group see the same rows with the same input encoding, so the
first layer of all of them, of every width, is one matrix product; groups are a batch axis of that product. Networks of
one shape inside a group form a block. Nothing reduces over groups or networks. What is done with them is in
`crcen.training.passes`.

Shape letters: G groups, M networks of a group, K networks of a block, B rows of a batch, F features, H hidden units, C
outputs of a network: one for two classes, else one for each.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.activations import gain
from crcen.training.block_views import BlockShape, buffers_of_blocks, layers_of_blocks, outputs
from crcen.training.initial_numbers import uniform
from crcen.training.passes import Buffers, Design, Layers, forward, gradient, loss_of_rows
from crcen.training.ramp_lookup import NO_RAMPS, RampLookup

__all__ = ["Stack", "filled_up"]

# A scale moves this many times as fast as a weight, as in RealMLP. Adam's steps have a length of their own, so a stored
# number that counts this many times does that.
_SCALE_SPEED = 6.0
# Numbers that any processor's vectors divide.
_VECTOR = 32
# Sizes of batches whose buffers are kept: a step's and validation rows', and one of a stream whose batches differ.
_KEPT_BUFFERS = 3


@dataclass(frozen=True)
class _Block:
    """The networks of one hidden shape: columns of the first layer and positions among a group's M networks."""

    hidden: tuple[int, ...]
    models: slice
    columns: slice
    units: int  # columns of each network

    @property
    def size(self) -> int:
        """Number of networks, K."""
        return self.models.stop - self.models.start


def _blocks_of(shapes: Sequence[tuple[int, ...]], n_outputs: int) -> list[_Block]:
    """Consecutive equal shapes become one block."""
    blocks: list[_Block] = []
    model = column = 0
    for hidden in dict.fromkeys(shapes):
        size = shapes.count(hidden)
        units = hidden[0] if hidden else n_outputs
        width = size * units
        blocks.append(_Block(hidden, slice(model, model + size), slice(column, column + width), units))
        model, column = model + size, column + width
    return blocks


def filled_up(n_parameters: int, device: torch.device) -> int:
    """Numbers of a flat vector: on a CPU whole vectors, since what they leave over is computed in another way."""
    return -(-n_parameters // _VECTOR) * _VECTOR if device.type == "cpu" else n_parameters


class Stack:
    """Parameters of G × M networks in one flat vector, with their loss and gradient on a batch.

    Parameters
    ----------
    n_groups, n_features
        G and F.
    shapes
        Hidden sizes of the M networks of a group, equal ones next to each other, the same in every group.
    activation, loss
        Names, common to the stack.
    dtype, device
        Of all tensors.
    scaled
        Whether every input of a network has a learnable scale, by which its first weights are multiplied.
    n_outputs
        C.
    """

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
        self.width = self._blocks[-1].columns.stop
        self.dtype, self.device, self.is_scaled = dtype, device, scaled
        self.design = Design(
            [BlockShape(b.models.start, b.size, b.columns.start, list(b.hidden), b.units) for b in self._blocks],
            activation,
            loss,
            self.is_linear,
            scaled,
            # A GPU is short of memory traffic, which a product of matrices has least of; a CPU of calls and cache.
            device.type == "cuda",
            _SCALE_SPEED,
            n_outputs,
        )
        self.n_parameters = sum(prod(shape) for shape in self._shapes())
        self.flat = torch.zeros(filled_up(self.n_parameters, device), dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.own, self.grads = (self._with_blocks(self.views(own)) for own in (self.flat, self.grad))
        self._common_buffers = (
            torch.empty_like(self.own.first if scaled else self.flat[:0]),
            torch.empty_like(self.own.scales),
        )
        # For each number of rows of a batch: a step's and those of validation rows stay where they are.
        self._buffers: dict[int, Buffers] = {}

    @property
    def models(self) -> list[slice]:
        """Positions among a group's M networks of those of one shape, shape by shape, as `arrays` and `vectors` go."""
        return [block.models for block in self._blocks]

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of the tensors in the flat vector, in order; the first layer's last input row is its bias."""
        yield (self.n_groups, self.n_features + 1, self.width)
        for block in self._blocks:
            if block.hidden:
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

    def _with_blocks(self, layers: Layers) -> Layers:
        """The same with what a step reads of every block."""
        own = (layers.first, layers.scales, layers.inner, layers.out_weight, layers.out_bias)
        return layers._replace(blocks=layers_of_blocks(self.design.blocks, *own, self.n_outputs))

    def _block_outputs(self, layers: Layers) -> Iterator[tuple[_Block, list[Tensor], Tensor, Tensor]]:
        """Of each block with hidden layers: inner layers, output weights (G, K, H, C) and biases (G, K, C)."""
        weights = outputs(self.design.blocks, layers.out_weight, self.n_outputs)
        biases = layers.out_bias.view(self.n_groups, self.n_models, self.n_outputs)
        for block, inner, weight in zip(self._blocks, layers.inner, weights, strict=True):
            own = weight if self.n_outputs > 1 else weight[..., None]
            yield block, inner, own, biases[:, block.models]

    # -- networks in and out -----------------------------------------------------------------------------------------

    def initialise(self, seeds: Tensor, output_bias: Tensor) -> None:
        """Glorot-uniform weights and biases from each network's own seed (G, M), output biases as given (G, M[, C]).

        A network without hidden layer starts at zero: its objective is convex. Scales start at one.
        """
        self.own.scales.fill_(1.0 / _SCALE_SPEED)
        for block, (weights, biases) in zip(self._blocks, self.layers(self.flat), strict=True):
            biases[-1].copy_(output_bias[:, block.models].view(self.n_groups, block.size, self.n_outputs))
            if not block.hidden:
                continue
            sizes = (self.n_features, *block.hidden, self.n_outputs)
            count = sum(h_in * h_out + h_out for h_in, h_out in pairwise(sizes))
            numbers = uniform(seeds[:, block.models], count)
            start = 0
            for layer, (h_in, h_out) in enumerate(pairwise(sizes)):
                bound = math.sqrt(gain(self.design.activation) / (h_in + h_out))
                own = numbers[..., start : start + h_in * h_out + h_out] * bound
                weights[layer].copy_(own[..., : h_in * h_out].view(self.n_groups, block.size, h_in, h_out))
                if layer < len(sizes) - 2:
                    biases[layer].copy_(own[..., h_in * h_out :])
                start += h_in * h_out + h_out

    def layers(self, flat: Tensor) -> list[tuple[list[Tensor], list[Tensor]]]:
        """For each block its weights (G, K, in, out) and biases (G, K, out), a layer each, as views of ``flat``."""
        layers = self.views(flat)
        found = []
        for block in self._blocks:
            shape = (self.n_groups, self.n_features + 1, block.size, block.units)
            columns = layers.first[:, :, block.columns].view(shape).transpose(1, 2)
            found.append(([columns[:, :, :-1]], [columns[:, :, -1]]))
        if not self.is_linear:
            for (weights, biases), (_, inner, out_weight, out_bias) in zip(
                found, self._block_outputs(layers), strict=True
            ):
                weights += [*inner[::2], out_weight]
                biases += [*(bias[:, :, 0] for bias in inner[1::2]), out_bias]
        return found

    def set_network(
        self, group: int, model: int, weights: Sequence[NDArray[np.float64]], biases: Sequence[NDArray[np.float64]]
    ) -> None:
        """Write one network's parameters into the stack."""
        position = next(i for i, b in enumerate(self._blocks) if b.models.start <= model < b.models.stop)
        k = model - self._blocks[position].models.start
        own_weights, own_biases = self.layers(self.flat)[position]
        for own, new in zip((*own_weights, *own_biases), (*weights, *biases), strict=True):
            own[group, k] = torch.from_numpy(new)

    def arrays(self, flat: Tensor) -> list[tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]]:
        """`layers` as float64 arrays on the host, the scales multiplied in."""
        host = flat.detach().to("cpu", torch.float64, copy=True)
        if self.is_scaled:
            layers = self.views(host)
            for block in self._with_blocks(layers).blocks:
                block.columns.mul_(block.scales * _SCALE_SPEED)
        return [
            ([w.contiguous().numpy() for w in weights], [b.contiguous().numpy() for b in biases])
            for weights, biases in self.layers(host)
        ]

    def vectors(self, flat: Tensor) -> list[Tensor]:
        """For each block the parameters of its networks as vectors, (G, K, parameters of a network), copied."""
        return [
            torch.cat([part.reshape(self.n_groups, block.size, -1) for part in parts], dim=2)
            for block, parts in zip(self._blocks, self._parts(flat), strict=True)
        ]

    def load(self, flat: Tensor, vectors: Sequence[Tensor]) -> None:
        """Write what `vectors` gave back into ``flat``."""
        for parts, values in zip(self._parts(flat), vectors, strict=True):
            start = 0
            for part in parts:
                size = prod(part.shape[2:])
                part.copy_(values[..., start : start + size].view(part.shape))
                start += size

    def _parts(self, flat: Tensor) -> Iterator[list[Tensor]]:
        """All that belongs to each block's networks, (G, K, …) each, as views of ``flat``."""
        scales = self.views(flat).scales.transpose(1, 2)
        for block, (weights, biases) in zip(self._blocks, self.layers(flat), strict=True):
            yield [*weights, *biases, scales[:, block.models]] if self.is_scaled else [*weights, *biases]

    def penalties(self, l2: Tensor) -> Tensor:
        """The penalty of every parameter, zero for biases, from that of every network (G, M)."""
        flat = self.spread(l2)
        self.views(flat).scales.mul_(_SCALE_SPEED**2)
        return flat

    def spread(self, per_model: Tensor, *, biases: bool = False) -> Tensor:
        """A value per network (G, M) as a vector over the flat parameters; zero on biases unless they are asked for."""
        flat = torch.zeros_like(self.flat, dtype=per_model.dtype)
        layers = self.views(flat)
        for block in self._blocks:
            rows = slice(None) if biases else slice(None, -1)
            own = per_model[:, block.models].repeat_interleave(block.units, dim=1)
            layers.first[:, rows, block.columns] = own[:, None, :]
        for block, inner, out_weight, out_bias in [] if self.is_linear else self._block_outputs(layers):
            values = per_model[:, block.models]
            for tensor in inner if biases else inner[::2]:
                tensor.copy_(values[:, :, None, None].expand_as(tensor))
            out_weight.copy_(values[:, :, None, None].expand_as(out_weight))
            if biases:
                out_bias.copy_(values[:, :, None].expand_as(out_bias))
        layers.scales.copy_(per_model[:, None].expand_as(layers.scales))
        return flat

    def per_model(self, values: Tensor) -> Tensor:
        """Sums over each network's own parameters of a vector over the flat parameters: (G, M)."""
        layers = self.views(values)
        sums = []
        for block in self._blocks:
            own = layers.first[:, :, block.columns].sum(1).view(self.n_groups, block.size, block.units)
            sums.append(own.sum(-1))
        for i, (_, inner, out_weight, out_bias) in enumerate([] if self.is_linear else self._block_outputs(layers)):
            for tensor in inner:
                sums[i] = sums[i] + tensor.sum((2, 3))
            sums[i] = sums[i] + out_weight.sum((2, 3)) + out_bias.sum(-1)
        return torch.cat(sums, dim=1) + layers.scales.sum(1)

    # -- a batch ---------------------------------------------------------------------------------------------------

    def buffers(self, rows: int) -> Buffers:
        """Memory for a batch of so many rows."""
        if rows not in self._buffers:
            if len(self._buffers) == _KEPT_BUFFERS:
                self._buffers.popitem()  # the latest: earlier ones may be part of a captured graph
            hidden = torch.empty(self.n_groups, rows, self.width, dtype=self.dtype, device=self.device)
            back = torch.empty_like(hidden)
            blocks = buffers_of_blocks(self.design.blocks, *self._common_buffers, hidden, back)
            self._buffers[rows] = Buffers(*self._common_buffers, hidden, back, blocks)
        return self._buffers[rows]

    def logits(self, x: Tensor, ramps: RampLookup = NO_RAMPS, batch: int = 0) -> Tensor:
        """Logits (G, B, M·C) of a batch of encoded rows (G, B, F+1), the caller's to keep; ramps may be looked up."""
        logits = forward(self.design, self.own, self.buffers(x.shape[1]), x, ramps, batch)[0]
        return logits.clone() if self.is_linear else logits  # a linear network's are a buffer of the next call

    def by_network(self, logits: Tensor) -> Tensor:
        """Logits (G, B, M·C) as (G, M, B), or (G, M, B, C) for C > 1 outputs."""
        if self.n_outputs == 1:
            return logits.transpose(1, 2)
        return logits.view(*logits.shape[:2], self.n_models, self.n_outputs).transpose(1, 2)

    def loss_and_gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """Put the gradient of Σ_B w ℓ into `grad`, or add it; return the loss of every network, (G, M).

        Shape
        -----
        x (G, B, F+1); y (G or 1, B, 1); row_weight (G, B, M), already divided by each network's weight sum.
        """
        logits = self.gradient(x, y, row_weight, add=add)
        return (row_weight * self.row_loss(logits, y)).sum(1)

    def gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """As `loss_and_gradient`, but return the logits."""
        return gradient(self.design, self.own, self.grads, self.buffers(x.shape[1]), x, NO_RAMPS, 0, y, row_weight, add)

    def row_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every row and network."""
        return loss_of_rows(self.design, logits, y)
