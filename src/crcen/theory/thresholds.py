"""Rows in order of their probability: the cuts and thresholds that meet an operating goal, and what comes of them."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.lazy import pd, special
from crcen._support.text import attributes, count_text, plural
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.metrics import ThresholdCurve, row_draws
from crcen.theory.rows import Array, Bools, Index, ShownInOneLine, alarms_above, divided, four_digits, share_text
from crcen.theory.selective import row_hash

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


class Totals(NamedTuple):
    """Catches and false alarms at every cut, (…, cuts)."""

    tp: Array
    fp: Array

    @property
    def alarm_share(self) -> Array:
        """Share of rows with an alarm."""
        return divided(self.tp + self.fp, self.tp[..., -1:] + self.fp[..., -1:])

    @property
    def precision(self) -> Array:
        """Share of alarms that are right."""
        return divided(self.tp, self.tp + self.fp)

    def first(self, met: Bools) -> Index:
        """The first cut that meets a condition, −1 if none does."""
        return np.asarray(np.where(met.any(axis=-1), np.argmax(met, axis=-1), -1))

    def last(self, met: Bools) -> Index:
        """The last cut that meets a condition, −1 if none does."""
        last = met.shape[-1] - 1 - np.argmax(met[..., ::-1], axis=-1)
        return np.asarray(np.where(met.any(axis=-1), last, -1))


class RowsByProbability:
    """Rows in order of falling probability, with their thresholds; guarantees count one row of each cluster."""

    def __init__(
        self, target: Bools | Array, p: Array, weights: Array | None = None, clusters: NDArray[np.generic] | None = None
    ) -> None:
        self.target, self.p, self.clusters = target, p, clusters
        self.weights = np.ones(len(p)) if weights is None else weights
        self.curve = ThresholdCurve(target, p)
        self.scores = self.curve.score
        self.totals = Totals(*self.curve.totals(self.weights))

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

    def resampled_prices(self, cuts: Callable[[Totals], Index], n_resamples: int, random_state: int) -> Array:
        """The price of the cut that each resample would give: 0 if none meets the goal, inf at probability 0."""
        prices = np.array([price_of_threshold(self.threshold(cut)) for cut in range(len(self.scores))])
        draws = row_draws(np.ones(len(self.p), np.int64), n_resamples, np.random.default_rng(random_state))
        found = np.concatenate([cuts(Totals(*self.curve.totals(drawn * self.weights))) for drawn in draws])
        return np.where(found < 0, 0.0, prices[found])

    def guaranteed_recall(self, share: float, confidence: float) -> tuple[int, int, int]:
        """The cut whose recall on new rows is guaranteed, −1 if none is; independent positives, and the fewest."""
        positive = np.sort(self.p[self.independent(np.asarray(self.target, dtype=np.bool_))])
        # Positives that may lie below the threshold: k − 1 with P(Bin ≥ k) ≥ confidence, which falls in k.
        chances = special.bdtrc(np.arange(len(positive)), len(positive), 1.0 - share)
        lost = int(np.count_nonzero(chances >= confidence)) - 1
        cut = -1 if lost < 0 else int(np.searchsorted(-self.scores, -positive[lost], side="left"))
        return cut, len(positive), fewest_rows(share, confidence)

    def guaranteed_precision(self, share: float, confidence: float) -> tuple[int, int, int]:
        """The cut whose precision on new rows is guaranteed, −1 if none is; independent rows, and the fewest alarms."""
        own = self.independent(np.ones(len(self.p), dtype=np.bool_))
        target, p = np.asarray(self.target, dtype=np.bool_)[own], self.p[own]
        n_alarms = precision_cut(target, p, share, confidence)
        last = np.sort(p)[::-1][n_alarms - 1]
        cut = int(np.searchsorted(-self.scores, -last, side="left")) if n_alarms else -1
        return cut, len(p), fewest_rows(share, confidence)


@dataclass(frozen=True, eq=False, repr=False)
class MetGoal(ShownInOneLine):
    """A goal met on rows, as their probabilities expect it; prints itself."""

    goal: object
    alarms: Bools  # the decisions
    expected_catches: float  # sum of the alarms' probabilities
    expected_positives: float  # sum of all probabilities
    thresholds: tuple[float, float]  # probability above which rows got an alarm: smallest and largest over periods
    n_periods: int = 1  # days or weeks
    period: str = ""
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
        over = f" over {self.n_periods:,} {self.period}s" if self.n_periods > 1 else ""
        (low, high), (least, most) = self.price, self.thresholds
        several = ("", "") if math.isclose(low, high) else (f" to {high:.4g}", f" to {share_text(most, 4)}")
        above = f"(probability above {share_text(least, 4)}{several[1]})"
        implied, right = f"{low:.4g}{several[0]} false alarms for the last catch {above}", f"{self.precision:.3g}"
        if math.isinf(low):
            implied = "none: there are no more rows than alarms, so every row is an alarm"
        elif not self.n_alarms:
            implied, right = "none: the goal allows no alarm on so few rows", "unknown"
        tied, taken = self.ties
        at_border = f"\n  {taken:,} of {tied:,} rows with equal probability at the limit became alarms, in their order"
        return (
            f"{self.goal}: {plural(self.n_alarms, 'alarm')} on {plural(self.alarms.size, 'row')}{over}\n"
            f"  implied price     {implied}\n"
            f"  expected          {self.expected_catches:,.1f} of {self.expected_positives:,.1f} positives found "
            f"(recall {self.recall:.3g}), precision {right}{at_border if tied else ''}"
        )


def riskiest_rows(
    goal: object, p: Array, n_allowed: int, period: str | None = None, times: ArrayLike | None = None
) -> MetGoal:
    """An alarm on so many rows, of each day or week if one is named, with the largest p; equal ones by their order."""
    periods = np.zeros(p.size, dtype=np.int64) if period is None else _periods(times, period, p.size)
    order = np.lexsort((np.arange(p.size), -p, periods))
    starts = np.flatnonzero(np.diff(periods[order], prepend=periods.min() - 1))
    alarms, thresholds, tied, taken = np.zeros(p.size, dtype=np.bool_), [], 0, 0
    for own in np.split(order, starts[1:]):
        alarms[own[:n_allowed]] = True
        falling = p[own]
        if not 0 < n_allowed < falling.size:
            thresholds.append(0.0 if n_allowed else float(falling[0]))
            continue
        inside, outside = float(falling[n_allowed - 1]), float(falling[n_allowed])
        thresholds.append(outside if inside == outside else between(inside, outside))
        if inside == outside:
            equal = falling == inside
            tied, taken = tied + int(equal.sum()), taken + int(equal[:n_allowed].sum())
    # A period with fewer rows than its capacity implies no price if others do.
    bounded = [one for one in thresholds if one > 0.0] or thresholds
    expected, ends = (float(p[alarms].sum()), float(p.sum())), (min(bounded), max(bounded))
    return MetGoal(goal, alarms, *expected, ends, len(starts), period or "", (tied, taken))


@dataclass(frozen=True, eq=False, repr=False)
class ReviewedRows(ShownInOneLine):
    """Rows in three: alarm, review, no alarm; and what the review saves, by labels or as probabilities expect it."""

    review: object
    answers: Index  # numbers into `ANSWERS`
    rows: Array  # weight of the rows with each decision
    positives: Array  # of them, as the probabilities expect it if there are no labels
    price: float  # price of decisions without review, for the comparison
    saved: float  # false alarms that a perfect review saves compared with no review, without its own cost
    is_labelled: bool

    @property
    def counts(self) -> dict[str, float]:
        """Number of rows by decision."""
        return {name: n if self.is_labelled else int(n) for name, n in zip(ANSWERS, self.rows.tolist(), strict=True)}

    @property
    def share(self) -> float:
        """Share of rows that go to review."""
        return float(self.rows[1] / self.rows.sum())

    @property
    def break_even(self) -> float:
        """Cost of one review, in false alarms, at which it saves nothing; NaN without one."""
        return float(self.saved / self.rows[1]) if self.rows[1] else math.nan

    @property
    def names(self) -> NDArray[np.str_]:
        """The decision for every row: "alarm", "review" or "no alarm"."""
        return np.array(ANSWERS)[self.answers]

    def to_dict(self) -> dict[str, object]:
        """Plain values."""
        found = attributes(
            self, "low=review.low high=review.high rows=counts review_share=share price saved break_even"
        )
        key = "positives" if self.is_labelled else "expected_positives"
        return {**found, key: dict(zip(ANSWERS, self.positives.tolist(), strict=True))}

    def __str__(self) -> str:
        counts, (missed, reviewed, right), known = self.counts, self.positives, not math.isnan(self.break_even)
        head, share = f"{str(self.review).capitalize()}:", f"to review ({100 * self.share:.3g} % of the rows,"
        saved, pays = f"it saves the cost of {four_digits(self.saved)} false alarms", "a review pays if it costs less"
        against = f"compared with decisions without review at a price of {self.price:.4g}"
        if self.is_labelled:
            worth = f"; {saved} {against}" + (f"; {pays} than {self.break_even:.3g}" if known else "")
            alarms = f"{plural(counts['alarm'], 'alarm')} ({count_text(right)} right)"
            found = f"{alarms}, {count_text(counts['review'])} {share} {plural(float(reviewed), 'positive')})"
            return f"{head} {found}, {count_text(missed)} missed{worth}"
        worth = f"; {against} {saved}, so {pays} than {self.break_even:.3g} false alarms" if known else ""
        among = f"{reviewed:,.1f} positives expected among them"
        found = f"{counts['alarm']:,} alarms, {counts['review']:,} {share} {among})"
        return f"{head} {found}, {counts['no alarm']:,} without an alarm ({missed:,.1f} positives expected){worth}"


def reviewed_rows(
    review: object,
    p: Array,
    prices: tuple[float, float],
    price: float | None = None,
    positive: Bools | None = None,
    weights: Array | None = None,
) -> ReviewedRows:
    """Send rows between two prices to review; a miss without one is worth ``price``, else their geometric mean."""
    answers = np.sum([alarms_above(p, 1.0 / (1.0 + one)) for one in prices], axis=0)
    c, w = math.sqrt(math.prod(prices)) if price is None else price, np.ones(len(p)) if weights is None else weights
    truth = p if positive is None else positive.astype(np.float64)
    two = np.where(alarms_above(p, 1.0 / (1.0 + c)), 1.0 - truth, c * truth)
    three = np.choose(answers, [c * truth, np.zeros(len(p)), 1.0 - truth])
    rows, found = (np.bincount(answers, one, len(ANSWERS)).astype(np.float64) for one in (w, w * truth))
    return ReviewedRows(review, answers, rows, found, c, float(w @ (two - three)), positive is not None)


def _periods(times: ArrayLike | None, per: str, n_rows: int) -> Index:
    """The number of the day or week of each row; weeks begin on Mondays."""
    if times is None:
        raise InvalidParameter(f"a capacity for each {per} needs times, when each row came in")
    try:
        own = times.to_pandas() if hasattr(times, "to_pandas") else pd.Series(times)
        if getattr(getattr(own.dtype, "pyarrow_dtype", own.dtype), "tz", None) is not None:
            own = own.dt.tz_localize(None)  # the days of its time zone
        dates = np.asarray(own).astype("datetime64[s]").astype("datetime64[D]")
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"times must be dates, such as datetime64 values: {error}") from error
    if dates.shape != (n_rows,) or np.isnat(dates).any():
        got = f"got shape {dates.shape}, and {np.isnat(dates).sum()} are missing"
        raise InvalidInput(f"times must have one known value for each of {n_rows} rows: {got}")
    days = dates.astype(np.int64)
    return days if per == "day" else np.asarray((days + 3) // 7)  # 1970 began on a Thursday


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
            if special.bdtrc(float(hits[place]) - 1.0, place + 1, share) > level:
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
