"""Expense: cost of one more catch in false alarms between consecutive weights, beside the cost it should have.

For K classes the same is measured for steps of the weight of one class, and for pairs of classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.price import Budget, CostRatio, Lam, Price, as_spec, cost_ratio_of
from crcen.theory.residual_test import two_sided
from crcen.theory.rows import Array, Shown, check_class_numbers, check_not_negative, check_row_weights, in_one_line

PricedWeighting: TypeAlias = Price | Lam | CostRatio | Budget

_ROUNDING = 1e-9
# Factors of the weight of a class from step to step; the other weights stay.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class ExpenseStep:
    """One step along a path of weights.

    Parameters
    ----------
    start, end : Price, Lam, CostRatio or Budget
        The weightings that the step connects.
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
        """Misses that became catches; negative if misses were added."""
        return self.fn_start - self.fn_end

    @property
    def expense(self) -> float:
        """False alarms added per catch gained; NaN if no catch was gained."""
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
        """Why the expense is undefined; empty otherwise."""
        if self.catches > 0.0:
            return ""
        return "no catch was gained" if self.catches == 0.0 else f"{-self.catches:g} catches were lost"

    @property
    def verdict(self) -> str:
        """Position of the expense: "inside" the bracket, "below", "above", or "undefined"."""
        if self.reason:
            return "undefined"
        if self.expense < self.bracket_low * (1.0 - _ROUNDING):
            return "below"
        return "above" if self.expense > self.bracket_high * (1.0 + _ROUNDING) else "inside"


@dataclass(frozen=True)
class ExpenseTable(Shown):
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

    def rows(self) -> list[dict[str, float | str]]:
        """The steps as dicts of plain values, ready for a data frame or a file."""
        names = ("fn_start", "fn_end", "fp_start", "fp_end", "delta_fp", "catches")
        rest = ("expense", "bracket_low", "bracket_high", "verdict", "reason")
        return [
            {"start": str(step.start), "end": str(step.end), **{name: getattr(step, name) for name in (*names, *rest)}}
            for step in self.steps
        ]

    __repr__ = in_one_line

    def __str__(self) -> str:
        lines = [f"{'cost ratio':>21}  {'FN':>15}  {'FP':>15}  {'expense':>9}  verdict"]
        for step in self.steps:
            prices = f"{step.bracket_low:.4g} -> {step.bracket_high:.4g}"
            misses, alarms = f"{step.fn_start:g} -> {step.fn_end:g}", f"{step.fp_start:g} -> {step.fp_end:g}"
            verdict = step.verdict + (f" ({step.reason})" if step.reason else "")
            expense = "–" if math.isnan(step.expense) else f"{step.expense:.4g}"
            lines.append(f"{prices:>21}  {misses:>15}  {alarms:>15}  {expense:>9}  {verdict}")
        if not math.isnan(self.average_price):
            lines.append(f"average price over the whole path: {self.average_price:.4g} false alarms per catch")
        return "\n".join(lines)


def expense_table(weightings: Sequence[Any], fn: ArrayLike, fp: ArrayLike) -> ExpenseTable:
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
    prices = [cost_ratio_of(weighting) for weighting in weightings]  # refuses what needs counts
    path: list[Any] = [one if isinstance(one, Price) else as_spec(one) for one in weightings]
    if len(path) < 2:
        raise InvalidParameter(f"a step needs at least two weightings, got {len(path)}")
    for low, high in pairwise(prices):
        if low >= high:
            raise InvalidParameter(
                f"weightings must increase in cost ratio, got {low:g} before {high:g}: sort them first"
            )
    counts = []
    for name, values in (("fn", fn), ("fp", fp)):
        found = check_not_negative(values, name)
        if found.shape != (len(path),):
            raise InvalidInput(f"{name} must be one count for each of the {len(path)} weightings, got {found.shape}")
        counts.append(found.tolist())
    ends = [(*pair, *misses, *alarms) for pair, misses, alarms in zip(*map(pairwise, (path, *counts)), strict=True)]
    return ExpenseTable(tuple(ExpenseStep(*one) for one in ends))


@dataclass(frozen=True)
class StepTest:
    """A step between two prices, and whether its cost is explained by chance.

    Parameters
    ----------
    step : ExpenseStep
        Counts, expense and bracket.
    z : float
        How far the catches lie outside of what the bracket allows, in standard deviations: negative if a catch cost too
        much, positive if it cost too little, 0 inside; NaN if too few rows changed to tell.
    """

    step: ExpenseStep
    z: float

    @property
    def is_beyond_chance(self) -> bool:
        """Whether it lies more than `EXPENSE_Z` standard deviations outside."""
        return abs(self.z) > EXPENSE_Z

    @property
    def sentence(self) -> str:
        """The result in words."""
        if self.step.catches == 0.0 and self.step.delta_fp == 0.0:
            return "no decision changes between these prices"
        if math.isnan(self.z):
            return "too few decisions change between these prices to tell"
        if self.z == 0.0:
            return "inside its bracket"
        where = "above its bracket" if self.z < 0.0 else "below its bracket"
        if not self.is_beyond_chance:
            return f"{where}, within chance"
        return f"{where}, beyond chance: probabilities between these prices are too {'high' if self.z < 0 else 'low'}"


def judge_step(step: ExpenseStep, noise: float = 1.0, squares: float | None = None) -> StepTest:
    """Test the cost of one step of a moved threshold.

    A row that flips has a posterior between the two thresholds if probabilities are right. So the share of positives
    among the rows that flip lies, up to chance, between them.

    Parameters
    ----------
    step : ExpenseStep
        Between two prices.
    noise : float
        As `crcen.theory.limits.fitted_noise` gives it; 1 for the true posterior.
    squares : float, optional
        Sum of the squared weights of the rows that flip; by default their number.
    """
    size = step.catches + step.delta_fp
    squares = size if squares is None else squares
    if size <= 0.0 or squares <= 0.0:
        return StepTest(step, math.nan)
    if step.verdict == "inside":
        return StepTest(step, 0.0)
    share = 1.0 / (1.0 + (step.bracket_low if step.verdict == "below" else step.bracket_high))
    if share * (1.0 - share) * size**2 / squares < LEAST_VARIANCE:
        return StepTest(step, math.nan)
    z = (step.catches - share * size) / math.sqrt(share * (1.0 - share) * squares)
    return StepTest(step, z / math.sqrt(noise))


@dataclass(frozen=True)
class ClassStep:
    """Rows that go to a class when its weight is raised.

    Parameters
    ----------
    number : int
        Of the class.
    low, high : float
        Its weight before and after, which bracket the cost of one more row of it if probabilities are right.
    n_rows : int
        Rows that moved.
    gained : float
        Rows of the class among them.
    lost : float
        Weight of the rows that were right where they were.
    z : float
        How far the cost lies outside of its bracket, in standard deviations: negative below, positive above, 0 inside.
    """

    number: int
    low: float
    high: float
    n_rows: int
    gained: float
    lost: float
    z: float

    @property
    def price(self) -> float:
        """Cost of one more row of the class; infinite if none was gained."""
        return self.lost / self.gained if self.gained > 0.0 else math.inf


def judge_class_steps(
    y: NDArray[np.int64],
    p: Array,
    price: Price,
    sample_weight: Array,
    noise: float = 1.0,
    factors: Sequence[float] = FACTORS,
) -> tuple[ClassStep, ...]:
    """Raise the weight of every class step by step, and measure the cost of each step.

    A row that goes from class a to class k has w_a p_a between c p_k at the weights c of k before and after. So the sum
    of w_a 1{y=a} − c 1{y=k} over the rows that move is, up to chance, not below 0 at the first c and not above 0 at the
    second.

    Parameters
    ----------
    y, p, sample_weight
        Class numbers (n,), natural probabilities (n, K), weights of rows (n,).
    price : Price
        Class weights at which steps begin; only ratios matter.
    noise : float
        How much more sums of new rows vary than under the truth.
    factors : sequence of float
        Factors of the weight of a class, rising.

    Returns
    -------
    tuple of ClassStep
        Those in which enough rows moved to tell.
    """
    found, rows, w = [], np.arange(len(y)), price.weights
    for k in range(price.n_classes):
        rest = w * p
        rest[:, k] = -math.inf
        rival = rest.argmax(axis=1)
        dearest, chance = w[rival], p[rows, rival]
        for first, second in pairwise(factors):
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


@dataclass(frozen=True)
class PairExpense:
    """Rows that were decided for one class at the first weights and for another at the second.

    Parameters
    ----------
    source, target : int
        Numbers of the class that rows left, and of the one they went to.
    n_rows : int
        How many.
    lost, gained : float
        Rows of ``source`` and of ``target`` among them: expected ones, or counted if labels were given.
    low, high : float
        The bracket w_target / w_source before and after. A row that moved has a ratio of probabilities inside it.
    """

    source: int
    target: int
    n_rows: int
    lost: float
    gained: float
    low: float
    high: float

    @property
    def expense(self) -> float:
        """Rows of ``source`` lost for one of ``target`` gained; NaN if none was gained."""
        return self.lost / self.gained if self.gained > 0.0 else math.nan

    @property
    def is_inside(self) -> bool:
        """Whether the expense is inside its bracket, as expected ones always are."""
        return self.low * (1.0 - _ROUNDING) <= self.expense <= self.high * (1.0 + _ROUNDING)


@dataclass(frozen=True)
class PairExpenses(Shown):
    """Rows that a change of class weights moved.

    Parameters
    ----------
    pairs : tuple of PairExpense
        For every pair of classes between which rows moved.
    raised : int or None
        The one class whose weight was raised, the others keeping theirs; None for another change.
    price : float
        Then: weight of all rows lost to other classes for one row of ``raised`` gained; else NaN.
    low, high : float
        Then: the weight of ``raised`` before and after, between which an expected price lies.
    """

    pairs: tuple[PairExpense, ...]
    raised: int | None
    price: float
    low: float
    high: float

    def __str__(self) -> str:
        lines = [f"{'from':>6}  {'to':>6}  {'rows':>8}  {'lost':>10}  {'gained':>10}  {'expense':>9}  bracket"]
        for one in self.pairs:
            lines.append(
                f"{one.source:>6}  {one.target:>6}  {one.n_rows:>8,}  {one.lost:>10.4g}  {one.gained:>10.4g}  "
                f"{one.expense:>9.4g}  {one.low:.4g} to {one.high:.4g}"
            )
        if self.raised is not None and not math.isnan(self.price):
            lines.append(
                f"all pairs: {self.price:.4g} for one row of class {self.raised}, between {self.low:.4g} and "
                f"{self.high:.4g}"
            )
        return "\n".join(lines)


def pair_expenses(
    p: ArrayLike, start: Price, end: Price, y: ArrayLike | None = None, sample_weight: ArrayLike | None = None
) -> PairExpenses:
    """Price the rows that move between classes when the weights that decide change.

    A row that goes from class a to class k was decided by w_a p_a ≥ w_k p_k before and w_k p_k ≥ w_a p_a after, so that
    p_a / p_k lies between both ratios w_k / w_a; so does the sum over all such rows, in expectation.

    Parameters
    ----------
    p : array of shape (n, K)
        Natural probabilities.
    start, end : Price
        Weights before and after.
    y : array of shape (n,), optional
        Class numbers; then rows are counted instead of expected.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Raises
    ------
    InvalidInput, InvalidParameter
        If probabilities, labels or weights cannot be used.
    """
    if start.n_classes != end.n_classes:
        raise InvalidParameter(f"both weights must be of as many classes: got {start.n_classes} and {end.n_classes}.")
    before, after = (weights.weighted(p).argmax(axis=1) for weights in (start, end))
    chances = np.asarray(p, dtype=np.float64)
    sizes = check_row_weights(sample_weight, len(chances))[:, None]
    if y is None:
        mass = sizes * chances
    else:
        numbers = check_class_numbers(y, start.n_classes)
        if len(numbers) != len(chances):
            raise InvalidInput(f"p must have one row a label: got {len(chances)} for {len(numbers)}.")
        mass = sizes * (numbers[:, None] == np.arange(start.n_classes))
    pairs = []
    for source, target in sorted({*zip(before.tolist(), after.tolist(), strict=True)}):
        if source != target:
            mine = (before == source) & (after == target)
            ends = (one.weights[target] / one.weights[source] for one in (start, end))
            lost, gained = mass[mine].sum(axis=0)[[source, target]]
            pairs.append(PairExpense(source, target, int(mine.sum()), float(lost), float(gained), *map(float, ends)))
    return PairExpenses(tuple(pairs), *_together(pairs, start.weights, end.weights))


def _together(pairs: list[PairExpense], start: Array, end: Array) -> tuple[int | None, float, float, float]:
    """The class that was raised, the price of all pairs in units of the other classes' weights, and its bracket."""
    ratio = end / start
    raised = int(np.argmax(ratio))
    others = np.delete(ratio, raised)
    if ratio[raised] <= others[0] * (1.0 + _ROUNDING) or np.ptp(others) > _ROUNDING * others[0]:
        return None, math.nan, math.nan, math.nan
    gained = sum(pair.gained for pair in pairs)
    lost = sum(start[pair.source] * pair.lost for pair in pairs)
    price = lost / gained if gained > 0.0 else math.nan
    return raised, float(price), float(start[raised]), float(end[raised] / others[0])
