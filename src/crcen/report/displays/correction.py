"""Reliability before and after the weighting is taken out of probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.report.curves import ReliabilityGroup, reliability_groups
from crcen.report.displays.axes import BLUE, GREY, ORANGE, axes_or_new, tidy
from crcen.report.evidence import gather
from crcen.theory.rows import check_binary_target, check_probabilities, check_row_weights, class_totals

__all__ = ["CorrectionDisplay"]

_TICKS = (0.0001, 0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
_MORE_TICKS = (0.003, 0.03, 0.3, 0.7, 0.97)


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
        ax: Any = None,
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
    def from_estimator(cls, model: Any, X: Any, y: Any, *, ax: Any = None) -> CorrectionDisplay:
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

    def plot(self, ax: Any = None) -> CorrectionDisplay:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        self
        """
        ax = axes_or_new(ax, (5.4, 5.0))
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
            ticks = sorted([*ticks, *(tick for tick in _MORE_TICKS if bottom <= tick <= top)])
        ax.set_xticks(ticks, [f"{t:g}" for t in ticks])
        ax.set_yticks(ticks, [f"{t:g}" for t in ticks])
        ax.minorticks_off()
        ax.set(xlabel="stated probability (mean of the group)", ylabel="observed share of positives")
        ax.set_title("Reliability before and after correction", fontsize="medium", loc="left")
        ax.legend(loc="upper left", frameon=False, fontsize="small")
        tidy(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self
