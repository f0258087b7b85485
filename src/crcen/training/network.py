"""Fitted networks as plain arrays and their float64 logits, in NumPy only: the input encoding, then the layers.

Every encoding is one expression, z = squash(clip((r(x[columns]) − mean)/scale, low, high)); most leave parts of it out.
A piecewise-linear encoding repeats a column once per bin, each copy a ramp from one edge of the bin to the other. r
replaces a value by its normal score. A missing cell (NaN) is 0 in every encoded column, and indicator columns are
appended. An encoding is fitted on the network's own training rows.

The logits of a row are bit-identical in any batch and with any number of threads. A BLAS product alone does not
guarantee that, because its summation order depends on the number of rows and threads. Here every product has the same
shape (16 rows, zero-padded) and is small enough for BLAS to use one thread.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import special
from crcen.theory.rows import Array, Index

# Values of the parameters ``encoding`` and ``missing``.
ENCODINGS = ("standard", "robust", "quantile", "piecewise", "tree", "steps")
MISSING = ("error", "indicator")
WITH_RAMPS = ("piecewise", "tree", "steps")

# Standardised inputs are clipped here, far outside any training row, so that an extreme new value cannot give NaN.
INPUT_LIMIT = 1e6
# The robust encoding approaches this value.
SMOOTH_LIMIT = 3.0
_QUANTILE_KNOTS = 100
# Maximum number of ramps of a table: a ramp costs as much as a column.
_MOST_RAMPS = 2048
# Candidate split points per column: more cost time and follow single rows.
_MOST_CANDIDATES = 128
_LEAF_SHARE = 0.005
# Splits whose gains differ by less are a tie, and the first one is used: rounding must not decide, because it differs
# between a row of weight 3 and three rows.
_TIE = 1e-10
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "silu")

# Rows of one product and its largest inner dimension: up to this size BLAS sums in one pass.
_ROWS, _INNER = 16, 256
# Multiplications up to which OpenBLAS uses one thread: matrix-matrix and matrix-vector products.
_ONE_THREAD, _ONE_THREAD_VECTOR = 2**18, 2**13
# Processed at a time, to stay in the cache: numbers of a layer or a column; rows and columns that are transposed.
_NUMBERS_AT_ONCE, _TRANSPOSED_ROWS, _BLOCK = 2**17, 256, 32

_Float = TypeVar("_Float", np.float32, np.float64)


@dataclass(frozen=True, eq=False)
class InputEncoding:
    """A fitted encoding."""

    mean: Array  # (E,) each; zeros and ones for unchanged inputs
    scale: Array
    # (E,) the source column of each encoded column, where indicators count as further columns; ``None``: each once
    columns: Index | None = None
    low: Array | None = None  # (E,) limits of the encoded columns; ``None`` for none
    high: Array | None = None
    is_smooth: bool = False  # whether large values are compressed towards ±3 afterwards: z/√(1 + (z/3)²)
    # (F, T) each: the piecewise-linear map of every column in the quantile encoding; ``None`` for none
    knots: Array | None = None
    scores: Array | None = None
    # (I,) columns whose missing cells get an indicator column, after all others; ``None`` if no cell may be missing
    indicators: Index | None = None

    @property
    def size(self) -> int:
        """Number of encoded columns, E."""
        return len(self.mean)

    @cached_property
    def _bounds(self) -> tuple[float | Array, ...]:
        """Low and high, as single numbers where all columns share them: clipping is then several times as fast."""
        return tuple(part[0] if (part == part[0]).all() else part for part in (self.low, self.high) if part is not None)

    def covering(self, X: Array) -> "InputEncoding":
        """The same encoding with limits that include more training rows, if columns are limited to their range.

        Columns with one value or none among the first rows stay as they are.
        """
        if self.columns is None or self.low is None or self.high is None:
            return self
        low, high, plain = self.low.copy(), self.high.copy(), slice(X.shape[1])
        first, last = _range_of(X, self.mean[plain], self.scale[plain])
        varies = low[plain] < high[plain]
        low[plain] = np.where(varies, np.clip(first, -INPUT_LIMIT, low[plain]), low[plain])
        high[plain] = np.where(varies, np.clip(last, high[plain], INPUT_LIMIT), high[plain])
        return replace(self, low=low, high=high)

    def __call__(self, X: Array) -> Array:
        """Encoded rows, float64 (n, E)."""
        if self.knots is not None and self.scores is not None:
            X = np.column_stack([np.interp(*column) for column in zip(X.T, self.knots, self.scores, strict=True)])
        if self.indicators is not None:
            X = np.column_stack([X, np.isnan(X[:, self.indicators])])
        with np.errstate(over="ignore"):
            z = X[:, self.columns] if self.columns is not None else X.copy(order="K")
            z -= self.mean
            z /= self.scale
        if self.low is not None:
            np.clip(z, *self._bounds, out=z)
        if self.is_smooth:
            z /= np.sqrt(1.0 + (z / SMOOTH_LIMIT) ** 2)
        if self.indicators is not None:
            z[np.isnan(z)] = 0.0
        return z


def _range_of(X: Array, mean: Array, scale: Array) -> tuple[Array, Array]:
    """The smallest and the largest standardised value of each column; 0 for a column without any cell."""
    with np.errstate(over="ignore"):
        low, high = ((end.reduce(X, axis=0) - mean) / scale for end in (np.fmin, np.fmax))
    return np.nan_to_num(low), np.nan_to_num(high)


def raw(n_features: int) -> "InputEncoding":
    """Unchanged inputs."""
    return InputEncoding(np.zeros(n_features), np.ones(n_features))


def column_layout(X: Array, kind: str, bins: int, rows: Index | None = None) -> Index | None:
    """The source column of each encoded column: every column once, then its bins."""
    if kind not in WITH_RAMPS:
        return None
    blocks = (by_columns(X[:, first : first + _BLOCK], rows) for first in range(0, X.shape[1], _BLOCK))
    n_values = np.array([_n_values(cells, bins) for block in blocks for cells in block.T])
    bins = max(2, min(bins, _MOST_RAMPS // max(1, int((n_values > 2).sum()))))
    counts = np.where(n_values > 2, np.minimum(n_values - 1, bins), 0)
    return np.concatenate([np.arange(len(n_values)), np.repeat(np.arange(len(n_values)), counts)])


def _n_values(cells: Array, most: int) -> int:
    """Number of distinct values of a column; any number above ``most`` if there are more."""
    low, high = np.fmin.reduce(cells), np.fmax.reduce(cells)
    if not ((cells > low) & (cells < high)).any():
        return 2
    n_values = len(np.unique(cells[: 8 * most])) - 1  # missing cells are not a value
    return n_values if n_values > most else len(np.unique(cells[~np.isnan(cells)]))


def by_columns(X: Array, rows: Index | None) -> Array:
    """The given rows of X, or all; the cells of a column are neighbours in memory."""
    rows = np.arange(len(X)) if rows is None else rows
    found = np.empty((X.shape[1], len(rows)))
    for start in range(0, len(rows), _TRANSPOSED_ROWS):
        part = slice(start, start + _TRANSPOSED_ROWS)
        found[:, part] = X[rows[part]].T
    return found.T


def incomplete_columns(X: Array) -> Index:
    """Columns with missing cells."""
    return np.flatnonzero(np.isnan(X).any(axis=0))


def fit_encoding(
    kind: str,
    columns: Index | None,
    X: Array,
    y: NDArray[np.bool_] | Index,
    sample_weight: Array,
    *,
    rows: Index | None = None,
    standardize: bool = True,
    indicators: Index | None = None,
    order: Callable[[int], Index] | None = None,
    run: Callable[..., Iterable[Any]] = map,
) -> "InputEncoding":
    """Fit an encoding of `ENCODINGS` on the given rows, or all, with positive weight.

    ``columns`` is the `column_layout`, ``indicators`` the `incomplete_columns`, or ``None`` if no cell may be missing.
    ``order`` gives the stable order of a column among the rows with weight, if known; ``run`` maps over columns.
    """
    used = np.flatnonzero(sample_weight > 0) if rows is None else rows[sample_weight[rows] > 0]
    own = _Rows(by_columns(X, used), y[used], sample_weight[used], order, run)
    encoding = _fitted(kind, columns, own) if standardize else raw(X.shape[1])
    if indicators is None:
        return encoding
    is_missing = np.isnan(own.X[:, indicators])
    as_is = np.zeros(len(indicators)), np.ones(len(indicators))
    mean, scale = standardization(is_missing * 1.0, own.weights) if standardize else as_is
    is_used = is_missing.any(axis=0) & ~is_missing.all(axis=0)  # the others are constantly 0
    limit, unlimited = np.where(is_used, INPUT_LIMIT, 0.0), np.full(encoding.size, np.inf)
    if (columns := encoding.columns) is not None:
        columns = np.append(columns, int(columns.max()) + 1 + np.arange(len(indicators)))
    low = np.append(-unlimited if encoding.low is None else encoding.low, -limit)
    high = np.append(unlimited if encoding.high is None else encoding.high, limit)
    mean, scale = np.append(encoding.mean, mean), np.append(encoding.scale, scale)
    return replace(encoding, mean=mean, scale=scale, columns=columns, low=low, high=high, indicators=indicators)


class _Rows(NamedTuple):
    X: Array
    y: NDArray[np.bool_] | Index
    weights: Array
    order: Callable[[int], Index] | None
    run: Callable[..., Iterable[Any]]

    def cells(self, column: int) -> tuple[Index, Array, Array]:
        """Order of the observed cells of a column, their sorted values, and the cumulative weight."""
        values = self.X[:, column]
        order = np.argsort(values, kind="stable") if self.order is None else self.order(column)
        order = order[: np.count_nonzero(~np.isnan(values))]
        return order, values[order], np.cumsum(self.weights[order])


def _fitted(kind: str, columns: Index | None, rows: _Rows) -> "InputEncoding":
    """The encoding of observed cells; a column without any is encoded as zeros."""
    X, sample_weight = rows.X, rows.weights
    if kind == "quantile":
        return _quantile(rows)
    mean, scale = standardization(X, sample_weight)
    limit = np.where(np.isnan(X).all(axis=0), 0.0, INPUT_LIMIT)
    if kind == "standard":
        return InputEncoding(mean, scale, None, -limit, limit)
    if kind == "robust":
        shares = np.array([0.25, 0.5, 0.75])
        low, middle, high = np.array([_quantiles(*rows.cells(j)[1:], shares) for j in range(X.shape[1])]).T
        spread = (high - low) / 1.349  # as the standard deviation of a normal distribution
        usable = spread > 1e-12 * np.maximum(np.abs(middle), 1e-12)
        mean, scale = np.where(usable, middle, mean), np.where(usable, spread, scale)
        return InputEncoding(mean, scale, None, -limit, limit, is_smooth=True)
    assert columns is not None
    return _ramps(kind, columns, rows, InputEncoding(mean, scale, None, -limit, limit))


def standardization(X: Array, sample_weight: Array) -> tuple[Array, Array]:
    """Weighted means and standard deviations of the observed cells; a constant column gets scale 1."""
    share = sample_weight / sample_weight.sum()
    mean, scale = np.empty((2, X.shape[1]))
    at_once = max(1, _NUMBERS_AT_ONCE // max(len(X), 1))
    for start in range(0, X.shape[1], at_once):
        part = slice(start, start + at_once)
        mean[part], scale[part] = _standardization(np.ascontiguousarray(X[:, part].T), share)
    return mean, scale


def _standardization(columns: Array, share: Array) -> tuple[Array, Array]:
    is_missing = np.isnan(columns)
    if is_missing.any():
        columns, share = np.where(is_missing, 0.0, columns), np.where(is_missing, 0.0, share)
        total = share.sum(axis=1, keepdims=True)
        share /= np.where(total > 0, total, 1.0)
    size = np.maximum(columns.max(axis=1), -columns.min(axis=1))
    size[size == 0] = 1.0
    unit = columns / size[:, None]
    mean = (share * unit).sum(axis=1)
    unit -= mean[:, None]
    unit *= unit
    unit *= share
    std = np.sqrt(unit.sum(axis=1))
    is_constant = std <= 1e-12 * np.maximum(np.abs(mean), 1e-12)
    scale = np.where(is_constant, 1.0, std * size)
    # The exact value of a constant column: at 1e30 the rounding error of a mean is huge.
    first = columns[np.arange(len(columns)), is_missing.argmin(axis=1)]
    return np.where(is_constant, first, mean * size), np.where(scale == 0, 1.0, scale)


def _quantiles(sorted_values: Array, cumulative: Array, shares: Array) -> Array:
    """Weighted quantiles of a sorted column: the first value with at least this share of the weight."""
    if not len(sorted_values):
        return np.zeros(len(shares))
    at = np.searchsorted(cumulative, shares * cumulative[-1] * (1 - 1e-12))
    return sorted_values[np.minimum(at, len(sorted_values) - 1)]


def _quantile(rows: _Rows) -> "InputEncoding":
    """Normal scores: each value's rank among the training rows, through the inverse normal distribution."""
    shares = (np.arange(_QUANTILE_KNOTS) + 0.5) / _QUANTILE_KNOTS
    normal = special.ndtri(shares)
    n_columns = rows.X.shape[1]
    knots, scores = np.empty((2, n_columns, _QUANTILE_KNOTS))
    for column in range(n_columns):
        _, values, cumulative = rows.cells(column)
        # A value that many rows share gets the mean of their scores; the last knot fills the row.
        own, at = np.unique(_quantiles(values, cumulative, shares), return_inverse=True)
        means = np.bincount(at, normal) / np.bincount(at)
        fill = (0, _QUANTILE_KNOTS - len(own))
        knots[column], scores[column] = np.pad(own, fill, mode="edge"), np.pad(means, fill, mode="edge")
    return replace(raw(n_columns), knots=knots, scores=scores)


def _ramps(kind: str, columns: Index, rows: _Rows, plain: InputEncoding) -> "InputEncoding":
    """The standardised columns, then for each bin (x − left)/(right − left) clipped to [0, 1], minus its mean.

    Steps are ramps in gaps between neighbouring values, so that no training cell is inside one.
    """
    assert plain.high is not None
    X, y, sample_weight = rows.X, rows.y, rows.weights
    labels, of_ramps = np.flatnonzero(np.bincount(y)), columns[X.shape[1] :]
    places = {int(column): X.shape[1] + np.flatnonzero(of_ramps == column) for column in np.unique(of_ramps)}

    def candidates(column: int) -> Candidates:
        at, values, total = rows.cells(column)
        return candidates_of(values, y[at], sample_weight[at], total, labels)

    found = [] if kind == "piecewise" else list(rows.run(candidates, places))
    splits = tree_splits(found, [len(own) + (kind == "steps") for own in places.values()])
    mean, scale, limit = plain.mean[columns], plain.scale[columns], plain.high[columns]
    # Limited to the range of the training rows: beyond it a network's logits are arbitrary.
    low, high = (np.clip(end[columns], -limit, limit) for end in _range_of(X, plain.mean, plain.scale))
    ramps = slice(X.shape[1], None)
    low[ramps], high[ramps], mean[ramps], scale[ramps] = 0.0, 0.0, 0.0, 1.0
    for i, (column, own) in enumerate(places.items()):
        if kind == "steps":
            left, right, below = (part[splits[i]] for part in (found[i].left, found[i].right, found[i].below))
            width, centre = _widths(left, right), 1.0 - below
        else:
            order, values, cumulative = rows.cells(column)
            if kind == "piecewise":
                edges = np.unique(_quantiles(values, cumulative, np.linspace(0.0, 1.0, len(own) + 1)))
            else:
                middle = np.column_stack([found[i].left[splits[i]], found[i].right[splits[i]]]).mean(axis=1)
                edges = np.unique(np.concatenate([values[:1], middle, values[-1:]]))
            left, width = edges[:-1], _widths(edges[:-1], edges[1:])
            with np.errstate(over="ignore"):
                inside = np.clip((values - left[:, None]) / width[:, None], 0.0, 1.0)
            # Not a BLAS product, whose summation order depends on the number of threads.
            centre = (sample_weight[order] * inside).sum(axis=1) / cumulative[-1:]
        at = own[: len(left)]
        with np.errstate(over="ignore"):
            mean[at], scale[at] = left + centre * width, width
        low[at], high[at] = -centre, 1.0 - centre
    return InputEncoding(mean, scale, columns, low, high)


def _widths(left: Array, right: Array) -> Array:
    with np.errstate(over="ignore"):  # values near the end of float64
        return np.minimum(right - left, np.finfo(np.float64).max)


class Candidates(NamedTuple):
    """Values of a column after which a tree may split, in order; the last one ends the column."""

    left: Array  # (k,): the values
    right: Array  # (k,): the next values of the column
    shares: Array  # (k, classes): cumulative share of each class's weight; zero for a class without cells
    below: Array  # (k,): cumulative share of all weight


# Of a column without information about the classes.
_NO_CANDIDATES = Candidates(np.empty(0), np.empty(0), np.empty((0, 2)), np.empty(0))


def candidates_of(
    values: Array, y: NDArray[np.generic], weights: Array, cumulative: Array, labels: Index
) -> Candidates:
    """Candidates of a sorted column, with classes weighted equally; ``cumulative`` is the cumulative row weight."""
    if not len(values):
        return _NO_CANDIDATES
    shares = np.cumsum(weights * (y == labels[:, None]), axis=1)
    is_present = shares[:, -1] > 0  # otherwise all cells of the class are missing
    shares[is_present] /= shares[is_present, -1:]
    n_present = int(is_present.sum())
    if n_present < 2:
        return _NO_CANDIDATES
    is_end = np.append(values[1:] > values[:-1], True)  # the last row of each distinct value
    if np.count_nonzero(is_end) > _MOST_CANDIDATES:
        mass = shares.sum(axis=0) / n_present
        targets = np.linspace(0, 1, _MOST_CANDIDATES + 1)[1:] * float(mass[-1]) * (1 - 1e-12)
        first = np.searchsorted(mass, targets)
        ends = np.unique(np.searchsorted(values, values[first], side="right") - 1)
    else:
        ends = np.flatnonzero(is_end)
    following = values[np.minimum(ends + 1, len(values) - 1)]
    return Candidates(values[ends], following, shares[:, ends].T.copy(), cumulative[ends] / cumulative[-1])


def tree_splits(columns: Sequence[Candidates], leaves_at_most: Sequence[int]) -> list[Index]:
    """For each column the candidates after which its tree splits, in order; the largest Gini gain is split first.

    All trees grow together: leaves (columns, leaves) are candidates start…stop−1, each with its best cut and gain.
    """
    found: list[Index] = [np.empty(0, dtype=np.int64)] * len(columns)
    grown = [i for i, own in enumerate(columns) if len(own.left)]
    if not grown:
        return found
    lengths = np.array([len(columns[i].left) for i in grown])
    shares = np.zeros((len(grown), lengths.max(), columns[grown[0]].shares.shape[1]))
    for own, i in zip(shares, grown, strict=True):
        own[: len(columns[i].left)] = columns[i].shares
    n_classes = np.array([columns[i].shares[-1].astype(bool).sum() for i in grown])  # those that have cells
    least = _LEAF_SHARE * n_classes / 2 - _TIE
    most_leaves, everywhere = np.array([leaves_at_most[i] for i in grown]), np.arange(len(grown))
    start, stop, cut = np.zeros((3, len(grown), max(*leaves_at_most, 1)), dtype=np.int64)
    gain = np.full(start.shape, -np.inf)  # −inf: no such leaf
    n_leaves = np.ones(len(grown), dtype=np.int64)
    stop[:, 0] = lengths
    cut[:, 0], gain[:, 0] = _best_cuts(shares, start[:, 0], stop[:, 0], least)
    for _ in range(1, start.shape[1]):
        most = gain.max(axis=1)
        at = everywhere[(most > 0) & (n_leaves < most_leaves)]
        if not len(at):
            break
        is_tie = gain[at] >= most[at, None] - _TIE
        leaf, new = np.argmin(np.where(is_tie, start[at], shares.shape[1]), axis=1), n_leaves[at]
        start[at, new], stop[at, new], stop[at, leaf] = cut[at, leaf], stop[at, leaf], cut[at, leaf]
        n_leaves[at] += 1
        for part in (leaf, new):
            cut[at, part], gain[at, part] = _best_cuts(shares[at], start[at, part], stop[at, part], least[at])
    for i, own, count in zip(grown, start, n_leaves.tolist(), strict=True):
        found[i] = np.sort(own[:count])[1:] - 1  # the last candidates of all leaves except the last
    return found


def _best_cuts(shares: Array, start: Index, stop: Index, least: Array) -> tuple[Index, Array]:
    """The best cut of one leaf of each column, and its Gini gain."""
    rows, place = np.arange(len(shares)), np.arange(shares.shape[1])
    before = np.where((start > 0)[:, None], shares[rows, start - 1], 0.0)
    inside = shares[rows, stop - 1] - before
    left = shares - before[:, None]
    right = inside[:, None] - left
    left_mass, right_mass = left.sum(axis=2), right.sum(axis=2)
    allowed = np.minimum(left_mass, right_mass) >= least[:, None]
    allowed &= (place >= start[:, None]) & (place < stop[:, None] - 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        purity = (left**2).sum(axis=2) / left_mass + (right**2).sum(axis=2) / right_mass
        whole = (inside**2).sum(axis=1) / inside.sum(axis=1)
    purity = np.where(allowed, purity, -np.inf)
    at = np.argmax(purity >= purity.max(axis=1, keepdims=True) - _TIE, axis=1)
    gain = purity[rows, at] - whole
    return at + 1, np.where(gain > 1e-9, gain, 0.0)


@dataclass(frozen=True, eq=False)
class Network:
    """One multilayer perceptron with one output logit (two classes) or one logit per class."""

    encoding: InputEncoding  # the fitted input layer
    weights: tuple[Array, ...]  # one (in, out) matrix and one (out,) vector per layer
    biases: tuple[Array, ...]
    activation: str  # name of the hidden activation
    # whether each output is the logit of one class against all others, instead of an input of softmax
    is_one_against_all: bool = False

    def logits(self, X: Array) -> Array:
        """Weighted logits of X, (n,) or (n, C); for one against all log σ(o), so that softmax normalises."""
        outputs = self.outputs(X)
        return log_sigmoid(outputs) if self.is_one_against_all else outputs

    def outputs(self, X: Array) -> Array:
        """Values of the output layer."""
        return NetworkGroup.of([self]).outputs(X)[0]


@runtime_checkable
class Member(Protocol):
    """A fitted model that provides logits; C is 1 for two classes (the logit of the positive class)."""

    def logits(self, X: Array) -> Array:
        """Logits of the rows of X, float64 (n, C)."""

    def arrays(self) -> dict[str, Any]:
        """The state as plain values and arrays, for files and exported graphs."""


class NetworkGroup(Network):
    """Networks of one shape with one input encoding: weights and biases have one more axis; logits are averaged."""

    @classmethod
    def of(cls, networks: Sequence[Network]) -> "NetworkGroup":
        """A group from networks of one shape."""
        first = networks[0]
        weights, biases = (
            tuple(np.stack(layer) for layer in zip(*parts, strict=True))
            for parts in ([n.weights for n in networks], [n.biases for n in networks])
        )
        return cls(first.encoding, weights, biases, first.activation, first.is_one_against_all)

    def __len__(self) -> int:
        return len(self.weights[0])

    def logits(self, X: Array) -> Array:
        """Mean logits, (n, 1) or (n, C)."""
        logits = super().logits(X)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller reports overflow
            mean: Array = logits.mean(axis=0)
        return mean[:, None] if mean.ndim == 1 else mean

    def outputs(self, X: Array) -> Array:
        """Values of the output layer of every network, (networks, n), or (networks, n, C) for C > 1 outputs."""
        n, models, n_outputs, size = len(X), len(self), self.weights[-1].shape[2], self.encoding.size
        widest = max(weight.shape[2] for weight in self.weights)
        at_once = max(4, _NUMBERS_AT_ONCE // max(models * widest, size) // _ROWS) * _ROWS
        found = np.empty((models, n, n_outputs))
        pairs = zip(self.weights, self.biases, strict=True)
        *hidden, (last, last_bias) = [(np.ascontiguousarray(w)[:, None], b[:, None, None]) for w, b in pairs]
        with np.errstate(over="ignore", invalid="ignore"):  # the caller reports overflow
            for start in range(0, n, at_once):
                encoded = self.encoding(X[start : start + at_once])
                rows = len(encoded)
                if rows % _ROWS or not encoded.flags.c_contiguous:
                    padded = np.zeros((-(-rows // _ROWS) * _ROWS, size))
                    padded[:rows] = encoded
                    encoded = padded
                h: Array = encoded.reshape(1, -1, _ROWS, size)
                for weight, bias in hidden:
                    h = _product(h, weight)
                    h += bias
                    activate(self.activation, h)
                outputs = (_product(h, last) + last_bias).reshape(models, -1, n_outputs)
                found[:, start : start + rows] = outputs[:, :rows]
        return found[..., 0] if n_outputs == 1 else found

    def arrays(self) -> dict[str, Any]:
        """Encoding, weights and biases; absent parts are left out."""
        encoding = {one.name: getattr(self.encoding, one.name) for one in fields(self.encoding)}
        return {
            "encoding": {name: value for name, value in encoding.items() if value is not None},
            "weights": list(self.weights),
            "biases": list(self.biases),
            "activation": self.activation,
            **({"is_one_against_all": True} if self.is_one_against_all else {}),
        }

    def shifted(self, shift: float | Array) -> "NetworkGroup":
        """The same networks with a shift, a number or one per output, added to the output bias."""
        return replace(self, biases=(*self.biases[:-1], self.biases[-1] + shift))

    def scaled(self, slope: float) -> "NetworkGroup":
        """The same networks with every output multiplied by a slope."""
        if slope == 1.0:
            return self
        weights = (*self.weights[:-1], slope * self.weights[-1])
        return replace(self, weights=weights, biases=(*self.biases[:-1], slope * self.biases[-1]))


def log_sigmoid(outputs: NDArray[_Float]) -> NDArray[_Float]:
    """log σ(o), in the precision of o."""
    found: NDArray[_Float] = -np.logaddexp(outputs.dtype.type(0.0), -outputs)
    return found


def _product(h: Array, weight: Array) -> Array:
    """h (M or 1, blocks, rows, in) times weight (M, 1, in, out), in parts where the inner dimension is long."""
    n_in, n_out = weight.shape[2:]
    limit = _ONE_THREAD if n_out > 1 else _ONE_THREAD_VECTOR
    inner = max(1, min(_INNER, limit // (_ROWS * n_out)))
    out: Array = np.matmul(h[..., :inner], weight[:, :, :inner])
    for start in range(inner, n_in, inner):
        part = slice(start, start + inner)
        out += np.matmul(h[..., part], weight[:, :, part])
    return out


def activate(name: str, h: NDArray[_Float]) -> None:
    """Apply an activation in place."""
    if name == "relu":
        np.maximum(h, 0.0, out=h)
    elif name == "tanh":
        np.tanh(h, out=h)
    elif name == "sigmoid":
        np.divide(1.0, 1.0 + np.exp(-h), out=h)
    elif name == "gelu":
        h *= 0.5 * (1.0 + special.erf(h * np.sqrt(0.5)))
    elif name == "silu":
        h /= 1.0 + np.exp(-h)
    else:
        raise ValueError(f"activation must be one of {', '.join(map(repr, ACTIVATIONS))}: got {name!r}.")
