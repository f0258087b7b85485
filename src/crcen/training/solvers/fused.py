"""Adam's epochs of many small networks on CUDA in one kernel each.

Step by step, the activations of a stack pass through memory some ten times. Nothing is shared between networks but
their rows, so one program of a kernel can train one network for a whole epoch and keep all that is its own in
registers. The kernel is written in Triton, which torch's CUDA builds for Linux bring along. Where that is missing, or
cannot compile for want of a C compiler, or a first trial does not give the CPU's result, and for any network that is
not covered, the caller goes step by step.
"""

import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crcen.training.block_views import BlockShape
from crcen.training.encoding import raw
from crcen.training.epoch_rows import BatchIndex
from crcen.training.rows import RowFeed, TrainingData
from crcen.training.schedule import n_batches
from crcen.training.solvers.adam_step import BETAS, AdamState
from crcen.training.solvers.epochs import EpochWork, HostEpochs
from crcen.training.solvers.objective import Objective
from crcen.training.stack import Stack, filled_up

__all__ = ["FEWEST_NETWORKS", "SWITCH", "FusedEpochs", "covers", "epoch_numbers", "is_fusable"]

# Set to 0 in the environment, this turns the kernel off.
SWITCH = "CRCEN_FUSED"

# Products in full float32; "tf32x3" does them on tensor cores in three parts.
PRECISION = "ieee"

# Rows at a time. More would hold more hidden units in registers than there are; a batch is filled up to a multiple.
_ROWS = 16
# First weights, filled up, that a program can hold in registers, and those of one of its warps of 32 threads.
_MOST_WEIGHTS = 8192
_WEIGHTS_A_WARP = 1024
_MOST_WARPS = 8
_MOST_UNITS = 512
_LEAST = 16  # of a product's sides
# Networks of a stack for which a kernel is worth its compilation, which takes seconds where Triton's cache has none.
FEWEST_NETWORKS = 16
# Adam's rate where the kernel is compared with the CPU.
_CHECK_RATE = 0.01


@dataclass(frozen=True)
class Shape:
    """What the kernel is compiled for: inputs and hidden units, filled up, and warps a program."""

    inputs: int
    hidden: int
    warps: int


def _filled(size: int) -> int:
    """The next power of two."""
    return max(_LEAST, 1 << (size - 1).bit_length())


def shape_of(n_features: int, n_hidden: int) -> Shape:
    """The kernel for networks of this size."""
    inputs, hidden = _filled(n_features + 1), _filled(n_hidden)
    return Shape(inputs, hidden, min(_MOST_WARPS, max(1, inputs * hidden // _WEIGHTS_A_WARP)))


def epoch_numbers(n_rows: int, batch_size: int, n_features: int) -> int:
    """How many numbers a group's epoch is for the kernel: rows, labels and row weights, filled up."""
    count = n_batches(n_rows, batch_size)
    return count * _filled_rows(-(-n_rows // count)) * (_filled(n_features + 1) + 2)


def _filled_rows(rows: int) -> int:
    return -(-rows // _ROWS) * _ROWS


def covers(stack: Stack) -> bool:
    """Whether the kernel's mathematics is that of this stack; a list of what is covered, so that nothing else is."""
    if type(stack) is not Stack or not all(len(block.hidden) == 1 for block in stack.design.blocks):
        return False
    sizes = [block.hidden[0] for block in stack.design.blocks]
    n_first = stack.n_groups * (stack.n_features + 1) * stack.width
    n_outputs = stack.n_groups * (stack.width + stack.n_models)
    return (
        stack.dtype == torch.float32
        and stack.n_outputs == 1
        and stack.design.activation == "relu"
        and stack.design.loss == "cross_entropy"
        and stack.n_parameters == n_first + n_outputs  # no parameters but these
        and stack.flat.numel() == filled_up(stack.n_parameters, stack.device)
        and max(sizes) <= _MOST_UNITS
        and _filled(max(sizes)) * _filled(stack.n_features + 1) <= _MOST_WEIGHTS
        and _filled(stack.n_features + 1) * stack.width < 2**31  # what a group's weights are numbered by
    )


def is_fusable(stack: Stack, *, with_loss: bool) -> bool:
    """Whether `FusedEpochs` can train this stack here, and pays."""
    return (
        stack.device.type == "cuda"
        and os.environ.get(SWITCH) != "0"
        and stack.n_groups * stack.n_models >= FEWEST_NETWORKS
        and find_spec("triton") is not None
        and covers(stack)
        and all(
            _is_sound(shape_of(stack.n_features, b.hidden[0]), stack.device, with_loss) for b in stack.design.blocks
        )
    )


@cache
def _is_sound(shape: Shape, device: torch.device, with_loss: bool) -> bool:
    """Whether the kernel compiles and starts here, and trains two small networks as Adam does on the CPU."""
    try:
        return _agrees(shape, device, with_loss)
    except torch.cuda.OutOfMemoryError:
        raise
    except Exception:  # of Triton, of the C compiler it calls, or of the driver: the other path needs none of them
        logging.getLogger(__name__).debug("no kernel for %s", shape, exc_info=True)
        return False


def _agrees(shape: Shape, device: torch.device, with_loss: bool) -> bool:
    n, n_features = 3 * _ROWS, shape.inputs - 1
    X = np.random.default_rng(0).normal(size=(n, n_features))
    networks = []
    for where in (torch.device("cpu"), device):
        data = TrainingData(X, X[:, 0] > 0, np.ones(n), where)
        feed = RowFeed(data, [np.arange(n)], [np.ones(n)], [raw(n_features)], torch.float32)
        stack = Stack(1, n_features, [(shape.hidden,)] * 2, "relu", "cross_entropy", torch.float32, where)
        stack.initialise(torch.tensor([[0, 1]], device=where), torch.zeros(1, 2, device=where))
        networks.append((stack, feed))
    (stack, feed), (stack_there, feed_there) = networks
    table = torch.tensor([[[0.5 / n, 1.5 / n]], [[1.5 / n, 0.5 / n]], [[0.0, 0.1]]], dtype=stack.dtype)
    objective = Objective(*table).of_a_batch(2)
    state = AdamState.start(stack.flat, stack.grad, stack.penalties(objective.l2))
    work = EpochWork(stack, feed, state, objective, 2, lambda step: _CHECK_RATE / (step + 1), with_loss)
    index = feed_there.epoch_index([0], 0, n // 2)
    moments = torch.zeros_like(stack_there.flat), torch.zeros_like(stack_there.flat)
    weights = (objective.pos_weight.to(device), objective.neg_weight.to(device), objective.l2.to(device))
    epochs = FusedEpochs(stack_there, moments, weights, BETAS)
    loss_there = epochs.run(feed_there, index, work.factors(0).to(device), with_loss=with_loss)
    loss = HostEpochs(work).run(feed.epoch_index([0], 0, n // 2), 0)
    # A gradient of nearly zero decides by its last digit where Adam goes, so parameters agree less well than moments.
    pairs = [
        (state.first_moment[0], moments[0], 1e-6),
        (state.second_moment[0], moments[1], 1e-10),
        (stack.flat, stack_there.flat, 0.1 * _CHECK_RATE),
    ]
    own = stack.n_parameters  # a CPU's vector is filled up, another device's is not
    return torch.allclose(loss_there.cpu(), loss, rtol=1e-3, atol=1e-5) and all(
        torch.allclose(there[:own].cpu(), here[:own], rtol=1e-3, atol=close) for here, there, close in pairs
    )


class KernelEpochs:
    """One form of an epoch (see `crcen.training.solvers.epochs`): the kernel."""

    def __init__(self, work: EpochWork) -> None:
        self.work, both = work, work.objective
        moments = (work.state.first_moment[0], work.state.second_moment[0])
        weights = (both.pos_weight, both.neg_weight, both.l2)
        self._kernel = FusedEpochs(work.stack, moments, weights, BETAS)

    def run(self, index: BatchIndex, first_step: int) -> Tensor:
        """One epoch."""
        work = self.work
        return self._kernel.run(work.feed, index, work.factors(first_step), with_loss=work.with_loss)


class FusedEpochs:
    """Adam's epochs of a stack that `covers` agrees to.

    Parameters
    ----------
    stack
        The networks; an epoch changes its `flat`.
    moments
        Adam's first and second moments, laid out as `flat`; an epoch changes them.
    objective
        Weights of the positive and the negative class, as a batch counts them, and the penalty, (G, M) each.
    betas
        Adam's.
    """

    def __init__(
        self,
        stack: Stack,
        moments: tuple[Tensor, Tensor],
        objective: tuple[Tensor, Tensor, Tensor],
        betas: tuple[float, float],
    ) -> None:
        self.stack, self.moments, self.betas = stack, moments, betas
        self.objective = [values.clone() for values in objective]  # aligned alike, so that one compilation serves all
        self.shapes = [shape_of(stack.n_features, block.hidden[0]) for block in stack.design.blocks]

    def run(self, feed: RowFeed, index: BatchIndex, factors: Tensor, *, with_loss: bool) -> Tensor:
        """One epoch; the loss of every network, (G, M): the mean over batches plus the penalty, or zero if not asked.

        Shape
        -----
        factors (batches, 2): Adam's step length and ε.
        """
        loss = torch.zeros_like(self.objective[0])
        size = {"columns": self.shapes[0].inputs, "rows": _filled_rows(index.rows.shape[2])}
        x, y, base = feed.epoch(index, **size)
        for position in range(len(self.shapes)):
            self.launch(position, x, y, base, factors, loss if with_loss else None)
        return loss

    def launch(self, position: int, x: Tensor, y: Tensor, base: Tensor, factors: Tensor, loss: Tensor | None) -> None:
        """An epoch of one block; the tensors are the kernel's."""
        from crcen.training.solvers.fused_kernel import train_epoch

        stack, shape, block = self.stack, self.shapes[position], self.stack.design.blocks[position]
        launch = train_epoch[(stack.n_groups * block.size,)]
        # Triton starts kernels on the current device.
        current = torch.cuda.device(stack.device) if stack.device.type == "cuda" else nullcontext()
        with current:
            launch(
                stack.flat,
                *self.moments,
                x,
                y,
                base,
                factors,
                *self.objective,
                self.objective[0] if loss is None else loss,
                n_batches=base.shape[1],
                n_rows=base.shape[2],
                n_models=block.size,
                n_inputs=stack.n_features + 1,
                n_hidden=block.hidden[0],
                group_labels=y.stride(0) if y.shape[0] > 1 else 0,
                **self._places(block, position),
                FP=shape.inputs,
                HP=shape.hidden,
                ROWS=_ROWS,
                BETA1=self.betas[0],
                BETA2=self.betas[1],
                TELLS_LOSS=loss is not None,
                PRECISION=PRECISION,
                num_warps=shape.warps,
                num_stages=1,  # rows come from the cache: reading ahead would cost registers
            )

    def _places(self, block: BlockShape, position: int) -> dict[str, Any]:
        """Where a block's parameters lie in a flat vector."""
        (first, out), (_, bias) = self.stack.layers(self.stack.flat)[position]
        return {
            "first_at": first.storage_offset(),
            "first_group": first.stride(0),
            "first_row": first.stride(2),
            "out_at": out.storage_offset(),
            "out_group": out.stride(0),
            "bias_at": bias.storage_offset(),
            "bias_group": bias.stride(0),
            "model_at": block.first_model,
            "model_group": self.stack.n_models,
        }
