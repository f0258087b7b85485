"""Columns of a mixed table as numbers: what each kind remembers of the training rows, and how it encodes new ones."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from crcen.tables.notation import MIXED, PLAIN, Notation, is_missing_mark, parse_mixed
from crcen.tables.typing import Array, Bools, Index, Series

BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0.0),
}
DATE_PARTS = ("days", "month", "day", "weekday", "hour")
_DAY = 86_400.0
# Steps of the training range to which its limits are rounded, and of the middle half to which medians are.
_RANGE_PARTS, _FILL_PARTS = 20, 50
_NGRAMS = (3, 4)


# What may be odd about a cell.
ODD_KINDS = ("unseen", "unreadable", "missing", "clipped")


class Encoded(NamedTuple):
    """Rows of one column as finite numbers, (n, width), counts of odd cells by kind, and the excess of clipped ones."""

    values: Array
    odd: Mapping[str, int]
    excess: float = 0.0


@dataclass(frozen=True, eq=False)
class EncodedTable:
    """A table as the network sees it; odd cells are counted by column, and ``excess`` is what clipping took off."""

    X: Array
    unseen: dict[str, int] = field(default_factory=dict)
    unreadable: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)
    clipped: dict[str, int] = field(default_factory=dict)
    excess: Mapping[str, float] = field(default_factory=dict)
    extra: tuple[str, ...] = ()


def _note() -> str:
    """The field for notes: they may quote cells, so files do not hold them."""
    found: str = field(default="", metadata={"is_stored": False})
    return found


def nice_step(spread: float, parts: int) -> float:
    """A step of 1, 2 or 5 times a power of ten that divides a spread into at most this number of parts; 0 for none."""
    if not 0.0 < spread < math.inf:
        return 0.0
    size = 10.0 ** math.floor(math.log10(spread / parts))
    return next((factor * size for factor in (1.0, 2.0, 5.0) if factor * size * parts >= spread), 10.0 * size)


def rounded(values: Array | float, step: float, direction: Literal["down", "nearest", "up"] = "nearest") -> Array:
    """Values rounded to multiples of a step, so that they do not identify a row; unchanged for the step 0."""
    if not step:
        return np.asarray(values, dtype=np.float64)
    how = {"down": np.floor, "nearest": np.rint, "up": np.ceil}[direction]
    decimals = max(0, 1 - math.floor(math.log10(step)))
    return np.asarray(np.round(how(np.asarray(values) / step) * step, min(decimals, 300)), dtype=np.float64)


def clip_limits(values: Array) -> tuple[float, float]:
    """Limits to which numbers are clipped: half the training range beyond each end, rounded outwards."""
    low, high = float(values.min()), float(values.max())
    spread = high - low
    margin = spread / 2 if 0.0 < spread < math.inf else max(abs(low), abs(high), 1.0)
    step = nice_step(2.0 * margin, _RANGE_PARTS)
    return float(rounded(low - margin, step, "down")), float(rounded(high + margin, step, "up"))


def typical_value(values: Array) -> float:
    """The median of finite numbers, rounded unless many rows share it."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return float(rounded(middle, nice_step(float(high - low), _FILL_PARTS)))


def as_text(series: Series) -> Series:
    """Cells as strings without spaces around them, missing ones kept; whole numbers without a decimal point."""
    import pandas as pd

    if isinstance(series.dtype, pd.CategoricalDtype):
        series = series.astype(series.cat.categories.dtype)
    if pd.api.types.is_float_dtype(series.dtype):
        present = series.dropna().to_numpy(dtype=np.float64)
        if (np.abs(present) < 2.0**63).all() and (present == np.round(present)).all():
            series = series.astype("Int64")
    if series.dtype == object and any(isinstance(cell, bytes) for cell in series):
        series = series.map(lambda cell: cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell)
    text = series.astype("string").str.strip()
    return text.mask(text == "")


def is_text(series: Series) -> bool:
    """Whether numbers in a column would be written out."""
    import pandas as pd

    dtype = series.dtype
    return not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_timedelta64_dtype(dtype))


def as_numbers(series: Series, notation: Notation = PLAIN) -> Array:
    """Cells as float64; NaN where they are missing, infinite or no number of this notation."""
    import pandas as pd

    if pd.api.types.is_timedelta64_dtype(series.dtype):
        series = series.dt.total_seconds()
    elif is_text(series):
        if notation != PLAIN:
            return notation.numbers(as_text(series))
        series = pd.to_numeric(as_text(series), errors="coerce")
    values = series.to_numpy(dtype=np.float64, na_value=np.nan)
    return np.where(np.isfinite(values), values, np.nan)


def as_dates(series: Series, date_format: str | None) -> Series:
    """Cells as UTC times; NaT where they are missing, no date of this format, or not of the years 1 to 9999."""
    import pandas as pd

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


class Column(ABC):
    """A column that the model uses; if it ``has_missing`` cells, an indicator follows its encoded columns."""

    kind: str
    name: str
    has_missing: bool
    note: str

    @property
    def _names(self) -> list[str]:
        return [self.name]

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns; the last one states whether the cell is missing."""
        return [*self._names, f"{self.name} is missing"] if self.has_missing else self._names

    @abstractmethod
    def encode(self, series: Series) -> Encoded:
        """The column's cells as numbers."""

    def describe(self) -> dict[str, object]:
        """What a schema says of the column, JSON-able."""
        noted = {"note": self.note} if self.note else {}
        return {"name": self.name, "kind": self.kind, "has_missing": self.has_missing, **noted}

    def _with_indicator(self, values: Array, is_gap: Bools, n_missing: int, **odd: int) -> Encoded:
        """Values with the indicator of gaps; without one, missing cells are counted as odd."""
        if self.has_missing:
            return Encoded(np.column_stack([values, is_gap]), odd)
        return Encoded(values, {"missing": n_missing, **odd})

    def _filled(self, values: Array, fill: Array | float, was_there: Bools, excess: Array | float = 0.0) -> Encoded:
        """NaN rows filled; clipped and unreadable cells counted."""
        is_gap = np.asarray(np.isnan(values).any(axis=1))
        odd = {"unreadable": int((is_gap & was_there).sum()), "clipped": int(np.count_nonzero(excess))}
        found = self._with_indicator(np.where(is_gap[:, None], fill, values), is_gap, int((~was_there).sum()), **odd)
        return found._replace(excess=float(np.sum(excess)))


@dataclass(frozen=True, eq=False)
class NumberColumn(Column):
    """Numbers, clipped to ``low`` and ``high``; missing ones become the median of the training rows."""

    name: str
    fill: float
    has_missing: bool
    low: float = -math.inf
    high: float = math.inf
    decimal: str = "."
    thousands: str = ""
    affix: str = ""
    note: str = _note()
    kind = "number"

    @cached_property
    def notation(self) -> Notation:
        """How numbers are written where cells are strings."""
        return Notation(self.decimal, self.thousands, self.affix)

    def read(self, series: Series) -> Array:
        """The numbers, NaN where they are missing."""
        return as_numbers(series, self.notation)

    def encode(self, series: Series) -> Encoded:
        """The numbers with missing ones filled, and the indicator."""
        values, was_there = self.read(series), series.notna().to_numpy(copy=True)
        unknown = np.flatnonzero(np.isnan(values) & was_there)
        if len(unknown) and is_text(series):
            was_there[unknown] = ~as_text(series.iloc[unknown]).fillna("-").map(is_missing_mark).to_numpy(dtype=bool)
        clipped = np.clip(values, self.low, self.high)
        return self._filled(clipped[:, None], self.fill, was_there, np.nan_to_num(values - clipped))


@dataclass(frozen=True, eq=False)
class BooleanColumn(Column):
    """Truth values as 0 and 1; missing ones become the commoner of the training rows."""

    name: str
    fill: float
    has_missing: bool
    note: str = _note()
    kind = "boolean"

    def read(self, series: Series) -> Array:
        """The truth values, NaN where they are missing."""
        found: Array = as_text(series).str.lower().map(BOOLEAN_WORDS).to_numpy(dtype=np.float64, na_value=np.nan)
        return found

    def encode(self, series: Series) -> Encoded:
        """The truth values with missing ones filled, and the indicator."""
        return self._filled(self.read(series)[:, None], self.fill, series.notna().to_numpy())


@dataclass(frozen=True, eq=False)
class DateColumn(Column):
    """Dates in parts, days clipped to ``low`` and ``high``; missing ones become the median of each part."""

    name: str
    date_format: str | None
    parts: tuple[str, ...]
    fill: Array
    has_missing: bool
    low: float = -math.inf
    high: float = math.inf
    note: str = _note()
    kind = "date"

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}: {part}" for part in self.parts]

    @staticmethod
    def all_parts(dates: Series) -> Mapping[str, Array]:
        """Every part of `DATE_PARTS` as numbers, NaN where the date is missing."""
        import pandas as pd

        found = {
            "days": (dates - pd.Timestamp("1970-01-01", tz="UTC")).dt.total_seconds() / _DAY,
            "month": dates.dt.month,
            "day": dates.dt.day,
            "weekday": dates.dt.day_of_week,
            "hour": dates.dt.hour + dates.dt.minute / 60.0,
        }
        return {name: part.to_numpy(dtype=np.float64, na_value=np.nan) for name, part in found.items()}

    def read(self, series: Series) -> Array:
        """The dates in days since 1970, NaN where they are missing."""
        return self.all_parts(as_dates(series, self.date_format))["days"]

    def encode(self, series: Series) -> Encoded:
        """The parts with missing ones filled, and the indicator."""
        found = self.all_parts(as_dates(series, self.date_format))
        days = np.clip(found["days"], self.low, self.high)
        parts = np.column_stack([days if part == "days" else found[part] for part in self.parts])
        return self._filled(parts, self.fill, series.notna().to_numpy(), np.nan_to_num(found["days"] - days))


@dataclass(frozen=True, eq=False)
class CategoryColumn(Column):
    """Categories as columns of zeros and ones; rare values share one if training rows ``has_other``."""

    name: str
    categories: tuple[str, ...]
    has_other: bool
    has_missing: bool
    note: str = _note()
    kind = "category"

    @property
    def _names(self) -> list[str]:
        others = [f"{self.name} is another"] if self.has_other else []
        return [*(f"{self.name} = {category}" for category in self.categories), *others]

    def describe(self) -> dict[str, object]:
        """With the number of named values."""
        return {**super().describe(), "n_values": len(self.categories)}

    def encode(self, series: Series) -> Encoded:
        """Zeros and ones; a value without a column of its own is another one, or all zeros if training had none."""
        import pandas as pd

        text = as_text(series)
        codes = pd.Index(self.categories).get_indexer(text)
        is_missing = text.isna().to_numpy()
        is_unseen = (codes < 0) & ~is_missing
        places = np.where(is_unseen & self.has_other, len(self.categories), codes)
        values = np.asarray(places[:, None] == np.arange(len(self._names)), dtype=np.float64)
        return self._with_indicator(values, is_missing, int(is_missing.sum()), unseen=int(is_unseen.sum()))

    @cached_property
    def places(self) -> dict[str, int]:
        """The encoded column of each category."""
        return {category: place for place, category in enumerate(self.categories)}


@dataclass(frozen=True, eq=False)
class TextColumn(Column):
    """Free text: tf-idf of the character n-grams inside words, projected on ``components``, (n-grams, parts)."""

    name: str
    ngrams: tuple[str, ...]
    idf: Array
    components: Array
    has_missing: bool
    note: str = _note()
    kind = "text"

    def __post_init__(self) -> None:
        """Reject arrays that do not belong to the n-grams."""
        n = len(self.ngrams)
        if not n or len(set(self.ngrams)) != n or self.idf.shape != (n,) or self.components.ndim != 2:
            raise ValueError("a text column without n-grams, or with repeated ones")
        if len(self.components) != n or self.idf.dtype != np.float64 or self.components.dtype != np.float64:
            raise ValueError("a text column with other arrays than those of its n-grams")

    @classmethod
    def learn(cls, name: str, present: Series, has_missing: bool, n_parts: int, n_rows: int, seed: int) -> TextColumn:
        """The column of these texts, with n-grams of at least this number of rows; a ValueError if there are none."""
        from sklearn.decomposition import TruncatedSVD

        words = _vectorizer(min_df=n_rows)
        found = words.fit_transform(present.to_numpy(dtype=object))
        ngrams = words.get_feature_names_out()
        components = np.eye(len(ngrams))
        if len(ngrams) > n_parts:
            svd = TruncatedSVD(n_parts, random_state=seed).fit(found)
            components = np.ascontiguousarray(svd.components_.T)
        parts = np.asarray(found @ components)
        scale = float(np.sqrt(parts.var(axis=0).sum())) or 1.0
        return cls(name, tuple(map(str, ngrams)), words.idf_, components / scale, has_missing)

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}: component {i + 1}" for i in range(self.components.shape[1])]

    @cached_property
    def _words(self) -> Any:
        words = _vectorizer(vocabulary={ngram: i for i, ngram in enumerate(self.ngrams)})
        words.idf_ = self.idf
        return words

    def encode(self, series: Series) -> Encoded:
        """The components; those of an empty string where the text is missing."""
        text = as_text(series)
        is_missing = text.isna().to_numpy()
        values = np.asarray(self._words.transform(text.fillna("").to_numpy(dtype=object)) @ self.components)
        return self._with_indicator(values, is_missing, int(is_missing.sum()))


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(analyzer="char_wb", ngram_range=_NGRAMS, **options)


def blocks_of(columns: Sequence[Column]) -> list[Index]:
    """The places of each column among the encoded columns."""
    ends = np.cumsum([0, *(len(column.encoded_names) for column in columns)])
    return [np.arange(a, b) for a, b in itertools.pairwise(ends)]
