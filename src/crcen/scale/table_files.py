"""Mixed tables in files of any size: Parquet, CSV and TSV as data frames, a few thousand rows at a time."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.scale.arrow_columns import index_columns
from crcen.scale.arrow_source import ArrowSource
from crcen.tables.reading import TableFile, format_of_name, open_table, without_blanks

__all__ = ["TableFiles", "open_files"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

_TEXT = (".csv", ".tsv", ".tab", ".txt")
_TEXT_ROWS = 20_000


class TableFiles(ABC):
    """Tables with the same columns, one after the other.

    ``columns`` are all of the first file's, in order; ``index`` those of them that were the index of a pandas data
    frame; ``nested`` those that hold lists or records; ``categories`` those that their file declares to be categories.
    """

    columns: tuple[str, ...]
    index: tuple[str, ...] = ()
    nested: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    is_parquet = False
    n_rows: int | None = None

    @property
    @abstractmethod
    def n_files(self) -> int:
        """How many files there are."""

    @abstractmethod
    def name(self, number: int) -> str:
        """The name of a file."""

    @abstractmethod
    def frames(self, number: int, columns: Sequence[str]) -> Iterator[DataFrame]:
        """Rows of a file, in order."""

    @abstractmethod
    def are_numbers(self, columns: Sequence[str]) -> bool:
        """Whether these columns are numbers or truth values by the account of every file."""


def open_files(source: str | Path, target: str) -> TableFiles:
    """The files that a path, a folder or a pattern with ``*`` names: all Parquet, or all CSV and TSV.

    Raises
    ------
    DataUnavailable
        If there is none, or one cannot be read.
    InvalidInput
        If both kinds are there, or columns differ.
    InvalidParameter
        If the target is no column.
    """
    path = Path(source)
    if path.is_dir():
        found = [
            file for file in sorted(path.rglob("*"), key=str) if file.is_file() and not file.name.startswith((".", "_"))
        ]
        found = [file for file in found if format_of_name(file)[0] in (".parquet", ".pq", *_TEXT)]
    elif path.is_file():
        found = [path]
    else:
        found = [Path(name) for name in sorted(glob(str(source), recursive=True)) if Path(name).is_file()]
    if not found:
        raise DataUnavailable(
            f"no Parquet or CSV file at {str(source)!r}: give a file, a folder of them, or a pattern such as "
            f"'days/*.csv'."
        )
    text = [file for file in found if _is_text(file)]
    if text and len(text) < len(found):
        raise InvalidInput(
            f"{source} names {len(text)} text and {len(found) - len(text)} Parquet files: give those of one kind, by a "
            f"pattern such as 'days/*.parquet'."
        )
    files: TableFiles = _TextFiles(found) if text else _ParquetFiles(found, target)
    if target not in files.columns:
        listed = ", ".join(files.columns[:12])
        raise InvalidParameter(f"{files.name(0)} has no column {target!r}; it has {listed}.")
    return files


def _is_text(path: Path) -> bool:
    """Whether it is to be read as text: by its name, else by its first bytes."""
    suffix, compression = format_of_name(path)
    if suffix in _TEXT:
        return True
    try:
        with path.open("rb") as file:
            return not suffix and compression is None and file.read(4) != b"PAR1"
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error


class _ParquetFiles(TableFiles):
    is_parquet = True

    def __init__(self, paths: Sequence[Path], target: str) -> None:
        import pyarrow as pa

        pq = need("pyarrow.parquet", "tables")
        try:
            schema = pq.read_schema(paths[0])
        except (OSError, ValueError) as error:
            raise DataUnavailable(
                f"{paths[0]} cannot be read as Parquet: {' '.join(str(error).split())[:160]}"
            ) from error
        self.columns = tuple(schema.names)
        if target not in self.columns:
            listed = ", ".join(self.columns[:12])
            raise InvalidParameter(f"{paths[0]} has no column {target!r}; it has {listed}.")
        self.index = tuple(index_columns(schema))
        self.nested = tuple(f.name for f in schema if pa.types.is_nested(f.type) and f.name != target)
        self.categories = tuple(f.name for f in schema if pa.types.is_dictionary(f.type) and f.name != target)
        left_out = {target, *self.nested}
        self._paths, self._target = [str(path) for path in paths], target
        self._source = self._opened([name for name in self.columns if name not in left_out])
        self.n_rows = self._source.n_rows

    def _opened(self, features: Sequence[str]) -> ArrowSource:
        return ArrowSource(self._paths, self._target, features=features, only_numbers=False)

    @property
    def n_files(self) -> int:
        return self._source.n_files

    def name(self, number: int) -> str:
        return self._source.file_name(number)

    def frames(self, number: int, columns: Sequence[str]) -> Iterator[DataFrame]:
        import pyarrow as pa

        part = self._source.part([number]).choose([name for name in columns if name != self._target])
        for batch in part.record_batches(0):
            decoded = [
                column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
                for column in batch.columns
            ]
            rows = pa.RecordBatch.from_arrays(decoded, names=batch.schema.names)
            yield without_blanks(rows.to_pandas(date_as_object=False))

    def are_numbers(self, columns: Sequence[str]) -> bool:
        return all(self._source.kind(name) == "number" for name in columns)


class _TextFiles(TableFiles):
    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: list[TableFile] = [open_table(path) for path in paths]
        self._seen = [_looks(file.path) for file in self._files]
        self.columns = self._files[0].columns
        counts = [file.n_rows for file in self._files]
        self.n_rows = sum(n for n in counts if n is not None) if None not in counts else None
        for file in self._files[1:]:
            absent = [name for name in self.columns if name not in file.columns]
            if absent:
                raise InvalidInput(
                    f"{file.path} lacks the column {', '.join(absent[:5])} of {self._files[0].path}; all files must "
                    f"have the same columns."
                )

    @property
    def n_files(self) -> int:
        return len(self._files)

    def name(self, number: int) -> str:
        return str(self._files[number].path)

    def frames(self, number: int, columns: Sequence[str]) -> Iterator[DataFrame]:
        file = self._files[number]
        if _looks(file.path) != self._seen[number]:
            raise DataUnavailable(f"{file.path} was changed while it was in use: start again from the beginning.")
        for chunk in file.chunks(_TEXT_ROWS):
            yield chunk[list(columns)]

    def are_numbers(self, columns: Sequence[str]) -> bool:
        return False


def _looks(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError as error:
        raise DataUnavailable(f"{path} is not there (any more): put it back and start again.") from error
    return found.st_size, found.st_mtime_ns
