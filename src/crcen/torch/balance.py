"""The balance of any module: its output bias is moved so that the key equation holds."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, distributed, nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.balance import balance_shift, class_shifts
from crcen.theory.key_equation import KeyEquation, key_equation_of_logits, without_test
from crcen.theory.price import Price
from crcen.theory.rows import Array, Index
from crcen.torch.loss import Inputs, NaturalLogits, Weighting, price_of, soft_labels

Batch = Any  # what a loader yields: a pair, or a dict with labels
Loader: TypeAlias = Iterable[Batch]
Batches: TypeAlias = Loader | None
Sampler = Any  # of a loader, or weights of rows
Target = TypeVar("Target")

_SOLVED = "these rows were solved for; test on rows that the network has not seen"
_NO_ROWS = "there is no batch to read: got an empty loader; is the generator exhausted?"


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
    with evaluating(module):
        if distributed and _n_processes() > 1:
            rows, target = _gathered(lambda: _collect_rows(module, batches, bias))
        else:
            rows, target = _collect_rows(module, batches, bias)
        price = price_of(weighting, rows.counts())
        if isinstance(module, NaturalLogits):
            own, weights = module.class_weights.detach().double().cpu().numpy(), price.weights
            if own.size != weights.size or not np.allclose(weights / weights[0], own / own[0], rtol=1e-5):
                ratios = [" : ".join(f"{w:.6g}" for w in part / part[0]) for part in (own, weights)]
                raise InvalidParameter(
                    f"NaturalLogits removes weights in the ratio {ratios[0]}: got {ratios[1]} to balance at; give the "
                    f"module itself as weighting."
                )
        shifts = solved_shifts(rows, price, n_outputs=target.numel())
        moved = _add(target, shifts - shifts[0] if shifts.size == 2 else shifts)  # of two biases the second is moved
        if moved.size > rows.logits.shape[1]:  # the shift of NaturalLogits around one logit
            moved = moved[1:] - moved[:1]
        equation = key_equation_of_logits(rows.y, margin(rows.logits + moved), price, rows.sample_weight)
        return without_test(equation, _SOLVED)


def _collect_rows(module: nn.Module, batches: Loader, name: str | None) -> tuple["Collected", Tensor]:
    """Weighted logits and labels of all batches, and the bias to move."""
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
    rest = ((logits_of(module, inputs), y) for inputs, y in pairs)
    return collect(chain([(logits, first[1])], rest)), target


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
        raise InvalidInput(
            f"a batch must be a pair of inputs and target, or a dict with labels: got {type(batch).__name__}"
            f"{f' of {len(batch)}' if isinstance(batch, tuple | list) else ''}."
        )
    return batch[0], torch.as_tensor(batch[1])


def logits_of(module: nn.Module, inputs: Inputs) -> Tensor:
    """Weighted logits (n, C) of a batch; a tuple of inputs becomes arguments, a dict named arguments."""
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    moved = _moved(inputs, device)
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


def collect(batches: Iterable[tuple[Tensor, Tensor]]) -> Collected:
    """All pairs of logits (n, C) and targets together."""
    logits, numbers, weights = [], [], []
    for outputs, target in batches:
        n_rows, n_classes = len(outputs), max(2, outputs.shape[1])
        shares = soft_labels(target.detach().cpu(), n_rows, n_classes, -100, torch.float64)[0].numpy()
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
    """Every row of a loader's data set once, whatever its sampler; with several processes the loader itself."""
    return batches if _n_processes() > 1 else row_by_row(batches)[0]


def output_bias(module: nn.Module, inputs: Inputs, name: str | None) -> tuple[Tensor, Tensor]:
    """Logits of a batch, and the output bias: a value added to it is added to the logits, and nothing else happens."""
    logits = logits_of(module, inputs)
    columns = logits.shape[1]
    possible = {key: value for key, value in module.named_parameters() if value.numel() == columns}
    if name is not None and name not in possible:
        sizes = {key: f"{value.numel()} numbers" for key, value in module.named_parameters()}
        raise InvalidParameter(
            f"bias={name!r} must name a parameter with {columns} number{'s' if columns > 1 else ''}, one per logit: "
            f"got {sizes.get(name, 'no parameter of that name')}; possible are {', '.join(possible) or 'none'}."
        )
    tried = list(reversed(possible)) if name is None else [name]
    for key in tried:
        # `collect` raises an error if logits are not finite.
        if not bool(logits.isfinite().all()) or _moves_logits(possible[key], logits, lambda: logits_of(module, inputs)):
            return logits, possible[key]
    what = f"a value added to {' or '.join(tried)} is not added to the logits, so it is no output bias"
    raise InvalidParameter(
        f"{what if tried else 'no parameter has one number per logit, so there is no output bias'}: name another with "
        f"bias=, or wrap the module in crcen.torch.NaturalLogits, which has a shift of its own."
    )


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
    is_running = distributed.is_available() and distributed.is_initialized()
    return distributed.get_world_size() if is_running else 1


def _gathered(own_rows: Callable[[], tuple[Collected, Target]]) -> tuple[Collected, Target]:
    """The rows of all processes, in order, and the own target; if a process fails, all do."""
    own: tuple[Collected, Target] | Exception
    try:
        own = own_rows()
    except Exception as error:
        own = error
    answers: list[Any] = [None] * _n_processes()
    sent = f"{type(own).__name__}: {own}" if isinstance(own, Exception) else own[0]
    distributed.all_gather_object(answers, sent)
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
