"""Class means along a path of weights, with the general-λ law drawn through them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crcen.exceptions import InvalidParameter
from crcen.report.displays.axes import BLUE, ORANGE, axes_or_new, tidy
from crcen.theory.class_means import means_by_law
from crcen.theory.key_equation import KeyEquation
from crcen.theory.price import CostRatio, resolve

__all__ = ["WeightPathDisplay"]

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
    def from_curve(cls, curve: Any, *, ax: Any = None) -> "WeightPathDisplay":
        """Draw the path of an `ExpenseCurve` that knows its rows."""
        if not curve.key_equations:
            raise InvalidParameter("this curve knows counts only: make it from an estimator, or from predictions")
        return cls(curve.key_equations).plot(ax=ax)

    def plot(self, ax: Any = None) -> "WeightPathDisplay":
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
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self
