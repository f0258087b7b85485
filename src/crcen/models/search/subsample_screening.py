"""Screening of settings on a subsample: in large tables, settings that cannot win are not trained on all rows.

Every setting is trained for a short schedule on a sample of each fold's rows and scored on a sample of those held out.
The best quarter is then trained from the start on all rows; the subsample does not influence those results.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.search.grid import Outcome, Setting
from crcen.training.engines import trainer_on_some

__all__ = ["screen_on_subsample"]

Index = NDArray[np.int64]
Progress = Callable[[float], None]

# Rows of the subsample, or their share if that is more; tables with fewer than twice as many rows are not screened.
_ROWS, _SHARE = 5_000, 1 / 8
# Rows that each class must have in it, and in what a fold of it trains on and holds out.
_ROWS_OF_A_CLASS, _TRAINED, _HELD_OUT = 300, 20, 5
# Fewer settings of a weighting than this are not screened; of the others this share is kept.
_FEWEST_SETTINGS, _KEPT_SHARE = 8, 1 / 4
# Its schedule, and which share of the settings is left after a part of it.
_EPOCHS = 10
_RUNGS = ((0.4, 0.5),)


def screen_on_subsample(
    run: Any,
    settings: Sequence[Setting],
    *,
    progress: Progress,
) -> dict[int, Outcome]:
    """The rejected settings, by position, with their outcomes on the subsample; none where rows are few.

    Parameters
    ----------
    run
        The search on all rows, a `SearchRun`.
    settings
        The grid, settled.
    progress
        As in `SearchRun.outcomes`.
    """
    rivals: dict[int, list[int]] = {}
    for i, setting in enumerate(settings):
        if setting.recipe.draws_batches:  # the others are trained in full, by other steps
            rivals.setdefault(setting.weighting_index, []).append(i)
    screened = [i for own in rivals.values() if len(own) >= _FEWEST_SETTINGS for i in own]
    own = sampled_rows(run.rows.engine_target, run.rows.weights, run.seed) if screened else None
    folds = None if own is None else folds_within(run.rows.folds, own, run.rows.target)
    if own is None or folds is None:
        return {}
    rows = run.rows
    few = replace(rows.take(own), folds=folds)
    times = len(rows.X) / len(own)
    short = [_on_fewer_rows(settings[i], times) for i in screened]
    sample = replace(run, rows=few, train=trainer_on_some(run.train, own))
    found = sample.outcomes(short, halving=True, progress=progress, rungs=_RUNGS)
    outcomes = dict(zip(screened, found, strict=True))
    behind: dict[int, Outcome] = {}
    for positions in rivals.values():
        ranked = sorted(
            (i for i in positions if i in outcomes), key=lambda i: (outcomes[i].is_dropped, -outcomes[i].merit)
        )
        for i in ranked[max(2, math.ceil(_KEPT_SHARE * len(ranked))) :]:
            logits = np.full((len(rows.X), *outcomes[i].logits.shape[1:]), np.nan)
            logits[own] = outcomes[i].logits
            behind[i] = replace(outcomes[i], setting=settings[i], logits=logits, is_dropped=True)
    return behind


def _on_fewer_rows(setting: Setting, times: float) -> Setting:
    """A setting for a subsample with so many times fewer rows."""
    recipe = setting.recipe
    epochs = min(_EPOCHS, int((recipe.max_epochs or _EPOCHS) * times))
    return replace(setting, recipe=recipe.on_fewer_rows(times).replace(max_epochs=epochs))


def sampled_rows(target: NDArray[Any], weights: NDArray[np.float64], seed: int) -> Index | None:
    """Rows of the subsample, in order, each class by its share; ``None`` where half of all rows would not do."""
    used = np.flatnonzero(weights > 0)
    labels, counts = np.unique(target[used], return_counts=True)
    share = max(_ROWS / len(used), _SHARE, _ROWS_OF_A_CLASS / counts.min())
    if share > 0.5:
        return None
    rng = np.random.default_rng([seed, 3])
    parts = [rng.choice(used[target[used] == label], round(share * n), replace=False)
             for label, n in zip(labels, counts, strict=True)]  # fmt: skip
    return np.sort(np.concatenate(parts))


def folds_within(folds: Sequence[tuple[Index, Index]], own: Index, target: NDArray[Any]) -> Any:
    """The folds as far as they are within some rows, counted there; ``None`` where a class is too rare in one."""
    place = np.full(len(target), -1)
    place[own] = np.arange(len(own))
    labels, found = np.unique(target), []
    for fold in folds:
        parts = []
        for part, fewest in zip(fold, (_TRAINED, _HELD_OUT), strict=True):
            inside = place[part]
            inside = inside[inside >= 0]
            if min(np.sum(target[own[inside]] == label) for label in labels) < fewest:
                return None
            parts.append(inside)
        found.append(tuple(parts))
    return found
