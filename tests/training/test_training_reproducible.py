"""The same seed gives the same bits on any number of threads, no number is denormal, and threads are put back."""

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Event, get_ident

import numpy as np
import pytest
import torch
from training_reference import binary_job, flat

from crcen.training import engine, solvers
from crcen.training.device import THREADS, reproducible_arithmetic
from crcen.training.engine import train
from crcen.training.recipe import Recipe
from crcen.training.stream import Batch, StreamShape, StreamTrainer
from example_rows import rare_rows
from processes import run_python

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
    assert [count for _, count in found] == [1, 1]
    assert torch.get_num_threads() == 3
