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
from crcen.models.trees.class_trees import ClassTrees
from crcen.theory.classes.log_sums import log_sum_exp

__all__ = ["SEARCH_SHARE", "TREE_SETTINGS", "TreeOutcome", "TreeSetting", "fit_trees", "search_trees"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]
Index = NDArray[np.int64]
Folds = Sequence[tuple[Index, Index]]


@dataclass(frozen=True)
class TreeSetting:
    """What is searched of boosted trees; as many as the folds' mean log loss wants."""

    leaves: int
    rows_a_leaf: int
    l2: float
    columns: float
    rate: float = 0.1


# Small and large trees, each with strong and weak penalties; the first are the ones that serve most tables.
TREE_SETTINGS = (
    TreeSetting(31, 20, 0.0, 1.0),
    TreeSetting(8, 20, 1.0, 0.5),
    TreeSetting(16, 10, 5.0, 0.5),
    TreeSetting(31, 5, 0.1, 0.8),
    TreeSetting(4, 20, 1.0, 1.0),
    TreeSetting(64, 20, 5.0, 0.5),
    TreeSetting(31, 5, 10.0, 0.3),
    TreeSetting(16, 50, 0.0, 1.0),
    TreeSetting(16, 20, 1.0, 0.3),
)
# On many rows: the larger ones, and one larger still.
_MANY_SETTINGS = (*(one for one in TREE_SETTINGS if one.leaves >= 16), TreeSetting(128, 20, 5.0, 0.5))
# Trees after which settings are compared, and the share of them that goes on.
_PARTS = ((30, 0.5), (80, 0.34), (200, 0.22), (400, 0.0))
# The same on a sample, and then on all of many rows, where so many settings at most grow.
_SAMPLE_PARTS, _MANY_PARTS, _MANY_BEST = ((40, 0.5), (100, 0.0)), ((100, 1.0), (250, 0.0)), 2
# A sample has this many rows and, if there are so many, this many of the rarer class.
_SAMPLE_ROWS, _SAMPLE_RARE = 30_000, 1_000
SEARCH_SHARE = 0.7  # of a time limit: what is left is for the fit on all rows
_ROWS_CUT = 200_000  # scikit-learn looks for the cuts of columns in so many rows at most
_WITHOUT_GAIN = 0.3  # a setting whose loss was least before this last share of its trees is done


@dataclass(frozen=True, eq=False)
class TreeOutcome:
    """A setting's best number of trees, its mean log loss over the folds there, and its out-of-fold logits."""

    setting: TreeSetting
    n_trees: int
    loss: float
    logits: Array


@dataclass(frozen=True, eq=False)
class _Rows:
    """All rows, which are positive (or class numbers), their weights, and how many processors there are for them."""

    X: Array
    target: NDArray[Any]
    weights: Array
    threads: int


class _Trial:
    """One setting on every fold."""

    def __init__(self, setting: TreeSetting, folds: Folds, seed: int) -> None:
        self.setting, self.folds = setting, folds
        self.models = [_model(setting, seed + 1 + fold) for fold in range(len(folds))]
        self.losses = np.empty(0)

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
    """Outcomes of the best settings among those that were run to their end, best first.

    Fits run side by side, each on its share of the threads. What comes out does not depend on their number: histogram
    boosting adds up the rows of each column in one order, whoever does it.

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
        How many outcomes are given at most.
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

    rows = _Rows(X, target, weights, threads)
    tried = list(TREE_SETTINGS if settings is None else settings)
    sampled = _sampled(folds, target, weights, seed)
    parts: Sequence[tuple[int, float]] = _PARTS
    if sampled is not None and len(tried) > n_best:
        tried = list(_MANY_SETTINGS) if settings is None else tried
        first = _race([_Trial(setting, sampled, seed) for setting in tried], _SAMPLE_PARTS, rows, is_late, progress)
        n_kept = 1 if is_late() else min(n_best, _MANY_BEST)
        tried, parts = [trial.setting for trial in first[:n_kept]], _MANY_PARTS
    done = _race([_Trial(setting, folds, seed) for setting in tried], parts, rows, is_late, progress)
    outcomes = [_outcome(trial, rows) for trial in done[: 1 if is_late() else n_best]]
    progress(1.0)
    return outcomes


def _race(
    trials: list[_Trial],
    parts: Sequence[tuple[int, float]],
    rows: _Rows,
    is_late: Callable[[], bool],
    progress: Callable[[float], None],
) -> list[_Trial]:
    """The trials that were run to their end, best first: in every part the others grow, and the worse half stops."""
    running, done = list(trials), list[_Trial]()
    for part, (n_trees, keep) in enumerate(parts):
        _grow(running, n_trees, rows, is_late)
        progress((part + 1) / (len(parts) + 1))
        running = [trial for trial in running if len(trial.losses)]
        done += [trial for trial in running if trial.is_done or keep == 0.0]
        ranked = sorted((trial for trial in trials if len(trial.losses)), key=lambda trial: trial.loss)
        ahead = ranked[: max(2, round(keep * len(trials)))]
        running = [trial for trial in running if trial in ahead and trial not in done]
        if not running or is_late():
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
    each = max(1, threads // max(1, len(settings)))

    def fit(one: tuple[int, tuple[TreeSetting, int]]) -> BoostedTrees | ClassTrees:
        number, (setting, n_trees) = one
        model = _model(setting, seed + number)
        model.set_params(max_iter=n_trees)
        _fit(model, X, target, weights, each)
        return _trees_of(model, target)

    return _side_by_side(fit, list(enumerate(settings)), threads)


def _model(setting: TreeSetting, seed: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingClassifier

    return HistGradientBoostingClassifier(
        learning_rate=setting.rate,
        max_leaf_nodes=setting.leaves,
        min_samples_leaf=setting.rows_a_leaf,
        l2_regularization=setting.l2,
        max_features=setting.columns,
        early_stopping=False,
        warm_start=True,
        categorical_features=None,
        random_state=seed % 2**32,
    )


def _fit(model: Any, X: Array, target: NDArray[Any], weights: Array, threads: int) -> None:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(threads, user_api="openmp"):
        model.fit(_without_empty_columns(X, weights), target, sample_weight=None if np.all(weights == 1.0) else weights)


def _without_empty_columns(X: Array, weights: Array) -> Array:
    """The rows with zeros in columns that hold next to no number: scikit-learn fails on them, and no tree needs them.

    It looks for a column's cuts in a sample of many rows, which must hold a number too.
    """
    gaps = np.isnan(X)
    if not gaps.any():
        return X
    present = np.count_nonzero(~gaps & (weights > 0)[:, None], axis=0)
    fewest = 1 if len(X) <= _ROWS_CUT else 20 * len(X) // _ROWS_CUT
    return np.where(present < fewest, 0.0, X)


def _grow(trials: Sequence[_Trial], n_trees: int, rows: _Rows, is_late: Callable[[], bool]) -> None:
    """Bring trials to so many trees, and their losses on held-out rows with them.

    Once it is late a trial stays where it is; the first of all grows anyhow, where it has no trees yet.
    """
    work = [(trial, fold) for trial in trials for fold in range(len(trial.folds))]
    each = max(1, rows.threads // max(1, len(work)))

    def grow(one: tuple[_Trial, int]) -> Array | None:
        from threadpoolctl import threadpool_limits

        trial, fold = one
        if is_late() and (trial is not trials[0] or len(trial.losses)):
            return None
        own, held_out = trial.folds[fold]
        model = trial.models[fold].set_params(max_iter=n_trees)
        _fit(model, rows.X[own], rows.target[own], rows.weights[own], each)
        with threadpool_limits(each, user_api="openmp"):
            return _log_losses(
                model.staged_decision_function(rows.X[held_out]), rows.target[held_out], rows.weights[held_out]
            )

    losses = _side_by_side(grow, work, rows.threads)
    for i, trial in enumerate(trials):
        n_folds = len(trial.folds)
        found = losses[i * n_folds : (i + 1) * n_folds]
        if all(one is not None for one in found):
            trial.losses = np.mean(found, axis=0)


def _trees_of(model: Any, target: NDArray[Any]) -> BoostedTrees | ClassTrees:
    """A fitted model as plain arrays; a logit for each class where targets are class numbers."""
    kind = BoostedTrees if target.dtype == np.bool_ else ClassTrees
    return kind.from_histogram_boosting(model)


def _log_losses(staged: Any, target: NDArray[Any], weights: Array) -> Array:
    """Log loss after each tree; single precision is far finer than what settings differ by."""
    if target.dtype != np.bool_:
        rows = np.arange(len(target))
        by_class = (np.column_stack([0.0 * one, one]) if one.ndim == 1 else one for one in staged)
        found = ((log_sum_exp(logits, 1) - logits[rows, target]) @ weights for logits in by_class)
        return np.array([float(one) for one in found]) / weights.sum()
    sign = np.where(target, np.float32(-1.0), np.float32(1.0))
    share = (weights / weights.sum()).astype(np.float32)
    losses = []
    for logits in staged:
        away = sign * logits.astype(np.float32)
        losses.append(float(share @ (np.maximum(away, 0.0) + np.log1p(np.exp(-np.abs(away))))))
    return np.array(losses)


def _outcome(trial: _Trial, rows: _Rows) -> TreeOutcome:
    columns = () if rows.target.dtype == np.bool_ else (int(rows.target.max()) + 1,)
    logits = np.full((len(rows.X), *columns), np.nan)

    def held_out_logits(fold: int) -> Array:
        trees = _trees_of(trial.models[fold], rows.target).first(trial.n_trees)
        found = trees.logits(rows.X[trial.folds[fold][1]])
        return found if columns else found[:, 0]

    found = _side_by_side(held_out_logits, range(len(trial.folds)), rows.threads)
    for (_, held_out), own in zip(trial.folds, found, strict=True):
        logits[held_out] = own
    return TreeOutcome(trial.setting, trial.n_trees, trial.loss, logits)


def _side_by_side(function: Callable[[Any], Any], work: Sequence[Any], threads: int) -> list[Any]:
    if threads <= 1 or len(work) <= 1:
        return [function(one) for one in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return list(pool.map(function, work))
