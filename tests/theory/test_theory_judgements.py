"""The shared verdicts against other libraries and against simulation under the truth."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from crcen import Budget, CostRatio, expense_table, key_equation, resolve
from crcen.theory.decision import weighted_probability
from crcen.theory.judgements import (
    EQUATION_P,
    EXPENSE_Z,
    SHARE_Z,
    count_chance,
    fitted_model_noise,
    is_dominated,
    is_nearly_separated,
    judge_equation,
    judge_share,
    judge_step,
)

TRAINED = resolve(Budget(5), 100, 900)


def test_the_noise_of_a_fitted_model():
    assert fitted_model_noise(1000, TRAINED) == pytest.approx(3.0)
    assert fitted_model_noise(0, TRAINED) == 1.0


def test_the_equation_is_tested_with_the_models_own_error():
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 4000)
    y = rng.random(4000) < p
    q = weighted_probability(p, TRAINED)
    equation = key_equation(y, q, TRAINED)
    test = judge_equation(equation, 4.0)
    assert test.z == pytest.approx(equation.z / 2)
    assert test.p_value == pytest.approx(2 * norm.sf(abs(test.z)))
    assert test.verdict == "holds"
    off = judge_equation(key_equation(y, weighted_probability(p / 2, TRAINED), TRAINED))
    assert off.verdict == "does not hold"
    assert off.p_value < EQUATION_P
    assert off.to_dict()["verdict"] == off.verdict


def test_what_fails_says_in_which_direction_also_where_the_sides_agree():
    """Half of the negatives left out: class means stay as they are, and there are more positives than stated."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 8000)
    y = rng.random(8000) < p
    kept = y | (rng.random(8000) < 0.5)
    test = judge_equation(key_equation(y[kept], weighted_probability(p[kept], TRAINED), TRAINED))
    assert test.equation.lhs == pytest.approx(test.equation.rhs, rel=0.1)
    assert str(test).endswith(
        ": more positives than the probabilities say, which the sides do not show, as they take the share of positives "
        "from training"
    )
    test = judge_equation(key_equation(y, weighted_probability(np.sqrt(p), TRAINED), TRAINED))
    assert str(test).endswith(": fewer positives than the probabilities say")


def test_the_bound_of_a_lopsided_residual_outlives_the_allowance():
    p = np.append(np.full(300, 0.001), np.full(100, 1 - 1e-9))
    y = np.arange(400) >= 298
    equation = key_equation(y, p, None)
    assert judge_equation(equation, 1.1).p_value == equation.p_value > 100 * 2 * norm.sf(equation.z)


def test_without_a_test_there_is_no_verdict():
    test = judge_equation(key_equation([0, 1], [0.0, 1.0], TRAINED))
    assert test.verdict == "not tested"
    assert test.to_dict()["p_value"] is None


def test_the_share_is_that_of_two_proportions():
    """z of the pooled two-proportion test, written out."""
    test = judge_share(160, 840, TRAINED)
    pooled = 260 / 2000
    assert test.z == pytest.approx(0.06 / math.sqrt(pooled * (1 - pooled) * 2 / 1000))
    assert not test.has_moved  # 3.9 standard deviations
    assert judge_share(170, 830, TRAINED).z > SHARE_Z
    assert judge_share(170, 830, TRAINED).has_moved
    large = resolve(Budget(5), 1e6, 9e6)
    assert abs(judge_share(1.1e6, 8.9e6, large).z) > SHARE_Z
    assert not judge_share(1.1e6, 8.9e6, large).has_moved  # a factor of 1.1 matters to nobody


def step(catches, false_alarms, low=4.0, high=9.0):
    return expense_table([CostRatio(low), CostRatio(high)], [catches, 0], [0, false_alarms]).steps[0]


def test_a_step_counts_standard_deviations_outside_its_bracket():
    """Between 4 and 9 a share of 0.1 to 0.2 of the rows that flip is positive."""
    assert judge_step(step(150, 850)).z == 0.0
    assert judge_step(step(260, 740)).z == pytest.approx((260 - 200) / math.sqrt(1000 * 0.2 * 0.8))
    assert judge_step(step(40, 960)).z == pytest.approx((40 - 100) / math.sqrt(1000 * 0.1 * 0.9))
    assert judge_step(step(40, 960), noise=4.0).z == pytest.approx((40 - 100) / math.sqrt(1000 * 0.1 * 0.9) / 2)
    assert math.isnan(judge_step(step(5, 10)).z)
    assert math.isnan(judge_step(step(0, 0)).z)


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ((150, 850), "inside its bracket"),
        ((215, 785), "below its bracket, within chance"),
        ((300, 700), "too low"),
        ((0, 1000), "too high"),
        ((3, 2), "too few decisions change"),
        ((0, 0), "no decision changes"),
    ],
)
def test_a_step_says_so_in_words(counts, words):
    assert words in judge_step(step(*counts)).sentence


def test_right_probabilities_are_seldom_accused():
    rng, accused = np.random.default_rng(1), 0
    for _ in range(400):
        p = rng.uniform(0.1, 0.2, 800)
        catches = int((rng.random(800) < p).sum())
        accused += abs(judge_step(step(catches, 800 - catches)).z) > EXPENSE_Z
    assert accused == 0


def test_limits_of_what_is_too_good():
    assert is_nearly_separated(1.0)
    assert not is_nearly_separated(0.9989)
    assert is_dominated(0.9, 0.05, 0.2)
    assert not is_dominated(0.9, 0.11, 0.2)  # strong and honest: half of the log loss is left
    assert not is_dominated(0.5, 0.01, 0.2)


@pytest.mark.parametrize(("n", "p"), [(2000, 0.0005), (2000, 0.01), (2000, 0.3), (50, 0.03)])
def test_the_chance_of_a_count_is_never_understated_by_much(n, p):
    """Against the exact binomial tail: a bound from above, and no more than a hundred times it far out."""
    expected = n * p
    for observed in range(0, min(n, int(expected + 12 * math.sqrt(expected) + 5)) + 1):
        tail = binom.sf(observed - 1, n, p) if observed > expected else binom.cdf(observed, n, p)
        assert count_chance(observed, expected, n * p * (1 - p)) >= 0.9 * tail
    far = int(expected + 6 * math.sqrt(expected)) + 1
    assert count_chance(far, expected, n * p * (1 - p)) < 100 * binom.sf(far - 1, n, p)


def test_one_event_where_few_were_expected_is_no_proof():
    assert count_chance(1, 0.00065) > 1e-3
    assert count_chance(0, 0.5) > 0.5
    assert count_chance(50, 0.01) < 1e-100
    assert count_chance(3, 3) == 1.0
    assert count_chance(1, 0.0) == 0.0


def test_few_rows_move_no_share_and_test_no_equation():
    assert abs(judge_share(2, 3, resolve(Budget(5), 30, 970)).z) > SHARE_Z
    assert not judge_share(2, 3, resolve(Budget(5), 30, 970)).has_moved
    equation = key_equation([0, 1, 1], [0.3, 0.2, 0.1], TRAINED)
    assert judge_equation(equation, 1.0, 1).verdict == "not tested"
    assert "too few" in str(judge_equation(equation, 1.0, 1))
    assert "p-value" in str(judge_equation(equation, 1.0))
