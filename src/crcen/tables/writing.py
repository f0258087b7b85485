"""Write a table to CSV, TSV, Parquet, Excel or a database in chunks; it appears when all of them are in it."""

import io
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crcen._support.files import atomic_file, is_device
from crcen._support.lazy import pa, pd, pq
from crcen.exceptions import InvalidParameter
from crcen.tables.databases import DatabaseTable, is_database
from crcen.tables.excel import SheetWriter
from crcen.tables.locations import format_of_name, masked
from crcen.theory.rows import DataFrame

_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")
_SEPARATORS = {".csv": ",", ".tsv": "\t", ".tab": "\t"}


def neutralised(frame: DataFrame) -> DataFrame:
    """Put an apostrophe before texts and names, but not numbers, that a spreadsheet would interpret as formulas."""

    def safe(cell: object) -> object:
        is_formula = isinstance(cell, str) and cell.startswith(_FORMULA) and pd.isna(pd.to_numeric(cell, "coerce"))
        return f"'{cell}" if is_formula else cell

    kept = (pd.api.types.is_numeric_dtype, pd.api.types.is_datetime64_any_dtype, pd.api.types.is_timedelta64_dtype)
    columns = [
        column if any(is_kind(column.dtype) for is_kind in kept) else column.astype(object).map(safe)
        for _, column in frame.items()
    ]
    return pd.concat(columns, axis=1).set_axis([safe(name) for name in frame.columns], axis=1)


class TableWriter:
    """Write a table in a ``with`` block: .csv, .tsv, .parquet, .xlsx, a device, or a table of a database.

    Text may end in .gz or .zst. ``safe_csv`` neutralises formulas; ``append`` adds to a table of a database.
    """

    def __init__(self, path: str | Path, *, safe_csv: bool = False, append: bool = False) -> None:
        self._is_safe, self._has_header, self._open = safe_csv, False, ExitStack()
        self._binary: Any = None
        self._file: Any = None  # a text file, or a writer once the columns are known
        self._table = DatabaseTable(str(path), append=append) if is_database(path) else None
        if self._table is not None:  # a temporary file first, so that the database is not locked meanwhile
            self._suffix, self._compression = ".parquet", None
            return
        self.path = Path(path)
        if append:
            message = f"append is for tables of databases, and {self.path.name!r} is a file: leave it out."
            raise InvalidParameter(message, parameter="append")
        name = Path("stream.csv") if is_device(self.path) else self.path  # /dev/stdout has no ending
        self._suffix, self._compression = format_of_name(name)
        if self._suffix in _SEPARATORS:
            return
        if self._suffix not in (".parquet", ".pq", ".xlsx") or self._compression:
            allowed = ".csv, .tsv, .parquet or .xlsx, text also with .gz or .zst"
            raise InvalidParameter(f"a table is written to {allowed}: got {self.path.name!r}.")
        if safe_csv:
            message = f"safe_csv is for text tables, and {self.path.name!r} has no formulas: leave it out."
            raise InvalidParameter(message, parameter="safe_csv")

    def __enter__(self) -> "TableWriter":
        if self._table is not None:
            self._binary = self._open.enter_context(tempfile.NamedTemporaryFile(prefix="crcen-", suffix=".parquet"))
            return self
        with ExitStack() as opened:  # closed in the other order: first the text, then the bytes, then the rename
            binary: Any = opened.enter_context(atomic_file(self.path))
            if self._compression:
                binary = opened.enter_context(pa.CompressedOutputStream(binary, self._compression))
            self._binary = binary
            if self._suffix in _SEPARATORS:
                self._file = opened.enter_context(io.TextIOWrapper(binary, encoding="utf-8", newline=""))
            elif self._suffix == ".xlsx":
                self._file = SheetWriter(binary, self.path.name)
            self._open = opened.pop_all()
        return self

    def write(self, chunk: DataFrame) -> None:
        """Append rows; every chunk has the columns of the first."""
        if self._suffix in _SEPARATORS:
            chunk = neutralised(chunk) if self._is_safe else chunk
            chunk.to_csv(self._file, sep=_SEPARATORS[self._suffix], index=False, header=not self._has_header)
            self._has_header = True
            return
        if isinstance(self._file, SheetWriter):
            self._file.write(chunk)
            return
        if self._file is None:
            found = pa.Schema.from_pandas(chunk, preserve_index=False).remove_metadata()
            # A column without a value so far is treated as text: later chunks may have some.
            schema = pa.schema([one.with_type(pa.string()) if pa.types.is_null(one.type) else one for one in found])
            self._file = self._open.enter_context(pq.ParquetWriter(self._binary, schema))
        self._file.write_table(pa.Table.from_pandas(chunk, schema=self._file.schema, preserve_index=False))

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> bool | None:
        if kind is not None:
            if isinstance(self._file, SheetWriter):
                self._file.discard()
            return self._open.__exit__(kind, *details)
        with self._open:  # also if the database rejects the rows
            if self._file is not None and self._table is not None:
                self._file.close()
                self._binary.flush()
                self._table.store(self._binary.name)
            elif isinstance(self._file, SheetWriter):
                self._file.close()
        return None


def written_to(out: str | Path | None) -> Path | str | None:
    """The sentence of a result on where it was written."""
    return out if out is None else masked(str(out)) if is_database(out) else Path(out)
