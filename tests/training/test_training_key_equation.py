"""The key equation on the rows a network was balanced on, recomputed by a user from the network's logits."""

import itertools

import numpy as np
import pytest
from scipy.special import expit
from training_reference import (
    ACTIVATION_NAMES,
    binary_job,
    plain_logits,
    plain_residual,
    problem,
    row_weights,
    separable,
)

from crcen.training.engine import train
from crcen.training.jobs import RowSets, Status

LAMS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
DEPTHS = ((), (4,), (4, 3), (3, 3, 2), (3, 2, 3, 2))
DATA = {"overlapping": problem(n=80), "separable": separable(n=60)}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
@pytest.mark.parametrize("activation", ACTIVATION_NAMES)
def test_residual_after_training(activation, solver, data):
    X, y = DATA[data]
    epochs = 5 if solver == "adam" else 12
    jobs = [
        binary_job(lam, l2=l2, hidden=hidden, activation=activation, solver=solver, max_epochs=epochs, batch_size=32)
        for lam, l2, hidden in itertools.product(LAMS, (0.0, 0.1), DEPTHS)
    ]
    raw = 0.0
    for job, result in zip(jobs, train(X, y, jobs, device="cpu"), strict=True):
        weights = row_weights(y, job.class_weights[1])
        logits = result.network.logits(X)
        assert logits.dtype == np.float64
        assert plain_residual(y, logits, weights) <= 1e-12
        assert result.residual <= 1e-12
        raw = max(raw, plain_residual(y, logits - result.shift, weights))
        np.testing.assert_allclose(logits, plain_logits(result.network, X), rtol=1e-9, atol=1e-9)
        # The paper's form: Σ_pos (1 − q) / Σ_neg q = (1 − λ)/λ.
        if data == "overlapping":
            ratio = expit(-logits[y == 1]).sum() / expit(logits[y == 0]).sum()
            assert ratio == pytest.approx((1 - job.class_weights[1]) / job.class_weights[1], rel=1e-8)
    assert raw > 1e-4  # without the solve it does not hold


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_residual_with_sample_weights_on_training_and_validation_rows(solver):
    X, y = DATA["overlapping"]
    s = np.random.default_rng(0).exponential(size=len(y))
    rows, val_rows = np.flatnonzero(np.arange(80) % 4), np.flatnonzero(np.arange(80) % 4 == 0)
    jobs = [binary_job(lam, rows=RowSets(own=rows, watched=val_rows), solver=solver, max_epochs=12) for lam in LAMS]
    for job, result in zip(jobs, train(X, y, jobs, sample_weight=s, device="cpu"), strict=True):
        assert plain_residual(y, result.network.logits(X), row_weights(y, job.class_weights[1], s)) <= 1e-12


def test_balance_rows_are_what_is_balanced():
    X, y = DATA["overlapping"]
    rows, chosen = np.arange(0, 50), np.arange(30, 80)
    jobs = [binary_job(lam, rows=RowSets(own=rows, balanced=chosen), max_epochs=5) for lam in LAMS]
    jobs += [binary_job(lam, rows=RowSets(own=rows), max_epochs=5) for lam in LAMS]
    results = train(X, y, jobs, device="cpu")
    for job, chose, own in zip(jobs, results[:6], results[6:], strict=False):
        for result, balanced, other in ((chose, chosen, rows), (own, rows, chosen)):
            logits = result.network.logits(X)
            assert (
                plain_residual(y[balanced], logits[balanced], row_weights(y, job.class_weights[1])[balanced]) <= 1e-12
            )
            assert plain_residual(y[other], logits[other], row_weights(y, job.class_weights[1])[other]) > 1e-9


def test_the_solve_moves_the_output_bias_alone_by_the_shift():
    X, y = DATA["overlapping"]
    jobs = [binary_job(0.9, hidden=(4, 3), max_epochs=5, balance=balance) for balance in (True, False)]
    solved, plain = train(X, y, jobs, device="cpu")
    assert plain.shift == 0.0
    assert abs(solved.shift) > 1e-6
    for one, other in zip(solved.network.weights, plain.network.weights, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(solved.network.biases[-1] - solved.shift, plain.network.biases[-1], atol=1e-4)
    expected = plain_residual(y, plain.network.logits(X), row_weights(y, 0.9))
    assert np.isnan(plain.residual)  # no solve, no pass over the rows for it
    assert expected > 1e-6


def test_squared_error_networks_can_be_balanced_too():
    X, y = DATA["overlapping"]
    jobs = [binary_job(lam, loss="squared_error", max_epochs=5) for lam in LAMS]
    for job, result in zip(jobs, train(X, y, jobs, device="cpu"), strict=True):
        assert plain_residual(y, result.network.logits(X), row_weights(y, job.class_weights[1])) <= 1e-12


def test_saturated_float32_networks_are_balanced():
    # A rate this high drives logits into the hundreds; what is left is still solved for in float64.
    X, y = DATA["overlapping"]
    jobs = [
        binary_job(lam, l2=0.0, learning_rate=5.0, max_epochs=10, hidden=hidden)
        for lam in LAMS
        for hidden in ((), (8,))
    ]
    results = train(X, y, jobs, device="cpu")
    assert all(result.status is Status.COMPLETED for result in results)
    assert max(np.abs(result.network.logits(X)).max() for result in results) > 40
    for job, result in zip(jobs, results, strict=True):
        assert plain_residual(y, result.network.logits(X), row_weights(y, job.class_weights[1])) <= 1e-12


def test_balance_rows_of_one_class_leave_the_network_and_say_so():
    X, y = DATA["overlapping"]
    result = train(X, y, [binary_job(0.5, rows=RowSets(balanced=np.flatnonzero(y == 1)), max_epochs=3)], device="cpu")[
        0
    ]
    assert np.isnan(result.residual)
    assert result.shift == 0.0
    assert np.isfinite(result.network.logits(X)).all()
