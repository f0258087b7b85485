"""Tables of mixed columns from CSV, TSV, Parquet and Excel files, whole or in chunks of constant memory."""

from __future__ import annotations

import io
import os
import shutil
import stat
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from crcen._support.extras import need
from crcen.exceptions import DataUnavailable, InvalidInput
from crcen.tables.excel import ENDINGS as EXCEL
from crcen.tables.excel import Workbook, open_workbook
from crcen.tables.text_format import TextFormat, detect_format

__all__ = ["CHUNK_ROWS", "COMPRESSIONS", "TableFile", "format_of_name", "is_pipe", "open_table", "without_blanks"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

# A name's last ending, and what pyarrow calls the compression.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_TEXT, _PARQUET = (".csv", ".tsv", ".tab", ".txt"), (".parquet", ".pq")
CHUNK_ROWS = 50_000
# What pandas takes for a missing value anyway, and what UCI's files write.
_MISSING = ["?"]


def format_of_name(path: Path) -> tuple[str, str | None]:
    """A file's format and compression by its name, such as ``(".csv", "gzip")``."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    rest = suffixes[:-1] if compression else suffixes
    return (rest[-1] if rest else ""), compression


@contextmanager
def _one_sentence(path: str) -> Iterator[None]:
    """Errors of the readers as errors of ours, in one sentence."""
    import pandas as pd
    import pyarrow as pa

    try:
        yield
    except (DataUnavailable, InvalidInput):
        raise
    except (pd.errors.ParserError, pd.errors.ParserWarning) as error:
        said = " ".join(str(error).split()).removeprefix("Error tokenizing data. C error: ")
        raise InvalidInput(f"{path} cannot be read as a table: {said}; repair that line.") from error
    except pa.ArrowException as error:
        said = " ".join(str(error).split())[:160]
        raise DataUnavailable(f"{path} is truncated or altered, or no Parquet file: {said.rstrip('.')}.") from error
    except (EOFError, UnicodeError) as error:
        raise DataUnavailable(f"{path} is truncated or altered: {error}.") from error
    except OSError as error:
        why = error.strerror or " ".join(str(error).split())[:160]
        raise DataUnavailable(f"{path} cannot be read: {why}; it may be truncated or altered.") from error
    except (ValueError, OverflowError, TypeError) as error:  # of a reader that met values beyond its types
        said = " ".join(str(error).split())[:160]
        raise InvalidInput(f"{path} holds values that cannot be read: {said}; repair or remove them.") from error


@dataclass(frozen=True)
class TableFile:
    """A table on disk, looked at but not read.

    Parameters
    ----------
    path : Path
        Where it is.
    columns : tuple of str
        Its column names.
    n_rows : int or None
        Rows.
    compression : {"gzip", "zstd", None}
        Of the whole file.
    text : TextFormat or None
        How a text table is written; ``None`` for Parquet.
    came_from : str
        What it was read from where that is no file: standard input, or the name of a pipe.
    spooled : object
        The temporary file that holds such a table, deleted when nobody needs it any more.
    workbook : Workbook or None
        The rows of an Excel file, which is read whole.
    """

    path: Path
    columns: tuple[str, ...]
    n_rows: int | None
    compression: str | None = None
    text: TextFormat | None = None
    came_from: str = ""
    spooled: Any = field(default=None, repr=False, compare=False)
    workbook: Workbook | None = field(default=None, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What to call it in a few words."""
        return self.came_from or self.path.name

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how it is read."""
        if self.workbook is not None:
            return self.workbook.notes
        if self.text is None:
            return ()
        said = []
        if self.text.encoding == "latin-1":
            said.append(f"{self.name} is not UTF-8 throughout and was read as Latin-1")
        if self.text.decimal == ",":
            said.append(f"{self.name} was read with decimal commas")
        return tuple(said)

    def read(self) -> DataFrame:
        """The whole table; columns of a text table are strings as they stand there, missing values apart."""
        import pandas as pd

        chunks = list(self.chunks(CHUNK_ROWS * 10))
        return pd.concat(chunks, ignore_index=True) if len(chunks) > 1 else chunks[0]

    def chunks(self, n_rows: int = CHUNK_ROWS) -> Iterator[DataFrame]:
        """The table in pieces of at most ``n_rows`` rows, in order; at least one, which may be empty."""
        if self.workbook is not None:
            yield from map(without_blanks, self.workbook.chunks(n_rows))
            return
        with _one_sentence(self.came_from or str(self.path)):
            found = self._parquet(n_rows) if self.text is None else self._text(self.text, n_rows)
            yield from map(without_blanks, found)

    def _text(self, text: TextFormat, n_rows: int) -> Iterator[DataFrame]:
        import pandas as pd

        with _opened(self.path, self.compression) as file:
            reader = pd.read_csv(
                io.TextIOWrapper(file, encoding=text.encoding, newline=""),
                sep=text.separator,
                names=list(text.columns),
                header=0,
                index_col=False,
                # Strings: a chunk of 001, 002 must not become numbers where another holds A17.
                dtype=str,
                na_values=_MISSING,
                chunksize=n_rows,
                low_memory=False,  # else pandas cuts a chunk again and joins its columns one by one
            )
            while (chunk := _next_chunk(reader)) is not None:
                yield _with_points(chunk, text) if text.decimal == "," else chunk

    def n_cells_of(self, column: str, word: str) -> int:
        """In how many cells of a text table's column a word stands, also one that is read as missing; 0 for others."""
        import pandas as pd

        if self.text is None:
            return 0
        with _one_sentence(self.came_from or str(self.path)), _opened(self.path, self.compression) as file:
            reader = pd.read_csv(
                io.TextIOWrapper(file, encoding=self.text.encoding, newline=""),
                sep=self.text.separator,
                names=list(self.text.columns),
                header=0,
                index_col=False,
                usecols=[column],
                dtype=str,
                keep_default_na=False,
                chunksize=CHUNK_ROWS,
            )
            return sum(int((chunk[column] == word).sum()) for chunk in reader)

    def _parquet(self, n_rows: int) -> Iterator[DataFrame]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        with _seekable(self.path, self.compression) as file, pq.ParquetFile(file) as parquet:
            is_empty = True
            for batch in parquet.iter_batches(batch_size=n_rows):
                is_empty = False
                batch.validate(full=True)  # text that is no UTF-8 is met here, not in the middle of a fit
                # Dates as numbers: Python's dates end with the year 9999.
                yield pa.Table.from_batches([batch]).to_pandas(ignore_metadata=True, date_as_object=False)
            if is_empty:
                yield parquet.schema_arrow.empty_table().to_pandas(ignore_metadata=True)


def _with_points(chunk: DataFrame, text: TextFormat) -> DataFrame:
    """Plain numbers with a decimal point and without groups; cells that hold anything else stay."""
    for name in chunk.columns:
        cells = chunk[name]
        if text.thousands:
            is_grouped = cells.str.fullmatch(r"\s*[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?\s*").fillna(False).astype(bool)
            cells = cells.mask(is_grouped, cells.str.replace(text.thousands, "", regex=False))
        chunk[name] = cells.str.replace(r"^\s*([+-]?\d+),(\d+)\s*$", r"\1.\2", regex=True)
    return chunk


def _next_chunk(reader: Any) -> DataFrame | None:
    """The next rows of a text file; what pandas only warns of is an error here, since values would be lost."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        return next(reader, None)


def open_table(path: str | Path) -> TableFile:
    """Look at a CSV, TSV, Parquet or Excel file: what its columns are and how it is written.

    Parameters
    ----------
    path : str or Path
        The file; text and Parquet also in gzip or zstd, of a workbook the first sheet. Encoding (UTF-8, UTF-16, else
        Latin-1), separator (comma, semicolon, tabulator, bar) and decimal mark of a text table are found out; its
        first line holds the column names. A pipe, or ``-`` for standard input, is copied to a private temporary file
        first, since a table is looked at before it is read.

    Returns
    -------
    TableFile
        To be read whole or in chunks.

    Raises
    ------
    DataUnavailable
        If the file is missing, empty, a folder, closed to this user, truncated or altered.
    InvalidInput
        If it is no table, or column names are missing or double.
    MissingExtra
        If pandas or pyarrow is not installed.
    """
    path, came_from, spooled = Path(path), "", None
    for module in ("pandas", "pyarrow"):
        need(module, "tables")
    if is_pipe(path):
        came_from = "standard input" if str(path) in ("-", "/dev/stdin") else str(path)
        spooled = _spooled(path, came_from)
    name = came_from or str(path)
    place = path if spooled is None else Path(spooled.name)
    first = _first_bytes(place, name)
    suffix, _ = format_of_name(path)
    if suffix in EXCEL and spooled is None:
        workbook = open_workbook(path)
        return TableFile(path, workbook.columns, len(workbook.frame), workbook=workbook)
    compression = next((kind for start, kind in _COMPRESSED.items() if first.startswith(start)), None)
    if suffix and suffix not in _TEXT + _PARQUET and spooled is None:
        raise InvalidInput(
            f"{path} must be a table: got the ending {suffix}; .csv, .tsv, .txt and .parquet can be read, each also "
            f"with .gz or .zst behind it, and .xlsx."
        )
    with _one_sentence(name):
        if suffix in _PARQUET or first == b"PAR1":
            columns, n_rows = _parquet_columns(place, name, compression)
            return TableFile(place, columns, n_rows, compression, None, came_from, spooled)
        with _opened(place, compression) as file:
            text = detect_format(file, name, suffix)
    return TableFile(place, text.columns, text.n_rows, compression, text, came_from, spooled)


def is_pipe(path: str | Path) -> bool:
    """Whether a path is read once and never again: ``-``, a named pipe, a socket, a terminal."""
    if str(path) == "-":
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and str(path) == "/dev/stdin")


def _spooled(path: Path, name: str) -> Any:
    """What comes out of a pipe, in a temporary file that nobody else may read."""
    copy = tempfile.NamedTemporaryFile(prefix="crcen-")  # noqa: SIM115 - its TableFile closes it
    try:
        if str(path) == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(path, "rb") as file:
                shutil.copyfileobj(file, copy)
        copy.flush()
    except OSError as error:
        copy.close()
        raise DataUnavailable(f"{name} cannot be read or kept: {error.strerror}; save it to a file first.") from error
    return copy


def _first_bytes(path: Path, name: str) -> bytes:
    try:
        if stat.S_ISCHR(os.stat(path).st_mode):
            raise DataUnavailable(f"{name} is a device; give a CSV, TSV or Parquet file.")
        with open(path, "rb") as file:
            first = file.read(4)
    except DataUnavailable:
        raise
    except FileNotFoundError as error:
        raise DataUnavailable(f"{name} is not there; check the name.") from error
    except IsADirectoryError as error:
        raise DataUnavailable(f"{name} is a folder; give a CSV, TSV or Parquet file.") from error
    except PermissionError as error:
        raise DataUnavailable(f"{name} cannot be read: no permission; ask its owner.") from error
    except (OSError, ValueError) as error:  # a zero byte in the name is a ValueError
        raise DataUnavailable(f"{name!r} cannot be read: {getattr(error, 'strerror', None) or error}.") from error
    if not first:
        raise DataUnavailable(f"{name} is empty; a table needs a line of column names and rows under it.")
    return first


def _parquet_columns(path: Path, name: str, compression: str | None) -> tuple[tuple[str, ...], int]:
    import pyarrow.parquet as pq

    with _seekable(path, compression) as file, pq.ParquetFile(file) as parquet:
        columns = tuple(parquet.schema_arrow.names)
        twice = sorted(column for column, count in Counter(columns).items() if count > 1)
        if twice:
            raise InvalidInput(f"columns must have names of their own: {', '.join(twice[:5])} is twice in {name}.")
        return columns, parquet.metadata.num_rows


@contextmanager
def _opened(path: Path, compression: str | None) -> Iterator[BinaryIO]:
    """The bytes of a file, without the compression around them."""
    import pyarrow as pa

    with open(path, "rb") as plain:
        if compression is None:
            yield plain
        else:
            with pa.CompressedInputStream(plain, compression) as stream:
                yield stream


@contextmanager
def _seekable(path: Path, compression: str | None) -> Iterator[BinaryIO]:
    """The same where a reader jumps about: what is compressed as a whole goes through a temporary file."""
    with _opened(path, compression) as file:
        if compression is None:
            yield file
            return
        with tempfile.TemporaryFile() as unpacked:
            shutil.copyfileobj(file, unpacked)
            unpacked.seek(0)
            yield unpacked


def without_blanks(frame: DataFrame) -> DataFrame:
    """The table with missing cells in place of empty strings and of cells that hold nothing but spaces."""
    import pandas as pd

    found: dict[str, Any] = {}
    for name, cells in frame.items():
        is_category = isinstance(cells.dtype, pd.CategoricalDtype)
        texts = pd.Series(cells.cat.categories) if is_category else cells
        if isinstance(texts.dtype, pd.StringDtype):
            is_blank = (texts.str.strip() == "").fillna(False).astype(bool)
        elif texts.dtype == object:
            is_blank = texts.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool)
        else:
            continue
        if is_blank.any():
            found[name] = cells.cat.remove_categories(texts[is_blank]) if is_category else cells.mask(is_blank)
    if not found:
        return frame
    return pd.DataFrame({name: found.get(name, cells) for name, cells in frame.items()}, index=frame.index)
