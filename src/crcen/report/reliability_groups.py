"""Reliability: observed shares beside stated probabilities, in groups of equal expected positives."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.theory.intervals import wilson_interval

__all__ = ["ReliabilityGroup", "reliability_groups"]

Array = NDArray[np.float64]

_MOST_GROUPS, _FEWEST_GROUPS, _POSITIVES_IN_A_GROUP = 10, 3, 5


@dataclass(frozen=True)
class ReliabilityGroup:
    """Rows of similar probability.

    Parameters
    ----------
    n_rows : int
        How many.
    mean_p : float
        Their mean natural probability.
    mean_q : float or None
        Their mean probability under the weighting, where the model has one.
    observed, low, high : float
        The share of positives among them, with its 95 % interval.
    expected_positives, observed_positives : float
        Weighted counts.
    z : float
        The difference in standard deviations of the true posterior; 0 where these are 0 and both counts agree.
    """

    n_rows: int
    mean_p: float
    mean_q: float | None
    observed: float
    low: float
    high: float
    expected_positives: float
    observed_positives: float
    z: float


def reliability_groups(
    target: NDArray[np.bool_], p: Array, q: Array | None, weights: Array
) -> tuple[ReliabilityGroup, ...]:
    """Group rows by probability, about equally many expected positives in each, and compare with what was observed.

    Rows are cut by p alone, never by the outcome, and equal probabilities stay together. For rare events groups of
    equal size would put nearly every positive into the last one.

    Parameters
    ----------
    target : bool array of shape (n,)
        True for the positive rows.
    p, q : float64 array of shape (n,)
        Natural probabilities, and those under the weighting or None.
    weights : float64 array of shape (n,)
        Sample weights.

    Returns
    -------
    tuple of ReliabilityGroup
        In increasing order of probability; groups of weight 0 are left out.
    """
    count = int(np.clip(target.sum() // _POSITIVES_IN_A_GROUP, _FEWEST_GROUPS, _MOST_GROUPS))
    values, position = np.unique(p, return_inverse=True)
    mass = np.bincount(position, weights * p, minlength=values.size)
    total = float(mass.sum())
    before = np.cumsum(mass) - mass
    group_of = np.minimum(count * before / total if total > 0.0 else before, count - 1).astype(int)[position]
    groups = []
    for number in range(count):
        mine = group_of == number
        size = float(weights[mine].sum())
        if size > 0.0:
            groups.append(_group(target[mine], p[mine], None if q is None else q[mine], weights[mine], size))
    return tuple(groups)


def _group(target: NDArray[np.bool_], p: Array, q: Array | None, weights: Array, size: float) -> ReliabilityGroup:
    found, expected = float(weights[target].sum()), float(np.sum(weights * p))
    deviation = math.sqrt(float(np.sum(weights**2 * p * (1.0 - p))))
    difference = found - expected
    low, high = wilson_interval(found / size, size**2 / float(np.sum(weights**2)))
    return ReliabilityGroup(
        n_rows=int(target.size),
        mean_p=expected / size,
        mean_q=None if q is None else float(np.sum(weights * q)) / size,
        observed=found / size,
        low=low,
        high=high,
        expected_positives=expected,
        observed_positives=found,
        z=difference / deviation if deviation > 0.0 else (math.copysign(math.inf, difference) if difference else 0.0),
    )
