"""Metrics of decisions and probabilities on labelled rows, with closed-form or bootstrap intervals."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import entr

from crcen._support.text import plural
from crcen.theory.intervals import LEVEL, UNKNOWN, Interval, auc_interval, cost_interval, share_interval
from crcen.theory.limits import NEAR_PERFECT_AREA
from crcen.theory.metrics import (
    ConfusionCounts,
    DecisionCounts,
    ThresholdCurve,
    average_precision,
    log_losses,
    percentile_interval,
    roc_area,
    row_draws,
)
from crcen.theory.price import Price
from crcen.theory.rows import Array, Bools, Clusters, Index

Limits = tuple[float, float]


def measured_text(one: Interval) -> str:
    """A metric with its interval, if it has one."""
    if math.isnan(one.value):
        return "none"
    return f"{one.value:.4g}" if math.isnan(one.low) else f"{one.value:<9.4g} ({one.low:.4g} to {one.high:.4g})"


@dataclass(frozen=True)
class _Sample:
    """Rows with weights, as metrics see them."""

    rows: "RowMetrics"
    weights: Array

    @cached_property
    def counts(self) -> DecisionCounts:
        rows = self.rows
        place = rows.y * rows.costs.shape[1] + rows.actions
        table = np.bincount(place, self.weights, rows.costs.size).astype(np.float64)
        return DecisionCounts(table.reshape(rows.costs.shape))

    @cached_property
    def confusion(self) -> ConfusionCounts:
        return confusion_of(self.counts, self.rows.column)

    @property
    def alarm_weight(self) -> float:
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


def _ratio(above: float, below: float) -> float:
    return above / below if below else math.nan


# In the order they are printed. A metric is one entry.
METRICS: dict[str, Metric] = {
    "recall": Metric(
        "recall",
        lambda s: float(s.confusion.recall),
        lambda r: r.share_limits(r.actions == r.column, r.y == r.column),
        True,
    ),
    "precision": Metric(
        "precision", lambda s: _ratio(float(s.confusion.tp), s.alarm_weight), lambda r: r.precision_limits, True
    ),
    "f1": Metric("F1", lambda s: float(s.confusion.f1), is_binary=True),
    "accuracy": Metric("accuracy", lambda s: s.counts.accuracy, lambda r: r.share_limits(r.y == r.actions), False),
    "balanced_accuracy": Metric("balanced accuracy", lambda s: s.counts.balanced_accuracy, is_binary=False),
    "macro_f1": Metric("macro F1", lambda s: s.counts.macro_f1, is_binary=False),
    "g_mean": Metric("G-mean", lambda s: s.counts.g_mean),
    "average_precision": Metric("average precision", lambda s: s.mean_over_classes(average_precision)),
    "roc_auc": Metric("ROC AUC", lambda s: s.mean_over_classes(roc_area), lambda r: r.area_limits),
    "log_loss": Metric("log loss", lambda s: s.mean(s.rows.log_losses)),
    "brier": Metric("Brier score", lambda s: s.mean(s.rows.squares)),
    "cost_per_1000": Metric(
        "cost per 1,000 rows",
        lambda s: 1000.0 * s.mean(s.rows.paid),
        lambda r: cost_interval(r.y, r.actions, r.costs, r.weights, r.clusters).scaled(1000.0)[1:],
    ),
    "alarms_per_1000": Metric(
        "alarms per 1,000 rows",
        lambda s: 1000.0 * s.alarm_weight / s.weights.sum(),
        lambda r: r.share_limits(r.actions == r.column, scale=1000.0),
        True,
    ),
    "false_alarms_per_catch": Metric(
        "false alarms per catch", lambda s: _ratio(float(s.confusion.fp), float(s.confusion.tp)), _per_catch, True
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
        self.costs: Array = price.cost_matrix.costs
        self.weights: Array = np.ones(len(p)) if weights is None else weights
        self.clusters: Clusters | None = clusters
        classes = range(p.shape[1]) if self.column is None else [self.column]
        self.curves = [ThresholdCurve(self.y == k, p[:, k]) for k in classes]
        truth = np.eye(p.shape[1])[self.y]
        both = (self.y, p) if self.column is None else (self.y == self.column, p[:, self.column])
        self.log_losses: Array = log_losses(*both)
        # For two classes the squared error of the positive one.
        self.squares: Array = ((p - truth) ** 2).sum(axis=1) * (1.0 if self.column is None else 0.5)
        self.paid: Array = self.costs[self.y, self.actions]

    @property
    def confusion(self) -> ConfusionCounts:
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
        return self.share_limits(self.y == self.column, self.actions == self.column)

    @property
    def area_limits(self) -> Limits:
        """DeLong's on the logit scale; of more classes the mean of their limits."""
        classes = range(self.p.shape[1]) if self.column is None else [self.column]
        found = [auc_interval(self.y == k, self.p[:, k], self.weights, self.clusters) for k in classes]
        known = [one[1:] for one in found if not math.isnan(one.value)]
        if not known:
            return math.nan, math.nan
        return float(np.mean([low for low, _ in known])), float(np.mean([high for _, high in known]))

    @property
    def metrics(self) -> dict[str, Metric]:
        """Those of `METRICS` that apply."""
        is_binary = self.column is not None
        return {name: one for name, one in METRICS.items() if one.is_binary in (None, is_binary)}

    def values(self, copies: Array | None = None) -> dict[str, float]:
        """Every metric, with each row counted as often as ``copies`` says."""
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
            for some in row_draws(ones, n_resamples, np.random.default_rng(random_state)):
                for copies in some:
                    sample = _Sample(self, copies[units].astype(np.float64) * self.weights)
                    for name, values in drawn.items():
                        values.append(metrics[name].value(sample))
                    progress(1)
            limits |= {name: percentile_interval(np.array(values), LEVEL) for name, values in drawn.items()}
        return {name: Interval(value, *limits.get(name, UNKNOWN[1:])) for name, value in found.items()}


def confusion_of(counts: DecisionCounts, positive: int | None) -> ConfusionCounts:
    """The four cells of two classes; decisions for another action count as no alarm."""
    table, column = counts.table, 1 if positive is None else positive
    alarms, rows = table[:, column], table.sum(axis=1)
    return ConfusionCounts(
        tp=alarms[column],
        fp=alarms[1 - column],
        fn=rows[column] - alarms[column],
        tn=rows[1 - column] - alarms[1 - column],
    )


def count_values(counts: ConfusionCounts) -> dict[str, int]:
    """Counts of two classes by name, ready for JSON."""
    tp, fp, fn, tn = (round(float(cell)) for cell in (counts.tp, counts.fp, counts.fn, counts.tn))
    named = {"positives": tp + fn, "found": tp, "missed": fn, "alarms": tp + fp, "false_alarms": fp}
    return {**named, "rightly_left_alone": tn}


def count_sentence(counts: ConfusionCounts) -> str:
    """Found, missed and false alarms in one sentence."""
    named = count_values(counts)
    if not named["alarms"]:
        return f"no alarm: found 0 of {named['positives']:,}"
    return f"found {named['found']:,} of {named['positives']:,}, {plural(named['false_alarms'], 'false alarm')}"


def too_good(roc_auc: float) -> list[str]:
    """A note if classes are separated so well that a leak is likely, as CRC005 has it."""
    if not roc_auc >= NEAR_PERFECT_AREA:
        return []
    return [
        f"the classes are separated almost without an error (ROC AUC {roc_auc:.5g}): look for a column that is filled "
        "in after the event (CRC005)"
    ]


def share_log_loss(class_weights: ArrayLike) -> float:
    """Log loss of the class shares alone, given the weight of the rows of each class."""
    return float(entr(np.asarray(class_weights) / np.sum(class_weights)).sum())


def of_no_use(log_loss: float, class_weights: Sequence[float], where: str = "") -> list[str]:
    """A note if probabilities are no better than the class shares, given the weight of the rows of each class."""
    by_share = share_log_loss(class_weights)
    if not log_loss >= by_share:
        return []
    return [
        f"the model is of no use here: its log loss{where} is {log_loss:.4g}, and {by_share:.4g} by the class "
        f"shares alone, without any column"
    ]
