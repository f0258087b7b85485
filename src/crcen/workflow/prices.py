"""What catches cost around a price: the expense of two steps, as text and as plain values."""

from typing import Any

from crcen import ClassWeighting, CostRatio, ExpenseCurve
from crcen.workflow.inputs import plain

__all__ = ["prices_around", "step_lines", "step_values"]


def prices_around(price: ClassWeighting) -> list[CostRatio]:
    """Half the price, the price, twice the price."""
    return [CostRatio(price.cost_ratio * factor) for factor in (0.5, 1.0, 2.0)]


def step_values(curve: ExpenseCurve) -> list[dict[str, Any]]:
    """Each step as plain values, ready for JSON."""
    return [
        {
            "bracket": [one.step.bracket_low, one.step.bracket_high],
            "catches": one.step.catches,
            "false_alarms": one.step.delta_fp,
            "expense": plain(one.step.expense),
            "interval": [plain(one.low), plain(one.high)],
            "verdict": one.verdict,
            "is_beyond_noise": bool(one.is_beyond_noise),
            "reason": one.reason,
        }
        for one in curve.steps
    ]


def step_lines(curve: ExpenseCurve) -> list[str]:
    """Each step as a line: the bracket, what was paid, and the verdict."""
    lines = []
    for one in curve.steps:
        bracket = f"  price {one.step.bracket_low:.4g} to {one.step.bracket_high:.4g}"
        if one.verdict == "undefined":
            lines.append(f"{bracket:<26} no verdict: {one.reason}")
            continue
        paid = f"paid {one.step.expense:.4g} ({one.low:.4g} to {one.high:.4g})"
        reason = f"; {one.reason}" if one.reason else ""
        lines.append(f"{bracket:<26} {paid}: {one.verdict}{' its bracket' if one.verdict == 'inside' else ''}{reason}")
    return lines
