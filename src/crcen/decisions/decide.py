"""Decisions of any probability model at a price, and their expected costs."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.text import count_text
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_probabilities, check_row_weights
from crcen.theory.cost_matrix import CostMatrix, decision_table
from crcen.theory.goals import Goal, goal_of
from crcen.theory.metrics import ConfusionCounts, confusion_counts, count_decisions
from crcen.theory.price import Alpha, CostRatio, Labels, Price, WeightingLike, as_spec, by_class, cost_ratio_of, resolve
from crcen.theory.rows import Array, Estimator, Index, Rows, ShownInOneLine, four_digits


def _positive_column(p: ArrayLike, price: object) -> Array:
    """Probabilities of the positive class, (n,), from those or from (n, 2) in the order of the classes."""
    chances = check_probabilities(p, "p")
    if chances.ndim not in (1, 2) or not len(chances):
        raise InvalidInput(f"p must have shape (n,), (n, 2) or (n, K) with at least one row: got shape {chances.shape}")
    if chances.ndim == 2 and chances.shape[1] > 2:
        use = "give a CostMatrix or a weight for each class"
        raise InvalidInput(f"{price!r} is for two classes, and p has {chances.shape[1]} columns: {use}.")
    column = price.positive if isinstance(price, Price) and chances.ndim == 2 else 1
    return CostMatrix.binary().probabilities(chances)[:, column]


def _cost_matrix(price: object, n_pos: float | None = None, n_neg: float | None = None) -> CostMatrix:
    """The costs that a price states; α needs the class counts."""
    price = by_class(price)
    if isinstance(price, CostMatrix):
        return price
    if isinstance(price, Price) and (price.positive is None or price.cost_matrix.actions):
        return price.cost_matrix
    if (n_pos is None) != (n_neg is None):
        raise InvalidParameter("class counts come in pairs: pass both n_pos and n_neg, or neither")
    if not isinstance(price, Price) and isinstance(as_spec(price), Alpha):
        if n_pos is None:
            counts = "pass n_pos and n_neg, or a fitted model's weighting_"
            raise InvalidParameter(f"{price!r} is a price only with class counts: {counts}")
        price = resolve(price, n_pos, n_neg)
    return CostMatrix.binary(fn=cost_ratio_of(price))


def _has_alarms(costs: CostMatrix) -> bool:
    """Whether decisions are alarms instead of classes or actions."""
    return costs.is_binary and not costs.actions


def decide(
    p: ArrayLike,
    price: WeightingLike | Goal,
    *,
    n_pos: float | None = None,
    n_neg: float | None = None,
    times: ArrayLike | None = None,
) -> NDArray[np.generic]:
    """Raise an alarm on rows where it is cheaper than no alarm, or where an operating goal requires it.

    Parameters
    ----------
    p : array of shape (n,), (n, 2) or (n, K)
        Natural posterior of any model: of the positive class, or of every class in a column each, of two classes the
        positive one second, or as a ``weighting_`` has it. A price of K classes needs (n, K). Correct the probabilities
        of a model trained with class weights or on resampled rows first.
    price : Budget, CostRatio, Lam, Alpha, Price, CostMatrix, float, "balanced", None, class weights, or a goal
        What a miss is worth. A plain number is λ; a `CostMatrix` takes the cheapest action. Goals are met as the
        probabilities expect: ``Capacity(200)`` takes the 200 riskiest rows, ``RecallAtLeast(0.9)`` and
        ``PrecisionAtLeast(0.5)`` move the threshold, and ``Review(2, 30)`` returns "alarm", "review" or "no alarm".
    n_pos, n_neg : float, optional
        Class counts at the natural ratio, which ``Alpha`` and ``"balanced"`` need.
    times : array of datetime64 of shape (n,), optional
        Arrival times of the rows, which ``Capacity(20, per="day")`` needs.

    Returns
    -------
    array of shape (n,)
        True where p > 1 − λ = 1 / (1 + cost ratio), not at a tie. With a `CostMatrix` labels and names of actions.

    Examples
    --------
    >>> from crcen import Budget, decide
    >>> decide([0.1, 0.2, 0.9], Budget(5)).tolist()
    [False, True, True]
    """
    if times is not None and getattr(price, "period", None) is None:
        raise InvalidParameter(f"times must go with a capacity for a day or a week: got {price!r}.", parameter="times")
    if isinstance(price, Goal):
        return price.decide(_positive_column(p, price), times)
    costs = _cost_matrix(price, n_pos, n_neg)
    if not _has_alarms(costs):
        return costs.decide(p)
    return (price if isinstance(price, Price) else costs).decide(_positive_column(p, price))


@dataclass(frozen=True, eq=False, repr=False)
class DecisionSummary(ShownInOneLine):
    """Decisions at a price: expected by the probabilities and, if labels are known, realised."""

    names: tuple[object, ...]  # possible decisions: "no alarm" and "alarm", or the classes and further actions
    n_decided: Index  # rows with each decision
    expected: Array  # (K, A): expected rows of each class with each decision
    expected_cost: float  # in the unit of the price: false alarms, unless it is a `CostMatrix`
    constant_costs: Array  # (A,): expected cost of each decision for all rows
    counts: ConfusionCounts | None = None  # if labels were given
    realised_cost: float = math.nan
    # For alarms: false alarms that one more catch may cost, smallest and largest over the rows.
    marginal_price: tuple[float, float] | None = None

    @property
    def n_alarms(self) -> int:
        """Rows with an alarm."""
        return int(self.n_decided[self._alarm])

    @property
    def expected_catches(self) -> float:
        """Σ p over alarms."""
        return float(self.expected[1, self._alarm])

    @property
    def average_price(self) -> float:
        """Expected false alarms per expected catch; below the marginal price if probabilities are right."""
        return float(self.expected[0, 1] / self.expected_catches) if self.expected_catches > 0.0 else math.nan

    @property
    def realised_price(self) -> float:
        """False alarms per catch that happened; NaN without labels or without a catch."""
        found = self.counts
        return float(found.fp / found.tp) if found is not None and found.several is None and found.tp else math.nan

    @property
    def _alarm(self) -> int:
        if self.marginal_price is None:
            raise AttributeError("decisions between classes or actions have no alarms: see n_decided and expected.")
        return 1

    def __str__(self) -> str:
        if self.marginal_price is not None:
            return self._alarms_as_text(*self.marginal_price)
        head = f"{self.n_decided.sum()} rows decided"
        lines = [head, "expected", decision_table(self.names, self.expected, has_recall=True)]
        paid = ""
        if self.counts is not None:
            lines += ["realised", decision_table(self.names, self.counts.table, has_recall=True)]
            paid = f", realised {self.realised_cost:.6g}"
        constant = f"{self.constant_costs.min():.6g} with {self.names[int(np.argmin(self.constant_costs))]}"
        lines.append(f"expected cost {self.expected_cost:.6g}{paid}; {constant} for every row")
        return "\n".join(lines)

    def _alarms_as_text(self, low: float, high: float) -> str:
        marginal = f"{low:.4g}" if math.isclose(low, high) else f"{low:.4g} to {high:.4g}, by row"
        catches, *errors = map(four_digits, (self.expected_catches, self.expected[0, 1], self.expected[1, 0]))
        lines = [
            f"{self.n_alarms:,} alarms on {self.n_decided.sum():,} rows",
            f"  price of the last catch     {marginal:<12} false alarms (marginal)",
            f"  price of the average catch  {self.average_price:<12.4g} false alarms (expected)",
            f"  expected   {catches} catches, {errors[0]} false alarms, {errors[1]} misses",
        ]
        if self.counts is not None:
            tp, fp, fn = (count_text(float(one)) for one in (self.counts.tp, self.counts.fp, self.counts.fn))
            lines.insert(3, f"  price paid per catch        {self.realised_price:<12.4g} false alarms (realised)")
            lines.append(f"  realised   {tp} catches, {fp} false alarms, {fn} misses")
        never, always = self.constant_costs.tolist()
        constant = f"{four_digits(never)} with no alarm, {four_digits(always)} with an alarm on every row"
        lines.append(f"  expected cost {four_digits(self.expected_cost)}; {constant}")
        return "\n".join(lines)


def decision_summary(
    p: ArrayLike,
    price: WeightingLike | Goal,
    y: ArrayLike | None = None,
    *,
    n_pos: float | None = None,
    n_neg: float | None = None,
) -> DecisionSummary:
    """Counts and costs of the decisions of `decide`.

    With labels ``y`` (0/1 or bool, 1 is positive; with a `CostMatrix` its labels, or class numbers) it also has the
    realised counts. The other parameters are those of `decide`.
    """
    goal = goal_of(price)
    met = None if goal is None else goal.meet(_positive_column(p, price))
    # The price of a goal is the same for all rows: there are no periods.
    costs = _cost_matrix(price if met is None else CostRatio(met.price[0]), n_pos, n_neg)
    has_alarms, names = _has_alarms(costs), costs.names
    if has_alarms:
        names = ("no alarm", "alarm")
        alarms = decide(p, price, n_pos=n_pos, n_neg=n_neg) if met is None else met.alarms
        chances, chosen = costs.probabilities(_positive_column(p, price)), alarms.astype(np.int64)
    else:
        chances, chosen = costs.probabilities(p), costs.choose(p)
    expected, table = costs.expected(chances), np.zeros((costs.n_classes, len(names)))
    np.add.at(table.T, chosen, chances)
    counts, realised = None, math.nan
    if y is not None:
        if len(np.atleast_1d(y)) != len(chosen):
            raise InvalidInput(f"y must have one label for each of {len(chosen)} rows, got {len(np.atleast_1d(y))}")
        if has_alarms:
            counts, truth = confusion_counts(y, chosen), np.asarray(y, dtype=np.int64)
        else:
            truth = Labels(np.array(names[: costs.n_classes])).encode(y)
            counts = count_decisions(truth, chosen, np.ones(len(truth)), costs.n_classes, len(names))
        realised = float(costs.realised(truth, chosen).sum())
    return DecisionSummary(
        names=names,
        n_decided=np.bincount(chosen, minlength=len(names)),
        expected=table,
        expected_cost=float(expected[np.arange(len(chosen)), chosen].sum()),
        constant_costs=expected.sum(axis=0),
        counts=counts,
        realised_cost=realised,
        marginal_price=_marginal(costs) if has_alarms else None,
    )


def _marginal(costs: CostMatrix) -> tuple[float, float]:
    """Cost ratios of the rows on which the probability decides, smallest and largest."""
    added, saved = np.broadcast_arrays(costs.added_by_mistake(0), costs.added_by_mistake(1))
    open_rows = (added > 0.0) & (saved > 0.0)
    if not open_rows.any():
        return math.nan, math.nan
    ratios = saved[open_rows] / added[open_rows]
    return float(ratios.min()), float(ratios.max())


def _minus_mean_cost(
    price: WeightingLike, pos_label: object, model: Estimator, X: Rows, y: ArrayLike, sample_weight: Rows = None
) -> float:
    if not hasattr(model, "predict_proba"):
        raise InvalidParameter(f"cost_scorer needs probabilities, and {type(model).__name__} has none.")
    classes = np.asarray(model.classes_)
    labels = Labels.from_totals(classes, np.ones(len(classes)), np.ones(len(classes)), pos_label, None)
    if len(classes) == 2:  # the rarer class of these rows could be another one than that of the next fold
        positive = getattr(model, "pos_label_", None) if pos_label is None else pos_label
        needs_one = price is not None and getattr(price, "is_binary", True)
        if positive is None and needs_one and classes.tolist() not in ([0, 1], [-1, 1]):
            one = "cost_scorer must know the positive class of a model without pos_label_"
            raise InvalidParameter(f"{one}: give pos_label, one of {classes.tolist()}.")
        labels = Labels.from_totals(classes, [1, 1], [1, 1], classes[1] if positive is None else positive, None)
    numbers = labels.encode(y)
    weights = check_row_weights(sample_weight, len(numbers))
    counts = np.bincount(numbers, weights, labels.n_classes)
    resolved = labels.resolve(price, np.where(counts > 0.0, counts, 1.0))
    chosen = resolved.decide(np.asarray(model.predict_proba(X), dtype=np.float64))
    return -float(resolved.cost_matrix.realised(numbers, chosen) @ weights / weights.sum())


def cost_scorer(price: WeightingLike, pos_label: object = None) -> Callable[..., float]:
    """A scorer for ``GridSearchCV``, ``cross_val_score`` and similar: the cost of decisions at a price.

    Parameters
    ----------
    price : Budget, CostRatio, Lam, Alpha, "balanced", float, None, class weights or CostMatrix
        The costs of errors. The score is minus the mean cost per row, in false alarms, or in the unit of the price.
    pos_label : optional
        The positive class; by default ``pos_label_`` of the model, or 1.

    Examples
    --------
    ``cross_val_score(LogisticRegression(), X, y, scoring=cost_scorer(Budget(10)))``
    """
    if isinstance(price, CostMatrix) and price.is_per_row:
        raise InvalidParameter("cost_scorer takes one price: costs that differ by row cannot be split with the rows.")
    if not isinstance(price, CostMatrix | Price | dict) and np.ndim(cast(ArrayLike, price)) == 0:
        resolve(price, 1.0, 1.0)  # raises errors before a search starts
    return partial(_minus_mean_cost, price, pos_label)
