"""Exact tests of counts: shares of groups, precision guaranteed at a threshold, one row per cluster."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtrc
from scipy.stats import hypergeom

from crcen.theory.rows import Array, Bools, Index
from crcen.theory.selective import row_hash

_CHUNK = 20_000
_EXCEEDANCES = 50  # Besag and Clifford (1991): enough draws as extreme as the data, and the p-value is known well
_DRAWS_PER_LEVEL = 20
_STARTS, _ROWS_PER_START = 4, 150


def shares_p_value(strata: Sequence[tuple[Index, Index]], level: float, seed: int = 0) -> float:
    """P-value of equal shares in all groups, given (hits, sizes) by group in each stratum; NaN if none can differ.

    Exact for two groups in one stratum, otherwise by at least 20/level draws, fewer after 50 as extreme as the data.
    """
    known = []
    for hits, sizes in strata:
        total, n = int(hits.sum()), int(sizes.sum())
        if (sizes > 0).sum() >= 2 and 0 < total < n:
            known.append((hits[sizes > 0], sizes[sizes > 0], total, n))
    if not known:
        return math.nan
    if len(known) == 1 and len(known[0][1]) == 2:
        (first, _), (size, _), total, n = *map(tuple, known[0][:2]), *known[0][2:]
        support = np.arange(max(0, total - (n - size)), min(size, total) + 1)
        far = np.abs(support - total * size / n)
        chance = hypergeom.pmf(support, n, total, size)
        return min(1.0, float(chance[far >= abs(first - total * size / n) * (1.0 - 1e-9)].sum()))
    observed = sum(_distance(hits, sizes, total, n) for hits, sizes, total, n in known)
    rng, beyond, drawn, most = np.random.default_rng(seed), 0, 0, max(math.ceil(_DRAWS_PER_LEVEL / level), 9_999)
    while drawn < most and beyond < _EXCEEDANCES:
        size = min(_CHUNK, most - drawn)
        far = np.zeros(size)
        for _, sizes, total, n in known:
            far += _distance(rng.multivariate_hypergeometric(sizes, total, size, method="marginals"), sizes, total, n)
        extreme = np.flatnonzero(far >= observed * (1.0 - 1e-9))
        if beyond + len(extreme) >= _EXCEEDANCES:
            return _EXCEEDANCES / (drawn + int(extreme[_EXCEEDANCES - beyond - 1]) + 1.0)
        beyond, drawn = beyond + len(extreme), drawn + size
    return (beyond + 1.0) / (drawn + 1.0)


def _distance(hits: NDArray[np.integer], sizes: Index, total: int, n: int) -> Array:
    expected = sizes * (total / n)
    return np.asarray(((hits - expected) ** 2 / (expected * (1.0 - total / n))).sum(axis=-1))


def sign_flip_p_value(cells: Array, level: float, noise: float = 1.0) -> float:
    """P-value of mean zero of a sum of ``cells`` (clusters, d): its length among those with random signs.

    Valid for any dependence in clusters (Hemerik, Goeman and Finos 2020). ``noise`` multiplies the clusters' variance.
    """
    cells = cells[np.abs(cells).max(axis=1, initial=0.0) > 0.0]
    if not cells.size:
        return math.nan
    fitted = max(1.0 - cells.shape[1] / len(cells), 0.0)  # residuals about shares that were estimated vary less
    observed, rng = fitted * (1.0 - 1e-9) * float((cells.sum(axis=0) ** 2).sum()) / noise, np.random.default_rng(0)
    beyond, drawn, most = 0, 0, max(math.ceil(_DRAWS_PER_LEVEL / level), 9_999)
    while drawn < most and beyond < _EXCEEDANCES:
        size = min(max(2_000_000 // len(cells), 1), most - drawn)
        signs = 2.0 * rng.integers(0, 2, (size, len(cells)), dtype=np.int8) - 1.0
        beyond, drawn = beyond + int((((signs @ cells) ** 2).sum(axis=1) >= observed).sum()), drawn + size
    return (beyond + 1.0) / (drawn + 1.0)


def precision_cut(target: Bools, scores: Array, share: float, confidence: float) -> int:
    """Number of rows, in order of falling score, whose precision is at least `share`; 0 if none is guaranteed.

    Exact tests at a fixed sequence of numbers of alarms, each 10 % larger, up to the first that does not reject. With
    many rows there are four sequences: one wrong row at the top then does not end everything.
    """
    order = np.argsort(-scores, kind="stable")
    hits, falling, n = np.cumsum(target[order]), scores[order], len(scores)
    last = np.append(np.flatnonzero(np.diff(falling)), n - 1)  # cuts between different scores
    n_starts = _STARTS if n >= _ROWS_PER_START * fewest_rows(share, confidence) else 1
    level, best = (1.0 - confidence) / n_starts, 0
    for doublings in range(n_starts):
        m = fewest_rows(share, 1.0 - level) * 2**doublings
        while m <= n:
            place = int(last[np.searchsorted(last, m - 1)])  # the next cut at or after m rows
            if bdtrc(float(hits[place]) - 1.0, place + 1, share) > level:
                break
            best = max(best, place + 1)
            m = max(place + 2, math.ceil(1.1 * (place + 1)))
    return best


def fewest_rows(share: float, confidence: float) -> int:
    """The smallest number of rows, all of them right, that guarantees a share: share^n ≤ 1 − confidence."""
    return max(1, math.ceil(math.log1p(-confidence) / math.log(share) - 1e-12))


def one_per_cluster(clusters: NDArray[np.generic], seed: int = 0) -> Bools:
    """One row of each cluster, drawn at random by the seed: rows that are independent again."""
    luck = row_hash(np.arange(len(clusters), dtype=np.uint64), seed)
    _, which = np.unique(clusters, return_inverse=True)
    order = np.lexsort((luck, which.ravel()))
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = np.diff(which.ravel()[order]) > 0
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[first]] = True
    return chosen
