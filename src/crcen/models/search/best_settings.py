"""The best few settings of a search instead of the one best: their networks on all rows, and out of fold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import part_of
from crcen.exceptions import TrainingFailed
from crcen.models.clock import OutOfTime
from crcen.models.search.borders import Borders, widened
from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.run import SearchRun, choose
from crcen.training.jobs import Status, TrainingResult
from crcen.training.network import NetworkGroup

__all__ = ["BestSettings", "Refitted", "best_few", "best_settings", "refit_settings"]

Array = NDArray[np.float64]
Progress = Callable[[float], None]


@dataclass(frozen=True, eq=False)
class Refitted:
    """A setting's outcome, its networks on all rows, and their mean logit at the price out of fold."""

    outcome: Outcome
    results: list[TrainingResult]
    oof: Array


def best_few(outcomes: list[Outcome], best: int, n_settings: int) -> list[Outcome]:
    """The outcome at ``best``, and the next best of its weighting that ran to their end.

    Parameters
    ----------
    outcomes
        Of a search.
    best
        Position of the one that was chosen.
    n_settings
        How many to give at most.
    """
    chosen = outcomes[best]
    rivals = [
        one
        for one in outcomes
        if one is not chosen
        and not one.is_dropped
        and np.isfinite(one.merit)
        and one.setting.weighting_index == chosen.setting.weighting_index
    ]
    return [chosen, *sorted(rivals, key=lambda one: -one.merit)[: n_settings - 1]]


def refit_settings(run: SearchRun, kept: list[Outcome], n_members: int, progress: Progress) -> list[Refitted]:
    """Networks of some settings on all rows; a setting that leaves no finite network is left out, the first never."""
    found: list[Refitted] = []
    for i, outcome in enumerate(kept):
        results, oof = run.refit(outcome, n_members, part_of(progress, i / len(kept), (i + 1) / len(kept)))
        if not found or any(result.network is not None for result in results):
            found.append(Refitted(outcome, results, oof))
    return found


@dataclass(frozen=True, eq=False)
class BestSettings:
    """Networks of the best settings of a search.

    Parameters
    ----------
    outcomes
        The settings, best first.
    groups
        Their networks on all rows.
    logits
        Natural logits (n, K) of each out of fold; NaN for rows in no test fold.
    """

    outcomes: list[Outcome]
    groups: list[NetworkGroup]
    logits: list[Array]


def best_settings(
    run: SearchRun,
    settings: list[Setting],
    *,
    n_settings: int,
    n_members: int,
    progress: Progress,
    borders: Borders | None = None,
) -> BestSettings:
    """Search, and refit the best few settings with some networks each.

    Parameters
    ----------
    run
        The search; its settings must share one weighting.
    settings
        The grid.
    n_settings, n_members
        How many settings are kept at most, and networks of each.
    progress
        Called with the share of the work that is done.
    borders
        Which borders of the grid may be crossed where the best setting is on one; ``None`` for none.
    """
    outcomes = run.screened(settings, progress=part_of(progress, 0.0, 0.5))
    if borders is not None:
        outcomes = widened(run, outcomes, borders, progress=part_of(progress, 0.5, 0.6))
    ranked = best_few(outcomes, choose(outcomes, one_standard_error=False), n_settings)
    kept: list[Outcome] = []
    groups: list[NetworkGroup] = []
    logits: list[Array] = []
    for i, outcome in enumerate(ranked):
        begin, end = 0.6 + 0.4 * i / n_settings, 0.6 + 0.4 * (i + 1) / n_settings
        if not groups and hasattr(run.train, "reserve"):
            run.train.reserve = 0.0
        try:
            results, oof = run.refit(outcome, n_members, part_of(progress, begin, end))
        except OutOfTime:
            if groups:
                break
            raise
        networks = [result.network for result in results if result.network is not None]
        if networks:
            kept.append(outcome)
            groups.append(NetworkGroup.of(networks))
            logits.append(oof - run.rows.resolve(outcome.setting.weighting).log_weights)
    if not groups:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}.")
    return BestSettings(kept, groups, logits)
