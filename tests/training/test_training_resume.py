"""A job that stops and goes on is the job that never stopped."""

from dataclasses import replace

import numpy as np
import pytest
from training_reference import binary_job, flat, initial_parameters

from crcen.exceptions import InvalidParameter
from crcen.training.encoding import ENCODINGS
from crcen.training.engine import Trainer, train
from crcen.training.jobs import Status, TrainingState
from crcen.training.solvers import BETAS
from example_rows import rare_rows

X, Y = rare_rows(130, shift=1.0)
EPOCHS = 9
JOB = binary_job(0.7, hidden=(5,), l2=1e-3, max_epochs=EPOCHS, batch_size=32, learning_rate=0.05)
# Folds of 86 and 87 rows, which both fill three batches.
FOLDS = [np.flatnonzero(np.arange(130) % 3 != fold) for fold in range(3)]
ROUNDING = {"rtol": 2e-4, "atol": 2e-5}  # float32 sums in another order, as of stacks in other company


def gone_on(jobs, *stops, fit=None):
    """Train up to each stop and then to the end: the parts' results, one list a part."""
    fit = fit or Trainer(X, Y, device="cpu")
    states, parts = [None] * len(jobs), []
    for stop in stops:
        part = [
            replace(job, start=state, stop_epoch=stop, leaves_state=True)
            for job, state in zip(jobs, states, strict=True)
        ]
        parts.append(fit(part))
        states = [result.state for result in parts[-1]]
    parts.append(fit([replace(job, start=state) for job, state in zip(jobs, states, strict=True)]))
    return parts


def assert_bitwise(resumed, whole):
    np.testing.assert_array_equal(flat(resumed.network), flat(whole.network))
    np.testing.assert_array_equal(resumed.network.logits(X), whole.network.logits(X))
    assert resumed.shift == whole.shift
    np.testing.assert_equal(resumed.residual, whole.residual)
    assert resumed.status is whole.status is Status.COMPLETED


STACKS = {
    "one": [JOB],
    "two layers": [replace(JOB, hidden=(4, 3))],
    "three layers": [replace(JOB, hidden=(4, 3, 2), activation="tanh")],
    "no layer": [replace(JOB, hidden=())],
    "squared error": [replace(JOB, loss="squared_error")],
    "mixed widths": [replace(JOB, hidden=hidden) for hidden in ((7,), (3,), (5,), (3,))],
    "mixed depths": [replace(JOB, hidden=hidden) for hidden in ((7,), (3, 2), (4, 4), (1,))],
    "penalties and weights": [
        replace(JOB, l2=l2, class_weights=(1 - lam, lam), seed=seed)
        for l2 in (0.0, 0.1)
        for lam in (0.2, 0.9)
        for seed in (0, 1)
    ],
    "uneven folds": [replace(JOB, rows=fold, hidden=hidden) for fold in FOLDS[:2] for hidden in ((4,), (6,))],
    "rows of a pool": [replace(JOB, rows=fold, hidden=hidden) for fold in FOLDS for hidden in ((4,), (3, 2))],
    "column scales": [
        replace(JOB, column_scales=True, hidden=hidden, encoding="steps") for hidden in ((7,), (3,), (4, 4))
    ],
    "two shuffles": [replace(JOB, shuffle_seed=seed) for seed in (3, 4)],
}


class TestGoesOn:
    @pytest.mark.parametrize("stops", [(EPOCHS - 1,), (1, 2, 7)], ids=str)
    @pytest.mark.parametrize("name", STACKS)
    def test_bit_by_bit(self, name, stops):
        jobs = STACKS[name]
        whole = train(X, Y, jobs, device="cpu")
        *parts, last = gone_on(jobs, *stops)
        for i, result in enumerate(last):
            assert_bitwise(result, whole[i])
            np.testing.assert_array_equal(result.loss_curve, whole[i].loss_curve[stops[-1] :])
            assert result.n_iter == EPOCHS - stops[-1]
            assert [part[i].state.epoch for part in parts] == list(stops)

    @pytest.mark.parametrize("standardize", [True, False])
    @pytest.mark.parametrize("encoding", sorted(ENCODINGS))
    def test_every_encoding(self, encoding, standardize):
        jobs = [replace(JOB, rows=fold, encoding=encoding, bins=5, standardize=standardize) for fold in FOLDS]
        for result, whole in zip(gone_on(jobs, 3)[-1], train(X, Y, jobs, device="cpu"), strict=True):
            assert_bitwise(result, whole)

    @pytest.mark.parametrize("name", ["mixed widths", "mixed depths", "penalties and weights", "uneven folds"])
    def test_in_other_company(self, name):
        jobs = STACKS[name]
        whole = train(X, Y, jobs, device="cpu")
        states = [result.state for result in gone_on(jobs, 4)[0]]
        order = np.random.default_rng(1).permutation(len(jobs))
        for kept in (order, order[:1], order[: len(jobs) - 1]):
            again = train(X, Y, [replace(jobs[i], start=states[i]) for i in kept], device="cpu")
            for i, result in zip(kept, again, strict=True):
                np.testing.assert_allclose(flat(result.network), flat(whole[i].network), **ROUNDING)
                assert result.n_iter == EPOCHS - 4


class TestRecords:
    @pytest.mark.parametrize(
        ("every", "first", "second"), [(1, (1, 2, 3, 4), (5, 6, 7, 8, 9)), (3, (3, 4), (6, 9)), (4, (4,), (8, 9))]
    )
    def test_are_those_of_the_whole_schedule(self, every, first, second):
        jobs = [
            replace(JOB, rows=fold, watched=np.setdiff1d(np.arange(130), fold), record_every=every, hidden=hidden)
            for fold in FOLDS[:2]
            for hidden in ((4,), (6,))
        ]
        whole = train(X, Y, [replace(job, record_every=1) for job in jobs], device="cpu")
        for parts, one in zip(zip(*gone_on(jobs, 4), strict=True), whole, strict=True):
            assert [part.recorded_epochs for part in parts] == [first, second]
            recorded = np.concatenate([part.val_logits for part in parts])
            np.testing.assert_array_equal(recorded, one.val_logits[np.array(first + second) - 1])
            assert_bitwise(parts[-1], one)


class TestState:
    def test_one_step_by_hand(self):
        # One epoch of one batch: the moments are 1−β times the gradient and its square, so m²/(1−β₁)² = v/(1−β₂).
        job = replace(JOB, batch_size=len(Y), stop_epoch=1, leaves_state=True)
        parameters, first, second = train(X, Y, [job], device="cpu")[0].state.values
        beta1, beta2 = BETAS
        np.testing.assert_allclose((first / (1 - beta1)) ** 2, second / (1 - beta2), rtol=1e-5, atol=1e-12)
        # Adam's first step is the rate times the gradient's sign; the output bias starts at the classes' log odds.
        weights, biases = initial_parameters(3, (5,), "relu", 0)
        biases[-1][:] = np.log(0.7 * np.sum(Y == 1)) - np.log(0.3 * np.sum(Y == 0))
        start = np.concatenate([part.ravel() for pair in zip(weights, biases, strict=True) for part in pair])
        rate = np.median(np.abs(parameters - start))
        large = np.abs(first) > 1e-4
        assert large.sum() > 20
        np.testing.assert_allclose((parameters - start)[large], -rate * np.sign(first[large]), rtol=1e-2)
        assert 0.0 < rate < 0.05  # the schedule's first, far below its peak

    def test_a_network_that_diverged_says_so_and_harms_no_neighbour(self):
        poison = gone_on([JOB], 4)[0][0].state
        broken = replace(JOB, seed=1, start=TrainingState(4, np.full_like(poison.values, np.nan)))
        for leaves in (False, True):
            jobs = [replace(job, leaves_state=leaves) for job in (replace(JOB, start=poison), broken)]
            sound, lost = train(X, Y, jobs, device="cpu")
            assert lost.status is Status.DIVERGED
            assert lost.network is None
            assert sound.status is Status.COMPLETED
        alone = train(X, Y, [JOB], device="cpu")[0]
        sound = train(X, Y, [replace(JOB, start=poison), broken], device="cpu")[0]
        np.testing.assert_allclose(flat(sound.network), flat(alone.network), **ROUNDING)


STATE = TrainingState(4, np.zeros((3, 26), dtype=np.float32))
UNABLE = {"solver": "lbfgs"}, {"watched": np.arange(9)}  # to be resumed


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        *((one | part, "only a job of Adam") for one in UNABLE for part in ({"start": STATE}, {"leaves_state": True})),
        *(({"start": replace(STATE, epoch=n)}, f"before the last epoch, 9: got {n}") for n in (0, 9)),
        ({"start": STATE, "stop_epoch": 4}, "start must be before the last epoch, 4: got 4"),
    ],
)
def test_jobs_that_contradict_themselves_are_refused(given, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        replace(JOB, **given)
