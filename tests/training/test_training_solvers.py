"""Adam's step against the paper; compiled epochs, captured graphs and ramps that are looked up against plain steps."""

import gc
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier

import numpy as np
import pytest
import torch
from training_reference import ACTIVATION_NAMES, flat

from crcen.training import solvers
from crcen.training.engine import train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.network import column_layout, fit_encoding
from crcen.training.rows import RampTables
from crcen.training.solvers import AdamState, CapturedGraph, adam_epoch, adam_factors, take_step
from example_rows import rare_rows

X, Y = rare_rows(130, shift=1.0)
SHAPES = ((4,), (6,), (3, 2), ())
RAMPS = ("steps", "tree", "piecewise")


@pytest.mark.parametrize("is_captured", [False, True])
def test_adams_step_is_that_of_the_paper(is_captured):
    rng = np.random.default_rng(0)
    value, penalty = rng.normal(size=6), np.array([0.0, 0.0, 0.1, 0.1, 2.0, 2.0])
    m = v = np.zeros(6)
    state = AdamState.start(*(torch.from_numpy(part.copy()) for part in (value, np.zeros(6), penalty)))
    for step, rate in enumerate((0.1, 0.03, 0.2, 0.01)):
        gradient = rng.normal(size=6) * 10.0 ** rng.integers(-6, 3, size=6)
        state.grad.copy_(torch.from_numpy(gradient))
        factors = adam_factors(rate, step)
        take_step(state, factors, torch.tensor(factors, dtype=torch.float64) if is_captured else None)
        g = gradient + penalty * value  # Kingma and Ba, algorithm 1, with the penalty's part in the gradient
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        value = value - rate * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
        np.testing.assert_allclose(state.flat.numpy(), value, rtol=1e-9)
        np.testing.assert_allclose(state.first_moment.numpy(), m, rtol=1e-9)
        np.testing.assert_allclose(state.second_moment.numpy(), v, rtol=1e-9)


# -- compiled epochs and captured graphs ------------------------------------------------------------------------------


def results(n_classes=2, has_gaps=False, **settings):
    """Networks of all shapes on two folds; the second column has few values."""
    rows = np.column_stack([X[:, 0], np.round(X[:, 1]), X[:, 2]])
    if has_gaps:
        rows[np.random.default_rng(0).random(rows.shape) < 0.1] = np.nan
    y = Y if n_classes == 2 else np.arange(130) // 3 % n_classes
    common = {"l2": 0.01, "max_epochs": 5, "batch_size": 32, **settings}
    jobs = [
        TrainingJob(np.linspace(0.3, 0.7, n_classes), hidden=hidden, rows=fold, **common)
        for hidden in SHAPES
        for fold in (np.flatnonzero(np.arange(130) % 3 != k) for k in range(2))
    ]
    return train(rows, y, jobs, sample_weight=np.linspace(0.5, 2.0, len(Y)), device="cpu")


WATCHED = np.arange(0, 130, 3)  # rows between the knots of an encoding, too
VARIANTS = [
    *({"activation": name} for name in ACTIVATION_NAMES),
    {"loss": "squared_error"},
    {"n_classes": 3},
    {"n_classes": 3, "loss": "one_against_all"},
    *({"encoding": kind, "column_scales": kind == "steps"} for kind in RAMPS),
    *({"encoding": kind, "watched": WATCHED} for kind in RAMPS),
    *({"encoding": kind, "has_gaps": True, "missing": "indicator"} for kind in RAMPS),
    {"standardize": False},
    {"shuffle_seed": 3, "watched": WATCHED},
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
def test_a_compiled_epoch_gives_the_same_bits(settings, monkeypatch):
    assert solvers.compiled(adam_epoch) is not adam_epoch  # it is compiled here
    found = results(**settings)
    monkeypatch.setattr(solvers, "compiled", lambda function: function)
    assert_same(found, results(**settings))


def run_graph(adam, index, losses, graphs={}):  # noqa: B006  -- one graph per solver
    graphs.setdefault(id(adam), (adam, solvers._StepGraph(adam)))[1].run(index, losses)


@pytest.fixture
def as_on_cuda(monkeypatch):
    """The path of CUDA on a CPU: batches hold all columns, steps are captured."""
    monkeypatch.setattr("crcen.training.rows.has_ramps", lambda encoding: False)
    monkeypatch.setattr(solvers.Adam, "run_on_host", run_graph)
    monkeypatch.setattr(solvers, "CapturedGraph", Replayed)


class Replayed:
    """A captured graph without CUDA: nothing when it is made, the same function at each call."""

    made = calls = 0

    def __init__(self, function):
        self.function, Replayed.made = function, Replayed.made + 1

    def __call__(self):
        Replayed.calls += 1
        return self.function()


@pytest.mark.parametrize("settings", VARIANTS[:-1], ids=str)
def test_the_steps_captured_on_cuda_are_those_of_the_cpu(settings, request):
    expected = results(**settings)
    request.getfixturevalue("as_on_cuda")
    for one, other in zip(results(**settings), expected, strict=True):
        np.testing.assert_allclose(flat(one.network), flat(other.network), rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(one.loss_curve, other.loss_curve, rtol=2e-4)
        np.testing.assert_allclose(one.val_loss_curve, other.val_loss_curve, rtol=2e-4)


@pytest.mark.parametrize("settings", [VARIANTS[0], VARIANTS[-1]], ids=str)
def test_replaying_a_few_steps_at_a_time_gives_the_same_bits(settings, as_on_cuda, monkeypatch):
    expected = results(**settings)
    Replayed.made = Replayed.calls = 0
    monkeypatch.setattr(solvers, "_FEWEST_STEPS", 2)
    monkeypatch.setattr(solvers, "_MOST_STEPS", 2)
    assert_same(results(**settings), expected)
    assert 0 < Replayed.made < Replayed.calls  # some were replayed


def test_few_steps_are_left_over():
    assert [solvers.graph_steps(n) for n in (1, 48, 96, 586, 4000)] == [1, 48, 48, 45, 40]


@pytest.mark.parametrize("was_collecting", [True, False])
def test_garbage_is_not_collected_during_a_capture(monkeypatch, was_collecting):
    """On CUDA freeing an older graph ends the capture."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    monkeypatch.setattr(gc, "isenabled", lambda: was_collecting)
    calls = []
    monkeypatch.setattr(gc, "disable", lambda: calls.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: calls.append("on"))
    CapturedGraph(lambda: calls.append("captured"))
    assert calls == ["off", "captured", "on"][: 3 if was_collecting else 2]


def test_an_epoch_in_several_calls_gives_the_same_bits(monkeypatch):
    found = results()
    monkeypatch.setattr(solvers, "_OPERATIONS_A_CALL", 1)
    assert_same(found, results())


@pytest.fixture
def not_compiled():
    """Nothing is compiled yet, before and after."""
    solvers._compiled.cache_clear()
    yield
    solvers._compiled.cache_clear()


def test_compiling_in_several_threads_keeps_the_warning_filters(not_compiled):
    before, barrier = list(warnings.filters), Barrier(4)

    def ask(_):
        barrier.wait()
        return solvers.compiled(adam_epoch)

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(ask, range(4)))) == 1
    assert warnings.filters == before


def test_without_torchscript_the_functions_run_uncompiled(monkeypatch, not_compiled):
    monkeypatch.delattr(torch.jit, "script")
    assert solvers.compiled(adam_epoch) is adam_epoch
    solvers._compiled.cache_clear()
    monkeypatch.setattr(sys, "version_info", (3, 14, 0))
    assert solvers.compiled(adam_epoch) is adam_epoch


# -- ramps that are looked up ------------------------------------------------------------------------------------------


def test_values_far_outside_and_next_to_each_other():
    """Knots of numbers near the end of float64, and of numbers that share most of their digits."""
    x = np.array([-1e308, -1.0, 1.0, 1.0 + 1e-9, 1e308] * 20)[:, None]
    encoding = fit_encoding("steps", column_layout(x, "steps", 4), x, np.arange(100) % 3 == 0, np.ones(100))
    tables = RampTables(encoding)
    np.testing.assert_allclose(tables.values()[0, tables.code(x).knots[:, 0]], encoding(x)[:, 1:], atol=1e-6)
