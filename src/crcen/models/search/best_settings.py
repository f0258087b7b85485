"""The best few settings of a search instead of the one best: their networks on all rows, and out of fold."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen._support.progress import part_of
from crcen.exceptions import TrainingFailed
from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.run import SearchRun
from crcen.training.jobs import Status
from crcen.training.members import NetworkGroup

__all__ = ["BestSettings", "best_settings"]

Array = NDArray[np.float64]
Progress = Callable[[float], None]


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
        Their mean natural logit out of fold; NaN for rows in no test fold.
    """

    outcomes: list[Outcome]
    groups: list[NetworkGroup]
    logits: Array


def best_settings(
    run: SearchRun,
    settings: list[Setting],
    *,
    n_settings: int,
    n_members: int,
    progress: Progress,
    is_late: Callable[[], bool] = lambda: False,
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
    is_late
        Whether nothing further should begin that is not needed for one setting.
    """
    outcomes = run.outcomes(settings, halving=True, progress=part_of(progress, 0.0, 0.6), is_late=is_late)
    ranked = sorted((one for one in outcomes if not one.is_dropped), key=lambda one: -one.merit)
    kept: list[Outcome] = []
    groups: list[NetworkGroup] = []
    logits: list[Array] = []
    for i, outcome in enumerate(ranked[:n_settings]):
        if groups and is_late():
            break
        begin, end = 0.6 + 0.4 * i / n_settings, 0.6 + 0.4 * (i + 1) / n_settings
        results, oof = run.refit(outcome, n_members, part_of(progress, begin, end))
        networks = [result.network for result in results if result.network is not None]
        if networks:
            kept.append(outcome)
            groups.append(NetworkGroup.of(networks))
            logits.append(oof - run.rows.resolve(outcome.setting.weighting).logit_shift)
    if not groups:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}.")
    return BestSettings(kept, groups, np.mean(logits, axis=0))
