"""A fold's network comes from the fold's own rows."""

import numpy as np
import pytest
from training_reference import binary_job, flat, problem

from crcen.training.engine import train
from crcen.training.jobs import Status

X, Y = problem(n=100)
FOLDS = [np.flatnonzero(np.arange(100) % 4 != fold) for fold in range(4)]
S = np.random.default_rng(0).exponential(size=100)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_each_fold_is_standardised_by_its_own_rows(solver, weighted):
    s = S if weighted else np.ones(100)
    jobs = [binary_job(lam, rows=rows, solver=solver, max_epochs=2) for rows in FOLDS for lam in (0.2, 0.9)]
    for job, result in zip(jobs, train(X, Y, jobs, sample_weight=s, device="cpu"), strict=True):
        own, weight = X[job.rows], s[job.rows]  # sample weights, never class weights
        mean = np.average(own, axis=0, weights=weight)
        np.testing.assert_allclose(result.network.encoding.mean, mean, rtol=1e-12)
        scale = np.sqrt(np.average((own - mean) ** 2, axis=0, weights=weight))
        np.testing.assert_allclose(result.network.encoding.scale, scale, rtol=1e-10)
        assert np.abs(mean - np.average(X, axis=0, weights=s)).max() > 1e-3


def change(rng, kind, rows):
    other = X.copy()
    out = np.setdiff1d(np.arange(100), rows)
    other[out] = {"moderate": 10 * rng.normal(size=(len(out), 3)) + 20, "wild": 1e30, "absurd": 1e200}[kind]
    return other


@pytest.mark.parametrize("kind", ["moderate", "wild", "absurd"])
@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_held_out_rows_do_not_change_a_folds_network(solver, hidden, kind):
    other, labels = change(np.random.default_rng(1), kind, FOLDS[0]), Y.copy()
    out = np.setdiff1d(np.arange(100), FOLDS[0])
    labels[out] = 1 - labels[out]
    job = binary_job(0.7, rows=FOLDS[0], hidden=hidden, solver=solver, activation="tanh", max_epochs=10, batch_size=32)
    before, after = (train(*rows, [job], device="cpu")[0] for rows in ((X, Y), (other, labels)))
    assert after.status is before.status
    assert after.status is not Status.DIVERGED
    np.testing.assert_array_equal(before.network.encoding.mean, after.network.encoding.mean)
    np.testing.assert_array_equal(flat(after.network), flat(before.network))
    np.testing.assert_array_equal(after.shift, before.shift)


def test_validation_rows_choose_the_epoch_but_not_the_path():
    out = np.setdiff1d(np.arange(100), FOLDS[0])
    jobs = [binary_job(0.7, rows=FOLDS[0], watched=val, max_epochs=12, batch_size=32) for val in (None, out, out[:9])]
    plain, watched, other = train(X, Y, jobs, device="cpu")
    for result in (watched, other):
        np.testing.assert_allclose(result.loss_curve, plain.loss_curve[: result.n_iter], rtol=1e-4)
