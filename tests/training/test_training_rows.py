"""Batches of rows: every row of a pool once an epoch, padding without weight, orders by seed, encodings by group."""

import numpy as np
import pytest
import torch

from crcen.training.encoding import raw
from crcen.training.recipe import n_batches
from crcen.training.rows import RowFeed, TrainingData

CPU = torch.device("cpu")
ALL = np.arange(40)


def feed_of(pools, weights=None, encodings=None):
    """A feed whose only column is the row's own number, so that every batch says which rows it holds."""
    data = TrainingData(ALL[:, None].astype(float), (ALL % 4 == 0).astype(int), np.ones(40), 2, CPU)
    if weights is not None:
        data = TrainingData(data.X, data.y, weights, 2, CPU)
    return RowFeed(data, pools, encodings or [raw(1)] * len(pools), torch.float64)


def batches_of(feed, index):
    """(inputs, labels, weights) of every group, batch after batch."""
    found = []
    for x, y, w in feed.batches(index):
        assert (x[..., -1] == 1).all()
        labels = y.expand(len(x), -1, -1)
        found.append([(x[g, :, 0].numpy().copy(), labels[g, :, 0].numpy(), w[g, :, 0].numpy()) for g in range(len(x))])
    return found


def weighted_rows(feed, index, group):
    """The rows of a group without padding."""
    return np.concatenate([own[group][0][own[group][2] > 0] for own in batches_of(feed, index)])


@pytest.mark.parametrize("batch_size", [1, 7, 8, 13, 40, 1000])
def test_an_epoch_holds_every_row_of_each_pool_once(batch_size):
    feed = feed_of([ALL, ALL[::-1].copy(), ALL])
    index = feed.epoch_index([0, 0, 5], 3, batch_size)
    batches = batches_of(feed, index)
    assert len(batches) == n_batches(40, batch_size) == int(np.ceil(40 / min(batch_size, 40)))
    for group in range(3):
        rows = weighted_rows(feed, index, group)
        assert sorted(rows) == list(range(40))
        labels = np.concatenate([own[group][1][own[group][2] > 0] for own in batches])
        np.testing.assert_array_equal(labels, rows % 4 == 0)
        assert all(len(own[group][0]) <= batch_size for own in batches)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_an_order_holds_every_row_once_and_spreads_classes(n_classes):
    rng = np.random.default_rng(2)
    data = TrainingData(rng.normal(size=(400, 1)), rng.integers(0, n_classes, 400), np.ones(400), n_classes, CPU)
    pool = np.flatnonzero(rng.random(400) < 0.8)
    feed = RowFeed(data, [pool], [raw(1)], torch.float32)
    orders = [feed._spread_order(pool, 7, epoch) for epoch in (0, 1, 0)]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(len(pool)))
        labels = data.y[pool][order]
        for label in np.unique(labels):  # after any number of rows a class has its share of them, within one
            share = np.arange(1, len(pool) + 1) * (labels == label).mean()
            assert np.abs(np.cumsum(labels == label) - share).max() <= n_classes
    np.testing.assert_array_equal(orders[0], orders[2])
    assert (orders[0] != orders[1]).any()
