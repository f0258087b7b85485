"""open_table: files, folders, patterns, URLs, databases and data frames as one kind of table, whole or in chunks."""

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from crcen._support.files import free_memory
from crcen._support.lazy import ds, fs, pa, pd, pq
from crcen._support.text import listed
from crcen.exceptions import DataUnavailable, InvalidInput
from crcen.tables.columns import is_nameless_index
from crcen.tables.databases import is_database, open_database
from crcen.tables.excel import SheetPart
from crcen.tables.frames import FramePart, as_pandas, spooled, without_blanks
from crcen.tables.locations import DataFile, Part, ReadOptions, files_of, is_url, masked, reading
from crcen.tables.text import TextPart
from crcen.theory.rows import DataFrame, Dataset, Field, FileSystem, Fragment, RecordBatch, Schema, TableLike

CHUNK_ROWS = 50_000
_MEMORY_TIMES = 6  # memory over the size of the files, at least: look and fit were found to take 8 to 11 times as much


@dataclass(frozen=True, eq=False)
class Table:
    """A table that was opened, to be read any number of times: files, a query, or the data frame ``native``."""

    name: str
    columns: tuple[str, ...]
    parts: tuple[Part, ...]
    options: ReadOptions
    native: TableLike = None

    @property
    def kind(self) -> str:
        """Of its parts: "text", "parquet", "workbook", "database" or "frame"."""
        return self.parts[0].kind

    @property
    def file(self) -> DataFile | None:
        """The file, if it is one that can be read again by others."""
        file = self.parts[0].file if len(self.parts) == 1 else None
        return None if file is None or file.held is not None or file.system is not None else file

    @property
    def schema(self) -> Schema:
        """Arrow's schema, if the source states types; else None."""
        return self.parts[0].schema

    @property
    def n_rows(self) -> int | None:
        """The number of rows, if it is known without reading; for a text file its lines."""
        counts = [part.n_rows for part in self.parts if part.n_rows is not None]
        return sum(counts) if len(counts) == len(self.parts) else None

    @property
    def notes(self) -> list[str]:
        """Notes for the user on how it was read; one for all files that were read alike."""
        found: dict[tuple[str, str], list[str]] = {}
        for part in self.parts:
            for note in part.notes:
                before, name, after = note.partition(part.name if part.file is None else part.file.short)
                found.setdefault((before, after), []).append(name)
        more = ("" if len(names) == 1 else f" (and {len(names) - 1:,} more)" for names in found.values())
        return [before + names[0] + n + after for ((before, after), names), n in zip(found.items(), more, strict=True)]

    @property
    def marks(self) -> "Counter[tuple[str, str]]":
        """Cells of text files that were read as missing in the last pass, by column and word."""
        return sum((part.marks for part in self.parts), Counter())

    def read(self) -> DataFrame:
        """The whole table; cells of a text table are strings, missing values apart."""
        return next(self.chunks(sys.maxsize))

    def numbered(self) -> DataFrame:
        """The whole table, with lines of the file as the index, or row numbers if rows are not lines."""
        size = sum(one.file.stamp[0] for one in self.parts if one.file is not None and one.file.stamp is not None) / 1e6
        needed, free = _MEMORY_TIMES * size, free_memory() / 1e6
        if needed > free:
            sizes = f"has {size:,.0f} MB and needs {needed:,.0f} MB of memory, of which {free:,.0f} MB are free"
            raise DataUnavailable(f"{self.name} {sizes}: use crcen fit --engine stream, or fewer rows.")
        frame, part = self.read(), self.parts[0]
        line = part.first_line(len(frame)) if isinstance(part, TextPart) and len(self.parts) == 1 else None
        first, name = (1, "row") if line is None else (line, "line")
        return frame.set_axis(pd.RangeIndex(first, first + len(frame), name=name), axis=0)

    def chunks(
        self, n_rows: int = CHUNK_ROWS, columns: Sequence[str] | None = None, part: int | None = None
    ) -> Iterator[DataFrame]:
        """Pieces of at most ``n_rows`` rows, in order; at least one, which may be empty."""
        parts = self.parts if part is None else self.parts[part : part + 1]
        batches = (batch for one in parts for batch in self._batches(one, columns))
        is_empty = True
        for frame in _sized(batches, n_rows):
            # Text files have no blank cells: their parts make them missing.
            yield self.options.apply(frame if self.kind == "text" else without_blanks(frame))
            is_empty = False
        if is_empty:
            yield self._empty(list(self.columns if columns is None else columns))

    def _empty(self, columns: list[str]) -> DataFrame:
        part = self.parts[0]
        if isinstance(part, FramePart):
            return part.frame[columns]
        kinds = {} if self.schema is None else dict(zip(self.columns, self.schema.types, strict=True))
        return as_pandas(pa.schema([(name, kinds.get(name, pa.string())) for name in columns]).empty_table())

    def _batches(self, part: Part, columns: Sequence[str] | None) -> Iterator[RecordBatch]:
        """Rows of a part, whose file must be the same in every pass."""

        def check() -> None:
            if part.file is not None:
                part.file.check_unchanged()

        if columns is None and part.columns != self.columns:
            columns = self.columns
        with reading(part.name):
            check()
            try:
                yield from part.batches(columns)
            except Exception:
                check()  # what went wrong may come of that
                raise
            check()


def _sized(batches: Iterator[RecordBatch], n_rows: int) -> Iterator[DataFrame]:
    """Batches joined or cut to ``n_rows`` rows, as data frames; none without rows."""

    def cut(batch: RecordBatch, start: int, stop: int) -> RecordBatch:
        return batch.slice(start, stop - start) if hasattr(batch, "slice") else batch.iloc[start:stop]

    waiting: list[RecordBatch] = []
    room = n_rows
    for batch in batches:
        while len(batch) >= room:
            yield _joined([*waiting, cut(batch, 0, room)])
            batch, waiting, room = cut(batch, room, len(batch)), [], n_rows
        if len(batch):
            waiting.append(batch)
            room -= len(batch)
    if waiting:
        yield _joined(waiting)


def _joined(batches: list[RecordBatch]) -> DataFrame:
    if isinstance(batches[0], pd.DataFrame):
        return batches[0] if len(batches) == 1 else pd.concat(batches, ignore_index=True)
    return as_pandas(pa.concat_tables([pa.table(one) for one in batches], promote_options="permissive"))


def open_table(data: TableLike, read: ReadOptions | None = None, *, is_strict: bool = True) -> Table:
    """Open a table: find its columns and how it is written.

    Parameters
    ----------
    data : str, Path, list of them, or data frame
        A file of any name: text in any encoding with any separator, Parquet, or Excel (.xlsx, .xlsm, .xls, .ods), also
        compressed; a folder of such files, with Hive partitions; a pattern such as ``'days/*.csv'``; ``-`` or a pipe,
        which is copied to a private temporary file first; a URL that fsspec supports, such as ``s3://bucket/key``; a
        database, ``postgresql://host/name``, ``sqlite:///file.db`` or ``duckdb:///file.duckdb``; or a data frame of
        pandas, polars (also lazy) or pyarrow.
    read : ReadOptions, optional
        What is not to be detected.
    is_strict : bool, default=True
        Whether options that this kind of table would ignore are errors.

    Raises
    ------
    DataUnavailable
        If it is missing, empty, closed to this user, truncated or altered.
    InvalidInput
        If it is no table, or column names are missing or duplicate.
    InvalidParameter
        If an option does not apply.
    MissingExtra
        If a package is not installed.
    """
    if isinstance(data, Table):
        return data
    options, name = ReadOptions() if read is None else read, "the data frame"
    if is_database(data):
        name = masked(str(data))
        options = options.for_kind("database", name, is_strict=is_strict)
        with reading(name):
            return _table([open_database(data, options)], options)
    is_list = isinstance(data, list | tuple) and bool(data) and all(isinstance(one, str | Path) for one in data)
    is_paths = isinstance(data, str | Path) or is_list
    held, native = (None, None) if is_paths else (spooled(data), data)
    if not is_paths and held is None:
        options = options.for_kind("frame", name, is_strict=is_strict)
        return _table([FramePart(data, options)], options, native)
    files, base = files_of(data) if held is None else ([DataFile(name, held.name, held=held)], "")
    name = files[0].name if len(files) == 1 else "the list of files" if is_list else masked(str(data))
    kinds = Counter(file.kind for file in files)
    if len(kinds) > 1:
        counts = " and ".join(f"{n} {kind}" for kind, n in kinds.items())
        raise InvalidInput(f"{name} names {counts} files: give those of one kind, by a pattern such as 'days/*.csv'.")
    options = options.for_kind(files[0].kind, name, is_strict=is_strict)
    with reading(name):
        if files[0].kind == "parquet":
            parts: Sequence[Part] = parquet_parts(files, base, options)
        else:
            part = SheetPart if files[0].kind == "workbook" else TextPart
            parts = [part(file, options) for file in files]
    return _table(parts, options, native, name)


def _table(parts: Sequence[Part], options: ReadOptions, native: TableLike = None, name: str = "") -> Table:
    first = parts[0]
    if len(parts) == 1:
        name = first.name if is_url(first.name) else Path(first.name).name if first.name[-1] != "/" else first.name
    options.check_columns(first.columns, name)
    extra: dict[str, str] = {}  # column that the first file lacks → the first file that has it
    for part in parts[1:]:
        absent = [column for column in first.columns if column not in part.columns]
        own = [column for column in part.columns if column not in first.columns]
        if absent:
            lacks = f"lacks the column{'s' * (len(absent) > 1)} {listed(absent, 5)} of {first.name}"
            instead = f" and has {listed(own, 5)} instead" if own else ""
            raise InvalidInput(f"{part.name} {lacks}{instead}; all files need the same columns.")
        extra = dict.fromkeys(own, part.name) | extra
    if extra:
        found = listed((f"{column} (in {where})" for column, where in extra.items()), 5)
        first.notes.append(f"columns that {first.name} lacks are left out: {found}")
    return Table(name, first.columns, tuple(parts), options, native)


STREAM_BYTES = 2**16  # buffer of a column that is read
_BATCH_ROWS = 50_000


class ParquetPart(Part):
    """A Parquet file, as a fragment of an Arrow dataset."""

    kind = "parquet"

    def __init__(self, file: DataFile, fragment: Fragment, schema: Schema, options: ReadOptions) -> None:
        super().__init__(file.name, file)
        self.fragment, self.schema = fragment, schema
        self.columns = options.unique_names(schema.names, file.name)
        self.n_rows = fragment.metadata.num_rows

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
        """Rows as Arrow batches."""
        wanted = list(self.columns if columns is None else columns)
        is_renamed = self.columns != tuple(self.schema.names)
        read = None if is_renamed else wanted
        for batch in record_batches(self.fragment, read, self.schema, _BATCH_ROWS, use_threads=True):
            batch.validate(full=True)  # text that is no UTF-8 is met here, not in the middle of a fit
            yield batch.rename_columns(list(self.columns)).select(wanted) if is_renamed else batch


def parquet_parts(files: Sequence[DataFile], base: str, options: ReadOptions) -> list[ParquetPart]:
    """The files of a table, whose columns must be of the same kinds; names of folders such as year=2024 are columns."""
    where = arrow_system(files[0].system)
    inner = [str(file.path)[len(base) :].lstrip("/") if base else str(file.path) for file in files]
    if any("=" in folder for path in inner for folder in Path(path).parts[:-1]):
        how = {"partitioning": "hive", "partition_base_dir": base or None}
        dataset = ds.dataset([file.path for file in files], format="parquet", filesystem=where, **how)
        by_path = {fragment.path: fragment for fragment in dataset.get_fragments()}
        fragments = [by_path[file.path] for file in files]
        partitions = [field for field in dataset.schema if field.name not in fragments[0].physical_schema.names]
    else:
        fragments = [ds.ParquetFileFormat().make_fragment(str(file.path), where) for file in files]
        partitions = []
    parts = []
    first: dict[str, tuple[str, str]] = {}  # kind of each column, and where it was found
    for file, fragment in zip(files, fragments, strict=True):
        schema = pa.schema([*fragment.physical_schema, *partitions], fragment.physical_schema.metadata)
        parts.append(ParquetPart(file, fragment, schema, options))
        for name, field in zip(parts[-1].columns, schema, strict=True):
            if (kind := kind_of(field.type)) != "null":  # every cell of the column is missing in this file
                check_kind(first, name, kind, str(field.type), file.name)
    return parts


def arrow_system(system: FileSystem) -> FileSystem:
    """A file system of fsspec, or the local one for None, as Arrow's."""
    return fs.LocalFileSystem() if system is None else fs.PyFileSystem(fs.FSSpecHandler(system))


def check_kind(first: dict[str, tuple[str, str]], column: str, kind: str, arrow_type: str, where: str) -> None:
    """Refuse a column of another kind than in the files before; ``first`` remembers each column's kind."""
    known, seen = first.setdefault(column, (kind, f"{arrow_type} in {where}"))
    if kind != known:
        raise InvalidInput(f"column {column!r} is {arrow_type} in {where}, but {seen}; write both alike.")


def dataset_of(parts: Sequence[Part]) -> Dataset:
    """The files of a table as an Arrow dataset."""
    fragments = [part.fragment for part in parts if isinstance(part, ParquetPart)]
    return ds.FileSystemDataset(fragments, parts[0].schema, ds.ParquetFileFormat(), fragments[0].filesystem)


def record_batches(
    fragment: Fragment, columns: list[str] | None, schema: Schema, n_rows: int, *, use_threads: bool = False
) -> Iterator[RecordBatch]:
    """Rows of a fragment, at most this number at a time.

    The Parquet reader decodes less at a time than a scan of a dataset; that is for other formats and partitions.
    """
    is_parquet = hasattr(fragment, "row_groups")
    if is_parquet and (columns is None or set(columns) <= set(fragment.physical_schema.names)):
        how = {"metadata": fragment.metadata, "buffer_size": STREAM_BYTES, "page_checksum_verification": True}
        with pq.ParquetFile(fragment.path, filesystem=fragment.filesystem, pre_buffer=False, **how) as file:
            groups = [group.id for group in fragment.row_groups]
            yield from file.iter_batches(n_rows, row_groups=groups, columns=columns, use_threads=use_threads)
    else:
        options = {"batch_size": n_rows, "batch_readahead": 0, "fragment_readahead": 0, "use_threads": use_threads}
        yield from fragment.to_batches(schema=schema, columns=columns, **options)


def index_columns(schema: Schema) -> list[str]:
    """Columns that were the index of a pandas data frame, by its metadata or their names."""
    try:
        found = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    except (ValueError, AttributeError):  # metadata of another program
        found = []
    named = {name for name in found if isinstance(name, str)}
    return [name for name in schema.names if name in named or is_nameless_index(name)]


def kind_of(arrow_type: Field) -> str:
    """``"number"`` (truth values too), ``"text"`` (categories of it too), ``"date"``, or Arrow's own name."""
    numbers = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    if any(is_kind(arrow_type) for is_kind in numbers):
        return "number"
    value = arrow_type.value_type if pa.types.is_dictionary(arrow_type) else arrow_type
    if pa.types.is_date(value) or pa.types.is_timestamp(value):
        return "date"
    return "text" if pa.types.is_string(value) or pa.types.is_large_string(value) else str(value)
