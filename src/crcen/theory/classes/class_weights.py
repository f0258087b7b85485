"""Weights of K classes with their counts: what one lost row of a class is worth beside one of another."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.rows import check_row_weights
from crcen.theory.shown import Shown
from crcen.theory.specs import Alpha, Budget, CostRatio, Lam
from crcen.theory.tensors import as_numpy

__all__ = ["ClassWeights", "check_class_numbers", "resolve_classes"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassWeights(Shown):
    """One weight for each class, with the (weighted) counts of the training rows.

    Only ratios of weights count: w_j / w_k is how many rows of class k one row of class j is worth.

    Parameters
    ----------
    weights, counts : float64 array of shape (K,)
        Above 0.
    """

    weights: Array
    counts: Array

    def __post_init__(self) -> None:
        for name in ("weights", "counts"):
            values = np.array(getattr(self, name), dtype=np.float64)
            if values.ndim != 1 or values.size < 2:
                raise InvalidParameter(f"{name} of classes must be a list of two or more: got shape {values.shape}.")
            if not (np.isfinite(values).all() and (values > 0.0).all()):
                raise InvalidParameter(f"{name} of classes must be finite and above 0: got {values.tolist()}.")
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        if self.weights.size != self.counts.size:
            raise InvalidParameter(f"got {self.weights.size} weights for {self.counts.size} classes.")

    @property
    def n_classes(self) -> int:
        """K."""
        return self.weights.size

    @property
    def shares(self) -> Array:
        """π ∝ w_k N_k, the weighted class shares, which the soft confusion matrix of a balanced model keeps."""
        mass = self.weights * self.counts
        return np.asarray(mass / mass.sum())

    @property
    def log_weights(self) -> Array:
        """What the weights add to the natural logits."""
        return np.asarray(np.log(self.weights))

    @property
    def logit_shift(self) -> Array:
        """The same, by the name that it has for two classes."""
        return self.log_weights

    def row_weights(self, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
        """Weigh rows as the loss does: the weight of the row's class times its sample weight."""
        numbers = check_class_numbers(y, self.n_classes)
        return np.asarray(check_row_weights(sample_weight, numbers.size) * self.weights[numbers])

    def posterior(self, q: ArrayLike) -> Array:
        """Natural posterior p_k ∝ q_k / w_k of weighted probabilities (n, K)."""
        return _normalised(_check_columns(q, self.n_classes) / self.weights)

    def weighted(self, p: ArrayLike) -> Array:
        """Weighted probabilities q_k ∝ w_k p_k of natural ones (n, K)."""
        return _normalised(_check_columns(p, self.n_classes) * self.weights)

    def __str__(self) -> str:
        pairs = enumerate(zip(self.weights, self.counts, strict=True))
        parts = (f"class {k}: {w:.6g} (of {n:.12g} rows)" for k, (w, n) in pairs)
        return "weights " + ", ".join(parts)


def resolve_classes(weighting: Any, counts: ArrayLike) -> ClassWeights:
    """Give a weighting of K classes its numbers.

    Parameters
    ----------
    weighting : "balanced", None, dict, array or ClassWeights
        ``"balanced"`` is n / (K · count); ``None`` weighs all alike; a dict has a weight for each class number. What is
        resolved already keeps its own counts.
    counts : array of shape (K,)
        Rows of each class, weighted where sample weights were given.

    Raises
    ------
    InvalidParameter
        For a price of two classes (λ, α, cost ratio, budget) where there are more, or weights that mean nothing.
    """
    if isinstance(weighting, ClassWeights):
        return weighting
    sizes = np.asarray(counts, dtype=np.float64)
    n_classes = sizes.size
    if weighting is None:
        return ClassWeights(np.ones(n_classes), sizes)
    if isinstance(weighting, str):
        if weighting != "balanced":
            raise InvalidParameter(f'a weighting given as text must be "balanced": got {weighting!r}.')
        return ClassWeights(sizes.sum() / (n_classes * sizes), sizes)
    if isinstance(weighting, Lam | Alpha | CostRatio | Budget | float | int | np.number):
        raise InvalidParameter(
            f"Only binary classification is supported by {weighting!r}, a price for two classes, and there are "
            f"{n_classes}: give a weight for each class as a dict or an array, 'balanced', or a CostMatrix."
        )
    if isinstance(weighting, Mapping):
        if set(weighting) != set(range(n_classes)):
            raise InvalidParameter(f"weights must be given for the classes 0 to {n_classes - 1}: got {weighting!r}.")
        weighting = [weighting[k] for k in range(n_classes)]
    try:
        weights = np.asarray(weighting, dtype=np.float64)
    except (TypeError, ValueError):
        weights = np.empty((0, 0))
    if weights.shape != sizes.shape:
        raise InvalidParameter(
            f"a weighting of {n_classes} classes must be 'balanced', None, a dict or an array of {n_classes} weights, "
            f"or a CostMatrix: got {weighting!r}."
        )
    return ClassWeights(weights, sizes)


def check_class_numbers(y: ArrayLike, n_classes: int) -> NDArray[np.int64]:
    """Class numbers 0 … K−1 of rows."""
    numbers = np.asarray(as_numpy(y))
    if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
        raise InvalidInput(f"y must hold class numbers, one a row: got {numbers.dtype} of shape {numbers.shape}.")
    if numbers.size and not (numbers.min() >= 0 and numbers.max() < n_classes):
        raise InvalidInput(
            f"y must hold class numbers from 0 to {n_classes - 1}: got {numbers.min()} to {numbers.max()}."
        )
    return numbers.astype(np.int64)


def _check_columns(q: ArrayLike, n_classes: int) -> Array:
    values = np.asarray(as_numpy(q), dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != n_classes:
        raise InvalidInput(f"probabilities must have a column for each of {n_classes} classes: got {values.shape}.")
    if not np.isfinite(values).all() or (values < 0.0).any() or (values > 1.0).any():
        raise InvalidInput("probabilities must lie between 0 and 1.")
    return values


def _normalised(values: Array) -> Array:
    totals = values.sum(axis=1, keepdims=True)
    if (totals <= 0.0).any():
        raise InvalidInput("a row of probabilities must not be all zero.")
    return np.asarray(values / totals)
