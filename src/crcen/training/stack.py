"""Many small networks as a few large tensors: parameters, forward and backward pass of a stack.

A stack has G groups of M networks. The networks of a group see the same rows with the same input encoding, so the
first layer of all of them, of every width, is one matrix product; groups are a batch axis of that product. Networks of
one shape inside a group form a block. Nothing reduces over groups or networks.

The backward pass is written out: on a CPU it takes less than half the time of autograd, because the large
intermediate (rows × all first hidden units) is written into two buffers that are used again at every step.

Shape letters: G groups, M networks of a group, K networks of a block, B rows of a batch, F features, H hidden units.
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

from crcen.training.activations import ACTIVATIONS
from crcen.training.losses import LOSSES
from crcen.training.network import uniform

__all__ = ["Block", "Stack"]

# A scale moves this many times as fast as a weight, as in RealMLP. Adam's steps have a length of their own, so a stored
# number that counts this many times does that.
_SCALE_SPEED = 6.0
# Up to so many networks of a group one output product, most of it zeros, beats a product for each of several widths.
_JOINT_MODELS = 32
# Sizes of batches whose buffers are kept: a step's and validation rows', and one of a stream whose batches differ.
_KEPT_BUFFERS = 3


@dataclass(frozen=True)
class Block:
    """The networks of one hidden shape: columns of the first layer and positions among a group's M networks."""

    hidden: tuple[int, ...]
    models: slice
    columns: slice

    @property
    def size(self) -> int:
        """Number of networks, K."""
        return self.models.stop - self.models.start


@dataclass
class BlockTensors:
    """Views into the flat parameter (or gradient) vector of what follows a block's first layer."""

    inner: list[tuple[Tensor, Tensor]]  # (G, K, H_in, H_out) and (G, K, 1, H_out) a layer
    out_weight: Tensor  # (G, K, H)
    out_bias: Tensor  # (G, K)


def _blocks(shapes: Sequence[tuple[int, ...]]) -> list[Block]:
    """Consecutive equal shapes become one block."""
    blocks: list[Block] = []
    model = column = 0
    for hidden in dict.fromkeys(shapes):
        size = shapes.count(hidden)
        width = size * (hidden[0] if hidden else 1)
        blocks.append(Block(hidden, slice(model, model + size), slice(column, column + width)))
        model, column = model + size, column + width
    return blocks


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
    joint
        Whether the output layers of a group's networks may be one matrix product, with zeros where a hidden unit is
        another network's. That is faster, but where one network overflows, zero times infinity spoils its neighbours.
    scaled
        Whether every input of a network has a learnable scale, by which its first weights are multiplied.
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
        joint: bool = True,
        scaled: bool = False,
    ) -> None:
        self.n_groups, self.n_features, self.n_models = n_groups, n_features, len(shapes)
        self.blocks = _blocks(shapes)
        self.is_linear = not shapes[0]
        self.width = self.blocks[-1].columns.stop
        self.activation = ACTIVATIONS[activation]
        self.loss = LOSSES[loss]
        self.dtype, self.device, self.is_scaled = dtype, device, scaled
        shallow = all(len(block.hidden) == 1 for block in self.blocks)
        # A GPU is short of memory traffic, which a product of matrices has least of; a CPU is short of calls and cache.
        self._by_products = device.type == "cuda"
        self.is_joint = joint and shallow and len(self.blocks) > 1 and len(shapes) <= _JOINT_MODELS
        n_parameters = sum(prod(shape) for shape in self._shapes())
        self.flat = torch.zeros(n_parameters, dtype=dtype, device=device)
        self.grad = torch.zeros_like(self.flat)
        self.first, self.tail, self.outputs = self._views(self.flat)
        self.first_grad, self.tail_grad, self.outputs_grad = self._views(self.grad)
        self.tail_of_grad = self.grad[self.first_grad.numel() :]
        # The first layer as it takes effect, and then its gradient.
        self._effective = torch.empty_like(self.first) if scaled else self.first
        self._scale_values = torch.empty_like(self._scales(self.flat))
        if self.is_joint:
            owner = [m for m, hidden in enumerate(shapes) for _ in range(hidden[0])]
            self._joint = torch.zeros(n_groups, self.width, len(shapes), dtype=dtype, device=device)
            self._joint_at = (torch.arange(self.width, device=device), torch.tensor(owner, device=device))
        # Two buffers for each number of rows of a batch: a step's and those of validation rows stay where they are.
        self._buffers: dict[int, tuple[Tensor, Tensor]] = {}

    def _shapes(self) -> Iterator[tuple[int, ...]]:
        """Shapes of the tensors in the flat vector, in order; the first layer's last input row is its bias."""
        yield (self.n_groups, self.n_features + 1, self.width)
        for block in self.blocks:
            if block.hidden:
                lead = (self.n_groups, block.size)
                for h_in, h_out in pairwise(block.hidden):
                    yield (*lead, h_in, h_out)
                    yield (*lead, 1, h_out)
        if not self.is_linear:
            yield (self.n_groups, sum(block.size * block.hidden[-1] for block in self.blocks))
            yield (self.n_groups, self.n_models)
        if self.is_scaled:
            yield (self.n_groups, self.n_features, self.n_models)

    def _views(self, flat: Tensor) -> tuple[Tensor, list[BlockTensors], tuple[Tensor, Tensor]]:
        """First layer, what follows it block by block, and the output weights and biases of all blocks together."""
        views: list[Tensor] = []
        start = 0
        for shape in self._shapes():
            views.append(flat[start : start + prod(shape)].view(shape))
            start += prod(shape)
        tensors = iter(views)
        first = next(tensors)
        if self.is_linear:
            return first, [], (first, first)
        inner = [[(next(tensors), next(tensors)) for _ in block.hidden[1:]] for block in self.blocks]
        out_weight, out_bias = next(tensors), next(tensors)
        tail, column = [], 0
        for block, layers in zip(self.blocks, inner, strict=True):
            width = block.size * block.hidden[-1]
            own = out_weight[:, column : column + width].view(self.n_groups, block.size, block.hidden[-1])
            tail.append(BlockTensors(layers, own, out_bias[:, block.models]))
            column += width
        return first, tail, (out_weight, out_bias)

    def _scales(self, flat: Tensor) -> Tensor:
        """The stored scales, (G, F, M); empty where there are none."""
        size = self.n_groups * self.n_features * self.n_models if self.is_scaled else 0
        return flat[flat.numel() - size :].view(self.n_groups, -1, self.n_models)

    def _columns(self, first: Tensor) -> Iterator[tuple[Block, Tensor]]:
        """Each block with its networks' first weights, without biases, as (G, F, K, H)."""
        for block in self.blocks:
            h = block.hidden[0] if block.hidden else 1
            shape = (self.n_groups, self.n_features, block.size, h)
            yield block, first[:, :-1, block.columns].view(shape)

    # -- networks in and out -----------------------------------------------------------------------------------------

    def initialise(self, seeds: Tensor, output_bias: Tensor) -> None:
        """Glorot-uniform weights and biases from each network's own seed, output biases as given; both (G, M).

        A network without hidden layer starts at zero: its objective is convex. Scales start at one.
        """
        self._scales(self.flat).fill_(1.0 / _SCALE_SPEED)
        for block, (weights, biases) in zip(self.blocks, self.layers(self.flat), strict=True):
            biases[-1][..., 0] = output_bias[:, block.models]
            if not block.hidden:
                continue
            sizes = (self.n_features, *block.hidden, 1)
            count = sum(h_in * h_out + h_out for h_in, h_out in pairwise(sizes))
            numbers = uniform(seeds[:, block.models], count)
            start = 0
            for layer, (h_in, h_out) in enumerate(pairwise(sizes)):
                bound = math.sqrt(self.activation.gain / (h_in + h_out))
                own = numbers[..., start : start + h_in * h_out + h_out] * bound
                weights[layer].copy_(own[..., : h_in * h_out].view(self.n_groups, block.size, h_in, h_out))
                if layer < len(sizes) - 2:
                    biases[layer].copy_(own[..., h_in * h_out :])
                start += h_in * h_out + h_out

    def layers(self, flat: Tensor) -> list[tuple[list[Tensor], list[Tensor]]]:
        """For each block its weights (G, K, in, out) and biases (G, K, out), a layer each, as views of ``flat``."""
        first, tail, _ = self._views(flat)
        found = []
        for position, block in enumerate(self.blocks):
            h = block.hidden[0] if block.hidden else 1
            shape = (self.n_groups, self.n_features + 1, block.size, h)
            columns = first[:, :, block.columns].view(shape).transpose(1, 2)
            weights, biases = [columns[:, :, :-1]], [columns[:, :, -1]]
            if block.hidden:
                for weight, bias in tail[position].inner:
                    weights.append(weight)
                    biases.append(bias[:, :, 0])
                weights.append(tail[position].out_weight[..., None])
                biases.append(tail[position].out_bias[..., None])
            found.append((weights, biases))
        return found

    def set_network(
        self, group: int, model: int, weights: Sequence[NDArray[np.float64]], biases: Sequence[NDArray[np.float64]]
    ) -> None:
        """Write one network's parameters into the stack."""
        position = next(i for i, b in enumerate(self.blocks) if b.models.start <= model < b.models.stop)
        k = model - self.blocks[position].models.start
        own_weights, own_biases = self.layers(self.flat)[position]
        for own, new in zip((*own_weights, *own_biases), (*weights, *biases), strict=True):
            own[group, k] = torch.from_numpy(new)

    def arrays(self, flat: Tensor) -> list[tuple[list[NDArray[np.float64]], list[NDArray[np.float64]]]]:
        """`layers` as float64 arrays on the host, the scales multiplied in."""
        host = flat.detach().to("cpu", torch.float64, copy=True)
        if self.is_scaled:
            first = self._views(host)[0]
            self._scale_columns(first, self._scales(host) * _SCALE_SPEED, out=first)
        return [
            ([w.contiguous().numpy() for w in weights], [b.contiguous().numpy() for b in biases])
            for weights, biases in self.layers(host)
        ]

    def vectors(self, flat: Tensor) -> list[Tensor]:
        """For each block the parameters of its networks as vectors, (G, K, parameters of a network), copied."""
        return [
            torch.cat([part.reshape(self.n_groups, block.size, -1) for part in parts], dim=2)
            for block, parts in zip(self.blocks, self._parts(flat), strict=True)
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
        scales = self._scales(flat).transpose(1, 2)
        for block, (weights, biases) in zip(self.blocks, self.layers(flat), strict=True):
            yield [*weights, *biases, scales[:, block.models]] if self.is_scaled else [*weights, *biases]

    def penalties(self, l2: Tensor) -> Tensor:
        """The penalty of every parameter, zero for biases, from that of every network (G, M)."""
        flat = self.spread(l2)
        self._scales(flat).mul_(_SCALE_SPEED**2)
        return flat

    def spread(self, per_model: Tensor, *, biases: bool = False) -> Tensor:
        """A value per network (G, M) as a vector over the flat parameters; zero on biases unless they are asked for."""
        flat = torch.zeros_like(self.flat, dtype=per_model.dtype)
        first, tail, _ = self._views(flat)
        for position, block in enumerate(self.blocks):
            values = per_model[:, block.models]
            h = block.hidden[0] if block.hidden else 1
            rows = slice(None) if biases else slice(None, -1)
            first[:, rows, block.columns] = values.repeat_interleave(h, dim=1)[:, None, :]
            if block.hidden:
                tensors = tail[position]
                for weight, bias in tensors.inner:
                    weight.copy_(values[:, :, None, None].expand_as(weight))
                    if biases:
                        bias.copy_(values[:, :, None, None].expand_as(bias))
                tensors.out_weight.copy_(values[:, :, None].expand_as(tensors.out_weight))
                if biases:
                    tensors.out_bias.copy_(values)
        if self.is_scaled:
            self._scales(flat).copy_(per_model[:, None].expand(-1, self.n_features, -1))
        return flat

    def per_model(self, values: Tensor) -> Tensor:
        """Sums over each network's own parameters of a vector over the flat parameters: (G, M)."""
        first, tail, _ = self._views(values)
        tails = iter(tail)
        sums = []
        for block in self.blocks:
            h = block.hidden[0] if block.hidden else 1
            total = first[:, :, block.columns].sum(1).view(self.n_groups, block.size, h).sum(-1)
            if block.hidden:
                tensors = next(tails)
                for weight, bias in tensors.inner:
                    total = total + weight.sum((2, 3)) + bias.sum((2, 3))
                total = total + tensors.out_weight.sum(-1) + tensors.out_bias
            sums.append(total)
        return torch.cat(sums, dim=1) + self._scales(values).sum(1)

    # -- a batch ---------------------------------------------------------------------------------------------------

    def _first_layer(self, x: Tensor) -> Tensor:
        """x (G, B, F+1) with ones in the last column → (G, B, all first hidden units), in a buffer."""
        if self.is_scaled:
            torch.mul(self._scales(self.flat), _SCALE_SPEED, out=self._scale_values)
            self._scale_columns(self.first, self._scale_values, out=self._effective)
        return torch.bmm(x, self._effective, out=self._buffers_of(x.shape[1])[0])

    def _scale_columns(self, first: Tensor, scales: Tensor, *, out: Tensor) -> None:
        """Weights (G, F+1, …) times scales (G, F, M) into ``out``; the last row, of biases, is copied."""
        out[:, -1] = first[:, -1]
        for (block, own), (_, target) in zip(self._columns(first), self._columns(out), strict=True):
            torch.mul(own, scales[:, :, block.models, None], out=target)

    def _take_first_gradient(self, x: Tensor, back: Tensor, keep: float) -> None:
        """Put, or add, the gradient of the first layer into `grad`, from that at its outputs."""
        if not self.is_scaled:
            self.first_grad.baddbmm_(x.transpose(1, 2), back, beta=keep)
            return
        found = torch.bmm(x.transpose(1, 2), back, out=self._effective)
        scale_grad = self._scales(self.grad)
        for (block, own), (_, effective) in zip(self._columns(self.first), self._columns(found), strict=True):
            scale_grad[:, :, block.models].add_((effective * own).sum(-1), alpha=_SCALE_SPEED)
        self._scale_columns(found, self._scale_values, out=found)
        self.first_grad.mul_(keep).add_(found) if keep else self.first_grad.copy_(found)

    def _buffers_of(self, rows: int) -> tuple[Tensor, Tensor]:
        """For hidden units and for work on them, (G, B, all first hidden units) each."""
        if rows not in self._buffers:
            if len(self._buffers) == _KEPT_BUFFERS:
                self._buffers.popitem()  # the latest: earlier ones may be part of a captured graph
            hidden = torch.empty(self.n_groups, rows, self.width, dtype=self.dtype, device=self.device)
            self._buffers[rows] = (hidden, torch.empty_like(hidden))
        return self._buffers[rows]

    def logits(self, x: Tensor) -> Tensor:
        """Logits (G, B, M) of a batch of encoded rows (G, B, F+1), the caller's to keep."""
        logits = self._forward(x)[0]
        return logits.clone() if self.is_linear else logits  # a linear network's are a buffer of the next call

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor, list[list[Tensor]]]:
        pre = self._first_layer(x)
        if self.is_linear:
            return pre, pre, []
        h = self.activation.forward_in_place(pre) if self.activation.forward_in_place else self.activation.forward(pre)
        saved_first = h if self.activation.forward_in_place else pre
        out_weight, out_bias = self.outputs
        if self.is_joint:
            self._joint[:, *self._joint_at] = out_weight
            return torch.baddbmm(out_bias[:, None], h, self._joint), saved_first, []
        groups, rows = h.shape[:2]
        logits = torch.empty(groups, rows, self.n_models, dtype=self.dtype, device=self.device)
        saved: list[list[Tensor]] = []
        for block, tensors in zip(self.blocks, self.tail, strict=True):
            units = h[..., block.columns].view(groups, rows, block.size, block.hidden[0])
            if tensors.inner:
                kept, last = self._inner_forward(units, tensors)
                saved.append(kept)
                out = torch.matmul(last, tensors.out_weight[..., None])[..., 0].transpose(1, 2)
            elif self._by_products:
                saved.append([])
                out = torch.matmul(units.transpose(1, 2), tensors.out_weight[..., None])[..., 0].transpose(1, 2)
            else:
                saved.append([])
                work = self._buffers_of(rows)[1][..., block.columns].view(groups, rows, block.size, block.hidden[0])
                out = torch.mul(units, tensors.out_weight[:, None], out=work).sum(-1)
            torch.add(out, tensors.out_bias[:, None], out=logits[..., block.models])
        return logits, saved_first, saved

    def _inner_forward(self, units: Tensor, tensors: BlockTensors) -> tuple[list[Tensor], Tensor]:
        """Hidden layers after the first: what the backward pass needs, and the last activations (G, K, B, H)."""
        h = units.transpose(1, 2).contiguous()
        kept = [h]
        for weight, bias in tensors.inner:
            pre = torch.matmul(h, weight).add_(bias)
            h = self.activation.forward(pre)
            kept += [pre, h]
        return kept, h

    def loss_and_gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """Put the gradient of Σ_B w ℓ into `grad`, or add it; return the loss of every network, (G, M).

        Shape
        -----
        x (G, B, F+1); y (G or 1, B, 1); row_weight (G, B, M), already divided by each network's weight sum.
        """
        logits = self.gradient(x, y, row_weight, add=add)
        return (row_weight * self.loss.value(logits, y)).sum(1)

    def gradient(self, x: Tensor, y: Tensor, row_weight: Tensor, *, add: bool = False) -> Tensor:
        """As `loss_and_gradient`, but return the logits."""
        logits, saved_first, saved = self._forward(x)
        error = self.loss.derivative(logits, y).mul_(row_weight)
        keep = 1.0 if add else 0.0
        if not add:
            self.tail_of_grad.zero_()
        if self.is_linear:
            self._take_first_gradient(x, error, keep)
            return logits
        groups, rows = error.shape[:2]
        back = self._buffers_of(rows)[1]
        h = saved_first if self.activation.forward_in_place else self.activation.forward(saved_first)
        out_weight_grad, out_bias_grad = self.outputs_grad
        out_bias_grad += error.sum(1)
        if self.is_joint:
            out_weight_grad += torch.bmm(h.transpose(1, 2), error)[:, *self._joint_at]
            torch.bmm(error, self._joint.transpose(1, 2), out=back)
        for position, block in enumerate([] if self.is_joint else self.blocks):
            tensors, grads = self.tail[position], self.tail_grad[position]
            own = error[..., block.models]  # (G, B, K)
            shape = (groups, rows, block.size, block.hidden[0])
            target = back[..., block.columns].view(shape)
            if tensors.inner:
                target.copy_(self._inner_backward(own, saved[position], tensors, grads).transpose(1, 2))
            else:
                units = h[..., block.columns].view(shape)
                if self._by_products:
                    grads.out_weight += torch.matmul(own.transpose(1, 2)[:, :, None], units.transpose(1, 2))[:, :, 0]
                else:
                    grads.out_weight += torch.mul(units, own[..., None], out=target).sum(1)
                torch.mul(own[..., None], tensors.out_weight[:, None], out=target)
        back = self.activation.backward(back, saved_first)
        self._take_first_gradient(x, back, keep)
        return logits

    def _inner_backward(self, error: Tensor, kept: list[Tensor], tensors: BlockTensors, grads: BlockTensors) -> Tensor:
        """Gradient at the first hidden layer's activations, (G, K, B, H)."""
        error = error.transpose(1, 2)[..., None]  # (G, K, B, 1)
        grads.out_weight += torch.matmul(kept[-1].transpose(2, 3), error)[..., 0]
        back = error * tensors.out_weight[:, :, None]
        for layer in range(len(tensors.inner) - 1, -1, -1):
            below, pre, h = kept[2 * layer], kept[2 * layer + 1], kept[2 * layer + 2]
            back = self.activation.backward(back, h if self.activation.forward_in_place else pre)
            weight_grad, bias_grad = grads.inner[layer]
            weight_grad += torch.matmul(below.transpose(2, 3), back)
            bias_grad += back.sum(2, keepdim=True)
            back = torch.matmul(back, tensors.inner[layer][0].transpose(2, 3))
        return back
