"""A committee for K classes: weights of members fitted out of fold, the solve at the price, the leaderboard."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from crcen.models.classes.ensemble import ClassEnsemble
from crcen.models.classes.search import ClassSearchRows, held_out_shifts, keep_out_of_fold, without_tests
from crcen.models.committee.leaderboard import leaderboard
from crcen.models.committee.members import Candidate
from crcen.models.fitted import write_ensemble
from crcen.models.fitting import OUT_OF_FOLD_ROWS
from crcen.theory.classes.log_sums import log_softmax, softmax
from crcen.theory.price import Price

__all__ = ["ClassStacking", "combine_classes", "fit_class_stacking"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_RIDGE = 20.0  # as in `crcen.models.committee.stacking`, where two classes were measured to want less


@dataclass(frozen=True, eq=False)
class ClassStacking:
    """The committee's natural logits: intercepts (K,) + Σ weight × member's natural logits (n, K)."""

    weights: Array
    intercepts: Array

    def __call__(self, logits: Array) -> Array:
        """Combine (n, members, K) logits to (n, K)."""
        return np.asarray(np.einsum("nmk,m->nk", logits, self.weights) + self.intercepts)


def fit_class_stacking(logits: Array, target: Index, row_weights: Array, ridge: float = _RIDGE) -> ClassStacking:
    """Weights ≥ 0 and intercepts of least log loss, with ``ridge``·Σ (w − 1/M)² against leaving equal weights.

    Parameters
    ----------
    logits
        (n, M, K) natural logits of rows that no member saw.
    target, row_weights
        Class numbers and row weights; only ratios of weights count.
    ridge
        Strength of the pull; the loss is a sum over rows of mean weight 1.
    """
    n, n_members, n_classes = logits.shape
    equal, scale, rows = 1.0 / n_members, row_weights / row_weights.mean(), np.arange(n)

    def objective(parameters: Array) -> tuple[float, Array]:
        away = parameters[:n_members] - equal
        log_p = log_softmax(np.einsum("nmk,m->nk", logits, parameters[:n_members]) + parameters[n_members:])
        error = np.exp(log_p)
        error[rows, target] -= 1.0
        error *= scale[:, None]
        loss = -(scale @ log_p[rows, target]) + ridge * (away @ away)
        along = np.einsum("nmk,nk->m", logits, error) + 2.0 * ridge * away
        return float(loss), np.concatenate([along, error.sum(axis=0)])

    start = np.concatenate([np.full(n_members, equal), np.zeros(n_classes)])
    bounds = [(0.0, None)] * n_members + [(None, None)] * n_classes
    close = {"ftol": 1e-13, "gtol": 1e-8}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=bounds, options=close).x
    return ClassStacking(found[:n_members], found[n_members:] - found[n_members:].mean())


def _cross_fitted(logits: Array, rows: ClassSearchRows, held_out: Sequence[Index]) -> Array:
    """Combined logits of each fold's rows by weights fitted on the other folds' rows; NaN where there are none."""
    n_classes, combined = logits.shape[2], np.full((len(logits), logits.shape[2]), np.nan)
    seen = np.zeros(len(logits), dtype=bool)
    seen[np.concatenate(held_out)] = True
    seen &= np.isfinite(logits).all(axis=(1, 2))
    for fold in held_out:
        others = seen.copy()
        others[fold] = False
        own = fold[seen[fold]]
        if len(held_out) == 1:  # one fold of later rows: nothing is left to fit on but equal weights
            combined[own] = logits[own].mean(axis=1)
            continue
        counts = np.bincount(rows.target[others], rows.weights[others], n_classes)
        others |= seen & np.isin(rows.target, np.flatnonzero(counts == 0))  # one row of a class cannot be left out
        if np.bincount(rows.target[others], rows.weights[others], n_classes).all():
            stacking = fit_class_stacking(logits[others], rows.target[others], rows.weights[others])
            combined[own] = stacking(logits[own])
    return combined


def combine_classes(model: Any, candidates: list[Candidate], rows: ClassSearchRows, price: Price) -> None:
    """Weights, the solve at the price, and everything that a `CommitteeClassifier` keeps."""
    logits = np.stack([one.logits for one in candidates], axis=1)
    seen: NDArray[np.bool_] = np.asarray(np.isfinite(logits).all(axis=(1, 2)))
    stacking = fit_class_stacking(logits[seen], rows.target[seen], rows.weights[seen])
    crossed = _cross_fitted(logits, rows, [test for _, test in rows.folds])
    known: NDArray[np.bool_] = np.asarray(np.isfinite(crossed).all(axis=1))
    pairs = zip(candidates, stacking.weights, strict=True)
    parts = [(part, weight / len(one.parts)) for one, weight in pairs for part in one.parts]
    natural = ClassEnsemble.of(
        rows.labels,
        rows.resolve(None),
        tuple(part for part, _ in parts),
        np.array([weight for _, weight in parts]),
    ).shifted(stacking.intercepts)
    ensemble = natural.at_price(price)
    weighted = crossed + price.log_weights
    held_out = weighted[known], rows.target[known], rows.weights[known]
    model.oof_key_equation_ = replace(without_tests(ensemble.key_equation(*held_out)), rows=OUT_OF_FOLD_ROWS)
    model.oof_shift_ = held_out_shifts(weighted, rows, price)
    ensemble = ensemble.moved(model.oof_shift_)
    write_ensemble(model, ensemble, replace(ensemble.key_equation(*held_out), rows=OUT_OF_FOLD_ROWS))
    model.member_weights_ = stacking.weights
    keep_out_of_fold(model, ensemble, weighted, known)
    model.leaderboard_ = leaderboard(candidates, stacking.weights, crossed, partial(_judged, rows=rows))


def _judged(logits: Array, rows: ClassSearchRows) -> tuple[float, float, float]:
    """Log loss, and means over the classes of average precision and area under the curve, of out-of-fold logits."""
    from sklearn.metrics import average_precision_score, roc_auc_score

    known = np.isfinite(logits).all(axis=1) & (rows.weights > 0)
    target, weights, own = rows.target[known], rows.weights[known], logits[known]
    p, log_p, classes = softmax(own), log_softmax(own), np.unique(target)
    return (
        float(-(weights @ log_p[np.arange(len(own)), target]) / weights.sum()),
        float(np.mean([average_precision_score(target == k, p[:, k], sample_weight=weights) for k in classes])),
        float(np.mean([roc_auc_score(target == k, p[:, k], sample_weight=weights) for k in classes])),
    )
