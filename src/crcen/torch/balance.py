"""Class weights, the weighted loss and natural logits of any module, and the balance of its output bias."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, distributed, nn
from torch.nn.functional import log_softmax
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, WeightedRandomSampler

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import balance_shift, class_shifts
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits, without_test
from crcen.theory.price import Alpha, Price, WeightingLike, resolved
from crcen.theory.rows import Array, Index

Weighting: TypeAlias = WeightingLike | nn.Module | Tensor
Counts: TypeAlias = ArrayLike | Tensor | None
Inputs = Any  # of a module: tensors, or containers of them
Outputs = Any  # of a module: logits, or an object with them
Batch = Any  # what a loader yields: a pair, or a dict with labels
Loader: TypeAlias = Iterable[Batch]
Batches: TypeAlias = Loader | None
Sampler = Any  # of a loader, or weights of rows
Target = TypeVar("Target")

_SOLVED = "the bias was solved on these rows; test on rows that the network has not seen"
IGNORED = -100  # class number of ignored rows, as in torch
_NO_ROWS = "there is no batch to read: got an empty loader; is the generator exhausted?"


def stated_weights(weighting: Weighting) -> WeightingLike:
    """Losses, tensors and cost matrices as an array of weights; anything else unchanged."""
    if isinstance(weighting, nn.Module):
        if not hasattr(weighting, "class_weights"):
            message = (
                f"a weighting as a module must be a ClassWeightedLoss or NaturalLogits: got {type(weighting).__name__}"
            )
            raise InvalidParameter(f"{message}; use ClassWeightedLoss.from_torch for torch's losses.")
        weighting = cast(Tensor, weighting.class_weights)
    if isinstance(weighting, Tensor):
        return weighting.detach().double().cpu().numpy()
    if isinstance(weighting, CostMatrix):
        weights = weighting.class_weights()
        if weights is None:
            message = "these costs are not class weights: the cost of an error depends on the predicted class"
            raise InvalidParameter(f"{message}; train without weights and decide with CostMatrix.choose.")
        return weights
    return weighting


def weighting_of(holder: nn.Module) -> nn.Module:
    """The only loss with class weights that a module is or contains, for callbacks without a weighting."""
    kept = [part for part in holder.modules() if isinstance(getattr(part, "class_weights", None), Tensor)]
    if len(kept) != 1:
        message = f"{type(holder).__name__} must contain exactly one ClassWeightedLoss: got {len(kept)}"
        raise InvalidParameter(f"{message}; give BalanceCallback its weighting.")
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
        advice = "give counts, such as counts=torch.bincount(y), or a cost ratio, λ, or a weight for each class"
        raise InvalidParameter(f"weighting={weighting!r} needs the rows of each class: {advice}.")
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

    def __init__(self, weighting: Weighting, counts: Counts = None, *, ignore_index: int = IGNORED) -> None:
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
        allowed = (
            "nn.CrossEntropyLoss with a weight for each class and without label smoothing, or nn.BCEWithLogitsLoss"
        )
        message = f'from_torch takes {allowed} with at most one pos_weight, both with reduction="mean"'
        raise InvalidParameter(f"{message}: got {loss}.")

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
        # Where a share is 0 so are the term and its gradient, even if the logit is infinite or the row is ignored.
        logs = log_softmax(outputs.masked_fill(~used[:, None], 0.0), 1)
        total = -(weights * torch.where(shares > 0.0, shares * logs, 0.0)).sum()
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
        allowed = f"a class number for each of {n_rows} rows, or soft labels of shape {(n_rows, n_classes)}"
        raise InvalidInput(f"target must hold {allowed}: got shape {tuple(target.shape)}.")
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
    """Reject labels such as 1/2, on a CPU only: on other devices the check would synchronise at every batch."""
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


def balance_(
    module: nn.Module, batches: Loader, weighting: Weighting, *, bias: str | None = None, distributed: bool = True
) -> KeyEquation:
    """Move the output bias of any module, in place, so that the key equation holds on these rows.

    The module runs in evaluation mode (dropout off, batch norm with its running statistics); the mode of every part is
    restored. Logits are kept in float64 on the CPU, 8 bytes each, and the bias is solved for on all of them at once.

    Parameters
    ----------
    module : nn.Module
        Returns weighted logits (rows,), (rows, 1) or (rows, K), or an object with ``.logits``. The shift of a
        `NaturalLogits` is moved instead of a bias.
    batches : iterable
        Pairs of inputs and target, such as a ``DataLoader`` of the training rows; read once. Inputs are a tensor, a
        tuple (arguments) or a dict (named arguments); a dict may hold ``labels``. Targets: see `ClassWeightedLoss`.
    weighting
        The training weighting: as in `ClassWeightedLoss`, or that loss itself. ``"balanced"`` and α use these rows.
    bias : str, optional
        Name of the parameter that is the output bias. Default: the last parameter with one number per logit that
        passes the test, which a named one must pass, too: a value added to it must be added to the logits.
    distributed : bool, default=True
        With several processes of ``torch.distributed``, each calls this function with its own share of the rows; the
        shares are combined, and all solve for the same bias. ``False`` for one process that has all rows.

    Returns
    -------
    KeyEquation
        On these rows, with the stored bias.

    Notes
    -----
    The solve is exact in float64; a float32 bias b leaves a residual of at most 1.5e-8·|b|, bfloat16 up to 1e-3·|b|:
    balance a float32 copy. Rows that a ``DistributedSampler`` repeats count twice, as in training.
    """
    if isinstance(module, nn.parallel.DistributedDataParallel):  # its forward would wait for the other processes
        module, bias = module.module, None if bias is None else bias.removeprefix("module.")
    ignored = getattr(weighting, "ignore_index", IGNORED)
    with evaluating(module):
        if distributed and _n_processes() > 1:
            rows, target = _gathered(lambda: _collect_rows(module, batches, bias, ignored))
        else:
            rows, target = _collect_rows(module, batches, bias, ignored)
        price = price_of(weighting, rows.counts())
        if isinstance(module, NaturalLogits):
            own, weights = module.class_weights.detach().double().cpu().numpy(), price.weights
            if own.size != weights.size or not np.allclose(weights / weights[0], own / own[0], rtol=1e-5):
                ratios = [" : ".join(f"{w:.6g}" for w in part / part[0]) for part in (own, weights)]
                message = f"NaturalLogits removes weights in the ratio {ratios[0]}: got {ratios[1]} to balance at"
                raise InvalidParameter(f"{message}; give the module itself as weighting.")
        shifts = solved_shifts(rows, price, n_outputs=target.numel())
        moved = _add(target, shifts - shifts[0] if shifts.size == 2 else shifts)  # of two biases the second is moved
        if moved.size > rows.logits.shape[1]:  # the shift of NaturalLogits around one logit
            moved = moved[1:] - moved[:1]
        equation = key_equation_of_logits(rows.y, margin(rows.logits + moved), price, rows.sample_weight)
        return without_test(equation, _SOLVED)


def _collect_rows(module: nn.Module, batches: Loader, name: str | None, ignored: int) -> tuple["Collected", Tensor]:
    """Weighted logits and labels of all batches, and the bias to move."""
    in_batches = getattr(batches, "batch_sampler", None)  # which may have no length
    if isinstance(getattr(batches if in_batches is None else in_batches, "sampler", None), WeightedRandomSampler):
        drawn = "a WeightedRandomSampler draws the rows, so the key equation is solved at another class ratio"
        warnings.warn(f"{drawn}: pass a loader of every row once.", UserWarning, stacklevel=3)
    pairs = (split_batch(batch) for batch in batches)
    first = next(pairs, None)
    if first is None:
        raise InvalidInput(_NO_ROWS)
    if isinstance(module, NaturalLogits):
        if name is not None:
            raise InvalidParameter(f"NaturalLogits has a shift of its own: got bias={name!r}; leave it out.")
        logits, target = logits_of(module, first[0]), module.shift
    else:
        logits, target = output_bias(module, first[0], name)
    found = chain([(logits, first[1])], ((logits_of(module, inputs), y) for inputs, y in pairs))
    return collect(found, ignored), target


def solved_shifts(rows: "Collected", price: Price, logits: Array | None = None, n_outputs: int | None = None) -> Array:
    """Values to add to the output biases so that the key equations hold; several of them have mean 0."""
    logits = rows.logits if logits is None else logits
    if len(price.weights) > 2:
        return class_shifts(rows.y, logits, price.weights, rows.sample_weight)
    shift = float(balance_shift(rows.y, margin(logits), price, rows.sample_weight))
    return np.array([shift] if (n_outputs or logits.shape[1]) == 1 else [-0.5 * shift, 0.5 * shift])


def margin(logits: Array) -> Array:
    """Logits as the theory takes them: (n,) for two classes, (n, K) for more."""
    if logits.shape[1] > 2:
        return logits
    return np.asarray(logits[:, -1] - (logits[:, 0] if logits.shape[1] == 2 else 0.0))


def _add(bias: Tensor, shifts: Array) -> Array:
    """Add to the bias in float64; return the change of the stored bias."""
    before = bias.detach().double().cpu().clone()  # a float64 bias would share memory with its copy
    bias.copy_((before + torch.from_numpy(shifts).reshape(before.shape)).to(bias.dtype))
    return np.asarray((bias.detach().double().cpu() - before).reshape(-1).numpy())


@dataclass(frozen=True, eq=False)
class Collected:
    """Logits (n, C), class numbers, row weights; a row with soft labels appears once for each class, by its share."""

    logits: Array
    y: Index
    sample_weight: Array | None

    def counts(self) -> Array:
        """Weight of the rows of each class."""
        n_classes = max(self.logits.shape[1], 2)
        counts = np.bincount(self.y, weights=self.sample_weight, minlength=n_classes)
        if not counts.all():
            raise InvalidInput(f"batches must hold rows of each of {n_classes} classes: got counts {counts.tolist()}.")
        return counts.astype(np.float64)


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the mode of every part is restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def split_batch(batch: Batch) -> tuple[Inputs, Tensor]:
    """Inputs and target of a batch."""
    if isinstance(batch, Mapping) and "labels" in batch:
        return {name: value for name, value in batch.items() if name != "labels"}, torch.as_tensor(batch["labels"])
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        got = f"{type(batch).__name__}{f' of {len(batch)}' if isinstance(batch, tuple | list) else ''}"
        raise InvalidInput(f"a batch must be a pair of inputs and target, or a dict with labels: got {got}.")
    return batch[0], torch.as_tensor(batch[1])


def logits_of(module: nn.Module, inputs: Inputs) -> Tensor:
    """Weighted logits (n, C) of a batch; a tuple of inputs becomes arguments, a dict named arguments."""
    moved = _moved(inputs, next((p.device for p in module.parameters()), torch.device("cpu")))
    call = module.weighted_logits if isinstance(module, NaturalLogits) else module
    is_list = isinstance(moved, tuple | list)
    out = call(**moved) if isinstance(moved, Mapping) else call(*moved) if is_list else call(moved)
    logits = getattr(out, "logits", out)
    if not isinstance(logits, Tensor) or logits.ndim not in (1, 2):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInput(f"the module must return logits of shape (rows,), (rows, 1) or (rows, classes): got {got}.")
    return logits[:, None] if logits.ndim == 1 else logits


def _moved(inputs: Inputs, device: torch.device) -> Inputs:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [_moved(value, device) for value in inputs]
    return inputs


def collect(batches: Iterable[tuple[Tensor, Tensor]], ignored: int = IGNORED) -> Collected:
    """All pairs of logits (n, C) and targets together, without rows of the class number ``ignored``."""
    logits, numbers, weights = [], [], []
    for outputs, target in batches:
        n_rows, n_classes = len(outputs), max(2, outputs.shape[1])
        shares = soft_labels(target.detach().cpu(), n_rows, n_classes, ignored, torch.float64)[0].numpy()
        rows, y = np.nonzero(shares)
        numbers.append(y)
        weights.append(shares[rows, y])
        logits.append(outputs.detach().cpu().double().numpy()[rows])
    if not logits:
        raise InvalidInput(_NO_ROWS)
    sizes, values = np.concatenate(weights), np.concatenate(logits)
    if not np.isfinite(values).all():
        raise InvalidInput("logits must be finite: got NaN or infinity; check the network.")
    return Collected(values, np.concatenate(numbers), None if (sizes == 1.0).all() else sizes)


def row_by_row(batches: Loader) -> tuple[Loader, Sampler, Index | None]:
    """Batches with every row of a data set once, in a known random order; the original sampler; and that order."""
    is_mapped = isinstance(batches, DataLoader) and not isinstance(batches.dataset, IterableDataset)
    if not isinstance(batches, DataLoader) or not is_mapped or batches.batch_size is None:
        return batches, None, None
    dataset: Batch = batches.dataset
    order = np.random.default_rng(0).permutation(len(dataset))
    same = {name: getattr(batches, name) for name in ("batch_size", "collate_fn", "num_workers")}
    loader = DataLoader(dataset, sampler=order.tolist(), **same)
    is_plain = isinstance(batches.sampler, SequentialSampler) or (
        isinstance(batches.sampler, RandomSampler) and not batches.sampler.replacement
    )
    return loader, "none" if is_plain else batches.sampler, order


def every_row(batches: Loader) -> Loader:
    """Every row of a loader's data set once, with any sampler; with several processes the loader itself."""
    return batches if _n_processes() > 1 else row_by_row(batches)[0]


def output_bias(module: nn.Module, inputs: Inputs, name: str | None) -> tuple[Tensor, Tensor]:
    """Logits of a batch, and the output bias: a value added to it is added to the logits, and nothing else happens."""
    logits = logits_of(module, inputs)
    columns = logits.shape[1]
    possible = {key: value for key, value in module.named_parameters() if value.numel() == columns}
    if name is not None and name not in possible:
        sizes = {key: f"{value.numel()} numbers" for key, value in module.named_parameters()}
        allowed = f"a parameter with {columns} number{'s' if columns > 1 else ''}, one per logit"
        got = f"{sizes.get(name, 'no parameter of that name')}; possible are {', '.join(possible) or 'none'}"
        raise InvalidParameter(f"bias={name!r} must name {allowed}: got {got}.")
    tried = list(reversed(possible)) if name is None else [name]
    for key in tried:
        # `collect` raises an error if logits are not finite.
        if not bool(logits.isfinite().all()) or _moves_logits(possible[key], logits, lambda: logits_of(module, inputs)):
            return logits, possible[key]
    what = f"a value added to {' or '.join(tried)} is not added to the logits, so it is no output bias"
    what = what if tried else "no parameter has one number per logit, so there is no output bias"
    advice = "name another with bias=, or wrap the module in crcen.torch.NaturalLogits, which has a shift of its own"
    raise InvalidParameter(f"{what}: {advice}.")


def _moves_logits(bias: Tensor, logits: Tensor, call: Callable[[], Tensor]) -> bool:
    """Whether a value added to a parameter is added to the logits."""
    before = bias.detach().clone()
    steps = torch.linspace(1.0, 2.0, bias.numel(), dtype=torch.float64)
    try:
        bias.copy_((before.double() + steps.reshape(bias.shape).to(bias.device)).to(bias.dtype))
        added = (bias.detach().double() - before.double()).reshape(-1)
        moved = call().double() - logits.double()
    finally:
        bias.copy_(before)
    slack = 64 * torch.finfo(logits.dtype).eps * (2.0 + float(logits.detach().abs().max()))
    return bool(((moved - added.to(moved.device)).abs() <= slack).all())


def _n_processes() -> int:
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def _gathered(own_rows: Callable[[], tuple[Collected, Target]]) -> tuple[Collected, Target]:
    """The rows of all processes, in order, and the own target; if a process fails, all do."""
    own: tuple[Collected, Target] | Exception
    try:
        own = own_rows()
    except Exception as error:
        own = error
    answers: list[Any] = [None] * _n_processes()
    distributed.all_gather_object(answers, f"{type(own).__name__}: {own}" if isinstance(own, Exception) else own[0])
    if isinstance(own, Exception):
        raise own
    for number, answer in enumerate(answers):
        if isinstance(answer, str):
            raise InvalidInput(f"process {number} has no rows to balance over: {answer}")
    shares: list[Collected] = answers
    if len({share.logits.shape[1] for share in shares}) > 1:
        raise InvalidInput(f"processes return {[share.logits.shape[1] for share in shares]} logits per row.")
    sizes = np.concatenate([np.ones(len(s.y)) if s.sample_weight is None else s.sample_weight for s in shares])
    rows = Collected(np.concatenate([s.logits for s in shares]), np.concatenate([s.y for s in shares]), sizes)
    return rows, own[1]
