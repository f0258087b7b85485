"""From a target to a price: which weighting reaches a recall, a precision or a number of alarms."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.decisions.curve_step import CurveRows
from crcen.decisions.expense_curve import ExpenseCurve
from crcen.decisions.out_of_fold import has_held_out_rows, out_of_fold_posterior
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.bootstrap import percentile_interval, row_draws
from crcen.theory.labels import Labels
from crcen.theory.metrics import ConfusionCounts, confusion_counts, wilson_interval
from crcen.theory.rows import check_probabilities, check_row_weights, class_totals
from crcen.theory.specs import CostRatio, positive_number
from crcen.theory.threshold_curve import ThresholdCurve

__all__ = ["ChosenWeighting", "choose_weighting"]

Array = NDArray[np.float64]
Interval = tuple[float, float]


@dataclass(frozen=True)
class ChosenWeighting:
    """The price that meets a target, with what to expect of it.

    Parameters
    ----------
    weighting : CostRatio
        To train at, or to give to `crcen.decide` with the natural posterior.
    target : str
        What was asked for.
    threshold : float
        The natural posterior above which a row gets an alarm.
    counts : ConfusionCounts
        On the rows given.
    recall, precision, alarm_rate : float
        On the rows given; the last is the share of rows with an alarm.
    recall_interval, precision_interval, alarm_rate_interval : tuple of float
        Wilson's intervals at this threshold.
    price_interval : tuple of float
        Bootstrap interval: where the same target would put the cost ratio on other rows like these. A resample that
        cannot meet it counts as 0, no alarm at all, and one that needs an alarm on probability 0 as inf.
    level : float
        Level of the intervals.
    rate : float or None
        Rows a day.
    """

    weighting: CostRatio
    target: str
    threshold: float
    counts: ConfusionCounts
    recall: float
    precision: float
    alarm_rate: float
    recall_interval: Interval
    precision_interval: Interval
    alarm_rate_interval: Interval
    price_interval: Interval
    level: float
    rate: float | None = None

    @property
    def average_price(self) -> float:
        """False alarms per catch on the rows given; the price of the last catch is ``weighting``."""
        return float(self.counts.fp / self.counts.tp) if self.counts.tp else math.nan

    def __str__(self) -> str:
        def line(name: str, value: float, interval: Interval) -> str:
            return f"  {name:<22}{value:>9.4g}   [{interval[0]:.4g}, {interval[1]:.4g}]"

        lines = [
            f"{self.target}: CostRatio({self.weighting.value:.4g}), an alarm where p > {self.threshold:.4g}",
            line("recall", self.recall, self.recall_interval),
            line("precision", self.precision, self.precision_interval),
            line("share of rows alarmed", self.alarm_rate, self.alarm_rate_interval),
        ]
        if self.rate is not None:
            low, high = self.alarm_rate_interval
            lines.append(line("alarms a day", self.rate * self.alarm_rate, (self.rate * low, self.rate * high)))
        lines += [
            line("price of last catch", self.weighting.value, self.price_interval),
            f"  {'price of average catch':<22}{self.average_price:>9.4g}",
            f"  in brackets: {100 * self.level:g} % intervals; those of the last catch are of the choice itself",
        ]
        return "\n".join(lines)


def choose_weighting(
    source: Any,
    X: Any = None,
    y: Any = None,
    *,
    target_recall: float | None = None,
    min_precision: float | None = None,
    max_alarms_per_day: float | None = None,
    rate: float | None = None,
    sample_weight: Any = None,
    level: float = 0.95,
    n_resamples: int = 500,
    random_state: int = 0,
) -> ChosenWeighting:
    """Find the price that meets one target, by moving the threshold of a model on rows it did not see.

    Parameters
    ----------
    source : ExpenseCurve, CRCENClassifierCV, CommitteeClassifier, or any fitted classifier with ``predict_proba``
        A curve from predictions brings its rows. A search is judged on its out-of-fold rows and needs the ``y`` it was
        fitted on. Any other model needs ``X`` and ``y``: rows it did **not** see, at the natural class ratio.
    X, y : optional
        As the source needs them.
    target_recall : float in (0, 1]
        The smallest price with at least this recall.
    min_precision : float in (0, 1)
        The largest price with at least this precision.
    max_alarms_per_day : float
        The largest price with at most so many alarms, given ``rate`` rows a day.
    rate : float, optional
        Rows a day; with it alarms a day are told for every target.
    sample_weight : array of shape (n,), optional
        Of the rows that are judged.
    level, n_resamples, random_state
        Of the bootstrap.

    Returns
    -------
    ChosenWeighting
        A spec, expected counts with intervals; prints itself.

    Raises
    ------
    InvalidParameter
        If not exactly one target is given, or the target cannot be met on these rows, or every price meets it.

    Notes
    -----
    The threshold is chosen and judged on the same rows, so that the target is met exactly there and about as often
    missed as met on new ones: read the interval, and ask for more than is needed where a miss is dear. A precision and
    a number of alarms belong to the class ratio of these rows; a price does not. State a price where there is one.
    """
    rows = _rows(source, X, y, sample_weight)
    curve = _MovedThreshold(rows)
    targets = {
        "recall": target_recall,
        "precision": min_precision,
        "alarms": max_alarms_per_day,
    }
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) != 1:
        raise InvalidParameter(
            "give exactly one of target_recall, min_precision and max_alarms_per_day: got "
            + (", ".join(given) if given else "none")
        )
    if rate is not None:
        rate = positive_number(rate, "rate")
    (kind, value), *_ = given.items()
    goal, text = _goal(kind, value, rate)
    draw = curve.totals(rows.weights[None])
    cut = int(curve.cuts(kind, goal, draw)[0])
    curve.refuse(cut, kind, goal, draw, text)
    threshold = curve.threshold(cut)
    alarms = rows.p > threshold
    counts = confusion_counts(rows.target, alarms, rows.weights)
    prices = percentile_interval(curve.resampled_prices(kind, goal, n_resamples, random_state), level)
    shares = {
        "recall": (rows.target, alarms),
        "precision": (alarms, rows.target),
        "alarm_rate": (np.ones_like(alarms), alarms),
    }
    intervals = {
        f"{name}_interval": _share_interval(hits[among], rows.weights[among], level)
        for name, (among, hits) in shares.items()
    }
    return ChosenWeighting(
        weighting=CostRatio((1.0 - threshold) / threshold),
        target=text,
        threshold=threshold,
        counts=counts,
        recall=float(counts.recall),
        precision=float(counts.precision),
        alarm_rate=float(rows.weights[alarms].sum() / rows.weights.sum()),
        price_interval=prices,
        level=level,
        rate=rate,
        **intervals,
    )


def _share_interval(hits: NDArray[np.bool_], weights: Array, level: float) -> Interval:
    """Wilson's interval of a share; unlike the bootstrap it is not empty where every row, or none, is a hit."""
    total = float(weights.sum())
    if total <= 0.0:
        return math.nan, math.nan
    size = total**2 / float(np.sum(weights**2))
    return wilson_interval(float(weights[hits].sum()) / total, size, NormalDist().inv_cdf(0.5 + 0.5 * level))


def _goal(kind: str, value: Any, rate: float | None) -> tuple[float, str]:
    """Check a target; alarms become a share of rows."""
    if kind == "alarms":
        alarms = positive_number(value, "max_alarms_per_day")
        if rate is None:
            raise InvalidParameter("max_alarms_per_day needs rate, the number of rows a day")
        if alarms >= rate:
            raise InvalidParameter(
                f"{alarms:g} alarms a day on {rate:g} rows a day allow an alarm on every row, at any price: give a "
                "smaller number, or state a price"
            )
        return alarms / rate, f"at most {alarms:g} alarms a day of {rate:g} rows"
    name = "target_recall" if kind == "recall" else "min_precision"
    share = positive_number(value, name)
    if share > 1.0 or (kind == "precision" and share == 1.0):
        allowed = "a share above 0 and " + ("at most 1" if kind == "recall" else "below 1")
        raise InvalidParameter(f"{name} must be {allowed}, got {share:g}: did you mean {share / 100:g}?")
    return share, f"{kind} of at least {share:g}"


def _rows(source: Any, X: Any, y: Any, sample_weight: Any) -> CurveRows:
    """Labels and natural posteriors of rows the model did not see."""
    if isinstance(source, ExpenseCurve):
        if source.rows is None:
            raise InvalidParameter(
                "this curve is of networks trained separately, whose decisions are not nested, so no threshold can be "
                "read off it: make one with ExpenseCurve.from_predictions"
            )
        return source.rows
    if has_held_out_rows(source) and X is None:
        if y is None:
            raise InvalidParameter("a search needs y, the labels it was fitted on, beside its out-of-fold decisions")
        target, p, seen = out_of_fold_posterior(source, y)
        weights = None if sample_weight is None else np.asarray(sample_weight)[seen]
        return _checked(target, p, weights)
    if not hasattr(source, "predict_proba") or not hasattr(source, "classes_"):
        raise InvalidParameter(
            f"choose_weighting takes an ExpenseCurve, a CRCENClassifierCV or a fitted classifier with predict_proba, "
            f"got a {type(source).__name__}"
        )
    if X is None or y is None:
        raise InvalidParameter(f"{type(source).__name__} needs X and y, rows that it did not see")
    labels = np.asarray(y)
    classes = np.asarray(source.classes_)
    if not np.isin(labels, classes).all():
        raise InvalidInput(f"y must hold the classes {classes.tolist()} of the model, got others")
    own = Labels.of_model(source, labels)
    proba = np.asarray(source.predict_proba(X))
    if proba.shape != (len(labels), 2):
        raise InvalidInput(f"predict_proba must give two columns for each of {len(labels)} rows, got {proba.shape}")
    return _checked(own.encode(labels), check_probabilities(proba[:, own.column], "predict_proba"), sample_weight)


def _checked(target: NDArray[np.bool_], p: Array, sample_weight: Any) -> CurveRows:
    weights = check_row_weights(sample_weight, target.size)
    class_totals(target, weights)
    return CurveRows(target, p, weights)


class _MovedThreshold:
    """The places where a threshold can stand, as `ThresholdCurve` numbers them, and the choice among them."""

    def __init__(self, rows: CurveRows) -> None:
        self._curve, self._weights = ThresholdCurve(rows.target, rows.p), rows.weights
        self._p = self._curve.score
        self.totals = self._curve.totals

    @staticmethod
    def cuts(kind: str, goal: float, totals: tuple[Array, Array]) -> NDArray[np.int64]:
        """The cut that meets the goal in each draw, −1 where none does."""
        tp, fp = totals
        with np.errstate(invalid="ignore"):
            if kind == "recall":
                met = tp >= goal * tp[:, -1:] * (1.0 - 1e-12)
                return np.where(met.any(axis=1), np.argmax(met, axis=1), -1)
            value = tp / (tp + fp) if kind == "precision" else (tp + fp) / (tp[:, -1:] + fp[:, -1:])
            met = value >= goal if kind == "precision" else value <= goal * (1.0 + 1e-12)
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
        return between if outside <= between < inside else outside

    def refuse(self, cut: int, kind: str, goal: float, totals: tuple[Array, Array], text: str) -> None:
        """Say why a target has no price."""
        tp, fp = totals[0][0], totals[1][0]
        if cut < 0 and kind == "precision":
            with np.errstate(invalid="ignore"):
                best = np.nanmax(tp / (tp + fp))
            raise InvalidParameter(f"no threshold has {text}: the best on these rows is {best:.4g}")
        if cut < 0:
            share = (tp[0] + fp[0]) / (tp[-1] + fp[-1])
            raise InvalidParameter(
                f"no threshold has {text}: {100 * share:.3g} % of the rows share the largest probability, "
                f"{self._p[0]:.4g}, so even the highest threshold raises more alarms"
            )
        if kind == "precision" and cut == len(self._p) - 1:
            raise InvalidParameter(
                f"every price has {text}, since {100 * tp[-1] / (tp[-1] + fp[-1]):.3g} % of all rows are positive: ask "
                "for more, or state a price"
            )
        if self._p[cut] <= 0.0:
            raise InvalidParameter(f"no finite price has {text}: it would need an alarm on rows whose probability is 0")

    def resampled_prices(self, kind: str, goal: float, n_resamples: int, random_state: int) -> Array:
        """The price that would be chosen in each resample."""
        prices = np.array([(1.0 - t) / t if t > 0.0 else math.inf for t in map(self.threshold, range(len(self._p)))])
        ones = np.ones(len(self._weights), dtype=np.int64)
        cuts = np.concatenate(
            [
                self.cuts(kind, goal, self.totals(drawn * self._weights))
                for drawn in row_draws(ones, n_resamples, np.random.default_rng(random_state))
            ]
        )
        return np.where(cuts < 0, 0.0, prices[cuts])
