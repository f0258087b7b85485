"""How far off a fitted model may be by the chance of its training rows: refits on random halves of them."""

from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples, check_is_fitted

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.validation import check_weights
from crcen.theory.residual_test import TrainingError
from crcen.theory.weighting import WeightingLike, cost_ratio_of

__all__ = ["training_error"]

Array = NDArray[np.float64]


def training_error(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    weighting: WeightingLike = None,
    sample_weight: ArrayLike | None = None,
    n_fits: int = 8,
    random_state: int = 0,
) -> TrainingError:
    """Estimate the standard error of a fitted model's mean log-odds from refits on random halves of its rows.

    The residual test of `crcen.key_equation` needs it: new rows see the model's own error besides the noise of labels.

    Parameters
    ----------
    model : fitted binary classifier with ``predict_proba``
        One of ours, or any other. Of a `CRCENClassifierCV` the chosen setting is refitted, not the search.
    X, y, sample_weight
        The training rows, labels and weights of `fit`.
    weighting : Lam, CostRatio, Budget, float or None
        The weighting at which the equation will be tested, where the model has no ``weighting_``; None is λ = ½.
    n_fits : int, default=8
        Refits, at least 3: together they cost about n_fits / 2 fits.
    random_state : int, default=0
        Seed of the halves.

    Returns
    -------
    TrainingError
        For ``key_equation(..., training_error=)``.

    Notes
    -----
    Halves are drawn at random and not stratified: the number of positives is a large part of the chance. Given the
    rows, an estimate from a random half varies about as much as one from all rows does over training sets (delete-half
    jackknife; Shao and Wu 1989). Two refits are compared on the rows that neither has seen, by the difference of their
    mean log-odds. Networks know less from half of their rows, so the estimate is, if anything, too large.
    docs/theory.md measures it.

    Examples
    --------
    >>> import crcen
    >>> from sklearn.linear_model import LogisticRegression
    >>> rows = crcen.make_sim2(100, 1000, seed=1)
    >>> model = LogisticRegression().fit(rows.X, rows.y)
    >>> bool(0.05 < crcen.training_error(model, rows.X, rows.y).log_odds < 0.3)
    True
    """
    check_is_fitted(model)
    classes = np.asarray(getattr(model, "classes_", ()))
    if classes.shape != (2,):
        raise InvalidInput(f"model must be a fitted classifier of two classes, got {type(model).__name__}")
    if isinstance(n_fits, bool) or not isinstance(n_fits, int | np.integer) or n_fits < 3:
        raise InvalidParameter(f"n_fits must be a whole number of at least 3, got {n_fits!r}")
    labels = np.asarray(y)
    if labels.ndim != 1 or not np.isin(labels, classes).all():
        raise InvalidInput(f"y must hold the model's labels {classes.tolist()}, one for each training row")
    if _num_samples(X) != len(labels):
        raise InvalidInput(f"X and y must be the same training rows, got {_num_samples(X)} and {len(labels)}")
    column = int(classes[1] == getattr(model, "pos_label_", classes[1]))
    cost = model.weighting_.cost_ratio if hasattr(model, "weighting_") else cost_ratio_of(weighting)
    weights = None if sample_weight is None else check_weights(sample_weight, labels[:, None])
    rng = np.random.default_rng(random_state)
    halves, chances = [], []
    for _ in range(int(n_fits)):
        half = _half_with_both(labels, rng)
        halves.append(half)
        chances.append(_refitted(model, X, labels, weights, half).predict_proba(X)[:, column])
    sizes = np.ones(len(labels)) if weights is None else weights
    squares = [
        _difference(chances[i], chances[j], np.where(halves[i] | halves[j], 0.0, sizes), cost) ** 2
        for i, j in combinations(range(int(n_fits)), 2)
    ]
    return TrainingError(float(np.sqrt(np.mean(squares) / 2.0)), float(n_fits - 1))


def _half_with_both(labels: NDArray[Any], rng: np.random.Generator) -> NDArray[np.bool_]:
    """A random half of the rows that holds both classes."""
    for _ in range(100):
        half = np.zeros(len(labels), dtype=bool)
        half[rng.permutation(len(labels))[: len(labels) // 2]] = True
        if np.unique(labels[half]).size == 2:
            return half
    raise InvalidInput("half of the training rows must hold both classes, got too few of one of them")


def _refitted(model: Any, X: Any, y: NDArray[Any], weights: Array | None, half: NDArray[np.bool_]) -> Any:
    """A clone fitted on half of the rows, at the setting that a search of ours chose."""
    fresh = clone(model)
    if isinstance(model, CRCENClassifierCV):
        fresh.set_params(**{name: [value] for name, value in model.best_params_.items() if name != "weighting"})
        fresh.set_params(weighting=model.best_params_.get("weighting", model.weighting))
    rows = np.flatnonzero(half)
    given = {} if weights is None else {"sample_weight": weights[rows]}
    return fresh.fit(_safe_indexing(X, rows), y[rows], **given)


def _difference(one: Array, other: Array, sizes: Array, cost: float) -> float:
    """Mean difference of log-odds over rows, weighted as the residual at a cost ratio weighs them."""
    middle = (one + other) / 2.0
    heft = sizes * cost / (1.0 + (cost - 1.0) * middle)
    slope = float(np.sum(heft * middle * (1.0 - middle)))
    return float(np.sum(heft * (one - other))) / slope if slope > 0.0 else 0.0
