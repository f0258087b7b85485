"""The key equation against an exact fit, copied rows, hand sums, and simulated true posteriors."""

import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, norm

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.class_means import class_means
from crcen.theory.decision import weighted_probability
from crcen.theory.key_equation import key_equation
from crcen.theory.price import Alpha, CostRatio, Lam, resolve


def rows(seed=0, n=400, weights=False):
    rng = np.random.default_rng(seed)
    y = np.r_[1, 0, (rng.random(n - 2) < 0.2)].astype(int)
    logits = rng.normal(size=n) + y
    return y, logits, rng.integers(1, 5, n).astype(float) if weights else None


def balanced_output(y, logits, weighting, sample_weight=None):
    """Shift logits until Σ w(y−q) = 0, with SciPy's root finder."""
    w = weighting.row_weights(y, sample_weight)
    shift = brentq(lambda b: np.sum(w * (y - expit(logits + b))), -50, 50, xtol=1e-15, rtol=1e-15)
    return expit(logits + shift)


@pytest.mark.parametrize("weighting", [None, "balanced", Alpha(2), CostRatio(0.2), Lam(0.99)])
@pytest.mark.parametrize("weights", [False, True])
def test_holds_where_the_bias_is_stationary(weighting, weights):
    y, logits, s = rows(weights=weights)
    made = resolve(weighting, *(np.sum((y == k) * (1 if s is None else s)) for k in (1, 0)))
    result = key_equation(y, balanced_output(y, logits, made, s), weighting, s)
    assert result.weighting.lam == pytest.approx(made.lam, rel=1e-12)
    assert result.lhs == pytest.approx(1 / made.alpha, rel=1e-9)
    assert result.rhs == pytest.approx(1 / made.alpha, rel=1e-12)
    assert result.residual < 1e-13
    assert result.imbalance < 1e-12
    assert (result.predicted_mean_pos, result.predicted_mean_neg) == pytest.approx(
        (result.mean_pos, result.mean_neg), abs=1e-12
    )
    assert (result.mean_pos, result.mean_neg) == pytest.approx(class_means(result.discrimination, made), abs=1e-12)
    assert math.isnan(result.z)
    assert math.isnan(result.p_value)
    assert "balanced" in result.z_reason
    assert "not available: these rows were balanced" in str(result)


@given(st.integers(0, 10**6), st.floats(0.01, 0.99), st.booleans())
def test_residuals_are_those_sums(seed, lam, weights):
    y, logits, s = rows(seed, n=60, weights=weights)
    q = expit(logits)
    result = key_equation(y, q, lam, s)
    w = resolve(lam, 1, 1).row_weights(y, s)
    size = np.ones(60) if s is None else s
    assert result.residual == pytest.approx(abs(np.sum(w * (y - q))) / np.sum(w), abs=1e-14)
    assert result.imbalance == pytest.approx(abs(np.sum(w * (y - q))) / np.sum(w * abs(y - q)), abs=1e-13)
    for k, mean, variance in ((1, result.mean_pos, result.var_pos), (0, result.mean_neg, result.var_neg)):
        mine = y == k
        assert mean == pytest.approx(np.average(q[mine], weights=size[mine]))
        assert variance == pytest.approx(np.cov(q[mine], aweights=size[mine], ddof=0) if mine.sum() > 1 else 0)
    assert result.lhs == pytest.approx((1 - result.mean_pos) / result.mean_neg)
    assert result.discrimination == result.mean_pos - result.mean_neg


@pytest.mark.parametrize("weighting", [0.3, CostRatio(4), resolve("balanced", 7, 80)])
def test_a_weight_of_k_is_k_copies(weighting):
    y, logits, s = rows(5, weights=True)
    q = expit(logits)
    weighted = key_equation(y, q, weighting, s)
    copied = key_equation(*(np.repeat(v, s.astype(int)) for v in (y, q)), weighting)
    for name in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg", "var_pos", "var_neg"):
        assert getattr(weighted, name) == pytest.approx(getattr(copied, name), rel=1e-12)


def test_copied_minority_rows_replace_the_class_weight():
    y, logits, _ = rows(6)
    q = expit(logits)
    copies = np.where(y == 1, 4, 1)
    weighted = key_equation(y, q, CostRatio(4))
    copied = key_equation(np.repeat(y, copies), np.repeat(q, copies), None)
    for name in ("lhs", "rhs", "residual", "imbalance", "mean_pos", "var_neg"):
        assert getattr(weighted, name) == pytest.approx(getattr(copied, name), rel=1e-12)


def test_training_counts_travel_with_the_weighting():
    """Table 1: trained at 1:10, tested at 1:1; a law that holds by class means holds at any class ratio."""
    trained = resolve(Alpha(2), 1000, 10000)
    y = np.r_[np.ones(50), np.zeros(50)]
    result = key_equation(y, np.where(y == 1, 0.8, 0.4), trained)
    assert result.weighting is trained
    assert result.rhs == pytest.approx(0.5)
    assert result.lhs == pytest.approx(0.5)
    assert result.residual == pytest.approx(0, abs=1e-15)
    assert result.imbalance == pytest.approx(0, abs=1e-15)
    assert key_equation(y, np.where(y == 1, 0.8, 0.4), Alpha(2)).weighting.n_neg == 50
    off = key_equation(y, np.where(y == 1, 0.7, 0.4), trained)
    lam, mu = 20 / 21, 1 / 21
    missed, alarmed = lam * 1000 * 0.3, mu * 10000 * 0.4
    assert off.residual == pytest.approx((missed - alarmed) / (lam * 1000 + mu * 10000))
    assert off.imbalance == pytest.approx((missed - alarmed) / (missed + alarmed))


def test_z_by_hand():
    y, q, s = np.array([1, 0, 0]), np.array([0.6, 0.5, 0.2]), np.array([1.0, 2.0, 3.0])
    result = key_equation(y, q, CostRatio(4), s)
    p = q / (q + 4 * (1 - q))
    variance = sum(s**2 * (0.64 * p * (1 - q) ** 2 + 0.04 * (1 - p) * q**2))
    total = 0.8 * 0.4 - 0.2 * (2 * 0.5 + 3 * 0.2)
    assert abs(total) < 1e-12, "these rows happen to balance"
    assert math.isnan(result.z)
    s[0] = 2.0
    variance += 3 * 0.64 * p[0] * 0.16 + 3 * 0.04 * (1 - p[0]) * 0.36
    result = key_equation(y, q, CostRatio(4), s)
    assert result.z == pytest.approx((total + 0.32) / math.sqrt(variance))
    many = key_equation(np.tile(y, 50), np.tile(q, 50), CostRatio(4), np.tile(s, 50))  # three rows alone are lopsided
    assert many.z == pytest.approx(math.sqrt(50) * result.z)
    assert many.p_value == pytest.approx(2 * norm.sf(abs(many.z)))
    assert result.z_reason == ""
    for scale in (1e-200, 1e200):
        assert key_equation(y, q, CostRatio(4), s * scale).z == pytest.approx(result.z)


@pytest.mark.parametrize("weighting", [None, CostRatio(12), CostRatio(0.1)])
@pytest.mark.parametrize("weights", [False, True])
def test_size_of_z_under_the_truth(weighting, weights):
    """1,500 samples from known posteriors: level .05 is met and Z has variance 1."""
    rng = np.random.default_rng(11)
    p = rng.beta(1, 8, size=500)
    q = weighted_probability(p, weighting)
    s = rng.integers(1, 4, 500) if weights else None
    results = [key_equation(rng.random(500) < p, q, resolve(weighting, 1, 8), s) for _ in range(1500)]
    z = np.array([result.z for result in results])
    rejected = np.mean([result.p_value < 0.05 for result in results])
    # Four standard errors: sqrt(.05·.95/1500) = .0056, 1/sqrt(1500) = .026, sqrt(2/1500) = .037.
    assert abs(rejected - 0.05) < 0.0225
    assert abs(z.mean()) < 0.104
    assert abs(z.var() - 1) < 0.16


def test_z_sees_a_wrong_model():
    rng = np.random.default_rng(12)
    p = rng.beta(1, 8, size=5000)
    y = rng.random(5000) < p
    wrong = key_equation(y, expit(np.log(p / (1 - p)) + 0.5), None)
    assert wrong.p_value < 1e-6
    assert wrong.z < 0, "too many alarms make the sum of y − q negative"


@pytest.mark.parametrize(
    ("q", "lhs"), [([1.0, 1.0, 0.0], math.nan), ([0.0, 1.0, 0.0], math.inf), ([1.0, 1.0, 1.0], 0.0)]
)
def test_outputs_of_zero_and_one(q, lhs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = key_equation([1, 1, 0], q, None)
        text = str(result)
    assert result.lhs == pytest.approx(lhs, nan_ok=True)
    assert math.isnan(result.z)
    assert "every q is 0 or 1" in result.z_reason
    assert "every q is 0 or 1" in text
    wrong = sum(abs(a - b) for a, b in zip([1, 1, 0], q, strict=True))
    assert result.residual == pytest.approx(wrong / 3)
    assert result.imbalance == (1.0 if wrong else 0.0)


def test_a_small_miss_keeps_its_digits():
    """1 − q of a sure positive is exact; one minus the mean of q would keep few digits of it."""
    q_pos = [1 - 1e-13 * k for k in (1, 3, 7, 11, 30)]
    exact = sum(1 - Fraction(q) for q in q_pos) / 5 / Fraction(1e-13)
    result = key_equation([1] * 5 + [0], [*q_pos, 1e-13], None)
    assert result.lhs == pytest.approx(float(exact), rel=1e-14)


def test_text_says_both_sides():
    y, logits, _ = rows()
    text = str(key_equation(y, expit(logits), resolve(Alpha(2), 100, 900)))
    assert len(text.splitlines()) == 8
    assert "right side      0.5" in text
    assert "p-value" in text


@pytest.mark.parametrize(
    ("y", "q", "s", "words"),
    [
        ([1, 0], [0.5], None, r"q must have one value for each of the 2 rows, got shape \(1,\)"),
        ([1, 0], [[0.5, 0.5]], None, r"one row a label: got 1 for 2|got shape \(1, 2\)"),
        ([1, 0], [0.5, 1.5], None, "are these logits"),
        ([1, 0], [0.5, float("nan")], None, "q must lie .* NaN"),
        ([1, 1], [0.5, 0.5], None, "no negative row"),
        ([0, 0], [0.5, 0.5], None, "no positive row"),
        ([1, 0], [0.5, 0.5], [1, 0], "1 negative rows, all of weight 0"),
        ([1, 0], [0.5, 0.5], [1, -1], "sample_weight must be finite and not negative"),
        ([1, 0], [0.5, 0.5], [1], "one weight for each of the 2 rows"),
        ([1, 2], [0.5, 0.5], None, "labels 1, 2"),
    ],
)
def test_rows_refused(y, q, s, words):
    for weighting in (None, resolve("balanced", 1, 1)):
        with pytest.raises(InvalidInput, match=words):
            key_equation(y, q, weighting, s)


def test_weighting_refused():
    with pytest.raises(InvalidParameter, match="did you mean Alpha"):
        key_equation([1, 0], [0.5, 0.5], 3.0)


@pytest.mark.parametrize("n_surprises", range(1, 9))
def test_a_few_surprises_of_a_sure_model_are_judged_by_their_count(n_surprises):
    """300 rows at a probability of .001: the count of positives among them is binomial, and far from normal."""
    p = np.append(np.full(300, 0.001), np.full(100, 1 - 1e-9))
    y = np.arange(400) >= 300
    y[:n_surprises] = True
    found = key_equation(y, p, None)
    exact = binom.sf(n_surprises - 1, 300, 0.001)
    assert found.p_value >= exact * 0.99
    if n_surprises > 2:
        assert 2 * norm.sf(found.z) < exact / 100  # what the normal tail would have said
    assert (found.p_value < 0.001) == (n_surprises >= 5)  # and a wrong model is still found out
