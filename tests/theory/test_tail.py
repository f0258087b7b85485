"""Residual tests: saddlepoint tails against exact distributions and draws, strata, clusters, scale of weights."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from crcen.theory import residual_test as tail


def columns(p):
    return np.column_stack([1 - p, p])


def draws(rng, p, n):
    """Class numbers (n, rows)."""
    return (rng.random((n, len(p)))[:, :, None] > np.cumsum(p, axis=1)).sum(axis=2)


def three_classes(rng, n, gap):
    logits = rng.normal(0, 1, (n, 3)) + gap
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("count", [0, 1, 3, 6, 10, 15, 20])
def test_tail_of_a_count_matches_the_binomial(count):
    p = columns(np.full(2000, 0.003))
    upper = tail.upper_tail(tail.residual_values(p, np.ones(2), 1), p, count - 6.0)
    exact = binom.sf(count, 2000, 0.003) + 0.5 * binom.pmf(count, 2000, 0.003)
    assert upper == pytest.approx(exact, rel=0.12, abs=0.002)


def test_tail_at_the_end_of_the_range_is_exact():
    p = columns(np.full(50, 0.02))
    values = tail.residual_values(p, np.array([1.0, 4.0]), 1)
    assert tail.tail_p_value(values, p, values[:, 0].sum()) == pytest.approx(min(1.0, 2 * 0.98**50))
    assert tail.tail_p_value(values, p, values[:, 1].sum()) == pytest.approx(2 * 0.02**50)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_tail_matches_simulated_sums(n_classes):
    rng = np.random.default_rng(n_classes)
    p = columns(1 / (1 + np.exp(-rng.normal(-3, 1, 400)))) if n_classes == 2 else three_classes(rng, 400, [0, -2, -3])
    values = tail.residual_values(p, np.array([1.0, 5.0, 9.0])[:n_classes], n_classes - 1, rng.uniform(0.5, 2, 400))
    y = draws(rng, p, 10_000)
    sums = values[np.arange(400), y].sum(axis=1)
    for z in (-1.5, 0.0, 0.7, 2.0):
        at = z * sums.std()
        assert tail.upper_tail(values, p, at) == pytest.approx((sums >= at).mean(), abs=0.02)


def test_tail_is_continuous_where_the_sum_is_zero():
    rng = np.random.default_rng(0)
    p = columns(rng.uniform(0.001, 0.1, 500))
    values = tail.residual_values(p, np.array([1.0, 10.0]), 1)
    unit = math.sqrt(tail.variance_of(values, p))
    tails = [tail.upper_tail(values, p, z * unit) for z in (-2e-3, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 2e-3)]
    assert np.abs(np.diff(tails)).max() < 1e-3
    third = (p * values**3).sum() / unit**3
    assert tails[3] == pytest.approx(0.5 - third / (6 * math.sqrt(2 * math.pi)), abs=1e-3)


def test_two_clouds_with_cancelling_skewness_are_not_rejected():
    rng = np.random.default_rng(0)
    p = columns(1 / (1 + np.exp(-np.r_[rng.normal(-11.5, 1, 1900), rng.normal(8.6, 1, 100)])))
    values, likely = tail.residual_values(p, np.ones(2), 1), np.r_[np.zeros(1900, int), np.ones(100, int)]
    likely[0] = 1  # one surprise, which happens in 3 % of samples
    assert 0.01 < tail.residual_test(values, p, likely).p_value < 0.2


@pytest.mark.parametrize("factor", [1e-6, 7.3, 1e9])
@pytest.mark.parametrize("options", [{}, {"is_stratified": True}, {"clusters": np.arange(300) // 4}])
def test_unit_of_weights_does_not_matter(factor, options):
    rng = np.random.default_rng(1)
    p, w = columns(rng.uniform(0.01, 0.4, 300)), rng.pareto(1.5, 300) + 1
    y = (rng.random(300) < p[:, 1]).astype(int)
    one, other = (
        tail.residual_test(tail.residual_values(p, k * np.array([1.0, 6.0]), 1, k * w), p, y, **options)
        for k in (1.0, factor)
    )
    assert other.p_value == pytest.approx(one.p_value, rel=1e-9)
    assert other.z == pytest.approx(one.z, rel=1e-9)


def test_model_uncertainty_widens_the_test():
    rng = np.random.default_rng(2)
    p = columns(rng.uniform(0.01, 0.2, 2000))
    values = tail.residual_values(p, np.array([1.0, 5.0]), 1)
    y = (rng.random(2000) < 1.5 * p[:, 1]).astype(int)
    slope = float(p[:, 1] @ values[:, 1])
    plain = tail.residual_test(values, p, y)
    known = tail.residual_test(values, p, y, uncertainty=[((0.2 * slope) ** 2, math.inf)])
    estimated = tail.residual_test(values, p, y, uncertainty=[((0.2 * slope) ** 2, 5.0), (0.0, math.inf)])
    assert plain.p_value < known.p_value < estimated.p_value
    assert known.variance == pytest.approx(plain.variance + (0.2 * slope) ** 2)
    large = tail.residual_test(values, p, y, uncertainty=[((50 * slope) ** 2, math.inf)])
    assert large.p_value == pytest.approx(math.erfc(abs(large.z) / math.sqrt(2)), rel=1e-3)


@pytest.mark.parametrize("c", [1.0, 5.0, 30.0])
def test_stratified_factor_is_the_variance_within_classes(c):
    rng = np.random.default_rng(3)
    p = columns(1 / (1 + np.exp(-rng.normal(-2, 1.5, 200_000))))
    values = tail.residual_values(p, np.array([1.0, c]), 1)
    y = (rng.random(len(p)) < p[:, 1]).astype(int)
    x = values[np.arange(len(y)), y]
    within = sum((y == k).mean() * x[y == k].var() for k in (0, 1))
    assert tail.stratified_factor(values, p) == pytest.approx(within / x.var(), rel=0.03)
    if c == 1.0:  # Tjur's coefficient of discrimination
        assert tail.stratified_factor(values, p) == pytest.approx(p[y == 1, 1].mean() - p[y == 0, 1].mean(), abs=0.01)


def test_cluster_variance_is_that_of_cluster_sums():
    rng = np.random.default_rng(4)
    p = columns(np.full(600, 0.3))
    clusters = np.repeat([f"patient {i}" for i in range(60)], 10)
    y = np.repeat((rng.random(60) < 0.3).astype(int), 10)
    values = tail.residual_values(p, np.ones(2), 1)
    test = tail.residual_test(values, p, y, clusters=clusters)
    sums = values[np.arange(600), y].reshape(60, 10).sum(axis=1)
    assert test.variance == pytest.approx((sums**2).sum())
    alone = tail.residual_test(values, p, y)
    assert abs(test.z) < abs(alone.z)
    y = (rng.random(600) < 0.3).astype(int)
    alone, single = tail.residual_test(values, p, y), tail.residual_test(values, p, y, clusters=np.arange(600))
    assert alone.p_value <= single.p_value <= 1.1 * alone.p_value + 0.02


def test_values_have_mean_zero_under_the_model():
    p, w = three_classes(np.random.default_rng(5), 50, [0, -1, -2]), np.array([1.0, 3.0, 10.0])
    for k in range(3):
        np.testing.assert_allclose((p * tail.residual_values(p, w, k)).sum(axis=1), 0.0, atol=1e-14)


def test_holm_adjusts_as_by_hand():
    np.testing.assert_allclose(tail.holm([0.01, 0.04, 0.03, np.nan]), [0.03, 0.06, 0.06, np.nan])
    assert tail.holm([]).shape == (0,)
