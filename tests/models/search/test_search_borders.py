"""A grid that grows where its best point is on the border, counted by hand and on real fits."""

import numpy as np
import pytest

from crcen import CRCENClassifierCV, Schedule, Search
from crcen.models.clock import OutOfTime
from crcen.models.search.grid import Outcome, Setting
from crcen.models.search.run import Borders, border_notes, widened
from crcen.training.recipe import Recipe

BOTH = Borders(l2=True, epochs=True)


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

    def widened(self, penalties, epochs, borders=BOTH, **how):
        grid = [self.outcome(l2, epochs) for l2 in penalties]
        return widened(self, grid, borders, progress=lambda share: None, **how)


def near(l2_best):
    """The nearer to a penalty, the better."""
    return lambda l2, epochs: -abs(np.log10(l2) - np.log10(l2_best))


@pytest.mark.parametrize(
    ("best", "penalties", "tried"),
    [
        (1e-6, [1e-4, 1e-3], [1e-5, 1e-6, 1e-7]),  # smaller ones, until one is no better
        (0.9, [0.01, 0.1, 0.2], [0.4, 0.8, 1.6]),  # larger ones, by the ratio of the last two
        (1e-30, [1e-4, 1e-3], [1e-5, 1e-6, 1e-7]),  # three steps are the most
    ],
)
def test_penalties_beyond_the_grid(best, penalties, tried):
    search = MadeUp(near(best), best_epoch=lambda schedule: 3)
    found = search.widened(penalties, 30)
    assert search.calls == [[(l2, 30)] for l2 in tried]
    assert [one.setting.recipe.l2 for one in found] == [*penalties, *tried]
    if best == 1e-30:
        assert border_notes(found[-1], found) == [
            "the best l2, 1e-07, is the smallest that was tried: a smaller one may serve better"
        ]


def test_schedules_grow_while_their_end_is_best_and_no_further_than_those_of_few_rows():
    search = MadeUp(lambda l2, epochs: float(epochs))
    found = search.widened([1e-3], 5)
    assert search.calls == [[(1e-3, 10)], [(1e-3, 20)], [(1e-3, 30)]]
    assert "the best number of epochs, 30, is the whole schedule" in border_notes(found[-1], found)[0]
    search = MadeUp(lambda l2, epochs: float(epochs))
    search.widened([1e-3], 25)  # 30 would be hardly more
    assert search.calls == []


@pytest.mark.parametrize(
    ("penalties", "best", "epoch", "borders"),
    [
        ([1e-4, 1e-3, 1e-2], 1e-3, 3, BOTH),  # inside
        ([1e-3], 1e-3, 3, BOTH),  # a penalty that was given is no grid
        ([1e-4, 1e-3], 1e-4, 5, Borders(l2=False, epochs=False)),
        ([0.0, 1e-3], 1e-9, 3, BOTH),  # nothing is smaller than 0
    ],
)
def test_nothing_beyond(penalties, best, epoch, borders):
    search = MadeUp(lambda l2, epochs: near(best)(max(l2, 1e-12), epochs), best_epoch=lambda schedule: epoch)
    assert len(search.widened(penalties, 5, borders)) == len(penalties)
    assert search.calls == []


def test_a_dropped_setting_is_not_the_best():
    search = MadeUp(near(1e-4), best_epoch=lambda schedule: 3)
    grid = [search.outcome(1e-4, 30, is_dropped=True), *(search.outcome(l2, 30) for l2 in (1e-3, 1e-2, 1e-1))]
    widened(search, grid, BOTH, progress=lambda share: None)
    assert search.calls == []


def test_widening_ends_when_training_is_out_of_time(monkeypatch):
    search = MadeUp(near(1e-9))

    def late(settings, **how):
        raise OutOfTime

    monkeypatch.setattr(search, "outcomes", late)
    assert len(search.widened([1e-4, 1e-3], 5)) == 2


QUICK = {"hidden": (4,), "encoding": "standard", "max_epochs": 6, "cv": 2, "n_members": 1, "random_state": 0}


class TestEstimator:
    def test_a_given_grid_is_kept_unless_asked_to_widen(self, rare_rows):
        X, y = rare_rows()
        given = CRCENClassifierCV(l2=[10.0, 100.0], **QUICK).fit(X, y)
        assert [p["l2"] for p in given.cv_results_["params"]] == [10.0, 100.0]
        assert any("l2, 10, is the smallest that was tried" in note for note in given.search_notes_)
        clf = CRCENClassifierCV(l2=[10.0, 100.0], search=Search(widen=True), **QUICK).fit(X, y)
        assert [p["l2"] for p in clf.cv_results_["params"]][:3] == [10.0, 100.0, 1.0]
        assert clf.best_params_["l2"] < 10.0
        assert clf.best_score_ > given.best_score_
        assert clf.recipe_.l2 == clf.best_params_["l2"]
        assert clf.oof_key_equation_.lhs > 0

    def test_the_schedule_of_many_rows_grows(self, rare_rows, monkeypatch):
        """As if 60 rows were many: the default schedule then has few epochs."""
        monkeypatch.setattr("crcen.training.recipe._ENOUGH_STEPS", 10)
        X, y = rare_rows()
        settings = QUICK | {"l2": 1e-3, "max_epochs": None, "schedule": Schedule(batch_size=32)}
        kept = CRCENClassifierCV(search=Search(widen=False), **settings).fit(X, y)
        clf = CRCENClassifierCV(**settings).fit(X, y)
        assert kept.recipe_.max_epochs == 5
        assert "is the whole schedule" in kept.search_notes_[-1]
        assert clf.recipe_.max_epochs in (10, 20, 30)
        assert clf.n_iter_ == clf.best_epochs_ > 5
        assert clf.best_score_ > kept.best_score_
