"""The numbers of the curves that people judge decisions by, few enough for a page."""

from typing import Any

import numpy as np

from crcen.report.evidence import Evidence
from crcen.report.operating_points import price_grid
from crcen.theory.curves import DecisionCurves

__all__ = ["decision_numbers"]

_POINTS = 121
_MOST_CUTS = 240


def decision_numbers(evidence: Evidence, price: float) -> dict[str, Any]:
    """Net benefit, cost curve, Brier curve and gains.

    Parameters
    ----------
    evidence : Evidence
        The model's answers and their labels.
    price : float
        Of the model; the prices are those of the page's slider around it.

    Returns
    -------
    dict
        Of lists of numbers.
    """
    curves = DecisionCurves(evidence.target, evidence.p, evidence.weights)
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _POINTS))
    cost, brier, gains = curves.cost_curve(_POINTS), curves.brier_curve(_POINTS), curves.gains()
    # Cuts at even steps of rows, with the first ones, where lift is largest, at even steps of their logarithm.
    wanted = np.concatenate([np.linspace(0.0, 1.0, _MOST_CUTS // 2), np.geomspace(1e-4, 1.0, _MOST_CUTS // 2)])
    kept = np.unique(np.clip(np.searchsorted(gains.rows, wanted), 0, gains.rows.size - 1))
    return {
        "net_benefit": {"price": benefit.price, "model": benefit.model, "everybody": benefit.alarm_on_all},
        "cost": {"share": cost.share, "model": cost.model, "trivial": cost.trivial},
        "brier": {"share": brier.share, "model": brier.model, "lowest": brier.lowest, "trivial": brier.trivial},
        "gains": {"rows": gains.rows[kept], "found": gains.found[kept]},
    }
