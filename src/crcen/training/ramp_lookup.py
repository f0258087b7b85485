"""The first layer on ramps and steps by table lookups instead of products with zeros and ones.

A cell is between two neighbouring knots of its column, so its contribution to the first layer is a row of a table
(knots × hidden units) of its column, or a mean of two neighbouring rows. The table costs a small product per step. In
the gradient, each table row adds up the rows of the batch that read it.

Shape letters: G groups, B rows of a batch, C columns with ramps, S the most ramps of a column, N knots, R ramps in all,
W first hidden units of all networks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crcen.theory.rows import Array, Index
from crcen.training.encoding import InputEncoding

# Cells this near to a knot are at it.
_AT_A_KNOT = 1e-6
_NUMBERS_AT_ONCE = 2**17


class RampLookup(NamedTuple):
    """Table rows that the rows of some batches read; tensors are empty without ramps or without weights."""

    n_plain: int  # inputs before the ramps; indicators and the bias follow them
    n_ramps: int  # R
    values: Tensor  # (G·C, N, S): the value of every ramp at every knot of its column
    padded: Tensor  # (G·C·S,): the ramp at each place, any where a column has fewer than S; empty if none has fewer
    filled: Tensor  # (G·R,): the place of every ramp; empty likewise
    starts: Tensor  # (G·B,): where in `codes` a row of the batch begins
    codes: Tensor  # (batches, entries): table rows, by row of the batch
    code_weights: Tensor  # (batches, entries)
    readers: Tensor  # (batches, entries): rows of the batch, by table row
    reader_starts: Tensor  # (batches, G·C·N)
    reader_weights: Tensor  # (batches, entries)


NO_RAMPS = RampLookup(0, 0, *[torch.empty(0)] * 9)


def _summed(table: Tensor, lookup_rows: Tensor, starts: Tensor, weights: Tensor) -> Tensor:
    """Sums of rows of a table, one for each start."""
    given: Tensor | None = None
    if weights.numel() > 0:
        given = weights
    return torch.embedding_bag(table, lookup_rows, starts, False, 0, False, given, False)[0]


def add_ramps(lookup: RampLookup, batch: int, first: Tensor, x: Tensor, out: Tensor) -> None:
    """Write the first layer's product (G, B, W) of a batch to ``out``; x (G, B, plain + indicators + 1) has no ramps.

    ``first`` is (G, plain + ramps + indicators + 1, W).
    """
    n_groups, width = first.size(0), first.size(2)
    after = lookup.n_plain + lookup.n_ramps
    plain = torch.cat([first.narrow(1, 0, lookup.n_plain), first.narrow(1, after, first.size(1) - after)], 1)
    torch.bmm(x, plain, out=out)
    own = first.narrow(1, lookup.n_plain, lookup.n_ramps).reshape([n_groups * lookup.n_ramps, width])
    if lookup.padded.numel() > 0:
        own = own.index_select(0, lookup.padded)
    own = own.view([lookup.values.size(0), lookup.values.size(2), width])
    table = torch.bmm(lookup.values, own).view([-1, width])
    weights = lookup.code_weights
    if weights.numel() > 0:
        weights = weights.select(0, batch)
    out.view([-1, width]).add_(_summed(table, lookup.codes.select(0, batch), lookup.starts, weights))


def ramps_gradient(lookup: RampLookup, batch: int, x: Tensor, back: Tensor, found: Tensor) -> None:
    """Write the first layer's gradient, in the shape of ``first``, to ``found``, given that at its outputs."""
    n_groups, width = back.size(0), back.size(2)
    after = lookup.n_plain + lookup.n_ramps
    plain = torch.bmm(x.transpose(1, 2), back)
    found.narrow(1, 0, lookup.n_plain).copy_(plain.narrow(1, 0, lookup.n_plain))
    n_after = found.size(1) - after
    found.narrow(1, after, n_after).copy_(plain.narrow(1, lookup.n_plain, n_after))
    weights = lookup.reader_weights
    if weights.numel() > 0:
        weights = weights.select(0, batch)
    starts, readers = lookup.reader_starts.select(0, batch), lookup.readers.select(0, batch)
    table = _summed(back.view([-1, width]), readers, starts, weights)
    table = table.view([lookup.values.size(0), lookup.values.size(1), width])
    by_column = lookup.values.transpose(1, 2)
    if lookup.filled.numel() > 0:
        own = torch.bmm(by_column, table).view([-1, width]).index_select(0, lookup.filled)
        found.narrow(1, lookup.n_plain, lookup.n_ramps).copy_(own.view([n_groups, lookup.n_ramps, width]))
        return
    columns = table.size(0) // n_groups
    for group in range(n_groups):
        place = found.select(0, group).narrow(0, lookup.n_plain, lookup.n_ramps).view([columns, -1, width])
        here = group * columns
        torch.bmm(by_column.narrow(0, here, columns), table.narrow(0, here, columns), out=place)


def has_ramps(encoding: InputEncoding) -> bool:
    """Whether an encoding has ramps."""
    n_indicators = 0 if encoding.indicators is None else len(encoding.indicators)
    if encoding.columns is None or encoding.knots is not None or encoding.is_smooth:
        return False
    own = encoding.columns[: encoding.size - n_indicators]
    return int(own.max()) + 1 < len(own)


@dataclass(frozen=True, eq=False)
class CodedRows:
    """All rows in an encoding: the knot of every cell of a column with ramps, and the other columns."""

    plain: Tensor  # encoded columns that are no ramps
    knots: NDArray[np.unsignedinteger]  # the knot at or before a cell; the last one for missing cells
    shares: NDArray[np.float32] | None  # relative distance to the next knot; None if every cell is at one


class RampTables:
    """The ramps of one encoding that `has_ramps`, column by column."""

    def __init__(self, encoding: InputEncoding) -> None:
        if encoding.columns is None or encoding.low is None or encoding.high is None:
            raise ValueError("an encoding without ramps has no tables")
        n_indicators = 0 if encoding.indicators is None else len(encoding.indicators)
        own = encoding.columns[: encoding.size - n_indicators]
        self.encoding, self.low, self.high, self.n_plain = encoding, encoding.low, encoding.high, int(own.max()) + 1
        self.n_ramps, self.n_indicators = len(own) - self.n_plain, n_indicators
        self.columns, self.counts = np.unique(own[self.n_plain :], return_counts=True)
        self.most = int(self.counts.max())
        self.first = self.n_plain + np.append(0, np.cumsum(self.counts)[:-1])

    @property
    def n_knots(self) -> int:
        """N: one more than the most ramps of a column, and one for missing cells."""
        return self.most + 2

    def values(self) -> NDArray[np.float32]:
        """The value of every ramp at every knot of its column, (C, N, S); 0 at the knot of missing cells."""
        found = np.zeros((len(self.columns), self.n_knots, self.most), dtype=np.float32)
        is_passed = np.arange(self.most)[None, :] < np.arange(self.most + 1)[:, None]
        for i, (first, count) in enumerate(zip(self.first, self.counts, strict=True)):
            part = slice(first, first + count)
            found[i, :-1, :count] = np.where(is_passed[:, :count], self.high[part], self.low[part])
        return found

    def padded(self) -> tuple[Index, Index]:
        """The ramp at each place (C·S,), and the place of every ramp, (R,)."""
        place = np.arange(self.most)[None, :]
        ramp = (self.first - self.n_plain)[:, None] + np.minimum(place, self.counts[:, None] - 1)
        return ramp.ravel(), np.flatnonzero(np.ravel(place < self.counts[:, None]))

    def code(self, X: Array) -> CodedRows:
        """Rows (n, features) in this encoding."""
        encoding = self.encoding
        others = np.append(np.arange(self.n_plain), np.arange(encoding.size - self.n_indicators, encoding.size))
        mean, scale, low, high = (part[others] for part in (encoding.mean, encoding.scale, self.low, self.high))
        encode = InputEncoding(mean, scale, None, low, high, indicators=encoding.indicators)
        plain = torch.empty(len(X), len(others), dtype=torch.float32)
        at_once = max(64, _NUMBERS_AT_ONCE // len(others))
        for start in range(0, len(X), at_once):  # in the cache of a processor
            part = slice(start, start + at_once)
            plain[part] = torch.from_numpy(encode(X[part]))
        # Short integers are sorted by their digits.
        knots = np.empty((len(X), len(self.columns)), dtype=np.uint8 if self.n_knots <= 256 else np.uint16)
        shares = np.zeros((len(X), len(self.columns)), dtype=np.float32)
        for i, (column, first, count) in enumerate(zip(self.columns, self.first, self.counts, strict=True)):
            is_used = self.high[first : first + count] > self.low[first : first + count]  # the first few
            cells = np.ascontiguousarray(X[:, column])
            knots[:, i], shares[:, i] = self._place(cells, slice(first, first + int(is_used.sum())))
            knots[np.isnan(cells), i] = self.n_knots - 1
        shares[knots == self.n_knots - 1] = 0.0
        return CodedRows(plain, knots, shares if shares.any() else None)

    def _place(self, cells: Array, ramps: slice) -> tuple[Index, Array]:
        """The knot at or before each cell, and the relative distance to the next one."""
        encoding = self.encoding
        mean, scale, low, high = (part[ramps] for part in (encoding.mean, encoding.scale, self.low, self.high))
        if not len(mean):
            return np.zeros(len(cells), dtype=np.int64), np.zeros(len(cells))
        knots, shares = np.searchsorted(mean + high * scale, cells, side="right"), np.zeros(len(cells))
        # Few cells are inside a step: those of held-out rows.
        inside = np.flatnonzero(np.searchsorted(mean + low * scale, cells) != knots)
        ramp = np.minimum(knots[inside], len(mean) - 1)
        with np.errstate(over="ignore", invalid="ignore"):  # values near the end of float64, missing ones
            share = np.clip((cells[inside] - mean[ramp]) / scale[ramp], low[ramp], high[ramp]) - low[ramp]
        is_through = share > 1.0 - _AT_A_KNOT
        knots[inside] = ramp + is_through
        shares[inside] = np.where(is_through | np.isnan(share) | (share < _AT_A_KNOT), 0.0, share)
        return knots, shares


class RampFeed:
    """Lookups for the batches of a stack's groups."""

    def __init__(self, tables: Sequence[RampTables], coded: Sequence[CodedRows], pools: Sequence[Index]) -> None:
        self.coded, self.example = coded, tables[0]  # groups share the layout of columns
        pairs = zip(coded, pools, strict=True)
        self.has_shares = any(rows.shares is not None and rows.shares[pool].any() for rows, pool in pairs)
        groups = np.arange(len(tables))[:, None]
        padded, filled = self.example.padded()
        self._values = torch.from_numpy(np.concatenate([own.values() for own in tables]))
        if len(padded) == len(filled):
            groups = groups[:0]  # all columns have the same number of ramps: nothing to rearrange
        self._padded = torch.from_numpy(np.ravel(groups * self.example.n_ramps + padded))
        self._filled = torch.from_numpy(np.ravel(groups * len(padded) + filled))

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
            by_column = np.moveaxis(knots, 4, 2).reshape(n_batches, n_groups, n_columns, -1)
            order = np.argsort(by_column, axis=3, kind="stable")  # row of the batch, and which of its two knots
            if self.has_shares:
                ordered = np.moveaxis(weights, 4, 2).reshape(by_column.shape)
                reader_weights = np.take_along_axis(ordered, order, axis=3).reshape(n_batches, -1)
            first_row = np.arange(n_groups).reshape(n_groups, 1, 1) * size
            readers = (order // parts + first_row).reshape(n_batches, -1).astype(np.int32)
            n_places = n_groups * n_columns * n_knots
            places = codes + np.arange(n_batches)[:, None] * n_places
            counts = np.bincount(places.ravel(), minlength=n_batches * n_places).reshape(n_batches, -1)
            reader_starts = (np.cumsum(counts, axis=1) - counts).astype(np.int32)
        code_weights = weights.reshape(n_batches if self.has_shares else 0, codes.shape[1])
        arrays = (starts, codes, code_weights, readers, reader_starts, reader_weights)
        fixed = (self._values, self._padded, self._filled)
        return RampLookup(example.n_plain, example.n_ramps, *fixed, *map(torch.from_numpy, arrays))
