"""Planned numbers of labels and audits reach their power."""

import math

import numpy as np
import pytest

from crcen.exceptions import InvalidParameter
from crcen.theory import planning
from crcen.theory.intervals import clopper_pearson, cost_interval
from crcen.theory.selective import audit_probabilities, audit_scores, missed_bound
from crcen.theory.tail import residual_test, residual_values


def columns(p):
    return np.column_stack([1 - p, p])


@pytest.mark.parametrize("uncertainty", [0.0, 0.08])
def test_labels_for_drift_reach_the_power(uncertainty):
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(-3, 1.2, 5000), np.array([1.0, 10.0])
    n = planning.labels_for_drift(columns(1 / (1 + np.exp(-logits))), weights, 1, 0.5, uncertainty=uncertainty)
    found = []
    for _ in range(300):
        chosen = rng.choice(logits, int(n))
        p = columns(1 / (1 + np.exp(-chosen)))
        shift = 0.5 * rng.choice([-1, 1]) + uncertainty * rng.standard_normal()
        y = (rng.random(int(n)) < 1 / (1 + np.exp(-chosen - shift))).astype(int)
        values = residual_values(p, weights, 1)
        extra = (uncertainty * float(p[:, 1] @ values[:, 1])) ** 2
        found.append(residual_test(values, p, y, uncertainty=[(extra, math.inf)]).p_value < 0.05)
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)
    assert planning.smallest_drift(
        columns(1 / (1 + np.exp(-logits))), weights, 1, n, uncertainty=uncertainty
    ) == pytest.approx(0.5, rel=0.01)


def test_no_number_of_labels_is_sufficient_for_an_uncertain_model():
    p = columns(np.full(100, 0.1))
    assert planning.labels_for_drift(p, np.ones(2), 1, 0.3, uncertainty=0.2) == math.inf
    with pytest.raises(InvalidParameter, match="drift"):
        planning.labels_for_drift(p, np.ones(2), 1, 0.0)
    with pytest.raises(InvalidParameter, match="power"):
        planning.labels_for_drift(p, np.ones(2), 1, 0.3, power=1.0)


def test_positives_for_a_recall_bound_are_the_fewest():
    n, needed = planning.positives_for_recall_bound(0.8, 0.9)
    low, _ = clopper_pearson([needed - 1, needed], n, 0.9)
    assert low[0] < 0.8 <= low[1]
    rng = np.random.default_rng(0)
    assert (rng.binomial(n, 0.9, 20_000) >= needed).mean() == pytest.approx(0.8, abs=0.03)
    assert planning.positives_for_recall_bound(0.9, 1.0)[0] == 29
    with pytest.raises(InvalidParameter, match="above the bound"):
        planning.positives_for_recall_bound(0.9, 0.8)
    rows = planning.labels_for_recall_bound(0.8, 0.9, 0.03)
    n_pos = rng.binomial(rows, 0.03, 20_000)
    low, _ = clopper_pearson(rng.binomial(n_pos, 0.9), n_pos, 0.9)
    assert (low >= 0.8).mean() == pytest.approx(0.8, abs=0.02)


def test_labels_for_a_cost_width_give_that_width():
    rng = np.random.default_rng(1)
    p, costs = columns(rng.beta(0.2, 4, 4000)), np.array([[0, 1.0], [10, 0]])
    actions = np.argmin(p @ costs, axis=1)
    n = planning.labels_for_cost_width(p, actions, costs, 0.05)
    rows = rng.integers(4000, size=n)
    y = (rng.random(n) < p[rows, 1]).astype(int)
    found = cost_interval(y, actions[rows], costs)
    assert found.high - found.low == pytest.approx(0.05, rel=0.15)
    assert planning.labels_for_cost_width(p, actions, costs, 1e9) == 1
    assert planning.labels_for_cost_width(p, actions, costs, 1e-9) == np.inf


@pytest.mark.parametrize("rule", ["neyman", "uniform"])
def test_audits_for_a_recall_bound_reach_it(rule):
    rng = np.random.default_rng(2)
    chance = rng.beta(0.05, 1, 8000)
    p, weights = columns(chance), np.array([1.0, 20.0])
    quiet = chance < 1 / 21
    scores = audit_scores(p, weights) if rule == "neyman" else np.ones(8000)
    n = planning.audits_for_recall_bound(chance, quiet, scores, 0.7)
    e = audit_probabilities(scores, quiet, n)
    reached = []
    for _ in range(100):
        y = rng.random(8000) < chance
        upper = missed_bound(e[quiet], (rng.random(8000) < e)[quiet], y[quiet])
        caught = y[~quiet].sum()
        reached.append(caught / (caught + upper) >= 0.7)
    assert 0.68 <= np.mean(reached) <= 0.92
    assert planning.audits_for_recall_bound(chance, quiet, scores, 0.999) == math.inf
