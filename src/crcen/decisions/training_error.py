"""How far off a fitted model may be by the chance of its training rows: refits on random parts of them."""

from __future__ import annotations

from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from crcen.decisions.class_training_error import class_error_of_refits
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.classifier import CRCENClassifier
from crcen.models.private_scikit_learn import count_rows, take_rows
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.side_by_side import side_by_side
from crcen.models.validation import check_weights
from crcen.theory.decision import weighted_probability
from crcen.theory.labels import Labels
from crcen.theory.price import CostRatio, Price, WeightingLike, cost_ratio_of, resolve
from crcen.theory.residual_test import TrainingError, residual_sums
from crcen.theory.rows import as_numpy

__all__ = ["training_error"]

Array = NDArray[np.float64]

# Networks of a refit: what an average of more is spared is little beside the chance of rows.
_MOST_MEMBERS = 2
_SHARE = 0.5  # of the rows, in a refit


def training_error(
    model: Any,
    X: Any,
    y: ArrayLike,
    *,
    weighting: WeightingLike = None,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_fits: int = 8,
    max_rows: int = 5000,
    random_state: int = 0,
) -> TrainingError | TrainingError:
    """Estimate the standard error of a fitted model's mean log-odds from refits on random halves of its rows.

    The residual test of `crcen.key_equation` needs it: new rows see the model's own error besides the noise of labels.

    Parameters
    ----------
    model : fitted classifier with ``predict_proba``
        One of ours, or any other. Of a `CRCENClassifierCV` or a committee the chosen settings are refitted, not the
        search, with two networks of each at most.
    X, y, sample_weight
        The training rows, labels and weights of `fit`.
    clusters : array of shape (n,), optional
        Rows of the same cluster, such as those of one patient, stay together in every half.
    weighting : Lam, CostRatio, Budget, float or None; of more classes "balanced", None or an array of class weights
        The weighting at which the equation will be tested, where the model has no ``weighting_``; None is λ = ½.
    n_fits : int, default=8
        Refits, at least 3: together they cost about n_fits / 2 fits.
    max_rows : int, default=5000
        The most rows of a refit. Where half of the rows are more, refits are on so many, and the variance is taken to
        fall with the number of rows, as it does for large samples.
    random_state : int, default=0
        Seed of the halves.

    Returns
    -------
    TrainingError, or TrainingError for more than two classes
        For ``key_equation(..., training_error=)``.

    Notes
    -----
    Halves are drawn at random and not stratified: the number of positives is a large part of the chance. Given the
    rows, an estimate from a random half varies about as much as one from all rows does over training sets (delete-half
    jackknife; Shao and Wu 1989). Two refits are compared on the rows that neither has seen, by the difference of their
    mean log-odds. m rows of n vary by (n − m)/m times what all n do, which is once for halves. Networks know less from
    fewer rows, so the estimate is, if anything, too large. It is never below what the labels of the training rows alone
    leave of an intercept.
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
    if classes.ndim != 1 or len(classes) < 2:
        raise InvalidInput(f"model must be a fitted classifier of two classes or more, got {type(model).__name__}")
    if isinstance(n_fits, bool) or not isinstance(n_fits, int | np.integer) or n_fits < 3:
        raise InvalidParameter(f"n_fits must be a whole number of at least 3, got {n_fits!r}")
    labels = np.asarray(as_numpy(y))
    if labels.ndim != 1 or not np.isin(labels, classes).all():
        raise InvalidInput(f"y must hold the model's labels {classes.tolist()}, one for each training row")
    if count_rows(X) != len(labels):
        raise InvalidInput(f"X and y must be the same training rows, got {count_rows(X)} and {len(labels)}")
    price = getattr(model, "weighting_", None)
    of_classes = len(classes) > 2 or (isinstance(price, Price) and price.positive is None)
    weights = None if sample_weight is None else check_weights(sample_weight, labels[:, None])
    if isinstance(max_rows, bool) or not isinstance(max_rows, int | np.integer) or max_rows < 10:
        raise InvalidParameter(f"max_rows must be a whole number of at least 10, got {max_rows!r}")
    rng = np.random.default_rng(random_state)
    size = min(int(_SHARE * len(labels)), int(max_rows))
    sizes = np.ones(len(labels)) if weights is None else weights
    of_all = size / (len(labels) - size)
    groups = None
    if clusters is not None:
        groups = np.unique(np.asarray(as_numpy(clusters)), return_inverse=True)[1].ravel()
        if len(groups) != len(labels):
            raise InvalidInput(f"clusters must have one value for each of the {len(labels)} rows, got {len(groups)}")
    parts = [_part_with_all(labels, size, rng, len(classes), groups) for _ in range(int(n_fits))]
    refit = partial(_refitted_chances, model, X, labels, weights)
    if of_classes:
        numbers = np.searchsorted(classes, labels)
        counts = np.bincount(numbers, sizes, len(classes))
        weighted = price if isinstance(price, Price) else resolve(weighting, counts=counts)
        chances = np.array(side_by_side(model, partial(refit, None), parts))
        return class_error_of_refits(chances, np.array(parts), numbers, sizes, weighted, of_all)
    column = Labels.of_model(model).column
    cost = price.cost_ratio if isinstance(price, Price) else cost_ratio_of(weighting)
    chances = np.array(side_by_side(model, partial(refit, cost), parts))[:, :, column]
    squares = [
        _difference(chances[i], chances[j], np.where(parts[i] | parts[j], 0.0, sizes), cost) ** 2
        for i, j in combinations(range(int(n_fits)), 2)
    ]
    variance = of_all * float(np.mean(squares)) / 2.0
    least = _label_noise(chances, np.array(parts), labels == classes[column], sizes, cost)
    return TrainingError.binary(float(np.sqrt(variance)), float(n_fits - 1), float(np.sqrt(least)))


def _label_noise(
    chances: Array, parts: NDArray[np.bool_], target: NDArray[np.bool_], sizes: Array, cost: float
) -> float:
    """The variance that labels of the training rows alone leave: no intercept is known better than from these."""
    unseen = np.where(parts.all(axis=0), True, ~parts)
    p = (chances * unseen).sum(axis=0) / unseen.sum(axis=0)
    sums = residual_sums(target, weighted_probability(p, CostRatio(cost)), CostRatio(cost), sizes)
    return sums.variance / sums.slope**2 if sums.slope > 0.0 else 0.0


def _part_with_all(
    labels: NDArray[Any],
    size: int,
    rng: np.random.Generator,
    n_classes: int,
    clusters: NDArray[np.int64] | None = None,
) -> NDArray[np.bool_]:
    """So many rows (about so many, in whole clusters) at random, with two of each class: a refit may hold some out."""
    for _ in range(100):
        part = np.zeros(len(labels), dtype=bool)
        if clusters is None:
            part[rng.permutation(len(labels))[:size]] = True
        else:
            place = rng.permutation(int(clusters.max()) + 1)[clusters]  # of the row's cluster in a random order
            order = np.argsort(place, kind="stable")
            part = place < place[order[min(size, len(order) - 1)]]
        if (np.unique(labels[part], return_counts=True)[1] >= 2).sum() == n_classes:
            return part
    raise InvalidInput("half of the training rows must hold every class, got too few of one of them")


def _refitted_chances(
    model: Any, X: Any, y: NDArray[Any], weights: Array | None, cost: float | None, part: NDArray[np.bool_]
) -> Array:
    """Probabilities of all rows by a clone fitted on some of them."""
    return np.asarray(_refitted(model, X, y, weights, part, cost).predict_proba(X))


def _refitted(
    model: Any, X: Any, y: NDArray[Any], weights: Array | None, part: NDArray[np.bool_], cost: float | None
) -> Any:
    """A clone fitted on some of the rows, at the setting that a search of ours chose."""
    rows = np.flatnonzero(part)
    given = {} if weights is None else {"sample_weight": weights[rows]}
    if hasattr(model, "refit_on"):  # a committee, at the settings that it found
        return model.refit_on(take_rows(X, rows), y[rows], **given)
    fresh = clone(model)
    if isinstance(model, CRCENClassifier):
        # At the price itself: a list of prices, or a wish, was settled by the whole model.
        settled = _class_price(model) if cost is None else CostRatio(cost)
        fresh.set_params(n_members=min(model.n_members, _MOST_MEMBERS), weighting=settled)
    if isinstance(model, CRCENClassifierCV):
        fresh.set_params(**{name: [value] for name, value in model.best_params_.items() if name != "weighting"})
        # Other folds, which may know all rows by number, do not fit some of them.
        fresh.set_params(cv=int(min(4, np.unique(y[rows], return_counts=True)[1].min())))
    return fresh.fit(take_rows(X, rows), y[rows], **given)


def _class_price(model: Any) -> Any:
    return model.weighting_.weights if model.costs_ is None else model.costs_


def _difference(one: Array, other: Array, sizes: Array, cost: float) -> float:
    """Mean difference of log-odds over rows, weighted as the residual at a cost ratio weighs them."""
    middle = (one + other) / 2.0
    heft = sizes * cost / (1.0 + (cost - 1.0) * middle)
    slope = float(np.sum(heft * middle * (1.0 - middle)))
    return float(np.sum(heft * (one - other))) / slope if slope > 0.0 else 0.0
