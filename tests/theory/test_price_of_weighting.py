"""What weighting costs a right model: the sandwich of docs/theory.md against fits."""

import numpy as np
import pytest

from crcen.theory.decision import sigmoid

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
