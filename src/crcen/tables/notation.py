"""How cells are written as text: numbers with currencies, units and groups of digits; dates; missing values."""

import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from crcen._support.lazy import pa, pc, pd
from crcen.tables.typing import Array, Bools, Index, Series

# Words for a missing number that file readers do not know, in any case.
_MISSING_MARK = re.compile(
    r"[-–—]+|\.+|\?+|\*|#|n\.?/?a\.?|nan|n\.?d\.?|null|none|nil|unk(nown)?|missing|tbd|[-+]?inf(inity)?|"
    r"#(n/a|value!|div/0!|ref!|num!)|not (available|applicable|known)|no data",
    re.IGNORECASE,
)
_SYMBOLS = "$€£¥₹₩₽₺₴₦₪₫฿¢"
_CODES = (
    r"usd|eur|gbp|jpy|chf|sek|nok|dkk|pln|czk|huf|ron|bgn|rub|uah|cny|rmb|inr|brl|aud|cad|nzd|zar|mxn|sgd|hkd|twd|krw|"
    r"try|ils|kr\.?|fr\.|rs\.?|zł|kč|ft|lei"
)
_PREFIX = rf"[A-Za-z]{{0,3}}[{_SYMBOLS}]|(?i:{_CODES})(?![^\W\d_])"
_SUFFIX = rf"[%‰{_SYMBOLS}]|[^\W\d_]{{1,8}}[²³.]?"
_CELL = re.compile(
    rf"(?P<opened>\(?)\s*(?P<sign>[-+−–]?)\s*(?P<before>{_PREFIX})?\s*(?P<second>[-+−–]?)\s*"
    r"(?P<body>[.,]?\d(?:[\d.,'’_\s]*\d)?\.?(?:[eE][-+]?\d+)?)"
    rf"\s*(?P<after>{_SUFFIX})?\s*(?P<closed>\)?)\s*(?P<third>[-−]?)"
)
_CURRENCY = re.compile(rf".*[{_SYMBOLS}]|(?i:{_CODES})")
# (decimal mark, mark between thousands), the likelier first where cells fit several.
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (".", "'"), (",", " "), (",", "'"))
# Fewer of the first distinct cells look like numbers: no need to look at all of them.
_GLANCE, _ENOUGH = 200, 0.5
# A numeric column may hold this number of other cells, at least one.
_MOST_ODD = 0.01
_FEWEST_ROWS = 20
# Of its cells, for a column that is nearly one of numbers.
_MOSTLY = 0.8


def as_text(series: Series) -> Series:
    """Cells as strings without spaces around them, missing ones kept; whole numbers without a decimal point."""
    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_float_dtype(series.dtype):
        present = series.dropna().to_numpy(dtype=np.float64)
        if (np.abs(present) < 2.0**63).all() and (present == np.round(present)).all():
            series = series.astype("Int64")
    if series.dtype == object and any(isinstance(cell, bytes) for cell in series):
        series = series.map(lambda cell: cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell)
    text = series.astype("string").str.strip()
    is_blank = text == ""
    return text.mask(is_blank) if is_blank.any() else text


class _Cell(NamedTuple):
    """A number as it is written: what stands around its digits, its digits and marks, its sign."""

    affix: str
    body: str
    is_negative: bool


def _cell(text: str) -> _Cell | None:
    found = _CELL.fullmatch(text)
    if found is None or bool(found["opened"]) != bool(found["closed"]):
        return None
    signs = [found[name] for name in ("sign", "second", "third") if found[name]]
    units = [found[name].casefold() for name in ("before", "after") if found[name]]
    affixes = {unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit for unit in units}  # one year, two years
    if len(signs) + bool(found["opened"]) > 1 or len(affixes) > 1:
        return None
    body = re.sub(r"\s", " ", found["body"].replace("’", "'").replace("_", "'"))
    return _Cell("".join(affixes), body, bool(found["opened"]) or (bool(signs) and signs[0] != "+"))


def is_missing_mark(text: str) -> bool:
    """Whether a cell of a column of numbers says that there is none."""
    return _MISSING_MARK.fullmatch(text) is not None


def _are_marks(distinct: Series) -> Bools:
    """Whether each of these strings is a missing mark."""
    cells = pa.array(distinct, pa.large_string())
    return np.asarray(pc.match_substring_regex(cells, f"^(?:{_MISSING_MARK.pattern})$", ignore_case=True), dtype=bool)


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written; ``affix`` is a currency, ``%`` or a unit around them, in lower case."""

    decimal: str = "."
    thousands: str = ""
    affix: str = ""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        whole, point, mark = r"\d+", re.escape(self.decimal), re.escape(self.thousands)
        if mark:  # also in India's groups of two
            whole = rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}|\d+)"
        return re.compile(rf"(?:{whole}(?:{point}\d*)?|{point}\d+)(?:[eE][-+]?\d+)?")

    def values(self, cells: Sequence[_Cell | None]) -> Array:
        """The numbers of cells, NaN where they are not written so; one NaN more, for a missing cell (code -1)."""
        return np.array([*map(self._value, cells), math.nan])

    def _value(self, cell: _Cell | None) -> float:
        if cell is None or cell.affix not in ("", self.affix) or not self._pattern.fullmatch(cell.body):
            return math.nan
        size = float(cell.body.replace(self.thousands, "").replace(self.decimal, "."))
        return -size if cell.is_negative else size

    def numbers(self, codes: Index, distinct: Iterable[str]) -> Array:
        """The numbers of a column of strings; NaN where one is missing, infinite or not written so."""
        return finite(self.values([_cell(one) for one in distinct])[codes])


def finite(values: Array) -> Array:
    """Values with NaN in place of infinite ones."""
    return np.where(np.isfinite(values), values, np.nan)


PLAIN = Notation()


@dataclass(frozen=True, eq=False)
class NumberReading:
    """A column of strings read as numbers. Odd cells are neither numbers nor marks of missing values."""

    notation: Notation
    values: Array
    share: float  # of numbers among the cells that are not missing
    first_odd: int | None
    n_odd: int
    n_marked: int
    example: str  # of the notation
    mark: str
    units: tuple[str, ...] = ()  # if they differ, or only some cells have one

    @property
    def is_amount(self) -> bool:
        """Whether the cells are numbers to a person, if of different units or with too many odd ones among them."""
        are_known = any(unit in "%‰" or _CURRENCY.fullmatch(unit) or unit == "no unit" for unit in self.units)
        return are_known if self.units else self.share > _MOSTLY

    @property
    def is_number(self) -> bool:
        """Whether the column is one of numbers, a few odd cells aside."""
        n_known = self.n_odd + int(np.isfinite(self.values).sum())
        allowed = max(_MOST_ODD * n_known, 1.0 if n_known >= _FEWEST_ROWS else 0.0)
        return self.n_odd <= allowed and self.n_odd < n_known and not self.units


def read_numbers(codes: Index, distinct: Series) -> NumberReading | None:
    """Read stripped strings, factorised, in the notation that most of them fit; None if few look like numbers."""
    counts = np.bincount(codes[codes >= 0], minlength=len(distinct))
    is_mark = _are_marks(distinct)
    others = np.flatnonzero(~is_mark)
    glance = list(distinct.take(others[:: max(1, len(others) // _GLANCE)]))
    if not glance or sum(_cell(one) is not None for one in glance) < _ENOUGH * len(glance):
        return None
    cells = [None if marked else _cell(one) for one, marked in zip(distinct, is_mark, strict=True)]
    affixes: Counter[str] = Counter()
    for cell, count in zip(cells, counts, strict=True):
        if cell is not None:
            affixes[cell.affix] += int(count)
    notation = _likeliest(cells, counts, affixes)
    values = notation.values(cells)
    fits = ~np.isnan(values[:-1])

    def how_telling(text: str) -> tuple[int, int]:  # of a notation
        return sum(not one.isdigit() and one not in "+-" for one in text), -len(text)

    is_odd = np.append(~fits & ~is_mark, False)[codes]
    n_odd, n_numbers = int(is_odd.sum()), int(counts[fits].sum())
    return NumberReading(
        notation=notation,
        values=finite(values[codes]),
        share=n_numbers / max(1, n_odd + n_numbers),
        first_odd=int(is_odd.argmax()) if n_odd else None,
        n_odd=n_odd,
        n_marked=int(counts[is_mark].sum()),
        example=max(map(str, distinct[fits]), key=how_telling, default=""),
        mark=str(distinct[is_mark][0]) if is_mark.any() else "",
        units=_different_units(affixes),
    )


def _different_units(affixes: Counter[str]) -> tuple[str, ...]:
    """Units that are seen on more than a few cells each, so that numbers cannot be compared."""
    n_cells = affixes.total()
    common = [unit for unit, count in affixes.most_common() if unit and count > _MOST_ODD * n_cells]
    if len(common) > 1:
        return tuple(common[:3])
    # Money and percent may go without a sign here and there; 5 and 5 kg may be two things.
    if common and common[0] not in "%‰" and not _CURRENCY.fullmatch(common[0]) and affixes[""] > _MOST_ODD * n_cells:
        return (common[0], "no unit") if len(common[0]) > 1 else (common[0],)  # 4p may be a code
    return ()


def _likeliest(cells: list[_Cell | None], counts: Index, affixes: Counter[str]) -> Notation:
    """The notation that most cells fit; of several, the usual one: 1,234 and 1.234 € are grouped, 1,234 % is not."""
    rare = _MOST_ODD * affixes.total()
    affix = next((unit for unit, count in affixes.most_common() if unit and count > rare), "")
    is_money = bool(affix) and _CURRENCY.fullmatch(affix) is not None
    marks = sorted(_MARKS, key=lambda pair: bool(pair[1])) if affix in ("%", "‰") else _MARKS

    def merit(pair: tuple[str, str]) -> tuple[int, int]:
        fits = ~np.isnan(Notation(*pair, affix).values(cells)[:-1])
        is_grouped = [is_money and bool(pair[1]) and cell is not None and pair[1] in cell.body for cell in cells]
        return int(counts[fits].sum()), int(counts[fits & is_grouped].sum())

    best = Notation(*max(marks, key=merit), affix)
    if affix and not best.thousands:  # larger amounts than these may come, in groups
        best = replace(best, thousands="," if best.decimal == "." else ".")
    return best


# -- missing values ----------------------------------------------------------------------------------------------------

# Cells that have such a value, at least, and as a share; different other values that show what is usual.
_FEWEST_CELLS, _FEWEST_SHARE, _FEWEST_OTHERS = 3, 0.001, 5
_USUAL = {float(sign * int(digits)) for digits in ("9", "99", "999", "9999", "99999", "999999") for sign in (1, -1)}
_MOST_SENTINELS = 3


def sentinels(values: Array) -> dict[float, int]:
    """Numbers that repeat far from all others, and a lone negative −1 or −99…, with their cells."""
    known, found = values[np.isfinite(values)], dict[float, int]()
    if not known.size or max((known == end).sum() for end in (known.min(), known.max())) < _FEWEST_CELLS:
        return found
    distinct, counts = np.unique(known, return_counts=True)
    while len(distinct) > _FEWEST_OTHERS and len(found) < _MOST_SENTINELS:
        ends = {-1: (distinct[-1] - distinct[-2], distinct[-2] - distinct[0])}
        ends[0] = distinct[1] - distinct[0], distinct[-1] - distinct[1]
        for place, (gap, span) in ends.items():
            value, count = float(distinct[place]), int(counts[place])
            is_frequent = count >= max(_FEWEST_CELLS, _FEWEST_SHARE * len(known)) and value != 0.0
            is_far = gap > (0.5 if value in _USUAL else 1.0) * span
            is_odd_sign = place == 0 and value < 0.0 <= distinct[1] and (value == -1.0 or value in _USUAL)
            if is_frequent and (is_far or is_odd_sign):
                found[value] = count
                distinct, counts = np.delete(distinct, place), np.delete(counts, place)
                break
        else:
            break
    return found


def placeholder_words(counts: Series, marks: Mapping[str, int]) -> dict[str, int]:
    """Words such as "unknown", "n/a" and "?" among counted strings, and those already read as missing."""
    found, is_word = Counter(marks), _are_marks(counts.index)
    is_code = np.array([re.fullmatch("[A-Z]{2}", str(value)) is not None for value in counts.index])
    if 2 * is_code.sum() > len(is_code):  # ND is a state among states
        is_word &= ~is_code
    found.update(counts[is_word].to_dict())
    return {word: int(count) for word, count in found.most_common()}


# -- dates -------------------------------------------------------------------------------------------------------------

ORDERS = ("day-first", "month-first")
# Of dates that fit both orders.
AMBIGUOUS = "the order of day and month is ambiguous; state --dates day-first or --dates month-first"
# Before the order, in the format of a column with dates in several formats.
MIXED = "mixed "
_NUMERIC = r"(?P<first>\d{1,2})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})(?P<time>[ T].*)?"
_YEAR_FIRST = r"(?P<year>\d{4})[/.-](?P<first>\d{1,2})[/.-](?P<second>\d{1,2})(?P<time>[ T].*)?"
_WITH_MONTH = (
    r"(?i:.*\b\d.*\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b.*|[a-z]{3,9}\.? \d{1,2},? \d{4}.*)"
)
# Cells that must be dates for a column of dates; the others are reported.
_MOSTLY_DATES = 0.8
_DATE_SAMPLE = 50


def date_format(present: Series) -> str | None:
    """The format in which all cells are dates; None if there is none.

    If both orders of day and month fit, the day is first before points (3.4.2024) and the month before other marks.
    """
    from pandas.tseries.api import guess_datetime_format

    distinct = pd.Series(present.unique()).astype(object)
    sample = distinct.iloc[:: max(1, len(distinct) // _DATE_SAMPLE)]
    tried: set[str | None] = {None}
    for day_first, cell in itertools.product((False, True), sample):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            guess = guess_datetime_format(str(cell), day_first)
        if guess not in tried and pd.to_datetime(distinct, format=guess, errors="coerce", utc=True).notna().all():
            form = str(guess)
            return _day_first(form) if form.startswith("%m.%d.") and is_ambiguous(present, form) else form
        tried.add(guess)
    return None


def _day_first(form: str) -> str:
    """A format with the month before the day, with the day before the month."""
    return re.sub(r"^%m([/.-])%d(?=\1)", r"%d\1%m", form)


def is_ambiguous(present: Series, form: str) -> bool:
    """Whether dates that were read with the month first would also be dates with the day first, and differ."""
    cells, other = present.drop_duplicates().astype(object), _day_first(form)
    if other == form:
        return False
    read = pd.to_datetime(cells, format=form, errors="coerce", utc=True)
    swapped = pd.to_datetime(cells, format=other, errors="coerce", utc=True)
    return bool(swapped.notna().all() and (read != swapped).any())


def parse_mixed(text: Series, order: str) -> Series:
    """Cells as UTC times, whatever their format; NaT for other cells, and for a month beyond 12."""
    iso = _iso(text, order)
    dates = pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True)
    named = dates.isna() & iso.str.fullmatch(_WITH_MONTH).fillna(False).astype(bool)
    if named.any():
        with warnings.catch_warnings(action="ignore", category=UserWarning):
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
        year, time = parts["year"], parts["time"].fillna("").str.replace(r"^[ T]+", "T", regex=True)
        year = year.where(year.str.len() == 4, ("20" + year).where(year < "69", "19" + year))
        month, day = (parts[name].str.zfill(2) for name in ("first", "second")[:: -1 if is_day_first else 1])
        text = text.mask(found, (year + "-" + month + "-" + day + time).reindex(text.index))
    return text


def iso_dates(cells: Series, order: str) -> Series:
    """A text column in which most cells are dates, with these in ISO form; any other column as it is."""
    if not (pd.api.types.is_string_dtype(cells.dtype) or pd.api.types.is_object_dtype(cells.dtype)):
        return cells
    text = cells.astype("string")
    first = text.dropna().head(_DATE_SAMPLE)
    if first.empty or parse_mixed(first, order).notna().mean() < 0.5:
        return cells
    dates = parse_mixed(text, order)
    is_date = dates.notna().to_numpy()
    if is_date.sum() < _MOSTLY_DATES * max(1, int(text.notna().sum())):
        return cells
    has_time = bool((dates[is_date].dt.normalize() != dates[is_date]).any())
    form = "%Y-%m-%dT%H:%M:%S" if has_time else "%Y-%m-%d"
    return text.mask(is_date, dates.dt.strftime(form).astype("string"))


def mixed_dates(present: Series) -> tuple[str | None, str] | None:
    """The format of dates in several notations (None if the order is ambiguous), and a note; None if no dates."""
    sample = present.iloc[:: max(1, len(present) // (4 * _DATE_SAMPLE))]
    if max(parse_mixed(sample, order).notna().mean() for order in ORDERS) < 0.5:
        return None
    text = present.astype("string").str.strip()
    parts = text.str.extract(f"^(?:{_NUMERIC})$")
    is_numeric = parts["first"].notna().to_numpy(dtype=bool)
    large = [(parts[name][is_numeric].astype(int) > 12).to_numpy() for name in ("first", "second")]
    has_points = is_numeric.any() and not large[1].any() and bool((parts["mark"][is_numeric] == ".").all())
    order = "day-first" if large[0].any() or has_points else "month-first"
    dates = parse_mixed(text, order)
    if dates.notna().mean() < _MOSTLY_DATES and not (large[0].any() and large[1].any()):
        return None
    shapes = text.str.replace(r"\d", "9", regex=True).str.replace(r"[^\W\d_]+", "a", regex=True)
    shapes = shapes.str.replace(r"9+(?=[/.\- ])", "9", regex=True).where(dates.notna().to_numpy())
    counts = shapes.value_counts()
    examples = [str(text[(shapes == shape).fillna(False)].iloc[0]) for shape in counts.index]
    odd = text[dates.isna().to_numpy()]
    others = f" and {len(odd):,} other cells, taken as missing" if len(odd) else ""
    is_large = [bool(one.any()) for one in large]
    is_unknown = all(is_large) or bool(is_numeric.any() and not any(is_large) and len(counts) > 1)
    # A reason why a column is left out is stored in the model, so it shows patterns and no cells.
    patterns = [re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", one)) for one in examples]
    shown = patterns if is_unknown else [f'"{one}"' for one in examples]
    cells = ", ".join([f"{one} in {n:,} cells" for one, n in zip(shown, counts, strict=True)][:3])
    message = (f"has dates in {len(counts)} formats ({cells})" if len(counts) > 1 else "has dates") + others
    if all(is_large):
        first, second = (f"{int(one.sum()):,}" for one in large)
        above = f"the first number is above 12 in {first} cells and the second in {second}"
        message += f" that contradict each other: {above}"
    elif is_unknown:
        message += f", and {AMBIGUOUS}"
    elif len(counts) == 1 and not len(odd):  # 03-Mar-24, 31/3/24 and 3.4.24 are clear
        is_clear = any(is_large) or has_points or parse_mixed(text, ORDERS[0]).equals(dates)
        message = "" if is_clear else f"was read {order}, but {AMBIGUOUS}"
    else:
        message += f" ({str(odd.iloc[0])[:40]!r})" if len(odd) else ""
        message += f", read {order}" if is_numeric.any() else ""
    return None if is_unknown else f"{MIXED}{order}", message
