"""Where a threshold has to stand for a wish: the places it can stand at, and the choice among them."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.bootstrap import row_draws
from crcen.theory.price import positive_number
from crcen.theory.threshold_curve import ThresholdCurve
from crcen.theory.wishes import PERIODS, Capacity, PrecisionAtLeast, RecallAtLeast, Wish

__all__ = ["Goal", "MovedThreshold", "fewest_positives", "goal_of", "price_of_threshold"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Goal:
    """A wish for given rows: a share to reach, or not to exceed.

    Parameters
    ----------
    kind : {"recall", "precision", "alarms"}
        Of what.
    share : float
        Of the positives found, the alarms that are right, the rows with an alarm.
    text : str
        The wish in words.
    confidence : float or None
        Of a recall that is guaranteed.
    """

    kind: str
    share: float
    text: str
    confidence: float | None = None


def goal_of(wish: Wish, n_rows: float, rate: float | None = None) -> Goal:
    """A wish as a share.

    Parameters
    ----------
    wish : Capacity, RecallAtLeast or PrecisionAtLeast
        What is wanted.
    n_rows : float
        Rows at hand, or their weight.
    rate : float, optional
        Rows a day, which a capacity for a day or a week needs.
    """
    if isinstance(wish, RecallAtLeast):
        return Goal("recall", wish.share, str(wish), wish.confidence)
    if isinstance(wish, PrecisionAtLeast):
        return Goal("precision", wish.share, str(wish))
    if not isinstance(wish, Capacity):
        raise InvalidParameter(
            f"a wish must be Capacity(200), RecallAtLeast(0.9) or PrecisionAtLeast(0.5), got a {type(wish).__name__}"
        )
    if isinstance(wish.per, str):
        if rate is None:
            raise InvalidParameter(
                f"Capacity({wish.alarms}, per={wish.per!r}) needs the number of rows a day, rate, to become a price"
            )
        n_rows = positive_number(rate, "rate") * PERIODS[wish.per]
        of = f" of {n_rows:g} rows"
    else:
        n_rows, of = float(n_rows if wish.per is None else wish.per), ""
    if wish.alarms >= n_rows:
        raise InvalidParameter(
            f"{wish} of {n_rows:g} rows allow an alarm on every row, at any price: give a smaller number, or state a "
            "price"
        )
    return Goal("alarms", wish.alarms / n_rows, f"{wish}{of}")


def price_of_threshold(threshold: float) -> float:
    """The cost ratio whose decisions have this threshold."""
    return (1.0 - threshold) / threshold


def fewest_positives(share: float, confidence: float) -> int:
    """Positive rows below which this recall cannot be guaranteed: the smallest n with share^n ≤ 1 − confidence."""
    return max(1, math.ceil(math.log1p(-confidence) / math.log(share) - 1e-12))


def n_lost_allowed(n_pos: int, share: float, confidence: float) -> int:
    """How many of n held-out positives may lie below a threshold whose recall is then guaranteed; −1 if n is too small.

    The recall at the k-th smallest of n scores exceeds ``share`` with probability P(Bin(n, 1 − share) ≥ k), exactly for
    continuous scores and at least that with ties. The largest k where that is ``confidence`` or more loses k − 1 rows.
    """
    log_term, below = n_pos * math.log(share), 0.0  # of Bin(n, 1 − share) = 0
    log_odds = math.log1p(-share) - math.log(share)
    for k in range(n_pos + 1):
        below += math.exp(log_term)  # P(Bin ≤ k)
        if 1.0 - below < confidence:
            return k - 1
        log_term += math.log((n_pos - k) / (k + 1.0)) + log_odds if k < n_pos else 0.0
    return n_pos - 1


class MovedThreshold:
    """Rows in order of falling probability, and where a threshold between them meets a goal.

    Parameters
    ----------
    target : bool array of shape (n,), or float64 array
        Where rows are positive; probabilities in place of labels count what is expected.
    p : float64 array of shape (n,)
        Natural posteriors.
    weights : float64 array of shape (n,)
        What each row counts.
    """

    def __init__(self, target: NDArray[np.bool_] | Array, p: Array, weights: Array) -> None:
        self._curve, self._weights = ThresholdCurve(target, p), weights
        self._target, self._scores = target, p
        self._p = self._curve.score
        self.totals = self._curve.totals

    def meet(self, goal: Goal) -> float:
        """The threshold that meets a goal on these rows at the smallest or largest price; refused where none does."""
        if goal.confidence is not None:
            return self._guaranteed(goal, goal.confidence)
        totals = self.totals(self._weights[None])
        cut = int(self.cuts(goal, totals)[0])
        self._refuse(cut, goal, totals)
        return self.threshold(cut)

    @staticmethod
    def cuts(goal: Goal, totals: tuple[Array, Array]) -> NDArray[np.int64]:
        """The cut that meets the goal in each draw, −1 where none does."""
        tp, fp = totals
        with np.errstate(invalid="ignore"):
            if goal.kind == "recall":
                met = tp >= goal.share * tp[:, -1:] * (1.0 - 1e-12)
                return np.where(met.any(axis=1), np.argmax(met, axis=1), -1)
            value = tp / (tp + fp) if goal.kind == "precision" else (tp + fp) / (tp[:, -1:] + fp[:, -1:])
            met = value >= goal.share if goal.kind == "precision" else value <= goal.share * (1.0 + 1e-12)
        last = met.shape[1] - 1 - np.argmax(met[:, ::-1], axis=1)
        return np.where(met.any(axis=1), last, -1)

    def threshold(self, cut: int) -> float:
        """A threshold between the last row with an alarm and the next, halfway in log-odds where both have some."""
        inside = self._p[cut]
        outside = self._p[cut + 1] if cut + 1 < len(self._p) else 0.0
        if outside > 0.0 and inside < 1.0:
            odds = math.sqrt(inside / (1.0 - inside) * outside / (1.0 - outside))
            between = odds / (1.0 + odds)
        else:
            between = 0.5 * (inside + outside)
        return float(between if outside <= between < inside else outside)

    def _guaranteed(self, goal: Goal, confidence: float) -> float:
        if (self._weights != 1.0).any():
            raise InvalidParameter("a guarantee counts rows, so it cannot be had with row weights: leave them out")
        positive = np.sort(self._scores[np.asarray(self._target, dtype=np.bool_)])
        lost = n_lost_allowed(len(positive), goal.share, confidence)
        if lost < 0:
            raise InvalidParameter(
                f"{goal.text} needs at least {fewest_positives(goal.share, confidence)} positive rows that were held "
                f"out, got {len(positive)}: give more rows, or ask for less"
            )
        cut = int(np.searchsorted(-self._p, -positive[lost], side="left"))
        if self._p[cut] <= 0.0:
            raise InvalidParameter(f"no finite price has {goal.text}: it would need an alarm on rows of probability 0")
        return self.threshold(cut)

    def _refuse(self, cut: int, goal: Goal, totals: tuple[Array, Array]) -> None:
        """Say why a target has no price."""
        tp, fp = totals[0][0], totals[1][0]
        if cut < 0 and goal.kind == "precision":
            with np.errstate(invalid="ignore"):
                best = np.nanmax(tp / (tp + fp))
            raise InvalidParameter(f"no threshold has {goal.text}: the best on these rows is {best:.4g}")
        if cut < 0:
            share = (tp[0] + fp[0]) / (tp[-1] + fp[-1])
            raise InvalidParameter(
                f"no threshold has {goal.text}: {100 * share:.3g} % of the rows share the largest probability, "
                f"{self._p[0]:.4g}, so even the highest threshold raises more alarms"
            )
        if goal.kind == "precision" and cut == len(self._p) - 1:
            raise InvalidParameter(
                f"every price has {goal.text}, since {100 * tp[-1] / (tp[-1] + fp[-1]):.3g} % of all rows are positive"
                ": ask for more, or state a price"
            )
        if self._p[cut] <= 0.0:
            raise InvalidParameter(
                f"no finite price has {goal.text}: it would need an alarm on rows whose probability is 0"
            )

    def resampled_prices(self, goal: Goal, n_resamples: int, random_state: int) -> Array:
        """The price that would be chosen in each resample: 0 where none meets the goal, inf at probability 0."""
        places = map(self.threshold, range(len(self._p)))
        prices = np.array([price_of_threshold(t) if t > 0.0 else math.inf for t in places])
        ones = np.ones(len(self._weights), dtype=np.int64)
        cuts = np.concatenate(
            [
                self.cuts(goal, self.totals(drawn * self._weights))
                for drawn in row_draws(ones, n_resamples, np.random.default_rng(random_state))
            ]
        )
        return np.where(cuts < 0, 0.0, prices[cuts])
