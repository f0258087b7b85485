"""What `fit_table` fits: a search over networks, trees or a committee of both; and what to say of it."""

from dataclasses import asdict
from typing import Any

from sklearn.base import clone

from crcen import CommitteeClassifier, CRCENClassifierCV, Inputs, InvalidParameter, Search
from crcen._support.values import json_value
from crcen.theory.goals import ThresholdGoal

__all__ = ["LEARNERS", "Learner", "QUICK", "closing_move", "learner_lines", "learner_values", "unfitted_learner"]

LEARNERS = ("committee", "networks", "trees")
Learner = CRCENClassifierCV | CommitteeClassifier

_MANY = 10_000
EFFORTS = ("quick", "standard", "best")
# One setting instead of a search.
QUICK: dict[str, Any] = {"hidden": (16,), "l2": 1e-2, "encoding": "standard", "n_members": 1, "max_epochs": 10}


def unfitted_learner(
    learner: str | None, estimator: Any, time_limit: float | None, n_rows: int, effort: str = "standard"
) -> Learner:
    """The estimator that a name stands for, or a copy of the one that was given.

    Parameters
    ----------
    learner : {"committee", "networks", "trees"} or None
        What to fit; by default a committee.
    estimator : CRCENClassifierCV, CommitteeClassifier or None
        What to fit instead.
    time_limit : float or None
        Seconds for trees or a committee.
    n_rows : int
        Rows of training; over many, networks are searched with fewer settings.
    effort : {"quick", "standard", "best"}
        ``"quick"`` is one network without a search.
    """
    if effort not in EFFORTS:
        raise InvalidParameter(f"effort must be one of {', '.join(EFFORTS)}: got {effort!r}.", parameter="effort")
    if effort != "standard" and (estimator is not None or learner == "networks" or (effort == "quick" and learner)):
        raise InvalidParameter(
            f"effort={effort!r} must go without a learner of its own: quick is one network, best a committee or trees.",
            parameter="effort",
        )
    if learner is not None and learner not in LEARNERS:
        raise InvalidParameter(f"learner must be one of {', '.join(LEARNERS)}: got {learner!r}.", parameter="learner")
    if time_limit is not None and (estimator is not None or learner == "networks"):
        raise InvalidParameter(
            "time_limit must go with the learner trees or committee: a search of networks has none.",
            parameter="time_limit",
        )
    if time_limit is not None and not time_limit > 0:
        raise InvalidParameter(
            f"time_limit must be a number of seconds above 0: got {time_limit!r}.", parameter="time_limit"
        )
    if estimator is not None:
        if learner is not None:
            raise InvalidParameter(
                f"learner must be left out where an estimator is given: got {learner!r}.", parameter="learner"
            )
        if not isinstance(estimator, Learner):
            raise InvalidParameter(
                f"estimator must be a CRCENClassifierCV or a CommitteeClassifier: got {type(estimator).__name__}."
            )
        return clone(estimator)
    if learner == "networks":
        return _networks(n_rows)
    if effort == "quick" and time_limit is None:
        return CRCENClassifierCV(**QUICK)
    members = ("trees",) if learner == "trees" else None
    return CommitteeClassifier(members=members, effort=effort, time_limit=time_limit)


def _networks(n_rows: int) -> CRCENClassifierCV:
    """The search of the command: that of the class. On many rows, where settings differ less and cost more, fewer."""
    if n_rows <= _MANY:
        return CRCENClassifierCV()
    l2, inputs, search = (1e-3, 1e-2, 1e-1), Inputs(bins=8), Search(widen=True)
    return CRCENClassifierCV(hidden=(64,), l2=l2, n_members=2, inputs=inputs, search=search)


def learner_lines(fitted: Any, validation: str) -> list[str]:
    """What was chosen: a line for networks, a leaderboard for a committee."""
    if isinstance(fitted, CommitteeClassifier):
        weights = ", ".join(f"{one.name} {one.weight:.3g}" for one in fitted.leaderboard_[:-1])
        title = "Committee" if len(fitted.leaderboard_) > 2 else "Trees    "
        return [
            f"{title} weights of log-odds: {weights}; all below by {validation}",
            f"  {'':<20} {'weight':>6}  {'log loss':>9}  {'average precision':>17}  {'ROC AUC':>8}  {'time':>9}",
            *(f"  {one}" for one in fitted.leaderboard_),
            *(f"  {one.name}: {line}" for one in fitted.leaderboard_ for line in one.settings),
        ]
    lines: list[str] = []
    for chosen in fitted.best_settings_:
        hidden = "-".join(map(str, chosen["hidden"])) or "none"
        lines.append(
            f"{'' if lines else 'Network':<9} {fitted.n_members} × hidden units {hidden}, {chosen['encoding']} inputs, "
            f"l2 {chosen['l2']:g}, {chosen['epochs'] or fitted.n_iter_} epochs"
        )
    return [*lines[:-1], f"{lines[-1]}, chosen by {validation}"]


def learner_values(fitted: Any) -> dict[str, Any]:
    """The same as plain values; a committee has a ``leaderboard``, networks have ``network``, their best setting."""
    if isinstance(fitted, CommitteeClassifier):
        lines = [{name: json_value(value) for name, value in asdict(one).items()} for one in fitted.leaderboard_]
        return {
            "learner": "committee" if len(lines) > 2 else lines[0]["name"],
            "network": None,
            "networks": [],
            "leaderboard": [one | {"settings": list(one["settings"])} for one in lines],
        }
    networks = [
        {
            "hidden": list(chosen["hidden"]),
            "l2": chosen["l2"],
            "encoding": chosen["encoding"],
            "epochs": chosen["epochs"],
            "members": fitted.n_members,
        }
        for chosen in fitted.best_settings_
    ]
    return {"learner": "networks", "network": networks[0], "networks": networks, "leaderboard": []}


def closing_move(estimator: Learner) -> str:
    """What was done about a key equation that does not hold out of fold."""
    if isinstance(getattr(estimator, "weighting", None), ThresholdGoal):
        return "log-odds not moved to close it: the price is where the wish is met"
    if getattr(estimator, "balance", "oof") in ("auto", "oof") and estimator.oof_shift_ == 0.0:
        return "log-odds not moved to close it: later rows differ in both directions"
    return f"log-odds then moved by {estimator.oof_shift_:+.3f} to close it"
