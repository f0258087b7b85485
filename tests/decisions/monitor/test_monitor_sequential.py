"""The sequential test on normal scores and on simulated streams with their models' own error."""

import math
from itertools import pairwise

import numpy as np
import pytest
from known_streams import WEIGHTS as ALL_WEIGHTS
from known_streams import stream, weighted
from scipy.special import expit
from scipy.stats import binom

from crcen.decisions.monitor.track import DriftTest, Start, Tally
from crcen.theory.price import Price
from crcen.theory.sequential import GRID, StreamSums, stream_sums

WEIGHTS = ALL_WEIGHTS[4]


def test_shares_of_all_comparisons_that_may_come_sum_to_one():
    """Else a false alarm could come more often than stated: without rows it is 1, however many points are open."""
    p, y = stream(3000, 3, n_classes=4)
    sums = stream_sums(y, weighted(p, WEIGHTS), Price(WEIGHTS, np.ones(4)))
    test, quiet = DriftTest(Tally.of(sums), 0.3, 0.0), Tally.none(4)
    for number in range(7):
        assert test.log_evidence() == pytest.approx(0.0, abs=1e-12)
        test.starts.append(Start(0, number, quiet))


def test_evidence_is_the_mean_of_the_processes_of_all_classes():
    price, test = Price(WEIGHTS, np.ones(4)), None
    for n, seed in ((2000, 3), (700, 4)):
        p, y = stream(n, seed, 0.4 * (seed == 4), 4)
        tally = Tally.of(stream_sums(y, weighted(p, WEIGHTS), price))
        test = test or DriftTest(tally, 0.3, 0.0)
    test.add(tally, 1)
    alone = [process.log_evidence(one) for process, one in zip(test.processes, tally.likelihood, strict=True)]
    assert test.log_evidence() == pytest.approx(math.log(0.5 * np.mean(np.exp(alone)) + 0.5), rel=1e-9)
    assert test.change().test == 3


def test_tally_recovers_a_constant_drift_exactly():
    """E[missed] = e^d E[alarmed], whatever λ and the spread of p; exact expectations, no sampling."""
    q = np.linspace(0.02, 0.97, 40)
    for lam, d in ((0.5, 0.3), (0.9, -1.2), (0.2, 2.0)):
        p = q / (q + lam / (1 - lam) * (1 - q))
        chance = expit(np.log(p / (1 - p)) + d)
        tally = normal(0.0, 0.0, np.sum(chance * lam * (1 - q)), np.sum((1 - chance) * (1 - lam) * q))
        assert tally.drift == pytest.approx([-d, d], rel=1e-12)
    assert normal(6.0, 20.0, 1.0, 0.0).drift == pytest.approx([-0.3, 0.3])


def test_dispersion_is_at_least_one_and_widens_the_variance():
    assert StreamSums.none(2).dispersion == 1.0
    rng = np.random.default_rng(0)
    p = np.full(500, 0.2)
    sums = stream_sums((rng.random(500) < 0.4).astype(int), np.column_stack([1 - p, p]), Price.binary(0.5, 1, 1))
    assert sums.dispersion == pytest.approx(sums.squares[1] / sums.variance[1, 1])
    assert sums.dispersion > 1.2
    wide, plain = Tally.of(sums, 1.5), Tally.of(sums)
    assert wide.information == pytest.approx(plain.information / 1.5)
    assert wide.score == pytest.approx(plain.score / 1.5)
    assert wide.likelihood == pytest.approx(plain.likelihood / 1.5)


def normal(score, information, missed=1.0, alarmed=1.0):
    """A tally of two classes with the likelihood of a normal score."""
    sides, likelihood = np.array([alarmed, missed]), score * GRID - information * GRID**2 / 2
    return Tally(np.array([-score, score]), np.full(2, information), sides, sides[::-1], likelihood[None])


def test_starting_points_open_as_the_past_grows():
    test = DriftTest(normal(0.0, 5.0), 0.3, 0.0)
    for batch in range(1, 101):
        test.add(normal(0.0, 1.0), batch)
    opened = [5.0 + start.before.information[1] for start in test.starts]
    assert opened[0] == 5.0
    assert all(later >= 1.12 * earlier for earlier, later in pairwise(opened))
    assert len(opened) == pytest.approx(1 + math.log(104 / 5) / math.log(1.12), abs=6)
    # Nothing happened: the evidence is below 1, and what is not opened yet keeps its weight.
    assert -math.log(2 * (len(opened) + 1)) < test.log_evidence() < 0
    for batch in range(101, 5000):
        test.add(normal(0.0, 50.0), batch)
    assert len(test.starts) == 40
    assert test.starts[0].number == 0
    assert test.starts[-1].number > 60
    assert test.log_evidence() < 0


def test_without_reference_or_past_there_is_no_evidence():
    test = DriftTest(Tally.none(2), 0.3, 0.0)
    assert test.log_evidence() == 0.0
    assert test.change() is None
    test.add(normal(400.0, 1e3), 1)
    assert test.log_evidence() < math.log(10)


def noisy_test(rng, reference, looks, step, tolerance=0.0, drift=0.0):
    """Largest log evidence of one stream of normal scores whose model has an error of its own."""
    own = rng.normal(0, 1 / math.sqrt(reference))
    test = DriftTest(normal(0.0, reference), 0.3, tolerance)
    largest = 0.0
    for look, moved in enumerate(np.broadcast_to(drift, looks)):
        test.add(normal(rng.normal((own + moved) * step, math.sqrt(step)), step), look)
        largest = max(largest, test.log_evidence())
    return largest


def test_a_tolerated_drift_is_no_alarm_and_a_late_one_is_found_where_the_reference_is_small():
    rng = np.random.default_rng(3)
    tolerance = 0.2
    drift = np.tile(np.r_[np.full(10, tolerance), np.full(10, -tolerance)], 2)
    peaks = np.array([noisy_test(rng, 300.0, 40, 50.0, tolerance, drift) for _ in range(60)])
    assert (peaks >= math.log(20)).sum() <= binom.ppf(0.999, 60, 0.05)
    strict = np.array([noisy_test(rng, 300.0, 40, 50.0, 0.0, drift) for _ in range(20)])
    assert (strict >= math.log(20)).mean() > 0.9
    # With information 30 before the stream, +0.3 is within the model's error; against a quiet year it is not.
    rng = np.random.default_rng(4)
    late = np.r_[np.zeros(30), np.full(30, 0.3)]
    found = np.mean([noisy_test(rng, 30.0, 60, 40.0, drift=late) >= math.log(20) for _ in range(30)])
    first = np.mean([noisy_test(rng, 30.0, 60, 40.0, drift=0.3) >= math.log(20) for _ in range(30)])
    assert found > 0.9
    assert first < 0.6
