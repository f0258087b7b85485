"""Recipes, and the engine: what it refuses, the status of its networks, and stacks within a bound of memory."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise, product

import numpy as np
import pytest
import torch
import training_reference
from training_reference import assert_same_result, binary_job, little_memory, plain_logits

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.training import engine
from crcen.training.engine import plan, train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.recipe import Recipe
from example_rows import plain_residual, rare_rows, row_weights

X, Y = rare_rows(80, shift=1.0)
FAST = {"max_epochs": 4, "hidden": (4,), "batch_size": 20}


# -- recipes -----------------------------------------------------------------------------------------------------------


def test_values_come_out_plain():
    recipe = Recipe(hidden=[np.int64(3)], l2=np.float32(0.5), batch_size=np.int32(7), standardize=np.True_)
    assert (recipe.hidden, type(recipe.hidden[0])) == ((3,), int)
    assert [type(value) for value in (recipe.l2, recipe.batch_size, recipe.standardize)] == [float, int, bool]
    assert Recipe(hidden=5).hidden == (5,)
    with pytest.raises(FrozenInstanceError):
        recipe.l2 = 1.0
    assert (recipe, hash(recipe)) == (replace(recipe), hash(replace(recipe)))


@pytest.mark.parametrize(
    ("given", "solver", "encoding", "scales"),
    [
        ({}, "adam", "steps", False),
        ({"column_scales": "auto"}, "adam", "steps", True),
        ({"column_scales": "auto", "standardize": False}, "adam", "steps", False),
        ({"column_scales": "auto", "encoding": "standard"}, "adam", "standard", False),
        ({"hidden": ()}, "lbfgs", "standard", False),
        ({"solver": "lbfgs", "column_scales": "auto"}, "lbfgs", "steps", False),
        ({"hidden": (), "solver": "adam", "encoding": "tree"}, "adam", "tree", False),
    ],
)
def test_what_is_left_to_the_data_is_settled(given, solver, encoding, scales):
    settled = Recipe(**given).settled(500)
    assert (settled.solver, settled.encoding, settled.column_scales) == (solver, encoding, scales)
    assert settled.max_epochs == (30 if solver == "adam" else 500)
    assert settled.settled(10**6) == settled
    assert settled.draws_batches == (solver == "adam")
    assert settled.in_batches().solver == "adam"


def test_what_has_no_meaning_is_refused():
    with pytest.raises(InvalidParameter, match="column_scales needs Adam"):
        Recipe(column_scales=True, solver="lbfgs").settled(100)
    for make in (Recipe, binary_job, replace):  # every other value: `test_model_bad_input`
        with pytest.raises(InvalidParameter, match=r"^l2 must be .*: got -1"):
            make(*{binary_job: [0.5], replace: [Recipe()]}.get(make, []), l2=-1)


def test_a_job_carries_a_settled_recipe():
    recipe = Recipe(hidden=(3,), l2=0.5).settled(100)
    job = TrainingJob.by(recipe, (0.3, 0.7), rows=np.arange(5))
    assert job.settings() == recipe.settings()
    assert job != TrainingJob.by(recipe, (0.3, 0.7), rows=np.arange(5))  # a job is itself alone
    with pytest.raises(InvalidParameter, match="settled first"):
        TrainingJob.by(Recipe(), (0.3, 0.7))


@pytest.mark.parametrize(
    ("given", "n_rows", "batch", "epochs"),
    [
        ({}, 1_000, 128, 30),
        ({}, 16_999, 128, 30),
        ({}, 17_000, 256, 30),
        ({}, 20_000, 256, 4000 // 157),  # counted in batches of 128
        ({}, 64_000, 256, 8),
        ({}, 1_000_000, 256, 5),
        ({"max_epochs": 12}, 64_000, 256, 12),
        ({"batch_size": 128}, 17_000, 128, 30),
        ({"hidden": ()}, 17_000, 128, 500),
    ],
)
def test_batches_grow_with_the_rows_and_the_rate_by_the_root(given, n_rows, batch, epochs):
    settled = Recipe(**{"hidden": (4,), "learning_rate": 0.02} | given).settled(n_rows)
    assert (settled.batch_size, settled.max_epochs) == (batch, epochs)
    assert settled.learning_rate == pytest.approx(0.02 * (batch / 128) ** 0.5)
    assert settled.settled(n_rows) == settled
    race = settled.on_fewer_rows(4.0)  # takes steps as few rows have them
    assert (race.batch_size, race.l2, race.learning_rate) == (128, 4e-4, pytest.approx(0.02))


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_a_job_without_rows_or_weight_of_a_class_is_refused(solver):
    jobs = [binary_job(0.5, solver=solver, rows=rows) for rows in (Y.nonzero()[0], (1 - Y).nonzero()[0], Y[:0])]
    jobs.append(TrainingJob((1.0, 1.0, 1.0), solver=solver))  # for three classes
    cases = [(job, None) for job in jobs]
    for rows in (None, np.arange(40)):
        for label in (0, 1):
            no_weight = (np.arange(80) < (80 if rows is None else 40)) & (label == Y)
            cases.append((binary_job(0.5, solver=solver, rows=rows), 1.0 - no_weight))
    for job, s in cases:
        with pytest.raises(InvalidInput, match="every class"):
            train(X, Y, [job], sample_weight=s, device="cpu")
    with pytest.raises(InvalidParameter, match="positive numbers"):
        TrainingJob((1.0, 0.0))


# -- status ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-9])
def test_a_convex_problem_converges_to_the_tolerance(tol):
    lams = (0.01, 0.5, 0.99)
    jobs = [binary_job(lam, solver="lbfgs", hidden=(), l2=0.01, max_epochs=200, tol=tol, balance=False) for lam in lams]
    results = train(X, Y, jobs, device="cpu")
    for lam, result in zip(lams, results, strict=True):
        assert result.status is Status.CONVERGED
        assert result.n_iter == len(result.loss_curve) < 200
        w = row_weights(Y, lam)
        weight_grads, bias_grads = training_reference.data_gradients(result.network, X, Y, w)
        gradient = np.concatenate([(weight_grads[0] + 0.01 * result.network.weights[0])[:, 0], bias_grads[0]])
        assert np.abs(gradient).max() <= tol * (1 + 1e-6)
        assert (np.diff(result.loss_curve) <= 1e-12).all()
        objective = training_reference.plain_loss("cross_entropy", Y, plain_logits(result.network, X), w)
        objective += 0.005 * (result.network.weights[0] ** 2).sum()
        assert result.loss_curve[-1] == pytest.approx(objective, rel=1e-10)


@pytest.mark.parametrize("size", [1e10, 1e30])
def test_a_line_search_that_fails_is_not_convergence(size):
    # Without standardisation a column this large needs steps far below what the search tries. Standing still with a
    # huge gradient is no optimum: either the solver gets there or its status must not claim convergence. Without a
    # penalty the standardised problem has the same optimum.
    big = X - X.mean(0)
    big[:, 0] *= size
    job = binary_job(0.5, solver="lbfgs", hidden=(), l2=0.0, standardize=False, balance=False, max_epochs=100)
    result, optimum = (train(rows, Y, [job], device="cpu")[0] for rows in (big, X / X.std(0)))
    assert optimum.status is Status.CONVERGED
    if result.status is Status.CONVERGED:
        assert result.loss_curve[-1] < optimum.loss_curve[-1] + 1e-3


VALIDATED = {"rows": np.arange(60), "validation": np.arange(60, 80)}
FULL_BATCH = {"activation": "tanh", "solver": "lbfgs"}


@pytest.mark.parametrize(
    ("hidden", "how"),
    [(hidden, how) for hidden in ((), (4,), (4, 3)) for how in ({}, VALIDATED)] + [((4,), FULL_BATCH)],
)
def test_a_network_that_diverges_leaves_its_stack_alone(hidden, how):
    common = {"hidden": hidden, "max_epochs": 15, "batch_size": 20, **how}
    too_large = 1e308 if how is FULL_BATCH else 1e39  # infinite in float32
    jobs = [binary_job(lam, l2=l2, **common) for lam, l2 in ((0.2, 1e-2), (0.5, too_large), (0.9, 1e-2))]
    results = train(X, Y, jobs, device="cpu")
    assert results[1].status is Status.DIVERGED
    assert results[1].network is None
    for i in (0, 2):
        assert_same_result(results[i], train(X, Y, [jobs[i]], device="cpu")[0], rtol=1e-3, atol=1e-4)


# -- awkward data ------------------------------------------------------------------------------------------------------


def test_saturated_float32_networks_are_balanced():
    # A rate this high drives logits into the hundreds; what is left is still solved for in float64.
    lams = (0.01, 0.1, 0.5, 0.9, 0.99, 0.999)
    how = {"l2": 0.0, "learning_rate": 5.0, "max_epochs": 10}
    jobs = [binary_job(lam, hidden=hidden, **how) for lam in lams for hidden in ((), (8,))]
    results = train(X, Y, jobs, device="cpu")
    assert all(result.status is Status.COMPLETED for result in results)
    assert max(np.abs(result.network.logits(X)).max() for result in results) > 40
    for job, result in zip(jobs, results, strict=True):
        assert plain_residual(Y, result.network.logits(X), row_weights(Y, job.class_weights[1])) <= 1e-12


# -- progress ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_tight", [False, True])
def test_progress_rises_to_one(is_tight):
    jobs = [binary_job(0.5, **FAST), binary_job(0.9, **FAST), binary_job(0.5, solver="lbfgs", **FAST)]
    jobs += [
        binary_job(0.5, validation=np.arange(20), **FAST),
        binary_job(0.5, hidden=(), solver="lbfgs", max_epochs=99),
    ]
    shares = []
    memory = little_memory(X, Y, jobs) if is_tight else None
    train(X, Y, jobs, device="cpu", memory_bytes=memory, progress=shares.append)
    assert len(shares) > len(jobs)
    assert shares[0] > 0
    assert all(b >= a for a, b in pairwise(shares))
    assert shares[-1] == 1.0
    assert max(shares) <= 1.0


def test_a_bound_that_one_network_exceeds_is_refused():
    jobs = [binary_job(0.5, **FAST)]
    enough = little_memory(X, Y, jobs)
    assert train(X, Y, jobs, device="cpu", memory_bytes=enough)[0].network is not None
    with pytest.raises(InvalidParameter, match=r"memory_bytes is too small: the largest network needs 1\.1 times"):
        train(X, Y, jobs, device="cpu", memory_bytes=enough - 1)


@pytest.mark.parametrize(
    ("moved", "weight", "rtol"), [(0.0, 1e-45, 1e-4), (0.0, 1e39, 1e-4), (1e9, 1.0, 1e-2)], ids=str
)
def test_only_ratios_of_sample_weights_count_and_columns_far_from_zero_keep_their_digits(moved, weight, rtol):
    job = binary_job(0.7, max_epochs=8, batch_size=20)
    (plain,) = train(X, Y, [job], device="cpu")
    (other,) = train(X + moved, Y, [job], sample_weight=np.full(len(Y), weight), device="cpu")
    np.testing.assert_allclose(other.network.logits(X + moved), plain.network.logits(X), rtol=rtol, atol=rtol / 10)


# -- stacks within a bound of memory -----------------------------------------------------------------------------------

N, F = 400, 6


def inputs(job):
    return F


def n_bytes(groups, jobs, n_rows=N):
    return engine.stack_bytes(groups, jobs, n_rows, inputs)


FOLDS = [np.flatnonzero(np.arange(N) % 4 != fold) for fold in range(4)]


def grid(**common):
    return [
        binary_job(lam, l2=l2, hidden=hidden, seed=seed, rows=rows, **common)
        for lam, l2, hidden, (seed, rows) in product((0.1, 0.9), (1e-4, 1e-2), ((4,), (8,), (6, 3)), enumerate(FOLDS))
    ]


MIXED = [
    *grid(),
    *grid(solver="lbfgs"),
    *grid(activation="tanh")[:7],
    *grid(max_epochs=5)[:3],
    *(binary_job(lam, hidden=()) for lam in (0.1, 0.5)),
    *(binary_job(0.5, hidden=(), solver="lbfgs", rows=rows) for rows in FOLDS),
    binary_job(0.5, validation=FOLDS[1]),
    binary_job(0.5, loss="squared_error"),
    binary_job(0.5, standardize=False),
]


@pytest.mark.parametrize("memory", [1, 10_000, 200_000, 1_000_000, 10_000_000, 2**40])
def test_every_job_is_planned_once_within_the_bound_unless_a_single_network_breaks_it(memory):
    jobs = [MIXED[i] for i in np.random.default_rng(0).permutation(len(MIXED))]
    stacks = plan(jobs, N, inputs, memory)
    assert sorted(p for groups in stacks for group in groups for p in group) == list(range(len(jobs)))
    for groups in stacks:
        assert 0 < n_bytes(groups, jobs) <= memory or len(groups) == len(groups[0]) == 1
    assert plan([], N, inputs, memory) == []


def test_a_bound_splits_no_more_than_it_must():
    jobs = [job for job in grid() if job.hidden == (8,)]
    (whole,) = plan(jobs, N, inputs, 2**40)
    needed = n_bytes(whole, jobs)
    assert [len(plan(jobs, N, inputs, bound)) for bound in (needed, needed - 1, 1)] == [1, 2, len(jobs)]


@pytest.mark.parametrize(("solver", "copies"), [("adam", 4 * 4), ("lbfgs", 8 * 20)])
def test_bytes_cover_copies_of_parameters_and_the_longest_list_of_rows(solver, copies):
    # Adam at the very least: parameters, gradient and two moments in float32.
    jobs = [binary_job(0.5, hidden=(64, 64), solver=solver)] * 3
    (groups,) = plan(jobs, N, inputs, 2**40)
    assert n_bytes(groups, jobs) >= copies * 3 * ((F + 1) * 64 + 65 * 64 + 65)
    # L-BFGS fills all groups of a stack up to the longest list of rows, whichever comes first.
    n = 1_000_000
    short, long = (binary_job(0.5, hidden=(4,), solver="lbfgs", rows=np.arange(k)) for k in (10, n))
    for jobs in ([short, long], [long, short]):
        for groups in plan(jobs, n, inputs, 2**50):
            longest = max(len(jobs[p].rows) for group in groups for p in group)
            assert n_bytes(groups, jobs, n) >= 8 * len(groups) * longest * (F + 1)


@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_folds_of_one_shape_share_a_stack(solver):
    jobs = grid(solver=solver)
    stacks = plan(jobs, N, inputs, 2**40)
    assert len(stacks) == 3
    for groups in stacks:
        assert [len(group) for group in groups] == [4] * 4
        assert len({jobs[p].hidden for group in groups for p in group}) == 1
        for group in groups:
            assert len({tuple(jobs[p].rows) for p in group}) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"solver": "lbfgs"}, {"activation": "tanh"}, {"loss": "squared_error"}, {"max_epochs": 7}, {"batch_size": 10},
        {"learning_rate": 0.5}, {"standardize": False}, {"validation": FOLDS[1]}, {"hidden": ()},
    ],
    ids=str,
)  # fmt: skip
def test_what_a_stack_has_in_common_separates_stacks(other):
    job = binary_job(0.5)
    assert len(plan([job, replace(job, **other)], N, inputs, 2**40)) == 2
    assert len(plan([job, job], N, inputs, 2**40)) == 1
    for apart in ({"rows": np.arange(N - 1)}, {"shuffle_seed": 1}):  # another group of the same stack
        assert plan([job, replace(job, **apart)], N, inputs, 2**40) == [((0,), (1,))]


# -- falling back to smaller stacks ------------------------------------------------------------------------------------

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
