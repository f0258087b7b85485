"""What decisions cost at stated prices, and how far probabilities are off: for the probabilities of any peer."""

import numpy as np
from numpy.typing import NDArray

import crcen

__all__ = ["PRICES", "calibration_error", "costs", "relative_cost"]

Array = NDArray[np.float64]

# What a miss is worth in false alarms, by the name of the column; None is the training rows' class ratio.
PRICES = {"cost_2": 2.0, "cost_5": 5.0, "cost_20": 20.0, "cost_ir": None}
_GROUPS = 10


def costs(y_train: NDArray[np.int64], y: NDArray[np.int64], p: Array) -> dict[str, float]:
    """`relative_cost` at every price of `PRICES`.

    Parameters
    ----------
    y_train : int array
        Labels of the training rows, whose class ratio is the last price.
    y : int array of shape (n,)
        Labels of the test rows, 1 is positive.
    p : float64 array of shape (n,)
        Their probabilities.
    """
    ratio = float((y_train == 0).sum() / (y_train == 1).sum())
    return {name: relative_cost(y, p, ratio if price is None else price) for name, price in PRICES.items()}


def relative_cost(y: NDArray[np.int64], p: Array, price: float) -> float:
    """Cost of the decisions p > 1/(1 + price), over that of the cheaper trivial habit.

    The cost is price · misses + false alarms; the habits are to alarm always and never. 1 is no better than a habit.

    Parameters
    ----------
    y : int array of shape (n,)
        Labels, 1 is positive; both occur.
    p : float64 array of shape (n,)
        Probabilities of the positive class.
    price : float
        What a miss is worth in false alarms.
    """
    counts = crcen.confusion_counts(y, p > 1.0 / (1.0 + price))
    never, always = price * (counts.tp + counts.fn), counts.fp + counts.tn
    return float((price * counts.fn + counts.fp) / min(never, always))


def calibration_error(y: NDArray[np.int64], p: Array) -> float:
    """By how many positives the probabilities are off, group by group, as a share of all positives.

    Rows are sorted by probability and cut into up to ten groups with about equally many expected positives each;
    equal probabilities stay together. Groups of equally many rows would put nearly every positive into the last one.

    Parameters
    ----------
    y : int array of shape (n,)
        Labels, 1 is positive; at least one is.
    p : float64 array of shape (n,)
        Probabilities of the positive class.
    """
    order = np.argsort(p, kind="stable")
    stated, seen = np.cumsum(p[order]), np.cumsum(y[order] == 1)
    ends = np.searchsorted(stated, stated[-1] * np.arange(1, _GROUPS) / _GROUPS, side="left")
    # The last row with the same probability; the groups end there.
    ends = np.searchsorted(p[order], p[order][np.minimum(ends, len(p) - 1)], side="right") - 1
    ends = np.unique(np.append(ends, len(p) - 1))
    gaps = np.diff(stated[ends], prepend=0.0) - np.diff(seen[ends], prepend=0)
    return float(np.abs(gaps).sum() / seen[-1])
