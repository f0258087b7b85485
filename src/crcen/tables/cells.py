"""Cells of a table as text, numbers and dates: each column is converted once."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sized
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import pa, pc, pd
from crcen.tables import notation
from crcen.tables.frames import as_frame
from crcen.tables.notation import MIXED, NumberReading, as_text, finite, parse_mixed
from crcen.tables.typing import Array, ArrowArray, Bools, DataFrame, Index, Series, TableLike

_DAY = 86_400.0
_NUMBER = r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$"
# Words that dates may hold: letters of ISO 8601 and of clocks, endings of ordinals, months and days.
_DATE_WORD = re.compile(
    r"[tzhmsdwap]|am|pm|st|nd|rd|th|of|the|at|utc|gmt"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?|mon(day)?|tue(s(day)?)?|wed(nesday)?|thu(rs?(day)?)?|fri(day)?|sat(urday)?|sun(day)?"
)
# Cells of text that are converted to numbers at a time, and cells of an array of several columns.
_TOGETHER, _MOST_STACKED = 2**16, 2**18
_GLANCE = 100


def as_arrow(text: Series) -> ArrowArray:
    """Strings as one array of PyArrow."""
    cells = pa.array(text.array, pa.large_string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _cast(cells: ArrowArray) -> Array:
    """Strings as numbers, NaN for null; an ArrowInvalid if one is no number."""
    if len(cells) > _GLANCE:
        cells[:_GLANCE].cast(pa.float64())  # a long column of words takes long to fail
    return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0)  # without -0


def as_dates(series: Series, date_format: str | None) -> Series:
    """Cells as UTC times; NaT where they are missing, no date of this format, or not of the years 1 to 9999."""
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        series = as_text(series)
        if date_format is not None and date_format.startswith(MIXED):
            return parse_mixed(series, date_format.removeprefix(MIXED))
        return pd.to_datetime(series, format=date_format or "ISO8601", errors="coerce", utc=True)
    series = series.dt.tz_localize("UTC") if series.dt.tz is None else series.dt.tz_convert("UTC")
    if series.dt.unit == "ns":
        return series
    times = series.dt.tz_localize(None).to_numpy()
    return series.where((times >= np.datetime64("0001-01-01")) & (times < np.datetime64("9999-12-31")))


class ColumnCells:
    """One column; what its cells are as text, numbers and dates is converted once.

    ``plain`` are the cells as float64 if every one of them is a finite number or missing, where that is known.
    """

    def __init__(self, series: Series) -> None:
        self.series, self.name = series, str(series.name)
        self.plain: Array | None = None
        self._parts: dict[str | None, Mapping[str, Array]] = {}

    @cached_property
    def arrow(self) -> ArrowArray | None:
        """The cells as they are, of a column of strings; None for other types."""
        return as_arrow(self.series) if isinstance(self.series.dtype, pd.StringDtype) else None

    @cached_property
    def text(self) -> Series:
        """Stripped strings, see `as_text`."""
        return as_text(self.series)

    @cached_property
    def present(self) -> Series:
        """Strings of the cells that are not missing."""
        return self.text.dropna() if self.text.hasnans else self.text

    @cached_property
    def is_text(self) -> bool:
        """Whether numbers would be written out."""
        dtype = self.series.dtype
        return not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype))

    @property
    def has_missing(self) -> bool:
        """Whether any cell is missing or blank."""
        return len(self.present) < len(self.series)

    @cached_property
    def codes(self) -> tuple[Index, Series]:
        """The place of each cell's string among the different strings, -1 if it is missing; and these strings."""
        codes, distinct = self.text.factorize()
        return codes, distinct

    @cached_property
    def counts(self) -> Series:
        """How often each string occurs, the commonest first."""
        codes, distinct = self.codes
        counts = pd.Series(np.bincount(codes[codes >= 0], minlength=len(distinct)), index=distinct)
        return counts.sort_values(ascending=False, kind="stable")

    @property
    def n_values(self) -> int:
        """The number of different strings."""
        return len(self.codes[1])

    def examples(self, n: int) -> tuple[int, list[str]]:
        """The number of different values as they are written, and the ``n`` commonest; none of lists or records."""
        if self.arrow is not None:
            if not n:
                return len(self.arrow.unique()) - (self.arrow.null_count > 0), []
            if self.arrow.equals(as_arrow(self.text)):
                return self.n_values, [str(one) for one in self.counts.index[:n]]
        try:
            counts = self.series.dropna().astype(str).value_counts()
        except TypeError:
            return 0, []
        return len(counts), [str(one) for one in counts.index[:n]]

    @cached_property
    def is_there(self) -> Bools:
        """Which cells are not missing; blank strings are not."""
        found: Bools = self.series.notna().to_numpy() if self.plain is None else ~np.isnan(self.plain)
        return found

    @cached_property
    def numbers(self) -> Array:
        """Cells as float64; NaN where they are missing, infinite or no plain number."""
        if self.plain is not None:
            return self.plain
        if not self.is_text:
            is_duration = pd.api.types.is_timedelta64_dtype(self.series.dtype)
            numbers = self.series.dt.total_seconds() if is_duration else self.series
            return finite(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
        cells = as_arrow(self.text)
        try:
            return finite(_cast(cells))
        except pa.ArrowInvalid:
            return finite(_cast(pc.if_else(pc.match_substring_regex(cells, _NUMBER), cells, None)))

    @cached_property
    def n_finite(self) -> int:
        """Cells that are plain numbers."""
        return int(np.isfinite(self.numbers).sum())

    @cached_property
    def reading(self) -> NumberReading | None:
        """Strings read as numbers if they are not plain ones: money, percent, groups of digits, odd cells."""
        is_plain = self.series.dtype == "category" or not self.is_text or self.n_finite == len(self.present)
        return None if is_plain else notation.read_numbers(*self.codes)

    @cached_property
    def date_format(self) -> str | None:
        """The format in which all values are dates."""
        has_digits = _may_be_date(str(self.present.iloc[0])) and self.present.str.contains(r"\d", regex=True).all()
        return notation.date_format(self.present) if has_digits else None

    @cached_property
    def mixed_dates(self) -> tuple[str | None, str] | None:
        """Dates in several formats, see `notation.mixed_dates`."""
        return notation.mixed_dates(self.present)

    def date_parts(self, form: str | None) -> Mapping[str, Array]:
        """Days since 1970, month, day, weekday and hour, NaN where a cell is no date of this format."""
        if form not in self._parts:
            dates = as_dates(self.series, form)
            found = {
                "days": (dates - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds() / _DAY,
                "month": dates.dt.month,
                "day": dates.dt.day,
                "weekday": dates.dt.day_of_week,
                "hour": dates.dt.hour + dates.dt.minute / 60.0,
            }
            self._parts[form] = {name: part.to_numpy(dtype=np.float64, na_value=np.nan) for name, part in found.items()}
        return self._parts[form]

    def at(self, position: int | None) -> str:
        """A cell and where it stands: a line or row of the file where the index says it, else by position."""
        assert position is not None
        index = self.series.index
        place = f"{index.name} {index[position]}" if index.name in ("line", "row") else f"row {position + 1}"
        return f"{place}: {str(self.series.iloc[position])[:40]!r}"


def _may_be_date(cell: str) -> bool:
    """Whether a cell has a digit and only words of dates or short words in capitals, which may be time zones."""
    words = re.findall(r"[^\W\d_]+", cell)
    return any(map(str.isdigit, cell)) and all(
        _DATE_WORD.fullmatch(word.lower()) or (word.isupper() and len(word) < 6) for word in words
    )


class TableCells:
    """A data frame whose columns are converted once, those of plain numbers together."""

    def __init__(self, frame: DataFrame) -> None:
        self.frame = frame
        self._columns: dict[str, ColumnCells] = {}

    def __len__(self) -> int:
        return len(self.frame)

    def __getitem__(self, name: str) -> ColumnCells:
        if name not in self._columns:
            self.load([name])
        return self._columns[name]

    def load(self, names: Iterable[str]) -> None:
        """Convert the columns of plain numbers among these together."""
        found = {name: ColumnCells(self.frame[name]) for name in names if name not in self._columns}
        for name, values in _plain_numbers(found):
            found[name].plain = values
        self._columns |= found


def as_cells(X: TableLike, names: NDArray[np.object_] | None = None) -> TableCells:
    """The cells of a table, whatever it is; see `as_frame`."""
    return X if isinstance(X, TableCells) else TableCells(as_frame(X, names))


def _plain_numbers(columns: Mapping[str, ColumnCells]) -> Iterator[tuple[str, Array]]:
    """The columns of finite numbers and missing cells, as float64."""
    texts: dict[str, ArrowArray] = {}
    for name, cells in columns.items():
        if cells.arrow is not None:
            texts[name] = cells.arrow
        elif isinstance(cells.series.dtype, np.dtype) and cells.series.dtype.kind in "iuf":
            values = cells.series.to_numpy(dtype=np.float64)
            if not np.isinf(values).any():
                yield name, values
    for names in _batched(texts, _TOGETHER):
        yield from _cast_together({name: texts[name] for name in names})


def _cast_together(texts: Mapping[str, ArrowArray]) -> Iterator[tuple[str, Array]]:
    """As `_plain_numbers`, of strings: all columns at once, or each half if that fails."""
    try:
        values = _cast(pa.concat_arrays(texts.values())).reshape(len(texts), -1)
    except pa.ArrowInvalid:
        if len(texts) > 1:
            names = list(texts)
            for half in names[: len(names) // 2], names[len(names) // 2 :]:
                yield from _cast_together({name: texts[name] for name in half})
        return
    is_plain = np.isfinite(values).sum(axis=1) == [len(cells) - cells.null_count for cells in texts.values()]
    yield from ((name, row) for name, row, plain in zip(texts, values, is_plain, strict=True) if plain)


def stacked(columns: Mapping[str, Array]) -> Iterator[tuple[list[str], Array]]:
    """Columns of equal length as arrays of several columns, (columns, n), with their names."""
    for names in _batched(columns, _MOST_STACKED):
        yield names, np.stack([columns[name] for name in names])


def _batched(columns: Mapping[str, Sized], n_cells: int) -> Iterator[list[str]]:
    """Names of columns of equal length, so many at a time that they have at most this number of cells."""
    names = list(columns)
    size = max(1, n_cells // max(1, len(columns[names[0]]))) if names else 1
    return (names[start : start + size] for start in range(0, len(names), size))
