"""Networks: the best settings of the search of `CRCENClassifierCV`, several networks of each."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crcen._support.progress import part_of
from crcen.exceptions import TrainingFailed
from crcen.models.clock import Clock, OutOfTime, TimedTraining
from crcen.models.fitting import member_seed
from crcen.models.members.member import EFFORTS, MOST_COLUMNS, Chosen, FittedMember, MemberKind, MemberTask, best_prefix
from crcen.models.search.classifier_cv import CRCENClassifierCV
from crcen.models.search.run import (
    LONGEST_SCHEDULE,
    Refitted,
    SearchRun,
    Setting,
    Subsample,
    best_few,
    refit_settings,
    widened,
)
from crcen.training.engines import trainer_on
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from crcen.training.network import Member, NetworkGroup
from crcen.training.recipe import Inputs, Recipe

# Settings kept, and networks of each on all rows; more of them do not make a better committee, nor do longer schedules
# from some number of rows of two classes on (`python -m bench.choices.committee_constants`). On very many rows one
# network is enough: their differences are small then.
N_SETTINGS, N_NETWORKS, _VERY_MANY_ROWS = 1, 2, 60_000
_MANY_ROWS, _ENOUGH_EPOCHS = 6_000, 6
# If the log loss of networks is below this share of that of every member fitted before, a longer schedule is tried with
# these multiples of the penalty, and each setting has more networks.
_LEADING_NETWORKS, _CLEAR_LEAD, _LEADING_L2 = 5, 0.95, (1.0, 0.1, 10.0)
# The first comparison on some rows: the folds it uses, and the share of settings that it keeps. With an eighth the best
# setting was lost where networks matter most (`python -m bench.choices.sizes --rows 60000`).
_SAMPLE_FOLDS, _KEPT = 2, 1 / 4
# Settings are compared on the first folds that hold out so many rows of every class.
_COMPARED_ROWS = 400
# With a time limit: rows to measure the time on, and the share of the time to plan with.
_TRIAL_ROWS, _PRUDENCE = 4_000, 0.7


@dataclass(frozen=True)
class _Plan:
    grid: list[Setting]
    n_settings: int
    n_networks: int
    borders: bool

    def work(self, task: MemberTask) -> float:
        """About how many row epochs it takes."""
        n_fold, n_folds = np.mean([len(rows) for rows, _ in task.folds]), _n_compared(task)
        epochs, n_grid = self.grid[0].recipe.max_epochs or 1, len(self.grid)
        sample = Subsample.drawn(task.target, task.weights, task.seed) if n_grid >= 8 else None
        if sample is None:
            search = n_grid * n_folds * n_fold * epochs * (0.5 if n_grid >= 8 else 1.0)
        else:
            first = 4.5 * _SAMPLE_FOLDS * n_grid * len(sample.rows)
            search = first + max(2.0, _KEPT * n_grid) * n_folds * n_fold * epochs
        return float(search * (1.2 if self.borders else 1.0) + self.n_settings * self.refit_work(task))

    def refit_work(self, task: MemberTask) -> float:
        on_folds = sum(len(rows) for rows, _ in task.folds[_n_compared(task) :])
        return float((self.n_networks * len(task.X) + on_folds) * (self.grid[0].recipe.max_epochs or 1))


class Networks(MemberKind):
    """The member ``"networks"``."""

    name = "networks"
    efforts = EFFORTS
    time_share = 0.5

    def search(self, task: MemberTask) -> FittedMember:
        """Search the grid, refit the best settings."""
        rows = task.search_rows
        assert rows is not None
        how: dict[str, Any] = {"sample_weight": task.weights, "device": task.device, "memory_bytes": None}
        engine = trainer_on("local", task.X, rows.engine_target, task.n_classes, **how)
        train = TimedTraining(engine, len(task.X), task.clock)
        run = SearchRun(rows, "neg_log_loss", task.seed, train, None)
        plans = _plans(task)
        if task.clock.is_limited:
            plans = _affordable(task, plans, train, run)
        found = _first_in_time(plans, run, train, task)
        natural = [one.oof - rows.resolve(one.outcome.setting.weighting).log_weights for one in found]
        logits = np.array([rows.labels.in_order(one) for one in natural])
        kept = best_prefix(logits, task.target, task.weights)
        outcomes = [one.outcome for one in found[:kept]]
        lines = tuple(_line(one.setting.recipe, one.epochs, -one.merit) for one in outcomes)
        chosen = tuple((one.setting.recipe, one.epochs) for one in outcomes)
        groups = tuple(_group(one.results) for one in found[:kept])
        return FittedMember(self.name, groups, logits[:kept].mean(axis=0), lines, len(plans[0].grid), chosen)

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """Networks of chosen settings on all rows."""
        from crcen.training.engine import train  # torch is for fitting alone

        is_binary = task.search_rows is not None and task.search_rows.labels.positive is not None
        target = task.target == 1 if is_binary else task.target
        weights, outputs = np.ones(task.n_classes), None if is_binary else task.n_classes
        how = {"outputs": outputs, "shuffle_seed": task.seed}
        jobs = [
            TrainingJob.by(recipe, weights, seed=member_seed(task.seed, number), stop_epoch=epochs, **how)
            for recipe, epochs in chosen
            for number in range(N_NETWORKS)
        ]
        results = train(task.X, target, jobs, sample_weight=task.weights, device=task.device)
        return tuple(_group(results[first : first + N_NETWORKS]) for first in range(0, len(results), N_NETWORKS))


def _group(results: Sequence[TrainingResult]) -> NetworkGroup:
    networks = [one.network for one in results if one.network is not None]
    if not networks:
        raise TrainingFailed(f"no finite network is left: {Status.DIVERGED.value}.")
    return NetworkGroup.of(networks)


def _plans(task: MemberTask) -> list[_Plan]:
    """Plans from that of the effort to the smallest."""
    inputs = Inputs(missing="indicator" if np.isnan(task.X).any() else "error")
    grid = CRCENClassifierCV(None, encoding=inputs).grid(len(task.X))
    if task.X.shape[1] > MOST_COLUMNS:  # encodings with several inputs for each column have too many weights
        grid = [setting for setting in grid if setting.recipe.encoding == "standard"]
    if len(task.X) >= _MANY_ROWS and task.n_classes == 2:
        most = min(grid[0].recipe.max_epochs or _ENOUGH_EPOCHS, _ENOUGH_EPOCHS)
        grid = [replace(one, recipe=one.recipe.replace(max_epochs=most)) for one in grid]
    smallest = _Plan(grid[len(grid) // 4 :][:1], 1, 1, borders=False)
    if task.effort == "quick":
        return [smallest]
    n_networks = N_NETWORKS if len(task.X) < _VERY_MANY_ROWS else 1
    return [_Plan(grid, N_SETTINGS, n_networks, borders=True), _Plan(grid[2:6], 1, n_networks, borders=False), smallest]


def _n_compared(task: MemberTask) -> int:
    """How many of the first folds are needed to compare settings; all of them on few rows."""
    held_out = [np.bincount(task.target[test], task.weights[test] > 0, task.n_classes) for _, test in task.folds]
    rarest = np.cumsum(held_out, axis=0).min(axis=1)
    return min(int(np.searchsorted(rarest, _COMPARED_ROWS)) + 1, len(task.folds))


def _affordable(task: MemberTask, plans: list[_Plan], train: TimedTraining, run: SearchRun) -> list[_Plan]:
    """The plans that there is time for, by the time of a few networks on some of the rows."""
    rows = np.random.default_rng(task.seed).permutation(len(task.X))[:_TRIAL_ROWS]
    jobs = [run.job(plan.grid[0], None, 0).replace(stop_epoch=1) for plan in plans]
    for _ in range(2):  # the first time loads and compiles
        trial = train.on(np.sort(rows))
        trial(jobs)
    train.learn_from(trial)
    possible = [plan for plan in plans if train.seconds(plan.work(task)) <= _PRUDENCE * task.clock.left]
    if not possible and not task.is_needed:
        raise OutOfTime
    return possible or plans[-1:]


def _first_in_time(plans: list[_Plan], run: SearchRun, train: TimedTraining, task: MemberTask) -> list[Refitted]:
    """Networks of the best settings of the first plan that finishes in time; the last plan has no limit."""
    compared = run.on_folds(_n_compared(task))
    for plan in plans:
        train.reserve = plan.refit_work(task)
        if plan is plans[-1] and task.is_needed:
            train.clock = Clock(None)
        try:
            own = part_of(task.progress, 0.0, 0.5)
            outcomes = compared.screened(plan.grid, progress=own, keep=_KEPT, sample=run.on_folds(_SAMPLE_FOLDS))
            if plan.borders:
                outcomes = widened(compared, outcomes, l2=True, epochs=True, progress=part_of(task.progress, 0.5, 0.6))
            best = best_few(outcomes, plan.n_settings)
            longer = best[0].setting.recipe.replace(max_epochs=LONGEST_SCHEDULE)
            near = [replace(best[0].setting, recipe=longer.replace(l2=times * longer.l2)) for times in _LEADING_L2]
            leading = replace(plan, grid=near, n_networks=max(plan.n_networks, _LEADING_NETWORKS))
            train.reserve, own = plan.n_settings * leading.refit_work(task), part_of(task.progress, 0.7, 1.0)
            leads = -best[0].merit < _CLEAR_LEAD * task.best_loss() < np.inf
            if leads and task.effort != "quick" and train.seconds(train.reserve) <= train.clock.left:
                known = {one.setting.recipe for one in outcomes if not one.is_dropped}
                near = [setting for setting in near if setting.recipe not in known]
                with suppress(OutOfTime):
                    if near and len(task.X) >= _MANY_ROWS:  # where settings were compared on a sample
                        outcomes += compared.outcomes(near, halving=False, progress=part_of(task.progress, 0.6, 0.7))
                    train.reserve = 0.0
                    few = best_few(outcomes, plan.n_settings)
                    return refit_settings(run, few, leading.n_networks, own, n_on_folds=1)
            train.reserve = 0.0
            return refit_settings(run, best, plan.n_networks, own, n_on_folds=1)
        except OutOfTime:
            continue
    raise OutOfTime


def _line(recipe: Recipe, epochs: int | None, loss: float) -> str:
    hidden = "-".join(map(str, recipe.hidden)) or "none"
    length = "" if epochs is None else f", {epochs} epochs"
    return f"hidden units {hidden}, {recipe.encoding} inputs, l2 {recipe.l2:g}{length}: log loss {loss:.4g}"
