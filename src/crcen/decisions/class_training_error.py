"""The model's own error for K classes, from refits on random parts of its rows."""

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from crcen.theory.price import Price
from crcen.theory.residual_test import TrainingError, pair_sums, quadratic_form, residual_sums

__all__ = ["class_error_of_refits"]

Array = NDArray[np.float64]
# With more pairs of classes each is taken by itself.
_MOST_PAIRS = 100


def class_error_of_refits(
    chances: Array,
    parts: NDArray[np.bool_],
    target: NDArray[np.int64],
    sizes: Array,
    weighting: Price,
    of_all: float,
) -> TrainingError:
    """Compare refits two by two on rows that neither has seen.

    Refits are few, and covariances of K classes many. So the refits say, for each class, how many times the variance is
    that the labels of the training rows alone leave of an intercept (half of that from all classes together, as single
    ones are known by few refits); how classes go together is taken from these labels.

    Parameters
    ----------
    chances : float64 array of shape (refits, n, K)
        Natural probabilities of all training rows.
    parts : bool array of shape (refits, n)
        Which rows each refit was trained on.
    target, sizes : arrays of shape (n,)
        Class numbers and sample weights.
    weighting : Price
        What residuals are at.
    of_all : float
        What the variance of a refit is multiplied by to be that of a fit on all rows.
    """
    n_fits, n_classes = len(chances), chances.shape[2]
    unseen = np.where(parts.all(axis=0), True, ~parts)[..., None]
    p = (chances * unseen).sum(axis=0) / unseen.sum(axis=0)
    whole = residual_sums(target, weighting.weighted(p), weighting, sizes)
    back = _inverse(whole.slope)
    moved, raised = [], []
    for i, j in combinations(range(n_fits), 2):
        own = ~(parts[i] | parts[j])
        middle = 0.5 * (chances[i][own] + chances[j][own])
        heft = (sizes[own] * (middle @ weighting.weights))[:, None]
        apart = weighting.weighted(chances[i][own]) - weighting.weighted(chances[j][own])
        sums = residual_sums(target[own], weighting.weighted(middle), weighting, sizes[own])
        moved.append(whole.slope @ (_inverse(sums.slope) @ (heft * apart).sum(axis=0)))
        raised.append(_pair_noise(target[own], middle, apart, sizes[own], weighting))
    found = of_all * 0.5 * np.mean(np.square(moved), axis=0)
    own = np.diag(whole.variance)
    ratios = np.divide(found, own, out=np.zeros(n_classes), where=own > 0.0)
    ratios = 0.5 * (ratios + ratios.mean())
    root = np.sqrt(ratios)
    degrees = 4.0 * (n_fits - 1) / (1.0 + 3.0 / (n_classes - 1))  # of half a ratio and half the mean of K − 1
    stretched = root[:, None] * whole.variance * root
    pairs = of_all * 0.5 * float(np.mean(raised))
    return TrainingError(back @ stretched @ back, degrees, back @ whole.variance @ back, pairs)


def _pair_noise(target: NDArray[np.int64], p: Array, apart: Array, sizes: Array, weighting: Price) -> float:
    """How much a difference of weighted probabilities moves the pairwise equations, over their variance and rows."""
    w, unit = weighting.weights / weighting.weights.max(), sizes / sizes.max()
    variance = pair_sums(target, weighting.weighted(p), unit, w).variance
    flows = (unit[:, None] * w * p).T @ apart
    one, other = np.triu_indices(len(w), 1)
    gaps = flows[one, other] - flows[other, one]
    if len(gaps) > _MOST_PAIRS:
        spread = np.diag(variance)
        known = spread > 0.0
        value = float(np.mean(gaps[known] ** 2 / spread[known])) if known.any() else 0.0
    else:
        statistic, degrees = quadratic_form(gaps, variance)
        value = statistic / degrees
    return value / float(unit.sum())


def _inverse(slope: Array) -> Array:
    """The inverse among log-odds that sum to zero; scaled first, since rare classes have slopes that are tiny."""
    unit = np.sqrt(np.maximum(np.diag(slope), np.finfo(float).tiny))
    n_classes = len(slope)
    inner = np.linalg.pinv(slope[1:, 1:] / unit[1:, None] / unit[1:], rcond=1e-12, hermitian=True)
    inner = inner / unit[1:, None] / unit[1:]
    padded = np.zeros((n_classes, n_classes))
    padded[1:, 1:] = inner
    centre = np.eye(n_classes) - 1.0 / n_classes
    return np.asarray(centre @ padded @ centre)
