"""Undo a known class weighting or resampling in probabilities: exact algebra on the odds."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.class_correction import correct_class_proba
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Price, cost_ratio_of, positive_number, resolve
from crcen.theory.rows import check_probabilities

__all__ = ["correct_proba", "divide_odds"]

_SUMS_TO_ONE = 1e-4  # float32 probabilities, and those rounded to a few digits


def correct_proba(
    q: ArrayLike,
    *,
    weighting: Any = None,
    sampled_prior: Any = None,
    natural_prior: Any = None,
) -> NDArray[np.float64]:
    """Natural probabilities from those of a classifier that was trained under class weights or on resampled rows.

    A weight c on the positive class, and a sample whose share of positives is π' instead of π, both multiply the odds
    of a right classifier, by c and by π'(1−π) / (π(1−π')). This divides them out again: Elkan (2001, Theorem 2),
    Saerens, Latinne and Decaestecker (2002); for logistic regression it is the prior correction of King and Zeng
    (2001), for random under-sampling the formula of Dal Pozzolo et al. (2015).

    Parameters
    ----------
    q : array of shape (n,), (n, 2) or (n, K)
        Probabilities of the positive class, of (negative, positive), or of K classes.
    weighting : Price, Lam, CostRatio, Budget, Alpha, float, "balanced" or None
        The weighting of the training loss. An α, which "balanced" is too, needs the share of positives among the rows
        it was resolved on: give ``natural_prior`` (``sampled_prior`` where the rows were resampled first), or the
        ``weighting_`` of a fitted model. For K classes an array of class weights, a dict by class numbers, a
        ``Price``, or ``"balanced"``.
    sampled_prior : float, optional
        Share of positives among the rows trained on, where it is not the natural one; of K classes all shares.
    natural_prior : float, optional
        Share of positives in the population, or the shares of K classes; needed with ``sampled_prior``.

    Returns
    -------
    float64 array of the shape of q
        0 and 1 stay what they are.

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
    if np.ndim(q) == 2 and (np.shape(q)[1] > 2 or (isinstance(weighting, Price) and weighting.positive is None)):
        return correct_class_proba(q, weighting, sampled_prior, natural_prior)
    priors = {"sampled_prior": sampled_prior, "natural_prior": natural_prior}
    odds = {name: _odds(value, name) for name, value in priors.items() if value is not None}
    if "sampled_prior" in odds and "natural_prior" not in odds:
        raise InvalidParameter("sampled_prior needs natural_prior, the share of positives before sampling: got none.")
    factor = odds["sampled_prior"] / odds["natural_prior"] if "sampled_prior" in odds else 1.0
    trained_on = odds.get("sampled_prior", odds.get("natural_prior"))
    if trained_on is None:
        factor *= cost_ratio_of(weighting)
    else:
        factor *= resolve(weighting, trained_on, 1.0).cost_ratio
    return divide_odds(check_columns(q), factor)[..., 1 if np.ndim(q) == 1 else slice(None)]


def check_columns(q: ArrayLike) -> NDArray[np.float64]:
    """Probabilities of (negative, positive), (n, 2), from those or from (n,) of the positive class."""
    values = check_probabilities(q)
    if values.ndim == 1:
        return np.column_stack([1.0 - values, values])
    if values.ndim != 2 or values.shape[1] != 2:
        raise InvalidInput(f"q must have shape (n,) or (n, 2), got shape {values.shape}")
    off = np.abs(values.sum(axis=1) - 1.0)
    if off.size and off.max() > _SUMS_TO_ONE:
        worst = int(np.argmax(off))
        raise InvalidInput(f"the two columns of q must sum to 1, got {values[worst].sum():g} in row {worst}")
    return values


def divide_odds(q: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Divide the odds of the second column against the first, (n, 2) → (n, 2); 0 and 1 are exact."""
    # No logarithm and no 1 − q: small probabilities of either class keep their digits.
    negative, positive = (q[:, 0] * factor, q[:, 1]) if factor < 1.0 else (q[:, 0], q[:, 1] / factor)
    return np.column_stack([negative, positive]) / (negative + positive)[:, None]


def _odds(prior: float, name: str) -> float:
    share = positive_number(prior, name)
    if share >= 1.0:
        raise InvalidParameter(f"{name} must be a share strictly between 0 and 1: got {share:g}.")
    return share / (1.0 - share)
