"""Columns of a mixed table: what each holds, or why it is left out, what its kind remembers, and how it is encoded."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from types import NoneType
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import linalg, pc, pd, sparse, threadpoolctl
from crcen._support.text import listed, plural
from crcen.exceptions import InvalidInput
from crcen.tables.cells import PLAIN, ColumnCells, Notation, TableCells, as_arrow, is_missing_mark, stacked
from crcen.theory.rows import Array, Bools, Cell, Index, Series, short

BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0.0),
}
# Steps of the training range to which its limits are rounded.
RANGE_PARTS = 20
_NGRAMS = (3, 4)
_LEAST_POWER = -330
_POWERS = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, 309)])
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
# The replacement of a missing number, and the limits to which numbers are clipped.
Limits: TypeAlias = Sequence[float]
_WORDS = [{"true", "false", "t", "f"}, {"yes", "no", "y", "n"}]
# What may be odd about a cell.
ODD_KINDS = ("unseen", "unreadable", "missing", "clipped")
# A cell as numbers, and what is odd about it, or nothing.
Read: TypeAlias = tuple[Sequence[float], str]
Words: TypeAlias = tuple[list[str], Index, Index]  # see `_split`
_NUMBER = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*", re.ASCII)
_ISO_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d)?)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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


def nice_step(spread: Array, parts: int) -> Array:
    """Steps of 1, 2 or 5 times a power of ten that divide spreads into at most this number of parts; 0 for none."""
    parted = spread / parts
    is_finite = (parted > 0.0) & (parted < math.inf)
    parted = np.where(is_finite, parted, 1.0)
    size = _POWERS[np.floor(np.log10(parted)).astype(np.int64) - _LEAST_POWER]
    steps = [factor * size for factor in (1.0, 2.0, 5.0)]
    return np.where(is_finite, np.select([one * parts >= spread for one in steps], steps, 10.0 * size), 0.0)


def rounded(values: Array, step: Array, direction: Literal["down", "nearest", "up"] = "nearest") -> Array:
    """Values rounded to multiples of steps, so that they do not identify a row; unchanged for the step 0."""
    how = {"down": np.floor, "nearest": np.rint, "up": np.ceil}[direction]
    some = np.where(step > 0.0, step, 1.0)
    decimals = np.clip(1 - np.floor(np.log10(some)).astype(np.int64), 0, 308)
    scale = _POWERS[decimals - _LEAST_POWER]
    return np.where(step > 0.0, np.rint(how(values / some) * some * scale) / scale, values)


def clip_limits(low: Array, high: Array) -> tuple[Array, Array]:
    """Limits to which numbers of training ranges are clipped: half of it beyond each end, rounded outwards."""
    spread = high - low
    is_finite = (spread > 0.0) & (spread < math.inf)
    margin = np.where(is_finite, spread / 2, np.maximum(np.maximum(np.abs(low), np.abs(high)), 1.0))
    step = nice_step(2.0 * margin, RANGE_PARTS)
    return rounded(low - margin, step, "down"), rounded(high + margin, step, "up")


class _NotPlain(Exception):
    """A cell that only the column itself can read."""


@dataclass(frozen=True, eq=False)
class Column(ABC):
    """A column that the model uses; if it ``has_missing`` cells, an indicator follows its encoded columns."""

    kind: ClassVar[str]
    name: str
    has_missing: bool
    # Notes may quote cells, so files do not hold them.
    note: str = field(default="", kw_only=True, metadata={"is_stored": False})

    @property
    def _names(self) -> list[str]:
        return [self.name]

    @property
    def encoded_names(self) -> list[str]:
        """Names of the encoded columns; the last one states whether the cell is missing."""
        return [*self._names, f"{self.name} is missing"] if self.has_missing else self._names

    @abstractmethod
    def encode(self, cells: ColumnCells) -> Encoded:
        """The column's cells as numbers."""

    def _encode_cells(self, cells: list[Cell]) -> Iterable[Read]:
        """Numbers, strings and None as numbers, as `encode` would; other cells raise `_NotPlain`."""
        return map(self._encode_cell, cells)

    def _encode_cell(self, cell: Cell) -> Read:
        raise _NotPlain

    def _cell(self, values: Sequence[float], odd: str = "", *, is_gap: bool = False) -> Read:
        return ([*values, float(is_gap)], odd) if self.has_missing else (values, odd or "missing" * is_gap)

    def describe(self) -> dict[str, object]:
        """The column in a schema, as plain values."""
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

    fill: float
    low: float = -math.inf
    high: float = math.inf
    decimal: str = "."
    thousands: str = ""
    affix: str = ""
    kind = "number"

    @cached_property
    def notation(self) -> Notation:
        """How numbers are written where cells are strings."""
        return Notation(self.decimal, self.thousands, self.affix)

    def read(self, cells: ColumnCells) -> Array:
        """The numbers, NaN where they are missing."""
        is_plain = self.notation == PLAIN or not cells.is_text
        return cells.numbers if is_plain else self.notation.numbers(*cells.codes)

    def encode(self, cells: ColumnCells) -> Encoded:
        """The numbers with missing ones filled, and the indicator."""
        values, was_there = self.read(cells), cells.is_there.copy()
        unknown = np.flatnonzero(np.isnan(values) & was_there)
        if len(unknown) and cells.is_text:
            was_there[unknown] = ~cells.text.iloc[unknown].fillna("-").map(is_missing_mark).to_numpy(dtype=bool)
        clipped = np.clip(values, self.low, self.high)
        return self._filled(clipped[:, None], self.fill, was_there, np.nan_to_num(values - clipped))

    def _encode_cell(self, cell: Cell) -> Read:
        is_exact = type(cell) is int and abs(cell) <= 2**53
        if is_exact or (type(cell) is str and self.notation == PLAIN and _NUMBER.fullmatch(cell)):
            cell = float(cell)
        if cell is not None and type(cell) is not float:
            raise _NotPlain
        if cell is None or not math.isfinite(cell):
            return self._cell([self.fill], "" if cell is None else "unreadable", is_gap=True)
        value = min(max(cell, self.low), self.high)
        return self._cell([value], "" if value == cell else "clipped")


@dataclass(frozen=True, eq=False)
class BooleanColumn(Column):
    """Truth values as 0 and 1; missing ones become the commoner of the training rows."""

    fill: float
    kind = "boolean"

    def read(self, cells: ColumnCells) -> Array:
        """The truth values, NaN where they are missing."""
        codes, distinct = cells.codes
        return np.array([*(BOOLEAN_WORDS.get(word.lower(), np.nan) for word in distinct), np.nan])[codes]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The truth values with missing ones filled, and the indicator."""
        return self._filled(self.read(cells)[:, None], self.fill, cells.is_there)

    def _encode_cell(self, cell: Cell) -> Read:
        if type(cell) not in (bool, int, str, NoneType):
            raise _NotPlain
        value = BOOLEAN_WORDS.get(str(cell).strip().lower())
        if value is None:
            return self._cell([self.fill], "" if cell is None else "unreadable", is_gap=True)
        return self._cell([value])


@dataclass(frozen=True, eq=False)
class DateColumn(Column):
    """Dates in parts, days clipped to ``low`` and ``high``; missing ones become the median of each part."""

    date_format: str | None
    parts: tuple[str, ...]
    fill: Array
    low: float = -math.inf
    high: float = math.inf
    kind = "date"

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}: {part}" for part in self.parts]

    def read(self, cells: ColumnCells) -> Array:
        """The dates in days since 1970, NaN where they are missing."""
        return cells.date_parts(self.date_format)["days"]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The parts with missing ones filled, and the indicator."""
        found = cells.date_parts(self.date_format)
        days = np.clip(found["days"], self.low, self.high)
        parts = np.column_stack([days if part == "days" else found[part] for part in self.parts])
        return self._filled(parts, self.fill, cells.is_there, np.nan_to_num(found["days"] - days))

    def _encode_cell(self, cell: Cell) -> Read:
        if cell is None:
            return self._cell(self.fill.tolist(), is_gap=True)
        text, form = cell.strip() if type(cell) is str else "", self.date_format
        if not (form or _ISO_TIME.fullmatch(text)):
            raise _NotPlain
        try:
            time = datetime.strptime(text, form) if form else datetime.fromisoformat(text)
        except ValueError as error:
            raise _NotPlain from error
        time = time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
        days = (time - _EPOCH).total_seconds() / 86_400.0
        found = {"days": min(max(days, self.low), self.high), "month": time.month, "day": time.day}
        found |= {"weekday": time.weekday(), "hour": time.hour + time.minute / 60.0}
        return self._cell([float(found[part]) for part in self.parts], "" if found["days"] == days else "clipped")


@dataclass(frozen=True, eq=False)
class CategoryColumn(Column):
    """Categories as columns of zeros and ones; rare values share one if training rows ``has_other``."""

    categories: tuple[str, ...]
    has_other: bool
    kind = "category"

    @property
    def _names(self) -> list[str]:
        others = [f"{self.name} is another"] if self.has_other else []
        return [*(f"{self.name} = {category}" for category in self.categories), *others]

    def describe(self) -> dict[str, object]:
        """With the number of named values."""
        return {**super().describe(), "n_values": len(self.categories)}

    def encode(self, cells: ColumnCells) -> Encoded:
        """Zeros and ones; a value without a column of its own is another one, or all zeros if training had none."""
        places, odd = self.places(cells)
        values, rows = np.zeros((len(places), len(self.encoded_names))), np.flatnonzero(places >= 0)
        values[rows, places[rows]] = 1.0
        return Encoded(values, odd)

    def places(self, cells: ColumnCells) -> tuple[Index, dict[str, int]]:
        """Which encoded column is one, -1 for none, and counts of odd cells."""
        codes, distinct = cells.codes
        known = pd.Index(self.categories).get_indexer(distinct)
        others, gap = (len(self.categories) if self.has_other else -1), len(self._names) if self.has_missing else -1
        odd = {"unseen": int(np.append(known < 0, False)[codes].sum())}
        odd |= {} if self.has_missing else {"missing": int((codes < 0).sum())}
        return np.append(np.where(known < 0, others, known), gap)[codes], odd

    def _encode_cell(self, cell: Cell) -> Read:
        if type(cell) not in (str, int, NoneType):
            raise _NotPlain
        text = "" if cell is None else str(cell).strip()
        values = [0.0] * (len(self.categories) + self.has_other)
        if not text:
            return self._cell(values, is_gap=True)
        place = self._places.get(text, len(self.categories))
        if place < len(values):
            values[place] = 1.0
        return self._cell(values, "" if text in self._places else "unseen")

    @cached_property
    def _places(self) -> dict[str, int]:
        return {category: place for place, category in enumerate(self.categories)}


@dataclass(frozen=True, eq=False)
class TextColumn(Column):
    """Free text: tf-idf of the character n-grams inside words, projected on ``components``, (n-grams, parts)."""

    ngrams: tuple[str, ...]
    idf: Array
    components: Array
    kind = "text"

    def __post_init__(self) -> None:
        """Reject arrays that do not belong to the n-grams."""
        n, arrays = len(self.ngrams), (self.idf, self.components)
        has_shapes = self.idf.shape == (n,) and self.components.ndim == 2 and len(self.components) == n > 0
        if not has_shapes or len(set(self.ngrams)) != n or any(one.dtype != np.float64 for one in arrays):
            raise ValueError("a text column with arrays that are not those of its n-grams, or with repeated n-grams")

    @classmethod
    def learn(cls, cells: ColumnCells, seed: int, note: str) -> TextColumn | DroppedColumn:
        """The column of these texts, with the n-grams of at least `FEWEST_ROWS` rows."""
        texts, words, ngrams = _ngram_counts(_split(cells.present))
        n_with = np.bincount((texts @ words).indices, minlength=len(ngrams))
        is_common = n_with >= FEWEST_ROWS
        if not is_common.any():
            return DroppedColumn(cells.name, f"no part of its texts occurs in {FEWEST_ROWS} rows or more")
        idf = np.log((1 + texts.shape[0]) / (1 + n_with[is_common])) + 1.0
        texts, words = _tf_idf(texts, words[:, is_common], idf)
        components = np.eye(len(idf)) if len(idf) <= TEXT_COMPONENTS else _main_directions(texts, words, seed)
        parts = texts @ (words @ components)
        scale = float(np.sqrt(parts.var(axis=0).sum())) or 1.0
        known = tuple(map(str, ngrams[is_common]))
        return cls(cells.name, cells.has_missing, known, idf, components / scale, note=note)

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}: component {i + 1}" for i in range(self.components.shape[1])]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The components; those of an empty string where the text is missing."""
        is_missing = cells.text.isna().to_numpy()
        return self._with_indicator(self._parts(_split(cells.text.fillna(""))), is_missing, int(is_missing.sum()))

    def _parts(self, split: Words) -> Array:
        texts, words = _tf_idf(*_ngram_counts(split, self._places)[:2], self.idf)
        return np.asarray(texts @ (words @ self.components))

    def _encode_cells(self, cells: list[Cell]) -> Iterable[Read]:
        if not all(cell is None or (type(cell) is str and cell.isprintable()) for cell in cells):
            raise _NotPlain  # among them spaces that Python and PyArrow may distinguish
        split, place = [(cell or "").split() for cell in cells], dict[str, int]()
        numbers = np.array([place.setdefault(word, len(place)) for own in split for word in own], dtype=np.int64)
        parts = self._parts((list(place), numbers, np.array(list(map(len, split)))))
        return [self._cell(own, is_gap=not words) for own, words in zip(parts.tolist(), split, strict=True)]

    @cached_property
    def _places(self) -> dict[str, int]:
        return {ngram: place for place, ngram in enumerate(self.ngrams)}


def _split(texts: Series) -> Words:
    """The different words of texts, the number of each word in them, and how many words each text has."""
    split = pc.utf8_split_whitespace(as_arrow(texts))
    words = split.flatten().dictionary_encode()
    return words.dictionary.to_pylist(), np.array(words.indices), split.value_lengths().to_numpy(zero_copy_only=False)


def _ngram_counts(split: Words, places: Mapping[str, int] | None = None) -> tuple[Any, Any, NDArray[np.object_]]:
    """Counts of words in texts and of n-grams in words, (n, words) and (words, n-grams), and the n-grams."""
    # A text has far fewer words than n-grams, so both matrices in turn are much cheaper than their product. A space
    # stands at both ends of a word. Words are sorted: sums over them are then the same to the bit in any batch.
    distinct, numbers, lengths = split
    order = {word: i for i, word in enumerate(sorted(distinct))}
    numbers = np.array([order[word] for word in distinct], dtype=np.int64)[numbers]
    padded = [" ".join(["", *word.lower().split(), ""]) for word in order]
    parts = [[word[i : i + n] for n in _NGRAMS for i in range(len(word) - n + 1)] for word in padded]
    if places is None:
        places = {ngram: i for i, ngram in enumerate(sorted({ngram for own in parts for ngram in own}))}
    at = [[places[ngram] for ngram in own if ngram in places] for own in parts]
    found = np.fromiter(itertools.chain.from_iterable(at), np.int64)
    text_starts, word_starts = (np.append(0, np.cumsum(n)) for n in (lengths, [len(own) for own in at]))
    in_texts = sparse.csr_matrix((np.ones(len(numbers)), numbers, text_starts), shape=(len(lengths), len(parts)))
    in_words = sparse.csr_matrix((np.ones(len(found)), found, word_starts), shape=(len(parts), len(places)))
    in_texts.sum_duplicates()  # and sorts
    return in_texts, in_words, np.array(list(places), dtype=object)


def _tf_idf(texts: Any, words: Any, idf: Array) -> tuple[Any, Any]:
    """Counts of `_ngram_counts`, overwritten by two factors of tf-idf with rows of length 1, or 0 without n-grams."""
    from sklearn.utils.extmath import row_norms

    words.data *= idf[words.indices]
    words.sum_duplicates()
    length = row_norms(texts @ words)
    texts.data *= np.repeat(1.0 / np.where(length > 0.0, length, 1.0), np.diff(texts.indptr))
    return texts, words


def _main_directions(texts: Any, words: Any, seed: int) -> Array:
    """The first right singular vectors of ``texts @ words``, (n-grams, parts), as scikit-learn's `randomized_svd`."""
    # Unlike that, it factorises no matrix with a row for each text, which would take most of the time.
    n_parts, is_wide = TEXT_COMPONENTS, texts.shape[0] < words.shape[1]
    left, right = (words.T, texts.T) if is_wide else (texts, words)
    found = np.random.RandomState(seed).normal(size=(right.shape[1], n_parts + 10))
    with threadpoolctl.threadpool_limits(1, user_api="blas"):  # several threads would mostly wait
        for _ in range(5):
            found = linalg.lu(right.T @ (left.T @ (left @ (right @ found))), permute_l=True)[0]
        tall = left @ (right @ found)
        squares, axes = np.linalg.eigh(tall.T @ tall)
        is_known = squares > 1e-14 * squares[-1]
        basis = tall @ (axes[:, is_known] / np.sqrt(squares[is_known]))
        u, sizes, v = np.linalg.svd((right.T @ (left.T @ basis)).T, full_matrices=False)
        parts = (basis @ u if is_wide else v.T)[:, :n_parts]
    # Few different words have fewer components: the rest would be rounding errors.
    parts = parts[:, sizes[:n_parts] > 1e-9 * sizes[0]]
    return np.ascontiguousarray(parts * np.sign(parts[np.abs(parts).argmax(axis=0), range(parts.shape[1])]))


@dataclass(frozen=True)
class DroppedColumn:
    """A column that the model does not use, and why."""

    name: str
    reason: str


# What pandas calls the index of a frame in a file: without a name in Parquet, and in CSV.
_NAMELESS_INDEX = re.compile(r"__index_level_\d+__|Unnamed: 0(\.\d+)*")
_THINGS = (
    "account|case|claim|client|customer|device|employee|event|family|household|item|loan|member|message|order|patient|"
    "person|policy|product|record|respondent|row|sample|session|student|subject|ticket|transaction|user|visit"
)
_ID_NAME = re.compile(
    rf"((^|[^a-z])(id|ids|uid|uuid|guid|key|hash|index|rownum|rownames|serial)|({_THINGS})_?(id|no|nr|num))$"
)
# Such names alone are those of an identifier that repeats.
_BEARER_NAME = re.compile(
    "account|client|customer|employee|household|member|patient|person|respondent|student|subject|user"
)
# Time goes up along a file and never repeats, and says something about its rows.
_TIME_NAME = re.compile(
    r"(^|[^a-z])(ts|t|at|time\w*|date\w*|epoch|unix|year|yr|month|week|day|hour|minute|second|when)s?([^a-z]|$)"
)
# So many repetitions are expected by chance among honest values; none has then a probability of 0.001.
_EXPECTED_TIES = 7.0
# Row numbers with gaps leave the straight line by at most this share of their range, and a bit for chance.
_EVEN = 0.05
# Digits in three or more parts, such as 79:17:2.
_PARTS = r"\d+(?:[:/#_-]\d+){2,}"
# Times of day, dates, and measures of two numbers such as 120/80, may differ in every row and mean something.
_MEASURES = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}(?:\D.*)?|\d{1,4}[/x×]\d{1,4}"
_NEARLY_ALL, _MANY_VALUES = 0.9, 255
# A repeating identifier has at least this number of values and of rows per value; no value is common.
_FEWEST_IDS, _REPEATS, _MOST_COMMON = 50, (1.1, 50.0), 0.01
# Values of a measurement meet by chance, or at round numbers; those of an identifier meet far more often.
_BEYOND_CHANCE, _BINS, _REPEATED_ROWS, _MOST_ROUND = 100.0, 50, 0.2, 0.2


def is_nameless_index(name: str) -> bool:
    """Whether this is what pandas calls an index without a name in Parquet and CSV files."""
    return _NAMELESS_INDEX.fullmatch(name) is not None


def results_of_predict(names: Collection[str], kept: Collection[str]) -> dict[str, str]:
    """Columns that `crcen predict` added to a table (a decision, probabilities and what belongs to them), by reason."""
    is_binary = "probability" in names
    is_ours = "decision" in names and (is_binary or sum(one.startswith("probability_") for one in names) > 1)
    pattern = rf"decision|probability{'' if is_binary else '_.+'}|audit|audit_probability|reasons_for|reason_\d+"
    left_out = (one for one in names if is_ours and one not in kept and re.fullmatch(pattern, one))
    return dict.fromkeys(left_out, "result of crcen predict")


def _words(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _is_named_so(name: str, n_values: int, n_rows: int) -> bool:
    return _ID_NAME.search(_words(name)) is not None and (n_values > 0.5 * n_rows or n_values > _MANY_VALUES)


def why_numbering(name: str, values: Array) -> str:
    """Why whole numbers in file order only number the rows; empty where they may be informative.

    Numbers that differ in every row count them if chance would have repeated several, or if they grow evenly.
    """
    if is_nameless_index(name):
        return _INDEX
    n = len(values)
    if n < _FEWEST_FOR_IDS or not (values == np.round(values)).all():
        return ""
    n_values, spread = len(np.unique(values)), float(values.max() - values.min())
    if n_values == n:
        if spread < 1.5 * n:
            return f"row number: {n:,} different whole numbers in a narrow range"
        if not _is_time(name, values):
            if n * n / (2.0 * spread) > _EXPECTED_TIES:
                return f"row number with gaps: {n:,} different whole numbers"
            if _grows_evenly(values):
                return f"row number with gaps: {n:,} whole numbers that grow along the file"
    if _is_named_so(name, n_values, n):
        return f"an identifier by its name: {n_values:,} different whole numbers in {n:,} rows"
    return ""


def _is_time(name: str, values: Array) -> bool:
    """By its name, or as seconds or milliseconds since 1970 that lie between 1990 and 2040."""
    if _TIME_NAME.search(_words(name)):
        return True
    first, last = values.min(), values.max()
    return any(6.3e8 * unit < first and last < 2.21e9 * unit for unit in (1.0, 1e3, 1e6, 1e9))


def _grows_evenly(values: Array) -> bool:
    """Whether numbers go up from row to row, about as far each time; sorted measurements have thin ends."""
    line = np.linspace(values[0], values[-1], len(values))
    most = (_EVEN + 1.0 / np.sqrt(len(values))) * (values[-1] - values[0])
    return bool((np.diff(values) > 0).all() and np.abs(values - line).max() < most)


def why_codes(name: str, present: Series, n_values: int, *, is_amount: bool) -> str:
    """Why strings, of ``n_values`` different ones, only name the rows; empty where they may be informative."""
    n = len(present)
    reason = f"an identifier: {n_values:,} different values in {n:,} rows"
    if _is_named_so(name, n_values, n):
        return reason
    if is_amount or n_values <= 0.2 * n or _share(present, _MEASURES) >= _NEARLY_ALL:
        return ""
    is_code = n_values == n or (n_values >= _NEARLY_ALL * n and _share(present, r".*\d.*") >= _NEARLY_ALL)
    if is_code and _share(present, r"[^\s,;]*") >= _NEARLY_ALL:
        return reason
    if (n_values > 0.5 * n or n_values > _MANY_VALUES) and _share(present, _PARTS) >= _NEARLY_ALL:
        return f"an identifier: {n_values:,} codes in {n:,} rows"
    return ""


def why_repeating(cells: ColumnCells, kind: str) -> str:
    """A warning if a column repeats like the identifier of a customer or patient; empty if it does not."""
    name, words = cells.name, _words(cells.name)
    if kind not in ("number", "category", "text") or _TIME_NAME.search(words):
        return ""
    is_named = _ID_NAME.search(words) or _BEARER_NAME.fullmatch(words)
    if not is_named and not (kind == "number" and _repeats_beyond_chance(cells)):
        return ""
    counts = cells.series.value_counts().to_numpy()
    n, n_values = int(counts.sum()), len(counts)
    few, many = _REPEATS
    is_bearer = words == "id" or _BEARER_NAME.fullmatch(words)  # of which one may be busy
    if not is_bearer and counts[0] > max(_MOST_COMMON * n, 20):
        return ""
    if n_values < _FEWEST_IDS or not few <= n / n_values <= many:
        return ""
    found = f"{name} repeats like a customer or patient ID ({n_values:,} values in {n:,} rows)"
    return f"{found}: drop it and use --clusters {name}"


def _repeats_beyond_chance(cells: ColumnCells) -> bool:
    """Whether numbers repeat far more often than those of a smooth distribution, and not at round numbers."""
    values = cells.numbers[cells.is_there]
    if not values.size or np.isnan(values).any() or max(-values.min(), values.max()) < 1e5:
        return False
    distinct, own = np.unique(values, return_counts=True)
    if len(distinct) < _FEWEST_IDS or own[own > 1].sum() < _REPEATED_ROWS * len(values):
        return False
    step = float(np.diff(distinct).min())
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)))
    in_bin = np.histogram(values, edges)[0]
    by_chance = float((in_bin * (in_bin - 1) / 2.0 / np.maximum(np.diff(edges) / step, 1.0)).sum())
    pairs = float((own * (own - 1) / 2.0).sum())
    is_round = np.rint(values / step) % 10 == 0
    return pairs > _BEYOND_CHANCE * max(by_chance, 1.0) and float(is_round.mean()) < _MOST_ROUND


def _share(present: Series, pattern: str) -> float:
    return float(present.str.fullmatch(pattern).mean())


def learn_columns(
    table: TableCells, dropped: Mapping[str, str], kept: Collection[str], categories: Collection[str], seed: int
) -> list[Column | DroppedColumn]:
    """How to encode each column, or why it is left out: ``dropped`` ones for stated reasons, see `learn_column`."""
    dropped = {**results_of_predict([*table.frame.columns], {*kept, *categories}), **dropped}
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
            reason = "" if is_kept else why_numbering(name, known)
            return DroppedColumn(name, reason) if reason else _number(name, known, len(series), limits)
    if cells.present.empty:
        reason = "every value is missing"
    elif cells.n_values == 1 and not cells.has_missing:
        reason = f"constant: every value is {short(cells.present.iloc[0], 40)}"
    elif is_category:
        return category_column(name, cells.counts, cells.has_missing)
    else:
        reason = "" if is_kept else _why_identifier(cells)
    return DroppedColumn(name, reason) if reason else _by_content(cells, seed)


def _limits(known: Array) -> Array:
    """The replacement of a missing number, and the limits to which numbers are clipped: (3,) or, of columns, (3, m)."""
    lower, middle, upper = np.quantile(known, [0.25, 0.5, 0.75], axis=-1)
    fill = rounded(middle, nice_step(upper - lower, _FILL_PARTS))
    return np.stack([fill, *clip_limits(known.min(axis=-1), known.max(axis=-1))])


def _why_identifier(cells: ColumnCells) -> str:
    """Why a column only names its rows; empty where it may be informative."""
    if cells.n_finite == len(cells.present) or is_nameless_index(cells.name):
        return why_numbering(cells.name, cells.numbers[np.isfinite(cells.numbers)])
    if len(cells.present) < _FEWEST_FOR_IDS:
        return ""
    is_amount = cells.reading is not None and cells.reading.is_amount
    reason = why_codes(cells.name, cells.present, cells.n_values, is_amount=is_amount)
    return "" if reason and cells.dates else reason


def _by_content(cells: ColumnCells, seed: int) -> Column | DroppedColumn:
    name, present, dtype, has_missing = cells.name, cells.present, cells.series.dtype, cells.has_missing
    may_be_words = str(present.iloc[0]).lower() in BOOLEAN_WORDS  # the first cell distinguishes most columns
    words = set(present.str.lower().unique()) if may_be_words else set()
    if pd.api.types.is_bool_dtype(dtype) or (words and any(words <= pair for pair in _WORDS)):
        values = present.str.lower().map(BOOLEAN_WORDS).to_numpy(dtype=np.float64)
        return BooleanColumn(name, has_missing, float(values.mean() > 0.5))
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return _date(cells, None)
    if dtype != "category":
        if pd.api.types.is_numeric_dtype(dtype) or cells.n_finite == len(present):
            if not cells.n_finite:
                return DroppedColumn(name, "every value is missing or infinite")
            return _number(name, cells.numbers[np.isfinite(cells.numbers)], len(cells.series))
        if cells.reading is not None and cells.reading.is_number:
            return _written_number(cells)
        if cells.dates is not None:
            form, message = cells.dates
            return DroppedColumn(name, message) if form is None else _date(cells, form, message and f"{name} {message}")
    counts = cells.counts
    is_free = cells.n_values > MOST_CATEGORIES or counts.iloc[0] < FEWEST_ROWS
    note = _why_no_number(cells, "text" if is_free else "categories")
    return TextColumn.learn(cells, seed, note) if is_free else category_column(name, counts, has_missing, note)


def _written_number(cells: ColumnCells) -> Column:
    """Numbers in a notation of their own, or with odd cells among them, and a note about it."""
    assert cells.reading is not None
    reading, notation, message = cells.reading, cells.reading.notation, []
    if notation != PLAIN:
        value = notation.numbers(np.zeros(1, dtype=np.int64), [reading.example])[0]
        message.append(f'was read as numbers ("{reading.example}" is {value:.10g})')
    if reading.n_bare:
        message.append(f"has {plural(reading.n_bare, 'cell')} without {notation.affix}, read as {notation.affix} too")
    if reading.n_odd:
        where = f"{'first ' * (reading.n_odd > 1)}{cells.at(reading.first_odd)}"
        message.append(f"has {plural(reading.n_odd, 'cell')} without a number, taken as missing ({where})")
    if reading.n_marked:
        message.append(f'has "{reading.mark}" or the like in {reading.n_marked} cells, taken as missing')
    note = f"{cells.name} {' and '.join(message)}" if message else ""
    known = reading.values[np.isfinite(reading.values)]
    return _number(cells.name, known, len(reading.values), **asdict(notation), note=note)


def _number(name: str, known: Array, n_rows: int, limits: Limits | None = None, **how: Any) -> NumberColumn:
    fill, low, high = _limits(known).tolist() if limits is None else limits
    return NumberColumn(name, len(known) < n_rows, fill, low, high, **how)


def _why_no_number(cells: ColumnCells, taken_for: str) -> str:
    """A note on a column that is nearly one of numbers; empty where it is not."""
    reading = cells.reading
    if reading is None or not reading.is_amount:
        return ""
    taken = f"{cells.name} was taken as {taken_for} although"
    if reading.units:
        such = listed(f'"{cell}"' for cell in reading.different)
        differ = f"their units differ ({', '.join(reading.units)}), such as {such}"
        return f"{taken} its cells begin or end in numbers: {differ}; write them in one unit to use them as numbers"
    if reading.swapped:
        marks = f'decimal points and commas, such as "{reading.example}" and "{reading.swapped}"'
        return f"{taken} its cells are numbers with {marks}; write them alike to use them as numbers"
    first = cells.at(reading.first_odd)
    return f"{taken} {reading.share:.0%} of its cells are numbers: {reading.n_odd} are not (first {first})"


def _date(cells: ColumnCells, form: str | None, note: str = "") -> Column | DroppedColumn:
    found = cells.date_parts(form)
    is_known = ~np.isnan(found["days"])
    if not is_known.any():
        return DroppedColumn(cells.name, "no date of the years 1 to 9999")
    known = {part: values[is_known] for part, values in found.items()}
    # A part that never varies, such as the hour of plain dates, carries no information.
    parts = tuple(part for part, values in known.items() if values.min() < values.max())
    if not parts:
        return DroppedColumn(cells.name, "constant: every value is one date")
    fill = np.array([_limits(known[part])[0] for part in parts])
    _, low, high = _limits(known["days"]).tolist()
    return DateColumn(cells.name, not is_known.all(), form, parts, fill, low, high, note=note)


def category_column(name: str, counts: Series, has_missing: bool, note: str = "") -> CategoryColumn | DroppedColumn:
    """A column of categories from the rows of each value; those of fewer than `FEWEST_ROWS` share one column."""
    named = sorted(str(value) for value in counts.index[counts >= FEWEST_ROWS][:MOST_CATEGORIES])
    if not named:
        return DroppedColumn(name, f"no value occurs in {FEWEST_ROWS} rows or more")
    return CategoryColumn(name, has_missing, tuple(named), len(named) < len(counts), note=note)


def blocks_of(columns: Sequence[Column]) -> list[slice]:
    """The indices of each column among the encoded columns."""
    ends = np.cumsum([0, *(len(column.encoded_names) for column in columns)])
    return [slice(a, b) for a, b in itertools.pairwise(ends)]


def encode_table(columns: Sequence[Column], table: TableCells) -> EncodedTable:
    """The cells of these columns as numbers, side by side, with counts of odd cells."""
    X = np.empty((len(table), sum(len(column.encoded_names) for column in columns)))
    odd: dict[str, Any] = {kind: {} for kind in ODD_KINDS}
    excess: dict[str, float] = {}
    table.load(column.name for column in columns if column.kind == "number")
    for column, block in zip(columns, blocks_of(columns), strict=True):
        part = column.encode(table[column.name])
        X[:, block] = part.values
        if part.excess:
            excess[column.name] = part.excess
        for kind, number in part.odd.items():
            odd[kind].update({column.name: number} if number else {})
    return EncodedTable(X, **odd, excess=excess)


def encode_rows(columns: Sequence[Column], rows: Sequence[Mapping[str, Cell]]) -> EncodedTable:
    """Rows as a data frame of them would be encoded, cell by cell: faster for the few rows that a service receives."""
    found: list[list[float]] = [[] for _ in rows]
    odd: dict[str, Any] = {kind: Counter() for kind in ODD_KINDS}
    for column in columns:
        cells = [_without_numpy(row.get(column.name)) for row in rows]
        values: Iterable[Sequence[float]]
        kinds: Iterable[str]
        try:
            values, kinds = zip(*column._encode_cells(cells), strict=True)
        except _NotPlain:
            if any(isinstance(cell, list | tuple | dict | np.ndarray) for cell in cells):
                message = f"a dict is one row, but {column.name!r} has several cells: give a list of dicts for more."
                raise InvalidInput(message) from None
            part = column.encode(ColumnCells(pd.Series(cells, name=column.name)))
            values, kinds = part.values.tolist(), Counter(part.odd).elements()
        for own, numbers in zip(found, values, strict=True):
            own.extend(numbers)
        for kind in filter(None, kinds):
            odd[kind][column.name] += 1
    return EncodedTable(np.array(found, dtype=np.float64), **odd)


def _without_numpy(cell: Cell) -> Cell:
    """A cell without NumPy's types; None for NaN."""
    cell = cell.item() if isinstance(cell, np.generic) else cell
    return None if type(cell) is float and math.isnan(cell) else cell
