"""Displays for matplotlib: decision curves and expense."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.extras import need
from crcen.exceptions import InvalidParameter
from crcen.theory.metrics import DecisionCurves
from crcen.theory.price import Labels
from crcen.theory.rows import Array, Axes, Estimator, Rows

# This folder does not import `crcen.decisions`.
ExpenseCurve: TypeAlias = Estimator
Weights: TypeAlias = ArrayLike | None

# Okabe and Ito's palette.
BLUE, ORANGE, ALERT, GREY = "#0072b2", "#e69f00", "#d55e00", "#767676"
_MOST_TICKS, _POINTS = 9, 200


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
