"""Batches of rows: every row of a pool once an epoch, padding without weight, orders by seed, encodings by group."""

import numpy as np
import pytest
import torch

from crcen.training.encoding import INPUT_LIMIT, InputEncoding, raw, standardization
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


def test_pools_of_other_sizes_are_padded_without_weight():
    pools = [ALL, ALL[3:], ALL[1:39]]
    feed = feed_of(pools)
    shuffled, in_order = feed.epoch_index([0, 0, 0], 0, 10), feed.index_in_order(16)
    for group, pool in enumerate(pools):
        np.testing.assert_array_equal(np.sort(weighted_rows(feed, shuffled, group)), pool)
        np.testing.assert_array_equal(weighted_rows(feed, in_order, group), pool)
        assert sum(own[group][2].sum() for own in batches_of(feed, shuffled)) == len(pool)


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


def test_order_depends_on_seed_and_epoch_only():
    alone, together = feed_of([ALL]), feed_of([ALL[2:], ALL, ALL])

    def order(feed, seeds, epoch, group=0):
        return weighted_rows(feed, feed.epoch_index(seeds, epoch, 8), group)

    base = order(alone, [4], 2)
    for same in (order(together, [1, 4, 9], 2, 1), order(together, [1, 9, 4], 2, 2)):
        np.testing.assert_array_equal(same, base)
    for other in (order(alone, [4], 3), order(alone, [5], 2)):
        assert (other != base).any()


@pytest.mark.parametrize("ends", [(None, None), (np.full(1, -INPUT_LIMIT), np.full(1, INPUT_LIMIT))])
def test_groups_of_one_pool_keep_their_own_encoding(ends):
    weights = np.where(ALL < 20, 1.0, 2.0)
    means, scales = np.array([[3.0], [-1.0]]), np.array([[2.0], [5.0]])
    encodings = [InputEncoding(mean, scale, None, *ends) for mean, scale in zip(means, scales, strict=True)]
    feed = feed_of([ALL, ALL], weights, encodings)
    for index in (feed.epoch_index([0, 0], 0, 8), feed.index_in_order(16)):
        totals = np.zeros(2)
        for batch in batches_of(feed, index):
            for group, (z, _, w) in enumerate(batch):
                rows = z * scales[group] + means[group]
                np.testing.assert_allclose(rows, np.round(rows), atol=1e-9)
                filled = w > 0  # padding is a row of the pool without weight
                np.testing.assert_array_equal(w[filled], weights[np.round(rows[filled]).astype(int)])
                totals[group] += w.sum()
        np.testing.assert_allclose(totals, 60.0)


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -1e30, 1e200, 1e-200, 1e-308])
def test_constant_columns_get_scale_one(value):
    mean, scale = standardization(np.full((37, 1), value), np.random.default_rng(0).exponential(size=37))
    np.testing.assert_allclose(mean, value, rtol=1e-12)
    assert scale[0] == 1.0


@pytest.mark.parametrize("size", [1e-150, 1e-30, 1.0, 1e30, 1e200, 1e307])
def test_standardization_of_extreme_magnitudes(size):
    unit = np.array([[1.0], [-1.0], [3.0], [0.5]])
    mean, scale = standardization(unit * size, np.ones(4))
    np.testing.assert_allclose(mean / size, unit.mean(), rtol=1e-12)
    np.testing.assert_allclose(scale / size, unit.std(), rtol=1e-12)
