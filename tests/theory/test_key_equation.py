"""The key equation for K ≥ 2 classes, its balance solve and the law of class means: fits, hand sums, simulations."""

import dataclasses
import math
import re
import warnings
from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, fsum
from operator import attrgetter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import binom, chi2, kstest, norm

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory import key_equation as law
from crcen.theory.balance import BalanceRows, balance_shift, class_shifts, solve_balance
from crcen.theory.key_equation import judge_equations, key_equation, key_equation_of_logits, key_sums, without_test
from crcen.theory.limits import EQUATION_P
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, Price, resolve, sigmoid, softmax, weighted_probability
from example_rows import plain_residual, row_weights

BINARY = attrgetter("lhs", "rhs", "residual", "imbalance", "mean_pos", "mean_neg", "var_pos", "var_neg")
TRAINED = resolve(Budget(5), 100, 900)
PRIORS, WEIGHTS = np.array([0.75, 0.15, 0.07, 0.03]), np.array([1.0, 5.0, 12.0, 40.0])
LABELS = ["a", "b", "c"]
THREE = Price(np.array([1.0, 4.0, 12.0]), np.array([700.0, 200.0, 100.0]))


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
    assert (result.weighting.lam, result.rhs) == pytest.approx((made.lam, 1 / made.alpha), rel=1e-12)
    assert result.lhs == pytest.approx(1 / made.alpha, rel=1e-9)
    assert max(result.residual, result.imbalance) < 1e-12
    predicted = (result.predicted_mean_pos, result.predicted_mean_neg)
    assert predicted == pytest.approx((result.mean_pos, result.mean_neg), abs=1e-12)
    assert np.isnan([result.z, result.p_value]).all()
    assert f"not available: {result.z_reason}" in str(result)
    assert result.z_reason.startswith("these rows were balanced")


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
    assert BINARY(weighted) == pytest.approx(BINARY(copied), rel=1e-12)
    copies = np.where(y == 1, 4, 1)  # copies of minority rows replace the class weight
    weighted, copied = key_equation(y, q, CostRatio(4)), key_equation(np.repeat(y, copies), np.repeat(q, copies), None)
    assert BINARY(weighted) == pytest.approx(BINARY(copied), rel=1e-12)


def test_training_counts_travel_with_the_weighting():
    """Table 1: trained at 1:10, tested at 1:1; a law that holds by class means holds at any class ratio."""
    trained = resolve(Alpha(2), 1000, 10000)
    y = np.r_[np.ones(50), np.zeros(50)]
    result = key_equation(y, np.where(y == 1, 0.8, 0.4), trained)
    assert result.weighting is trained
    found = (result.lhs, result.rhs, result.residual, result.imbalance)
    assert found == pytest.approx((0.5, 0.5, 0, 0), abs=1e-15)
    assert key_equation(y, np.where(y == 1, 0.8, 0.4), Alpha(2)).weighting.n_neg == 50
    off = key_equation(y, np.where(y == 1, 0.7, 0.4), trained)
    lam, mu = 20 / 21, 1 / 21
    missed, alarmed = lam * 1000 * 0.3, mu * 10000 * 0.4
    assert len(str(off).splitlines()) == 8
    assert "right side      0.5" in str(off)
    shares = (missed - alarmed) / (lam * 1000 + mu * 10000), (missed - alarmed) / (missed + alarmed)
    assert (off.residual, off.imbalance) == pytest.approx(shares)


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
    rng, chance = np.random.default_rng(0), np.tile(p, 50)
    drawn = rng.random((100_000, 150)) < chance
    sums = (np.tile(s, 50) * np.where(drawn, 0.8 * (1 - np.tile(q, 50)), -0.2 * np.tile(q, 50))).sum(axis=1)
    assert many.p_value == pytest.approx(2 * (sums >= 50 * (total + 0.32) - 1e-9).mean(), rel=0.25)
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
    assert (np.abs([rejected - 0.05, z.mean(), z.var() - 1]) < [0.0225, 0.104, 0.16]).all()


@pytest.mark.parametrize(
    ("q", "lhs"), [([1.0, 1.0, 0.0], math.nan), ([0.0, 1.0, 0.0], math.inf), ([1.0, 1.0, 1.0], 0.0)]
)
def test_outputs_of_zero_and_one(q, lhs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = key_equation([1, 1, 0], q, None)
        text = str(result)
    assert (result.lhs, result.z) == pytest.approx((lhs, math.nan), nan_ok=True)
    assert "not available: every output is 0 or 1" in text
    wrong = sum(abs(a - b) for a, b in zip([1, 1, 0], q, strict=True))
    assert result.residual == pytest.approx(wrong / 3)
    assert result.imbalance == (1.0 if wrong else 0.0)
    q_pos = [1 - 1e-13 * k for k in (1, 3, 7, 11, 30)]  # one minus their mean would keep few digits
    exact = sum(1 - Fraction(q) for q in q_pos) / 5 / Fraction(1e-13)
    assert key_equation([1] * 5 + [0], [*q_pos, 1e-13], None).lhs == pytest.approx(float(exact), rel=1e-14)


@pytest.mark.parametrize("n_surprises", range(1, 9))
def test_a_few_surprises_of_a_sure_model_are_judged_by_their_count(n_surprises):
    """300 rows at a probability of .001: the count of positives among them is binomial, and far from normal."""
    p = np.append(np.full(300, 0.001), np.full(100, 1 - 1e-9))
    y = np.arange(400) >= 300
    y[:n_surprises] = True
    found = key_equation(y, p, None)
    exact = binom.sf(n_surprises - 1, 300, 0.001)
    assert exact / 2 < found.p_value < 2 * exact
    if n_surprises > 2:
        assert 2 * norm.sf(found.z) < exact / 100  # what the normal tail would have said
    assert (found.p_value < 0.001) == (n_surprises >= 4)  # and a wrong model is still found out


# -- K classes -------------------------------------------------------------------------------------------------------


def draw(n, seed, priors=PRIORS):
    """Classes with equal covariances, and their true posteriors."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(0, 1.2, (len(priors), 4))
    y = np.append(np.arange(len(priors)), rng.choice(len(priors), n - len(priors), p=priors))
    X = centres[y] + rng.normal(size=(n, 4))
    return y, softmax(-0.5 * ((X[:, None] - centres) ** 2).sum(2) + np.log(priors))


def drawn(n, seed, drift=(0.0, 0.0, 0.0)):
    """Natural probabilities that a model states, and labels from probabilities that drifted from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([4.0, 1.0, 0.4], size=n)
    truth = p * np.exp(drift)
    truth /= truth.sum(axis=1, keepdims=True)
    return (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1), p


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_balanced_rows_keep_the_law_of_k_classes(seed):
    rng = np.random.default_rng(seed)
    y, logits = np.append(np.arange(4), rng.integers(0, 4, 40)), rng.normal(size=(44, 4))
    w = 10.0 ** rng.uniform(-6, 6, 4)
    found = key_equation_of_logits(y, logits + class_shifts(y, logits, w, None), w)
    assert (found.residual, found.residuals.sum()) == pytest.approx((0.0, 0.0), abs=1e-12)
    pi, m, d = found.shares, found.confusion, found.discrimination
    assert pi @ m == pytest.approx(pi, abs=1e-12)
    assert np.diag(m) == pytest.approx(pi + (1 - pi) * d, abs=1e-12)
    assert found.equations.reason.startswith("these rows were balanced")


@pytest.mark.parametrize("positive", [0, 1])
def test_columns_of_two_classes_are_the_binary_equation(positive):
    rng = np.random.default_rng(0)
    y, q, s = np.append([0, 1], rng.integers(0, 2, 200)), rng.random(202), rng.random(202) + 0.1
    binary = key_equation(y, q, CostRatio(7.0), s)
    columns = np.column_stack([1 - q, q] if positive else [q, 1 - q])
    counts = [s[y == 0].sum(), s[y == 1].sum()][:: 1 if positive else -1]
    price = Price([1.0, 7.0] if positive else [7.0, 1.0], counts, None, positive)
    found = key_equation(y if positive else 1 - y, columns, price, s)
    assert (*BINARY(found), found.z, found.p_value) == pytest.approx((*BINARY(binary), binary.z, binary.p_value))
    by_columns = (found.equations.statistic, found.confusion[positive, positive])
    assert by_columns == pytest.approx((binary.z**2, binary.mean_pos), rel=1e-9)
    assert str(found) == str(binary)


def test_one_against_all_is_a_special_case():
    """Li, Li, Pan and Zhu (2020): merging all classes but one gives that class's binary equation."""
    y, p = draw(2000, 1)
    w = np.array([1.0, 1.0, 1.0, 30.0])  # one weight for all of the rest
    q = Price(w, np.bincount(y)).weighted(p)
    found = key_equation(y, q, w)
    binary = key_equation((y == 3).astype(int), q[:, 3], CostRatio(30.0))
    assert found.lhs[3] / found.rhs[3] == pytest.approx(binary.lhs * binary.weighting.alpha, rel=1e-9)


def test_tests_of_k_classes_have_their_size_for_the_true_posterior():
    ps = []
    for seed in range(400):
        y, p = draw(1500, seed)
        found = key_equation(y, Price(WEIGHTS, np.bincount(y)).weighted(p), WEIGHTS)
        assert (found.equations.degrees, found.pairs.degrees) == (3, 6)
        ps.append([found.equations.p_value, found.pairs.p_value])
    for values in np.transpose(ps):
        assert kstest(values, "uniform").pvalue > 1e-3
        assert 0.02 <= np.mean(values < 0.05) <= 0.085


def test_a_drift_is_found_and_read_off_the_pairs():
    y, p = draw(40_000, 0)
    drift = np.array([0.0, 0.4, -0.3, 0.8])
    truth = softmax(np.log(p) + drift)
    y = np.minimum((truth.cumsum(1) < np.random.default_rng(1).random((len(y), 1))).sum(1), 3)
    price = Price(WEIGHTS, np.bincount(y))
    found = key_equation(y, price.weighted(p), WEIGHTS)
    assert found.equations.p_value < 1e-6
    assert np.log(found.flows / found.flows.T).mean(axis=1) == pytest.approx(drift - drift.mean(), abs=0.12)
    assert key_equation(y, price.weighted(truth), WEIGHTS).pairs.p_value > 1e-3
    assert re.search("worst.*degrees of freedom", found.table(["none", "mild", "bad", "worst"]), re.DOTALL)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_sums_of_parts_add_up_to_those_of_all_rows(n_classes):
    y, p = draw(900, 3, PRIORS[:n_classes] / PRIORS[:n_classes].sum())
    price = Price(WEIGHTS[:n_classes], np.bincount(y), None, 1 if n_classes == 2 else None)
    s = np.random.default_rng(0).uniform(0.5, 2.0, 900)
    q = price.weighted(p)
    whole = key_equation(y, q, price, s)
    parts = [key_sums(y[own], q[own], s[own], price) for own in np.array_split(np.arange(900), 5)]
    found = sum(parts[1:], parts[0]).key_equation(price)
    np.testing.assert_allclose(found.flows, whole.flows, rtol=1e-12)
    np.testing.assert_allclose(found.variances, whole.variances, rtol=1e-10)
    for name in ("equations", "pairs"):
        # Sums have the normal tail, rows a better one.
        assert getattr(found, name).p_value == pytest.approx(getattr(whole, name).p_value, rel=0.1)
    assert found.z == pytest.approx(whole.z, rel=1e-10, nan_ok=True)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_without_a_test_only_the_test_goes(n_classes):
    y, p = draw(400, 1, PRIORS[:n_classes] / PRIORS[:n_classes].sum())
    given_one = key_equation(y, p, None)
    shown = without_test(given_one, "for a reason")
    assert math.isfinite(given_one.p_value)
    assert np.isnan([shown.p_value, shown.z]).all()
    assert "not available: for a reason" in str(shown)
    kept = [f.name for f in dataclasses.fields(given_one) if f.name not in ("z", "equations", "pairs")]
    assert all(np.array_equal(getattr(shown, name), getattr(given_one, name)) for name in kept)


# -- tested for a fitted model ---------------------------------------------------------------------------------------


def judge(y, p, trained, **settings):
    """Two classes, the second of them positive, from its probability."""
    return judge_equations(np.asarray(y, int), np.column_stack([1 - np.asarray(p), p]), trained, **settings)


def test_the_equation_is_tested_with_the_models_error():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 4000)
    y = rng.random(4000) < p
    equation = key_equation(y, weighted_probability(p, TRAINED), TRAINED)
    test = judge(y, p, TRAINED, noise=4.0)
    assert test.z == pytest.approx(equation.z / 2, rel=1e-9)
    assert (test.p_value, test.verdict) == (pytest.approx(2 * norm.sf(abs(test.z)), rel=0.05), "holds")
    off = judge(y, p / 2, TRAINED, noise=1.0)
    assert off.verdict == off.to_dict()["verdict"] == "does not hold"
    assert off.p_value < EQUATION_P
    none = judge([0, 1], [0.0, 1.0], TRAINED)
    assert (none.verdict, none.to_dict()["p_value"]) == ("not tested", None)
    p, y = np.append(np.full(300, 0.001), np.full(100, 1 - 1e-9)), np.arange(400) >= 298  # a lopsided residual
    known, allowed = (judge(y, p, resolve(None, 100, 300), noise=noise) for noise in (1.0, 1.1))
    assert allowed.p_value > known.p_value > 10 * 2 * norm.sf(known.z)


def test_what_fails_says_in_which_direction_as_its_sides_show():
    """Half of the negatives left out: class means stay as they are, and there are more positives than stated."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 8000)
    y = rng.random(8000) < p
    kept = y | (rng.random(8000) < 0.5)
    test = judge(y[kept], p[kept], TRAINED, noise=1.0)
    c, y_kept = TRAINED.cost_ratio, y[kept]
    q = c * p[kept] / (c * p[kept] + 1 - p[kept])
    assert test.lhs / test.rhs == pytest.approx(c * (1 - q[y_kept]).sum() / q[~y_kept].sum())  # as the README has it
    assert test.lhs > 1.5 * test.rhs
    assert str(test).endswith(": more positives than the probabilities say")
    test = judge(y, np.sqrt(p), TRAINED, noise=1.0)
    assert str(test).endswith(": fewer positives than the probabilities say")


def test_few_rows_of_a_class_are_not_tested():
    few = judge([0, 1, 1], [0.3, 0.2, 0.1], TRAINED, noise=1.0)
    assert few.verdict == "not tested"
    assert "too few" in str(few)
    assert "p-value" in str(judge([0, 1] * 20, [0.3, 0.2] * 20, TRAINED, noise=1.0))
    y, p = drawn(500, 2)
    keep = np.concatenate([np.flatnonzero(y < 2), np.flatnonzero(y == 2)[:5]])
    judged = judge_equations(y[keep], p[keep], THREE, LABELS)
    assert [one.is_tested for one in judged.classes] == [True, True, False]
    assert {one.first for one in judged.class_pairs} | {one.second for one in judged.class_pairs} == {"a", "b"}
    assert "too few to test" in "\n".join(judged.lines())
    none = judge_equations(y[:9], p[:9], THREE, LABELS)
    assert (none.verdict, none.to_dict()["joint"]["p_value"]) == ("not tested", None)


def test_judged_equations_have_the_statistics_of_the_key_equation_and_show_a_drift():
    y, p = drawn(500, 0)
    judged = judge_equations(y, p, THREE, LABELS, noise=1.7)
    known = key_equation(y, THREE.weighted(p), THREE)
    for one, other in ((judged.equations, known.equations), (judged.pairs, known.pairs)):
        assert (one.statistic, one.degrees) == pytest.approx((other.statistic / 1.7, other.degrees))
    flows = np.transpose([[one.flows_out, one.flows_in] for one in judged.classes])
    np.testing.assert_allclose(flows, [known.lhs, known.rhs])
    drifts, z = np.transpose([[one.drift, one.z] for one in judged.classes])
    np.testing.assert_allclose(drifts, np.log(known.lhs / known.rhs))
    assert (np.sign(drifts) == np.sign(z)).all()
    judged = judge_equations(*drawn(20_000, 1, drift=(0.0, 0.0, 0.6)), THREE, LABELS, noise=1.0)
    assert judged.verdict == "does not hold"
    first = judged.class_pairs[0]
    assert "c" in (first.first, first.second)
    assert [abs(first.drift), judged.classes[2].drift] == pytest.approx([0.6, 0.6], abs=0.1)
    assert "c against" in "\n".join(judged.lines())


@pytest.mark.parametrize("is_stratified", [False, True])
def test_a_p_value_that_is_not_that_of_the_statistic_names_its_method(is_stratified):
    rows = drawn(500, 0, drift=(0.0, 0.0, 0.15))
    judged = judge_equations(*rows, THREE, LABELS, noise=1.0, is_stratified=is_stratified)
    test, by_class = judged.equations, 6.0 * norm.sf(max(abs(one.z) for one in judged.classes))
    assert (test.p_value == pytest.approx(by_class, rel=0.15)) == is_stratified  # Holm's of three
    assert (test.p_value == pytest.approx(chi2.sf(test.statistic, 2))) == (not is_stratified)
    assert str(test).endswith("(smallest of the classes, adjusted by Holm)") == is_stratified


def test_judged_weights_are_copies_and_their_unit_does_not_matter():
    y, p = drawn(300, 3)
    again = np.concatenate([np.arange(300), np.flatnonzero(y == 1)])
    weighted = judge_equations(y, p, THREE, LABELS, np.where(y == 1, 2.0, 1.0))
    copied = judge_equations(y[again], p[again], THREE, LABELS)
    np.testing.assert_allclose([one.flows_out for one in weighted.classes], [one.flows_out for one in copied.classes])
    assert copied.noise == pytest.approx(1 + 2 * len(again) / 1000)
    s = np.random.default_rng(0).uniform(0.5, 1.5, 300)
    one, other = (judge_equations(y, p, THREE, LABELS, unit * s) for unit in (1.0, 2000.0))
    assert one.noise == pytest.approx(1 + 2 * s.sum() ** 2 / (s**2).sum() / THREE.counts.sum())
    assert (other.noise, other.p_value) == pytest.approx((one.noise, one.p_value))


def test_copies_of_rows_in_clusters_are_no_evidence_on_classes_or_pairs():
    rng = np.random.default_rng(4)
    p = softmax(rng.normal(size=(1500, 3)) + np.log([0.7, 0.2, 0.1]))
    y = (p.cumsum(axis=1) < rng.random((1500, 1))).sum(axis=1)
    one = judge_equations(y, p, THREE, LABELS, noise=1.0)
    copied = judge_equations(np.tile(y, 9), np.tile(p, (9, 1)), THREE, LABELS, noise=1.0)
    copies = {"clusters": np.tile(np.arange(1500), 9)}
    found = judge_equations(np.tile(y, 9), np.tile(p, (9, 1)), THREE, LABELS, noise=1.0, **copies)
    assert [each.z for each in copied.classes] == pytest.approx([3 * each.z for each in one.classes])
    assert [each.z for each in found.classes] == pytest.approx([each.z for each in one.classes], rel=0.15)
    assert (found.class_pairs, found.to_dict()["joint_pairs"]["p_value"]) == ((), None)
    assert "not tested for rows in clusters" in str(found)


PLAIN = resolve(None, 1000, 10000)
alphas = st.floats(0.01, 100.0)


def test_class_means_of_plain_training_of_constants_and_of_copies():
    assert law.mean_bounds(PLAIN) == pytest.approx((0.0, 0.1))
    np.testing.assert_allclose(law.mean_pos_given([0.08, 0.04], PLAIN), [0.2, 0.6])
    # At D = 0 the law gives the weighted share of the positives, what an intercept alone would fit.
    made = resolve(CostRatio(3), 20, 100)
    share = 3 * 20 / (3 * 20 + 100)
    assert law.class_means(0.0, made) == pytest.approx((share, share))
    assert [law.copies_per_positive(w) for w in (None, Lam(0.75), CostRatio(5), Budget(6))] == pytest.approx(
        [1, 3, 5, 6]
    )
    assert law.copies_per_positive(resolve("balanced", 100, 1000)) == pytest.approx(10)
    for call, words in (
        (lambda: law.copies_per_positive("balanced"), "class counts are needed"),
        (lambda: key_equation([1, 0], [0.5, 0.5], 3.0), "did you mean Alpha"),
    ):
        with pytest.raises(InvalidParameter, match=words):
            call()


@pytest.mark.parametrize("weighting", [Alpha(2), resolve(Alpha(2), 1000, 10000), resolve(Lam(20 / 21), 1000, 10000)])
def test_alpha_one_and_two(weighting):
    for mean_neg in (0.0, 0.1, 0.45, 1.0):
        assert law.mean_pos_given(mean_neg, "balanced") == pytest.approx(1 - mean_neg)
    assert law.mean_bounds("balanced") == law.mean_bounds(Alpha(1)) == (0.0, 1.0)
    assert law.mean_bounds(weighting) == pytest.approx((0.5, 1.0))
    assert law.mean_pos_given(0.4, weighting) == pytest.approx(0.8)


@given(st.floats(0, 1), alphas)
def test_the_law_solves_the_key_equation(discrimination, alpha):
    mean_pos, mean_neg = law.class_means(discrimination, Alpha(alpha))
    assert (mean_pos - mean_neg, 1 - mean_pos) == pytest.approx((discrimination, mean_neg / alpha), abs=1e-12)
    r = 1 / alpha
    by_hand = ((1 + r * discrimination) / (1 + r), (1 - discrimination) / (1 + r))
    assert (mean_pos, mean_neg) == pytest.approx(by_hand, rel=1e-12, abs=1e-15)
    bounds = law.mean_bounds(Alpha(alpha))
    assert mean_pos >= bounds.min_mean_pos - 1e-12
    assert mean_neg <= bounds.max_mean_neg + 1e-12
    assert law.mean_pos_given(mean_neg, Alpha(alpha)) == pytest.approx(mean_pos, abs=1e-12)  # given one, find the other
    assert law.means_by_law(discrimination, alpha) == (mean_pos, mean_neg)
    assert law.mean_pos_given(bounds.max_mean_neg, Alpha(alpha)) == pytest.approx(bounds.min_mean_pos, abs=1e-12)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: key_equation([1, 0], [0.5], None), r"q must have one value for each of the 2 rows, got \(1,\)"),
        (lambda: key_equation([1, 0], [[0.5, 0.5]], None), r"one row for each label: got 1 for 2|got shape \(1, 2\)"),
        (lambda: key_equation([1, 0], [0.5, 1.5], None), "are these logits"),
        (lambda: key_equation([1, 1], [0.5, 0.5], None), "no negative row"),
        (lambda: key_equation([0, 0], [0.5, 0.5], None), "no positive row"),
        (lambda: key_equation([1, 0], [0.5, 0.5], None, [1, 0]), "1 negative rows of weight 0"),
        (lambda: key_equation([1, 2], [0.5, 0.5], None), "labels 1, 2"),
        (lambda: key_equation([0, 1, 1], np.full((3, 3), 1 / 3), None), "class 2 has none"),
        (lambda: key_equation([0, 1], [[0.5, 0.6], [0.5, 0.5]], None), "sum 1"),
        *((lambda y=y: balance_shift(y, [0.0, 1.0, 2.0], None), "both classes") for y in ([0, 0, 0], [1, 1, 1])),
        (lambda: balance_shift([1, 0, 0], [0.0, 1.0, 2.0], None, [0.0, 1.0, 1.0]), "both classes"),
        *((lambda o=o: balance_shift([1, 0, 0], [0.0, o, 2.0], None), "finite") for o in (np.nan, -np.inf)),
        *((lambda o=o: balance_shift([1, 0, 0], o, None), "shape") for o in ([0.0, 1.0], 1.0)),
        (lambda: balance_shift([1, 0, 0], [0.0, 1.0, 2.0], None, [1.0, 1.0]), "sample_weight"),
        (lambda: balance_shift([0, 1, 0], np.zeros((3, 3)), None), "class 2 has none"),
        (lambda: balance_shift([0, 1], np.zeros((3, 3)), None), "one row for each label"),
        (lambda: balance_shift([0, 1], [[0.0, np.inf], [0.0, 0.0]], None), "must be finite"),
        (lambda: law.mean_pos_given(0.2, PLAIN), r"mean_pos at α = 0\.1 must lie in \[0, 1\], .* gives -1"),
        (lambda: law.mean_pos_given(0.2, Alpha(1e-308)), "mean_pos at α"),
        (lambda: law.mean_pos_given([0.1, 0.3], PLAIN), "gives -2"),
        (lambda: law.mean_pos_given(1.2, Alpha(2)), r"mean_neg must lie in \[0, 1\]"),
        (lambda: law.class_means(1.5, Alpha(2)), r"in \[-1, 1\], got 1\.5"),
        (lambda: law.class_means(float("nan"), Alpha(2)), "got nan"),
        (lambda: law.class_means(-0.5, Alpha(0.1)), r"mean_pos at discrimination -0\.5 and α = 0\.1"),
        (lambda: law.class_means(-0.9, Alpha(10)), r"mean_neg at discrimination -0\.9 and α = 10"),
        (lambda: law.recall_bound(1.2, 0.1), "mean_pos must lie"),
        (lambda: law.recall_bound(0.7, -0.1), "var_pos must be finite and not negative, got -0.1"),
        (lambda: law.recall_bound(0.7, 0.1, threshold=2), "threshold must lie"),
        (lambda: law.specificity_bound(0.2, [0.1, float("nan")]), "var_neg must be finite and not negative, got nan"),
        (lambda: law.specificity_bound(-0.2, 0.1), "mean_neg must lie"),
    ],
)
def test_refused(call, words):
    with pytest.raises(InvalidInput, match=words):
        call()


def test_cantelli_by_hand():
    assert type(law.recall_bound(0.8, 0.03)) is type(law.mean_pos_given(0.04, PLAIN)) is float
    bounds = law.recall_bound(0.8, 0.03), law.specificity_bound(0.1, 0.04), law.recall_bound(0.8, 0.03, threshold=0.6)
    assert bounds == pytest.approx((1 - 0.03 / (0.03 + 0.09), 1 - 0.04 / (0.04 + 0.16), 0.04 / 0.07))
    np.testing.assert_array_equal(law.recall_bound([0.8, 0.5, 0.4, 0.4], [0.0, 0.0, 0.0, 0.1]), [1, 0, 0, 0])
    assert law.specificity_bound(0.5, 0.0) == law.specificity_bound(0.6, 0.1) == 0.0
    np.testing.assert_allclose(law.recall_bound([0.8, 0.3], [0.03, 0.03]), [0.75, 0.0])
    np.testing.assert_allclose(law.specificity_bound([0.2, 0.7], 0.03), [0.75, 0.0])


@given(st.floats(0.01, 0.98), st.floats(0.01, 0.98))
def test_cantelli_is_sharp_for_two_points(threshold, share):
    """A two-point law with its lower point at the threshold attains the bound."""
    low, high = threshold, 1.0
    mean = share * high + (1 - share) * low
    variance = share * (1 - share) * (high - low) ** 2
    assert law.recall_bound(mean, variance, threshold) == pytest.approx(share, abs=1e-9)
    # The mirror image of the same law about ½.
    assert law.specificity_bound(1 - mean, variance, 1 - threshold) == pytest.approx(share, abs=1e-9)


BETA = np.array([-3.0, 1.4, -1.0])


def regression_rows(rng, n):
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


def test_weighting_is_never_more_precise_and_fits_vary_as_the_sandwich_says():
    X, _ = regression_rows(np.random.default_rng(0), 50_000)
    for cost in (3.0, 10.0, 40.0):
        plain, weighted = covariance(X, 1.0), covariance(X, cost)
        assert np.linalg.eigvalsh(weighted - plain).min() > -1e-9 * np.trace(plain)  # Gauss and Markov
        assert np.trace(covariance(X, np.sqrt(cost))) < np.trace(weighted)
    rng = np.random.default_rng(1)
    n, cost = 2000, 10.0
    fitted = np.array([[fit(X, y, c) for c in (1.0, cost)] for X, y in (regression_rows(rng, n) for _ in range(500))])
    X, _ = regression_rows(rng, 200_000)
    at_price = X[np.abs(X @ BETA + np.log(cost)) < 0.1][:2000]  # rows at the threshold p = 1 / (1 + c)
    spread = [float(np.mean(np.var(fitted[:, way] @ at_price.T, axis=0))) for way in (0, 1)]
    theory = [float(np.mean(np.einsum("ij,jk,ik->i", at_price, covariance(X, c), at_price))) / n for c in (1.0, cost)]
    assert theory[1] > 1.05 * theory[0]
    np.testing.assert_allclose(spread, theory, rtol=0.2)
    assert spread[1] / spread[0] == pytest.approx(theory[1] / theory[0], rel=0.1)


LAMS = [0.01, 0.1, 0.5, 0.9, 0.99, 0.999]


def two_point_root(pos_weight, neg_weight, pos_logit, neg_logit):
    """The exact shift where each class has one logit, with 60 digits.

    P σ(−(a+d)) = N σ(b+d) with t = e^d is the quadratic N e^a t² + (N − P) t − P e^(−b) = 0, which has one root t > 0.
    """
    with localcontext() as context:
        context.prec = 900
        P, N, a, b = (Decimal(float(v)) for v in (pos_weight, neg_weight, pos_logit, neg_logit))
        square, linear, constant = N * a.exp(), N - P, -P * (-b).exp()
        root = (linear * linear - 4 * square * constant).sqrt()
        t = (-linear + root) / (2 * square) if linear <= 0 else -2 * constant / (linear + root)
        return float(t.ln())


@pytest.mark.parametrize("lam", LAMS)
@pytest.mark.parametrize("logits", [(-40, 40), (40, -40), (40, 40), (-40, -40), (0, 0), (-800, 800), (3, -2)])
def test_two_point_logits_match_the_closed_form(logits, lam):
    n_pos, n_neg = 3, 11
    y = np.r_[np.ones(n_pos), np.zeros(n_neg)]
    values = np.where(y == 1, *map(float, logits))
    shift = balance_shift(y, values, lam)
    assert shift == pytest.approx(two_point_root(n_pos * lam, n_neg * (1 - lam), *logits), abs=1e-12 * (1 + 800))
    assert plain_residual(y, values + shift, row_weights(y, lam)) <= 1e-12


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lam", LAMS)
def test_shift_is_the_root_that_brentq_finds(lam, weighted):
    rng = np.random.default_rng(7)
    y = rng.random(150) < 0.2
    logits = 4 * rng.normal(size=150) - 2
    s = rng.exponential(size=150) if weighted else np.ones(150)
    w = row_weights(y, lam, s)

    def residual(d):
        return fsum(
            wi / (1 + exp(a + d)) if positive else -wi / (1 + exp(-a - d))
            for wi, a, positive in zip(w, logits, y, strict=True)
        )

    root = brentq(residual, -60, 60, xtol=1e-14, rtol=1e-15)
    assert balance_shift(y, logits, lam, s) == pytest.approx(root, abs=1e-11)


def test_specs_are_resolved_on_the_rows_and_resolved_weightings_kept():
    y = np.array([1, 1, 0, 0, 0, 0, 0, 0])
    logits = np.linspace(-2, 3, 8)
    s = np.array([1.0, 3.0, 1, 1, 1, 1, 2, 2])
    assert balance_shift(y, logits, "balanced") == balance_shift(y, logits, Alpha(1.0))
    assert balance_shift(y, logits, "balanced") == pytest.approx(balance_shift(y, logits, 0.75), abs=1e-14)
    assert balance_shift(y, logits, CostRatio(9.0)) == pytest.approx(balance_shift(y, logits, 0.9), abs=1e-14)
    assert balance_shift(y, logits, None) == balance_shift(y, logits, 0.5)
    # Weighted counts are 4 and 8, so α = 1 is a cost ratio of 2.
    assert balance_shift(y, logits, "balanced", s) == pytest.approx(balance_shift(y, logits, 2 / 3, s), abs=1e-14)
    kept = Price.binary(0.2, 100.0, 100.0)
    assert balance_shift(y, logits, kept) == balance_shift(y, logits, 0.2)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.floats(-700, 700), st.floats(1e-3, 1e3)), min_size=0, max_size=25),
    st.floats(-700, 700),
    st.floats(-700, 700),
    st.floats(0.01, 0.999),
)
def test_residual_is_at_most_1e_12(rows, one_pos, one_neg, lam):
    rows = [(True, one_pos, 1.0), (False, one_neg, 1.0), *rows]
    y, logits, s = (np.array(column) for column in zip(*rows, strict=True))
    shift = balance_shift(y, logits, lam, s)
    assert np.isfinite(shift)
    assert plain_residual(y, logits + shift, row_weights(y, lam, s)) <= 1e-12


# -- K classes -------------------------------------------------------------------------------------------------------


def hard_case(seed, kind, n_classes=None):
    rng = np.random.default_rng(seed)
    k = int(rng.integers(2, 7)) if n_classes is None else n_classes
    n = int(rng.integers(k, 60 + k))
    y = np.append(np.arange(k), rng.integers(0, k, n - k))
    o = rng.normal(size=(n, k))
    own = np.eye(k)[y]
    o = {
        "plain": o,
        "right": o + 40 * own,
        "wrong": o - 40 * own,
        "far": 300 * o,
        "pairs": o + 500 * (np.arange(k) // 2 == (y // 2)[:, None]),
        "shifted": o + rng.normal(0, 200, k),
    }[kind]
    return y, o, 10.0 ** rng.uniform(-6, 6, k)


@pytest.mark.parametrize("kind", ["plain", "right", "wrong", "far", "pairs", "shifted"])
@pytest.mark.parametrize("seed", range(25))
def test_hard_cases_are_solved(kind, seed):
    y, o, w = hard_case(seed, kind)
    shifts = balance_shift(y, o, w)
    a = w[y][:, None]
    residual = (a * (np.eye(o.shape[1])[y] - softmax(o + shifts))).sum(0)
    assert np.abs(residual).max() <= 1e-12 * a.sum()
    assert shifts.mean() == pytest.approx(0.0, abs=1e-12 * np.abs(shifts).max())


@pytest.mark.parametrize("n_classes", [2, 4, 100])
def test_rows_in_parts_are_solved_as_all_rows(n_classes):
    rng = np.random.default_rng(0)
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, 100))
    logits = rng.normal(size=(len(y), n_classes))
    logs = np.log(rng.uniform(0.1, 3.0, len(y)))
    cuts = [slice(0, 30), slice(30, 31), slice(31, None)]
    parts = solve_balance(BalanceRows(lambda: [(logits[one], y[one], logs[one]) for one in cuts], n_classes))
    whole = class_shifts(y, logits, np.ones(n_classes), np.exp(logs))
    np.testing.assert_allclose(parts - parts.mean(), whole, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_columns_of_two_classes_are_the_binary_solve(seed):
    rng = np.random.default_rng(seed)
    y = np.append([0, 1], rng.integers(0, 2, 40))
    o, c, s = rng.normal(0, 10 ** rng.uniform(-2, 2.5), (42, 2)), 10 ** rng.uniform(-3, 3), rng.random(42) + 0.1
    binary = balance_shift(y, o[:, 1] - o[:, 0], CostRatio(c), s)
    assert np.diff(balance_shift(y, o, [1.0, c], s))[0] == pytest.approx(binary, rel=1e-11, abs=1e-11)


def test_weights_of_rows_are_copies_and_order_does_not_matter():
    y, o, w = hard_case(3, "plain", 4)
    copies = np.random.default_rng(0).integers(1, 4, len(y))
    one = class_shifts(y, o, w, copies)
    rng = np.random.default_rng(6)
    target, logits, k = rng.random(40) < 0.4, 3 * rng.normal(size=40), rng.integers(0, 4, 40)  # 0 is absence
    copied = balance_shift(np.repeat(target, k), np.repeat(logits, k), "balanced")
    assert balance_shift(target, logits, "balanced", k) == pytest.approx(copied, abs=1e-12)
    assert one == pytest.approx(class_shifts(np.repeat(y, copies), np.repeat(o, copies, 0), w, None), abs=1e-9)
    assert one == pytest.approx(class_shifts(y[::-1], o[::-1], w, copies[::-1]), abs=1e-9)
