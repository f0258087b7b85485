"""A weighted network that answers natural logits."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crcen.exceptions import InvalidInput
from crcen.torch.weights import weights_of_classes

__all__ = ["NaturalLogits"]


class NaturalLogits(nn.Module):
    """A module with the weight taken out of its logits: their sigmoid or softmax are natural probabilities.

    It subtracts log w_k and adds a shift, which is zero until `balance_` solves for it: an output bias for modules that
    have none. Both are buffers, so they are in ``state_dict``, move with the module and go into exported graphs
    (``torch.export``, ``torch.onnx.export``, ``torch.compile``, ``torch.jit.trace``; ``torch.jit.script`` where the
    module takes one tensor and answers one).

    Parameters
    ----------
    module : nn.Module
        Answers weighted logits (rows,), (rows, 1) or (rows, K), or an object with ``.logits``.
    weighting
        What it was trained under: as in `ClassWeightedLoss`, or that loss itself.
    counts : sequence of int, optional
        Rows of each class of the training set, as in `ClassWeightedLoss`.

    Attributes
    ----------
    class_weights, shift : tensor of shape (K,)
        Buffers.

    Examples
    --------
    >>> import torch
    >>> from crcen.torch import NaturalLogits
    >>> natural = NaturalLogits(torch.nn.Identity(), [1.0, 9.0])
    >>> natural(torch.tensor([0.0])).sigmoid()  # called positive at weight 9, rare by nature
    tensor([0.1000])
    """

    class_weights: Tensor
    shift: Tensor

    def __init__(self, module: nn.Module, weighting: Any, counts: Any = None) -> None:
        super().__init__()
        sizes = None if counts is None else np.asarray(counts, dtype=np.float64)
        weights = weights_of_classes(weighting, sizes)
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
        # In half precision the weights themselves would be rounded to three digits.
        kind = like.dtype if like.dtype == torch.float64 else torch.float32
        self.module = module
        self.register_buffer("class_weights", torch.tensor(weights, dtype=kind, device=like.device))
        self.register_buffer("shift", torch.zeros(len(weights), dtype=kind, device=like.device))

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Natural logits, in the shape of the module's own."""
        logits = self.weighted_logits(*inputs, **named)
        return logits - _for_columns(self.class_weights.log(), logits)

    def weighted_logits(self, *inputs: Any, **named: Any) -> Tensor:
        """The module's own logits with the shift, which the key equation is about."""
        out = self.module(*inputs, **named)
        logits = getattr(out, "logits", out)
        return logits + _for_columns(self.shift, logits)

    def __prepare_scriptable__(self) -> nn.Module:
        """What ``torch.jit.script`` compiles in its place: it knows no variable arguments."""
        return _OneTensor(self)


class _OneTensor(nn.Module):
    """The same for a module of one tensor, with the same names in ``state_dict``."""

    class_weights: Tensor
    shift: Tensor

    def __init__(self, natural: NaturalLogits) -> None:
        super().__init__()
        self.module = natural.module
        self.register_buffer("class_weights", natural.class_weights)
        self.register_buffer("shift", natural.shift)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.module(inputs)
        taken = self.shift - self.class_weights.log()
        columns = 1 if logits.dim() == 1 else logits.size(-1)
        if columns == 1 and taken.size(0) == 2:
            return logits + (taken[1] - taken[0])
        if columns != taken.size(0):
            raise ValueError("there must be one logit for each weight")
        return logits + taken


def _for_columns(values: Tensor, logits: Tensor) -> Tensor:
    """One value a class for one logit a class; their difference where one logit tells two classes apart."""
    columns = 1 if logits.ndim == 1 else logits.shape[-1]
    if columns == 1 and len(values) == 2:
        return values[1] - values[0]
    if columns != len(values):
        raise InvalidInput(
            f"the module answers {columns} logits a row, and there are weights for {len(values)} classes."
        )
    return values
