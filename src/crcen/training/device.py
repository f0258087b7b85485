"""Work on a GPU: transfers, encoded rows, fitted encodings and float64 logits."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.exceptions import DeviceMissing, InvalidParameter
from crcen.theory.rows import Array, Index
from crcen.training.encoding import (
    INPUT_LIMIT,
    MOST_CANDIDATES,
    SMOOTH_LIMIT,
    Candidates,
    InputEncoding,
    candidate_targets,
    ramp_places,
    steps,
    with_indicators,
)
from crcen.training.network import stacked_logits
from crcen.training.passes import activate_in_place

# Encodings that `fit_on_device` supports.
ON_DEVICE = ("standard", "steps")

# Cells sorted at a time, times the number of classes.
_CELLS_AT_ONCE = 2**24
# Rows and numbers of logits computed at a time: a GPU needs large products.
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 2048, 2**27


def find_device(name: str) -> torch.device:
    """``"auto"`` is CUDA if available; a named device that is missing is an error."""
    if name not in ("auto", "cpu", "cuda") and not name.startswith("cuda:"):
        raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {name!r}.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceMissing(f"device={name!r} was asked for, but torch sees no CUDA device; use 'auto' or 'cpu'.")
    return torch.device(name)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; pinned memory avoids waiting for queued GPU work."""
    if device.type != "cuda":
        return values.to(device)
    return values.pin_memory().to(device, non_blocking=True)


def encoded_on(device: torch.device, encoding: InputEncoding, X: Array | Tensor) -> Tensor:
    """``encoding(X)`` as a float64 tensor (n, E) on a device; a GPU computes it with the same operations."""
    if device.type == "cpu" or encoding.knots is not None:
        return torch.from_numpy(encoding(X.cpu().numpy() if isinstance(X, Tensor) else X)).to(device)
    return _encoded(device, encoding, X)


def _encoded(device: torch.device, encoding: InputEncoding, X: Array | Tensor) -> Tensor:
    def there(values: NDArray[np.generic]) -> Tensor:
        return sent(torch.from_numpy(values), device)

    x = X if isinstance(X, Tensor) else there(np.ascontiguousarray(X, dtype=np.float64))
    if encoding.indicators is not None:
        x = torch.cat([x, x[:, there(encoding.indicators)].isnan().double()], 1)
    if encoding.columns is not None:
        x = x[:, there(encoding.columns)]
    z = (x - there(encoding.mean)).div_(there(encoding.scale))
    if encoding.low is not None and encoding.high is not None:
        z.clamp_(there(encoding.low), there(encoding.high))
    if encoding.is_smooth:
        z.div_(torch.sqrt(1.0 + (z / SMOOTH_LIMIT) ** 2))
    return z.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf) if encoding.indicators is not None else z


def device_logits(
    X: Array,
    encoding: InputEncoding,
    weights: Sequence[Array],
    biases: Sequence[Array],
    activation: str,
    device: torch.device,
) -> Tensor:
    """`stacked_logits` as a tensor (M, n), or (M, n, C), on a device."""
    if device.type == "cpu":
        return torch.from_numpy(stacked_logits(X, encoding, weights, biases, activation))
    layers = [
        (torch.from_numpy(np.ascontiguousarray(w)).to(device), torch.from_numpy(np.ascontiguousarray(b)).to(device))
        for w, b in zip(weights, biases, strict=True)
    ]
    models, widest = weights[0].shape[0], max(w.shape[2] for w in weights)
    at_once = max(64, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // max(models * widest, encoding.size)))
    n_outputs = weights[-1].shape[2]
    logits = torch.empty(models, X.shape[0], n_outputs, dtype=torch.float64, device=device)
    with torch.inference_mode():
        for start in range(0, X.shape[0], at_once):
            h = encoded_on(device, encoding, X[start : start + at_once])[None]
            for weight, bias in layers[:-1]:
                h = activate_in_place(activation, (h @ weight).add_(bias[:, None]))
            weight, bias = layers[-1]
            logits[:, start : start + at_once] = h @ weight + bias[:, None]
    return logits[..., 0] if n_outputs == 1 else logits


# -- encodings fitted on a GPU -----------------------------------------------------------------------------------------


@torch.no_grad()
def fit_on_device(
    kind: str, columns: Index | None, X: Tensor, y: Tensor, n_classes: int, indicators: Index | None
) -> InputEncoding:
    """`fit_encoding` for rows (n, F) of equal weight; ``y`` holds class numbers."""
    mean, scale, is_empty = _standardization(X)
    limit = np.where(is_empty, 0.0, INPUT_LIMIT)
    encoding = InputEncoding(mean, scale, None, -limit, limit)
    if kind == "steps":
        assert columns is not None
        own = list(ramp_places(columns, X.shape[1]))
        encoding = steps(columns, encoding, dict(zip(own, _candidates(X, y, n_classes, own), strict=True)))
    if indicators is None:
        return encoding
    is_missing = X[:, torch.from_numpy(indicators).to(X.device)].isnan()
    own_mean, own_scale, _ = _standardization(is_missing.double())
    is_used = (is_missing.any(0) & ~is_missing.all(0)).cpu().numpy()
    return with_indicators(encoding, indicators, own_mean, own_scale, is_used)


@torch.no_grad()
def n_values(X: Tensor) -> Index:
    """Number of distinct values of each column, without missing cells."""
    counts = []
    for part in _parts(range(X.shape[1]), len(X)):
        ordered = X[:, part].T.contiguous().sort(dim=1)[0]
        counts.append((ordered[:, 1:] > ordered[:, :-1]).sum(1) + (~ordered[:, 0].isnan()).long())
    return np.asarray(torch.cat(counts).cpu().numpy())


def _parts(columns: Sequence[int], numbers_a_column: int) -> list[list[int]]:
    at_once = max(1, _CELLS_AT_ONCE // max(numbers_a_column, 1))
    return [list(columns[start : start + at_once]) for start in range(0, len(columns), at_once)]


def _standardization(X: Tensor) -> tuple[Array, Array, NDArray[np.bool_]]:
    """`standardization` for rows of equal weight, and which columns are empty."""
    is_missing = X.isnan()
    count = (len(X) - is_missing.sum(0)).clamp(min=1)
    observed = torch.where(is_missing, 0.0, X)
    size = observed.abs().amax(0)
    size = torch.where(size == 0, 1.0, size)
    unit = observed / size
    mean = unit.sum(0) / count
    std = torch.where(is_missing, 0.0, unit - mean).square().sum(0).div(count).sqrt()
    is_constant = std <= 1e-12 * mean.abs().clamp(min=1e-12)
    scale = torch.where(is_constant, 1.0, std * size)
    first = observed.gather(0, (~is_missing).byte().argmax(0)[None])[0]  # the exact value of a constant column
    found = torch.stack([torch.where(is_constant, first, mean * size), torch.where(scale == 0, 1.0, scale)])
    return *found.cpu().numpy(), is_missing.all(0).cpu().numpy()


def _candidates(X: Tensor, y: Tensor, n_classes: int, columns: Sequence[int]) -> list[Candidates]:
    """`candidates_of` for columns, a few at a time."""
    labels = [label for label in range(n_classes) if bool((y == label).any())]
    found: list[Candidates] = []
    for part in _parts(columns, len(X) * len(labels)):
        found += _candidates_of(X[:, part].T.contiguous(), y, labels)
    return found


def _candidates_of(cells: Tensor, y: Tensor, labels: Sequence[int]) -> list[Candidates]:
    """Candidates of columns (C, n): sorted values, cumulative class counts, and where target shares are reached."""
    values, order = cells.sort(dim=1, stable=True)  # missing cells last
    is_missing = values.isnan()
    n_cells = cells.shape[1] - is_missing.sum(1, keepdim=True)
    last = (n_cells - 1).clamp(min=0)
    shares, n_present = [], torch.zeros_like(n_cells)
    for label in labels:
        counts = (y == label)[order].logical_and_(~is_missing).cumsum(1)
        total = counts[:, -1:]
        shares.append(counts.double() / total.clamp(min=1))
        n_present += total > 0
    mass = sum(shares[1:], shares[0]) / n_present.clamp(min=1)
    values = torch.where(is_missing, torch.inf, values)
    is_end = torch.cat([values[:, 1:] > values[:, :-1], ~is_missing[:, -1:]], 1) & ~is_missing
    is_few = is_end.sum(1, keepdim=True) <= MOST_CANDIDATES
    targets = torch.from_numpy(candidate_targets(1.0)).to(cells.device)
    row = torch.searchsorted(mass, (targets * mass[:, -1:]).contiguous()).minimum(last)
    ends = torch.searchsorted(values, values.gather(1, row), right=True) - 1
    if bool(is_few.any()):
        places = torch.where(is_end, torch.arange(cells.shape[1], device=cells.device), cells.shape[1])
        few = places.sort(dim=1)[0][:, :MOST_CANDIDATES]
        few = torch.nn.functional.pad(few, (0, MOST_CANDIDATES - few.shape[1]), value=cells.shape[1])
        ends = torch.where(is_few, few, ends)
    ends = ends.minimum(last)
    left, right = values.gather(1, ends), values.gather(1, (ends + 1).minimum(last))
    parts = torch.stack([left, right, *(own.gather(1, ends) for own in shares)], 2).cpu().numpy()
    sizes = n_cells[:, 0].tolist(), n_present[:, 0].tolist()
    return [_distinct(*own) for own in zip(parts, ends.cpu().numpy(), *sizes, strict=True)]


def _distinct(parts: Array, ends: Index, n_cells: int, n_present: int) -> Candidates:
    """The candidates of a column, each once."""
    if n_present < 2:
        return Candidates.none()
    ends, first = np.unique(ends, return_index=True)
    own = parts[first]
    return Candidates(own[:, 0], own[:, 1], own[:, 2:].copy(), (ends + 1) / n_cells)
