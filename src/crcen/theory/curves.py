"""Counts above every threshold, and the curves that follow: net benefit, cost, Brier, gains; areas under curves."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidParameter
from crcen.theory.checks import check_binary_rows, check_row_weights, class_totals
from crcen.theory.rows import Array, Index, divided


class ThresholdCurve:
    """Counts above each distinct score, falling in ``score``; probabilities in place of labels give expected counts."""

    def __init__(self, target: NDArray[np.bool_] | Array, score: Array) -> None:
        self._order = np.argsort(-score, kind="stable")
        self._target, falling = target[self._order].astype(np.float64), score[self._order]
        self._last = np.flatnonzero(np.append(np.diff(falling) != 0.0, True))
        self.score: Array = falling[self._last]

    def totals(self, weights: Array) -> tuple[Array, Array]:
        """Catches and false alarms at every cut, (cuts,) or (draws, cuts), for row weights (n,) or (draws, n)."""
        ordered = weights[..., self._order]
        return (
            np.cumsum(ordered * self._target, axis=-1)[..., self._last],
            np.cumsum(ordered * (1.0 - self._target), axis=-1)[..., self._last],
        )


def roc_area(tp: Array, fp: Array) -> float:
    """Area under the ROC curve, ties counting half, from `ThresholdCurve.totals`; NaN if a class is absent."""
    pairs = float(tp[-1] * fp[-1])
    caught = np.append(0.0, tp)
    return float(np.sum(np.diff(fp, prepend=0.0) * (caught[1:] + caught[:-1]) / 2.0)) / pairs if pairs else np.nan


def average_precision(tp: Array, fp: Array) -> float:
    """Precision averaged over the catches, from `ThresholdCurve.totals`; NaN if there is no positive row."""
    alarms, n_pos = tp + fp, float(tp[-1])
    return float(np.sum(np.diff(tp, prepend=0.0) * divided(tp, alarms, 0.0))) / n_pos if n_pos else np.nan


class Curve(NamedTuple):
    """A curve over prices, over the share of a false alarm in the cost of both errors, or over shares of rows."""

    x: Array
    model: Array
    trivial: Array  # an alarm on every row, the better of that and no alarm, or alarms at random


class DecisionCurves:
    """Labelled rows (0/1, both classes present) with natural probabilities, and every curve of them."""

    def __init__(self, y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None) -> None:
        target, chance = check_binary_rows(y, p, "p")
        weights = check_row_weights(sample_weight, target.size)
        self.n_pos, self.n_neg = class_totals(target, weights)
        self._curve = ThresholdCurve(target, chance)
        self.score = self._curve.score
        # Catches and false alarms without an alarm, and then at every distinct score, falling.
        self.tp, self.fp = (np.append(0.0, one) for one in self._curve.totals(weights))

    @property
    def n_rows(self) -> float:
        """Rows, or their weight."""
        return self.n_pos + self.n_neg

    def counts_above(self, threshold: Array) -> tuple[Array, Array]:
        """Catches and false alarms with an alarm where p > threshold."""
        cuts = self.cuts_above(threshold)
        return self.tp[cuts], self.fp[cuts]

    def cuts_above(self, threshold: ArrayLike) -> Index:
        """Number of distinct scores above a threshold."""
        return np.asarray(np.searchsorted(-self.score, -np.asarray(threshold), side="left"))

    def net_benefit(self, price: ArrayLike) -> Curve:
        """Net benefit (Vickers and Elkin, 2006) at prices above 0: catches a row, less false alarms at their worth."""
        prices = np.asarray(price, dtype=np.float64)
        if not (np.isfinite(prices).all() and (prices > 0.0).all()):
            raise InvalidParameter("prices of a net benefit must be finite numbers above 0")
        tp, fp = self.counts_above(1.0 / (1.0 + prices))
        return Curve(prices, (tp - fp / prices) / self.n_rows, (self.n_pos - self.n_neg / prices) / self.n_rows)

    def cost_curve(self, n_points: int = 201) -> Curve:
        """Cost curve (Drummond and Holte, 2006): cost of the best threshold over that of always being wrong."""
        share = np.linspace(0.0, 1.0, n_points)
        missed, false = 1.0 - self.tp / self.n_pos, self.fp / self.n_neg
        lowest = np.array([np.min(missed * x + false * (1.0 - x)) for x in share])
        return Curve(share, lowest, np.minimum(share, 1.0 - share))

    def brier_curve(self, n_points: int = 201, *, is_best: bool = False) -> Curve:
        """Brier curve (Hernández-Orallo, Flach and Ferri, 2011), with thresholds as stated or the best ones."""
        share = np.linspace(0.0, 1.0, n_points)
        tp, fp = self.counts_above(share)
        loss = share * fp + (1.0 - share) * (self.n_pos - tp)
        if is_best:
            loss = np.array([np.min(c * self.fp + (1.0 - c) * (self.n_pos - self.tp)) for c in share])
        trivial = np.minimum(share * self.n_neg, (1.0 - share) * self.n_pos)
        return Curve(share, 2.0 * loss / self.n_rows, 2.0 * trivial / self.n_rows)

    def gains(self) -> Curve:
        """Share of the positives found in each share of the riskiest rows, both from 0 to 1."""
        rows = (self.tp + self.fp) / self.n_rows
        return Curve(rows, self.tp / self.n_pos, rows)

    def lift(self) -> Curve:
        """How many times more positives there are in each share of the riskiest rows than among all rows."""
        rows, found, _ = (one[1:] for one in self.gains())
        return Curve(rows, found / rows, np.ones_like(rows))
