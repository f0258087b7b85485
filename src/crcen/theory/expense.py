"""Expense: what one more catch costs in false alarms between consecutive weights, beside what it should cost."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Budget, CostRatio, Lam, Price, WeightingLike, as_spec, cost_ratio_of
from crcen.theory.rows import check_not_negative
from crcen.theory.shown import Shown, in_one_line

__all__ = ["ExpenseStep", "ExpenseTable", "PricedWeighting", "expense_table"]

PricedWeighting: TypeAlias = Price | Lam | CostRatio | Budget

_ROUNDING = 1e-9


@dataclass(frozen=True)
class ExpenseStep:
    """One step along a path of weights.

    Parameters
    ----------
    start, end : Price, Lam, CostRatio or Budget
        The weightings the step goes between.
    fn_start, fn_end, fp_start, fp_end : float
        Misses and false alarms at both ends.
    """

    start: PricedWeighting
    end: PricedWeighting
    fn_start: float
    fn_end: float
    fp_start: float
    fp_end: float

    @property
    def delta_fp(self) -> float:
        """False alarms added."""
        return self.fp_end - self.fp_start

    @property
    def catches(self) -> float:
        """Misses that became catches; negative where misses were added."""
        return self.fn_start - self.fn_end

    @property
    def expense(self) -> float:
        """False alarms added per catch gained; NaN where no catch was gained."""
        return self.delta_fp / self.catches if self.catches > 0.0 else math.nan

    @property
    def bracket_low(self) -> float:
        """The cost ratio at the start: a right expense is not below it."""
        return cost_ratio_of(self.start)

    @property
    def bracket_high(self) -> float:
        """The cost ratio at the end: a right expense is not above it."""
        return cost_ratio_of(self.end)

    @property
    def reason(self) -> str:
        """Why the expense is undefined; empty where it is not."""
        if self.catches > 0.0:
            return ""
        return "no catch was gained" if self.catches == 0.0 else f"{-self.catches:g} catches were lost"

    @property
    def verdict(self) -> str:
        """Where the expense lies: "inside" the bracket, "below", "above", or "undefined"."""
        if self.reason:
            return "undefined"
        if self.expense < self.bracket_low * (1.0 - _ROUNDING):
            return "below"
        return "above" if self.expense > self.bracket_high * (1.0 + _ROUNDING) else "inside"


@dataclass(frozen=True)
class ExpenseTable(Shown):
    """The steps of a path of weights, in order.

    Parameters
    ----------
    steps : tuple of ExpenseStep
        At least one; each starts where the one before it ends.
    """

    steps: tuple[ExpenseStep, ...]

    def __iter__(self) -> Iterator[ExpenseStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def average_price(self) -> float:
        """False alarms per catch over the whole path; NaN where the path gained no catch."""
        first, last = self.steps[0], self.steps[-1]
        catches = first.fn_start - last.fn_end
        return (last.fp_end - first.fp_start) / catches if catches > 0.0 else math.nan

    def rows(self) -> list[dict[str, float | str]]:
        """List the steps as dicts of plain values, ready for a data frame or a file.

        Returns
        -------
        list of dict
            One for each step: weightings as text, counts, expense, bracket, verdict, reason.
        """
        return [
            {
                "start": str(step.start),
                "end": str(step.end),
                "fn_start": step.fn_start,
                "fn_end": step.fn_end,
                "fp_start": step.fp_start,
                "fp_end": step.fp_end,
                "delta_fp": step.delta_fp,
                "catches": step.catches,
                "expense": step.expense,
                "bracket_low": step.bracket_low,
                "bracket_high": step.bracket_high,
                "verdict": step.verdict,
                "reason": step.reason,
            }
            for step in self.steps
        ]

    __repr__ = in_one_line

    def __str__(self) -> str:
        lines = [f"{'cost ratio':>21}  {'FN':>15}  {'FP':>15}  {'expense':>9}  verdict"]
        for step in self.steps:
            prices = f"{step.bracket_low:.4g} -> {step.bracket_high:.4g}"
            misses, alarms = f"{step.fn_start:g} -> {step.fn_end:g}", f"{step.fp_start:g} -> {step.fp_end:g}"
            verdict = step.verdict + (f" ({step.reason})" if step.reason else "")
            lines.append(f"{prices:>21}  {misses:>15}  {alarms:>15}  {_shown(step.expense):>9}  {verdict}")
        if not math.isnan(self.average_price):
            lines.append(f"average price over the whole path: {self.average_price:.4g} false alarms per catch")
        return "\n".join(lines)


def _shown(price: float) -> str:
    """A price to four digits, a dash where there is none."""
    return "–" if math.isnan(price) else f"{price:.4g}"


def _counts(values: ArrayLike, name: str, n: int) -> list[float]:
    counts = check_not_negative(values, name)
    if counts.shape != (n,):
        raise InvalidInput(f"{name} must be one count for each of the {n} weightings, got shape {counts.shape}")
    return [float(count) for count in counts]


def _priced(weighting: WeightingLike) -> PricedWeighting:
    """Keep what has a price without class counts; `cost_ratio_of` refuses the rest."""
    cost_ratio_of(weighting)
    if isinstance(weighting, Price):
        return weighting
    spec = as_spec(weighting)
    assert isinstance(spec, Lam | CostRatio | Budget)
    return spec


def expense_table(weightings: Sequence[WeightingLike], fn: ArrayLike, fp: ArrayLike) -> ExpenseTable:
    """Price each step of a path of weights.

    If probabilities are right, a row that flips between the cost ratios c₁ and c₂ has a posterior between the two
    thresholds, so the expense lies in [c₁, c₂]. This holds for expected counts, for nested decisions (one model's
    threshold moved) and at the natural class ratio; between separately trained networks a step outside its bracket may
    also be a changed ranking. Nothing is clipped.

    Parameters
    ----------
    weightings : sequence of Price, Lam, CostRatio, Budget, float or None
        In increasing order of cost ratio, at least two; a plain number is λ, so wrap a cost ratio as CostRatio(c).
    fn, fp : array of shape (len(weightings),)
        Misses and false alarms at each weighting; weighted counts allowed.

    Returns
    -------
    ExpenseTable
        One step between each two neighbours.

    Raises
    ------
    InvalidParameter
        If the weightings are fewer than two, not increasing, or need class counts.
    InvalidInput
        If counts are negative, not finite, or not one for each weighting.
    """
    path = [_priced(weighting) for weighting in weightings]
    if len(path) < 2:
        raise InvalidParameter(f"a step needs at least two weightings, got {len(path)}")
    prices = [cost_ratio_of(weighting) for weighting in path]
    for low, high in pairwise(prices):
        if low >= high:
            raise InvalidParameter(
                f"weightings must increase in cost ratio, got {low:g} before {high:g}: sort them first"
            )
    misses, alarms = _counts(fn, "fn", len(path)), _counts(fp, "fp", len(path))
    return ExpenseTable(
        tuple(
            ExpenseStep(path[i], path[i + 1], misses[i], misses[i + 1], alarms[i], alarms[i + 1])
            for i in range(len(path) - 1)
        )
    )
