"""Weighted cross entropy that trains at the weight it was given."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import log_softmax, logsigmoid

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.torch.weights import weights_of_classes

__all__ = ["ClassWeightedLoss"]

DIVISORS = ("rows", "weights")


class ClassWeightedLoss(nn.Module):
    """Cross entropy with class weights, divided by the number of rows.

    ``nn.CrossEntropyLoss(weight=w)`` with its default mean divides by the sum of weights **of each batch**. A batch
    with a heavy rare row then counts less, and the network is trained at another cost ratio than the one asked for: at
    50 negatives a positive, balanced weights and batches of 32, at .45 of it. Divided by rows, the gradients of batches
    add up to that of all rows whatever the size of a batch. ``nn.BCEWithLogitsLoss(pos_weight=c)`` divides by rows
    already.

    Parameters
    ----------
    weighting : Lam, Alpha, CostRatio, Budget, float, "balanced", None, dict, list, array, tensor, Price, CostMatrix
        A price for two classes, or a weight for each of K. A price gives weights with the mean 1 over the counted rows;
        weights stated one by one stay as they are.
    counts : sequence of int, optional
        Rows of class 0, 1, … of the training set, such as ``torch.bincount(y)``; ``"balanced"`` and α need them, and
        None for more than two classes.
    divide_by : {"rows", "weights"}, default="rows"
        ``"weights"`` is what torch does, to compare with.
    ignore_index : int, default=-100
        Rows with this class number count for nothing, as in torch.

    Attributes
    ----------
    class_weights : tensor of shape (K,)
        A buffer of torch's default type: it moves with the module and is in its ``state_dict``.

    Examples
    --------
    >>> import torch
    >>> from crcen.torch import ClassWeightedLoss
    >>> loss = ClassWeightedLoss([1.0, 9.0])
    >>> round(float(loss(torch.zeros(4), torch.tensor([1, 0, 0, 0]))), 4)  # log 2 · (9 + 3) / 4
    2.0794
    """

    class_weights: Tensor

    def __init__(
        self, weighting: Any, counts: Any = None, *, divide_by: str = "rows", ignore_index: int = -100
    ) -> None:
        super().__init__()
        if divide_by not in DIVISORS:
            raise InvalidParameter(f'divide_by must be "rows" or "weights": got {divide_by!r}.')
        sizes = None if counts is None else np.asarray(counts, dtype=np.float64)
        weights = torch.tensor(weights_of_classes(weighting, sizes), dtype=torch.get_default_dtype())
        self.register_buffer("class_weights", weights)
        self.divide_by = divide_by
        self.ignore_index = ignore_index

    @classmethod
    def from_torch(cls, loss: nn.Module) -> "ClassWeightedLoss":
        """The same weights as one of torch's losses, divided by rows.

        Parameters
        ----------
        loss : nn.BCEWithLogitsLoss or nn.CrossEntropyLoss
            With ``pos_weight`` or ``weight``, and the default mean.
        """
        if not isinstance(loss, nn.BCEWithLogitsLoss | nn.CrossEntropyLoss):
            raise InvalidParameter(
                f"from_torch takes nn.BCEWithLogitsLoss or nn.CrossEntropyLoss: got {type(loss).__name__}."
            )
        if loss.reduction != "mean":
            raise InvalidParameter(f'from_torch takes a loss with reduction="mean": got {loss.reduction!r}.')
        if isinstance(loss, nn.CrossEntropyLoss):
            if loss.label_smoothing:
                raise InvalidParameter(
                    f"label_smoothing={loss.label_smoothing} moves the key equation off the stated weight: leave it "
                    f"out, or give soft labels to ClassWeightedLoss."
                )
            if loss.weight is None:
                raise InvalidParameter("the loss has no weight: use ClassWeightedLoss(None, counts).")
            return cls(loss.weight, ignore_index=loss.ignore_index)
        if loss.weight is not None:
            raise InvalidParameter("from_torch takes pos_weight, not a weight for each row of a batch.")
        pos_weight = 1.0 if loss.pos_weight is None else loss.pos_weight
        if isinstance(pos_weight, Tensor) and pos_weight.numel() != 1:
            raise InvalidParameter(
                f"from_torch takes one pos_weight: got {pos_weight.numel()}, one for each of several labels."
            )
        return cls([1.0, float(pos_weight)])

    def forward(self, logits: Any, target: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        logits : tensor of shape (B,), (B, 1) or (B, K)
            Before sigmoid or softmax; or an object with ``.logits``, as Transformers' models answer.
        target : tensor
            Class numbers (B,); for two classes also 0/1 of any type or the probability of class 1; or soft labels
            (B, K).
        num_items_in_batch : int, optional
            Divides the sum instead of the number of rows: with all rows that are accumulated before a step, the losses
            of their batches add up to the loss of one large batch.
        """
        outputs = _checked_logits(getattr(logits, "logits", logits), len(self.class_weights))
        weights = self.class_weights.to(outputs)  # trainers move modules, and not always the loss
        shares, used = self._shares(outputs, target)
        row_weights = shares * weights
        # Where a share is 0 so is the term, and its gradient: log-probabilities of finite logits are finite.
        total = -(row_weights * _log_probabilities(outputs)).sum()
        if num_items_in_batch is not None:
            return total / num_items_in_batch
        if self.divide_by == "weights":
            return total / row_weights.sum()
        return total / used.sum().clamp(min=1)

    def extra_repr(self) -> str:
        """What ``print`` shows."""
        return f"{[float(f'{w:.6g}') for w in self.class_weights.tolist()]}, divide_by={self.divide_by!r}"

    def _shares(self, outputs: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """How much of each row is of each class, (B, K), and which rows count."""
        n_classes = len(self.class_weights)
        if target.ndim == 2 and target.shape[1] == n_classes and target.is_floating_point():
            _check_range(target, 0.0, 1.0)
            return target.to(outputs.dtype), torch.ones(len(target), dtype=torch.bool, device=target.device)
        flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        if flat.ndim != 1 or len(flat) != len(outputs):
            raise InvalidInput(
                f"target must hold a class number for each of {len(outputs)} rows, or soft labels of shape "
                f"{(len(outputs), n_classes)}: got shape {tuple(target.shape)}."
            )
        used = flat != self.ignore_index
        if flat.is_floating_point():
            if n_classes != 2:
                raise InvalidInput(
                    f"class numbers of {n_classes} classes must be integers: got {flat.dtype}; try target.long()."
                )
            positive = torch.where(used, flat, 0).to(outputs.dtype)
            _check_range(positive, 0.0, 1.0)
            shares = torch.stack([1.0 - positive, positive], 1)
        else:
            numbers = torch.where(used, flat.long(), 0)
            _check_range(numbers, 0, n_classes - 1)
            shares = nn.functional.one_hot(numbers, n_classes).to(outputs.dtype)
        return shares * used[:, None], used


def _checked_logits(logits: Tensor, n_classes: int) -> Tensor:
    """(B,) or (B, K), in float32 at least: sums in half precision lose rows."""
    outputs = logits[:, 0] if logits.ndim == 2 and logits.shape[1] == 1 else logits
    columns = 2 if outputs.ndim == 1 else outputs.shape[-1]
    if outputs.ndim not in (1, 2) or columns != n_classes:
        raise InvalidInput(
            f"logits for {n_classes} classes must have shape (rows, {n_classes})"
            f"{', (rows, 1) or (rows,)' if n_classes == 2 else ''}: got {tuple(logits.shape)}; the weighting and "
            f"counts say how many classes there are."
        )
    return outputs if outputs.dtype == torch.float64 else outputs.float()


def _log_probabilities(outputs: Tensor) -> Tensor:
    if outputs.ndim == 2:
        return log_softmax(outputs, 1)
    return torch.stack([logsigmoid(-outputs), logsigmoid(outputs)], 1)


def _check_range(target: Tensor, low: float, high: float) -> None:
    """Refuse labels such as 1/2. On CPU only: elsewhere the look would wait for the device at every batch."""
    if target.device.type == "cpu" and target.numel() and not torch.compiler.is_compiling():
        least, most = target.min().item(), target.max().item()
        if not (low <= least and most <= high):
            raise InvalidInput(f"targets must lie between {low:g} and {high:g}: got {least:g} to {most:g}.")
