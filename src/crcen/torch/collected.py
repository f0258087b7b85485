"""What a network answers over a loader, kept on the CPU in float64, with the labels."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crcen.exceptions import InvalidInput

__all__ = ["Collected", "answer", "as_answering", "collect", "split_batch"]


@dataclass(frozen=True, eq=False)
class Collected:
    """Logits (n, C), class numbers (n,) and row weights (n,), or None; C is 1 where one logit tells two classes apart.

    A row with soft labels stands once for each class that has a share of it, weighted by the share: the loss and its
    equation are the same.
    """

    logits: NDArray[np.float64]
    y: NDArray[np.int64]
    sample_weight: NDArray[np.float64] | None


@contextmanager
def as_answering(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients, whatever mode each part was in before; that is restored."""
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, mode in modes:
            part.training = mode


def split_batch(batch: Any) -> tuple[Any, Tensor]:
    """Inputs and target of a batch."""
    if isinstance(batch, Mapping) and "labels" in batch:
        return {name: value for name, value in batch.items() if name != "labels"}, torch.as_tensor(batch["labels"])
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InvalidInput(
            f"a batch must be a pair of inputs and target, or a dict with labels: got {type(batch).__name__}"
            f"{f' of {len(batch)}' if isinstance(batch, tuple | list) else ''}."
        )
    return batch[0], torch.as_tensor(batch[1])


def answer(module: nn.Module, inputs: Any, forward: Callable[..., Any] | None = None) -> Tensor:
    """Logits (n, C) of a batch; a tuple of inputs becomes arguments, a dict becomes named ones."""
    own = next((p.device for p in module.parameters()), torch.device("cpu"))
    moved = _moved(inputs, own)
    call = module if forward is None else forward
    if isinstance(moved, Mapping):
        out = call(**moved)
    elif isinstance(moved, tuple | list):
        out = call(*moved)
    else:
        out = call(moved)
    logits = getattr(out, "logits", out)
    if not isinstance(logits, Tensor) or logits.ndim not in (1, 2):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInput(f"the module must answer logits of shape (rows,), (rows, 1) or (rows, classes): got {got}.")
    return logits[:, None] if logits.ndim == 1 else logits


def collect(batches: Iterable[tuple[Tensor, Tensor]]) -> Collected:
    """All pairs of logits (n, C) and targets, put together."""
    logits, numbers, weights = [], [], []
    for outputs, target in batches:
        y, rows, shares = _as_rows(target.detach().cpu(), outputs.shape)
        numbers.append(y)
        weights.append(shares)
        logits.append(outputs.detach().cpu().double().numpy()[rows])
    if not logits:
        raise InvalidInput("there is no batch to balance over: got an empty loader; was a generator used up?")
    sizes = np.concatenate(weights)
    values = np.concatenate(logits)
    if not np.isfinite(values).all():
        raise InvalidInput("logits must be finite: got NaN or infinity; check the network that made them.")
    return Collected(values, np.concatenate(numbers), None if (sizes == 1.0).all() else sizes)


def _as_rows(target: Tensor, shape: torch.Size) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Class numbers, the rows they belong to, and what each weighs."""
    n, columns = shape
    values = target.double().numpy()
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.shape[:1] != (n,) or values.ndim > 2 or (values.ndim == 2 and values.shape[1] != columns):
        raise InvalidInput(f"target must have one label for each of {n} rows: got shape {tuple(target.shape)}.")
    if values.ndim == 1 and not target.is_floating_point():
        kept = np.flatnonzero(values != -100)  # rows that torch's losses ignore
        return values[kept].astype(np.int64), kept, np.ones(kept.size)
    if values.ndim == 1:
        if columns > 2:
            raise InvalidInput(f"class numbers of {columns} classes must be integers: got {target.dtype}.")
        values = np.stack([1.0 - values, values], 1)
    if not ((values >= 0.0) & (values <= 1.0)).all():
        raise InvalidInput("soft labels and 0/1 labels must lie between 0 and 1.")
    rows, numbers = np.nonzero(values)
    return numbers.astype(np.int64), rows, values[rows, numbers]


def _moved(inputs: Any, device: torch.device) -> Any:
    if isinstance(inputs, Tensor):
        return inputs.to(device)
    if isinstance(inputs, Mapping):
        return {name: _moved(value, device) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [_moved(value, device) for value in inputs]
    return inputs
