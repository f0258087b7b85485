"""Expense: what one more catch costs between consecutive weights, and what it should cost, for K ≥ 2 classes."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_not_negative
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE, count_deviation
from crcen.theory.metrics import bootstrap_sums, percentile_interval
from crcen.theory.price import Price, cost_ratio_of
from crcen.theory.residual_test import two_sided
from crcen.theory.rows import Array, Clusters, Index, ShownInOneLine

_ROUNDING = 1e-9
# Factors of the weight of a class from step to step; the other weights stay.
_FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class ExpenseStep:
    """One step in which the weight of a class rises, with its misses and the false alarms at both ends.

    For two classes the class is the positive one and its weight the cost ratio. For more, ``fp`` are the mistakes on
    rows of the other classes, each counted by the weight of its class, and the bracket is in the same unit.
    """

    bracket_low: float  # weights at the start and the end: a right expense lies between them
    bracket_high: float
    fn_start: float
    fn_end: float
    fp_start: float
    fp_end: float
    number: int = 1  # of the class
    worth: float = 1.0  # mean weight of the classes that lose rows
    squares: float | None = None  # sum of the squared sample weights of the rows that change; None: their number
    low: float = math.nan  # bootstrap interval of the expense; inf where resamples gained no catch, or NaN
    high: float = math.nan
    kind: str = ""  # "threshold" (one model), "retrained", or empty if only counts are known

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
        """The verdict as a sentence: what it means on this curve, or why there is none."""
        if self.catches <= 0.0:
            if self.kind == "threshold" and self.delta_fp == 0.0 and self.catches == 0.0:
                return "no row lies between the two thresholds"
            return "no catch was gained" if self.catches == 0.0 else f"{-self.catches:g} catches were lost"
        if self.verdict == "inside" or not self.kind:
            return ""
        if math.isnan(self.low):
            return "no interval, so chance cannot be excluded"
        if not self.is_beyond_noise:
            return "its interval reaches the bracket: may be chance"
        wrong = f"probabilities between these prices are too {'high' if self.verdict == 'above' else 'low'}"
        return wrong if self.kind == "threshold" else f"{wrong}, or the ranking changed from one network to the next"

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the whole interval lies outside the bracket."""
        return self.low > self.bracket_high or self.high < self.bracket_low

    @property
    def verdict(self) -> str:
        """Position of the expense: "inside" the bracket, "below", "above", or "undefined"."""
        if self.catches <= 0.0:
            return "undefined"
        if self.expense < self.bracket_low * (1.0 - _ROUNDING):
            return "below"
        return "above" if self.expense > self.bracket_high * (1.0 + _ROUNDING) else "inside"

    def deviation(self, noise: float = 1.0, effect: float = 1.0) -> float:
        """Standard deviations by which the catches of a moved threshold lie outside of what the bracket allows.

        Negative if a catch cost too much, positive if too little, 0 inside; NaN if too few rows changed to tell, or if
        no catch at all would be within `EXPENSE_Z`. At an end c of the bracket, a row that leaves a class of weight w
        is a catch with probability w / (w + c). ``noise`` is how much more the catches vary as the model was fitted,
        ``effect`` how much more as rows depend on each other: so many fewer rows count.
        """
        size = self.catches + self.delta_fp / self.worth
        squares = size if self.squares is None else self.squares
        if size <= 0.0 or squares <= 0.0:
            return math.nan
        if self.verdict == "inside":
            return 0.0
        share = self.worth / (self.worth + (self.bracket_low if self.verdict == "below" else self.bracket_high))
        n = size**2 / (squares * effect)  # independent rows of equal weight that vary as much
        if share * (1.0 - share) * n < LEAST_VARIANCE:
            return math.nan
        z = count_deviation(n * self.catches / size, n, share, noise)
        can_tell = z > 0.0 or count_deviation(0.0, n, share, noise) < -EXPENSE_Z
        return z if can_tell else math.nan

    def sentence(self, z: float) -> str:
        """The result of a test with this `deviation` in words; beyond `EXPENSE_Z` it is not chance."""
        if self.catches == 0.0 and self.delta_fp == 0.0:
            return "no decision changes between these prices"
        if math.isnan(z) and math.isnan(self.deviation()):
            return "too few decisions change between these prices to tell"
        if math.isnan(z):
            return "too few decisions change to tell: given the model uncertainty, even no catch is within chance"
        if self.verdict == "inside":
            return "inside its bracket"
        where, wrong = ("below its bracket", "low") if self.verdict == "below" else ("above its bracket", "high")
        if abs(z) <= EXPENSE_Z:
            return f"{where}, within chance"
        return f"{where}, beyond chance: probabilities between these prices are too {wrong}"


@dataclass(frozen=True, repr=False)
class ExpenseTable(ShownInOneLine):
    """The steps of a path of weights, in order; each starts where the one before it ends, or at another class."""

    steps: tuple[ExpenseStep, ...]

    def __iter__(self) -> Iterator[ExpenseStep]:
        return iter(self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def average_price(self) -> float:
        """False alarms per catch over the whole path; NaN if it gained no catch or is about several classes."""
        first, last = self.steps[0], self.steps[-1]
        catches = first.fn_start - last.fn_end if first.number == last.number else 0.0
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
    """Compute the expense of each step of a path of weights.

    If probabilities are right, a row that becomes an alarm between the cost ratios c₁ and c₂ has a posterior between
    the two thresholds, so the expense lies in [c₁, c₂]. This holds for expected counts, for nested decisions (one
    model's threshold moved) and at the natural class ratio; between separately trained networks a changed ranking can
    also move a step outside its bracket. Nothing is clipped.

    Parameters
    ----------
    weightings : sequence of Price, Lam, CostRatio, Budget, float or None, or of class weights
        In increasing order of cost ratio, at least two; a plain number is λ, so wrap a cost ratio as CostRatio(c). For
        more than two classes the weight of one class rises, and the others keep their ratios.
    fn, fp : array of shape (len(weightings),)
        Misses of that class and false alarms (mistakes on rows of other classes, by the weight of their class) at each
        weighting; weighted counts allowed.
    """
    number, _, ends = rising_class(weightings)
    counts = {name: check_not_negative(values, name) for name, values in (("fn", fn), ("fp", fp))}
    for name, found in counts.items():
        if found.shape != (len(ends),):
            raise InvalidInput(f"{name} must be one count for each of the {len(ends)} weightings, got {found.shape}")
    both = zip(*(pairwise(one) for one in (ends, *(found.tolist() for found in counts.values()))), strict=True)
    return ExpenseTable(tuple(replace(ExpenseStep(*c, *misses, *alarms), number=number) for c, misses, alarms in both))


def rising_class(weightings: Sequence[object]) -> tuple[int, Array, list[float]]:
    """The class whose weight rises along a path, the weights of the others (its own is 1), and its weights.

    For two classes with a positive one, that is the positive one and its cost ratios.
    """
    if len(weightings) < 2:
        raise InvalidParameter(f"a step needs at least two weightings, got {len(weightings)}")
    weights = [one.weights if isinstance(one, Price) and one.positive is None else one for one in weightings]
    unit, number = "cost ratio", 1
    if all(isinstance(one, list | tuple | np.ndarray | Mapping) for one in weights):
        table = np.array([[one[k] for k in range(len(one))] for one in weights])  # type: ignore[arg-type,index]
        factors = table / table[0]
        unit, number = "the weight of one class", int(factors[1].argmax())
        kept = np.delete(factors, number, axis=1)
        if not np.allclose(kept, kept[:, :1], rtol=_ROUNDING, atol=0.0):
            got = f"got {table[0].tolist()} before {table[1].tolist()}"
            raise InvalidParameter(f"weightings must raise the weight of one class and keep the others, {got}")
        ends = (table[0, number] * factors[:, number] / kept[:, 0]).tolist()
        rest = np.where(np.arange(len(table[0])) == number, 1.0, table[0])
    else:
        rest, ends = np.ones(2), [cost_ratio_of(weighting) for weighting in weightings]
        number = next((one.positive for one in weightings if isinstance(one, Price) and one.positive is not None), 1)
    for low, high in pairwise(ends):
        if low >= high:
            raise InvalidParameter(f"weightings must increase in {unit}, got {low:g} before {high:g}: sort them")
    return number, rest, ends


def price_paths(weightings: Any, resolve: Callable[[Any], Price] = lambda price: price) -> list[list[Price]]:
    """The path of a list of weightings; or those around a single one, by default "balanced".

    Around a price, the weight of the positive class, or else of each class, rises from a quarter to four times its own.
    """
    if isinstance(weightings, list | tuple | np.ndarray):
        return [[resolve(weighting) for weighting in weightings]]
    price = resolve("balanced" if weightings is None else weightings)
    evaluated = range(price.n_classes) if price.positive is None else [price.positive]
    weights = [[price.weights * np.where(np.arange(price.n_classes) == k, f, 1.0) for f in _FACTORS] for k in evaluated]
    return [[Price(one, price.counts, None, price.positive) for one in path] for path in weights]


def expense_steps(
    y: Index,
    weights: Array,
    path: Sequence[Price],
    chosen: Iterable[Index],
    p: Array | None = None,
    *,
    n_resamples: int = 0,
    level: float = 0.95,
    random_state: int = 0,
    clusters: Clusters | None = None,
) -> tuple[ExpenseStep, ...]:
    """Price each step of a path of weights by the class numbers y of rows and those ``chosen`` at each weighting.

    Over rows that move to class k, Σ w_a 1{y=a} − c 1{y=k} is at least 0 on average at the weight c before, and at
    most 0 at the one after. ``p`` (n, K) are the probabilities of the one model that decides, if there is one. Without
    resamples there are no intervals.
    """
    number, rest, ends = rising_class(path)
    own, cost, before = y == number, weights * rest[y], np.empty(0, dtype=np.int64)
    counts, moved, caught, lost = [], [], [], []
    for _, decided in zip(path, chosen, strict=False):  # others may follow
        wrong = np.where(decided != y, cost, 0.0)
        counts.append((float(wrong[own].sum()), float(wrong[~own].sum())))
        if n_resamples:
            caught.append(np.where(own, cost - wrong, 0.0))
            lost.append(np.where(own, 0.0, wrong))
        if p is not None and before.size:
            rows = np.flatnonzero(decided != before)
            squares = weights[rows] ** 2 * (p[rows, before[rows]] + p[rows, number])
            total = float(squares.sum())
            moved.append((total, float(squares @ rest[before[rows]]) / total if total > 0.0 else 1.0))
        before = decided
    kind, intervals = "retrained" if p is None else "threshold", [(math.nan, math.nan)] * (len(ends) - 1)
    if n_resamples:
        rng = np.random.default_rng(random_state)
        sums = bootstrap_sums(np.vstack([*caught, *lost]).T, n_resamples, rng, clusters)
        catches, added = (np.diff(side) for side in np.split(sums, 2, axis=1))
        # No catch for more alarms is an unbounded price; neither more catches nor more alarms is no evidence.
        prices = np.where(added > 0.0, np.inf, np.nan)
        np.divide(added, catches, out=prices, where=catches > 0.0)
        if clusters is None or len(np.unique(clusters)) > 1:  # resamples of a single cluster are all equal
            intervals = [percentile_interval(side, level) for side in prices.T]
    found = []
    for i, ((fn, fp), (fn_end, fp_end)) in enumerate(pairwise(counts)):
        squares, worth = moved[i] if moved else (None, 1.0)
        ends_of = (ends[i], ends[i + 1], fn, fn_end, fp, fp_end)
        found.append(ExpenseStep(*ends_of, number, worth, squares, *intervals[i], kind))
    return tuple(found)


def outside_chance(deviations: Sequence[float]) -> float:
    """Upper bound of the probability of any step so far outside of its bracket; 1 if none is."""
    worst = max(map(abs, deviations), default=0.0)
    return min(1.0, len(deviations) * 0.5 * two_sided(worst)) if worst > 0.0 else 1.0
