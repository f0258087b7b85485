"""The border of a grid: further points where the best one is on it, and what is still there in the end, said.

A search can only choose what it tried. On many rows weak penalties and long schedules win, on few rows strong ones; a
grid that fits both would be large, and most of it wasted. So the grid grows where it turns out to be too small, a step
at a time, and no further than a few steps.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from crcen._support.progress import part_of
from crcen.models.clock import OutOfTime
from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.run import SearchRun

__all__ = ["Borders", "border_notes", "widened"]

Progress = Callable[[float], None]

# Steps beyond the grid that are taken at most; each but the last must be an improvement.
_STEPS = 3
# A step that gains less than this share of the score is the last: on many rows a longer schedule is always a little
# better, and its folds cost as much as the whole search.
_WORTH_A_FURTHER_STEP = 0.005
# A schedule is doubled up to this many epochs: what tables of few rows have from the start.
_LONGEST_SCHEDULE = 30
# One that can grow by less than this is left as it is.
_WORTH_GROWING = 1.5


@dataclass(frozen=True)
class Borders:
    """Which borders of a grid may be crossed.

    Parameters
    ----------
    l2
        Smaller and larger penalties than the grid has.
    epochs
        Longer schedules.
    """

    l2: bool
    epochs: bool


def widened(
    run: SearchRun,
    outcomes: list[Outcome],
    borders: Borders,
    *,
    progress: Progress,
) -> list[Outcome]:
    """The outcomes of a search and of points beyond its grid, as far as the best point is on a border.

    Parameters
    ----------
    run
        The search.
    outcomes
        Of its grid.
    borders
        Which of them may be crossed.
    progress
        Called with the share of the work that is done.
    """
    found, tried = list(outcomes), {_key(outcome.setting) for outcome in outcomes}
    for step in range(_STEPS):
        candidates = [s for s in _beyond(_best(found), found, borders) if _key(s) not in tried]
        if not candidates:
            break
        tried.update(map(_key, candidates))
        before = _best(found)
        own = part_of(progress, step / _STEPS, (step + 1) / _STEPS)
        try:
            found += run.outcomes(candidates, halving=False, progress=own)
        except OutOfTime:
            break
        if not _best(found).merit - before.merit >= _WORTH_A_FURTHER_STEP * abs(before.merit):
            break
    progress(1.0)
    return found


def border_notes(chosen: Outcome, outcomes: Sequence[Outcome]) -> list[str]:
    """What of the chosen setting is still the last of its kind that was tried, a sentence each."""
    notes, recipe = [], chosen.setting.recipe
    penalties = _penalties(chosen, outcomes)
    if len(penalties) > 1 and recipe.l2 in (penalties[0], penalties[-1]):
        which, other = ("smallest", "smaller") if recipe.l2 == penalties[0] else ("largest", "larger")
        notes.append(f"the best l2, {recipe.l2:g}, is the {which} that was tried: a {other} one may serve better")
    if _is_at_the_end(chosen):
        notes.append(
            f"the best number of epochs, {chosen.epochs}, is the whole schedule: a longer one may serve better"
        )
    return notes


def _best(outcomes: Sequence[Outcome]) -> Outcome:
    return max(outcomes, key=lambda outcome: (not outcome.is_dropped, outcome.merit))


def _key(setting: Setting) -> tuple[object, ...]:
    recipe = setting.recipe
    return setting.weighting_index, recipe.hidden, recipe.encoding, recipe.l2, recipe.max_epochs


def _penalties(best: Outcome, outcomes: Sequence[Outcome]) -> list[float]:
    """Penalties that were tried with the weighting of an outcome, in order."""
    index = best.setting.weighting_index
    return sorted({one.setting.recipe.l2 for one in outcomes if one.setting.weighting_index == index})


def _is_at_the_end(outcome: Outcome) -> bool:
    recipe = outcome.setting.recipe
    return recipe.draws_batches and outcome.epochs is not None and outcome.epochs == recipe.max_epochs


def _beyond(best: Outcome, outcomes: Sequence[Outcome], borders: Borders) -> list[Setting]:
    """The neighbours of the best point on the other side of each border it is on."""
    recipe, found = best.setting.recipe, []
    penalties = _penalties(best, outcomes)
    if borders.l2 and len(penalties) > 1:
        if recipe.l2 == penalties[0] > 0.0:
            found.append(recipe.replace(l2=_rounded(penalties[0] ** 2 / penalties[1])))
        elif recipe.l2 == penalties[-1] and penalties[-2] > 0.0:
            found.append(recipe.replace(l2=_rounded(penalties[-1] ** 2 / penalties[-2])))
    epochs = recipe.max_epochs
    if borders.epochs and epochs is not None and _is_at_the_end(best):
        longer = min(2 * epochs, _LONGEST_SCHEDULE)
        if longer >= _WORTH_GROWING * epochs:
            found.append(recipe.replace(max_epochs=longer))
    return [replace(best.setting, recipe=one) for one in found]


def _rounded(l2: float) -> float:
    """A penalty as a person would write it."""
    return float(f"{l2:.6g}")
