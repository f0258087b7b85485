"""Bits of a network alone and in a batch, and pieces that are split by the number of cores."""

import numpy as np
import pytest
import torch
from training_reference import binary_job, flat

from crcen.training import batch_invariance, engine, planner
from crcen.training.batch_invariance import is_batch_invariant
from crcen.training.engine import Trainer
from crcen.training.jobs import RowSets

N = 640
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 5))
Y = X[:, 0] + RNG.normal(size=N) > 1
JOB = binary_job(0.6, hidden=(16, 8), encoding="steps", column_scales=True, max_epochs=2, batch_size=128, l2=1e-3)


def jobs(count=4, **changes):
    job = JOB.replace(rows=RowSets(pool=np.arange(512), watched=np.arange(512, N)), record_every=1, **changes)
    return [job.replace(seed=seed, l2=10.0 ** -(2 + seed)) for seed in range(count)]


def bits(results):
    return [(flat(one.network), one.loss_curve, one.val_logits) for one in results]


def assert_same_bits(some, others):
    for one, other in zip(some, others, strict=True):
        for values, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(values, expected)


@pytest.fixture
def small_pieces(monkeypatch):
    """Pieces of any size are worth a core; the list gets the number of pieces of each run."""
    counts = []
    old = engine._run_in_parallel
    monkeypatch.setattr(planner, "_OPERATIONS_ON_A_FREE_CORE", 1.0)
    monkeypatch.setattr(engine, "_run_in_parallel", lambda work, *rest: counts.append(len(work)) or old(work, *rest))
    return counts


def on_cores(monkeypatch, cores, some):
    monkeypatch.setattr(engine, "usable_cores", lambda: cores)
    monkeypatch.setattr(engine.THREADS, "get", lambda: cores)
    return bits(Trainer(X, Y, device="cpu")(some))


@pytest.mark.parametrize("changes", [{}, {"hidden": (16,)}, {"encoding": "standard", "column_scales": False}])
def test_more_cores_give_more_pieces_and_the_same_bits(monkeypatch, small_pieces, changes):
    some = jobs(**changes)
    monkeypatch.setattr(batch_invariance, "_KNOWN", {})
    few, many = (on_cores(monkeypatch, cores, some) for cores in (1, 4))
    assert_same_bits(few, many)
    if all(batch_invariance._KNOWN.values()):
        assert small_pieces == [4]


def test_networks_that_are_not_batch_invariant_stay_together(monkeypatch, small_pieces):
    monkeypatch.setattr(engine, "is_batch_invariant", lambda *arguments: False)
    some = jobs()
    assert_same_bits(on_cores(monkeypatch, 4, some), on_cores(monkeypatch, 1, some))
    assert small_pieces in ([], [2])  # as many as by size alone


def test_a_difference_is_detected(monkeypatch):
    trainer, some = Trainer(X, Y, device="cpu"), jobs()
    trainer.data.prepare(some)
    monkeypatch.setattr(batch_invariance, "_KNOWN", {})
    old = batch_invariance._after_steps

    def off(groups, *rest):
        found = old(groups, *rest)
        if len(groups[0]) == 1:  # alone, the last digit differs
            found = {p: [torch.nextafter(v, v + 1) for v in values] for p, values in found.items()}
        return found

    monkeypatch.setattr(batch_invariance, "_after_steps", off)
    assert not is_batch_invariant(((0, 1, 2, 3),), some, trainer.data)


def test_whole_epochs_agree_if_a_few_steps_do(monkeypatch):
    trainer, some = Trainer(X, Y, device="cpu"), jobs()
    trainer.data.prepare(some)
    monkeypatch.setattr(engine, "pieces", lambda stacks, jobs, n_inputs: stacks)
    together = bits(trainer(some))
    if is_batch_invariant(((0, 1, 2, 3),), some, trainer.data):
        for one, expected in zip(some, together, strict=True):
            assert_same_bits(bits(trainer([one])), [expected])
