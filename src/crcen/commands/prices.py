"""What catches cost around a price: the expense of two steps, as text and as plain values."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import CostRatio, ExpenseCurve
from crcen._support.values import json_value
from crcen.theory.expense import judge_step
from crcen.theory.price import Price

__all__ = ["average_price", "plain_price", "prices_around", "step_lines", "step_values"]

Array = NDArray[np.float64]


def plain_price(price: float) -> float:
    """A price without the last digits that a way through λ leaves: 10, not 9.999999999999996."""
    return float(f"{price:.12g}")


def average_price(p: Array, weights: Array) -> float:
    """False alarms that an average catch is expected to cost among alarms of these probabilities."""
    catches = float(p @ weights)
    return float((1.0 - p) @ weights) / catches if catches > 0.0 else math.nan


def prices_around(price: Price) -> list[CostRatio]:
    """Half the price, the price, twice the price."""
    return [CostRatio(plain_price(price.cost_ratio) * factor) for factor in (0.5, 1.0, 2.0)]


def step_values(curve: ExpenseCurve, noise: float = 1.0) -> list[dict[str, Any]]:
    """Each step as plain values, ready for JSON; ``noise`` as `fitted_model_noise` gives it."""
    values = []
    for one in curve.steps:
        test = judge_step(one.step, noise)
        values.append(
            {
                "bracket": [plain_price(one.step.bracket_low), plain_price(one.step.bracket_high)],
                "catches": one.step.catches,
                "false_alarms": one.step.delta_fp,
                "expense": json_value(one.step.expense),
                "interval": [json_value(one.low), json_value(one.high)],
                "verdict": one.verdict,
                "standard_deviations": json_value(test.z),
                "is_beyond_noise": test.is_beyond_chance,
                "reason": test.sentence,
            }
        )
    return values


def step_lines(curve: ExpenseCurve, noise: float = 1.0) -> list[str]:
    """Each step as a line: the bracket, what was paid, and the verdict."""
    lines = []
    for one in curve.steps:
        bracket = f"  price {one.step.bracket_low:.4g} to {one.step.bracket_high:.4g}"
        paid = f"{one.step.catches:,.6g} more found for {one.step.delta_fp:,.6g} more false alarms"
        if one.step.catches > 0.0:
            paid += f", {one.step.expense:.4g} a catch"
        if math.isfinite(one.low) and math.isfinite(one.high):
            paid += f" ({one.low:.4g} to {one.high:.4g})"
        lines.append(f"{bracket:<26} {paid}: {judge_step(one.step, noise).sentence}")
    return lines
