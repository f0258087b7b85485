"""Adam's step, compiled epochs and captured graphs against plain steps; the same bits on any number of threads."""

import gc
import json
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from threading import Barrier, Event, get_ident

import numpy as np
import pytest
import torch
from training_reference import ACTIVATION_NAMES, binary_job, flat

from crcen.training import engine, solvers
from crcen.training.device import THREADS, reproducible_arithmetic
from crcen.training.engine import train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.network import column_layout, fit_encoding
from crcen.training.recipe import Recipe
from crcen.training.rows import RampTables
from crcen.training.solvers import AdamState, CapturedGraph, adam_epoch, adam_factors, take_step
from crcen.training.stream import Batch, StreamShape, StreamTrainer
from example_rows import rare_rows
from processes import run_python

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


VALIDATED = np.arange(0, 130, 3)  # rows between the knots of an encoding, too
VARIANTS = [
    *({"activation": name} for name in ACTIVATION_NAMES),
    {"loss": "squared_error"},
    {"n_classes": 3},
    {"n_classes": 3, "loss": "one_against_all"},
    *({"encoding": kind, "column_scales": kind == "steps"} for kind in RAMPS),
    *({"encoding": kind, "validation": VALIDATED} for kind in RAMPS),
    *({"encoding": kind, "has_gaps": True, "missing": "indicator"} for kind in RAMPS),
    {"standardize": False},
    {"shuffle_seed": 3, "validation": VALIDATED},
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


# Fits whose sums could be shared out: by torch, by BLAS (dot products from 10,000 rows on), or by cutting stacks.
FITS = """
import hashlib, json, sys
import numpy as np
import torch
import crcen

if len(sys.argv) > 1:
    torch.set_num_threads(int(sys.argv[1]))

def rows(n, width, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, width))
    return X, X[:, 0] + 0.5 * X[:, 1] ** 2 + rng.normal(size=n) > 1.5

def digest(model):
    arrays = [*model.coefs_, *model.intercepts_, np.array([model.shift_]), model.probability_map_]
    return hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest()

fits = {
    "default": crcen.CRCENClassifier(max_epochs=2, n_members=2, random_state=0).fit(*rows(12000, 4)),
    "search": crcen.CRCENClassifierCV(max_epochs=4, cv=3, random_state=0).fit(*rows(700, 8)),
    "search by F1": crcen.CRCENClassifierCV(max_epochs=2, cv=2, weighting=["balanced", None], random_state=0,
                                            search=crcen.Search(scoring="f1"), calibration="paper").fit(*rows(300, 4)),
    "wide": crcen.CRCENClassifier(max_epochs=2, random_state=0, encoding="standard").fit(*rows(400, 1200)),
    "large": crcen.CRCENClassifier(hidden=(700,), n_members=1, max_epochs=1, random_state=0).fit(*rows(400, 60)),
    "linear": crcen.CRCENClassifier(hidden=(), random_state=0).fit(*rows(14000, 12)),
    "map": crcen.CRCENClassifier(hidden=(4,), n_members=2, encoding="standard", max_epochs=1, random_state=0,
                                 calibration=crcen.Calibration(probability="temperature")).fit(*rows(14000, 3)),
    "streamed": crcen.fit_stream([rows(11000, 6), rows(11000, 6, 1)], epochs=1, hidden=(500,), random_state=0),
    "in parts": crcen.CRCENClassifier(random_state=0).partial_fit(*rows(3000, 6)),
}
print(json.dumps({name: digest(model) for name, model in fits.items()}))
"""


def fitted(threads, *arguments):
    environment = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), threads)
    return json.loads(run_python("-c", FITS, *arguments, **environment))


def test_the_number_of_threads_changes_no_bit():
    alone = fitted("1")
    assert len(alone) == 9
    assert fitted("3", "8") == alone  # torch is told to have more threads than there are cores


def trained_on(threads, X, y, jobs, monkeypatch):
    """Results on so many threads of so many cores."""
    monkeypatch.setattr(engine, "cpu_count", lambda: 8)
    monkeypatch.setattr(engine.THREADS, "get", lambda: threads)
    return train(X, y, jobs, device="cpu")


def test_pieces_that_run_side_by_side_are_those_that_run_in_turn(monkeypatch):
    X, y = rare_rows(300, 40)
    jobs = [binary_job(0.5, hidden=(300,), max_epochs=1, seed=seed) for seed in range(24)]
    ran, original = [], engine._run_in_parallel
    monkeypatch.setattr(engine, "_run_in_parallel", lambda work, *rest: ran.append(len(work)) or original(work, *rest))
    in_turn, *others = (trained_on(threads, X, y, jobs, monkeypatch) for threads in (1, 2, 5))
    assert len(ran) == 2
    assert ran[0] == ran[1] > 1
    for other in others:
        for a, b in zip(in_turn, other, strict=True):
            np.testing.assert_array_equal(flat(a.network), flat(b.network))


def test_encodings_fitted_side_by_side_are_those_fitted_in_turn(monkeypatch):
    X, y = rare_rows(120, 4)
    X[:, 1] *= 1e-310  # denormal, which is zero in threads that train
    jobs = [
        binary_job(0.5, hidden=(3,), encoding=encoding, max_epochs=2, rows=np.flatnonzero(np.arange(120) % 3 != fold))
        for encoding in ("standard", "steps", "piecewise")
        for fold in range(3)
    ]
    for a, b in zip(*(trained_on(threads, X, y, jobs, monkeypatch) for threads in (1, 6)), strict=True):
        np.testing.assert_array_equal(a.network.logits(X), b.network.logits(X))


def n_denormal(values):
    values = np.asarray(values)
    return int(((values != 0) & (np.abs(values) < np.finfo(values.dtype).tiny)).sum())


@pytest.fixture(params=["flushed by the processor", "never there"])
def flushing(request, monkeypatch):
    """Not every system keeps the processor's switch, so numbers must not come that far by themselves."""
    if request.param == "never there":
        monkeypatch.setattr(torch, "set_flush_denormal", lambda mode: False)


@pytest.mark.parametrize(("jit", "threads"), [(True, 1), (True, 2), (False, 1)])
def test_no_parameter_or_moment_is_denormal_after_30_epochs(jit, threads, monkeypatch, flushing):
    if not jit:
        monkeypatch.setattr(solvers, "compiled", lambda function: function)
    monkeypatch.setattr(engine.THREADS, "get", lambda: threads)
    # The penalty drives most weights to zero, in enough steps: 3,000 in 30 epochs of batches of 4.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = X[:, 0] + rng.normal(size=400) > 1.5
    network = {"hidden": (16, 8), "l2": 1e-2, "encoding": "steps", "batch_size": 4}
    parts = {"max_epochs": 31, "stop_epoch": 30, "leaves_state": True}
    jobs = [binary_job(0.5, seed=seed, **network, **parts) for seed in range(2)]
    for result in train(X, y, jobs, device="cpu"):
        assert result.state.epoch == 30
        assert [n_denormal(part) for part in result.state.values] == [0, 0, 0]


def test_no_parameter_or_moment_of_a_stream_is_denormal(flushing):
    shape = StreamShape(3, Recipe(hidden=(4,), l2=1.0, batch_size=50), (0,), 0)
    trainer = StreamTrainer(shape)
    rng = np.random.default_rng(0)
    x = torch.from_numpy(np.column_stack([rng.normal(size=(50, 1)), np.zeros((50, 2)), np.ones(50)])).float()
    batch = Batch(x, (x[:, 0] > 1).float(), torch.ones(50))
    with reproducible_arithmetic():
        trainer.initialise(0.0)
        trainer.weigh(np.array([0.5, 0.5]), 0.5)
        for _ in range(4000):
            trainer.step(batch)
    state = trainer.state()
    assert (state["parameters"] == 0).any()  # they came all the way down
    assert [n_denormal(state[name]) for name in ("parameters", "first_moment", "second_moment")] == [0, 0, 0]


@pytest.fixture
def three():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("flushes", [False, True])
def test_the_callers_settings_are_put_back(flushes):
    def is_flushed():
        return sys.float_info.min / 2 == 0

    torch.set_flush_denormal(flushes)
    try:
        with reproducible_arithmetic():
            with reproducible_arithmetic():
                pass
            assert (is_flushed(), torch.get_num_threads()) == (True, 1)
        with pytest.raises(KeyError), reproducible_arithmetic():
            raise KeyError
        assert (is_flushed(), torch.get_num_threads()) == (flushes, 3)
    finally:
        torch.set_flush_denormal(False)


# -- the number of threads ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("three")
def test_the_last_of_two_at_a_time_puts_back():
    first_is_in, second_is_out = Event(), Event()

    def first():
        with THREADS.set(1):
            first_is_in.set()
            assert second_is_out.wait(10)
            return torch.get_num_threads()

    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(first)
        assert first_is_in.wait(10)
        with THREADS.set(1):
            assert torch.get_num_threads() == 1
            assert THREADS.get() == 3  # what others may have afterwards
        second_is_out.set()
        assert found.result() == 1  # the other's end did not disturb it
    assert torch.get_num_threads() == THREADS.get() == 3


@pytest.mark.usefixtures("three")
def test_workers_keep_to_one_thread(monkeypatch):
    # Two pieces side by side, and a balance solve in each: afterwards the worker still has one thread.
    found = []
    original = engine._train_or_split

    def spy(*args):
        results = original(*args)
        found.append((get_ident(), torch.get_num_threads()))
        return results

    monkeypatch.setattr(engine, "_train_or_split", spy)
    monkeypatch.setattr(engine, "cpu_count", lambda: 2)
    X, y = rare_rows(300, 20)
    jobs = [binary_job(0.5, hidden=(200,), max_epochs=1, seed=seed) for seed in range(16)]
    train(X, y, jobs, device="cpu")
    assert len(found) == 2
    assert get_ident() not in {thread for thread, _ in found}
    assert ([count for _, count in found], torch.get_num_threads()) == ([1, 1], 3)
