"""The fused kernel against the stack it stands for: on a GPU as it is, elsewhere in Triton's interpreter."""

import os
import sys
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from training_reference import flat, problem

from crcen.training import stack as stack_module
from crcen.training.engine import Trainer, find_device, train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.row_sets import RowSets
from crcen.training.rows import RowFeed, TrainingData
from crcen.training.solvers import adam, fused
from crcen.training.solvers.adam_step import AdamState
from crcen.training.solvers.epochs import EpochWork, HostEpochs
from crcen.training.solvers.fused import covers, is_fusable, shape_of
from crcen.training.solvers.objective import Objective
from crcen.training.stack import Stack

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
X, Y = problem(n=90, n_features=3)
JOB = TrainingJob(0.7, hidden=(5,), l2=1e-2, max_epochs=4, batch_size=24, learning_rate=0.05)
FOLDS = [np.flatnonzero(np.arange(90) % 3 != fold) for fold in range(2)]
ROUNDING = {"rtol": 2e-4, "atol": 2e-5}  # float32 sums in another order


@pytest.fixture
def kernel():
    """The module of the kernel."""
    if find_spec("triton") is None:
        pytest.skip("triton comes with torch's CUDA builds alone")
    if DEVICE == "cpu" and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read once a process, where kernels are defined
    if DEVICE == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("triton was imported before its interpreter could be asked for")
    return import_module("crcen.training.solvers.fused_kernel")


@pytest.fixture
def fuses(kernel, monkeypatch):
    """Every stack that the kernel covers is trained by it; gives the list of those that were."""
    found = []

    def take(stack, *, with_loss):
        is_covered = covers(stack)
        found.extend([stack] * is_covered)
        return is_covered

    monkeypatch.setattr(adam, "is_fusable", take)
    return found


def stepwise(jobs, **options):
    """The results on a CPU, operation by operation."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adam, "is_fusable", is_fusable)
        return train(X, Y, jobs, device="cpu", **options)


def assert_same(fused_results, others):
    for one, other in zip(fused_results, others, strict=True):
        np.testing.assert_allclose(flat(one.network), flat(other.network), **ROUNDING)
        np.testing.assert_allclose(one.loss_curve, other.loss_curve, **ROUNDING)
        assert one.status is other.status is Status.COMPLETED


CASES = {
    "one": [JOB],
    "one unit": [replace(JOB, hidden=(1,))],
    "several widths": [replace(JOB, hidden=(h,), seed=h) for h in (17, 3, 33, 3)],
    "penalties and weights": [
        replace(JOB, l2=l2, lam=lam, seed=s) for s, (l2, lam) in enumerate([(0.0, 0.2), (0.1, 0.9)])
    ],
    "uneven groups": [
        replace(JOB, rows=RowSets(pool=np.arange(n)), hidden=(h,), shuffle_seed=n) for n in (89, 73) for h in (4, 16)
    ],
    "rows of a pool": [replace(JOB, rows=RowSets(own=fold)) for fold in FOLDS],
    "encoded for each group": [replace(JOB, rows=RowSets(own=fold), encoding="piecewise", bins=3) for fold in FOLDS],
    "two shuffles": [replace(JOB, shuffle_seed=seed) for seed in (3, 4)],
    "one batch, not filled": [replace(JOB, batch_size=200)],
    "batches of one row": [replace(JOB, batch_size=1, max_epochs=1, rows=RowSets(pool=np.arange(30)))],
    "as they are": [replace(JOB, standardize=False)],
}


@pytest.mark.parametrize("name", CASES)
def test_an_epoch_in_one_kernel_is_the_epoch_step_by_step(fuses, name):
    results = train(X, Y, CASES[name], device=DEVICE)
    assert fuses
    assert_same(results, stepwise(CASES[name]))


def test_sample_weights(fuses):
    s = np.random.default_rng(0).exponential(size=90) * (np.arange(90) % 7 > 0)
    jobs = [replace(JOB, hidden=(h,)) for h in (4, 9)]
    assert_same(train(X, Y, jobs, sample_weight=s, device=DEVICE), stepwise(jobs, sample_weight=s))


def test_a_network_that_stops_and_goes_on(fuses):
    fit = Trainer(X, Y, device=DEVICE)
    jobs = [replace(JOB, hidden=(h,)) for h in (4, 20)]
    left = fit([replace(job, stop_epoch=2, leaves_state=True) for job in jobs])
    resumed = fit([replace(job, start=one.state) for job, one in zip(jobs, left, strict=True)])
    whole = fit(jobs)
    for one, other in zip(resumed, whole, strict=True):
        np.testing.assert_array_equal(flat(one.network), flat(other.network))
    assert len(fuses) == 3
    assert_same(whole, stepwise(jobs))
    states = stepwise([replace(job, stop_epoch=2, leaves_state=True) for job in jobs])
    for one, other in zip(left, states, strict=True):
        np.testing.assert_allclose(one.state.values, other.state.values, **ROUNDING)


def test_the_best_epoch_is_kept(fuses):
    job = replace(
        JOB,
        rows=RowSets(own=FOLDS[0], pool=FOLDS[0], watched=np.flatnonzero(np.arange(90) % 3 == 0)),
    )
    (found,), (expected,) = train(X, Y, [job], device=DEVICE), stepwise([job])
    assert fuses
    np.testing.assert_allclose(flat(found.network), flat(expected.network), **ROUNDING)
    np.testing.assert_allclose(found.val_loss_curve, expected.val_loss_curve, **ROUNDING)


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning", "ignore:invalid value:RuntimeWarning")
def test_a_network_that_diverges_leaves_its_neighbours_alone(fuses):
    (left,) = train(X, Y, [replace(JOB, stop_epoch=2, leaves_state=True)], device=DEVICE)
    overflown = replace(left.state, values=np.full_like(left.state.values, 1e30))
    jobs = [replace(JOB, start=state, balance=False) for state in (left.state, overflown)]
    kept, lost = train(X, Y, jobs, device=DEVICE)
    assert lost.status is stepwise(jobs)[1].status is Status.DIVERGED
    assert kept.status is Status.COMPLETED
    (alone,) = train(X, Y, jobs[:1], device=DEVICE)
    np.testing.assert_array_equal(flat(kept.network), flat(alone.network))


@pytest.mark.parametrize("with_loss", [True, False])
@pytest.mark.parametrize("size", [(3, 5), (20, 40)])
def test_the_first_trial_passes(kernel, size, with_loss):
    assert fused._agrees(shape_of(*size), torch.device(DEVICE), with_loss)


FAULTS = {"BETA1": 0.8, "BETA2": 0.99, "n_hidden": 15, "n_inputs": 15, "n_batches": 1}


@pytest.mark.parametrize("name", FAULTS)
def test_the_first_trial_finds_a_kernel_that_is_wrong(kernel, monkeypatch, name):
    right = kernel.train_epoch

    class Wrong:
        def __getitem__(self, grid):
            return lambda *tensors, **options: right[grid](*tensors, **{**options, name: FAULTS[name]})

    monkeypatch.setattr(kernel, "train_epoch", Wrong())
    assert not fused._agrees(shape_of(3, 5), torch.device(DEVICE), True)


def test_the_first_trial_compares_vectors_that_are_filled_up_with_others(monkeypatch):
    """A CPU's flat vector is longer than a GPU's; here steps on a second, shorter stack stand for the kernel."""
    more = []
    monkeypatch.setattr(stack_module, "filled_up", lambda n_parameters, device: n_parameters + more.pop())

    class Steps:
        def __init__(self, stack, moments, objective, betas):
            self.stack, self.moments, self.objective = stack, moments, Objective(*objective)

        def run(self, feed, index, factors, *, with_loss):
            stack = self.stack
            state = AdamState.start(stack.flat, stack.grad, stack.penalties(self.objective.l2))
            work = EpochWork(stack, feed, state, self.objective, 2, lambda step: 0.01 / (step + 1), with_loss)
            loss = HostEpochs(work).run(index, 0)
            self.moments[0].copy_(state.first_moment[0] * self.share)
            self.moments[1].copy_(state.second_moment[0])
            return loss

    for share in (1.0, 1.1):
        more[:] = [0, 30]
        monkeypatch.setattr(Steps, "share", share, raising=False)
        monkeypatch.setattr(fused, "FusedEpochs", Steps)
        assert fused._agrees(shape_of(3, 5), torch.device("cpu"), True) == (share == 1.0)


def test_a_kernel_that_does_not_start_is_not_used(kernel, monkeypatch):
    monkeypatch.setattr(kernel, "train_epoch", None)
    fused._is_sound.cache_clear()
    assert not fused._is_sound(shape_of(3, 5), torch.device(DEVICE), True)
    fused._is_sound.cache_clear()


def stack_of(shapes, n_features=3, activation="relu", loss="cross_entropy", dtype=torch.float32, **options):
    return Stack(2, n_features, shapes, activation, loss, dtype, torch.device("cpu"), **options)


def test_what_is_covered():
    assert covers(stack_of([(5,), (64,)]))
    assert covers(stack_of([(64,)], n_features=127))
    assert not covers(stack_of([(64,)], n_features=128))
    assert not covers(stack_of([(513,)]))
    assert not covers(stack_of([(5,), (5, 3)]))
    assert not covers(stack_of([()]))
    assert not covers(stack_of([(5,)], activation="tanh"))
    assert not covers(stack_of([(5,)], loss="squared_error"))
    assert not covers(stack_of([(5,)], dtype=torch.float64))
    assert not covers(stack_of([(5,)], scaled=True))


def test_a_stack_with_more_parameters_or_a_subclass_is_not_covered():
    stack = stack_of([(5,)])
    stack.flat = torch.cat([stack.flat, torch.ones(3)])
    assert not covers(stack)

    class Other(Stack):
        pass

    assert not covers(Other(1, 3, [(5,)], "relu", "cross_entropy", torch.float32, torch.device("cpu")))


def test_a_cpu_is_never_fused():
    assert not is_fusable(stack_of([(5,)]), with_loss=True)


@pytest.mark.skipif(DEVICE == "cpu", reason="needs CUDA")
def test_the_switch_turns_the_kernel_off(monkeypatch):
    stack = Stack(1, 3, [(5,)] * 16, "relu", "cross_entropy", torch.float32, find_device("cuda"))
    assert is_fusable(stack, with_loss=True)
    monkeypatch.setenv(fused.SWITCH, "0")
    assert not is_fusable(stack, with_loss=True)


@pytest.mark.parametrize(
    ("n_features", "n_hidden", "inputs", "hidden"),
    [(1, 1, 16, 16), (15, 16, 16, 16), (16, 17, 32, 32), (100, 64, 128, 64)],
)
def test_shapes_are_filled_up_to_powers_of_two(n_features, n_hidden, inputs, hidden):
    shape = shape_of(n_features, n_hidden)
    assert (shape.inputs, shape.hidden) == (inputs, hidden)
    assert shape.warps in (1, 2, 4, 8)


@pytest.mark.parametrize("pools", [[np.arange(90)] * 2, [np.arange(90), np.arange(70)]])
@pytest.mark.parametrize("kind", ["standard", "piecewise"])
def test_an_epoch_at_once_is_its_batches_filled_up(pools, kind):
    data = TrainingData(X, Y.astype(bool), np.ones(90), torch.device("cpu"))
    job = replace(JOB, encoding=kind, bins=3)
    encodings = [data.encoding(job, pool[:60]) for pool in pools]
    feed = RowFeed(data, pools, [np.arange(len(pool)) + 1.0 for pool in pools], encodings, torch.float32)
    index = feed.epoch_index([0, 0], 0, 24)
    size, width = index.rows.shape[2], encodings[0].size
    x, y, base = feed.epoch(index, columns=32, rows=48)
    assert x.shape == (2, index.rows.shape[1], 48, 32)
    for i, (batch_x, batch_y, weights) in enumerate(feed.batches(index)):
        torch.testing.assert_close(x[:, i, :size, : width + 1], batch_x, rtol=0, atol=0)
        torch.testing.assert_close(y[:, i, :size], batch_y[..., 0], rtol=0, atol=0)
        torch.testing.assert_close(base[:, i, :size], weights[..., 0], rtol=0, atol=0)
    assert not x[..., width + 1 :].any()
    assert not base[..., size:].any()
