"""Parquet files, also in folders with Hive partitions and on remote file systems, read a little at a time."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from crcen._support.lazy import ds, pa, pq
from crcen.exceptions import InvalidInput
from crcen.tables.columns import is_nameless_index
from crcen.tables.locations import DataFile, Part
from crcen.tables.options import ReadOptions
from crcen.tables.typing import Dataset, Field, FileSystem, Fragment, RecordBatch, Schema

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
    from pyarrow import fs

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
