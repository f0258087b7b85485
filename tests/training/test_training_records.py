"""Recorded logits of validation rows, and schedules cut at an epoch."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from training_reference import binary_job, flat, plain_logits

from crcen.training.engine import train
from crcen.training.jobs import Status
from example_rows import rare_rows

X, Y = rare_rows(140, 4, shift=1.0)
ROWS, VAL = np.arange(0, 90), np.arange(90, 140)
EPOCHS = 7
JOB = binary_job(0.7, rows=ROWS, hidden=(6,), l2=1e-3, max_epochs=EPOCHS, batch_size=32, learning_rate=0.05)
RECORDED = replace(JOB, watched=VAL, record_every=1)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # float32 on the way


def one(job, **kwargs):
    return train(X, Y, [job], device="cpu", **kwargs)[0]


@pytest.fixture(scope="module")
def recorded():
    return one(RECORDED)


class TestStopEpoch:
    @pytest.mark.parametrize("epoch", [1, 3, EPOCHS - 1, EPOCHS])
    def test_a_cut_is_the_schedule_up_to_there(self, recorded, epoch):
        cut = one(replace(JOB, stop_epoch=epoch, balance=False))
        assert cut.n_iter == epoch
        assert cut.status is Status.COMPLETED
        assert len(cut.loss_curve) == epoch
        np.testing.assert_allclose(cut.loss_curve, recorded.loss_curve[:epoch], rtol=1e-5)
        np.testing.assert_allclose(plain_logits(cut.network, X[VAL]), recorded.val_logits[epoch - 1], **CLOSE)

    def test_full_batch_iterations_are_cut_too(self):
        full = replace(JOB, solver="lbfgs", max_epochs=200, tol=1e-9)
        cut = one(replace(full, stop_epoch=3))
        assert cut.n_iter == 3
        assert cut.status is Status.MAX_EPOCHS
        assert one(full).n_iter > 3


class TestRecords:
    @pytest.mark.parametrize(
        ("every", "stop_epoch", "epochs"),
        [
            (1, None, (1, 2, 3, 4, 5, 6, 7)),
            (2, None, (2, 4, 6, 7)),
            (3, None, (3, 6, 7)),
            (7, None, (7,)),
            (100, None, (7,)),
            (2, 5, (2, 4, 5)),
            (2, 4, (2, 4)),
        ],
    )
    def test_every_so_many_epochs_and_the_last(self, recorded, every, stop_epoch, epochs):
        result = one(replace(RECORDED, record_every=every, stop_epoch=stop_epoch))
        assert result.recorded_epochs == epochs
        assert result.val_logits.shape == (len(epochs), len(VAL))
        assert result.val_logits.dtype == np.float32
        np.testing.assert_allclose(result.val_logits, recorded.val_logits[np.array(epochs) - 1], **CLOSE)

    @pytest.mark.parametrize("column_scales", [False, True])
    @pytest.mark.parametrize(("hidden", "balance"), [((6,), True), ((), True), ((4, 3), False)], ids=str)
    def test_the_last_record_is_the_network_before_its_balance(self, hidden, balance, column_scales):
        result = one(replace(RECORDED, hidden=hidden, balance=balance, column_scales=column_scales))
        logits = plain_logits(result.network, X[VAL]) - result.shift
        np.testing.assert_allclose(result.val_logits[-1], logits, **CLOSE)
        np.testing.assert_allclose(result.network.logits(X[VAL]) - result.shift, logits, atol=1e-9)
        assert (result.shift != 0.0) == balance

    def test_recording_does_not_change_training(self):
        plain = one(JOB)
        for every in (1, 3):
            result = one(replace(RECORDED, record_every=every))
            np.testing.assert_allclose(flat(result.network), flat(plain.network), rtol=1e-6, atol=1e-7)
            np.testing.assert_allclose(result.loss_curve, plain.loss_curve, rtol=1e-6)
            assert result.shift == pytest.approx(plain.shift, rel=1e-6)  # balanced without the validation rows
            assert result.status is plain.status is Status.COMPLETED

    def test_a_recorded_network_is_not_stopped_early(self):
        rng = np.random.default_rng(0)
        noise = rng.random(len(Y)) < 0.4
        job = replace(RECORDED, hidden=(32,), l2=0.0, max_epochs=40)
        watched, result = (train(X, noise, [replace(job, record_every=every)], device="cpu")[0] for every in (0, 1))
        assert watched.status is Status.EARLY_STOPPED
        assert watched.recorded_epochs == ()
        assert watched.val_logits.size == 0
        assert result.status is Status.COMPLETED
        assert result.n_iter == len(result.recorded_epochs) == 40
        assert result.val_loss_curve.size == 0

    def test_folds_of_unequal_size_each_have_their_own_rows(self):
        # More rows than are put through a stack at a time, and fold sizes that do not divide evenly.
        rng = np.random.default_rng(1)
        n = 9001
        big, label = rng.normal(size=(n, 3)), rng.random(n) < 0.3
        edges = [0, 1, 4097, 4100, 9001]
        jobs = []
        for low, high in pairwise(edges):
            test = np.arange(low, high)
            for hidden in ((3,), (5,)):
                jobs.append(
                    replace(
                        RECORDED, hidden=hidden, max_epochs=2,
                        rows=np.setdiff1d(np.arange(n), test), watched=test,
                        batch_size=2048, balance=False,
                    )
                )  # fmt: skip
        for job, result in zip(jobs, train(big, label, jobs, device="cpu"), strict=True):
            assert result.val_logits.shape == (2, len(job.watched))
            expected = plain_logits(result.network, big[job.watched])
            np.testing.assert_allclose(result.val_logits[-1], expected, **CLOSE)

    @pytest.mark.parametrize(
        ("settings", "status"),
        [
            ({"max_epochs": 6, "tol": 0.0, "record_every": 4}, Status.MAX_EPOCHS),
            ({"hidden": (), "max_epochs": 500, "tol": 1e-6, "record_every": 500}, Status.CONVERGED),
        ],
    )
    def test_full_batch_networks_are_recorded_at_their_end(self, settings, status):
        result = one(replace(RECORDED, solver="lbfgs", **settings))
        assert result.status is status
        assert result.recorded_epochs == ((4, 6) if status is Status.MAX_EPOCHS else (result.n_iter,))
        np.testing.assert_allclose(result.val_logits[-1], plain_logits(result.network, X[VAL]) - result.shift, **CLOSE)
