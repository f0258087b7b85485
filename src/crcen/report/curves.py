"""Counts at every price, reliability of probabilities, and the curves by which decisions are judged."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import logit

from crcen.report.evidence import Evidence
from crcen.theory.curves import DecisionCurves, ThresholdCurve
from crcen.theory.expense import ExpenseStep, ExpenseTable, StepTest, expense_table, judge_step
from crcen.theory.intervals import share_interval
from crcen.theory.metrics import ConfusionCounts
from crcen.theory.price import CostRatio
from crcen.theory.rows import Array, Bools, Clusters, Index
from crcen.theory.tail import clustered_variance

STEPS_PER_DECADE = 100
MOST_TYPED_DECADES = 8
# How far a window for the marginal expense reaches to either side, in steps of the grid: about ×1.26, ×1.5, ×2, ×3, ×5.
WINDOWS = (10, 18, 30, 48, 70)
# The narrowest window with this many catches is taken.
WANTED_CATCHES = 5


def log_odds(p: Array, edge: float) -> Array:
    """Log-odds of probabilities that are clipped to [edge, 1 − edge]."""
    return np.asarray(logit(np.clip(p, edge, 1.0 - edge)))


def rounded(price: float) -> float:
    """A price to three digits, as the page shows and copies it."""
    return float(f"{price:.3g}")


def price_range(price: float, imbalance_ratio: float) -> tuple[float, float]:
    """Powers of ten around a price and what "balanced" would pay, with a decade to spare on both sides."""
    low = math.floor(math.log10(min(1.0, price)) - 1.0 + 1e-9)
    high = math.ceil(math.log10(max(price, imbalance_ratio)) + 0.5)
    return 10.0 ** max(low, -6), 10.0 ** min(high, 9)


def price_grid(price: float, imbalance_ratio: float) -> list[float]:
    """The prices a slider stops at, three digits each, a hundred to the decade."""
    low, high = (round(math.log10(end)) for end in price_range(price, imbalance_ratio))
    exponents = range(low * STEPS_PER_DECADE, high * STEPS_PER_DECADE + 1)
    return [rounded(10.0 ** (exponent / STEPS_PER_DECADE)) for exponent in exponents]


def typed_prices(grid: Sequence[float]) -> list[float]:
    """Prices of two digits inside a grid's range, which people type; none where the range is too wide to keep them."""
    low, high = (round(math.log10(end)) for end in (grid[0], grid[-1]))
    if high - low > MOST_TYPED_DECADES:
        return []
    return [float(f"{two}e{decade - 1}") for decade in range(low, high) for two in range(10, 100)]


def price_ladder(price: float, imbalance_ratio: float) -> list[float]:
    """1, 2 and 5 of every decade of the range."""
    low, high = price_range(price, imbalance_ratio)
    decades = range(round(math.log10(low)), round(math.log10(high)) + 1)
    prices = [float(f"{digit}e{decade}") for decade in decades for digit in (1, 2, 5)]
    return [one for one in prices if low <= one <= high]


@dataclass(frozen=True)
class OperatingPoints:
    """Weighted counts of the rows at or above each distinct probability, highest first."""

    score: Array  # distinct probabilities, falling
    tp: Array  # positive rows with at least this probability
    fp: Array
    square: Array  # sum of the squared weights of these rows: their number where there are no weights
    n_pos: float
    n_neg: float
    n_rows: int  # whatever they weigh

    def above(self, price: float) -> int:
        """How many of the points are alarms at a price: those above the threshold."""
        return int(np.searchsorted(-self.score, -1.0 / (1.0 + price), side="left"))

    def _sums(self, price: float) -> tuple[float, float, float]:
        k = self.above(price)
        return (float(self.tp[k - 1]), float(self.fp[k - 1]), float(self.square[k - 1])) if k else (0.0, 0.0, 0.0)

    def counts(self, price: float) -> ConfusionCounts:
        """The confusion counts of deciding at a price."""
        tp, fp, _ = self._sums(price)
        return ConfusionCounts(tp=tp, fp=fp, fn=max(self.n_pos - tp, 0.0), tn=max(self.n_neg - fp, 0.0))

    def path(self, prices: Sequence[float]) -> ExpenseTable:
        """The expense between neighbouring prices."""
        counts = [self.counts(price) for price in prices]
        misses, alarms = (np.array([getattr(one, cell) for one in counts]) for cell in ("fn", "fp"))
        return expense_table([CostRatio(price) for price in prices], misses, alarms)

    def judge(self, step: ExpenseStep, noise: float = 1.0) -> StepTest:
        """Whether the expense of a step of `path` is chance; ``noise`` as `fitted_model_noise` gives it."""
        start, end = (self._sums(price) for price in (step.bracket_low, step.bracket_high))
        return judge_step(step, noise, end[2] - start[2])

    @property
    def wanted_catches(self) -> float:
        """How much a window is to catch, in units of the weights."""
        return WANTED_CATCHES * (self.n_pos + self.n_neg) / self.n_rows

    def thinned(self, prices: Sequence[float], limit: int) -> Index:
        """Positions of at most `limit` points: all, or those that are exact at the prices and others spread evenly."""
        k = self.score.size
        if k <= limit:
            return np.arange(k)
        needed = np.unique([max(self.above(price) - 1, 0) for price in prices])
        spread = np.linspace(0, k - 1, max(limit - needed.size, 2)).round().astype(np.int64)
        return np.unique(np.concatenate([needed, spread]))


def operating_points(target: Bools, p: Array, weights: Array) -> OperatingPoints:
    """Count rows at every distinct probability of the positive class."""
    curve = ThresholdCurve(target, p)
    tp, fp = curve.totals(weights)
    caught, alarmed = curve.totals(weights**2)
    return OperatingPoints(
        score=curve.score,
        tp=tp,
        fp=fp,
        square=caught + alarmed,
        n_pos=float(weights[target].sum()),
        n_neg=float(weights[~target].sum()),
        n_rows=int(target.size),
    )


def points_of(evidence: Evidence) -> OperatingPoints:
    """Counts at every price of the positive class."""
    return operating_points(evidence.target, evidence.p, evidence.weights)


# -- reliability --------------------------------------------------------------------------------------------------

_MOST_GROUPS, _FEWEST_GROUPS, _POSITIVES_IN_A_GROUP = 10, 3, 5


@dataclass(frozen=True)
class ReliabilityGroup:
    """Rows of similar probability."""

    n_rows: int
    mean_p: float  # natural probability
    mean_q: float | None  # probability under the weighting, where the model has one
    observed: float  # share of positives, with its 95 % interval
    low: float
    high: float
    expected_positives: float  # weighted counts
    observed_positives: float
    z: float  # difference in standard deviations of the true posterior; 0 where these are 0 and both counts agree
    degrees: float = math.inf  # of freedom of the standard deviation, if it was estimated from clusters


def reliability_groups(
    target: Bools, p: Array, q: Array | None, weights: Array, clusters: Clusters | None = None
) -> tuple[ReliabilityGroup, ...]:
    """Group rows by probability alone, about equally many expected positives in each, and count the observed ones."""
    count = int(np.clip(target.sum() // _POSITIVES_IN_A_GROUP, _FEWEST_GROUPS, _MOST_GROUPS))
    values, position = np.unique(p, return_inverse=True)
    mass = np.bincount(position, weights * p, minlength=values.size)
    total = float(mass.sum())
    before = np.cumsum(mass) - mass
    group_of = np.minimum(count * before / total if total > 0.0 else before, count - 1).astype(int)[position]
    groups = []
    for number in range(count):
        mine = group_of == number
        if weights[mine].any():
            own = None if clusters is None else clusters[mine]
            groups.append(_group(target[mine], p[mine], None if q is None else q[mine], weights[mine], own))
    return tuple(groups)


def _group(target: Bools, p: Array, q: Array | None, weights: Array, clusters: Clusters | None) -> ReliabilityGroup:
    size, found, expected = float(weights.sum()), float(weights[target].sum()), float(np.sum(weights * p))
    alone = float(np.sum(weights**2 * p * (1.0 - p)))
    variance, degrees = clustered_variance(weights * (target - p), alone, clusters)
    difference, deviation = found - expected, math.sqrt(variance)
    share = share_interval(target, weights, clusters)
    return ReliabilityGroup(
        n_rows=int(target.size),
        mean_p=expected / size,
        mean_q=None if q is None else float(np.sum(weights * q)) / size,
        observed=share.value,
        low=share.low,
        high=share.high,
        expected_positives=expected,
        observed_positives=found,
        z=difference / deviation if deviation > 0.0 else (math.copysign(math.inf, difference) if difference else 0.0),
        degrees=degrees,
    )


def reliability(evidence: Evidence) -> dict[int, tuple[ReliabilityGroup, ...]]:
    """Reliability of the probability of every class that the report is about, by its number."""
    q = evidence.q if evidence.has_positive else None
    rows = (q, evidence.weights, evidence.clusters)
    return {k: reliability_groups(evidence.y == k, evidence.proba[:, k], *rows) for k in evidence.watched}


# -- curves of decisions ------------------------------------------------------------------------------------------

_POINTS = 121
_MOST_CUTS = 240


def decision_numbers(evidence: Evidence, price: float) -> dict[str, dict[str, Array]]:
    """Net benefit, cost curve, Brier curve and gains, at prices around that of the model."""
    curves = DecisionCurves(evidence.target, evidence.p, evidence.weights)
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _POINTS))
    cost, brier, gains = curves.cost_curve(_POINTS), curves.brier_curve(_POINTS), curves.gains()
    best = curves.brier_curve(_POINTS, is_best=True)
    # Cuts at even steps of rows, with the first ones, where lift is largest, at even steps of their logarithm.
    wanted = np.concatenate([np.linspace(0.0, 1.0, _MOST_CUTS // 2), np.geomspace(1e-4, 1.0, _MOST_CUTS // 2)])
    kept = np.unique(np.clip(np.searchsorted(gains.rows, wanted), 0, gains.rows.size - 1))
    return {
        "net_benefit": {"price": benefit.x, "model": benefit.model, "everybody": benefit.trivial},
        "cost": {"share": cost.x, "model": cost.model, "trivial": cost.trivial},
        "brier": {"share": brier.x, "model": brier.model, "lowest": best.model, "trivial": brier.trivial},
        "gains": {"rows": gains.rows[kept], "found": gains.found[kept]},
    }
