"""How the rows of a table are decided: at a price, by a wish, with a review between prices, by costs of their own."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import CostMatrix, CostRatio, InvalidParameter, Review, decide
from crcen.commands.inputs import Source, amounts_of, check_column, price_of
from crcen.commands.row_order import dates_of
from crcen.theory.decision import weighted_probability
from crcen.theory.goals import MetGoal, ReviewedRows, ThresholdGoal
from crcen.theory.price import Price, positive_number

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["RowRule", "at_prevalence", "implied_price", "rule_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class RowRule:
    """What turns probabilities of rows into answers.

    Parameters
    ----------
    price : Price
        The price, where there is no wish; with a review, that of the comparison.
    wish : ThresholdGoal or None
        To be met on all rows at hand.
    review : Review or None
        Two prices between which rows go to review.
    cost_column : str or None
        Column with what a miss of each row costs.
    alarm_cost : float
        What a false alarm costs, in the same unit.
    time : str or None
        Column of dates, for a capacity of a day or a week.
    """

    price: Price
    wish: ThresholdGoal | None = None
    review: Review | None = None
    cost_column: str | None = None
    alarm_cost: float = 1.0
    time: str | None = None

    def when(self, chunk: "pd.DataFrame") -> Any:
        """Dates of a chunk's rows, where the rule goes by them."""
        return None if self.time is None else dates_of(chunk[self.time], self.time)

    def meet(self, p: Array, times: Any) -> MetGoal | None:
        """The wish met on all rows."""
        return None if self.wish is None else self.wish.meet(p, times)

    def reviewed(self, p: Array) -> ReviewedRows | None:
        """All rows in three."""
        return None if self.review is None else self.review.meet(p, self.price.cost_ratio)

    def costs(self, chunk: "pd.DataFrame") -> CostMatrix | None:
        """What outcomes cost on each row of a chunk, where the rule goes by that."""
        if self.cost_column is None:
            return None
        return CostMatrix.binary(fp=self.alarm_cost, fn=amounts_of(chunk[self.cost_column], "cost_column"))

    def decide(self, p: Array, chunk: "pd.DataFrame") -> NDArray[np.bool_]:
        """Alarms of a chunk, where no wish is to be met."""
        costs = self.costs(chunk)
        return decide(p, self.price if costs is None else costs)


def rule_of(
    model: Any,
    source: Source,
    weighting: Any = None,
    *,
    review: Any = None,
    cost_column: str | None = None,
    alarm_cost: float = 1.0,
    time: str | None = None,
) -> RowRule:
    """The rule that parameters state; those that contradict each other are refused."""
    wish = weighting if isinstance(weighting, ThresholdGoal) else None
    if wish is not None and wish.confidence is not None:
        raise InvalidParameter(
            "a guaranteed recall needs labelled rows that the model did not see: name their file with held_out=.",
            parameter="held_out",
        )
    is_by_time = wish is not None and wish.period is not None
    if is_by_time and time is None:
        raise InvalidParameter(f"{wish} needs time=, the column that says when rows came in.", parameter="time")
    if time is not None and not is_by_time:
        raise InvalidParameter(
            "time must go with a capacity for a day or a week: here nothing depends on it.", parameter="time"
        )
    given = [name for name, value in (("review", review), ("cost_column", cost_column)) if value is not None]
    if len(given) > 1 or (given and wish is not None):
        told = given if wish is None else [*given, str(wish)]
        raise InvalidParameter(f"{' and '.join(told)} both decide: give one of them.")
    if cost_column is not None and weighting is not None:
        raise InvalidParameter(
            "cost_column is a price for each row: leave the other price out.", parameter="cost_column"
        )
    if alarm_cost != 1.0 and cost_column is None:
        raise InvalidParameter(
            "alarm_cost must go with cost_column=, whose unit it is in.", parameter=("alarm_cost", "cost_column")
        )
    for name, what in ((cost_column, "cost_column"), (time, "time")):
        if name is not None:
            check_column(name, source.columns, what, source.name)
    price = price_of(None if wish is not None else weighting, model)
    return RowRule(
        price,
        wish,
        Review.of(review),
        cost_column,
        positive_number(alarm_cost, "alarm_cost"),
        time if is_by_time else None,
    )


def at_prevalence(p: Array, prevalence: float | None, trained: Price) -> Array:
    """Probabilities where positives have another share than in training, all else being the same.

    Parameters
    ----------
    p : float64 array of shape (n,)
        Natural posteriors at the share of training.
    prevalence : float or None
        Share of positives among the rows at hand; None leaves p as it is.
    trained : Price
        With the class counts of training.
    """
    if prevalence is None:
        return p
    share = positive_number(prevalence, "prevalence")
    if share >= 1.0:
        hint = f": did you mean {share / 100:g}?" if 1.0 < share < 100.0 else "."
        raise InvalidParameter(
            f"prevalence must be a share between 0 and 1: got {share:g}{hint}", parameter="prevalence"
        )
    return weighted_probability(p, CostRatio(share / (1.0 - share) * trained.imbalance_ratio))


def implied_price(met: MetGoal, model: Any) -> Price | None:
    """The price of a met wish at the class counts of training; None where every row got an alarm."""
    trained, (low, _) = model.weighting_, met.price
    return trained.replace(CostRatio(low)) if np.isfinite(low) and low > 0.0 else None
