"""How the numbers of a column are written: 1,234.50 or 1.234,50, with a currency, percent sign or unit around them."""

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["PLAIN", "Notation", "NumberReading", "is_missing_mark", "read_numbers"]

# pandas is optional, and no type checker sees it.
Series = Any

Array = NDArray[np.float64]

# What people write for "no number" beside what readers of files know; without case.
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
# A column may hold so many cells that are no numbers, at least one.
_MOST_ODD = 0.01
_FEWEST_ROWS = 20
# Of its cells, for a column that is nearly one of numbers.
_MOSTLY = 0.8


@dataclass(frozen=True)
class _Cell:
    """A number as it is written: what stands around its digits, its digits and marks, its sign."""

    affix: str
    body: str
    is_negative: bool


def _cell(text: str) -> _Cell | None:
    found = _CELL.fullmatch(text)
    if found is None or bool(found["opened"]) != bool(found["closed"]):
        return None
    signs = [found[name] for name in ("sign", "second", "third") if found[name]]
    affixes = {_unit(found[name]) for name in ("before", "after") if found[name]}
    if len(signs) + bool(found["opened"]) > 1 or len(affixes) > 1:
        return None
    body = re.sub(r"\s", " ", found["body"].replace("’", "'").replace("_", "'"))
    return _Cell("".join(affixes), body, bool(found["opened"]) or (bool(signs) and signs[0] != "+"))


def _unit(affix: str) -> str:
    """A unit in one spelling: without case, one year as two years."""
    unit = affix.casefold()
    return unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit


def _body(decimal: str, thousands: str) -> re.Pattern[str]:
    whole, fraction, exponent = r"\d+", rf"(?:{re.escape(decimal)}\d*)?", r"(?:[eE][-+]?\d+)?"
    if thousands:  # also in India's groups of two
        mark = re.escape(thousands)
        whole = rf"(?:[1-9]\d{{0,2}}(?:{mark}\d{{2,3}})*{mark}\d{{3}}|\d+)"
    return re.compile(rf"(?:{whole}{fraction}|{re.escape(decimal)}\d+){exponent}")


def is_missing_mark(text: str) -> bool:
    """Whether a cell of a column of numbers says that there is none."""
    return _MISSING_MARK.fullmatch(text) is not None


@dataclass(frozen=True)
class Notation:
    """How the numbers of a column are written.

    Parameters
    ----------
    decimal : {".", ","}
        Between whole and fraction.
    thousands : {"", ",", ".", " ", "'"}
        Between groups of three digits.
    affix : str
        What may stand before or behind a number: a currency, ``%``, a unit, all without case.
    """

    decimal: str = "."
    thousands: str = ""
    affix: str = ""

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return _body(self.decimal, self.thousands)

    def fits(self, cell: _Cell | None) -> bool:
        """Whether a cell is written so."""
        return cell is not None and cell.affix in ("", self.affix) and self._pattern.fullmatch(cell.body) is not None

    def value(self, cell: _Cell) -> float:
        """The number in a cell that fits."""
        size = float(cell.body.replace(self.thousands, "").replace(self.decimal, "."))
        return -size if cell.is_negative else size

    def numbers(self, text: Series) -> Array:
        """The numbers of a column of strings; NaN where one is missing, infinite or not written so."""
        import pandas as pd

        codes, distinct = pd.factorize(text)
        cells = [_cell(one) for one in distinct]
        found = [self.value(cell) if cell is not None and self.fits(cell) else math.nan for cell in cells]
        values = np.array([*found, math.nan])[codes]  # -1, a missing one, is the last
        return np.where(np.isfinite(values), values, np.nan)


PLAIN = Notation()


@dataclass(frozen=True, eq=False)
class NumberReading:
    """A column of strings looked at as numbers.

    Parameters
    ----------
    notation : Notation
        In which most cells are numbers.
    values : float64 array of shape (n,)
        The numbers; NaN elsewhere.
    share : float
        Numbers among the cells that are neither missing nor say so.
    first_odd : int or None
        Position of the first cell that is no number and does not say that it is missing.
    n_odd, n_marked : int
        Such cells, and cells that say that they are missing.
    example, mark : str
        A cell that shows the notation best, and one that says that it is missing.
    units : tuple of str
        Where cells have different units, or only some have one: those units.
    """

    notation: Notation
    values: Array
    share: float
    first_odd: int | None
    n_odd: int
    n_marked: int
    example: str
    mark: str
    units: tuple[str, ...] = ()

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


def read_numbers(text: Series) -> NumberReading | None:
    """Look at a column of strings as numbers.

    Parameters
    ----------
    text : pandas Series of strings
        Without spaces around them; missing cells are NA.

    Returns
    -------
    NumberReading or None
        The notation that most cells fit, decided by all of them; None where few look like numbers.
    """
    import pandas as pd

    codes, distinct = pd.factorize(text)
    counts = np.bincount(codes[codes >= 0], minlength=len(distinct))
    is_mark = np.array([is_missing_mark(one) for one in distinct], dtype=bool)
    glance = [one for one, marked in zip(distinct, is_mark, strict=True) if not marked]
    glance = glance[:: max(1, len(glance) // _GLANCE)]
    if not glance or sum(_cell(one) is not None for one in glance) < _ENOUGH * len(glance):
        return None
    cells = [None if marked else _cell(one) for one, marked in zip(distinct, is_mark, strict=True)]
    affixes: Counter[str] = Counter()
    for cell, count in zip(cells, counts, strict=True):
        if cell is not None:
            affixes[cell.affix] += int(count)
    notation = _likeliest(cells, counts, affixes)
    fits = np.array([notation.fits(cell) for cell in cells])
    found = [
        notation.value(cell) if cell is not None and fit else math.nan for cell, fit in zip(cells, fits, strict=True)
    ]
    values = np.array([*found, math.nan])[codes]
    is_odd = np.append(~fits & ~is_mark, False)[codes]
    n_odd, n_numbers = int(is_odd.sum()), int(counts[fits].sum())
    return NumberReading(
        notation,
        np.where(np.isfinite(values), values, np.nan),
        n_numbers / max(1, n_odd + n_numbers),
        int(np.flatnonzero(is_odd)[0]) if n_odd else None,
        n_odd,
        int(counts[is_mark].sum()),
        max((one for one, fit in zip(distinct, fits, strict=True) if fit), key=_tells, default=""),
        next((one for one, marked in zip(distinct, is_mark, strict=True) if marked), ""),
        _different_units(affixes),
    )


def _tells(text: str) -> tuple[int, int]:
    """How much of a notation a cell shows."""
    return sum(not one.isdigit() and one not in "+-" for one in text), -len(text)


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


def _likeliest(cells: list[_Cell | None], counts: Iterable[int], affixes: Counter[str]) -> Notation:
    """The notation that most cells fit; where several do, the one that is usual for such numbers.

    ``1,234`` alone is grouped, and so is ``1.234 €``: money has two decimals. ``1,234 %`` is a little more than one.
    """
    seldom = _MOST_ODD * affixes.total()
    affix = next((unit for unit, count in affixes.most_common() if unit and count > seldom), "")
    is_money = bool(affix) and _CURRENCY.fullmatch(affix) is not None
    marks = sorted(_MARKS, key=lambda pair: bool(pair[1])) if affix in ("%", "‰") else _MARKS
    best, best_merit = Notation(), (-1, -1)
    for decimal, thousands in marks:
        notation = Notation(decimal, thousands, affix)
        n_fit = n_grouped = 0
        for cell, count in zip(cells, counts, strict=True):
            if cell is not None and notation.fits(cell):
                n_fit += int(count)
                n_grouped += int(count) * (is_money and thousands != "" and thousands in cell.body)
        if (n_fit, n_grouped) > best_merit:
            best, best_merit = notation, (n_fit, n_grouped)
    if affix and not best.thousands:  # larger amounts than these may come, in groups
        best = replace(best, thousands="," if best.decimal == "." else ".")
    return best
