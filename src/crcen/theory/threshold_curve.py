"""Counts above every threshold: rows in order of falling score, cumulated once for whoever needs them."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["ThresholdCurve", "average_precision", "roc_area"]

Array = NDArray[np.float64]


class ThresholdCurve:
    """The places where a threshold can stand, and how many rows are above each.

    Cut k raises an alarm on the rows of the k + 1 largest distinct scores; equal scores are decided alike.

    Parameters
    ----------
    target : bool array of shape (n,), or float64 array
        True for the positive rows; probabilities in place of labels give expected counts.
    score : float64 array of shape (n,)
        Probabilities, or anything that ranks rows.

    Attributes
    ----------
    score : float64 array of shape (cuts,)
        The distinct scores, falling.
    """

    def __init__(self, target: NDArray[np.bool_] | Array, score: Array) -> None:
        self._order = np.argsort(-score, kind="stable")
        self._target, falling = target[self._order].astype(np.float64), score[self._order]
        self._last = np.flatnonzero(np.append(np.diff(falling) != 0.0, True))
        self.score: Array = falling[self._last]

    def totals(self, weights: Array) -> tuple[Array, Array]:
        """Catches and false alarms at every cut.

        Parameters
        ----------
        weights : float64 array of shape (n,) or (draws, n)
            What each row counts, in the order of the rows given.

        Returns
        -------
        tp, fp : float64 array of shape (cuts,) or (draws, cuts)
            Sums of weights at or above each distinct score.
        """
        ordered = weights[..., self._order]
        return (
            np.cumsum(ordered * self._target, axis=-1)[..., self._last],
            np.cumsum(ordered * (1.0 - self._target), axis=-1)[..., self._last],
        )

    def n_cuts_above(self, threshold: float) -> int:
        """How many of the distinct scores lie above a threshold."""
        return int(np.searchsorted(-self.score, -threshold, side="left"))


def roc_area(tp: Array, fp: Array) -> float:
    """Area under the ROC curve: how often a positive row ranks above a negative one, ties counting half.

    Parameters
    ----------
    tp, fp : float64 array of shape (cuts,)
        As `ThresholdCurve.totals` gives them.

    Returns
    -------
    float
        In [0, 1]; NaN where a class is absent.
    """
    pairs = float(tp[-1] * fp[-1])
    caught = np.append(0.0, tp)
    return float(np.sum(np.diff(fp, prepend=0.0) * (caught[1:] + caught[:-1]) / 2.0)) / pairs if pairs else np.nan


def average_precision(tp: Array, fp: Array) -> float:
    """Precision averaged over the catches.

    Parameters
    ----------
    tp, fp : float64 array of shape (cuts,)
        As `ThresholdCurve.totals` gives them.

    Returns
    -------
    float
        In [0, 1]; NaN where there is no positive row.
    """
    alarms, n_pos = tp + fp, float(tp[-1])
    precision = np.divide(tp, alarms, out=np.zeros_like(alarms), where=alarms > 0.0)
    return float(np.sum(np.diff(tp, prepend=0.0) * precision)) / n_pos if n_pos else np.nan
