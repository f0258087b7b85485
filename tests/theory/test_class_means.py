"""The paper's analysis of the class means, Cantelli's bounds, and what weighting costs a right model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.decision import sigmoid
from crcen.theory.key_equation import (
    class_means,
    copies_per_positive,
    mean_bounds,
    mean_pos_given,
    means_by_law,
    recall_bound,
    specificity_bound,
)
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, resolve

PLAIN = resolve(None, 1000, 10000)
alphas = st.floats(0.01, 100.0)


def test_plain_cross_entropy_at_ratio_ten():
    assert mean_bounds(PLAIN).max_mean_neg == pytest.approx(0.1)
    assert mean_bounds(PLAIN).min_mean_pos == 0.0
    np.testing.assert_allclose(mean_pos_given([0.08, 0.04], PLAIN), [0.2, 0.6])


@pytest.mark.parametrize("weighting", [Alpha(2), resolve(Alpha(2), 1000, 10000), resolve(Lam(20 / 21), 1000, 10000)])
def test_alpha_one_and_two(weighting):
    for mean_neg in (0.0, 0.1, 0.45, 1.0):
        assert mean_pos_given(mean_neg, "balanced") == pytest.approx(1 - mean_neg)
    assert mean_bounds("balanced") == mean_bounds(Alpha(1)) == (0.0, 1.0)
    assert mean_bounds(weighting).min_mean_pos == pytest.approx(0.5)
    assert mean_bounds(weighting).max_mean_neg == 1.0
    assert mean_pos_given(0.4, weighting) == pytest.approx(0.8)


@given(st.floats(0, 1), alphas)
def test_the_law_solves_the_key_equation(discrimination, alpha):
    mean_pos, mean_neg = class_means(discrimination, Alpha(alpha))
    assert mean_pos - mean_neg == pytest.approx(discrimination, abs=1e-12)
    assert 1 - mean_pos == pytest.approx(mean_neg / alpha, abs=1e-12)
    r = 1 / alpha
    assert mean_pos == pytest.approx((1 + r * discrimination) / (1 + r), rel=1e-12)
    assert mean_neg == pytest.approx((1 - discrimination) / (1 + r), rel=1e-12, abs=1e-15)
    bounds = mean_bounds(Alpha(alpha))
    assert mean_pos >= bounds.min_mean_pos - 1e-12
    assert mean_neg <= bounds.max_mean_neg + 1e-12


@given(st.floats(0, 1), alphas)
def test_given_one_mean_find_the_other(share, alpha):
    mean_neg = share * mean_bounds(Alpha(alpha)).max_mean_neg
    mean_pos = mean_pos_given(mean_neg, Alpha(alpha))
    assert means_by_law(mean_pos - mean_neg, alpha) == pytest.approx((mean_pos, mean_neg), abs=1e-12)
    bounds = mean_bounds(Alpha(alpha))  # they are attained
    assert mean_pos_given(bounds.max_mean_neg, Alpha(alpha)) == pytest.approx(bounds.min_mean_pos, abs=1e-12)


def test_a_constant_output_has_no_discrimination():
    """At D = 0 the law gives the weighted share of the positives, what an intercept alone would fit."""
    made = resolve(CostRatio(3), 20, 100)
    share = 3 * 20 / (3 * 20 + 100)
    assert class_means(0.0, made) == pytest.approx((share, share))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: mean_pos_given(0.2, PLAIN), r"mean_pos at α = 0\.1 must lie in \[0, 1\], .* gives -1"),
        (lambda: mean_pos_given(0.2, Alpha(1e-308)), "mean_pos at α"),
        (lambda: mean_pos_given([0.1, 0.3], PLAIN), "gives -2"),
        (lambda: mean_pos_given(1.2, Alpha(2)), r"mean_neg must lie in \[0, 1\]"),
        (lambda: class_means(1.5, Alpha(2)), r"in \[-1, 1\], got 1\.5"),
        (lambda: class_means(float("nan"), Alpha(2)), "got nan"),
        (lambda: class_means(-0.5, Alpha(0.1)), r"mean_pos at discrimination -0\.5 and α = 0\.1"),
        (lambda: class_means(-0.9, Alpha(10)), r"mean_neg at discrimination -0\.9 and α = 10"),
        (lambda: recall_bound(1.2, 0.1), "mean_pos must lie"),
        (lambda: recall_bound(0.7, -0.1), "var_pos must be finite and not negative, got -0.1"),
        (lambda: recall_bound(0.7, 0.1, threshold=2), "threshold must lie"),
        (lambda: specificity_bound(0.2, [0.1, float("nan")]), "var_neg must be finite and not negative, got nan"),
        (lambda: specificity_bound(-0.2, 0.1), "mean_neg must lie"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_cantelli_by_hand():
    assert recall_bound(0.8, 0.03) == pytest.approx(1 - 0.03 / (0.03 + 0.09))
    assert specificity_bound(0.1, 0.04) == pytest.approx(1 - 0.04 / (0.04 + 0.16))
    assert recall_bound(0.8, 0.03, threshold=0.6) == pytest.approx(0.04 / 0.07)
    assert recall_bound(0.8, 0.0) == 1.0
    assert recall_bound(0.5, 0.0) == recall_bound(0.4, 0.0) == recall_bound(0.4, 0.1) == 0.0
    assert specificity_bound(0.5, 0.0) == specificity_bound(0.6, 0.1) == 0.0
    np.testing.assert_allclose(recall_bound([0.8, 0.3], [0.03, 0.03]), [0.75, 0.0])
    np.testing.assert_allclose(specificity_bound([0.2, 0.7], 0.03), [0.75, 0.0])


@given(st.floats(0.01, 0.98), st.floats(0.01, 0.98))
def test_cantelli_is_sharp_for_two_points(threshold, share):
    """A two-point law with its lower point at the threshold attains the bound."""
    low, high = threshold, 1.0
    mean = share * high + (1 - share) * low
    variance = share * (1 - share) * (high - low) ** 2
    assert recall_bound(mean, variance, threshold) == pytest.approx(share, abs=1e-9)
    # The mirror image of the same law about ½.
    assert specificity_bound(1 - mean, variance, 1 - threshold) == pytest.approx(share, abs=1e-9)


def test_copies_of_a_minority_row():
    assert [copies_per_positive(w) for w in (None, Lam(0.75), CostRatio(5), Budget(6))] == pytest.approx([1, 3, 5, 6])
    assert copies_per_positive(resolve("balanced", 100, 1000)) == pytest.approx(10)
    with pytest.raises(InvalidParameter, match="class counts are needed"):
        copies_per_positive("balanced")


BETA = np.array([-3.0, 1.4, -1.0])


def rows(rng, n):
    X = np.column_stack([np.ones(n), rng.standard_normal((n, 2))])
    return X, (rng.random(n) < sigmoid(X @ BETA)).astype(float)


def fit(X, y, cost):
    """Weighted logistic regression, its weight taken out of the intercept again."""
    weight, beta = np.where(y == 1, cost, 1.0), BETA + np.array([np.log(cost), 0.0, 0.0])
    for _ in range(30):
        q = sigmoid(X @ beta)
        beta = beta + np.linalg.solve((X * (weight * q * (1 - q))[:, None]).T @ X, X.T @ (weight * (y - q)))
    return beta - np.array([np.log(cost), 0.0, 0.0])


def covariance(X, cost):
    """n times the covariance of the coefficients: H⁻¹ J H⁻¹ with the weights h = c / (c·p + 1 − p)."""
    p = sigmoid(X @ BETA)
    h = cost / (cost * p + 1 - p)
    bread = (X * (h * p * (1 - p))[:, None]).T @ X / len(X)
    meat = (X * (h**2 * p * (1 - p))[:, None]).T @ X / len(X)
    return np.linalg.solve(bread, np.linalg.solve(bread, meat).T)


@pytest.mark.parametrize("cost", [3.0, 10.0, 40.0])
def test_weighting_is_never_more_precise_and_costs_more_the_larger_the_weight(cost):
    X, _ = rows(np.random.default_rng(0), 50_000)
    plain, weighted = covariance(X, 1.0), covariance(X, cost)
    assert np.linalg.eigvalsh(weighted - plain).min() > -1e-9 * np.trace(plain)  # Gauss and Markov
    assert np.trace(covariance(X, np.sqrt(cost))) < np.trace(weighted)


def test_fits_vary_as_the_sandwich_says():
    rng = np.random.default_rng(1)
    n, cost = 2000, 10.0
    fitted = np.array([[fit(X, y, c) for c in (1.0, cost)] for X, y in (rows(rng, n) for _ in range(500))])
    X, _ = rows(rng, 200_000)
    at_price = X[np.abs(X @ BETA + np.log(cost)) < 0.1][:2000]  # rows at the threshold p = 1 / (1 + c)
    spread = [float(np.mean(np.var(fitted[:, way] @ at_price.T, axis=0))) for way in (0, 1)]
    theory = [float(np.mean(np.einsum("ij,jk,ik->i", at_price, covariance(X, c), at_price))) / n for c in (1.0, cost)]
    assert theory[1] > 1.05 * theory[0]
    np.testing.assert_allclose(spread, theory, rtol=0.2)
    assert spread[1] / spread[0] == pytest.approx(theory[1] / theory[0], rel=0.1)
