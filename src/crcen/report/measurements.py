"""Every number of the page, computed in float64, as one dict that JSON can hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.values import json_value
from crcen.exceptions import InvalidInput
from crcen.report.columns import chosen_rows
from crcen.report.curves import (
    WINDOWS,
    OperatingPoints,
    decision_numbers,
    log_odds,
    points_of,
    price_grid,
    price_ladder,
    reliability,
    rounded,
    typed_prices,
)
from crcen.report.evidence import Evidence, kept_by
from crcen.theory.checks import check_class_probabilities, check_probabilities
from crcen.theory.curves import DecisionCurves, ThresholdCurve, average_precision, roc_area
from crcen.theory.decision import weighted_probability
from crcen.theory.intervals import Interval, auc_interval, cost_interval, share_interval
from crcen.theory.key_equation import KeyEquation, means_by_law
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.metrics import Quality, log_losses, measure_quality
from crcen.theory.price import CostRatio
from crcen.theory.rows import Array, Bools, Index

# Values that JSON can hold.
Values = dict[str, Any]

MOST_POINTS = 2000
# What the script draws; the other measurements are in the text.
DRAWN = ("explorer", "reliability", "histogram", "key_equations", "path", "decisions", "models")
# Numbers of the rows that the explorer of costs decides again.
MOST_NUMBERS = 24_000
_HISTOGRAM_BINS = 36
_PATH_POINTS = 61
_COMPARED_POINTS = 81
# Probabilities are drawn on the log-odds scale between these ends.
_EDGE = 1e-6


def measure(evidence: Evidence, models: Sequence[Values] = (), most_points: int = MOST_POINTS) -> Values:
    """Numbers of the page for a positive class; None for a number that does not exist.

    ``models`` are as `compare` returns them; the explorer has ``most_points``.
    """
    price, points = evidence.price.cost_ratio, evidence.of(points_of)
    found: Values = json_value(
        {
            "rows": _rows(evidence),
            "quality": _quality(evidence, points, price),
            "explorer": _explorer(evidence, points, price, most_points),
            "ladder": _ladder(evidence, points, price),
            "reliability": [asdict(group) for group in evidence.of(reliability)[evidence.labels.column]],
            "histogram": _histogram(evidence),
            "key_equations": {
                # These rows alone are tested, with the model's own error.
                name: {"lhs": one.lhs, "rhs": one.rhs, "z": evidence.equations.z if name == "these_rows" else math.nan}
                for name, one in key_equations(evidence).items()
            },
            "path": _weight_path(evidence, points, price),
            "decisions": decision_numbers(evidence, price),
            "models": list(models),
        },
        shorten=True,
    )
    return found


def quality_of(evidence: Evidence) -> Quality:
    """Decisions at the costs."""
    quality = measure_quality(evidence.y, evidence.proba, evidence.cost_matrix, evidence.weights, evidence.clusters)
    return quality if evidence.recall_lows is None else quality.with_recall_lows(evidence.recall_lows)


def measure_classes(evidence: Evidence, models: Sequence[Values] = ()) -> tuple[Values, Values]:
    """The numbers of the tables without a positive class, and the rows that the explorer decides again."""
    quality = evidence.of(quality_of)
    values = quality.to_dict()
    top = max(max(one["cost_per_row"] for one in values["classes"]), 1e-300)
    classes = [
        {**one, "label": str(one["label"]), "bar": round(100 * one["cost_per_row"] / top, 1)}
        for one in values["classes"]
    ]
    chosen, weights = explored_rows(evidence)
    explored = {
        "labels": list(evidence.names),
        "y": evidence.y[chosen].tolist(),
        "p": [[float(f"{one:.6g}") for one in column] for column in evidence.proba[chosen].T],
        "weights": None if (weights == 1.0).all() else [float(f"{one:.9g}") for one in weights],
    }
    measured = {
        "rows": {"n_rows": evidence.n_rows},
        "n_explored": len(chosen),
        "is_sampled": len(chosen) < evidence.n_rows,
        "decisions": [str(name) for name in quality.names],
        "costs": [[float(f"{one:.6g}") for one in row] for row in quality.costs.costs.tolist()],
        "confusion": quality.counts.table.tolist(),
        "classes": classes,
        "cost": values["cost_per_row"],
        "habit": str(quality.habit),
        "habit_cost": quality.habit_cost,
        "n_reviewed": float(quality.counts.table[:, len(quality.labels) :].sum()),
        "models": list(models),
    }
    shares = ("accuracy", "balanced_accuracy", "log_loss", "base_log_loss")
    return json_value({**measured, **{name: values[name] for name in shares}}), explored


def explored_rows(evidence: Evidence) -> tuple[Index, Array]:
    """Rows for the explorer of costs and their weights: all, or of many some of each class that stand for all."""
    n_classes = evidence.labels.n_classes
    most = max(MOST_NUMBERS // n_classes, n_classes)
    return chosen_rows(evidence, most, np.random.default_rng(evidence.random_state))


def key_equations(evidence: Evidence) -> dict[str, KeyEquation]:
    """The key equation of the training rows and out of fold, if the model keeps them, and on these rows."""
    found = {}
    for name, attribute in (("training", "key_equation_"), ("out_of_fold", "oof_key_equation_")):
        kept = kept_by(evidence.model, attribute)
        if isinstance(kept, KeyEquation):
            found[name] = kept
    return {**found, "these_rows": evidence.equations.equation}


# -- several models -----------------------------------------------------------------------------------------------


def compare(evidence: Evidence, others: Mapping[str, ArrayLike], name: str) -> list[Values]:
    """Metrics of every model at the price or costs of the first, with the difference of costs from it.

    ``others`` are natural probabilities for the same rows, of the positive class or of every class, by model; ``name``
    is that of the first model. Empty without others.
    """
    if not others:
        return []
    found = []
    first = _row_costs(evidence, evidence.proba)
    for label, given in [(name, evidence.p if evidence.has_positive else evidence.proba), *others.items()]:
        proba = _compared_probabilities(evidence, given, label)
        more = _row_costs(evidence, proba) - first
        total = float(evidence.weights.sum())
        mean = float(evidence.weights @ more) / total
        half = 1.96 * float(np.sqrt(np.sum(evidence.weights**2 * (more - mean) ** 2))) / total
        paired = {"more_per_1000": 1000.0 * mean, "interval": [1000.0 * (mean - half), 1000.0 * (mean + half)]}
        metrics = _price_metrics(evidence, proba) if evidence.has_positive else _cost_metrics(evidence, proba)
        found.append({"name": label, **metrics, **paired})
    return found


def _compared_probabilities(evidence: Evidence, given: ArrayLike, name: str) -> Array:
    """Probabilities (n, K) of another model."""
    if not evidence.has_positive:
        return check_class_probabilities(given, evidence.n_rows, evidence.labels.n_classes, f"probabilities of {name}")
    p = check_probabilities(given, f"probabilities of {name}")
    if p.shape != evidence.y.shape:
        raise InvalidInput(f"{name} must give one probability for each of {evidence.n_rows} rows, got {p.shape}")
    return evidence.labels.in_order(np.column_stack([1.0 - p, p]))


def _row_costs(evidence: Evidence, proba: Array) -> Array:
    """Cost of the decision on each row; with a positive class in false alarms."""
    if not evidence.has_positive:
        return np.asarray(evidence.cost_matrix.costs[evidence.y, evidence.cost_matrix.choose(proba)])
    alarms = evidence.price.decide(proba[:, evidence.labels.column])
    return np.where(evidence.target, evidence.price.cost_ratio * ~alarms, 1.0 * alarms)


def _cost_metrics(evidence: Evidence, proba: Array) -> Values:
    quality = measure_quality(evidence.y, proba, evidence.cost_matrix, evidence.weights)
    areas = [one.value for one in quality.areas if not math.isnan(one.value)]
    return {
        "average_precision": float(np.nanmean(quality.average_precisions)),
        "roc_auc": float(np.mean(areas)) if areas else math.nan,
        "log_loss": quality.log_loss,
        "balanced_accuracy": quality.counts.balanced_accuracy,
        "accuracy": quality.counts.accuracy,
        "cost_per_1000": 1000.0 * quality.cost.value,
    }


def _price_metrics(evidence: Evidence, proba: Array) -> Values:
    target, weights, p = evidence.target, evidence.weights, proba[:, evidence.labels.column]
    price, total = evidence.price.cost_ratio, float(weights.sum())
    tp, fp = ThresholdCurve(target, p).totals(weights)
    curves = DecisionCurves(target, p, weights)
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _COMPARED_POINTS))
    caught, alarmed = (float(one[0]) for one in curves.counts_above(np.array([evidence.price.threshold])))
    return {
        "average_precision": average_precision(tp, fp),
        "roc_auc": roc_area(tp, fp),
        "log_loss": float(np.average(log_losses(target, p), weights=weights)),
        "brier": float(np.average((target - p) ** 2, weights=weights)),
        "found": caught,
        "alarms": caught + alarmed,
        "cost_per_1000": 1000.0 * (price * (curves.n_pos - caught) + alarmed) / total,
        "net_benefit": {"price": benefit.x, "model": benefit.model},
    }


# -- a positive class ---------------------------------------------------------------------------------------------


def _rows(evidence: Evidence) -> Values:
    n_pos, n_neg = evidence.labels.pair(evidence.totals)
    return {
        "n_rows": evidence.n_rows,
        "n_positive_rows": int(evidence.target.sum()),
        "n_pos": n_pos,
        "n_neg": n_neg,
        "share": n_pos / (n_pos + n_neg),
        "is_weighted": evidence.is_weighted,
        "is_out_of_fold": evidence.is_out_of_fold,
        "pos_label": str(evidence.labels.positive),
        "neg_label": str(evidence.labels.negative),
    }


def _share(evidence: Evidence, hit: Bools, among: Bools) -> Interval:
    """Share of hits among some rows."""
    clusters = None if evidence.clusters is None else evidence.clusters[among]
    return share_interval(hit[among], evidence.weights[among], clusters)


def _quality(evidence: Evidence, points: OperatingPoints, price: float) -> Values:
    target, weights, counts, total = (
        evidence.target,
        evidence.weights,
        points.counts(price),
        points.n_pos + points.n_neg,
    )
    alarms, alarms_raised = counts.tp + counts.fp, evidence.p > 1.0 / (1.0 + price)
    base = np.full(evidence.n_rows, points.n_pos / total)
    recall, lows = _share(evidence, alarms_raised, target), evidence.recall_lows
    paid = np.array([[0.0, 1.0], [price, 0.0]])
    low = recall.low if lows is None else float(np.fmin(recall.low, lows[evidence.price.positive]))
    return {
        "price": price,
        "threshold": evidence.price.threshold,
        "has_price": evidence.has_price,
        "tp": counts.tp,
        "fp": counts.fp,
        "fn": counts.fn,
        "recall": counts.recall,
        "recall_interval": (low, recall.high),
        "precision": counts.precision if alarms else math.nan,
        "precision_interval": _share(evidence, target, alarms_raised)[1:],
        "alarms_per_1000": 1000.0 * alarms / total,
        "false_alarms_per_catch": counts.fp / counts.tp if counts.tp else math.nan,
        "average_precision": points.average_precision,
        "roc_auc": points.roc_auc,
        "roc_auc_interval": auc_interval(target, evidence.p, weights, evidence.clusters)[1:],
        "cost_interval": None
        if lows is not None
        else cost_interval(
            target.astype(np.int64), alarms_raised.astype(np.int64), paid, weights, evidence.clusters
        ).scaled(1000.0)[1:],
        "log_loss": float(np.average(log_losses(target, evidence.p), weights=weights)),
        "base_log_loss": float(np.average(log_losses(target, base), weights=weights)),
        "brier": float(np.average((target - evidence.p) ** 2, weights=weights)),
    }


def _explorer(evidence: Evidence, points: OperatingPoints, price: float, most_points: int) -> Values:
    grid = price_grid(price, points.n_neg / points.n_pos)
    start = rounded(price)
    kept = points.thinned([*grid, *typed_prices(grid), start], most_points)
    below = np.append(points.score[1:], 0.0)
    is_exact = kept.size == points.score.size
    return {
        "grid": grid,
        "start": start,
        "windows": WINDOWS,
        "least_variance": LEAST_VARIANCE,
        "most_deviations": EXPENSE_Z,
        "wanted_catches": points.wanted_catches,
        "n_pos": points.n_pos,
        "n_neg": points.n_neg,
        "score": points.score[kept],
        "tp": points.tp[kept],
        "fp": points.fp[kept],
        # What only some pages need: the sum of squared weights, and where points were left out the next score below.
        "square": points.square[kept] if evidence.is_weighted else None,
        "below": None if is_exact else below[kept],
        "noise_factor": evidence.noise,
    }


def _ladder(evidence: Evidence, points: OperatingPoints, price: float) -> list[Values]:
    """Counts at round prices, with the expense of the step from the price before."""
    prices = price_ladder(price, points.n_neg / points.n_pos)
    rows = []
    for one, step in zip(prices, (None, *points.path(prices)), strict=True):
        counts = points.counts(one)
        rows.append(
            {
                "price": one,
                "fn": counts.fn,
                "fp": counts.fp,
                "recall": counts.recall,
                "precision": counts.precision if counts.tp + counts.fp else math.nan,
                "alarms_per_1000": 1000.0 * (counts.tp + counts.fp) / (points.n_pos + points.n_neg),
                "low": step.bracket_low if step else math.nan,
                "expense": step.expense if step else math.nan,
                "verdict": step.verdict if step else "",
                "z": points.judge(step, evidence.noise).z if step else math.nan,
            }
        )
    return rows


def _histogram(evidence: Evidence) -> Values:
    """Shares of each class in bins of equal width on the log-odds scale."""
    logits = log_odds(evidence.p, _EDGE)
    low, high = float(logits.min()), float(logits.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _HISTOGRAM_BINS + 1)
    shares = {}
    for name, mine in (("pos", evidence.target), ("neg", ~evidence.target)):
        counts, _ = np.histogram(logits[mine], edges, weights=evidence.weights[mine])
        shares[name] = counts / evidence.weights[mine].sum()
    return {"edges": 1.0 / (1.0 + np.exp(-edges)), **shares}


def _weight_path(evidence: Evidence, points: OperatingPoints, price: float) -> Values:
    """Class means of these rows' probabilities under every weight, beside what the law makes of their distance."""
    ratio = points.n_neg / points.n_pos
    grid = price_grid(price, ratio)
    prices = np.geomspace(grid[0], grid[-1], _PATH_POINTS)
    rows = []
    for one in prices:
        q = weighted_probability(evidence.p, CostRatio(float(one)))
        means = [
            float(np.average(q[mine], weights=evidence.weights[mine])) for mine in (evidence.target, ~evidence.target)
        ]
        rows.append((*means, *means_by_law(means[0] - means[1], float(one) / ratio)))
    mean_pos, mean_neg, law_pos, law_neg = np.transpose(rows)
    return {"price": prices, "mean_pos": mean_pos, "mean_neg": mean_neg, "law_pos": law_pos, "law_neg": law_neg}
