"""The drawing of an expense curve: each step's price on the bracket it should lie in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.displays.axes import ALERT, BLUE, GREY, axes_or_new, tidy

__all__ = ["ExpenseCurveDisplay"]

Array = NDArray[np.float64]

_MOST_TICKS = 9
_TITLES = {"threshold": "one model, its threshold moved", "retrained": "a network trained for each weight"}


@dataclass(eq=False)
class ExpenseCurveDisplay:
    """Expense of every step against the price it was bought at, both on log scales.

    A step from c₁ to c₂ should lie in the box [c₁, c₂]: the boxes climb the diagonal.

    Parameters
    ----------
    prices : float64 array of shape (steps + 1,)
        Cost ratios along the path.
    expense, interval_low, interval_high : float64 array of shape (steps,)
        NaN where undefined.
    is_beyond_noise : bool array of shape (steps,)
        Whether the interval misses the bracket.
    reasons : list of str
        Why a step has no expense; empty for those that have one.
    kind : {"threshold", "retrained"}
        Which curve it is.
    level : float
        Level of the intervals.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    prices: Array
    expense: Array
    interval_low: Array
    interval_high: Array
    is_beyond_noise: NDArray[np.bool_]
    reasons: list[str]
    kind: str
    level: float

    @classmethod
    def from_curve(cls, curve: Any) -> ExpenseCurveDisplay:
        """Take what is drawn from an `ExpenseCurve`."""
        steps = curve.steps
        return cls(
            prices=np.array([weighting.cost_ratio for weighting in curve.weightings]),
            expense=np.array([step.step.expense for step in steps]),
            interval_low=np.array([step.low for step in steps]),
            interval_high=np.array([step.high for step in steps]),
            is_beyond_noise=np.array([step.is_beyond_noise for step in steps]),
            reasons=[step.reason if step.verdict == "undefined" else "" for step in steps],
            kind=curve.kind,
            level=curve.level,
        )

    def plot(self, ax: Any = None) -> ExpenseCurveDisplay:
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
        low, high = self.prices[:-1], self.prices[1:]
        finite = np.concatenate([self.prices, *(v[np.isfinite(v) & (v > 0)] for v in self._values())])
        bottom, top = finite.min() / 1.5, finite.max() * 1.5
        centre = np.sqrt(low * high)
        ax.set(xscale="log", yscale="log", xlim=(self.prices[0] / 1.15, self.prices[-1] * 1.15), ylim=(bottom, top))
        for c1, c2 in zip(low, high, strict=True):
            ax.fill_between([c1, c2], c1, c2, color=GREY, alpha=0.25, linewidth=0)
        ax.fill_between([], [], color=GREY, alpha=0.25, linewidth=0, label="bracket: where the price says it lies")
        self._draw_steps(ax, centre, bottom, top)
        tidy(ax)
        shown = self.prices[:: -(-len(self.prices) // _MOST_TICKS)]
        ax.set_xticks(shown, [f"{price:.3g}" for price in shown])
        round_numbers = np.array([m * 10.0**e for e in range(-12, 13) for m in (1, 2, 5)])
        shown = round_numbers[(round_numbers >= bottom) & (round_numbers <= top)]
        shown = shown[:: -(-len(shown) // _MOST_TICKS)]
        ax.set_yticks(shown, [f"{price:g}" for price in shown])
        ax.minorticks_off()
        ax.set_xlabel("price: false alarms paid for one more catch (cost ratio)")
        ax.set_ylabel("expense: false alarms per catch gained")
        ax.set_title(f"Expense, {_TITLES[self.kind]}", fontsize="medium", loc="left")
        ax.legend(loc="upper left", frameon=False, fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _values(self) -> tuple[Array, Array, Array]:
        return self.expense, self.interval_low, self.interval_high

    def _draw_steps(self, ax: Any, centre: Array, bottom: float, top: float) -> None:
        known = np.isfinite(self.expense)
        groups = (
            (known & ~self.is_beyond_noise, BLUE, "o", "expense"),
            (known & self.is_beyond_noise, ALERT, "D", "expense, outside beyond noise"),
        )
        for mine, colour, marker, label in groups:
            if not mine.any():
                continue
            # A price of 0 (catches for nothing) has no place on a log scale: its marker stands on the lower edge.
            at = np.maximum(self.expense[mine], bottom)
            ends = np.clip(np.nan_to_num([self.interval_low[mine], self.interval_high[mine]], nan=1.0), bottom, top)
            has_interval = np.isfinite(self.interval_low[mine])
            bars = np.where(has_interval, np.maximum([at - ends[0], ends[1] - at], 0.0), 0.0)
            if has_interval.any():
                label += f", {100 * self.level:g} % interval"
            ax.errorbar(
                centre[mine], at, yerr=bars, fmt=marker, color=colour, capsize=3, label=label, clip_on=False, zorder=3
            )
        for x, reason in zip(centre, self.reasons, strict=True):
            if reason:
                style = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": "small"}
                ax.annotate(f"undefined: {reason}", (x, bottom), (0, 4), textcoords="offset points", **style)
