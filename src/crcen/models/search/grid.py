"""The grid of a search: its points, the rows they are tried on, and their outcomes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.fitting import FitRows
from crcen.theory.expense import ExpenseTable, expense_table
from crcen.theory.labels import Labels
from crcen.theory.metrics import ConfusionCounts, confusion_counts
from crcen.theory.price import Price
from crcen.training.recipe import Recipe

__all__ = ["SEARCHED", "Outcome", "SearchRows", "Setting", "is_list_of_networks", "operating_points", "resolved_once"]

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


def resolved_once(resolve: Callable[..., Price]) -> Callable[..., Price]:
    """Cache the prices of an object by the identity of weighting and rows: a search asks for the same few often."""

    @wraps(resolve)
    def cached(self: Any, weighting: Any, own: Index | None = None) -> Price:
        prices = vars(self).setdefault("_prices", [])
        for known, rows, price in prices:
            if known is weighting and rows is own:
                found: Price = price
                return found
        prices.append((weighting, own, resolve(self, weighting, own)))
        return cached(self, weighting, own)

    return cached


@dataclass(frozen=True, eq=False)
class SearchRows(FitRows):
    """What every part of the search reads: rows, their labels, and the folds."""

    y: NDArray[Any]
    labels: Labels
    folds: list[tuple[Index, Index]]

    @resolved_once
    def resolve(self, weighting: Any, own: Index | None = None) -> Price:
        """A weighting with the class counts of all rows, or of some."""
        target, weights = (self.target, self.weights) if own is None else (self.target[own], self.weights[own])
        return self.labels.resolve(weighting, self.labels.by_class(weights[target].sum(), weights[~target].sum()))

    def to_price(self, setting: Setting, own: Index | None = None) -> float:
        """What turns logits under a setting's training weight into those at its price."""
        price, trained = self.resolve(setting.weighting, own), self.resolve(setting.trained_at, own)
        return price.logit_shift - trained.logit_shift


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


def is_list_of_networks(hidden: Any) -> bool:
    """A list, or a tuple of tuples, is searched; a tuple of numbers is one network."""
    if isinstance(hidden, list):
        return True
    return isinstance(hidden, tuple) and len(hidden) > 0 and all(isinstance(h, tuple | list) for h in hidden)


def operating_points(outcomes: list[Outcome], rows: SearchRows) -> tuple[list[ConfusionCounts], ExpenseTable | None]:
    """Out-of-fold counts of every weighting at its best setting, and the expense along them.

    All from the search, one network a fold and not balanced, so that the steps of a path can be compared.
    """
    best: dict[int, Outcome] = {}
    for outcome in outcomes:
        rival = best.setdefault(outcome.setting.weighting_index, outcome)
        if (not outcome.is_dropped, outcome.merit) > (not rival.is_dropped, rival.merit):
            best[outcome.setting.weighting_index] = outcome
    resolved, counts = [], []
    for outcome in best.values():
        seen = np.isfinite(outcome.logits)
        resolved.append(rows.resolve(outcome.setting.weighting))
        counts.append(confusion_counts(rows.target[seen], outcome.logits[seen] > 0, rows.weights[seen]))
    order = np.argsort([weighting.cost_ratio for weighting in resolved])
    prices = [resolved[i].cost_ratio for i in order]
    table = None
    if len(prices) > 1 and np.all(np.diff(prices) > 0):
        ordered = [counts[i] for i in order]
        table = expense_table([resolved[i] for i in order], [c.fn for c in ordered], [c.fp for c in ordered])
    return counts, table
