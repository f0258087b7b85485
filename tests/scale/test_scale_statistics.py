"""Running counts and moments against NumPy on all rows at once, in any cut and merge."""

import numpy as np
import pytest

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.scale.sources import Chunk, held_out
from crcen.scale.statistics import StreamStatistics
from crcen.training.network import standardization

NAMES = ("a", "b", "c")


def statistics_of(X, y, w, cuts, **settings):
    found = StreamStatistics(NAMES, **settings)
    for rows in np.split(np.arange(len(X)), cuts):
        if len(rows):
            found.add(Chunk(X[rows], y[rows], w[rows], "here"))
    return found


def standard(found):
    return found.encoding("standard", 12, np.asarray, standardize=True)


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3, 599], list(range(10, 600, 7))])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_streamed_standardisation_is_that_of_all_rows_but_held_out_ones(table, cuts, share):
    X, y, w = table
    found = statistics_of(X, y, w, cuts, validation_fraction=share, seed=9)
    kept = ~held_out(X, share, 9)
    mean, scale = standardization(X[kept], w[kept])
    np.testing.assert_allclose(standard(found).mean, mean, rtol=1e-13)
    np.testing.assert_allclose(standard(found).scale, scale, rtol=1e-10)
    assert found.totals.n_rows == 600
    assert found.train_totals.n_rows == kept.sum() > 300
    assert kept.all() == (share == 0)


def test_workers_merge_to_the_same_and_a_third_label_is_a_class(table):
    X, y, w = table
    third = statistics_of(X, np.where(np.arange(600) == 550, 2, y), w, [500])
    assert third.classes().tolist() == [0, 1, 2]
    assert third.totals.weight[2] == w[550]
    with pytest.raises(InvalidParameter, match="no sample of rows"):
        third.encoding("tree", 12, 1, standardize=True)
    with pytest.raises(InvalidInput, match="too large"):
        standard(statistics_of(X * 1e200, y, w, []))
    whole = statistics_of(X, y, w, [100])
    left, right = (statistics_of(X[part], y[part], w[part], []) for part in (slice(0, 17), slice(17, None)))
    left.merge(right)
    left.merge(StreamStatistics(NAMES))  # a worker without rows
    np.testing.assert_allclose(left.moments.mean, whole.moments.mean, rtol=1e-13)
    np.testing.assert_allclose(left.moments.squares, whole.moments.squares, rtol=1e-10)
    assert left.totals.rows == whole.totals.rows == {0: int((y == 0).sum()), 1: int(y.sum())}
    assert left.totals.weights(np.array([1, 0])) == pytest.approx([w[y == 1].sum(), w[y == 0].sum()], rel=1e-12)
    twice = StreamStatistics(NAMES)  # workers with equal rows
    for _ in range(2):
        twice.merge(right)
    assert twice.moments.weight == pytest.approx(2 * right.moments.weight)


def test_constant_columns_and_rows_without_weight(table):
    _, y, w = table
    X = np.column_stack([np.full(600, 1e30), np.full(600, 0.1), np.where(np.arange(600) < 20, 50.0, 7.0)])
    w = np.where(np.arange(600) < 20, 0.0, w)
    encoding = standard(statistics_of(X, y, w, [5, 30]))
    np.testing.assert_array_equal(encoding.mean, [1e30, 0.1, 7.0])
    np.testing.assert_array_equal(encoding.scale, [1.0, 1.0, 1.0])


def test_the_sample_is_random_bounded_and_the_same_each_time():
    X, y = np.arange(5000.0)[:, None] * [1, 1, 1], np.arange(5000) % 2
    found = [statistics_of(X, y, np.ones(5000), [100, 3000], sample_rows=400, seed=seed) for seed in (1, 1, 2)]
    rows = [one.sample.X[:, 0] for one in found]
    np.testing.assert_array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])
    for one, mine in zip(found, rows, strict=True):
        assert len(set(mine)) == 400
        np.testing.assert_array_equal(one.sample.labels, mine % 2)
        assert mine.mean() == pytest.approx(2500, abs=5 * 1443 / 20)
    merged = statistics_of(X[:4000], y[:4000], np.ones(4000), [], sample_rows=400)
    merged.merge(statistics_of(X[4000:], y[4000:], np.ones(1000), [700], sample_rows=400, seed=3))
    assert len(set(merged.sample.X[:, 0])) == 400
    assert (merged.sample.X[:, 0] >= 4000).mean() == pytest.approx(0.2, abs=0.1)
