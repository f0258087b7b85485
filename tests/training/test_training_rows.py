import numpy as np
import pytest
import torch

from crcen.training.encoding import INPUT_LIMIT, InputEncoding, raw, standardization
from crcen.training.recipe import n_batches
from crcen.training.rows import RowFeed, TrainingData

CPU = torch.device("cpu")


def feed_of(pools, weights=None, n=40, standardize=False, means=None, scales=None):
    """A feed whose only column is the row's own number, so that every batch says which rows it holds."""
    X = np.arange(n, dtype=float)[:, None]
    y = (np.arange(n) % 4 == 0).astype(int)
    data = TrainingData(X, y, np.ones(n) if weights is None else weights, 2, CPU)
    limit = np.full(1, INPUT_LIMIT)
    ends = (-limit, limit) if standardize else (None, None)
    encodings = [raw(1)] * len(pools)
    if means is not None:
        encodings = [InputEncoding(mean, scale, None, *ends) for mean, scale in zip(means, scales, strict=True)]
    return RowFeed(data, pools, encodings, torch.float64), y


def collect(batches):
    """(group, batch) → rows, labels, weights with weight."""
    found = []
    for x, y, w in batches:
        groups = x.shape[0]
        labels = y.expand(groups, -1, -1)
        assert (x[..., -1] == 1).all()
        found.append([(x[g, :, 0].numpy().copy(), labels[g, :, 0].numpy(), w[g, :, 0].numpy()) for g in range(groups)])
    return found


def weighted_rows(batches, group):
    """The rows of a group without padding."""
    return np.concatenate([own[group][0][own[group][2] > 0] for own in batches])


@pytest.mark.parametrize("batch_size", [1, 7, 8, 13, 40, 1000])
def test_an_epoch_holds_every_row_of_each_pool_once(batch_size):
    pools = [np.arange(40), np.arange(0, 40)[::-1].copy(), np.arange(40)]
    feed, y = feed_of(pools)
    batches = collect(feed.batches(feed.epoch_index([0, 0, 5], 3, batch_size)))
    assert len(batches) == n_batches(40, batch_size) == int(np.ceil(40 / min(batch_size, 40)))
    for group in range(3):
        rows = weighted_rows(batches, group)
        labels = np.concatenate([b[group][1][b[group][2] > 0] for b in batches])
        assert sorted(rows) == list(range(40))
        np.testing.assert_array_equal(labels, y[rows.astype(int)])
        assert all(len(b[group][0]) <= batch_size for b in batches)


def test_pools_of_other_sizes_are_padded_without_weight():
    pools = [np.arange(40), np.arange(3, 40), np.arange(1, 39)]
    feed, _ = feed_of(pools)
    shuffled, in_order = (
        collect(feed.batches(index)) for index in (feed.epoch_index([0, 0, 0], 0, 10), feed.index_in_order(16))
    )
    for group, pool in enumerate(pools):
        np.testing.assert_array_equal(np.sort(weighted_rows(shuffled, group)), pool)
        np.testing.assert_array_equal(weighted_rows(in_order, group), pool)
        assert sum(b[group][2].sum() for b in shuffled) == len(pool)


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
            count = np.cumsum(labels == label)
            share = np.arange(1, len(pool) + 1) * (labels == label).mean()
            assert np.abs(count - share).max() <= n_classes
    np.testing.assert_array_equal(orders[0], orders[2])
    assert (orders[0] != orders[1]).any()


def test_order_depends_on_seed_and_epoch_only():
    pool, other = np.arange(40), np.arange(2, 40)
    alone, _ = feed_of([pool])
    together, _ = feed_of([other, pool, pool])

    def order(feed, seeds, epoch, group):
        return weighted_rows(collect(feed.batches(feed.epoch_index(seeds, epoch, 8))), group)

    base = order(alone, [4], 2, 0)
    np.testing.assert_array_equal(base, order(together, [1, 4, 9], 2, 1))
    np.testing.assert_array_equal(base, order(together, [1, 9, 4], 2, 2))
    assert (base != order(alone, [4], 3, 0)).any()
    assert (base != order(alone, [5], 2, 0)).any()


def test_groups_of_one_pool_keep_their_own_encoding():
    pool = np.arange(40)
    weights = np.where(pool < 20, 1.0, 2.0)
    means, scales = np.array([[3.0], [-1.0]]), np.array([[2.0], [5.0]])
    for standardize in (False, True):
        feed, _ = feed_of([pool, pool], weights, standardize=standardize, means=means, scales=scales)
        for batches in (feed.batches(feed.epoch_index([0, 0], 0, 8)), feed.batches(feed.index_in_order(16))):
            totals = np.zeros(2)
            for batch in collect(batches):
                for group in range(2):
                    z, _, w = batch[group]
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
