"""How rows reach a stack: encoded, weighted, in batches."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.jobs import TrainingJob
from crcen.training.network import encode

__all__ = ["BatchIndex", "RowFeed", "TrainingData", "digest", "n_batches", "standardization"]

_LARGEST_SLOPE = 100.0

Index = NDArray[np.int64]
Array = NDArray[np.float64]


def digest(rows: Index | None) -> bytes:
    """A key that is equal exactly for equal row lists."""
    if rows is None:
        return b"all"
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=16).digest()


def n_batches(n_rows: int, batch_size: int) -> int:
    """Batches an epoch over ``n_rows`` rows."""
    return -(-n_rows // min(batch_size, n_rows))


def standardization(X: Array, sample_weight: Array) -> tuple[Array, Array]:
    """Weighted column means and standard deviations; a constant column gets scale 1.

    Columns are divided by their largest magnitude first, so that values near the end of float64 do not overflow.
    """
    X, sample_weight = X[sample_weight > 0], sample_weight[sample_weight > 0]
    share = (sample_weight / sample_weight.sum())[:, None]
    size = np.abs(X).max(axis=0)
    size[size == 0] = 1.0
    unit = X / size
    mean = (share * unit).sum(axis=0)
    std = np.sqrt((share * (unit - mean) ** 2).sum(axis=0))
    is_constant = std <= 1e-12 * np.maximum(np.abs(mean), 1e-12)
    scale = np.where(is_constant, 1.0, std * size)
    # A constant column's own value, to the last digit: at 1e30 the rounding of a mean is itself huge.
    return np.where(is_constant, X[0], mean * size), np.where(scale == 0, 1.0, scale)


class TrainingData:
    """The rows of one call to the engine, on the host in float64 and once on the device.

    On the device the columns are standardised by all rows, in float64, before they are rounded: a column far from zero
    would lose its digits in float32. Each group's own standardisation is then an affine map of these columns, so
    nothing of other rows enters it.
    """

    def __init__(self, X: Array, y: NDArray[np.bool_], sample_weight: Array, device: torch.device) -> None:
        self.X, self.y, self.sample_weight, self.device = X, y, sample_weight, device
        self._on_device: dict[tuple[torch.dtype, bool], tuple[Tensor, Array, Array]] = {}
        self._labels: dict[torch.dtype, Tensor] = {}

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    def prepare(self, jobs: Sequence[TrainingJob]) -> None:
        """Make the device copies that these jobs will read, before several threads ask for them."""
        for solver, standardize in {(job.solver, job.standardize) for job in jobs}:
            dtype = torch.float32 if solver == "adam" else torch.float64
            self.on_device(dtype, standardize)
            self.labels(dtype)

    def on_device(self, dtype: torch.dtype, standardize: bool) -> tuple[Tensor, Array, Array]:
        """The device copy of X with the mean and scale that were taken out of it."""
        key = (dtype, standardize)
        if key not in self._on_device:
            if standardize:
                mean, scale = standardization(self.X, np.ones(self.n_rows))
            else:
                mean, scale = np.zeros(self.X.shape[1]), np.ones(self.X.shape[1])
            device_x = torch.from_numpy(encode(self.X, mean, scale, limit=standardize)).to(self.device, dtype)
            self._on_device[key] = (device_x, mean, scale)
        return self._on_device[key]

    def labels(self, dtype: torch.dtype) -> Tensor:
        """y as 0/1 on the device."""
        if dtype not in self._labels:
            self._labels[dtype] = torch.from_numpy(self.y).to(self.device, dtype)
        return self._labels[dtype]


class RowFeed:
    """Batches of encoded rows for the G groups of a stack.

    Parameters
    ----------
    data
        The rows.
    pools
        For each group the indices its batches are drawn from; one list object may serve several groups.
    row_weights
        For each group the weight of each row of its pool (sample weight, zero for rows it does not own).
    means, scales
        (G, F) input standardisation of the groups.
    dtype, standardize
        Which device copy to read.
    """

    def __init__(
        self,
        data: TrainingData,
        pools: Sequence[Index],
        row_weights: Sequence[Array],
        means: Array,
        scales: Array,
        dtype: torch.dtype,
        standardize: bool,
    ) -> None:
        self.data, self.dtype = data, dtype
        self._x, mean0, scale0 = data.on_device(dtype, standardize)
        self._y = data.labels(dtype)
        # z = (x − m)/s with x = x₀·s₀ + m₀ is the affine map x₀·(s₀/s) + (m₀ − m)/s.
        self._slope = torch.from_numpy(scale0 / scales).to(data.device, dtype)[:, None]
        self._offset = torch.from_numpy((mean0 - means) / scales).to(data.device, dtype)[:, None]
        # Where rows a group does not own dwarf its own, the map above would lose all digits: encode for each group.
        self._own: list[Tensor] | None = None
        if standardize and not bool((self._slope <= _LARGEST_SLOPE).all() & torch.isfinite(self._offset).all()):
            encoded = (encode(data.X, mean, scale, limit=True) for mean, scale in zip(means, scales, strict=True))
            self._own = [torch.from_numpy(z).to(data.device, dtype) for z in encoded]
        keys = [digest(pool) for pool in pools]
        self.pool_keys = keys
        self._pools = pools
        longest = max(len(pool) for pool in pools)
        # One more position, without weight, fills up batches.
        weights = np.zeros((len(pools), longest + 1))
        for group, values in enumerate(row_weights):
            weights[group, : len(values)] = values
        self._weights = torch.from_numpy(weights).to(data.device, dtype)
        self._filler = longest

    def epoch_index(self, seeds: Sequence[int], epoch: int, batch_size: int) -> "BatchIndex":
        """Batches of one epoch, the classes spread evenly over them; groups with one pool and seed share theirs."""
        orders: dict[tuple[bytes, int], Index] = {}
        for key, pool, seed in zip(self.pool_keys, self._pools, seeds, strict=True):
            if (key, seed) not in orders:
                orders[key, seed] = self._spread_order(pool, seed, epoch)
        per_group = [orders[key, seed] for key, seed in zip(self.pool_keys, seeds, strict=True)]
        count = n_batches(len(self._pools[0]), batch_size)
        return self._index(per_group[:1] if len(orders) == 1 else per_group, count)

    def in_order(self, rows_at_once: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """All rows once, as they stand."""
        shared = len(set(self.pool_keys)) == 1
        pools = self._pools[:1] if shared else self._pools
        longest = max(len(pool) for pool in pools)
        yield from self.batches(self._index([np.arange(len(pool)) for pool in pools], -(-longest // rows_at_once)))

    def _spread_order(self, pool: Index, seed: int, epoch: int) -> Index:
        """A random order in which each class is spread evenly over the batches, from (seed, epoch) and the pool.

        Labels of rows that a fold does not own take part in the order of its batches, and in nothing else of it.
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 2, epoch])))
        labels = self.data.y[pool]
        keys = np.empty(len(pool))
        for label in (True, False):
            members = labels == label
            count = int(members.sum())
            keys[members] = (rng.permutation(count) + rng.random()) / max(count, 1)
        return np.argsort(keys, kind="stable")

    def _index(self, orders: Sequence[Index], count: int) -> "BatchIndex":
        """Cut each order into ``count`` batches of its own even size, filled up to the longest of them."""
        sizes = [-(-len(order) // count) for order in orders]
        positions = np.full((len(orders), count, max(sizes)), self._filler)
        rows = np.zeros((len(orders), count, max(sizes)), dtype=np.int64)
        for group, (order, size) in enumerate(zip(orders, sizes, strict=True)):
            padded = np.full(count * size, self._filler)
            padded[: len(order)] = order
            positions[group, :, :size] = padded.reshape(count, size)
            pool_and_filler = np.append(self._pools[group], self._pools[group][0])
            rows[group, :, :size] = pool_and_filler[np.minimum(positions[group, :, :size], len(order))]
        device = self.data.device
        return BatchIndex(torch.from_numpy(rows).to(device), torch.from_numpy(positions).to(device))

    def batches(self, index: "BatchIndex") -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Encoded rows (G, B, F+1), labels (G or 1, B, 1) and row weights (G, B, 1) of each batch, in one buffer."""
        groups, (orders, count, _) = self._weights.shape[0], index.rows.shape
        if orders == 1:
            weights = self._weights[:, index.positions[0]]
        else:
            weights = self._weights.gather(1, index.positions.view(groups, -1)).view(groups, count, -1)
        x, y = self._x[index.rows], self._y[index.rows]
        batch = torch.ones(groups, x.shape[2], x.shape[3] + 1, dtype=self.dtype, device=self.data.device)
        for i in range(count):
            if self._own is None:
                torch.addcmul(self._offset, x[:, i], self._slope, out=batch[..., :-1])
            else:
                for group, own in enumerate(self._own):
                    batch[group, :, :-1] = own[index.rows[min(group, orders - 1), i]]
            yield batch, y[:, i, :, None], weights[:, i, :, None]


@dataclass(frozen=True)
class BatchIndex:
    """Which rows make up the batches of an epoch: (groups or 1, batches, rows of a batch) each.

    ``rows`` counts in the data, ``positions`` in the pool (one past its end for rows that only fill up a batch).
    """

    rows: Tensor
    positions: Tensor

    def copy_(self, other: "BatchIndex") -> None:
        """Take over another index of the same shape, in place."""
        self.rows.copy_(other.rows)
        self.positions.copy_(other.positions)
