"""Displays for matplotlib: corrections, decision curves, expense, key equation and weight path."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.extras import need
from crcen.exceptions import InvalidParameter
from crcen.report.evidence import Evidence, gather
from crcen.report.quality import ReliabilityGroup, reliability_groups
from crcen.theory.checks import check_binary_rows, check_row_weights, class_totals
from crcen.theory.key_equation import KeyEquation, key_equation, means_by_law
from crcen.theory.metrics import DecisionCurves
from crcen.theory.price import CostRatio, Labels, WeightingLike, resolve
from crcen.theory.rows import Array, Axes, Estimator, Rows

# This folder does not import `crcen.decisions`.
ExpenseCurve: TypeAlias = Estimator
Weights: TypeAlias = ArrayLike | None

# Okabe and Ito's palette.
BLUE, ORANGE, ALERT, GREY = "#0072b2", "#e69f00", "#d55e00", "#767676"
_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
_FINE_TICKS = (0.003, 0.03, 0.3, 0.7, 0.97)
_MOST_TICKS, _POINTS, _DASHED = 9, 200, (0, (4, 3))
_BELOW = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.13), "ncols": 2}


class _Display:
    """Axes, title and legend of a drawing; ``ax_`` and ``figure_`` after `plot`."""

    _size = (6.4, 4.4)
    _legend: Mapping[str, object] = {"loc": "upper left"}

    def plot(self, ax: Axes = None) -> Self:
        """Draw on axes, by default on those of a new figure."""
        if ax is None:
            ax = need("matplotlib.pyplot", "plots").subplots(figsize=self._size, layout="constrained")[1]
        ax.set_title(self._draw(ax), fontsize="medium", loc="left")
        ax.legend(frameon=False, fontsize="small", **self._legend)
        ax.spines[["top", "right"]].set_visible(False)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw(self, ax: Axes) -> str:
        """Draw on axes and return the title."""
        raise NotImplementedError


def _weighted(model: Estimator, X: Rows, y: ArrayLike) -> tuple[Evidence, Array]:
    """Predictions for labelled rows, and the probabilities under the weighting."""
    evidence = gather(model, X, y)
    if evidence.q is None or not evidence.has_price:
        kind = type(model).__name__
        raise InvalidParameter(f"{kind} has no weighted_proba or no weighting_: give its outputs to from_predictions.")
    return evidence, evidence.q


@dataclass(eq=False)
class CorrectionDisplay(_Display):
    """Observed share of positives with 95 % bars against stated probability, before and after correction."""

    groups: tuple[ReliabilityGroup, ...]  # with both means

    _size = (5.4, 5.0)

    @classmethod
    def from_predictions(
        cls, y: ArrayLike, before: ArrayLike, after: ArrayLike, *, sample_weight: Weights = None, ax: Axes = None
    ) -> Self:
        """Draw probabilities of the positive class as a model gave them, and corrected, on rows it did not see.

        Parameters as in `DecisionCurveDisplay.from_predictions`.
        """
        (target, q), (_, p) = check_binary_rows(y, before, "before"), check_binary_rows(y, after, "after")
        weights = check_row_weights(sample_weight, target.size)
        class_totals(target, weights)
        return cls(reliability_groups(target, p, q, weights)).plot(ax=ax)

    @classmethod
    def from_estimator(cls, model: Estimator, X: Rows, y: ArrayLike, *, ax: Axes = None) -> Self:
        """Draw ``weighted_proba`` and ``predict_proba`` of a fitted model on rows it did not see."""
        evidence, q = _weighted(model, X, y)
        return cls.from_predictions(evidence.target, q, evidence.p, ax=ax)

    def _draw(self, ax: Axes) -> str:
        after, before, observed, low, high = (
            np.array([getattr(group, name) for group in self.groups], dtype=np.float64)
            for name in ("mean_p", "mean_q", "observed", "low", "high")
        )
        inner = np.concatenate([observed, after, before])
        inner = inner[(inner > 0.0) & (inner < 1.0)]
        # The frame in log-odds, with a margin; 0 and 1 are drawn on its edge.
        edges = np.array([inner.min(), inner.max()]) if inner.size else np.array([0.1, 0.9])
        odds = edges / (1.0 - edges) * np.array([1 / 2.5, 2.5])
        bottom, top = odds / (1.0 + odds)
        ax.set(xscale="logit", yscale="logit", xlim=(bottom, top), ylim=(bottom, top))
        ax.plot([bottom, top], [bottom, top], color=GREY, linewidth=1.0, label="perfect calibration")
        at, low, high, after, before = (np.clip(one, bottom, top) for one in (observed, low, high, after, before))
        bars = {"yerr": np.maximum([at - low, high - at], 0.0), "linewidth": 1.0, "capsize": 2}
        ax.errorbar(after, at, fmt="o-", color=BLUE, label="after correction", **bars)
        ax.errorbar(before, at, fmt="s-", color=ORANGE, label="before correction", **bars)
        ticks = [tick for tick in _TICKS if bottom <= tick <= top]
        if len(ticks) <= 5:
            ticks = sorted([*ticks, *(tick for tick in _FINE_TICKS if bottom <= tick <= top)])
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set(xlabel="stated probability (mean of the group)", ylabel="observed share of positives")
        return "Reliability before and after correction"


# Title, what the reference line is, and settings of the axes.
_KINDS: dict[str, tuple[str, str, dict[str, object]]] = {
    "net_benefit": (
        "Net benefit (decision curve)",
        "alarm on every row",
        {"xscale": "log", "xlabel": "price: false alarms that one more catch may cost", "ylabel": "catches per row"},
    ),
    "cost": (
        "Cost curve: the best threshold of the ranking",
        "no model",
        {"xlabel": "probability cost of a positive", "ylabel": "normalised expected cost", "ylim": (0.0, 0.55)},
    ),
    "brier": (
        "Brier curve: thresholds as the probabilities state them",
        "no model",
        {"xlabel": "threshold: a false alarm's share of the costs", "ylabel": "loss per row"},
    ),
    "gains": (
        "Gains: positives found among the riskiest rows",
        "at random",
        {"xlabel": "share of rows with an alarm", "ylabel": "share of positives found"},
    ),
    "lift": (
        "Lift over randomly selected rows",
        "at random",
        {"xscale": "log", "xlabel": "share of rows with an alarm", "ylabel": "lift"},
    ),
}
_COLOURS = (BLUE, ORANGE, ALERT, "#009e73", "#cc79a7")


@dataclass(eq=False)
class DecisionCurveDisplay(_Display):
    """A decision curve of one or several models, with a reference that needs no model."""

    curves: Mapping[str, DecisionCurves]  # models by name, on the same rows
    kind: str = "net_benefit"  # net_benefit, cost, brier, gains or lift

    _legend = MappingProxyType({})

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise InvalidParameter(f"kind must be one of {', '.join(_KINDS)}: got {self.kind!r}.")
        if not self.curves:
            raise InvalidParameter("a display of decisions needs at least one model.")

    @classmethod
    def from_predictions(
        cls,
        y: ArrayLike,
        p: ArrayLike | Mapping[str, ArrayLike],
        *,
        kind: str = "net_benefit",
        sample_weight: Weights = None,
        ax: Axes = None,
    ) -> Self:
        """Draw from 0/1 labels and natural posteriors of the positive class.

        Parameters
        ----------
        y, sample_weight
            As `crcen.key_equation` takes them.
        p : array of shape (n,) or dict of str to array
            By model if there are several.
        kind : {"net_benefit", "cost", "brier", "gains", "lift"}
            Which curve.
        ax : matplotlib Axes, optional
            By default those of a new figure.
        """
        models = p if isinstance(p, Mapping) else {"model": p}
        curves = {str(name): DecisionCurves(y, own, sample_weight) for name, own in models.items()}
        return cls(curves, kind).plot(ax=ax)

    @classmethod
    def from_estimator(
        cls,
        model: Estimator,
        X: Rows,
        y: ArrayLike,
        *,
        kind: str = "net_benefit",
        sample_weight: Weights = None,
        ax: Axes = None,
    ) -> Self:
        """Draw a fitted classifier with ``predict_proba`` on rows that it did not see."""
        labels = np.asarray(y)
        own = Labels.of_model(model, labels)
        p = np.asarray(model.predict_proba(X))[:, own.column]  # of X of any kind, such as texts for a pipeline
        return cls.from_predictions(own.target(labels), p, kind=kind, sample_weight=sample_weight, ax=ax)

    def _draw(self, ax: Axes) -> str:
        title, reference, settings = _KINDS[self.kind]
        ax.set(**settings)
        for number, (name, curves) in enumerate(self.curves.items()):
            x, trivial, lines = self._lines(curves)
            if number == 0:
                ax.plot(x, trivial, color=GREY, linestyle="--", label=reference)
                if self.kind == "net_benefit":
                    top = curves.n_pos / curves.n_rows
                    ax.set_ylim(-0.3 * top, 1.05 * top)
                    ax.axhline(0.0, color=GREY, linestyle=":", label="no alarm")
            for (suffix, y), style in zip(lines.items(), ("-", ":"), strict=False):
                ax.plot(x, y, color=_COLOURS[number % len(_COLOURS)], linestyle=style, label=f"{name}{suffix}")
        return title

    def _lines(self, curves: DecisionCurves) -> tuple[Array, Array, dict[str, Array]]:
        """Places, the reference, and the lines of a model by what is added to its name."""
        if self.kind == "brier":
            stated, best = (curves.brier_curve(is_best=is_best) for is_best in (False, True))
            return stated.x, stated.trivial, {", as stated": stated.model, ", best threshold": best.model}
        if self.kind == "net_benefit":
            ratio = curves.n_neg / curves.n_pos
            found = curves.net_benefit(np.geomspace(min(1.0, ratio / 10.0), 10.0 * max(1.0, ratio), 201))
        else:
            found = {"cost": curves.cost_curve, "gains": curves.gains, "lift": curves.lift}[self.kind]()
        return found.x, found.trivial, {"": found.model}


@dataclass(eq=False)
class ExpenseCurveDisplay(_Display):
    """Expense of every step against its price on log scales: a step from c₁ to c₂ should lie in the box [c₁, c₂]."""

    curve: ExpenseCurve

    def _draw(self, ax: Axes) -> str:
        steps, is_binary = self.curve.steps, self.curve.weightings[0].positive is not None
        brackets = np.array([(step.bracket_low, step.bracket_high) for step in steps])
        prices = np.unique(brackets)
        values = np.array([(step.expense, step.low, step.high) for step in steps])
        finite = np.concatenate([prices, values[np.isfinite(values) & (values > 0)]])
        bottom, top = finite.min() / 1.5, finite.max() * 1.5
        ax.set(xscale="log", yscale="log", xlim=(prices[0] / 1.15, prices[-1] * 1.15), ylim=(bottom, top))
        for c1, c2 in brackets:
            ax.fill_between([c1, c2], c1, c2, color=GREY, alpha=0.25, linewidth=0)
        ax.fill_between([], [], color=GREY, alpha=0.25, linewidth=0, label="bracket: expense implied by the price")
        (expense, low, high), centre = values.T, np.sqrt(brackets.prod(axis=1))
        is_beyond_noise = np.array([step.is_beyond_noise for step in steps])
        outside = (True, ALERT, "D", "expense, outside beyond noise")
        for is_outside, colour, marker, label in ((False, BLUE, "o", "expense"), outside):
            mine = np.isfinite(expense) & (is_beyond_noise == is_outside)
            if not mine.any():
                continue
            # An expense of 0 has no place on a log scale: its marker is on the lower edge.
            at = np.maximum(expense[mine], bottom)
            ends = np.clip(np.nan_to_num([low[mine], high[mine]], nan=1.0), bottom, top)
            has_interval = np.isfinite(low[mine])
            bars = np.where(has_interval, np.maximum([at - ends[0], ends[1] - at], 0.0), 0.0)
            if has_interval.any():
                label += f", {100 * self.curve.level:g} % interval"
            style = {"fmt": marker, "color": colour, "capsize": 3, "clip_on": False, "zorder": 3}
            ax.errorbar(centre[mine], at, yerr=bars, label=label, **style)
        for x, step in zip(centre, steps, strict=True):
            name, style = "" if is_binary else f"{self.curve.rows.label(step.number)}", {"fontsize": "small"}
            if step.verdict == "undefined":
                style |= {"rotation": 90, "ha": "center", "va": "bottom"}
                text = f"{name} undefined: {step.reason}".lstrip()
                ax.annotate(text, (x, bottom), (0, 4), textcoords="offset points", **style)
            elif name:
                ax.annotate(name, (x, max(step.expense, bottom)), (4, 4), textcoords="offset points", **style)
        round_numbers = np.array([m * 10.0**e for e in range(-12, 13) for m in (1, 2, 5)])
        across, up = (
            round_numbers[(round_numbers >= a) & (round_numbers <= b)] for a, b in (prices[[0, -1]], (bottom, top))
        )
        for axis, shown, form in ((ax.xaxis, prices if is_binary else across, ".3g"), (ax.yaxis, up, "g")):
            shown = shown[:: -(-len(shown) // _MOST_TICKS)]
            axis.set_ticks(shown, [f"{price:{form}}" for price in shown])
        ax.minorticks_off()
        paid = (
            "price: false alarms paid for one more catch (cost ratio)" if is_binary else "weight of each class in turn"
        )
        ax.set_xlabel(paid)
        ax.set_ylabel(f"expense: {'false alarms' if is_binary else 'weighted errors on others'} per catch gained")
        return f"Expense, {self.curve.description}"


@dataclass(eq=False)
class KeyEquationDisplay(_Display):
    """Weighted outputs q of each class, their means, and the means that the law implies for their distance."""

    q_pos: Array  # weighted outputs of the positive rows
    q_neg: Array
    equation: KeyEquation

    _legend = _BELOW

    @classmethod
    def from_predictions(cls, y: ArrayLike, q: ArrayLike, weighting: WeightingLike, *, ax: Axes = None) -> Self:
        """Draw the weighted probabilities of any model; parameters as in `crcen.key_equation`."""
        equation, (positive, outputs) = key_equation(y, q, weighting), check_binary_rows(y, q)
        return cls(outputs[positive], outputs[~positive], equation).plot(ax=ax)

    @classmethod
    def from_estimator(cls, model: Estimator, X: Rows, y: ArrayLike, *, ax: Axes = None) -> Self:
        """Draw a fitted model with ``weighted_proba`` and ``weighting_``, best on rows it did not see."""
        evidence, q = _weighted(model, X, y)
        return cls.from_predictions(evidence.target, q, evidence.price, ax=ax)

    def _draw(self, ax: Axes) -> str:
        equation, edges = self.equation, np.linspace(0.0, 1.0, 31)
        for q, colour, name, mean, implied in (
            (self.q_neg, ORANGE, "negatives", equation.mean_neg, equation.predicted_mean_neg),
            (self.q_pos, BLUE, "positives", equation.mean_pos, equation.predicted_mean_pos),
        ):
            share = np.histogram(q, edges)[0] / len(q)
            ax.stairs(share, edges, fill=True, color=colour, alpha=0.3, label=f"{len(q):,} {name}, mean {mean:.3f}")
            ax.axvline(mean, color=colour, linewidth=2.5)
            ax.axvline(implied, color="black", linewidth=1.2, linestyle=_DASHED)
        ax.plot([], [], color="black", linewidth=1.2, linestyle=_DASHED, label="means implied by the equation")
        ax.set(xlim=(0.0, 1.0), xlabel="weighted output q", ylabel="share of the class")
        sides = f"left side {equation.lhs:.3g}, right side {equation.rhs:.3g}"
        return f"Key equation at λ = {equation.weighting.lam:.3f}: {sides}"


@dataclass(eq=False)
class WeightPathDisplay(_Display):
    """Mean output of both classes against λ, measured and by the law (interpolated along log c)."""

    equations: Sequence[KeyEquation]  # at least two, in increasing order of λ, such as those of an `ExpenseCurve`

    _legend = _BELOW

    def __post_init__(self) -> None:
        lams = [equation.weighting.lam for equation in self.equations]
        if len(lams) < 2 or np.any(np.diff(lams) <= 0.0):
            raise InvalidParameter(f"a path needs at least two weights in increasing order, got λ = {lams}")

    def _draw(self, ax: Axes) -> str:
        first = self.equations[0].weighting
        log_c = np.array([equation.weighting.logit_shift for equation in self.equations])
        fine = np.linspace(log_c[0], log_c[-1], _POINTS)
        discrimination = np.interp(fine, log_c, [float(equation.discrimination) for equation in self.equations])
        weightings = [resolve(CostRatio(float(np.exp(shift))), first.n_pos, first.n_neg) for shift in fine]
        law = np.array([means_by_law(d, w.alpha) for d, w in zip(discrimination, weightings, strict=True)])
        lams, own = ([w.lam for w in path] for path in (weightings, [e.weighting for e in self.equations]))
        ax.plot(lams, law[:, 0], color=BLUE, linewidth=1.5, label="positives, by the law")
        ax.plot(lams, law[:, 1], color=ORANGE, linewidth=1.5, label="negatives, by the law")
        ax.plot(own, [e.mean_pos for e in self.equations], "o", color=BLUE, label="positives, measured")
        ax.plot(own, [e.mean_neg for e in self.equations], "s", color=ORANGE, label="negatives, measured")
        balanced = resolve("balanced", first.n_pos, first.n_neg).lam
        if lams[0] <= balanced <= lams[-1]:
            ax.axvline(balanced, color="black", linewidth=0.8, linestyle=":")
            ax.annotate("α = 1", (balanced, 1.0), (3, -2), textcoords="offset points", va="top", fontsize="small")
        ax.set_xscale("logit", nonpositive="clip")
        ax.set_xticks(own, [f"{lam:.3f}" for lam in own])
        ax.minorticks_off()
        ax.set(ylim=(0.0, 1.0), xlabel="weight λ of the positive class", ylabel="mean weighted output q")
        return "Class means along the weights"
