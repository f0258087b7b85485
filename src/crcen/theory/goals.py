"""Operating goals: a number of alarms, a recall, a precision or a review band, which rows turn into a threshold."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import bdtrc

from crcen._support.values import attributes
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_whole_number
from crcen.theory.metrics import ThresholdCurve, row_draws
from crcen.theory.price import Goal, positive_number
from crcen.theory.rows import Array, Bools, Index, ShownInOneLine, alarms_above, divided
from crcen.theory.selective import row_hash

Totals = tuple[Array, Array]

# Periods that a capacity may be for, in days.
PERIODS = {"day": 1, "week": 7}
# Sequences of tests of a guaranteed precision, if there are this many rows for each.
_STARTS, _ROWS_PER_START = 4, 150
# Decisions of a review, by number.
ANSWERS = ("no alarm", "review", "alarm")


def price_of_threshold(threshold: float) -> float:
    """The cost ratio whose decisions have this threshold; infinite at 0."""
    return (1.0 - threshold) / threshold if threshold > 0.0 else math.inf


def between(inside: float, outside: float) -> float:
    """A threshold between two neighbouring probabilities: halfway in log-odds if both have some."""
    if outside > 0.0 and inside < 1.0:
        odds = math.sqrt(inside / (1.0 - inside) * outside / (1.0 - outside))
        middle = odds / (1.0 + odds)
    else:
        middle = 0.5 * (inside + outside)
    return float(middle if outside <= middle < inside else outside)


class RowsByProbability:
    """Rows in order of falling probability, with their thresholds; guarantees count one row of each cluster."""

    def __init__(
        self, target: Bools | Array, p: Array, weights: Array | None = None, clusters: NDArray[np.generic] | None = None
    ) -> None:
        self.target, self.p, self.clusters = target, p, clusters
        self.weights = np.ones(len(p)) if weights is None else weights
        self.curve = ThresholdCurve(target, p)
        self.scores = self.curve.score
        self.totals = self.curve.totals(self.weights)  # catches and false alarms at every cut

    def independent(self, among: Bools) -> Bools:
        """These rows; one of each cluster if there are clusters."""
        if self.clusters is None:
            return among
        chosen = among.copy()
        chosen[among] = one_per_cluster(self.clusters[among])
        return chosen

    def threshold(self, cut: int) -> float:
        """A threshold between the last distinct probability with an alarm and the next."""
        return between(self.scores[cut], self.scores[cut + 1] if cut + 1 < len(self.scores) else 0.0)

    def alarms(self, threshold: float) -> Bools:
        """Rows with an alarm, in the order they were given."""
        return alarms_above(self.p, threshold)


class ThresholdGoal(Goal):
    """A goal that a threshold meets, and so a price."""

    use: ClassVar[str] = "give it as weighting= to a fit, to decide(p, …), or to choose_weighting with labelled rows"
    period: ClassVar[str | None] = None  # of rows that a capacity is for
    confidence: ClassVar[float | None] = None  # of a guarantee, which needs labelled rows that the model did not see
    misses: ClassVar[str] = ""  # how often new rows miss a goal without a confidence, as simulated

    def for_rows(self, n_rows: float, rate: float | None = None) -> "ThresholdGoal":
        """The goal for this many rows; ``rate`` is rows a day, which a capacity of a day or a week needs."""
        return self

    def over_days(self, days: Index) -> "ThresholdGoal":
        """The goal of a period as one of rows, by the days on which rows came in."""
        return self

    def cuts(self, totals: Totals) -> Index:
        """The cut that meets the goal at the smallest or largest price, for counts (…, cuts); −1 if none does."""
        raise NotImplementedError

    def threshold(self, rows: RowsByProbability) -> float:
        """The threshold that meets the goal on labelled rows; an error if none does."""
        cut = self._cut(rows)
        self._check_cut(cut, rows)
        if rows.scores[cut] <= 0.0:
            raise InvalidParameter(f"no finite price has {self}: it would need an alarm on rows whose probability is 0")
        return rows.threshold(cut)

    def _cut(self, rows: RowsByProbability) -> int:
        return int(self.cuts(rows.totals))

    def _check_cut(self, cut: int, rows: RowsByProbability) -> None:
        """Refuse a goal that no threshold meets, or every threshold."""

    def resampled_prices(self, rows: RowsByProbability, n_resamples: int, random_state: int) -> Array:
        """The price that each resample would give: 0 if none meets the goal, inf at probability 0."""
        prices = np.array([price_of_threshold(rows.threshold(cut)) for cut in range(len(rows.scores))])
        draws = row_draws(np.ones(len(rows.p), np.int64), n_resamples, np.random.default_rng(random_state))
        cuts = np.concatenate([self.cuts(rows.curve.totals(drawn * rows.weights)) for drawn in draws])
        return np.where(cuts < 0, 0.0, prices[cuts])

    def meet(self, p: Array, times: ArrayLike | None = None) -> "MetGoal":
        """Meet the goal on rows without labels, as their probabilities expect it; a period needs the rows' times."""
        rows = RowsByProbability(p, p)
        threshold = self.for_rows(float(p.size)).threshold(rows)
        alarms = rows.alarms(threshold)
        return MetGoal(self, alarms, float(p[alarms].sum()), float(p.sum()), (threshold, threshold))

    def decide(self, p: Array, times: ArrayLike | None = None) -> NDArray[np.generic]:
        """Alarms that meet the goal."""
        return self.meet(p, times).alarms


@dataclass(frozen=True)
class Capacity(ThresholdGoal):
    """A number of alarms: the riskiest rows that people have time for.

    Parameters
    ----------
    alarms : int
        At least 1.
    per : "day", "week", int or None, default=None
        The rows it is for: those of a day or a week, by a column of times; this many rows; or ``None``, all rows.

    Examples
    --------
    >>> from crcen import Capacity, decide
    >>> decide([0.1, 0.7, 0.2, 0.9], Capacity(2)).tolist()
    [False, True, False, True]
    """

    alarms: int
    per: str | int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "alarms", check_whole_number(self.alarms, "Capacity", 1))
        if isinstance(self.per, str) and self.per not in PERIODS:
            raise InvalidParameter(f"per of Capacity must be 'day', 'week', a number or None: got {self.per!r}")
        if not isinstance(self.per, str | None):
            object.__setattr__(self, "per", check_whole_number(self.per, "per of Capacity", 1))
            if self.per <= self.alarms:
                raise InvalidParameter(f"{self!r} allows an alarm on every row: per must be above {self.alarms}")

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

    def over_days(self, days: Index) -> "Capacity":
        """As a capacity of rows."""
        if self.period is None:
            return self
        rows = len(days) / float(np.ptp(days) + 1) * PERIODS[self.period]
        if self.alarms >= round(rows):
            raise InvalidParameter(f"{self} allows an alarm on every row: there are {rows:.3g} rows a {self.period}.")
        return replace(self, per=round(rows))

    def meet(self, p: Array, times: ArrayLike | None = None) -> "MetGoal":
        """The riskiest rows of each period; equal ones by their order."""
        periods, n_allowed = np.zeros(p.size, dtype=np.int64), self.alarms
        if self.period is not None:
            periods = _periods(times, self.period, p.size)
        elif self.per is not None:
            n_allowed = min(p.size, round(self.alarms * p.size / int(self.per)))
        order = np.lexsort((np.arange(p.size), -p, periods))
        starts = np.flatnonzero(np.diff(periods[order], prepend=periods.min() - 1))
        alarms, thresholds, tied, taken = np.zeros(p.size, dtype=np.bool_), [], 0, 0
        for own in np.split(order, starts[1:]):
            alarms[own[:n_allowed]] = True
            falling = p[own]
            if not 0 < n_allowed < falling.size:
                thresholds.append(0.0 if n_allowed else float(falling[-1]))
                continue
            inside, outside = float(falling[n_allowed - 1]), float(falling[n_allowed])
            thresholds.append(outside if inside == outside else between(inside, outside))
            if inside == outside:
                equal = falling == inside
                tied, taken = tied + int(equal.sum()), taken + int(equal[:n_allowed].sum())
        # A period with fewer rows than its capacity implies no price if others do.
        bounded = [one for one in thresholds if one > 0.0] or thresholds
        expected, ends = (float(p[alarms].sum()), float(p.sum())), (min(bounded), max(bounded))
        return MetGoal(self, alarms, *expected, ends, len(starts), (tied, taken))


@dataclass(frozen=True)
class _AlarmShare(ThresholdGoal):
    """At most this share of rows with an alarm: a capacity for given rows."""

    share: float
    text: str

    def __str__(self) -> str:
        return self.text

    def cuts(self, totals: Totals) -> Index:
        tp, fp = totals
        return _last(divided(tp + fp, tp[..., -1:] + fp[..., -1:]) <= self.share * (1.0 + 1e-12))

    def _check_cut(self, cut: int, rows: RowsByProbability) -> None:
        if cut < 0:
            alarms = rows.totals[0] + rows.totals[1]
            share, most = 100 * alarms[0] / alarms[-1], rows.scores[0]
            found = f"{share:.3g} % of the rows share the largest probability, {most:.4g}"
            raise InvalidParameter(f"no threshold has {self}: {found}")


@dataclass(frozen=True, repr=False)
class _ShareGoal(ThresholdGoal):
    """A goal for a share, which a confidence turns into a guarantee on new rows."""

    share: float
    confidence: float | None = None  # type: ignore[misc]
    quantity: ClassVar[str] = ""

    def __post_init__(self) -> None:
        name = type(self).__name__
        object.__setattr__(self, "share", _share(self.share, name, includes_one=self.quantity == "recall"))
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
        return f"{self.quantity} of at least {self.share:g}{sure}"

    def _cut(self, rows: RowsByProbability) -> int:
        if self.confidence is None:
            return super()._cut(rows)
        if (rows.weights != 1.0).any():
            raise InvalidParameter("a guarantee counts rows, so it cannot be had with row weights: leave them out")
        return self._guaranteed(rows, self.confidence)

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        """The cut whose share on new rows is guaranteed."""
        raise NotImplementedError

    def meet(self, p: Array, times: ArrayLike | None = None) -> "MetGoal":
        """As for any goal; a guarantee needs labels."""
        if self.confidence is not None:
            price = f"decide at the price of choose_weighting(model, {self!r}, X, y) on rows held out from the model"
            raise InvalidParameter(f"{self!r} is a guarantee, which only labelled rows can give: {price}")
        return super().meet(p, times)


@dataclass(frozen=True, repr=False)
class RecallAtLeast(_ShareGoal):
    """At least this share of the positives found.

    Parameters
    ----------
    share : float
        Above 0, at most 1.
    confidence : float, optional
        Probability with which new rows have the recall, by a threshold chosen on rows held out from a fitted model.
        0.9 at 0.95 needs 29 positive rows.
    """

    quantity: ClassVar[str] = "recall"
    misses: ClassVar[str] = "new rows miss this recall in 50 to 55 % of cases (simulated); a confidence guarantees it"

    def cuts(self, totals: Totals) -> Index:
        """The first cut with the recall."""
        tp = totals[0]
        met = tp >= self.share * tp[..., -1:] * (1.0 - 1e-12)
        return np.asarray(np.where(met.any(axis=-1), np.argmax(met, axis=-1), -1))

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        positive = np.sort(rows.p[rows.independent(np.asarray(rows.target, dtype=np.bool_))])
        # Positives that may lie below the threshold: k − 1 with P(Bin ≥ k) ≥ confidence, which falls in k.
        chances = bdtrc(np.arange(len(positive)), len(positive), 1.0 - self.share)
        lost = int(np.count_nonzero(chances >= confidence)) - 1
        if lost < 0:
            needed = f"{fewest_rows(self.share, confidence)} positive {'rows' if rows.clusters is None else 'clusters'}"
            raise InvalidParameter(f"{self} needs at least {needed} that were held out, got {len(positive)}")
        return int(np.searchsorted(-rows.scores, -positive[lost], side="left"))


@dataclass(frozen=True, repr=False)
class PrecisionAtLeast(_ShareGoal):
    """At least this share of the alarms right.

    Parameters
    ----------
    share : float
        Strictly between 0 and 1.
    confidence : float, optional
        Probability with which new rows have the precision, by exact tests of a fixed sequence of thresholds on rows
        held out from a fitted model. Without it new rows miss the precision in more than half of the cases.
    """

    quantity: ClassVar[str] = "precision"
    misses: ClassVar[str] = (
        "new rows miss this precision in 50 to 65 % of cases (simulated); a confidence guarantees it"
    )

    def cuts(self, totals: Totals) -> Index:
        """The last cut with the precision."""
        return _last(divided(totals[0], totals[0] + totals[1]) >= self.share)

    def _guaranteed(self, rows: RowsByProbability, confidence: float) -> int:
        own = rows.independent(np.ones(len(rows.p), dtype=np.bool_))
        target, p = np.asarray(rows.target, dtype=np.bool_)[own], rows.p[own]
        n_alarms = precision_cut(target, p, self.share, confidence)
        if not n_alarms:
            needed = f"{fewest_rows(self.share, confidence)} right alarms or more at the top of {len(p):,} rows"
            raise InvalidParameter(f"these rows do not show {self}, which takes {needed}: ask for less")
        return int(np.searchsorted(-rows.scores, -np.sort(p)[::-1][n_alarms - 1], side="left"))

    def _check_cut(self, cut: int, rows: RowsByProbability) -> None:
        tp, fp = rows.totals
        if cut < 0:
            best = np.nanmax(divided(tp, tp + fp))
            raise InvalidParameter(f"no threshold has {self}: the best on these rows is {best:.4g}")
        if cut == len(rows.scores) - 1:
            found = f"{100 * tp[-1] / (tp[-1] + fp[-1]):.3g} % of all rows are positive"
            raise InvalidParameter(f"every price has {self}, since {found}: ask for more")


@dataclass(frozen=True)
class Review(Goal):
    """A third answer between two prices: a person reviews rows on which the prices disagree.

    A row gets an alarm if even the low price pays for it, none if not even the high one does, and a review otherwise.
    If the cost of a review is known, `CostMatrix.with_review` states the cheapest rule.

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
            raise InvalidParameter(f"low of Review must be below high: got {self.low:g} and {self.high:g}")

    @classmethod
    def of(cls, given: "Review | Iterable[float] | None") -> "Review | None":
        """A review from two prices; None stays None."""
        if given is None or isinstance(given, Review):
            return given
        if not isinstance(given, Iterable) or len(prices := tuple(given)) != 2:
            raise InvalidParameter(f"review must be two prices, such as (2, 30): got {given!r}.", parameter="review")
        return cls(*prices)

    @classmethod
    def at_cost(cls, *args: object, **named: object) -> "Review":
        """Removed: see `CostMatrix.with_review`."""
        raise InvalidParameter("Review.at_cost was removed: use CostMatrix.binary(fn=miss).with_review(cost).")

    @property
    def thresholds(self) -> tuple[float, float]:
        """Probabilities above which a row goes to review, and above which it gets an alarm."""
        return 1.0 / (1.0 + self.high), 1.0 / (1.0 + self.low)

    def __str__(self) -> str:
        return f"review between the prices {self.low:g} and {self.high:g}"

    def decide(self, p: Array, times: ArrayLike | None = None) -> NDArray[np.generic]:
        """The answer for every row: "alarm", "review" or "no alarm"."""
        return np.array(ANSWERS)[self.meet(p).answers]

    def meet(self, p: Array, price: float | None = None) -> "ReviewedRows":
        """Send rows between the two prices to review; a miss without one is worth ``price``, else their mean."""
        answers = np.sum([alarms_above(p, one) for one in self.thresholds], axis=0)
        middle, c = p[answers == 1], math.sqrt(self.low * self.high) if price is None else price
        saved = float(np.minimum(1.0 - middle, c * middle).sum())
        return ReviewedRows(self, answers, np.bincount(answers, p, len(ANSWERS)).astype(np.float64), c, saved)


@dataclass(frozen=True, eq=False, repr=False)
class MetGoal(ShownInOneLine):
    """A goal met on rows, as their probabilities expect it; prints itself."""

    goal: ThresholdGoal
    alarms: Bools  # the decisions
    expected_catches: float  # sum of the alarms' probabilities
    expected_positives: float  # sum of all probabilities
    thresholds: tuple[float, float]  # probability above which rows got an alarm: smallest and largest over periods
    n_periods: int = 1  # days or weeks
    ties: tuple[int, int] = (0, 0)  # rows that share the probability at the border, and those with an alarm, by order

    @property
    def n_alarms(self) -> int:
        """Rows with an alarm."""
        return int(self.alarms.sum())

    @property
    def price(self) -> tuple[float, float]:
        """The implied price, in false alarms for the last catch: smallest and largest over periods."""
        return price_of_threshold(self.thresholds[1]), price_of_threshold(self.thresholds[0])

    @property
    def recall(self) -> float:
        """Expected share of the positives that gets an alarm; NaN if none is expected."""
        return self.expected_catches / self.expected_positives if self.expected_positives > 0.0 else math.nan

    @property
    def precision(self) -> float:
        """Expected share of the alarms that are right; NaN without an alarm."""
        return self.expected_catches / self.n_alarms if self.n_alarms else math.nan

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        keys = "price threshold=thresholds expected_recall=recall expected_precision=precision periods=n_periods"
        ties = dict(zip(("rows", "alarms"), self.ties, strict=True))
        return {"goal": str(self.goal), **attributes(self, keys), "ties": ties}

    def __str__(self) -> str:
        over = f" over {self.n_periods:,} {self.goal.period}s" if self.n_periods > 1 else ""
        (low, high), (least, most) = self.price, self.thresholds
        several = ("", "") if math.isclose(low, high) else (f" to {high:.4g}", f" to {most:.4g}")
        implied = f"{low:.4g}{several[0]} false alarms for the last catch (probability above {least:.4g}{several[1]})"
        if math.isinf(low):
            implied = "none: there are no more rows than alarms, so every row got one"
        tied, taken = self.ties
        at_border = f"\n  {taken:,} of {tied:,} rows with equal probability at the border got an alarm, by their order"
        return (
            f"{self.goal}: {self.n_alarms:,} alarms on {self.alarms.size:,} rows{over}\n"
            f"  implied price     {implied}\n"
            f"  expected          {self.expected_catches:,.1f} of {self.expected_positives:,.1f} positives found "
            f"(recall {self.recall:.3g}), precision {self.precision:.3g}{at_border if tied else ''}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ReviewedRows(ShownInOneLine):
    """Rows in three: alarm, review, no alarm; and what the review saves, as probabilities expect it; prints itself."""

    review: Review
    answers: Index  # numbers into `ANSWERS`
    expected: Array  # positives among the rows of each answer
    price: float  # what a miss is worth with two answers, for the comparison
    saved: float  # false alarms that a perfect review saves against two answers, its own cost not counted

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
        """Cost of one review, in false alarms, at which it saves nothing; NaN without one."""
        n = int((self.answers == 1).sum())
        return self.saved / n if n else math.nan

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        return {
            **attributes(self, "low=review.low high=review.high rows=counts review_share=share"),
            "expected_positives": dict(zip(ANSWERS, self.expected.tolist(), strict=True)),
            **attributes(self, "price saved break_even"),
        }

    def __str__(self) -> str:
        counts, worth, (missed, reviewed, _) = self.counts, "", self.expected
        if not math.isnan(self.break_even):
            worth = (
                f"; against two answers at a price of {self.price:.4g} it saves the cost of {self.saved:,.4g} false "
                f"alarms, so a review pays while it costs less than {self.break_even:.3g} false alarms"
            )
        return (
            f"{str(self.review).capitalize()}: {counts['alarm']:,} alarms, {counts['review']:,} to review "
            f"({100 * self.share:.3g} % of the rows, {reviewed:,.1f} positives expected among them), "
            f"{counts['no alarm']:,} left alone ({missed:,.1f} positives expected){worth}"
        )


def _last(met: Bools) -> Index:
    """The last cut that meets a condition, −1 if none does."""
    last = met.shape[-1] - 1 - np.argmax(met[..., ::-1], axis=-1)
    return np.asarray(np.where(met.any(axis=-1), last, -1))


def _periods(times: ArrayLike | None, per: str, n_rows: int) -> Index:
    """The number of the day or week of each row; weeks begin on Mondays."""
    if times is None:
        raise InvalidParameter(f"a capacity for each {per} needs times, when each row came in")
    try:
        dates = np.asarray(times).astype("datetime64[s]").astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"times must be dates, such as datetime64 values: {error}") from error
    if dates.shape != (n_rows,) or np.isnat(dates).any():
        got = f"got shape {dates.shape}, and {np.isnat(dates).sum()} are missing"
        raise InvalidInput(f"times must have one known value for each of {n_rows} rows: {got}")
    days = dates.astype(np.int64)
    return days if PERIODS[per] == 1 else np.asarray((days + 3) // 7)  # 1970 began on a Thursday


def _share(value: object, name: str, *, includes_one: bool) -> float:
    share = positive_number(value, name)
    if share > 1.0 or (share == 1.0 and not includes_one):
        most = "at most 1" if includes_one else "below 1"
        meant = f": did you mean {share / 100:g}?" if 1.0 < share < 100.0 else ""
        raise InvalidParameter(f"{name} must be a share above 0 and {most}, got {share:g}{meant}")
    return share


def precision_cut(target: Bools, scores: Array, share: float, confidence: float) -> int:
    """Number of rows, in order of falling score, whose precision is at least `share`; 0 if none is guaranteed.

    Exact tests at a fixed sequence of numbers of alarms, each 10 % larger, up to the first that does not reject. With
    many rows there are four sequences: one wrong row at the top then does not end everything.
    """
    order = np.argsort(-scores, kind="stable")
    hits, falling, n = np.cumsum(target[order]), scores[order], len(scores)
    last = np.append(np.flatnonzero(np.diff(falling)), n - 1)  # cuts between different scores
    n_starts = _STARTS if n >= _ROWS_PER_START * fewest_rows(share, confidence) else 1
    level, best = (1.0 - confidence) / n_starts, 0
    for doublings in range(n_starts):
        m = fewest_rows(share, 1.0 - level) * 2**doublings
        while m <= n:
            place = int(last[np.searchsorted(last, m - 1)])  # the next cut at or after m rows
            if bdtrc(float(hits[place]) - 1.0, place + 1, share) > level:
                break
            best = max(best, place + 1)
            m = max(place + 2, math.ceil(1.1 * (place + 1)))
    return best


def fewest_rows(share: float, confidence: float) -> int:
    """The smallest number of rows, all of them right, that guarantees a share: share^n ≤ 1 − confidence."""
    return max(1, math.ceil(math.log1p(-confidence) / math.log(share) - 1e-12))


def one_per_cluster(clusters: NDArray[np.generic], seed: int = 0) -> Bools:
    """One row of each cluster, drawn at random by the seed: rows that are independent again."""
    order = np.argsort(row_hash(np.arange(len(clusters), dtype=np.uint64), seed))
    chosen = np.zeros(len(order), dtype=np.bool_)
    chosen[order[np.unique(clusters[order], return_index=True)[1]]] = True
    return chosen
