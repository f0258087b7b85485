"""Sums of the residual test against a loop over rows, `key_equation`, and exact expectations."""

import numpy as np
import pytest

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.decision import posterior, weighted_probability
from crcen.theory.key_equation import key_equation
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, resolve
from crcen.theory.residual_test import ResidualSums, residual_sums


def rows(n=300, seed=0):
    rng = np.random.default_rng(seed)
    q = rng.beta(1, 3, n)
    return rng.random(n) < 0.3, q, rng.uniform(0.0, 3.0, n)


@pytest.mark.parametrize("lam", [0.5, 0.9, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_a_loop(lam, weighted):
    y, q, s = rows()
    s = s if weighted else np.ones_like(s)
    missed = alarmed = slope = variance = squares = 0.0
    for yi, qi, si in zip(y, q, s, strict=True):
        odds = qi / (1 - qi) * (1 - lam) / lam
        p = odds / (1 + odds)
        missed += yi * si * lam * (1 - qi)
        alarmed += (1 - yi) * si * (1 - lam) * qi
        slope += si * (lam * (1 - qi) + (1 - lam) * qi) * p * (1 - p)  # weight of the residual times p(1−p)
        variance += si**2 * (lam**2 * p * (1 - qi) ** 2 + (1 - lam) ** 2 * (1 - p) * qi**2)
        squares += (si * (lam if yi else 1 - lam) * (yi - qi)) ** 2
    sums = residual_sums(y, q, lam, s if weighted else None)
    assert (sums.n_rows, sums.n_pos) == (300, y.sum())
    assert (sums.missed, sums.alarmed, sums.slope) == pytest.approx((missed, alarmed, slope), rel=1e-12)
    assert (sums.variance, sums.squares) == pytest.approx((variance, squares), rel=1e-12)
    w = np.where(y, lam, 1 - lam) * s
    assert sums.residual == pytest.approx(np.sum(w * (y - q)), rel=1e-12)


@pytest.mark.parametrize("weighting", [None, 0.8, CostRatio(4), Budget(0.5), resolve("balanced", 30, 270)])
def test_z_is_that_of_the_key_equation(weighting):
    y, q, s = rows(seed=1)
    assert residual_sums(y, q, weighting, s).z == pytest.approx(key_equation(y, q, weighting, s).z, rel=1e-12)


def test_pieces_add_to_the_whole():
    y, q, s = rows(seed=2)
    parts = [residual_sums(y[part], q[part], 0.7, s[part]) for part in np.array_split(np.arange(300), 7)]
    total, whole = sum(parts, ResidualSums()), residual_sums(y, q, 0.7, s)
    assert (total.n_rows, total.n_pos) == (whole.n_rows, whole.n_pos)
    assert (total.residual, total.slope, total.variance) == pytest.approx(
        (whole.residual, whole.slope, whole.variance), rel=1e-12
    )


@pytest.mark.parametrize("lam", [0.5, 0.95])
def test_under_the_model_the_mean_is_zero_and_the_variance_as_stated(lam):
    """Exact expectation over both labels of one row."""
    p = 0.13
    q = weighted_probability(p, lam)
    one, zero = residual_sums([1], [q], lam), residual_sums([0], [q], lam)
    assert p * one.residual + (1 - p) * zero.residual == pytest.approx(0.0, abs=1e-15)
    assert p * one.residual**2 + (1 - p) * zero.residual**2 == pytest.approx(one.variance, rel=1e-12)
    assert p * one.squares + (1 - p) * zero.squares == pytest.approx(one.variance, rel=1e-12)
    assert one.variance == pytest.approx(zero.variance)


def test_slope_is_the_derivative_in_log_odds():
    """Exact expectation at log-odds ± h, by central differences."""
    q, lam, h = np.array([0.1, 0.6, 0.95]), 0.8, 1e-5
    p = posterior(q, lam)

    def mean(drift):
        odds = p / (1 - p) * np.exp(drift)
        chance = odds / (1 + odds)
        return np.sum(chance * lam * (1 - q) - (1 - chance) * (1 - lam) * q)

    assert residual_sums([0, 1, 0], q, lam).slope == pytest.approx((mean(h) - mean(-h)) / (2 * h), rel=1e-8)


def test_no_variance_no_z():
    sums = residual_sums([0, 1], [0.0, 1.0], None)
    assert np.isnan(sums.z)
    assert sums.residual == 0.0
    assert np.isnan(ResidualSums().z)


@pytest.mark.parametrize(
    ("y", "q", "weights", "sentence"),
    [
        ([0, 2], [0.1, 0.2], None, "0/1"),
        ([0, np.nan], [0.1, 0.2], None, "NaN"),
        ([0, 1], [0.1, 1.2], None, r"\[0, 1\]"),
        ([0, 1], [0.1, np.nan], None, "NaN"),
        ([0, 1], [0.1, 0.2, 0.3], None, "one value for each of the 2 rows"),
        ([[0, 1]], [[0.1, 0.2]], None, "1-D"),
        ([], [], None, "at least one row"),
        ([0, 1], [0.1, 0.2], [1.0, -1.0], "not negative"),
        ([0, 1], [0.1, 0.2], [1.0, np.inf], "finite"),
        ([0, 1], [0.1, 0.2], [1e200, 1e200], "finite sum"),
    ],
)
def test_bad_rows_are_refused(y, q, weights, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        residual_sums(y, q, None, weights)


def test_a_weighting_without_counts_is_refused():
    with pytest.raises(InvalidParameter, match="class counts"):
        residual_sums([0, 1], [0.1, 0.2], Alpha(1))
    with pytest.raises(InvalidParameter, match="λ"):
        residual_sums([0, 1], [0.1, 0.2], Lam(1.5))
