"""Networks with one output per class: gradients, equivalence with one logit and other libraries, key equations."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax, softmax
from sklearn.linear_model import LogisticRegression
from training_reference import binary_job

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.training.encoding import column_layout, fit_encoding
from crcen.training.engine import train
from crcen.training.jobs import Status, TrainingJob
from crcen.training.stack import gradient_of

CPU = torch.device("cpu")
WEIGHTS = (1.0, 5.0, 12.0, 40.0)
N_CLASSES, N_FEATURES = len(WEIGHTS), 3


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    n = 400
    y = np.concatenate([np.arange(N_CLASSES), rng.choice(N_CLASSES, n - N_CLASSES, p=[0.7, 0.15, 0.1, 0.05])])
    centres = rng.normal(0.0, 1.2, (N_CLASSES, N_FEATURES))
    return centres[y] + rng.normal(size=(n, N_FEATURES)), y, rng.uniform(0.5, 2.0, n)


def job(**settings):
    return TrainingJob(WEIGHTS, **settings)


def test_without_hidden_layer_it_is_multinomial_logistic_regression(rows):
    X, y, s = rows
    l2 = 0.02
    settings = {"hidden": (), "solver": "lbfgs", "l2": l2, "tol": 1e-9, "max_epochs": 500}
    (result,) = train(X, y, [job(standardize=False, balance=False, **settings)], sample_weight=s)
    weights = s * np.array(WEIGHTS)[y]
    peer = LogisticRegression(C=1.0 / (l2 * weights.sum()), tol=1e-10, max_iter=5000).fit(X, y, sample_weight=weights)
    assert result.status is Status.CONVERGED
    np.testing.assert_allclose(softmax(result.network.logits(X), axis=1), peer.predict_proba(X), atol=1e-6)


def test_two_outputs_at_twice_the_penalty_are_one_logit(rows):
    """Softmax penalises both rows of weights, each half of the one: ½·2l2·2·(w/2)² = ½·l2·w²."""
    X, y, s = rows
    is_pos = y > 0
    settings = {"hidden": (), "solver": "lbfgs", "tol": 1e-10, "max_epochs": 500}
    (one,) = train(X, is_pos, [binary_job(0.8, l2=0.01, **settings)], sample_weight=s)
    two_outputs = binary_job(0.8, outputs=2, l2=0.02, **settings)
    (two,) = train(X, is_pos.astype(int), [two_outputs], sample_weight=s)
    logits = two.network.logits(X)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], one.network.logits(X), atol=1e-7)


def test_without_the_solve_biases_are_left_alone(rows):
    X, y, _ = rows
    plain, solved = train(X, y, [job(hidden=(4,), max_epochs=3, balance=balance) for balance in (False, True)])
    assert np.isnan(plain.residual)
    assert not plain.shift.any()
    np.testing.assert_allclose(plain.network.logits(X) + solved.shift, solved.network.logits(X), atol=1e-12)


@pytest.mark.parametrize("loss", ["cross_entropy", "one_against_all"])
def test_stacked_equals_alone(rows, loss):
    X, y, s = rows
    jobs = [
        job(loss=loss, hidden=hidden, seed=i, max_epochs=4, l2=l2, rows=pool)
        for i, (hidden, l2, pool) in enumerate(
            [((8,), 1e-3, None), ((8,), 1e-2, None), ((5,), 1e-3, None), ((8,), 1e-3, np.arange(300))]
        )
    ]
    for one, together in zip(jobs, train(X, y, jobs, sample_weight=s), strict=True):
        (alone,) = train(X, y, [one], sample_weight=s)
        np.testing.assert_allclose(together.network.logits(X), alone.network.logits(X), atol=1e-4)


def test_best_epoch_of_the_watched_rows_is_kept(rows):
    X, y, s = rows
    own, watched = np.arange(0, 400, 2), np.arange(1, 400, 2)
    assert set(y[watched]) == set(range(N_CLASSES))
    settings = {"hidden": (32,), "max_epochs": 40, "l2": 0.0, "learning_rate": 0.05, "balance": False}
    (result,) = train(X, y, [job(rows=own, watched=watched, **settings)], sample_weight=s)
    weights = s[watched] * np.array(WEIGHTS)[y[watched]]
    loss = -log_softmax(result.network.logits(X[watched]), axis=1)[np.arange(len(watched)), y[watched]]
    assert result.val_loss_curve.argmin() < len(result.val_loss_curve) - 1  # it did overfit
    assert float(weights @ loss / weights.sum()) == pytest.approx(result.val_loss_curve.min(), rel=1e-4)


def test_parts_of_a_schedule_are_the_whole(rows):
    X, y, s = rows
    own, held_out = np.arange(0, 300), np.arange(300, 400)
    settings = {"hidden": (6,), "max_epochs": 6, "rows": own, "watched": held_out, "record_every": 1}
    (whole,) = train(X, y, [job(balance=False, **settings)], sample_weight=s)
    (begun,) = train(X, y, [job(balance=False, stop_epoch=2, leaves_state=True, **settings)], sample_weight=s)
    (ended,) = train(X, y, [job(balance=False, start=begun.state, **settings)], sample_weight=s)
    assert whole.val_logits.shape == (6, 100, N_CLASSES)
    np.testing.assert_array_equal(np.concatenate([begun.val_logits, ended.val_logits]), whole.val_logits)
    np.testing.assert_allclose(whole.val_logits[-1], whole.network.logits(X[held_out]), atol=1e-4)


def test_the_objective_is_stationary_where_lbfgs_ends(rows):
    X, y, s = rows
    settings = {"hidden": (4,), "activation": "tanh", "solver": "lbfgs", "l2": 0.05, "tol": 1e-7, "max_epochs": 1500}
    (result,) = train(X, y, [job(balance=False, **settings)], sample_weight=s)
    gradients = gradient_of(result.network, X, y, s * np.array(WEIGHTS)[y], "cross_entropy", 0.05)
    assert result.status is Status.CONVERGED
    assert max(np.abs(part).max() for layer in gradients for part in layer) <= 1e-6


def test_a_rows_logits_do_not_depend_on_its_company(rows):
    X, y, _ = rows
    (result,) = train(X, y, [job(hidden=(5,), max_epochs=1)])
    together = result.network.logits(X)
    assert all(np.array_equal(result.network.logits(X[i : i + 1])[0], together[i]) for i in range(0, 400, 57))


def test_steps_are_placed_where_classes_change():
    """Three classes on one line: the tree splits at both borders and nowhere else, whatever the counts are."""
    x = np.concatenate([np.linspace(0, 0.9, 60), np.linspace(1, 1.9, 20), np.linspace(2, 2.9, 30)])[:, None]
    y = np.repeat([2, 0, 1], [60, 20, 30])
    layout = column_layout(x, "steps", 3)
    encoding = fit_encoding("steps", layout, x, y, np.ones(110))
    inside = encoding(np.array([[0.5], [1.5], [2.5]]))[:, 1:]
    jumps = np.abs(np.diff(inside, axis=0)).sum(axis=1)
    assert np.allclose(jumps, 1.0)


def test_jobs_that_do_not_fit_the_classes_are_refused(rows):
    X, y, _ = rows
    with pytest.raises(InvalidInput, match="every class"):
        train(X, np.where(y == 3, 0, y), [job()])

    with pytest.raises(InvalidParameter, match="positive numbers"):
        TrainingJob((1.0, 0.0))


def test_one_against_all_is_a_binary_network_for_each_class(rows):
    """Without hidden units the outputs share nothing: each is the weighted logistic regression of its class."""
    X, y, s = rows
    # Row weights would have part in the columns' scales.
    settings = {"hidden": (), "l2": 1e-2, "solver": "lbfgs", "max_epochs": 500, "tol": 1e-10, "standardize": False}
    (found,) = train(X, y, [job(loss="one_against_all", **settings)], sample_weight=s)
    w = np.array(WEIGHTS)[y] * s
    for k in range(N_CLASSES):
        (alone,) = train(X, y == k, [binary_job(0.5, **settings)], sample_weight=w)
        np.testing.assert_allclose(found.network.outputs(X)[:, k], alone.network.logits(X), atol=2e-5)
