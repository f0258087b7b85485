"""Shared limits and tests against other libraries and exact tails."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import binom

from crcen import Budget, resolve
from crcen.theory import limits

TRAINED = resolve(Budget(5), 100, 900)


def test_the_noise_of_a_fitted_model():
    for unit in (1e-3, 1.0, 2e3):  # the unit of weights does not matter
        assert limits.fitted_model_noise(np.full(1000, unit), TRAINED) == pytest.approx(3.0)
        profile = SimpleNamespace(n_rows=4000)
        assert limits.fitted_model_noise(np.full(1000, unit), TRAINED, profile) == pytest.approx(1.5)


def test_the_share_is_that_of_two_proportions():
    """z of the pooled two-proportion test, written out."""
    test = limits.judge_class_share(160, 1000, 100, 1000)
    pooled = 260 / 2000
    assert test.z == pytest.approx(0.06 / math.sqrt(pooled * (1 - pooled) * 2 / 1000))
    assert not test.has_moved  # 3.9 standard deviations
    assert limits.judge_class_share(170, 1000, 100, 1000).z > limits.SHARE_Z
    assert limits.judge_class_share(170, 1000, 100, 1000).has_moved
    large = limits.judge_class_share(1.1e6, 1e7, 1e6, 1e7)
    assert abs(large.z) > limits.SHARE_Z
    assert not large.has_moved  # a factor of 1.1 matters to nobody
    few = limits.judge_class_share(2, 5, 30, 1000)
    assert abs(few.z) > limits.SHARE_Z
    assert not few.has_moved


@pytest.mark.parametrize(("n", "p"), [(2000, 0.0005), (2000, 0.01), (2000, 0.3), (50, 0.03)])
def test_the_chance_of_a_count_is_never_understated_by_much(n, p):
    """Against the exact binomial tail: a bound from above, and no more than a hundred times it far out."""
    expected = n * p
    for observed in range(0, min(n, int(expected + 12 * math.sqrt(expected) + 5)) + 1):
        tail = binom.sf(observed - 1, n, p) if observed > expected else binom.cdf(observed, n, p)
        assert limits.count_chance(observed, expected, n * p * (1 - p)) >= 0.9 * tail
    far = int(expected + 6 * math.sqrt(expected)) + 1
    assert limits.count_chance(far, expected, n * p * (1 - p)) < 100 * binom.sf(far - 1, n, p)


def test_one_event_where_few_were_expected_is_no_proof():
    assert limits.count_chance(1, 0.00065) > 1e-3
    assert limits.count_chance(0, 0.5) > 0.5
    assert limits.count_chance(50, 0.01) < 1e-100
    assert limits.count_chance(3, 3) == 1.0
    assert limits.count_chance(1, 0.0) == 0.0
