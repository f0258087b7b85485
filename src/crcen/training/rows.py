"""Training rows on the device: encoded, weighted, in batches."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from mmap import ACCESS_COPY, mmap
from threading import Lock
from typing import Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.theory.rows import Array, Index
from crcen.training.device import encoded_on, on_threads, sent
from crcen.training.jobs import TrainingJob, digest
from crcen.training.network import InputEncoding, column_layout, fit_encoding, incomplete_columns
from crcen.training.recipe import SolverKind, n_batches
from crcen.training.stack import NO_RAMPS, RampLookup

_Value = TypeVar("_Value")

# Validation rows that pass through a stack at a time.
VALIDATION_ROWS = 512

# Encoded numbers computed at a time, in float64; bytes of encoded rows up to which they are kept.
_NUMBERS_AT_ONCE, _NUMBERS_ON_A_GPU, _KEPT_BYTES = 2**19, 2**24, 2**23
# Vectorised kernels use another code path for the remainder of a vector; batches of whole vectors have none.
_ROWS_OF_A_VECTOR, _HARDLY_MORE = 32, 1.05
# Numbers of rows with ramps encoded at a time, in the cache of a processor; cells this near to a knot are at it.
_CODED_AT_ONCE, _AT_A_KNOT = 2**17, 1e-6


def float_type(solver: SolverKind) -> torch.dtype:
    """The floating-point type that a solver uses."""
    return torch.float32 if solver.itemsize == torch.float32.itemsize else torch.float64


class EpochRows(NamedTuple):
    """The rows of an epoch, in batches; G groups, B rows of a batch, F encoded columns."""

    own: list[Tensor]  # all rows as each group encodes them, (n, F+1); the last column is ones
    places: Tensor  # (G or 1, batches, B): row numbers
    y: Tensor  # (G or 1, batches, B)
    weights: Tensor  # (G, batches, B)
    batch: Tensor  # (G, B, F+1): buffer for a batch


def fill_batch(rows: EpochRows, i: int) -> None:
    """Write the encoded rows of batch ``i`` to ``rows.batch`` (compiled by TorchScript)."""
    for group in range(len(rows.own)):
        places = rows.places[min(group, rows.places.size(0) - 1), i]
        torch.index_select(rows.own[group], 0, places, out=rows.batch.select(0, group))


def has_ramps(encoding: InputEncoding) -> bool:
    """Whether an encoding has ramps: columns that are encoded more than once."""
    return encoding.columns is not None and int(encoding.columns.max()) + 1 < encoding.size


@dataclass(frozen=True, eq=False)
class CodedRows:
    """All rows in an encoding: the knot of every cell of a column with ramps, and the other columns."""

    plain: Tensor  # encoded columns that are no ramps, and ones
    knots: NDArray[Any]  # the knot at or before a cell; the last one for missing cells
    shares: NDArray[np.float32] | None  # relative distance to the next knot; None if every cell is at one


class RampTables:
    """The ramps of one encoding that `has_ramps`, column by column."""

    def __init__(self, encoding: InputEncoding) -> None:
        assert encoding.columns is not None
        assert encoding.low is not None
        assert encoding.high is not None
        n_indicators = 0 if encoding.indicators is None else len(encoding.indicators)
        own = encoding.columns[: encoding.size - n_indicators]
        self.encoding, self.low, self.high, self.n_plain = encoding, encoding.low, encoding.high, int(own.max()) + 1
        self.n_ramps, self.n_indicators = len(own) - self.n_plain, n_indicators
        self.columns, self.counts = np.unique(own[self.n_plain :], return_counts=True)
        self.most = int(self.counts.max())
        self.n_knots = self.most + 2  # N: one more than the most ramps of a column, and one for missing cells
        self.first = self.n_plain + np.append(0, np.cumsum(self.counts)[:-1])
        # (C, S): the ramps of every column, any where it has fewer than S
        self.ramps = self.first[:, None] + np.minimum(np.arange(self.most), self.counts[:, None] - 1)
        self.is_ramp = np.arange(self.most) < self.counts[:, None]

    def values(self) -> NDArray[np.float32]:
        """The value of every ramp at every knot of its column, (C, N, S); 0 at the knot of missing cells."""
        is_passed = np.arange(self.most) < np.arange(self.n_knots)[:, None]
        low, high = (np.where(self.is_ramp, end[self.ramps], 0.0)[:, None] for end in (self.low, self.high))
        found = np.where(is_passed, high, low).astype(np.float32)
        found[:, -1] = 0.0
        return found

    def code(self, X: Array) -> CodedRows:
        """Rows (n, features) in this encoding."""
        encoding = self.encoding
        others = np.append(np.arange(self.n_plain), np.arange(encoding.size - self.n_indicators, encoding.size))
        mean, scale, low, high = (part[others] for part in (encoding.mean, encoding.scale, self.low, self.high))
        encode = InputEncoding(mean, scale, None, low, high, indicators=encoding.indicators)
        plain = torch.ones(len(X), len(others) + 1, dtype=torch.float32)
        at_once = max(64, _CODED_AT_ONCE // len(others))
        knots = np.zeros((len(X), len(self.columns)), dtype=np.uint8 if self.n_knots <= 256 else np.uint16)
        shares = np.zeros(knots.shape, dtype=np.float32)
        mean, scale, low, high = (part[self.ramps] for part in (encoding.mean, encoding.scale, self.low, self.high))
        ends = [np.where(self.is_ramp & (high > low), mean + end * scale, np.nan).T for end in (low, high)]

        def code_part(start: int) -> None:
            part = slice(start, start + at_once)
            plain[part, :-1] = torch.from_numpy(encode(X[part]))
            self._place(X[part].take(self.columns, axis=1), ends, knots[part], shares[part])

        on_threads(code_part, range(0, len(X), at_once))
        return CodedRows(plain, knots, shares if shares.any() else None)

    def _place(self, cells: Array, ends: list[Array], knots: NDArray[Any], shares: NDArray[np.float32]) -> None:
        """Add the knot at or before each cell (n, C), and write the relative distance to the next one."""
        encoding, begun = self.encoding, np.zeros_like(knots)
        for left, right in zip(*ends, strict=True):  # faster than a binary search, for so few
            begun += cells > left
            knots += cells >= right
        # Few cells are inside a step: those of held-out rows.
        inside = np.nonzero(begun != knots)
        ramp = np.minimum(knots[inside], self.counts[inside[1]] - 1)
        at = self.first[inside[1]] + ramp
        mean, scale, low, high = (part[at] for part in (encoding.mean, encoding.scale, self.low, self.high))
        with np.errstate(over="ignore"):  # values near the end of float64
            share = np.clip((cells[inside] - mean) / scale, low, high) - low
        is_through = share > 1.0 - _AT_A_KNOT
        knots[inside] = ramp + is_through
        shares[inside] = np.where(is_through | (share < _AT_A_KNOT), 0.0, share)
        knots[np.isnan(cells)] = self.n_knots - 1


class RampFeed:
    """Lookups for the batches of a stack's groups."""

    def __init__(self, tables: Sequence[RampTables], coded: Sequence[CodedRows], pools: Sequence[Index]) -> None:
        self.coded, self.example = coded, tables[0]  # groups share the layout of columns
        pairs = zip(coded, pools, strict=True)
        self.has_shares = any(rows.shares is not None and rows.shares[pool].any() for rows, pool in pairs)
        groups = np.arange(len(tables))[:, None]
        padded, filled = (self.example.ramps - self.example.n_plain).ravel(), np.flatnonzero(self.example.is_ramp)
        if self.example.is_ramp.all():
            padded = filled = padded[:0]
        self._values = torch.from_numpy(np.concatenate([own.values() for own in tables]))
        self._padded = torch.from_numpy(np.ravel(groups * self.example.n_ramps + padded))
        self._filled = torch.from_numpy(np.ravel(groups * self.example.ramps.size + filled))

    def lookup(self, rows: Index, *, with_readers: bool) -> RampLookup:
        """The lookup of batches; ``rows`` is (groups or 1, batches, B), ``with_readers`` is needed for the gradient."""
        n_batches, size = rows.shape[1:]
        example, n_columns, n_groups = self.example, len(self.example.columns), len(self.coded)
        n_knots, parts = example.n_knots, 2 if self.has_shares else 1
        knots = np.empty((n_batches, n_groups, size, parts, n_columns), dtype=self.coded[0].knots.dtype)
        weights = np.empty(knots.shape if self.has_shares else (0, 0), dtype=np.float32)
        for group, coded in enumerate(self.coded):
            own = rows[min(group, len(rows) - 1)]
            knots[:, group, :, 0] = np.take(coded.knots, own, axis=0)
            if self.has_shares:
                shares = 0.0 if coded.shares is None else np.take(coded.shares, own, axis=0)
                weights[:, group, :, 0], weights[:, group, :, 1] = 1.0 - shares, shares
                knots[:, group, :, 1] = np.minimum(knots[:, group, :, 0] + 1, n_knots - 1)
        tables = np.arange(n_groups * n_columns, dtype=np.int32).reshape(n_groups, 1, 1, n_columns) * n_knots
        codes = (knots + tables).reshape(n_batches, -1)
        starts = np.arange(n_groups * size, dtype=np.int32) * (parts * n_columns)
        readers = reader_starts = reader_weights = np.empty((0, 0), dtype=np.float32)
        if with_readers:
            # Row of the batch, and which of its two knots, in the low bits: faster than a stable sort of knots.
            shape = (n_batches, n_groups * n_columns, size * parts)
            bits = shape[2].bit_length()
            low = np.arange(shape[2], dtype=np.int32 if n_knots >> (31 - bits) == 0 else np.int64)
            order = (np.moveaxis(knots, 4, 2).reshape(shape).astype(low.dtype, order="C") << bits) + low
            order.sort(axis=2)
            firsts = np.broadcast_to(np.arange(n_knots, dtype=order.dtype) << bits, (*shape[:2], n_knots)).copy()
            begun = torch.searchsorted(torch.from_numpy(order), torch.from_numpy(firsts), out_int32=True).numpy()
            reader_starts = (begun + np.arange(shape[1], dtype=np.int32)[:, None] * shape[2]).reshape(n_batches, -1)
            order &= (1 << bits) - 1
            if self.has_shares:
                ordered = np.moveaxis(weights, 4, 2).reshape(shape)
                reader_weights = np.take_along_axis(ordered, order, axis=2).reshape(n_batches, -1)
                order //= parts
            if n_groups > 1:
                order += np.repeat(np.arange(n_groups, dtype=np.int32) * size, n_columns)[:, None]
            readers = order.reshape(n_batches, -1).astype(np.int32, copy=False)
        code_weights = weights.reshape(n_batches if self.has_shares else 0, codes.shape[1])
        arrays = (starts, codes, code_weights, readers, reader_starts, reader_weights)
        fixed = (self._values, self._padded, self._filled)
        return RampLookup(example.n_plain, example.n_ramps, *fixed, *map(torch.from_numpy, arrays))


class TrainingData:
    """The rows of one call to the engine; rows are encoded in float64 before they are rounded to float32."""

    def __init__(self, X: Array, y: Index, sample_weight: Array, n_classes: int, device: torch.device) -> None:
        self.X, self.y, self.sample_weight, self.n_classes, self.device = X, y, sample_weight, n_classes, device
        self.n_rows = len(X)
        self._encoded: WeakValueDictionary[tuple[int, torch.dtype], Tensor] = WeakValueDictionary()
        self._kept: dict[object, Any] = {}
        self._lock = Lock()
        self._locks: dict[object, Lock] = {}  # for values that several threads may compute at the same time

    def _once(self, key: object, make: Callable[[], _Value]) -> _Value:
        """A value that is computed once, by the first thread that needs it."""
        with self._lock:
            own = self._locks.setdefault(key, Lock())
        with own:
            if key not in self._kept:
                self._kept[key] = make()
            found: _Value = self._kept[key]
            return found

    @cached_property
    def _device_x(self) -> Tensor:
        return sent(torch.from_numpy(np.require(self.X, requirements="W")), self.device)  # torch warns of others

    def layout(self, kind: str, bins: int) -> Index | None:
        """`column_layout` of these rows."""
        used = self.sample_weight > 0
        return self._once((kind, bins), lambda: column_layout(self.X, kind, bins, np.flatnonzero(used)))

    def encoding(self, job: TrainingJob, rows: Index) -> InputEncoding:
        """The input encoding of a job, fitted on its rows; jobs with the same rows share it."""
        key = (digest(rows), job.encoding, job.bins, job.missing, job.standardize)
        layout = self.layout(job.encoding, job.bins)
        indicators = self._incomplete if job.missing == "indicator" else None
        own = rows[self.sample_weight[rows] > 0]
        order = partial(self._order, own) if (np.diff(own) > 0).all() else None
        how: dict[str, Any] = {"standardize": job.standardize, "indicators": indicators, "order": order, "rows": own}
        fit = partial(fit_encoding, job.encoding, layout, self.X, self.y, self.sample_weight, run=on_threads, **how)
        return self._once(key, fit)

    def prepare(self, jobs: Iterable[TrainingJob]) -> None:
        """Compute what stacks share on all threads, so that no training thread waits for another one."""
        for job in jobs:
            self.coded(self.encoding(job, job.trained(self.n_rows)), float_type(job.solver_kind))

    def _order(self, rows: Index, column: int) -> Index:
        """The stable order of a column among increasing rows; folds share the sorting of a column."""
        whole = self._once(("order", column), lambda: np.argsort(self.X[:, column], kind="stable").astype(np.int32))
        place = np.full(self.n_rows, -1)
        place[rows] = np.arange(len(rows))
        found = place[whole]
        return found[found >= 0]

    def encoded(self, encoding: InputEncoding, dtype: torch.dtype) -> Tensor:
        """All rows in an encoding, and ones, on the device, kept while another reference exists."""
        key = (id(encoding), dtype)
        with self._lock:
            found = self._encoded.get(key)
            if found is None:
                found = self._encoded[key] = _allocate(self.n_rows, encoding.size + 1, dtype, self.device)
                found[:, -1] = 1.0
                numbers = _NUMBERS_AT_ONCE if self.device.type == "cpu" else _NUMBERS_ON_A_GPU
                at_once = max(64, numbers // encoding.size)
                for start in range(0, self.n_rows, at_once):
                    part = slice(start, start + at_once)
                    source = self.X if self.device.type == "cpu" else self._device_x
                    found[part, :-1] = encoded_on(self.device, encoding, source[part])
                if found.nbytes <= _KEPT_BYTES:
                    self._kept[key] = found
        return found

    def coded(self, encoding: InputEncoding, dtype: torch.dtype) -> CodedRows | None:
        """All rows as table lookups need them, a tenth of the encoded rows, so kept; ``None`` if these do not pay."""
        # A GPU is better at products.
        if not has_ramps(encoding) or dtype != torch.float32 or self.device.type != "cpu":
            return None
        return self._once(id(encoding), lambda: RampTables(encoding).code(self.X))

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
        return self._once(dtype, lambda: torch.from_numpy(self.y).to(self.device, dtype))


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
        coded = [found for one in encodings if (found := data.coded(one, dtype))]  # groups share the layout of columns
        self._ramps = RampFeed([RampTables(encoding) for encoding in encodings], coded, pools) if coded else None
        self._own = [rows.plain for rows in coded] or [data.encoded(encoding, dtype) for encoding in encodings]
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
        # Whole vectors of a processor if that is hardly more, for the same bits in any stack.
        size = -(-max(sizes) // _ROWS_OF_A_VECTOR) * _ROWS_OF_A_VECTOR
        if self.data.device.type != "cpu" or size > _HARDLY_MORE * max(sizes):
            size = max(sizes)
        index = np.zeros((2, len(orders), count, size), dtype=np.int64)
        rows, positions = index
        positions.fill(self._padding)
        for group, (order, size) in enumerate(zip(orders, sizes, strict=True)):
            padded = np.full(count * size, self._padding)
            padded[: len(order)] = order
            positions[group, :, :size] = padded.reshape(count, size)
            pool_and_padding = np.append(self._pools[group], self._pools[group][0])
            rows[group, :, :size] = pool_and_padding[np.minimum(positions[group, :, :size], len(order))]
        return sent(torch.from_numpy(index), self.data.device)

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
        batch = self._weights.new_empty(groups, size, self._own[0].shape[1])
        return EpochRows(self._own, rows, self.data.labels(self.dtype)[rows], weights, batch)
