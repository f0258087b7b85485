"""Scores of held-out rows from a network's weighted logits, without a fitted estimator at hand, and their table."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import average_precision_score, get_scorer

from crcen.exceptions import InvalidParameter
from crcen.models.search.grid import SearchRows
from crcen.theory.decision import sigmoid
from crcen.theory.labels import Labels
from crcen.theory.metrics import confusion_counts
from crcen.theory.price import Price

__all__ = ["LOG_LOSSES", "SCORES", "check_scoring", "held_out_score", "log_losses", "score_table"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def log_losses(logits: Array, target: Bools, weights: Array, weighting: Price, *, natural: bool) -> Array:
    """Log loss of each row of ``logits`` (records, n): under the weighting, or of the natural posterior."""
    shift, row_weights = weighting.logit_shift, weighting.row_weights(target, weights)
    signed = np.where(target, -1.0, 1.0) * (logits - shift if natural else logits)
    row_weights = weights if natural else row_weights
    with np.errstate(invalid="ignore"):  # a diverged network's logits are NaN, and so is its loss
        return np.asarray((np.logaddexp(0.0, signed) * row_weights).sum(axis=-1) / row_weights.sum())


def _f1(logits: Array, target: Bools, weights: Array, weighting: Price) -> float:
    return float(confusion_counts(target, logits > 0, weights).f1)


def _g_mean(logits: Array, target: Bools, weights: Array, weighting: Price) -> float:
    return float(confusion_counts(target, logits > 0, weights).g_mean)


def _average_precision(logits: Array, target: Bools, weights: Array, weighting: Price) -> float:
    return float(average_precision_score(target, logits, sample_weight=weights))


def _neg_weighted_log_loss(logits: Array, target: Bools, weights: Array, weighting: Price) -> float:
    return -float(log_losses(logits, target, weights, weighting, natural=False))


def _neg_log_loss(logits: Array, target: Bools, weights: Array, weighting: Price) -> float:
    return -float(log_losses(logits, target, weights, weighting, natural=True))


SCORES: dict[str, Callable[[Array, Bools, Array, Price], float]] = {
    "neg_weighted_log_loss": _neg_weighted_log_loss,
    "neg_log_loss": _neg_log_loss,
    "f1": _f1,
    "g_mean": _g_mean,
    "average_precision": _average_precision,
}
# Scores that also choose the number of epochs, with whether they are of the natural posterior.
LOG_LOSSES = {"neg_weighted_log_loss": False, "neg_log_loss": True}


class _HeldOut(ClassifierMixin, BaseEstimator):
    """What a scikit-learn scorer asks of an estimator, answered from the logits of the rows it is asked about."""

    def __init__(self, labels: Labels, logits: Array, weighting: Price) -> None:
        self.classes_ = labels.classes
        self._labels, self._logits, self._shift = labels, logits, weighting.logit_shift

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def decision_function(self, X: Any) -> Array:
        return self._labels.signed(self._logits)

    def predict(self, X: Any) -> NDArray[Any]:
        return self._labels.decode(self._logits > 0)

    def predict_proba(self, X: Any) -> Array:
        natural = self._labels.signed(self._logits - self._shift)
        return np.column_stack([sigmoid(-natural), sigmoid(natural)])


def check_scoring(scoring: Any) -> Any:
    """``scoring`` itself, if it is a name of `SCORES`, any other name that scikit-learn knows, or a callable."""
    if isinstance(scoring, str) and scoring not in SCORES:
        try:
            get_scorer(scoring)
        except ValueError as error:
            raise InvalidParameter(
                f"scoring must be one of {', '.join(SCORES)}, a name that scikit-learn knows, or a callable: "
                f"got {scoring!r}."
            ) from error
    elif not isinstance(scoring, str) and not callable(scoring):
        raise InvalidParameter(f"scoring must be a name or a callable: got {scoring!r}.")
    return scoring


def held_out_score(
    scoring: Any, logits: Array, rows: SearchRows, held_out: NDArray[np.int64], weighting: Price
) -> float:
    """Score of weighted logits on held-out rows, higher is better; ``scoring`` is what `check_scoring` lets pass."""
    if isinstance(scoring, str) and scoring in SCORES:
        return SCORES[scoring](logits, rows.target[held_out], rows.weights[held_out], weighting)
    scorer = get_scorer(scoring) if isinstance(scoring, str) else scoring
    return float(scorer(_HeldOut(rows.labels, logits, weighting), rows.X[held_out], rows.y[held_out]))


def score_table(params: list[dict[str, Any]], epochs: NDArray[Any], is_dropped: Bools, scores: Array) -> dict[str, Any]:
    """The table of a search in the form of scikit-learn's; ``scores`` is (settings, folds).

    Settings that were dropped rank behind the others, and those without a score last of all.
    """
    table: dict[str, Any] = {}
    for name in params[0]:
        are_floats = all(isinstance(setting[name], float) for setting in params)
        column = np.ma.masked_all(len(params), dtype=np.float64 if are_floats else object)
        for i, setting in enumerate(params):
            column[i] = setting[name]
        table[f"param_{name}"] = column
    table |= {"params": params, "epochs": epochs, "is_dropped": is_dropped}
    for fold in range(scores.shape[1]):
        table[f"split{fold}_test_score"] = scores[:, fold]
    means = scores.mean(axis=1)
    table["mean_test_score"] = means
    with np.errstate(invalid="ignore"):  # no spread where a fold's score is infinite
        table["std_test_score"] = scores.std(axis=1)
    merit = np.where(np.isnan(means), -np.inf, means)
    is_better = (merit[None, :] > merit[:, None]) & (is_dropped[None, :] == is_dropped[:, None])
    is_ahead = (~is_dropped[None, :] & is_dropped[:, None]) | is_better
    table["rank_test_score"] = (1 + is_ahead.sum(axis=1)).astype(np.int32)
    return table
