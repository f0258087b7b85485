"""How often a saved model alarms, beside the networks of the folds that its figures come from."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["AlarmShares"]

Bools = NDArray[np.bool_]

# A refit on more rows is another network, so some difference is no news: a warning needs both.
_FACTOR, _Z = 1.5, 4.0


@dataclass(frozen=True)
class AlarmShares:
    """Shares of alarms among training rows.

    Parameters
    ----------
    folds, saved : float
        Among rows held out once: by the networks that had not seen them, and by the saved model.
    training : float
        By the saved model, among all rows that it was trained on.
    z : float
        Rows on which only one of the two alarms, as a difference in standard deviations.
    """

    folds: float
    saved: float
    training: float
    z: float

    @classmethod
    def of(cls, by_folds: Bools, by_model: Bools, was_held_out: Bools) -> "AlarmShares":
        """Count alarms.

        Parameters
        ----------
        by_folds : bool array of shape (held out,)
            Alarms of the models of the folds.
        by_model : bool array of shape (n,)
            Alarms of the saved model.
        was_held_out : bool array of shape (n,)
            Which of its rows the first array is about, in order.
        """
        same = by_model[was_held_out]
        only_folds, only_model = int((by_folds & ~same).sum()), int((same & ~by_folds).sum())
        z = (only_model - only_folds) / math.sqrt(max(1, only_model + only_folds))
        return cls(float(by_folds.mean()), float(same.mean()), float(by_model.mean()), z)

    @property
    def differ(self) -> bool:
        """Whether the two differ beyond noise."""
        low, high = sorted((self.folds, self.saved))
        return abs(self.z) > _Z and high > _FACTOR * low

    @property
    def notes(self) -> list[str]:
        """A sentence where they differ."""
        if not self.differ:
            return []
        return [
            f"the saved model raises {_per_1000(self.saved)} alarms per 1,000 of the rows held out, where the models "
            f"of the folds raised {_per_1000(self.folds)}: the figures above are theirs, not its own; judge it on "
            f"labelled rows that are new before relying on it"
        ]

    def __str__(self) -> str:
        return (
            f"alarms per 1,000 rows    {_per_1000(self.folds)} by the folds' models, {_per_1000(self.saved)} by the "
            f"saved model on the same rows, {_per_1000(self.training)} on all its rows"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return {"folds": self.folds, "saved_model": self.saved, "training": self.training, "differ": self.differ}


def _per_1000(share: float) -> str:
    return f"{1000.0 * share:,.4g}"
