"""Displays for matplotlib: corrections, curves of decisions, expense, key equation and weight path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.extras import need
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.report.curves import ReliabilityGroup, reliability_groups
from crcen.report.evidence import Model, Table, gather
from crcen.theory.class_means import means_by_law
from crcen.theory.curves import DecisionCurves
from crcen.theory.key_equation import KeyEquation, key_equation
from crcen.theory.labels import Labels
from crcen.theory.price import CostRatio, WeightingLike, resolve
from crcen.theory.rows import check_binary_target, check_probabilities, check_row_weights, class_totals

__all__ = [
    "KINDS",
    "CorrectionDisplay",
    "DecisionCurveDisplay",
    "ExpenseCurveDisplay",
    "KeyEquationDisplay",
    "WeightPathDisplay",
]

Array = NDArray[np.float64]
# matplotlib is optional, and no type checker sees it.
Axes = Any

# Okabe and Ito's palette.
BLUE, ORANGE, ALERT, GREY = "#0072b2", "#e69f00", "#d55e00", "#767676"


def _axes_or_new(ax: Axes, size: tuple[float, float] = (6.4, 4.4)) -> Axes:
    """Give back the axes given, or those of a new figure."""
    if ax is not None:
        return ax
    return need("matplotlib.pyplot", "plots").subplots(figsize=size, layout="constrained")[1]


def _tidy(ax: Axes) -> None:
    """Take away the lines that say nothing."""
    ax.spines[["top", "right"]].set_visible(False)


_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
_FINE_TICKS = (0.003, 0.03, 0.3, 0.7, 0.97)


@dataclass(eq=False)
class CorrectionDisplay:
    """Observed share of positives against stated probability, before and after correction, on log-odds scales.

    Rows are grouped by the corrected probability, about equally many expected positives to a group. Bars are 95 %
    intervals of the observed share. On the diagonal, events happen as often as stated.

    Parameters
    ----------
    groups : tuple of ReliabilityGroup
        With both means.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    groups: tuple[ReliabilityGroup, ...]

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        before: ArrayLike,
        after: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        ax: Axes = None,
    ) -> CorrectionDisplay:
        """Draw the probabilities of any model.

        Parameters
        ----------
        y : array of shape (n,)
            0/1 or bool, 1 is positive; rows the model did not see.
        before, after : array of shape (n,)
            Probabilities of the positive class as the model gave them, and corrected.
        sample_weight : array of shape (n,), optional
            Finite and not negative.
        ax : matplotlib Axes, optional
            Where to draw.
        """
        target = check_binary_target(y)
        weights = check_row_weights(sample_weight, target.size)
        class_totals(target, weights)
        q, p = check_probabilities(before, "before"), check_probabilities(after, "after")
        for name, values in (("before", q), ("after", p)):
            if values.shape != target.shape:
                raise InvalidInput(f"{name} must have one value for each of the {target.size} rows, got {values.shape}")
        return cls(reliability_groups(target, p, q, weights)).plot(ax=ax)

    @classmethod
    def from_estimator(cls, model: Model, X: Table, y: ArrayLike, *, ax: Axes = None) -> CorrectionDisplay:
        """Draw ``weighted_proba`` and ``predict_proba`` of a fitted model on rows it did not see.

        Parameters
        ----------
        model : classifier
            With both methods.
        X, y
            Rows and their labels, as the model takes them.
        ax : matplotlib Axes, optional
            Where to draw.
        """
        evidence = gather(model, X, y)
        if evidence.q is None:
            raise InvalidParameter(
                f"{type(model).__name__} has no weighted_proba to compare with: give both probabilities to "
                "from_predictions"
            )
        return cls.from_predictions(evidence.target, evidence.q, evidence.p, ax=ax)

    def plot(self, ax: Axes = None) -> CorrectionDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = _axes_or_new(ax, (5.4, 5.0))
        means = {
            "after correction": (BLUE, "o", np.array([group.mean_p for group in self.groups])),
            "before correction": (ORANGE, "s", np.array([group.mean_q for group in self.groups], dtype=np.float64)),
        }
        observed, low, high = (
            np.array([getattr(g, name) for g in self.groups]) for name in ("observed", "low", "high")
        )
        inner = np.concatenate([observed, *(stated for _, _, stated in means.values())])
        inner = inner[(inner > 0.0) & (inner < 1.0)]
        # The frame in log-odds, with room around; what is 0 or 1 stands on its edge.
        edges = np.array([inner.min(), inner.max()]) if inner.size else np.array([0.1, 0.9])
        odds = edges / (1.0 - edges) * np.array([1 / 2.5, 2.5])
        bottom, top = odds / (1.0 + odds)
        ax.set(xscale="logit", yscale="logit", xlim=(bottom, top), ylim=(bottom, top))
        ax.plot([bottom, top], [bottom, top], color=GREY, linewidth=1.0, label="what is said is what happens")
        at = np.clip(observed, bottom, top)
        bars = np.maximum([at - np.clip(low, bottom, top), np.clip(high, bottom, top) - at], 0.0)
        for label, (colour, marker, stated) in means.items():
            x = np.clip(stated, bottom, top)
            ax.errorbar(x, at, yerr=bars, fmt=f"{marker}-", color=colour, linewidth=1.0, capsize=2, label=label)
        ticks = [tick for tick in _TICKS if bottom <= tick <= top]
        if len(ticks) <= 5:
            ticks = sorted([*ticks, *(tick for tick in _FINE_TICKS if bottom <= tick <= top)])
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set(xlabel="stated probability (mean of the group)", ylabel="observed share of positives")
        ax.set_title("Reliability before and after correction", fontsize="medium", loc="left")
        ax.legend(loc="upper left", frameon=False, fontsize="small")
        _tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


KINDS = ("net_benefit", "cost", "brier", "gains", "lift")
_COLOURS = (BLUE, ORANGE, ALERT, "#009e73", "#cc79a7")
_CURVE_TITLES = {
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
        ax: Axes = None,
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
        model: Model,
        X: Table,
        y: ArrayLike,
        *,
        kind: str = "net_benefit",
        sample_weight: ArrayLike | None = None,
        ax: Axes = None,
    ) -> DecisionCurveDisplay:
        """Draw a fitted classifier with ``predict_proba`` on rows that it did not see."""
        labels = np.asarray(y)
        own = Labels.of_model(model, labels)
        p = np.asarray(model.predict_proba(X))[:, own.column]
        return cls.from_predictions(own.target(labels), p, kind=kind, sample_weight=sample_weight, ax=ax)

    def plot(self, ax: Axes = None) -> DecisionCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = _axes_or_new(ax)
        for number, (name, curves) in enumerate(self.curves.items()):
            colour = _COLOURS[number % len(_COLOURS)]
            getattr(self, f"_{self.kind}")(ax, curves, name, colour, is_first=number == 0)
        ax.set_title(_CURVE_TITLES[self.kind], fontsize="medium", loc="left")
        ax.legend(frameon=False, fontsize="small")
        _tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    @staticmethod
    def _net_benefit(ax: Axes, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
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
    def _cost(ax: Axes, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.cost_curve()
        if is_first:
            ax.plot(found.share, found.trivial, color=GREY, linestyle="--", label="no model")
            ax.set(xlabel="probability cost of a positive", ylabel="normalised expected cost", ylim=(0.0, 0.55))
        ax.plot(found.share, found.model, color=colour, label=name)

    @staticmethod
    def _brier(ax: Axes, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.brier_curve()
        if is_first:
            ax.plot(found.share, found.trivial, color=GREY, linestyle="--", label="no model")
            ax.set(xlabel="threshold: a false alarm's share of the costs", ylabel="loss a row")
        ax.plot(found.share, found.model, color=colour, label=f"{name}, as stated")
        ax.plot(found.share, found.lowest, color=colour, linewidth=1.0, linestyle=":", label=f"{name}, best threshold")

    @staticmethod
    def _gains(ax: Axes, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.gains()
        if is_first:
            ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linestyle="--", label="at random")
            ax.set(xlabel="share of rows with an alarm", ylabel="share of positives found")
        ax.plot(found.rows, found.found, color=colour, label=name)

    @staticmethod
    def _lift(ax: Axes, curves: DecisionCurves, name: str, colour: str, *, is_first: bool) -> None:
        found = curves.gains()
        if is_first:
            ax.axhline(1.0, color=GREY, linestyle="--", label="at random")
            ax.set(xscale="log", xlabel="share of rows with an alarm", ylabel="lift")
        ax.plot(found.rows[1:], found.lift[1:], color=colour, label=name)


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

    def plot(self, ax: Axes = None) -> ExpenseCurveDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = _axes_or_new(ax)
        low, high = self.prices[:-1], self.prices[1:]
        finite = np.concatenate([self.prices, *(v[np.isfinite(v) & (v > 0)] for v in self._values())])
        bottom, top = finite.min() / 1.5, finite.max() * 1.5
        centre = np.sqrt(low * high)
        ax.set(xscale="log", yscale="log", xlim=(self.prices[0] / 1.15, self.prices[-1] * 1.15), ylim=(bottom, top))
        for c1, c2 in zip(low, high, strict=True):
            ax.fill_between([c1, c2], c1, c2, color=GREY, alpha=0.25, linewidth=0)
        ax.fill_between([], [], color=GREY, alpha=0.25, linewidth=0, label="bracket: where the price says it lies")
        self._draw_steps(ax, centre, bottom, top)
        _tidy(ax)
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

    def _draw_steps(self, ax: Axes, centre: Array, bottom: float, top: float) -> None:
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


_DASHED = (0, (4, 3))


@dataclass(eq=False)
class KeyEquationDisplay:
    """How the weighted outputs q lie in each class, their means, and the means that the equation implies.

    The general-λ law turns the distance of the two means into both of them. Where the key equation holds on these
    rows, each mean lies on its dashed line.

    Parameters
    ----------
    q_pos, q_neg : float64 array
        Weighted outputs of the positive and of the negative rows.
    equation : KeyEquation
        The key equation on these rows.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    q_pos: NDArray[np.float64]
    q_neg: NDArray[np.float64]
    equation: KeyEquation

    @classmethod
    def from_predictions(
        cls, y: ArrayLike, q: ArrayLike, weighting: WeightingLike, *, ax: Axes = None
    ) -> KeyEquationDisplay:
        """Draw the output of any model.

        Parameters
        ----------
        y : array of shape (n,)
            0/1 or bool, 1 is positive; best of rows the model did not see.
        q : array of shape (n,)
            Weighted probabilities of the positive class.
        weighting : Price, Lam, Alpha, CostRatio, Budget, float, "balanced" or None
            What q was trained under.
        ax : matplotlib Axes, optional
            Where to draw.
        """
        equation = key_equation(y, q, weighting)
        positive, outputs = check_binary_target(y), check_probabilities(q)
        return cls(outputs[positive], outputs[~positive], equation).plot(ax=ax)

    @classmethod
    def from_estimator(cls, model: Model, X: Table, y: ArrayLike, *, ax: Axes = None) -> KeyEquationDisplay:
        """Draw a fitted model on rows, best on those it did not see.

        Parameters
        ----------
        model : classifier
            With ``weighted_proba`` and ``weighting_``.
        X, y
            Rows and their labels, as the model takes them.
        ax : matplotlib Axes, optional
            Where to draw.
        """
        evidence = gather(model, X, y)
        if evidence.q is None or not evidence.has_price:
            raise InvalidParameter(
                f"the key equation needs weighted_proba and weighting_, which {type(model).__name__} has not: give its "
                "weighted output and its weighting to from_predictions"
            )
        return cls.from_predictions(evidence.target, evidence.q, evidence.price, ax=ax)

    def plot(self, ax: Axes = None) -> KeyEquationDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax, equation = _axes_or_new(ax), self.equation
        edges = np.linspace(0.0, 1.0, 31)
        sides = (
            (self.q_neg, ORANGE, "negatives", equation.mean_neg, equation.predicted_mean_neg),
            (self.q_pos, BLUE, "positives", equation.mean_pos, equation.predicted_mean_pos),
        )
        for q, colour, name, mean, implied in sides:
            share = np.histogram(q, edges)[0] / len(q)
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.3, label=f"{len(q):,} {name}, mean {mean:.3f}")
            ax.axvline(mean, color=colour, linewidth=2.5)
            ax.axvline(implied, color="black", linewidth=1.2, linestyle=_DASHED)
        ax.plot([], [], color="black", linewidth=1.2, linestyle=_DASHED, label="means that the equation implies")
        ax.set_title(
            f"Key equation at λ = {equation.weighting.lam:.3f}: left side {equation.lhs:.3g}, right side "
            f"{equation.rhs:.3g}",
            fontsize="medium",
            loc="left",
        )
        ax.set(xlim=(0.0, 1.0), xlabel="weighted output q", ylabel="share of the class")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize="small")
        _tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self


_POINTS = 200


@dataclass(eq=False)
class WeightPathDisplay:
    """Mean output of both classes against λ, measured and by the law.

    The law needs the discrimination D of every λ; between the weights of the path it is interpolated along log c. A
    mean off its line is a key equation that does not hold on these rows.

    Parameters
    ----------
    equations : sequence of KeyEquation
        At least two, in increasing order of λ, of one set of rows.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    equations: Sequence[KeyEquation]

    def __post_init__(self) -> None:
        lams = [equation.weighting.lam for equation in self.equations]
        if len(lams) < 2 or np.any(np.diff(lams) <= 0.0):
            raise InvalidParameter(f"a path needs at least two weights in increasing order, got λ = {lams}")

    @classmethod
    def from_curve(cls, curve: Any, *, ax: Axes = None) -> WeightPathDisplay:
        """Draw the path of an `ExpenseCurve` that knows its rows."""
        if not curve.key_equations:
            raise InvalidParameter("this curve knows counts only: make it from an estimator, or from predictions")
        return cls(curve.key_equations).plot(ax=ax)

    def plot(self, ax: Axes = None) -> WeightPathDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = _axes_or_new(ax)
        counts = self.equations[0].weighting.n_pos, self.equations[0].weighting.n_neg
        log_c = np.array([equation.weighting.logit_shift for equation in self.equations])
        fine = np.linspace(log_c[0], log_c[-1], _POINTS)
        discrimination = np.interp(fine, log_c, [equation.discrimination for equation in self.equations])
        weightings = [resolve(CostRatio(float(np.exp(shift))), *counts) for shift in fine]
        law = np.array([means_by_law(d, w.alpha) for d, w in zip(discrimination, weightings, strict=True)])
        lams = [w.lam for w in weightings]
        ax.plot(lams, law[:, 0], color=BLUE, linewidth=1.5, label="positives, by the law")
        ax.plot(lams, law[:, 1], color=ORANGE, linewidth=1.5, label="negatives, by the law")
        own = [equation.weighting.lam for equation in self.equations]
        ax.plot(own, [e.mean_pos for e in self.equations], "o", color=BLUE, label="positives, measured")
        ax.plot(own, [e.mean_neg for e in self.equations], "s", color=ORANGE, label="negatives, measured")
        balanced = resolve("balanced", *counts).lam
        if lams[0] <= balanced <= lams[-1]:
            ax.axvline(balanced, color="black", linewidth=0.8, linestyle=":")
            ax.annotate("α = 1", (balanced, 1.0), (3, -2), textcoords="offset points", va="top", fontsize="small")
        ax.set_xscale("logit", nonpositive="clip")
        ax.set_xticks(own, [f"{lam:.3f}" for lam in own])
        ax.minorticks_off()
        ax.set(ylim=(0.0, 1.0), xlabel="weight λ of the positive class", ylabel="mean weighted output q")
        ax.set_title("Class means along the weights", fontsize="medium", loc="left")
        ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2, frameon=False, fontsize="small")
        _tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self
