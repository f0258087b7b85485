"""Nothing of held-out rows reaches what they are scored by."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from crcen.training.engine import Trainer
from papers_training import CRCENClassifier, CRCENClassifierCV

SEEDS = range(12)
NOISE = {"max_epochs": 25, "batch_size": 32, "learning_rate": 0.03, "solver": "adam"}


def test_shuffled_labels_are_not_predicted():
    """Labels that have nothing to do with X: epochs from 25, penalties and sizes from a few."""
    areas, losses = [], []
    for seed in SEEDS:
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(160, 5)), rng.permutation(np.arange(160) < 40).astype(int)
        clf = CRCENClassifierCV(hidden=[(4,), (16,)], l2=[1e-4, 1e-2], cv=4, random_state=seed, **NOISE).fit(X, y)
        areas.append(roc_auc_score(y, clf.oof_decision_function_))
        losses.append(-clf.best_score_)
    one = np.sqrt((160 + 1) / (12 * 40 * 120))  # standard error of an AUC under chance
    assert abs(np.mean(areas) - 0.5) < 4 * one / np.sqrt(len(SEEDS))
    # Choosing among settings and epochs by the same rows gains a little over log 2, and no more.
    assert np.mean(losses) > np.log(2.0) - 0.02
    clf = CRCENClassifier(hidden=(16,), l2=1e-4, random_state=0, **NOISE).fit(X, y)
    assert roc_auc_score(y, clf.decision_function(X)) > 0.7  # the same networks do learn their own rows


def assert_same_network(one, other, tolerance):
    np.testing.assert_array_equal(one.encoding.mean, other.encoding.mean)
    np.testing.assert_array_equal(one.encoding.scale, other.encoding.scale)
    for a, b in zip(one.weights + one.biases, other.weights + other.biases, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


class TestGarbage:
    @pytest.fixture
    def trained(self, monkeypatch):
        """(jobs, results) of every call to the engine: the parts of the search, then the refit."""
        calls = []
        original = Trainer.__call__

        def spy(trainer, jobs, **kwargs):
            results = original(trainer, jobs, **kwargs)
            calls.append((list(jobs), results))
            return results

        monkeypatch.setattr(Trainer, "__call__", spy)
        return calls

    @pytest.mark.parametrize("halving", [True, False])
    @pytest.mark.parametrize(
        ("settings", "tolerance"),
        [
            ({"solver": "lbfgs", "hidden": (), "tol": 1e-8}, 1e-6),
            ({"solver": "adam", "hidden": (4,), "max_epochs": 8, "batch_size": 32, "learning_rate": 0.03}, 1e-3),
        ],
        ids=["lbfgs", "adam"],
    )
    def test_held_out_rows_do_not_reach_the_fold_networks(self, rare_rows, trained, settings, tolerance, halving):
        X, y = rare_rows()
        held_out = np.arange(100, 150)
        folds = [(np.arange(100), held_out)]
        spoiled = X.copy()
        spoiled[held_out] = np.random.default_rng(0).normal(size=(50, X.shape[1])) * 40 + 100
        calls = []
        for rows in (X, spoiled):
            trained.clear()
            # balance=True, so that the refit trains networks on the fold too.
            CRCENClassifierCV(
                l2=[1e-3, 0.1], cv=folds, random_state=0, balance=True, halving=halving, encoding="standard", **settings
            ).fit(rows, y)
            calls.append(list(trained))
        clean, dirty = calls
        pairs = 0
        for (jobs, found), (other_jobs, other_found) in zip(clean[:-1], dirty[:-1], strict=False):
            others = {(job.l2, job.stop_epoch): result for job, result in zip(other_jobs, other_found, strict=True)}
            for job, one in zip(jobs, found, strict=True):
                other = others.get((job.l2, job.stop_epoch))
                if other is None:
                    continue  # ended before, by how all folds were scored
                pairs += 1
                if settings["solver"] == "lbfgs":
                    assert_same_network(one.network, other.network, tolerance)
                else:
                    np.testing.assert_allclose(one.state.values, other.state.values, rtol=tolerance, atol=tolerance)
                    # The rows that are watched are others, or nothing was tested.
                    assert np.abs(one.val_logits - other.val_logits).max() > 1.0
        assert pairs >= (6 if halving and settings["solver"] == "adam" else 2)  # up to half of the schedule at least
        fold_networks = [
            [(job.l2, result) for job, result in zip(*refit, strict=True) if job.rows is not None]
            for refit in (clean[-1], dirty[-1])
        ]
        assert [len(found) for found in fold_networks] == [4, 4]
        for (l2, one), (other_l2, other) in zip(*fold_networks, strict=True):
            if l2 == other_l2 and one.n_iter == other.n_iter:  # else they were chosen on other rows
                assert_same_network(one.network, other.network, tolerance)

    @pytest.mark.parametrize("halving", [True, False])
    def test_no_job_watches_the_rows_that_it_is_scored_on(self, rare_rows, trained, halving):
        X, y = rare_rows()
        how = {"hidden": (4,), "l2": [1e-3, 0.1], "cv": 3, "solver": "adam", "max_epochs": 12, "random_state": 0}
        CRCENClassifierCV(halving=halving, **how).fit(X, y)
        *searched, (refitted, _) = trained
        assert len(searched) > 1 if halving else len(searched) == 1
        for jobs, results in searched:
            for job, result in zip(jobs, results, strict=True):
                own = job.trained(len(y))
                assert not np.isin(job.watched, own).any()
                assert len(own) + len(job.watched) == len(y)
                assert job.record_every == 1  # recorded, so not stopped by them
                assert job.max_epochs == 12  # one schedule
                assert result.val_loss_curve.size == 0
                assert result.state.epoch == job.stop_epoch
            assert len({job.stop_epoch for job in jobs}) == 1
        assert all(job.watched is None for job in refitted)
        assert len({job.stop_epoch for job in refitted}) == 1
