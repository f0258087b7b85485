"""Several models on the same rows, side by side."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.report.evidence import Evidence
from crcen.report.operating_points import price_grid
from crcen.theory.curves import DecisionCurves, ThresholdCurve, average_precision, roc_area
from crcen.theory.metrics import log_losses
from crcen.theory.rows import check_probabilities

__all__ = ["compare"]

Array = NDArray[np.float64]

_POINTS = 81


def compare(evidence: Evidence, others: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    """Every model's figures at the price of the first, with the difference of costs from it.

    Parameters
    ----------
    evidence : Evidence
        The first model and its rows.
    others : dict of str to array of shape (n,)
        Natural probabilities of the positive class by other models, for the same rows.
    name : str
        What the first is called.

    Returns
    -------
    list of dict
        One for each model, the first one first; empty without others.
    """
    if not others:
        return []
    price = evidence.weighting.cost_ratio
    first = _costs(evidence, evidence.p, price)
    found = []
    for label, given in [(name, evidence.p), *others.items()]:  # files in two folders may have one name
        p = check_probabilities(given, f"probabilities of {label}")
        if p.shape != evidence.p.shape:
            raise InvalidInput(f"{label} must give one probability for each of {evidence.n_rows} rows, got {p.shape}")
        found.append({"name": label, **_figures(evidence, p, price, first)})
    return found


def _costs(evidence: Evidence, p: Array, price: float) -> Array:
    """What the decision on each row cost, in false alarms."""
    alarms = p > evidence.weighting.threshold
    return np.where(evidence.target, price * ~alarms, 1.0 * alarms)


def _figures(evidence: Evidence, p: Array, price: float, first: Array) -> dict[str, Any]:
    target, weights = evidence.target, evidence.weights
    curve = ThresholdCurve(target, p)
    tp, fp = curve.totals(weights)
    curves = DecisionCurves(target, p, weights)
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _POINTS))
    caught, alarmed = (float(one[0]) for one in curves.counts_above(np.array([evidence.weighting.threshold])))
    more = _costs(evidence, p, price) - first
    total = float(weights.sum())
    mean = float(weights @ more) / total
    half = 1.96 * float(np.sqrt(np.sum(weights**2 * (more - mean) ** 2))) / total
    return {
        "average_precision": average_precision(tp, fp),
        "roc_auc": roc_area(tp, fp),
        "log_loss": float(np.average(log_losses(target, p), weights=weights)),
        "brier": float(np.average((target - p) ** 2, weights=weights)),
        "found": caught,
        "alarms": caught + alarmed,
        "cost_per_1000": 1000.0 * (price * (curves.n_pos - caught) + alarmed) / total,
        "more_per_1000": 1000.0 * mean,
        "interval": [1000.0 * (mean - half), 1000.0 * (mean + half)],
        "net_benefit": {"price": benefit.price, "model": benefit.model},
    }
