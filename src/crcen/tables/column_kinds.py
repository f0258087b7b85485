"""What a column of a mixed table holds, found out from the training rows: its kind, or why it is left out."""

import re
from dataclasses import dataclass, replace

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

__all__ = ["DroppedColumn", "category_column", "learn_column"]

# A string column of more values is free text.
MOST_CATEGORIES = 255
# Categories and parts of texts of fewer rows have no column of their own, and model files do not name them.
FEWEST_ROWS = 5
TEXT_COMPONENTS = 30
# Fewer rows tell nothing about whether a column numbers them.
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


def learn_column(series: Series, *, is_kept: bool, is_category: bool, seed: int) -> Column | DroppedColumn:
    """How to encode a column of training rows, or why it is left out.

    ``is_kept`` keeps what looks like an identifier, ``is_category`` takes any column as categories; ``seed`` is for
    texts.
    """
    name = str(series.name)
    if _is_nested(series):
        return DroppedColumn(name, "holds lists or records, not single values")
    present = as_text(series).dropna()
    if present.empty:
        return DroppedColumn(name, "every value is missing")
    has_missing = len(present) < len(series)
    n_values = present.nunique()
    if n_values == 1 and not has_missing:
        return DroppedColumn(name, f"constant: every value is {present.iloc[0]}")
    if is_category:
        return _category(name, present, has_missing)
    reading = _number_reading(series, present)
    if not is_kept:
        reason = _why_identifier(name, series, present, n_values, reading)
        if reason:
            return DroppedColumn(name, reason)
    return _by_content(name, series, present, has_missing, n_values, seed, reading)


def _number_reading(series: Series, present: Series) -> NumberReading | None:
    """Strings looked at as numbers, where they are not plainly such: money, percent, groups of digits, odd cells."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype) or not is_text(series):
        return None
    if np.isfinite(as_numbers(present)).all():
        return None
    return read_numbers(as_text(series))


def _by_content(
    name: str,
    series: Series,
    present: Series,
    has_missing: bool,
    n_values: int,
    seed: int,
    reading: NumberReading | None,
) -> Column | DroppedColumn:
    import pandas as pd

    dtype = series.dtype
    if pd.api.types.is_bool_dtype(dtype) or _is_yes_or_no(present):
        values = present.str.lower().map(BOOLEAN_WORDS).to_numpy(dtype=np.float64)
        return BooleanColumn(name, float(values.mean() > 0.5), has_missing)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _date(name, series, None, has_missing)
    if not isinstance(dtype, pd.CategoricalDtype):
        numbers = as_numbers(series)
        n_finite = int(np.isfinite(numbers).sum())
        if pd.api.types.is_numeric_dtype(dtype) or n_finite == len(present):
            if not n_finite:
                return DroppedColumn(name, "every value is missing or infinite")
            return _number(name, numbers, has_missing or n_finite < len(series))
        if reading is not None and reading.is_number:
            return _written_number(name, series, reading)
        written = _date_format(present)
        if written:
            return _date(name, series, written, has_missing)
        mixed = mixed_dates(present)
        if mixed is not None:
            found, said = mixed
            if found is None:  # without the cells that it quotes: reasons are stored
                return DroppedColumn(name, re.sub(r'"[^"]*"', "…", said))
            return _date(name, series, found, has_missing, f"{name} {said}")
    is_free = n_values > MOST_CATEGORIES or present.value_counts().iloc[0] < FEWEST_ROWS
    note = "" if reading is None else _why_no_number(name, series, reading, "text" if is_free else "categories")
    return _text(name, present, has_missing, seed, note) if is_free else _category(name, present, has_missing, note)


def _is_yes_or_no(present: Series) -> bool:
    """Whether all cells are one of two words for it; the first cell alone tells most columns apart."""
    if str(present.iloc[0]).lower() not in BOOLEAN_WORDS:
        return False
    words = set(present.str.lower().unique())
    return any(words <= pair for pair in _WORDS)


def _written_number(name: str, series: Series, reading: NumberReading) -> Column:
    """Numbers in a notation of their own, or with odd cells among them, and a note that says so."""
    notation, said = reading.notation, []
    if notation != PLAIN:
        value = notation.numbers(as_text(series[as_text(series) == reading.example]))[0]
        said.append(f'was read as numbers ("{reading.example}" is {value:.10g})')
    if reading.n_odd:
        is_one = reading.n_odd == 1
        said.append(
            f"has {reading.n_odd} cell{'' if is_one else 's'} without a number, taken as missing "
            f"({'' if is_one else 'first '}{_cell_at(series, reading.first_odd)})"
        )
    if reading.n_marked:
        said.append(f'has "{reading.mark}" or the like in {reading.n_marked} cells, taken as missing')
    how = {"decimal": notation.decimal, "thousands": notation.thousands, "affix": notation.affix}
    note = f"{name} {' and '.join(said)}" if said else ""
    return _number(name, reading.values, bool(np.isnan(reading.values).any()), **how, note=note)


def _number(name: str, values: Array, has_missing: bool, **how: str) -> NumberColumn:
    known = values[np.isfinite(values)]
    low, high = clip_limits(known)
    return NumberColumn(name, typical_value(known), has_missing, low, high, **how)


def _why_no_number(name: str, series: Series, reading: NumberReading, taken_for: str) -> str:
    """A note on a column that is nearly one of numbers; empty where it is not."""
    if not reading.is_amount:
        return ""
    taken = f"{name} was taken as {taken_for} although"
    if reading.units:
        return f"{taken} its cells begin or end in numbers: their units differ ({', '.join(reading.units)})"
    return (
        f"{taken} {reading.share:.0%} of its cells are numbers: {reading.n_odd} are not "
        f"(first {_cell_at(series, reading.first_odd)})"
    )


def _cell_at(series: Series, position: int | None) -> str:
    """A cell and where it stands: a line or row of the file where the index says it, else by position."""
    assert position is not None
    counted = series.index.name if series.index.name in ("line", "row") else None
    place = f"{counted} {series.index[position]}" if counted else f"row {position + 1}"
    return f"{place}: {str(series.iloc[position])[:40]!r}"


def _is_nested(series: Series) -> bool:
    return series.dtype == object and any(isinstance(cell, list | dict | tuple | set | np.ndarray) for cell in series)


def _why_identifier(name: str, series: Series, present: Series, n_values: int, reading: NumberReading | None) -> str:
    """Why a column only names its rows; empty where it says something about them."""
    if is_nameless_index(name):
        return "the index of a data frame, which pandas wrote without a name"
    if len(present) < _FEWEST_FOR_IDS:
        return ""
    numbers = as_numbers(series)
    known = numbers[np.isfinite(numbers)]
    if len(known) == len(present):
        return why_numbering(name, known)
    is_amount = reading is not None and reading.is_amount
    reason = why_codes(name, present, n_values, is_amount=is_amount)
    return "" if reason and (_date_format(present) or mixed_dates(present)) else reason


def _may_be_date(cell: str) -> bool:
    """Whether a cell has a digit and only words of dates or short words in capitals, which may be time zones."""
    words = re.findall(r"[^\W\d_]+", cell)
    return any(map(str.isdigit, cell)) and all(
        _DATE_WORD.fullmatch(word.lower()) or (word.isupper() and len(word) < 6) for word in words
    )


def _date_format(present: Series) -> str | None:
    """The format in which all values are dates."""
    if not _may_be_date(str(present.iloc[0])) or not present.str.contains(r"\d", regex=True).all():
        return None
    return date_format(present)


def _date(name: str, series: Series, form: str | None, has_missing: bool, note: str = "") -> Column | DroppedColumn:
    dates = as_dates(series, form)
    if dates.isna().all():
        return DroppedColumn(name, "no date of the years 1 to 9999")
    found = DateColumn.all_parts(dates)
    # A part that never varies, such as the hour of plain dates, says nothing.
    parts = tuple(part for part in DATE_PARTS if np.nanmin(found[part]) < np.nanmax(found[part]))
    if not parts:
        return DroppedColumn(name, "constant: every value is one date")
    known = {part: values[~np.isnan(values)] for part, values in found.items()}
    fill = np.array([typical_value(known[part]) for part in parts])
    has_missing = has_missing or bool(dates.isna().any())
    return DateColumn(name, form, parts, fill, has_missing, *clip_limits(known["days"]), note)


def _category(name: str, present: Series, has_missing: bool, note: str = "") -> Column | DroppedColumn:
    return category_column(name, present.value_counts(), has_missing, note)


def category_column(name: str, counts: Series, has_missing: bool, note: str = "") -> CategoryColumn | DroppedColumn:
    """A column of categories from the rows of each value; those of fewer than `FEWEST_ROWS` share one column."""
    named = sorted(str(value) for value in counts.index[counts >= FEWEST_ROWS][:MOST_CATEGORIES])
    if not named:
        return DroppedColumn(name, f"no value occurs in {FEWEST_ROWS} rows or more")
    return CategoryColumn(name, tuple(named), len(named) < len(counts), has_missing, note)


def _text(name: str, present: Series, has_missing: bool, seed: int, note: str) -> Column | DroppedColumn:
    try:
        found = TextColumn.learn(name, present, has_missing, TEXT_COMPONENTS, FEWEST_ROWS, seed)
    except ValueError:
        return DroppedColumn(name, f"no part of its texts occurs in {FEWEST_ROWS} rows or more")
    return replace(found, note=note)
