"""Intervals of shares, areas and costs: coverage, other implementations, weights, clusters."""

import numpy as np
import pytest
from scipy.stats import binomtest, norm

from crcen.theory import intervals
from crcen.theory.rows import effective_rows

COSTS = {2: np.array([[0, 1.0], [20, 0]]), 3: np.array([[0, 1.0, 2, 0.4], [2, 0, 1, 0.4], [20, 10, 0, 0.4]])}


@pytest.mark.parametrize(("count", "size"), [(0, 5), (5, 5), (3, 17), (120, 400)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_share_limits_match_scipy(count, size, level):
    result = binomtest(count, size)
    for ours, method in (
        (intervals.wilson(count / size, size, level), "wilson"),
        (intervals.clopper_pearson(count, size, level), "exact"),
    ):
        np.testing.assert_allclose(ours, result.proportion_ci(level, method), atol=1e-12)
    assert intervals.share_p_value(count, size, 0.3) == pytest.approx(binomtest(count, size, 0.3, "greater").pvalue)
    none = intervals.share_interval(np.zeros(0, bool)), intervals.share_interval(np.ones(3, bool), np.zeros(3))
    assert np.isnan([*none[0], *none[1], *intervals.wilson(np.nan, 0)]).all()


def test_weights_count_by_effective_rows():
    rng = np.random.default_rng(0)
    hit, w = rng.random(200) < 0.7, rng.pareto(1.5, 200) + 1
    one, scaled = intervals.share_interval(hit, w), intervals.share_interval(hit, 3e7 * w)
    np.testing.assert_allclose(one, scaled, rtol=1e-12)
    assert effective_rows(w) == pytest.approx(w.sum() ** 2 / (w**2).sum())
    np.testing.assert_allclose(one[1:], intervals.wilson(one.value, effective_rows(w)))
    np.testing.assert_allclose(intervals.share_interval(hit, np.full(200, 4.0)), intervals.share_interval(hit))


def test_clusters_of_equal_rows_count_once():
    rng = np.random.default_rng(1)
    hit = rng.random(40) < 0.6
    repeated, clusters = np.repeat(hit, 5), np.repeat(np.arange(40), 5)
    once, found = intervals.share_interval(hit), intervals.share_interval(repeated, None, clusters)
    assert found.value == once.value
    assert found.high - found.low == pytest.approx(once.high - once.low, rel=0.06)
    assert intervals.design_effect(rng.random(200), np.ones(200), np.arange(200)) == pytest.approx(1.0, abs=0.05)
    assert intervals.design_effect(np.ones(200), np.ones(200), clusters) == pytest.approx(5.0)


@pytest.mark.parametrize("n_pos", [4, 60])
def test_area_matches_pairs_and_covers(n_pos):
    rng = np.random.default_rng(2)
    target, covered = np.r_[np.ones(n_pos, bool), np.zeros(150, bool)], []
    truth = norm.cdf(2.2 / np.sqrt(2))
    for _ in range(150):
        scores = rng.normal(0, 1, len(target)) + 2.2 * target
        found = intervals.auc_interval(target, scores)
        covered.append(found.low <= truth <= found.high)
    above = scores[target][:, None] - scores[~target]
    assert found.value == pytest.approx((above > 0).mean() + 0.5 * (above == 0).mean())
    assert np.mean(covered) >= 0.93


def test_area_counts_weights_ties_and_clusters():
    rng = np.random.default_rng(3)
    target, scores = rng.random(300) < 0.2, np.round(rng.normal(0, 1, 300), 1)
    scores[target] += 1
    copies = rng.integers(1, 4, 300)
    weighted = intervals.auc_interval(target, scores, copies.astype(float))
    repeated = intervals.auc_interval(np.repeat(target, copies), np.repeat(scores, copies))
    assert weighted.value == pytest.approx(repeated.value)
    plain = intervals.auc_interval(target, scores)
    once = intervals.auc_interval(np.tile(target, 4), np.tile(scores, 4), None, np.tile(np.arange(300), 4))
    assert once.high - once.low == pytest.approx(plain.high - plain.low, rel=0.05)
    perfect = intervals.auc_interval(np.arange(50) > 40, np.arange(50.0))
    assert perfect.value == perfect.high == 1.0
    assert 0.5 < perfect.low < 1.0
    assert np.isnan(intervals.auc_interval(np.ones(3, bool), np.arange(3.0))).all()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_pos", [3, 56])
def test_cost_interval_covers(n_classes, n_pos):
    rng, costs = np.random.default_rng(n_pos), COSTS[n_classes]
    rare = n_pos / 1000
    shares = np.array([1 - rare, rare]) if n_classes == 2 else np.array([0.95 - rare, 0.05, rare])
    chance = np.array([[0.97, 0.03], [0.3, 0.7]])
    if n_classes == 3:
        chance = np.array([[0.95, 0.02, 0.01, 0.02], [0.2, 0.6, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1]])
    cells = (shares[:, None] * chance).ravel()
    truth, covered = float(cells @ costs.ravel()), []
    for counts in rng.multinomial(1000, cells, 300):
        y, actions = np.divmod(np.repeat(np.arange(len(cells)), counts), costs.shape[1])
        found = intervals.cost_interval(y, actions, costs)
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.93
    assert found.value == pytest.approx(costs[y, actions].mean())
    moved = intervals.cost_interval(y, actions, costs + 5.0)
    np.testing.assert_allclose(np.subtract(moved, 5.0), found, atol=1e-9)
    half = intervals.cost_interval(y, actions, costs, np.full(1000, 0.01))
    np.testing.assert_allclose(half, found, rtol=1e-9)


def test_cost_p_value_inverts_the_upper_limit_and_expected_counts_have_their_interval():
    y, actions = np.repeat([0, 0, 1, 1], [900, 30, 12, 58]), np.repeat([0, 1, 0, 1], [900, 30, 12, 58])
    high = intervals.cost_interval(y, actions, COSTS[2], level=0.9).high
    assert intervals.cost_p_value(y, actions, COSTS[2], high) == pytest.approx(0.05, rel=1e-3)
    assert intervals.cost_p_value(y, actions, COSTS[2], 0.01) == 1.0
    assert intervals.cost_p_value(y, actions, COSTS[2], 15.0) < 1e-10
    p, actions = np.tile([[0.9, 0.1], [0.3, 0.7]], (500, 1)), np.tile([0, 1], 500)
    y = np.r_[np.repeat([0, 1], [450, 50]), np.repeat([0, 1], [150, 350])]
    observed = intervals.cost_interval(y, np.repeat([0, 1], 500), COSTS[2])
    np.testing.assert_allclose(intervals.expected_cost_interval(p, actions, COSTS[2], 1000), observed)
