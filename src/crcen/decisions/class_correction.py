"""Class weights and resampling of K classes taken out of probabilities: each column divided by its factor."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.applied_weighting import class_weight_factors
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.labels import Labels
from crcen.theory.price import Price, resolve

__all__ = ["class_factors", "correct_class_proba", "divide_columns"]

Array = NDArray[np.float64]

_SUMS_TO_ONE = 1e-4


def divide_columns(q: ArrayLike, factors: Array) -> Array:
    """p_k ∝ q_k / f_k, (n, K) → (n, K); 0 and 1 are exact."""
    values = np.asarray(q, dtype=np.float64)
    if values.ndim != 2 or values.shape[1] != len(factors):
        raise InvalidInput(f"q must have a column for each of {len(factors)} classes: got shape {values.shape}.")
    if not np.isfinite(values).all() or (values < 0.0).any() or np.abs(values.sum(axis=1) - 1.0).max() > _SUMS_TO_ONE:
        raise InvalidInput("q must hold probabilities, each row with the sum 1.")
    divided = values / (factors / factors.max())
    return np.asarray(divided / divided.sum(axis=1, keepdims=True))


def correct_class_proba(
    q: ArrayLike, weighting: Any, sampled_prior: ArrayLike | None, natural_prior: ArrayLike | None
) -> Array:
    """`crcen.correct_proba` of probabilities (n, K); priors are shares of the classes, in their order."""
    n_classes = np.asarray(q).shape[1]
    priors = {"sampled_prior": sampled_prior, "natural_prior": natural_prior}
    shares = {name: _shares(value, n_classes, name) for name, value in priors.items() if value is not None}
    if "sampled_prior" in shares and "natural_prior" not in shares:
        raise InvalidParameter("sampled_prior needs natural_prior, the shares before sampling: got none.")
    factors = shares["sampled_prior"] / shares["natural_prior"] if "sampled_prior" in shares else np.ones(n_classes)
    if weighting is not None:
        trained_on = shares.get("sampled_prior", shares.get("natural_prior"))
        if trained_on is None and isinstance(weighting, str):
            raise InvalidParameter(f"{weighting!r} needs the shares of the classes it was resolved on: natural_prior=.")
        resolved = resolve(weighting, counts=np.ones(n_classes) if trained_on is None else trained_on)
        if resolved.n_classes != n_classes:
            raise InvalidInput(f"q must have a column for each of {resolved.n_classes} classes: got {n_classes}.")
        factors = factors * resolved.weights
    return divide_columns(q, factors)


def _shares(given: ArrayLike, n_classes: int, name: str) -> Array:
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (n_classes,) or not (values > 0.0).all() or not np.isfinite(values).all():
        raise InvalidParameter(f"{name} must be {n_classes} shares above 0: got {given!r}.")
    return np.asarray(values / values.sum())


def class_factors(weighting: Any, estimator: Any, labels: Labels, natural: Array, seen: Array, totals: Array) -> Array:
    """What training multiplied the odds of each class by.

    Parameters
    ----------
    weighting
        ``"auto"`` reads the estimator's settings; else a dict, an array, ``"balanced"`` or None.
    estimator
        Fitted.
    labels
        The classes.
    natural, seen, totals
        Rows of each class: as given, as the classifier was trained on, and the latter's sample weight.
    """
    if isinstance(weighting, str) and weighting == "auto":
        weights = class_weight_factors(estimator, labels.classes, seen, totals)
    elif isinstance(weighting, Mapping | str | Price) or weighting is None or np.ndim(weighting) == 1:
        weights = labels.resolve(weighting, totals).weights
    else:
        weights = resolve(weighting, counts=totals).weights  # refuses, in words
    return np.asarray(weights * (seen / seen.sum()) / (natural / natural.sum()))
