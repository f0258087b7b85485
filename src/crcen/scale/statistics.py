"""Counts and column moments of rows in passing: added up chunk by chunk, merged over workers. Needs no torch."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.validation import check_classes
from crcen.scale.sources import Chunk, RowSource, held_out, read_ahead, row_keys
from crcen.theory.rows import Array, LabelArray
from crcen.training.network import INPUT_LIMIT, InputEncoding, column_layout, fit_encoding, raw

_MOST_CLASSES = 1000


class ColumnMoments:
    """Weighted mean and sum of squared deviations of columns, by Chan's update; rows of weight 0 are no rows."""

    def __init__(self, n_columns: int) -> None:
        self.weight = 0.0
        self.mean, self.squares = np.zeros(n_columns), np.zeros(n_columns)
        self.low, self.high = np.full(n_columns, np.inf), np.full(n_columns, -np.inf)

    @classmethod
    def of(cls, X: Array, weight: Array) -> "ColumnMoments":
        """The moments of some rows."""
        found = cls(X.shape[1])
        if not weight.all():
            X, weight = X[weight > 0], weight[weight > 0]
        if len(X):
            columns, found.weight = X.T, float(weight.sum())
            found.mean = (columns * weight).sum(axis=1) / found.weight
            with np.errstate(over="ignore"):
                found.squares = ((columns - found.mean[:, None]) ** 2 * weight).sum(axis=1)
            found.low, found.high = columns.min(axis=1), columns.max(axis=1)
        return found

    def merge(self, other: "ColumnMoments") -> None:
        """Add the moments of other rows."""
        if not self.weight:
            vars(self).update(vars(other))  # arrays are never changed in place
        elif other.weight:
            total, apart = self.weight + other.weight, other.mean - self.mean
            self.mean = self.mean + apart * (other.weight / total)
            with np.errstate(over="ignore"):  # `encoding` rejects these values
                self.squares = self.squares + other.squares + apart**2 * (self.weight * other.weight / total)
            self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
            self.weight = total

    def encoding(self) -> InputEncoding:
        """Standardisation by these rows; a constant column gets scale 1."""
        size = np.maximum(np.abs(self.low), np.abs(self.high))
        size[size == 0] = 1.0
        std = np.sqrt(self.squares / self.weight)
        if not np.isfinite(std).all():
            raise InvalidInput("a column holds values too large to be squared; divide it by a constant first.")
        is_constant = std / size <= 1e-12 * np.maximum(np.abs(self.mean) / size, 1e-12)
        mean = np.where(is_constant, np.where(self.low == self.high, self.low, self.mean), self.mean)
        limit = np.full(len(mean), INPUT_LIMIT)
        return InputEncoding(mean, np.where(is_constant | (std == 0), 1.0, std), None, -limit, limit)


@dataclass
class LabelTotals:
    """Rows and weight of each label."""

    rows: Counter[object] = field(default_factory=Counter)
    weight: dict[object, float] = field(default_factory=dict)

    def add(self, labels: LabelArray, weight: Array) -> None:
        """Add rows."""
        kinds, at = np.unique(labels, return_inverse=True)
        names, rows, weights = kinds.tolist(), np.bincount(at).tolist(), np.bincount(at, weight).tolist()
        self.merge(LabelTotals(Counter(dict(zip(names, rows, strict=True))), dict(zip(names, weights, strict=True))))

    def merge(self, other: "LabelTotals") -> None:
        """Add the totals of other rows."""
        self.rows.update(other.rows)
        for label, weight in other.weight.items():
            self.weight[label] = self.weight.get(label, 0.0) + weight
        if len(self.rows) > _MOST_CLASSES:
            message = f"the target must hold classes, at most {_MOST_CLASSES} of them: got {len(self.rows)} values"
            raise InvalidInput(f"{message}; is it a number to be predicted?")

    @property
    def n_rows(self) -> int:
        """All rows."""
        return self.rows.total()

    def weights(self, classes: LabelArray) -> Array:
        """Weight of each class, (K,)."""
        return np.array([self.weight.get(label, 0.0) for label in classes.tolist()])


class RowSample:
    """A random sample of rows of a bounded size: those with the smallest of random numbers, one drawn for each row."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed, self._seen = size, seed, 0
        self._keys, self.X, self.labels, self.weight = np.empty(0), np.empty((0, 0)), np.empty(0), np.empty(0)

    def add(self, chunk: Chunk) -> None:
        """Offer rows; the name of their file, wherever it is, and the rows before them decide their random numbers."""
        keys = row_keys(len(chunk), self._seed, 6, chunk.origin, self._seen)
        self._seen += len(chunk)
        good = keys < (self._keys[-1] if len(self._keys) == self._size else np.inf)
        self._take(keys[good], chunk.X[good], chunk.labels[good], chunk.weight[good])

    def merge(self, other: "RowSample") -> None:
        """Add the sample of other rows."""
        self._seen += other._seen
        self._take(other._keys, other.X, other.labels, other.weight)

    def _take(self, *parts: LabelArray) -> None:
        if not len(parts[0]):
            return
        if len(self._keys):
            before = (self._keys, self.X, self.labels, self.weight)
            parts = tuple(np.concatenate(both) for both in zip(before, parts, strict=True))
        kept = np.argsort(parts[0], kind="stable")[: self._size]
        self._keys, self.X, self.labels, self.weight = (part[kept] for part in parts)


@dataclass
class StreamStatistics:
    """Results of a first pass over the rows; those of parts of the rows can be merged."""

    names: tuple[str, ...]  # names of the columns
    # Which rows are held out (see `crcen.scale.sources.held_out`)
    validation_fraction: float = 0.0
    seed: int = 0
    # Labels of all rows, and of those that are not held out
    totals: LabelTotals = field(default_factory=LabelTotals)
    train_totals: LabelTotals = field(default_factory=LabelTotals)
    moments: ColumnMoments = field(init=False)  # column moments of the rows that are not held out
    is_weighted: bool = False  # whether a sample weight differs from 1
    sample_rows: int = 0  # size of a sample of the rows that are not held out, for encodings other than "standard"
    sample: RowSample = field(init=False)

    def __post_init__(self) -> None:
        self.moments = ColumnMoments(len(self.names))
        self.sample = RowSample(self.sample_rows, self.seed)

    def add(self, chunk: Chunk) -> None:
        """Add a chunk, or reject it with an error."""
        chunk.check(self.names)
        self.is_weighted |= bool((chunk.weight != 1.0).any())
        self.totals.add(chunk.labels, chunk.weight)
        if self.validation_fraction:
            chunk = chunk[~held_out(chunk.X, self.validation_fraction, self.seed)]
        if len(chunk):
            self.train_totals.add(chunk.labels, chunk.weight)
            self.moments.merge(ColumnMoments.of(chunk.X, chunk.weight))
            if self.sample_rows:
                self.sample.add(chunk)

    def merge(self, other: "StreamStatistics") -> None:
        """Add the statistics of other rows."""
        self.totals.merge(other.totals)
        self.train_totals.merge(other.train_totals)
        self.moments.merge(other.moments)
        self.is_weighted |= other.is_weighted
        self.sample.merge(other.sample)

    def digest(self) -> str:
        """A text that differs for other rows."""
        return repr((self.totals, [self.moments.mean.tobytes(), self.moments.squares.tobytes()]))

    def classes(self) -> LabelArray:
        """The labels, sorted."""
        if not self.totals.rows:
            raise InvalidInput("the source holds no rows.")
        return check_classes(np.array(list(self.totals.rows)))

    def encoding(
        self, kind: str, bins: int, encode: Callable[[LabelArray], LabelArray], *, standardize: bool
    ) -> InputEncoding:
        """The input encoding: "standard" from all rows, any other from the sample, with labels by ``encode``."""
        if not standardize:
            return raw(len(self.names))
        if kind == "standard":
            return self.moments.encoding()
        rows = self.sample
        if not len(rows.X):
            raise InvalidParameter(f"encoding must be 'standard' here, got {kind!r}: no sample of rows was kept.")
        return fit_encoding(kind, column_layout(rows.X, kind, bins), rows.X, encode(rows.labels), rows.weight)


def survey_source(rows: RowSource, validation_fraction: float, seed: int, sample_rows: int = 0) -> StreamStatistics:
    """Counts and moments of all rows, which are all checked on the way, and a sample of them."""
    whole: StreamStatistics | None = None

    def use(chunks: Iterator[Chunk]) -> None:
        nonlocal whole
        part: StreamStatistics | None = None
        for chunk in read_ahead(chunks):  # the names of batches are known from the first one on
            part = part or StreamStatistics(rows.names, validation_fraction, seed, sample_rows=sample_rows)
            part.add(chunk)
        if whole is None:
            whole = part
        elif part is not None:
            whole.merge(part)

    rows.each_part(use)
    return whole or StreamStatistics(rows.names, validation_fraction, seed)
