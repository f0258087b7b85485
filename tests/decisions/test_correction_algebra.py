"""correct_proba: exact algebra on the odds, against closed forms and Bayes' rule."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from three_classes import SHARES, WEIGHTS, P

from crcen import Alpha, Budget, CostRatio, InvalidInput, InvalidParameter, Lam, correct_proba, posterior, resolve
from crcen.theory.price import Price

BETWEEN = st.floats(1e-6, 1 - 1e-6)


@given(BETWEEN, BETWEEN, BETWEEN)
def test_a_resampled_prior_is_undone_by_bayes_rule(p, natural, sampled):
    """Forward by Bayes' rule with exact fractions, back by the function."""
    exact, pi, new = Fraction(p), Fraction(natural), Fraction(sampled)
    pos, neg = exact * new / pi, (1 - exact) * (1 - new) / (1 - pi)
    q = float(pos / (pos + neg))
    if 1e-12 < q < 1 - 1e-6:  # beyond, q itself no longer holds p
        assert correct_proba([q], sampled_prior=sampled, natural_prior=natural)[0] == pytest.approx(p, rel=1e-8)


@given(BETWEEN, st.floats(1e-3, 1e3))
def test_a_weight_is_undone_as_posterior_does(q, cost):
    assert correct_proba([q], weighting=CostRatio(cost))[0] == pytest.approx(posterior(q, CostRatio(cost)), rel=1e-9)


def test_under_sampling_is_the_published_formula():
    """Dal Pozzolo et al. 2015: p = β q / (β q − q + 1) where a share β of the negatives is kept."""
    q, beta, natural = np.linspace(0, 1, 11), 0.05, 0.02
    sampled = natural / (natural + beta * (1 - natural))
    expected = beta * q / (beta * q - q + 1)
    np.testing.assert_allclose(correct_proba(q, sampled_prior=sampled, natural_prior=natural), expected, rtol=1e-12)


def test_two_columns_are_both_corrected_and_keep_small_numbers():
    q = np.array([[1.0, 0.0], [0.0, 1.0], [1e-300, 1.0], [1.0, 1e-300], [0.25, 0.75]])
    p = correct_proba(q, weighting=CostRatio(3))
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-15)
    np.testing.assert_allclose(p[:, 0], [1.0, 0.0, 3e-300, 1.0, 0.5], rtol=1e-12)
    np.testing.assert_allclose(p[:, 1], [0.0, 1.0, 1.0, 1e-300 / 3, 0.5], rtol=1e-12)
    assert correct_proba(q[:, 1], weighting=CostRatio(3)).shape == (5,)


def test_float32_comes_back_as_float64():
    p = correct_proba(np.float32([[0.3, 0.7]]), weighting=CostRatio(7 / 3))
    assert p.dtype == np.float64
    np.testing.assert_allclose(p, [[0.5, 0.5]], atol=1e-7)


@pytest.mark.parametrize("weighting", [Alpha(2), "balanced"])
def test_an_alpha_needs_the_share_of_positives(weighting):
    with pytest.raises(InvalidParameter, match="class counts are needed"):
        correct_proba([0.5], weighting=weighting)
    alpha = 2.0 if weighting == Alpha(2) else 1.0
    expected = posterior(0.5, CostRatio(alpha * 99))
    assert correct_proba([0.5], weighting=weighting, natural_prior=0.01)[0] == pytest.approx(expected)
    assert correct_proba([0.5], weighting=resolve(weighting, 1, 99))[0] == pytest.approx(expected)


def test_weights_on_resampled_rows_multiply():
    p, sampled, natural, cost = 0.03, 0.2, 0.01, 6.0
    logit = math.log(p / (1 - p)) + math.log(cost) + math.log(0.2 / 0.8) - math.log(0.01 / 0.99)
    q = [1 / (1 + math.exp(-logit))]
    both = {"sampled_prior": sampled, "natural_prior": natural}
    assert correct_proba(q, weighting=CostRatio(cost), **both)[0] == pytest.approx(p)
    # "balanced" is resolved on the rows that were trained on, the resampled ones
    balanced = correct_proba(q, weighting="balanced", **both)[0]
    assert balanced == pytest.approx(correct_proba(q, weighting=CostRatio(4), **both)[0])


@pytest.mark.parametrize("same", [CostRatio(5), Budget(5), Lam(5 / 6), 5 / 6, {0: 1, 1: 5}, [1, 5]])
def test_one_number_under_every_name(same):
    assert correct_proba([0.4], weighting=same)[0] == pytest.approx(0.4 / (0.4 + 5 * 0.6))


@pytest.mark.parametrize(
    ("q", "error"),
    [([0.2, np.nan], "NaN"), ([0.2, 1.2], "lie in"), ([[0.2, 0.2]], "sum to 1"), (0.5, "shape"), (["a"], "q")],
)
def test_what_is_no_probability_is_refused(q, error):
    with pytest.raises(InvalidInput, match=error):
        correct_proba(q, weighting=CostRatio(2))


def test_a_price_of_two_classes_says_nothing_about_three():
    with pytest.raises(InvalidParameter, match="a price for two classes, and there are 3"):
        correct_proba([[0.2, 0.3, 0.5]], weighting=CostRatio(2))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, "nothing to correct"),
        ({"natural_prior": 0.1}, "nothing to correct"),
        ({"sampled_prior": 0.5}, "needs natural_prior"),
        ({"sampled_prior": 1.0, "natural_prior": 0.1}, "strictly between"),
        ({"sampled_prior": 0.5, "natural_prior": 0}, "above 0"),
        ({"sampled_prior": 0.5, "natural_prior": float("nan")}, "finite"),
        ({"weighting": 5}, "strictly between 0 and 1"),
    ],
)
def test_what_cannot_be_meant_is_refused(arguments, error):
    with pytest.raises(InvalidParameter, match=error):
        correct_proba([0.5], **arguments)


def test_weights_and_samples_of_three_classes_are_divided_out():
    p, natural = P, SHARES
    weighted = p * WEIGHTS / (p * WEIGHTS).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(weighted, weighting=WEIGHTS), p, rtol=1e-12)
    equal = p / natural / (p / natural).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(correct_proba(equal, sampled_prior=np.ones(3) / 3, natural_prior=natural), p, rtol=1e-9)
    np.testing.assert_allclose(correct_proba(equal, weighting="balanced", natural_prior=natural), p, rtol=1e-9)
    with pytest.raises(InvalidParameter, match="natural_prior"):
        correct_proba(equal, weighting="balanced")
    with pytest.raises(InvalidInput, match="column for each of 2"):
        correct_proba(p, weighting=Price(np.ones(2), np.ones(2)))
