"""Residual sums and tests with the model's error, at once and in sequence: loops, exact laws, simulated fits."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import binom
from scipy.stats import f as snedecor
from scipy.stats import t as student
from sklearn.linear_model import LogisticRegression

import crcen
from crcen.exceptions import InvalidInput
from crcen.theory import limits
from crcen.theory import residual_test as tail
from crcen.theory.key_equation import judge_equations, key_equation
from crcen.theory.price import Budget, CostRatio, Price, posterior, resolve, weighted_probability
from crcen.theory.residual_test import JointResidualSums, TrainingError, joint_residual_sums, pair_sums
from crcen.theory.sequential import GRID, GRID_SIZE, ConfidenceSequence, DriftProcess, log_likelihoods, peak

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
def test_z_is_that_of_the_key_equation_and_the_variance_that_under_the_model(weighting):
    y, q, s = rows(seed=1)
    assert residual_sums(y, q, weighting, s).z == pytest.approx(key_equation(y, q, weighting, s).z, rel=1e-12)
    p = 0.13  # exact expectation over both labels of one row
    q = weighted_probability(p, weighting)
    both = [joint_sums([label], [q], weighting) for label in (1, 0)]
    one, zero = (sums.of_class(1) for sums in both)
    assert p * one.residual + (1 - p) * zero.residual == pytest.approx(0.0, abs=1e-15)
    squares = [sums.squares[1] for sums in both]
    for first, second in (squares, (one.residual**2, zero.residual**2), (zero.variance, zero.variance)):
        assert p * first + (1 - p) * second == pytest.approx(one.variance, rel=1e-12)


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
    ("make", "arguments", "sentence"),
    [
        (joint_sums, ([0, 2], [0.1, 0.2], None), "from 0 to 1"),
        (joint_sums, ([0, 1], [0.1, 1.2], None), r"\[0, 1\]"),
        (joint_sums, ([0, 1], [0.1, 0.2, 0.3], None), "must have 2 rows"),
        (joint_sums, ([0, 1], [0.1, 0.2], None, [1.0, -1.0]), "not negative"),
        (joint_sums, ([0, 1], [0.1, 0.2], None, [1e200, 1e200]), "finite sum"),
        (TrainingError, (np.full((3, 3), np.nan), 5.0, np.eye(3)), "covariances"),
        (TrainingError.binary, (-1.0,), "log_odds and least must be from 0"),
    ],
)
def test_bad_rows_and_errors_are_refused(make, arguments, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        make(*arguments)


def columns(n=400, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 3, n), THREE.weighted(rng.dirichlet([4.0, 1.0, 0.4], n)), rng.uniform(0.0, 3.0, n)


def test_sums_of_k_classes_are_those_of_a_loop_and_each_class_is_one_against_the_rest():
    y, q, s = columns()
    w, p = THREE.weights, THREE.posterior(columns()[1])
    residual = s[:, None] * w[y][:, None] * (np.eye(3)[y] - q)
    away = np.eye(3)[None] - q[:, None]  # (rows, labels, classes)
    second = np.einsum("n,nj,njk,njl->nkl", s**2, p * w**2, away, away)
    slope = sum(s[i] * (p[i] @ w) * (np.diag(q[i]) - np.outer(q[i], q[i])) for i in range(len(y)))
    sums = joint_residual_sums(y, q, THREE, s)
    np.testing.assert_allclose(sums.residuals, residual.sum(axis=0), atol=1e-9)
    np.testing.assert_allclose(sums.variance, np.sum(second, axis=0), rtol=1e-9)
    np.testing.assert_allclose(sums.slope, slope, rtol=1e-9)
    np.testing.assert_allclose(sums.squares, (residual**2).sum(axis=0), rtol=1e-12)
    assert sums.of_class(2)[0] == np.sum(y == 2)
    assert sums.of_class(2).residual == pytest.approx(sums.residuals[2])
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
    found = error.test(np.array([residual]), np.array([[variance]]), slope * np.array([[-1.0, 1.0]]))
    share = (slope * size) ** 2 / variance
    t = residual / np.sqrt(variance * (1 + share))
    assert found == pytest.approx((t**2, 1, 2 * student.sf(t, degrees * ((1 + share) / share) ** 2)), rel=1e-6)


def test_several_sums_are_tested_by_snedecors_f_and_the_lower_limit_is_kept():
    sums, variance, slope = np.array([3.0, -2.0]), np.eye(2), np.array([[1.0, 0.0, -1.0], [0.0, 1.0, -1.0]])
    least, none = 0.5 * (np.eye(3) - 1 / 3), np.zeros((3, 3))
    nothing, some, only = (TrainingError(a, 5.0, b) for a, b in ((none, none), (none, least), (least, none)))
    whole = variance + slope @ least @ slope.T
    statistic = sums @ np.linalg.solve(whole, sums)
    assert some.test(sums, variance, slope)[0] == pytest.approx(statistic)
    assert some.test(sums, variance, slope)[2] > nothing.test(sums, variance, slope)[2]
    share = np.trace(np.linalg.solve(whole, slope @ least @ slope.T)) / 2
    assert only.test(sums, variance, slope)[2] == pytest.approx(snedecor.sf(statistic / 2, 2, 5.0 / share**2))


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


def pair(p):
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
    p = pair(np.full(2000, 0.003))
    upper = tail.upper_tail(tail.residual_values(p, np.ones(2), 1), p, count - 6.0)
    exact = binom.sf(count, 2000, 0.003) + 0.5 * binom.pmf(count, 2000, 0.003)
    assert upper == pytest.approx(exact, rel=0.12, abs=0.002)


def test_tail_is_exact_at_the_end_of_the_range_and_for_two_clouds_with_cancelling_skewness():
    p = pair(np.full(50, 0.02))
    values = tail.residual_values(p, np.array([1.0, 4.0]), 1)
    assert tail.tail_p_value(values, p, values[:, 0].sum()) == pytest.approx(min(1.0, 2 * 0.98**50))
    assert tail.tail_p_value(values, p, values[:, 1].sum()) == pytest.approx(2 * 0.02**50)
    rng = np.random.default_rng(0)
    p = pair(1 / (1 + np.exp(-np.r_[rng.normal(-11.5, 1, 1900), rng.normal(8.6, 1, 100)])))
    values, likely = tail.residual_values(p, np.ones(2), 1), np.r_[np.zeros(1900, int), np.ones(100, int)]
    likely[0] = 1  # one surprise, which happens in 3 % of samples
    assert 0.01 < tail.residual_test(values, p, likely).p_value < 0.2


@pytest.mark.parametrize("extra", [0.0, 1e-9])
@pytest.mark.parametrize("n_surprises", [0, 1])
def test_tail_of_a_nearly_certain_model_is_the_chance_of_a_surprise(n_surprises, extra):
    p = pair(np.r_[np.full(50, 1 - 1e-6), np.full(1450, 1e-6)])
    values = tail.residual_values(p, np.array([1.0, 10.0]), 1)
    total = values[:50, 1].sum() + values[50:, 0].sum() + n_surprises * (np.ptp(values[60]) - 1e-3)
    exact = 2 * (1 - (1 - 1e-6) ** 1450) if n_surprises else 1.0
    assert tail.tail_p_value(values, p, total, extra) == pytest.approx(exact, rel=0.01)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_tail_matches_simulated_sums(n_classes):
    rng = np.random.default_rng(n_classes)
    p = pair(1 / (1 + np.exp(-rng.normal(-3, 1, 400)))) if n_classes == 2 else three_classes(rng, 400, [0, -2, -3])
    values = tail.residual_values(p, np.array([1.0, 5.0, 9.0])[:n_classes], n_classes - 1, rng.uniform(0.5, 2, 400))
    y = draws(rng, p, 10_000)
    sums = values[np.arange(400), y].sum(axis=1)
    for z in (-1.5, 0.0, 0.7, 2.0):
        at = z * sums.std()
        assert tail.upper_tail(values, p, at) == pytest.approx((sums >= at).mean(), abs=0.02)


def test_tail_is_continuous_where_the_sum_is_zero():
    p = pair(np.random.default_rng(0).uniform(0.001, 0.1, 500))
    values = tail.residual_values(p, np.array([1.0, 10.0]), 1)
    unit = math.sqrt(tail.variance_of(values, p))
    tails = [tail.upper_tail(values, p, z * unit) for z in (-2e-3, -1e-3, -1e-9, 0.0, 1e-9, 1e-3, 2e-3)]
    assert np.abs(np.diff(tails)).max() < 1e-3
    third = (p * values**3).sum() / unit**3
    assert tails[3] == pytest.approx(0.5 - third / (6 * math.sqrt(2 * math.pi)), abs=1e-3)


@pytest.mark.parametrize("factor", [1e-6, 7.3, 1e9])
@pytest.mark.parametrize("options", [{}, {"is_stratified": True}, {"clusters": np.arange(300) // 4}])
def test_unit_of_weights_does_not_matter(factor, options):
    rng = np.random.default_rng(1)
    p, w = pair(rng.uniform(0.01, 0.4, 300)), rng.pareto(1.5, 300) + 1
    y = (rng.random(300) < p[:, 1]).astype(int)
    one, other = (
        tail.residual_test(tail.residual_values(p, k * np.array([1.0, 6.0]), 1, k * w), p, y, **options)
        for k in (1.0, factor)
    )
    assert (other.p_value, other.z) == pytest.approx((one.p_value, one.z), rel=1e-9)


def test_model_uncertainty_widens_the_test():
    rng = np.random.default_rng(2)
    p = pair(rng.uniform(0.01, 0.2, 2000))
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
    p = pair(1 / (1 + np.exp(-rng.normal(-2, 1.5, 200_000))))
    values = tail.residual_values(p, np.array([1.0, c]), 1)
    y = (rng.random(len(p)) < p[:, 1]).astype(int)
    x = values[np.arange(len(y)), y]
    within = sum((y == k).mean() * x[y == k].var() for k in (0, 1))
    assert tail.stratified_factor(values, p) == pytest.approx(within / x.var(), rel=0.03)
    if c == 1.0:  # Tjur's coefficient of discrimination
        assert tail.stratified_factor(values, p) == pytest.approx(p[y == 1, 1].mean() - p[y == 0, 1].mean(), abs=0.01)


def test_cluster_variance_is_that_of_cluster_sums():
    rng = np.random.default_rng(4)
    p = pair(np.full(600, 0.3))
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


def test_values_have_mean_zero_under_the_model_and_holm_adjusts_as_by_hand():
    p, w = three_classes(np.random.default_rng(5), 50, [0, -1, -2]), np.array([1.0, 3.0, 10.0])
    for k in range(3):
        np.testing.assert_allclose((p * tail.residual_values(p, w, k)).sum(axis=1), 0.0, atol=1e-14)
    np.testing.assert_allclose(tail.holm([0.01, 0.04, 0.03, np.nan]), [0.03, 0.06, 0.06, np.nan])
    assert tail.holm([]).shape == (0,)


TRAINED = resolve(Budget(5), 100, 900)


def test_the_noise_of_a_fitted_model():
    for unit in (1e-3, 1.0, 2e3):  # the unit of weights does not matter
        assert limits.fitted_model_noise(np.full(1000, unit), TRAINED) == pytest.approx(3.0)
        profile = SimpleNamespace(n_rows=4000)
        assert limits.fitted_model_noise(np.full(1000, unit), TRAINED, profile) == pytest.approx(1.5)


def test_the_share_is_that_of_two_proportions():
    """z of the pooled two-proportion test, written out."""

    def judged(n_own, n, own_before, n_before):
        y = (np.arange(n) < n_own).astype(int)
        return limits.judge_class_shares(y, np.ones(n), np.array([n_before - own_before, own_before]))[1]

    pooled = 260 / 2000
    tests = [judged(160, 1000, 100, 1000), judged(170, 1000, 100, 1000), judged(110_000, 10**6, 10**5, 10**6)]
    tests.append(judged(2, 5, 30, 1000))  # few rows; before it a factor of 1.1, which matters to nobody
    assert tests[0].z == pytest.approx(0.06 / math.sqrt(pooled * (1 - pooled) * 2 / 1000))
    assert [abs(test.z) > limits.SHARE_Z for test in tests] == [False, True, True, True]
    assert [test.has_moved for test in tests] == [False, True, False, False]


@pytest.mark.parametrize(("n", "p"), [(2000, 0.0005), (2000, 0.01), (2000, 0.3), (50, 0.03)])
def test_the_chance_of_a_count_is_never_understated_by_much(n, p):
    """Against the exact binomial tail: a bound from above, and no more than a hundred times it far out."""
    expected = n * p
    for observed in range(0, min(n, int(expected + 12 * math.sqrt(expected) + 5)) + 1):
        tail = binom.sf(observed - 1, n, p) if observed > expected else binom.cdf(observed, n, p)
        assert limits.count_chance(observed, expected, n * p * (1 - p)) >= 0.9 * tail
    far = int(expected + 6 * math.sqrt(expected)) + 1
    assert limits.count_chance(far, expected, n * p * (1 - p)) < 100 * binom.sf(far - 1, n, p)
    assert limits.count_chance(1, 0.00065) > 1e-3  # one event where few were expected is no proof
    assert limits.count_chance(0, 0.5) > 0.5
    assert (limits.count_chance(3, 3), limits.count_chance(1, 0.0)) == (1.0, 0.0)
    assert limits.count_chance(50, 0.01) < 1e-100


# -- e-process of drift and betting confidence sequences ------------------------------------------------------------


def labelled(rng, n, drift=0.0):
    logits = rng.normal(-2, 1, n)
    return rng.random(n) < 1 / (1 + np.exp(-logits - drift)), 1 / (1 + np.exp(-logits))


def test_log_likelihood_is_that_of_moved_probabilities():
    rng = np.random.default_rng(0)
    y, p = labelled(rng, 500)
    moved = p[:, None] * np.exp(GRID) / (1 + p[:, None] * np.expm1(GRID))
    direct = np.where(y[:, None], np.log(moved / p[:, None]), np.log((1 - moved) / (1 - p[:, None]))).sum(axis=0)
    np.testing.assert_allclose(log_likelihoods(y, p), direct, atol=1e-9)
    w = rng.random(500)
    np.testing.assert_allclose(log_likelihoods(y, p, w) + log_likelihoods(y, p, 1 - w), direct, atol=1e-9)


@pytest.mark.parametrize("weight", [1.0, 0.4])
@pytest.mark.parametrize("error", [-0.2, 0.0, 0.13, 0.2])
def test_evidence_has_mean_at_most_one_for_any_tolerated_error(weight, error):
    process, p = DriftProcess(tolerance=0.2), np.array([0.05, 0.3, 0.6])
    true = p * math.exp(error) / (1 + p * math.expm1(error))
    mean = 0.0
    for code in range(8):  # all labels of three rows
        y = np.array([code >> i & 1 for i in range(3)], dtype=bool)
        chance = np.where(y, true, 1 - true).prod()
        mean += chance * math.exp(process.log_evidence(log_likelihoods(y, p, np.full(3, weight))))
    assert 0.2 < mean <= 1.0 + 1e-9


def test_bound_between_grid_points_is_above_and_near():
    rng = np.random.default_rng(1)
    process = DriftProcess()
    y, p = labelled(rng, 3000)
    low = np.linspace(-0.5, 0.4, 40)
    inside = np.linspace(low, low + 0.03, 50)
    exact = np.array([[d * y.sum() - np.log1p(p * np.expm1(d)).sum() for d in row] for row in inside]).max(axis=0)
    bound = process._largest(log_likelihoods(y, p), low, low + 0.03)
    assert (bound >= exact - 1e-9).all()
    assert (bound - exact).max() < 0.2


@pytest.mark.parametrize("spread", [0.0, 0.1])
def test_drift_is_found_and_its_interval_covers(spread):
    rng = np.random.default_rng(2)
    process, covered = DriftProcess(spread=spread), 0
    for _ in range(30):
        total = np.zeros(GRID_SIZE)
        for _ in range(100):
            total += log_likelihoods(*labelled(rng, 200, 0.6))
            if process.log_evidence(total) >= math.log(20):
                break
        else:
            pytest.fail("no alarm")
        low, high = process.interval(total)
        covered += low <= 0.6 <= high
    assert covered >= 27


def test_evidence_is_small_without_drift_and_knows_the_rows_before():
    rng = np.random.default_rng(3)
    process = DriftProcess(spread=0.15)
    before = log_likelihoods(*labelled(rng, 20_000, 0.12))  # the model uncertainty
    since = log_likelihoods(*labelled(rng, 5000, 0.12))
    changed = log_likelihoods(*labelled(rng, 5000, -0.4))
    assert process.log_evidence(since, before) < 0.0
    assert process.log_evidence(changed, before) > 20.0
    cuts = process.log_evidence(np.array([changed, since]), np.array([since, changed]))  # one stream, two points
    np.testing.assert_allclose(cuts, [process.log_evidence(changed, since), process.log_evidence(since, changed)])
    low, high = DriftProcess().interval(log_likelihoods(np.ones(400, bool), np.full(400, 0.001)))
    assert (low > 2.0, high) == (True, math.inf)  # a drift beyond the grid has an interval without end


def test_peak_and_estimates_are_those_of_the_likelihood():
    rng = np.random.default_rng(6)
    likelihood = log_likelihoods(*labelled(rng, 20_000, 0.4))
    found = peak(likelihood)
    assert found[0] == pytest.approx(0.4, abs=4 * found[1])
    mean, deviation = DriftProcess().estimate(likelihood)
    assert (mean, deviation) == (pytest.approx(found[0], abs=0.02), pytest.approx(found[1], rel=0.3))
    own = DriftProcess(spread=0.1).model_uncertainty(likelihood)
    narrow = 1 / math.sqrt(1 / found[1] ** 2 + 1 / 0.1**2)
    assert own[0] == pytest.approx(found[0] * (narrow / found[1]) ** 2, abs=0.02)
    assert peak(log_likelihoods(np.ones(50, bool), np.full(50, 0.01))) is None


def test_confidence_sequence_is_wrong_rarely_under_optional_stopping():
    rng, wrong = np.random.default_rng(4), 0
    for _ in range(60):
        sequence = ConfidenceSequence(-10.0, 10.0)
        for _ in range(20):
            values = rng.choice([-10.0, -1.0, 0.0, 1.0, 10.0], 300, p=[0.01, 0.05, 0.88, 0.05, 0.01])
            sequence = sequence.add(values)
            if sequence.decides():
                wrong += 1
                break
    assert wrong <= 0.05 * 60 + 3


def test_confidence_sequence_decides_its_interval_agrees_and_its_capital_has_mean_one():
    rng = np.random.default_rng(5)
    sequence = ConfidenceSequence(-5.0, 5.0).add(rng.choice([-1.0, 0.0, 5.0], 4000, p=[0.05, 0.9, 0.05]))
    low, high = sequence.interval()
    assert sequence.decides() == 1
    assert 0.0 < low < 0.2 < high
    for end, side in ((low, 1), (high, -1)):
        assert sequence.log_capital(end, side) == pytest.approx(math.log(40), abs=1e-6)
    parts = ConfidenceSequence(-5.0, 5.0).add(np.repeat(sequence.values, sequence.counts.astype(int)))
    assert parts.interval() == pytest.approx((low, high))
    assert ConfidenceSequence(0.0, 1.0).interval() == (0.0, 1.0)
    with pytest.raises(InvalidInput, match=r"must lie in \[0, 1\]"):
        ConfidenceSequence(0.0, 1.0).add([2.0])
    values, chance = np.array([-1.0, 0.0, 3.0]), np.array([0.3, 0.6, 0.1])
    for side in (1, -1):
        mean = [
            np.log(c) + ConfidenceSequence(-1.0, 3.0).add([v]).log_capital(0.0, side)
            for v, c in zip(values, chance, strict=True)
        ]
        assert logsumexp(mean) == pytest.approx(0.0, abs=1e-12)
