"""E-process of drift and betting confidence sequences: exact expectations, bounds, optional stopping."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp

from crcen.exceptions import InvalidInput
from crcen.theory.sequential import GRID, GRID_SIZE, ConfidenceSequence, DriftProcess, log_likelihoods, peak


def rows(rng, n, drift=0.0):
    logits = rng.normal(-2, 1, n)
    return rng.random(n) < 1 / (1 + np.exp(-logits - drift)), 1 / (1 + np.exp(-logits))


def test_log_likelihood_is_that_of_moved_probabilities():
    rng = np.random.default_rng(0)
    y, p = rows(rng, 500)
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
    y, p = rows(rng, 3000)
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
            total += log_likelihoods(*rows(rng, 200, 0.6))
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
    before = log_likelihoods(*rows(rng, 20_000, 0.12))  # the model's own error
    since = log_likelihoods(*rows(rng, 5000, 0.12))
    changed = log_likelihoods(*rows(rng, 5000, -0.4))
    assert process.log_evidence(since, before) < 0.0
    assert process.log_evidence(changed, before) > 20.0
    cuts = process.log_evidence(np.array([changed, since]), np.array([since, changed]))  # one stream, two points
    np.testing.assert_allclose(cuts, [process.log_evidence(changed, since), process.log_evidence(since, changed)])
    low, high = DriftProcess().interval(log_likelihoods(np.ones(400, bool), np.full(400, 0.001)))
    assert (low > 2.0, high) == (True, math.inf)  # a drift beyond the grid has an interval without end


def test_peak_and_estimates_are_those_of_the_likelihood():
    rng = np.random.default_rng(6)
    likelihood = log_likelihoods(*rows(rng, 20_000, 0.4))
    found = peak(likelihood)
    assert found[0] == pytest.approx(0.4, abs=4 * found[1])
    mean, deviation = DriftProcess().estimate(likelihood)
    assert mean == pytest.approx(found[0], abs=0.02)
    assert deviation == pytest.approx(found[1], rel=0.3)
    own = DriftProcess(spread=0.1).own_error(likelihood)
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
