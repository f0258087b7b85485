"""The grid of a search: its points, the rows they are tried on, and their outcomes."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.fitting import FitRows, seen_rows
from crcen.theory.decision import softmax
from crcen.theory.expense import ExpenseTable, expense_table
from crcen.theory.metrics import confusion_counts, decision_counts
from crcen.theory.price import Price
from crcen.training.recipe import Recipe

__all__ = ["SEARCHED", "Outcome", "Setting", "operating_points", "to_price"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Parameters of a recipe that a search takes lists of.
SEARCHED = ("hidden", "l2", "encoding")


@dataclass(frozen=True)
class Setting:
    """One point of the grid; ``weighting_index`` tells weightings apart that need not be hashable.

    ``weighting`` is the price, ``trained_at`` what the loss is weighted by.
    """

    weighting_index: int
    weighting: Any
    recipe: Recipe
    trained_at: Any = None

    def params(self) -> dict[str, Any]:
        """What was searched, as keyword arguments of `CRCENClassifier`."""
        return {"weighting": self.weighting} | {name: getattr(self.recipe, name) for name in SEARCHED}


def to_price(rows: FitRows, setting: Setting, own: Index | None = None) -> Array:
    """Add this (K,) to logits under a setting's training weights to get those at its price."""
    return rows.resolve(setting.weighting, own).log_weights - rows.resolve(setting.trained_at, own).log_weights


@dataclass(frozen=True, eq=False)
class Outcome:
    """A setting's fold scores at the epoch chosen for it, and its out-of-fold logits there.

    A setting that halving dropped keeps the scores of its short schedule and may not win by them.
    """

    setting: Setting
    epochs: int | None
    scores: Array
    logits: Array
    is_dropped: bool = False

    @property
    def merit(self) -> float:
        """Mean score over the folds; none where a fold has none."""
        mean = float(self.scores.mean())
        return -np.inf if np.isnan(mean) else mean


def operating_points(outcomes: list[Outcome], rows: FitRows) -> tuple[list[Any], ExpenseTable | None]:
    """Out-of-fold counts of every weighting at its best setting, and the expense along them if it is defined.

    All from the search, one network a fold and not balanced, so that the steps of a path can be compared. Counts are
    `ConfusionCounts` for a binary problem, otherwise (K, actions): a row for each class, a column for each decision.
    """
    best: dict[int, Outcome] = {}
    for outcome in outcomes:
        rival = best.setdefault(outcome.setting.weighting_index, outcome)
        if (not outcome.is_dropped, outcome.merit) > (not rival.is_dropped, rival.merit):
            best[outcome.setting.weighting_index] = outcome
    prices = [rows.resolve(outcome.setting.weighting) for outcome in best.values()]
    counts = [_counts(outcome.logits, rows, price) for outcome, price in zip(best.values(), prices, strict=True)]
    if rows.labels.positive is None:
        return counts, None
    order = np.argsort([price.cost_ratio for price in prices])
    table = None
    if len(prices) > 1 and np.all(np.diff([prices[i].cost_ratio for i in order]) > 0):
        ordered = [counts[i] for i in order]
        table = expense_table([prices[i] for i in order], [c.fn for c in ordered], [c.fp for c in ordered])
    return counts, table


def _counts(logits: Array, rows: FitRows, price: Price) -> Any:
    seen, labels = seen_rows(logits), rows.labels
    target, weights, logits = rows.target[seen], rows.weights[seen], logits[seen]
    chosen = labels.choose(logits)
    if labels.positive is not None:
        return confusion_counts(target == labels.column, chosen == labels.column, weights)
    costs = price.costs
    if costs is None:
        return decision_counts(target, chosen, labels.n_classes, weights).table
    chosen = costs.choose(softmax(logits - price.log_weights))
    return decision_counts(target, chosen, labels.n_classes, weights, n_actions=costs.n_actions).table
