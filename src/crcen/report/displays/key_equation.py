"""The key equation drawn: outputs of both classes with their means, and where the law puts these means."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidParameter
from crcen.report.displays.axes import BLUE, ORANGE, axes_or_new, tidy
from crcen.report.evidence import gather
from crcen.theory.key_equation import KeyEquation, key_equation
from crcen.theory.price import WeightingLike
from crcen.theory.rows import check_binary_target, check_probabilities

__all__ = ["KeyEquationDisplay"]

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
        cls, y: ArrayLike, q: ArrayLike, weighting: WeightingLike, *, ax: Any = None
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
    def from_estimator(cls, model: Any, X: Any, y: Any, *, ax: Any = None) -> KeyEquationDisplay:
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

    def plot(self, ax: Any = None) -> KeyEquationDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax, equation = axes_or_new(ax), self.equation
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
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self
