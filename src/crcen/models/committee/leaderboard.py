"""The leaderboard of a committee: its members and itself, judged out of fold."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.models.committee.members import Candidate
from crcen.theory.shown import Shown

__all__ = ["Judged", "MemberScore", "leaderboard"]

Array = NDArray[np.float64]
# From out-of-fold logits to log loss, average precision and area under the curve.
Judged = Callable[[Array], tuple[float, float, float]]


@dataclass(frozen=True)
class MemberScore(Shown):
    """A line of the leaderboard.

    Parameters
    ----------
    name : str
        The member, or ``"committee"``.
    weight : float
        What its natural logit is multiplied by; NaN for the committee.
    log_loss, average_precision, roc_auc : float
        Out of fold, by natural probabilities. The committee's are by weights fitted on other folds.
    seconds : float
        Time of search and refit.
    settings : tuple of str
        What its search chose.
    n_tried : int
        How many settings its search looked at.
    """

    name: str
    weight: float
    log_loss: float
    average_precision: float
    roc_auc: float
    seconds: float
    settings: tuple[str, ...] = ()
    n_tried: int = 0

    def __str__(self) -> str:
        weight = "" if np.isnan(self.weight) else f"{self.weight:.2f}"
        return (
            f"{self.name:<20} {weight:>6}  {self.log_loss:>9.4g}  {self.average_precision:>17.4g}  "
            f"{self.roc_auc:>8.4g}  {self.seconds:>7.1f} s"
        )


def leaderboard(candidates: Sequence[Candidate], weights: Array, crossed: Array, judged: Judged) -> list[MemberScore]:
    """A line for each member, and one for the committee, whose logits are ``crossed``."""
    lines = [
        MemberScore(one.name, float(weight), *judged(one.logits), one.seconds, one.settings, one.n_tried)
        for one, weight in zip(candidates, weights, strict=True)
    ]
    seconds, n_tried = sum(one.seconds for one in candidates), sum(one.n_tried for one in candidates)
    return [*lines, MemberScore("committee", np.nan, *judged(crossed), seconds, n_tried=n_tried)]
