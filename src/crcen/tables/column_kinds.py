"""What a column of a mixed table holds, found out from the training rows: its kind, or why it is left out."""

import re
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crcen.tables.columns import (
    BOOLEAN_WORDS,
    DATE_PARTS,
    BooleanColumn,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
    as_dates,
    as_numbers,
    as_text,
    clip_limits,
    is_text,
    typical_value,
)
from crcen.tables.identifiers import is_nameless_index, why_codes, why_numbering
from crcen.tables.notation import PLAIN, NumberReading, date_format, mixed_dates, read_numbers
from crcen.tables.typing import Array, Series

# A string column of more values is free text.
MOST_CATEGORIES = 255
# Categories and parts of texts of fewer rows have no column of their own, and model files do not name them.
FEWEST_ROWS = 5
TEXT_COMPONENTS = 30
# With fewer rows, it cannot be tested whether a column numbers them.
_FEWEST_FOR_IDS = 20
# Words that dates may hold: letters of ISO 8601 and of clocks, endings of ordinals, months and days.
_DATE_WORD = re.compile(
    r"[tzhmsdwap]|am|pm|st|nd|rd|th|of|the|at|utc|gmt"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?|mon(day)?|tue(s(day)?)?|wed(nesday)?|thu(rs?(day)?)?|fri(day)?|sat(urday)?|sun(day)?"
)
_WORDS = [{"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"}]


@dataclass(frozen=True)
class DroppedColumn:
    """A column that the model does not use, and why."""

    name: str
    reason: str


class _Cells:
    """A column of training rows; what is found out about it is kept."""

    def __init__(self, series: Series) -> None:
        self.series, self.name, self.text = series, str(series.name), as_text(series)
        self.present = self.text.dropna()
        self.has_missing = len(self.present) < len(series)

    @cached_property
    def n_values(self) -> int:
        return int(self.present.nunique())

    @cached_property
    def numbers(self) -> Array:
        return as_numbers(self.series)

    @cached_property
    def n_finite(self) -> int:
        return int(np.isfinite(self.numbers).sum())

    @cached_property
    def is_category(self) -> bool:
        import pandas as pd

        return isinstance(self.series.dtype, pd.CategoricalDtype)

    @cached_property
    def reading(self) -> NumberReading | None:
        """Strings read as numbers if they are not plain ones: money, percent, groups of digits, odd cells."""
        is_plain = self.is_category or not is_text(self.series) or self.n_finite == len(self.present)
        return None if is_plain else read_numbers(self.text)

    @cached_property
    def date_format(self) -> str | None:
        """The format in which all values are dates."""
        has_digits = _may_be_date(str(self.present.iloc[0])) and self.present.str.contains(r"\d", regex=True).all()
        return date_format(self.present) if has_digits else None

    @cached_property
    def mixed(self) -> tuple[str | None, str] | None:
        return mixed_dates(self.present)

    def at(self, position: int | None) -> str:
        """A cell and where it stands: a line or row of the file where the index says it, else by position."""
        assert position is not None
        index = self.series.index
        place = f"{index.name} {index[position]}" if index.name in ("line", "row") else f"row {position + 1}"
        return f"{place}: {str(self.series.iloc[position])[:40]!r}"


def learn_column(series: Series, *, is_kept: bool, is_category: bool, seed: int) -> Column | DroppedColumn:
    """How to encode a column of training rows, or why it is left out.

    ``is_kept`` keeps what looks like an identifier, ``is_category`` takes any column as categories; ``seed`` is for
    texts.
    """
    if series.dtype == object and any(isinstance(cell, list | dict | tuple | set | np.ndarray) for cell in series):
        return DroppedColumn(str(series.name), "holds lists or records, not single values")
    cells = _Cells(series)
    if cells.present.empty:
        reason = "every value is missing"
    elif cells.n_values == 1 and not cells.has_missing:
        reason = f"constant: every value is {cells.present.iloc[0]}"
    elif is_category:
        return category_column(cells.name, cells.present.value_counts(), cells.has_missing)
    else:
        reason = "" if is_kept else _why_identifier(cells)
    return DroppedColumn(cells.name, reason) if reason else _by_content(cells, seed)


def _why_identifier(cells: _Cells) -> str:
    """Why a column only names its rows; empty where it may be informative."""
    if is_nameless_index(cells.name):
        return "the index of a data frame, which pandas wrote without a name"
    if len(cells.present) < _FEWEST_FOR_IDS:
        return ""
    if cells.n_finite == len(cells.present):
        return why_numbering(cells.name, cells.numbers[np.isfinite(cells.numbers)])
    is_amount = cells.reading is not None and cells.reading.is_amount
    reason = why_codes(cells.name, cells.present, cells.n_values, is_amount=is_amount)
    return "" if reason and (cells.date_format or cells.mixed) else reason


def _by_content(cells: _Cells, seed: int) -> Column | DroppedColumn:
    import pandas as pd

    name, present, dtype, has_missing = cells.name, cells.present, cells.series.dtype, cells.has_missing
    if pd.api.types.is_bool_dtype(dtype) or _is_yes_or_no(present):
        values = present.str.lower().map(BOOLEAN_WORDS).to_numpy(dtype=np.float64)
        return BooleanColumn(name, float(values.mean() > 0.5), has_missing)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _date(cells, None)
    if not cells.is_category:
        if pd.api.types.is_numeric_dtype(dtype) or cells.n_finite == len(present):
            if not cells.n_finite:
                return DroppedColumn(name, "every value is missing or infinite")
            return _number(name, cells.numbers, has_missing or cells.n_finite < len(cells.series))
        if cells.reading is not None and cells.reading.is_number:
            return _written_number(cells, cells.reading)
        if cells.date_format:
            return _date(cells, cells.date_format)
        if cells.mixed is not None:
            found, message = cells.mixed
            if found is None:
                return DroppedColumn(name, message)
            return _date(cells, found, f"{name} {message}")
    counts = present.value_counts()
    is_free = cells.n_values > MOST_CATEGORIES or counts.iloc[0] < FEWEST_ROWS
    note = _why_no_number(cells, "text" if is_free else "categories")
    if not is_free:
        return category_column(name, counts, has_missing, note)
    try:
        text = TextColumn.learn(name, present, has_missing, TEXT_COMPONENTS, FEWEST_ROWS, seed)
    except ValueError:
        return DroppedColumn(name, f"no part of its texts occurs in {FEWEST_ROWS} rows or more")
    return replace(text, note=note)


def _is_yes_or_no(present: Series) -> bool:
    """Whether all cells are one of two words for it; the first cell alone tells most columns apart."""
    if str(present.iloc[0]).lower() not in BOOLEAN_WORDS:
        return False
    words = set(present.str.lower().unique())
    return any(words <= pair for pair in _WORDS)


def _written_number(cells: _Cells, reading: NumberReading) -> Column:
    """Numbers in a notation of their own, or with odd cells among them, and a note about it."""
    notation, message = reading.notation, []
    if notation != PLAIN:
        value = notation.numbers(cells.text[cells.text == reading.example])[0]
        message.append(f'was read as numbers ("{reading.example}" is {value:.10g})')
    if reading.n_odd:
        is_one = reading.n_odd == 1
        message.append(
            f"has {reading.n_odd} cell{'' if is_one else 's'} without a number, taken as missing "
            f"({'' if is_one else 'first '}{cells.at(reading.first_odd)})"
        )
    if reading.n_marked:
        message.append(f'has "{reading.mark}" or the like in {reading.n_marked} cells, taken as missing')
    how = {"decimal": notation.decimal, "thousands": notation.thousands, "affix": notation.affix}
    note = f"{cells.name} {' and '.join(message)}" if message else ""
    return _number(cells.name, reading.values, bool(np.isnan(reading.values).any()), **how, note=note)


def _number(name: str, values: Array, has_missing: bool, **how: str) -> NumberColumn:
    known = values[np.isfinite(values)]
    low, high = clip_limits(known)
    return NumberColumn(name, typical_value(known), has_missing, low, high, **how)


def _why_no_number(cells: _Cells, taken_for: str) -> str:
    """A note on a column that is nearly one of numbers; empty where it is not."""
    reading = cells.reading
    if reading is None or not reading.is_amount:
        return ""
    taken = f"{cells.name} was taken as {taken_for} although"
    if reading.units:
        return f"{taken} its cells begin or end in numbers: their units differ ({', '.join(reading.units)})"
    return (
        f"{taken} {reading.share:.0%} of its cells are numbers: {reading.n_odd} are not "
        f"(first {cells.at(reading.first_odd)})"
    )


def _may_be_date(cell: str) -> bool:
    """Whether a cell has a digit and only words of dates or short words in capitals, which may be time zones."""
    words = re.findall(r"[^\W\d_]+", cell)
    return any(map(str.isdigit, cell)) and all(
        _DATE_WORD.fullmatch(word.lower()) or (word.isupper() and len(word) < 6) for word in words
    )


def _date(cells: _Cells, form: str | None, note: str = "") -> Column | DroppedColumn:
    dates = as_dates(cells.series, form)
    if dates.isna().all():
        return DroppedColumn(cells.name, "no date of the years 1 to 9999")
    found = DateColumn.all_parts(dates)
    # A part that never varies, such as the hour of plain dates, says nothing.
    parts = tuple(part for part in DATE_PARTS if np.nanmin(found[part]) < np.nanmax(found[part]))
    if not parts:
        return DroppedColumn(cells.name, "constant: every value is one date")
    known = {part: values[~np.isnan(values)] for part, values in found.items()}
    fill = np.array([typical_value(known[part]) for part in parts])
    has_missing = cells.has_missing or bool(dates.isna().any())
    return DateColumn(cells.name, form, parts, fill, has_missing, *clip_limits(known["days"]), note)


def category_column(name: str, counts: Series, has_missing: bool, note: str = "") -> CategoryColumn | DroppedColumn:
    """A column of categories from the rows of each value; those of fewer than `FEWEST_ROWS` share one column."""
    named = sorted(str(value) for value in counts.index[counts >= FEWEST_ROWS][:MOST_CATEGORIES])
    if not named:
        return DroppedColumn(name, f"no value occurs in {FEWEST_ROWS} rows or more")
    return CategoryColumn(name, tuple(named), len(named) < len(counts), has_missing, note)
