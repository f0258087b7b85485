import itertools

import numpy as np
import pytest
from training_reference import (
    assert_same_result,
    binary_job,
    data_gradients,
    little_memory,
    plain_logits,
    plain_loss,
    plain_residual,
    row_weights,
)

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.training.engine import train
from crcen.training.jobs import Status, TrainingJob
from example_rows import rare_rows

X, Y = rare_rows(80, shift=1.0)
FAST = {"max_epochs": 4, "hidden": (4,), "batch_size": 20}


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_job_without_rows_or_weight_of_a_class_is_refused(solver):
    jobs = [binary_job(0.5, solver=solver, rows=rows) for rows in (Y.nonzero()[0], (1 - Y).nonzero()[0], Y[:0])]
    jobs.append(TrainingJob((1.0, 1.0, 1.0), solver=solver))  # for three classes
    cases = [(job, None) for job in jobs]
    for rows in (None, np.arange(40)):
        for label in (0, 1):
            no_weight = (np.arange(80) < (80 if rows is None else 40)) & (label == Y)
            cases.append((binary_job(0.5, solver=solver, rows=rows), 1.0 - no_weight))
    for job, s in cases:
        with pytest.raises(InvalidInput, match="every class"):
            train(X, Y, [job], sample_weight=s, device="cpu")
    with pytest.raises(InvalidParameter, match="positive numbers"):
        TrainingJob((1.0, 0.0))


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_a_convex_problem_converges_to_the_tolerance(tol):
    lams = (0.01, 0.5, 0.99)
    jobs = [binary_job(lam, solver="lbfgs", hidden=(), l2=0.01, max_epochs=200, tol=tol, balance=False) for lam in lams]
    results = train(X, Y, jobs, device="cpu")
    for lam, result in zip(lams, results, strict=True):
        assert result.status is Status.CONVERGED
        assert result.n_iter == len(result.loss_curve) < 200
        weight_grads, bias_grads = data_gradients(result.network, X, Y, row_weights(Y, lam))
        gradient = np.concatenate([(weight_grads[0] + 0.01 * result.network.weights[0])[:, 0], bias_grads[0]])
        assert np.abs(gradient).max() <= tol * (1 + 1e-6)
        assert (np.diff(result.loss_curve) <= 1e-12).all()
        objective = plain_loss("cross_entropy", Y, plain_logits(result.network, X), row_weights(Y, lam))
        objective += 0.005 * (result.network.weights[0] ** 2).sum()
        assert result.loss_curve[-1] == pytest.approx(objective, rel=1e-10)


@pytest.mark.parametrize("size", [1e10, 1e30])
def test_a_line_search_that_fails_is_not_convergence(size):
    # Without standardisation a column this large needs steps far below what the search tries. Standing still with a
    # huge gradient is no optimum: either the solver gets there or its status must not claim convergence. Without a
    # penalty the standardised problem has the same optimum.
    big = X - X.mean(0)
    big[:, 0] *= size
    job = binary_job(0.5, solver="lbfgs", hidden=(), l2=0.0, standardize=False, balance=False, max_epochs=100)
    result, optimum = (train(rows, Y, [job], device="cpu")[0] for rows in (big, X / X.std(0)))
    assert optimum.status is Status.CONVERGED
    if result.status is Status.CONVERGED:
        assert result.loss_curve[-1] < optimum.loss_curve[-1] + 1e-3


WATCHED = {"rows": np.arange(60), "watched": np.arange(60, 80)}
FULL_BATCH = {"activation": "tanh", "solver": "lbfgs"}


@pytest.mark.parametrize(
    ("hidden", "how"), [(hidden, how) for hidden in ((), (4,), (4, 3)) for how in ({}, WATCHED)] + [((4,), FULL_BATCH)]
)
def test_a_network_that_diverges_leaves_its_stack_alone(hidden, how):
    common = {"hidden": hidden, "max_epochs": 15, "batch_size": 20, **how}
    too_large = 1e308 if how is FULL_BATCH else 1e39  # infinite in float32
    jobs = [binary_job(lam, l2=l2, **common) for lam, l2 in ((0.2, 1e-2), (0.5, too_large), (0.9, 1e-2))]
    results = train(X, Y, jobs, device="cpu")
    assert results[1].status is Status.DIVERGED
    assert not results[1].status.is_finite
    assert results[1].network is None
    for i in (0, 2):
        assert_same_result(results[i], train(X, Y, [jobs[i]], device="cpu")[0], rtol=1e-3, atol=1e-4)


# -- awkward data ------------------------------------------------------------------------------------------------------


def test_saturated_float32_networks_are_balanced():
    # A rate this high drives logits into the hundreds; what is left is still solved for in float64.
    lams = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    how = {"l2": 0.0, "learning_rate": 5.0, "max_epochs": 10}
    jobs = [binary_job(lam, hidden=hidden, **how) for lam in lams for hidden in ((), (8,))]
    results = train(X, Y, jobs, device="cpu")
    assert all(result.status is Status.COMPLETED for result in results)
    assert max(np.abs(result.network.logits(X)).max() for result in results) > 40
    for job, result in zip(jobs, results, strict=True):
        assert plain_residual(Y, result.network.logits(X), row_weights(Y, job.class_weights[1])) <= 1e-12


def test_columns_far_from_zero_keep_their_digits_in_float32():
    job = binary_job(0.7, max_epochs=8, batch_size=20)
    far = X + 1e9
    plain, result = train(X, Y, [job], device="cpu")[0], train(far, Y, [job], device="cpu")[0]
    np.testing.assert_allclose(result.network.logits(far), plain.network.logits(X), rtol=1e-2, atol=1e-3)


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_tight", [False, True])
def test_progress_rises_to_one(is_tight):
    jobs = [binary_job(0.5, **FAST), binary_job(0.9, **FAST), binary_job(0.5, solver="lbfgs", **FAST)]
    jobs += [binary_job(0.5, watched=np.arange(20), **FAST), binary_job(0.5, hidden=(), solver="lbfgs", max_epochs=99)]
    shares = []
    memory = little_memory(X, Y, jobs) if is_tight else None
    train(X, Y, jobs, device="cpu", memory_bytes=memory, progress=shares.append)
    assert len(shares) > len(jobs)
    assert shares[0] > 0
    assert all(b >= a for a, b in itertools.pairwise(shares))
    assert shares[-1] == 1.0
    assert max(shares) <= 1.0


def test_a_bound_that_one_network_exceeds_is_refused():
    jobs = [binary_job(0.5, **FAST)]
    enough = little_memory(X, Y, jobs)
    assert train(X, Y, jobs, device="cpu", memory_bytes=enough)[0].network is not None
    with pytest.raises(InvalidParameter, match=r"memory_bytes is too small: the largest network needs 1\.1 times"):
        train(X, Y, jobs, device="cpu", memory_bytes=enough - 1)


@pytest.mark.parametrize("scale", [1e-45, 1e39])
def test_only_ratios_of_sample_weights_count(scale):
    job = binary_job(0.7, hidden=(4,), max_epochs=3)
    plain, scaled = (train(X, Y, [job], sample_weight=np.full(len(Y), w), device="cpu")[0] for w in (1.0, scale))
    np.testing.assert_allclose(scaled.network.logits(X), plain.network.logits(X), rtol=1e-4, atol=1e-5)
