"""The bootstrap of sums over rows: draw rows again with replacement, add up what each contributes."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter

__all__ = ["bootstrap_sums", "percentile_interval", "row_draws"]

Array = NDArray[np.float64]

_CHUNK_BYTES = 2**25


def row_draws(
    counts: NDArray[np.int64], n_resamples: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Draw how often each kind of row appears in each resample, some resamples at a time.

    Parameters
    ----------
    counts : int array of shape (kinds,)
        How many rows there are of each kind; a resample has as many rows in all.
    n_resamples : int
        How many resamples to draw.
    generator : numpy Generator
        Where chance comes from.

    Yields
    ------
    int array of shape (some resamples, kinds)
        Together `n_resamples` of them; each sums to the number of rows.
    """
    if isinstance(n_resamples, bool) or not isinstance(n_resamples, int | np.integer) or n_resamples < 1:
        raise InvalidParameter(
            f"n_resamples must be a whole number of at least 1, got {n_resamples!r}", parameter="n_resamples"
        )
    n_rows = int(counts.sum())
    chunk = max(1, _CHUNK_BYTES // (8 * len(counts)))
    is_rows = bool((counts == 1).all())
    for start in range(0, n_resamples, chunk):
        size = min(chunk, n_resamples - start)
        if is_rows:  # the same law, drawn row by row, which is faster for so many kinds
            place = generator.integers(n_rows, size=(size, n_rows)) + n_rows * np.arange(size)[:, None]
            yield np.bincount(place.ravel(), minlength=size * n_rows).reshape(size, n_rows)
        else:
            yield generator.multinomial(n_rows, counts / n_rows, size=size)


def bootstrap_sums(contributions: Array, n_resamples: int, generator: np.random.Generator) -> Array:
    """Resample rows and sum their contributions.

    Rows that contribute the same are one kind, and a resample draws how many of each kind it has. Decisions along a
    path of weights have few kinds, whatever the number of rows.

    Parameters
    ----------
    contributions : float64 array of shape (n, sums)
        What each row adds to each sum.
    n_resamples : int
        How many resamples to draw.
    generator : numpy Generator
        Where chance comes from.

    Returns
    -------
    float64 array of shape (n_resamples, sums)
        The sums of each resample, correlated as the rows make them.
    """
    kind_of, n_kinds = np.zeros(len(contributions), dtype=np.int64), 1
    for column in contributions.T:  # column by column: NumPy's unique of whole rows is many times slower
        values, place = np.unique(column, return_inverse=True)
        if n_kinds * len(values) >= 2**62:  # numbers of kinds that do not appear fill up an integer
            kinds, kind_of = np.unique(kind_of, return_inverse=True)
            n_kinds = len(kinds)
        kind_of, n_kinds = kind_of * len(values) + place, n_kinds * len(values)
    _, first, counts = np.unique(kind_of, return_index=True, return_counts=True)
    return np.concatenate([drawn @ contributions[first] for drawn in row_draws(counts, n_resamples, generator)])


def percentile_interval(values: Array, level: float) -> tuple[float, float]:
    """Cut equal tails off resampled values.

    Parameters
    ----------
    values : float64 array of shape (n_resamples,)
        One value for each resample; infinite ones count, NaN are left out.
    level : float
        The share of values between the two ends, in (0, 1).

    Returns
    -------
    low, high : float
        Values that were drawn; NaN where more of them are NaN than a tail holds.
    """
    if not 0.0 < level < 1.0:
        raise InvalidParameter(f"level must lie strictly between 0 and 1, got {level!r}")
    known = values[~np.isnan(values)]
    tail = 0.5 * (1.0 - level)
    if known.size < (1.0 - tail) * values.size:
        return np.nan, np.nan
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)
