"""Boosted trees by LightGBM: settings searched on the folds, the best few averaged.

Columns are binned once for all folds and settings. Settings grow in rounds; after each round the worse ones stop. On
many rows the settings are first compared on a sample of each fold, and only the best two grow on all rows.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from crcen._support.lazy import lightgbm
from crcen.models.clock import OutOfTime
from crcen.models.members.member import (
    MOST_COLUMNS,
    Chosen,
    FittedMember,
    Folds,
    MemberKind,
    MemberTask,
    best_prefix,
    fold_logits,
    parallel_map,
)
from crcen.models.members.tree_arrays import TreeArrays, TreeEnsemble
from crcen.theory.rows import Array, Estimator, Index
from crcen.training.network import Member

Dataset: TypeAlias = Any  # rows in the bins of LightGBM, which has no types


@dataclass(frozen=True)
class TreeSetting:
    """A setting of LightGBM; the folds' mean log loss decides the number of trees."""

    leaves: int
    leaf_rows: int
    l2: float
    columns: float
    rate: float = 0.1
    is_random: bool = False  # one random threshold per column and leaf (LightGBM's extra_trees)

    def __str__(self) -> str:
        return f"{self.leaves} leaves, {self.leaf_rows} rows per leaf, l2 {self.l2:g}"

    def params(self, n_classes: int, threads: int, *, is_row_wise: bool = False) -> dict[str, object]:
        """LightGBM's parameters; histograms by rows have the same bits on one thread, and need a copy of the bins."""
        return {
            "num_leaves": self.leaves,
            "min_data_in_leaf": self.leaf_rows,
            "lambda_l2": self.l2,
            "feature_fraction_bynode": self.columns,
            "learning_rate": self.rate,
            "num_threads": threads,
            "deterministic": True,
            "force_col_wise": not is_row_wise,
            "force_row_wise": is_row_wise,
            "feature_pre_filter": False,
            "verbosity": -1,
            "objective": "binary" if n_classes == 2 else "multiclass",
            "num_class": 1 if n_classes == 2 else n_classes,
        }


# Small and large trees with weak and strong penalties; the first serve most tables.
SETTINGS = (
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
_OF_TWO_CLASSES = SETTINGS[2], SETTINGS[6], SETTINGS[8]  # with more classes the others serve as well, in less time
# On many rows: the larger ones and a still larger one.
LARGE_SETTINGS = (*(one for one in SETTINGS if one.leaves >= 16), TreeSetting(128, 20, 5.0, 0.5))
# Random thresholds need no search: a few larger trees are averaged for errors unlike those of the settings above.
RANDOM_SETTINGS = tuple(replace(SETTINGS[i], is_random=True) for i in (0, 3, 5))
N_BEST = 3
# Trees after which settings are compared, and the share of settings that continues.
_ROUNDS = ((15, 0.34), (60, 0.22), (200, 0.2), (400, 0.0))
_MULTICLASS_ROUNDS = ((30, 0.5), (80, 0.34), (200, 0.22), (400, 0.0))  # with more classes the first trees say less
_SAMPLE_ROUNDS = ((20, 0.5), (50, 0.5), (100, 0.0))
_LARGE_ROUNDS, _LARGE_BEST = ((100, 1.0), (400, 0.0)), 2
# A sample has this many rows, and at least this many rows of the rarest class; so many folds have one.
_SAMPLE_ROWS, _SAMPLE_RARE, _SAMPLE_FOLDS = 20_000, 600, 2
_CHECK_EVERY = 10  # trees
# With a time limit: trees to estimate the time, the fewest that are useful, and the share of the time to plan with.
_TRIAL_TREES, _FEWEST_TREES, _PRUDENCE = 4, 30, 0.8
_ZERO = float(np.float32(1e-35))
_WITHOUT_GAIN = 0.2  # a setting is done if its loss was lowest before this last share of its trees
# Bins of a column. On few rows more of them do not help. On many, 63 lose too much of identifiers (movies, users), and
# 255 are worse on flights.
_FEW_BINS, _MANY_BINS, _MANY_ROWS = 63, 127, 20_000
# Memory for histograms of one booster: without a bound, the boosters of 300 rows and 20,000 columns take 19 GB.
_HISTOGRAM_MB = 64
_ROW_WISE_CELLS = 50_000_000  # with more, the copies of the bins take too much memory; they save an eighth of the time
_MANY_CELLS = 2_000_000  # with fewer, several threads in one fit cost more than they save


class LightGBMTrees(MemberKind):
    """The member ``"trees"``."""

    name = "trees"
    package, extra = "lightgbm", "train"
    settings: tuple[TreeSetting, ...] = SETTINGS
    large_settings: tuple[TreeSetting, ...] = LARGE_SETTINGS

    def search(self, task: MemberTask) -> FittedMember:
        """Search the settings in rounds, average the best few."""
        data = _data(task.X, task.target, task.weights, task.threads)
        outcomes, n_tried = _search(task, data, self)
        chosen = tuple((one.setting, one.n_trees) for one in outcomes)
        parts = _fit(task, data, chosen)
        task.progress(1.0)
        lines = tuple(f"{one.n_trees} trees of {one.setting}: log loss {one.loss:.4g}" for one in outcomes)
        return FittedMember(self.name, parts, np.mean([one.logits for one in outcomes], axis=0), lines, n_tried, chosen)

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """Trees of chosen settings on all rows."""
        return _fit(task, _data(task.X, task.target, task.weights, task.threads), chosen)


class RandomTrees(LightGBMTrees):
    """The member ``"random_trees"``: boosted trees with random thresholds."""

    name = "random_trees"
    efforts = ("best",)  # a small gain for about a sixth more time
    max_rows = 60_000
    time_share = 0.1
    settings = large_settings = RANDOM_SETTINGS


def _fit(task: MemberTask, data: Dataset, chosen: Sequence[tuple[TreeSetting, int]]) -> tuple[Member, ...]:
    threads = max(1, task.threads // len(chosen)) if task.X.size >= _MANY_CELLS else 1

    def fit(one: tuple[int, tuple[TreeSetting, int]]) -> TreeEnsemble:
        number, (setting, n_trees) = one
        booster = _Booster(data, None, setting, task.n_classes, task.seed + number, threads)
        booster.grow(n_trees)
        return tree_ensemble(booster.model, task.n_classes)

    return tuple(parallel_map(task.threads, fit, list(enumerate(chosen)), _be_quiet))


def _data(X: Array, target: Index, weights: Array, threads: int) -> Dataset:
    """The rows in LightGBM's bins, for all folds and settings."""
    params = {
        "max_bin": _FEW_BINS if len(X) < _MANY_ROWS else _MANY_BINS,
        "feature_pre_filter": False,
        "verbosity": -1,
        "num_threads": threads if X.size >= _MANY_CELLS else 1,
        "deterministic": True,
        "force_col_wise": True,
    }
    is_weighted = not np.all(weights == weights[0])
    return lightgbm.Dataset(X, target, weight=weights if is_weighted else None, params=params).construct()


def _be_quiet() -> None:
    """LightGBM's verbosity belongs to a thread, and is set with any data set."""
    lightgbm.Dataset(np.zeros((2, 1)), params={"verbosity": -1}).construct()


class _Booster:
    """One setting on some rows, with its loss on held-out rows after every tree."""

    def __init__(
        self, rows: Dataset, held_out: Dataset, setting: TreeSetting, n_classes: int, seed: int, threads: int = 1
    ) -> None:
        is_row_wise = threads == 1 and rows.num_data() * rows.num_feature() <= _ROW_WISE_CELLS
        params = setting.params(n_classes, threads, is_row_wise=is_row_wise) | {
            "feature_fraction": min(1.0, MOST_COLUMNS / rows.num_feature()),
            "extra_trees": setting.is_random,
            "extra_seed": seed % 2**31,
            "histogram_pool_size": _HISTOGRAM_MB,
            "seed": seed % 2**31,
        }
        self.model = lightgbm.Booster(params, rows)
        if held_out is not None:
            self.model.add_valid(held_out, "held out")
        self._is_judged, self.losses, self.n_trees = held_out is not None, list[float](), 0
        self.n_grown, self.seconds = 0, 0.0

    def grow(self, n_trees: int) -> None:
        """Continue to this number of trees; fewer if no split is left."""
        start = time.perf_counter()
        while self.n_trees < n_trees:
            is_finished = self.model.update()
            self.n_trees, self.n_grown = self.n_trees + 1, self.n_grown + 1
            if self._is_judged:
                # The last digits depend on the number of threads.
                self.losses.append(round(float(self.model.eval_valid()[0][2]), 12))
            if is_finished:
                self.losses += self.losses[-1:] * (n_trees - self.n_trees)
                self.n_trees = n_trees
        self.seconds += time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class _Outcome:
    """A setting's best number of trees, its mean loss over the folds there, and its out-of-fold logits."""

    setting: TreeSetting
    n_trees: int
    loss: float
    logits: Array


class _Trial:
    def __init__(
        self, setting: TreeSetting, folds: Sequence[tuple[Dataset, Dataset]], n_classes: int, seed: int
    ) -> None:
        self.setting = setting
        # One thread each: two boosters of several threads take longer than on one, since LightGBM waits actively.
        self.boosters = [_Booster(*fold, setting, n_classes, seed + 1 + i) for i, fold in enumerate(folds)]

    @property
    def losses(self) -> Array:
        """Mean loss over the folds after each tree that all of them have."""
        grown = min(len(booster.losses) for booster in self.boosters)
        return np.mean([booster.losses[:grown] for booster in self.boosters], axis=0)

    @property
    def tree_seconds(self) -> float:
        return sum(one.seconds for one in self.boosters) / max(1, sum(one.n_grown for one in self.boosters))

    @property
    def n_trees(self) -> int:
        return int(np.argmin(self.losses)) + 1

    @property
    def is_done(self) -> bool:
        """Whether more trees do not help."""
        return len(self.losses) > 0 and self.n_trees <= (1.0 - _WITHOUT_GAIN) * len(self.losses)

    @property
    def loss(self) -> float:
        return float(self.losses.min())


def _search(task: MemberTask, data: Dataset, kind: LightGBMTrees) -> tuple[list[_Outcome], int]:
    """Outcomes of the best settings, best first, and the number of settings tried."""
    settings: Sequence[TreeSetting] = kind.settings
    if task.n_classes > 2 and task.effort == "standard":
        settings = [one for one in settings if one not in _OF_TWO_CLASSES]
    rounds: Sequence[tuple[int, float]] = _ROUNDS if task.n_classes == 2 else _MULTICLASS_ROUNDS
    n_best, n_tried = N_BEST, 0
    if task.effort == "quick":
        settings, n_best = settings[:1], 1
    if task.effort != "quick" and (sample := _sampled(task)) is not None:
        settings = kind.large_settings
        done = _race(task, _trials(task, data, settings, sample), _SAMPLE_ROUNDS)
        n_tried, n_best = len(settings), _LARGE_BEST
        settings, rounds = [one.setting for one in done[:n_best]], _LARGE_ROUNDS
    trials = _race(task, _trials(task, data, settings, task.folds), rounds)
    outcomes = [_outcome(task, trial) for trial in trials[:n_best]]
    kept = best_prefix(np.array([one.logits for one in outcomes]), task.target, task.weights)
    return outcomes[:kept], max(n_tried, len(settings))


def _trials(task: MemberTask, data: Dataset, settings: Sequence[TreeSetting], folds: Folds) -> list[_Trial]:
    parts = [tuple(data.subset(np.sort(rows)).construct() for rows in fold) for fold in folds]
    return [_Trial(setting, parts, task.n_classes, task.seed) for setting in settings]


def _race(task: MemberTask, trials: list[_Trial], rounds: Sequence[tuple[int, float]]) -> list[_Trial]:
    """Trials that ran to their end, best first: after each round the worse ones stop."""
    if task.clock.is_limited:
        trials = _affordable(task, trials)
    running, done, before = list(trials), list[_Trial](), 0
    for number, (n_trees, keep) in enumerate(rounds):
        checks = range(before + _CHECK_EVERY, n_trees, _CHECK_EVERY) if before else ()
        for check in (*checks, n_trees):
            growing = [trial for trial in running if trial not in done]
            if not growing:
                break
            if task.clock.is_limited and not _is_affordable(task, growing, check):
                return sorted((trial for trial in trials if len(trial.losses)), key=lambda trial: trial.loss)
            largest_first = sorted(growing, key=lambda trial: -trial.setting.leaves)  # so that no thread ends late
            work = [booster for trial in largest_first for booster in trial.boosters]
            parallel_map(task.threads, partial(_Booster.grow, n_trees=check), work, _be_quiet)
            done += [trial for trial in growing if trial.is_done]
        task.progress(0.8 * (number + 1) / (len(rounds) + 1))
        before = n_trees
        running = [trial for trial in running if trial not in done]
        if keep == 0.0:
            break
        ahead = sorted(trials, key=lambda trial: trial.loss)[: max(2, round(keep * len(trials)))]
        running = [trial for trial in running if trial in ahead]
        if not running:
            break
    return sorted([*done, *running], key=lambda trial: trial.loss)


def _affordable(task: MemberTask, trials: list[_Trial]) -> list[_Trial]:
    """The first trials that there is time for, by a few trees of the first one, which it then has."""
    first = trials[0]
    parallel_map(task.threads, lambda booster: booster.grow(_TRIAL_TREES), first.boosters, _be_quiet)
    if not _is_affordable(task, trials[:1], _FEWEST_TREES):
        if not task.is_needed:
            raise OutOfTime
        return [first]
    while len(trials) > 1 and not _is_affordable(task, trials, _FEWEST_TREES):
        trials = trials[: len(trials) // 2]
    return trials


def _is_affordable(task: MemberTask, trials: Sequence[_Trial], n_trees: int) -> bool:
    """Whether there is time to grow trials to this number of trees, and then the same on all rows."""
    rates = [trial.tree_seconds or trials[0].tree_seconds for trial in trials]
    missing = [sum(max(0, n_trees - one.n_trees) for one in trial.boosters) for trial in trials]
    growing = float(np.dot(rates, missing)) / min(task.threads, max(1, len(trials) * len(task.folds)))
    n_fold = np.mean([len(rows) for rows, _ in task.folds])
    final = max(rates) * n_trees * len(task.X) / n_fold * -(-min(N_BEST, len(trials)) // task.threads)
    return bool(growing + final <= _PRUDENCE * task.clock.left)


def _outcome(task: MemberTask, trial: _Trial) -> _Outcome:
    n_trees = trial.n_trees

    def predict(fold: int) -> Array:
        X = task.X[np.sort(task.folds[fold][1])]
        raw = trial.boosters[fold].model.predict(X, raw_score=True, num_iteration=n_trees, num_threads=1)
        return np.column_stack([np.zeros(len(X)), raw]) if task.n_classes == 2 else np.asarray(raw)

    found = parallel_map(task.threads, predict, range(len(task.folds)), _be_quiet)
    return _Outcome(trial.setting, n_trees, trial.loss, fold_logits(task, found))


def _sampled(task: MemberTask) -> Folds | None:
    """The first folds with a stratified sample of their rows; None where that would save little."""
    rng, found = np.random.default_rng([task.seed, len(task.target)]), []
    for rows, held_out in task.folds[:_SAMPLE_FOLDS]:
        own = rows[task.weights[rows] > 0]
        classes = [own[task.target[own] == k] for k in range(task.n_classes)]
        share = max(_SAMPLE_ROWS / max(1, len(own)), _SAMPLE_RARE / max(1, min(map(len, classes))))
        if share > 0.5:
            return None
        kept = [rng.choice(one, max(1, round(share * len(one))), replace=False) for one in classes]
        judged = held_out
        if len(held_out) > _SAMPLE_ROWS:
            judged = rng.choice(held_out, max(_SAMPLE_ROWS, round(share * len(held_out))), replace=False)
        found.append((np.sort(np.concatenate(kept)), np.sort(judged)))
    return found


def tree_ensemble(model: Estimator, n_classes: int) -> TreeEnsemble:
    """LightGBM's trees as arrays, with logits (n, K); two classes have zeros for the first one."""
    return trees_of_text(model.model_to_string(), n_classes, model.num_feature())


def trees_of_text(text: str, n_classes: int, n_features: int, n_rounds: int | None = None) -> TreeEnsemble:
    """The trees of the first rounds of a model's text, or of the texts of several additive models."""
    per_round = 1 if n_classes == 2 else n_classes
    _, *blocks = text.split("\nTree=")
    blocks = blocks if n_rounds is None else blocks[: n_rounds * per_round]
    trees = [_tree(dict(line.split("=", 1) for line in block.splitlines() if "=" in line)) for block in blocks]
    output = [1 if n_classes == 2 else i % per_round for i in range(len(trees))]
    return TreeEnsemble.join(trees, output, np.zeros(n_classes), n_features)


def _tree(fields: dict[str, str]) -> TreeArrays:
    leaf_value = np.array(fields["leaf_value"].split(), dtype=np.float64)
    n_leaves = len(leaf_value)
    n_inner = n_leaves - 1
    if int(fields.get("num_cat", 0)):
        raise ValueError("trees with categorical splits are not converted: encode categories as numbers first")

    def inner(name: str) -> Index:
        return np.array(fields[name].split() if n_inner else [], dtype=np.int64)

    threshold, decision = np.array(fields["threshold"].split() if n_inner else [], float), inner("decision_type")
    # LightGBM takes values up to 1e-35 in size as 0, so such a negative one is above this threshold.
    threshold = np.where(threshold == -_ZERO, np.nextafter(-_ZERO, -1.0), threshold)
    missing_type, default_left = (decision >> 2) & 3, (decision & 2) > 0
    if (missing_type == 1).any():
        raise ValueError("trees that take zeros as missing are not converted")
    none, zeros = np.full(n_leaves, -1), np.zeros(n_leaves)
    children = [inner(name) for name in ("left_child", "right_child")]
    left, right = (np.where(one < 0, n_inner + ~one, one) for one in children)
    # Where training had no missing values, LightGBM takes them as 0.
    missing_left = np.where(missing_type == 2, default_left, threshold >= 0.0)
    return {
        "feature": np.concatenate([inner("split_feature"), none]),
        "threshold": np.concatenate([threshold, zeros]),
        "missing_left": np.concatenate([missing_left, zeros]) > 0,
        "left": np.concatenate([left, none]),
        "right": np.concatenate([right, none]),
        "value": np.concatenate([np.zeros(n_inner), leaf_value]),
    }
