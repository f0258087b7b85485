"""Recall, specificity, precision, F1 and G-mean from confusion counts, intervals of shares, log loss of rows."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.rows import check_binary_target, check_not_negative, check_row_weights

__all__ = ["ConfusionCounts", "FloatOrArray", "confusion_counts", "g_mean", "log_losses", "wilson_interval"]

FloatOrArray: TypeAlias = float | NDArray[np.float64]

# A probability of exactly 0 would make the log loss infinite.
_SMALLEST = 1e-15


def _plain(values: NDArray[np.float64]) -> FloatOrArray:
    return float(values) if values.ndim == 0 else values


def _ratio(part: FloatOrArray, rest: FloatOrArray, empty: float) -> FloatOrArray:
    """Divide `part` by `part + rest`, giving `empty` where both are 0."""
    top, bottom = np.asarray(part), np.asarray(part) + np.asarray(rest)
    return _plain(np.divide(top, bottom, out=np.full(bottom.shape, empty), where=bottom > 0.0))


@dataclass(frozen=True, eq=False)
class ConfusionCounts:
    """The four cells of the confusion matrix, weighted counts allowed.

    Parameters
    ----------
    tp, fp, fn, tn : float or array of shape (models,)
        True positives, false positives, false negatives, true negatives; finite and not negative.
    """

    tp: FloatOrArray
    fp: FloatOrArray
    fn: FloatOrArray
    tn: FloatOrArray

    def __post_init__(self) -> None:
        shapes = {}
        for cell in fields(self):
            counts = check_not_negative(getattr(self, cell.name), cell.name)
            shapes[cell.name] = counts.shape
            object.__setattr__(self, cell.name, _plain(counts))
        if len(set(shapes.values())) > 1:
            raise InvalidInput(f"tp, fp, fn and tn must have one shape, got {shapes}")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConfusionCounts):
            return NotImplemented
        return all(np.array_equal(getattr(self, cell.name), getattr(other, cell.name)) for cell in fields(self))

    __hash__ = None  # type: ignore[assignment]  # cells may be arrays

    @property
    def recall(self) -> FloatOrArray:
        """Share of the positives that are found; NaN where there is no positive."""
        return _ratio(self.tp, self.fn, np.nan)

    @property
    def specificity(self) -> FloatOrArray:
        """Share of the negatives that are left alone; NaN where there is no negative."""
        return _ratio(self.tn, self.fp, np.nan)

    @property
    def precision(self) -> FloatOrArray:
        """Share of the alarms that are right; 0 where there is no alarm."""
        return _ratio(self.tp, self.fp, 0.0)

    @property
    def f1(self) -> FloatOrArray:
        """Harmonic mean of precision and recall, 2·tp / (2·tp + fp + fn); 0 where that is 0/0."""
        return _ratio(2.0 * self.tp, self.fp + self.fn, 0.0)

    @property
    def g_mean(self) -> FloatOrArray:
        """Geometric mean of recall and specificity; NaN where a class is absent."""
        return _plain(np.sqrt(np.asarray(self.recall) * np.asarray(self.specificity)))


def confusion_counts(y: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> ConfusionCounts:
    """Count right and wrong decisions of one model or of many.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive.
    y_pred : array of shape (n,) or (models, n)
        Decisions, 0/1 or bool.
    sample_weight : array of shape (n,), optional
        Finite and not negative; then the counts are sums of weights.

    Returns
    -------
    ConfusionCounts
        Floats for one model, arrays of shape (models,) for many.

    Raises
    ------
    InvalidInput
        If labels are not 0/1 or lengths differ.
    """
    positive = check_binary_target(y)
    called = check_binary_target(y_pred, "y_pred", ndims=(1, 2))
    if called.shape[-1] != positive.size:
        raise InvalidInput(f"y_pred must have {positive.size} columns as y has rows, got shape {called.shape}")
    weights = check_row_weights(sample_weight, positive.size)
    # Each cell is its own sum: a difference of sums could leave -1e-16 where nothing is.
    by_class = np.stack([np.where(positive, weights, 0.0), np.where(positive, 0.0, weights)], axis=1)
    # einsum and not a product of BLAS, which adds up by the number of threads.
    alarms = np.einsum("...n,nc->...c", called.astype(np.float64), by_class)
    quiet = np.einsum("...n,nc->...c", (~called).astype(np.float64), by_class)
    return ConfusionCounts(tp=alarms[..., 0], fp=alarms[..., 1], fn=quiet[..., 0], tn=quiet[..., 1])


def g_mean(y: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatOrArray:
    """Geometric mean of recall and specificity; of the recalls of all classes where there are more than two.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive; or class numbers from 0.
    y_pred : array of shape (n,) or (models, n)
        Decisions, 0/1 or bool; or class numbers, of shape (n,).
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Returns
    -------
    float or array of shape (models,)
        In [0, 1]; NaN where a class is absent.
    """
    numbers = np.asarray(y)
    # Labels such as 1 and 2 are no class numbers from 0: they are refused below.
    if numbers.dtype.kind in "iu" and numbers.ndim == 1 and numbers.size and numbers.min() == 0 and numbers.max() > 1:
        from crcen.theory.classes.class_counts import class_counts  # which is for more than two

        width = int(max(numbers.max(), np.max(y_pred))) + 1
        return class_counts(numbers, y_pred, width, sample_weight).g_mean
    return confusion_counts(y, y_pred, sample_weight).g_mean


def wilson_interval(share: float, size: float, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95 % interval of a share.

    Parameters
    ----------
    share : float
        The observed share, in [0, 1].
    size : float
        How many rows it comes from; with weights, (Σ w)² / Σ w².
    z : float
        The normal quantile.

    Returns
    -------
    low, high : float
        Inside [0, 1]; both NaN where there is no row.
    """
    if size <= 0.0 or math.isnan(share):
        return math.nan, math.nan
    centre = share + z**2 / (2.0 * size)
    half = z * math.sqrt(share * (1.0 - share) / size + z**2 / (4.0 * size**2))
    scale = 1.0 + z**2 / size
    return max((centre - half) / scale, 0.0), min((centre + half) / scale, 1.0)


def log_losses(target: NDArray[np.bool_], p: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log loss of every row.

    Parameters
    ----------
    target : bool array of shape (n,)
        True for the positive rows.
    p : float64 array of shape (n,)
        Probabilities of the positive class; they are kept 1e-15 away from 0 and 1, as nothing finite follows there.

    Returns
    -------
    float64 array of shape (n,)
        Finite.
    """
    inside = np.clip(p, _SMALLEST, 1.0 - _SMALLEST)
    losses: NDArray[np.float64] = -np.where(target, np.log(inside), np.log1p(-inside))
    return losses
