"""The bootstrap of sums, against the variance that resampling must have."""

import numpy as np
import pytest

from crcen.exceptions import InvalidParameter
from crcen.theory.bootstrap import bootstrap_sums, percentile_interval, row_draws


@pytest.mark.parametrize("kind", ["few kinds", "all different"])
def test_sums_vary_as_resampled_rows_do(kind):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (200, 2)).astype(float) if kind == "few kinds" else rng.normal(size=(200, 2))
    sums = bootstrap_sums(rows, 20_000, np.random.default_rng(1))
    assert sums.shape == (20_000, 2)
    expected = 200 * np.cov(rows.T, bias=True)  # n rows drawn independently, each with the covariance of the rows
    np.testing.assert_allclose(np.cov(sums.T), expected, atol=0.04 * expected.max())
    np.testing.assert_allclose(sums.mean(axis=0), rows.sum(axis=0), atol=5 * np.sqrt(expected.max() / 20_000))


def test_rows_of_one_kind_are_put_together_exactly():
    rows = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    sums = bootstrap_sums(rows, 500, np.random.default_rng(2))
    first_only, second_only, both = 5 - sums[:, 1], 5 - sums[:, 0], sums.sum(axis=1) - 5
    assert (np.stack([first_only, second_only, both]) >= 0).all()
    np.testing.assert_array_equal(first_only + second_only + both, 5)


def test_many_columns_do_not_run_out_of_numbers():
    rows = np.random.default_rng(3).normal(size=(50, 40))
    sums = bootstrap_sums(np.vstack([rows, rows]), 2000, np.random.default_rng(4))
    np.testing.assert_allclose(sums.mean(axis=0), 2 * rows.sum(axis=0), atol=5 * 10 / np.sqrt(2000) * 1.5)


@pytest.mark.parametrize("counts", [np.ones(7, dtype=np.int64), np.array([3, 1, 2])])
def test_every_draw_has_as_many_rows(counts):
    drawn = np.concatenate(list(row_draws(counts, 1000, np.random.default_rng(5))))
    assert drawn.shape == (1000, len(counts))
    assert (drawn.sum(axis=1) == counts.sum()).all()
    np.testing.assert_allclose(drawn.mean(axis=0), counts, atol=0.2)


@pytest.mark.parametrize("n", [0, -1, 2.5, True, "many"])
def test_a_number_of_resamples_that_is_none_is_refused(n):
    with pytest.raises(InvalidParameter, match="n_resamples must be a whole number"):
        bootstrap_sums(np.ones((3, 1)), n, np.random.default_rng(0))


def test_interval_cuts_equal_tails_and_keeps_infinities():
    values = np.arange(1.0, 1001.0)
    assert percentile_interval(values, 0.9) == (50.0, 950.0)
    values[900:] = np.inf
    assert percentile_interval(values, 0.9) == (50.0, np.inf)
    values[:20] = np.nan
    assert np.isfinite(percentile_interval(values, 0.9)[0])
    values[:200] = np.nan  # more than a tail is unknown
    assert np.isnan(percentile_interval(values, 0.9)).all()


@pytest.mark.parametrize("level", [0.0, 1.0, 95, float("nan")])
def test_a_level_that_is_no_share_is_refused(level):
    with pytest.raises(InvalidParameter, match="level must lie strictly between 0 and 1"):
        percentile_interval(np.ones(3), level)
