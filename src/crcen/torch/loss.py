"""Class weights, the weighted loss, and natural logits of a network trained with it."""

from collections.abc import Mapping, Sized
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.nn.functional import log_softmax

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import Alpha, Price, WeightingLike, resolved
from crcen.theory.rows import Array

Weighting: TypeAlias = WeightingLike | nn.Module | Tensor
Counts: TypeAlias = ArrayLike | Tensor | None
Inputs = Any  # of a module: tensors, or containers of them
Outputs = Any  # of a module: logits, or an object with them


def stated_weights(weighting: Weighting) -> WeightingLike:
    """Losses, tensors and cost matrices as an array of weights; anything else unchanged."""
    if isinstance(weighting, nn.Module):
        if not hasattr(weighting, "class_weights"):
            raise InvalidParameter(
                f"a weighting given as a module must be a ClassWeightedLoss or NaturalLogits: got "
                f"{type(weighting).__name__}; use ClassWeightedLoss.from_torch for torch's losses."
            )
        weighting = cast(Tensor, weighting.class_weights)
    if isinstance(weighting, Tensor):
        return weighting.detach().double().cpu().numpy()
    if isinstance(weighting, CostMatrix):
        weights = weighting.class_weights()
        if weights is None:
            raise InvalidParameter(
                "these costs are not class weights: the cost of an error depends on the predicted class; train without "
                "weights and decide with CostMatrix.choose."
            )
        return weights
    return weighting


def weighting_of(holder: nn.Module) -> nn.Module:
    """The only loss with class weights that a module is or contains, for callbacks without a weighting."""
    kept = [part for part in holder.modules() if isinstance(getattr(part, "class_weights", None), Tensor)]
    if len(kept) != 1:
        raise InvalidParameter(
            f"{type(holder).__name__} must contain exactly one ClassWeightedLoss: got {len(kept)}; give "
            f"BalanceCallback its weighting."
        )
    return kept[0]


def weights_of_classes(weighting: Weighting, counts: Counts = None) -> Array:
    """Weights (K,) for a loss; those of a price for two classes have mean 1 over the counted rows."""
    given = stated_weights(weighting)
    n_classes = len(cast(Sized, given)) if _is_list(given) else 2
    sizes = np.ones(n_classes) if counts is None else np.asarray(counts, dtype=np.float64)
    # Weights given one by one are not scaled to mean 1.
    positive = 1 if sizes.shape == (2,) and not _is_list(given) else None
    price = given if isinstance(given, Price) else resolved(given, sizes, positive)
    if counts is None and isinstance(given, str | Alpha):
        raise InvalidParameter(
            f"weighting={weighting!r} needs the rows of each class: give counts, such as counts=torch.bincount(y), or "
            f"a cost ratio, λ, or a weight for each class."
        )
    if price.positive is None:
        return price.weights
    return np.asarray(price.weights * (price.counts.sum() / (price.weights @ price.counts)))


def price_of(weighting: Weighting, counts: Array) -> Price:
    """A weighting resolved on the weight of each class; two given weights are a cost ratio."""
    given = stated_weights(weighting)
    if isinstance(given, Price) and given.positive == 0:  # the weights of its classes, as a loss has them
        given = given.weights
    return resolved(given, counts, 1 if len(counts) == 2 else None)


def _is_list(given: WeightingLike) -> bool:
    return isinstance(given, Mapping | list | tuple) or (isinstance(given, np.ndarray) and given.ndim > 0)


class ClassWeightedLoss(nn.Module):
    """Cross entropy with class weights, divided by the number of rows.

    ``nn.CrossEntropyLoss(weight=w)`` divides by the sum of weights **of each batch**, which trains at another cost
    ratio than the stated one: with 50 negatives per positive, balanced weights and batches of 32, at .45 of it.

    Parameters
    ----------
    weighting : Lam, Alpha, CostRatio, Budget, float, "balanced", None, dict, list, array, tensor, Price, CostMatrix
        A price for two classes, or a weight for each of K. A price gives weights with mean 1 over the counted rows;
        weights given one by one are unchanged.
    counts : sequence of int, optional
        Rows of class 0, 1, … of the training set, such as ``torch.bincount(y)``. ``"balanced"`` and α need them, and so
        does None for more than two classes.
    ignore_index : int, default=-100
        Rows with this class number are ignored, as in torch.

    Attributes
    ----------
    class_weights : tensor of shape (K,)
        A buffer of torch's default type: it moves with the module and is part of its ``state_dict``.

    Examples
    --------
    >>> import torch
    >>> from crcen.torch import ClassWeightedLoss
    >>> loss = ClassWeightedLoss([1.0, 9.0])
    >>> round(float(loss(torch.zeros(4), torch.tensor([1, 0, 0, 0]))), 4)  # log 2 · (9 + 3) / 4
    2.0794
    """

    class_weights: Tensor

    def __init__(self, weighting: Weighting, counts: Counts = None, *, ignore_index: int = -100) -> None:
        super().__init__()
        weights = torch.tensor(weights_of_classes(weighting, counts), dtype=torch.get_default_dtype())
        self.register_buffer("class_weights", weights)
        self.ignore_index = ignore_index

    @classmethod
    def from_torch(cls, loss: nn.Module) -> "ClassWeightedLoss":
        """The weights of ``nn.BCEWithLogitsLoss`` or ``nn.CrossEntropyLoss`` (with a mean), divided by rows."""
        has_mean, weight = getattr(loss, "reduction", None) == "mean", getattr(loss, "weight", None)
        if isinstance(loss, nn.CrossEntropyLoss) and has_mean and weight is not None and not loss.label_smoothing:
            return cls(weight, ignore_index=loss.ignore_index)
        if isinstance(loss, nn.BCEWithLogitsLoss) and has_mean and weight is None:
            pos_weight = torch.ones(1) if loss.pos_weight is None else loss.pos_weight
            if pos_weight.numel() == 1:
                return cls([1.0, float(pos_weight)])
        raise InvalidParameter(
            f"from_torch takes nn.CrossEntropyLoss with a weight for each class and without label smoothing, or "
            f'nn.BCEWithLogitsLoss with at most one pos_weight, both with reduction="mean": got {loss}.'
        )

    def forward(self, logits: Outputs, target: Tensor, num_items_in_batch: Tensor | float | None = None) -> Tensor:
        """The loss of a batch.

        Parameters
        ----------
        logits : tensor of shape (B,), (B, 1) or (B, K)
            Before sigmoid or softmax; or an object with ``.logits``, such as the output of Transformers' models.
        target : tensor
            Class numbers (B,); of two classes also 0/1 of any type, or probabilities of class 1; soft labels (B, K).
        num_items_in_batch : int, optional
            Divides the sum instead of the number of rows: with all rows that are accumulated before a step, the losses
            of their batches add up to the loss of one large batch.
        """
        inner = logits.logits if hasattr(logits, "logits") else logits
        outputs = logit_columns(inner if inner.dtype == torch.float64 else inner.float(), len(self.class_weights))
        # Sums in half precision would lose rows, so logits are float32 at least.
        weights = self.class_weights.to(outputs)  # trainers move modules, but not always the loss
        shares, used = soft_labels(target, len(outputs), len(weights), self.ignore_index, outputs.dtype)
        # Where a share is 0 so is the term, and its gradient: log-probabilities of finite logits are finite.
        total = -(shares * weights * log_softmax(outputs, 1)).sum()
        return total / (used.sum().clamp(min=1) if num_items_in_batch is None else num_items_in_batch)

    def extra_repr(self) -> str:
        """The weights, for ``print``."""
        return str([float(f"{w:.6g}") for w in self.class_weights.tolist()])


def soft_labels(
    target: Tensor, n_rows: int, n_classes: int, ignore_index: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Soft labels (B, K) of a target as `ClassWeightedLoss` takes it, and which rows count; other rows are 0."""
    if target.shape == (n_rows, n_classes) and target.is_floating_point():
        _check_range(target, 0.0, 1.0)
        return target.to(dtype), torch.ones(n_rows, dtype=torch.bool, device=target.device)
    flat = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
    if flat.shape != (n_rows,):
        raise InvalidInput(
            f"target must hold a class number for each of {n_rows} rows, or soft labels of shape "
            f"{(n_rows, n_classes)}: got shape {tuple(target.shape)}."
        )
    used = flat != ignore_index
    if flat.is_floating_point():
        if n_classes != 2:
            raise InvalidInput(
                f"class numbers of {n_classes} classes must be integers: got {flat.dtype}; try target.long()."
            )
        positive = torch.where(used, flat, 0).to(dtype)
        _check_range(positive, 0.0, 1.0)
        shares = torch.stack([1.0 - positive, positive], 1)
    else:
        numbers = torch.where(used, flat.long(), 0)
        _check_range(numbers, 0, n_classes - 1)
        shares = nn.functional.one_hot(numbers, n_classes).to(dtype)
    return shares * used[:, None], used


def logit_columns(logits: Tensor, n_classes: int | None = None) -> Tensor:
    """(B,), (B, 1) or (B, K) → (B, K); one logit o becomes the pair (0, o)."""
    one = logits[:, 0] if logits.ndim == 2 and logits.shape[1] == 1 else logits
    columns = torch.stack([torch.zeros_like(one), one], 1) if one.ndim == 1 else one
    if columns.ndim != 2 or columns.shape[1] != (n_classes or columns.shape[1]):
        classes, k = ("", "K") if n_classes is None else (f" for {n_classes} classes", n_classes)
        also = ", (rows, 1) or (rows,)" if n_classes in (None, 2) else ""
        raise InvalidInput(f"logits{classes} must have shape (rows, {k}){also}: got {tuple(logits.shape)}.")
    return columns


def _check_range(target: Tensor, low: float, high: float) -> None:
    """Reject labels such as 1/2, on a CPU only: elsewhere the check would wait for the device at every batch."""
    if target.device.type == "cpu" and target.numel() and not torch.compiler.is_compiling():
        least, most = target.min().item(), target.max().item()
        if not (low <= least and most <= high):
            raise InvalidInput(f"targets must lie between {low:g} and {high:g}: got {least:g} to {most:g}.")


class NaturalLogits(nn.Module):
    """A module without the class weights in its logits: their sigmoid or softmax are natural probabilities.

    It subtracts log w_k and adds a shift, which is zero until `balance_` solves for it: an output bias for modules that
    have none. Both are buffers, so they are part of ``state_dict``, move with the module and are exported
    (``torch.export``, ``torch.onnx.export``, ``torch.compile``, ``torch.jit.trace``; ``torch.jit.script`` if the module
    takes and returns one tensor).

    Parameters
    ----------
    module : nn.Module
        Returns weighted logits (rows,), (rows, 1) or (rows, K), or an object with ``.logits``.
    weighting
        The weighting of the training: as in `ClassWeightedLoss`, or that loss itself.
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
    >>> natural(torch.tensor([0.0])).sigmoid()  # on the border at weight 9, rare by nature
    tensor([0.1000])
    """

    class_weights: Tensor
    shift: Tensor

    def __init__(self, module: nn.Module, weighting: Weighting, counts: Counts = None) -> None:
        super().__init__()
        weights = weights_of_classes(weighting, counts)
        like = next((p for p in module.parameters() if p.is_floating_point()), torch.empty(0))
        # Half precision would round the weights themselves to three digits.
        kind = like.dtype if like.dtype == torch.float64 else torch.float32
        self.module = module
        self.register_buffer("class_weights", torch.tensor(weights, dtype=kind, device=like.device))
        self.register_buffer("shift", torch.zeros(len(weights), dtype=kind, device=like.device))

    def forward(self, *inputs: Inputs, **named: Inputs) -> Tensor:
        """Natural logits, in the shape of the module's own."""
        logits = self.weighted_logits(*inputs, **named)
        return logits - _for_columns(self.class_weights.log(), logits)

    def weighted_logits(self, *inputs: Inputs, **named: Inputs) -> Tensor:
        """The module's logits plus the shift, the subject of the key equation."""
        out = self.module(*inputs, **named)
        logits = getattr(out, "logits", out)
        return logits + _for_columns(self.shift, logits)

    def __prepare_scriptable__(self) -> nn.Module:
        """The module that ``torch.jit.script`` compiles instead: it has no variable arguments."""
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
        return logits + _for_columns(self.shift - self.class_weights.log(), logits)


def _for_columns(values: Tensor, logits: Tensor) -> Tensor:
    """One value per class; their difference if one logit distinguishes two classes. TorchScript compiles it, too."""
    columns = 1 if logits.dim() == 1 else logits.size(-1)
    if columns == 1 and len(values) == 2:
        return values[1] - values[0]
    if columns != len(values):
        raise InvalidInput(f"the module returns {columns} logits per row: got weights for {len(values)} classes.")
    return values
