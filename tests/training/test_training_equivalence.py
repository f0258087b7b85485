"""A stacked fit is the same jobs run alone; a weighted fit is the fit of the rows that the weights stand for."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from training_reference import (
    adam_by_torch,
    assert_same_result,
    binary_job,
    flat,
    little_memory,
    plain_logits,
    problem,
    row_weights,
)

from crcen.theory.price import resolve
from crcen.training.engine import train
from crcen.training.jobs import Status

X, Y = problem(n=96, n_features=3)
EXACT = {"solver": "lbfgs", "tol": 1e-10, "max_epochs": 2000}


def folds(n, k=4):
    return [np.flatnonzero(np.arange(n) % k != fold) for fold in range(k)]


AXES = {
    "lam": [{"lam": lam} for lam in (0.05, 0.5, 0.9)],
    "l2": [{"l2": l2} for l2 in (0.0, 1e-3, 0.1)],
    "hidden": [{"hidden": hidden} for hidden in ((4,), (7,), (3, 2), (2, 2, 2), ())],
    "seed": [{"seed": seed} for seed in range(4)],
    "folds": [{"rows": rows} for rows in folds(96)],
    "rows": [{"rows": np.setdiff1d(np.arange(96), np.arange(drop))} for drop in (0, 1, 3, 4)],
    "shuffle_seed": [{"shuffle_seed": seed} for seed in range(3)],
    "watched": [{"rows": rows, "watched": np.setdiff1d(np.arange(96), rows)} for rows in folds(96)],
    "all": [
        {"lam": lam, "l2": l2, "hidden": hidden, "seed": seed, "rows": rows}
        for (lam, l2, hidden), (seed, rows) in itertools.product(
            [(0.1, 1e-3, (3,)), (0.8, 1e-2, (5,))], list(enumerate(folds(96)))[:2]
        )
    ],
}
SOLVERS = {
    "adam": ({"solver": "adam", "max_epochs": 6, "batch_size": 24}, {"rtol": 2e-4, "atol": 2e-5}),
    "lbfgs": ({"solver": "lbfgs", "max_epochs": 12, "activation": "tanh"}, {"rtol": 1e-8, "atol": 1e-8}),
}


@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "sample weights"])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("axis", AXES)
def test_stacked_equals_alone_in_any_order(axis, solver, weighted):
    common, tolerance = SOLVERS[solver]
    jobs = [binary_job(**({"lam": 0.7, "hidden": (4,)} | common | settings)) for settings in AXES[axis]]
    s = np.random.default_rng(0).exponential(size=len(Y)) if weighted else None
    alone = [train(X, Y, [job], sample_weight=s, device="cpu")[0] for job in jobs]
    shuffled = np.random.default_rng(1).permutation(len(jobs))
    tight, roomy = (little_memory(X, Y, jobs, networks) for networks in (1, 3))
    for order, memory in ((range(len(jobs)), None), (shuffled, None), (shuffled, tight), (range(len(jobs)), roomy)):
        together = train(X, Y, [jobs[i] for i in order], sample_weight=s, device="cpu", memory_bytes=memory)
        for i, result in zip(order, together, strict=True):
            assert_same_result(result, alone[i], **tolerance)
    if not (solver == "lbfgs" and axis == "shuffle_seed"):  # L-BFGS has no batches; elsewhere the axis must matter
        for a, b in itertools.combinations(alone, 2):
            same_shape = flat(a.network).shape == flat(b.network).shape
            assert not same_shape or np.abs(flat(a.network) - flat(b.network)).max() > 1e-4


def test_networks_that_converge_early_wait_for_nobody():
    jobs = [
        binary_job(lam, l2=l2, hidden=(), solver="lbfgs", rows=rows, max_epochs=300)
        for lam, l2 in ((0.5, 10.0), (0.5, 0.1), (0.9, 1e-3), (0.999, 0.0))
        for rows in (None, folds(96)[0])
    ]
    together = train(X, Y, jobs, device="cpu")
    assert len({result.n_iter for result in together}) >= 4
    for job, result in zip(jobs, together, strict=True):
        assert result.status is Status.CONVERGED
        assert_same_result(result, train(X, Y, [job], device="cpu")[0], rtol=1e-8, atol=1e-8)


# -- the solvers against others' ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hidden", "activation", "l2"), [((), "relu", 0.01), ((4,), "tanh", 0.0), ((5, 3), "gelu", 0.1)]
)
def test_adam_on_one_batch_is_torchs_adam_with_the_one_cycle_rate(hidden, activation, l2):
    lam, epochs, peak = 0.8, 12, 0.02
    job = binary_job(
        lam, hidden=hidden, activation=activation, l2=l2, max_epochs=epochs, batch_size=1000, learning_rate=peak,
        balance=False,
    )  # fmt: skip
    result = train(X, Y, [job], device="cpu")[0]

    z = torch.from_numpy((X - X.mean(0)) / X.std(0))
    y, w = torch.from_numpy(Y.astype(float)), torch.from_numpy(row_weights(Y, lam))
    bias = np.log(lam * Y.sum()) - np.log((1 - lam) * (1 - Y).sum())
    steps = [((step + 1) / (epochs + 1), z, y, w / w.sum()) for step in range(epochs)]  # neither end has a rate of 0
    expected, losses = adam_by_torch(3, hidden, activation, job.seed, bias, l2, peak, steps)
    # Without hidden layer the start is stationary in the bias: Adam's first step there divides rounding by rounding.
    np.testing.assert_allclose(flat(result.network), expected, rtol=1e-3, atol=1e-4 if hidden else 5e-3)
    np.testing.assert_allclose(flat(result.network)[:-1], expected[:-1], rtol=2e-3, atol=1e-4)
    np.testing.assert_allclose(result.loss_curve, losses, rtol=1e-4)
    assert result.status is Status.COMPLETED
    assert result.n_iter == epochs


def assert_is_logistic_regression(network, model, rtol=1e-6):
    np.testing.assert_allclose(network.weights[0][:, 0], model.coef_[0], rtol=rtol, atol=rtol)
    np.testing.assert_allclose(network.biases[0], model.intercept_, rtol=rtol, atol=rtol)


def test_castro_inverse_frequency_cross_entropy_is_alpha_one():
    # Each class weighted by its inverse frequency is class_weight="balanced"; those weights sum to n.
    lam = resolve("balanced", float(Y.sum()), float((1 - Y).sum())).lam
    result = train(X, Y, [binary_job(lam, l2=0.02, hidden=(), standardize=False, **EXACT)], device="cpu")[0]
    model = LogisticRegression(
        C=1.0 / (0.02 * len(Y)), class_weight="balanced", solver="newton-cholesky", tol=1e-12
    ).fit(X, Y)
    assert_is_logistic_regression(result.network, model)
    # And so it satisfies the key equation of α = 1: class means of 1 − q and q are equal.
    q = 1 / (1 + np.exp(-plain_logits(result.network, X)))
    assert (1 - q[Y == 1]).mean() == pytest.approx(q[Y == 0].mean(), rel=1e-10)


# -- weights are copies ------------------------------------------------------------------------------------------------

NETWORKS = [((), "relu"), ((4,), "tanh"), ((3, 2), "tanh")]


def fit(rows, labels, job, s=None):
    result = train(rows, labels, [job], sample_weight=s, device="cpu")[0]
    assert result.status is Status.CONVERGED
    return result.network


def assert_same_function(one, other, rtol=1e-5):
    np.testing.assert_allclose(one.logits(X), other.logits(X), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("wild", [1.0, 1e30])
@pytest.mark.parametrize(("hidden", "activation"), NETWORKS)
def test_zero_weight_is_absence_whatever_the_row_holds(hidden, activation, wild):
    keep = np.arange(len(Y)) % 3 > 0
    rows = np.where(keep[:, None], X, X * wild)
    job = binary_job(0.8, hidden=hidden, activation=activation, l2=0.01, **EXACT)
    assert_same_function(fit(rows, Y, job, keep.astype(float)), fit(X[keep], Y[keep], job))


# -- held-out rows -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [20.0, 1e30, 1e200])
@pytest.mark.parametrize("hidden", [(), (4,)])
@pytest.mark.parametrize("solver", ["adam", "lbfgs"])
def test_held_out_rows_do_not_change_a_folds_network(solver, hidden, value):
    own = folds(96)[0]
    other, labels, out = X.copy(), Y.copy(), np.setdiff1d(np.arange(96), own)
    other[out], labels[out] = value * np.random.default_rng(1).uniform(0.5, 1.0, (len(out), 3)), 1 - labels[out]
    job = binary_job(0.7, rows=own, hidden=hidden, solver=solver, activation="tanh", max_epochs=10, batch_size=32)
    before, after = (train(*rows, [job], device="cpu")[0] for rows in ((X, Y), (other, labels)))
    assert after.status is before.status is not Status.DIVERGED
    np.testing.assert_array_equal(before.network.encoding.mean, after.network.encoding.mean)
    np.testing.assert_array_equal(flat(after.network), flat(before.network))
    np.testing.assert_array_equal(after.shift, before.shift)
