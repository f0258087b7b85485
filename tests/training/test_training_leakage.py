"""A fold's network comes from the fold's own rows."""

import numpy as np
import pytest
from training_reference import binary_job, flat, problem

from crcen.training.engine import train
from crcen.training.jobs import RowSets, Status

X, Y = problem(n=100)
FOLDS = [np.flatnonzero(np.arange(100) % 4 != fold) for fold in range(4)]
S = np.random.default_rng(0).exponential(size=100)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_each_fold_is_standardised_by_its_own_rows(solver, weighted):
    s = S if weighted else np.ones(100)
    jobs = [
        binary_job(lam, rows=RowSets(own=rows), solver=solver, max_epochs=2) for rows in FOLDS for lam in (0.2, 0.9)
    ]
    for job, result in zip(jobs, train(X, Y, jobs, sample_weight=s, device="cpu"), strict=True):
        own, weight = X[job.rows.own], s[job.rows.own]  # sample weights, never class weights
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
    # Held-out rows share the batches at weight zero; what they hold must not matter. Their labels do enter the order of
    # the batches (classes are spread evenly over the pool), so only X is changed here.
    tolerance = {"rtol": 2e-3, "atol": 2e-4} if solver == "adam" else {"rtol": 1e-6, "atol": 1e-8}
    other = change(np.random.default_rng(1), kind, FOLDS[0])
    job = binary_job(
        0.7, rows=RowSets(own=FOLDS[0]), hidden=hidden, solver=solver, activation="tanh", max_epochs=10, batch_size=32
    )
    before, after = (train(rows, Y, [job], device="cpu")[0] for rows in (X, other))
    assert after.status is before.status
    assert after.status is not Status.DIVERGED
    np.testing.assert_array_equal(before.network.encoding.mean, after.network.encoding.mean)
    np.testing.assert_allclose(flat(after.network), flat(before.network), **tolerance)
    np.testing.assert_allclose(after.shift, before.shift, **tolerance)


FULL_BATCH = {"rows": RowSets(own=FOLDS[0]), "solver": "lbfgs", "activation": "tanh", "max_epochs": 10}
OWN_POOL = {"rows": RowSets(own=FOLDS[0], pool=FOLDS[0]), "max_epochs": 5, "batch_size": 32}


@pytest.mark.parametrize(("hidden", "how"), [((), FULL_BATCH), ((4,), FULL_BATCH), ((4,), OWN_POOL)])
def test_labels_of_held_out_rows_are_ignored_without_shared_batches(hidden, how):
    other = Y.copy()
    out = np.setdiff1d(np.arange(100), FOLDS[0])
    other[out] = 1 - other[out]
    job = binary_job(0.7, hidden=hidden, **how)
    before, after = (train(X, labels, [job], device="cpu")[0] for labels in (Y, other))
    np.testing.assert_array_equal(flat(after.network), flat(before.network))


def test_validation_rows_choose_the_epoch_but_not_the_path():
    out = np.setdiff1d(np.arange(100), FOLDS[0])
    jobs = [
        binary_job(0.7, rows=RowSets(own=FOLDS[0], watched=val), max_epochs=12, batch_size=32)
        for val in (None, out, out[:9])
    ]
    plain, watched, other = train(X, Y, jobs, device="cpu")
    for result in (watched, other):
        np.testing.assert_allclose(result.loss_curve, plain.loss_curve[: result.n_iter], rtol=1e-4)
