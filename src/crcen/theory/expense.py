"""Expense: cost of one more catch in false alarms between consecutive weights, beside the cost it should have."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_not_negative
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.price import Price, cost_ratio_of
from crcen.theory.residual_test import two_sided
from crcen.theory.rows import Array, ShownInOneLine

_ROUNDING = 1e-9
# Factors of the weight of a class from step to step; the other weights stay.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class ExpenseStep:
    """One step between two prices, with misses and false alarms at both ends."""

    bracket_low: float  # cost ratios at the start and the end: a right expense lies between them
    bracket_high: float
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
        """Misses that became catches; negative if misses were added."""
        return self.fn_start - self.fn_end

    @property
    def expense(self) -> float:
        """False alarms added per catch gained; NaN if no catch was gained."""
        return self.delta_fp / self.catches if self.catches > 0.0 else math.nan

    @property
    def reason(self) -> str:
        """Why the expense is undefined; empty otherwise."""
        if self.catches > 0.0:
            return ""
        return "no catch was gained" if self.catches == 0.0 else f"{-self.catches:g} catches were lost"

    @property
    def verdict(self) -> str:
        """Position of the expense: "inside" the bracket, "below", "above", or "undefined"."""
        if self.catches <= 0.0:
            return "undefined"
        if self.expense < self.bracket_low * (1.0 - _ROUNDING):
            return "below"
        return "above" if self.expense > self.bracket_high * (1.0 + _ROUNDING) else "inside"

    def deviation(self, noise: float = 1.0, squares: float | None = None) -> float:
        """Standard deviations by which the catches of a moved threshold lie outside of what the bracket allows.

        Negative if a catch cost too much, positive if too little, 0 inside; NaN if too few rows changed to tell.
        ``squares`` is the sum of the squared weights of these rows, by default their number.
        """
        size = self.catches + self.delta_fp
        squares = size if squares is None else squares
        if size <= 0.0 or squares <= 0.0:
            return math.nan
        if self.verdict == "inside":
            return 0.0
        share = 1.0 / (1.0 + (self.bracket_low if self.verdict == "below" else self.bracket_high))
        if share * (1.0 - share) * size**2 / squares < LEAST_VARIANCE:
            return math.nan
        return (self.catches - share * size) / math.sqrt(share * (1.0 - share) * squares * noise)

    def sentence(self, z: float) -> str:
        """The result of a test with this `deviation` in words; beyond `EXPENSE_Z` it is not chance."""
        if self.catches == 0.0 and self.delta_fp == 0.0:
            return "no decision changes between these prices"
        if math.isnan(z):
            return "too few decisions change between these prices to tell"
        if z == 0.0:
            return "inside its bracket"
        where, wrong = ("above its bracket", "high") if z < 0.0 else ("below its bracket", "low")
        if abs(z) <= EXPENSE_Z:
            return f"{where}, within chance"
        return f"{where}, beyond chance: probabilities between these prices are too {wrong}"


@dataclass(frozen=True, repr=False)
class ExpenseTable(ShownInOneLine):
    """The steps of a path of weights, in order; each starts where the one before it ends."""

    steps: tuple[ExpenseStep, ...]

    def __iter__(self) -> Iterator[ExpenseStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def average_price(self) -> float:
        """False alarms per catch over the whole path; NaN if the path gained no catch."""
        first, last = self.steps[0], self.steps[-1]
        catches = first.fn_start - last.fn_end
        return (last.fp_end - first.fp_start) / catches if catches > 0.0 else math.nan

    @property
    def average_line(self) -> list[str]:
        """The average price in words; nothing if there is none."""
        if math.isnan(self.average_price):
            return []
        return [f"average price over the whole path: {self.average_price:.4g} false alarms per catch"]

    def __str__(self) -> str:
        lines = [f"{'cost ratio':>21}  {'FN':>15}  {'FP':>15}  {'expense':>9}  verdict"]
        for step in self.steps:
            prices = f"{step.bracket_low:.4g} -> {step.bracket_high:.4g}"
            misses, alarms = f"{step.fn_start:g} -> {step.fn_end:g}", f"{step.fp_start:g} -> {step.fp_end:g}"
            verdict = step.verdict + (f" ({step.reason})" if step.reason else "")
            expense = "–" if math.isnan(step.expense) else f"{step.expense:.4g}"
            lines.append(f"{prices:>21}  {misses:>15}  {alarms:>15}  {expense:>9}  {verdict}")
        return "\n".join(lines + self.average_line)


def expense_table(weightings: Sequence[object], fn: ArrayLike, fp: ArrayLike) -> ExpenseTable:
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
    """
    prices = [cost_ratio_of(weighting) for weighting in weightings]
    if len(prices) < 2:
        raise InvalidParameter(f"a step needs at least two weightings, got {len(prices)}")
    for low, high in pairwise(prices):
        if low >= high:
            raise InvalidParameter(f"weightings must increase in cost ratio, got {low:g} before {high:g}: sort them")
    counts = {name: check_not_negative(values, name) for name, values in (("fn", fn), ("fp", fp))}
    for name, found in counts.items():
        if found.shape != (len(prices),):
            raise InvalidInput(f"{name} must be one count for each of the {len(prices)} weightings, got {found.shape}")
    ends = zip(*(pairwise(one) for one in (prices, *(found.tolist() for found in counts.values()))), strict=True)
    return ExpenseTable(tuple(ExpenseStep(*price, *misses, *alarms) for price, misses, alarms in ends))


@dataclass(frozen=True)
class ClassStep:
    """Rows that go to a class when its weight is raised."""

    number: int  # of the class
    low: float  # its weight before and after, which bracket the cost of one more row of it if probabilities are right
    high: float
    n_rows: int  # rows that moved
    gained: float  # rows of the class among them
    lost: float  # weight of the rows that were right where they were
    z: float  # standard deviations by which the cost lies outside of its bracket: negative below, 0 inside

    @property
    def price(self) -> float:
        """Cost of one more row of the class; infinite if none was gained."""
        return self.lost / self.gained if self.gained > 0.0 else math.inf


def judge_class_steps(
    y: NDArray[np.int64], p: Array, price: Price, sample_weight: Array, noise: float = 1.0
) -> tuple[ClassStep, ...]:
    """Raise the weight of every class by rising factors, and price each step in which enough rows moved to tell.

    Over rows that move to class k, Σ w_a 1{y=a} − c 1{y=k} is at least 0 in the mean at the weight c before, and at
    most 0 at the one after.
    """
    found, rows, w = [], np.arange(len(y)), price.weights
    for k in range(price.n_classes):
        rest = w * p
        rest[:, k] = -math.inf
        rival = rest.argmax(axis=1)
        dearest, chance = w[rival], p[rows, rival]
        for first, second in pairwise(_FACTORS):
            low, high = (float(one * w[k]) for one in (first, second))
            moved = (dearest * chance >= low * p[:, k]) & (dearest * chance < high * p[:, k]) & (sample_weight > 0.0)
            size, own, other, worth = sample_weight[moved], p[moved, k], chance[moved], dearest[moved]
            variance = own * (1.0 - own)
            if float(size @ variance) ** 2 <= LEAST_VARIANCE * float(size**2 @ variance):
                continue
            gained = float(size @ (y[moved] == k))
            lost = float(size @ (worth * (y[moved] == rival[moved])))
            z = 0.0
            for end, is_outside in ((low, lost < low * gained), (high, lost > high * gained)):
                if is_outside:
                    mean = worth * other - end * own
                    spread = float(size**2 @ (worth**2 * other + end**2 * own - mean**2))
                    z = (lost - end * gained) / math.sqrt(spread * noise)
            found.append(ClassStep(k, low, high, int(moved.sum()), gained, lost, z))
    return tuple(found)


def outside_chance(steps: Sequence[ClassStep]) -> float:
    """Upper bound of the probability of any step so far outside of its bracket; 1 if none is."""
    worst = max((abs(step.z) for step in steps), default=0.0)
    return min(1.0, len(steps) * 0.5 * two_sided(worst)) if worst > 0.0 else 1.0
