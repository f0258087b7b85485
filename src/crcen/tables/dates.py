"""Dates written as text: their format, several formats in one column, and the order of day and month."""

import warnings
from typing import Any

import numpy as np

__all__ = ["MIXED", "ORDERS", "date_format", "iso_dates", "mixed_dates", "parse_mixed"]

# pandas is optional, and no type checker sees it.
Series = Any

ORDERS = ("day-first", "month-first")
# Before the order, in the format of a column with dates in several formats.
MIXED = "mixed "
_NUMERIC = r"(?P<first>\d{1,2})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})(?P<time>[ T].*)?"
_YEAR_FIRST = r"(?P<year>\d{4})[/.-](?P<first>\d{1,2})[/.-](?P<second>\d{1,2})(?P<time>[ T].*)?"
_WITH_MONTH = (
    r"(?i:.*\b\d.*\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*|[a-z]{3,9}\.? \d{1,2},? \d{4}.*)"
)
# Cells that must be dates for a column of dates; the others are reported.
_MOSTLY = 0.8
_SAMPLE = 50


def date_format(present: Series) -> str | None:
    """The format in which all cells are dates, month first if both orders fit; None if there is none."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format

    distinct = pd.Series(present.unique()).astype(object)
    sample = distinct.iloc[:: max(1, len(distinct) // _SAMPLE)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        guesses = [guess_datetime_format(str(cell), day_first) for day_first in (False, True) for cell in sample]
    for guess in dict.fromkeys(one for one in guesses if isinstance(one, str)):
        if pd.to_datetime(distinct, format=guess, errors="coerce", utc=True).notna().all():
            return guess
    return None


def parse_mixed(text: Series, order: str) -> Series:
    """Cells as UTC times, whatever their format; NaT for other cells, and for a month beyond 12."""
    import pandas as pd

    iso = _iso(text, order)
    dates = pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True)
    named = dates.isna() & iso.str.fullmatch(_WITH_MONTH).fillna(False).astype(bool)
    if named.any():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            dates[named] = pd.to_datetime(iso[named].astype(object), format="mixed", errors="coerce", utc=True)
    return dates


def _iso(text: Series, order: str) -> Series:
    """Numeric dates as year-month-day, with their times; other cells stay."""
    text = text.astype("string").str.strip()
    for pattern, is_day_first in ((_NUMERIC, order == "day-first"), (_YEAR_FIRST, False)):
        parts = text.str.extract(f"^(?:{pattern})$")
        found = parts["first"].notna().to_numpy(dtype=bool)
        if not found.any():
            continue
        parts = parts[found]
        year = parts["year"]
        year = year.where(year.str.len() == 4, ("20" + year).where(year < "69", "19" + year))
        month, day = (parts["second"], parts["first"]) if is_day_first else (parts["first"], parts["second"])
        time = parts["time"].fillna("").str.replace(r"^[ T]+", "T", regex=True)
        joined = year + "-" + month.str.zfill(2) + "-" + day.str.zfill(2) + time
        text = text.mask(found, joined.reindex(text.index))
    return text


def iso_dates(cells: Series, order: str) -> Series:
    """A text column in which most cells are dates, with these in ISO form; any other column as it is."""
    import pandas as pd

    if not (pd.api.types.is_string_dtype(cells.dtype) or pd.api.types.is_object_dtype(cells.dtype)):
        return cells
    text = cells.astype("string")
    first = text.dropna().head(_SAMPLE)
    if first.empty or parse_mixed(first, order).notna().mean() < 0.5:
        return cells
    dates = parse_mixed(text, order)
    is_date = dates.notna().to_numpy()
    if is_date.sum() < _MOSTLY * max(1, int(text.notna().sum())):
        return cells
    has_time = bool((dates[is_date].dt.normalize() != dates[is_date]).any())
    form = "%Y-%m-%dT%H:%M:%S" if has_time else "%Y-%m-%d"
    return text.mask(is_date, dates.dt.strftime(form).astype("string"))


def mixed_dates(present: Series) -> tuple[str | None, str] | None:
    """How a column of dates in several formats, or with a few other cells, is read; None if it is no such column.

    The format, or None if the order of day and month cannot be told, and a sentence part on what was found.
    """
    sample = present.iloc[:: max(1, len(present) // (4 * _SAMPLE))]
    if max(parse_mixed(sample, order).notna().mean() for order in ORDERS) < 0.5:
        return None
    text = present.astype("string").str.strip()
    parts = text.str.extract(f"^(?:{_NUMERIC})$")
    is_numeric = parts["first"].notna().to_numpy(dtype=bool)
    large = [(parts[name][is_numeric].astype(int) > 12).to_numpy() for name in ("first", "second")]
    order = "day-first" if large[0].any() else "month-first"
    dates = parse_mixed(text, order)
    if dates.notna().mean() < _MOSTLY and not (large[0].any() and large[1].any()):
        return None
    shapes = text.str.replace(r"\d", "9", regex=True).str.replace(r"[^\W\d_]+", "a", regex=True)
    shapes = shapes.str.replace(r"9+(?=[/.\- ])", "9", regex=True).where(dates.notna().to_numpy())
    counts = shapes.value_counts()
    examples = [f'"{text[(shapes == shape).fillna(False)].iloc[0]}" in {n:,} cells' for shape, n in counts.items()]
    said = f"has dates in {len(counts)} formats ({', '.join(examples[:3])})" if len(counts) > 1 else "has dates"
    if large[0].any() and large[1].any():
        first, second = (text[is_numeric][one].iloc[0] for one in large)
        return None, f'{said} that contradict each other: "{first}" and "{second}"'
    odd = text[dates.isna().to_numpy()]
    if len(odd):
        said += f" and {len(odd):,} other cells, taken as missing ({str(odd.iloc[0])[:40]!r})"
    if is_numeric.any() and not large[0].any() and not large[1].any() and len(counts) > 1:
        return None, f"{said}, and nothing tells the day from the month; state dates=day-first or dates=month-first"
    return f"{MIXED}{order}", said + (f", read {order}" if np.any(is_numeric) else "")
