"""How good decisions and probabilities are on some rows, with bootstrap intervals."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.workflow.inputs import plain

__all__ = ["METRICS", "Measured", "ScoredRows"]

Array = NDArray[np.float64]

_SMALLEST = 1e-15  # a probability of exactly 0 would make the log loss infinite

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
        Percentile bootstrap interval at 95 %; NaN where none was asked for, or too many resamples have no value.
    """

    value: float
    low: float = math.nan
    high: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain values, None for what does not exist."""
        return {"value": plain(self.value), "low": plain(self.low), "high": plain(self.high)}

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
    """

    def __init__(self, target: NDArray[np.bool_], p: Array, threshold: float) -> None:
        order = np.argsort(-p, kind="stable")
        self.target, self.p = target[order], p[order]
        # Rows of one probability are one point of every curve: the last row of each.
        self._ends = np.flatnonzero(np.append(np.diff(self.p) != 0, True))
        self._n_alarms = int((self.p > threshold).sum())
        clipped = np.clip(self.p, _SMALLEST, 1.0 - _SMALLEST)
        self._log_losses = -np.where(self.target, np.log(clipped), np.log1p(-clipped))
        self._squares = (self.p - self.target) ** 2

    def metrics(self, copies: Array | None = None) -> dict[str, float]:
        """Every metric of `METRICS`, with each row counted as often as ``copies`` says (in sorted order)."""
        weights = np.ones(len(self.p)) if copies is None else copies
        caught, alarmed = np.cumsum(np.where(self.target, weights, 0.0)), np.cumsum(weights)
        n_pos, n = float(caught[-1]), float(alarmed[-1])
        n_neg = n - n_pos
        tp, alarms = (float(sums[self._n_alarms - 1]) if self._n_alarms else 0.0 for sums in (caught, alarmed))
        fp = alarms - tp
        recall = _ratio(tp, n_pos)
        precision = tp / alarms if alarms else 0.0
        points_tp, points = caught[self._ends], alarmed[self._ends]
        points_fp = points - points_tp
        gained = np.diff(points_tp, prepend=0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            average = float(np.sum(gained * np.where(points > 0, points_tp / points, 0.0))) / n_pos if n_pos else np.nan
        # Negatives ranked below each positive, ties half.
        below = float(np.sum(gained * (n_neg - points_fp + 0.5 * np.diff(points_fp, prepend=0.0))))
        return {
            "recall": recall,
            "precision": precision,
            "f1": _ratio(2.0 * tp, alarms + n_pos),
            "g_mean": math.sqrt(recall * _ratio(n_neg - fp, n_neg)),
            "average_precision": average,
            "roc_auc": _ratio(below, n_pos * n_neg),
            "log_loss": float(self._log_losses @ weights) / n,
            "brier": float(self._squares @ weights) / n,
            "alarms_per_1000": 1000.0 * alarms / n,
            "false_alarms_per_catch": _ratio(fp, tp),
        }

    def measured(
        self, n_resamples: int = 0, random_state: int = 0, progress: Callable[[int], None] = lambda done: None
    ) -> dict[str, Measured]:
        """Every metric, with intervals from so many resamples of the rows.

        Parameters
        ----------
        n_resamples : int, default=0
            0 for no intervals.
        random_state : int, default=0
            Seed.
        progress : callable
            Called with 1 after each resample.

        Returns
        -------
        dict of str to Measured
            In the order of `METRICS`.
        """
        rng, n = np.random.default_rng(random_state), len(self.p)
        drawn: dict[str, list[float]] = {name: [] for name in METRICS}
        for _ in range(n_resamples):
            copies = np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64)
            for name, value in self.metrics(copies).items():
                drawn[name].append(value)
            progress(1)
        return {name: Measured(value, *_interval(drawn[name])) for name, value in self.metrics().items()}


def _ratio(top: float, bottom: float) -> float:
    return top / bottom if bottom else math.nan


def _interval(values: list[float]) -> tuple[float, float]:
    known = [value for value in values if not math.isnan(value)]
    if not known or len(known) < 0.975 * len(values):
        return math.nan, math.nan
    low, high = np.quantile(known, [0.025, 0.975])
    return float(low), float(high)
