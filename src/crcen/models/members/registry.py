"""The members of a committee by name, and classifiers of other libraries.

A new member is a file in this folder and an entry in `MEMBERS`.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.base import clone

from crcen.exceptions import InvalidParameter, MissingExtra
from crcen.models.members.catboost_trees import CatBoostTrees
from crcen.models.members.forest import Forest
from crcen.models.members.lightgbm_trees import LightGBMTrees, RandomTrees
from crcen.models.members.member import Chosen, FittedMember, MemberKind, MemberTask, fold_logits
from crcen.models.members.networks import Networks
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

    def column(self, k: int) -> "ExternalMember":
        """The log-odds of the second of two classes alone."""
        return replace(self, is_binary=True)

    def arrays(self) -> dict[str, Any]:
        """Refused: its state is not known here."""
        raise InvalidParameter(f"a committee with a {type(self.model).__name__} cannot be saved or exported.")


class External(MemberKind):
    """A classifier of another library with natural probabilities; it cannot be saved or exported."""

    def __init__(self, model: Estimator) -> None:
        self.model, self.name = model, type(model).__name__

    def search(self, task: MemberTask) -> FittedMember:
        """Fit it on each fold, and on all rows."""
        logits = []
        for i, (rows, held_out) in enumerate(task.folds):
            own = replace(task, X=task.X[rows], target=task.target[rows], weights=task.weights[rows], y=task.y[rows])
            logits.append(self.refit(own, ())[0].logits(task.X[held_out]))
            task.progress((i + 1) / (len(task.folds) + 1))
        return FittedMember(self.name, self.refit(task, ()), fold_logits(task, logits), ("as given",), 1)

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """The classifier on all rows."""
        options = {} if np.all(task.weights == task.weights[0]) else {"sample_weight": task.weights}
        model = clone(self.model).fit(task.X, task.y, **options)
        known = list(model.classes_)
        return (ExternalMember(model, tuple(known.index(one) if one in known else -1 for one in task.classes)),)


# In the order of the leaderboard.
MEMBERS: dict[str, MemberKind] = {
    kind.name: kind for kind in (Networks(), LightGBMTrees(), RandomTrees(), CatBoostTrees(), Forest())
}


def default_members(n_rows: int, n_classes: int, effort: str) -> tuple[list[MemberKind], list[str]]:
    """The default members of a committee, and notes on those that are not installed."""
    kinds = [kind for kind in MEMBERS.values() if effort in kind.efforts]
    wanted = [kind for kind in kinds if n_rows * (n_classes - 1 if kind.is_per_class else 1) <= kind.max_rows]
    notes = [
        f"{kind.name} is not installed: the committee is fitted without it; pip install 'crcen[{kind.extra}]' adds it"
        for kind in wanted
        if not kind.is_installed()
    ]
    return [kind for kind in wanted if kind.is_installed()], notes


def member_kind(member: str | Estimator) -> MemberKind:
    """The kind of a requested member: a name of `MEMBERS` or a classifier."""
    if hasattr(member, "fit") and hasattr(member, "predict_proba"):
        return External(member)
    if not isinstance(member, str) or member not in MEMBERS:
        known = ", ".join(MEMBERS)
        raise InvalidParameter(f"members must be of {known} or classifiers with predict_proba: got {member!r}.")
    kind = MEMBERS[member]
    if not kind.is_installed():
        raise MissingExtra(f"{kind.package} is not installed; get it with: pip install 'crcen[{kind.extra}]'")
    return kind
