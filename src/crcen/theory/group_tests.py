"""Whether groups of rows differ beyond chance in recall, precision and calibration.

Recall and precision are compared exactly: given how many positives (or alarms) a group has and how many were right in
all, the right ones of each group follow the multivariate hypergeometric distribution where groups are alike. Where rows
have weights, shares of weight are compared by χ², each with as many rows as tell as much where all weigh the same.
Residuals of probabilities are compared by χ², with the error of the fitted model allowed for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.theory.classes.chi_square import chi_square_tail

__all__ = ["FEWEST_ROWS", "GroupTest", "group_tests", "shares_alike"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]

FEWEST_ROWS = 5  # with which a group counts in tests
_DRAWS = 9_999


@dataclass(frozen=True)
class GroupTest:
    """Whether groups differ in a figure.

    Parameters
    ----------
    figure : str
        "recall", "precision" or "calibration".
    p_value : float
        NaN where too little is known of all groups but one.
    level : float
        Below this they differ beyond noise.
    """

    figure: str
    p_value: float
    level: float

    @property
    def differs(self) -> bool:
        """Whether groups differ more than chance allows."""
        return self.p_value < self.level


def group_tests(
    which: Index, n_groups: int, y: Bools, alarms: Bools, p: Array, w: Array | None, noise: float, level: float
) -> tuple[GroupTest, ...]:
    """Tests of recall, precision and calibration.

    Parameters
    ----------
    which : int array of shape (n,)
        The group of each row, below ``n_groups``.
    y, alarms, p : arrays of shape (n,)
        Whether rows are positive, whether they have an alarm, and their natural probabilities.
    w : array of shape (n,), optional
        What rows count, 1 in the mean.
    noise : float
        How much more a residual varies than under the truth.
    level : float
        Below this p-value groups differ.
    """
    shares = (("recall", y, alarms), ("precision", alarms, y))
    found = [(figure, shares_alike(which, n_groups, [rows], hit, w)) for figure, rows, hit in shares]
    found.append(("calibration", _residuals_alike(which, n_groups, y, p, np.ones(len(p)) if w is None else w, noise)))
    return tuple(GroupTest(figure, p_value, level) for figure, p_value in found)


def shares_alike(which: Index, n_groups: int, strata: Sequence[Bools], hit: Bools, w: Array | None) -> float:
    """Chance of shares of hits so different where in each of the strata, which are rows, all groups have one share."""
    if w is None:
        return _exact_chance(which, n_groups, strata, hit)
    parts = [_distance(which[rows], n_groups, hit[rows], w[rows]) for rows in strata]
    degrees = sum(part[1] for part in parts)
    return chi_square_tail(sum(part[0] for part in parts), degrees) if degrees else math.nan


def _distance(which: Index, n_groups: int, hit: Bools, w: Array) -> tuple[float, int]:
    """χ² of shares of weight, and its degrees of freedom: none where nothing can be told."""
    weight, squares = (np.bincount(which, one, minlength=n_groups) for one in (w, w**2))
    known = weight**2 >= FEWEST_ROWS * np.maximum(squares, np.finfo(float).tiny)
    share = (np.bincount(which, w * hit, minlength=n_groups)[known]) / weight[known]
    sizes = weight[known] ** 2 / squares[known]
    if len(sizes) < 2:
        return 0.0, 0
    pooled = float(sizes @ share / sizes.sum())
    if not 0.0 < pooled < 1.0:
        return 0.0, 0
    return float(sizes @ (share - pooled) ** 2) / (pooled * (1.0 - pooled)), len(sizes) - 1


def _exact_chance(which: Index, n_groups: int, strata: Sequence[Bools], hit: Bools) -> float:
    """Exact chance, up to its draws, of such counts of hits: those of each stratum are drawn given their number."""
    rng, far, seen, is_known = np.random.default_rng(0), np.zeros(_DRAWS), 0.0, False
    for rows in strata:
        right, sizes = (np.bincount(which[some], minlength=n_groups) for some in (rows & hit, rows))
        known = sizes >= FEWEST_ROWS
        right, sizes = right[known], sizes[known]
        total, n = int(right.sum()), int(sizes.sum())
        if len(sizes) < 2 or total in (0, n):
            continue
        expected = sizes * (total / n)
        spread = expected * (1.0 - total / n)
        drawn = rng.multivariate_hypergeometric(sizes, total, _DRAWS, method="marginals")
        far += ((drawn - expected) ** 2 / spread).sum(axis=1)
        seen += float(((right - expected) ** 2 / spread).sum())
        is_known = True
    return float((1 + int((far >= seen * (1.0 - 1e-12)).sum())) / (_DRAWS + 1)) if is_known else math.nan


def _residuals_alike(which: Index, n_groups: int, y: Bools, p: Array, w: Array, noise: float) -> float:
    """χ² of the groups' residuals about their common one."""
    residual = np.bincount(which, w * (y - p), minlength=n_groups)
    slope = np.bincount(which, w * p * (1.0 - p), minlength=n_groups)
    variance = np.bincount(which, w**2 * p * (1.0 - p), minlength=n_groups) * noise
    known = variance >= FEWEST_ROWS
    residual, slope, variance = residual[known], slope[known], variance[known]
    if len(residual) < 2:
        return math.nan
    # About the common error in log-odds, each group weighed by what it tells.
    information = slope**2 / variance
    common = float((slope / variance) @ residual / information.sum())
    value = float(((residual - slope * common) ** 2 / variance).sum())
    return chi_square_tail(value, len(residual) - 1)
