"""The key equation on the rows a network was balanced on, recomputed by a user from the network's logits."""

import numpy as np
import pytest
from training_reference import (
    binary_job,
    plain_residual,
    problem,
    row_weights,
    separable,
)

from crcen.training.engine import train
from crcen.training.jobs import Status

LAMS = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
DATA = {"overlapping": problem(n=80), "separable": separable(n=60)}


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_residual_with_sample_weights_on_training_and_validation_rows(solver):
    X, y = DATA["overlapping"]
    s = np.random.default_rng(0).exponential(size=len(y))
    rows, val_rows = np.flatnonzero(np.arange(80) % 4), np.flatnonzero(np.arange(80) % 4 == 0)
    jobs = [binary_job(lam, rows=rows, watched=val_rows, solver=solver, max_epochs=12) for lam in LAMS]
    for job, result in zip(jobs, train(X, y, jobs, sample_weight=s, device="cpu"), strict=True):
        assert plain_residual(y, result.network.logits(X), row_weights(y, job.class_weights[1], s)) <= 1e-12


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
