"""The leaderboard of a committee: its members and itself, judged out of fold."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.members.member import FittedMember, log_loss
from crcen.theory.decision import softmax
from crcen.theory.rows import Shown

__all__ = ["MemberScore", "leaderboard"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


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


def leaderboard(
    members: Sequence[FittedMember], weights: Array, crossed: Array, target: Index, row_weights: Array, classes: Any
) -> list[MemberScore]:
    """A line for each member, and one for the committee, whose logits are ``crossed``.

    ``classes`` are those whose average precision and area under the curve are averaged; None for all.
    """

    def judged(logits: Array) -> tuple[float, float, float]:
        from sklearn.metrics import average_precision_score, roc_auc_score

        known = np.isfinite(logits).all(axis=1) & (row_weights > 0)
        own, y, w = logits[known], target[known], row_weights[known]
        several = np.unique(y) if classes is None else classes
        p = softmax(own) if logits.shape[1] > 2 else own - own[:, ::-1]
        return (
            log_loss(own, y, w),
            float(np.mean([average_precision_score(y == k, p[:, k], sample_weight=w) for k in several])),
            float(np.mean([roc_auc_score(y == k, p[:, k], sample_weight=w) for k in several])),
        )

    lines = [
        MemberScore(one.name, float(weight), *judged(one.logits), one.seconds, one.settings, one.n_tried)
        for one, weight in zip(members, weights, strict=True)
    ]
    seconds, n_tried = sum(one.seconds for one in members), sum(one.n_tried for one in members)
    return [*lines, MemberScore("committee", np.nan, *judged(crossed), seconds, n_tried=n_tried)]
