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
from numpy.typing import NDArray

from crcen._support.lazy import pc, pd
from crcen.tables.cells import ColumnCells, TableCells, as_arrow, stacked
from crcen.tables.notation import PLAIN, Notation, is_missing_mark
from crcen.tables.typing import Array, Bools, Index, Series

BOOLEAN_WORDS = {
    **dict.fromkeys(("true", "yes", "t", "y", "1", "1.0"), 1.0),
    **dict.fromkeys(("false", "no", "f", "n", "0", "0.0"), 0.0),
}
# Steps of the training range to which its limits are rounded.
RANGE_PARTS = 20
_NGRAMS = (3, 4)
_LEAST_POWER = -330
_POWERS = np.array([float(f"1e{power}") for power in range(_LEAST_POWER, 309)])
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


def nice_step(spread: Array, parts: int) -> Array:
    """Steps of 1, 2 or 5 times a power of ten that divide spreads into at most this number of parts; 0 for none."""
    parted = spread / parts
    is_finite = (parted > 0.0) & (parted < math.inf)
    parted = np.where(is_finite, parted, 1.0)
    size = _POWERS[np.floor(np.log10(parted)).astype(np.int64) - _LEAST_POWER]
    steps = [factor * size for factor in (1.0, 2.0, 5.0)]
    step = np.select([one * parts >= spread for one in steps], steps, 10.0 * size)
    return np.where(is_finite, step, 0.0)


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
    def encode(self, cells: ColumnCells) -> Encoded:
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

    def read(self, cells: ColumnCells) -> Array:
        """The numbers, NaN where they are missing."""
        return cells.numbers if self.reads_plain(cells) else self.notation.numbers(*cells.codes)

    def reads_plain(self, cells: ColumnCells) -> bool:
        """Whether cells that are plain numbers are read as such."""
        return self.notation == PLAIN or not cells.is_text

    def encode(self, cells: ColumnCells) -> Encoded:
        """The numbers with missing ones filled, and the indicator."""
        values, was_there = self.read(cells), cells.is_there.copy()
        unknown = np.flatnonzero(np.isnan(values) & was_there)
        if len(unknown) and cells.is_text:
            was_there[unknown] = ~cells.text.iloc[unknown].fillna("-").map(is_missing_mark).to_numpy(dtype=bool)
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

    def read(self, cells: ColumnCells) -> Array:
        """The truth values, NaN where they are missing."""
        codes, distinct = cells.codes
        return np.array([*(BOOLEAN_WORDS.get(word.lower(), np.nan) for word in distinct), np.nan])[codes]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The truth values with missing ones filled, and the indicator."""
        return self._filled(self.read(cells)[:, None], self.fill, cells.is_there)


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

    def read(self, cells: ColumnCells) -> Array:
        """The dates in days since 1970, NaN where they are missing."""
        return cells.date_parts(self.date_format)["days"]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The parts with missing ones filled, and the indicator."""
        found = cells.date_parts(self.date_format)
        days = np.clip(found["days"], self.low, self.high)
        parts = np.column_stack([days if part == "days" else found[part] for part in self.parts])
        return self._filled(parts, self.fill, cells.is_there, np.nan_to_num(found["days"] - days))


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

    def encode(self, cells: ColumnCells) -> Encoded:
        """Zeros and ones; a value without a column of its own is another one, or all zeros if training had none."""
        codes, distinct = cells.codes
        known = np.append(pd.Index(self.categories).get_indexer(distinct), -1)
        codes, is_missing = known[codes], codes < 0
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
        texts, words, ngrams = _ngram_counts(present)
        n_with = np.bincount((texts @ words).indices, minlength=len(ngrams))
        is_common = n_with >= n_rows
        if not is_common.any():
            raise ValueError("no n-gram occurs in enough rows")
        idf = np.log((1 + len(present)) / (1 + n_with[is_common])) + 1.0
        texts, words = _tf_idf(texts, words[:, is_common], idf)
        components = np.eye(len(idf)) if len(idf) <= n_parts else _main_directions(texts, words, n_parts, seed)
        parts = texts @ (words @ components)
        scale = float(np.sqrt(parts.var(axis=0).sum())) or 1.0
        return cls(name, tuple(map(str, ngrams[is_common])), idf, components / scale, has_missing)

    @property
    def _names(self) -> list[str]:
        return [f"{self.name}: component {i + 1}" for i in range(self.components.shape[1])]

    def encode(self, cells: ColumnCells) -> Encoded:
        """The components; those of an empty string where the text is missing."""
        is_missing = cells.text.isna().to_numpy()
        counts = _ngram_counts(cells.text.fillna(""), self.ngrams)[:2]
        texts, words = _tf_idf(*counts, self.idf)
        return self._with_indicator(texts @ (words @ self.components), is_missing, int(is_missing.sum()))


def _ngram_counts(texts: Series, known: Sequence[str] = ()) -> tuple[Any, Any, NDArray[np.object_]]:
    """How often each word occurs in each text and each n-gram in each word, (n, words) and (words, n-grams); n-grams.

    A space stands at both ends of a word. Products with the two matrices in turn are much cheaper than with their
    product, since a text has far fewer words than n-grams.
    """
    from scipy.sparse import csr_matrix

    split = pc.utf8_split_whitespace(as_arrow(texts))
    words = split.flatten().dictionary_encode()
    padded = [" ".join(["", *word.lower().split(), ""]) for word in words.dictionary.to_pylist()]
    parts = [[word[i : i + n] for n in _NGRAMS for i in range(len(word) - n + 1)] for word in padded]
    names = list(known) or sorted({ngram for own in parts for ngram in own})
    place = {ngram: i for i, ngram in enumerate(names)}
    at = [[place[ngram] for ngram in own if ngram in place] for own in parts]
    lengths = split.value_lengths().to_numpy(zero_copy_only=False), np.array([len(own) for own in at])
    columns = np.array(words.indices), np.fromiter(itertools.chain.from_iterable(at), np.int64)
    in_texts, in_words = (
        csr_matrix((np.ones(len(own)), own, np.append(0, np.cumsum(n))), shape=(len(n), width))
        for own, n, width in zip(columns, lengths, (len(parts), len(names)), strict=True)
    )
    in_texts.sum_duplicates()  # and sorted, so that texts of the same words have equal components
    return in_texts, in_words, np.array(names, dtype=object)


def _tf_idf(texts: Any, words: Any, idf: Array) -> tuple[Any, Any]:
    """Counts of `_ngram_counts` as two factors of a matrix of tf-idf with rows of length 1, or 0 without n-grams."""
    from sklearn.utils.extmath import row_norms

    words = words.multiply(idf).tocsr()
    length = row_norms(texts @ words)
    return texts.multiply(1.0 / np.where(length > 0.0, length, 1.0)[:, None]).tocsr(), words


def _main_directions(texts: Any, words: Any, n_parts: int, seed: int) -> Array:
    """The first right singular vectors of ``texts @ words``, (n-grams, parts), as `randomized_svd` of scikit-learn.

    Unlike that, it factorises no matrix with a row for each text, which would take most of the time.
    """
    from scipy.linalg import lu
    from threadpoolctl import threadpool_limits

    is_wide = texts.shape[0] < words.shape[1]
    left, right = (words.T, texts.T) if is_wide else (texts, words)
    found = np.random.RandomState(seed).normal(size=(right.shape[1], n_parts + 10))
    with threadpool_limits(1, user_api="blas"):  # several threads would mostly wait
        for _ in range(5):
            found = lu(right.T @ (left.T @ (left @ (right @ found))), permute_l=True)[0]
        tall = left @ (right @ found)
        squares, axes = np.linalg.eigh(tall.T @ tall)
        is_known = squares > 1e-14 * squares[-1]
        basis = tall @ (axes[:, is_known] / np.sqrt(squares[is_known]))
        u, sizes, v = np.linalg.svd((right.T @ (left.T @ basis)).T, full_matrices=False)
        parts = (basis @ u if is_wide else v.T)[:, :n_parts]
    # Few different words have fewer components: the rest would be rounding errors.
    parts = parts[:, sizes[:n_parts] > 1e-9 * sizes[0]]
    return np.ascontiguousarray(parts * np.sign(parts[np.abs(parts).argmax(axis=0), range(parts.shape[1])]))


def blocks_of(columns: Sequence[Column]) -> list[Index]:
    """The places of each column among the encoded columns."""
    ends = np.cumsum([0, *(len(column.encoded_names) for column in columns)])
    return [np.arange(a, b) for a, b in itertools.pairwise(ends)]


def encode_table(columns: Sequence[Column], table: TableCells) -> EncodedTable:
    """The cells of these columns as numbers, side by side, with counts of odd cells."""
    X = np.empty((len(table), sum(len(column.encoded_names) for column in columns)))
    odd: dict[str, dict[str, int]] = {kind: dict.fromkeys((one.name for one in columns), 0) for kind in ODD_KINDS}
    excess: dict[str, float] = {}
    plain: dict[str, tuple[NumberColumn, int]] = {}
    values: dict[str, Array] = {}
    table.load(column.name for column in columns)
    for column, block in zip(columns, blocks_of(columns), strict=True):
        cells, name = table[column.name], column.name
        if isinstance(column, NumberColumn) and cells.plain is not None and column.reads_plain(cells):
            plain[name], values[name] = (column, int(block[0])), cells.plain
            continue
        part = column.encode(cells)
        X[:, block], excess[name] = part.values, part.excess
        for kind, number in part.odd.items():
            odd[kind][name] = number
    for names, found in stacked(values):
        numbers, starts = [plain[name][0] for name in names], np.array([plain[name][1] for name in names])
        fill, low, high = np.array([(one.fill, one.low, one.high) for one in numbers]).T[:, :, None]
        has_missing, is_gap = np.array([one.has_missing for one in numbers]), np.isnan(found)
        clipped = np.clip(found, low, high)
        beyond = np.nan_to_num(found - clipped)
        X[:, starts] = np.where(is_gap, fill, clipped).T
        X[:, starts[has_missing] + 1] = is_gap[has_missing].T
        n_missing = np.where(has_missing, 0, is_gap.sum(axis=1))
        odd["missing"].update(zip(names, n_missing.tolist(), strict=True))
        odd["clipped"].update(zip(names, np.count_nonzero(beyond, axis=1).tolist(), strict=True))
        excess.update(zip(names, beyond.sum(axis=1).tolist(), strict=True))
    counts: dict[str, Any] = {kind: {name: n for name, n in own.items() if n} for kind, own in odd.items()}
    return EncodedTable(X, **counts, excess={name: size for name, size in excess.items() if size})
