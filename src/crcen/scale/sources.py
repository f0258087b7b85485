"""Rows in passing: Parquet files, Arrow datasets and batches, read in blocks; held-out rows; counts and moments.

Ray's readers use this module, which loads no torch: Ray stops a reader whenever it likes, and a process that is stopped
while it loads torch can never load it again.
"""

import hashlib
import tempfile
import warnings
import zlib
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.files import exclusive_lock
from crcen._support.lazy import ds, pa, pd
from crcen._support.text import listed
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput, InvalidParameter
from crcen.models.validation import check_classes
from crcen.tables.locations import paths_of, reading
from crcen.tables.reading import STREAM_BYTES, arrow_system, check_kind, index_columns, kind_of, record_batches
from crcen.theory.price import Labels
from crcen.theory.rows import Array, ArrowArray, ArrowTable, Bools, Fragment, LabelArray, RecordBatch, Schema
from crcen.training.network import INPUT_LIMIT, InputEncoding

_TARGET, _WEIGHT = "target", "weight"  # columns that `read_groups` adds
_GOLDEN, _ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)
# There are four buffers of rows: one is filled, one shuffled, one waits and one is trained on.
_BUFFER_ROWS, _BUFFER_BYTES = 65_536, 2**25

T = TypeVar("T")
Source = Any  # paths, a dataset of pyarrow, or batches
Stretch = tuple[int, int, int]  # number of a piece of a source, and the first row and the end of a part of it
_Reader: TypeAlias = "tuple[list[Chunk], Iterator[Chunk]]"  # rows of a chunk that are left, and the chunks after it


@contextmanager
def kept_in(folder: Path | None, what: str, instead: str) -> Iterator[None]:
    """Turn errors of a disk into a sentence that names the folder."""
    try:
        yield
    except CrcenError:  # of what is read, some of which are an OSError, too
        raise
    except OSError as error:
        place, reason = folder or tempfile.gettempdir(), error.strerror or error
        raise DataUnavailable(f"{what} cannot be kept in {place}: {reason}; make room, or {instead}.") from error


def lock_storage(
    storage: str | Path | None, name: str = "", what: str = "storage folder"
) -> AbstractContextManager[None]:
    """Keep other fits from a storage folder, or from a name in it; there is no lock for an address."""
    if storage is None or "://" in str(storage):
        return nullcontext()
    try:
        Path(storage).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataUnavailable(f"nothing can be kept in {storage}: {error.strerror}.") from error
    return exclusive_lock(Path(storage) / name, instead=f"give another {what}")


def check_counts(**counts: object) -> None:
    """Reject counts of rows or workers that are no positive whole numbers."""
    for name, value in counts.items():
        is_right = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if not is_right and (value is not None or name != "buffer_rows"):
            raise InvalidParameter(f"{name} must be a whole number of at least 1: got {value!r}.", parameter=name)


def rows_together(n_inputs: int) -> int:
    """Rows that are shuffled together: as many as fit in bounded memory once encoded."""
    return max(1, min(_BUFFER_ROWS, _BUFFER_BYTES // (4 * (n_inputs + 1))))


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of a source: X (n, F) float64, best in column order; labels and sample weights (n,); and their origin."""

    X: Array
    labels: LabelArray
    weight: Array
    origin: str

    def __len__(self) -> int:
        return len(self.X)

    def __getitem__(self, rows: slice | Bools) -> "Chunk":
        return Chunk(self.X[rows], self.labels[rows], self.weight[rows], self.origin)

    def check(self, names: Sequence[str]) -> None:
        """Reject values that cannot be trained on; the error names column and origin."""
        if not np.isfinite(self.X).all():
            bad = [names[j] for j in np.flatnonzero(~np.isfinite(self.X).all(axis=0)).tolist()]
            kinds = [k for k, test in (("NaN", np.isnan), ("infinity", np.isinf)) if test(self.X).any()]
            found = f"{' and '.join(kinds)} (or missing values) in column {', '.join(bad[:5])}"
            raise InvalidInput(f"{self.origin} holds {found}; training needs finite numbers: fill or drop them.")
        fine = np.isfinite(self.weight) & (self.weight >= 0)
        if not fine.all():
            found = f"{self.origin} holds a sample weight of {self.weight[~fine][0]:g}"
            raise InvalidInput(f"{found}; weights must be finite and not negative.")

    def target(self, labels: Labels) -> LabelArray:
        """Which rows are positive, or class numbers of more than two classes; a new label is rejected."""
        try:
            return np.asarray(labels.target(self.labels))
        except InvalidInput as error:
            message = f"{self.origin} now holds a label that was not there at first; labels must not change."
            raise InvalidInput(message) from error


def held_out(X: Array, fraction: float, seed: int) -> Bools:
    """Which rows are held out, by a hash of their values alone: copies are together; few rows may miss ``fraction``."""
    return row_shares(X, seed) < fraction


def row_shares(X: Array, seed: int) -> Array:
    """A number between 0 and 1 for each row: a hash of its values."""
    bits = (X + 0.0).view(np.uint64)  # −0.0 is 0.0
    state = np.full(len(X), np.uint64(seed) ^ _GOLDEN)
    for column in bits.T:
        state = (state ^ column) * _ODD
        state ^= state >> _HALF
    state = (state + _GOLDEN) * _ODD
    state ^= state >> _HALF
    return state.astype(np.float64) * 2.0**-64


def row_keys(n: int, seed: int, stream: int, origin: str, *place: int) -> Array:
    """A random number for each of n rows, decided by the name of their file, wherever it is, and their place."""
    key = [seed, stream, zlib.crc32(Path(origin).name.encode()), *place]
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key))).random(n)


def reading_order(n_pieces: int, seed: int | None, epoch: int) -> list[int]:
    """The order of pieces in an epoch: random from (seed, epoch), or as they stand without a seed."""
    if seed is None:
        return list(range(n_pieces))
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 3, epoch])))
    return list(rng.permutation(n_pieces).tolist())


def plan_blocks(sizes: Sequence[int], order: Sequence[int], block_rows: int, ways: int) -> list[list[Stretch]]:
    """Cut an epoch into blocks of about ``block_rows`` rows, each drawn from ``ways`` pieces that are open at a time.

    Large pieces are thus read a stretch at a time, and mixed with others. The plan is a function of its arguments, so
    that reading can start again at any block.
    """
    waiting = deque(piece for piece in order if sizes[piece])
    is_open: list[tuple[int, int]] = []
    blocks = []
    while waiting or is_open:
        block, room = [], block_rows
        while room and (waiting or is_open):
            while waiting and len(is_open) < ways:
                is_open.append((waiting.popleft(), 0))
            share = max(1, room // len(is_open))
            still_open = []
            for piece, start in is_open:
                stop = min(start + share, sizes[piece], start + room)
                if stop > start:
                    block.append((piece, start, stop))
                room -= stop - start
                if stop < sizes[piece]:
                    still_open.append((piece, stop))
            is_open = still_open
        blocks.append(block)
    return blocks


# Pieces that are open at a time: at most so many, and not more than fit. An open one holds about two pages a column, of
# a megabyte each unless the piece is small.
_WAYS, OPEN_BYTES, _COLUMN_BYTES = 8, 2e8, 2.2e6


@dataclass(frozen=True)
class _Piece:
    """A row group of a file, or a whole fragment that has none."""

    file: int
    fragment: Fragment
    n_rows: int
    n_bytes: int = 0


@dataclass(frozen=True)
class _File:
    """A file and how it looked when it was opened."""

    name: str
    fragment: Fragment
    seen: tuple[int, int]  # size and time of the last change, both 0 for what is no file

    def check(self) -> None:
        """Raise an error if the file is missing or has changed."""
        if _look(self.fragment) != self.seen:
            raise DataUnavailable(f"{self.name} was changed while it was in use: start again from the beginning.")


class ArrowSource:
    """Rows of Parquet files or an Arrow dataset, by row group.

    Files that cannot be read or whose columns differ are rejected, or left out with a warning (``skip_bad_files``).
    Without ``features`` all columns but target and weight are features.
    """

    _batch_rows = 8192  # decoded at a time

    def __init__(
        self,
        source: Source,
        target: str,
        weight: str | None = None,
        features: Sequence[str] | None = None,
        *,
        skip_bad_files: bool = False,
        open_bytes: float | None = None,
    ) -> None:
        self._target, self._weight, self._skips = target, weight, skip_bad_files
        self._open_bytes = open_bytes  # of row groups that are open at a time, if memory is bounded
        self._schema: Schema = None
        self._left_out: tuple[float, int] = (0.0, 0)  # share and seed of held-out rows
        files = self._listed(source)
        self._features: tuple[str, ...] = tuple(features) if features is not None else ()
        self._kinds: dict[str, tuple[str, str]] = {}  # column → (kind, where it was first seen)
        self._extra: dict[str, str] = {}  # column that the first file lacks → the first file that has it
        self._files: list[_File] = []
        self._pieces: list[_Piece] = []
        self._each(files, self._add)
        if self._extra and features is None:
            found = listed(f"{column} (in {name})" for column, name in self._extra.items())
            message = f"columns that the first file lacks are left out: {found}; features=[…] chooses columns."
            warnings.warn(message, UserWarning, stacklevel=4)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features."""
        return self._features

    @property
    def n_files(self) -> int:
        """Files that are in use."""
        return len(self._files)

    @property
    def n_rows(self) -> int:
        """Rows of all files, by their own account."""
        return sum(piece.n_rows for piece in self._pieces)

    @property
    def open_bytes(self) -> float:
        """Memory of the row groups that are open at a time."""
        ways, piece_bytes = self._ways()
        return min(ways, len(self._pieces)) * piece_bytes

    def _ways(self) -> tuple[int, float]:
        """How many row groups are open at a time, and the memory of each."""
        largest, n_columns = max((piece.n_bytes for piece in self._pieces), default=0), len(self._features) + 1
        is_bounded, most = self._open_bytes is not None, min(OPEN_BYTES, self._open_bytes or OPEN_BYTES)
        buffers = STREAM_BYTES * n_columns if is_bounded else 0
        held = min(largest * (1 + is_bounded), _COLUMN_BYTES * n_columns) + buffers
        return max(2, min(_WAYS, int(most / held))) if held else _WAYS, held

    @property
    def fingerprint(self) -> str:
        """A text that differs for other files or columns; folders may be moved."""
        about = [(Path(f.name).name, f.seen[0]) for f in self._files], [p.n_rows for p in self._pieces]
        columns = (self._features, self._target, self._weight)
        return hashlib.sha256(repr((about, *columns, self._left_out)).encode()).hexdigest()

    def _listed(self, source: Source) -> list[tuple[str, Fragment]]:
        if isinstance(source, ds.Dataset):
            if getattr(source, "_scan_options", None):
                raise InvalidInput("a filtered Arrow dataset cannot be streamed: write the rows to files of their own.")
            self._schema = source.schema
            return [(getattr(f, "path", f"fragment {i}"), f) for i, f in enumerate(source.get_fragments())]
        files, form = paths_of(source)[0], ds.ParquetFileFormat()
        system = arrow_system(files[0][2])
        return [(name, form.make_fragment(path, system)) for name, path, _ in files]

    def _each(self, items: Sequence[tuple[str, T]], use: Callable[[str, T], None]) -> None:
        """Use every file; skip unusable ones if the caller asked for it."""
        skipped = []
        for name, item in items:
            try:
                use(name, item)
            except CrcenError as error:
                if not self._skips:
                    raise
                skipped.append(str(error))
        said = " ".join(skipped[:3]) + (" …" if len(skipped) > 3 else "")
        if items and len(skipped) == len(items):
            raise DataUnavailable(f"none of the {len(items)} files can be used: {said}")
        if skipped:
            warnings.warn(f"{len(skipped)} of {len(items)} files left out: {said}", UserWarning, stacklevel=5)

    def _add(self, name: str, fragment: Fragment) -> None:
        with reading(name):
            schema = self._schema or fragment.physical_schema
            is_parquet = hasattr(fragment, "split_by_row_group")
            parts = fragment.split_by_row_group() if is_parquet else [fragment]
            groups = [part.row_groups[0] for part in parts] if is_parquet else []
            sizes = [(g.num_rows, g.total_byte_size) for g in groups] if is_parquet else [(fragment.count_rows(), 0)]
        self._check_columns(name, schema)
        number = len(self._files)
        self._files.append(_File(name, fragment, _look(fragment)))
        self._pieces += [_Piece(number, part, *size) for part, size in zip(parts, sizes, strict=True)]

    def _check_columns(self, name: str, schema: Schema) -> None:
        wanted = [self._target, *([self._weight] if self._weight else [])]
        if not self._features:
            left_out = [column for column in index_columns(schema) if column not in wanted]
            if left_out:
                index = f"{', '.join(left_out)} of {name} was the index of a pandas data frame and is left out"
                warnings.warn(f"{index}; features=[…] chooses columns.", UserWarning, stacklevel=6)
            self._features = tuple(column for column in schema.names if column not in {*wanted, *left_out})
        if not self._features:
            raise InvalidInput(f"{name} holds no column but {', '.join(wanted)}: there is nothing to learn from.")
        for column in (*wanted, *self._features):
            if column not in schema.names:
                raise InvalidInput(f"{name} has no column {column!r}; it has {listed(schema.names)}.")
            kind, written = kind_of(schema.field(column).type), str(schema.field(column).type)
            check_kind(self._kinds, column, kind, written, name)
            if kind != "number" and column != self._target:
                message = f"column {column!r} of {name} is {written}, not a number"
                raise InvalidInput(f"{message}; leave it out, or use crcen.fit_files.")
        known = {*wanted, *self._features, *index_columns(schema), *self._extra}
        self._extra |= {one: name for one in schema.names if one not in known}

    def each_part(self, use: Callable[[Iterator[Chunk]], None]) -> None:
        """Call ``use`` with the chunks of each file in order; a file at which it raises is rejected, or left out."""

        def read(number: int) -> None:
            pieces = (piece for piece in self._pieces if piece.file == number)
            use(self._kept(chunk) for piece in pieces for chunk in self._piece_chunks(piece, 0))

        self.try_files(read)

    def try_files(self, read: Callable[[int], None]) -> None:
        """Call ``read`` for the number of every file; a file at which it raises is rejected, or left out."""
        kept: list[int] = []
        files = [(file.name, number) for number, file in enumerate(self._files)]
        self._each(files, lambda _, number: read(number) or kept.append(number))  # type: ignore[func-returns-value]
        if len(kept) < len(self._files):
            rest = self.part(kept)
            self._files, self._pieces = rest._files, rest._pieces

    def _with(self, **changes: object) -> "ArrowSource":
        made = copy(self)
        vars(made).update(changes)
        return made

    def part(self, numbers: Sequence[int]) -> "ArrowSource":
        """Some of the files, as they were when this source was opened; a bad file is rejected. It can be pickled."""
        place = {old: new for new, old in enumerate(numbers)}
        pieces = [replace(p, file=place[p.file]) for p in self._pieces if p.file in place]
        return self._with(_skips=False, _pieces=pieces, _files=[self._files[number] for number in numbers])

    def share(self, number: int, count: int) -> "ArrowSource":
        """One of ``count`` shares of the row groups, for a worker."""
        return self._with(_pieces=self._pieces[number::count])

    def smallest_share(self, count: int) -> int:
        """Rows of the smallest of ``count`` shares."""
        return min(sum(piece.n_rows for piece in self._pieces[number::count]) for number in range(count))

    def without_held_out(self, share: float, seed: int) -> "ArrowSource":
        """The same files without the rows that `held_out` holds out."""
        return self._with(_left_out=(share, seed))

    def check_unchanged(self) -> None:
        """Raise an error if a file is missing or has changed."""
        for file in self._files:
            with reading(file.name):
                file.check()

    def _kept(self, chunk: Chunk) -> Chunk:
        share, seed = self._left_out
        if not share:
            return chunk
        kept = chunk[~held_out(chunk.X, share, seed)]
        return replace(kept, X=np.asfortranarray(kept.X))

    def blocks(
        self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Generator[Iterable[Chunk], None, None]:
        """The blocks of an epoch from block ``start`` on, the same for the same arguments."""
        sizes = [piece.n_rows for piece in self._pieces]
        ways = 1 if seed is None else self._ways()[0]  # with a seed, row groups are mixed with each other
        plan = plan_blocks(sizes, reading_order(len(sizes), seed, epoch), block_rows, ways)
        readers: dict[int, _Reader] = {}
        for block in plan[start:]:
            chunks = (self._kept(part) for stretch in block for part in self._stretch(stretch, readers))
            yield chunks
            for _ in chunks:  # so that readers are at the start of the next block
                pass

    def _stretch(self, stretch: Stretch, readers: dict[int, _Reader]) -> Iterator[Chunk]:
        """Chunks of a stretch; ``readers`` holds what is left of its piece, for the next one."""
        number, start, stop = stretch
        piece, missing = self._pieces[number], stop - start
        rest, chunks = readers.pop(number, ([], self._piece_chunks(piece, start)))
        for chunk in chain(rest, chunks):
            rest, chunk = [chunk[missing:]] if len(chunk) > missing else [], chunk[:missing]
            missing -= len(chunk)
            yield chunk
            if not missing:
                break
        if missing:
            raise DataUnavailable(f"{self._files[piece.file].name} ended before its last row; was it changed?")
        if stop < piece.n_rows:
            readers[number] = (rest, chunks)
        else:
            pa.default_memory_pool().release_unused()  # of many small buffers, between which the next ones do not fit

    def _piece_chunks(self, piece: _Piece, skip: int) -> Iterator[Chunk]:
        """Chunks of a piece without its first ``skip`` rows."""
        file = self._files[piece.file]
        columns = [*self._features, self._target, *([self._weight] if self._weight else [])]
        with reading(file.name):
            file.check()
            for batch in record_batches(piece.fragment, columns, self._schema, self._batch_rows):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                yield self._chunk(batch.slice(skip), file.name)
                skip = 0

    def _chunk(self, batch: RecordBatch, name: str) -> Chunk:
        return chunk_of(batch, self._features, self._target, self._weight, name)


def chunk_of(batch: RecordBatch, features: Sequence[str], target: str, weight: str | None, name: str) -> Chunk:
    """Features, labels and weights of an Arrow batch of a file."""
    X = np.empty((batch.num_rows, len(features)), order="F")
    for j, column in enumerate(features):
        X[:, j] = numbers_of(batch.column(column))
    weights = numbers_of(batch.column(weight)).astype(np.float64) if weight else np.ones(len(X))
    return Chunk(X, labels_of(batch.column(target), target, name), weights, name)


def _look(fragment: Fragment) -> tuple[int, int]:
    """Size and time of the last change of a fragment's file."""
    if not hasattr(fragment, "path"):
        return 0, 0
    info = fragment.filesystem.get_file_info(fragment.path)
    if info.size is None:
        raise FileNotFoundError(fragment.path)
    return info.size, info.mtime_ns or 0


def numbers_of(column: ArrowArray) -> LabelArray:
    """Numbers and truth values; NaN where one is missing."""
    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64() if pa.types.is_decimal(column.type) else pa.int8())
    return np.asarray(column.to_numpy(zero_copy_only=False))


def labels_of(column: ArrowArray, target: str, name: str) -> LabelArray:
    """Labels as they stand; a missing label is rejected."""
    if n := column.null_count:
        raise InvalidInput(f"column {target!r} of {name} has {n} missing labels; drop those rows first.")
    column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return np.asarray(column.to_numpy(zero_copy_only=False))


def open_source(
    source: Source,
    target: str | None,
    weight: str | None = None,
    features: Sequence[str] | None = None,
    *,
    skip_bad_files: bool = False,
) -> "RowSource":
    """The rows of files, a dataset or batches; an open source is returned as it is."""
    if isinstance(source, ArrowSource):
        return source
    is_paths = isinstance(source, str | Path) or (
        isinstance(source, list | tuple) and bool(source) and all(isinstance(one, str | Path) for one in source)
    )
    if is_paths or isinstance(source, ds.Dataset):
        if target is None:
            message = "target must name the column of labels of files or of an Arrow dataset: got None."
            raise InvalidParameter(message, parameter="target")
        return ArrowSource(source, target, weight, features, skip_bad_files=skip_bad_files)
    if target is not None or weight is not None or features is not None:
        names = "target, sample_weight and features name columns of files"
        raise InvalidParameter(f"{names}; batches bring (X, y) or (X, y, weight) instead.")
    return BatchSource(source)


class BatchSource:
    """Rows of any object that gives (X, y) or (X, y, weight) batches each time it is iterated."""

    fingerprint = "batches"  # they say nothing of themselves

    def __init__(self, batches: Iterable[Sequence[ArrayLike]]) -> None:
        if not hasattr(batches, "__iter__"):
            allowed = "Parquet files, an Arrow dataset or an iterable of (X, y) batches"
            raise InvalidInput(f"a source must be {allowed}: got a {type(batches).__name__}.")
        if iter(batches) is batches:
            kind = type(batches).__name__
            message = f"a source is read several times, but this {kind} can be read only once: pass a list of batches,"
            raise InvalidInput(f"{message} or an object whose __iter__ starts again.")
        self._batches = batches
        self.has_names = False
        # Names of the columns, known once a batch was read: those of a data frame, or x0, x1, …
        self.names: tuple[str, ...] = ()
        self._n_rows = 0

    def each_part(self, use: Callable[[Iterator[Chunk]], None]) -> None:
        """Call ``use`` with the chunks of all batches."""
        use(self._chunks())

    def blocks(self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0) -> Iterator[list[Chunk]]:
        """Blocks in the order of the batches, whatever the seed; those before ``start`` are read, too."""

        def every() -> Iterator[list[Chunk]]:
            waiting: list[Chunk] = []
            for chunk in self._chunks():
                if waiting and sum(map(len, waiting)) + len(chunk) > block_rows:
                    yield waiting
                    waiting = []
                waiting.append(chunk)
            if waiting:
                yield waiting

        return islice(every(), start, None)

    def _chunks(self) -> Iterator[Chunk]:
        n_rows = 0
        for number, batch in enumerate(self._batches):
            chunk = self._chunk(batch, f"batch {number}")
            n_rows += len(chunk)
            yield chunk
        if self._n_rows and n_rows != self._n_rows:
            raise InvalidInput(f"the source gave {self._n_rows} rows at first and {n_rows} now; it must give the same.")
        self._n_rows = n_rows

    def _chunk(self, batch: Sequence[ArrayLike], origin: str) -> Chunk:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise InvalidInput(f"{origin} must be (X, y) or (X, y, weight): got a {type(batch).__name__}.")
        names = tuple(str(name) for name in getattr(batch[0], "columns", ()))
        try:
            X = np.ascontiguousarray(batch[0], dtype=np.float64)
            labels = np.asarray(batch[1])
            weight = np.ones(len(X)) if len(batch) == 2 else np.asarray(batch[2], dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"{origin} must hold numbers in X and in its weights: {error}.") from error
        if X.ndim != 2 or labels.shape != (len(X),) or weight.shape != (len(X),):
            found = f"got {X.shape}, {labels.shape} and {weight.shape}"
            raise InvalidInput(f"{origin} must have X of shape (n, features) and a label (and weight) a row: {found}.")
        self.has_names = bool(names)
        names = names or tuple(f"x{j}" for j in range(X.shape[1]))
        self.names = self.names or names
        if names != self.names:
            found, first = (f"{len(own)} columns ({', '.join(own[:5])}, …)" for own in (names, self.names))
            raise InvalidInput(f"{origin} has {found}, the first had {first}; all must be alike.")
        return Chunk(X, labels, weight, origin)


RowSource = ArrowSource | BatchSource


def read_groups(
    groups: Sequence[Sequence[int]], source: ArrowSource, labels: Labels, buffer_rows: int, seed: int
) -> Iterator[ArrowTable]:
    """Rows of groups of files as Arrow tables, for Ray Data: a column a feature, then target and weight."""
    for group in groups:
        for block in source.part(group).blocks(buffer_rows, seed, group[0]):
            tables = []
            for chunk in block:
                columns = {str(j): column for j, column in enumerate(chunk.X.T)}
                tables.append(pa.table({**columns, _TARGET: chunk.target(labels), _WEIGHT: chunk.weight}))
            yield pa.concat_tables(tables)


class RayShard:
    """The rows that `read_groups` sends to one worker, in blocks; the same in every epoch and after a restart."""

    def __init__(self, shard: Any, moved: Callable[[], None] = lambda: None) -> None:
        self._shard, self._moved = shard, moved

    def blocks(self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0) -> Iterator[list[Chunk]]:
        """Blocks in the order of reading, from block ``start`` on; those before it are read and passed over."""
        tables = self._shard.iter_batches(batch_size=block_rows, batch_format="pyarrow", prefetch_batches=1)
        for number, table in enumerate(tables):
            self._moved()
            if number >= start:
                features = [str(j) for j in range(table.num_columns - 2)]
                batches = table.to_batches(max_chunksize=8192)
                yield [chunk_of(batch, features, _TARGET, _WEIGHT, "a file") for batch in batches]


RowBlocks = RowSource | RayShard  # all have `blocks`


def read_ahead(items: Iterator[T]) -> Iterator[T]:
    """The same items, each made by a thread while the one before it is used; its errors are raised here."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="crcen-read-ahead") as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield cast(T, item)
            del item  # not kept alive while the next one is waited for


_MOST_CLASSES = 1000


class ColumnMoments:
    """Weighted mean and sum of squared deviations of columns, by Chan's update; rows of weight 0 are no rows."""

    def __init__(self, n_columns: int) -> None:
        self.weight = 0.0
        self.mean, self.squares = np.zeros(n_columns), np.zeros(n_columns)
        self.low, self.high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)

    @classmethod
    def of(cls, X: Array, weight: Array) -> "ColumnMoments":
        """The moments of some rows."""
        found = cls(X.shape[1])
        if not weight.all():
            X, weight = X[weight > 0], weight[weight > 0]
        if len(X):
            columns, found.weight = X.T, float(weight.sum())
            # Not by BLAS, whose sums depend on the number of threads.
            found.mean = np.einsum("ij,j->i", columns, weight) / found.weight
            apart = columns - found.mean[:, None]
            with np.errstate(over="ignore"):
                found.squares = np.einsum("ij,j->i", np.square(apart, out=apart), weight)
            found.low, found.high = columns.min(axis=1), columns.max(axis=1)
        return found

    def merge(self, other: "ColumnMoments") -> None:
        """Add the moments of other rows."""
        if not self.weight:
            vars(self).update(vars(other))  # arrays are never changed in place
        elif other.weight:
            total, apart = self.weight + other.weight, other.mean - self.mean
            self.mean = self.mean + apart * (other.weight / total)
            with np.errstate(over="ignore"):  # `encoding` rejects these values
                self.squares = self.squares + other.squares + apart**2 * (self.weight * other.weight / total)
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
            self.weight = total

    def encoding(self) -> InputEncoding:
        """Standardisation by these rows; a constant column gets scale 1."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        size[size == 0] = 1.0
        std = np.sqrt(self.squares / self.weight)
        if not np.isfinite(std).all():
            raise InvalidInput("a column holds values too large to be squared; divide it by a constant first.")
        is_constant = std / size <= 1e-12 * np.maximum(np.abs(self.mean) / size, 1e-12)
        mean = np.where(is_constant, np.where(self.low == self.high, self.low, self.mean), self.mean)
        limit = np.full(len(mean), INPUT_LIMIT)
        return InputEncoding(mean, np.where(is_constant | (std == 0), 1.0, std), None, -limit, limit)


@dataclass
class LabelTotals:
    """Rows and weight of each label."""

    rows: Counter[object] = field(default_factory=Counter)
    weight: Counter[object] = field(default_factory=Counter)

    @classmethod
    def of(cls, labels: LabelArray, weight: Array) -> "LabelTotals":
        """The totals of some rows."""
        at, kinds = pd.factorize(labels, use_na_sentinel=False)
        totals = (np.bincount(at, one).tolist() for one in (None, weight))
        return cls(*(Counter(dict(zip(kinds.tolist(), one, strict=True))) for one in totals))

    def merge(self, other: "LabelTotals") -> None:
        """Add the totals of other rows."""
        self.rows.update(other.rows)
        self.weight.update(other.weight)
        if len(self.rows) > _MOST_CLASSES:
            message = f"the target must hold classes, at most {_MOST_CLASSES} of them: got {len(self.rows)} values"
            raise InvalidInput(f"{message}; is it a number to be predicted?")

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.rows.total()

    def weights(self, classes: LabelArray) -> Array:
        """Weight of each class, (K,)."""
        return np.array([self.weight[label] for label in classes.tolist()], dtype=np.float64)


@dataclass
class StreamStatistics:
    """Results of a first pass over the rows; those of parts of the rows can be merged."""

    names: tuple[str, ...]  # names of the columns
    validation_fraction: float = 0.0  # of rows that `held_out` holds out with this seed
    seed: int = 0
    totals: LabelTotals = field(default_factory=LabelTotals)  # of all rows
    train_totals: LabelTotals = field(default_factory=LabelTotals)  # of those that are not held out
    moments: ColumnMoments = field(init=False)  # column moments of the rows that are not held out
    is_weighted: bool = False  # whether a sample weight differs from 1

    def __post_init__(self) -> None:
        self.moments = ColumnMoments(len(self.names))

    def add(self, chunk: Chunk) -> None:
        """Add a chunk, or reject it with an error."""
        chunk.check(self.names)
        self.is_weighted |= bool((chunk.weight != 1.0).any())
        totals = LabelTotals.of(chunk.labels, chunk.weight)
        self.totals.merge(totals)
        if self.validation_fraction:
            chunk = chunk[~held_out(chunk.X, self.validation_fraction, self.seed)]
            totals = LabelTotals.of(chunk.labels, chunk.weight)
        if len(chunk):
            self.train_totals.merge(totals)
            self.moments.merge(ColumnMoments.of(chunk.X, chunk.weight))

    def merge(self, other: "StreamStatistics") -> None:
        """Add the statistics of other rows."""
        self.totals.merge(other.totals)
        self.train_totals.merge(other.train_totals)
        self.moments.merge(other.moments)
        self.is_weighted |= other.is_weighted

    def digest(self) -> str:
        """A text that differs for other rows."""
        return repr((self.totals, [self.moments.mean.tobytes(), self.moments.squares.tobytes()]))

    def classes(self) -> LabelArray:
        """The labels, sorted."""
        if not self.totals.rows:
            raise InvalidInput("the source holds no rows.")
        return check_classes(np.array(list(self.totals.rows)))


def survey_source(rows: RowSource, validation_fraction: float, seed: int) -> StreamStatistics:
    """Counts and moments of all rows, which are all checked on the way."""
    parts: list[StreamStatistics] = []

    def use(chunks: Iterator[Chunk]) -> None:
        part: StreamStatistics | None = None
        for chunk in read_ahead(chunks):  # the names of batches are known from the first one on
            part = part or StreamStatistics(rows.names, validation_fraction, seed)
            part.add(chunk)
        parts.extend([] if part is None else [part])

    rows.each_part(use)
    whole = StreamStatistics(rows.names, validation_fraction, seed)
    for part in parts:
        whole.merge(part)
    return whole


def survey_part(part: ArrowSource, validation_fraction: float, seed: int) -> StreamStatistics | CrcenError:
    """Counts and moments of some files, or why they cannot be used: a value, since Ray would try an error again."""
    try:
        return survey_source(part, validation_fraction, seed)
    except CrcenError as error:
        return error
