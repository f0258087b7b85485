"""Training rows on the device: encoded, weighted, in batches."""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from mmap import ACCESS_COPY, mmap
from threading import Lock
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from crcen.theory.rows import Array, Index
from crcen.training.device import encoded_on, sent
from crcen.training.encoding import InputEncoding, column_layout, fit_encoding, incomplete_columns
from crcen.training.jobs import TrainingJob, digest
from crcen.training.ramp_lookup import NO_RAMPS, CodedRows, RampFeed, RampLookup, RampTables, has_ramps
from crcen.training.recipe import SolverKind, n_batches

# Validation rows that pass through a stack at a time.
VALIDATION_ROWS = 512

# Encoded numbers computed at a time, in float64.
_NUMBERS_AT_ONCE, _NUMBERS_ON_A_GPU = 2**19, 2**24
# Vectorised kernels use another code path for the remainder of a vector; batches of whole vectors have none.
_ROWS_OF_A_VECTOR, _HARDLY_MORE = 32, 1.05


def float_type(solver: SolverKind) -> torch.dtype:
    """The floating-point type that a solver uses."""
    return torch.float32 if solver.itemsize == torch.float32.itemsize else torch.float64


class EpochRows(NamedTuple):
    """The rows of an epoch, in batches; G groups, B rows of a batch, F encoded columns."""

    own: list[Tensor]  # all rows as each group encodes them
    places: Tensor  # (G or 1, batches, B): row numbers
    y: Tensor  # (G or 1, batches, B)
    weights: Tensor  # (G, batches, B)
    batch: Tensor  # (G, B, F+1): buffer for a batch; the last column is ones


def fill_batch(rows: EpochRows, i: int) -> None:
    """Write the encoded rows of batch ``i`` to ``rows.batch`` (compiled by TorchScript)."""
    encoded = rows.batch.narrow(2, 0, rows.batch.size(2) - 1)
    for group in range(len(rows.own)):
        places = rows.places[min(group, rows.places.size(0) - 1), i]
        if rows.batch.is_cuda:  # one kernel instead of two
            torch.index_select(rows.own[group], 0, places, out=encoded.select(0, group))
        else:
            encoded.select(0, group).copy_(rows.own[group].index_select(0, places))


class TrainingData:
    """The rows of one call to the engine; rows are encoded in float64 before they are rounded to float32."""

    def __init__(self, X: Array, y: Index, sample_weight: Array, n_classes: int, device: torch.device) -> None:
        self.X, self.y, self.sample_weight, self.n_classes, self.device = X, y, sample_weight, n_classes, device
        self._labels: dict[torch.dtype, Tensor] = {}
        self._layouts: dict[tuple[str, int], Index | None] = {}
        self._encodings: dict[tuple[object, ...], InputEncoding] = {}
        self._encoded: WeakValueDictionary[tuple[int, torch.dtype], Tensor] = WeakValueDictionary()
        self._coded: dict[int, CodedRows] = {}
        self._lock = Lock()
        self._locks: dict[object, Lock] = {}  # for values that several threads may compute at the same time

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    @cached_property
    def _device_x(self) -> Tensor:
        """X in float64 on a GPU."""
        return sent(torch.from_numpy(np.require(self.X, requirements="W")), self.device)  # torch warns of others

    def layout(self, kind: str, bins: int) -> Index | None:
        """`column_layout` of these rows."""
        if (kind, bins) not in self._layouts:
            self._layouts[kind, bins] = column_layout(self.X[self.sample_weight > 0], kind, bins)
        return self._layouts[kind, bins]

    def encoding(self, job: TrainingJob, rows: Index) -> InputEncoding:
        """The input encoding of a job, fitted on its rows; jobs with the same rows share it."""
        key = (digest(rows), job.encoding, job.bins, job.missing, job.standardize)
        layout = self.layout(job.encoding, job.bins)
        indicators = self._incomplete if job.missing == "indicator" else None
        with self._lock_of(key):
            if key not in self._encodings:
                own = self.X[rows], self.y[rows], self.sample_weight[rows]
                self._encodings[key] = fit_encoding(
                    job.encoding, layout, *own, standardize=job.standardize, indicators=indicators
                )
            return self._encodings[key]

    def encoded(self, encoding: InputEncoding, dtype: torch.dtype) -> Tensor:
        """All rows in an encoding, on the device, kept while another reference exists."""
        key = (id(encoding), dtype)
        with self._lock:
            found = self._encoded.get(key)
            if found is None:
                found = self._encoded[key] = _allocate(self.n_rows, encoding.size, dtype, self.device)
                numbers = _NUMBERS_AT_ONCE if self.device.type == "cpu" else _NUMBERS_ON_A_GPU
                at_once = max(64, numbers // encoding.size)
                for start in range(0, self.n_rows, at_once):
                    part = slice(start, start + at_once)
                    source = self.X if self.device.type == "cpu" else self._device_x
                    found[part] = encoded_on(self.device, encoding, source[part])
        return found

    def coded(self, encoding: InputEncoding) -> CodedRows:
        """All rows in an encoding with ramps, as table lookups need them: a tenth of the encoded rows, so kept."""
        with self._lock_of(id(encoding)):
            if id(encoding) not in self._coded:
                self._coded[id(encoding)] = RampTables(encoding).code(self.X)
            return self._coded[id(encoding)]

    def _lock_of(self, key: object) -> Lock:
        with self._lock:
            return self._locks.setdefault(key, Lock())

    def n_inputs(self, job: TrainingJob) -> int:
        """Number of encoded columns of a job."""
        layout = self.layout(job.encoding, job.bins) if job.standardize else None
        n_columns = self.X.shape[1] if layout is None else len(layout)
        return n_columns + (len(self._incomplete) if job.missing == "indicator" else 0)

    @cached_property
    def _incomplete(self) -> Index:
        return incomplete_columns(self.X[self.sample_weight > 0])

    def labels(self, dtype: torch.dtype) -> Tensor:
        """Class numbers on the device."""
        if dtype not in self._labels:
            self._labels[dtype] = torch.from_numpy(self.y).to(self.device, dtype)
        return self._labels[dtype]


def _allocate(n_rows: int, n_columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for encoded rows; on a CPU separate pages that return to the system as soon as they are free."""
    if device.type != "cpu" or os.name != "posix":
        return torch.empty(n_rows, n_columns, dtype=dtype, device=device)
    # Memory freed to the C library may stay with the process, and folds would need as much as all of them together.
    pages = mmap(-1, n_rows * n_columns * dtype.itemsize, access=ACCESS_COPY)  # a forked process gets its own
    return torch.frombuffer(pages, dtype=dtype).view(n_rows, n_columns)


class RowFeed:
    """Batches of encoded rows for the G groups of a stack.

    An index of batches is a tensor (2, G or 1, batches, B): row numbers, and positions in the pool (one past its end
    for padding).
    """

    def __init__(
        self, data: TrainingData, pools: Sequence[Index], encodings: Sequence[InputEncoding], dtype: torch.dtype
    ) -> None:
        self.data, self.dtype, self._pools = data, dtype, pools
        self._ramps: RampFeed | None = None
        # Table lookups pay in float32 on a CPU; a GPU is better at products.
        if dtype == torch.float32 and data.device.type == "cpu" and all(map(has_ramps, encodings)):
            coded = [data.coded(encoding) for encoding in encodings]
            self._ramps = RampFeed([RampTables(encoding) for encoding in encodings], coded, pools)
            self._own = [rows.plain for rows in coded]
        else:
            self._own = [data.encoded(encoding, dtype) for encoding in encodings]
        self.pool_keys = [digest(pool) for pool in pools]
        # One further position, without weight, is padding.
        self._padding = max(len(pool) for pool in pools)
        weights = np.zeros((len(pools), self._padding + 1))
        for own, pool in zip(weights, pools, strict=True):
            own[: len(pool)] = data.sample_weight[pool]
        self._weights = torch.from_numpy(weights).to(data.device, dtype)

    def epoch_index(self, seeds: Sequence[int], epoch: int, batch_size: int) -> Tensor:
        """Batches of one epoch with evenly spread classes; groups with the same pool and seed share them."""
        keys = list(zip(self.pool_keys, seeds, strict=True))
        pools = dict(zip(keys, self._pools, strict=True))
        orders = {key: self._spread_order(pool, key[1], epoch) for key, pool in pools.items()}
        count = n_batches(len(self._pools[0]), batch_size)
        return self._index([orders[key] for key in (keys[:1] if len(orders) == 1 else keys)], count)

    def index_in_order(self, rows_at_once: int) -> Tensor:
        """Batches of all rows once, in the order of the pool."""
        pools = self._pools[:1] if len(set(self.pool_keys)) == 1 else self._pools
        return self._index([np.arange(len(pool)) for pool in pools], -(-self._padding // rows_at_once))

    def _spread_order(self, pool: Index, seed: int, epoch: int) -> Index:
        """A random order of the pool, from (seed, epoch), in which each class is spread evenly over the batches."""
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 2, epoch])))
        labels = self.data.y[pool]
        order, keys = np.empty(len(pool), dtype=np.int64), np.empty(len(pool))
        start = 0
        for label in (1, 0) if self.data.n_classes == 2 else range(self.data.n_classes):
            members = np.flatnonzero(labels == label)
            part = slice(start, start + len(members))
            order[part][rng.permutation(len(members))] = members
            keys[part] = (np.arange(len(members)) + rng.random()) / max(len(members), 1)
            start = part.stop
        return order[np.argsort(keys, kind="stable")]  # one increasing run per class, which is fast to sort

    def _index(self, orders: Sequence[Index], count: int) -> Tensor:
        """Split each order into ``count`` batches of equal size, padded to the longest."""
        sizes = [-(-len(order) // count) for order in orders]
        index = np.zeros((2, len(orders), count, self._padded_size(max(sizes))), dtype=np.int64)
        rows, positions = index
        positions.fill(self._padding)
        for group, (order, size) in enumerate(zip(orders, sizes, strict=True)):
            padded = np.full(count * size, self._padding)
            padded[: len(order)] = order
            positions[group, :, :size] = padded.reshape(count, size)
            pool_and_padding = np.append(self._pools[group], self._pools[group][0])
            rows[group, :, :size] = pool_and_padding[np.minimum(positions[group, :, :size], len(order))]
        return sent(torch.from_numpy(index), self.data.device)

    def _padded_size(self, size: int) -> int:
        """Rows of a batch: whole vectors of a processor if that is hardly more, for the same bits in any stack."""
        padded = -(-size // _ROWS_OF_A_VECTOR) * _ROWS_OF_A_VECTOR
        return padded if self.data.device.type == "cpu" and padded <= _HARDLY_MORE * size else size

    def batches(self, index: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Encoded rows (G, B, F+1), class numbers (G or 1, B, 1) and row weights (G, B, 1) of each batch.

        All batches share one buffer. Ramps that are looked up are left out.
        """
        rows = self.epoch_rows(index)
        for i in range(index.shape[2]):
            fill_batch(rows, i)
            yield rows.batch, rows.y[:, i, :, None], rows.weights[:, i, :, None]

    def ramps(self, index: Tensor, batches: slice = slice(None), *, with_readers: bool = True) -> RampLookup:
        """The lookups of some batches, if ramps are looked up."""
        if self._ramps is None:
            return NO_RAMPS
        return self._ramps.lookup(index[0, :, batches].numpy(), with_readers=with_readers)

    def epoch_rows(self, index: Tensor) -> EpochRows:
        """The input of `fill_batch`."""
        (rows, positions), groups, (orders, count, size) = index, len(self._weights), index.shape[1:]
        if orders == 1:
            weights = self._weights[:, positions[0]]
        else:
            weights = self._weights.gather(1, positions.reshape(groups, -1)).view(groups, count, -1)
        batch = self._weights.new_ones(groups, size, self._own[0].shape[1] + 1)
        return EpochRows(self._own, rows, self.data.labels(self.dtype)[rows], weights, batch)
