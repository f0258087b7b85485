"""A search over boosted trees on given folds: settings in parts, the hopeless left behind, the best few kept.

On many rows the settings are first compared on a sample of each fold's training rows, and only the best few grow on all
of them.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.boosting import BinnedRows, Booster, log_loss
from crcen.models.trees.class_trees import ClassTrees
from crcen.models.trees.setting import MANY_SETTINGS, TREE_SETTINGS, TreeSetting

__all__ = ["SEARCH_SHARE", "TreeOutcome", "fit_trees", "search_trees"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]
Folds = Sequence[tuple[Index, Index]]


# Trees after which settings are compared, and the share of them that goes on.
_PARTS = ((30, 0.5), (80, 0.34), (200, 0.22), (400, 0.0))
# The same on a sample, and then on all of many rows, where so many settings at most grow.
_SAMPLE_PARTS, _MANY_PARTS, _MANY_BEST = ((40, 0.5), (100, 0.0)), ((100, 1.0), (250, 0.0)), 2
# A sample has this many rows and, if there are so many, this many of the rarer class.
_SAMPLE_ROWS, _SAMPLE_RARE = 30_000, 1_000
SEARCH_SHARE = 0.7  # of a time limit: what is left is for the fit on all rows
_LOOK = 20  # trees after which it is seen whether more are of use
_WITHOUT_GAIN = 0.3  # a setting whose loss was least before this last share of its trees is done


@dataclass(frozen=True, eq=False)
class TreeOutcome:
    """A setting's best number of trees, its mean log loss over the folds there, and its out-of-fold logits."""

    setting: TreeSetting
    n_trees: int
    loss: float
    logits: Array


class _Trial:
    """One setting on every fold."""

    def __init__(self, setting: TreeSetting, folds: Sequence[BinnedRows], seed: int) -> None:
        self.setting = setting
        self.boosters = [Booster(rows, setting, seed + 1 + fold) for fold, rows in enumerate(folds)]

    @property
    def losses(self) -> Array:
        """Mean loss over the folds after each tree that all of them have."""
        grown = min(booster.n_rounds for booster in self.boosters)
        return np.mean([booster.losses[:grown] for booster in self.boosters], axis=0)

    @property
    def n_trees(self) -> int:
        """The number of trees with the least loss."""
        return int(np.argmin(self.losses)) + 1

    @property
    def is_done(self) -> bool:
        """Whether more trees no longer help."""
        return self.n_trees <= (1.0 - _WITHOUT_GAIN) * len(self.losses)

    @property
    def loss(self) -> float:
        return float(self.losses.min())


def search_trees(
    X: Array,
    target: NDArray[Any],
    weights: Array,
    folds: Folds,
    *,
    seed: int,
    settings: Sequence[TreeSetting] | None = None,
    n_best: int = 3,
    threads: int = 1,
    time_limit: float | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[TreeOutcome]:
    """Outcomes of the best settings among those that were run to their end, best first, to be averaged.

    Columns are cut into bins once a fold, for all settings. Fits run side by side, each on its share of the threads.
    What comes out does not depend on their number: histogram boosting adds up the rows of each column in one order,
    whoever does it.

    Parameters
    ----------
    X, target, weights
        All rows, which are positive (or class numbers from 0 where there are more than two), their weights.
    folds
        Training and held-out rows.
    seed
        For the columns that trees may use, and the samples.
    settings
        What to try, the likeliest first; `TREE_SETTINGS` by default.
    n_best
        How many outcomes are given at most; fewer where the mean of their logits is better out of fold.
    threads
        Processors to use.
    time_limit
        Seconds; once most of them are gone no fit begins that is not needed for a first outcome, and one outcome alone
        is given, so that a fit on all rows is in time too.
    progress
        Called with the share of the parts that are done.
    """
    begun = time.perf_counter()

    def is_late() -> bool:
        return time_limit is not None and time.perf_counter() - begun > SEARCH_SHARE * time_limit

    pool = _Threads(threads)
    tried = list(TREE_SETTINGS if settings is None else settings)
    sampled = _sampled(folds, target, weights, seed)

    def trials(of: Folds) -> list[_Trial]:
        binned = pool.each(lambda fold: BinnedRows.of(X, target, weights, *fold), of)
        return [_Trial(setting, binned, seed) for setting in tried]

    parts: Sequence[tuple[int, float]] = _PARTS
    if sampled is not None and len(tried) > n_best:
        tried = list(MANY_SETTINGS) if settings is None else tried
        first = _race(trials(sampled), _SAMPLE_PARTS, pool, is_late, progress)
        n_kept = 1 if is_late() else min(n_best, _MANY_BEST)
        tried, parts = [trial.setting for trial in first[:n_kept]], _MANY_PARTS
        del first
    done = _race(trials(folds), parts, pool, is_late, progress)
    outcomes = [_outcome(trial, folds, len(X), pool) for trial in done[: 1 if is_late() else n_best]]
    progress(1.0)
    return outcomes[: _how_many(outcomes, target, weights)]


def _how_many(outcomes: Sequence[TreeOutcome], target: NDArray[Any], weights: Array) -> int:
    """As many of the best settings as serve best together: the mean of their out-of-fold logits has the least loss.

    Where one setting is far ahead, the mean with others would be worse than it is alone.
    """
    logits = np.array([one.logits for one in outcomes])
    known = np.isfinite(logits[0].reshape(len(target), -1)).all(axis=1)
    means = np.cumsum(logits[:, known], axis=0) / np.arange(1, len(outcomes) + 1).reshape(-1, *[1] * (logits.ndim - 1))
    losses = [log_loss(mean.reshape(len(mean), -1), target[known], weights[known]) for mean in means]
    return int(np.argmin(losses)) + 1


def _race(
    trials: list[_Trial],
    parts: Sequence[tuple[int, float]],
    pool: "_Threads",
    is_late: Callable[[], bool],
    progress: Callable[[float], None],
) -> list[_Trial]:
    """The trials that were run to their end, best first: in every part the others grow, and the worse half stops."""
    running, done, before = list(trials), list[_Trial](), 0
    for part, (n_trees, keep) in enumerate(parts):
        looks = range(before + _LOOK, n_trees, _LOOK) if before else ()
        for look in (*looks, n_trees):
            _grow([trial for trial in running if trial not in done], look, pool, is_late)
            done += [trial for trial in running if trial not in done and len(trial.losses) and trial.is_done]
        progress((part + 1) / (len(parts) + 1))
        before = n_trees
        running = [trial for trial in running if len(trial.losses) and trial not in done]
        if keep == 0.0 or is_late():
            break
        ranked = sorted((trial for trial in trials if len(trial.losses)), key=lambda trial: trial.loss)
        ahead = ranked[: max(2, round(keep * len(trials)))]
        running = [trial for trial in running if trial in ahead]
        if not running:
            break
    return sorted([*done, *running], key=lambda trial: trial.loss)


def _sampled(folds: Folds, target: NDArray[Any], weights: Array, seed: int) -> Folds | None:
    """The folds with a sample of their training rows, as rare as they are; nothing where that would save little."""
    rng = np.random.default_rng([seed, len(target)])
    found = []
    for rows, held_out in folds:
        own = rows[weights[rows] > 0]
        labels = (True, False) if target.dtype == np.bool_ else range(int(target.max()) + 1)
        classes = [own[target[own] == label] for label in labels]
        rarer = max(1, min(map(len, classes)))
        share = max(_SAMPLE_ROWS / max(1, len(own)), _SAMPLE_RARE / rarer)
        if share > 0.5:
            return None
        kept = [rng.choice(one, max(1, round(share * len(one))), replace=False) for one in classes]
        judged = held_out
        if len(held_out) > _SAMPLE_ROWS:
            judged = rng.choice(held_out, max(_SAMPLE_ROWS, round(share * len(held_out))), replace=False)
        found.append((np.sort(np.concatenate(kept)), np.sort(judged)))
    return found


def fit_trees(
    X: Array,
    target: NDArray[Any],
    weights: Array,
    settings: Sequence[tuple[TreeSetting, int]],
    *,
    seed: int,
    threads: int = 1,
) -> list[BoostedTrees | ClassTrees]:
    """The trees of each (setting, number of trees) on all rows."""
    nobody = np.empty(0, dtype=np.int64)
    rows = BinnedRows.of(X, target, weights, np.arange(len(X)), nobody)
    pool = _Threads(threads)

    def fit(one: tuple[int, tuple[TreeSetting, int]]) -> BoostedTrees | ClassTrees:
        number, (setting, n_trees) = one
        booster = Booster(rows, setting, seed + number)
        booster.grow(n_trees, pool.share(len(settings)))
        return booster.trees()

    return pool.each(fit, list(enumerate(settings)))


def _grow(trials: Sequence[_Trial], n_trees: int, pool: "_Threads", is_late: Callable[[], bool]) -> None:
    """Bring trials to so many trees, and their losses on held-out rows with them.

    Once it is late a trial stays where it is; the first of all grows anyhow, where it has no trees yet.
    """
    work = [(trial, booster) for trial in trials for booster in trial.boosters]

    def grow(one: tuple[_Trial, Booster]) -> None:
        trial, booster = one
        if not is_late() or (trial is trials[0] and not booster.n_rounds):
            booster.grow(n_trees, pool.share(len(work)))

    pool.each(grow, work)


def _outcome(trial: _Trial, folds: Folds, n_rows: int, pool: "_Threads") -> TreeOutcome:
    n_trees = trial.n_trees
    found = pool.each(lambda booster: booster.held_out_logits(n_trees), trial.boosters)
    logits = np.full((n_rows, *found[0].shape[1:]), np.nan)
    for (_, held_out), own in zip(folds, found, strict=True):
        logits[held_out] = own
    return TreeOutcome(trial.setting, n_trees, trial.loss, logits)


@dataclass(frozen=True)
class _Threads:
    """Work side by side on so many processors."""

    count: int

    def share(self, n_works: int) -> int:
        """Threads inside each of so many works."""
        return max(1, self.count // max(1, n_works))

    def each(self, function: Callable[[Any], Any], work: Sequence[Any]) -> list[Any]:
        """The function's answers."""
        if self.count <= 1 or len(work) <= 1:
            return [function(one) for one in work]
        with ThreadPoolExecutor(min(self.count, len(work))) as pool:
            return list(pool.map(function, work))
