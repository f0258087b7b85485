"""Residual sums against loops and exact expectations; tests with the model's error against simulated fits."""

import numpy as np
import pytest
from scipy.stats import f as snedecor
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

import crcen
from crcen.exceptions import InvalidInput
from crcen.theory.decision import posterior, weighted_probability
from crcen.theory.key_equation import judge_equations, key_equation
from crcen.theory.price import Budget, CostRatio, Price, resolve
from crcen.theory.residual_test import JointResidualSums, TrainingError, joint_residual_sums, pair_sums

BIAS, COEF = np.array([2.0, 0.5, 0.0]), np.array([[0.8, 0.0, -0.5], [0.0, 0.7, 0.3]])
THREE = Price(np.array([1.0, 4.0, 12.0]), np.array([700.0, 200.0, 100.0]))


def joint_sums(y, q, weighting, sample_weight=None):
    columns = np.column_stack([1 - np.asarray(q), q])
    return joint_residual_sums(np.asarray(y, int), columns, resolve(weighting, 1, 1), sample_weight)


def residual_sums(*args):
    """Those of the positive one of two classes."""
    return joint_sums(*args).of_class(1)


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
    both = joint_sums(y, q, lam, s if weighted else None)
    sums = both.of_class(1)
    assert (both.n_rows, sums.n_pos) == (300, y.sum())
    assert (sums.missed, sums.alarmed, sums.slope) == pytest.approx((missed, alarmed, slope), rel=1e-12)
    assert (sums.variance, both.squares[1]) == pytest.approx((variance, squares), rel=1e-12)
    w = np.where(y, lam, 1 - lam) * s
    assert sums.residual == pytest.approx(np.sum(w * (y - q)), rel=1e-12)


@pytest.mark.parametrize("weighting", [None, 0.8, CostRatio(4), Budget(0.5), resolve("balanced", 30, 270)])
def test_z_is_that_of_the_key_equation(weighting):
    y, q, s = rows(seed=1)
    assert residual_sums(y, q, weighting, s).z == pytest.approx(key_equation(y, q, weighting, s).z, rel=1e-12)


@pytest.mark.parametrize("lam", [0.5, 0.95])
def test_under_the_model_the_mean_is_zero_and_the_variance_as_stated(lam):
    """Exact expectation over both labels of one row."""
    p = 0.13
    q = weighted_probability(p, lam)
    one, zero = residual_sums([1], [q], lam), residual_sums([0], [q], lam)
    assert p * one.residual + (1 - p) * zero.residual == pytest.approx(0.0, abs=1e-15)
    assert p * one.residual**2 + (1 - p) * zero.residual**2 == pytest.approx(one.variance, rel=1e-12)
    squares = [joint_sums([label], [q], lam).squares[1] for label in (1, 0)]
    assert p * squares[0] + (1 - p) * squares[1] == pytest.approx(one.variance, rel=1e-12)
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


@pytest.mark.parametrize(
    ("y", "q", "weights", "sentence"),
    [
        ([0, 2], [0.1, 0.2], None, "from 0 to 1"),
        ([0, 1], [0.1, 1.2], None, r"\[0, 1\]"),
        ([0, 1], [0.1, 0.2, 0.3], None, "must have 2 rows"),
        ([0, 1], [0.1, 0.2], [1.0, -1.0], "not negative"),
        ([0, 1], [0.1, 0.2], [1e200, 1e200], "finite sum"),
    ],
)
def test_bad_rows_are_refused(y, q, weights, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        residual_sums(y, q, None, weights)


def columns(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, n), THREE.weighted(rng.dirichlet([4.0, 1.0, 0.4], n)), rng.uniform(0.0, 3.0, n)


def test_sums_of_k_classes_are_those_of_a_loop_and_each_class_is_one_against_the_rest():
    y, q, s = columns()
    w, p = THREE.weights, THREE.posterior(columns()[1])
    residual = s[:, None] * w[y][:, None] * (np.eye(3)[y] - q)
    second = [
        sum(s[i] ** 2 * p[i, j] * w[j] ** 2 * np.outer(np.eye(3)[j] - q[i], np.eye(3)[j] - q[i]) for j in range(3))
        for i in range(len(y))
    ]
    slope = sum(s[i] * (p[i] @ w) * (np.diag(q[i]) - np.outer(q[i], q[i])) for i in range(len(y)))
    sums = joint_residual_sums(y, q, THREE, s)
    np.testing.assert_allclose(sums.residuals, residual.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(sums.variance, np.sum(second, axis=0), rtol=1e-9)
    np.testing.assert_allclose(sums.slope, slope, rtol=1e-9)
    np.testing.assert_allclose(sums.squares, (residual**2).sum(axis=0), rtol=1e-12)
    one = sums.of_class(2)
    assert (one.n_pos, one.residual) == (np.sum(y == 2), pytest.approx(sums.residuals[2]))
    parts = [joint_residual_sums(y[own], q[own], THREE, s[own]) for own in np.array_split(np.arange(400), 3)]
    for one, other in zip(vars(sum(parts, JointResidualSums.none(3))).values(), vars(sums).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10)


def test_pair_sums_have_mean_zero_and_their_variance_for_the_true_posterior():
    rng = np.random.default_rng(0)
    p = rng.dirichlet([4.0, 1.0, 0.4], 60)
    q, s = THREE.weighted(p), rng.uniform(0.5, 2.0, 60)
    drawn = [(p.cumsum(axis=1) < rng.random((60, 1))).sum(axis=1) for _ in range(4000)]
    found = np.array([pair_sums(y, q, s, THREE.weights).sums for y in drawn])
    variance = pair_sums(drawn[0], q, s, THREE.weights).variance
    scale = np.sqrt(np.diag(variance))
    np.testing.assert_allclose(found.mean(axis=0) / scale, 0.0, atol=4 / np.sqrt(4000))
    np.testing.assert_allclose(np.cov(found.T) / scale / scale[:, None], variance / scale / scale[:, None], atol=0.12)


# -- the model's error -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [5.0, np.inf])
def test_one_sum_is_tested_by_students_t(degrees):
    """A residual R of slope a and variance v, and log-odds off by d: R / sqrt(v + (a d)²), by Satterthwaite."""
    size, slope, variance, residual = 0.3, 12.0, 9.0, 11.0
    error = TrainingError.binary(size, degrees)
    assert (error.log_odds, error.size) == pytest.approx((size, size))
    rows = np.array([residual]), np.array([[variance]]), slope * np.array([[-1.0, 1.0]])
    statistic, found, p_value = error.test(*rows)
    share = (slope * size) ** 2 / variance
    t = residual / np.sqrt(variance * (1 + share))
    assert found == 1
    assert statistic == pytest.approx(t**2)
    expected = 2 * student.sf(t, degrees * ((1 + share) / share) ** 2)
    assert p_value == pytest.approx(expected, rel=1e-6)


def test_several_sums_are_tested_by_snedecors_f_and_the_lower_limit_is_kept():
    sums, variance, slope = np.array([3.0, -2.0]), np.eye(2), np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    least = 0.5 * (np.eye(3) - 1 / 3)
    nothing, some, only = (
        TrainingError(a, 5.0, b) for a, b in ((0 * least, 0 * least), (0 * least, least), (least, 0 * least))
    )
    whole = variance + slope @ least @ slope.T
    statistic = sums @ np.linalg.solve(whole, sums)
    assert some.test(sums, variance, slope)[0] == pytest.approx(statistic)
    assert some.test(sums, variance, slope)[2] > nothing.test(sums, variance, slope)[2]
    share = np.trace(np.linalg.solve(whole, slope @ least @ slope.T)) / 2
    assert only.test(sums, variance, slope)[2] == pytest.approx(snedecor.sf(statistic / 2, 2, 5.0 / share**2))
    with pytest.raises(InvalidInput, match="covariances"):
        TrainingError(np.full((3, 3), np.nan), 5.0, least)
    with pytest.raises(InvalidInput, match="log_odds and least must be from 0"):
        TrainingError.binary(-1.0)


def draw(rng, n):
    X = rng.standard_normal((n, 2))
    return X, (BIAS + X @ COEF + rng.gumbel(size=(n, 3))).argmax(axis=1)


def test_refits_of_a_regression_find_its_error_and_the_test_keeps_its_size():
    """A right model's error is known: as many new rows as training rows double the variance of the residuals."""
    rejected, plain, sizes, true = [], [], [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = draw(rng, 600)
        model = LogisticRegression(C=1e4).fit(X, y)
        error = crcen.training_error(model, X, y, n_fits=6, random_state=seed)
        trained = Price(np.ones(3), np.bincount(y).astype(float))
        sizes.append(error.sizes)
        judged_on, _ = draw(rng, 4000)
        p = model.predict_proba(judged_on)
        right = np.exp(BIAS + judged_on @ COEF)
        gap = (right / right.sum(axis=1, keepdims=True) - p).mean(axis=0)
        slope = np.diag(p.mean(axis=0)) - p.T @ p / len(p)
        true.append(np.linalg.pinv(slope, rcond=1e-9, hermitian=True) @ gap)
        for _ in range(8):
            new, labels = draw(rng, 1800)
            q = model.predict_proba(new)
            plain.append(judge_equations(labels, q, trained, "abc", noise=1.0).p_value)
            rejected.append(judge_equations(labels, q, trained, "abc", error=error).p_value)
    assert np.mean(np.array(plain) < 0.05) > 0.2  # three times as many new rows: variances are four times as large
    assert np.mean(np.array(rejected) < 0.05) < 0.09
    assert np.mean(np.array(rejected) < 0.5) > 0.25  # and the test still says something
    ratio = np.sqrt(np.mean(np.square(sizes), axis=0) / np.var(true, axis=0))
    assert ((ratio > 0.7) & (ratio < 1.6)).all()
