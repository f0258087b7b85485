"""Schedules of training: the best epoch of validation rows, records of them, cuts, and jobs that stop and go on."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from training_reference import binary_job, flat, plain_logits, plain_loss

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.training.engine import Trainer, train
from crcen.training.jobs import Status, TrainingState
from crcen.training.network import ENCODINGS, raw
from crcen.training.recipe import n_batches
from crcen.training.rows import RowFeed, TrainingData
from example_rows import rare_rows, row_weights

# -- batches -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_an_epoch_holds_every_row_once_and_spreads_classes(batch_size, n_classes):
    rng = np.random.default_rng(2)
    labels, pool = rng.integers(0, n_classes, 400), np.flatnonzero(rng.random(400) < 0.8)
    # The only column is the row's own number, so that every batch says which rows it holds.
    data = TrainingData(np.arange(400.0)[:, None], labels, np.ones(400), n_classes, torch.device("cpu"))
    feed = RowFeed(data, [pool, pool[::-1].copy(), pool], [raw(1)] * 3, torch.float64)

    def orders(epoch):
        found = [[], [], []]
        index = feed.epoch_index([7, 7, 5], epoch, batch_size)
        assert index.shape[2] == n_batches(len(pool), batch_size) == -(-len(pool) // min(batch_size, len(pool)))
        for x, y, weight in feed.batches(index):
            assert (x[..., -1] == 1).all()
            for group, own in enumerate(found):
                is_row = weight[group, :, 0] > 0  # the others are padding
                rows = x[group, is_row, 0].long().tolist()
                assert labels[rows].tolist() == y.expand(3, -1, 1)[group, is_row, 0].tolist()
                own.append(rows)
        return [np.concatenate(own) for own in found]

    first, other, again = orders(0), orders(1), orders(0)
    for order in (*first, *other):
        np.testing.assert_array_equal(np.sort(order), pool)
        for label in range(n_classes):  # after any number of rows a class has its share of them, within a few rows
            is_own = labels[order] == label
            assert np.abs(np.cumsum(is_own) - np.arange(1, len(pool) + 1) * is_own.mean()).max() <= n_classes
    np.testing.assert_array_equal(first, again)
    assert all((one != two).any() for one, two in ((first[0], other[0]), (first[0], first[2])))


# -- early stopping ----------------------------------------------------------------------------------------------------

PATIENCE = 10


def noisy(n=120, seed=0):
    """Labels that are half noise: networks with many units overfit within a few epochs."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 6))
    y = np.where(rng.random(n) < 0.5, X[:, 0] > 0.5, rng.random(n) < 0.4).astype(np.int64)
    y[:2] = 0, 1
    return X, y


NOISY, NOISE = noisy()
FIRST, LAST = np.arange(0, 60), np.arange(60, 120)
VALIDATED = {"rows": FIRST, "validation": LAST, "max_epochs": 60, "batch_size": 16, "balance": False}
JOBS = [
    binary_job(lam, hidden=hidden, learning_rate=0.05, l2=l2, seed=seed, **VALIDATED)
    for lam, hidden, l2, seed in (
        (0.5, (32,), 0.0, 0),
        (0.5, (32,), 0.0, 3),
        (0.9, (32,), 0.0, 0),
        (0.5, (32,), 0.3, 0),
        (0.5, (2,), 3.0, 0),
    )
]
JOBS.append(binary_job(0.5, hidden=(32,), l2=0.0, **(VALIDATED | {"solver": "lbfgs", "max_epochs": 80})))


def val_loss(network, lam, s=None, loss="cross_entropy"):
    return plain_loss(loss, NOISE[LAST], plain_logits(network, NOISY[LAST]), row_weights(NOISE, lam, s)[LAST])


def test_the_best_epoch_is_kept_and_training_stops_some_epochs_after_it():
    results = train(NOISY, NOISE, JOBS, device="cpu")
    for job, result in zip(JOBS, results, strict=True):
        best = int(result.val_loss_curve.argmin())
        assert val_loss(result.network, job.class_weights[1]) == pytest.approx(result.val_loss_curve[best], rel=1e-5)
        assert len(result.loss_curve) == len(result.val_loss_curve) == result.n_iter
        is_stopped = result.status is Status.EARLY_STOPPED
        assert is_stopped or result.status is Status.COMPLETED
        assert result.n_iter == (best + 1 + PATIENCE if is_stopped else job.max_epochs)
        assert result.n_iter <= min(best + 1 + PATIENCE, job.max_epochs)
    assert max(r.val_loss_curve[-1] - r.val_loss_curve.min() for r in results) > 0.05  # the last epoch is another
    assert sum(result.status is Status.EARLY_STOPPED for result in results) >= 4
    assert results[-1].status is Status.EARLY_STOPPED
    assert len({result.n_iter for result in results}) >= 2


def test_validation_rows_choose_the_epoch_but_not_the_path():
    jobs = [binary_job(0.7, rows=FIRST, validation=val, max_epochs=12, batch_size=32) for val in (None, LAST, LAST[:9])]
    plain, *validation = train(NOISY, NOISE, jobs, device="cpu")
    for result in validation:
        np.testing.assert_allclose(result.loss_curve, plain.loss_curve[: result.n_iter], rtol=1e-4)


def test_validation_loss_is_weighted_by_class_and_sample():
    s = np.random.default_rng(1).exponential(size=len(NOISE))
    jobs = [
        binary_job(lam, hidden=(8,), loss=loss, **(VALIDATED | {"max_epochs": 5}))
        for lam in (0.2, 0.9)
        for loss in ("cross_entropy", "squared_error")
    ]
    for job, result in zip(jobs, train(NOISY, NOISE, jobs, sample_weight=s, device="cpu"), strict=True):
        expected = val_loss(result.network, job.class_weights[1], s, job.loss)
        assert expected == pytest.approx(result.val_loss_curve.min(), rel=1e-5)
        assert abs(val_loss(result.network, job.class_weights[1], None, job.loss) - expected) > 1e-4


def test_validation_rows_without_weight_never_pass_for_a_trained_network():
    # Their loss is 0/0; a network that was never better than NaN is the initial one.
    s = np.where(np.arange(len(NOISE)) < 60, 1.0, 0.0)
    with pytest.raises(InvalidInput, match="validation rows must have positive weight"):
        train(NOISY, NOISE, [JOBS[0]], sample_weight=s, device="cpu")


# -- records of validation rows, and schedules cut at an epoch ---------------------------------------------------------

X, Y = rare_rows(130, shift=1.0)
VAL, EPOCHS = np.arange(90, 130), 9
JOB = binary_job(0.7, hidden=(5,), l2=1e-3, max_epochs=EPOCHS, batch_size=32, learning_rate=0.05)
RECORDED = replace(JOB, rows=np.arange(90), validation=VAL, record_every=1)
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # float32 on the way


def one(job):
    return train(X, Y, [job], device="cpu")[0]


@pytest.fixture(scope="module")
def recorded():
    return one(RECORDED)


@pytest.mark.parametrize("epoch", [1, 3, EPOCHS - 1, EPOCHS])
def test_a_cut_is_the_schedule_up_to_there(recorded, epoch):
    cut = one(replace(JOB, rows=np.arange(90), stop_epoch=epoch, balance=False))
    assert cut.n_iter == epoch
    assert cut.status is Status.COMPLETED
    assert len(cut.loss_curve) == epoch
    np.testing.assert_allclose(cut.loss_curve, recorded.loss_curve[:epoch], rtol=1e-5)
    np.testing.assert_allclose(plain_logits(cut.network, X[VAL]), recorded.val_logits[epoch - 1], **CLOSE)


@pytest.mark.parametrize(
    ("every", "stop_epoch", "epochs"),
    [
        (1, None, (1, 2, 3, 4, 5, 6, 7, 8, 9)),
        (2, None, (2, 4, 6, 8, 9)),
        (100, None, (9,)),
        (2, 5, (2, 4, 5)),
        (2, 4, (2, 4)),
    ],
)
def test_records_are_of_every_so_many_epochs_and_the_last(recorded, every, stop_epoch, epochs):
    result = one(replace(RECORDED, record_every=every, stop_epoch=stop_epoch))
    assert result.recorded_epochs == epochs
    assert result.val_logits.shape == (len(epochs), len(VAL))
    assert result.val_logits.dtype == np.float32
    np.testing.assert_allclose(result.val_logits, recorded.val_logits[np.array(epochs) - 1], **CLOSE)


@pytest.mark.parametrize("column_scales", [False, True])
@pytest.mark.parametrize(("hidden", "balance"), [((6,), True), ((), True), ((4, 3), False)], ids=str)
def test_the_last_record_is_the_network_before_its_balance(hidden, balance, column_scales):
    result = one(replace(RECORDED, hidden=hidden, balance=balance, column_scales=column_scales))
    logits = plain_logits(result.network, X[VAL]) - result.shift
    np.testing.assert_allclose(result.val_logits[-1], logits, **CLOSE)
    np.testing.assert_allclose(result.network.logits(X[VAL]) - result.shift, logits, atol=1e-9)
    assert (result.shift != 0.0) == balance


def test_a_recorded_network_is_not_stopped_early():
    noise = np.random.default_rng(0).random(len(Y)) < 0.4
    job = replace(RECORDED, hidden=(32,), l2=0.0, max_epochs=40)
    validation, result = (train(X, noise, [replace(job, record_every=every)], device="cpu")[0] for every in (0, 1))
    assert validation.status is Status.EARLY_STOPPED
    assert (validation.recorded_epochs, validation.val_logits.size) == ((), 0)
    assert result.status is Status.COMPLETED
    assert result.n_iter == len(result.recorded_epochs) == 40
    assert result.val_loss_curve.size == 0


def test_folds_of_unequal_size_each_have_their_own_rows():
    # More rows than are put through a stack at a time, and fold sizes that do not divide evenly.
    rng = np.random.default_rng(1)
    n = 9001
    big, label = rng.normal(size=(n, 3)), rng.random(n) < 0.3
    how = {"max_epochs": 2, "batch_size": 2048, "balance": False}
    jobs = [
        replace(RECORDED, hidden=hidden, rows=np.setdiff1d(np.arange(n), test), validation=test, **how)
        for test in (np.arange(low, high) for low, high in pairwise([0, 1, 4097, 4100, 9001]))
        for hidden in ((3,), (5,))
    ]
    for job, result in zip(jobs, train(big, label, jobs, device="cpu"), strict=True):
        assert result.val_logits.shape == (2, len(job.validation))
        expected = plain_logits(result.network, big[job.validation])
        np.testing.assert_allclose(result.val_logits[-1], expected, **CLOSE)


@pytest.mark.parametrize(
    ("settings", "epochs"),
    [
        ({"max_epochs": 6, "tol": 0.0, "record_every": 4}, (4, 6)),
        ({"max_epochs": 200, "tol": 1e-9, "stop_epoch": 3}, (1, 2, 3)),
        ({"hidden": (), "max_epochs": 500, "tol": 1e-6, "record_every": 500}, None),
    ],
    ids=["whole", "cut", "converged"],
)
def test_full_batch_networks_are_cut_and_recorded_at_their_end(settings, epochs):
    result = one(replace(RECORDED, solver="lbfgs", **settings))
    assert result.status is (Status.MAX_EPOCHS if epochs else Status.CONVERGED)
    assert result.recorded_epochs == (epochs or (result.n_iter,))
    np.testing.assert_allclose(result.val_logits[-1], plain_logits(result.network, X[VAL]) - result.shift, **CLOSE)


# -- a job that stops and goes on is the job that never stopped --------------------------------------------------------

# Folds of 86 and 87 rows, which both fill three batches.
FOLDS = [np.flatnonzero(np.arange(130) % 3 != fold) for fold in range(3)]
ROUNDING = {"rtol": 2e-4, "atol": 2e-5}  # float32 sums in another order, as in other stacks


def labels(jobs):
    """Class numbers for jobs, and the number of classes."""
    n_classes = len(jobs[0].class_weights)
    return Y if n_classes == 2 else np.arange(130) % n_classes, n_classes


def gone_on(jobs, *stops):
    """Train up to each stop and then to the end: the parts' results, one list a part."""
    y, n_classes = labels(jobs)
    fit, states, parts = Trainer(X, y, n_classes=n_classes, device="cpu"), [None] * len(jobs), []
    for stop in (*stops, None):
        how = {"stop_epoch": stop, "leaves_state": stop is not None}
        parts.append(fit([replace(job, start=state, **how) for job, state in zip(jobs, states, strict=True)]))
        states = [result.state for result in parts[-1]]
    return parts


def assert_bitwise(resumed, whole):
    np.testing.assert_array_equal(flat(resumed.network), flat(whole.network))
    np.testing.assert_array_equal(resumed.network.logits(X), whole.network.logits(X))
    np.testing.assert_array_equal(resumed.shift, whole.shift)
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
    "column scales": [replace(JOB, column_scales=True, hidden=h, encoding="steps") for h in ((7,), (3,), (4, 4))],
    "four classes": [replace(JOB, class_weights=(1, 2, 3, 4), hidden=hidden) for hidden in ((6,), (4, 3))],
    "two shuffles": [replace(JOB, shuffle_seed=seed) for seed in (3, 4)],
    "unchanged inputs": [replace(JOB, rows=fold, standardize=False) for fold in FOLDS],
    **{f"{kind} encoding": [replace(JOB, rows=fold, encoding=kind, bins=5) for fold in FOLDS] for kind in ENCODINGS},
}


@pytest.mark.parametrize("stops", [(EPOCHS - 1,), (1, 2, 7)], ids=str)
@pytest.mark.parametrize("name", STACKS)
def test_a_job_goes_on_bit_by_bit(name, stops):
    jobs = STACKS[name]
    whole = train(X, labels(jobs)[0], jobs, device="cpu")
    *parts, last = gone_on(jobs, *stops)
    for i, result in enumerate(last):
        assert_bitwise(result, whole[i])
        np.testing.assert_array_equal(result.loss_curve, whole[i].loss_curve[stops[-1] :])
        assert result.n_iter == EPOCHS - stops[-1]
        assert [part[i].state.epoch for part in parts] == list(stops)


@pytest.mark.parametrize("name", ["mixed widths", "mixed depths", "penalties and weights", "uneven folds"])
def test_jobs_go_on_in_other_company(name):
    jobs = STACKS[name]
    whole = train(X, Y, jobs, device="cpu")
    states = [result.state for result in gone_on(jobs, 4)[0]]
    order = np.random.default_rng(1).permutation(len(jobs))
    for kept in (order, order[:1], order[: len(jobs) - 1]):
        again = train(X, Y, [replace(jobs[i], start=states[i]) for i in kept], device="cpu")
        for i, result in zip(kept, again, strict=True):
            np.testing.assert_allclose(flat(result.network), flat(whole[i].network), **ROUNDING)
            assert result.n_iter == EPOCHS - 4


@pytest.mark.parametrize(
    ("every", "first", "second"), [(1, (1, 2, 3, 4), (5, 6, 7, 8, 9)), (3, (3, 4), (6, 9)), (4, (4,), (8, 9))]
)
@pytest.mark.parametrize("weights", [(0.3, 0.7), (1, 2, 3, 4)], ids=len)
def test_records_are_those_of_the_whole_schedule(every, first, second, weights):
    own = {"class_weights": weights, "record_every": every}
    jobs = [
        replace(JOB, rows=fold, validation=np.setdiff1d(np.arange(130), fold), hidden=hidden, **own)
        for fold in FOLDS[:2]
        for hidden in ((4,), (6,))
    ]
    whole = train(X, labels(jobs)[0], [replace(job, record_every=1) for job in jobs], device="cpu")
    for parts, one in zip(zip(*gone_on(jobs, 4), strict=True), whole, strict=True):
        assert [part.recorded_epochs for part in parts] == [first, second]
        recorded = np.concatenate([part.val_logits for part in parts])
        np.testing.assert_array_equal(recorded, one.val_logits[np.array(first + second) - 1])
        assert_bitwise(parts[-1], one)


def test_a_network_that_diverged_says_so_and_harms_no_neighbour():
    state = gone_on([JOB], 4)[0][0].state
    broken = replace(JOB, seed=1, start=TrainingState(4, np.full_like(state.values, np.nan)))
    for leaves in (False, True):
        jobs = [replace(job, leaves_state=leaves) for job in (replace(JOB, start=state), broken)]
        sound, lost = train(X, Y, jobs, device="cpu")
        assert (sound.status, lost.status, lost.network) == (Status.COMPLETED, Status.DIVERGED, None)
        if not leaves:
            np.testing.assert_allclose(flat(sound.network), flat(one(JOB).network), **ROUNDING)


STATE = TrainingState(4, np.zeros((3, 26), dtype=np.float32))
UNABLE = {"solver": "lbfgs"}, {"validation": np.arange(9)}  # to be resumed


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
