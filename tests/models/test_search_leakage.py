"""Nothing of held-out rows reaches what they are scored by."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import crcen.training.engines
from crcen import CRCENClassifier, CRCENClassifierCV, train

SEEDS = range(12)
NOISE = {"max_epochs": 25, "batch_size": 32, "learning_rate": 0.03, "solver": "adam"}


@pytest.fixture(scope="module")
def of_noise():
    """Labels that have nothing to do with X, and the fits on them: epochs from 25, penalties and sizes from a few."""
    fits = []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(160, 5)), rng.permutation(np.arange(160) < 40).astype(int)
        clf = CRCENClassifierCV(hidden=[(4,), (16,)], l2=[1e-4, 1e-2], cv=4, random_state=seed, **NOISE).fit(X, y)
        fits.append((X, y, clf))
    return fits


class TestShuffledLabels:
    def test_the_out_of_fold_ranking_is_chance(self, of_noise):
        areas = [roc_auc_score(y, clf.oof_decision_function_) for _, y, clf in of_noise]
        one = np.sqrt((160 + 1) / (12 * 40 * 120))  # standard error of an AUC under chance
        assert abs(np.mean(areas) - 0.5) < 4 * one / np.sqrt(len(SEEDS))

    def test_the_out_of_fold_precision_is_the_base_rate(self, of_noise):
        found = [average_precision_score(y, clf.oof_decision_function_) for _, y, clf in of_noise]
        rng = np.random.default_rng(0)
        chance = [average_precision_score(of_noise[0][1], rng.normal(size=160)) for _ in range(400)]
        assert abs(np.mean(found) - np.mean(chance)) < 4 * np.std(chance) / np.sqrt(len(SEEDS))
        assert np.mean(chance) == pytest.approx(0.25, abs=0.04)

    def test_the_loss_is_no_better_than_that_of_a_constant(self, of_noise):
        # Choosing among settings and epochs by the same rows gains a little over log 2, and no more.
        losses = [-clf.best_score_ for _, _, clf in of_noise]
        assert np.mean(losses) > np.log(2.0) - 0.02

    def test_the_same_networks_do_learn_their_own_rows(self, of_noise):
        X, y, _ = of_noise[0]
        clf = CRCENClassifier(hidden=(16,), l2=1e-4, random_state=0, **NOISE).fit(X, y)
        assert roc_auc_score(y, clf.decision_function(X)) > 0.7  # chance is .5 ± .05

    def test_scores_of_other_names_are_chance_too(self, of_noise):
        areas = []
        for X, y, clf in of_noise[:6]:
            own = CRCENClassifierCV(hidden=(16,), l2=1e-4, scoring="roc_auc", random_state=clf.random_state, **NOISE)
            areas.append(own.fit(X, y).best_score_)
        one = np.sqrt((160 + 1) / (12 * 40 * 120))
        assert abs(np.mean(areas) - 0.5) < 4 * one / np.sqrt(6)


class TestGarbage:
    @pytest.fixture
    def trained(self, monkeypatch):
        """(jobs, results) of every call to the engine."""
        calls = []

        def spy(X, y, jobs, **kwargs):
            results = train(X, y, jobs, **kwargs)
            calls.append((jobs, results))
            return results

        monkeypatch.setattr(crcen.training.engines, "train", spy)
        return calls

    @pytest.mark.parametrize(
        ("settings", "tolerance"),
        [
            ({"solver": "lbfgs", "hidden": (), "tol": 1e-8}, 1e-6),
            ({"solver": "adam", "hidden": (4,), "max_epochs": 8, "batch_size": 32, "learning_rate": 0.03}, 1e-3),
        ],
        ids=["lbfgs", "adam"],
    )
    def test_held_out_rows_do_not_reach_the_fold_networks(self, rare_rows, trained, settings, tolerance):
        X, y = rare_rows()
        held_out = np.arange(100, 150)
        folds = [(np.arange(100), held_out)]
        spoiled = X.copy()
        spoiled[held_out] = np.random.default_rng(0).normal(size=(50, X.shape[1])) * 40 + 100
        for rows in (X, spoiled):
            CRCENClassifierCV(l2=[1e-3, 0.1], cv=folds, random_state=0, **settings).fit(rows, y)
        (_, clean), (_, clean_refit), (_, dirty), (_, dirty_refit) = trained
        for one, other in [*zip(clean, dirty, strict=True), (clean_refit[1], dirty_refit[1])]:
            if one is clean_refit[1] and one.n_iter != other.n_iter:
                continue  # the cut was chosen on other rows
            np.testing.assert_array_equal(one.network.encoding.mean, other.network.encoding.mean)
            np.testing.assert_array_equal(one.network.encoding.scale, other.network.encoding.scale)
            for a, b in zip(one.network.weights + one.network.biases, other.network.weights + other.network.biases,
                            strict=True):  # fmt: skip
                np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)

    def test_no_job_watches_the_rows_that_it_is_scored_on(self, rare_rows, trained):
        X, y = rare_rows()
        CRCENClassifierCV(hidden=(4,), l2=[1e-3, 0.1], cv=3, solver="adam", max_epochs=5, random_state=0).fit(X, y)
        searched, refitted = trained[0][0], trained[1][0]
        for job in searched:
            own = job.rows if job.rows is not None else job.pool
            assert not np.isin(job.val_rows, own).any()
            assert len(own) + len(job.val_rows) == len(y)
            assert job.record_every == 1  # recorded, so not stopped by them
            assert job.stop_epoch is None
        assert all(job.val_rows is None for job in refitted)
        assert len({job.stop_epoch for job in refitted}) == 1

    def test_all_networks_run_the_whole_schedule(self, rare_rows, trained):
        X, y = rare_rows()
        CRCENClassifierCV(hidden=[(4,), (32,)], l2=0.0, cv=3, solver="adam", max_epochs=30, random_state=0,
                          learning_rate=0.1).fit(X, y)  # fmt: skip
        assert {result.n_iter for result in trained[0][1]} == {30}
