"""Decisions of any probability model at a price, and what they are expected to cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.decisions.class_summary import ClassDecisionSummary, summarise_classes
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.goals import Goal, ThresholdGoal
from crcen.theory.metrics import ConfusionCounts, confusion_counts
from crcen.theory.price import Alpha, CostRatio, Price, as_spec, cost_ratio_of, resolve
from crcen.theory.rows import Shown, check_probabilities, in_one_line

__all__ = ["DecisionSummary", "decide", "decision_summary"]


def _positive_column(p: ArrayLike) -> NDArray[np.float64]:
    chance = check_probabilities(p, "p")
    if chance.ndim == 2:
        raise InvalidInput(
            f"p must be the posterior of the positive class, shape (n,), got shape {chance.shape}: pass its column, "
            "such as model.predict_proba(X)[:, 1] where classes_[1] is the positive class"
        )
    if chance.ndim != 1 or chance.size == 0:
        raise InvalidInput(f"p must have shape (n,) with at least one row, got shape {chance.shape}")
    return chance


def _priced(price: Any, n_pos: float | None, n_neg: float | None) -> CostMatrix | Price:
    """A price that can decide; α needs the class counts."""
    if isinstance(price, CostMatrix | Price):
        return price
    if (n_pos is None) != (n_neg is None):
        raise InvalidParameter("class counts come in pairs: pass both n_pos and n_neg, or neither")
    if isinstance(as_spec(price), Alpha):
        if n_pos is None or n_neg is None:
            raise InvalidParameter(
                f"{price!r} is a price only with class counts: pass n_pos and n_neg, or a fitted model's weighting_"
            )
        price = resolve(price, n_pos, n_neg)
    return CostMatrix.binary(fn=cost_ratio_of(price))


def _is_for_columns(price: Any) -> bool:
    """Whether decisions are classes or actions instead of alarms."""
    if isinstance(price, CostMatrix):
        return not price.is_binary or bool(price.actions)
    return isinstance(price, Price) and price.positive is None


def _costs(price: CostMatrix | Price) -> CostMatrix:
    return price if isinstance(price, CostMatrix) else CostMatrix.binary(fn=price.cost_ratio)


def decide(
    p: ArrayLike,
    price: Any,
    *,
    n_pos: float | None = None,
    n_neg: float | None = None,
    times: Any = None,
) -> NDArray[Any]:
    """Raise an alarm where it is cheaper than silence, or where a wish asks for it.

    Parameters
    ----------
    p : array of shape (n,)
        Natural posterior of the positive class, of any model; (n, K) for a `CostMatrix`, or for the ``weighting_`` of a
        model of K classes. A model trained with class
        weights or on resampled rows gives other numbers: correct them first.
    price : Budget, CostRatio, Lam, Alpha, Price, CostMatrix, float, "balanced", None, or a wish
        What a miss is worth. A wish is met as the probabilities expect it: ``Capacity(200)`` takes the 200 riskiest
        rows, ``RecallAtLeast(0.9)`` and ``PrecisionAtLeast(0.5)`` move the threshold, and ``Review(2, 30)`` answers
        "alarm", "review" or "no alarm". A plain number is λ; ``CostMatrix.binary`` has all four entries, for each row
        if they are arrays; ``CostMatrix`` takes the cheapest action, for any number of classes and actions.
    n_pos, n_neg : float, optional
        Class counts at the natural ratio, which ``Alpha`` and ``"balanced"`` need.
    times : array of datetime64 of shape (n,), optional
        When rows came in, which ``Capacity(20, per="day")`` needs.

    Returns
    -------
    array of shape (n,)
        True where p > 1 − λ = 1 / (1 + cost ratio). An exact tie is no alarm. With a `CostMatrix`, labels and names of
        actions.

    Raises
    ------
    InvalidInput
        If p has two columns, or values outside [0, 1], or costs are for another number of rows.
    InvalidParameter
        If the price means nothing, or needs class counts.

    Examples
    --------
    >>> from crcen import Budget, decide
    >>> decide([0.1, 0.2, 0.9], Budget(5)).tolist()
    [False, True, True]
    """
    if _is_for_columns(price):
        return price.cost_matrix.decide(p) if isinstance(price, Price) else price.decide(p)
    if isinstance(price, Goal):
        return price.decide(_positive_column(p), times)
    return _priced(price, n_pos, n_neg).decide(_positive_column(p))


@dataclass(frozen=True)
class DecisionSummary(Shown):
    """Decisions at a price, as the probabilities see them and, where labels are known, as they were.

    Parameters
    ----------
    n_rows, n_alarms : int
        Rows decided, and those with an alarm.
    marginal_price : tuple of float
        False alarms that one more catch may cost: the stated price, smallest and largest over the rows. The *last*
        catch costs this.
    average_price : float
        Expected false alarms per expected catch over all alarms: what a catch costs *on average*, below the marginal
        price where probabilities are right. NaN without an alarm.
    expected_catches, expected_false_alarms, expected_misses : float
        Sums of p or 1 − p.
    expected_cost, cost_of_silence, cost_of_alarms : float
        Expected cost of these decisions, of no alarm at all and of an alarm on every row, in the units of the price
        (false alarms, unless it was stated as a `CostMatrix`).
    counts : ConfusionCounts or None
        What happened, where labels were given.
    """

    n_rows: int
    n_alarms: int
    marginal_price: tuple[float, float]
    average_price: float
    expected_catches: float
    expected_false_alarms: float
    expected_misses: float
    expected_cost: float
    cost_of_silence: float
    cost_of_alarms: float
    counts: ConfusionCounts | None = None

    @property
    def realised_price(self) -> float:
        """False alarms per catch that happened; NaN without labels or without a catch."""
        if self.counts is None or not self.counts.tp:
            return math.nan
        return float(self.counts.fp / self.counts.tp)

    __repr__ = in_one_line

    def __str__(self) -> str:
        low, high = self.marginal_price
        marginal = f"{low:.4g}" if math.isclose(low, high) else f"{low:.4g} to {high:.4g}, by row"
        lines = [
            f"{self.n_alarms} alarms on {self.n_rows} rows",
            f"  price of the last catch     {marginal:<12} false alarms (marginal, as stated)",
            f"  price of the average catch  {self.average_price:<12.4g} false alarms (expected)",
        ]
        if self.counts is not None:
            lines.append(f"  price paid per catch        {self.realised_price:<12.4g} false alarms (realised)")
        lines += [
            f"  expected   {self.expected_catches:.4g} catches, {self.expected_false_alarms:.4g} false alarms, "
            f"{self.expected_misses:.4g} misses",
        ]
        if self.counts is not None:
            tp, fp, fn = self.counts.tp, self.counts.fp, self.counts.fn
            lines.append(f"  realised   {tp:.6g} catches, {fp:.6g} false alarms, {fn:.6g} misses")
        lines.append(
            f"  expected cost {self.expected_cost:.4g}, against {self.cost_of_silence:.4g} with no alarm and "
            f"{self.cost_of_alarms:.4g} with an alarm on every row"
        )
        return "\n".join(lines)


def decision_summary(
    p: ArrayLike,
    price: Any,
    y: ArrayLike | None = None,
    *,
    n_pos: float | None = None,
    n_neg: float | None = None,
) -> DecisionSummary | ClassDecisionSummary:
    """Say what the decisions of `decide` cost, the last catch beside the average one.

    Parameters
    ----------
    p, price, n_pos, n_neg
        As in `decide`.
    y : array of shape (n,), optional
        0/1 or bool, 1 is positive; where labels are known, what happened stands beside what was expected. With a
        `CostMatrix`, its labels, or class numbers where it has none.

    Returns
    -------
    DecisionSummary, or ClassDecisionSummary for a `CostMatrix` and for class weights
        Prints itself.
    """
    if _is_for_columns(price):
        return summarise_classes(p, price, y)
    chance = _positive_column(p)
    if isinstance(price, ThresholdGoal):
        met = price.meet(chance)
        alarms, price = met.alarms, CostRatio(met.price[0])  # the same for all rows: there are no periods here
    else:
        alarms = decide(p, price, n_pos=n_pos, n_neg=n_neg)
    costs = _costs(_priced(price, n_pos, n_neg))
    expected, rows = costs.expected(chance), np.arange(chance.size)
    catches, false_alarms = float(chance[alarms].sum()), float((1.0 - chance[alarms]).sum())
    return DecisionSummary(
        n_rows=chance.size,
        n_alarms=int(alarms.sum()),
        marginal_price=_marginal(costs),
        average_price=false_alarms / catches if catches > 0.0 else math.nan,
        expected_catches=catches,
        expected_false_alarms=false_alarms,
        expected_misses=float(chance[~alarms].sum()),
        expected_cost=float(expected[rows, alarms.astype(np.int64)].sum()),
        cost_of_silence=float(expected[:, 0].sum()),
        cost_of_alarms=float(expected[:, 1].sum()),
        counts=None if y is None else confusion_counts(y, alarms),
    )


def _marginal(costs: CostMatrix) -> tuple[float, float]:
    """Cost ratios of the rows on which the probability decides, smallest and largest."""
    added, saved = np.broadcast_arrays(costs.added_by_false_alarm, costs.saved_by_catch)
    open_rows = (added > 0.0) & (saved > 0.0)
    if not open_rows.any():
        return math.nan, math.nan
    ratios = saved[open_rows] / added[open_rows]
    return float(ratios.min()), float(ratios.max())
