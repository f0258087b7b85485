"""Weights of a committee's members, and the leaderboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import Bounds, minimize

from crcen.models.members.member import FittedMember, log_loss
from crcen.theory.price import softmax
from crcen.theory.rows import Array, Bools, Index, Shown

# Strengths of the shrinkage to choose from, in units of rows: about how many it takes to move away from equal weights.
RIDGES = (5.0, 20.0, 80.0)
LEAST_WEIGHT = 0.02  # a member with less costs time in every prediction and changes hardly any
_ROWS_TO_CHOOSE = 20_000  # with more, a sample decides: the strength hardly matters then


@dataclass(frozen=True, eq=False)
class Stacking:
    """The committee's natural logits: intercepts (K,) + Σ weight × member's natural logits (n, K)."""

    weights: Array
    intercepts: Array
    ridge: float

    def __call__(self, logits: Array) -> Array:
        """Combine (n, members, K) logits to (n, K)."""
        return np.asarray(np.einsum("nmk,m->nk", logits, self.weights) + self.intercepts)


def fit_stacking(
    logits: Array,
    target: Index,
    row_weights: Array,
    ridge: float,
    least_weight: float = 0.0,
    start: Stacking | None = None,
) -> Stacking:
    """Weights ≥ 0 and intercepts that minimise the log loss plus ``ridge``·Σ (w − 1/M)².

    Members with less than ``least_weight`` get none, and the others are weighted again.
    """
    from threadpoolctl import threadpool_limits

    n, n_members, n_classes = logits.shape
    equal, scale = 1.0 / n_members, row_weights / row_weights.mean()
    is_class = target[:, None] == np.arange(1, n_classes)
    # Log-odds against the first class: one column for two classes.
    odds = np.ascontiguousarray((logits[:, :, 1:] - logits[:, :, :1]).transpose(1, 0, 2).reshape(n_members, -1))

    def objective(parameters: Array) -> tuple[float, Array]:
        away = parameters[:n_members] - equal
        combined = (parameters[:n_members] @ odds).reshape(n, n_classes - 1) + parameters[n_members:]
        top = np.maximum(combined.max(axis=1), 0.0)
        error = np.exp(combined - top[:, None])
        total = error.sum(axis=1) + np.exp(-top)
        loss = scale @ (np.log(total) + top - np.where(is_class, combined, 0.0).sum(axis=1)) + ridge * (away @ away)
        error = (error / total[:, None] - is_class) * scale[:, None]
        return float(loss), np.concatenate([odds @ error.ravel() + 2.0 * ridge * away, error.sum(axis=0)])

    found = np.concatenate([np.full(n_members, equal), np.zeros(n_classes - 1)])
    if start is not None:
        found = np.concatenate([start.weights, start.intercepts[1:] - start.intercepts[0]])
    most = np.full(len(found), np.inf)
    least = np.repeat([0.0, -np.inf], [n_members, n_classes - 1])
    options = {"ftol": 1e-13, "gtol": 1e-8}
    for _ in range(2):
        bounds = Bounds(least, most)
        with threadpool_limits(1, user_api="blas"):  # several threads would mostly wait
            found = minimize(
                objective, np.minimum(found, most), jac=True, method="L-BFGS-B", bounds=bounds, options=options
            ).x
        is_tiny = found[:n_members] < min(least_weight, found[:n_members].max())
        if not (is_tiny & (found[:n_members] > 0.0)).any():
            break
        most[:n_members][is_tiny] = 0.0
    intercepts = np.concatenate([[0.0], found[n_members:]])
    return Stacking(found[:n_members], intercepts - intercepts.mean(), ridge)


def choose_ridge(logits: Array, target: Index, row_weights: Array, held_out: Sequence[Index], seed: int = 0) -> float:
    """The strength whose weights, fitted on the other folds, predict each fold best."""
    known = _known(logits, held_out)
    if len(held_out) < 2:
        return RIDGES[-1]
    if known.sum() > _ROWS_TO_CHOOSE:
        rows = np.random.default_rng([seed, len(target)]).choice(np.flatnonzero(known), _ROWS_TO_CHOOSE, replace=False)
        known = np.zeros(len(target), dtype=bool)
        known[rows] = True
    losses = []
    for ridge in RIDGES:
        crossed = cross_fitted_logits(logits, target, row_weights, held_out, ridge, known)
        seen = np.isfinite(crossed).all(axis=1)
        losses.append(log_loss(crossed[seen], target[seen], row_weights[seen]) if seen.any() else np.inf)
    return RIDGES[int(np.argmin(losses))]


def cross_fitted_logits(
    logits: Array,
    target: Index,
    row_weights: Array,
    held_out: Sequence[Index],
    ridge: float,
    known: Bools | None = None,
) -> Array:
    """Combined logits of each fold's rows by weights fitted on the other folds' rows.

    Weights fitted on a row's own label make its loss look better than that of a new row; these do not. A row in no
    fold, or in a fold whose other rows lack a class, is NaN.
    """
    n_classes = logits.shape[2]
    combined = np.full((len(logits), n_classes), np.nan)
    seen, stacking = _known(logits, held_out) if known is None else known, None
    for fold in held_out:
        others = seen.copy()
        others[fold] = False
        own = fold[seen[fold]]
        if len(held_out) == 1:  # one fold of later rows: no other rows to fit weights on
            combined[own] = logits[own].mean(axis=1)
            continue
        counts = np.bincount(target[others], row_weights[others], n_classes)
        others |= seen & np.isin(target, np.flatnonzero(counts == 0))  # the only row of a class cannot be left out
        if np.bincount(target[others], row_weights[others], n_classes).all():
            stacking = fit_stacking(logits[others], target[others], row_weights[others], ridge, start=stacking)
            combined[own] = stacking(logits[own])
    return combined


def _known(logits: Array, held_out: Sequence[Index]) -> Bools:
    known = np.zeros(len(logits), dtype=bool)
    known[np.concatenate(held_out)] = True
    return known & np.isfinite(logits).all(axis=(1, 2))


# -- leaderboard -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MemberScore(Shown):
    """A line of the leaderboard.

    Parameters
    ----------
    name : str
        The member, or ``"committee"``.
    weight : float
        What its natural logit is multiplied by; NaN for the committee.
    log_loss, average_precision, roc_auc : float
        Out of fold, by natural probabilities. The committee's are by weights fitted on other folds.
    seconds : float
        Time of search and refit.
    settings : tuple of str
        What its search chose.
    n_tried : int
        How many settings its search looked at.
    """

    name: str
    weight: float
    log_loss: float
    average_precision: float
    roc_auc: float
    seconds: float
    settings: tuple[str, ...] = ()
    n_tried: int = 0

    def __str__(self) -> str:
        weight = "" if np.isnan(self.weight) else f"{self.weight:.2f}"
        return (
            f"{self.name:<20} {weight:>6}  {self.log_loss:>9.4g}  {self.average_precision:>17.4g}  "
            f"{self.roc_auc:>8.4g}  {self.seconds:>7.1f} s"
        )


def leaderboard(
    members: Sequence[FittedMember],
    weights: Array,
    crossed: Array,
    target: Index,
    row_weights: Array,
    classes: Sequence[int] | None,
) -> list[MemberScore]:
    """A line for each member, and one for the committee, whose logits are ``crossed``."""

    def judged(logits: Array) -> tuple[float, float, float]:
        from sklearn.metrics import average_precision_score, roc_auc_score

        known = np.isfinite(logits).all(axis=1) & (row_weights > 0)
        own, y, w = logits[known], target[known], row_weights[known]
        several = np.unique(y) if classes is None else classes
        p = softmax(own) if logits.shape[1] > 2 else own - own[:, ::-1]
        return (
            log_loss(own, y, w),
            float(np.mean([average_precision_score(y == k, p[:, k], sample_weight=w) for k in several])),
            float(np.mean([roc_auc_score(y == k, p[:, k], sample_weight=w) for k in several])),
        )

    lines = [
        MemberScore(one.name, float(weight), *judged(one.logits), one.seconds, one.settings, one.n_tried)
        for one, weight in zip(members, weights, strict=True)
    ]
    seconds, n_tried = sum(one.seconds for one in members), sum(one.n_tried for one in members)
    return [*lines, MemberScore("committee", np.nan, *judged(crossed), seconds, n_tried=n_tried)]
