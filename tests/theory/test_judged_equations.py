"""The key equations of several classes, judged: against the theory's own, its level under the truth, planted drift."""

import numpy as np
import pytest

from crcen.theory.classes.judged_equations import judge_class_equations
from crcen.theory.classes.key_equations import class_key_equations
from crcen.theory.price import Price

LABELS = ["a", "b", "c"]
WEIGHTS = Price(np.array([1.0, 4.0, 12.0]), np.array([700.0, 200.0, 100.0]))


def draw(n, seed, drift=(0.0, 0.0, 0.0)):
    """Natural probabilities that a model states, and labels from probabilities that drifted from them."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([4.0, 1.0, 0.4], size=n)
    truth = p * np.exp(drift)
    truth /= truth.sum(axis=1, keepdims=True)
    return (rng.random(n)[:, None] > truth.cumsum(axis=1)).sum(axis=1), p


def test_the_same_statistics_as_the_theory():
    y, p = draw(500, 0)
    judged = judge_class_equations(y, p, WEIGHTS, LABELS, noise=1.7)
    known = class_key_equations(y, WEIGHTS.weighted(p), WEIGHTS, variance_factor=1.7)
    assert judged.joint.statistic == pytest.approx(known.equations.statistic)
    assert judged.joint.degrees == known.equations.degrees == 2
    assert judged.joint_pairs.statistic == pytest.approx(known.pairs.statistic)
    np.testing.assert_allclose([one.flows_out for one in judged.classes], known.lhs)
    np.testing.assert_allclose([one.flows_in for one in judged.classes], known.rhs)


def test_level_under_the_truth():
    p_values = [
        (one.joint.p_value, one.joint_pairs.p_value)
        for one in (judge_class_equations(*draw(400, seed), WEIGHTS, LABELS, noise=1.0) for seed in range(250))
    ]
    rejected = (np.array(p_values) < 0.05).mean(axis=0)
    assert (np.abs(rejected - 0.05) < 0.042).all()  # three standard deviations of 250 draws


def test_drift_is_found_with_its_size_and_its_class():
    y, p = draw(20_000, 1, drift=(0.0, 0.0, 0.6))
    judged = judge_class_equations(y, p, WEIGHTS, LABELS, noise=1.0)
    assert judged.verdict == "do not hold"
    first = judged.pairs[0]
    assert "c" in (first.first, first.second)
    assert abs(first.drift) == pytest.approx(0.6, abs=0.1)
    assert judged.classes[2].drift == pytest.approx(0.6, abs=0.1)
    assert "c against" in "\n".join(judged.lines())


def test_classes_with_few_rows_are_shown_and_not_tested():
    y, p = draw(500, 2)
    few = np.flatnonzero(y == 2)[:5]
    keep = np.concatenate([np.flatnonzero(y < 2), few])
    judged = judge_class_equations(y[keep], p[keep], WEIGHTS, LABELS)
    assert [one.is_tested for one in judged.classes] == [True, True, False]
    assert {one.first for one in judged.pairs} | {one.second for one in judged.pairs} == {"a", "b"}
    assert "too few to test" in "\n".join(judged.lines())
    none = judge_class_equations(y[:9], p[:9], WEIGHTS, LABELS)
    assert none.verdict == "not tested"
    assert none.to_dict()["joint"]["p_value"] is None


def test_weight_two_is_two_copies_in_the_flows():
    y, p = draw(300, 3)
    again = np.concatenate([np.arange(300), np.flatnonzero(y == 1)])
    weighted = judge_class_equations(y, p, WEIGHTS, LABELS, np.where(y == 1, 2.0, 1.0))
    copied = judge_class_equations(y[again], p[again], WEIGHTS, LABELS)
    np.testing.assert_allclose([one.flows_out for one in weighted.classes], [one.flows_out for one in copied.classes])
    assert copied.noise == pytest.approx(1 + 2 * len(again) / 1000)


def test_the_drift_of_a_class_is_that_of_its_own_equation():
    """Also where flows between some pairs are next to nothing: sign and size are those of both sides that are shown."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(400, 3)) + [0.0, 2.0, -1.0]
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    judged = judge_class_equations(y, p, WEIGHTS, LABELS, noise=1.0)
    for one in judged.classes:
        assert one.drift == pytest.approx(np.log(one.flows_out / one.flows_in))
        assert np.sign(one.drift) == np.sign(one.z)


def test_the_unit_of_weights_does_not_matter():
    """The model's own error is counted by as many rows as weights tell, not by their sum."""
    y, p = draw(800, 5, drift=(0.0, 0.0, 0.5))
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(y))
    one, other = (judge_class_equations(y, p, WEIGHTS, LABELS, unit * weights) for unit in (1.0, 2000.0))
    assert one.noise == pytest.approx(1 + 2 * weights.sum() ** 2 / (weights**2).sum() / WEIGHTS.counts.sum())
    assert other.noise == pytest.approx(one.noise)
    assert other.joint.p_value == pytest.approx(one.joint.p_value)
