"""Every number of the page, computed in float64, as one dict that JSON can hold."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.values import json_value
from crcen.report.decision_numbers import decision_numbers
from crcen.report.evidence import Evidence, kept_by
from crcen.report.importance import Importances
from crcen.report.operating_points import (
    WINDOWS,
    OperatingPoints,
    price_grid,
    price_ladder,
    rounded,
    typed_prices,
)
from crcen.report.reliability_groups import ReliabilityGroup
from crcen.theory.class_means import means_by_law
from crcen.theory.decision import weighted_probability
from crcen.theory.intervals import auc_interval, share_interval
from crcen.theory.key_equation import KeyEquation, key_equation
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.metrics import log_losses
from crcen.theory.price import CostRatio

__all__ = ["DRAWN", "key_equations", "measure"]

Array = NDArray[np.float64]

MOST_POINTS = 2000
# What the script draws; the rest of the measurements is in the text already.
DRAWN = ("explorer", "reliability", "histogram", "key_equations", "path", "decisions", "models")
_HISTOGRAM_BINS = 36
_PATH_POINTS = 61
# Probabilities are drawn on the log-odds scale between these ends.
_EDGE = 1e-6


def measure(
    evidence: Evidence,
    points: OperatingPoints,
    groups: Sequence[ReliabilityGroup],
    importances: Importances,
    equations: Mapping[str, KeyEquation],
    models: Sequence[Mapping[str, Any]] = (),
    most_points: int = MOST_POINTS,
) -> dict[str, Any]:
    """Put together what the page shows.

    Parameters
    ----------
    evidence : Evidence
        The model and its rows.
    points : OperatingPoints
        Counts at every price.
    groups : sequence of ReliabilityGroup
        Reliability of the probabilities.
    importances : Importances
        What each column is worth.
    equations : dict of KeyEquation
        As `key_equations` gives them.
    models : sequence of dict
        As `crcen.report.comparison.compare` gives them.
    most_points : int
        Of the explorer.

    Returns
    -------
    dict
        Numbers, texts, lists and dicts only; None where a number does not exist.
    """
    price = evidence.weighting.cost_ratio
    return json_value(
        {
            "rows": _rows(evidence),
            "quality": _quality(evidence, points, price),
            "explorer": _explorer(evidence, points, price, most_points),
            "ladder": _ladder(evidence, points, price),
            "reliability": [asdict(group) for group in groups],
            "histogram": _histogram(evidence),
            "key_equations": {name: _equation(name, one, evidence) for name, one in equations.items()},
            "path": _weight_path(evidence, points, price),
            "decisions": decision_numbers(evidence, price),
            "models": list(models),
            "importance": asdict(importances),
        },
        shorten=True,
    )


def key_equations(evidence: Evidence) -> dict[str, KeyEquation]:
    """The key equation of the training rows and out of fold, where the model keeps them, and on these rows."""
    found = {}
    for name, attribute in (("training", "key_equation_"), ("out_of_fold", "oof_key_equation_")):
        kept = kept_by(evidence.model, attribute)
        if isinstance(kept, KeyEquation):
            found[name] = kept
    # From the natural probabilities, on which decisions are made, as an evaluation has them.
    q = weighted_probability(evidence.p, evidence.weighting)
    found["these_rows"] = key_equation(
        evidence.target, q, evidence.weighting, evidence.weights, training_error=evidence.training_error
    )
    return found


def _rows(evidence: Evidence) -> dict[str, Any]:
    n_pos, n_neg = evidence.totals
    return {
        "n_rows": evidence.n_rows,
        "n_columns": len(evidence.columns),
        "n_positive_rows": int(evidence.target.sum()),
        "n_pos": n_pos,
        "n_neg": n_neg,
        "share": n_pos / (n_pos + n_neg),
        "is_weighted": evidence.is_weighted,
        "is_out_of_fold": evidence.is_out_of_fold,
        "pos_label": str(evidence.pos_label),
        "neg_label": str(evidence.neg_label),
    }


def _quality(evidence: Evidence, points: OperatingPoints, price: float) -> dict[str, Any]:
    counts = points.counts(price)
    total = points.n_pos + points.n_neg
    alarms = counts.tp + counts.fp
    alarms_raised = evidence.p > 1.0 / (1.0 + price)
    losses = log_losses(evidence.target, evidence.p)
    share = points.n_pos / total
    base = np.full(evidence.n_rows, share)
    return {
        "price": price,
        "threshold": evidence.weighting.threshold,
        "has_price": evidence.has_price,
        "tp": counts.tp,
        "fp": counts.fp,
        "fn": counts.fn,
        "tn": counts.tn,
        "recall": counts.recall,
        "recall_interval": share_interval(alarms_raised[evidence.target], evidence.weights[evidence.target])[1:],
        "precision": counts.precision if alarms else math.nan,
        "precision_interval": share_interval(evidence.target[alarms_raised], evidence.weights[alarms_raised])[1:],
        "f1": counts.f1,
        "g_mean": counts.g_mean,
        "specificity": counts.specificity,
        "alarms_per_1000": 1000.0 * alarms / total,
        "false_alarms_per_catch": counts.fp / counts.tp if counts.tp else math.nan,
        "average_precision": points.average_precision,
        "roc_auc": points.roc_auc,
        "roc_auc_interval": auc_interval(evidence.target, evidence.p, evidence.weights)[1:],
        "log_loss": float(np.average(losses, weights=evidence.weights)),
        "base_log_loss": float(np.average(log_losses(evidence.target, base), weights=evidence.weights)),
        "brier": float(np.average((evidence.target - evidence.p) ** 2, weights=evidence.weights)),
    }


def _explorer(evidence: Evidence, points: OperatingPoints, price: float, most_points: int) -> dict[str, Any]:
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
        "noise_factor": evidence.noise_factor,
    }


def _ladder(evidence: Evidence, points: OperatingPoints, price: float) -> list[dict[str, Any]]:
    """Counts at round prices, with the expense of the step from the price before."""
    prices = price_ladder(price, points.n_neg / points.n_pos)
    rows = []
    steps = (None, *points.path(prices))
    for one, step in zip(prices, steps, strict=True):
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
                "z": points.judge(step, evidence.noise_factor).z if step else math.nan,
            }
        )
    return rows


def _histogram(evidence: Evidence) -> dict[str, Any]:
    """Shares of each class in bins of equal width on the log-odds scale."""
    inside = np.clip(evidence.p, _EDGE, 1.0 - _EDGE)
    logits = np.log(inside) - np.log1p(-inside)
    low, high = float(logits.min()), float(logits.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _HISTOGRAM_BINS + 1)
    shares = {}
    for name, mine in (("pos", evidence.target), ("neg", ~evidence.target)):
        counts, _ = np.histogram(logits[mine], edges, weights=evidence.weights[mine])
        shares[name] = counts / evidence.weights[mine].sum()
    return {"edges": 1.0 / (1.0 + np.exp(-edges)), **shares}


def _equation(name: str, one: KeyEquation, evidence: Evidence) -> dict[str, Any]:
    """Both sides; the test only on these rows, where it is one, and with the model's own error counted in."""
    found = {side: getattr(one, side) for side in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg")}
    test = evidence.tested(one) if name == "these_rows" else None
    return {
        **found,
        "z": test.z if test else math.nan,
        "p_value": test.p_value if test else math.nan,
        "verdict": test.verdict if test else "",
        "z_reason": one.z_reason,
    }


def _weight_path(evidence: Evidence, points: OperatingPoints, price: float) -> dict[str, Any]:
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
