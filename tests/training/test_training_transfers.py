"""Encoded rows as a GPU works them out, rows in the order of columns, and logits by blocks of rows."""

import numpy as np
import pytest
import torch

from crcen.training import row_blocks, transfers
from crcen.training.encoding import ENCODINGS, column_layout, fit_encoding, incomplete_columns
from crcen.training.members import NetworkGroup
from crcen.training.network import Network
from crcen.training.rows import RowFeed, TrainingData
from crcen.training.threads import THREADS
from crcen.training.transfers import encoded_on


def table(rng, n=400, *, has_gaps=False):
    X = np.column_stack([rng.normal(size=n), rng.normal(size=n) ** 3, rng.integers(0, 5, n), np.ones(n)]).astype(float)
    if has_gaps:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, rng.random(n) < 0.3


@pytest.mark.parametrize("has_gaps", [False, True])
@pytest.mark.parametrize("kind", ENCODINGS)
def test_a_gpus_operations_give_the_same_numbers(kind, has_gaps):
    X, y = table(np.random.default_rng(0), has_gaps=has_gaps)
    indicators = incomplete_columns(X) if has_gaps else None
    own = X[:200], y[:200], np.ones(200)
    encoding = fit_encoding(kind, column_layout(X, kind, 4), *own, indicators=indicators)
    device = torch.device("cpu")
    np.testing.assert_array_equal(encoded_on(device, encoding, X), encoding(X))
    if encoding.knots is None:  # the host alone interpolates
        np.testing.assert_allclose(transfers._worked_out(device, encoding, X), encoding(X), rtol=1e-15)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_an_order_holds_every_row_once_and_spreads_classes(n_classes):
    rng = np.random.default_rng(2)
    X, _ = table(rng)
    y = rng.integers(0, n_classes, len(X))
    data = TrainingData(X, y == 1 if n_classes == 2 else y, np.ones(len(X)), torch.device("cpu"))
    encoding = fit_encoding("standard", None, X, data.y, np.ones(len(X)))
    pool = np.flatnonzero(rng.random(len(X)) < 0.8)
    feed = RowFeed(data, [pool], [np.ones(len(pool))], [encoding], torch.float32)
    orders = [feed._spread_order(pool, 7, epoch) for epoch in (0, 1, 0)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(len(pool)))
        labels = data.y[pool][order]
        for label in np.unique(labels):  # after any number of rows a class has its share of them, within one
            count = np.cumsum(labels == label)
            share = np.arange(1, len(pool) + 1) * (labels == label).mean()
            assert np.abs(count - share).max() <= n_classes
    np.testing.assert_array_equal(orders[0], orders[2])
    assert (orders[0] != orders[1]).any()


def test_logits_by_blocks_are_the_same_bits(monkeypatch):
    monkeypatch.setattr(row_blocks, "_ROWS", 64)
    monkeypatch.setattr("crcen.training.threads.usable_cores", lambda: 3)
    rng = np.random.default_rng(3)
    X, y = table(rng)
    encoding = fit_encoding("steps", column_layout(X, "steps", 4), X, y, np.ones(len(X)))
    shapes = [(encoding.size, 6), (6, 1)]
    networks = [
        Network(
            encoding, tuple(rng.normal(size=s) for s in shapes), tuple(rng.normal(size=s[1]) for s in shapes), "relu"
        )
        for _ in range(3)
    ]
    sizes, expected = [], NetworkGroup.of(networks).logits(X)

    def counted(group, rows, logits=NetworkGroup.logits):
        sizes.append(len(rows))
        return logits(group, rows)

    monkeypatch.setattr(THREADS, "get", lambda: 3)
    monkeypatch.setattr(NetworkGroup, "logits", counted)
    np.testing.assert_array_equal(row_blocks.mean_logits(networks, X), expected)
    assert sorted(sizes) == [16] + [64] * 6
