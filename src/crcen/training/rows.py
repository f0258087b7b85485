"""How rows reach a stack: encoded, weighted, in batches."""

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from mmap import ACCESS_COPY, mmap
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.training.device_encoding import ON_DEVICE, encoding_there, n_values
from crcen.training.encoding import (
    INPUT_LIMIT,
    WITH_RAMPS,
    InputEncoding,
    column_layout,
    fit_encoding,
    incomplete_columns,
    layout_of,
    raw,
    standardization,
)
from crcen.training.epoch_rows import BatchIndex, EpochRows, fill_batch
from crcen.training.jobs import TrainingJob
from crcen.training.ramp_lookup import NO_RAMPS, CodedRows, RampFeed, RampLookup, RampTables, has_ramps
from crcen.training.row_sets import Index, digest
from crcen.training.schedule import n_batches
from crcen.training.solvers.kinds import SolverKind
from crcen.training.transfers import encoded_on, sent

__all__ = ["VALIDATION_ROWS", "RowFeed", "TrainingData", "float_type"]

# Validation rows that pass through a stack at a time.
VALIDATION_ROWS = 512

_LARGEST_SLOPE = 100.0
# Encoded numbers that are worked out at a time, in float64.
_NUMBERS_AT_ONCE, _NUMBERS_ON_A_GPU = 2**19, 2**24
# A function is worked out for so many numbers at a time, and for what is left over in another way; vectors leave none.
_ROWS_OF_A_VECTOR, _HARDLY_MORE = 32, 1.05
# Encoded numbers of several batches that a GPU gathers at a time.
_NUMBERS_GATHERED = 2**26

Array = NDArray[np.float64]


def float_type(solver: SolverKind) -> torch.dtype:
    """The numbers that a solver trains in."""
    return torch.float32 if solver.itemsize == torch.float32.itemsize else torch.float64


class TrainingData:
    """The rows of one call to the engine, on the host in float64 and once on the device.

    On the device the columns are standardised by all rows, in float64, before they are rounded: a column far from zero
    would lose its digits in float32. Each group's own standardisation is then an affine map of these columns, so
    nothing of other rows enters it.
    """

    def __init__(self, X: Array, y: NDArray[Any], sample_weight: Array, device: torch.device) -> None:
        # Whether rows are positive, or their class numbers where networks have an output for each class.
        self.X, self.y, self.sample_weight, self.device = X, y, sample_weight, device
        self.classes: Sequence[int] = (True, False) if y.dtype == np.bool_ else range(int(y.max(initial=0)) + 1)
        self._on_device: dict[tuple[torch.dtype, bool], tuple[Tensor, Array, Array]] = {}
        self._labels: dict[torch.dtype, Tensor] = {}
        self._layouts: dict[tuple[str, int], Index | None] = {}
        self._encodings: dict[tuple[object, ...], InputEncoding] = {}
        self._encoded: WeakValueDictionary[tuple[int, torch.dtype], Tensor] = WeakValueDictionary()
        self._coded: dict[int, CodedRows] = {}
        self._lock = Lock()
        self._own_locks: dict[object, Lock] = {}  # of what several threads may make at a time

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return self.X.shape[0]

    def prepare(self, jobs: Sequence[TrainingJob]) -> None:
        """Make the device copies that these jobs will read, before several threads ask for them."""
        for job in jobs:
            dtype = float_type(job.solver_kind)
            if job.has_affine_inputs:
                self.on_device(dtype, job.standardize)
            self.layout(job.encoding, job.bins)
            self.labels(dtype)

    def on_device(self, dtype: torch.dtype, standardize: bool) -> tuple[Tensor, Array, Array]:
        """The device copy of X with the mean and scale that were taken out of it."""
        key = (dtype, standardize)
        if key not in self._on_device:
            encoding = raw(self.X.shape[1])
            if standardize and self._counts_there:
                encoding = encoding_there("standard", None, self._x_there, self.labels(dtype), len(self.classes), None)
            elif standardize:
                limit = np.full(self.X.shape[1], INPUT_LIMIT)
                encoding = InputEncoding(*standardization(self.X, np.ones(self.n_rows)), None, -limit, limit)
            source = self.X if self.device.type == "cpu" else self._x_there
            device_x = encoded_on(self.device, encoding, source).to(dtype)
            self._on_device[key] = (device_x, encoding.mean, encoding.scale)
        return self._on_device[key]

    @cached_property
    def _x_there(self) -> Tensor:
        """X in float64 on a GPU."""
        return sent(torch.from_numpy(np.require(self.X, requirements="W")), self.device)  # torch warns of others

    @cached_property
    def _counts_there(self) -> bool:
        """Whether columns are sorted and counted on the device: on a GPU, where rows weigh the same."""
        return self.device.type == "cuda" and bool((self.sample_weight == 1.0).all())

    def layout(self, kind: str, bins: int) -> Index | None:
        """What `column_layout` says of these rows."""
        if (kind, bins) not in self._layouts:
            if self._counts_there and kind in WITH_RAMPS:
                self._layouts[kind, bins] = layout_of(n_values(self._x_there), kind, bins)
            else:
                self._layouts[kind, bins] = column_layout(self.X[self.sample_weight > 0], kind, bins)
        return self._layouts[kind, bins]

    def encoding(self, job: TrainingJob, rows: Index) -> InputEncoding:
        """A job's input encoding, fitted on its rows; jobs that own the same rows share it."""
        key = (digest(rows), job.encoding, job.bins, job.missing, job.standardize)
        layout = self.layout(job.encoding, job.bins)
        indicators = self._incomplete if job.missing == "indicator" else None
        with self._lock_of(key):
            if key not in self._encodings:
                there = self._counts_there and job.standardize and job.encoding in ON_DEVICE
                fit = self._encoding_there if there else self._encoding_here
                self._encodings[key] = fit(job, rows, layout, indicators)
            return self._encodings[key]

    def _encoding_here(
        self, job: TrainingJob, rows: Index, layout: Index | None, indicators: Index | None
    ) -> InputEncoding:
        own = self.X[rows], self.y[rows], self.sample_weight[rows]
        return fit_encoding(job.encoding, layout, *own, standardize=job.standardize, indicators=indicators)

    def _encoding_there(
        self, job: TrainingJob, rows: Index, layout: Index | None, indicators: Index | None
    ) -> InputEncoding:
        own = sent(torch.from_numpy(rows), self.device)
        labels = self.labels(torch.float32)[own].long()
        return encoding_there(job.encoding, layout, self._x_there[own], labels, len(self.classes), indicators)

    def encoded(self, encoding: InputEncoding, dtype: torch.dtype) -> Tensor:
        """All rows in an encoding, on the device; kept as long as somebody else keeps it."""
        key = (id(encoding), dtype)
        with self._lock:
            found = self._encoded.get(key)
            if found is None:
                found = self._encoded[key] = _fresh(self.n_rows, encoding.size, dtype, self.device)
                numbers = _NUMBERS_AT_ONCE if self.device.type == "cpu" else _NUMBERS_ON_A_GPU
                at_once = max(64, numbers // encoding.size)
                for start in range(0, self.n_rows, at_once):
                    part = slice(start, start + at_once)
                    source = self.X if self.device.type == "cpu" else self._x_there
                    found[part] = encoded_on(self.device, encoding, source[part])
        return found

    def coded(self, encoding: InputEncoding) -> CodedRows:
        """All rows in an encoding with ramps, as lookups have them: a tenth of the encoded rows, so they are kept."""
        with self._lock_of(id(encoding)):
            if id(encoding) not in self._coded:
                self._coded[id(encoding)] = RampTables(encoding).code(self.X)
            return self._coded[id(encoding)]

    def _lock_of(self, key: object) -> Lock:
        with self._lock:
            return self._own_locks.setdefault(key, Lock())

    def n_inputs(self, job: TrainingJob) -> int:
        """Number of a job's encoded columns."""
        layout = self.layout(job.encoding, job.bins) if job.standardize else None
        n_columns = self.X.shape[1] if layout is None else len(layout)
        return n_columns + (len(self._incomplete) if job.missing == "indicator" else 0)

    @cached_property
    def _incomplete(self) -> Index:
        return incomplete_columns(self.X[self.sample_weight > 0])

    def labels(self, dtype: torch.dtype) -> Tensor:
        """y as 0/1, or class numbers, on the device."""
        if dtype not in self._labels:
            self._labels[dtype] = torch.from_numpy(self.y).to(self.device, dtype)
        return self._labels[dtype]


def _fresh(n_rows: int, n_columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for encoded rows. On a CPU it is pages of its own, which the system has back as soon as they are free.

    What is freed to the C library may stay with the process: folds that come one after another would then hold as much
    as all of them together.
    """
    if device.type != "cpu" or os.name != "posix":
        return torch.empty(n_rows, n_columns, dtype=dtype, device=device)
    pages = mmap(-1, n_rows * n_columns * dtype.itemsize, access=ACCESS_COPY)  # a forked process has its own
    return torch.frombuffer(pages, dtype=dtype).view(n_rows, n_columns)


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
    encodings
        The input encodings of the groups; one object may serve several groups.
    dtype
        Of encoded rows.
    looks_up
        Whether ramps are left out of batches, to be looked up (see `ramp_lookup`).
    """

    def __init__(
        self,
        data: TrainingData,
        pools: Sequence[Index],
        row_weights: Sequence[Array],
        encodings: Sequence[InputEncoding],
        dtype: torch.dtype,
        *,
        looks_up: bool = False,
    ) -> None:
        self.data, self.dtype = data, dtype
        self._y = data.labels(dtype)
        self._width = encodings[0].size
        self._ramps: RampFeed | None = None
        self._encodings = encodings
        if looks_up and all(map(has_ramps, encodings)):
            coded = [data.coded(encoding) for encoding in encodings]
            self._ramps = RampFeed([RampTables(encoding) for encoding in encodings], coded, pools)
            self._own: list[Tensor] | None = [rows.plain for rows in coded]
            self._width = self._own[0].shape[1]
        else:
            self._own = None if self._share_a_copy(encodings) else self._encoded(encodings)
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

    def _share_a_copy(self, encodings: Sequence[InputEncoding]) -> bool:
        """Try to make each group's encoding an affine map of the one device copy: z = x₀·(s₀/s) + (m₀ − m)/s.

        Not where an encoding is not affine, nor where rows a group does not own dwarf its own: the map would lose all
        digits.
        """
        if not all(encoding.is_affine for encoding in encodings):
            return False
        standardize = encodings[0].low is not None
        self._x, mean0, scale0 = self.data.on_device(self.dtype, standardize)
        means, scales = (np.stack([getattr(e, name) for e in encodings]) for name in ("mean", "scale"))
        to = self.data.device, self.dtype
        self._slope = torch.from_numpy(scale0 / scales).to(*to)[:, None]
        self._offset = torch.from_numpy((mean0 - means) / scales).to(*to)[:, None]
        return not standardize or bool((self._slope <= _LARGEST_SLOPE).all() & torch.isfinite(self._offset).all())

    def _encoded(self, encodings: Sequence[InputEncoding]) -> list[Tensor]:
        """Rows encoded for each group; groups with one encoding share theirs, and so do feeds."""
        return [self.data.encoded(encoding, self.dtype) for encoding in encodings]

    def epoch_index(self, seeds: Sequence[int], epoch: int, batch_size: int) -> BatchIndex:
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
        yield from self.batches(self.index_in_order(rows_at_once))

    def index_in_order(self, rows_at_once: int) -> BatchIndex:
        """Batches of all rows once, as they stand."""
        shared = len(set(self.pool_keys)) == 1
        pools = self._pools[:1] if shared else self._pools
        longest = max(len(pool) for pool in pools)
        return self._index([np.arange(len(pool)) for pool in pools], -(-longest // rows_at_once))

    def _spread_order(self, pool: Index, seed: int, epoch: int) -> Index:
        """A random order in which each class is spread evenly over the batches, from (seed, epoch) and the pool.

        Labels of rows that a fold does not own take part in the order of its batches, and in nothing else of it.
        """
        rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 2, epoch])))
        labels = self.data.y[pool]
        order, keys = np.empty(len(pool), dtype=np.int64), np.empty(len(pool))
        start = 0
        for label in self.data.classes:
            members = np.flatnonzero(labels == label)
            part = slice(start, start + len(members))
            order[part][rng.permutation(len(members))] = members
            keys[part] = (np.arange(len(members)) + rng.random()) / max(len(members), 1)
            start = part.stop
        return order[np.argsort(keys, kind="stable")]  # one rising run a class, which is fast to sort

    def _index(self, orders: Sequence[Index], count: int) -> BatchIndex:
        """Cut each order into ``count`` batches of its own even size, filled up to the longest of them."""
        sizes = [-(-len(order) // count) for order in orders]
        shape = (len(orders), count, self._filled_up(max(sizes)))
        positions, rows = np.full(shape, self._filler), np.zeros(shape, dtype=np.int64)
        for group, (order, size) in enumerate(zip(orders, sizes, strict=True)):
            padded = np.full(count * size, self._filler)
            padded[: len(order)] = order
            positions[group, :, :size] = padded.reshape(count, size)
            pool_and_filler = np.append(self._pools[group], self._pools[group][0])
            rows[group, :, :size] = pool_and_filler[np.minimum(positions[group, :, :size], len(order))]
        return BatchIndex(*(sent(torch.from_numpy(part), self.data.device) for part in (rows, positions)))

    def _filled_up(self, size: int) -> int:
        """Rows of a batch: whole vectors of a processor, where that is hardly more (see `company`)."""
        filled = -(-size // _ROWS_OF_A_VECTOR) * _ROWS_OF_A_VECTOR
        return filled if self.data.device.type == "cpu" and filled <= _HARDLY_MORE * size else size

    def batches(self, index: BatchIndex) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Encoded rows (G, B, F+1), labels (G or 1, B, 1) and row weights (G, B, 1) of each batch, in one buffer.

        Without the ramps, where those are looked up.
        """
        rows = self.epoch_rows(index)
        gathered = self._gathered(rows)
        for i in range(index.rows.shape[1]):
            if gathered is None:
                fill_batch(rows, i)
            yield rows.batch if gathered is None else gathered[i], rows.y[:, i, :, None], rows.weights[:, i, :, None]

    def _gathered(self, rows: EpochRows) -> Tensor | None:
        """All batches at once, (batches, G, B, F+1), where that pays: for few rows a GPU takes as long."""
        count, (groups, size, width) = rows.places.shape[1], rows.batch.shape
        if not rows.own or not rows.batch.is_cuda or count * rows.batch.numel() > _NUMBERS_GATHERED:
            return None
        found = rows.batch.new_ones(count, groups, size, width)
        for group, own in enumerate(rows.own):
            found[:, group, :, :-1] = own[rows.places[min(group, len(rows.places) - 1)]]
        return found

    def ramps(self, index: BatchIndex, batches: slice = slice(None), *, with_readers: bool = True) -> RampLookup:
        """What `batches` leaves out of some batches: inputs that are looked up, if there are such."""
        if self._ramps is None:
            return NO_RAMPS
        return self._ramps.lookup(index.rows[:, batches].numpy(), with_readers=with_readers)

    def epoch_rows(self, index: BatchIndex) -> EpochRows:
        """What `fill_batch` makes the batches of."""
        y, weights = self._labels_and_weights(index)
        batch = self._weights.new_ones(len(weights), y.shape[2], self._width + 1)
        if self._own is not None:
            none = batch.new_empty(0)
            return EpochRows(none, none, none, self._own, index.rows, y, weights, batch)
        return EpochRows(self._x[index.rows], self._slope, self._offset, [], index.rows, y, weights, batch)

    def _labels_and_weights(self, index: BatchIndex) -> tuple[Tensor, Tensor]:
        """Of the rows of all batches: labels (G or 1, batches, rows) and row weights (G, batches, rows)."""
        groups, (orders, count, _) = self._weights.shape[0], index.rows.shape
        if orders == 1:
            weights = self._weights[:, index.positions[0]]
        else:
            weights = self._weights.gather(1, index.positions.view(groups, -1)).view(groups, count, -1)
        return self._y[index.rows], weights
