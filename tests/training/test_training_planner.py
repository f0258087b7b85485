"""Which jobs share a stack within a bound of memory, and smaller stacks where memory does not suffice."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from training_reference import assert_same_result, binary_job

from crcen.training import engine
from crcen.training.engine import train
from crcen.training.planner import plan
from example_rows import rare_rows

N, F = 400, 6


def inputs(job):
    return F


FOLDS = [np.flatnonzero(np.arange(N) % 4 != fold) for fold in range(4)]


def grid(**common):
    return [
        binary_job(lam, l2=l2, hidden=hidden, seed=seed, rows=rows, **common)
        for lam, l2, hidden, (seed, rows) in itertools.product(
            (0.1, 0.9), (1e-4, 1e-2), ((4,), (8,), (6, 3)), enumerate(FOLDS)
        )
    ]


MIXED = [
    *grid(),
    *grid(solver="lbfgs"),
    *grid(activation="tanh")[:7],
    *grid(max_epochs=5)[:3],
    *(binary_job(lam, hidden=()) for lam in (0.1, 0.5)),
    *(binary_job(0.5, hidden=(), solver="lbfgs", rows=rows) for rows in FOLDS),
    binary_job(0.5, watched=FOLDS[1]),
    binary_job(0.5, loss="squared_error"),
    binary_job(0.5, standardize=False),
]


@pytest.mark.parametrize("memory", [1, 10_000, 200_000, 1_000_000, 10_000_000, 2**40])
def test_every_job_is_planned_once_within_the_bound_unless_a_single_network_breaks_it(memory):
    jobs = [MIXED[i] for i in np.random.default_rng(0).permutation(len(MIXED))]
    stacks = plan(jobs, N, inputs, memory)
    assert sorted(p for stack in stacks for group in stack.groups for p in group) == list(range(len(jobs)))
    for stack in stacks:
        assert 0 < stack.n_bytes <= memory or (len(stack.groups) == 1 and len(stack.groups[0]) == 1)
    assert plan([], N, inputs, memory) == []


def test_a_bound_splits_no_more_than_it_must():
    jobs = [job for job in grid() if job.hidden == (8,)]
    (whole,) = plan(jobs, N, inputs, 2**40)
    bounds = (whole.n_bytes, whole.n_bytes - 1, 1)
    assert [len(plan(jobs, N, inputs, bound)) for bound in bounds] == [1, 2, len(jobs)]


@pytest.mark.parametrize(("solver", "least"), [("adam", 4 * 4), ("lbfgs", 8 * 20)])
def test_bytes_cover_the_parameters_and_their_copies(solver, least):
    # Adam at the very least: parameters, gradient and two moments in float32.
    (stack,) = plan([binary_job(0.5, hidden=(64, 64), solver=solver)] * 3, N, inputs, 2**40)
    assert stack.n_bytes >= least * 3 * ((F + 1) * 64 + 65 * 64 + 65)


def test_bytes_of_full_batch_networks_cover_the_largest_of_their_row_lists():
    # All groups of a stack are filled up to the longest list of rows, whichever comes first.
    n = 1_000_000
    short, long = (binary_job(0.5, hidden=(4,), solver="lbfgs", rows=np.arange(k)) for k in (10, n))
    for jobs in ([short, long], [long, short]):
        for stack in plan(jobs, n, inputs, 2**50):
            longest = max(len(jobs[p].rows) for group in stack.groups for p in group)
            assert stack.n_bytes >= 8 * len(stack.groups) * longest * (F + 1)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_folds_of_one_shape_share_a_stack(solver):
    jobs = grid(solver=solver)
    stacks = plan(jobs, N, inputs, 2**40)
    assert len(stacks) == 3
    for stack in stacks:
        assert [len(group) for group in stack.groups] == [4] * 4
        assert len({jobs[p].hidden for group in stack.groups for p in group}) == 1
        for group in stack.groups:
            assert len({tuple(jobs[p].rows) for p in group}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"solver": "lbfgs"}, {"activation": "tanh"}, {"loss": "squared_error"}, {"max_epochs": 7}, {"batch_size": 10},
        {"learning_rate": 0.5}, {"standardize": False}, {"watched": FOLDS[1]}, {"hidden": ()},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_stack_has_in_common_separates_stacks(other):
    job = binary_job(0.5)
    assert len(plan([job, replace(job, **other)], N, inputs, 2**40)) == 2
    assert len(plan([job, job], N, inputs, 2**40)) == 1
    for apart in ({"rows": np.arange(N - 1)}, {"shuffle_seed": 1}):  # another group of the same stack
        (stack,) = plan([job, replace(job, **apart)], N, inputs, 2**40)
        assert stack.groups == ((0,), (1,))


# -- falling back to smaller stacks ------------------------------------------------------------------------------------

X, Y = rare_rows(80, shift=1.0)
SMALL = [
    binary_job(lam, hidden=hidden, rows=rows, max_epochs=3, batch_size=20)
    for lam in (0.2, 0.8)
    for hidden in ((3,), (5,))
    for rows in (None, np.arange(60), np.arange(10, 80))
]


def raising(error):
    def fail():
        raise error

    return fail


@pytest.fixture
def failing(monkeypatch):
    """Make stacks of more than some networks fail halfway; the sizes of the stacks that were trained."""
    sizes, original = [], engine.StackRun.run

    def install(fail, most):
        def run(self, report):
            size = sum(len(group) for group in self.groups)
            if size > most:
                report(0.5)
                fail()
            sizes.append(size)
            return original(self, report)

        monkeypatch.setattr(engine.StackRun, "run", run)
        return sizes

    return install


@pytest.mark.parametrize(
    "fail",
    [raising(MemoryError), raising(torch.cuda.OutOfMemoryError), lambda: torch.empty(2**58)],  # as torch on a CPU
    ids=["python", "cuda", "cpu"],
)
def test_a_stack_that_does_not_fit_is_trained_in_pieces(failing, fail):
    expected = train(X, Y, SMALL, device="cpu")
    sizes = failing(fail, 2)
    results = train(X, Y, SMALL, device="cpu")
    assert sum(sizes) == len(SMALL)
    assert max(sizes) <= 2
    for one, other in zip(results, expected, strict=True):
        assert_same_result(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("something else")])
def test_a_single_network_that_does_not_fit_and_other_errors_are_raised(failing, error):
    sizes = failing(raising(error), 0)
    with pytest.raises(type(error)):
        train(X, Y, SMALL[:1] if isinstance(error, MemoryError) else SMALL, device="cpu")
    assert sizes == []
