"""From a goal to a price: which weighting reaches a recall, a precision or a number of alarms."""

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.expense_curve import CurveRows, ExpenseCurve, has_held_out_rows, out_of_fold_posterior
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_clusters, check_probabilities, check_row_weights, class_totals
from crcen.theory.goals import RowsByProbability, ThresholdGoal, price_of_threshold
from crcen.theory.intervals import Interval, share_interval
from crcen.theory.metrics import ConfusionCounts, DecisionCounts, confusion_counts, decision_counts, percentile_interval
from crcen.theory.price import CostRatio, Labels, positive_number
from crcen.theory.rows import Array, Estimator, Index, Rows, ShownInOneLine, as_numpy

Ends = tuple[float, float]

_SWEEPS = 1000
_LARGEST = 60.0  # of log weights: beyond that the other classes are never decided


@dataclass(frozen=True, repr=False)
class ChosenWeighting(ShownInOneLine):
    """The price that meets a goal, and the expected results."""

    weighting: CostRatio  # to train at, or to give to `crcen.decide` with the natural posterior
    target: str  # the goal
    threshold: float
    counts: ConfusionCounts
    recall: float
    precision: float
    alarm_rate: float  # share of rows with an alarm
    recall_interval: Ends  # Wilson's intervals at this threshold
    precision_interval: Ends
    alarm_rate_interval: Ends
    # Bootstrap interval of the cost ratio: 0 for a resample that cannot meet the goal, inf for one that needs an alarm
    # on probability 0; NaN for a guarantee.
    price_interval: Ends
    level: float
    rate: float | None = None  # rows a day
    confidence: float | None = None  # of a guarantee
    misses: str = ""  # how often new rows miss the goal

    @property
    def average_price(self) -> float:
        """False alarms per catch on the rows given; the price of the last catch is ``weighting``."""
        return float(self.counts.fp / self.counts.tp) if self.counts.tp else math.nan

    def to_dict(self) -> dict[str, object]:
        """Plain values; None where a number does not exist."""
        names = ("recall", "precision", "alarm_rate")
        intervals = {name: Interval(getattr(self, name), *getattr(self, f"{name}_interval")) for name in names}
        intervals["cost_ratio"] = Interval(self.weighting.value, *self.price_interval)
        stated = {"goal": self.target, "confidence": self.confidence, "misses": self.misses or None}
        return {**stated, "threshold": self.threshold, **{name: one.to_dict() for name, one in intervals.items()}}

    def __str__(self) -> str:
        def line(name: str, value: float, interval: Ends) -> str:
            between = "" if math.isnan(interval[0]) else f"   [{interval[0]:.4g}, {interval[1]:.4g}]"
            return f"  {name:<22}{value:>9.4g}{between}"

        low, high = self.alarm_rate_interval
        day = self.rate or math.nan
        brackets = f"  in brackets: {100 * self.level:g} % intervals"
        notes = [f"{brackets}; those of the last catch are of the choice itself", f"  {self.misses}".rstrip()]
        if self.confidence is not None:
            notes = [brackets, "  guaranteed for this very model on new rows like these; a refit voids it"]
        lines = [
            f"{self.target}: a price of {self.weighting.value:.4g}, an alarm where p > {self.threshold:.4g}",
            line("recall", self.recall, self.recall_interval),
            line("precision", self.precision, self.precision_interval),
            line("share of rows alarmed", self.alarm_rate, self.alarm_rate_interval),
            "" if self.rate is None else line("alarms a day", day * self.alarm_rate, (day * low, day * high)),
            line("price of last catch", self.weighting.value, self.price_interval),
            f"  {'price of average catch':<22}{self.average_price:>9.4g}",
        ]
        return "\n".join(filter(None, lines + notes))


@dataclass(frozen=True, eq=False)
class ChosenClassWeights:
    """The smallest class weights that reach the recalls of a goal."""

    weighting: dict[Hashable, float]  # a class without a goal has weight 1
    recalls: dict[Hashable, float]
    counts: DecisionCounts  # decisions at these weights, in the order of the model's classes

    def __str__(self) -> str:
        weights = ", ".join(f"{label}: {weight:.6g}" for label, weight in self.weighting.items())
        asked = ", ".join(f"{label} {recall:g}" for label, recall in self.recalls.items())
        return "\n".join([f"recall of {asked}: weights {weights}", self.counts.table_of(list(self.weighting))])


def choose_weighting(
    source: ExpenseCurve | CurveRows | Estimator,
    goal: ThresholdGoal | Mapping[Hashable, float],
    X: Rows = None,
    y: ArrayLike | None = None,
    *,
    rate: float | None = None,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: int = 0,
) -> ChosenWeighting | ChosenClassWeights:
    """Find the price that meets a goal, by moving the threshold of a model on rows it did not see.

    Parameters
    ----------
    source : ExpenseCurve, CRCENClassifierCV, CommitteeClassifier, or any fitted classifier with ``predict_proba``
        A curve from predictions brings its rows. A search is judged on its out-of-fold rows and needs the ``y`` it was
        fitted on. Any other model needs ``X`` and ``y``: rows it did **not** see, at the natural class ratio.
    goal : RecallAtLeast, PrecisionAtLeast, Capacity, or a dict of label to recall
        The smallest price with at least that recall; the largest price with at least that precision, or with at most so
        many alarms. A dict, for any number of classes, finds the least class weights with at least these recalls.
    X, y, sample_weight : optional
        Rows as the source needs them.
    rate : float, optional
        Rows a day, which a capacity for a day or a week needs; with it the alarms a day are given for every goal.
    clusters : array of shape (n,), optional
        Rows of the same cluster may depend on each other: a guarantee counts one row of each, intervals are longer.
    level, n_resamples, random_state
        Of the bootstrap.

    Notes
    -----
    The threshold is chosen and judged on the same rows: on new rows the goal is missed about as often as met. With a
    confidence, new rows meet a recall or precision with that probability, by the very model that was judged.
    """
    if isinstance(goal, Mapping):
        return _choose_class_weights(source, goal, X, y, sample_weight)
    rows = _rows(source, X, y, sample_weight)
    if getattr(goal, "confidence", None) is not None and has_held_out_rows(source) and X is None:
        raise InvalidParameter(
            "a guarantee is for one fitted model, and out-of-fold rows were held out from others: give X and y, rows "
            "that this model did not see"
        )
    target, p, weights = rows.target, rows.p, rows.weights / rows.weights.mean()  # the unit of weights has no meaning
    groups = check_clusters(clusters, target.size)
    if rate is not None:
        rate = positive_number(rate, "rate")
    if not isinstance(goal, ThresholdGoal):
        raise InvalidParameter(
            f"a goal must be Capacity(200), RecallAtLeast(0.9) or PrecisionAtLeast(0.5), got a {type(goal).__name__}"
        )
    ordered, goal = RowsByProbability(target, p, weights, groups), goal.for_rows(float(weights.sum()), rate)
    threshold = goal.threshold(ordered)
    alarms = p > threshold
    counts = confusion_counts(target, alarms, weights)
    prices = (math.nan, math.nan)  # a guarantee includes the sampling of its rows
    if goal.confidence is None:
        prices = percentile_interval(goal.resampled_prices(ordered, n_resamples, random_state), level)
    everything = np.ones_like(alarms)
    shares = {"recall": (target, alarms), "precision": (alarms, target), "alarm_rate": (everything, alarms)}
    intervals = {
        f"{name}_interval": share_interval(
            hits[among], weights[among], None if groups is None else groups[among], level=level
        )[1:]
        for name, (among, hits) in shares.items()
    }
    return ChosenWeighting(
        weighting=CostRatio(price_of_threshold(threshold)),
        target=str(goal),
        threshold=threshold,
        counts=counts,
        recall=float(counts.recall),
        precision=float(counts.precision),
        alarm_rate=float(weights[alarms].sum() / weights.sum()),
        price_interval=prices,
        level=level,
        rate=rate,
        confidence=goal.confidence,
        misses=goal.misses if goal.confidence is None else "",
        **intervals,
    )


def _rows(source: Estimator, X: Rows, y: ArrayLike | None, sample_weight: ArrayLike | None) -> CurveRows:
    """Labels and natural posteriors of rows the model did not see."""
    if isinstance(source, CurveRows):
        return source
    if isinstance(source, ExpenseCurve):
        if source.rows is None:
            raise InvalidParameter(
                "this curve is of networks trained separately, whose decisions are not nested, so no threshold can be "
                "read off it: make one with ExpenseCurve.from_predictions"
            )
        return source.rows
    if has_held_out_rows(source) and X is None:
        if y is None:
            raise InvalidParameter("a search needs y, the labels it was fitted on")
        target, p, seen = out_of_fold_posterior(source, y)
        weights: ArrayLike | None = None if sample_weight is None else np.asarray(sample_weight)[seen]
    else:
        labels, proba = _predictions(source, X, y)
        own = Labels.of_model(source, labels)
        p = check_probabilities(proba[:, own.column], "predict_proba")
        target, weights = own.encode(labels) == own.column, sample_weight
    checked = check_row_weights(weights, target.size)
    class_totals(target, checked)
    return CurveRows(target, p, checked)


def _predictions(source: Estimator, X: Rows, y: ArrayLike | None) -> tuple[NDArray[np.generic], Array]:
    """The labels of the rows that a fitted classifier is judged on, and its probabilities of all classes."""
    if not hasattr(source, "predict_proba") or not hasattr(source, "classes_"):
        raise InvalidParameter(
            f"choose_weighting takes an ExpenseCurve, a CRCENClassifierCV or a fitted classifier with predict_proba, "
            f"got a {type(source).__name__}"
        )
    if X is None or y is None:
        raise InvalidParameter(f"{type(source).__name__} needs X and y, rows that it did not see")
    labels, p = np.asarray(as_numpy(y)), np.asarray(source.predict_proba(X), dtype=np.float64)
    shape = (len(labels), len(source.classes_))
    if p.shape != shape:
        raise InvalidInput(f"predict_proba must give {shape[1]} columns for each of {shape[0]} rows, got {p.shape}")
    return labels, p


def _choose_class_weights(
    source: Estimator, recalls: Mapping[Hashable, float], X: Rows, y: ArrayLike | None, sample_weight: ArrayLike | None
) -> ChosenClassWeights:
    """Smallest class weights with a recall for each of some classes."""
    labels, p = _predictions(source, X, y)
    classes = Labels(np.asarray(source.classes_))
    known = classes.classes.tolist()
    for label, recall in recalls.items():
        if label not in known:
            raise InvalidParameter(f"recalls must be of the classes {known}: got {label!r}.")
        if not isinstance(recall, int | float) or not 0.0 < recall <= 1.0:
            raise InvalidParameter(f"a recall must lie above 0 and be at most 1: got {recall!r} for {label}.")
    target = classes.encode(labels)
    weights = check_row_weights(sample_weight, target.size)
    classes.counts(target, weights)
    floors = {known.index(label): float(recall) for label, recall in recalls.items()}
    log_weights = _least_weights(p, target, weights, floors)
    if log_weights is None:
        raise InvalidParameter(
            "these recalls cannot be reached together on these rows with any weights: lower the recall of a class."
        )
    with np.errstate(divide="ignore"):
        chosen = (np.log(p) + log_weights).argmax(axis=1)
    weighting = dict(zip(known, np.exp(log_weights).tolist(), strict=True))
    return ChosenClassWeights(weighting, dict(recalls), decision_counts(target, chosen, classes.n_classes, weights))


def _least_weights(p: Array, target: Index, weights: Array, floors: dict[int, float]) -> Array | None:
    """Logarithms of the smallest weights from 1 on with these recalls; None if there are none."""
    log_weights = np.zeros(p.shape[1])
    with np.errstate(divide="ignore"):
        log_p = np.log(p)
    own = {k: np.flatnonzero((target == k) & (weights > 0.0)) for k in floors}
    for _ in range(_SWEEPS):
        before = log_weights.copy()
        for k, floor in floors.items():
            others = (log_p[own[k]] + log_weights).copy()
            others[:, k] = -np.inf
            needed = others.max(axis=1) - log_p[own[k], k]
            order = np.argsort(needed)
            reached = np.cumsum(weights[own[k]][order]) >= floor * weights[own[k]].sum() * (1.0 - 1e-12)
            least = float(needed[order][np.argmax(reached)])
            # Slightly more, so that it is no tie.
            log_weights[k] = max(log_weights[k], least + 1e-9 * max(1.0, abs(least)))
            if not log_weights[k] <= _LARGEST:
                return None
        if np.abs(log_weights - before).max() <= 1e-8:
            return log_weights
    return None
