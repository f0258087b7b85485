"""Metrics of decisions and probabilities: counts, curves over thresholds, costs and shares with intervals."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.text import attributes, json_value
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory import checks
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.intervals import UNKNOWN, Interval, auc_interval, cost_interval, normal_interval, share_interval
from crcen.theory.rows import Array, Bools, EqualByArrays, FloatOrArray, Index, as_numpy, divided, scalar, short

# A probability of exactly 0 would make the log loss infinite.
_SMALLEST = 1e-15
_CHUNK_BYTES = 2**25
MOST_RESAMPLES = 1_000_000
# Expected positives below which a recall is undefined.
_NONE = 1e-9
_WIDEST = 12  # characters of a name over a column of counts


@dataclass(frozen=True, eq=False)
class ConfusionCounts(EqualByArrays):
    """The four cells of the confusion matrix of the positive class, or else of each class against the others.

    They are numbers, or arrays (models,), (K,) or (models, K); weighted counts allowed, not negative.
    """

    tp: FloatOrArray  # true positives, and so on
    fp: FloatOrArray
    fn: FloatOrArray
    tn: FloatOrArray
    several: Array | None = field(default=None, repr=False)  # ``table``, if there is no positive class

    def __post_init__(self) -> None:
        shapes = {}
        for name in ("tp", "fp", "fn", "tn"):
            counts = checks.check_not_negative(getattr(self, name), name)
            shapes[name] = counts.shape
            object.__setattr__(self, name, scalar(counts))
        if len(set(shapes.values())) > 1:
            raise InvalidInput(f"tp, fp, fn and tn must have one shape, got {shapes}")

    @classmethod
    def of_table(cls, table: Array, positive: int | None = None) -> "ConfusionCounts":
        """From decisions by true class, (…, K, A), whose first K columns decide for a class and others for none."""
        row, column = np.eye(table.shape[-2]), np.eye(*table.shape[-2:])
        sides = [(row, column), (1.0 - row, column), (row, 1.0 - column), (1.0 - row, 1.0 - column)]
        # Each cell is its own sum: a difference of sums could leave -1e-16 instead of 0.
        cells = [np.einsum("...cd,kc,kd->...k", table, *own) for own in sides]
        found = cls(*(cells if positive is None else (one[..., positive] for one in cells)))
        return replace(found, several=table) if positive is None else found

    @property
    def table(self) -> Array:
        """Decisions by true class, (…, K, A): the confusion matrix, then a column for each further action."""
        if self.several is not None:
            return self.several
        return np.stack([np.stack([self.tn, self.fp], axis=-1), np.stack([self.fn, self.tp], axis=-1)], axis=-2)

    @property
    def recall(self) -> FloatOrArray:
        """Share of the positives that are found; NaN if there is no positive."""
        return scalar(divided(self.tp, self.tp + self.fn))

    @property
    def specificity(self) -> FloatOrArray:
        """Share of the negatives without an alarm; NaN if there is no negative."""
        return scalar(divided(self.tn, self.tn + self.fp))

    @property
    def precision(self) -> FloatOrArray:
        """Share of the alarms that are right; 0 if there is no alarm."""
        return scalar(divided(self.tp, self.tp + self.fp, 0.0))

    @property
    def f1(self) -> FloatOrArray:
        """Harmonic mean of precision and recall, 2·tp / (2·tp + fp + fn); 0 if that is 0/0."""
        return scalar(divided(2.0 * self.tp, 2.0 * self.tp + (self.fp + self.fn), 0.0))

    @property
    def g_mean(self) -> FloatOrArray:
        """Geometric mean of recall and specificity, NaN if a class is absent; or of the recalls of those with rows."""
        recalls = np.asarray(self.recall)
        if self.several is not None:
            return scalar(np.nanprod(recalls, axis=-1) ** (1.0 / np.isfinite(recalls).sum(axis=-1)))
        return scalar(np.sqrt(recalls * np.asarray(self.specificity)))

    @property
    def accuracy(self) -> float:
        """Share of all rows that were given to their class."""
        return float(np.trace(self.table) / self.table.sum())

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have rows."""
        return _known_mean(divided(np.diag(self.table), self.table.sum(axis=1)))

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes that occur, in truth or as a decision."""
        sizes = self.table.sum(axis=1) + self.table.sum(axis=0)[: len(self.table)]
        return _known_mean(divided(2.0 * np.diag(self.table), sizes))


def _known_mean(values: Array) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else math.nan


def confusion_counts(y: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> ConfusionCounts:
    """Count right and wrong decisions of one model, or of many (then counts are arrays).

    Parameters
    ----------
    y, y_pred : array of shape (n,), or (models, n) for decisions of many models
        0/1 or bool, 1 is positive; class numbers 0 … K−1 for K > 2 classes, each of which is counted against the rest.
    sample_weight : array of shape (n,), optional
        Finite and not negative; then the counts are sums of weights.
    """
    n_classes = _number_of_classes(np.asarray(as_numpy(y)), np.asarray(as_numpy(y_pred)))
    if n_classes == 2:
        truth: Index = checks.check_binary_target(y).astype(np.int64)
        called: Index = checks.check_binary_target(y_pred, "y_pred", ndims=(1, 2)).astype(np.int64)
    else:
        truth, called = checks.check_class_numbers(y, n_classes), np.asarray(as_numpy(y_pred))
        called = checks.check_class_numbers(called.ravel(), n_classes).reshape(called.shape)
    if called.shape[-1] != truth.size:
        raise InvalidInput(f"y_pred must have {truth.size} columns as y has rows, got shape {called.shape}")
    weights = checks.check_row_weights(sample_weight, truth.size)
    return count_decisions(truth, called, weights, n_classes, positive=1 if n_classes == 2 else None)


def count_decisions(
    truth: Index, called: Index, weights: Array, n_classes: int, n_decisions: int = 0, positive: int | None = None
) -> ConfusionCounts:
    """Decisions (n,) or (models, n) by true class; numbers from ``n_classes`` on are further actions."""
    width = n_decisions or n_classes
    tables = [np.bincount(truth * width + own, weights, n_classes * width) for own in np.atleast_2d(called)]
    shape = (*called.shape[:-1], n_classes, width)
    return ConfusionCounts.of_table(np.array(tables, dtype=np.float64).reshape(shape), positive)


def _number_of_classes(y: NDArray[Any], y_pred: NDArray[Any]) -> int:
    """K of class numbers from 0; 2 for anything else. Labels such as 1 and 2 are no class numbers from 0."""
    if y.ndim != 1 or y.dtype.kind not in "iu" or not y.size or y.min() != 0 or y_pred.dtype.kind not in "iu":
        return 2
    return max(2, int(y.max()) + 1, int(y_pred.max(initial=0)) + 1)


def g_mean(y: ArrayLike, y_pred: ArrayLike, sample_weight: ArrayLike | None = None) -> FloatOrArray:
    """Geometric mean of recall and specificity, or of the recalls of more classes; NaN if one of two is absent.

    The parameters are those of `confusion_counts`.
    """
    return confusion_counts(y, y_pred, sample_weight).g_mean


def log_losses(target: Index | Bools, p: Array) -> Array:
    """Log loss of every row, from bool targets and p (n,) of the positive class, or class numbers and p (n, K)."""
    if p.ndim == 2:
        return np.asarray(-np.log(np.maximum(p[np.arange(len(target)), target], _SMALLEST)))
    inside = np.clip(p, _SMALLEST, 1.0 - _SMALLEST)
    return np.asarray(-np.where(target, np.log(inside), np.log1p(-inside)))


@dataclass(frozen=True, eq=False)
class Quality:
    """Decisions of labelled rows at stated costs."""

    costs: CostMatrix  # labelled
    counts: ConfusionCounts  # decisions by class, sums of weights if rows have weights
    cost: Interval  # mean of a row
    expected_cost: float  # as the probabilities expect it
    habit: object  # the cheapest single decision for all of these rows
    habit_cost: float  # its mean cost of a row
    saved: Interval  # a row, against the habit
    recalls: tuple[Interval, ...]  # share of the rows of each class that were given to it
    precisions: tuple[Interval, ...]  # share of rows given to each class that are of it
    areas: tuple[Interval, ...]  # under the ROC curve of each class against the rest; NaN for a class without rows
    average_precisions: Array  # (K,), likewise
    log_loss: float
    base_log_loss: float  # of the class shares

    @property
    def labels(self) -> tuple[object, ...]:
        """The classes."""
        return self.costs.names[: self.costs.n_classes]

    @property
    def cost_by_class(self) -> Array:
        """Cost of the rows of each class over all rows: these add up to ``cost``."""
        return np.asarray((self.counts.table * self.costs.costs).sum(axis=1) / self.counts.table.sum())

    def with_recall_lows(self, lows: Array) -> "Quality":
        """The same with intervals of recall that reach down to these limits, where audits leave positives unseen."""
        lower = (float(np.fmin(one.low, low)) for one, low in zip(self.recalls, lows, strict=True))
        return replace(self, recalls=tuple(one._replace(low=low) for one, low in zip(self.recalls, lower, strict=True)))

    @property
    def by_class(self) -> list[dict[str, object]]:
        """Metrics of each class as plain values."""
        return [
            {
                "label": label,
                "rows": float(self.counts.table[k].sum()),
                "decided": float(self.counts.table[:, k].sum()),
                "recall": self.recalls[k].to_dict(),
                "precision": self.precisions[k].to_dict(),
                "cost_per_row": float(self.cost_by_class[k]),
                "roc_auc": self.areas[k].to_dict(),
                "average_precision": json_value(self.average_precisions[k]),
            }
            for k, label in enumerate(self.labels)
        ]

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {
            "decisions": list(self.costs.names),
            "costs": self.costs.costs.tolist(),
            "confusion": self.counts.table.tolist(),
            "cost_per_row": self.cost.to_dict(),
            "cost_per_1000": self.cost.scaled(1000.0).to_dict(),
            "habit": {"decision": self.habit, "cost_per_row": self.habit_cost},
            "saved_per_row": self.saved.to_dict(),
            "classes": self.by_class,
            **attributes(self.counts, "accuracy balanced_accuracy g_mean macro_f1"),
            "macro_average_precision": json_value(_known_mean(self.average_precisions)),
            **attributes(self, "log_loss base_log_loss"),
        }

    def lines(self) -> list[str]:
        """The counts, their cost, and a line for each class."""
        names = [short(name) for name in self.costs.names]
        heads = [short(name, _WIDEST) for name in names]
        alike = [k for k, head in enumerate(heads) if heads.count(head) > 1]
        for k in alike:  # names that begin alike: by number
            heads[k], names[k] = f"({k + 1})", f"({k + 1}) {names[k]}"
        width = max(9, *(len(name) + 2 for name in names))
        cell_width = min(width, _WIDEST + 2)
        table = [
            f"{name:<{width}}" + "".join(f"{_count(cell):>{cell_width}}" for cell in row)
            for name, row in zip(names, self.counts.table.tolist(), strict=False)
        ]
        table += [f"{names[k]:<{width}}(no class)" for k in alike if k >= len(self.labels)]
        share_width = max(24, *(len(str(share)) + 2 for share in (*self.recalls, *self.precisions)))
        averages = [f"{one:.3f}" if math.isfinite(one) else "–" for one in self.average_precisions]
        by_class = [
            f"{name:<{width}} {_count(float(self.counts.table[k].sum())):>9}  {self.recalls[k]!s:<{share_width}}"
            f"{self.precisions[k]!s:<{share_width}}{averages[k]:>14}{self.cost_by_class[k]:>14.4g}"
            for k, name in enumerate(names[: len(self.labels)])
        ]
        saved, side = self.saved, "cheaper"
        if saved.value < 0.0:
            saved, side = Interval(-saved.value, -saved.high, -saved.low), "dearer"
        return [
            "true ↓ decided →",
            " " * width + "".join(f"{head:>{cell_width}}" for head in heads),
            *table,
            f"Cost per row {self.cost.value:.4g} ({self.cost.low:.4g} to {self.cost.high:.4g}), against "
            f"{self.habit_cost:.4g} with {self.habit} for every row: {saved.value:.4g} {side} "
            f"({saved.low:.4g} to {saved.high:.4g})",
            *([f"In this unit {self.costs.unit}"] if self.costs.unit else []),
            "",
            f"{'':<{width}} {'rows':>9}  {'recall':<{share_width}}{'precision':<{share_width}}{'avg. precision':>14}"
            f"{'cost per row':>14}",
            *by_class,
            f"accuracy {self.counts.accuracy:.4g}, balanced accuracy {self.counts.balanced_accuracy:.4g}, "
            f"macro F1 {self.counts.macro_f1:.4g}, log loss {self.log_loss:.4g} "
            f"({self.base_log_loss:.4g} by the shares of the classes alone)",
        ]


def measure_quality(
    y: ArrayLike,
    p: ArrayLike,
    costs: CostMatrix,
    sample_weight: ArrayLike | None = None,
    clusters: ArrayLike | None = None,
    *,
    actions: ArrayLike | None = None,
) -> Quality:
    """Measure decisions (``actions``; by default the cheapest ones) at stated costs, the same for all rows.

    Class numbers and natural probabilities (n, K) are in the order of the costs.
    """
    if costs.is_per_row:
        raise InvalidInput("costs must be the same for all rows.")
    truth, expected = checks.check_class_numbers(y, costs.n_classes), costs.expected(p)
    if not len(truth) or len(truth) != len(expected):
        raise InvalidInput(f"p and y must have the same number of rows, at least 1: got {len(expected)}, {len(truth)}.")
    weights, chances = checks.check_row_weights(sample_weight, truth.size), np.asarray(p, np.float64)
    chosen = costs.choose(p) if actions is None else checks.check_class_numbers(actions, costs.n_actions)
    rows, total, n_classes = np.arange(len(truth)), weights.sum(), costs.n_classes
    counts = count_decisions(truth, chosen, weights, n_classes, costs.n_actions)
    groups = checks.check_clusters(clusters, truth.size)
    by_habit = weights @ costs.costs[truth] / total
    habit = int(np.argmin(by_habit))
    saved = cost_interval(truth, chosen, costs.costs[:, [habit]] - costs.costs, weights, groups)
    if abs(saved.value) <= 1e-12 * np.abs(costs.costs).max():  # by rounding alone
        saved = saved._replace(value=0.0)
    classes = range(n_classes)
    shares = np.bincount(truth, weights, n_classes) / total
    averages = [
        average_precision(*ThresholdCurve(truth == k, chances[:, k]).totals(weights)) if 0 < shares[k] < 1 else np.nan
        for k in classes
    ]
    return Quality(
        costs=costs,
        counts=counts,
        cost=cost_interval(truth, chosen, costs.costs, weights, groups),
        expected_cost=float(weights @ expected[rows, chosen] / total),
        habit=costs.names[habit],
        habit_cost=float(by_habit[habit]),
        saved=saved,
        recalls=tuple(_share(truth == k, chosen == k, weights, groups) for k in classes),
        precisions=tuple(_share(chosen == k, truth == k, weights, groups) for k in classes),
        areas=tuple(auc_interval(truth == k, chances[:, k], weights, groups) for k in classes),
        average_precisions=np.array(averages),
        log_loss=float(weights @ log_losses(truth, chances) / total),
        base_log_loss=float(-(shares[shares > 0] @ np.log(shares[shares > 0]))),
    )


def _share(among: Bools, hit: Bools, weights: Array, clusters: NDArray[np.generic] | None) -> Interval:
    return share_interval(hit[among], weights[among], None if clusters is None else clusters[among])


def _count(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() or value >= 100 else f"{value:.3g}"


def expected_shares(p: Array, alarms: Bools) -> dict[str, Interval]:
    """Expected "precision" and "recall" if rows are positive with probability p, independently; NaN if undefined."""
    n_alarms, total, precision, recall = int(alarms.sum()), float(p.sum()), UNKNOWN, UNKNOWN
    caught, missed = (float((p * (1.0 - p))[rows].sum()) for rows in (alarms, ~alarms))  # variances
    catches = float(p[alarms].sum())
    if n_alarms:
        precision = normal_interval(catches / n_alarms, math.sqrt(caught) / n_alarms)
    if total > _NONE:
        share = catches / total
        recall = normal_interval(share, math.sqrt((1.0 - share) ** 2 * caught + share**2 * missed) / total)
    return {"precision": precision, "recall": recall}


def row_draws(counts: Index, n_resamples: int, generator: np.random.Generator) -> Iterator[Index]:
    """How often each kind of row, ``counts`` of them, is in a bootstrap resample, (some resamples, kinds) at a time."""
    n_resamples = checks.check_whole_number(n_resamples, "n_resamples", 1, MOST_RESAMPLES)
    chunk, n_rows, is_rows = max(1, _CHUNK_BYTES // (8 * len(counts))), int(counts.sum()), bool((counts == 1).all())
    for start in range(0, n_resamples, chunk):
        size = min(chunk, n_resamples - start)
        if is_rows:  # the same distribution, drawn row by row, which is faster for so many kinds
            place = generator.integers(n_rows, size=(size, n_rows)) + n_rows * np.arange(size)[:, None]
            yield np.bincount(place.ravel(), minlength=size * n_rows).reshape(size, n_rows)
        else:
            yield generator.multinomial(n_rows, counts / n_rows, size=size)


def bootstrap_sums(
    contributions: Array, n_resamples: int, generator: np.random.Generator, clusters: NDArray[np.generic] | None = None
) -> Array:
    """Sums (n_resamples, sums) over bootstrap resamples of rows or of clusters, from what each row adds (n, sums).

    Equal rows are one kind.
    """
    if clusters is not None:
        _, which = np.unique(clusters, return_inverse=True)
        contributions = np.column_stack([np.bincount(which.ravel(), column) for column in contributions.T])
    kind_of, n_kinds = np.zeros(len(contributions), dtype=np.int64), 1
    for column in contributions.T:  # column by column: NumPy's unique of whole rows is many times slower
        values, place = np.unique(column, return_inverse=True)
        if n_kinds * len(values) >= 2**62:  # numbers of kinds that do not appear fill up an integer
            kinds, kind_of = np.unique(kind_of, return_inverse=True)
            n_kinds = len(kinds)
        kind_of, n_kinds = kind_of * len(values) + place, n_kinds * len(values)
    _, first, counts = np.unique(kind_of, return_index=True, return_counts=True)
    return np.concatenate([drawn @ contributions[first] for drawn in row_draws(counts, n_resamples, generator)])


def percentile_interval(values: Array, level: float) -> tuple[float, float]:
    """The middle share ``level`` of resampled values; NaN if more values are NaN than a tail holds."""
    if not 0.0 < level < 1.0:
        raise InvalidParameter(f"level must lie strictly between 0 and 1, got {level!r}")
    known = values[~np.isnan(values)]
    tail = 0.5 * (1.0 - level)
    if known.size < (1.0 - tail) * values.size:
        return np.nan, np.nan
    low, high = np.quantile(known, [tail, 1.0 - tail], method="inverted_cdf")
    return float(low), float(high)


class ThresholdCurve:
    """Counts above each distinct score, falling in ``score``; probabilities instead of labels give expected counts."""

    def __init__(self, target: NDArray[np.bool_] | Array, score: Array) -> None:
        self._order = np.argsort(-score, kind="stable")
        self._target, falling = target[self._order].astype(np.float64), score[self._order]
        self._last = np.flatnonzero(np.append(np.diff(falling) != 0.0, True))
        self.score: Array = falling[self._last]

    def totals(self, weights: Array) -> tuple[Array, Array]:
        """Catches and false alarms at every cut, (cuts,) or (draws, cuts), for row weights (n,) or (draws, n)."""
        ordered = weights[..., self._order]
        return (
            np.cumsum(ordered * self._target, axis=-1)[..., self._last],
            np.cumsum(ordered * (1.0 - self._target), axis=-1)[..., self._last],
        )


def roc_area(tp: Array, fp: Array) -> float:
    """Area under the ROC curve, ties counting half, from `ThresholdCurve.totals`; NaN if a class is absent."""
    pairs = float(tp[-1] * fp[-1])
    caught = np.append(0.0, tp)
    return float(np.sum(np.diff(fp, prepend=0.0) * (caught[1:] + caught[:-1]) / 2.0)) / pairs if pairs else np.nan


def average_precision(tp: Array, fp: Array) -> float:
    """Precision averaged over the catches, from `ThresholdCurve.totals`; NaN if there is no positive row."""
    alarms, n_pos = tp + fp, float(tp[-1])
    return float(np.sum(np.diff(tp, prepend=0.0) * divided(tp, alarms, 0.0))) / n_pos if n_pos else np.nan


class Curve(NamedTuple):
    """A curve over prices, over the share of a false alarm in the cost of both errors, or over shares of rows."""

    x: Array
    model: Array
    trivial: Array  # an alarm on every row, the better of that and no alarm, or alarms at random


class DecisionCurves:
    """Labelled rows (0/1, both classes present) with natural probabilities, and every curve of them."""

    def __init__(self, y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        target, chance = checks.check_binary_rows(y, p, "p")
        weights = checks.check_row_weights(sample_weight, target.size)
        self.n_pos, self.n_neg = checks.class_totals(target, weights)
        self._curve = ThresholdCurve(target, chance)
        self.score = self._curve.score
        # Catches and false alarms without an alarm, and then at every distinct score, falling.
        self.tp, self.fp = (np.append(0.0, one) for one in self._curve.totals(weights))

    @property
    def n_rows(self) -> float:
        """Rows, or their weight."""
        return self.n_pos + self.n_neg

    def counts_above(self, threshold: Array) -> tuple[Array, Array]:
        """Catches and false alarms with an alarm where p > threshold."""
        cuts = self.cuts_above(threshold)
        return self.tp[cuts], self.fp[cuts]

    def cuts_above(self, threshold: ArrayLike) -> Index:
        """Number of distinct scores above a threshold."""
        return np.asarray(np.searchsorted(-self.score, -np.asarray(threshold), side="left"))

    def net_benefit(self, price: ArrayLike) -> Curve:
        """Net benefit (Vickers and Elkin, 2006) at prices above 0: catches minus false alarms / price, per row."""
        prices = np.asarray(price, dtype=np.float64)
        if not (np.isfinite(prices).all() and (prices > 0.0).all()):
            raise InvalidParameter("prices of a net benefit must be finite numbers above 0")
        tp, fp = self.counts_above(1.0 / (1.0 + prices))
        return Curve(prices, (tp - fp / prices) / self.n_rows, (self.n_pos - self.n_neg / prices) / self.n_rows)

    def cost_curve(self, n_points: int = 201) -> Curve:
        """Cost curve (Drummond and Holte, 2006): cost of the best threshold over that of always being wrong."""
        share = np.linspace(0.0, 1.0, n_points)
        missed, false = 1.0 - self.tp / self.n_pos, self.fp / self.n_neg
        lowest = np.array([np.min(missed * x + false * (1.0 - x)) for x in share])
        return Curve(share, lowest, np.minimum(share, 1.0 - share))

    def brier_curve(self, n_points: int = 201, *, is_best: bool = False) -> Curve:
        """Brier curve (Hernández-Orallo, Flach and Ferri, 2011), with thresholds as stated or the best ones."""
        share = np.linspace(0.0, 1.0, n_points)
        tp, fp = self.counts_above(share)
        loss = share * fp + (1.0 - share) * (self.n_pos - tp)
        if is_best:
            loss = np.array([np.min(c * self.fp + (1.0 - c) * (self.n_pos - self.tp)) for c in share])
        trivial = np.minimum(share * self.n_neg, (1.0 - share) * self.n_pos)
        return Curve(share, 2.0 * loss / self.n_rows, 2.0 * trivial / self.n_rows)

    def gains(self) -> Curve:
        """Share of the positives found in each share of the riskiest rows, both from 0 to 1."""
        rows = (self.tp + self.fp) / self.n_rows
        return Curve(rows, self.tp / self.n_pos, rows)

    def lift(self) -> Curve:
        """How many times more positives there are in each share of the riskiest rows than among all rows."""
        rows, found, _ = (one[1:] for one in self.gains())
        return Curve(rows, found / rows, np.ones_like(rows))
