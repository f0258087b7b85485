"""What `fit_table` fits and how it holds rows out: learners by name, folds, and the model's own error from refits."""

import time as clock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import StratifiedGroupKFold

from crcen import (
    Calibration,
    CommitteeClassifier,
    CRCENClassifierCV,
    Inputs,
    InvalidInput,
    InvalidParameter,
    Search,
    TableClassifier,
    TimeSplit,
    training_error,
)
from crcen._support.progress import busy
from crcen._support.values import json_value
from crcen.commands.inputs import Rows, dates_of, times_of
from crcen.commands.prices import Weighting
from crcen.exceptions import TrainingFailed
from crcen.theory.goals import ThresholdGoal
from crcen.theory.residual_test import TrainingError

LEARNERS = ("committee", "networks", "trees")
Learner = CRCENClassifierCV | CommitteeClassifier

_MANY = 10_000
EFFORTS = ("quick", "standard", "best")
# One setting instead of a search.
QUICK: dict[str, Any] = {"hidden": (16,), "l2": 1e-2, "encoding": "standard", "n_members": 1, "max_epochs": 10}
# With fewer positives, or rows of the rarest class, halves of the rows say nothing that an evaluation could use.
_FEWEST_POSITIVES = 10
_MOST_REFIT_ROWS = 5_000  # of a refit


def unfitted_learner(
    learner: str | None, estimator: Learner | None, time_limit: float | None, n_rows: int, effort: str = "standard"
) -> Learner:
    """The estimator for a learner and an effort, or a copy of the given one; many rows are searched more cheaply."""
    if effort not in EFFORTS:
        raise InvalidParameter(f"effort must be one of {', '.join(EFFORTS)}: got {effort!r}.")
    if effort != "standard" and (estimator is not None or learner == "networks" or (effort == "quick" and learner)):
        raise InvalidParameter(
            f"effort={effort!r} must go without a learner of its own: quick is one network, best a committee or trees."
        )
    if learner is not None and learner not in LEARNERS:
        raise InvalidParameter(f"learner must be one of {', '.join(LEARNERS)}: got {learner!r}.")
    if time_limit is not None and (estimator is not None or learner == "networks"):
        raise InvalidParameter("time_limit must go with the learner trees or committee: a search of networks has none.")
    if time_limit is not None and not time_limit > 0:
        raise InvalidParameter(f"time_limit must be a number of seconds above 0: got {time_limit!r}.")
    if estimator is not None:
        if learner is not None:
            raise InvalidParameter(f"learner must be left out where an estimator is given: got {learner!r}.")
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
    l2, encoding, search = (1e-3, 1e-2, 1e-1), Inputs(bins=8), Search(widen=True)
    return CRCENClassifierCV(hidden=(64,), l2=l2, n_members=2, encoding=encoding, search=search)


def learner_lines(fitted: Learner, validation: str) -> list[str]:
    """The chosen settings: a line for networks, a leaderboard for a committee."""
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


def learner_values(fitted: Learner) -> dict[str, Any]:
    """The same as plain values; a committee has a ``leaderboard``, networks have ``network``, their best setting."""
    if isinstance(fitted, CommitteeClassifier):
        lines = [json_value(one) for one in fitted.leaderboard_]
        learner = "committee" if len(lines) > 2 else lines[0]["name"]
        return {"learner": learner, "network": None, "networks": [], "leaderboard": lines}
    names = ("hidden", "l2", "encoding", "epochs")
    networks = [
        {**{name: json_value(chosen[name]) for name in names}, "members": fitted.n_members}
        for chosen in fitted.best_settings_
    ]
    return {"learner": "networks", "network": networks[0], "networks": networks, "leaderboard": []}


def shift_line(estimator: Learner) -> str:
    """The shift of the log-odds that solves the key equation of held-out rows, for two classes."""
    if isinstance(getattr(estimator, "weighting", None), ThresholdGoal):
        return "log-odds not shifted to solve it: the price is where the goal is met"
    balance = Calibration.of(getattr(estimator, "calibration", "out_of_fold")).balance
    if balance in ("auto", "oof") and estimator.oof_shift_ == 0.0:
        return "log-odds not shifted to solve it: later rows differ in both directions"
    return f"log-odds then shifted by {estimator.oof_shift_:+.3f} to solve it"


def folds_of(
    rows: Rows, clusters: str | None, time: str | None, n_splits: int, seed: int
) -> tuple[int | TimeSplit | StratifiedGroupKFold, str]:
    """The splitter of the search, and what to call it."""
    if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 2:
        raise InvalidParameter(f"n_splits must be a whole number of at least 2: got {n_splits!r}.")
    sizes = np.unique(rows.y, return_counts=True)[1]
    # Of several classes those with fewer rows than folds are held out in some of them.
    rarest = int(sizes.min() if len(sizes) == 2 or clusters is not None or time is not None else sizes.max())
    if time is not None:
        count = _folds_over_time(rows, time, max(1, min(n_splits, rarest - 1)))
        return TimeSplit(count), f"{count} fold{'s' * (count > 1)} of later rows by {time}"
    if clusters is None:
        count = min(n_splits, rarest)
        return count, f"{count} stratified folds"
    count = min(n_splits, max(rarest, 2), rows.frame[clusters].nunique())
    if count < 2:
        raise InvalidInput(f"clusters must have at least two different values: {clusters} has one.")
    return StratifiedGroupKFold(count, shuffle=True, random_state=seed), f"{count} folds that keep {clusters} together"


def _folds_over_time(rows: Rows, time: str, most: int) -> int:
    """As many folds as the moments of the rows allow: there may be few, as with a column of years."""
    when = times_of(rows.frame[time], time)
    for count in range(most, 1, -1):
        try:
            list(TimeSplit(count).split(None, rows.y, when))
        except InvalidInput:
            continue
        return count
    return 1


def times_or_clusters(rows: Rows, clusters: str | None, time: str | None) -> NDArray[Any] | None:
    """What keeps rows together or in order for the splitter, or None."""
    import pandas as pd

    if clusters is not None:
        return pd.factorize(rows.frame[clusters])[0]
    return None if time is None else times_of(rows.frame[time], time)


def goal_in_rows(weighting: Weighting, rows: Rows, time: str | None) -> Weighting:
    """A capacity for a day or a week converted to these rows; any other weighting unchanged."""
    if not isinstance(weighting, ThresholdGoal) or weighting.period is None:
        return weighting
    if time is None:
        raise InvalidParameter(f"{weighting} needs time=, the column of dates from which rows per day are counted.")
    days = dates_of(rows.frame[time], time).astype("datetime64[D]").astype(np.int64)
    return weighting.over_days(days)


def measure_training_error(
    model: TableClassifier,
    encoded: NDArray[np.float64],
    labels: NDArray[Any],
    weights: NDArray[np.float64] | None,
    n_refits: int,
    seed: int,
    verbose: int,
    until: float | None = None,
) -> TrainingError | None:
    """Measure the error of a fitted model's mean log-odds from refits, and keep it as ``training_error_``.

    ``encoded`` and ``labels`` are its training rows; ``until`` is the `time.perf_counter` by which refits must be done.
    None if it was not measured: evaluations then assume the usual error of models of this kind.
    """
    if isinstance(n_refits, bool) or not isinstance(n_refits, int) or n_refits < 0 or n_refits in (1, 2):
        raise InvalidParameter(f"n_refits must be 0, or a whole number of at least 3: got {n_refits!r}.")
    price = model.weighting_
    fewest = float(price.counts.min() if price.positive is None else price.n_pos)
    if not n_refits or fewest < _FEWEST_POSITIVES:
        return None
    with busy("measuring the model's error", visible=bool(verbose)):
        try:
            if until is not None and not _is_in_time(model.estimator_, encoded, labels, n_refits, until):
                return None
            model.training_error_ = training_error(
                model.estimator_, encoded, labels, sample_weight=weights, n_fits=n_refits, random_state=seed
            )
        except (InvalidInput, TrainingFailed):  # a part of the rows lacks one class, or leaves no network
            return None
    return model.training_error_


def _is_in_time(estimator: Learner, X: NDArray[np.float64], y: NDArray[Any], n_refits: int, until: float) -> bool:
    """Whether refits can be done by a time; one of them is timed."""
    start = clock.perf_counter()
    if start > until:
        return False
    rows = np.random.default_rng(0).permutation(len(y))[: min(len(y) // 2, _MOST_REFIT_ROWS)]
    if hasattr(estimator, "refit_on"):
        estimator.refit_on(X[rows], y[rows])
    now = clock.perf_counter()
    return now + n_refits * (now - start) <= until
