"""Classifiers of other libraries as members; they cannot be saved or exported."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crcen.exceptions import InvalidParameter
from crcen.models.members.member import Chosen, FittedMember, MemberKind, MemberTask, fold_logits
from crcen.theory.rows import Array, Estimator
from crcen.training.network import Member

_CLIP = 1e-7  # a probability of exactly 0 or 1 has no logit


@dataclass(frozen=True, eq=False)
class ExternalMember:
    """A fitted classifier; ``columns`` are its columns of the classes, −1 for a class that it has not seen."""

    model: Estimator
    columns: tuple[int, ...]
    is_binary: bool = False

    def logits(self, X: Array) -> Array:
        """Logarithms of its probabilities, (n, K), or of two classes the log-odds of the second one, (n, 1)."""
        p = np.column_stack([np.asarray(self.model.predict_proba(X), dtype=np.float64), np.zeros(len(X))])
        logs = np.log(np.clip(p[:, list(self.columns)], _CLIP, 1.0))
        return logs[:, 1:] - logs[:, :1] if self.is_binary else logs

    def arrays(self) -> dict[str, Any]:
        """Refused: its state is not known here."""
        raise InvalidParameter(
            f"a committee with a {type(self.model).__name__} cannot be saved or exported; its own members can."
        )


class External(MemberKind):
    """A classifier of another library with natural probabilities."""

    def __init__(self, model: Estimator) -> None:
        self.model, self.name = model, type(model).__name__

    def search(self, task: MemberTask) -> FittedMember:
        """Fit it on each fold, and on all rows."""
        logits = []
        for i, (rows, held_out) in enumerate(task.folds):
            logits.append(self._fit(task, rows).logits(task.X[held_out]))
            task.progress((i + 1) / (len(task.folds) + 1))
        return FittedMember(self.name, self.refit(task, ()), fold_logits(task, logits), ("as given",), 1)

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """The classifier on all rows."""
        return (self._fit(task, np.arange(len(task.X))),)

    def _fit(self, task: MemberTask, rows: NDArray[np.int64]) -> ExternalMember:
        weights = task.weights[rows]
        options = {} if np.all(weights == weights[0]) else {"sample_weight": weights}
        model = clone(self.model).fit(task.X[rows], task.y[rows], **options)
        known = list(model.classes_)
        return ExternalMember(model, tuple(known.index(one) if one in known else -1 for one in task.classes))
