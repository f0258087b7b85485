"""Stacked jobs against jobs alone, solvers against those of others, weights against rows, for two and K classes."""

import itertools

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from training_reference import adam_by_torch, assert_same_result, binary_job, flat, little_memory

from crcen import CRCENClassifier, Inputs, stationarity
from crcen.training.engine import gradients_of, train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.network import NetworkGroup
from example_rows import WEIGHTS, gaussian_classes, rare_rows, row_weights
from grouped_settings import grouped

X, Y = rare_rows(96, shift=1.0)
ROWS, CLASSES, _ = gaussian_classes(400, 0)
S = np.random.default_rng(0).uniform(0.5, 2.0, 400)
EXACT = {"solver": "lbfgs", "tol": 1e-10, "max_epochs": 2000}


def fit_classes(**settings):
    """The result of one job on rows of four classes with sample weights."""
    return train(ROWS, CLASSES, [TrainingJob(WEIGHTS, **settings)], sample_weight=S)[0]


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
    "validation": [{"rows": rows, "validation": np.setdiff1d(np.arange(96), rows)} for rows in folds(96)],
    "all": [
        {"lam": lam, "l2": l2, "hidden": hidden, "seed": seed, "rows": rows}
        for (lam, l2, hidden), (seed, rows) in itertools.product(
            [(0.1, 1e-3, (3,)), (0.8, 1e-2, (5,))], list(enumerate(folds(96)))[:2]
        )
    ],
    "classes": [{"hidden": (4,), "l2": l2, "rows": rows} for l2 in (1e-3, 0.1) for rows in (None, np.arange(70))],
    "one against all": [{"hidden": h, "loss": "one_against_all"} for h in ((4,), (3,))],
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
    rows, y = (ROWS[:96], CLASSES[:96]) if axis in ("classes", "one against all") else (X, Y)
    make = binary_job if y is Y else TrainingJob
    own = {"lam": 0.7} if y is Y else {"class_weights": WEIGHTS}
    jobs = [make(**(own | {"hidden": (4,)} | common | settings)) for settings in AXES[axis]]
    s = np.random.default_rng(0).exponential(size=len(y)) if weighted else None
    alone = [train(rows, y, [job], sample_weight=s, device="cpu")[0] for job in jobs]
    shuffled = np.random.default_rng(1).permutation(len(jobs))
    tight, roomy = (little_memory(rows, y, jobs, networks) for networks in (1, 3))
    for order, memory in ((range(len(jobs)), None), (shuffled, None), (shuffled, tight), (range(len(jobs)), roomy)):
        together = train(rows, y, [jobs[i] for i in order], sample_weight=s, device="cpu", memory_bytes=memory)
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


@pytest.mark.parametrize("l2", [0.0, 0.1])
@pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((4,), "tanh"), ((5, 3), "gelu"), ((4,), "sigmoid")])
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


def test_without_hidden_layer_several_outputs_are_multinomial_logistic_regression():
    result = fit_classes(hidden=(), l2=0.02, standardize=False, balance=False, **EXACT)
    weights = S * WEIGHTS[CLASSES]
    peer = LogisticRegression(C=1.0 / (0.02 * weights.sum()), tol=1e-10, max_iter=5000)
    assert result.status is Status.CONVERGED
    expected = peer.fit(ROWS, CLASSES, sample_weight=weights).predict_proba(ROWS)
    np.testing.assert_allclose(softmax(result.network.logits(ROWS), axis=1), expected, atol=1e-6)


def test_two_outputs_at_twice_the_penalty_are_one_logit():
    """Softmax penalises both rows of weights, each half of the one: ½·2l2·2·(w/2)² = ½·l2·w²."""
    jobs = [binary_job(0.8, hidden=(), **own, **EXACT) for own in ({"l2": 0.01}, {"l2": 0.02, "outputs": 2})]
    one, two = (train(ROWS, (CLASSES > 0).astype(int), [job], sample_weight=S)[0] for job in jobs)
    logits = two.network.logits(ROWS)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], one.network.logits(ROWS), atol=1e-7)


def test_one_against_all_is_a_binary_network_for_each_class():
    """Without hidden units the outputs share nothing: each is the weighted logistic regression of its class."""
    # Row weights would have part in the columns' scales.
    settings = {"hidden": (), "l2": 1e-2, "standardize": False, **EXACT}
    found = fit_classes(loss="one_against_all", **settings)
    for k in range(4):
        (alone,) = train(ROWS, k == CLASSES, [binary_job(0.5, **settings)], sample_weight=WEIGHTS[CLASSES] * S)
        np.testing.assert_allclose(found.network.outputs(ROWS)[:, k], alone.network.logits(ROWS), atol=2e-5)


def test_several_outputs_are_stationary_where_lbfgs_ends_and_the_solve_moves_biases():
    settings = {"hidden": (4,), "activation": "tanh", "solver": "lbfgs", "l2": 0.05, "tol": 1e-7, "max_epochs": 1500}
    plain, solved = (fit_classes(balance=balance, **settings) for balance in (False, True))
    found = gradients_of(NetworkGroup.of([plain.network]), ROWS, CLASSES, S * WEIGHTS[CLASSES], "cross_entropy", 0.05)
    assert plain.status is Status.CONVERGED
    assert max(np.abs(part).max() for layer in found for part in layer) <= 1e-6
    assert not plain.shift.any()
    assert solved.shift.any()
    np.testing.assert_allclose(plain.network.logits(ROWS) + solved.shift, solved.network.logits(ROWS), atol=1e-12)


def test_best_epoch_of_the_watched_rows_of_several_classes_is_kept():
    own, validation = np.arange(0, 400, 2), np.arange(1, 400, 2)
    assert set(CLASSES[validation]) == set(range(4))
    settings = {"hidden": (32,), "max_epochs": 40, "l2": 0.0, "learning_rate": 0.05, "balance": False}
    result = fit_classes(rows=own, validation=validation, **settings)
    weights = (S * WEIGHTS[CLASSES])[validation]
    loss = -log_softmax(result.network.logits(ROWS[validation]), axis=1)[
        np.arange(len(validation)), CLASSES[validation]
    ]
    assert result.val_loss_curve.argmin() < len(result.val_loss_curve) - 1  # it did overfit
    assert float(weights @ loss / weights.sum()) == pytest.approx(result.val_loss_curve.min(), rel=1e-4)


# -- learnable scales of the encoded columns: what they penalise, and what becomes of them -----------------------------


def lasso_problem():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 8))
    truth = np.array([1.5, -1.0, 0.5, 0, 0, 0, 0, 0])
    return rows, (rng.random(400) < 1 / (1 + np.exp(-rows @ truth - 0.3))).astype(int)


@pytest.mark.parametrize("l2", [0.01, 0.05])
def test_without_hidden_layer_scales_are_the_lasso(l2):
    """One weight a column: ½·l2·(s² + v²) at s·v = w is smallest at l2·|w|."""
    rows, y = lasso_problem()
    how = {"batch_size": 400, "learning_rate": 0.02, "standardize": False, "balance": False, "column_scales": True}
    network = train(rows, y, [binary_job(0.5, hidden=(), l2=l2, max_epochs=1500, **how)], device="cpu")[0].network
    truth = LogisticRegression(l1_ratio=1.0, C=1 / (len(y) * l2), solver="saga", max_iter=20_000, tol=1e-8)
    truth.fit(rows, y)
    np.testing.assert_allclose(network.weights[0][:, 0], truth.coef_[0], atol=5e-3)
    np.testing.assert_allclose(network.biases[0], truth.intercept_, atol=5e-3)
    assert (truth.coef_ == 0).any()  # or nothing was shown
    how, kept = (NetworkGroup.of([network]), rows, y == 1, np.ones(len(y)), "cross_entropy", l2), truth.coef_[0] != 0
    ((scaled,),), _ = gradients_of(*how, scaled=True)
    ((plain,),), _ = gradients_of(*how)
    assert np.abs(scaled[kept]).max() < 2e-3
    assert np.abs(plain[kept]).max() > 5e-3


@pytest.mark.parametrize("hidden", [(5,), (4, 3)])
def test_columns_of_no_use_are_left_out(hidden):
    rows, y = lasso_problem()
    how = {"hidden": hidden, "l2": 0.02, "max_epochs": 300}
    jobs = [binary_job(0.5, column_scales=scales, **how) for scales in (True, False)]
    sizes = [np.linalg.norm(result.network.weights[0], axis=1) for result in train(rows, y, jobs, device="cpu")]
    scaled, plain = (size[3:].max() / size[0] for size in sizes)
    assert 2 * scaled < plain


def test_columns_that_are_left_out_are_stationary_and_partial_fit_goes_on_without_scales():
    def scaled(epochs, l2):
        how = {"solver": "adam", "batch_size": 96, "encoding": "standard", "column_scales": True, "n_members": 1}
        return CRCENClassifier(None, **grouped(hidden=(4,), max_epochs=epochs, l2=l2, random_state=0, **how)).fit(X, Y)

    model = scaled(1500, 0.3)
    assert np.linalg.norm(model.coefs_[0][0], axis=1).max() < 1e-6  # the penalty leaves nothing
    assert np.abs(stationarity(model, X, Y).weights[0]).max() < 1e-6
    model = scaled(3, 1e-3)
    assert model.column_scales_
    assert not model.set_params(encoding=Inputs(column_scales="auto")).partial_fit(X, Y).column_scales_


# -- weights are copies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wild", [1.0, 1e30])
@pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((4,), "tanh"), ((3, 2), "tanh")])
def test_zero_weight_is_absence_whatever_the_row_holds(hidden, activation, wild):
    keep = np.arange(len(Y)) % 3 > 0
    rows = np.where(keep[:, None], X, X * wild)
    job = binary_job(0.8, hidden=hidden, activation=activation, l2=0.01, **EXACT)
    (weighted,) = train(rows, Y, [job], sample_weight=keep.astype(float), device="cpu")
    (absent,) = train(X[keep], Y[keep], [job], device="cpu")
    assert weighted.status is absent.status is Status.CONVERGED
    np.testing.assert_allclose(weighted.network.logits(X), absent.network.logits(X), rtol=1e-5, atol=1e-5)
