"""Every number of the page, computed in float64, as one dict that JSON can hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.values import Values, json_value
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
from crcen.report.quality import RowMetrics, share_log_loss
from crcen.theory.checks import check_class_probabilities, check_probabilities
from crcen.theory.curves import DecisionCurves
from crcen.theory.decision import weighted_probability
from crcen.theory.key_equation import KeyEquation, means_by_law
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.metrics import Quality, measure_quality
from crcen.theory.price import CostRatio
from crcen.theory.rows import Array, Index

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
    """Numbers of the page for a positive class, None if one does not exist; ``models`` are those of `compare`."""
    price, points = evidence.price.cost_ratio, evidence.of(points_of)
    found: Values = json_value(
        {
            "rows": _rows(evidence),
            "quality": _quality(evidence),
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
    return {**found, "these_rows": evidence.equations}


# -- several models -----------------------------------------------------------------------------------------------


def compare(evidence: Evidence, others: Mapping[str, ArrayLike], name: str) -> list[Values]:
    """Metrics of every model at the price or costs of the first one, ``name``, with the paired difference of costs.

    ``others`` are natural probabilities for the same rows, of the positive class or of every class, by model.
    """
    if not others:
        return []
    found, weights, total = [], evidence.weights, float(evidence.weights.sum())
    price = evidence.price if evidence.has_positive else evidence.price.replace(evidence.cost_matrix)
    first = RowMetrics(evidence.y, evidence.proba, price, weights).paid
    for label, given in [(name, None), *others.items()]:
        proba = evidence.proba if given is None else _compared_probabilities(evidence, given, label)
        rows = RowMetrics(evidence.y, proba, price, weights)
        more = rows.paid - first
        mean = float(weights @ more) / total
        half = 1.96 * float(np.sqrt(np.sum(weights**2 * (more - mean) ** 2))) / total
        one = {"name": label, **rows.values(), "more_per_1000": 1000.0 * mean}
        one["interval"] = [1000.0 * (mean - half), 1000.0 * (mean + half)]
        found.append(one | (_alarm_values(rows, price.cost_ratio) if evidence.has_positive else {}))
    return found


def _alarm_values(rows: RowMetrics, price: float) -> Values:
    """Alarms and net benefit of a model with a positive class."""
    curves, counts = DecisionCurves(rows.y == rows.column, rows.p[:, rows.column], rows.weights), rows.confusion
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _COMPARED_POINTS))
    found = {"found": counts.tp, "alarms": counts.tp + counts.fp}
    return {**found, "net_benefit": {"price": benefit.x, "model": benefit.model}}


def _compared_probabilities(evidence: Evidence, given: ArrayLike, name: str) -> Array:
    """Probabilities (n, K) of another model."""
    if not evidence.has_positive:
        return check_class_probabilities(given, evidence.n_rows, evidence.labels.n_classes, f"probabilities of {name}")
    p = check_probabilities(given, f"probabilities of {name}")
    if p.shape != evidence.y.shape:
        raise InvalidInput(f"{name} must give one probability for each of {evidence.n_rows} rows, got {p.shape}")
    return evidence.labels.in_order(np.column_stack([1.0 - p, p]))


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


def _quality(evidence: Evidence) -> Values:
    rows = RowMetrics(evidence.y, evidence.proba, evidence.price, evidence.weights, clusters=evidence.clusters)
    metrics, counts, lows = rows.measured(), rows.confusion, evidence.recall_lows
    limits = {name: one[1:] for name, one in metrics.items()}
    if lows is not None:
        limits["recall"] = float(np.fmin(limits["recall"][0], lows[evidence.labels.column])), limits["recall"][1]
    return {
        **{name: one.value for name, one in metrics.items()},
        "price": evidence.price.cost_ratio,
        "threshold": evidence.price.threshold,
        "has_price": evidence.has_price,
        "tp": counts.tp,
        "fp": counts.fp,
        "fn": counts.fn,
        "recall_interval": limits["recall"],
        "precision_interval": limits["precision"],
        "roc_auc_interval": limits["roc_auc"],
        "cost_interval": None if lows is not None else limits["cost_per_1000"],
        "base_log_loss": share_log_loss(evidence.totals),
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
