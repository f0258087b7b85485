"""Which settings go on, which are dropped, and where the grid grows: made-up losses counted by hand, and real fits."""

from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from crcen import CRCENClassifierCV, Schedule, Search
from crcen.models.clock import OutOfTime
from crcen.models.search import run
from crcen.models.search.run import Outcome, Setting, Trial, border_notes, run_trials, widened
from crcen.training.jobs import Status, TrainingJob, TrainingResult, TrainingState
from crcen.training.recipe import Recipe
from example_rows import interaction_rows

SCHEDULE = 60
FOLDS = 2


def gaining(level):
    """A loss that falls to the end, by less than 1 in all."""
    return lambda epoch: level + 0.5 / epoch


def least_at(best, level=0.0):
    """A loss that falls up to an epoch and rises after it, by less than 1 either way."""
    return lambda epoch: level + abs(epoch - best) / 100


class Trials:
    """Settings with a loss curve each; a number instead of a curve is a full-batch setting that ends there."""

    def __init__(self, *weightings, schedule=SCHEDULE):
        self.curves, self.trials, self.calls, self.shares = {}, [], [], []
        for index, curves in enumerate(weightings):
            for curve in curves:
                number = len(self.trials)
                how = {"hidden": (4,), "record_every": 1, "max_epochs": schedule}
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
                network = SimpleNamespace(logits=lambda X, loss=curve: np.full(len(X), loss))
                results.append(TrainingResult(network, Status.CONVERGED, 9, np.zeros(9)))
                continue
            begin = job.start.epoch if job.start else 0
            epochs = range(begin + 1, job.stop_epoch + 1)
            if job.start:  # states come back to the network that left them
                assert job.start.values.tolist() == [job.l2, job.seed]
            logits = np.array([[curve(e)] for e in epochs], dtype=np.float32)
            state = TrainingState(job.stop_epoch, np.array([job.l2, job.seed], dtype=np.float32))
            found = {"recorded_epochs": tuple(epochs), "val_logits": logits, "state": state}
            results.append(TrainingResult(None, Status.COMPLETED, len(epochs), np.zeros(len(epochs)), **found))
        for share in (0.0, 0.5, 1.0):
            progress(share)
        return results

    @staticmethod
    def score(trial):
        """The least loss so far is the score."""
        row = np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
        latest = np.mean([trial.latest(fold, *row)[:, 0] for fold in range(FOLDS)], axis=0)
        trial.losses += np.where(np.isnan(latest), np.inf, latest).tolist()
        best = int(np.argmin(trial.losses))
        scores = -np.array([trial.record(fold, best, *row)[0] for fold in range(FOLDS)])
        return Outcome(trial.setting, trial.epochs[best] if trial.epochs else None, scores, np.zeros(1))

    def run(self, halving=True):
        return run_trials(self.trials, self.train, self.score, halving=halving, progress=self.shares.append)

    def trained(self):
        """For each call the last epoch and the settings that were trained."""
        return [
            (max(job.stop_epoch or 0 for job in jobs), sorted({int(job.l2) for job in jobs})) for jobs in self.calls
        ]


def dropped(outcomes):
    return [i for i, outcome in enumerate(outcomes) if outcome.is_dropped]


def test_sixteen_settings_by_hand():
    trials = Trials([gaining(level) for level in range(16)])
    outcomes = trials.run()
    parts = ((10, 16), (20, 12), (30, 8), (40, 4), (60, 2))
    assert trials.trained() == [(stop, list(range(count))) for stop, count in parts]
    assert dropped(outcomes) == list(range(2, 16))
    # Every outcome is that of all its records, to where it was trained.
    ends = [60] * 2 + [40] * 2 + [30] * 4 + [20] * 4 + [10] * 4
    assert [outcome.epochs for outcome in outcomes] == ends
    merits = [i + 0.5 / end for i, end in enumerate(ends)]
    np.testing.assert_allclose([-outcome.merit for outcome in outcomes], merits, rtol=1e-6)
    assert [outcome.setting.recipe.l2 for outcome in outcomes] == list(map(float, range(16)))


@pytest.mark.parametrize(
    ("n_rows", "count", "expected"), [*((4_999, n, [n] * 5) for n in (1, 2, 6, 7)), (5_000, 6, [6, 5, 3, 2, 2])]
)
def test_few_settings_are_dropped_on_many_rows_only(n_rows, count, expected):
    trials = Trials([gaining(level) for level in range(count)])
    for trial in trials.trials:
        trial.jobs = [replace(job, rows=np.arange(n_rows)) for job in trial.jobs]
    trials.run()
    assert [len(settings) for _, settings in trials.trained()] == expected


def test_weightings_compete_within_themselves():
    # The second weighting's losses are all far above the first's.
    trials = Trials([gaining(level) for level in range(8)], [gaining(1000.0 + level) for level in range(8)])
    assert set(range(16)) - set(dropped(trials.run())) == {0, 1, 8, 9}
    assert [len(settings) for _, settings in trials.trained()] == [16, 12, 8, 4, 4]


def test_a_setting_that_gains_no_more_is_done_and_can_win():
    # Least at 12: at 30 its last 18 of 30 epochs brought nothing. Least at 16: 14 of 30 are not half, 24 of 40 are.
    # Least at 25: 15 of 40 are not half. Least at 4: nothing is done before half of the schedule.
    trials = Trials([least_at(12, -9.0), least_at(16), least_at(25), least_at(4), gaining(0.0)])
    outcomes = trials.run()
    assert {int(job.l2): job.stop_epoch for jobs in trials.calls for job in jobs} == {0: 30, 1: 40, 2: 60, 3: 30, 4: 60}
    assert not dropped(outcomes)
    assert [outcome.epochs for outcome in outcomes] == [12, 16, 25, 4, 60]
    assert max(range(5), key=lambda i: outcomes[i].merit) == 0


def test_what_is_done_is_not_dropped_later_and_nothing_left_ends_the_search():
    # The two that are done at 30 are then overtaken by two others.
    falling = lambda epoch: 50.0 - 3.0 * epoch  # noqa: E731
    trials = Trials([least_at(5, -41.0), least_at(5, -41.5), falling, falling, *map(gaining, range(60, 72))])
    outcomes = trials.run()
    assert trials.trained()[3:] == [(40, [2, 3]), (60, [2, 3])]
    assert set(range(16)) - set(dropped(outcomes)) == {0, 1, 2, 3}
    trials = Trials([least_at(3), least_at(6)])
    trials.run()
    assert ([stop for stop, _ in trials.trained()], trials.shares[-1]) == ([10, 20, 30], 1.0)


def test_full_batch_settings_are_run_once_and_not_dropped():
    # Worse than all others, but there is nothing left to save.
    trials = Trials([*(gaining(level) for level in range(8)), 1000.0])
    outcomes = trials.run()
    assert [8 in settings for _, settings in trials.trained()] == [True, False, False, False, False]
    assert (outcomes[8].is_dropped, outcomes[8].epochs, outcomes[8].merit) == (False, None, -1000.0)


STOPS = {5: [1, 2, 3, 5], 6: [1, 2, 3, 4, 6], 7: [1, 2, 4, 5, 7], 8: [1, 3, 4, 5, 8], 100: [17, 33, 50, 67, 100]}


@pytest.mark.parametrize(("schedule", "stops"), [(1, [1]), (4, [4]), *STOPS.items()])  # short ones are run whole
def test_where_the_schedule_is_looked_at(schedule, stops):
    trials = Trials([gaining(level) for level in range(16)], schedule=schedule)
    outcomes = trials.run()
    assert [stop for stop, _ in trials.trained()] == stops
    assert len(dropped(outcomes)) == (14 if len(stops) > 1 else 0)  # however often it is looked at
    assert len(trials.trained()[-1][1]) == (2 if len(stops) > 1 else 16)


@pytest.mark.parametrize("halving", [True, False])
@pytest.mark.parametrize("schedule", [1, 5, 60])
def test_progress(schedule, halving):
    trials = Trials([*(gaining(level) for level in range(12)), 3.0], schedule=schedule)
    trials.run(halving=halving)
    assert (trials.shares[0], trials.shares[-1]) == (0.0, 1.0)
    assert all(one <= other for one, other in pairwise(trials.shares))


# -- a grid that grows where its best point is on the border -----------------------------------------------------------

BOTH = {"l2": True, "epochs": True}


class MadeUp:
    """A search whose scores are a function of the penalty and the length of the schedule."""

    def __init__(self, score, *, best_epoch=lambda schedule: schedule):
        self.score, self.best_epoch, self.calls = score, best_epoch, []

    def outcomes(self, settings, *, halving, progress):
        self.calls.append([(s.recipe.l2, s.recipe.max_epochs) for s in settings])
        progress(1.0)
        return [self.outcome(s.recipe.l2, s.recipe.max_epochs) for s in settings]

    def outcome(self, l2, epochs, **kind):
        recipe = Recipe(hidden=(4,), solver="adam", l2=l2, max_epochs=epochs, encoding="standard")
        scores = np.full(2, self.score(l2, epochs))
        return Outcome(Setting(0, None, recipe), self.best_epoch(epochs), scores, np.zeros(1), **kind)

    def widened(self, penalties, epochs, borders=BOTH, dropped=()):
        grid = [self.outcome(l2, epochs, is_dropped=l2 in dropped) for l2 in penalties]
        return widened(self, grid, **borders, progress=lambda share: None)


def near(l2_best):
    """The nearer to a penalty, the better."""
    return lambda l2, epochs: -abs(np.log10(max(l2, 1e-12)) - np.log10(l2_best))


@pytest.mark.parametrize(
    ("best", "penalties", "tried"),
    [
        (1e-6, [1e-4, 1e-3], [1e-5, 1e-6, 1e-7]),  # smaller ones, until one is no better
        (0.9, [0.01, 0.1, 0.2], [0.4, 0.8, 1.6]),  # larger ones, by the ratio of the last two
        (1e-11, [1e-4, 1e-3], [1e-5, 1e-6, 1e-7]),  # three steps are the most
    ],
)
def test_penalties_beyond_the_grid(best, penalties, tried):
    search = MadeUp(near(best), best_epoch=lambda schedule: 3)
    found = search.widened(penalties, 30)
    assert search.calls == [[(l2, 30)] for l2 in tried]
    assert [one.setting.recipe.l2 for one in found] == [*penalties, *tried]
    if best == 1e-11:
        assert border_notes(found[-1], found) == [
            "the best l2, 1e-07, is the smallest that was tried: a smaller value may be better"
        ]


def test_schedules_grow_while_their_end_is_best_and_no_further_than_those_of_few_rows():
    search = MadeUp(lambda l2, epochs: float(epochs))
    found = search.widened([1e-3], 5)
    assert search.calls == [[(1e-3, 10)], [(1e-3, 20)], [(1e-3, 30)]]
    assert "the best number of epochs, 30, is the maximum" in border_notes(found[-1], found)[0]
    search.calls.clear()
    search.widened([1e-3], 25)  # 30 would be hardly more
    assert search.calls == []


@pytest.mark.parametrize(
    ("penalties", "best", "epoch", "how"),
    [
        ([1e-4, 1e-3, 1e-2], 1e-3, 3, {}),  # inside
        ([1e-3], 1e-3, 3, {}),  # a penalty that was given is no grid
        ([1e-4, 1e-3], 1e-4, 5, {"borders": {"l2": False, "epochs": False}}),
        ([0.0, 1e-3], 1e-9, 3, {}),  # nothing is smaller than 0
        ([1e-4, 1e-3, 1e-2, 1e-1], 1e-4, 3, {"dropped": {1e-4}}),  # what was dropped is not the best
    ],
)
def test_nothing_beyond(penalties, best, epoch, how):
    search = MadeUp(near(best), best_epoch=lambda schedule: epoch)
    assert (len(search.widened(penalties, 5, **how)), search.calls) == (len(penalties), [])


def test_widening_ends_when_training_is_out_of_time(monkeypatch):
    search = MadeUp(near(1e-9))
    monkeypatch.setattr(search, "outcomes", Mock(side_effect=OutOfTime))
    assert len(search.widened([1e-4, 1e-3], 5)) == 2


QUICK = {"encoding": "standard", "max_epochs": 6, "cv": 2, "n_members": 1, "device": "cpu", "random_state": 0}


def test_a_given_grid_is_kept_unless_asked_to_widen(rare_rows):
    X, y = rare_rows()
    given, clf = (
        CRCENClassifierCV(hidden=(4,), l2=[10.0, 100.0], search=search, **QUICK).fit(X, y)
        for search in (None, Search(widen=True))
    )
    assert [p["l2"] for p in given.cv_results_["params"]] == [10.0, 100.0]
    assert any("l2, 10, is the smallest that was tried" in note for note in given.search_notes_)
    assert [p["l2"] for p in clf.cv_results_["params"]][:3] == [10.0, 100.0, 1.0]
    assert clf.best_params_["l2"] < 10.0
    assert clf.best_score_ > given.best_score_
    assert clf.recipe_.l2 == clf.best_params_["l2"]
    assert clf.oof_key_equation_.lhs > 0


def test_the_schedule_of_many_rows_grows(rare_rows, monkeypatch):
    """As if 60 rows were many: the default schedule then has few epochs."""
    monkeypatch.setattr("crcen.training.recipe._ENOUGH_STEPS", 10)
    settings = QUICK | {"hidden": (4,), "l2": 1e-3, "max_epochs": None, "schedule": Schedule(batch_size=32)}
    kept, clf = (CRCENClassifierCV(search=s, **settings).fit(*rare_rows()) for s in (Search(widen=False), None))
    assert kept.recipe_.max_epochs == 5
    assert "is the maximum" in kept.search_notes_[-1]
    assert clf.recipe_.max_epochs in (10, 20, 30)
    assert clf.n_iter_ == clf.best_epochs_ > 5
    assert clf.best_score_ > kept.best_score_


# -- screening on a subsample: which rows, which settings, and no influence on the results that are kept ---------------

GRID = {"hidden": [(2,), (4,)], "l2": [1e-4, 1e-3, 1e-2, 10.0]} | QUICK | {"max_epochs": 8}


@pytest.fixture
def few(monkeypatch):
    """Limits at which a small table is large."""
    for name, value in {"_SAMPLE_ROWS": 200, "_ROWS_OF_A_CLASS": 40, "_TRAINED": 5}.items():
        monkeypatch.setattr(run, name, value)


@pytest.mark.parametrize(
    ("n", "every", "size", "rare"),
    [(100_000, 20, 6_250, 3_125), (100_000, 100, 6_250, 1_000), (5_000, 3, 0, 0), (100_000, 1_000, 0, 0)],
    ids=["equally many of each class", "a rare class is kept whole", "too few rows", "too few of a class"],
)
def test_the_subsample(n, every, size, rare):
    target = np.arange(n) % every == 0
    own, same, other = (run.Subsample.drawn(target, np.ones(n), seed) for seed in (0, 0, 1))
    if not size:
        assert own is None
        return
    assert (len(own.rows), target[own.rows].sum()) == (size, rare)
    assert (np.diff(own.rows) > 0).all()
    np.testing.assert_array_equal(own.rows, same.rows)
    assert len(np.setdiff1d(own.rows, other.rows)) > 0
    # Factors bring back the size of each class; the penalty grows by the variance of a difference of class means.
    for k in (True, False):
        assert own.factors[target[own.rows] == k].sum() == pytest.approx((target == k).sum())
    variance, whole = 1 / rare + 1 / (size - rare), 1 / target.sum() + 1 / (~target).sum()
    assert own.times == pytest.approx(variance / whole)
    weights = (np.arange(n) % 3 > 0).astype(float)  # rows without weight take no part
    assert weights[run.Subsample.drawn(target, weights, 0).rows].all()


@pytest.mark.parametrize(("n_classes", "cv"), [(2, 3), (3, 2)])
def test_the_winner_is_trained_on_all_rows_as_if_it_had_been_alone(few, n_classes, cv):
    X, y = interaction_rows(1200, n_classes=n_classes)
    screened = CRCENClassifierCV(None, **GRID | {"cv": cv}).fit(X, y)
    is_dropped = screened.cv_results_["is_dropped"]
    assert is_dropped.sum() == 6
    assert np.isfinite([screened.cv_results_[f"split{fold}_test_score"] for fold in range(cv)]).all()
    assert {screened.cv_results_["params"][i]["l2"] for i in np.flatnonzero(~is_dropped)}.isdisjoint({10.0})
    best = {name: screened.best_params_[name] for name in ("hidden", "l2")}
    alone = CRCENClassifierCV(None, **GRID | best | {"cv": cv}).fit(X, y)
    assert screened.best_epochs_ == alone.best_epochs_
    np.testing.assert_allclose(screened.best_score_, alone.best_score_, rtol=1e-4)
    np.testing.assert_allclose(screened.oof_decision_function_, alone.oof_decision_function_, rtol=1e-2, atol=1e-3)
    assert np.isfinite(screened.oof_decision_function_).all()


def test_screening_sees_few_rows_and_halving_off_sees_all(few, trained):
    X, y = interaction_rows(1200)
    CRCENClassifierCV(None, **GRID).fit(X, y)
    assert [call.n_rows for call in trained[:2]] == [200, 200]
    assert {call.n_rows for call in trained[2:]} == {1200}
    assert [len(call.jobs) for call in trained[:3]] == [16, 8, 4]
    times = (2 / 100) / (1 / (y == 0).sum() + 1 / (y == 1).sum())
    penalties = [{job.l2 for job in trained[i].jobs} for i in (0, 2)]
    np.testing.assert_allclose(sorted(penalties[0]), times * np.array(GRID["l2"]))
    assert penalties[1] < set(GRID["l2"])
    full = CRCENClassifierCV(None, search=Search(halving=False), **GRID).fit(X, y)
    assert not full.cv_results_["is_dropped"].any()
