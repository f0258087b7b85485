"""A step of an expense curve with its interval and verdict, and the rows behind a curve whose threshold moves."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.theory.expense import ExpenseStep

__all__ = ["CurveRows", "CurveStep"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class CurveRows:
    """The rows behind a curve whose threshold moves.

    Parameters
    ----------
    target : bool array of shape (n,)
        Where rows are positive.
    p : float64 array of shape (n,)
        Natural posteriors.
    weights : float64 array of shape (n,)
        Sample weights.
    """

    target: Bools
    p: Array
    weights: Array


@dataclass(frozen=True)
class CurveStep:
    """One step of an expense curve with its interval.

    Parameters
    ----------
    step : ExpenseStep
        Counts, expense and bracket.
    low, high : float
        Bootstrap interval of the expense; inf where resamples gained no catch, NaN where there is none.
    kind : {"threshold", "retrained"}
        Which curve it belongs to.
    """

    step: ExpenseStep
    low: float
    high: float
    kind: str

    @property
    def verdict(self) -> str:
        """Where the expense lies: "inside" its bracket, "below", "above", or "undefined"."""
        return self.step.verdict

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the whole interval lies outside the bracket."""
        return self.low > self.step.bracket_high or self.high < self.step.bracket_low

    @property
    def reason(self) -> str:
        """The verdict as a sentence: what it means on this curve, or why there is none."""
        if self.verdict == "undefined":
            same = self.kind == "threshold" and self.step.delta_fp == 0.0 and self.step.catches == 0.0
            return "no row lies between the two thresholds" if same else self.step.reason
        if self.verdict == "inside":
            return ""
        if math.isnan(self.low):
            return "no interval, so nobody can say whether this is chance"
        if not self.is_beyond_noise:
            return "its interval reaches the bracket: may be chance"
        wrong = f"probabilities between these prices are too {'high' if self.verdict == 'above' else 'low'}"
        return wrong if self.kind == "threshold" else f"{wrong}, or the ranking changed from one network to the next"
