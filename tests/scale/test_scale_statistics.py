"""Running counts and moments against NumPy on all rows at once, in any cut and merge."""

import numpy as np
import pytest

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.scale.sources import Chunk, held_out
from crcen.scale.statistics import StreamStatistics
from crcen.training.encoding import standardization

NAMES = ("a", "b", "c")


def statistics_of(X, y, w, cuts, **settings):
    found = StreamStatistics(NAMES, **settings)
    for rows in np.split(np.arange(len(X)), cuts):
        if len(rows):
            found.add(Chunk(X[rows], y[rows], w[rows], "here"))
    return found


@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 3, 599], list(range(10, 600, 7))])
def test_streamed_standardisation_is_that_of_all_rows(table, cuts):
    X, y, w = table
    encoding = statistics_of(X, y, w, cuts).encoding("standard", 12, np.asarray, standardize=True)
    mean, scale = standardization(X, w)
    np.testing.assert_allclose(encoding.mean, mean, rtol=1e-13)
    np.testing.assert_allclose(encoding.scale, scale, rtol=1e-10)


def test_workers_merge_to_the_same(table):
    X, y, w = table
    whole = statistics_of(X, y, w, [100])
    left, right = (statistics_of(X[part], y[part], w[part], []) for part in (slice(0, 17), slice(17, None)))
    left.merge(right)
    left.merge(StreamStatistics(NAMES))  # a worker without rows
    np.testing.assert_allclose(left.moments.mean, whole.moments.mean, rtol=1e-13)
    np.testing.assert_allclose(left.moments.squares, whole.moments.squares, rtol=1e-10)
    assert left.totals.rows == whole.totals.rows == {0: int((y == 0).sum()), 1: int(y.sum())}
    assert left.totals.weights(np.array([1, 0])) == pytest.approx([w[y == 1].sum(), w[y == 0].sum()], rel=1e-12)


def test_held_out_rows_count_but_do_not_standardise(table):
    X, y, w = table
    out = held_out(X, 0.3, 9)
    found = statistics_of(X, y, w, [50, 400], validation_fraction=0.3, seed=9)
    assert found.totals.n_rows == 600
    assert found.train_totals.n_rows == int((~out).sum()) < 500
    mean, scale = standardization(X[~out], w[~out])
    np.testing.assert_allclose(found.encoding("standard", 12, np.asarray, standardize=True).mean, mean, rtol=1e-13)
    np.testing.assert_allclose(found.encoding("standard", 12, np.asarray, standardize=True).scale, scale, rtol=1e-10)


def test_constant_columns_and_rows_without_weight(table):
    _, y, w = table
    X = np.column_stack([np.full(600, 1e30), np.full(600, 0.1), np.where(np.arange(600) < 20, 50.0, 7.0)])
    w = np.where(np.arange(600) < 20, 0.0, w)
    encoding = statistics_of(X, y, w, [5, 30]).encoding("standard", 12, np.asarray, standardize=True)
    np.testing.assert_array_equal(encoding.mean, [1e30, 0.1, 7.0])
    np.testing.assert_array_equal(encoding.scale, [1.0, 1.0, 1.0])


def test_a_third_label_is_a_third_class(table):
    X, y, w = table
    found = statistics_of(X, np.where(np.arange(600) == 550, 2, y), w, [500])
    assert found.classes().tolist() == [0, 1, 2]
    assert found.totals.weight[2] == w[550]


def test_values_too_large_to_square_are_refused(table):
    X, y, w = table
    with pytest.raises(InvalidInput, match="too large"):
        statistics_of(X * 1e200, y, w, []).encoding("standard", 12, np.asarray, standardize=True)


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


def test_another_encoding_needs_a_sample(table):
    X, y, w = table
    with pytest.raises(InvalidParameter, match="no sample of rows"):
        statistics_of(X, y, w, []).encoding("tree", 12, 1, standardize=True)
