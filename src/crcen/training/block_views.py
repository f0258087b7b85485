"""Views of a stack's parameters and buffers, block by block: made once, since a step of small networks is short.

To narrow and reshape tensors at every step took a quarter of its time.

Shape letters are those of `crcen.training.passes`.
"""

from typing import NamedTuple

from torch import Tensor

__all__ = ["BlockBuffers", "BlockLayers", "BlockShape", "buffers_of_blocks", "layers_of_blocks", "outputs", "units_of"]


class BlockShape(NamedTuple):
    """The networks of one shape: their first among a group's M, how many, their first column, their hidden sizes.

    ``units`` are the columns that each of them has in the first layer.
    """

    first_model: int
    size: int
    first_column: int
    hidden: list[int]
    units: int


class BlockLayers(NamedTuple):
    """A block's own part of the parameters, or of their gradients."""

    columns: Tensor  # (G, F, K, H): first weights, without biases
    scales: Tensor  # (G, F, K, 1); empty where there are none
    inner: list[Tensor]  # weight (G·K, H_in, H_out), bias (G·K, 1, H_out), weight, …
    out_weight: Tensor  # (G, K, H), or (G, K, H, C) where there are several outputs; empty for a linear network
    out_bias: Tensor  # (G, 1, K·C)


class BlockBuffers(NamedTuple):
    """A block's own part of the buffers."""

    effective: Tensor  # (G, F, K, H); empty where there are no scales
    scale_values: Tensor  # (G, F, K, 1)
    hidden: Tensor  # (G, B, K, H)
    back: Tensor  # the same


def outputs(blocks: list[BlockShape], out_weight: Tensor, n_outputs: int) -> list[Tensor]:
    """For each block the weights of its outputs as (G, K, H), or (G, K, H, C) where there are several."""
    found: list[Tensor] = []
    start = 0
    for block in blocks:
        width = block.size * block.hidden[-1] * n_outputs
        own = out_weight.narrow(1, start, width)
        shape = [out_weight.size(0), block.size, block.hidden[-1]]
        found.append(own.view([*shape, n_outputs] if n_outputs > 1 else shape))
        start += width
    return found


def _columns(block: BlockShape, first: Tensor) -> Tensor:
    """A block's first weights, without biases, as (G, F, K, H)."""
    n_features = first.size(1) - 1
    own = first.narrow(1, 0, n_features).narrow(2, block.first_column, block.size * block.units)
    return own.view(first.size(0), n_features, block.size, block.units)


def units_of(block: BlockShape, h: Tensor) -> Tensor:
    """A block's first hidden units as (G, B, K, H)."""
    own = h.narrow(2, block.first_column, block.size * block.units)
    return own.view(h.size(0), h.size(1), block.size, block.units)


def _scales(block: BlockShape, scales: Tensor) -> Tensor:
    """A block's scales as (G, F, K, 1)."""
    return scales.narrow(2, block.first_model, block.size).unsqueeze(3)


def layers_of_blocks(
    blocks: list[BlockShape],
    first: Tensor,
    scales: Tensor,
    inner: list[list[Tensor]],
    out_weight: Tensor,
    out_bias: Tensor,
    n_outputs: int,
) -> list[BlockLayers]:
    """The blocks' parts of the tensors that `crcen.training.passes.Layers` has."""
    is_linear = not blocks[0].hidden
    weights = [out_weight] * len(blocks) if is_linear else outputs(blocks, out_weight, n_outputs)
    found = []
    for i, (block, weight) in enumerate(zip(blocks, weights, strict=True)):
        bias = out_bias
        if not is_linear:
            bias = out_bias.narrow(1, block.first_model * n_outputs, block.size * n_outputs).unsqueeze(1)
        own = [] if is_linear else [tensor.flatten(0, 1) for tensor in inner[i]]
        found.append(BlockLayers(_columns(block, first), _scales(block, scales), own, weight, bias))
    return found


def buffers_of_blocks(
    blocks: list[BlockShape], effective: Tensor, scale_values: Tensor, hidden: Tensor, back: Tensor
) -> list[BlockBuffers]:
    """The blocks' parts of the tensors that `crcen.training.passes.Buffers` has."""
    is_scaled = effective.numel() > 0
    return [
        BlockBuffers(
            _columns(block, effective) if is_scaled else effective,
            _scales(block, scale_values),
            units_of(block, hidden),
            units_of(block, back),
        )
        for block in blocks
    ]
