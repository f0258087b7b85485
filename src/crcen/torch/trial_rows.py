"""The rows that experiments on a trained module go by: its answers in every mode that training has, in one pass."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.rows import check_class_numbers
from crcen.torch.collected import Collected, answer, as_answering, collect, split_batch
from crcen.torch.natural import NaturalLogits
from crcen.torch.output_bias import bias_of, check_moves_logits, last_layer, named_bias
from crcen.torch.processes import n_processes

__all__ = ["TrialRows", "every_row", "row_by_row", "trial_rows"]

_NORMS = (nn.modules.batchnorm._BatchNorm,)
_DROPOUTS = (nn.modules.dropout._DropoutNd,)


@dataclass(frozen=True, eq=False)
class TrialRows:
    """What a module answers over all batches.

    Parameters
    ----------
    module
        That module.
    batches
        The batches as given, to go through again; None where they can be gone through once only.
    collected
        Logits in evaluation mode, with class numbers and row weights.
    in_mode
        The same with batch norm, or with dropout, as in training; only where the module has such parts.
    outputs, targets
        Logits (n, C) and targets as the loss gets them, in one tensor each.
    counts
        Weight of the rows of each class.
    batch_size
        Rows of the first batch.
    order
        Which row of the data set each row is.
    bias
        The output bias, or None with a reason in ``no_bias``.
    sampler
        What the loader draws rows by, or None where that is not to be seen.
    """

    module: nn.Module
    batches: Iterable[Any] | None
    collected: Collected
    in_mode: dict[str, Collected]
    outputs: Tensor
    targets: Tensor
    counts: NDArray[np.float64]
    batch_size: int
    order: NDArray[np.int64]
    bias: Tensor | None
    no_bias: str
    sampler: Any


def trial_rows(module: nn.Module, batches: Iterable[Any], bias: str | None) -> TrialRows:
    """Go through the batches once, with the module in each mode."""
    again: Iterable[Any] | None = None if isinstance(batches, Iterator) else batches
    source, sampler, order = row_by_row(batches)
    modes = {"": (), "batch norm": _NORMS, "dropout": _DROPOUTS}
    present = {name: kinds for name, kinds in modes.items() if not kinds or _has(module, kinds)}
    answered: dict[str, list[tuple[Tensor, Tensor]]] = {name: [] for name in present}
    forward = module.weighted_logits if isinstance(module, NaturalLogits) else module
    found: tuple[Tensor | None, str] = (None, "there is no batch")
    raw = []
    with torch.random.fork_rng(devices=[]), as_answering(module):
        torch.manual_seed(0)
        for number, batch in enumerate(source):
            inputs, target = split_batch(batch)
            for name, kinds in present.items():
                with _training(module, kinds):
                    answered[name].append((answer(module, inputs, forward), target))
            raw.append(target)
            if number == 0:
                found = _bias_found(module, inputs, bias)
    if not raw:
        raise InvalidInput("there is no batch to go by: got an empty loader; was a generator used up?")
    collected = collect(answered[""])
    columns = max(collected.logits.shape[1], 2)
    numbers = check_class_numbers(collected.y, columns)
    counts = np.bincount(numbers, weights=collected.sample_weight, minlength=columns).astype(np.float64)
    if not counts.all():
        raise InvalidInput(f"batches must hold rows of each of {columns} classes: got counts {counts.tolist()}.")
    return TrialRows(
        module=module,
        batches=again,
        collected=collected,
        in_mode={name: collect(pairs) for name, pairs in answered.items() if name},
        outputs=torch.cat([logits.detach().cpu().double() for logits, _ in answered[""]]),
        targets=torch.cat([target.detach().cpu() for target in raw]),
        counts=counts,
        batch_size=len(raw[0]),
        order=np.arange(sum(len(target) for target in raw)) if order is None else order,
        bias=found[0],
        no_bias=found[1],
        sampler=sampler,
    )


def row_by_row(batches: Iterable[Any]) -> tuple[Iterable[Any], Any, NDArray[np.int64] | None]:
    """Batches that hold every row of a data set once, in a random order that is known, and what drew them before."""
    if (
        not isinstance(batches, DataLoader)
        or isinstance(batches.dataset, IterableDataset)
        or batches.batch_size is None
    ):
        return batches, None, None
    dataset: Any = batches.dataset
    order = np.random.default_rng(0).permutation(len(dataset))
    loader = DataLoader(
        dataset,
        batch_size=batches.batch_size,
        sampler=order.tolist(),
        collate_fn=batches.collate_fn,
        num_workers=batches.num_workers,
    )
    is_plain = isinstance(batches.sampler, SequentialSampler) or (
        isinstance(batches.sampler, RandomSampler) and not batches.sampler.replacement
    )
    return loader, "none" if is_plain else batches.sampler, order


def every_row(batches: Any) -> Iterable[Any]:
    """Every row of a loader's data set once, whatever its sampler; on several processes the loader as it is."""
    return batches if n_processes() > 1 else row_by_row(batches)[0]


def _bias_found(module: nn.Module, inputs: Any, name: str | None) -> tuple[Tensor | None, str]:
    """The output bias, or why there is none."""
    if isinstance(module, NaturalLogits):
        return None, "NaturalLogits has a shift that no optimizer moves"
    try:
        logits, last = last_layer(module, lambda: answer(module, inputs))
        columns = logits.shape[1]
        where, bias = bias_of(last, columns) if name is None else (name, named_bias(module, name, columns))
        check_moves_logits(where, bias, logits, lambda: answer(module, inputs))
    except InvalidParameter as error:
        if name is not None:
            raise
        return None, str(error).split(":")[0]
    return bias, ""


def _has(module: nn.Module, kinds: tuple[type, ...]) -> bool:
    return any(isinstance(part, kinds) for part in module.modules())


@contextmanager
def _training(module: nn.Module, kinds: tuple[type, ...]) -> Iterator[None]:
    """Parts of these kinds as in training; their running statistics are put back."""
    parts = [part for part in module.modules() if isinstance(part, kinds)] if kinds else []
    kept = [{name: value.clone() for name, value in part.named_buffers()} for part in parts]
    for part in parts:
        part.train()
    try:
        yield
    finally:
        for part, buffers in zip(parts, kept, strict=True):
            part.eval()
            for name, value in part.named_buffers():
                value.copy_(buffers[name])
