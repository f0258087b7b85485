"""Encoded rows of a mixed table in a scratch folder, and the fingerprint of all of them."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path

import numpy as np

from crcen._support.lazy import pa, pq
from crcen.scale.checkpoint import kept_in
from crcen.scale.sources import OPEN_BYTES, ArrowSource, Chunk, labels_of, numbers_of
from crcen.scale.table_survey import frames_of
from crcen.tables.cells import TableCells
from crcen.tables.columns import CategoryColumn, Column, blocks_of, encode_table
from crcen.tables.fingerprint import MOST_HASHES, Fingerprint, row_hashes
from crcen.tables.reading import Table
from crcen.tables.typing import Array, ArrowTable, Bools, DataFrame, RecordBatch
from crcen.theory.rows import LabelArray


class FingerprintOfAll:
    """The `Fingerprint` of streamed rows: the smallest of their hashes with their counts.

    A sample of frames and their encoded rows gives the salt.
    """

    def __init__(self, columns: list[Column], sample: Iterable[tuple[DataFrame, Array]]) -> None:
        self._columns = columns
        hashes = [row_hashes(columns, TableCells(frame), X, 0) for frame, X in sample]
        content = np.sort(np.concatenate(hashes)).tobytes()
        self._salt = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") or 1
        self._hashes, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        self._limit = 2**64 - 1

    def add(self, frame: DataFrame, X: Array) -> None:
        """Add rows and their encoding; the frame may be None if no column is text."""
        hashes = row_hashes(self._columns, TableCells(frame), X, self._salt)
        hashes = np.append(self._hashes, hashes[hashes <= np.uint64(self._limit)])
        weights = np.append(self._counts, np.ones(len(hashes) - len(self._counts), dtype=np.int64))
        found, at = np.unique(hashes, return_inverse=True)
        counts = np.bincount(at, weights).astype(np.int64)
        self._hashes, self._counts = found[:MOST_HASHES], counts[:MOST_HASHES]
        if len(found) > MOST_HASHES:
            self._limit = int(self._hashes[-1])

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all rows so far."""
        return Fingerprint.of_hashes(self._salt, self._hashes, self._counts[:, None], self._limit)


_TARGET = "target"
_FILE_GROUPS = 16  # row groups of a file: several files give the readers of a cluster work
_BATCH_BYTES, _BLOCK_BYTES = 2**21, 2**23  # decoded and encoded at a time


def stored_widths(columns: Sequence[Column]) -> list[int]:
    """Encoded columns of each stored column: categories are stored as codes."""
    widths = [(len(column.encoded_names), isinstance(column, CategoryColumn)) for column in columns]
    return [width for n, is_category in widths for width in ([n] if is_category else [1] * n)]


class EncodedRows(ArrowSource):
    """The rows that `write_encoded` wrote to a folder, as the network sees them."""

    def __init__(self, folder: Path, columns: Sequence[Column], open_bytes: float = OPEN_BYTES) -> None:
        self._widths = stored_widths(columns)
        self._batch_rows = max(256, min(type(self)._batch_rows, _BATCH_BYTES // (8 * sum(self._widths))))
        super().__init__(folder, _TARGET, features=[str(j) for j in range(len(self._widths))], open_bytes=open_bytes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(str(j) for j in range(sum(self._widths)))

    def _chunk(self, batch: RecordBatch, name: str) -> Chunk:
        X = np.zeros((batch.num_rows, sum(self._widths)), order="F")
        at = 0
        for stored, width in zip(self._features, self._widths, strict=True):
            values = numbers_of(batch.column(stored))
            if width == 1:
                X[:, at] = values
            else:
                rows = np.flatnonzero(values >= 0)
                X[rows, at + values[rows]] = 1.0
            at += width
        return Chunk(X, labels_of(batch.column(_TARGET), _TARGET, name), np.ones(batch.num_rows), name)


def encoded_blocks(columns: Sequence[Column], frame: DataFrame) -> Iterator[tuple[DataFrame, Array]]:
    """Rows of a frame and their encoded values, a few megabytes at a time."""
    n_rows = max(256, _BLOCK_BYTES // (8 * sum(len(column.encoded_names) for column in columns)))
    for start in range(0, len(frame), n_rows):
        part = frame.iloc[start : start + n_rows]
        yield part, encode_table(columns, TableCells(part)).X


def write_encoded(
    table: Table,
    columns: Sequence[Column],
    target: str,
    labels: Mapping[object, object],
    folder: Path,
    use: Callable[[DataFrame, Array, int], Bools | None] = lambda frame, X, file: None,
    show: Callable[[float], None] = lambda share: None,
    also: Sequence[str] = (),
    *,
    frame_rows: int,
    group_rows: int,
) -> dict[str, int]:
    """Write all rows with a label to an empty folder, as Parquet files of numbers and the label.

    ``labels`` maps cells of the target to labels. ``use`` takes the rows with a label, the same encoded and the number
    of their file; it returns which ones to write, or None for all. ``also`` names further columns for ``use``. At
    most ``frame_rows`` rows are encoded at a time; a row group has about ``group_rows``.

    Returns cells by column that are not of its kind, and were taken as missing.
    """
    unreadable: Counter[str] = Counter()
    names = [*(column.name for column in columns), target, *also]

    def tables() -> Iterator[ArrowTable]:
        for number, _, frame in frames_of(table, names, show, frame_rows):
            frame = frame[frame[target].notna()].reset_index(drop=True)
            if not len(frame):
                continue
            encoded = encode_table(columns, TableCells(frame))
            unreadable.update(encoded.unreadable)
            kept = use(frame, encoded.X, number)
            rows: slice | Bools = slice(None) if kept is None else kept
            stored = chain.from_iterable(map(_stored, columns, (encoded.X[:, one] for one in blocks_of(columns))))
            y = pa.array([labels[cell] for cell in frame[target][rows]])
            if len(y):
                yield pa.table({**{str(j): part[rows] for j, part in enumerate(stored)}, _TARGET: y})

    with kept_in(folder, "the encoded rows", "use a larger disk (TMPDIR, or storage)"):
        _write(tables(), folder, group_rows)
    return dict(+unreadable)


def _stored(column: Column, values: Array) -> list[LabelArray]:
    """A column's encoded rows as they are stored."""
    if not isinstance(column, CategoryColumn) or values.shape[1] == 1:
        return list(np.ascontiguousarray(values.T))
    # At most one of a category's columns is 1.
    return [np.where(values.any(axis=1), values.argmax(axis=1), -1).astype(np.int32)]


def _write(tables: Iterator[ArrowTable], folder: Path, group_rows: int) -> None:
    """Write tables of any length as row groups of a few files."""

    def groups() -> Iterator[ArrowTable]:
        waiting: list[ArrowTable] = []
        for table in tables:
            waiting.append(table)
            if sum(map(len, waiting)) >= group_rows:
                yield pa.concat_tables(waiting)
                waiting = []
        if waiting:
            yield pa.concat_tables(waiting)

    found = groups()
    for number, first in enumerate(found):
        with pq.ParquetWriter(folder / f"rows-{number:05d}.parquet", first.schema) as file:
            for group in chain([first], islice(found, _FILE_GROUPS - 1)):
                file.write_table(group, row_group_size=len(group))
