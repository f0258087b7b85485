"""What ways to decide came to on labelled rows: a wish met there, a review, costs of each row."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import CostMatrix, InvalidInput, Review, decide
from crcen.commands.inputs import amounts_of
from crcen.decisions.choose import ChosenWeighting, choose_on
from crcen.theory.goals import ANSWERS, ThresholdGoal
from crcen.theory.price import Price
from crcen.theory.rows import Shown, in_one_line

__all__ = ["JudgedReview", "RowCosts", "chosen_price", "collected_amounts", "judge_review"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]


def collected_amounts(chunks: list[Any], what: str) -> Array:
    """Numbers of a column that was read in chunks."""
    import pandas as pd

    return amounts_of(pd.concat(chunks), what)


def chosen_price(
    weighting: Any, y: Bools, p: Array, weights: Array | None, recognition: Any, name: str
) -> ChosenWeighting | None:
    """The price that meets a wish on labelled rows; None where no wish was stated.

    Parameters
    ----------
    weighting : ThresholdGoal or anything else
        What was stated.
    y, p, weights
        Labels, natural posteriors, and what rows count.
    recognition : Recognition or None
        Whether these are training rows, on which nothing is guaranteed.
    name : str
        What the rows are called.
    """
    if not isinstance(weighting, ThresholdGoal):
        return None
    is_guarantee = getattr(weighting, "confidence", None) is not None
    if is_guarantee and recognition is not None and recognition.status == "seen":
        raise InvalidInput(f"a guarantee needs rows that the model did not see, and of {name} {recognition.measured}.")
    return choose_on(y, p, np.ones(len(y)) if weights is None else weights, weighting)


@dataclass(frozen=True)
class JudgedReview(Shown):
    """Rows in three, with their labels; prints itself.

    Parameters
    ----------
    review : Review
        The two prices.
    rows, positives : dict of str to float
        Rows and positives by answer: "no alarm", "review", "alarm".
    price : float
        What a miss is worth where there are two answers, for the comparison.
    saved : float
        What errors at that price cost more than those of three answers, in false alarms, before reviews are paid.
    """

    review: Review
    rows: dict[str, float]
    positives: dict[str, float]
    price: float
    saved: float

    @property
    def share(self) -> float:
        """Share of rows that went to review."""
        return self.rows["review"] / sum(self.rows.values())

    @property
    def break_even(self) -> float:
        """What one review may cost, in false alarms, before it costs more than it saves."""
        return self.saved / self.rows["review"] if self.rows["review"] else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "low": self.review.low,
            "high": self.review.high,
            "rows": self.rows,
            "positives": self.positives,
            "review_share": self.share,
            "price": self.price,
            "saved": self.saved,
            "break_even": None if math.isnan(self.break_even) else self.break_even,
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        rows, found = self.rows, self.positives
        worth = "" if math.isnan(self.break_even) else f"; a review pays while it costs less than {self.break_even:.3g}"
        return (
            f"{str(self.review).capitalize()}: {rows['alarm']:,.6g} alarms ({found['alarm']:,.6g} right), "
            f"{rows['review']:,.6g} to review ({100 * self.share:.3g} % of the rows, {found['review']:,.6g} positives)"
            f", {found['no alarm']:,.6g} missed; it saves the cost of {self.saved:,.4g} false alarms against two "
            f"answers at a price of {self.price:.4g}{worth}"
        )


def judge_review(y: Bools, p: Array, review: Review | None, price: float, weights: Array | None) -> JudgedReview | None:
    """What a review came to; None where none was asked for."""
    if review is None:
        return None
    counted = np.ones(len(y)) if weights is None else weights
    answers = review.meet(p).answers
    rows = {name: float(counted[answers == i].sum()) for i, name in enumerate(ANSWERS)}
    positives = {name: float(counted[(answers == i) & y].sum()) for i, name in enumerate(ANSWERS)}
    cost = CostMatrix.binary(fp=1.0, fn=price)
    two = float(cost.realised(y, cost.choose(p)) @ counted)
    unreviewed = answers != 1
    three = float(cost.realised(y, answers == 2)[unreviewed] @ counted[unreviewed])
    return JudgedReview(review, rows, positives, price, two - three)


@dataclass(frozen=True)
class RowCosts(Shown):
    """What decisions cost where each row has a cost of its own; prints itself.

    Parameters
    ----------
    n_alarms : int
        Alarms by these costs.
    by_row, by_price, silence, alarms : float
        What came of decisions by each row's cost, at the one price, without any alarm, and with an alarm on every row.
    """

    n_alarms: int
    by_row: float
    by_price: float
    silence: float
    alarms: float

    @classmethod
    def of(
        cls, y: Bools, p: Array, misses: Array, alarm_cost: float, price: Price, weights: Array | None
    ) -> "RowCosts":
        """Add up what misses and false alarms cost."""
        costs, counted = CostMatrix.binary(fp=alarm_cost, fn=misses), np.ones(len(y)) if weights is None else weights
        by_row = decide(p, costs)
        ways = (by_row, price.decide(p), np.zeros(len(y), dtype=bool), np.ones(len(y), dtype=bool))
        return cls(int(by_row.sum()), *(float(costs.realised(y, way) @ counted) for way in ways))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {
            "alarms": self.n_alarms,
            "cost": self.by_row,
            "cost_at_one_price": self.by_price,
            "cost_of_silence": self.silence,
            "cost_of_alarms": self.alarms,
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        return (
            f"By what each row costs: {self.n_alarms:,} alarms, errors cost {self.by_row:,.6g}; {self.by_price:,.6g} "
            f"at the one price, {self.silence:,.6g} without an alarm, {self.alarms:,.6g} with an alarm on every row"
        )
