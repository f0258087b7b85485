"""Operating goals: a number of alarms, a recall, a precision or a review band, which rows turn into a threshold.

A new goal is one class here. Everything that other modules need is an attribute or a method: how users state
it, how it is written, which threshold meets it. NumPy is imported when a goal meets rows, so that the command line can
list the goals at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from crcen.exceptions import InvalidParameter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from crcen.theory.rows import Array, Index
    from crcen.theory.thresholds import MetGoal, ReviewedRows, RowsByProbability, Totals

# Periods that a capacity may be for, in days.
PERIODS = {"day": 1, "week": 7}


class Statement(NamedTuple):
    """How people state a goal: by an option of the command line, in a request, and in the form of the application."""

    help: str
    kind: type[float | int | str] = float  # of the option
    metavar: str | None = None
    flags: tuple[str, ...] = ()  # if the option has other names than that of the goal
    request: tuple[str, str] = ("number", "")  # type in JSON of a number in a request, and what it says
    form: tuple[str, str, str, str] = ("", "", "", "")  # before the field, its first value, after it, what it holds
    unit: float = 1.0  # of a number in the form
    ending: str = ""  # of the option, after a number in the form
    can_be_guaranteed: bool = False  # whether it has a confidence


# Goals that can be stated instead of a price, by name.
GOALS: dict[str, type[ThresholdGoal]] = {}


def goal_of(weighting: object) -> ThresholdGoal | None:
    """The operating goal that is stated instead of a price, if one is."""
    return weighting if isinstance(weighting, ThresholdGoal) else None


class Goal:
    """An operating goal, which is met on given rows and is not a price by itself."""

    name: ClassVar[str] = ""
    statement: ClassVar[Statement]
    use: ClassVar[str] = ""  # how to use it

    @classmethod
    def parse(cls, text: str) -> tuple[Any, ...]:
        """The values of the goal from the text of its option."""
        return (float(text),)

    def decide(self, p: Array, times: ArrayLike | None = None) -> NDArray[np.generic]:
        """Decisions on rows with natural posteriors p (n,) that came in at these times."""
        raise NotImplementedError


class ThresholdGoal(Goal):
    """A goal that a threshold meets, and so a price. A class with a name can be stated and saved under it."""

    use: ClassVar[str] = "give it as weighting= to a fit, to decide(p, …), or to choose_weighting with labelled rows"
    period: ClassVar[str | None] = None  # of rows that a capacity is for
    confidence: ClassVar[float | None] = None  # of a guarantee, which needs labelled rows that the model did not see
    misses: ClassVar[str] = ""  # how often new rows miss a goal without a confidence, as simulated

    def __init_subclass__(cls) -> None:
        if vars(cls).get("name"):
            GOALS[cls.name] = cls

    def for_rows(self, n_rows: float, rate: float | None = None) -> ThresholdGoal:
        """The goal for this many rows; ``rate`` is rows a day, which a capacity of a day or a week needs."""
        return self

    def over_days(self, days: Index) -> ThresholdGoal:
        """The goal of a period as one of rows, by the days on which rows came in."""
        return self

    def cuts(self, totals: Totals) -> Index:
        """The cut that meets the goal at the smallest or largest price, for counts (…, cuts); −1 if none does."""
        raise NotImplementedError

    def threshold(self, rows: RowsByProbability) -> float:
        """The threshold that meets the goal on labelled rows; an error if none does."""
        cut = self._cut(rows)
        if cut < 0:
            raise InvalidParameter(f"no threshold has {self} on these rows: ask for less")
        if rows.scores[cut] <= 0.0:
            raise InvalidParameter(f"no finite price has {self}: it would need an alarm on rows whose probability is 0")
        return rows.threshold(cut)

    def _cut(self, rows: RowsByProbability) -> int:
        """The cut that meets the goal; an error if no threshold does, or every threshold."""
        return int(self.cuts(rows.totals))

    def meet(self, p: Array, times: ArrayLike | None = None) -> MetGoal:
        """Meet the goal on rows without labels, as their probabilities expect it; a period needs the rows' times."""
        from crcen.theory.thresholds import MetGoal, RowsByProbability

        rows = RowsByProbability(p, p)
        threshold = self.for_rows(float(p.size)).threshold(rows)
        alarms = rows.alarms(threshold)
        return MetGoal(self, alarms, float(p[alarms].sum()), float(p.sum()), (threshold, threshold))

    def decide(self, p: Array, times: ArrayLike | None = None) -> NDArray[np.generic]:
        """Alarms that meet the goal."""
        return self.meet(p, times).alarms


@dataclass(frozen=True)
class Capacity(ThresholdGoal):
    """A number of alarms: the riskiest rows that people have time to check.

    Parameters
    ----------
    alarms : int
        At least 1.
    per : "day", "week", int or None, default=None
        Period of the alarms: a day or a week, by a column of times; this many rows; or ``None``, all rows.

    Examples
    --------
    >>> from crcen import Capacity, decide
    >>> decide([0.1, 0.7, 0.2, 0.9], Capacity(2)).tolist()
    [False, True, False, True]
    """

    alarms: int
    per: str | int | None = None

    name: ClassVar[str] = "capacity"
    statement: ClassVar[Statement] = Statement(
        "Number of alarms: 200 for these rows, 20/day, 100/week, or 5/1000 rows.",
        str,
        "N[/day]",
        ("--capacity", "--top"),
        ("integer", "Alarms among the rows of this request"),
        ("There is time to check", "50", "alarms in 1,000 rows", "Alarms per 1,000 rows"),
        ending="/1000",
    )

    def __post_init__(self) -> None:
        from crcen.theory.checks import check_whole_number

        object.__setattr__(self, "alarms", check_whole_number(self.alarms, "Capacity", 1))
        if isinstance(self.per, str) and self.per not in PERIODS:
            raise InvalidParameter(f"per of Capacity must be 'day', 'week', a number or None: got {self.per!r}")
        if not isinstance(self.per, str | None):
            object.__setattr__(self, "per", check_whole_number(self.per, "per of Capacity", 1))
            if self.per <= self.alarms:
                raise InvalidParameter(f"{self} allows an alarm on every row: per must be above {self.alarms}")

    @classmethod
    def parse(cls, text: str) -> tuple[Any, ...]:
        """A number of alarms in all, a day, a week or per number of rows."""
        number, _, per = (part.strip() for part in text.replace(",", "").partition("/"))
        try:
            return int(number), (per or None) if per in ("", *PERIODS) else int(per)
        except ValueError:
            allowed = "capacity must be a whole number of alarms, such as 200, 20/day, 100/week or 5/1000"
            raise InvalidParameter(f"{allowed}: got {text!r}.", parameter="capacity") from None

    def __repr__(self) -> str:
        return f"Capacity({self.alarms}" + ("" if self.per is None else f", per={self.per!r}") + ")"

    def __str__(self) -> str:
        of = f" in {self.per:,} rows" if isinstance(self.per, int) else f" a {self.per}" if self.per else ""
        return f"at most {self.alarms:,} alarm{'' if self.alarms == 1 else 's'}{of}"

    @property
    def period(self) -> str | None:  # type: ignore[override]
        """Day or week, if it is for one."""
        return self.per if isinstance(self.per, str) else None

    def for_rows(self, n_rows: float, rate: float | None = None) -> ThresholdGoal:
        """A share of alarms among these rows."""
        from crcen.theory.price import positive_number

        text = str(self)
        if isinstance(self.per, str):
            if rate is None:
                raise InvalidParameter(f"{self!r} needs the number of rows a day, rate, to become a price")
            n_rows = positive_number(rate, "rate") * PERIODS[self.per]
            text = f"{self} of {n_rows:g} rows"
        elif self.per is not None:
            n_rows = float(self.per)
        if self.alarms >= n_rows:
            raise InvalidParameter(f"{self} of {n_rows:g} rows allow an alarm on every row: ask for fewer alarms")
        return _AlarmShare(self.alarms / n_rows, text)

    def over_days(self, days: Index) -> Capacity:
        """As a capacity of rows."""
        if self.period is None:
            return self
        rows = len(days) / float(days.max() - days.min() + 1) * PERIODS[self.period]
        if self.alarms >= round(rows):
            raise InvalidParameter(f"{self} allows an alarm on every row: there are {rows:.3g} rows a {self.period}.")
        return replace(self, per=round(rows))

    def meet(self, p: Array, times: ArrayLike | None = None) -> MetGoal:
        """The riskiest rows of each period; ties in the order of the rows."""
        from crcen.theory.thresholds import riskiest_rows

        n_allowed = self.alarms * p.size // self.per if isinstance(self.per, int) else self.alarms
        return riskiest_rows(self, p, n_allowed, self.period, times)


@dataclass(frozen=True)
class _AlarmShare(ThresholdGoal):
    """At most this share of rows with an alarm: a capacity for given rows."""

    share: float
    text: str

    def __str__(self) -> str:
        return self.text

    def cuts(self, totals: Totals) -> Index:
        return totals.last(totals.alarm_share <= self.share * (1.0 + 1e-12))

    def _cut(self, rows: RowsByProbability) -> int:
        cut = super()._cut(rows)
        if cut < 0:
            share, most = 100 * rows.totals.alarm_share[0], rows.scores[0]
            found = f"{share:.3g} % of the rows share the largest probability, {most:.4g}"
            raise InvalidParameter(f"no threshold has {self}: {found}")
        return cut


@dataclass(frozen=True, repr=False)
class _ShareGoal(ThresholdGoal):
    """A goal for a share, which a confidence turns into a guarantee on new rows."""

    share: float
    confidence: float | None = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "share", _share(self.share, name, includes_one=self.name == "recall"))
        if self.confidence is not None:
            confidence = _share(self.confidence, f"confidence of {name}", includes_one=False)
            object.__setattr__(self, "confidence", confidence)
            if self.share == 1.0:
                raise InvalidParameter("a recall of 1 cannot be guaranteed by any number of rows: ask for less than 1")

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence={self.confidence!r}"
        return f"{type(self).__name__}({self.share!r}{sure})"

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f" with confidence {self.confidence:g}"
        return f"{self.name} of at least {self.share:g}{sure}"

    def _cut(self, rows: RowsByProbability) -> int:
        if self.confidence is None:
            return super()._cut(rows)
        if (rows.weights != 1.0).any():
            raise InvalidParameter("a guarantee counts rows, so it is not available with row weights: leave them out")
        return self._guaranteed(rows, self.confidence)

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        raise NotImplementedError

    def meet(self, p: Array, times: ArrayLike | None = None) -> MetGoal:
        """As for any goal; a guarantee needs labels."""
        if self.confidence is not None:
            price = f"decide at the price of choose_weighting(model, {self!r}, X, y) on rows held out from the model"
            raise InvalidParameter(f"{self!r} is a guarantee, which only labelled rows can give: {price}")
        return super().meet(p, times)


@dataclass(frozen=True, repr=False)
class RecallAtLeast(_ShareGoal):
    """Recall of at least this share: how many positives must be found.

    Parameters
    ----------
    share : float
        Above 0, at most 1.
    confidence : float, optional
        Probability with which new rows have the recall, by a threshold chosen on rows held out from a fitted model.
        0.9 at 0.95 needs 29 positive rows.
    """

    name: ClassVar[str] = "recall"
    statement: ClassVar[Statement] = Statement(
        "Minimum recall, such as 0.9.",
        request=("number", "Expected recall on the rows of this request"),
        form=("Find at least", "90", "% of the cases", "Recall in percent"),
        unit=0.01,
        can_be_guaranteed=True,
    )
    misses: ClassVar[str] = "new rows miss this recall in about half of cases (simulated); a confidence guarantees it"

    def cuts(self, totals: Totals) -> Index:
        """The first cut with the recall."""
        return totals.first(totals.tp >= self.share * totals.tp[..., -1:] * (1.0 - 1e-12))

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        cut, n_positive, needed = rows.guaranteed_recall(self.share, confidence)
        if cut < 0:
            what = f"{needed} positive {'rows' if rows.clusters is None else 'clusters'}"
            raise InvalidParameter(f"{self} needs at least {what} that were held out, got {n_positive}")
        return cut


@dataclass(frozen=True, repr=False)
class PrecisionAtLeast(_ShareGoal):
    """Precision of at least this share: how many alarms must be right.

    Parameters
    ----------
    share : float
        Strictly between 0 and 1.
    confidence : float, optional
        Probability with which new rows have the precision, by exact tests of a fixed sequence of thresholds on rows
        held out from a fitted model. Without it, new rows miss the precision in more than half of the cases.
    """

    name: ClassVar[str] = "precision"
    statement: ClassVar[Statement] = Statement(
        "Minimum precision, such as 0.5.",
        request=("number", "Expected precision on the rows of this request"),
        form=("At least", "50", "% of alarms are right", "Precision in percent"),
        unit=0.01,
        can_be_guaranteed=True,
    )
    misses: ClassVar[str] = "new rows miss this precision in 50 to 99 % of samples; a confidence guarantees it"

    def cuts(self, totals: Totals) -> Index:
        """The last cut with the precision."""
        return totals.last(totals.precision >= self.share)

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        cut, n_rows, needed = rows.guaranteed_precision(self.share, confidence)
        if cut < 0:
            what = f"{needed} right alarms or more at the top of {n_rows:,} rows"
            raise InvalidParameter(f"these rows do not show {self}, which takes {what}: ask for less")
        return cut

    def _cut(self, rows: RowsByProbability) -> int:
        cut, found = super()._cut(rows), rows.totals.precision
        if cut < 0:
            best = found[found >= 0.0].max()
            raise InvalidParameter(f"no threshold has {self}: the best on these rows is {best:.4g}")
        if cut == len(rows.scores) - 1:
            share = f"{100 * found[-1]:.3g} % of all rows are positive"
            raise InvalidParameter(f"every price has {self}, since {share}: ask for more")
        return cut


@dataclass(frozen=True)
class Review(Goal):
    """A third decision between two prices: a person reviews the rows on which the prices disagree.

    A row is an alarm if it is one even at the low price, no alarm if it is none even at the high price, else a review.
    If the cost of a review is known, `CostMatrix.with_review` gives the cheapest rule.

    Parameters
    ----------
    low, high : float
        Prices in false alarms per catch, 0 < low < high.

    Examples
    --------
    >>> from crcen import Review, decide
    >>> decide([0.01, 0.1, 0.5], Review(low=2, high=30)).tolist()
    ['no alarm', 'review', 'alarm']
    """

    low: float
    high: float
    use: ClassVar[str] = "give it to decide(p, …), or as review= to predict_table and evaluate_table"
    name: ClassVar[str] = "review"
    statement: ClassVar[Statement] = Statement(
        "Two prices, such as 2,30: rows between them go to review.", str, "LOW,HIGH"
    )

    def __post_init__(self) -> None:
        from crcen.theory.price import positive_number

        for name in ("low", "high"):
            object.__setattr__(self, name, positive_number(getattr(self, name), f"{name} of Review"))
        if self.low >= self.high:
            raise InvalidParameter(f"low of Review must be below high: got {self.low:g} and {self.high:g}; swap them?")

    @classmethod
    def of(cls, given: Review | Iterable[float] | None) -> Review | None:
        """A review from two prices; None stays None."""
        if given is None or isinstance(given, Review):
            return given
        if not isinstance(given, Iterable) or len(prices := tuple(given)) != 2:
            raise InvalidParameter(f"review must be two prices, such as (2, 30): got {given!r}.", parameter="review")
        return cls(*prices)

    @classmethod
    def parse(cls, text: str) -> tuple[Any, ...]:
        """The two prices."""
        try:
            low, high = map(float, text.split(","))
        except ValueError:
            allowed = "review must be two prices, such as 2,30"
            raise InvalidParameter(f"{allowed}: got {text!r}.", parameter="review") from None
        return low, high

    def __str__(self) -> str:
        return f"review between the prices {self.low:g} and {self.high:g}"

    def decide(self, p: Array, times: ArrayLike | None = None) -> NDArray[np.generic]:
        """The decision for every row: "alarm", "review" or "no alarm"."""
        return self.meet(p).names

    def meet(self, p: Array, price: float | None = None, *by: Any) -> ReviewedRows:
        """Send rows between the two prices to review: see `thresholds.reviewed_rows`."""
        from crcen.theory.thresholds import reviewed_rows

        return reviewed_rows(self, p, (self.low, self.high), price, *by)


def _share(value: object, name: str, *, includes_one: bool) -> float:
    from crcen.theory.price import positive_number

    share = positive_number(value, name)
    if share > 1.0 or (share == 1.0 and not includes_one):
        most = "at most 1" if includes_one else "below 1"
        meant = f": did you mean {share / 100:g}?" if 2.0 <= share < 100.0 else ""
        raise InvalidParameter(f"{name} must be a share above 0 and {most}, got {share:g}{meant}")
    return share
