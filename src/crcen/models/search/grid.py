"""Settings of a search, their outcomes, and scores of held-out rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, get_scorer

from crcen.exceptions import InvalidParameter
from crcen.models.fitting import FitRows, seen_rows
from crcen.theory.goals import ThresholdGoal
from crcen.theory.metrics import confusion_counts, decision_counts
from crcen.theory.price import Labels, Price, WeightingLike, log_sum_exp, softmax
from crcen.theory.rows import Array, Index, Rows
from crcen.training.recipe import Recipe

# Parameters of a recipe that a search takes lists of.
SEARCHED = ("hidden", "l2", "encoding")


@dataclass(frozen=True)
class Setting:
    """One point of the grid; ``weighting_index`` identifies weightings, which need not be hashable.

    ``weighting`` is the price, ``trained_at`` the weighting of the loss.
    """

    weighting_index: int
    weighting: WeightingLike | ThresholdGoal
    recipe: Recipe
    trained_at: WeightingLike = None

    def params(self) -> dict[str, Any]:
        """The searched parameters, as keyword arguments of `CRCENClassifier`."""
        return {"weighting": self.weighting} | {name: getattr(self.recipe, name) for name in SEARCHED}


def to_price(rows: FitRows, setting: Setting, own: Index | None = None) -> Array:
    """Add this (K,) to logits under a setting's training weights to get those at its price."""
    return rows.resolve(setting.weighting, own).log_weights - rows.resolve(setting.trained_at, own).log_weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """A setting's fold scores at the epoch chosen for it, and its out-of-fold logits there."""

    setting: Setting
    epochs: int | None
    scores: Array
    logits: Array
    is_dropped: bool = False

    @property
    def merit(self) -> float:
        """Mean score over the folds; −∞ if a fold has no score."""
        mean = float(self.scores.mean())
        return -np.inf if np.isnan(mean) else mean


def operating_points(outcomes: list[Outcome], rows: FitRows) -> list[Any]:
    """Out-of-fold counts of every weighting at its best setting.

    All from the search, one network a fold and not balanced, so that the steps of a path can be compared. Counts are
    `ConfusionCounts` for a binary problem, otherwise (K, actions): a row for each class, a column for each decision.
    """
    ranked = sorted(outcomes, key=lambda outcome: (outcome.is_dropped, -outcome.merit))
    best = {outcome.setting.weighting_index: outcome for outcome in reversed(ranked)}
    return [_counts(best[index], rows) for index in sorted(best)]


def _counts(outcome: Outcome, rows: FitRows) -> Any:
    labels, seen, price = rows.labels, seen_rows(outcome.logits), rows.resolve(outcome.setting.weighting)
    target, weights, logits, costs = rows.target[seen], rows.weights[seen], outcome.logits[seen], price.costs
    if labels.positive is not None:
        return confusion_counts(target == labels.column, labels.choose(logits) == labels.column, weights)
    if costs is None:
        return decision_counts(target, labels.choose(logits), labels.n_classes, weights).table
    chosen = costs.choose(softmax(logits - price.log_weights))
    return decision_counts(target, chosen, labels.n_classes, weights, n_actions=costs.n_actions).table


# -- scores ------------------------------------------------------------------------------------------------------------


Score = Callable[[Array, Index, Array, Labels], float]
Scoring: TypeAlias = str | Callable[..., float]


def log_losses(logits: Array, target: Index, weights: Array, price: Price, *, natural: bool) -> Array:
    """Log loss of each record of weighted logits (records, n, K): at the price, or of the natural posterior."""
    if natural:
        logits = logits - price.log_weights
    else:
        weights = price.weights[target] * weights
    with np.errstate(invalid="ignore"):  # a diverged network's logits are NaN, and so is its loss
        return np.asarray((_row_losses(logits, target) * weights).sum(axis=-1) / weights.sum())


def _row_losses(logits: Array, target: Index) -> Array:
    """−log q of the rows' own classes, for logits (…, n, K)."""
    if logits.shape[-1] == 2:
        return np.asarray(np.logaddexp(0.0, np.where(target == 1, -1.0, 1.0) * (logits[..., 1] - logits[..., 0])))
    own = np.take_along_axis(logits, np.broadcast_to(target[:, None], (*logits.shape[:-1], 1)), axis=-1)[..., 0]
    return np.asarray(log_sum_exp(logits, logits.ndim - 1) - own)


def _f1(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    """F1 of the positive class, or the mean over the classes."""
    chosen = labels.choose(logits)
    if labels.positive is None:
        return decision_counts(target, chosen, labels.n_classes, weights).macro_f1
    return float(confusion_counts(target == labels.column, chosen == labels.column, weights).f1)


def _g_mean(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    return decision_counts(target, labels.choose(logits), labels.n_classes, weights).g_mean


def _average_precision(logits: Array, target: Index, weights: Array, labels: Labels) -> float:
    """Average precision of the positive class, or the mean over the classes."""
    classes = np.unique(target) if labels.positive is None else [labels.column]
    scores = softmax(logits) if labels.positive is None else logits - logits[:, ::-1]
    found = [average_precision_score(target == k, scores[:, k], sample_weight=weights) for k in classes]
    return float(np.mean(found))


# Log losses also choose the number of epochs; the value is whether they are of the natural posterior.
LOG_LOSSES = {"neg_weighted_log_loss": False, "neg_log_loss": True}
SCORES: dict[str, Score] = {"f1": _f1, "g_mean": _g_mean, "average_precision": _average_precision}


class _HeldOut(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator for scikit-learn's scorers that answers from the logits of the held-out rows."""

    def __init__(self, labels: Labels, logits: Array, price: Price) -> None:
        self.classes_ = labels.classes
        self._labels, self._logits, self._natural = labels, logits, logits - price.log_weights

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Rows) -> Array:
        return self._logits if self._labels.positive is None else self._logits[:, 1] - self._logits[:, 0]

    def predict(self, X: Rows) -> NDArray[np.generic]:
        return self._labels.decode(self._labels.choose(self._logits))

    def predict_proba(self, X: Rows) -> Array:
        return softmax(self._natural)


def check_scoring(scoring: object) -> Scoring:
    """``scoring`` itself, if it is a name of `SCORES`, any other name that scikit-learn knows, or a callable."""
    if isinstance(scoring, str) and scoring not in (*LOG_LOSSES, *SCORES):
        try:
            get_scorer(scoring)
        except ValueError as error:
            raise InvalidParameter(
                f"scoring must be one of {', '.join((*LOG_LOSSES, *SCORES))}, a name that scikit-learn knows, or a "
                f"callable: got {scoring!r}."
            ) from error
    elif not isinstance(scoring, str) and not callable(scoring):
        raise InvalidParameter(f"scoring must be a name or a callable: got {scoring!r}.")
    return scoring


def held_out_score(scoring: Scoring, logits: Array, rows: FitRows, held_out: Index, price: Price) -> float:
    """Score of weighted logits (n, K) on held-out rows, higher is better; `check_scoring` has accepted ``scoring``."""
    if isinstance(scoring, str) and scoring in LOG_LOSSES:
        own = rows.target[held_out], rows.weights[held_out], price
        return -float(log_losses(logits, *own, natural=LOG_LOSSES[scoring]))
    if isinstance(scoring, str) and scoring in SCORES:
        return SCORES[scoring](logits, rows.target[held_out], rows.weights[held_out], rows.labels)
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    return float(scorer(_HeldOut(rows.labels, logits, price), rows.X[held_out], rows.y[held_out]))


def score_table(outcomes: list[Outcome]) -> dict[str, Any]:
    """The table of a search in the form of scikit-learn's."""
    params, table = [outcome.setting.params() for outcome in outcomes], {}
    for name in params[0]:
        are_floats = all(isinstance(setting[name], float) for setting in params)
        column: Any = np.ma.masked_all(len(params), dtype=np.float64 if are_floats else object)  # type: ignore[no-untyped-call]
        for i, setting in enumerate(params):
            column[i] = setting[name]
        table[f"param_{name}"] = column
    is_dropped, scores = np.array([one.is_dropped for one in outcomes]), np.array([one.scores for one in outcomes])
    epochs = np.array([outcome.epochs or 0 for outcome in outcomes])
    table |= {"params": params, "epochs": epochs, "is_dropped": is_dropped}
    table |= {f"split{fold}_test_score": scores[:, fold] for fold in range(scores.shape[1])}
    with np.errstate(invalid="ignore"):  # no spread where a fold's score is infinite
        table |= {"mean_test_score": scores.mean(axis=1), "std_test_score": scores.std(axis=1)}
    merit = np.array([outcome.merit for outcome in outcomes])
    is_better = (merit[None, :] > merit[:, None]) & (is_dropped[None, :] == is_dropped[:, None])
    is_ahead = (~is_dropped[None, :] & is_dropped[:, None]) | is_better
    table["rank_test_score"] = (1 + is_ahead.sum(axis=1)).astype(np.int32)
    return table
