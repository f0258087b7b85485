"""What a column of a mixed table holds, found out from the training rows: its kind, or why it is left out."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from crcen._support.lazy import pd
from crcen.tables.cells import ColumnCells, TableCells, stacked
from crcen.tables.columns import (
    BOOLEAN_WORDS,
    BooleanColumn,
    CategoryColumn,
    Column,
    DateColumn,
    NumberColumn,
    TextColumn,
    clip_limits,
    nice_step,
    rounded,
)
from crcen.tables.identifiers import is_nameless_index, why_codes, why_numbering
from crcen.tables.notation import AMBIGUOUS, PLAIN, NumberReading, is_ambiguous
from crcen.tables.typing import Array, Series

# A string column of more values is free text.
MOST_CATEGORIES = 255
# Categories and parts of texts of fewer rows have no column of their own, and model files do not name them.
FEWEST_ROWS = 5
TEXT_COMPONENTS = 30
# With fewer rows, it cannot be tested whether a column numbers them.
_FEWEST_FOR_IDS = 20
# Steps of the middle half of numbers to which medians are rounded.
_FILL_PARTS = 50
_INDEX = "the index of a data frame, which pandas wrote without a name"
# What stands for a missing number, and the limits to which numbers are clipped.
Limits: TypeAlias = Sequence[float]
_WORDS = [{"true", "false"}, {"yes", "no"}, {"t", "f"}, {"y", "n"}]


@dataclass(frozen=True)
class DroppedColumn:
    """A column that the model does not use, and why."""

    name: str
    reason: str


def learn_columns(
    table: TableCells, dropped: Mapping[str, str], kept: Collection[str], categories: Collection[str], seed: int
) -> list[Column | DroppedColumn]:
    """How to encode each column, or why it is left out: ``dropped`` ones for stated reasons, see `learn_column`."""
    names = [name for name in table.frame.columns if name not in dropped]
    table.load(names)
    plain = {name: table[name].plain for name in names}
    complete = {name: cells for name, cells in plain.items() if cells is not None and not np.isnan(cells).any()}
    limits: dict[str, Limits] = {}
    for some, values in stacked(complete):
        limits.update(zip(some, _limits(values).T.tolist(), strict=True))
    return [
        DroppedColumn(name, dropped[name])
        if name in dropped
        else learn_column(table[name], name in kept, name in categories, seed, limits.get(name))
        for name in table.frame.columns
    ]


def learn_column(
    cells: ColumnCells, is_kept: bool = False, is_category: bool = False, seed: int = 0, limits: Limits | None = None
) -> Column | DroppedColumn:
    """How to encode a column of training rows, or why it is left out.

    ``is_kept`` keeps what looks like an identifier, ``is_category`` takes any column as categories; ``seed`` is for
    texts; ``limits`` are those of plain numbers, where they are known.
    """
    series, name = cells.series, cells.name
    if series.dtype == object and any(isinstance(cell, list | dict | tuple | set | np.ndarray) for cell in series):
        return DroppedColumn(name, "holds lists or records, not single values")
    if cells.plain is not None and cells.is_there.any() and not is_category:
        known = cells.plain[cells.is_there]
        if known.min() < known.max():
            reason = "" if is_kept else _why_number_identifies(name, known)
            return DroppedColumn(name, reason) if reason else _number(name, known, len(series), limits)
    if cells.present.empty:
        reason = "every value is missing"
    elif cells.n_values == 1 and not cells.has_missing:
        reason = f"constant: every value is {cells.present.iloc[0]}"
    elif is_category:
        return category_column(name, cells.counts, cells.has_missing)
    else:
        reason = "" if is_kept else _why_identifier(cells)
    return DroppedColumn(name, reason) if reason else _by_content(cells, seed)


def _limits(known: Array) -> Array:
    """What stands for a missing number, and the limits to which numbers are clipped: (3,) or, of columns, (3, m)."""
    lower, middle, upper = np.quantile(known, [0.25, 0.5, 0.75], axis=-1)
    fill = rounded(middle, nice_step(upper - lower, _FILL_PARTS))
    return np.stack([fill, *clip_limits(known.min(axis=-1), known.max(axis=-1))])


def _why_number_identifies(name: str, known: Array) -> str:
    if is_nameless_index(name):
        return _INDEX
    return why_numbering(name, known) if len(known) >= _FEWEST_FOR_IDS else ""


def _why_identifier(cells: ColumnCells) -> str:
    """Why a column only names its rows; empty where it may be informative."""
    if cells.n_finite == len(cells.present) or is_nameless_index(cells.name):
        return _why_number_identifies(cells.name, cells.numbers[np.isfinite(cells.numbers)])
    if len(cells.present) < _FEWEST_FOR_IDS:
        return ""
    is_amount = cells.reading is not None and cells.reading.is_amount
    reason = why_codes(cells.name, cells.present, cells.n_values, is_amount=is_amount)
    return "" if reason and (cells.date_format or cells.mixed_dates) else reason


def _by_content(cells: ColumnCells, seed: int) -> Column | DroppedColumn:
    name, present, dtype, has_missing = cells.name, cells.present, cells.series.dtype, cells.has_missing
    if pd.api.types.is_bool_dtype(dtype) or _is_yes_or_no(present):
        values = present.str.lower().map(BOOLEAN_WORDS).to_numpy(dtype=np.float64)
        return BooleanColumn(name, float(values.mean() > 0.5), has_missing)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _date(cells, None)
    if dtype != "category":
        if pd.api.types.is_numeric_dtype(dtype) or cells.n_finite == len(present):
            if not cells.n_finite:
                return DroppedColumn(name, "every value is missing or infinite")
            return _number(name, cells.numbers[np.isfinite(cells.numbers)], len(cells.series))
        if cells.reading is not None and cells.reading.is_number:
            return _written_number(cells, cells.reading)
        if cells.date_format:
            note = f"{name} was read month-first, but {AMBIGUOUS}" if is_ambiguous(present, cells.date_format) else ""
            return _date(cells, cells.date_format, note)
        if cells.mixed_dates is not None:
            found, message = cells.mixed_dates
            if found is None:
                return DroppedColumn(name, message)
            return _date(cells, found, message and f"{name} {message}")
    counts = cells.counts
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


def _written_number(cells: ColumnCells, reading: NumberReading) -> Column:
    """Numbers in a notation of their own, or with odd cells among them, and a note about it."""
    notation, message = reading.notation, []
    if notation != PLAIN:
        value = notation.numbers(np.zeros(1, dtype=np.int64), [reading.example])[0]
        message.append(f'was read as numbers ("{reading.example}" is {value:.10g})')
    if reading.n_odd:
        is_one = reading.n_odd == 1
        message.append(
            f"has {reading.n_odd} cell{'' if is_one else 's'} without a number, taken as missing "
            f"({'' if is_one else 'first '}{cells.at(reading.first_odd)})"
        )
    if reading.n_marked:
        message.append(f'has "{reading.mark}" or the like in {reading.n_marked} cells, taken as missing')
    note = f"{cells.name} {' and '.join(message)}" if message else ""
    known = reading.values[np.isfinite(reading.values)]
    return _number(cells.name, known, len(reading.values), **asdict(notation), note=note)


def _number(name: str, known: Array, n_rows: int, limits: Limits | None = None, **how: Any) -> NumberColumn:
    fill, low, high = _limits(known).tolist() if limits is None else limits
    return NumberColumn(name, fill, len(known) < n_rows, low, high, **how)


def _why_no_number(cells: ColumnCells, taken_for: str) -> str:
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


def _date(cells: ColumnCells, form: str | None, note: str = "") -> Column | DroppedColumn:
    found = cells.date_parts(form)
    is_known = ~np.isnan(found["days"])
    if not is_known.any():
        return DroppedColumn(cells.name, "no date of the years 1 to 9999")
    known = {part: values[is_known] for part, values in found.items()}
    # A part that never varies, such as the hour of plain dates, says nothing.
    parts = tuple(part for part, values in known.items() if values.min() < values.max())
    if not parts:
        return DroppedColumn(cells.name, "constant: every value is one date")
    fill = np.array([_limits(known[part])[0] for part in parts])
    _, low, high = _limits(known["days"]).tolist()
    return DateColumn(cells.name, form, parts, fill, not is_known.all(), low, high, note)


def category_column(name: str, counts: Series, has_missing: bool, note: str = "") -> CategoryColumn | DroppedColumn:
    """A column of categories from the rows of each value; those of fewer than `FEWEST_ROWS` share one column."""
    named = sorted(str(value) for value in counts.index[counts >= FEWEST_ROWS][:MOST_CATEGORIES])
    if not named:
        return DroppedColumn(name, f"no value occurs in {FEWEST_ROWS} rows or more")
    return CategoryColumn(name, tuple(named), len(named) < len(counts), has_missing, note)
