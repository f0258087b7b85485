"""Which settings go on, which are left behind and which are done: made-up loss curves, counted by hand."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.trials import Trial, run_trials
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState
from crcen.training.recipe import Recipe

SCHEDULE = 60
FOLDS = 2


def gaining(level):
    """A loss that falls to the end, by less than 1 in all."""
    return lambda epoch: level + 0.5 / epoch


def least_at(best, level=0.0):
    """A loss that falls up to an epoch and rises after it, by less than 1 either way."""
    return lambda epoch: level + abs(epoch - best) / 100


class Constant:
    """A network in name."""

    def __init__(self, loss):
        self.loss = loss

    def logits(self, X):
        return np.full(len(X), self.loss)


class Trials:
    """Settings with a loss curve each; a number instead of a curve is a full-batch setting that ends there."""

    def __init__(self, *weightings, schedule=SCHEDULE, every=1):
        self.curves, self.trials, self.calls, self.shares = {}, [], [], []
        for index, curves in enumerate(weightings):
            for curve in curves:
                number = len(self.trials)
                how = {"hidden": (4,), "record_every": every, "max_epochs": schedule}
                if isinstance(curve, float):
                    how = {"hidden": (), "solver": "lbfgs", "max_epochs": 999}
                setting = Setting(index, None, Recipe(hidden=how["hidden"], l2=float(number)))
                jobs = [TrainingJob((0.5, 0.5), l2=float(number), seed=fold, **how) for fold in range(FOLDS)]
                self.curves[number] = curve
                self.trials.append(Trial(setting, jobs))

    def train(self, jobs, *, progress):
        """What an engine would give; checks that every job goes on exactly where it was left."""
        self.calls.append(list(jobs))
        results = []
        for job in jobs:
            curve = self.curves[int(job.l2)]
            if job.solver == "lbfgs":
                results.append(TrainingResult(Constant(curve), Status.CONVERGED, 9, np.zeros(9)))
                continue
            begin = job.start.epoch if job.start else 0
            epochs = range(begin + 1, job.stop_epoch + 1)
            epochs = [e for e in epochs if e % job.record_every == 0 or e == job.stop_epoch]
            if job.start:  # states come back to the network that left them
                assert job.start.values.tolist() == [job.l2, job.seed]
            length = job.stop_epoch - begin
            logits = np.array([[curve(e)] for e in epochs], dtype=np.float32)
            state = TrainingState(job.stop_epoch, np.array([job.l2, job.seed], dtype=np.float32))
            found = {"recorded_epochs": tuple(epochs), "val_logits": logits, "state": state}
            results.append(TrainingResult(None, Status.COMPLETED, length, np.zeros(length), **found))
        for share in (0.0, 0.5, 1.0):
            progress(share)
        return results

    @staticmethod
    def score(trial):
        """The least loss so far is the score."""
        row = np.zeros((1, 1))
        latest = np.mean([trial.latest(fold, row)[:, 0] for fold in range(FOLDS)], axis=0)
        trial.losses += np.where(np.isnan(latest), np.inf, latest).tolist()
        best = int(np.argmin(trial.losses))
        scores = -np.array([trial.record(fold, best, row)[0] for fold in range(FOLDS)])
        return Outcome(trial.setting, trial.epochs[best] if trial.epochs else None, scores, np.zeros(1))

    def run(self, halving=True):
        return run_trials(self.trials, self.train, self.score, halving=halving, progress=self.shares.append)

    def trained(self):
        """For each call the last epoch and the settings that were trained."""
        return [
            (max(job.stop_epoch or 0 for job in jobs), sorted({int(job.l2) for job in jobs})) for jobs in self.calls
        ]

    def last_epochs(self):
        """How far each setting was trained."""
        return {int(job.l2): job.stop_epoch for jobs in self.calls for job in jobs}


def dropped(outcomes):
    return [i for i, outcome in enumerate(outcomes) if outcome.is_dropped]


class TestDropped:
    def test_sixteen_settings_by_hand(self):
        trials = Trials([gaining(level) for level in range(16)])
        outcomes = trials.run()
        parts = ((10, 16), (20, 12), (30, 8), (40, 4), (60, 2))
        assert trials.trained() == [(stop, list(range(count))) for stop, count in parts]
        assert dropped(outcomes) == list(range(2, 16))
        # Every outcome is that of all its records, to where it was trained.
        ends = [60] * 2 + [40] * 2 + [30] * 4 + [20] * 4 + [10] * 4
        assert [outcome.epochs for outcome in outcomes] == ends
        np.testing.assert_allclose(
            [-outcome.merit for outcome in outcomes], [i + 0.5 / end for i, end in enumerate(ends)], rtol=1e-6
        )
        assert [outcome.setting.recipe.l2 for outcome in outcomes] == list(map(float, range(16)))

    @pytest.mark.parametrize(
        ("n_rows", "count", "expected"), [*((9_999, n, [n] * 5) for n in (1, 2, 6, 7)), (10_000, 6, [6, 5, 3, 2, 2])]
    )
    def test_few_settings_are_dropped_on_many_rows_only(self, n_rows, count, expected):
        trials = Trials([gaining(level) for level in range(count)])
        for trial in trials.trials:
            trial.jobs = [replace(job, rows=np.arange(n_rows)) for job in trial.jobs]
        trials.run()
        assert [len(settings) for _, settings in trials.trained()] == expected

    def test_weightings_compete_within_themselves(self):
        # The second weighting's losses are all far above the first's.
        trials = Trials([gaining(level) for level in range(8)], [gaining(1000.0 + level) for level in range(8)])
        outcomes = trials.run()
        assert [i for i in range(16) if not outcomes[i].is_dropped] == [0, 1, 8, 9]
        assert [len(settings) for _, settings in trials.trained()] == [16, 12, 8, 4, 4]


class TestDone:
    def test_a_setting_that_gains_no_more_is_done_and_can_win(self):
        # Least at 12: at 30 its last 18 of 30 epochs brought nothing. Least at 16: 14 of 30 are not half, 24 of 40 are.
        # Least at 25: 15 of 40 are not half. Least at 4: nothing is done before half of the schedule.
        curves = [least_at(12, -9.0), least_at(16), least_at(25), least_at(4), gaining(0.0)]
        trials = Trials(curves)
        outcomes = trials.run()
        assert trials.last_epochs() == {0: 30, 1: 40, 2: 60, 3: 30, 4: 60}
        assert not dropped(outcomes)
        assert [outcome.epochs for outcome in outcomes] == [12, 16, 25, 4, 60]
        assert max(range(5), key=lambda i: outcomes[i].merit) == 0

    def test_what_is_done_is_not_dropped_later(self):
        # The two that are done at 30 are then overtaken by two others.
        falling = lambda epoch: 50.0 - 3.0 * epoch  # noqa: E731
        trials = Trials([least_at(5, -41.0), least_at(5, -41.5), falling, falling, *map(gaining, range(60, 72))])
        outcomes = trials.run()
        assert trials.trained()[3:] == [(40, [2, 3]), (60, [2, 3])]
        assert [i for i in range(16) if not outcomes[i].is_dropped] == [0, 1, 2, 3]

    def test_nothing_left_ends_the_search(self):
        trials = Trials([least_at(3), least_at(6)])
        trials.run()
        assert [stop for stop, _ in trials.trained()] == [10, 20, 30]
        assert trials.shares[-1] == 1.0

    def test_full_batch_settings_are_run_once_and_not_dropped(self):
        # Worse than all others, but there is nothing left to save.
        trials = Trials([*(gaining(level) for level in range(8)), 1000.0])
        outcomes = trials.run()
        assert [8 in settings for _, settings in trials.trained()] == [True, False, False, False, False]
        assert not outcomes[8].is_dropped
        assert outcomes[8].epochs is None
        assert outcomes[8].merit == -1000.0


class TestSchedules:
    @pytest.mark.parametrize(
        ("schedule", "stops"),
        [
            *((short, [short]) for short in (1, 2, 4)),  # run whole
            (5, [1, 2, 3, 5]),
            (6, [1, 2, 3, 4, 6]),
            (7, [1, 2, 4, 5, 7]),
            (8, [1, 3, 4, 5, 8]),
            (100, [17, 33, 50, 67, 100]),
        ],
    )
    def test_where_the_schedule_is_looked_at(self, schedule, stops):
        trials = Trials([gaining(level) for level in range(16)], schedule=schedule)
        outcomes = trials.run()
        assert [stop for stop, _ in trials.trained()] == stops
        assert len(dropped(outcomes)) == (14 if len(stops) > 1 else 0)  # however often it is looked at
        assert len(trials.trained()[-1][1]) == (2 if len(stops) > 1 else 16)

    @pytest.mark.parametrize("halving", [True, False])
    @pytest.mark.parametrize("schedule", [1, 5, 60])
    def test_progress(self, schedule, halving):
        trials = Trials([*(gaining(level) for level in range(12)), 3.0], schedule=schedule)
        trials.run(halving=halving)
        assert trials.shares[0] == 0.0
        assert trials.shares[-1] == 1.0
        assert all(one <= other for one, other in pairwise(trials.shares))
