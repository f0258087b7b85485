"""The frozen input layer of a network: numbers in, encoded columns out, fitted on the network's own training rows.

Every encoding is one expression, z = squash(clip((r(x[columns]) − mean)/scale, low, high)). Most leave parts of it
out. Standardisation takes each column once. A piecewise-linear encoding repeats a column once a bin, each copy a ramp
from one edge of the bin to the other. r replaces a value by its normal score among the training rows.

Where cells may be missing (NaN), all of this is fitted on those that are there. A missing cell is then 0 in every
encoded column made of it, and columns that say which cells are missing stand beside the others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.training.column_trees import Candidates, candidates_of, tree_splits

__all__ = [
    "ENCODINGS",
    "INPUT_LIMIT",
    "MISSING",
    "SMOOTH_LIMIT",
    "WITH_RAMPS",
    "InputEncoding",
    "column_layout",
    "fit_encoding",
    "incomplete_columns",
    "layout_of",
    "ramp_places",
    "raw",
    "standardization",
    "steps",
    "with_indicators",
]

# What `TrainingJob.encoding` and `TrainingJob.missing` may be.
ENCODINGS = ("standard", "robust", "quantile", "piecewise", "tree", "steps")
MISSING = ("error", "indicator")
WITH_RAMPS = ("piecewise", "tree", "steps")

# Standardised inputs are cut off here, far outside any training row, so that a wild new value cannot give a NaN.
INPUT_LIMIT = 1e6
# Where the robust encoding bends values to.
SMOOTH_LIMIT = 3.0
# Statistics of columns are taken of so many cells at a time, for the sake of memory.
_NUMBERS_AT_ONCE = 2**17
_QUANTILE_KNOTS = 100
# Steps cost as much as columns.
_MOST_RAMPS = 2048

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class InputEncoding:
    """A fitted encoding.

    Parameters
    ----------
    mean, scale
        (E,) each; zeros and ones where inputs are taken as they are.
    columns
        (E,) the column each encoded one is made of, indicators being further columns; ``None`` for each once.
    low, high
        (E,) where encoded columns are cut off; ``None`` for not at all.
    is_smooth
        Whether large values are bent towards ±3 after that: z/√(1 + (z/3)²).
    knots, scores
        (F, T) each: the piecewise-linear map of every column in the quantile encoding; ``None`` for none.
    indicators
        (I,) the columns whose missing cells are indicated, by 0 or 1, in a further column each, after all others;
        ``None`` where no cell may be missing.
    """

    mean: Array
    scale: Array
    columns: Index | None = None
    low: Array | None = None
    high: Array | None = None
    is_smooth: bool = False
    knots: Array | None = None
    scores: Array | None = None
    indicators: Index | None = None

    @property
    def size(self) -> int:
        """Number of encoded columns, E."""
        return len(self.mean)

    @property
    def is_affine(self) -> bool:
        """Whether this is standardisation (or nothing) and can be an affine map of another standardisation."""
        return self.columns is None and not self.is_smooth and self.knots is None and self.indicators is None

    @cached_property
    def _bounds(self) -> tuple[Any, ...]:
        """Low and high, each a single number where all columns share it: to clip is then several times as fast."""
        return tuple(part[0] if (part == part[0]).all() else part for part in (self.low, self.high) if part is not None)

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


def raw(n_features: int) -> InputEncoding:
    """Inputs as they are."""
    return InputEncoding(np.zeros(n_features), np.ones(n_features))


def column_layout(X: Array, kind: str, bins: int) -> Index | None:
    """Which column each encoded one is made of: every column once, then its bins.

    A column of two values needs no bins, one of few values no more than there are gaps between them. This sets the
    number of inputs of every network trained on X, so it looks at all rows, but at nothing except how many values a
    column has. Tables of many columns get fewer bins for each, so that there are about 2,000 in all.
    """
    if kind not in WITH_RAMPS:
        return None
    return layout_of(np.array([len(np.unique(column[~np.isnan(column)])) for column in X.T]), kind, bins)


def layout_of(values: Index, kind: str, bins: int) -> Index | None:
    """The same from how many values each column has."""
    if kind not in WITH_RAMPS:
        return None
    bins = max(2, min(bins, _MOST_RAMPS // max(1, int((values > 2).sum()))))
    counts = np.where(values > 2, np.minimum(values - 1, bins), 0)
    return np.concatenate([np.arange(len(values)), np.repeat(np.arange(len(values)), counts)])


def incomplete_columns(X: Array) -> Index:
    """The columns that lack cells; as with `column_layout`, nothing else of the rows is looked at."""
    return np.flatnonzero(np.isnan(X).any(axis=0))


def fit_encoding(
    kind: str,
    columns: Index | None,
    X: Array,
    y: NDArray[np.bool_] | Index,
    sample_weight: Array,
    *,
    standardize: bool = True,
    indicators: Index | None = None,
) -> InputEncoding:
    """Fit an encoding of `ENCODINGS` on rows that have weight.

    ``columns`` is what `column_layout` gave, ``indicators`` what `incomplete_columns` gave, or ``None`` where no cell
    may be missing.
    """
    used = sample_weight > 0
    if not used.all():
        X, y, sample_weight = X[used], y[used], sample_weight[used]
    encoding = raw(X.shape[1])  # whatever the kind
    if standardize:
        encoding = _fitted(kind, columns, X, y, sample_weight)
    return encoding if indicators is None else _with_indicators(encoding, indicators, X, sample_weight, standardize)


def _with_indicators(
    encoding: InputEncoding, indicators: Index, X: Array, sample_weight: Array, standardize: bool
) -> InputEncoding:
    is_missing = np.isnan(X[:, indicators])
    mean, scale = np.zeros(len(indicators)), np.ones(len(indicators))
    if standardize:
        mean, scale = standardization(is_missing.astype(np.float64), sample_weight)
    is_used = np.asarray(is_missing.any(axis=0) & ~is_missing.all(axis=0))
    return with_indicators(encoding, indicators, InputEncoding(mean, scale), is_used)


def with_indicators(
    encoding: InputEncoding, indicators: Index, own: InputEncoding, is_used: NDArray[np.bool_]
) -> InputEncoding:
    """An encoding that takes missing cells, its indicators standardised as any column of zeros and ones would be.

    ``own`` is how they are. Where rows lack no cell of a column, or all of them, its indicator is a column of zeros.
    """
    limit = np.where(is_used, INPUT_LIMIT, 0.0)
    unlimited = np.full(encoding.size, np.inf)
    columns = encoding.columns
    if columns is not None:
        columns = np.append(columns, int(columns.max()) + 1 + np.arange(len(indicators)))
    return replace(
        encoding,
        mean=np.append(encoding.mean, own.mean),
        scale=np.append(encoding.scale, own.scale),
        columns=columns,
        low=np.append(-unlimited if encoding.low is None else encoding.low, -limit),
        high=np.append(unlimited if encoding.high is None else encoding.high, limit),
        indicators=indicators,
    )


def _fitted(
    kind: str,
    columns: Index | None,
    X: Array,
    y: NDArray[np.bool_] | Index,
    sample_weight: Array,
) -> InputEncoding:
    """The encoding of cells that are there; a column without any is a column of zeros."""
    if kind == "quantile":
        return _quantile(X, sample_weight)
    mean, scale = standardization(X, sample_weight)
    limit = np.where(np.isnan(X).all(axis=0), 0.0, INPUT_LIMIT)
    if kind == "standard":
        return InputEncoding(mean, scale, None, -limit, limit)
    if kind == "robust":
        middle, spread = _middle_half(X, sample_weight)
        usable = spread > 1e-12 * np.maximum(np.abs(middle), 1e-12)
        mean, scale = np.where(usable, middle, mean), np.where(usable, spread, scale)
        return InputEncoding(mean, scale, None, -limit, limit, is_smooth=True)
    assert columns is not None
    return _ramps(kind, columns, X, y, sample_weight, InputEncoding(mean, scale, None, -limit, limit))


def standardization(X: Array, sample_weight: Array) -> tuple[Array, Array]:
    """Weighted column means and standard deviations of what is not missing; a constant column gets scale 1.

    Columns are divided by their largest magnitude first, so that values near the end of float64 do not overflow.
    """
    used = sample_weight > 0
    if not used.all():
        X, sample_weight = X[used], sample_weight[used]
    share = sample_weight / sample_weight.sum()
    mean, scale = np.empty((2, X.shape[1]))
    at_once = max(1, _NUMBERS_AT_ONCE // max(len(X), 1))
    for start in range(0, X.shape[1], at_once):
        part = slice(start, start + at_once)
        mean[part], scale[part] = _standardization(np.ascontiguousarray(X[:, part].T), share)
    return mean, scale


def _standardization(columns: Array, share: Array) -> tuple[Array, Array]:
    """Of a few columns, side by side: it needs several times their memory."""
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
    # A constant column's own value, to the last digit: at 1e30 the rounding of a mean is itself huge.
    first = columns[np.arange(len(columns)), is_missing.argmin(axis=1)]
    return np.where(is_constant, first, mean * size), np.where(scale == 0, 1.0, scale)


def _quantiles(sorted_values: Array, cumulative: Array, shares: Array) -> Array:
    """Weighted quantiles of a sorted column: the first value that has so large a share of the weight below it."""
    if not len(sorted_values):
        return np.zeros(len(shares))
    at = np.searchsorted(cumulative, shares * cumulative[-1] * (1 - 1e-12))
    return sorted_values[np.minimum(at, len(sorted_values) - 1)]


def _sorted(column: Array, sample_weight: Array) -> tuple[Index, Array, Array]:
    """The order of the cells that are there, these cells, and the weight up to each."""
    order = np.argsort(column, kind="stable")[: np.count_nonzero(~np.isnan(column))]
    return order, column[order], np.cumsum(sample_weight[order])


def _middle_half(X: Array, sample_weight: Array) -> tuple[Array, Array]:
    """Median and the width of the middle half, scaled to be the standard deviation of a normal column."""
    shares = np.array([0.25, 0.5, 0.75])
    found = np.array([_quantiles(*_sorted(column, sample_weight)[1:], shares) for column in X.T])
    return found[:, 1], (found[:, 2] - found[:, 0]) / 1.349


def _quantile(X: Array, sample_weight: Array) -> InputEncoding:
    """Normal scores: each value's share among the training rows, through the inverse normal distribution."""
    shares = (np.arange(_QUANTILE_KNOTS) + 0.5) / _QUANTILE_KNOTS
    import torch  # not at the top: prediction needs none

    normal = torch.special.ndtri(torch.from_numpy(shares)).numpy()
    knots, scores = np.empty((2, X.shape[1], _QUANTILE_KNOTS))
    for column in range(X.shape[1]):
        _, values, cumulative = _sorted(X[:, column], sample_weight)
        # A value that many rows share gets the mean of their scores; the last knot fills up the row.
        own, at = np.unique(_quantiles(values, cumulative, shares), return_inverse=True)
        means = np.bincount(at, normal) / np.bincount(at)
        fill = (0, _QUANTILE_KNOTS - len(own))
        knots[column], scores[column] = np.pad(own, fill, mode="edge"), np.pad(means, fill, mode="edge")
    return InputEncoding(np.zeros(X.shape[1]), np.ones(X.shape[1]), knots=knots, scores=scores)


def _ramps(
    kind: str,
    columns: Index,
    X: Array,
    y: NDArray[np.bool_] | Index,
    sample_weight: Array,
    plain: InputEncoding,
) -> InputEncoding:
    """The standardised columns, then for each bin (x − left)/(right − left) between 0 and 1, less its mean.

    A bin that these rows do not fill is a column of zeros.
    """
    n_features, labels = X.shape[1], np.flatnonzero(np.bincount(y))
    places = ramp_places(columns, n_features)

    def cells(column: int) -> tuple[Index, Array, Array]:
        return _sorted(np.ascontiguousarray(X[:, column]), sample_weight)

    def candidates(order: Index, values: Array, cumulative: Array) -> Candidates:
        return candidates_of(values, y[order], sample_weight[order], cumulative, labels)

    if kind == "steps":
        return steps(columns, plain, {column: candidates(*cells(column)) for column in places})
    encoding = _without_ramps(columns, plain)
    for column, own in places.items():
        order, values, cumulative = cells(column)
        if kind == "piecewise":
            edges = np.unique(_quantiles(values, cumulative, np.linspace(0.0, 1.0, len(own) + 1)))
        else:
            found = candidates(order, values, cumulative)
            at = tree_splits([found], [len(own)])[0]
            middle = np.column_stack([found.left[at], found.right[at]]).mean(axis=1)
            edges = np.unique(np.concatenate([values[:1], middle, values[-1:]]))
        for place, left, right in zip(own, edges[:-1], edges[1:], strict=False):
            with np.errstate(over="ignore"):  # values near the end of float64
                width = min(right - left, np.finfo(np.float64).max)
                # Not a product of BLAS, which adds up by the number of threads.
                shares = sample_weight[order] * np.clip((values - left) / width, 0.0, 1.0)
            _set_ramp(encoding, place, left, width, float(shares.sum()) / cumulative[-1])
    return encoding


def ramp_places(columns: Index, n_features: int) -> dict[int, Index]:
    """Of each column that has ramps, by a layout: where they stand."""
    own = columns[n_features:]
    return {int(column): n_features + np.flatnonzero(own == column) for column in np.unique(own)}


def steps(columns: Index, plain: InputEncoding, candidates: Mapping[int, Candidates]) -> InputEncoding:
    """The standardised columns, then ramps in gaps between neighbouring values: no cell of these rows is inside of one.

    ``candidates`` are those of every column that has ramps, by a layout.
    """
    encoding, places = _without_ramps(columns, plain), ramp_places(columns, len(plain.mean))
    splits = tree_splits([candidates[column] for column in places], [len(own) + 1 for own in places.values()])
    for (column, own), at in zip(places.items(), splits, strict=True):
        found = candidates[column]
        for place, left, right, below in zip(own, found.left[at], found.right[at], found.below[at], strict=False):
            with np.errstate(over="ignore"):  # values near the end of float64
                width = min(right - left, np.finfo(np.float64).max)
            _set_ramp(encoding, place, left, width, 1.0 - below)
    return encoding


def _without_ramps(columns: Index, plain: InputEncoding) -> InputEncoding:
    """The standardised columns, and zeros where ramps will stand."""
    assert plain.high is not None
    mean, scale, high = plain.mean[columns], plain.scale[columns], plain.high[columns]
    low, ramps = -high, slice(len(plain.mean), None)
    low[ramps], high[ramps], mean[ramps], scale[ramps] = 0.0, 0.0, 0.0, 1.0
    return InputEncoding(mean, scale, columns, low, high)


def _set_ramp(encoding: InputEncoding, place: int, left: float, width: float, centre: float) -> None:
    """Put a ramp from ``left`` on, less its mean, at a place."""
    assert encoding.low is not None
    assert encoding.high is not None
    with np.errstate(over="ignore"):
        encoding.mean[place], encoding.scale[place] = left + centre * width, width
    encoding.low[place], encoding.high[place] = -centre, 1.0 - centre
