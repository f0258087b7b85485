"""What is known of solvers before one is made, in one place."""

import ast
import gc
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from training_reference import problem

import crcen
from crcen.training.engine import train
from crcen.training.jobs import TrainingJob
from crcen.training.recipe import Recipe, Schedule
from crcen.training.rows import TrainingData, float_type
from crcen.training.solvers.adam_step import AdamState, adam_factors, take_captured_step, take_step
from crcen.training.solvers.epochs import Recorded
from crcen.training.solvers.kinds import ADAM, LBFGS, SOLVERS
from crcen.training.stack_run import StackRun

PACKAGE = Path(crcen.__file__).parent
X, Y = problem(n=60, n_features=3)


def test_no_name_of_a_solver_is_compared_anywhere():
    found = []
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                texts = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
                found += [f"{path.name}:{node.lineno}" for text in texts if text in SOLVERS]
    assert found == []


@pytest.mark.parametrize("kind", SOLVERS.values(), ids=SOLVERS)
def test_a_solver_is_what_its_kind_says(kind):
    data = TrainingData(X, Y, np.ones(len(Y)), torch.device("cpu"))
    jobs = [TrainingJob(0.6, solver=kind.name, hidden=(3,), max_epochs=4, batch_size=20)]
    run = StackRun(((0,),), jobs, data)
    solver = run.solver()
    before = [part.clone() for part in solver.state()]
    assert all(part.dtype == float_type(kind) and part.element_size() == kind.itemsize for part in before)
    assert before[0] is not run.stack.flat
    assert torch.equal(before[0], run.stack.flat)
    loss = solver.step()
    after = [part.clone() for part in solver.state()]
    assert loss.shape == solver.converged().shape == (1, 1)
    assert not torch.equal(after[0], before[0])
    solver.restore(before)
    assert torch.equal(run.stack.flat, before[0])


def test_only_a_solver_by_batches_reads_their_order():
    for kind in SOLVERS.values():
        jobs = [
            TrainingJob(0.6, solver=kind.name, hidden=(3,), max_epochs=4, batch_size=20, shuffle_seed=seed)
            for seed in (0, 1)
        ]
        one, other = (train(X, Y, [job], device="cpu")[0].network.weights[0] for job in jobs)
        assert np.array_equal(one, other) is not kind.draws_batches


def test_a_recipe_that_names_no_solver_has_one():
    assert Recipe(hidden=(4,)).solver_kind is ADAM
    assert Recipe(hidden=()).solver_kind is LBFGS
    assert Recipe(hidden=(), solver=ADAM.name).solver_kind is ADAM
    assert Recipe(hidden=()).in_batches().draws_batches
    assert [Schedule(solver=name).needs_all_rows for name in ("auto", *SOLVERS)] == [False, False, True]


def captured(state, rate, step):
    factors = adam_factors(rate, step, state.beta1, state.beta2, state.epsilon)
    take_captured_step(state, torch.tensor(factors, dtype=torch.float64))


@pytest.mark.parametrize("form", [take_step, captured], ids=lambda form: form.__name__)
def test_every_form_of_adams_step_is_that_of_the_paper(form):
    rng = np.random.default_rng(0)
    value, penalty = rng.normal(size=6), np.array([0.0, 0.0, 0.1, 0.1, 2.0, 2.0])
    m = v = np.zeros(6)
    state = AdamState.start(*(torch.from_numpy(part.copy()) for part in (value, np.zeros(6), penalty)))
    for step, rate in enumerate((0.1, 0.03, 0.2, 0.01)):
        gradient = rng.normal(size=6) * 10.0 ** rng.integers(-6, 3, size=6)
        state.grad.copy_(torch.from_numpy(gradient))
        form(state, rate, step)
        g = gradient + penalty * value  # Kingma and Ba, algorithm 1, with the penalty's part in the gradient
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        value = value - rate * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
        np.testing.assert_allclose(state.flat.numpy(), value, rtol=1e-9)
        np.testing.assert_allclose(state.first_moment.numpy(), m, rtol=1e-9)
        np.testing.assert_allclose(state.second_moment.numpy(), v, rtol=1e-9)


@pytest.mark.parametrize("was_collecting", [True, False])
def test_no_garbage_is_collected_while_a_graph_is_recorded(monkeypatch, was_collecting):
    """On CUDA an older graph that is freed meanwhile ends the recording."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: None)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph: nullcontext())
    monkeypatch.setattr(gc, "isenabled", lambda: was_collecting)
    calls = []
    monkeypatch.setattr(gc, "disable", lambda: calls.append("off"))
    monkeypatch.setattr(gc, "enable", lambda: calls.append("on"))
    Recorded(lambda: calls.append("recorded"))
    assert calls == ["off", "recorded", "on"][: 3 if was_collecting else 2]
