"""Quality of predictions on labelled rows: metrics, counts at every price, reliability, curves, models compared."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.text import Values, attributes, json_value, plural
from crcen.report.evidence import Evidence, chosen_rows, class_probabilities, kept_by, log_odds, share_log_loss
from crcen.theory import metrics as formulas
from crcen.theory.expense import ExpenseStep, expense_steps, price_paths
from crcen.theory.intervals import LEVEL, UNKNOWN, Interval, auc_interval, cost_interval, design_effect, share_interval
from crcen.theory.key_equation import KeyEquation, means_by_law
from crcen.theory.limits import EXPENSE_Z, LEAST_VARIANCE, NEAR_PERFECT_AREA
from crcen.theory.price import CostRatio, Price, weighted_probability
from crcen.theory.residual_test import clustered_variance
from crcen.theory.rows import Array, Bools, Clusters, Index, four_digits

Limits = tuple[float, float]


def measured_text(one: Interval) -> str:
    """A metric with its interval, if it has one."""
    if math.isnan(one.value):
        return "none"
    value, low, high = map(four_digits, one[:3])
    return value if math.isnan(one.low) else f"{value:<9} ({low} to {high})"


@dataclass(frozen=True)
class _Sample:
    """Rows with weights, as metrics see them."""

    rows: "RowMetrics"
    weights: Array

    @cached_property
    def counts(self) -> formulas.ConfusionCounts:
        return formulas.count_decisions(self.rows.y, self.rows.actions, self.weights, *self.rows.costs.shape)

    @cached_property
    def confusion(self) -> formulas.ConfusionCounts:
        return formulas.ConfusionCounts.of_table(self.counts.table, self.rows.column)

    @property
    def alarms(self) -> float:
        return float(self.confusion.tp + self.confusion.fp)

    def mean(self, values: Array) -> float:
        return float(np.average(values, weights=self.weights))

    def mean_over_classes(self, function: Callable[[Array, Array], float]) -> float:
        curves = [curve.totals(self.weights) for curve in self.rows.curves]
        known = [function(*both) for both in curves if both[0][-1] > 0.0 and both[1][-1] > 0.0]
        return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True)
class Metric:
    """One metric: its title, its value on rows, and its limits in closed form if it has such."""

    title: str
    value: Callable[[_Sample], float]
    limits: "Callable[[RowMetrics], Limits] | None" = None
    is_binary: bool | None = None  # for models with a positive class, for others (False), or for both (None)


def _per_catch(rows: "RowMetrics") -> Limits:
    low, high = rows.precision_limits
    with np.errstate(divide="ignore"):
        return tuple(float(np.divide(1.0, share) - 1.0) for share in (high, low))  # type: ignore[return-value]


def _ratio(above: float | Array, below: float | Array) -> float:
    return float(above / below) if below else math.nan


# In the order they are printed. A metric is one entry.
METRICS: dict[str, Metric] = {
    "recall": Metric("recall", lambda s: float(s.confusion.recall), lambda r: r.share_limits(r.alarms, r.target), True),
    "precision": Metric("precision", lambda s: _ratio(s.confusion.tp, s.alarms), lambda r: r.precision_limits, True),
    "f1": Metric("F1", lambda s: float(s.confusion.f1), is_binary=True),
    "accuracy": Metric("accuracy", lambda s: s.counts.accuracy, lambda r: r.share_limits(r.y == r.actions), False),
    "balanced_accuracy": Metric("balanced accuracy", lambda s: s.counts.balanced_accuracy, is_binary=False),
    "macro_f1": Metric("macro F1", lambda s: s.counts.macro_f1, is_binary=False),
    "g_mean": Metric("G-mean", lambda s: float(s.counts.g_mean)),
    "average_precision": Metric("average precision", lambda s: s.mean_over_classes(formulas.average_precision)),
    "roc_auc": Metric("ROC AUC", lambda s: s.mean_over_classes(formulas.roc_area), lambda r: r.area_limits),
    "log_loss": Metric("log loss", lambda s: s.mean(s.rows.log_losses)),
    "brier": Metric("Brier score", lambda s: s.mean(s.rows.squares)),
    "cost_per_1000": Metric(
        "cost per 1,000 rows",
        lambda s: 1000.0 * s.mean(s.rows.paid),
        lambda r: cost_interval(r.y, r.actions, r.costs, r.weights, r.clusters).scaled(1000.0)[1:],
    ),
    "alarms_per_1000": Metric(
        "alarms per 1,000 rows",
        lambda s: 1000.0 * s.alarms / s.weights.sum(),
        lambda r: r.share_limits(r.alarms, scale=1000.0),
        True,
    ),
    "false_alarms_per_catch": Metric(
        "false alarms per catch", lambda s: _ratio(s.confusion.fp, s.confusion.tp), _per_catch, True
    ),
}


class RowMetrics:
    """Labelled rows with probabilities (n, K) and decisions at a price, about the positive class if there is one.

    Of clusters closed intervals are longer, and clusters are resampled.
    """

    def __init__(
        self, y: Index, p: Array, price: Price, weights: Array | None = None, *, clusters: Clusters | None = None
    ) -> None:
        self.y: Index = np.asarray(y, dtype=np.int64)
        self.p = p
        self.column: int | None = price.positive
        self.actions: Index = np.asarray(price.decide(p), dtype=np.int64)
        self.target: Bools = np.asarray(self.y == self.column)  # none without a positive class
        self.alarms: Bools = np.asarray(self.actions == self.column)
        self.costs: Array = price.cost_matrix.costs
        self.weights: Array = np.ones(len(p)) if weights is None else weights
        self.clusters: Clusters | None = clusters
        self.evaluated = range(p.shape[1]) if self.column is None else [self.column]
        self.curves = [formulas.ThresholdCurve(self.y == k, p[:, k]) for k in self.evaluated]
        truth = np.eye(p.shape[1])[self.y]
        self.log_losses: Array = formulas.log_losses(self.y, p)
        # For two classes the squared error of the positive one.
        self.squares: Array = ((p - truth) ** 2).sum(axis=1) * (1.0 if self.column is None else 0.5)
        self.paid: Array = self.costs[self.y, self.actions]

    @property
    def confusion(self) -> formulas.ConfusionCounts:
        """Found, missed, false alarms and the rest, for two classes."""
        return _Sample(self, self.weights).confusion

    def share_limits(self, hit: Bools, among: Bools | None = None, scale: float = 1.0) -> Limits:
        """Wilson's limits of the share of rows, or of some of them."""
        among = np.ones(len(self.y), dtype=bool) if among is None else among
        groups = None if self.clusters is None else self.clusters[among]
        return share_interval(hit[among], self.weights[among], groups).scaled(scale)[1:]

    @cached_property
    def precision_limits(self) -> Limits:
        """Wilson's."""
        return self.share_limits(self.target, self.alarms)

    @property
    def area_limits(self) -> Limits:
        """DeLong's on the logit scale; of more classes the mean of their limits."""
        found = [auc_interval(self.y == k, self.p[:, k], self.weights, self.clusters) for k in self.evaluated]
        low, high = np.mean([one[1:] for one in found if not math.isnan(one.value)] or [UNKNOWN[1:]], axis=0)
        return float(low), float(high)

    @property
    def metrics(self) -> dict[str, Metric]:
        """Those of `METRICS` that apply."""
        return {name: one for name, one in METRICS.items() if one.is_binary in (None, self.column is not None)}

    def values(self, copies: Array | None = None) -> dict[str, float]:
        """Every metric, with each row counted ``copies`` times."""
        sample = _Sample(self, self.weights if copies is None else copies * self.weights)
        return {name: one.value(sample) for name, one in self.metrics.items()}

    def measured(
        self, n_resamples: int = 0, random_state: int = 0, progress: Callable[[int], None] = lambda done: None
    ) -> dict[str, Interval]:
        """Every metric in the order of `METRICS`; without resamples those without a closed form have no interval."""
        found, metrics = self.values(), self.metrics
        limits = {name: one.limits(self) for name, one in metrics.items() if one.limits is not None}
        if n_resamples:
            drawn: dict[str, list[float]] = {name: [] for name in metrics if name not in limits}
            units = np.arange(len(self.y))
            if self.clusters is not None:
                units = np.unique(self.clusters, return_inverse=True)[1].ravel()
            ones = np.ones(int(units.max()) + 1, dtype=np.int64)
            for some in formulas.row_draws(ones, n_resamples, np.random.default_rng(random_state)):
                for copies in some:
                    sample = _Sample(self, copies[units].astype(np.float64) * self.weights)
                    for name, values in drawn.items():
                        values.append(metrics[name].value(sample))
                    progress(1)
            # Without an error, or without a catch, no resample varies, which is no interval of a single value.
            varied = {name: np.array(values) for name, values in drawn.items() if len(set(np.round(values, 9))) > 1}
            limits |= {name: formulas.percentile_interval(values, LEVEL) for name, values in varied.items()}
        return {name: Interval(value, *limits.get(name, UNKNOWN[1:])) for name, value in found.items()}


def count_values(counts: formulas.ConfusionCounts) -> dict[str, int]:
    """Counts of two classes by name, ready for JSON."""
    tp, fp, fn, tn = (round(float(cell)) for cell in (counts.tp, counts.fp, counts.fn, counts.tn))
    named = {"positives": tp + fn, "found": tp, "missed": fn, "alarms": tp + fp, "false_alarms": fp}
    return {**named, "rightly_left_alone": tn}


def count_sentence(counts: formulas.ConfusionCounts) -> str:
    """Found, missed and false alarms in one sentence."""
    named = count_values(counts)
    if not named["alarms"]:
        return f"no alarm: found 0 of {named['positives']:,}"
    return f"found {named['found']:,} of {named['positives']:,}, {plural(named['false_alarms'], 'false alarm')}"


def too_good(roc_auc: float) -> list[str]:
    """A note if classes are separated so well that a leak is likely, as CRC005 has it."""
    if not roc_auc >= NEAR_PERFECT_AREA:
        return []
    separated = f"the classes are separated almost perfectly (ROC AUC {roc_auc:.5g})"
    return [f"{separated}: look for a column that is filled in after the event (CRC005)"]


def of_no_use(log_loss: float, class_weights: Sequence[float], where: str = "") -> list[str]:
    """A note if probabilities are no better than the class shares, given the weight of the rows of each class."""
    by_share = share_log_loss(class_weights)
    if not log_loss >= by_share:
        return []
    losses = f"its log loss{where} is {log_loss:.4g}, and {by_share:.4g} by the class shares alone"
    return [f"the model is of no use here: {losses}, without any column"]


STEPS_PER_DECADE, MOST_TYPED_DECADES = 100, 8
WINDOWS = (10, 18, 30, 48, 70)  # steps of the grid to either side, for the marginal expense: about ×1.26 to ×5
WANTED_CATCHES = 5  # the narrowest window with this many catches is taken


def rounded(price: float) -> float:
    """A price to three digits, as the page shows and copies it."""
    return float(f"{price:.3g}")


def _decades(price: float, imbalance_ratio: float) -> tuple[int, int]:
    """Exponents of ten around a price and what "balanced" would pay, with a decade to spare on both sides."""
    low = math.floor(math.log10(min(1.0, price)) - 1.0 + 1e-9)
    return max(low, -6), min(math.ceil(math.log10(max(price, imbalance_ratio)) + 0.5), 9)


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


class OperatingPoints(formulas.DecisionCurves):
    """Weighted counts of the rows above every price."""

    def __init__(self, target: Bools, p: Array, weights: Array) -> None:
        super().__init__(target, p, weights)
        # Sum of the squared weights of these rows: their number where there are no weights.
        self.square = np.append(0.0, np.sum(self._curve.totals(weights**2), axis=0))
        self.wanted_catches = WANTED_CATCHES * self.n_rows / len(target)  # weight that the narrowest window is to catch

    def counts(self, price: ArrayLike) -> formulas.ConfusionCounts:
        """The confusion counts of deciding at prices."""
        tp, fp = self.counts_above(1.0 / (1.0 + np.asarray(price)))
        return formulas.ConfusionCounts(
            tp=tp, fp=fp, fn=np.maximum(self.n_pos - tp, 0.0), tn=np.maximum(self.n_neg - fp, 0.0)
        )

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


def steps_of(evidence: Evidence) -> tuple[ExpenseStep, ...]:
    """Steps between round prices of the positive class, or of the weight of each class."""
    price, own, p = evidence.price, (evidence.y, evidence.weights), evidence.proba
    around: Price | list[Price] = price
    if price.positive is not None:
        totals = np.bincount(*own, price.n_classes)
        ladder = price_ladder(price.cost_ratio, float(totals[1 - price.positive] / totals[price.positive]))
        around = [price.replace(CostRatio(one)) for one in ladder]
    paths = price_paths(around)
    decided = (one.decide(p) for path in paths for one in path)
    return tuple(step for path in paths for step in expense_steps(*own, path, decided, p))


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
    columns: tuple[Any, ...] = (target, p, q, weights, clusters)
    parts = [group_of == number for number in range(count)]
    cut: list[list[Any]] = [
        [None if one is None else one[own] for one in columns] for own in parts if weights[own].any()
    ]
    return tuple(_group(*one) for one in cut)


def _group(target: Bools, p: Array, q: Array | None, weights: Array, clusters: Clusters | None) -> ReliabilityGroup:
    size, found, expected = float(weights.sum()), float(weights[target].sum()), float(np.sum(weights * p))
    alone = float(np.sum(weights**2 * p * (1.0 - p)))
    variance, degrees = clustered_variance(weights * (target - p), alone, clusters)
    difference, deviation = found - expected, math.sqrt(variance)
    mean_q = None if q is None else float(np.sum(weights * q)) / size
    share = share_interval(target, weights, clusters)  # value, low and high
    z = difference / deviation if deviation > 0.0 else (math.copysign(math.inf, difference) if difference else 0.0)
    return ReliabilityGroup(int(target.size), expected / size, mean_q, *share, expected, found, z, degrees)


def reliability(evidence: Evidence) -> dict[int, tuple[ReliabilityGroup, ...]]:
    """Reliability of the probability of every class that the report is about, by its number."""
    rows = (evidence.q if evidence.has_positive else None, evidence.weights, evidence.clusters)
    return {k: reliability_groups(evidence.y == k, evidence.proba[:, k], *rows) for k in evidence.evaluated}


_POINTS, _MOST_CUTS = 121, 240


def _decisions(evidence: Evidence) -> dict[str, dict[str, Array]]:
    """Net benefit, cost curve, Brier curve and gains, at prices around that of the model."""
    curves = evidence.of(points_of)
    ends = price_grid(evidence.price.cost_ratio, curves.n_neg / curves.n_pos)
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


MOST_CHARTS = 12  # classes whose reliability is drawn
MOST_NUMBERS = 24_000  # numbers of the rows that the explorer of costs decides again
_HISTOGRAM_BINS, _PATH_POINTS, _COMPARED_POINTS = 36, 61, 81
_EDGE = 1e-6  # probabilities are drawn on the log-odds scale between these ends


def quality_of(evidence: Evidence) -> formulas.Quality:
    """Decisions at the costs."""
    quality = formulas.measure_quality(
        evidence.y, evidence.proba, evidence.cost_matrix, evidence.weights, evidence.clusters
    )
    return quality if evidence.recall_lows is None else quality.with_recall_lows(evidence.recall_lows)


def explored_rows(evidence: Evidence) -> tuple[Index, Array]:
    """Rows for the explorer of costs and their weights: all, or a weighted sample of each class."""
    rng, n_classes = np.random.default_rng(evidence.random_state), evidence.labels.n_classes
    return chosen_rows(evidence, max(MOST_NUMBERS // n_classes, n_classes), rng)


def compare(evidence: Evidence, others: Mapping[str, ArrayLike], name: str) -> list[Values]:
    """Metrics of every model at the price or costs of the first one, ``name``, with the paired difference of costs.

    ``others`` are natural probabilities for the same rows, of the positive class or of every class, by model.
    """
    if not others:
        return []
    found, weights, total = [], evidence.weights, float(evidence.weights.sum())
    price = evidence.decision_price
    first = RowMetrics(evidence.y, evidence.proba, price, weights).paid
    for label, given in [(name, None), *others.items()]:
        proba = evidence.proba
        if given is not None:
            proba = class_probabilities(given, evidence.labels, evidence.n_rows, f"the model {label}")
        rows = RowMetrics(evidence.y, proba, price, weights)
        more = rows.paid - first
        mean = float(weights @ more) / total
        variance = float(np.sum(weights**2 * (more - mean) ** 2)) * design_effect(more, weights, evidence.clusters)
        half = 1.96 * math.sqrt(variance) / total
        ends = [1000.0 * (mean - half), 1000.0 * (mean + half)]
        one = {"name": label, **rows.values(), "more_per_1000": 1000.0 * mean, "interval": ends}
        if evidence.has_positive:
            curves = formulas.DecisionCurves(evidence.target, proba[:, evidence.labels.column], weights)
            ends = price_grid(price.cost_ratio, curves.n_neg / curves.n_pos)
            benefit = curves.net_benefit(np.geomspace(ends[0], ends[-1], _COMPARED_POINTS))
            one |= {"found": rows.confusion.tp, "alarms": rows.confusion.tp + rows.confusion.fp}
            one["net_benefit"] = {"price": benefit.x, "model": benefit.model}
        found.append(one)
    return found


def _rows(evidence: Evidence) -> Values:
    found = attributes(evidence, "n_rows is_weighted is_out_of_fold")
    if not evidence.has_positive:
        order = np.argsort(-evidence.counts, kind="stable")
        return found | {"shares": [(evidence.names[k], evidence.counts[k] / evidence.n_rows) for k in order]}
    n_pos, n_neg = evidence.labels.pair(evidence.totals)
    sizes = {"n_positive_rows": int(evidence.target.sum()), "n_pos": n_pos, "n_neg": n_neg}
    labels = {"pos_label": str(evidence.labels.positive), "neg_label": str(evidence.labels.negative)}
    return {**found, **sizes, **labels, "share": n_pos / (n_pos + n_neg)}


def _quality(evidence: Evidence) -> Values:
    rows = RowMetrics(evidence.y, evidence.proba, evidence.decision_price, evidence.weights, clusters=evidence.clusters)
    metrics, lows = rows.measured(), evidence.recall_lows
    found: Values = {name: one.value for name, one in metrics.items()}
    found |= {f"{name}_interval": one[1:] for name, one in metrics.items()}
    found |= {"base_log_loss": share_log_loss(evidence.totals), "has_price": evidence.has_price}
    if not evidence.has_positive:
        return found
    if lows is not None:
        low, high = metrics["recall"][1:]
        found |= {"recall_interval": (np.fmin(low, lows[evidence.labels.column]), high), "cost_per_1000_interval": None}
    found |= attributes(evidence, "price=price.cost_ratio threshold=price.threshold")
    return found | attributes(rows.confusion, "tp fp fn")


def _by_class(evidence: Evidence) -> Values:
    quality = evidence.of(quality_of)
    found = {**quality.to_dict(), "n_reviewed": float(quality.counts.table[:, len(quality.labels) :].sum())}
    return found | {"classes": [{**one, "label": str(one["label"])} for one in quality.by_class]}


def _costs(evidence: Evidence) -> Values:
    """Costs of decisions, and the rows that the explorer decides again."""
    chosen, weights = explored_rows(evidence)
    costs = evidence.cost_matrix
    return {
        "labels": evidence.names,
        "decisions": [str(name) for name in costs.names],
        "costs": [[float(f"{one:.6g}") for one in row] for row in costs.costs.tolist()],
        "y": evidence.y[chosen],
        "p": [[float(f"{one:.6g}") for one in column] for column in evidence.proba[chosen].T],
        "weights": None if (weights == 1.0).all() else [float(f"{one:.9g}") for one in weights],
    }


def _reliability(evidence: Evidence) -> list[Values]:
    """Groups of rows of similar probability, for the classes with the most rows."""
    found = evidence.of(reliability)
    drawn = sorted(sorted(found, key=lambda k: -evidence.counts[k])[:MOST_CHARTS])
    return [{"label": evidence.names[k], "groups": [asdict(one) for one in found[k]]} for k in drawn]


def _explorer(evidence: Evidence) -> Values:
    points, price = evidence.of(points_of), evidence.price.cost_ratio
    grid = price_grid(price, points.n_neg / points.n_pos)
    start = rounded(price)
    kept = points.thinned([*grid, *typed_prices(grid), start], evidence.most_points)
    below = np.append(points.score[1:], 0.0)
    is_exact = kept.size == points.score.size
    return {
        "grid": grid,
        "start": start,
        "windows": WINDOWS,
        "least_variance": LEAST_VARIANCE,
        "most_deviations": EXPENSE_Z,
        **attributes(points, "wanted_catches n_pos n_neg"),
        "score": points.score[kept],
        "tp": points.tp[kept + 1],
        "fp": points.fp[kept + 1],
        # What only some pages need: the sum of squared weights, and where points were left out the next score below.
        "square": points.square[kept + 1] if evidence.is_weighted else None,
        "below": None if is_exact else below[kept],
        **attributes(evidence, "noise effect"),
    }


def _ladder(evidence: Evidence) -> list[Values]:
    """Counts at round prices, with the expense of the step from the price before."""
    points = evidence.of(points_of)
    prices = price_ladder(evidence.price.cost_ratio, points.n_neg / points.n_pos)
    rows, empty = [], {"low": math.nan, "expense": math.nan, "verdict": ""}
    for one, step in zip(prices, (None, *evidence.of(steps_of)), strict=True):
        counts = points.counts(one)
        alarms = counts.tp + counts.fp
        found = {"price": one, **attributes(counts, "fn fp recall"), "alarms_per_1000": 1000.0 * alarms / points.n_rows}
        found["precision"] = counts.precision if alarms else math.nan
        own = empty if step is None else attributes(step, "low=bracket_low expense verdict")
        z = math.nan if step is None or evidence.no_test else step.deviation(evidence.noise, evidence.effect)
        rows.append(found | own | {"z": z})
    return rows


def _key_equations(evidence: Evidence) -> Values:
    """Both sides on the training rows and out of fold, if the model keeps them, and on these rows, which are tested."""
    kept = {"training": "key_equation_", "out_of_fold": "oof_key_equation_"}
    equations = {name: kept_by(evidence.model, attribute) for name, attribute in kept.items()}
    known = {name: one for name, one in equations.items() if isinstance(one, KeyEquation)}
    found = {name: {"lhs": one.lhs, "rhs": one.rhs, "z": math.nan} for name, one in known.items()}
    return found | {"these_rows": attributes(evidence.equations, "lhs rhs z")}


def _histogram(evidence: Evidence) -> Values:
    """Shares of each class in bins of equal width on the log-odds scale."""
    logits = log_odds(evidence.p, _EDGE)
    low, high = float(logits.min()), float(logits.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = np.linspace(low, high, _HISTOGRAM_BINS + 1)
    sides, w = {"pos": evidence.target, "neg": ~evidence.target}, evidence.weights
    shares = {k: np.histogram(logits[own], edges, weights=w[own])[0] / w[own].sum() for k, own in sides.items()}
    return {"edges": 1.0 / (1.0 + np.exp(-edges)), **shares}


def _weight_path(evidence: Evidence) -> Values:
    """Class means of these rows' probabilities under every weight, and the means that the general law implies."""
    n_pos, n_neg = evidence.labels.pair(evidence.totals)
    ratio = n_neg / n_pos
    grid = price_grid(evidence.price.cost_ratio, ratio)
    prices = np.geomspace(grid[0], grid[-1], _PATH_POINTS)
    rows, p, target, w = [], evidence.p, evidence.target, evidence.weights
    for one in prices:
        q = weighted_probability(p, CostRatio(float(one)))
        means = [float(np.average(q[mine], weights=w[mine])) for mine in (target, ~target)]
        rows.append((*means, *means_by_law(means[0] - means[1], float(one) / ratio)))
    mean_pos, mean_neg, law_pos, law_neg = np.transpose(rows)
    return {"price": prices, "mean_pos": mean_pos, "mean_neg": mean_neg, "law_pos": law_pos, "law_neg": law_neg}


@dataclass(frozen=True)
class Part:
    """Numbers of one part of the page."""

    value: Callable[[Evidence], object]
    is_binary: bool | None = None  # for models with a positive class, for others (False), or for both (None)
    is_drawn: bool = False  # by the script


# A part of the page is one entry.
PARTS: dict[str, Part] = {
    "explorer": Part(_explorer, is_binary=True, is_drawn=True),
    "reliability": Part(_reliability, is_drawn=True),
    "histogram": Part(_histogram, is_binary=True, is_drawn=True),
    "key_equations": Part(_key_equations, is_drawn=True),
    "path": Part(_weight_path, is_binary=True, is_drawn=True),
    "decisions": Part(_decisions, is_binary=True, is_drawn=True),
    "costs": Part(_costs, is_binary=False, is_drawn=True),
    "rows": Part(_rows, is_drawn=True),
    "quality": Part(_quality),
    "ladder": Part(_ladder, is_binary=True),
    "by_class": Part(_by_class, is_binary=False),
    "equations": Part(lambda evidence: evidence.equations.to_dict(), is_binary=False),
}


def measure(evidence: Evidence) -> Values:
    """Numbers of those parts of the page that apply; None if a number does not exist."""
    applying = {name: one for name, one in PARTS.items() if one.is_binary in (None, evidence.has_positive)}
    return dict(json_value({name: one.value(evidence) for name, one in applying.items()}, shorten=True))
