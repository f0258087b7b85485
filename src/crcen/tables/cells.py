"""Cells of a table as text, numbers and dates in any notation; each column is converted once."""

import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from crcen._support.lazy import pa, pc, pd
from crcen.theory.rows import Array, ArrowArray, Bools, DataFrame, Index, Series

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
# What a letter right after the digits multiplies them by; `_SCALED` begins the affix of a column where it does.
_SCALES = {"k": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "b": 1e9, "bn": 1e9}
_SCALED = "×"
# Units of amounts; other letters after digits may be those of a code.
_UNITS = re.compile(
    r"k|m|mn|mio|bn|[km]?g|lb|oz|ton|[kcm]m|mi|ft|[cm]?l|h|hr|hour|min(ute)?|m?s|sec(ond)?|day|week|month|year|yr|[kmgt]b|[km]wh?"
)
# (decimal mark, mark between thousands), the likelier first where cells fit several.
_MARKS = ((".", ""), (".", ","), (",", ""), (",", "."), (".", " "), (".", "'"), (",", " "), (",", "'"))
# If fewer of a sample of cells look like numbers, the others are not checked.
_GLANCE, _ENOUGH = 200, 0.5
# A numeric column may hold this share of other cells, and one if it has so many rows.
_MOST_ODD, _FEWEST_ROWS = 0.01, 20
# Of its cells, for a column that is nearly one of numbers.
_MOSTLY = 0.8
_NUMBER = r"^[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?$"
# Words that dates may hold: letters of ISO 8601 and of clocks, endings of ordinals, months and days.
_DATE_WORD = re.compile(
    r"[tzhmsdwap]|am|pm|st|nd|rd|th|of|the|at|utc|gmt"
    r"|jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?|sept?(ember)?|oct(ober)?|nov(ember)?"
    r"|dec(ember)?|mon(day)?|tue(s(day)?)?|wed(nesday)?|thu(rs?(day)?)?|fri(day)?|sat(urday)?|sun(day)?"
)
# Cells of text that are converted to numbers at a time, and cells of an array of several columns.
_TOGETHER, _MOST_STACKED = 2**16, 2**18


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
    """The parts of a written number: the text around its digits, its digits and marks, its sign."""

    affix: str
    body: str
    is_negative: bool
    scale: str = ""  # of `_SCALES`; without another affix it is the affix, too

    @property
    def unit(self) -> str:
        """The affix, if it is no scale."""
        return "" if self.affix == self.scale else self.affix


def _cell(text: str) -> _Cell | None:
    found = _CELL.fullmatch(text)
    if found is None or bool(found["opened"]) != bool(found["closed"]):
        return None
    signs = [found[name] for name in ("sign", "second", "third") if found[name]]
    units = [found[name].casefold() for name in ("before", "after") if found[name]]
    affixes = {unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit for unit in units}  # one year, two years
    scale = units[-1] if units and units[-1] in _SCALES and found.start("after") == found.end("body") else ""
    if len(affixes) > 1:
        affixes.discard(scale)
    if len(signs) + bool(found["opened"]) > 1 or len(affixes) > 1:
        return None
    body = re.sub(r"\s", " ", found["body"].replace("’", "'").replace("_", "'"))
    return _Cell("".join(affixes), body, bool(found["opened"]) or (bool(signs) and signs[0] != "+"), scale)


def is_missing_mark(text: str) -> bool:
    """Whether a cell of a column of numbers states a missing value."""
    return _MISSING_MARK.fullmatch(text) is not None


def _are_marks(distinct: Series) -> Bools:
    cells = pa.array(distinct, pa.large_string())
    return np.asarray(pc.match_substring_regex(cells, f"^(?:{_MISSING_MARK.pattern})$", ignore_case=True), dtype=bool)


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written; ``affix`` is a currency, ``%`` or a unit around them, in lower case.

    An affix that begins with `_SCALED` says that k, M and the like multiply: 1.06k is 1060.
    """

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
        if cell is None or not self._pattern.fullmatch(cell.body):
            return math.nan
        is_scaled = self.affix.startswith(_SCALED)
        is_other = (cell.unit if is_scaled else cell.affix) not in ("", self.affix.removeprefix(_SCALED))
        if is_other or (not is_scaled and cell.scale not in ("", cell.affix)):  # $1.2k among dollars
            return math.nan
        size = float(cell.body.replace(self.thousands, "").replace(self.decimal, "."))
        size *= _SCALES.get(cell.scale, 1.0) if is_scaled else 1.0
        return -size if cell.is_negative else size

    def numbers(self, codes: Index, distinct: Iterable[str]) -> Array:
        """The numbers of a column of strings; NaN where one is missing, infinite or not written so."""
        return finite(self.values([_cell(one) for one in distinct])[codes])


def finite(values: Array) -> Array:
    """Values with NaN instead of infinite ones."""
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
    different: tuple[str, ...] = ()  # cells of these units
    n_bare: int = 0  # cells without % in a column of percent
    swapped: str = ""  # a cell with the other decimal mark, if all odd cells have it, a few aside

    @property
    def is_amount(self) -> bool:
        """Whether the cells are numbers to a person, if of different units or with too many odd ones among them."""
        if not self.units:
            return self.share > _MOSTLY or bool(self.swapped)
        are_known = any(unit in "%‰" or _CURRENCY.fullmatch(unit) or unit == "no unit" for unit in self.units)
        return are_known or all(map(_UNITS.fullmatch, self.units))

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
    affixes, scales, parted, units = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for cell, count in zip(cells, counts, strict=True):
        if cell is not None:
            affixes[cell.affix] += int(count)
            scales[cell.scale] += int(count)
            parted["" if cell.body.isdigit() else cell.scale] += int(count)
            units[cell.unit] += int(count)
    are_scaled = _are_scaled(*map(_common, (scales, parted, units)))
    affixes = Counter([_SCALED + "".join(_common(units))]) if are_scaled else affixes
    notation = _likeliest(cells, counts, affixes)
    values = notation.values(cells)
    fits = ~np.isnan(values[:-1])

    def how_telling(text: str) -> tuple[int, int]:  # of a notation
        return sum(not one.isdigit() and one not in "+-" for one in text), -len(text)

    differing = () if are_scaled else _different_units(affixes)
    first = {cell.affix or "no unit": text for cell, text in zip(cells[::-1], distinct[::-1], strict=True) if cell}
    is_odd = np.append(~fits & ~is_mark, False)[codes]
    n_odd, n_numbers = int(is_odd.sum()), int(counts[fits].sum())
    swap = Notation("," if notation.decimal == "." else ".", "", notation.affix)
    swaps = ~fits & np.isfinite(swap.values(cells)[:-1])
    are_swapped = n_odd - int(counts[swaps].sum()) <= _MOST_ODD * (n_odd + n_numbers)
    return NumberReading(
        notation=notation,
        values=finite(values[codes]),
        share=n_numbers / max(1, n_odd + n_numbers),
        first_odd=int(is_odd.argmax()) if n_odd else None,
        n_odd=n_odd,
        n_marked=int(counts[is_mark].sum()),
        example=max(map(str, distinct[fits]), key=how_telling, default=""),
        mark=str(distinct[is_mark][0]) if is_mark.any() else "",
        units=differing,
        different=tuple(first[unit] for unit in differing if unit in first),
        n_bare=affixes[""] if notation.affix in ("%", "‰") else 0,
        swapped=str(distinct[swaps][0]) if are_swapped and swaps.any() else "",
    )


def _common(affixes: Counter[str]) -> list[str]:
    """Those on more than a few cells, the most frequent first."""
    return [unit for unit, count in affixes.most_common() if unit and count > _MOST_ODD * affixes.total()]


def _are_scaled(scales: list[str], parted: list[str], units: list[str]) -> bool:
    """Whether k, M and the like multiply; but for money, 12b and 14m may be codes, and m alone may be metres."""
    is_money = len(units) == 1 and _CURRENCY.fullmatch(units[0]) is not None
    are_amounts = "k" in scales or (len(scales) > 1 and bool(parted))
    return bool(scales) and (is_money or (not units and are_amounts))


def _different_units(affixes: Counter[str]) -> tuple[str, ...]:
    """Units that are seen on more than a few cells each, so that numbers cannot be compared."""
    n_cells, common = affixes.total(), _common(affixes)
    if len(common) > 1:
        return tuple(common[:3])
    # Money and percent may go without a sign here and there; 5 and 5 kg may be two things.
    if common and common[0] not in "%‰" and not _CURRENCY.fullmatch(common[0]) and affixes[""] > _MOST_ODD * n_cells:
        is_unit = len(common[0]) > 1 or _UNITS.fullmatch(common[0])  # 4p may be a code
        return (common[0], "no unit") if is_unit else (common[0],)
    return ()


def _likeliest(cells: list[_Cell | None], counts: Index, affixes: Counter[str]) -> Notation:
    """The notation that most cells fit; of several, the usual one: 1,234 and 1.234 € are grouped, 1,234 % is not."""
    affix = next(iter(_common(affixes)), "")
    is_money = bool(affix) and _CURRENCY.fullmatch(affix.removeprefix(_SCALED)) is not None
    marks = sorted(_MARKS, key=lambda pair: bool(pair[1])) if affix in ("%", "‰") else _MARKS

    def merit(pair: tuple[str, str]) -> tuple[int, int]:
        fits = ~np.isnan(Notation(*pair, affix).values(cells)[:-1])
        is_grouped = [is_money and bool(pair[1]) and cell is not None and pair[1] in cell.body for cell in cells]
        return int(counts[fits].sum()), int(counts[fits & is_grouped].sum())

    best = Notation(*max(marks, key=merit), affix)
    if affix and not best.thousands:  # larger amounts than these may come, in groups
        best = replace(best, thousands="," if best.decimal == "." else ".")
    return best


# Cells that have such a value, at least, and as a share; different other values that show what is usual.
_FEWEST_CELLS, _FEWEST_SHARE, _FEWEST_OTHERS = 3, 0.001, 5
_USUAL = {float(sign * int(digits)) for digits in ("9", "99", "999", "9999", "99999", "999999") for sign in (1, -1)}
_MOST_SENTINELS, _MOST_STEPS = 3, 30  # codes of a column, and numbers of a scale such as 1, 10, 20, 100


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
            # The largest number of a scale is no larger a multiple of the one before it than half of the others are.
            steps = distinct[(distinct > 0.0) & (distinct < value)]
            is_step = 1 < len(steps) < _MOST_STEPS and value <= 1.001 * steps[-1] * np.median(steps[1:] / steps[:-1])
            is_common = count > 4 * counts[-6:-1].max()  # beside other large values of a skewed column
            is_step |= len(steps) >= _MOST_STEPS and value * np.median(steps) <= steps[-1] ** 2 and not is_common
            is_far = gap > 0.5 * span if value in _USUAL else gap > span and not is_step
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
    if is_word.any():
        is_code = np.array([re.fullmatch("[A-Z]{2}", str(value)) is not None for value in counts.index])
        if 2 * is_code.sum() > len(is_code):  # ND is a state among states
            is_word &= ~is_code
    found.update(counts[is_word].to_dict())
    return {word: int(count) for word, count in found.most_common()}


ORDERS = ("day-first", "month-first")
# Of dates that fit both orders.
AMBIGUOUS = "the order of day and month is ambiguous; state --dates day-first or --dates month-first"
# Before the order, in the format of a column with dates in several formats.
MIXED = "mixed "
_NUMERIC = r"(?P<first>\d{1,2})(?P<mark>[/.-])(?P<second>\d{1,2})(?P=mark)(?P<year>\d{4}|\d{2})(?P<time>[ T].*)?"
_YEAR_FIRST = r"(?P<year>\d{4})[/.-](?P<first>\d{1,2})[/.-](?P<second>\d{1,2})(?P<time>[ T].*)?"
_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[ T].*)?"
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
    distinct = pd.Series(present.unique()).astype(object)
    sample = distinct.iloc[:: max(1, len(distinct) // _DATE_SAMPLE)]
    tried: set[str | None] = {None}
    for day_first, cell in itertools.product((False, True), sample):
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            guess = pd.tseries.api.guess_datetime_format(str(cell), day_first)
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
    """Cells in any format as UTC times; NaT for other cells, and for a month beyond 12."""
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
    form = "%Y-%m-%dT%H:%M:%S" if (dates[is_date].dt.normalize() != dates[is_date]).any() else "%Y-%m-%d"
    return text.mask(is_date, dates.dt.strftime(form).astype("string"))


def mixed_dates(text: Series) -> tuple[str | None, str] | None:
    """The format of dates in several notations (None if the order is ambiguous), and a note; None if no dates."""
    sample = text.iloc[:: max(1, len(text) // (4 * _DATE_SAMPLE))]
    if max(parse_mixed(sample, order).notna().mean() for order in ORDERS) < 0.5:
        return None
    parts = text.str.extract(f"^(?:{_NUMERIC})$").dropna(subset="first")
    # The day is the number above 12, or the first one before points.
    n_first, n_second = (int((parts[name].astype(int) > 12).sum()) for name in ("first", "second"))
    if n_first and n_second:
        above = f"the first number is above 12 in {n_first:,} cells and the second in {n_second:,}"
        return None, f"has dates that contradict each other: {above}"
    has_points = len(parts) > 0 and not n_second and bool((parts["mark"] == ".").all())
    order = "day-first" if n_first or has_points else "month-first"
    dates = parse_mixed(text, order)
    if dates.notna().mean() < _MOSTLY_DATES:
        return None
    shapes = text.str.replace(r"\d", "9", regex=True).str.replace(r"[^\W\d_]+", "a", regex=True)
    shapes = shapes.str.replace(r"9+(?=[/.\- ])", "9", regex=True).where(dates.notna().to_numpy())
    counts, odd = shapes.value_counts(), text[dates.isna().to_numpy()]
    examples = [str(text[(shapes == shape).fillna(False)].iloc[0]) for shape in counts.index[:3]]
    is_unknown = len(parts) > 0 and not n_first and not n_second and len(counts) > 1
    # A reason why a column is left out is stored in the model, so it shows patterns and no cells.
    patterns = [re.sub(r"[^\W\d_]", "a", re.sub(r"\d", "9", one)) for one in examples]
    shown = patterns if is_unknown else [f'"{one}"' for one in examples]
    cells = ", ".join(f"{one} in {n:,} cells" for one, n in zip(shown, counts, strict=False))
    message = f"has dates in {len(counts)} formats ({cells})" if len(counts) > 1 else "has dates"
    message += f" and {len(odd):,} other cells, taken as missing" if len(odd) else ""
    if is_unknown:
        message += f", and {AMBIGUOUS}"
    elif len(counts) == 1 and not len(odd):  # 03-Mar-24, 31/3/24 and 3.4.24 are clear
        is_clear = n_first or n_second or has_points or parse_mixed(text, ORDERS[0]).equals(dates)
        message = "" if is_clear else f"was read {order}, but {AMBIGUOUS}"
    else:
        message += f" ({str(odd.iloc[0])[:40]!r})" if len(odd) else ""
        message += f", read {order}" if len(parts) else ""
    return None if is_unknown else f"{MIXED}{order}", message


def as_dates(series: Series, date_format: str | None) -> Series:
    """Cells as UTC times; NaT where they are missing, no date of this format, or not of the years 1 to 9999.

    ISO dates are read beside any other format, since they have one meaning; not beside years, days and months in turn.
    """
    if not pd.api.types.is_datetime64_any_dtype(series.dtype):
        series = as_text(series)
        if date_format is not None and date_format.startswith(MIXED):
            return parse_mixed(series, date_format.removeprefix(MIXED))
        dates = pd.to_datetime(series, format=date_format or "ISO8601", errors="coerce", utc=True)
        if date_format is not None and not date_format.startswith("%Y-%d") and dates.hasnans:
            iso = series.where(dates.isna() & series.str.fullmatch(_ISO_DATE).fillna(False).astype(bool))
            dates = dates.fillna(pd.to_datetime(iso, format="ISO8601", errors="coerce", utc=True))
        return dates
    series = series.dt.tz_localize("UTC") if series.dt.tz is None else series.dt.tz_convert("UTC")
    if series.dt.unit == "ns":
        return series
    times = series.dt.tz_localize(None).to_numpy()
    return series.where((times >= np.datetime64("0001-01-01")) & (times < np.datetime64("9999-12-31")))


def as_arrow(text: Series) -> ArrowArray:
    """Strings as one array of PyArrow."""
    cells = pa.array(text.array, pa.large_string())
    return cells.combine_chunks() if isinstance(cells, pa.ChunkedArray) else cells


def _cast(cells: ArrowArray) -> Array:
    """Strings as numbers, NaN for null; an ArrowInvalid if one is no number."""
    if len(cells) > _GLANCE:
        cells[:_GLANCE].cast(pa.float64())  # a long column of words takes long to fail
    return np.asarray(cells.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0)  # without -0


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
        """The index of each cell's string among the different strings, -1 if it is missing; and these strings."""
        codes, distinct = self.text.factorize()
        return codes, distinct

    @cached_property
    def counts(self) -> Series:
        """How often each string occurs, the most frequent first."""
        codes, distinct = self.codes
        counts = pd.Series(np.bincount(codes[codes >= 0], minlength=len(distinct)), index=distinct)
        return counts.sort_values(ascending=False, kind="stable")

    @property
    def n_values(self) -> int:
        """The number of different strings."""
        return len(self.codes[1])

    def examples(self, n: int) -> tuple[int, list[str]]:
        """The number of different values as written, and the ``n`` most frequent; none of lists or records."""
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
        return None if is_plain else read_numbers(*self.codes)

    @cached_property
    def dates(self) -> tuple[str | None, str] | None:
        """The format in which values are dates (None if it is unknown), and a note; None if they are none."""
        have_digits = _may_be_date(str(self.present.iloc[0])) and self.present.str.contains(r"\d", regex=True).all()
        if have_digits and (form := date_format(self.present)):
            return form, f"was read month-first, but {AMBIGUOUS}" if is_ambiguous(self.present, form) else ""
        return mixed_dates(self.present)

    def date_parts(self, form: str | None) -> Mapping[str, Array]:
        """Days since 1970, month, day, weekday and hour, NaN where a cell is no date of this format."""
        if form not in self._parts:
            dates = as_dates(self.series, form)
            found = {
                "days": (dates - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds() / 86_400.0,
                "month": dates.dt.month,
                "day": dates.dt.day,
                "weekday": dates.dt.day_of_week,
                "hour": dates.dt.hour + dates.dt.minute / 60.0,
            }
            self._parts[form] = {name: part.to_numpy(dtype=np.float64, na_value=np.nan) for name, part in found.items()}
        return self._parts[form]

    def at(self, position: int | None) -> str:
        """A cell and its location: a line or row of the file if the index has it, otherwise the position."""
        assert position is not None
        index = self.series.index
        place = f"{index.name} {index[position]}" if index.name in ("line", "row") else f"row {position + 1}"
        return f"{place}: {str(self.series.iloc[position])[:40]!r}"


def _may_be_date(cell: str) -> bool:
    """Whether a cell has a digit and only words of dates or short words in capitals, which may be time zones."""
    has_date_words = all(
        _DATE_WORD.fullmatch(word.lower()) or (word.isupper() and len(word) < 6)
        for word in re.findall(r"[^\W\d_]+", cell)
    )
    return has_date_words and any(map(str.isdigit, cell))


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
