"""ReadOptions: how a table is read, the same in every command."""

import codecs
import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crcen._support.lazy import pd
from crcen._support.text import closest, listed
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.tables.cells import ORDERS, as_text, iso_dates
from crcen.tables.typing import DataFrame, Series

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
        Excel sheet, by name or number from 1; default the first visible one.
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
        Values that stand for a missing cell, in all columns or in one; also "-200,999" and "column=-1".
    dates : {"day-first", "month-first"}, optional
        Order of dates such as 03/04/2024; columns with several date formats are then read as dates.
    rename_duplicates : bool, default=False
        Rename a second column ``x`` to ``x_2`` instead of refusing the table.

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
            raise InvalidParameter("query and table both say what to read: give one of them.", parameter="query")

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
        """What a model must know to read new tables alike; empty if nothing was stated."""
        stated = {"missing": {name: list(values) for name, values in self.missing.items()}, "dates": self.dates}
        return {name: value for name, value in stated.items() if value}

    def unique_names(self, names: Sequence[str], where: str) -> tuple[str, ...]:
        """Column names without duplicates: renamed if asked for, else refused."""
        twice = sorted(name for name, count in Counter(names).items() if count > 1)
        if not twice:
            return tuple(names)
        if not self.rename_duplicates:
            message = f"duplicate column name in {where}: {listed(twice, 5)}; rename one, or use rename_duplicates=."
            raise InvalidInput(message, parameter="rename_duplicates")
        found: list[str] = []
        for name in names:
            free = (f"{name}_{number}" for number in itertools.count(2))
            is_new = name not in found
            found.append(name if is_new else next(one for one in free if one not in found and one not in names))
        return tuple(found)

    def check_columns(self, columns: Iterable[str], where: str) -> None:
        """Reject missing values of a column that is not there."""
        columns = list(columns)
        for name in sorted(self.missing.keys() - {"", *columns}):
            close = closest(name, columns)
            meant = f"did you mean {close}?" if close else f"it has {listed(columns)}."
            raise InvalidInput(f"missing must name a column of {where}: got {name!r}; {meant}", parameter="missing")

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
