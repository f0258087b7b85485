"""Adam compiled and in one pass over the parameters, and without either where torch has no such thing."""

import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
import torch
from training_reference import ACTIVATION_NAMES, flat, problem

from crcen.training import stack
from crcen.training.engine import train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.losses import LOSSES
from crcen.training.passes import adam_epoch
from crcen.training.row_sets import RowSets
from crcen.training.solvers import compiled, epochs

X, Y = problem(n=130, n_features=3)
SHAPES = ((4,), (6,), (3, 2), ())


def jobs(watched=None, **settings):
    folds = [np.arange(130) % 3 != fold for fold in range(2)]
    return [
        TrainingJob(
            0.7,
            hidden=hidden,
            l2=0.01,
            max_epochs=5,
            batch_size=32,
            rows=RowSets(pool=np.flatnonzero(fold), watched=watched),
            **settings,
        )
        for hidden in SHAPES
        for fold in folds
    ]


def results(**settings):
    return train(X, Y, jobs(**settings), sample_weight=np.linspace(0.5, 2.0, len(Y)), device="cpu")


@pytest.fixture
def forgotten():
    """Nothing is known yet of what torch can do, before and after."""
    compiled._compiled.cache_clear()
    yield
    compiled._compiled.cache_clear()


VARIANTS = [
    *({"activation": name} for name in ACTIVATION_NAMES),
    *({"loss": name} for name in LOSSES),
    *({"encoding": "steps", "column_scales": scales} for scales in (False, True)),
    {"standardize": False},
    {"shuffle_seed": 3, "watched": np.arange(0, 130, 3)},
    {"stop_epoch": 3, "leaves_state": True},
]


def assert_same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.status == other.status != Status.DIVERGED
        if one.network is None:
            np.testing.assert_array_equal(one.state.values, other.state.values)
        else:
            np.testing.assert_array_equal(flat(one.network), flat(other.network))
            np.testing.assert_array_equal(one.loss_curve, other.loss_curve)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_a_compiled_epoch_gives_the_same_numbers(settings, monkeypatch):
    assert epochs.compiled_adam_epoch() is not adam_epoch  # it is compiled here
    found = results(**settings)
    monkeypatch.setattr(epochs, "compiled_adam_epoch", lambda: adam_epoch)
    assert_same(found, results(**settings))


@pytest.mark.parametrize("settings", VARIANTS[:-1], ids=str)
def test_the_steps_that_are_captured_on_cuda_are_those_of_the_cpu(settings, monkeypatch):
    expected, made = results(**settings), stack.Design

    def step_by_step(form, index, first_step):
        return epochs.GraphEpochs(form.work).run(index, first_step)  # the first epoch of each runs as it is

    monkeypatch.setattr("crcen.training.rows.has_ramps", lambda encoding: False)  # batches hold all columns there
    monkeypatch.setattr(stack, "Design", lambda *parts: made(*parts)._replace(by_products=True))
    monkeypatch.setattr(epochs.HostEpochs, "run", step_by_step)
    for one, other in zip(results(**settings), expected, strict=True):
        np.testing.assert_allclose(flat(one.network), flat(other.network), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(one.loss_curve, other.loss_curve, rtol=2e-4)


class Replayed:
    """What a recorded graph does, without CUDA: nothing when it is made, and the same function at each call."""

    made = calls = 0

    def __init__(self, function):
        self.function, Replayed.made = function, Replayed.made + 1

    def __call__(self):
        Replayed.calls += 1
        return self.function()


@pytest.mark.parametrize("settings", [VARIANTS[0], VARIANTS[-1]], ids=str)
def test_steps_replayed_a_few_at_a_time_are_those_one_by_one(settings, monkeypatch):
    monkeypatch.setattr("crcen.training.rows.has_ramps", lambda encoding: False)
    monkeypatch.setattr("crcen.training.solvers.adam.HostEpochs", epochs.GraphEpochs)
    monkeypatch.setattr(epochs, "Recorded", Replayed)
    expected = results(**settings)
    Replayed.made = Replayed.calls = 0
    monkeypatch.setattr(epochs, "_FEWEST_AT_ONCE", 2)
    monkeypatch.setattr(epochs, "_MOST_AT_ONCE", 2)
    assert_same(results(**settings), expected)
    assert 0 < Replayed.made < Replayed.calls  # some were replayed


@pytest.mark.parametrize(("n_batches", "size"), [(1, 1), (48, 48), (96, 48), (586, 45), (4000, 40)])
def test_few_steps_are_left_over(n_batches, size):
    assert epochs.steps_at_once(n_batches) == size


def test_an_epoch_in_several_calls_is_that_in_one(monkeypatch):
    found = results()
    monkeypatch.setattr(epochs, "_OPERATIONS_A_CALL", 1)
    assert_same(found, results())


def test_compiling_in_several_threads_leaves_the_warning_filters_as_they_were(forgotten):
    before, barrier = list(warnings.filters), Barrier(4)

    def ask(_):
        barrier.wait()
        return compiled.compiled_adam_epoch()

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1
    assert warnings.filters == before


def no_script(*arguments, **options):
    raise RuntimeError("torch.jit.script is gone")


def drops_steps(function):
    return lambda *arguments: None


def switched_off(function):
    return function


@pytest.mark.parametrize("replacement", [no_script, drops_steps, switched_off])
def test_where_torch_compiles_nothing_or_something_else_the_function_runs_as_it_is(replacement, monkeypatch, forgotten):
    monkeypatch.setattr(torch.jit, "script", replacement)
    assert compiled.compiled_adam_epoch() is adam_epoch


def test_a_python_that_torchscript_does_not_support(monkeypatch, forgotten):
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert compiled.compiled_adam_epoch() is adam_epoch
