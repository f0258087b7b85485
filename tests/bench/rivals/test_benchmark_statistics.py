"""Ranks, Friedman, Nemenyi, the corrected t-test and Bayesian signed ranks against hand-made and independent truth."""

import itertools

import numpy as np
import pytest
from scipy import stats

import crcen
from bench.rivals.diagram import Ranking, cliques, draw_ranks
from bench.rivals.statistics import (
    bayesian_signed_ranks,
    corrected_t_test,
    critical_difference,
    friedman,
    mean_ranks,
    set_ranks,
)


def test_ranks_by_hand():
    scores = [[0.9, 0.8, 0.8, 0.1], [0.5, np.nan, 0.7, np.nan]]
    assert set_ranks(scores).tolist() == [[1, 2.5, 2.5, 4], [2, 3.5, 1, 3.5]]
    assert mean_ranks(scores).tolist() == [1.5, 3.0, 1.75, 3.75]


def test_ranks_sum_to_what_they_must():
    scores = np.random.default_rng(0).integers(0, 4, (30, 7)).astype(float)
    assert set_ranks(scores).sum(axis=1) == pytest.approx(7 * 8 / 2)


def test_friedman_is_scipys_on_the_scores():
    scores = np.random.default_rng(1).normal(size=(12, 5)) + np.linspace(0, 1, 5)
    assert friedman(scores) == pytest.approx(stats.friedmanchisquare(*scores.T).pvalue)
    assert friedman(np.ones((4, 3))) == 1.0
    assert np.isnan(friedman(np.ones((4, 2))))


@pytest.mark.parametrize(("n_methods", "q"), [(2, 1.960), (5, 2.728), (10, 3.164)])
def test_critical_difference_has_the_published_quantiles(n_methods, q):
    """Table 5a of Demšar (2006)."""
    n_sets = 14
    expected = q * np.sqrt(n_methods * (n_methods + 1) / (6 * n_sets))
    assert critical_difference(n_methods, n_sets) == pytest.approx(expected, rel=1e-3)


def test_corrected_t_by_hand():
    left, right = [0.80, 0.84, 0.82, 0.86], [0.78, 0.80, 0.81, 0.80]
    d = np.subtract(left, right)
    t = d.mean() / np.sqrt(d.var(ddof=1) * (1 / 4 + 1 / 3))
    assert corrected_t_test(left, right, 0.25) == pytest.approx((t, 2 * stats.t.sf(t, 3)))
    assert corrected_t_test(right, left, 0.25)[0] == pytest.approx(-t)


def test_corrected_t_tends_to_the_plain_one_without_overlap():
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=10), rng.normal(size=10)
    plain = stats.ttest_rel(left, right)
    assert corrected_t_test(left, right, 1e-12) == pytest.approx((plain.statistic, plain.pvalue))
    assert corrected_t_test(left, right, 0.25)[1] > plain.pvalue


def test_corrected_t_of_equal_and_constant_differences():
    assert corrected_t_test([0.5, 0.7], [0.5, 0.7], 0.25) == (0.0, 1.0)
    assert corrected_t_test([0.5, 0.75], [0.25, 0.5], 0.25) == (np.inf, 0.0)


def slow_signed_ranks(z, rope, samples, seed):
    """The definition, draw by draw and pair by pair."""
    z = [0.0, *z]
    wins = np.zeros(3)
    for weights in np.random.default_rng(seed).dirichlet(np.ones(len(z)), samples):
        share = np.zeros(3)
        for i, j in itertools.product(range(len(z)), repeat=2):
            side = 0 if z[i] + z[j] > 2 * rope else 2 if z[i] + z[j] < -2 * rope else 1
            share[side] += weights[i] * weights[j]
        wins[np.argmax(share)] += 1
    return wins / samples


def test_signed_ranks_are_their_definition():
    z = np.array([0.031, -0.012, 0.003, 0.043, -0.023])  # no two add up to ±2·rope
    found = bayesian_signed_ranks(z, np.zeros(5), 0.005, samples=400, seed=3)
    assert (found.left, found.rope, found.right) == pytest.approx(slow_signed_ranks(z, 0.005, 400, 3))


def test_signed_ranks_of_plain_cases():
    zeros = np.zeros(13)
    assert bayesian_signed_ranks(zeros + 0.1, zeros).left > 0.999
    assert bayesian_signed_ranks(zeros, zeros + 0.1).right > 0.999
    assert bayesian_signed_ranks(zeros + 0.004, zeros).rope == 1.0
    even = bayesian_signed_ranks([0.1, -0.1] * 6, np.zeros(12))
    assert even.left == pytest.approx(even.right, abs=0.02)


def test_signed_ranks_mirror_and_sum_to_one():
    rng = np.random.default_rng(4)
    left, right = rng.normal(0.6, 0.1, 13), rng.normal(0.58, 0.1, 13)
    one, other = bayesian_signed_ranks(left, right), bayesian_signed_ranks(right, left)
    assert (one.left, one.rope, one.right) == pytest.approx((other.right, other.rope, other.left))
    assert one.left + one.rope + one.right == pytest.approx(1.0)


def test_signed_ranks_without_a_region_agree_with_wilcoxon_in_direction():
    """A clear answer of Wilcoxon's test is a clear answer here: 1 − p (one-sided) and P(better) are close."""
    z = np.random.default_rng(5).normal(0.03, 0.03, 40)
    p = stats.wilcoxon(z, alternative="greater").pvalue
    assert p < 0.01
    assert bayesian_signed_ranks(z, np.zeros(40), 0.0).left == pytest.approx(1 - p, abs=0.02)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: set_ranks([1.0, 2.0]), "table of sets by methods"),
        (lambda: critical_difference(1, 5), "two methods"),
        (lambda: corrected_t_test([1.0], [2.0], 0.25), "at least two splits"),
        (lambda: corrected_t_test([1.0, 2.0], [2.0, 2.0], 1.0), "test_share"),
        (lambda: bayesian_signed_ranks([np.nan], [0.0]), "finite scores"),
        (lambda: bayesian_signed_ranks([], []), "at least one"),
        (lambda: bayesian_signed_ranks([1.0], [0.0], -0.1), "rope"),
    ],
)
def test_bad_input_is_named(call, sentence):
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert isinstance(caught.value, crcen.CrcenError)


def test_cliques_by_hand():
    ranks = [1.0, 1.5, 2.6, 4.0, 4.1]
    assert cliques(ranks, 1.2) == [(0, 1), (1, 2), (3, 4)]
    assert cliques(ranks, 0.05) == []
    assert cliques(ranks, 10) == [(0, 4)]


@pytest.mark.parametrize(("suffix", "start"), [("svg", b"<?xml"), ("png", b"\x89PNG")])
def test_a_diagram_is_drawn_and_the_same_each_time(suffix, start):
    rankings = [Ranking("F1", {"ours": 1.2, "forest": 2.0, "boosting": 2.8}, 1.0, ["ours"])]
    drawn = draw_ranks(rankings, suffix)
    assert drawn.startswith(start)
    assert drawn == draw_ranks(rankings, suffix)
