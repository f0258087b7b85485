"""How good decisions and probabilities are on some rows, with closed-form or bootstrap intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.values import json_value
from crcen.theory.curves import ThresholdCurve, average_precision, roc_area
from crcen.theory.intervals import LEVEL, auc_interval, cost_interval, share_interval
from crcen.theory.limits import is_nearly_separated
from crcen.theory.metrics import ConfusionCounts, log_losses, percentile_interval, row_draws

__all__ = ["METRICS", "Measured", "ScoredRows", "count_sentence", "count_values", "of_no_use", "too_good"]

Array = NDArray[np.float64]

# In the order they are printed.
METRICS = {
    "recall": "recall",
    "precision": "precision",
    "f1": "F1",
    "g_mean": "G-mean",
    "average_precision": "average precision",
    "roc_auc": "ROC AUC",
    "log_loss": "log loss",
    "brier": "Brier score",
    "cost_per_1000": "cost per 1,000 rows",
    "alarms_per_1000": "alarms per 1,000 rows",
    "false_alarms_per_catch": "false alarms per catch",
}


@dataclass(frozen=True)
class Measured:
    """A metric on some rows.

    Parameters
    ----------
    value : float
        On the rows.
    low, high : float
        95 % interval; NaN if it is resampled and no resamples were asked for, or too many of them have no value.
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what does not exist."""
        return {"value": json_value(self.value), "low": json_value(self.low), "high": json_value(self.high)}

    def __str__(self) -> str:
        if math.isnan(self.value):
            return "none"
        if math.isnan(self.low):
            return f"{self.value:.4g}"
        return f"{self.value:<9.4g} ({self.low:.4g} to {self.high:.4g})"


class ScoredRows:
    """Rows with labels and probabilities, sorted once so that many resamples are quick.

    Parameters
    ----------
    target : bool array of shape (n,)
        Where rows are positive.
    p : float64 array of shape (n,)
        Natural posterior of the positive class.
    threshold : float
        Rows above it are alarms.
    weights : float64 array of shape (n,), optional
        What each row counts; 1 by default.
    """

    def __init__(self, target: NDArray[np.bool_], p: Array, threshold: float, weights: Array | None = None) -> None:
        self._weights = np.ones(len(p)) if weights is None else weights
        self._target, self._p, self._threshold = target, p, threshold
        self._curve = ThresholdCurve(target, p)
        self._n_cuts = self._curve.n_cuts_above(threshold)
        self._log_losses, self._squares = log_losses(target, p), (p - target) ** 2

    @property
    def counts(self) -> ConfusionCounts:
        """Found, missed, false alarms and the rest, at the threshold."""
        return self._counts(*self._curve.totals(self._weights))

    def _counts(self, tp: Array, fp: Array) -> ConfusionCounts:
        caught, alarmed = (tp[self._n_cuts - 1], fp[self._n_cuts - 1]) if self._n_cuts else (0.0, 0.0)
        return ConfusionCounts(tp=caught, fp=alarmed, fn=tp[-1] - caught, tn=fp[-1] - alarmed)

    def metrics(self, copies: Array | None = None) -> dict[str, float]:
        """Every metric of `METRICS`, with each row counted as often as ``copies`` says."""
        weights = self._weights if copies is None else copies * self._weights
        tp, fp = self._curve.totals(weights)
        counts, n = self._counts(tp, fp), float(tp[-1] + fp[-1])
        caught, alarms = float(counts.tp), float(counts.tp + counts.fp)
        return {
            "recall": float(counts.recall),
            "precision": float(counts.precision) if alarms else math.nan,
            "f1": float(counts.f1),
            "g_mean": float(counts.g_mean),
            "average_precision": average_precision(tp, fp),
            "roc_auc": roc_area(tp, fp),
            "log_loss": float(self._log_losses @ weights) / n,
            "brier": float(self._squares @ weights) / n,
            "cost_per_1000": 1000.0 * float(counts.fp + (1.0 / self._threshold - 1.0) * counts.fn) / n,
            "alarms_per_1000": 1000.0 * alarms / n,
            "false_alarms_per_catch": float(counts.fp) / caught if caught else math.nan,
        }

    def measured(
        self, n_resamples: int = 0, random_state: int = 0, progress: Callable[[int], None] = lambda done: None
    ) -> dict[str, Measured]:
        """Every metric, with its interval.

        Parameters
        ----------
        n_resamples : int, default=0
            For metrics without a closed form, such as F1; 0 leaves their intervals out.
        random_state : int, default=0
            Seed.
        progress : callable
            Called with 1 after each resample.

        Returns
        -------
        dict of str to Measured
            In the order of `METRICS`.
        """
        found, closed = self.metrics(), self._closed_intervals()
        if n_resamples == 0:
            return {name: Measured(value, *closed.get(name, ())) for name, value in found.items()}
        drawn: dict[str, list[float]] = {name: [] for name in METRICS}
        ones = np.ones(len(self._squares), dtype=np.int64)
        for some in row_draws(ones, n_resamples, np.random.default_rng(random_state)):
            for copies in some:
                for name, value in self.metrics(copies.astype(np.float64)).items():
                    drawn[name].append(value)
                progress(1)
        resampled = {name: percentile_interval(np.array(values), LEVEL) for name, values in drawn.items()}
        return {name: Measured(value, *closed.get(name, resampled[name])) for name, value in found.items()}

    def _closed_intervals(self) -> dict[str, tuple[float, float]]:
        """Wilson's intervals of shares, DeLong's of the ROC area, and that of the cost."""
        y, w, alarms = self._target, self._weights, self._p > self._threshold
        recall, precision = share_interval(alarms[y], w[y]), share_interval(y[alarms], w[alarms])
        alarm_share = share_interval(alarms, w).scaled(1000.0)
        costs = np.array([[0.0, 1.0], [1.0 / self._threshold - 1.0, 0.0]])
        cost = cost_interval(y.astype(np.int64), alarms.astype(np.int64), costs, w).scaled(1000.0)
        with np.errstate(divide="ignore"):
            per_catch = [float(np.divide(1.0, share) - 1.0) for share in (precision.high, precision.low)]
        area = auc_interval(y, self._p, w)
        found = {"recall": recall[1:], "precision": precision[1:], "roc_auc": area[1:], "cost_per_1000": cost[1:]}
        return {**found, "alarms_per_1000": alarm_share[1:], "false_alarms_per_catch": (per_catch[0], per_catch[1])}


def count_values(counts: ConfusionCounts) -> dict[str, int]:
    """Counts as a person names them, ready for JSON."""
    tp, fp, fn, tn = (round(float(cell)) for cell in (counts.tp, counts.fp, counts.fn, counts.tn))
    named = {"positives": tp + fn, "found": tp, "missed": fn, "alarms": tp + fp, "false_alarms": fp}
    return {**named, "rightly_left_alone": tn}


def count_sentence(counts: ConfusionCounts) -> str:
    """What was found, missed and alarmed for nothing, in one sentence."""
    named = count_values(counts)
    if not named["alarms"]:
        return f"no alarm: found 0 of {named['positives']:,}"
    return f"found {named['found']:,} of {named['positives']:,}, {named['false_alarms']:,} false alarms"


def too_good(roc_auc: float, suspects: str = "a column that is filled in after the event") -> list[str]:
    """A note where classes are separated so well that a leak is likelier, as the report's CRC005 has it."""
    if not is_nearly_separated(roc_auc):
        return []
    return [f"the classes are separated almost without an error (ROC AUC {roc_auc:.5g}): look for {suspects} (CRC005)"]


def of_no_use(log_loss: float, counts: ConfusionCounts) -> list[str]:
    """A note where probabilities are no better than the share of positives, said of every row."""
    n_pos, n = float(counts.tp + counts.fn), float(counts.tp + counts.fn + counts.fp + counts.tn)
    by_share = -sum(part / n * math.log(part / n) for part in (n_pos, n - n_pos) if part > 0.0)
    if not log_loss >= by_share:
        return []
    return [
        f"the model is of no use here: its log loss is {log_loss:.4g}, and {by_share:.4g} by the share of positives "
        f"alone, without any column"
    ]
