"""Many small networks as a few large tensors: the parameters of a stack, and its loss and gradient on a batch.

The networks of a group see the same rows with the same input encoding, so the first layer of all of them is one matrix
product; groups are a batch axis of it. Nothing reduces over groups or networks.

Shape letters: G groups, M networks of a group, B rows of a batch, F features, H hidden units, C outputs of a network.
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
from crcen.training.device import reproducible_arithmetic
from crcen.training.network import NetworkGroup
from crcen.training.passes import NO_RAMPS, Buffers, Design, Layers, Workspace, forward, gradient, row_loss

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
        # By number of rows of a batch.
        self._workspaces: dict[int, Workspace] = {}

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
        self._views(flat)[1].mul_(_SCALE_SPEED**2)
        return flat

    def spread(self, per_model: Tensor, *, biases: bool = False) -> Tensor:
        """A value per network (G, M) as a vector over the flat parameters; zero for biases unless requested."""
        flat = torch.zeros_like(self.flat, dtype=per_model.dtype)
        places, is_bias = self.places()
        own = places if biases else places[..., ~is_bias]
        flat[own] = per_model[..., None].expand_as(own)
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
        logits = forward(self.workspace(x.shape[1]), x, NO_RAMPS, 0)[0]
        return logits.clone() if not self.design.n_hidden else logits  # those of a linear network are in a buffer

    def by_network(self, logits: Tensor) -> Tensor:
        """Logits (G, B, M·C) as (G, M, B), or (G, M, B, C) for C > 1 outputs."""
        if self.n_outputs == 1:
            return logits.transpose(1, 2)
        return self._by_model(logits).transpose(1, 2)

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
        return gradient(self.workspace(x.shape[1]), x, NO_RAMPS, 0, y, row_weight, add)

    def row_loss(self, logits: Tensor, y: Tensor) -> Tensor:
        """The loss of every row and network."""
        return row_loss(self.design.loss, logits, y, self.n_outputs)


def gradients_of(
    group: NetworkGroup,
    X: Array,
    y: NDArray[np.bool_] | NDArray[np.int64],
    row_weights: Array,
    loss: str,
    l2: float,
    *,
    scaled: bool = False,
) -> tuple[list[Array], list[Array]]:
    """Gradients of fitted networks' objectives in float64: Σ w (∂ℓ/∂o)(∂o/∂θ) / Σ w, plus l2·W on weights.

    For cross entropy without penalty a component is the paper's −λ Σ_pos (1 − q) ∂o/∂θ + (1 − λ) Σ_neg q ∂o/∂θ, divided
    by Σ w. With column scales the penalty on the first layer is l2·Σ‖W_j‖ over its columns j, which has no gradient at
    W_j = 0. The change by a proximal step of length one replaces it: it is zero exactly where the objective is
    stationary, and equals g + l2·W_j/‖W_j‖ to first order elsewhere.
    """
    hidden, n_outputs = tuple(weight.shape[2] for weight in group.weights[:-1]), group.weights[-1].shape[2]
    network = group.encoding.size, hidden, group.activation, loss, torch.float64, torch.device("cpu")
    stack = Stack(1, len(group), *network, n_outputs=n_outputs)
    stack.set_networks(group.weights, group.biases)
    x = torch.from_numpy(np.column_stack([group.encoding(X), np.ones(len(X))]))[None]
    target = torch.from_numpy(y.astype(np.float64))[None, :, None]
    weight = torch.from_numpy(row_weights / row_weights.sum())[None, :, None].expand(-1, -1, len(group))
    with torch.no_grad(), reproducible_arithmetic():
        stack.loss_and_gradient(x, target, weight, add=True)
    weights, biases = ([part[0] for part in parts] for parts in stack.arrays(stack.grad))
    penalised = [grad + l2 * own for grad, own in zip(weights, group.weights, strict=True)]
    if scaled:
        first = group.weights[0]
        ahead = first - weights[0]
        sizes = np.linalg.norm(ahead, axis=2, keepdims=True)
        penalised[0] = first - ahead * np.maximum(1.0 - l2 / np.maximum(sizes, np.finfo(np.float64).tiny), 0.0)
    return penalised, biases
