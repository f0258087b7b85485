"""Uncertainty of a fitted model from its finite training set, estimated by refits on random parts of the rows."""

from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from crcen.exceptions import InvalidInput
from crcen.models.classifier import CRCENClassifier, parallel_fits
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.validation import check_weights, count_rows, take_rows
from crcen.theory.checks import check_clusters, check_whole_number
from crcen.theory.price import CostRatio, Labels, Price, WeightingLike
from crcen.theory.residual_test import TrainingError, pair_sums, quadratic_form, sums_of_columns
from crcen.theory.rows import Array, Bools, Estimator, Index, Rows, as_numpy, divided

# Networks of a refit: averaging more of them changes little compared with the variation of rows.
_MOST_MEMBERS = 2
_SHARE = 0.5  # of the rows, in a refit
_MOST_COMPARED = 5_000  # rows that refits are compared on: of more rows, a random part
# With more pairs of classes, each is computed separately.
_MOST_PAIRS = 100


def training_error(
    model: Estimator,
    X: Rows,
    y: ArrayLike,
    *,
    weighting: WeightingLike = None,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    n_fits: int = 8,
    max_rows: int = 3000,
    random_state: int = 0,
) -> TrainingError:
    """Estimate the standard error of a fitted model's mean log-odds from refits on random halves of its rows.

    Parameters
    ----------
    model : fitted classifier with ``predict_proba``
        Of a `CRCENClassifierCV` or a committee, the selected settings are refitted, with at most two networks of each.
    X, y, sample_weight
        The training rows, labels and weights of `fit`.
    clusters : array of shape (n,), optional
        Rows of the same cluster, such as those of one patient, stay together in every half.
    weighting : Lam, CostRatio, Budget, float, "balanced", class weights or None
        The weighting at which the equation will be tested, if the model has no ``weighting_``; None is no weighting.
    n_fits : int, default=8
        Number of refits, at least 3; together they take the time of about n_fits / 2 fits.
    max_rows : int, default=3000
        Maximum number of rows of a refit. If half of the rows are more, the variance is scaled by the number of rows.
    random_state : int, default=0
        Seed of the halves.

    Notes
    -----
    An estimate from a random half varies about as much as one from all rows does over training sets (delete-half
    jackknife; Shao and Wu 1989). The variance is never below that of an intercept estimated from the labels.
    """
    check_is_fitted(model)
    classes = np.asarray(getattr(model, "classes_", ()))
    if classes.ndim != 1 or len(classes) < 2:
        raise InvalidInput(f"model must be a fitted classifier of two classes or more, got {type(model).__name__}")
    n_fits, max_rows = check_whole_number(n_fits, "n_fits", 3), check_whole_number(max_rows, "max_rows", 10)
    labels = np.asarray(as_numpy(y))
    if labels.ndim != 1 or not np.isin(labels, classes).all():
        raise InvalidInput(f"y must hold the model's labels {classes.tolist()}, one for each training row")
    if count_rows(X) != len(labels):
        raise InvalidInput(f"X and y must be the same training rows, got {count_rows(X)} and {len(labels)}")
    weights = None if sample_weight is None else check_weights(sample_weight, labels[:, None])
    rng = np.random.default_rng(random_state)
    size = min(int(_SHARE * len(labels)), int(max_rows))
    sizes = np.ones(len(labels)) if weights is None else weights
    of_all = size / (len(labels) - size)
    related = check_clusters(clusters, len(labels))
    groups = None if related is None else np.unique(related, return_inverse=True)[1].ravel()
    parts = [_part_with_all(labels, size, rng, len(classes), groups) for _ in range(int(n_fits))]
    own = Labels.of_model(model) if len(classes) == 2 else Labels(classes)
    numbers = own.encode(labels)
    price = getattr(model, "weighting_", None)
    if not isinstance(price, Price):
        price = own.resolve(weighting, own.counts(numbers, sizes))
    compared = np.sort(rng.permutation(len(labels))[:_MOST_COMPARED])
    refit = partial(_refitted_chances, model, X, labels, weights, price, take_rows(X, compared))
    chances, seen = np.array(parallel_fits(model, refit, parts)), np.array(parts)[:, compared]
    times = len(labels) / len(compared)
    return _error_of_refits(chances, seen, numbers[compared], sizes[compared], price, of_all, times)


def _error_of_refits(
    chances: Array, parts: Bools, target: Index, sizes: Array, price: Price, of_all: float, times: float
) -> TrainingError:
    """Compare pairs of refits on rows that neither was fitted on: ``chances`` (refits, n, K), ``parts`` (refits, n).

    There are ``times`` as many training rows as these.
    """
    n_fits, n_classes, w = len(chances), chances.shape[2], price.weights
    unseen = np.where(parts.all(axis=0), True, ~parts)[..., None]
    compared = sums_of_columns(target, price.weighted((chances * unseen).sum(axis=0) / unseen.sum(axis=0)), sizes, w)
    whole_slope, whole_variance = times * compared.slope, times * compared.variance
    back = _inverse(whole_slope)
    moved, raised = [], []
    for i, j in combinations(range(n_fits), 2):
        own = ~(parts[i] | parts[j])
        middle, apart = 0.5 * (chances[i][own] + chances[j][own]), chances[i][own] - chances[j][own]
        q = price.weighted(middle)
        # What the difference adds to the residuals, to first order.
        change = sizes[own, None] * (w * apart - q * (apart @ w)[:, None])
        slope = sums_of_columns(target[own], q, sizes[own], w).slope
        moved.append(whole_slope @ (_inverse(slope) @ change.sum(axis=0)))
        if n_classes > 2:
            raised.append(_pair_noise(target[own], middle, change / (middle @ w)[:, None], sizes[own], price))
    ratios = divided(of_all * 0.5 * np.mean(np.square(moved), axis=0), np.diag(whole_variance), 0.0)
    root = np.sqrt(0.5 * (ratios + ratios.mean()))
    degrees = 4.0 * (n_fits - 1) / (1.0 + 3.0 / (n_classes - 1))  # of half a ratio and half the mean of K − 1
    stretched = root[:, None] * whole_variance * root
    pairs = of_all * 0.5 * float(np.mean(raised)) if raised else 0.0
    return TrainingError(back @ stretched @ back, degrees, back @ whole_variance @ back, pairs)


def _part_with_all(
    labels: NDArray[np.generic], size: int, rng: np.random.Generator, n_classes: int, clusters: Index | None
) -> Bools:
    """A random part of about this size, of whole clusters, with two rows of each class."""
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
    model: Estimator, X: Rows, y: NDArray[np.generic], weights: Array | None, price: Price, compared: Rows, part: Bools
) -> Array:
    """Probabilities of ``compared`` by a clone fitted on some rows, at the setting that a search of ours chose."""
    rows = np.flatnonzero(part)
    given = {} if weights is None else {"sample_weight": weights[rows]}
    if hasattr(model, "refit_on"):  # a committee, at the settings that it found
        return np.asarray(model.refit_on(take_rows(X, rows), y[rows], **given).predict_proba(compared))
    fresh = clone(model)
    if isinstance(model, CRCENClassifier):
        # At the resolved price: a list of prices, or a goal, was settled by the whole model.
        settled = price.costs or (CostRatio(price.cost_ratio) if price.positive is not None else price.weights)
        fresh.set_params(n_members=min(model.n_members, _MOST_MEMBERS), weighting=settled)
    if isinstance(model, CRCENClassifierCV):
        fresh.set_params(**{name: [value] for name, value in model.best_params_.items() if name != "weighting"})
        # Other folds, which may refer to all rows by number, do not fit some of them.
        fresh.set_params(cv=int(min(4, np.unique(y[rows], return_counts=True)[1].min())))
    return np.asarray(fresh.fit(take_rows(X, rows), y[rows], **given).predict_proba(compared))


def _pair_noise(target: Index, p: Array, apart: Array, sizes: Array, price: Price) -> float:
    """How much a difference of weighted probabilities changes the pairwise equations, over their variance and rows."""
    w, unit = price.weights / price.weights.max(), sizes / sizes.max()
    variance = pair_sums(target, price.weighted(p), unit, w).variance
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
    """The inverse among log-odds that sum to zero; scaled first, since rare classes have tiny slopes."""
    unit = np.sqrt(np.maximum(np.diag(slope), np.finfo(float).tiny))
    n_classes = len(slope)
    inner = np.linalg.pinv(slope[1:, 1:] / unit[1:, None] / unit[1:], rcond=1e-12, hermitian=True)
    inner = inner / unit[1:, None] / unit[1:]
    padded = np.zeros((n_classes, n_classes))
    padded[1:, 1:] = inner
    centre = np.eye(n_classes) - 1.0 / n_classes
    return np.asarray(centre @ padded @ centre)
