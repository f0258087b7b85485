"""The frozen input layer of a network: numbers in, encoded columns out, fitted on the network's own training rows.

Every encoding is one expression, z = squash(clip((r(x[columns]) − mean)/scale, low, high)). Most leave parts of it
out. Standardisation takes each column once. A piecewise-linear encoding repeats a column once a bin, each copy a ramp
from one edge of the bin to the other. r replaces a value by its normal score among the training rows.

Where cells may be missing (NaN), all of this is fitted on those that are there. A missing cell is then 0 in every
encoded column made of it, and columns that say which cells are missing stand beside the others.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.training.column_orders import OrderOf

__all__ = [
    "ENCODINGS",
    "INPUT_LIMIT",
    "MISSING",
    "SMOOTH_LIMIT",
    "InputEncoding",
    "column_layout",
    "fit_encoding",
    "incomplete_columns",
    "raw",
    "standardization",
]

# What `TrainingJob.encoding` and `TrainingJob.missing` may be.
ENCODINGS = ("standard", "robust", "quantile", "piecewise", "tree", "steps")
MISSING = ("error", "indicator")

# Standardised inputs are cut off here, far outside any training row, so that a wild new value cannot give a NaN.
INPUT_LIMIT = 1e6
# Where the robust encoding bends values to.
SMOOTH_LIMIT = 3.0
# Statistics of columns are taken of so many cells at a time, for the sake of memory.
_NUMBERS_AT_ONCE = 2**17
_QUANTILE_KNOTS = 100
# Candidate edges of the trees that place bins: finer ones cost time and follow single rows.
_TREE_CANDIDATES = 128
_TREE_LEAF_SHARE = 0.005
# Splits as good as each other to this precision are a tie, which the first one wins. Rounding must not decide: it is
# another one for a row of weight 3 than for three rows.
_TIE = 1e-10
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
            np.clip(z, self.low, self.high, out=z)
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
    if kind not in ("piecewise", "tree", "steps"):
        return None
    values = np.array([len(np.unique(column[~np.isnan(column)])) for column in X.T])
    bins = max(2, min(bins, _MOST_RAMPS // max(1, int((values > 2).sum()))))
    counts = np.where(values > 2, np.minimum(values - 1, bins), 0)
    return np.concatenate([np.arange(X.shape[1]), np.repeat(np.arange(X.shape[1]), counts)])


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
    orders: OrderOf | None = None,
) -> InputEncoding:
    """Fit an encoding of `ENCODINGS` on rows that have weight.

    ``columns`` is what `column_layout` gave, ``indicators`` what `incomplete_columns` gave, or ``None`` where no cell
    may be missing. ``orders`` gives the rows in the order of a column; without it columns are sorted here.
    """
    used = sample_weight > 0
    if not used.all():
        X, y, sample_weight, orders = X[used], y[used], sample_weight[used], None
    encoding = raw(X.shape[1])  # whatever the kind
    if standardize:
        encoding = _fitted(kind, columns, X, y, sample_weight, orders)
    return encoding if indicators is None else _with_indicators(encoding, indicators, X, sample_weight, standardize)


def _with_indicators(
    encoding: InputEncoding, indicators: Index, X: Array, sample_weight: Array, standardize: bool
) -> InputEncoding:
    """An encoding that takes missing cells, its indicators standardised as any column of zeros and ones would be.

    Where these rows lack no cell of a column, or all of them, its indicator is a column of zeros.
    """
    is_missing = np.isnan(X[:, indicators])
    mean, scale = np.zeros(len(indicators)), np.ones(len(indicators))
    if standardize:
        mean, scale = standardization(is_missing.astype(np.float64), sample_weight)
    limit = np.where(is_missing.any(axis=0) & ~is_missing.all(axis=0), INPUT_LIMIT, 0.0)
    unlimited = np.full(encoding.size, np.inf)
    own = X.shape[1] + np.arange(len(indicators))
    return replace(
        encoding,
        mean=np.append(encoding.mean, mean),
        scale=np.append(encoding.scale, scale),
        columns=None if encoding.columns is None else np.append(encoding.columns, own),
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
    orders: OrderOf | None,
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
    return _ramps(kind, columns, X, y, sample_weight, InputEncoding(mean, scale, None, -limit, limit), orders)


def standardization(X: Array, sample_weight: Array) -> tuple[Array, Array]:
    """Weighted column means and standard deviations of what is not missing; a constant column gets scale 1.

    Columns are divided by their largest magnitude first, so that values near the end of float64 do not overflow.
    """
    used = sample_weight > 0
    if not used.all():
        X, sample_weight = X[used], sample_weight[used]
    share = sample_weight / sample_weight.sum()
    mean, scale = np.empty((2, X.shape[1]))
    at_once = max(2, _NUMBERS_AT_ONCE // max(len(X), 1))
    for start in range(0, X.shape[1], at_once):
        part = slice(start, start + at_once)
        mean[part], scale[part] = _standardization(X[:, part], share[:, None])
    return mean, scale


def _standardization(X: Array, share: Array) -> tuple[Array, Array]:
    """Of a few columns: it needs several times their memory."""
    is_missing = np.isnan(X)
    if is_missing.any():
        X, share = np.where(is_missing, 0.0, X), np.where(is_missing, 0.0, share)
        total = share.sum(axis=0)
        share /= np.where(total > 0, total, 1.0)
    size = np.abs(X).max(axis=0)
    size[size == 0] = 1.0
    unit = X / size
    mean = (share * unit).sum(axis=0)
    std = np.sqrt((share * (unit - mean) ** 2).sum(axis=0))
    is_constant = std <= 1e-12 * np.maximum(np.abs(mean), 1e-12)
    scale = np.where(is_constant, 1.0, std * size)
    # A constant column's own value, to the last digit: at 1e30 the rounding of a mean is itself huge.
    first = X[is_missing.argmin(axis=0), np.arange(X.shape[1])]
    return np.where(is_constant, first, mean * size), np.where(scale == 0, 1.0, scale)


def _quantiles(sorted_values: Array, cumulative: Array, shares: Array) -> Array:
    """Weighted quantiles of a sorted column: the first value that has so large a share of the weight below it."""
    if not len(sorted_values):
        return np.zeros(len(shares))
    at = np.searchsorted(cumulative, shares * cumulative[-1] * (1 - 1e-12))
    return sorted_values[np.minimum(at, len(sorted_values) - 1)]


def _sorted(
    column: Array, sample_weight: Array, order: NDArray[np.integer[Any]] | None = None
) -> tuple[NDArray[np.integer[Any]], Array, Array]:
    """The order of the cells that are there, these cells, and the weight up to each; the order of all may be known."""
    if order is None:
        order = np.argsort(column, kind="stable")
    order = order[: np.count_nonzero(~np.isnan(column))]
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
    orders: OrderOf | None,
) -> InputEncoding:
    """The standardised columns, then for each bin (x − left)/(right − left) between 0 and 1, less its mean.

    A bin that these rows do not fill is a column of zeros.
    """
    n_features = X.shape[1]
    assert plain.high is not None
    mean, scale, high = plain.mean[columns], plain.scale[columns], plain.high[columns]
    low, labels = -high, np.flatnonzero(np.bincount(y))
    for column in range(n_features):
        places = n_features + np.flatnonzero(columns[n_features:] == column)
        if not len(places):
            continue
        cells = np.ascontiguousarray(X[:, column])
        order, values, cumulative = _sorted(cells, sample_weight, None if orders is None else orders(column))
        if kind == "piecewise":
            edges = np.unique(_quantiles(values, cumulative, np.linspace(0.0, 1.0, len(places) + 1)))
            ramps = np.column_stack([edges[:-1], edges[1:]])
        else:
            gaps = _tree_gaps(values, y[order], sample_weight[order], labels, len(places) + (kind == "steps"))
            ramps = gaps
            if kind == "tree":
                edges = np.unique(np.concatenate([values[:1], gaps.mean(axis=1), values[-1:]]))
                ramps = np.column_stack([edges[:-1], edges[1:]])
        low[places], high[places], mean[places], scale[places] = 0.0, 0.0, 0.0, 1.0
        for place, (left, right) in zip(places, ramps, strict=False):
            with np.errstate(over="ignore"):  # values near the end of float64
                width = min(right - left, np.finfo(np.float64).max)
                if kind == "steps":  # no cell of these rows is inside of one
                    centre = 1.0 - cumulative[np.searchsorted(values, right) - 1] / cumulative[-1]
                else:
                    # Not a product of BLAS, which adds up by the number of threads.
                    shares = sample_weight[order] * np.clip((values - left) / width, 0.0, 1.0)
                    centre = float(shares.sum()) / cumulative[-1]
            mean[place], scale[place] = left + centre * width, width
            low[place], high[place] = -centre, 1.0 - centre
    return InputEncoding(mean, scale, columns, low, high)


def _tree_gaps(
    values: Array, y: NDArray[np.bool_] | Index, weights: Array, labels: Index, leaves_at_most: int
) -> Array:
    """The gaps between neighbouring values in which a small tree on this column alone splits, (splits, 2) in order.

    The split with the largest gain in Gini impurity goes first; the classes weigh the same.
    """
    cumulative = np.array([np.cumsum(weights * (y == label)) for label in labels]).reshape(len(labels), len(values))
    cumulative = cumulative[cumulative.any(axis=1)]  # of a class that is not there all cells are missing
    if len(cumulative) < 2:
        return np.empty((0, 2))
    ends = np.flatnonzero(np.append(values[1:] > values[:-1], True))  # the last row of each distinct value
    shares = cumulative[:, ends].T / cumulative[:, -1]
    distinct = values[ends]
    if len(ends) > _TREE_CANDIDATES:
        mass = shares.mean(axis=1)
        kept = np.unique(np.searchsorted(mass, np.linspace(0, 1, _TREE_CANDIDATES + 1)[1:] * mass[-1] * (1 - 1e-12)))
        shares, distinct_at = shares[kept], kept
    else:
        distinct_at = np.arange(len(ends))
    leaves = [(0, len(shares))]  # candidates (start, stop): rows after `start − 1` up to `stop − 1`
    splits: list[int] = []
    gains = [_best_split(shares, 0, len(shares))]
    while len(leaves) < leaves_at_most:
        most = max(gain for gain, _ in gains)
        if most <= 0:
            break
        ties = [i for i, (gain, _) in enumerate(gains) if gain >= most - _TIE]
        best = min(ties, key=lambda i: leaves[i])
        _, at = gains[best]
        start, stop = leaves.pop(best)
        gains.pop(best)
        splits.append(at)
        for leaf in ((start, at), (at, stop)):
            leaves.append(leaf)
            gains.append(_best_split(shares, *leaf))
    last = distinct_at[np.array(sorted(splits), dtype=np.int64) - 1]
    return np.column_stack([distinct[last], distinct[last + 1]])


def _best_split(shares: Array, start: int, stop: int) -> tuple[float, int]:
    """Gain in Gini impurity of the best cut of candidates start…stop−1, and the cut's position."""
    if stop - start < 2:
        return 0.0, start
    n_classes = shares.shape[1]
    before = shares[start - 1] if start else np.zeros(n_classes)
    inside = shares[stop - 1] - before
    left = shares[start : stop - 1] - before
    right = inside - left
    left_mass, right_mass = left.sum(axis=1), right.sum(axis=1)
    fine = np.minimum(left_mass, right_mass) >= _TREE_LEAF_SHARE * (n_classes / 2) - _TIE
    if not fine.any():
        return 0.0, start
    with np.errstate(invalid="ignore", divide="ignore"):
        purity = (left**2).sum(axis=1) / left_mass + (right**2).sum(axis=1) / right_mass
    purity = np.where(fine, purity, -np.inf)
    at = int(np.argmax(purity >= purity.max() - _TIE))
    gain = float(purity[at] - (inside**2).sum() / inside.sum())
    return (gain if gain > 1e-9 else 0.0), start + at + 1
