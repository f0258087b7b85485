"""Ramps that are looked up, against the product with every encoded column."""

import numpy as np
import pytest
import torch

from crcen.training.encoding import column_layout, fit_encoding, incomplete_columns
from crcen.training.passes import gradient
from crcen.training.ramp_lookup import NO_RAMPS, RampTables, has_ramps
from crcen.training.rows import RowFeed, TrainingData, fill_batch
from crcen.training.stack import Stack

N_ROWS = 300


def table(rng, *, has_gaps, columns):
    values = {
        "plain": [rng.normal(size=N_ROWS), rng.normal(size=N_ROWS) ** 3],
        "uneven": [rng.normal(size=N_ROWS), rng.integers(0, 5, N_ROWS), rng.integers(0, 2, N_ROWS), np.ones(N_ROWS)],
    }[columns]
    X = np.column_stack(values).astype(np.float64)
    if has_gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X


def fitted(kind, X, y, pools, *, bins=4):
    indicators = incomplete_columns(X) if np.isnan(X).any() else None
    layout = column_layout(X, kind, bins)
    return [fit_encoding(kind, layout, X[p], y[p], np.ones(len(p)), indicators=indicators) for p in pools]


@pytest.fixture(params=["steps", "tree", "piecewise"])
def kind(request):
    return request.param


@pytest.mark.parametrize("columns", ["plain", "uneven"])
@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_logits_and_gradients_are_those_of_the_product(kind, columns, has_gaps, scaled):
    rng = np.random.default_rng(0)
    X, y = table(rng, has_gaps=has_gaps, columns=columns), rng.random(N_ROWS) < 0.4
    data = TrainingData(X, y.astype(int), np.ones(N_ROWS), 2, torch.device("cpu"))
    encodings = fitted(kind, X, y, [np.arange(200), np.arange(100, N_ROWS)])
    # Batches of all rows: those an encoding was not fitted on may lie between two knots, of steps too.
    pools = [np.arange(N_ROWS), np.arange(N_ROWS)[::-1].copy()]
    feed = RowFeed(data, pools, encodings, torch.float32)
    index = feed.epoch_index([0, 1], 0, 128)
    rows, ramps = feed.epoch_rows(index), feed.ramps(index)
    assert ramps.n_ramps > 0
    network = (4, 2), "relu", "cross_entropy", torch.float32, data.device
    stack = Stack(2, 2, encodings[0].size, *network, scaled=scaled)
    stack.initialise(torch.arange(4).view(2, 2), torch.zeros(2, 2))
    for batch in range(index.shape[2]):
        fill_batch(rows, batch)
        own = [X[index[0, g, batch].numpy()] for g in range(2)]
        dense = torch.ones(2, len(own[0]), encodings[0].size + 1)
        for g, encoding in enumerate(encodings):
            dense[g, :, :-1] = torch.from_numpy(encoding(own[g]))
        labels, weights = rows.y[:, batch, :, None], torch.rand(2, len(own[0]), 2)
        expected = stack.gradient(dense, labels, weights).clone(), stack.grad.clone()
        views = stack.design, stack.own, stack.grads, stack.buffers(dense.shape[1])
        for add, times in ((False, 1), (True, 2)):
            logits = gradient(*views, rows.batch, ramps, batch, labels, weights, add)
            torch.testing.assert_close(logits, expected[0], rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(stack.grad, times * expected[1], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(stack.logits(rows.batch, ramps, batch), expected[0], rtol=1e-4, atol=1e-5)


def test_rows_that_steps_were_fitted_on_are_at_a_knot():
    rng = np.random.default_rng(1)
    X, y = table(rng, has_gaps=False, columns="plain"), rng.random(N_ROWS) < 0.4
    (encoding,) = fitted("steps", X, y, [np.arange(N_ROWS)])
    coded = RampTables(encoding).code(X)
    assert coded.shares is None
    steps = encoding(X)[:, X.shape[1] :].reshape(N_ROWS, 2, -1)
    passed = (steps > 0).sum(axis=2)  # less its mean, a step is above 0 where it is passed
    np.testing.assert_array_equal(coded.knots, passed)


def test_values_far_outside_and_next_to_each_other():
    """Knots of numbers near the end of float64, and of numbers that share most of their digits."""
    x = np.array([-1e308, -1.0, 1.0, 1.0 + 1e-9, 1e308] * 20)
    X, y = x[:, None], np.arange(100) % 3 == 0
    (encoding,) = fitted("steps", X, y, [np.arange(100)])
    tables = RampTables(encoding)
    coded, values = tables.code(X), tables.values()
    found = values[0, coded.knots[:, 0]]
    np.testing.assert_allclose(found, encoding(X)[:, 1:], atol=1e-6)


@pytest.mark.parametrize("how", ["standard", "robust", "quantile"])
def test_other_encodings_are_products(how):
    rng = np.random.default_rng(2)
    X, y = table(rng, has_gaps=False, columns="plain"), rng.random(N_ROWS) < 0.4
    (encoding,) = fitted(how, X, y, [np.arange(N_ROWS)])
    data = TrainingData(X, y.astype(int), np.ones(N_ROWS), 2, torch.device("cpu"))
    feed = RowFeed(data, [np.arange(N_ROWS)], [encoding], torch.float32)
    assert not has_ramps(encoding)
    assert feed.ramps(feed.epoch_index([0], 0, 64)) is NO_RAMPS
