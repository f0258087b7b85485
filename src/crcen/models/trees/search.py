"""A search over boosted trees on given folds: settings in parts, the hopeless left behind, the best few averaged."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.trees.boosted_trees import BoostedTrees

__all__ = ["TREE_SETTINGS", "TreeOutcome", "TreeSetting", "fit_trees", "search_trees"]

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
    TreeSetting(4, 20, 1.0, 1.0),
    TreeSetting(64, 20, 5.0, 0.5),
    TreeSetting(31, 5, 10.0, 0.3),
    TreeSetting(8, 5, 10.0, 1.0),
    TreeSetting(31, 50, 1.0, 0.5),
    TreeSetting(4, 5, 1.0, 0.3),
    TreeSetting(16, 20, 1.0, 0.3),
    TreeSetting(16, 50, 0.0, 1.0),
    TreeSetting(64, 50, 10.0, 0.3),
)
# Trees after which settings are compared, and the share of them that goes on.
_PARTS = ((40, 0.5), (100, 0.34), (200, 0.34), (400, 0.0))
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

    def __init__(self, setting: TreeSetting, folds: Folds, seed: int) -> None:
        self.setting, self.folds = setting, folds
        self.models = [_model(setting, seed + 1 + fold) for fold in range(len(folds))]
        self.staged: list[Array] = []
        self.losses = np.empty(0)

    @property
    def n_trees(self) -> int:
        return len(self.losses)

    @property
    def is_done(self) -> bool:
        """Whether more trees no longer help."""
        return int(np.argmin(self.losses)) + 1 <= (1.0 - _WITHOUT_GAIN) * self.n_trees

    @property
    def loss(self) -> float:
        return float(self.losses.min())


def search_trees(
    X: Array,
    target: Bools,
    weights: Array,
    folds: Folds,
    *,
    seed: int,
    settings: Sequence[TreeSetting] | None = None,
    threads: int = 1,
    time_limit: float | None = None,
    progress: Callable[[float], None] = lambda share: None,
) -> list[TreeOutcome]:
    """Outcomes of the settings that were run to their end, best first.

    Every fit runs on one thread, and fits run side by side: a sum that OpenMP splits by the number of its threads would
    make results depend on that number.

    Parameters
    ----------
    X, target, weights
        All rows, which are positive, their weights.
    folds
        Training and held-out rows.
    seed
        For the columns that trees may use.
    settings
        What to try, the likeliest first; `TREE_SETTINGS` by default.
    threads
        Fits at a time.
    time_limit
        Seconds after which no part is begun that is not needed for a first outcome.
    progress
        Called with the share of the parts that are done.
    """
    begun = time.perf_counter()
    trials = [_Trial(setting, folds, seed) for setting in (TREE_SETTINGS if settings is None else settings)]
    running = list(trials)
    done: list[_Trial] = []
    for part, (n_trees, keep) in enumerate(_PARTS):
        _grow(running, n_trees, X, target, weights, threads)
        progress((part + 1) / (len(_PARTS) + 1))
        done += [trial for trial in running if trial.is_done or keep == 0.0]
        ranked = sorted(trials, key=lambda trial: trial.loss)
        ahead = ranked[: max(2, round(keep * len(trials)))]
        running = [trial for trial in running if trial in ahead and trial not in done]
        is_late = time_limit is not None and time.perf_counter() - begun > time_limit
        if not running or is_late:
            break
    done += running
    outcomes = [_outcome(trial, len(X)) for trial in sorted(done, key=lambda trial: trial.loss)]
    progress(1.0)
    return outcomes


def fit_trees(
    X: Array, target: Bools, weights: Array, settings: Sequence[tuple[TreeSetting, int]], *, seed: int, threads: int = 1
) -> list[BoostedTrees]:
    """The trees of each (setting, number of trees) on all rows."""

    def fit(one: tuple[int, tuple[TreeSetting, int]]) -> BoostedTrees:
        number, (setting, n_trees) = one
        model = _model(setting, seed + number)
        model.set_params(max_iter=n_trees)
        return _fitted(model, X, target, weights)

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


def _fitted(model: Any, X: Array, target: Bools, weights: Array) -> BoostedTrees:
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1, user_api="openmp"):
        model.fit(X, target, sample_weight=None if np.all(weights == 1.0) else weights)
    return BoostedTrees.from_histogram_boosting(model)


def _grow(trials: Sequence[_Trial], n_trees: int, X: Array, target: Bools, weights: Array, threads: int) -> None:
    """Bring trials to so many trees."""

    def grow(one: tuple[_Trial, int]) -> Array:
        trial, fold = one
        rows, held_out = trial.folds[fold]
        trial.models[fold].set_params(max_iter=n_trees)
        trees = _fitted(trial.models[fold], X[rows], target[rows], weights[rows])
        return trees.staged_logits(X[held_out]).astype(np.float32)

    work = [(trial, fold) for trial in trials for fold in range(len(trial.folds))]
    staged = _side_by_side(grow, work, threads)
    for i, trial in enumerate(trials):
        n_folds = len(trial.folds)
        trial.staged = staged[i * n_folds : (i + 1) * n_folds]
        trial.losses = np.mean(
            [
                _log_losses(logits, target[held_out], weights[held_out])
                for logits, (_, held_out) in zip(trial.staged, trial.folds, strict=True)
            ],
            axis=0,
        )


def _log_losses(staged: Array, target: Bools, weights: Array) -> Array:
    """Log loss after each tree."""
    losses = np.empty(len(staged))
    sign = np.where(target, -1.0, 1.0)
    for i, logits in enumerate(staged):
        losses[i] = weights @ np.logaddexp(0.0, sign * logits) / weights.sum()
    return losses


def _outcome(trial: _Trial, n_rows: int) -> TreeOutcome:
    best = int(np.argmin(trial.losses))
    logits = np.full(n_rows, np.nan)
    for staged, (_, held_out) in zip(trial.staged, trial.folds, strict=True):
        logits[held_out] = staged[best]
    return TreeOutcome(trial.setting, best + 1, float(trial.losses[best]), logits)


def _side_by_side(function: Callable[[Any], Any], work: Sequence[Any], threads: int) -> list[Any]:
    if threads <= 1 or len(work) <= 1:
        return [function(one) for one in work]
    with ThreadPoolExecutor(min(threads, len(work))) as pool:
        return list(pool.map(function, work))
