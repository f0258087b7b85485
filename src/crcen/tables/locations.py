"""Where the parts of a table are, and how they are read."""

import codecs
import itertools
import os
import re
import shutil
import stat
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from glob import glob, has_magic
from pathlib import Path
from typing import IO, Any, BinaryIO

from crcen._support.lazy import pa, pd
from crcen._support.text import closest, listed
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.cells import ORDERS, as_text, iso_dates
from crcen.theory.rows import DataFrame, FileSystem, RecordBatch, Schema, Series

# A name's last ending, and what pyarrow calls the compression.
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
_ENDINGS = (".csv", ".tsv", ".tab", ".txt", ".dat", ".parquet", ".pq", ".xlsx", ".xlsm", ".xls", ".ods")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_SECRET = re.compile(r"(?<=://)([^/@\s:]*):([^@\s]*)@|((?:password|passwd|secret|token|key)=)[^&\s#]+", re.IGNORECASE)


def is_url(data: object) -> bool:
    """Whether this is an address such as ``s3://bucket/key``."""
    return isinstance(data, str) and _URL.match(data) is not None


def masked(text: str) -> str:
    """A text with the passwords of its URLs replaced by ***."""
    return _SECRET.sub(lambda found: f"{found[3]}***" if found[3] else f"{found[1]}:***@", text)


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Errors of readers as errors of crcen, in one sentence."""
    try:
        yield
    except CrcenError:
        raise
    except FileNotFoundError as error:
        raise DataUnavailable(f"{name} does not exist; check the name.") from error
    except PermissionError as error:
        raise DataUnavailable(f"{name} cannot be read: no permission; ask its owner.") from error
    except (OSError, pa.ArrowException, EOFError, UnicodeError) as error:
        raise DataUnavailable(f"{name} cannot be read: {_reason(error)}; it may be truncated or altered.") from error
    except (ValueError, OverflowError, TypeError, NotImplementedError) as error:  # values beyond a reader's types
        message = f"{name} holds values that cannot be read: {_reason(error)}; repair or remove them."
        raise InvalidInput(message) from error


def _reason(error: Exception) -> str:
    return masked(getattr(error, "strerror", None) or " ".join(str(error).split()))[:160].rstrip(".")


def format_of_name(path: str | Path) -> tuple[str, str | None]:
    """A file's format and compression by its name, such as ``(".csv", "gzip")``."""
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    compression = COMPRESSIONS.get(suffixes[-1]) if suffixes else None
    rest = suffixes[:-1] if compression else suffixes
    return (rest[-1] if rest else ""), compression


@dataclass(eq=False)
class DataFile:
    """A file of a table, remote if it has a ``system`` of fsspec; ``held`` is a temporary copy of a stream."""

    name: str
    path: str
    system: FileSystem = None
    held: IO[bytes] | None = None
    stamp: tuple[int, int, int] | None = None
    compression: str | None = field(default=None, init=False)
    kind: str = field(default="text", init=False)

    def __post_init__(self) -> None:
        self.suffix = format_of_name(self.name)[0]
        with reading(self.name):
            first = self._first_bytes()
            if not first:
                raise DataUnavailable(f"{self.name} is empty; a table needs a line of column names and rows under it.")
            self.compression = next((one for start, one in _COMPRESSED.items() if first.startswith(start)), None)
            if self.compression is not None:
                first = self._first_bytes()
        is_sqlite, is_duckdb = first == b"SQLite format 3\0", first[8:12] == b"DUCK" and b"\0" in first
        if database := "sqlite" if is_sqlite else "duckdb" if is_duckdb else "":
            message = f"{self.name} is a database: give {database}:///{self.path}, with table= or query=."
            raise InvalidInput(message, parameter=("table", "query"))
        is_parquet = first.startswith(b"PAR1") or self.suffix in (".parquet", ".pq")
        is_workbook = first.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0"))
        self.kind = "parquet" if is_parquet else "workbook" if is_workbook else "text"
        is_packed = self.kind != "text" and self.compression is not None
        if is_packed or (self.kind != "parquet" and self.system is not None):
            with reading(self.name), self.opened() as file:  # goes on with a private, temporary copy of the bytes
                self.held = _copied(file)
            self.path, self.system, self.compression, self.stamp = self.held.name, None, None, None

    @property
    def short(self) -> str:
        """Its name without its folder, for notes."""
        return self.name if is_url(self.name) else Path(self.name).name

    def _first_bytes(self) -> bytes:
        if self.system is None:
            self.stamp = self._look()
            if stat.S_ISCHR(os.stat(self.path).st_mode):
                raise DataUnavailable(f"{self.name} is a device; give a file.")
        with self.opened() as file:
            return bytes(file.read(16))

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Its bytes, without the compression around them."""
        with open(self.path, "rb") if self.system is None else self.system.open(self.path, "rb") as plain:
            if self.compression is None:
                yield plain
            else:
                with pa.CompressedInputStream(plain, self.compression) as stream:
                    yield stream

    def _look(self) -> tuple[int, int, int]:
        found = os.stat(self.path)
        return found.st_size, found.st_mtime_ns, found.st_ino

    def check_unchanged(self) -> None:
        """Refuse a file that is not the one that was opened."""
        try:
            is_same = self.stamp is None or self._look() == self.stamp
        except OSError:
            is_same = False
        if not is_same:
            raise DataUnavailable(f"{self.name} was changed while it was being read: start again when it is complete.")


class Part(ABC):
    """One file, query or data frame of a table; ``notes`` state how it was read, ``marks`` count missing words."""

    kind: str
    columns: tuple[str, ...]
    n_rows: int | None = None  # as far as it is known without reading
    schema: Schema = None
    sheets: Sequence[str] = ()  # of a workbook, the one that is read first

    def __init__(self, name: str, file: DataFile | None = None) -> None:
        self.name, self.file = name, file
        self.notes: list[str] = []
        self.marks: Counter[tuple[str, str]] = Counter()

    @abstractmethod
    def batches(self, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
        """Rows in order, as Arrow batches or data frames."""


def _copied(file: BinaryIO) -> IO[bytes]:
    copy = tempfile.NamedTemporaryFile(prefix="crcen-")  # noqa: SIM115 - its table closes it
    shutil.copyfileobj(file, copy)
    copy.flush()
    return copy


def files_of(data: str | Path | Sequence[str | Path]) -> tuple[list[DataFile], str]:
    """The files that a path, folder, pattern, pipe, URL or list names, in order, and the folder of their partitions."""
    is_input = isinstance(data, str | Path) and str(data) in ("-", "/dev/stdin")
    if is_input or (isinstance(data, str | Path) and os.path.exists(data) and Path(data).is_fifo()):
        name = "standard input" if is_input else str(data)
        with reading(name), nullcontext(sys.stdin.buffer) if str(data) == "-" else open(str(data), "rb") as file:
            held = _copied(file)
        return [DataFile(name, held.name, held=held)], ""
    paths, base = paths_of(data)
    return [DataFile(name, path, system) for name, path, system in paths], base


def paths_of(data: str | Path | Sequence[str | Path]) -> tuple[list[tuple[str, str, FileSystem]], str]:
    """Name, path and remote file system of the files that are named, which are not opened; and their common folder."""
    if not isinstance(data, str | Path):
        found = [file for one in data for file in paths_of(one)[0]]
        if not found:
            raise DataUnavailable("no file was given.")
        return found, os.path.commonpath([os.path.dirname(os.path.abspath(path)) for _, path, _ in found])
    if is_url(data):
        return _remote(str(data))
    path = str(data)
    if os.path.isdir(path):
        names = sorted(os.path.join(home, name) for home, _, files in os.walk(path) for name in files)
        names, base = _data_files(names, path), path
    elif has_magic(path) and not os.path.exists(path):
        names, base = sorted(name for name in glob(path, recursive=True) if os.path.isfile(name)), _fixed(path)
    else:
        names, base = [path], os.path.dirname(path)
    if not names:
        where = f"in the folder {path!r}" if os.path.isdir(path) else f"at {path!r}"
        raise DataUnavailable(f"no file {where}: give a file, a folder, or a pattern such as 'days/*.csv'.")
    return [(name, name, None) for name in names], base


def _fixed(pattern: str) -> str:
    """The folder above the first part of a pattern that is not fixed."""
    return pattern[: next(place for place, letter in enumerate(pattern) if letter in "*?[")].rpartition("/")[0]


def _data_files(names: list[str], folder: str) -> list[str]:
    """Files of a folder that hold data: not hidden, no marker such as _SUCCESS, with known endings if any has one."""
    inner = {name: Path(name[len(folder) :].lstrip("/")).parts for name in names}
    shown = [name for name in names if not any(one.startswith((".", "_")) and "=" not in one for one in inner[name])]
    return [one for one in shown if format_of_name(one)[0] in _ENDINGS] or shown


def _remote(url: str) -> tuple[list[tuple[str, str, FileSystem]], str]:
    import fsspec

    scheme, safe = url.partition("://")[0], masked(url)
    try:
        system, path = fsspec.core.url_to_fs(url)
        if has_magic(path):
            paths, base = sorted(system.glob(path)), _fixed(path)
        elif system.isdir(path):
            paths, base = _data_files(sorted(system.find(path)), path), path
        else:
            paths, base = [path], path.rpartition("/")[0]
    except (ImportError, OSError, ValueError) as error:
        raise DataUnavailable(f"{safe} cannot be read: {masked(' '.join(str(error).split()))[:160]}.") from error
    if not paths:
        raise DataUnavailable(f"no file at {safe}: give a file, a folder, or a pattern.")
    is_local = "file" in (system.protocol if isinstance(system.protocol, tuple) else (system.protocol,))
    names = [safe] if len(paths) == 1 else [f"{scheme}://{one.lstrip('/')}" for one in paths]
    return [(name, one, None if is_local else system) for name, one in zip(names, paths, strict=True)], base


# Options that apply to some kinds of tables only, by kind.
_APPLIES = {
    "workbook": ("Excel workbooks", ("sheet", "skip_rows")),
    "text": ("text files", ("skip_rows", "separator", "encoding", "decimal", "quote")),
    "database": ("databases", ("query", "table")),
}
_SEPARATORS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "bar": "|", "space": " ", "whitespace": " "}


@dataclass(frozen=True)
class ReadOptions:
    """How a table is read. None means that it is detected.

    Parameters
    ----------
    sheet : str or int, optional
        Excel sheet, by name or number from 1; default: the first visible one.
    skip_rows : int, optional
        Rows above the column names, in Excel sheets and text files.
    separator : str, optional
        Between the values of a text file: one or more characters, "tab", "space" (any number) or "fixed" (width).
    encoding : str, optional
        Of a text file, such as "utf-8" or "windows-1252".
    decimal : {".", ","}, optional
        Decimal mark of a text file.
    quote : str, optional
        Around values of a text file that contain the separator; "none" if quotes have no meaning.
    query, table : str, optional
        What to read from a database.
    missing : values, or dict of column to values
        Values that mean a missing cell, in all columns or in one; also "-200,999" and "column=-1".
    dates : {"day-first", "month-first"}, optional
        Order of dates such as 03/04/2024; columns with several date formats are then read as dates.
    rename_duplicates : bool, default=False
        Rename a second column ``x`` to ``x_2`` instead of rejecting the table.

    Examples
    --------
    >>> ReadOptions(missing="-200,age=999").missing
    {'': ('-200',), 'age': ('999',)}
    """

    sheet: str | int | None = None
    skip_rows: int | None = None
    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    quote: str | None = None
    query: str | None = None
    table: str | None = None
    missing: Any = ()
    dates: str | None = None
    rename_duplicates: bool = False

    def __post_init__(self) -> None:
        put = object.__setattr__
        put(self, "missing", _by_column(self.missing))
        if self.separator is not None:
            put(self, "separator", _SEPARATORS.get(self.separator, self.separator))
        if self.quote is not None:
            put(self, "quote", "" if self.quote == "none" else self.quote)
        for name, is_right, allowed in (
            ("skip_rows", isinstance(self.skip_rows, int) and self.skip_rows >= 0, "a whole number of at least 0"),
            ("separator", bool(self.separator) and "\n" not in str(self.separator), "one character or more"),
            ("encoding", _is_encoding(self.encoding), "an encoding, such as utf-8 or windows-1252"),
            ("decimal", self.decimal in (".", ","), "a point or a comma"),
            ("quote", len(str(self.quote)) <= 1, "one character, or none"),
            ("dates", self.dates in ORDERS, " or ".join(ORDERS)),
        ):
            value = getattr(self, name)
            if value is not None and not is_right:
                raise InvalidParameter(f"{name} must be {allowed}: got {value!r}.", parameter=name)
        if self.query is not None and self.table is not None:
            raise InvalidParameter("query and table both state what to read: give one of them.", parameter="query")

    def for_kind(self, kind: str, name: str, *, is_strict: bool) -> "ReadOptions":
        """The options for a kind of table: those that it would ignore are rejected, or left out."""
        own = _APPLIES[kind][1] if kind in _APPLIES else ()
        ignored: dict[str, Any] = {name: None for _, names in _APPLIES.values() for name in names if name not in own}
        for option in ignored:
            if is_strict and getattr(self, option) is not None:
                allowed = " and ".join(kinds for kinds, names in _APPLIES.values() if option in names)
                message = f"{option} is for {allowed}, and {name} is none of these: leave it out."
                raise InvalidParameter(message, parameter=option)
        return replace(self, **ignored)

    def with_training(self, trained: object) -> "ReadOptions":
        """The same with the missing values and the order of dates that a model was trained with, unless stated."""
        known = getattr(trained, "read_", None) or {}
        return replace(self, **{name: value for name, value in known.items() if not getattr(self, name)})

    @property
    def to_remember(self) -> dict[str, object]:
        """The options for reading new tables in the same way; empty if none were stated."""
        stated = {"missing": {name: list(values) for name, values in self.missing.items()}, "dates": self.dates}
        return {name: value for name, value in stated.items() if value}

    def unique_names(self, names: Sequence[str], where: str) -> tuple[str, ...]:
        """Column names without duplicates: renamed if requested, otherwise rejected."""
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if not twice:
            return tuple(names)
        if not self.rename_duplicates:
            message = f"duplicate column name in {where}: {listed(twice, 5)}; rename one, or use rename_duplicates=."
            if any(name.strip()[:1].isdecimal() for name in twice):
                message = f"{message[:-1]}; if the first line holds values, put a line of column names above it."
            raise InvalidInput(message, parameter="rename_duplicates")
        found: list[str] = []
        for name in names:
            free = (f"{name}_{number}" for number in itertools.count(2))
            is_new = name not in found
            found.append(name if is_new else next(one for one in free if one not in found and one not in names))
        return tuple(found)

    def check_columns(self, columns: Iterable[str], where: str) -> None:
        """Reject missing values of a column that does not exist."""
        columns = list(columns)
        for name in sorted(self.missing.keys() - {"", *columns}):
            close = closest(name, columns)
            meant = f"did you mean {close}?" if close else f"it has {listed(columns)}."
            raise InvalidParameter(f"missing must name a column of {where}: got {name!r}; {meant}", parameter="missing")

    def apply(self, frame: DataFrame) -> DataFrame:
        """Cells with the stated missing values removed and dates in ISO form."""
        if not self.missing and self.dates is None:
            return frame
        found = {}
        for name, cells in frame.items():
            values = (*self.missing.get("", ()), *self.missing.get(name, ()))
            cells = _without(cells, values) if values else cells
            found[name] = cells if self.dates is None else iso_dates(cells, self.dates)
        return frame.assign(**found)


def _without(cells: Series, values: Sequence[str]) -> Series:
    """Cells with these values missing: equal as numbers or as text."""
    numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").dropna()
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_datetime64_any_dtype(cells.dtype):
        hits = cells.astype(str).isin(values)
    elif pd.api.types.is_numeric_dtype(cells.dtype):
        hits = cells.isin(numbers)
    else:
        text = as_text(cells)
        hits = text.isin(values) | pd.to_numeric(text, errors="coerce").isin(numbers)
    hits = hits.fillna(False).astype(bool)
    return cells.mask(hits) if hits.any() else cells


def _by_column(given: object) -> dict[str, tuple[str, ...]]:
    """Missing values by column, ``""`` for all columns, from any of the accepted forms."""
    if isinstance(given, Mapping):
        pairs = [(str(name), str(one)) for name, values in given.items() for one in _listed(values)]
    else:
        parts = [part.rpartition("=") for value in _listed(given) for part in str(value).split(",")]
        pairs = [(name.strip(), text.strip()) for name, _, text in parts]
    found: dict[str, tuple[str, ...]] = {}
    for name, value in pairs:
        if value:
            found[name] = (*found.get(name, ()), value)
    return found


def _listed(values: object) -> list[object]:
    if isinstance(values, Iterable) and not isinstance(values, str):
        return list(values)
    return [] if values is None else [values]


def _is_encoding(name: str | None) -> bool:
    try:
        codecs.lookup(name or "")
    except (LookupError, ValueError):
        return False
    return True
