"""Wishes met on rows without labels, by the probabilities themselves, and rows sent to review."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.moved_threshold import MovedThreshold, goal_of, price_of_threshold
from crcen.theory.shown import Shown, in_one_line
from crcen.theory.wishes import PERIODS, Capacity, RecallAtLeast, Review, Wish

__all__ = ["ANSWERS", "MetWish", "ReviewedRows", "meet_wish", "review_rows"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

# What `decide` says with a `Review`, by number.
ANSWERS = ("no alarm", "review", "alarm")


@dataclass(frozen=True, eq=False)
class MetWish(Shown):
    """A wish met on rows, as their probabilities see it; prints itself.

    Parameters
    ----------
    wish : Wish
        What was asked for.
    alarms : bool array of shape (n,)
        The decisions.
    thresholds : tuple of float
        Probability above which rows got an alarm: smallest and largest over periods.
    expected_catches, expected_positives : float
        Sums of probabilities: of the alarms, of all rows.
    n_periods : int
        Days or weeks; 1 without.
    ties : tuple of int
        Rows that share the probability at the border, and those of them that got an alarm, by their order.
    """

    wish: Wish
    alarms: Bools
    thresholds: tuple[float, float]
    expected_catches: float
    expected_positives: float
    n_periods: int = 1
    ties: tuple[int, int] = (0, 0)

    @property
    def n_alarms(self) -> int:
        """Rows with an alarm."""
        return int(self.alarms.sum())

    @property
    def price(self) -> tuple[float, float]:
        """The price it implies, in false alarms for the last catch: smallest and largest over periods."""
        low, high = (price_of_threshold(t) if t > 0.0 else math.inf for t in self.thresholds[::-1])
        return low, high

    @property
    def recall(self) -> float:
        """Expected share of the positives among these rows that gets an alarm; NaN where none is expected."""
        return self.expected_catches / self.expected_positives if self.expected_positives > 0.0 else math.nan

    @property
    def precision(self) -> float:
        """Expected share of the alarms that are right; NaN without an alarm."""
        return self.expected_catches / self.n_alarms if self.n_alarms else math.nan

    @property
    def tie_sentence(self) -> str:
        """What became of equal probabilities at the border; empty where there were none."""
        tied, taken = self.ties
        return (
            f"{taken:,} of {tied:,} rows with equal probability at the border got an alarm, by their order"
            if tied
            else ""
        )

    @property
    def _price_sentence(self) -> str:
        (low, high), (least, most) = self.price, self.thresholds
        if math.isinf(low):
            return "none: there are no more rows than alarms, so every row got one"
        if math.isclose(low, high):
            return f"{low:.4g} false alarms for the last catch (probability above {least:.4g})"
        return f"{low:.4g} to {high:.4g} false alarms for the last catch (probability above {least:.4g} to {most:.4g})"

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        low, high = self.price
        tied, taken = self.ties
        return {
            "wish": str(self.wish),
            "price": [one if math.isfinite(one) else None for one in (low, high)],
            "threshold": list(self.thresholds),
            "expected_recall": None if math.isnan(self.recall) else self.recall,
            "expected_precision": None if math.isnan(self.precision) else self.precision,
            "periods": self.n_periods,
            "ties": {"rows": tied, "alarms": taken},
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        over = f" over {self.n_periods:,} {getattr(self.wish, 'per', '')}s" if self.n_periods > 1 else ""
        lines = [
            f"{self.wish}: {self.n_alarms:,} alarms on {self.alarms.size:,} rows{over}",
            f"  implied price     {self._price_sentence}",
            f"  expected          {self.expected_catches:,.1f} of {self.expected_positives:,.1f} positives found "
            f"(recall {self.recall:.3g}), precision {self.precision:.3g}",
        ]
        return "\n".join([*lines, *([f"  {self.tie_sentence}"] if self.tie_sentence else [])])


def meet_wish(p: Array, wish: Wish, times: Any = None) -> MetWish:
    """Meet a wish on rows without labels.

    Parameters
    ----------
    p : float64 array of shape (n,)
        Natural posteriors.
    wish : Capacity, RecallAtLeast or PrecisionAtLeast
        A capacity takes exactly the riskiest rows; recall and precision are those that the probabilities expect.
    times : array of datetime64 of shape (n,), optional
        When each row came in, for a capacity of a day or a week.

    Returns
    -------
    MetWish
        Decisions, the price they imply, what they are expected to catch.
    """
    if isinstance(wish, RecallAtLeast) and wish.confidence is not None:
        raise InvalidParameter(
            f"{wish!r} is a guarantee, which only labelled rows can give: choose_weighting(model, {wish!r}, X, y) with "
            "rows that the model did not see gives the price to decide at"
        )
    if isinstance(wish, Capacity):
        return _riskiest(p, wish, times)
    goal = goal_of(wish, float(p.size))
    threshold = MovedThreshold(p, p, np.ones(p.size)).meet(goal)
    alarms = p > threshold
    return MetWish(wish, alarms, (threshold, threshold), float(p[alarms].sum()), float(p.sum()))


def _riskiest(p: Array, wish: Capacity, times: Any) -> MetWish:
    """The riskiest rows of each period; equal ones by their order."""
    periods, n_allowed = np.zeros(p.size, dtype=np.int64), wish.alarms
    if isinstance(wish.per, str):
        periods = _periods(times, wish.per, p.size)
    elif wish.per is not None:
        n_allowed = min(p.size, round(wish.alarms * p.size / wish.per))
    order = np.lexsort((np.arange(p.size), -p, periods))
    own, first = np.unique(periods[order], return_index=True)
    place = np.arange(p.size) - np.repeat(first, np.diff(np.append(first, p.size)))
    alarms = np.zeros(p.size, dtype=np.bool_)
    alarms[order[place < n_allowed]] = True
    thresholds, tied, taken = [], 0, 0
    for start, end in zip(first, np.append(first[1:], p.size), strict=True):
        falling = p[order[start:end]]
        if falling.size <= n_allowed or n_allowed == 0:
            thresholds.append(float(falling[-1]) if n_allowed == 0 else 0.0)
            continue
        inside, outside = falling[n_allowed - 1], falling[n_allowed]
        thresholds.append(float(outside if inside == outside else _between(inside, outside)))
        if inside == outside:
            equal = falling == inside
            tied, taken = tied + int(equal.sum()), taken + int(equal[:n_allowed].sum())
    # A period with fewer rows than its capacity implies no price of its own where others do.
    bounded = [one for one in thresholds if one > 0.0] or thresholds
    return MetWish(
        wish,
        alarms,
        (min(bounded), max(bounded)),
        float(p[alarms].sum()),
        float(p.sum()),
        len(own),
        (tied, taken),
    )


def _between(inside: float, outside: float) -> float:
    """Halfway in log-odds, where both have some."""
    if outside <= 0.0 or inside >= 1.0:
        return 0.5 * (inside + outside)
    odds = math.sqrt(inside / (1.0 - inside) * outside / (1.0 - outside))
    return odds / (1.0 + odds)


def _periods(times: Any, per: str, n_rows: int) -> NDArray[np.int64]:
    """The number of the day or week of each row; weeks begin on Mondays."""
    if times is None:
        raise InvalidParameter(f"a capacity for each {per} needs times, when each row came in")
    when = np.asarray(times)
    if when.shape != (n_rows,):
        raise InvalidInput(f"times must have one value for each of {n_rows} rows: got shape {when.shape}")
    if when.dtype.kind != "M":
        try:
            when = when.astype("datetime64[s]")
        except (TypeError, ValueError) as error:
            raise InvalidInput(f"times must be dates, such as datetime64 values: {error}") from error
    if np.isnat(when).any():
        raise InvalidInput(
            f"times must all be known for a capacity for each {per}: {int(np.isnat(when).sum())} are missing"
        )
    days = when.astype("datetime64[D]").astype(np.int64)
    return days if PERIODS[per] == 1 else np.asarray((days + 3) // 7)  # 1970 began on a Thursday


@dataclass(frozen=True, eq=False)
class ReviewedRows(Shown):
    """Rows in three: alarm, review, no alarm; what a review saves, as probabilities see it; prints itself.

    Parameters
    ----------
    review : Review
        The two prices.
    answers : int array of shape (n,)
        Numbers into `ANSWERS`.
    expected_caught, expected_reviewed, expected_missed : float
        Expected positives among the alarms, the rows to review, the rest.
    price : float
        What a miss is worth where there are only two answers, for the comparison.
    saved : float
        Expected cost, in false alarms, that a review which finds the truth takes off the two answers at that price,
        before the reviews themselves are paid.
    """

    review: Review
    answers: NDArray[np.int64]
    expected_caught: float
    expected_reviewed: float
    expected_missed: float
    price: float
    saved: float

    @property
    def counts(self) -> dict[str, int]:
        """Rows by answer."""
        return {name: int((self.answers == i).sum()) for i, name in enumerate(ANSWERS)}

    @property
    def share(self) -> float:
        """Share of rows that go to review."""
        return float((self.answers == 1).mean())

    @property
    def break_even(self) -> float:
        """What one review may cost, in false alarms, before it costs more than it saves."""
        n = int((self.answers == 1).sum())
        return self.saved / n if n else math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "low": self.review.low,
            "high": self.review.high,
            "rows": self.counts,
            "review_share": self.share,
            "expected_positives": {
                "alarm": self.expected_caught,
                "review": self.expected_reviewed,
                "no alarm": self.expected_missed,
            },
            "price": self.price,
            "saved": self.saved,
            "break_even": None if math.isnan(self.break_even) else self.break_even,
        }

    __repr__ = in_one_line

    def __str__(self) -> str:
        counts = self.counts
        worth = (
            ""
            if math.isnan(self.break_even)
            else (
                f"; against two answers at a price of {self.price:.4g} it saves the cost of {self.saved:,.4g} false "
                f"alarms, so a review pays while it costs less than {self.break_even:.3g} false alarms"
            )
        )
        return (
            f"{str(self.review).capitalize()}: {counts['alarm']:,} alarms, {counts['review']:,} to review "
            f"({100 * self.share:.3g} % of the rows, {self.expected_reviewed:,.1f} positives expected among them), "
            f"{counts['no alarm']:,} left alone ({self.expected_missed:,.1f} positives expected){worth}"
        )


def review_rows(p: Array, review: Review, price: float | None = None) -> ReviewedRows:
    """Send rows between two prices to review.

    Parameters
    ----------
    p : float64 array of shape (n,)
        Natural posteriors.
    review : Review
        The two prices.
    price : float, optional
        What a miss is worth without a review; by default between both prices, their geometric mean.

    Returns
    -------
    ReviewedRows
        Answers, their shares, and what the review saves.
    """
    low, high = review.thresholds
    answers = (p > low).astype(np.int64) + (p > high)
    middle, c = p[answers == 1], math.sqrt(review.low * review.high) if price is None else price
    return ReviewedRows(
        review,
        answers,
        float(p[answers == 2].sum()),
        float(middle.sum()),
        float(p[answers == 0].sum()),
        c,
        float(np.minimum(1.0 - middle, c * middle).sum()),
    )
