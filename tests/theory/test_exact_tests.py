"""Exact tests of counts: groups, guaranteed precision, one row per cluster, class shares without labels."""

import numpy as np
import pytest
from scipy.stats import chi2_contingency, fisher_exact, hypergeom

from crcen.theory.goals import fewest_rows, one_per_cluster, precision_cut
from crcen.theory.groups import shares_p_value
from crcen.theory.intervals import estimate_shares, shifted_probabilities


def test_two_groups_are_compared_by_the_hypergeometric_tail():
    hits, sizes = np.array([30, 10]), np.array([40, 40])
    exact = shares_p_value([(hits, sizes)], 0.01)
    assert exact == pytest.approx(fisher_exact([[30, 10], [10, 30]]).pvalue)
    apart = shares_p_value([(np.array([0, 40]), np.array([40, 40]))], 1e-5)
    assert apart == pytest.approx(2 * hypergeom.pmf(0, 80, 40, 40))


def test_p_values_go_below_any_level():
    hits, sizes = np.array([40, 5, 20, 22]), np.array([45, 45, 45, 45])
    level = 0.01 / (3 * 60)
    assert shares_p_value([(hits, sizes)], level) < level
    even = np.array([20, 21, 22, 23])
    drawn = shares_p_value([(even, sizes)], level)
    assert drawn == pytest.approx(chi2_contingency([even, sizes - even]).pvalue, abs=0.15)
    assert np.isnan(shares_p_value([(np.array([0, 0]), np.array([5, 5]))], 0.01))
    together = shares_p_value([(hits, sizes), (even, sizes)], level)
    assert together < 0.01


def test_equal_groups_are_rejected_at_the_level():
    rng = np.random.default_rng(0)
    p_values = np.array([shares_p_value([(rng.binomial(30, 0.4, 3), np.full(3, 30))], 0.05, i) for i in range(200)])
    assert (p_values < 0.05).mean() <= 0.1


def test_precision_needs_enough_alarms():
    assert fewest_rows(0.5, 0.95) == 5
    scores = np.arange(100, 0, -1.0)
    assert precision_cut(np.arange(100) < 4, scores, 0.5, 0.95) == 0
    assert precision_cut(np.arange(100) < 10, scores, 0.5, 0.95) >= 10
    assert precision_cut(np.arange(100) < 50, np.zeros(100), 0.5, 0.95) == 0
    assert precision_cut(np.arange(100) < 70, np.zeros(100), 0.5, 0.95) == 100


def test_one_row_of_each_cluster_is_chosen_at_random():
    clusters = np.repeat(["a", "b", "c"], [1, 50, 3])
    chosen = one_per_cluster(clusters)
    assert list(clusters[chosen]) == ["a", "b", "c"]
    places = {int(np.flatnonzero(one_per_cluster(clusters, seed))[1]) for seed in range(30)}
    assert len(places) > 10


@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_shares_are_estimated_without_labels(n_classes):
    rng = np.random.default_rng(n_classes)
    trained = np.array([0.9, 0.1]) if n_classes == 2 else np.array([0.7, 0.2, 0.1])
    new = np.array([0.7, 0.3]) if n_classes == 2 else np.array([0.4, 0.3, 0.3])
    centres, covered = 2.0 * np.eye(n_classes), []
    for _ in range(15 if n_classes == 3 else 40):
        x = rng.normal(centres[rng.choice(n_classes, 800, p=new)], 1.0)
        like = np.exp(-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2))
        p = like * trained / (like * trained).sum(axis=1, keepdims=True)
        found = estimate_shares(p, trained)
        covered.append([one.low <= truth <= one.high for one, truth in zip(found, new, strict=True)])
    assert np.mean(covered) >= 0.88
    moved = like * new
    np.testing.assert_allclose(shifted_probabilities(p, trained, new), moved / moved.sum(axis=1, keepdims=True))
    wide = estimate_shares(p, trained, uncertainty=np.full(n_classes, 0.3))
    assert all(a.low < b.low and a.high > b.high for a, b in zip(wide, found, strict=True))
