"""Undo a known class weighting or resampling in probabilities: exact algebra on the odds."""

from collections.abc import Mapping
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_probabilities
from crcen.theory.price import WeightingLike, cost_ratio_of, positive_number, resolve
from crcen.theory.rows import Array

_SUMS_TO_ONE = 1e-4  # float32 probabilities, and those rounded to a few digits


def correct_proba(
    q: ArrayLike,
    *,
    weighting: WeightingLike = None,
    sampled_prior: ArrayLike | None = None,
    natural_prior: ArrayLike | None = None,
) -> Array:
    """Natural probabilities from those of a classifier that was trained under class weights or on resampled rows.

    A weight w_k, and a sample with the class share π'_k instead of π_k, multiply what a correct classifier learns for
    the class by w_k and π'_k / π_k. This divides them out again (Elkan 2001; Saerens, Latinne and Decaestecker 2002;
    King and Zeng 2001; Dal Pozzolo et al. 2015).

    Parameters
    ----------
    q : array of shape (n,), (n, 2) or (n, K)
        Probabilities of the positive class, of (negative, positive), or of K classes.
    weighting : Price, Lam, CostRatio, Budget, Alpha, float, array, dict by class numbers, "balanced" or None
        The weighting of the training loss. ``"balanced"`` and ``Alpha`` need the class shares that they were resolved
        on: give ``natural_prior`` (``sampled_prior`` if the rows were resampled first), or a model's ``weighting_``.
    sampled_prior, natural_prior : float or array of shape (K,), optional
        Share of positives, or of all classes, among the rows trained on and in the population; the first needs the
        second.

    Examples
    --------
    >>> import numpy as np
    >>> from crcen import CostRatio, correct_proba
    >>> correct_proba([0.5], weighting=CostRatio(9))
    array([0.1])
    >>> correct_proba([[0.5, 0.5]], sampled_prior=0.5, natural_prior=0.1)
    array([[0.9, 0.1]])
    """
    if weighting is None and sampled_prior is None:
        raise InvalidParameter("nothing to correct for: give weighting=, or sampled_prior= with natural_prior=.")
    values = check_columns(q)
    n_classes = values.shape[1]
    priors = {"sampled_prior": sampled_prior, "natural_prior": natural_prior}
    shares = {name: class_shares(value, n_classes, name) for name, value in priors.items() if value is not None}
    if "sampled_prior" in shares and "natural_prior" not in shares:
        raise InvalidParameter("sampled_prior needs natural_prior, the shares of classes before sampling: got none.")
    factors = shares["sampled_prior"] / shares["natural_prior"] if "sampled_prior" in shares else np.ones(n_classes)
    factors = factors * _class_weights(weighting, shares.get("sampled_prior", shares.get("natural_prior")), n_classes)
    return divide_columns(values, factors)[..., 1 if np.ndim(q) == 1 else slice(None)]


def check_columns(q: ArrayLike) -> Array:
    """Probabilities (n, K) with rows that sum to 1; (n,) is the positive one of two classes."""
    values = check_probabilities(q)
    if values.ndim == 1:
        return np.column_stack([1.0 - values, values])
    if values.ndim != 2 or values.shape[1] < 2:
        raise InvalidInput(f"q must have shape (n,) or (n, K) with K from 2, got shape {values.shape}")
    off = np.abs(values.sum(axis=1) - 1.0)
    if off.size and off.max() > _SUMS_TO_ONE:
        worst = int(np.argmax(off))
        raise InvalidInput(f"the columns of q must sum to 1, got {values[worst].sum():g} in row {worst}")
    return values


def divide_columns(q: Array, factors: Array) -> Array:
    """p_k ∝ q_k / f_k, (n, K) → (n, K); 0 and 1 are exact."""
    if q.shape[1] != len(factors):
        raise InvalidInput(f"q must have a column for each of {len(factors)} classes, got shape {q.shape}")
    # No logarithm and no 1 − q: small probabilities of every class keep their digits.
    divided = q / (factors / factors.min())
    return np.asarray(divided / divided.sum(axis=1, keepdims=True))


def _class_weights(weighting: WeightingLike, shares: Array | None, n_classes: int) -> Array:
    """Class weights of the training loss, (K,), up to a factor."""
    if weighting is None:
        return np.ones(n_classes)
    is_list = isinstance(weighting, Mapping) or np.ndim(cast(ArrayLike, weighting)) > 0
    if n_classes == 2 and not is_list and getattr(weighting, "positive", weighting) is not None:
        if shares is not None:
            weighting = resolve(weighting, counts=shares)
        return np.array([1.0, cost_ratio_of(weighting)])
    if isinstance(weighting, str) and shares is None:
        raise InvalidParameter(f"{weighting!r} needs the class shares that it was resolved on: give natural_prior=.")
    price = resolve(weighting, counts=np.ones(n_classes) if shares is None else shares)
    if price.n_classes != n_classes:
        raise InvalidInput(f"q must have a column for each of {price.n_classes} classes, got {n_classes}")
    return price.weights


def class_shares(given: ArrayLike, n_classes: int, name: str) -> Array:
    """Shares of all classes; for two classes one number is that of the positive class."""
    if np.ndim(given) == 0 and n_classes == 2:
        share = positive_number(given, name)
        if share >= 1.0:
            raise InvalidParameter(f"{name} must be a share strictly between 0 and 1: got {share:g}.")
        return np.array([1.0 - share, share])
    values = np.asarray(given, dtype=np.float64)
    if values.shape != (n_classes,) or not (values > 0.0).all() or not np.isfinite(values).all():
        raise InvalidParameter(f"{name} must be {n_classes} shares above 0: got {given!r}.")
    return np.asarray(values / values.sum())
