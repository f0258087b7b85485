"""What people want of decisions when they have no price: a number of alarms, a recall, a precision."""

import math
import numbers
from dataclasses import dataclass
from typing import ClassVar

from crcen.exceptions import InvalidParameter
from crcen.theory.price import NotYetAPrice, positive_number

__all__ = ["PERIODS", "Capacity", "PrecisionAtLeast", "RecallAtLeast", "Review", "Wish"]

# Stretches of time that a capacity may be for, in days.
PERIODS = {"day": 1, "week": 7}


class Wish(NotYetAPrice):
    """What decisions should reach; rows turn it into a price."""

    use: ClassVar[str] = (
        "give it as weighting= to the fit of CRCENClassifier, CRCENClassifierCV, CommitteeClassifier, TableClassifier "
        "or fit_table, which meet it on out-of-fold rows, to decide(p, …), or to choose_weighting with labelled rows"
    )


@dataclass(frozen=True)
class Capacity(Wish):
    """So many alarms: the riskiest rows that people have time for.

    Parameters
    ----------
    alarms : int
        How many, at least 1.
    per : "day", "week", int or None, default=None
        Of which rows: those of a day or a week, by a column of times; so many rows; or ``None``, all rows at hand.

    Examples
    --------
    >>> from crcen import Capacity, decide
    >>> decide([0.1, 0.7, 0.2, 0.9], Capacity(2)).tolist()
    [False, True, False, True]
    """

    alarms: int
    per: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "alarms", _whole_number(self.alarms, "Capacity"))
        if isinstance(self.per, str):
            if self.per not in PERIODS:
                raise InvalidParameter(
                    f"per of Capacity must be 'day', 'week', a number of rows or None: got {self.per!r}"
                )
        elif self.per is not None:
            object.__setattr__(self, "per", _whole_number(self.per, "per of Capacity"))
            if self.per <= self.alarms:
                raise InvalidParameter(f"{self!r} allows an alarm on every row: per must be above {self.alarms}")

    def __repr__(self) -> str:
        return f"Capacity({self.alarms}" + ("" if self.per is None else f", per={self.per!r}") + ")"

    def __str__(self) -> str:
        plural = "" if self.alarms == 1 else "s"
        if self.per is None:
            return f"at most {self.alarms:,} alarm{plural}"
        of = f"a {self.per}" if isinstance(self.per, str) else f"in {self.per:,} rows"
        return f"at most {self.alarms:,} alarm{plural} {of}"


@dataclass(frozen=True)
class RecallAtLeast(Wish):
    """At least this share of the positives found.

    Parameters
    ----------
    share : float
        Above 0, at most 1.
    confidence : float, optional
        With it the recall is guaranteed: on rows held out from a fitted model, a threshold is chosen so that the recall
        of new rows of the same kind is at least ``share`` with this probability, at any sample size. 0.9 at 0.95 needs
        29 positive rows.
    """

    share: float
    confidence: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", _share(self.share, "RecallAtLeast", includes_one=True))
        if self.confidence is not None:
            what = "confidence of RecallAtLeast"
            object.__setattr__(self, "confidence", _share(self.confidence, what, includes_one=False))
            if self.share == 1.0:
                raise InvalidParameter("a recall of 1 cannot be guaranteed by any number of rows: ask for less than 1")

    def __repr__(self) -> str:
        sure = "" if self.confidence is None else f", confidence={self.confidence!r}"
        return f"RecallAtLeast({self.share!r}{sure})"

    def __str__(self) -> str:
        sure = "" if self.confidence is None else f" with confidence {self.confidence:g}"
        return f"recall of at least {self.share:g}{sure}"


@dataclass(frozen=True)
class PrecisionAtLeast(Wish):
    """At least this share of the alarms right.

    Parameters
    ----------
    share : float
        Strictly between 0 and 1.
    """

    share: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "share", _share(self.share, "PrecisionAtLeast", includes_one=False))

    def __repr__(self) -> str:
        return f"PrecisionAtLeast({self.share!r})"

    def __str__(self) -> str:
        return f"precision of at least {self.share:g}"


@dataclass(frozen=True)
class Review(NotYetAPrice):
    """A third answer between two prices: a person looks where the prices disagree.

    A row gets an alarm where even the low price pays for it, is left alone where not even the high one does, and goes
    to review between. With the cost of a false alarm as unit, a review at cost r that always finds the truth, and a
    miss worth c false alarms, the cheapest rule is ``low = r / (1 − r)`` and ``high = c / r − 1``: see `at_cost`.

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
    use: ClassVar[str] = "give it to decide(p, …), decision_summary or predict_table(review=…) and evaluate_table"

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, positive_number(getattr(self, name), f"{name} of Review"))
        if self.low >= self.high:
            raise InvalidParameter(
                f"low of Review must be below high, so that rows lie between: got {self.low:g} and {self.high:g}"
            )

    @classmethod
    def at_cost(cls, cost: float, miss: float) -> "Review":
        """The rule that is cheapest where a review costs ``cost`` and a miss ``miss`` false alarms.

        Parameters
        ----------
        cost : float
            Of one review that finds the truth, in false alarms; a review is worth it below ``miss / (1 + miss)``.
        miss : float
            Of one miss, in false alarms: the budget.
        """
        r, c = positive_number(cost, "cost of a review"), positive_number(miss, "miss")
        if r >= c / (1.0 + c):
            raise InvalidParameter(
                f"a review that costs {r:g} false alarms never pays where a miss costs {c:g}: it must cost less than "
                f"{c / (1.0 + c):.4g}"
            )
        return cls(low=r / (1.0 - r), high=c / r - 1.0)

    @property
    def thresholds(self) -> tuple[float, float]:
        """Probabilities above which a row goes to review, and above which it gets an alarm."""
        return 1.0 / (1.0 + self.high), 1.0 / (1.0 + self.low)

    def __str__(self) -> str:
        return f"review between the prices {self.low:g} and {self.high:g}"


def _whole_number(value: object, name: str) -> int:
    is_whole = isinstance(value, numbers.Real) and not isinstance(value, bool) and float(value).is_integer()
    if not is_whole or int(value) < 1:  # type: ignore[call-overload]
        raise InvalidParameter(f"{name} must be a whole number of at least 1: got {value!r}")
    return int(value)  # type: ignore[call-overload]


def _share(value: object, name: str, *, includes_one: bool) -> float:
    share = positive_number(value, name)
    if share > 1.0 or (share == 1.0 and not includes_one):
        allowed = "a share above 0 and " + ("at most 1" if includes_one else "below 1")
        meant = f": did you mean {share / 100:g}?" if 1.0 < share < 100.0 and math.isfinite(share) else ""
        raise InvalidParameter(f"{name} must be {allowed}, got {share:g}{meant}")
    return share
