"""Batches of rows: every row of a pool once an epoch, padding without weight, classes spread, orders by seed."""

import numpy as np
import pytest
import torch

from crcen.training.encoding import raw, standardization
from crcen.training.recipe import n_batches
from crcen.training.rows import RowFeed, TrainingData


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("batch_size", [1, 7, 64, 1000])
def test_an_epoch_holds_every_row_once_and_spreads_classes(batch_size, n_classes):
    rng = np.random.default_rng(2)
    labels, pool = rng.integers(0, n_classes, 400), np.flatnonzero(rng.random(400) < 0.8)
    # The only column is the row's own number, so that every batch says which rows it holds.
    data = TrainingData(np.arange(400.0)[:, None], labels, np.ones(400), n_classes, torch.device("cpu"))
    feed = RowFeed(data, [pool, pool[::-1].copy(), pool], [raw(1)] * 3, torch.float64)

    def orders(epoch):
        found = [[], [], []]
        batches = list(feed.batches(feed.epoch_index([7, 7, 5], epoch, batch_size)))
        assert len(batches) == n_batches(len(pool), batch_size) == int(np.ceil(len(pool) / min(batch_size, len(pool))))
        for x, y, weight in feed.batches(feed.epoch_index([7, 7, 5], epoch, batch_size)):
            assert (x[..., -1] == 1).all()
            for group, own in enumerate(found):
                is_row = weight[group, :, 0] > 0  # the others are padding
                rows = x[group, is_row, 0].long().tolist()
                assert labels[rows].tolist() == y.expand(3, -1, 1)[group, is_row, 0].tolist()
                own.append(rows)
        return [np.concatenate(own) for own in found]

    first, other, again = orders(0), orders(1), orders(0)
    for order in (*first, *other):
        np.testing.assert_array_equal(np.sort(order), pool)
        for label in range(n_classes):  # after any number of rows a class has its share of them, within a few rows
            is_own = labels[order] == label
            assert np.abs(np.cumsum(is_own) - np.arange(1, len(pool) + 1) * is_own.mean()).max() <= n_classes
    np.testing.assert_array_equal(first, again)
    assert all((one != two).any() for one, two in ((first[0], other[0]), (first[0], first[2])))


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
