"""Learnable scales of the encoded columns: gradients, what they penalise, and what becomes of them."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from training_reference import binary_job

import crcen
from crcen import Inputs
from crcen.training.engine import train
from crcen.training.stack import gradient_of
from example_rows import rare_rows
from grouped_settings import grouped

X, Y = rare_rows(130, shift=1.0)


def lasso_problem():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 8))
    truth = np.array([1.5, -1.0, 0.5, 0, 0, 0, 0, 0])
    return rows, (rng.random(400) < 1 / (1 + np.exp(-rows @ truth - 0.3))).astype(int)


@pytest.mark.parametrize("l2", [0.01, 0.05])
def test_without_hidden_layer_it_is_the_lasso(l2):
    """One weight a column: ½·l2·(s² + v²) at s·v = w is smallest at l2·|w|."""
    rows, y = lasso_problem()
    job = binary_job(
        0.5, hidden=(), l2=l2, max_epochs=1500, batch_size=400, learning_rate=0.02, standardize=False, balance=False,
        column_scales=True,
    )  # fmt: skip
    network = train(rows, y, [job], device="cpu")[0].network
    truth = LogisticRegression(l1_ratio=1.0, C=1 / (len(y) * l2), solver="saga", max_iter=20_000, tol=1e-8)
    truth.fit(rows, y)
    np.testing.assert_allclose(network.weights[0][:, 0], truth.coef_[0], atol=5e-3)
    np.testing.assert_allclose(network.biases[0], truth.intercept_, atol=5e-3)
    assert (truth.coef_ == 0).any()  # or nothing was shown
    how = (np.ones(len(y)), "cross_entropy", l2)
    (gradient,), _ = gradient_of(network, rows, y == 1, *how, scaled=True)
    kept = truth.coef_[0] != 0
    assert np.abs(gradient[kept]).max() < 2e-3
    (plain,), _ = gradient_of(network, rows, y == 1, *how)
    assert np.abs(plain[kept]).max() > 5e-3


@pytest.mark.parametrize("hidden", [(5,), (4, 3)])
def test_columns_of_no_use_are_left_out(hidden):
    rows, y = lasso_problem()
    job = binary_job(0.5, hidden=hidden, l2=0.02, max_epochs=300, column_scales=True)
    scaled, plain = (
        result.network.weights[0] for result in train(rows, y, [job, replace(job, column_scales=False)], device="cpu")
    )
    sizes = [np.linalg.norm(weights, axis=1) for weights in (scaled, plain)]
    shares = [size[3:].max() / size[0] for size in sizes]
    assert 2 * shares[0] < shares[1]


class TestClassifier:
    quick: ClassVar = {"hidden": (4,), "n_members": 1, "max_epochs": 3, "random_state": 0, "solver": "adam"}

    def test_goes_on_without_them(self):
        model = crcen.CRCENClassifier(**grouped(**self.quick, encoding="standard", column_scales=True)).fit(X, Y)
        assert model.column_scales_
        assert not model.set_params(encoding=Inputs(column_scales="auto")).partial_fit(X, Y).column_scales_

    def test_columns_that_are_left_out_are_stationary(self):
        model = crcen.CRCENClassifier(
            None, hidden=(4,), n_members=1, l2=0.3, max_epochs=1500, random_state=0,
            schedule=crcen.Schedule(batch_size=130, solver="adam"),
            encoding=crcen.Inputs(encoding="standard", column_scales=True),
        ).fit(X, Y)  # fmt: skip
        assert np.linalg.norm(model.coefs_[0][0], axis=1).max() < 1e-6  # the penalty leaves nothing
        assert np.abs(crcen.stationarity(model, X, Y).weights[0]).max() < 1e-6
