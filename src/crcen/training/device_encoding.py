"""Input encodings fitted on a GPU: columns are sorted and counted there, and trees grow on the host as ever.

For rows of equal weight alone. Counts are the same numbers in whatever order they are added up, so the steps are those
of a host, to the last digit; means and standard deviations are so up to rounding.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.column_trees import MOST_CANDIDATES, Candidates, candidate_targets
from crcen.training.encoding import INPUT_LIMIT, InputEncoding, ramp_places, steps, with_indicators

__all__ = ["ON_DEVICE", "encoding_there", "n_values"]

# The encodings that are fitted here.
ON_DEVICE = ("standard", "steps")

# Cells that are sorted at a time, times the classes they are counted by.
_CELLS_AT_ONCE = 2**24

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@torch.no_grad()
def encoding_there(
    kind: str, columns: Index | None, X: Tensor, y: Tensor, n_classes: int, indicators: Index | None
) -> InputEncoding:
    """What `fit_encoding` makes of rows (n, F) of equal weight; ``y`` are their class numbers."""
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
    return with_indicators(encoding, indicators, InputEncoding(own_mean, own_scale), is_used)


@torch.no_grad()
def n_values(X: Tensor) -> Index:
    """How many values each column has, missing cells apart."""
    counts = []
    for part in _parts(range(X.shape[1]), len(X)):
        ordered = X[:, part].T.contiguous().sort(dim=1)[0]
        counts.append((ordered[:, 1:] > ordered[:, :-1]).sum(1) + (~ordered[:, 0].isnan()).long())
    return np.asarray(torch.cat(counts).cpu().numpy())


def _parts(columns: Sequence[int], numbers_a_column: int) -> list[list[int]]:
    at_once = max(1, _CELLS_AT_ONCE // max(numbers_a_column, 1))
    return [list(columns[start : start + at_once]) for start in range(0, len(columns), at_once)]


def _standardization(X: Tensor) -> tuple[Array, Array, NDArray[np.bool_]]:
    """`standardization` of rows of equal weight, and which columns have no cells."""
    is_missing = X.isnan()
    count = (len(X) - is_missing.sum(0)).clamp(min=1)
    there = torch.where(is_missing, 0.0, X)
    size = there.abs().amax(0)
    size = torch.where(size == 0, 1.0, size)
    unit = there / size
    mean = unit.sum(0) / count
    std = torch.where(is_missing, 0.0, unit - mean).square().sum(0).div(count).sqrt()
    is_constant = std <= 1e-12 * mean.abs().clamp(min=1e-12)
    scale = torch.where(is_constant, 1.0, std * size)
    first = there.gather(0, (~is_missing).byte().argmax(0)[None])[0]  # a constant column's own value
    found = torch.stack([torch.where(is_constant, first, mean * size), torch.where(scale == 0, 1.0, scale)])
    return *found.cpu().numpy(), is_missing.all(0).cpu().numpy()


def _candidates(X: Tensor, y: Tensor, n_classes: int, columns: Sequence[int]) -> list[Candidates]:
    """`candidates_of` of columns, a few of them at a time."""
    labels = [label for label in range(n_classes) if bool((y == label).any())]
    found: list[Candidates] = []
    for part in _parts(columns, len(X) * len(labels)):
        found += _candidates_of(X[:, part].T.contiguous(), y, labels)
    return found


def _candidates_of(cells: Tensor, y: Tensor, labels: Sequence[int]) -> list[Candidates]:
    """Of columns (C, n): rows in order, how many of each class there are up to each, and where shares are reached."""
    values, order = cells.sort(dim=1, stable=True)  # missing cells last
    is_missing = values.isnan()
    n_cells = cells.shape[1] - is_missing.sum(1, keepdim=True)
    last = (n_cells - 1).clamp(min=0)
    shares, n_there = [], torch.zeros_like(n_cells)
    for label in labels:
        counts = (y == label)[order].logical_and_(~is_missing).cumsum(1)
        total = counts[:, -1:]
        shares.append(counts.double() / total.clamp(min=1))
        n_there += total > 0
    mass = sum(shares[1:], shares[0]) / n_there.clamp(min=1)
    values = torch.where(is_missing, torch.inf, values)
    is_end = torch.cat([values[:, 1:] > values[:, :-1], ~is_missing[:, -1:]], 1) & ~is_missing
    is_few = is_end.sum(1, keepdim=True) <= MOST_CANDIDATES
    wanted = torch.from_numpy(candidate_targets(1.0)).to(cells.device)
    row = torch.searchsorted(mass, (wanted * mass[:, -1:]).contiguous()).minimum(last)
    ends = torch.searchsorted(values, values.gather(1, row), right=True) - 1
    if bool(is_few.any()):
        places = torch.where(is_end, torch.arange(cells.shape[1], device=cells.device), cells.shape[1])
        few = places.sort(dim=1)[0][:, :MOST_CANDIDATES]
        few = torch.nn.functional.pad(few, (0, MOST_CANDIDATES - few.shape[1]), value=cells.shape[1])
        ends = torch.where(is_few, few, ends)
    ends = ends.minimum(last)
    left, right = values.gather(1, ends), values.gather(1, (ends + 1).minimum(last))
    parts = torch.stack([left, right, *(own.gather(1, ends) for own in shares)], 2).cpu().numpy()
    sizes = n_cells[:, 0].tolist(), n_there[:, 0].tolist()
    return [_on_host(*own) for own in zip(parts, ends.cpu().numpy(), *sizes, strict=True)]


def _on_host(parts: Array, ends: Index, n_cells: int, n_there: int) -> Candidates:
    """The candidates of a column, each once."""
    if n_there < 2:
        return Candidates.none()
    ends, first = np.unique(ends, return_index=True)
    own = parts[first]
    return Candidates(own[:, 0], own[:, 1], own[:, 2:].copy(), (ends + 1) / n_cells)
