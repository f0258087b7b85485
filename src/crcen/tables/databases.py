"""Tables in PostgreSQL, SQLite and DuckDB, read in Arrow batches and written in one transaction.

Passwords come from the environment (PGPASSWORD), a password file or a service file of libpq. A URL with a password is
refused, so that none is in a shell history, a log or a saved model.
"""

import os
import re
import sqlite3
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from crcen._support.extras import need
from crcen._support.lazy import pa, pq
from crcen._support.text import listed
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.locations import Part, ReadOptions, masked
from crcen.theory.rows import ArrowArray, Cell, Connection, Field, ParquetFile, RecordBatch, Schema

Result = TypeVar("Result")

_SYSTEMS = {"postgresql": "postgresql", "postgres": "postgresql", "sqlite": "sqlite", "duckdb": "duckdb"}
_ROWS = 50_000


def is_database(data: object) -> bool:
    """Whether this is the address of a database."""
    return isinstance(data, str) and "://" in data and data.partition("://")[0].lower() in _SYSTEMS


class _Address:
    """Where a database is: ``system``, the ``path`` of a file or the ``url`` of a server, and a table in it."""

    def __init__(self, given: str) -> None:
        self.url, _, table = given.partition("#")
        self.name, self.table, parts = masked(self.url), unquote(table), urlsplit(self.url)
        if parts.password is not None or re.search(r"[?&](password|passfile_password)=", self.url):
            message = f"{self.name} contains a password: leave it out, and set PGPASSWORD or use a service file."
            raise InvalidParameter(message)
        self.system = _SYSTEMS[parts.scheme.lower()]
        self.path = "" if self.system == "postgresql" else unquote(parts.path.removeprefix("/"))
        if self.system != "postgresql" and parts.netloc:
            right = f"{self.system}:///{parts.netloc}{parts.path}"
            raise InvalidParameter(f"{self.url} must have three slashes before a path ({right}), four if absolute.")

    @cached_property
    def driver(self) -> Any:
        packages = {"postgresql": "adbc_driver_postgresql.dbapi", "duckdb": "duckdb"}
        return sqlite3 if self.system == "sqlite" else need(packages[self.system], "databases")


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(table: str) -> str:
    return ".".join(map(_quoted_name, table.split(".")))


def open_database(url: str, options: ReadOptions) -> "QueryPart":
    """The result of a query, or a table, of a database."""
    address = _Address(url)
    if address.path and address.path != ":memory:" and not os.path.exists(address.path):
        raise DataUnavailable(f"{address.path} does not exist; check the name.")
    parts: dict[str, Callable[..., QueryPart]] = {"postgresql": _Postgres, "sqlite": _SQLite, "duckdb": _DuckDB}
    return parts[address.system](address, options, "" if options.query else options.table or address.table)


def _reason(error: BaseException) -> str:
    reason = " ".join(str(error).split())
    stated = re.search(r"(?:ERROR|FATAL): +(.*?)(?: \.?LINE \d+:| Query was:| ?\. SQLSTATE|$)", reason)  # of PostgreSQL
    reason = stated[1] if stated else reason
    secret = os.environ.get("PGPASSWORD")
    return masked(reason.replace(secret, "***") if secret else reason)[:300].rstrip(". ")


class QueryPart(Part):
    """The result of a query, read in batches; the same in every pass."""

    kind = "database"
    _list_tables: str

    def __init__(self, address: _Address, options: ReadOptions, table: str) -> None:
        super().__init__(f"{table} of {address.name}" if table else f"the query on {address.name}")
        self._address = address
        if not table and not options.query:
            names = self._guarded(self._tables)
            message = f"choose what to read from {address.name} by table= or query=; it has {listed(names)}."
            raise InvalidParameter(message, parameter=("table", "query"))
        self._query = (options.query or f"select * from {_quoted(table)}").strip().rstrip(";")
        self.schema = self._guarded(self._opened)
        self.columns = options.unique_names(self.schema.names, self.name)
        _check_types(self.schema, self.columns, self.name)

    def _guarded(self, call: Callable[[], Result]) -> Result:
        """The result of a call; errors of the database become one sentence without secrets."""
        try:
            return call()
        except self._address.driver.Error as error:
            raise DataUnavailable(f"{self.name} cannot be read: {_reason(error)}.") from error

    def _tables(self) -> list[str]:
        with closing(self._connect()) as connection, closing(connection.cursor()) as cursor:
            cursor.execute(self._list_tables)
            return [str(row[0]) for row in cursor.fetchall()]

    @abstractmethod
    def _connect(self) -> Connection:
        """A new connection that only reads."""

    @abstractmethod
    def _opened(self) -> Schema:
        """Arrow's schema of the result."""

    @abstractmethod
    def _read(self) -> Iterator[RecordBatch]:
        """The result of the query."""

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
        """Rows in the order in which the database gives them."""
        found = self._read()
        while (batch := self._guarded(lambda: next(found, None))) is not None:
            arrays = [_plain(one, field) for one, field in zip(batch.columns, batch.schema, strict=True)]
            rows = pa.RecordBatch.from_arrays(arrays, names=list(self.columns))
            yield rows if columns is None else rows.select(list(columns))


def _check_types(schema: Schema, columns: Sequence[str], name: str) -> None:
    odd = (pa.types.is_nested, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_interval)
    for field, column in zip(schema, columns, strict=True):
        kind = getattr(field.type, "storage_type", field.type)
        stated = (field.metadata or {}).get(b"POSTGRESQL:type", b"").decode() or str(field.type)
        if stated == "money" or any(is_kind(kind) for is_kind in odd):
            what = "an array" if pa.types.is_list(kind) or pa.types.is_large_list(kind) else stated
            raise InvalidInput(f"column {column} of {name} holds {what}, not single values: leave it out or cast it.")


def _plain(cells: ArrowArray, field: Field) -> ArrowArray:
    """A column without the types of one database: numeric and decimal as float64, other extensions as text."""
    if str(field.type).startswith("extension<arrow.uuid"):
        return pa.array([None if one is None else str(one) for one in cells.to_pylist()], pa.string())
    is_numeric = (field.metadata or {}).get(b"ADBC:postgresql:typname") == b"numeric"
    cells = cells.storage if hasattr(cells, "storage") else cells
    return cells.cast(pa.float64()) if is_numeric or pa.types.is_decimal(cells.type) else cells


class _Postgres(QueryPart):
    """One read-only transaction that sees one state of the database in every pass."""

    _list_tables = (
        "select case when table_schema = 'public' then table_name else table_schema || '.' || table_name end "
        "from information_schema.tables where table_schema not in ('pg_catalog', 'information_schema') order by 1"
    )

    def _connect(self) -> Connection:
        connection = self._address.driver.connect(self._address.url, autocommit=True)
        with connection.cursor() as cursor:
            cursor.execute("set synchronize_seqscans = off")  # rows in the same order in every pass
            cursor.execute("begin transaction isolation level repeatable read, read only")
        return connection

    def _opened(self) -> Schema:
        self._connection = self._connect()
        with self._connection.cursor() as cursor:
            return cursor.adbc_execute_schema(self._query)

    def _read(self) -> Iterator[RecordBatch]:
        with self._connection.cursor() as cursor:
            cursor.execute(self._query)
            yield from cursor.fetch_record_batch()

    def __del__(self) -> None:
        if "_connection" in vars(self):
            self._connection.close()


class _SQLite(QueryPart):
    """The standard library's driver, which takes values of any type in a column."""

    _list_tables = "select name from sqlite_master where type in ('table', 'view') order by name"

    def _connect(self) -> sqlite3.Connection:
        place = Path(self._address.path).absolute().as_uri()
        return sqlite3.connect(f"{place}?mode=ro", uri=True, isolation_level=None)

    def _opened(self) -> Schema:
        self._connection = self._connect()
        names = [one[0] for one in self._connection.execute(self._query).description]
        # A column has the type of all its values: text if one is, else real if one is.
        order = "when 'integer' then 1 when 'real' then 2 when 'text' then 3 when 'blob' then 4"
        inner = [f"c{place}" for place in range(len(names))]
        ask = ", ".join(f"max(case typeof({name}) {order} end)" for name in inner)
        with_names = f"with q({', '.join(inner)}) as ({self._query}) select count(*), {ask} from q"
        self.n_rows, *kinds = self._connection.execute(with_names).fetchone()
        self._version = self._changes()
        types = [pa.null(), pa.int64(), pa.float64(), pa.string(), pa.binary()]
        return pa.schema([pa.field(name, types[kind or 0]) for name, kind in zip(names, kinds, strict=True)])

    def _changes(self) -> int:
        return int(self._connection.execute("pragma data_version").fetchone()[0])

    def _read(self) -> Iterator[RecordBatch]:
        cursor = self._connection.execute(self._query)
        if self._changes() != self._version:
            raise DataUnavailable(f"{self.name} was changed while it was in use: start again.")
        while rows := cursor.fetchmany(_ROWS):
            arrays = []
            for field, cells in zip(self.schema, zip(*rows, strict=True), strict=True):
                is_text = pa.types.is_string(field.type)
                values = [None if cell is None else str(cell) for cell in cells] if is_text else cells
                arrays.append(pa.array(values, field.type))
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)


class _DuckDB(QueryPart):
    """A file, or queries over Parquet and CSV files in a database in memory."""

    _list_tables = "show tables"

    def _connect(self) -> Connection:
        path = self._address.path or ":memory:"
        connection = self._address.driver.connect(path, read_only=path != ":memory:")
        connection.execute("set enable_progress_bar = false")
        return connection

    def _opened(self) -> Schema:
        with closing(self._connect()) as connection:
            found = connection.extract_statements(self._query)
            if len(found) != 1 or "SELECT" not in str(found[0].type):
                message = f"query must be one select statement: got {self._query[:80]!r}."
                raise InvalidParameter(message, parameter="query")
            self._stamp = self._look()
            return connection.sql(self._query).to_arrow_reader(_ROWS).schema

    def _look(self) -> list[int]:
        path = self._address.path
        return [os.stat(one).st_mtime_ns for one in (path, f"{path}.wal") if path and os.path.exists(one)]

    def _read(self) -> Iterator[RecordBatch]:
        with closing(self._connect()) as connection:
            if self._look() != self._stamp:
                raise DataUnavailable(f"{self.name} was changed while it was in use: start again.")
            yield from connection.sql(self._query).to_arrow_reader(_ROWS)


class DatabaseTable:
    """A table of a database to be written, ``sqlite:///scores.db#scores``; new, unless rows are appended."""

    def __init__(self, url: str, *, append: bool) -> None:
        self._address, self._append = _Address(url), append
        path, table = self._address.path, self._address.table
        if not table:
            raise InvalidParameter(f"{masked(url)} must name the table to write after #, as in {masked(url)}#scores.")
        self.name = f"{table} of {self._address.name}"
        if path and not Path(path).absolute().parent.is_dir():
            raise DataUnavailable(f"{path} cannot be written: its folder does not exist; create it first.")
        is_there = (not path or os.path.exists(path)) and self._run(self._is_there)
        if is_there != append:
            message = "exists and is not replaced: use append=, or another name."
            absent = "does not exist, so nothing can be appended to it: leave append= out."
            raise InvalidParameter(f"{self.name} {absent if append else message}", parameter="append")

    def _run(self, work: Callable[[Connection], Result]) -> Result:
        address = self._address
        options: dict[str, Any] = {"isolation_level": None} if address.system == "sqlite" else {}
        if address.system == "duckdb":
            options["read_only"] = work == self._is_there
        try:
            with closing(address.driver.connect(address.path or address.url, **options)) as connection:
                return work(connection)
        except address.driver.Error as error:
            raise DataUnavailable(f"{self.name} was not written: {_reason(error)}.") from error

    def _is_there(self, connection: Connection) -> bool:
        try:
            with closing(connection.cursor()) as cursor:
                cursor.execute(f"select * from {_quoted(self._address.table)} limit 0")
        except Exception as error:  # each driver has its own
            if re.search(r"no such table|does not exist", str(error)):
                return False
            raise
        return True

    def store(self, rows: str) -> None:
        """Write the rows of a Parquet file in one transaction."""
        store = getattr(self, f"_to_{self._address.system}")
        with pq.ParquetFile(rows) as file:
            self._run(lambda connection: store(connection, file, rows))

    def _to_postgresql(self, connection: Connection, file: ParquetFile, rows: str) -> None:
        *schema, table = self._address.table.split(".")
        with closing(connection.cursor()) as cursor:
            reader = pa.RecordBatchReader.from_batches(file.schema_arrow, file.iter_batches(_ROWS))
            how = {"db_schema_name": schema[0]} if schema else {}
            cursor.adbc_ingest(table, reader, mode="append" if self._append else "create", **how)
        connection.commit()

    def _to_sqlite(self, connection: sqlite3.Connection, file: ParquetFile, rows: str) -> None:
        def declared(field: Field) -> str:
            is_whole = pa.types.is_integer(field.type) or pa.types.is_boolean(field.type)
            kind = "integer" if is_whole else "real" if pa.types.is_floating(field.type) else "text"
            return f"{_quoted_name(field.name)} {kind}"

        def storable(cell: Cell) -> Cell:
            return cell if cell is None or isinstance(cell, bool | int | float | str) else str(cell)

        table, fields = _quoted(self._address.table), list(file.schema_arrow)
        connection.execute("begin immediate")
        if not self._append:
            connection.execute(f"create table {table} ({', '.join(map(declared, fields))})")
        names = ", ".join(_quoted_name(field.name) for field in fields)
        insert = f"insert into {table} ({names}) values ({', '.join('?' * len(fields))})"
        for batch in file.iter_batches(_ROWS):
            cells = [map(storable, column.to_pylist()) for column in batch.columns]
            connection.executemany(insert, zip(*cells, strict=True))
        connection.execute("commit")

    def _to_duckdb(self, connection: Connection, file: ParquetFile, rows: str) -> None:
        table, source = _quoted(self._address.table), "read_parquet('" + rows.replace("'", "''") + "')"
        how = f"insert into {table} by name" if self._append else f"create table {table} as"
        for statement in ("begin", f"{how} from {source}", "commit"):
            connection.execute(statement)
