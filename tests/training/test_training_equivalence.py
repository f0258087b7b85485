"""A stacked fit is the same jobs run alone; a weighted fit is the fit of the rows that the weights stand for."""

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from training_reference import (
    assert_same_result,
    binary_job,
    data_gradients,
    flat,
    initial_parameters,
    little_memory,
    plain_logits,
    problem,
    row_weights,
    torch_logits,
    torch_row_loss,
)

from crcen.theory.price import resolve
from crcen.training.engine import train
from crcen.training.jobs import Status
from crcen.training.solvers import BETAS

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
    weights, biases = initial_parameters(3, hidden, activation, job.seed)
    biases[-1][:] = np.log(lam * Y.sum()) - np.log((1 - lam) * (1 - Y).sum())
    weights, biases = ([torch.from_numpy(p).requires_grad_() for p in side] for side in (weights, biases))
    optimiser = torch.optim.Adam([*weights, *biases], lr=peak, betas=BETAS, eps=1e-8)
    losses = []
    for step in range(epochs):
        # Up over the first fifth of the schedule, down along a cosine; neither end is at a rate of exactly zero.
        t = (step + 1) / (epochs + 1)
        rate = peak * (t / 0.2 if t < 0.2 else 0.5 * (1 + np.cos(np.pi * (t - 0.2) / 0.8)))
        for group in optimiser.param_groups:
            group["lr"] = rate
        optimiser.zero_grad()
        data = (w * torch_row_loss("cross_entropy", torch_logits(z, weights, biases, activation), y)).sum() / w.sum()
        (data + 0.5 * l2 * sum((p**2).sum() for p in weights)).backward()
        optimiser.step()
        losses.append(data.item() + 0.5 * l2 * sum((p**2).sum() for p in weights).item())
    expected = np.concatenate([p.detach().numpy().ravel() for p in (*weights, *biases)])
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


# -- stationarity ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", ["cross_entropy", "squared_error"])
@pytest.mark.parametrize(("hidden", "activation"), [*NETWORKS, ((3, 3, 2), "tanh")])
def test_biases_are_not_penalised_and_weights_are(hidden, activation, loss):
    # At the optimum ∂(data)/∂W + l2 W = 0 and ∂(data)/∂b = 0; penalised biases would leave ∂(data)/∂b = −l2 b.
    l2, lam = 0.02, 0.8
    job = binary_job(lam, hidden=hidden, activation=activation, loss=loss, l2=l2, balance=False, **EXACT)
    network = fit(X, Y, job)
    weight_grads, bias_grads = data_gradients(network, X, Y, row_weights(Y, lam), loss)
    for grad in bias_grads:
        np.testing.assert_allclose(grad, 0.0, atol=1e-7)
    for grad, weight in zip(weight_grads, network.weights, strict=True):
        np.testing.assert_allclose(grad, -l2 * weight, atol=1e-7)
    assert l2 * max(np.abs(bias).max() for bias in network.biases) > 1e-4
    assert l2 * max(np.abs(weight).max() for weight in network.weights) > 1e-4


@pytest.mark.parametrize(("hidden", "activation"), NETWORKS)
def test_squared_error_has_its_own_stationarity_in_the_output_bias(hidden, activation):
    # ℓ = 4 (y − q)² with q = σ(o) and ∂q/∂o = q (1 − q), so ∂ℓ/∂o = −8 (y − q) q (1 − q). The output bias enters every
    # logit with slope 1 and is not penalised, hence Σ w (y − q) q (1 − q) = 0: the key equation with each row weighed
    # by q (1 − q), which is another equation.
    lam = 0.5
    job = binary_job(lam, hidden=hidden, activation=activation, loss="squared_error", l2=0.01, balance=False, **EXACT)
    network = fit(X, Y, job)
    q, w = 1 / (1 + np.exp(-plain_logits(network, X))), row_weights(Y, lam)
    assert abs(np.sum(w * (Y - q) * q * (1 - q))) / w.sum() < 1e-7
    assert abs(np.sum(w * (Y - q))) / w.sum() > 1e-3
    crossed = fit(X, Y, binary_job(lam, hidden=hidden, activation=activation, l2=0.01, balance=False, **EXACT))
    q = 1 / (1 + np.exp(-plain_logits(crossed, X)))
    assert abs(np.sum(w * (Y - q))) / w.sum() < 1e-7
    assert abs(np.sum(w * (Y - q) * q * (1 - q))) / w.sum() > 1e-4
