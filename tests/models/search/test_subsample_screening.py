"""Screening on a subsample: which rows, which settings, and no influence on the results that are kept."""

import numpy as np
import pytest

from crcen import CRCENClassifierCV
from crcen.models.options import Search
from crcen.models.search import run

GRID = {"hidden": [(2,), (4,)], "l2": [1e-4, 1e-3, 1e-2, 10.0], "encoding": "standard"}
QUICK = {"cv": 2, "n_members": 1, "max_epochs": 8, "device": "cpu", "random_state": 0}


def table(n=1200, n_classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    score = X @ [1.5, -1.0, 0.0] + rng.normal(size=n)
    return X, np.digitize(score, [1.0] if n_classes == 2 else [-1.0, 1.0])


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
    common = size - rare
    variance, whole = 1 / rare + 1 / common, 1 / target.sum() + 1 / (~target).sum()
    assert own.times == pytest.approx(variance / whole)
    weights = (np.arange(n) % 3 > 0).astype(float)  # rows without weight take no part
    assert weights[run.Subsample.drawn(target, weights, 0).rows].all()


class TestSearch:
    @pytest.mark.parametrize("n_classes", [2, 3])
    def test_the_winner_is_trained_on_all_rows_as_if_it_had_been_alone(self, few, n_classes):
        X, y = table(n_classes=n_classes)
        screened = CRCENClassifierCV(None, **GRID, **QUICK).fit(X, y)
        dropped = screened.cv_results_["is_dropped"]
        assert dropped.sum() == 6
        assert {screened.cv_results_["params"][i]["l2"] for i in np.flatnonzero(~dropped)}.isdisjoint({10.0})
        best = {name: screened.best_params_[name] for name in ("hidden", "l2")}
        alone = CRCENClassifierCV(None, encoding="standard", **best, **QUICK).fit(X, y)
        assert screened.best_epochs_ == alone.best_epochs_
        np.testing.assert_allclose(screened.best_score_, alone.best_score_, rtol=1e-4)
        np.testing.assert_allclose(screened.oof_decision_function_, alone.oof_decision_function_, rtol=1e-2, atol=1e-3)
        assert np.isfinite(screened.oof_decision_function_).all()

    def test_it_sees_few_rows_and_no_held_out_one(self, few, monkeypatch):
        from crcen.training.engine import Trainer

        calls, old = [], Trainer.__call__

        def watched(self, jobs, **how):
            calls.append((len(self.data.X), len(jobs), {job.l2 for job in jobs}))
            return old(self, jobs, **how)

        monkeypatch.setattr(Trainer, "__call__", watched)
        X, y = table()
        CRCENClassifierCV(None, **GRID, **QUICK).fit(X, y)
        sizes = [size for size, _, _ in calls]
        assert sizes[:2] == [200, 200]
        assert set(sizes[2:]) == {1200}
        assert [jobs for _, jobs, _ in calls[:3]] == [16, 8, 4]
        times = (2 / 100) / (1 / (y == 0).sum() + 1 / (y == 1).sum())
        np.testing.assert_allclose(sorted(calls[0][2]), times * np.array([1e-4, 1e-3, 1e-2, 10.0]))
        assert calls[2][2] < {1e-4, 1e-3, 1e-2, 10.0}

    def test_without_halving_all_settings_see_all_rows(self, few):
        X, y = table()
        full = CRCENClassifierCV(None, search=Search(halving=False), **GRID, **QUICK).fit(X, y)
        assert not full.cv_results_["is_dropped"].any()
