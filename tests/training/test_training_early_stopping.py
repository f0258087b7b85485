import numpy as np
import pytest
from training_reference import assert_same_result, binary_job, plain_logits, plain_loss, row_weights

from crcen.exceptions import InvalidInput
from crcen.training.engine import train
from crcen.training.jobs import Status

PATIENCE = 10


def noisy(n=120, seed=0):
    """Labels that are half noise: networks with many units overfit within a few epochs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = np.where(rng.random(n) < 0.5, X[:, 0] > 0.5, rng.random(n) < 0.4).astype(np.int64)
    y[:2] = 0, 1
    return X, y


X, Y = noisy()
ROWS, VAL = np.arange(0, 60), np.arange(60, 120)
WATCHED = {"rows": ROWS, "watched": VAL, "max_epochs": 60, "batch_size": 16, "balance": False}
JOBS = [
    binary_job(0.5, hidden=(32,), learning_rate=0.05, l2=0.0, **WATCHED),
    binary_job(0.5, hidden=(32,), learning_rate=0.05, l2=0.0, seed=3, **WATCHED),
    binary_job(0.9, hidden=(32,), learning_rate=0.05, l2=0.0, **WATCHED),
    binary_job(0.5, hidden=(32,), learning_rate=0.05, l2=0.3, **WATCHED),
    binary_job(0.5, hidden=(2,), learning_rate=0.05, l2=3.0, **WATCHED),
]


def val_loss(network, lam, s=None, loss="cross_entropy", rows=VAL):
    weights = row_weights(Y, lam, s)[rows]
    return plain_loss(loss, Y[rows], plain_logits(network, X[rows]), weights)


def test_the_best_epoch_is_kept_and_training_stops_some_epochs_after_it():
    results = train(X, Y, JOBS, device="cpu")
    for job, result in zip(JOBS, results, strict=True):
        best = int(result.val_loss_curve.argmin())
        assert val_loss(result.network, job.class_weights[1]) == pytest.approx(result.val_loss_curve[best], rel=1e-5)
        assert len(result.loss_curve) == len(result.val_loss_curve) == result.n_iter
        is_stopped = result.status is Status.EARLY_STOPPED
        assert is_stopped or result.status is Status.COMPLETED
        assert result.n_iter == (best + 1 + PATIENCE if is_stopped else job.max_epochs)
        assert result.n_iter <= min(best + 1 + PATIENCE, job.max_epochs)
    assert max(r.val_loss_curve[-1] - r.val_loss_curve.min() for r in results) > 0.05  # the last epoch is another
    assert sum(result.status is Status.EARLY_STOPPED for result in results) >= 3
    assert len({result.n_iter for result in results}) >= 2


def test_validation_rows_choose_the_epoch_but_not_the_path():
    jobs = [binary_job(0.7, rows=ROWS, watched=val, max_epochs=12, batch_size=32) for val in (None, VAL, VAL[:9])]
    plain, *watched = train(X, Y, jobs, device="cpu")
    for result in watched:
        np.testing.assert_allclose(result.loss_curve, plain.loss_curve[: result.n_iter], rtol=1e-4)


def test_validation_loss_is_weighted_by_class_and_sample():
    s = np.random.default_rng(1).exponential(size=len(Y))
    jobs = [
        binary_job(lam, hidden=(8,), loss=loss, **(WATCHED | {"max_epochs": 5}))
        for lam in (0.2, 0.9)
        for loss in ("cross_entropy", "squared_error")
    ]
    for job, result in zip(jobs, train(X, Y, jobs, sample_weight=s, device="cpu"), strict=True):
        expected = val_loss(result.network, job.class_weights[1], s, job.loss)
        assert expected == pytest.approx(result.val_loss_curve.min(), rel=1e-5)
        assert abs(val_loss(result.network, job.class_weights[1], None, job.loss) - expected) > 1e-4


def test_full_batch_networks_stop_too():
    jobs = [
        binary_job(0.5, hidden=(32,), l2=l2, **(WATCHED | {"solver": "lbfgs", "max_epochs": 80})) for l2 in (0.0, 0.5)
    ]
    free, held = train(X, Y, jobs, device="cpu")
    assert free.status is Status.EARLY_STOPPED
    assert free.n_iter == int(free.val_loss_curve.argmin()) + 1 + PATIENCE
    for result in (free, held):
        assert val_loss(result.network, 0.5) == pytest.approx(result.val_loss_curve.min(), rel=1e-9)
    assert_same_result(free, train(X, Y, jobs[:1], device="cpu")[0], rtol=1e-3, atol=1e-4)


def test_validation_rows_without_weight_never_pass_for_a_trained_network():
    # Their loss is 0/0; a network that was never better than NaN is the initial one.
    s = np.where(np.arange(len(Y)) < 60, 1.0, 0.0)
    with pytest.raises(InvalidInput, match="validation rows must have positive weight"):
        train(X, Y, [JOBS[0]], sample_weight=s, device="cpu")
