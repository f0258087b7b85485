"""What decisions between K classes cost, as probabilities see it and, where labels are known, as it was."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.labels import Labels
from crcen.theory.metrics import DecisionCounts, decision_counts
from crcen.theory.price import Price

__all__ = ["ClassDecisionSummary", "summarise_classes"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ClassDecisionSummary:
    """Decisions between K classes.

    Parameters
    ----------
    names : tuple
        What can be decided: the classes, then further actions.
    n_rows : int
        Rows decided.
    n_decided : int64 array of shape (A,)
        How often each was.
    expected : float64 array of shape (K, A)
        Expected rows of each class that got each decision.
    expected_cost : float
        Of these decisions.
    habit, cost_of_habit : label, float
        The one decision that would be cheapest if all rows got it, and what that would cost.
    counts : DecisionCounts or None
        What happened, where labels were given.
    realised_cost : float
        What it cost; NaN without labels.
    """

    names: tuple[Any, ...]
    n_rows: int
    n_decided: NDArray[np.int64]
    expected: Array
    expected_cost: float
    habit: Any
    cost_of_habit: float
    counts: DecisionCounts | None = None
    realised_cost: float = math.nan

    def __str__(self) -> str:
        lines = [f"{self.n_rows} rows decided", "expected", DecisionCounts(self.expected).table_of(self.names)]
        if self.counts is not None:
            lines += ["realised", self.counts.table_of(self.names)]
        paid = "" if self.counts is None else f", realised {self.realised_cost:.6g}"
        lines.append(
            f"expected cost {self.expected_cost:.6g}{paid}, against {self.cost_of_habit:.6g} with {self.habit} for "
            f"every row"
        )
        return "\n".join(lines)


def summarise_classes(p: ArrayLike, price: CostMatrix | Price, y: ArrayLike | None = None) -> ClassDecisionSummary:
    """`decision_summary` of probabilities (n, K); y holds labels of the costs, or class numbers."""
    costs = price.cost_matrix if isinstance(price, Price) else price
    chances, chosen, expected = np.asarray(p, dtype=np.float64), costs.choose(p), costs.expected(p)
    if chances.ndim == 1:
        chances = np.column_stack([1.0 - chances, chances])
    names = (*(range(costs.n_classes) if costs.labels is None else costs.labels), *costs.actions)
    n_actions, rows = len(names), np.arange(len(chosen))
    table = np.zeros((costs.n_classes, n_actions))
    np.add.at(table.T, chosen, chances)
    habit = int(np.argmin(expected.sum(axis=0)))
    counts, realised = None, math.nan
    if y is not None:
        if len(np.atleast_1d(y)) != len(chosen):
            raise InvalidParameter(f"y must have one label a row: got {len(np.atleast_1d(y))} for {len(chosen)}.")
        truth = Labels(np.array(names[: costs.n_classes])).encode(y)
        counts = decision_counts(truth, chosen, costs.n_classes, n_actions=n_actions)
        realised = float(costs.realised(truth, chosen).sum())
    return ClassDecisionSummary(
        names=names,
        n_rows=len(chosen),
        n_decided=np.bincount(chosen, minlength=n_actions),
        expected=table,
        expected_cost=float(expected[rows, chosen].sum()),
        habit=names[habit],
        cost_of_habit=float(expected[:, habit].sum()),
        counts=counts,
        realised_cost=realised,
    )
