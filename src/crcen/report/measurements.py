"""Every number of the page in float64: counts at every price, reliability, curves of decisions, and models compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.values import Values, json_value
from crcen.report.evidence import Evidence, chosen_rows, class_probabilities, kept_by, log_odds
from crcen.report.quality import RowMetrics, share_log_loss
from crcen.theory.expense import ExpenseStep, ExpenseTable, expense_table
from crcen.theory.intervals import share_interval
from crcen.theory.key_equation import KeyEquation, means_by_law
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE
from crcen.theory.metrics import ConfusionCounts, DecisionCurves, Quality, measure_quality
from crcen.theory.price import CostRatio, weighted_probability
from crcen.theory.residual_test import clustered_variance
from crcen.theory.rows import Array, Bools, Clusters, Index

STEPS_PER_DECADE = 100
MOST_TYPED_DECADES = 8
# How far a window for the marginal expense reaches to either side, in steps of the grid: about ×1.26, ×1.5, ×2, ×3, ×5.
WINDOWS = (10, 18, 30, 48, 70)
# The narrowest window with this many catches is taken.
WANTED_CATCHES = 5


def rounded(price: float) -> float:
    """A price to three digits, as the page shows and copies it."""
    return float(f"{price:.3g}")


def _decades(price: float, imbalance_ratio: float) -> tuple[int, int]:
    """Exponents of ten around a price and what "balanced" would pay, with a decade to spare on both sides."""
    low = math.floor(math.log10(min(1.0, price)) - 1.0 + 1e-9)
    high = math.ceil(math.log10(max(price, imbalance_ratio)) + 0.5)
    return max(low, -6), min(high, 9)


def price_grid(price: float, imbalance_ratio: float) -> list[float]:
    """The prices a slider stops at, three digits each, a hundred to the decade."""
    low, high = _decades(price, imbalance_ratio)
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
    low, high = _decades(price, imbalance_ratio)
    return [*(float(f"{digit}e{decade}") for decade in range(low, high) for digit in (1, 2, 5)), 10.0**high]


class OperatingPoints(DecisionCurves):
    """Weighted counts of the rows above every price."""

    def __init__(self, target: Bools, p: Array, weights: Array) -> None:
        super().__init__(target, p, weights)
        # Sum of the squared weights of these rows: their number where there are no weights.
        self.square = np.append(0.0, np.sum(self._curve.totals(weights**2), axis=0))
        # Weight that the narrowest window is to catch.
        self.wanted_catches = WANTED_CATCHES * self.n_rows / len(target)

    def counts(self, price: ArrayLike) -> ConfusionCounts:
        """The confusion counts of deciding at prices."""
        tp, fp = self.counts_above(1.0 / (1.0 + np.asarray(price)))
        return ConfusionCounts(tp=tp, fp=fp, fn=np.maximum(self.n_pos - tp, 0.0), tn=np.maximum(self.n_neg - fp, 0.0))

    def path(self, prices: Sequence[float]) -> ExpenseTable:
        """The expense between neighbouring prices."""
        counts = self.counts(prices)
        return expense_table([CostRatio(price) for price in prices], counts.fn, counts.fp)

    def deviation(self, step: ExpenseStep, noise: float = 1.0) -> float:
        """`ExpenseStep.deviation` of a step of `path`, with the weights of the rows that change."""
        ends = 1.0 / (1.0 + np.array([step.bracket_low, step.bracket_high]))
        return step.deviation(noise, float(np.diff(self.square[self.cuts_above(ends)])[0]))

    def thinned(self, prices: Sequence[float], limit: int) -> Index:
        """Positions of at most `limit` scores: all, or those that are exact at the prices and others spread evenly."""
        k = self.score.size
        if k <= limit:
            return np.arange(k)
        needed = np.unique(np.maximum(self.cuts_above(1.0 / (1.0 + np.asarray(prices))) - 1, 0))
        spread = np.linspace(0, k - 1, max(limit - needed.size, 2)).round().astype(np.int64)
        return np.unique(np.concatenate([needed, spread]))


def points_of(evidence: Evidence) -> OperatingPoints:
    """Counts at every price of the positive class."""
    return OperatingPoints(evidence.target, evidence.p, evidence.weights)


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


def decision_numbers(curves: DecisionCurves, price: float) -> dict[str, dict[str, Array]]:
    """Net benefit, cost curve, Brier curve and gains, at prices around that of the model."""
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _POINTS))
    cost, brier, gains = curves.cost_curve(_POINTS), curves.brier_curve(_POINTS), curves.gains()
    best = curves.brier_curve(_POINTS, is_best=True)
    # Cuts at even steps of rows, with the first ones, where lift is largest, at even steps of their logarithm.
    wanted = np.concatenate([np.linspace(0.0, 1.0, _MOST_CUTS // 2), np.geomspace(1e-4, 1.0, _MOST_CUTS // 2)])
    kept = np.unique(np.clip(np.searchsorted(gains.x, wanted), 0, gains.x.size - 1))
    return {
        "net_benefit": {"price": benefit.x, "model": benefit.model, "everybody": benefit.trivial},
        "cost": {"share": cost.x, "model": cost.model, "trivial": cost.trivial},
        "brier": {"share": brier.x, "model": brier.model, "lowest": best.model, "trivial": brier.trivial},
        "gains": {"rows": gains.x[kept], "found": gains.model[kept]},
    }


# -- the page ------------------------------------------------------------------------------------------------------

MOST_POINTS = 2000
# What the script draws; the other measurements are in the text.
DRAWN = ("explorer", "reliability", "histogram", "key_equations", "path", "decisions", "models")
# Numbers of the rows that the explorer of costs decides again.
MOST_NUMBERS = 24_000
_HISTOGRAM_BINS = 36
_PATH_POINTS = 61
_COMPARED_POINTS = 81
# Probabilities are drawn on the log-odds scale between these ends.
_EDGE = 1e-6


def measure(evidence: Evidence, models: Sequence[Values] = (), most_points: int = MOST_POINTS) -> Values:
    """Numbers of the page for a positive class, None if one does not exist; ``models`` are those of `compare`."""
    price, points = evidence.price.cost_ratio, evidence.of(points_of)
    found: Values = json_value(
        {
            "rows": _rows(evidence),
            "quality": _quality(evidence),
            "explorer": _explorer(evidence, points, price, most_points),
            "ladder": _ladder(evidence, points, price),
            "reliability": [asdict(group) for group in evidence.of(reliability)[evidence.labels.column]],
            "histogram": _histogram(evidence),
            "key_equations": {
                # These rows alone are tested, with the model's own error.
                name: {"lhs": one.lhs, "rhs": one.rhs, "z": evidence.equations.z if name == "these_rows" else math.nan}
                for name, one in key_equations(evidence).items()
            },
            "path": _weight_path(evidence, points, price),
            "decisions": decision_numbers(points, price),
            "models": list(models),
        },
        shorten=True,
    )
    return found


def quality_of(evidence: Evidence) -> Quality:
    """Decisions at the costs."""
    quality = measure_quality(evidence.y, evidence.proba, evidence.cost_matrix, evidence.weights, evidence.clusters)
    return quality if evidence.recall_lows is None else quality.with_recall_lows(evidence.recall_lows)


def measure_classes(evidence: Evidence, models: Sequence[Values] = ()) -> tuple[Values, Values]:
    """The numbers of the tables without a positive class, and the rows that the explorer decides again."""
    quality = evidence.of(quality_of)
    chosen, weights = explored_rows(evidence)
    explored = {
        "labels": list(evidence.names),
        "y": evidence.y[chosen].tolist(),
        "p": [[float(f"{one:.6g}") for one in column] for column in evidence.proba[chosen].T],
        "weights": None if (weights == 1.0).all() else [float(f"{one:.9g}") for one in weights],
    }
    measured = {
        **quality.to_dict(),
        "rows": {"n_rows": evidence.n_rows},
        "n_explored": len(chosen),
        "decisions": [str(name) for name in quality.names],
        "costs": [[float(f"{one:.6g}") for one in row] for row in quality.costs.costs.tolist()],
        "classes": [{**one, "label": str(one["label"])} for one in quality.by_class],
        "n_reviewed": float(quality.counts.table[:, len(quality.labels) :].sum()),
        "models": list(models),
    }
    return json_value(measured), explored


def explored_rows(evidence: Evidence) -> tuple[Index, Array]:
    """Rows for the explorer of costs and their weights: all, or of many some of each class that stand for all."""
    n_classes = evidence.labels.n_classes
    most = max(MOST_NUMBERS // n_classes, n_classes)
    return chosen_rows(evidence, most, np.random.default_rng(evidence.random_state))


def key_equations(evidence: Evidence) -> dict[str, KeyEquation]:
    """The key equation of the training rows and out of fold, if the model keeps them, and on these rows."""
    found = {}
    for name, attribute in (("training", "key_equation_"), ("out_of_fold", "oof_key_equation_")):
        kept = kept_by(evidence.model, attribute)
        if isinstance(kept, KeyEquation):
            found[name] = kept
    return {**found, "these_rows": evidence.equations}


# -- several models -----------------------------------------------------------------------------------------------


def compare(evidence: Evidence, others: Mapping[str, ArrayLike], name: str) -> list[Values]:
    """Metrics of every model at the price or costs of the first one, ``name``, with the paired difference of costs.

    ``others`` are natural probabilities for the same rows, of the positive class or of every class, by model.
    """
    if not others:
        return []
    found, weights, total = [], evidence.weights, float(evidence.weights.sum())
    price = evidence.price if evidence.has_positive else evidence.price.replace(evidence.cost_matrix)
    first = RowMetrics(evidence.y, evidence.proba, price, weights).paid
    for label, given in [(name, None), *others.items()]:
        proba = evidence.proba
        if given is not None:
            proba = class_probabilities(given, evidence.labels, evidence.n_rows, f"the model {label}")
        rows = RowMetrics(evidence.y, proba, price, weights)
        more = rows.paid - first
        mean = float(weights @ more) / total
        half = 1.96 * float(np.sqrt(np.sum(weights**2 * (more - mean) ** 2))) / total
        one = {"name": label, **rows.values(), "more_per_1000": 1000.0 * mean}
        one["interval"] = [1000.0 * (mean - half), 1000.0 * (mean + half)]
        found.append(one | (_alarm_values(rows, price.cost_ratio) if evidence.has_positive else {}))
    return found


def _alarm_values(rows: RowMetrics, price: float) -> Values:
    """Alarms and net benefit of a model with a positive class."""
    curves, counts = DecisionCurves(rows.y == rows.column, rows.p[:, rows.column], rows.weights), rows.confusion
    ends = price_grid(price, curves.n_neg / curves.n_pos)
    benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _COMPARED_POINTS))
    found = {"found": counts.tp, "alarms": counts.tp + counts.fp}
    return {**found, "net_benefit": {"price": benefit.x, "model": benefit.model}}


# -- a positive class ---------------------------------------------------------------------------------------------


def _rows(evidence: Evidence) -> Values:
    n_pos, n_neg = evidence.labels.pair(evidence.totals)
    return {
        "n_rows": evidence.n_rows,
        "n_positive_rows": int(evidence.target.sum()),
        "n_pos": n_pos,
        "n_neg": n_neg,
        "share": n_pos / (n_pos + n_neg),
        "is_weighted": evidence.is_weighted,
        "is_out_of_fold": evidence.is_out_of_fold,
        "pos_label": str(evidence.labels.positive),
        "neg_label": str(evidence.labels.negative),
    }


def _quality(evidence: Evidence) -> Values:
    rows = RowMetrics(evidence.y, evidence.proba, evidence.price, evidence.weights, clusters=evidence.clusters)
    metrics, counts, lows = rows.measured(), rows.confusion, evidence.recall_lows
    limits = {name: one[1:] for name, one in metrics.items()}
    if lows is not None:
        limits["recall"] = float(np.fmin(limits["recall"][0], lows[evidence.labels.column])), limits["recall"][1]
    return {
        **{name: one.value for name, one in metrics.items()},
        "price": evidence.price.cost_ratio,
        "threshold": evidence.price.threshold,
        "has_price": evidence.has_price,
        "tp": counts.tp,
        "fp": counts.fp,
        "fn": counts.fn,
        "recall_interval": limits["recall"],
        "precision_interval": limits["precision"],
        "roc_auc_interval": limits["roc_auc"],
        "cost_interval": None if lows is not None else limits["cost_per_1000"],
        "base_log_loss": share_log_loss(evidence.totals),
    }


def _explorer(evidence: Evidence, points: OperatingPoints, price: float, most_points: int) -> Values:
    grid = price_grid(price, points.n_neg / points.n_pos)
    start = rounded(price)
    kept = points.thinned([*grid, *typed_prices(grid), start], most_points)
    below = np.append(points.score[1:], 0.0)
    is_exact = kept.size == points.score.size
    return {
        "grid": grid,
        "start": start,
        "windows": WINDOWS,
        "least_variance": LEAST_VARIANCE,
        "most_deviations": EXPENSE_Z,
        "wanted_catches": points.wanted_catches,
        "n_pos": points.n_pos,
        "n_neg": points.n_neg,
        "score": points.score[kept],
        "tp": points.tp[kept + 1],
        "fp": points.fp[kept + 1],
        # What only some pages need: the sum of squared weights, and where points were left out the next score below.
        "square": points.square[kept + 1] if evidence.is_weighted else None,
        "below": None if is_exact else below[kept],
        "noise_factor": evidence.noise,
    }


def _ladder(evidence: Evidence, points: OperatingPoints, price: float) -> list[Values]:
    """Counts at round prices, with the expense of the step from the price before."""
    prices = price_ladder(price, points.n_neg / points.n_pos)
    rows = []
    for one, step in zip(prices, (None, *points.path(prices)), strict=True):
        counts = points.counts(one)
        rows.append(
            {
                "price": one,
                "fn": counts.fn,
                "fp": counts.fp,
                "recall": counts.recall,
                "precision": counts.precision if counts.tp + counts.fp else math.nan,
                "alarms_per_1000": 1000.0 * (counts.tp + counts.fp) / points.n_rows,
                "low": step.bracket_low if step else math.nan,
                "expense": step.expense if step else math.nan,
                "verdict": step.verdict if step else "",
                "z": points.deviation(step, evidence.noise) if step else math.nan,
            }
        )
    return rows


def _histogram(evidence: Evidence) -> Values:
    """Shares of each class in bins of equal width on the log-odds scale."""
    logits = log_odds(evidence.p, _EDGE)
    low, high = float(logits.min()), float(logits.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _HISTOGRAM_BINS + 1)
    shares = {}
    for name, mine in (("pos", evidence.target), ("neg", ~evidence.target)):
        counts, _ = np.histogram(logits[mine], edges, weights=evidence.weights[mine])
        shares[name] = counts / evidence.weights[mine].sum()
    return {"edges": 1.0 / (1.0 + np.exp(-edges)), **shares}


def _weight_path(evidence: Evidence, points: OperatingPoints, price: float) -> Values:
    """Class means of these rows' probabilities under every weight, beside what the law makes of their distance."""
    ratio = points.n_neg / points.n_pos
    grid = price_grid(price, ratio)
    prices = np.geomspace(grid[0], grid[-1], _PATH_POINTS)
    rows, p, target, w = [], evidence.p, evidence.target, evidence.weights
    for one in prices:
        q = weighted_probability(p, CostRatio(float(one)))
        means = [float(np.average(q[mine], weights=w[mine])) for mine in (target, ~target)]
        rows.append((*means, *means_by_law(means[0] - means[1], float(one) / ratio)))
    mean_pos, mean_neg, law_pos, law_neg = np.transpose(rows)
    return {"price": prices, "mean_pos": mean_pos, "mean_neg": mean_neg, "law_pos": law_pos, "law_neg": law_neg}
