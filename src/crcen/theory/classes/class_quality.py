"""ClassQuality: what decisions between K classes cost and how often they are right, with intervals."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.class_counts import ClassCounts, class_counts
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.metrics import wilson_interval
from crcen.theory.price import Price
from crcen.theory.rows import check_class_numbers, check_row_weights
from crcen.theory.threshold_curve import ThresholdCurve, average_precision, roc_area

__all__ = ["ClassQuality", "MeasuredShare", "class_quality", "costs_at"]

Array = NDArray[np.float64]
_SMALLEST = 1e-15
_Z = 1.96
# Characters of a line of the table of counts, from where on its columns are numbered.
_WIDEST = 110


@dataclass(frozen=True)
class MeasuredShare:
    """A share or a mean with its 95 % interval; NaN where there is none."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float | None]:
        """Plain values, None for what does not exist."""
        values = {"value": self.value, "low": self.low, "high": self.high}
        return {name: value if math.isfinite(value) else None for name, value in values.items()}

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "none"
        return f"{self.value:.3g} ({self.low:.3g} to {self.high:.3g})"


@dataclass(frozen=True, eq=False)
class ClassQuality:
    """Decisions of labelled rows at stated costs.

    Parameters
    ----------
    costs : CostMatrix
        What they were made by, labelled.
    counts : ClassCounts
        Rows are the truth, columns what was decided; sums of weights where rows have weights.
    cost : MeasuredShare
        Mean cost of a row.
    habit : label
        The one decision that is cheapest on these rows if all of them get it.
    habit_cost : float
        What a row costs then.
    saved : MeasuredShare
        What the decisions save a row, against the habit.
    recalls, precisions : tuple of MeasuredShare
        Of each class: share of its rows that were given to it, and of rows given to it that are of it.
    areas, average_precisions : float64 array of shape (K,)
        Of each class against the rest, ranked by its probability; NaN for a class without rows.
    log_loss, base_log_loss : float
        Of the probabilities, and of saying the shares of the classes to everybody.
    """

    costs: CostMatrix
    counts: ClassCounts
    cost: MeasuredShare
    habit: Any
    habit_cost: float
    saved: MeasuredShare
    recalls: tuple[MeasuredShare, ...]
    precisions: tuple[MeasuredShare, ...]
    areas: Array
    average_precisions: Array
    log_loss: float
    base_log_loss: float

    @property
    def labels(self) -> tuple[Any, ...]:
        """The classes."""
        assert self.costs.labels is not None  # `class_quality` takes labelled costs alone
        return self.costs.labels

    @property
    def names(self) -> tuple[Any, ...]:
        """What can be decided: the classes, then the other actions."""
        return (*self.labels, *self.costs.actions)

    @property
    def cost_by_class(self) -> Array:
        """What the rows of each class cost, over all rows: these add up to ``cost``."""
        return np.asarray((self.counts.table * self.costs.costs).sum(axis=1) / self.counts.table.sum())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        by_class = [
            {
                "label": label,
                "rows": float(self.counts.table[k].sum()),
                "decided": float(self.counts.table[:, k].sum()),
                "recall": self.recalls[k].to_dict(),
                "precision": self.precisions[k].to_dict(),
                "cost_per_row": float(self.cost_by_class[k]),
                "roc_auc": _known(self.areas[k]),
                "average_precision": _known(self.average_precisions[k]),
            }
            for k, label in enumerate(self.labels)
        ]
        return {
            "decisions": list(self.names),
            "costs": self.costs.costs.tolist(),
            "confusion": self.counts.table.tolist(),
            "cost_per_row": self.cost.to_dict(),
            "habit": {"decision": self.habit, "cost_per_row": self.habit_cost},
            "saved_per_row": self.saved.to_dict(),
            "classes": by_class,
            "accuracy": self.counts.accuracy,
            "balanced_accuracy": self.counts.balanced_accuracy,
            "g_mean": self.counts.g_mean,
            "macro_f1": self.counts.macro_f1,
            "macro_average_precision": float(np.nanmean(self.average_precisions)),
            "log_loss": self.log_loss,
            "base_log_loss": self.base_log_loss,
        }

    def lines(self) -> list[str]:
        """The counts, what they cost, and a line for each class."""
        names = [_short(name) for name in self.names]
        width = max(9, *(len(name) + 2 for name in names))
        heads, cell_width = names, width
        if width * (len(names) + 1) > _WIDEST:  # columns by number, rows with their number before the name
            heads = [str(number) for number in range(1, len(names) + 1)]
            names = [f"{head} {name}" for head, name in zip(heads, names, strict=True)]
            width, cell_width = max(len(name) + 2 for name in names), 9
        head = " " * width + "".join(f"{name:>{cell_width}}" for name in heads)
        table = [
            f"{name:<{width}}" + "".join(f"{_count(cell):>{cell_width}}" for cell in row)
            for name, row in zip(names, self.counts.table.tolist(), strict=False)
        ]
        if heads != names:
            table += [f"{name:<{width}}(no class)" for name in names[len(self.labels) :]]
        columns = ("rows", "recall", "precision", "avg. precision", "cost a row")
        by_class = [f"{'':<{width}} {columns[0]:>9}  {columns[1]:<24}{columns[2]:<24}{columns[3]:>14}{columns[4]:>12}"]
        for k, name in enumerate(names[: len(self.labels)]):
            by_class.append(
                f"{name:<{width}} {_count(float(self.counts.table[k].sum())):>9}  {self.recalls[k]!s:<24}"
                f"{self.precisions[k]!s:<24}{self.average_precisions[k]:>14.3f}{self.cost_by_class[k]:>12.4g}"
            )
        saved = self.saved
        side = "cheaper" if saved.value >= 0.0 else "dearer"
        return [
            "true ↓ decided →",
            head,
            *table,
            f"Cost a row {self.cost.value:.4g} ({self.cost.low:.4g} to {self.cost.high:.4g}), against "
            f"{self.habit_cost:.4g} with {self.habit} for every row: {abs(saved.value):.4g} {side} "
            f"({saved.low:.4g} to {saved.high:.4g})",
            "",
            *by_class,
            f"accuracy {self.counts.accuracy:.4g}, balanced accuracy {self.counts.balanced_accuracy:.4g}, "
            f"macro F1 {self.counts.macro_f1:.4g}, log loss {self.log_loss:.4g} "
            f"({self.base_log_loss:.4g} by the shares of the classes alone)",
        ]


def costs_at(price: CostMatrix | Price, labels: Any) -> CostMatrix:
    """Costs in the order of ``labels``; class weights as the costs that they state: a mistake on a class is one."""
    return (price.cost_matrix if isinstance(price, Price) else price).for_classes(labels)


def class_quality(
    y: ArrayLike, p: ArrayLike, costs: CostMatrix, sample_weight: ArrayLike | None = None
) -> ClassQuality:
    """Judge decisions at stated costs.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers 0 … K−1.
    p : array of shape (n, K)
        Natural probabilities.
    costs : CostMatrix
        Labelled, in the order of the class numbers; the same for all rows.
    sample_weight : array of shape (n,), optional
        What each row counts.

    Raises
    ------
    InvalidInput
        If there is no row, or costs have no labels.
    """
    if costs.labels is None or costs.n_rows is not None:
        raise InvalidInput("costs must have labels and be the same for all rows.")
    truth = check_class_numbers(y, costs.n_classes)
    if not len(truth):
        raise InvalidInput("there must be at least one row.")
    weights, chances, chosen = check_row_weights(sample_weight, truth.size), np.asarray(p, np.float64), costs.choose(p)
    counts = class_counts(truth, chosen, costs.n_classes, weights, n_actions=costs.costs.shape[1])
    paid, total = costs.realised(truth, chosen), weights.sum()
    by_habit = weights @ costs.costs[truth] / total
    habit = int(np.argmin(by_habit))
    areas, precisions = _rankings(truth, chances, weights)
    own = np.clip(chances[np.arange(len(truth)), truth], _SMALLEST, 1.0)
    shares = np.bincount(truth, weights, costs.n_classes) / total
    return ClassQuality(
        costs=costs,
        counts=counts,
        cost=_mean(paid, weights, least=0.0),
        habit=(*costs.labels, *costs.actions)[habit],
        habit_cost=float(by_habit[habit]),
        saved=_mean(costs.costs[truth, habit] - paid, weights),
        recalls=tuple(_share(truth == k, chosen == k, weights) for k in range(costs.n_classes)),
        precisions=tuple(_share(chosen == k, truth == k, weights) for k in range(costs.n_classes)),
        areas=areas,
        average_precisions=precisions,
        log_loss=float(-(weights @ np.log(own)) / total),
        base_log_loss=float(-(shares[shares > 0] @ np.log(shares[shares > 0]))),
    )


def _share(among: NDArray[np.bool_], are: NDArray[np.bool_], weights: Array) -> MeasuredShare:
    some = weights[among]
    total = some.sum()
    if not total > 0.0:
        return MeasuredShare(math.nan, math.nan, math.nan)
    share = float(weights[among & are].sum() / total)
    return MeasuredShare(share, *wilson_interval(share, float(total**2 / (some**2).sum())))


def _mean(values: Array, weights: Array, least: float = -math.inf) -> MeasuredShare:
    total = weights.sum()
    mean = float(weights @ values / total)
    deviation = math.sqrt(float(weights**2 @ (values - mean) ** 2)) / float(total)
    return MeasuredShare(mean, max(mean - _Z * deviation, least), mean + _Z * deviation)


def _rankings(truth: NDArray[np.int64], p: Array, weights: Array) -> tuple[Array, Array]:
    """ROC area and average precision of each class against the rest."""
    areas, precisions = np.full(p.shape[1], np.nan), np.full(p.shape[1], np.nan)
    for k in range(p.shape[1]):
        is_own = truth == k
        if 0.0 < weights[is_own].sum() < weights.sum():
            totals = ThresholdCurve(is_own, p[:, k]).totals(weights)
            areas[k], precisions[k] = roc_area(*totals), average_precision(*totals)
    return areas, precisions


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _count(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() or value >= 100 else f"{value:.3g}"


def _short(name: Any) -> str:
    text = " ".join(str(name).split())
    return text if len(text) <= 20 else f"{text[:19]}…"
