"""Rows of Parquet files and Arrow datasets, read a little at a time."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.extras import need
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput
from crcen.scale.chunks import Chunk, Stretch, plan_blocks, reading_order
from crcen.tables.locations import paths_of
from crcen.tables.parquet import index_columns, kind_of, record_batches

__all__ = ["ArrowSource", "labels_of", "numbers_of"]

# Pieces that are open at a time: at most so many, and not more than fit. An open one holds about two pages a column, of
# a megabyte each unless the piece is small.
_WAYS = 8
_OPEN_BYTES = 2e8
_COLUMN_BYTES = 2.2e6


@dataclass(frozen=True)
class _Piece:
    """A row group of a file, or a whole fragment that has none."""

    file: int
    fragment: Any
    n_rows: int
    n_bytes: int = 0


@dataclass(frozen=True)
class _File:
    """A file and how it looked when it was opened; both numbers are 0 for what is no file."""

    name: str
    fragment: Any
    size: int = 0
    changed: int = 0


class ArrowSource:
    """Rows of a list of files, by row group.

    Parameters
    ----------
    source
        A path, folder or pattern, a list of paths, or a `pyarrow.dataset.Dataset`.
    target, weight
        Names of the columns of labels and of sample weights.
    features
        Names of the columns to learn from; ``None`` for all others.
    skip_bad_files
        Leave out files that cannot be read or whose columns differ, with a warning, instead of refusing.
    only_numbers
        Refuse other features than numbers, which chunks cannot hold; `record_batches` can.
    """

    _batch_rows = 8192  # decoded at a time

    def __init__(
        self,
        source: Any,
        target: str,
        weight: str | None = None,
        features: Sequence[str] | None = None,
        *,
        skip_bad_files: bool = False,
        only_numbers: bool = True,
    ) -> None:
        need("pyarrow.dataset", "tables")
        self._target, self._weight, self._skips = target, weight, skip_bad_files
        self._only_numbers = only_numbers
        self._schema: Any = None
        files = self._listed(source)
        self._features: tuple[str, ...] = tuple(features) if features is not None else ()
        self._kinds: dict[str, tuple[str, str]] = {}  # column → (kind, where it was first seen)
        self._files: list[_File] = []
        self._pieces: list[_Piece] = []
        self._each(files, self._add)

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
    def fingerprint(self) -> str:
        """A text that differs for other files or columns; folders may be moved."""
        about = [(Path(f.name).name, f.size) for f in self._files], [p.n_rows for p in self._pieces]
        return hashlib.sha256(repr((about, self._features, self._target, self._weight)).encode()).hexdigest()

    # -- opening -------------------------------------------------------------------------------------------------------

    def _listed(self, source: Any) -> list[tuple[str, Callable[[], Any]]]:
        """Names of files, each with what opens it."""
        import pyarrow.dataset as ds
        import pyarrow.fs as fs

        if isinstance(source, ds.Dataset):
            if getattr(source, "_scan_options", None):
                raise InvalidInput("a filtered Arrow dataset cannot be streamed: write the rows to files of their own.")
            self._schema = source.schema
            fragments = list(source.get_fragments())
            return [(getattr(f, "path", f"fragment {i}"), lambda f=f: f) for i, f in enumerate(fragments)]  # type: ignore[misc]
        files = paths_of(source)[0]
        remote = files[0][2]
        form = ds.ParquetFileFormat()
        system = fs.LocalFileSystem() if remote is None else fs.PyFileSystem(fs.FSSpecHandler(remote))
        return [(name, lambda path=path: form.make_fragment(path, system)) for name, path, _ in files]  # type: ignore[misc]

    def _each(self, items: Sequence[tuple[str, Any]], use: Callable[[str, Any], None]) -> None:
        """Use every file; leave the bad ones out if that was asked for."""
        skipped = []
        for name, item in items:
            try:
                use(name, item)
            except CrcenError as error:
                if not self._skips:
                    raise
                skipped.append(str(error))
        if skipped:
            said = " ".join(skipped[:3]) + (" …" if len(skipped) > 3 else "")
            if len(skipped) == len(items):
                raise DataUnavailable(f"none of the {len(items)} files can be used: {said}")
            warnings.warn(f"{len(skipped)} of {len(items)} files left out: {said}", UserWarning, stacklevel=5)

    def _add(self, name: str, open_fragment: Callable[[], Any]) -> None:
        with _naming(name):
            fragment = open_fragment()
            schema = self._schema or fragment.physical_schema
            is_parquet = hasattr(fragment, "split_by_row_group")
            parts = fragment.split_by_row_group() if is_parquet else [fragment]
            groups = [part.row_groups[0] for part in parts] if is_parquet else []
            sizes = [(g.num_rows, g.total_byte_size) for g in groups] if is_parquet else [(fragment.count_rows(), 0)]
        self._check_columns(name, schema)
        number = len(self._files)
        self._files.append(_File(name, fragment, *_look(fragment)))
        self._pieces += [_Piece(number, part, *size) for part, size in zip(parts, sizes, strict=True)]

    def _check_columns(self, name: str, schema: Any) -> None:
        wanted = [self._target, *([self._weight] if self._weight else [])]
        if not self._features:
            left_out = [column for column in index_columns(schema) if column not in wanted]
            if left_out:
                message = (
                    f"{', '.join(left_out)} of {name} was the index of a pandas data frame and is left out; "
                    f"features=[…] chooses columns."
                )
                warnings.warn(message, UserWarning, stacklevel=6)
            self._features = tuple(column for column in schema.names if column not in {*wanted, *left_out})
        if not self._features:
            raise InvalidInput(f"{name} holds no column but {', '.join(wanted)}: there is nothing to learn from.")
        for column in (*wanted, *self._features):
            if column not in schema.names:
                listed = ", ".join(schema.names[:8]) + (", …" if len(schema.names) > 8 else "")
                raise InvalidInput(f"{name} has no column {column!r}; it has {listed}.")
            kind, written = kind_of(schema.field(column).type), str(schema.field(column).type)
            if kind == "null" and not self._only_numbers:
                continue  # a file in which every cell of the column is missing
            first_kind, first_seen = self._kinds.setdefault(column, (kind, f"{written} in {name}"))
            if kind != first_kind:
                raise InvalidInput(f"column {column!r} is {written} in {name}, but {first_seen}; write both alike.")
            if self._only_numbers and kind != "number" and column != self._target:
                raise InvalidInput(
                    f"column {column!r} of {name} is {written}, not a number; crcen.fit_files takes mixed columns, or "
                    f"leave the column out."
                )

    # -- reading -------------------------------------------------------------------------------------------------------

    def survey(self, use: Callable[[Iterator[Chunk]], Callable[[], None]]) -> None:
        """Read all files in order.

        ``use`` takes the chunks of one file and returns what to do with what it found, which is done only if the file
        could be read to its end. A bad file is refused, or left out from here on.
        """
        self.try_files(lambda number: use(self._file_chunks(number))())

    def try_files(self, read: Callable[[int], None]) -> None:
        """Call ``read`` for the number of every file; one at which it raises is refused, or left out from here on."""
        kept: list[int] = []

        def try_one(name: str, number: int) -> None:
            read(number)
            kept.append(number)

        self._each([(file.name, number) for number, file in enumerate(self._files)], try_one)
        if len(kept) < len(self._files):
            self._take_files(self, kept)

    def part(self, numbers: Sequence[int]) -> "ArrowSource":
        """Some of the files, as they were when this source was opened; a bad one is refused. It can be pickled."""
        made = copy(self)
        made._skips = False
        self._take_files(made, numbers)
        return made

    def choose(self, features: Sequence[str]) -> "ArrowSource":
        """The same rows with some of the features."""
        made = copy(self)
        made._features = tuple(features)
        return made

    def _take_files(self, into: "ArrowSource", numbers: Sequence[int]) -> None:
        place = {old: new for new, old in enumerate(numbers)}
        pieces, files = self._pieces, self._files
        into._pieces = [replace(p, file=place[p.file]) for p in pieces if p.file in place]
        into._files = [files[number] for number in numbers]

    def check_unchanged(self) -> None:
        """Refuse if a file is gone or another than it was."""
        for file in self._files:
            with _naming(file.name):
                _check_file(file)

    def kind(self, column: str) -> str:
        """What `kind_of` says of a column."""
        return self._kinds.get(column, ("null", ""))[0]

    def file_name(self, number: int) -> str:
        """The name of a file."""
        return self._files[number].name

    def record_batches(self, number: int) -> Iterator[Any]:
        """Rows of a file as Arrow has them: features, target and weight."""
        for piece in self._pieces:
            if piece.file == number:
                yield from self._batches(piece)

    def _batches(self, piece: _Piece) -> Iterator[Any]:
        file = self._files[piece.file]
        columns = [*self._features, self._target, *([self._weight] if self._weight else [])]
        with _naming(file.name):
            _check_file(file)
            yield from record_batches(piece.fragment, columns, self._schema, self._batch_rows)

    def _file_chunks(self, number: int) -> Iterator[Chunk]:
        for piece in self._pieces:
            if piece.file == number:
                yield from self._piece_chunks(piece, 0)

    def blocks(
        self, block_rows: int, seed: int | None = None, epoch: int = 0, start: int = 0
    ) -> Iterator[Iterable[Chunk]]:
        """The blocks of an epoch from block ``start`` on, the same for the same arguments."""
        sizes = [piece.n_rows for piece in self._pieces]
        plan = plan_blocks(
            sizes, reading_order(len(sizes), seed, epoch), block_rows, 1 if seed is None else self._ways()
        )
        readers: dict[int, _Reader] = {}
        for block in plan[start:]:
            chunks = (part for stretch in block for part in self._stretch(stretch, readers))
            yield chunks
            for _ in chunks:  # readers stand where the next block begins, even if nobody wanted these
                pass

    def _ways(self) -> int:
        """Row groups that are mixed with each other."""
        largest = max((piece.n_bytes for piece in self._pieces), default=0)
        held = min(largest, _COLUMN_BYTES * (len(self._features) + 1))
        return max(2, min(_WAYS, int(_OPEN_BYTES / held))) if held else _WAYS

    def _stretch(self, stretch: Stretch, readers: "dict[int, _Reader]") -> Iterator[Chunk]:
        piece = self._pieces[stretch.piece]
        if stretch.piece not in readers:
            readers[stretch.piece] = _Reader(self._piece_chunks(piece, stretch.start))
        missing = stretch.stop - stretch.start
        for chunk in readers[stretch.piece].take(missing):
            missing -= len(chunk)
            yield chunk
        if missing:
            raise DataUnavailable(f"{self._files[piece.file].name} ended before its last row; was it changed?")
        if stretch.stop == piece.n_rows:
            del readers[stretch.piece]

    def _piece_chunks(self, piece: _Piece, skip: int) -> Iterator[Chunk]:
        """Chunks of a piece without its first ``skip`` rows."""
        name = self._files[piece.file].name
        with _naming(name):
            for batch in self._batches(piece):
                if skip >= batch.num_rows:
                    skip -= batch.num_rows
                    continue
                yield self._chunk(batch.slice(skip), name)
                skip = 0

    def _chunk(self, batch: Any, name: str) -> Chunk:
        n = batch.num_rows
        X = np.empty((n, len(self._features)), order="F")
        for j, column in enumerate(self._features):
            X[:, j] = numbers_of(batch.column(column))
        weight = numbers_of(batch.column(self._weight)).astype(np.float64) if self._weight else np.ones(n)
        return Chunk(X, labels_of(batch.column(self._target), self._target, name), weight, name)


class _Reader:
    """Takes chunks apart into stretches of any length."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks, self._rest = chunks, None

    _rest: Chunk | None

    def take(self, n_rows: int) -> Iterator[Chunk]:
        """The next rows, or fewer at the end."""
        while n_rows:
            chunk = self._rest if self._rest is not None else next(self._chunks, None)
            self._rest = None
            if chunk is None:
                return
            if len(chunk) > n_rows:
                self._rest = Chunk(chunk.X[n_rows:], chunk.labels[n_rows:], chunk.weight[n_rows:], chunk.origin)
                chunk = Chunk(chunk.X[:n_rows], chunk.labels[:n_rows], chunk.weight[:n_rows], chunk.origin)
            n_rows -= len(chunk)
            yield chunk


def _look(fragment: Any) -> tuple[int, int]:
    """Size and time of the last change of a fragment's file."""
    if not hasattr(fragment, "path"):
        return 0, 0
    info = fragment.filesystem.get_file_info(fragment.path)
    if info.size is None:
        raise FileNotFoundError(fragment.path)
    return info.size, info.mtime_ns or 0


def _check_file(file: _File) -> None:
    if _look(file.fragment) != (file.size, file.changed):
        raise DataUnavailable(f"{file.name} was changed while it was in use: start again from the beginning.")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Errors of the reader as errors of ours that name the file."""
    try:
        yield
    except CrcenError:
        raise
    except FileNotFoundError as error:
        raise DataUnavailable(f"{name} is not there (any more): put it back and start again.") from error
    except (OSError, ValueError, TypeError, NotImplementedError) as error:  # pyarrow's own errors are among these
        said = " ".join(str(error).split())[:160]
        raise DataUnavailable(f"{name} cannot be read: {said}") from error


def numbers_of(column: Any) -> NDArray[Any]:
    """Numbers and truth values; NaN where one is missing."""
    import pyarrow as pa

    if pa.types.is_boolean(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column.cast(pa.int8())
    numbers: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return numbers


def labels_of(column: Any, target: str, name: str) -> NDArray[Any]:
    """Labels as they stand; a missing one is refused."""
    import pyarrow as pa

    if column.null_count:
        raise InvalidInput(
            f"column {target!r} of {name} has {column.null_count} missing labels; drop those rows first."
        )
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return np.asarray(column.to_numpy(zero_copy_only=False))
