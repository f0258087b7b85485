"""Net benefit, cost, Brier, gains and lift of one or several models, as matplotlib draws them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidParameter
from crcen.report.displays.axes import ALERT, BLUE, GREY, ORANGE, axes_or_new, tidy
from crcen.theory.curves import DecisionCurves
from crcen.theory.labels import Labels

__all__ = ["KINDS", "DecisionCurveDisplay"]

KINDS = ("net_benefit", "cost", "brier", "gains", "lift")
_COLOURS = (BLUE, ORANGE, ALERT, "#009e73", "#cc79a7")
_TITLES = {
    "net_benefit": "Net benefit (decision curve)",
    "cost": "Cost curve: the best threshold of the ranking",
    "brier": "Brier curve: thresholds as the probabilities state them",
    "gains": "Gains: what is found among the riskiest rows",
    "lift": "Lift over rows taken at random",
}


@dataclass(eq=False)
class DecisionCurveDisplay:
    """A curve that people know for judging decisions, beside what needs no model.

    Parameters
    ----------
    curves : dict of str to DecisionCurves
        Models by name, on the same rows.
    kind : {"net_benefit", "cost", "brier", "gains", "lift"}
        Which curve.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    curves: Mapping[str, DecisionCurves]
    kind: str = "net_benefit"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidParameter(f"kind must be one of {', '.join(KINDS)}: got {self.kind!r}.")
        if not self.curves:
            raise InvalidParameter("a display of decisions needs at least one model.")

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: Any,
        *,
        kind: str = "net_benefit",
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
    ) -> DecisionCurveDisplay:
        """Draw from labels (1 is positive) and natural probabilities: an array, or a dict of them by model.

        Parameters
        ----------
        y : array of shape (n,)
            0/1 or bool.
        p : array of shape (n,) or dict of str to array
            Natural posteriors of the positive class.
        kind : {"net_benefit", "cost", "brier", "gains", "lift"}
            Which curve.
        sample_weight : array of shape (n,), optional
            What each row counts.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.
        """
        models = p if isinstance(p, Mapping) else {"model": p}
        curves = {str(name): DecisionCurves(y, own, sample_weight) for name, own in models.items()}
        return cls(curves, kind).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        X: Any,
        y: Any,
        *,
        kind: str = "net_benefit",
        sample_weight: ArrayLike | None = None,
        ax: Any = None,
    ) -> DecisionCurveDisplay:
        """Draw a fitted classifier with ``predict_proba`` on rows that it did not see."""
        labels = np.asarray(y)
        own = Labels.of_model(model, labels)
        p = np.asarray(model.predict_proba(X))[:, own.column]
        return cls.from_predictions(own.target(labels), p, kind=kind, sample_weight=sample_weight, ax=ax)

    def plot(self, ax: Any = None) -> DecisionCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = axes_or_new(ax)
        for number, (name, curves) in enumerate(self.curves.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            getattr(self, f"_{self.kind}")(ax, curves, name, colour, is_first=number == 0)
        ax.set_title(_TITLES[self.kind], fontsize="medium", loc="left")
        ax.legend(frameon=False, fontsize="small")
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @staticmethod
    def _net_benefit(ax: Any, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        ratio = curves.n_neg / curves.n_pos
        found = curves.net_benefit(np.geomspace(min(1.0, ratio / 10.0), 10.0 * max(1.0, ratio), 201))
        if is_first:
            ax.plot(found.price, found.alarm_on_all, color=GREY, linestyle="--", label="alarm on every row")
            ax.axhline(0.0, color=GREY, linestyle=":", label="no alarm")
            top = curves.n_pos / curves.n_rows
            ax.set(xscale="log", ylim=(-0.3 * top, 1.05 * top))
            ax.set(xlabel="price: false alarms that one more catch may cost", ylabel="net benefit: catches a row")
        ax.plot(found.price, found.model, color=colour, label=name)

    @staticmethod
    def _cost(ax: Any, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.cost_curve()
        if is_first:
            ax.plot(found.share, found.trivial, color=GREY, linestyle="--", label="no model")
            ax.set(xlabel="probability cost of a positive", ylabel="normalised expected cost", ylim=(0.0, 0.55))
        ax.plot(found.share, found.model, color=colour, label=name)

    @staticmethod
    def _brier(ax: Any, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.brier_curve()
        if is_first:
            ax.plot(found.share, found.trivial, color=GREY, linestyle="--", label="no model")
            ax.set(xlabel="threshold: a false alarm's share of the costs", ylabel="loss a row")
        ax.plot(found.share, found.model, color=colour, label=f"{name}, as stated")
        ax.plot(found.share, found.lowest, color=colour, linewidth=1.0, linestyle=":", label=f"{name}, best threshold")

    @staticmethod
    def _gains(ax: Any, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.gains()
        if is_first:
            ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linestyle="--", label="at random")
            ax.set(xlabel="share of rows with an alarm", ylabel="share of positives found")
        ax.plot(found.rows, found.found, color=colour, label=name)

    @staticmethod
    def _lift(ax: Any, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.gains()
        if is_first:
            ax.axhline(1.0, color=GREY, linestyle="--", label="at random")
            ax.set(xscale="log", xlabel="share of rows with an alarm", ylabel="lift")
        ax.plot(found.rows[1:], found.lift[1:], color=colour, label=name)
