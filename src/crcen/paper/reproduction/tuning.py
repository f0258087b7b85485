"""The protocol's search for methods that our stacks do not train: same folds, as many settings, the same score."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logit

from crcen.exceptions import TrainingFailed
from crcen.paper.loss_networks import LossNetwork, fit_together
from crcen.paper.methods import METHODS, Tuning
from crcen.theory.metrics import confusion_counts
from crcen.theory.price import CostRatio, resolve

__all__ = ["candidates", "fold_scores", "params_of"]

Array = NDArray[np.float64]
Folds = Sequence[tuple[NDArray[np.int64], NDArray[np.int64]]]
# Of a probability of 0 or 1, which votes give.
_LARGEST_LOGIT = 30.0


def candidates(tuning: Tuning, y: NDArray[np.int64], settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The settings to compare: the grid of the networks, or as many cost ratios from near 1 to the imbalance ratio."""
    grid = [{"hidden": h, "l2": l2} for h in settings["hidden"] for l2 in settings["l2"]]
    if tuning.what == "network":
        return grid
    ratio = float((y == 0).sum() / (y == 1).sum())
    return [{"cost_ratio": ratio ** ((k + 1) / len(grid))} for k in range(len(grid))]


def params_of(tuning: Tuning, setting: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Keyword arguments of a method at a setting."""
    if tuning.what == "cost":
        return {"weighting": CostRatio(float(setting["cost_ratio"])), "random_state": seed}
    return {
        "hidden": (int(setting["hidden"]),),
        "l2": float(setting["l2"]),
        "max_epochs": int(settings["epochs"]),
        "random_state": seed,
    }


def fold_scores(
    name: str,
    X: Array,
    y: NDArray[np.int64],
    folds: Folds,
    grid: Sequence[Mapping[str, Any]],
    metrics: Sequence[str],
    settings: Mapping[str, Any],
) -> Array:
    """Scores, higher is better, of shape (metrics, settings, folds, networks); −∞ where a fit fails."""
    method = METHODS[name]
    tuning = method.tuning or Tuning()
    count = min(int(settings["search_networks"]), tuning.networks or int(settings["search_networks"]))
    scores = np.full((len(metrics), len(grid), len(folds), count), -np.inf)
    for fold, (train, held_out) in enumerate(folds):
        models = {
            (i, network): method.make(
                **params_of(tuning, setting, settings, settings["seed"] + network), **tuning.lighter
            )
            for i, setting in enumerate(grid)
            for network in range(count)
        }
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bounds on rows: the row of the fit says so
            fitted = _fitted(models, X[train], y[train])
            for (i, network), model in fitted.items():
                for number, metric in enumerate(metrics):
                    own = _score(model, tuning, X[held_out], y[held_out], y[train], metric)
                    scores[number, i, fold, network] = own
    return scores


def _fitted(models: Mapping[tuple[int, int], Any], X: Array, y: NDArray[np.int64]) -> dict[tuple[int, int], Any]:
    """Those that could be fitted; networks with a loss of their own as stacks."""
    if all(isinstance(model, LossNetwork) for model in models.values()):
        fit_together(list(models.values()), X, y)
        return dict(models)
    done = {}
    for key, model in models.items():
        try:
            done[key] = model.fit(X, y)
        except (ValueError, TrainingFailed):  # a price or a shape that the method cannot use
            continue
    return done


def _score(
    model: Any, tuning: Tuning, X: Array, y: NDArray[np.int64], y_train: NDArray[np.int64], scoring: str
) -> float:
    """F1 or G-mean of its decisions, or the weighted log loss at the balanced price."""
    if scoring != "weighted_log_loss":
        counts = confusion_counts(y, model.predict(X))
        return float(counts.f1 if scoring == "f1" else counts.g_mean)
    n_pos = int(y_train.sum())
    price = resolve("balanced", n_pos, len(y_train) - n_pos)
    weights = price.row_weights(y)
    if tuning.is_natural:
        with np.errstate(divide="ignore"):
            natural = np.clip(logit(model.predict_proba(X)[:, 1]), -_LARGEST_LOGIT, _LARGEST_LOGIT)
        return -_weighted_loss(natural + price.logit_shift, y, weights)
    score = np.asarray(model.decision_function(X), dtype=np.float64)
    if not np.isfinite(score).all():
        return -np.inf
    size = max(float(np.abs(score).mean()), 1e-300)
    best = minimize_scalar(
        lambda power: _weighted_loss(score / size * 10.0**power, y, weights), bounds=(-4, 3), method="bounded"
    )
    return -float(best.fun)


def _weighted_loss(logits: Array, y: NDArray[np.int64], weights: Array) -> float:
    return float((weights * (np.logaddexp(0, logits) - y * logits)).sum() / weights.sum())
