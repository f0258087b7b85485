"""Audits: allocation, draws, bounds on missed rows and recall, costs, weights; planned numbers reach their power."""

import math

import numpy as np
import pytest
from scipy.stats import beta

from crcen.exceptions import InvalidParameter
from crcen.theory import criteria, selective
from crcen.theory.intervals import clopper_pearson, cost_interval
from crcen.theory.residual_test import residual_test, residual_values
from crcen.theory.rows import effective_rows
from crcen.theory.selective import audit_probabilities, audit_scores, recall_bounds


def test_scores_of_two_classes_are_neyman_allocation():
    p, c = np.array([0.001, 0.02, 0.3, 0.9]), 20.0
    h = c / (c * p + 1 - p)
    scores = selective.audit_scores(np.column_stack([1 - p, p]), np.array([1.0, c]))
    np.testing.assert_allclose(scores / scores[0], h * np.sqrt(p * (1 - p)) / (h * np.sqrt(p * (1 - p)))[0])


@pytest.mark.parametrize("n_audits", [5.0, 120.0, 899.0])
def test_probabilities_add_up_to_the_expected_number(n_audits):
    rng = np.random.default_rng(0)
    scores, quiet = rng.pareto(1, 1000), np.arange(1000) >= 100
    e = selective.audit_probabilities(scores, quiet, n_audits, floor=0.3)
    assert (e[:100] == 1).all()
    assert e[100:].sum() == pytest.approx(n_audits)
    assert e[100:].min() >= 0.3 * n_audits / 900 - 1e-12
    inside = (e > 0.3 * n_audits / 900 + 1e-9) & (e < 1) & quiet
    if inside.sum() > 1:
        np.testing.assert_allclose(np.ptp(e[inside] / scores[inside]), 0.0, atol=1e-9 * n_audits)
    assert selective.audit_probabilities(np.ones(1000), quiet, 90.0)[100:] == pytest.approx(0.1)
    with pytest.raises(InvalidParameter, match="above 0"):
        selective.audit_probabilities(scores, quiet, 0.0)
    scores[500:] = 0.0  # probabilities of 0: their rows are drawn when no others are left
    e = selective.audit_probabilities(scores, quiet, n_audits)
    assert e[100:].sum() == pytest.approx(n_audits)
    assert e[100:500].min() >= e[500:].max()


def test_draws_depend_on_seed_and_key_alone():
    keys, e = np.arange(20_000, dtype=np.uint64), np.full(20_000, 0.1)
    drawn = selective.audit_draws(keys, e, 3)
    assert (selective.audit_draws(keys[::-1], e, 3)[::-1] == drawn).all()
    assert drawn.mean() == pytest.approx(0.1, abs=0.01)
    other = selective.audit_draws(keys, e, 4)
    assert (drawn & other).mean() == pytest.approx(0.01, abs=0.004)
    u = selective.row_hash(keys, 0)
    assert abs(np.corrcoef(u[1:], u[:-1])[0, 1]) < 0.03


def test_bound_for_equal_probabilities_is_clopper_pearson():
    audited = np.arange(5000) < 200
    hit = np.arange(5000) < 3
    assert selective.missed_bound(np.full(5000, 0.04), audited, hit) == pytest.approx(5000 * beta.ppf(0.95, 4, 197))
    assert selective.missed_bound(np.full(10, 1.0), np.ones(10, bool), np.arange(10) < 2) == 2.0
    assert selective.missed_bound(np.zeros(0), np.zeros(0, bool), np.zeros(0, bool)) == 0.0
    e = np.where(np.arange(5000) < 2500, 0.04, 0.2)
    strata = 2500 * beta.ppf(0.975, 4, 197) + 2500 * 1.0
    assert selective.missed_bound(e, audited, hit) == pytest.approx(min(strata, 5000 - 197))


@pytest.mark.parametrize("kind", ["equal", "strata", "unequal"])
@pytest.mark.parametrize("n_hits", [0, 5, 200])
def test_missed_bound_covers_whatever_the_labels(kind, n_hits):
    rng = np.random.default_rng(n_hits)
    n = 3000
    unequal = rng.uniform(0.02, 0.3, n)
    e = {"equal": np.full(n, 0.05), "strata": np.repeat([0.02, 0.1], n // 2), "unequal": unequal}[kind]
    hit = np.zeros(n, bool)
    hit[np.argsort(e)[:n_hits]] = True  # where they are hardest to find
    held = [selective.missed_bound(e, rng.random(n) < e, hit) >= n_hits for _ in range(150)]
    assert np.mean(held) >= 0.93


@pytest.mark.parametrize("n_classes", [2, 3])
def test_recall_bounds_hold_for_each_class(n_classes):
    rng = np.random.default_rng(n_classes)
    held = []
    for _ in range(60):
        label = rng.choice(n_classes, 4000, p=[0.9, 0.1] if n_classes == 2 else [0.85, 0.1, 0.05])
        actions = np.where(rng.random(4000) < 0.7, label, rng.integers(n_classes, size=4000))
        e = np.where(actions == 0, rng.uniform(0.05, 0.3, 4000), 1.0)
        y = np.where(rng.random(4000) < e, label, -1)
        bounds, missed = selective.recall_bounds(y, actions, e, 0, n_classes)
        true = np.array([(actions[label == k] == k).mean() for k in range(n_classes)])
        lost = np.array([(actions[label == k] != k).sum() for k in range(n_classes)])
        held.append((bounds <= true + 1e-12) & (missed >= lost))
    assert np.mean(held, axis=0).min() >= 0.93
    assert bounds[1:].min() > 0.3


@pytest.mark.parametrize("n_classes", [2, 3])
def test_audited_cost_is_unbiased_and_covers(n_classes):
    rng = np.random.default_rng(n_classes)
    costs = np.array([[0, 1.0], [20, 0]]) if n_classes == 2 else np.array([[0, 1.0, 1], [20, 0, 3], [50, 5, 0]])
    values, covered = [], []
    logits = np.column_stack([np.zeros(3000), *(rng.normal(-3 - k, 1.5, 3000) for k in range(n_classes - 1))])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    actions = np.argmin(p @ costs, axis=1)
    e = np.where(actions == 0, np.clip(p[:, 1:].sum(axis=1) * 5, 0.05, 1), 1.0)
    truth = float((p * costs[:, actions].T).sum(axis=1).mean())
    for _ in range(200):
        label = np.minimum((rng.random(3000)[:, None] > np.cumsum(p, axis=1)).sum(axis=1), n_classes - 1)
        found = selective.audited_cost(np.where(rng.random(3000) < e, label, -1), actions, p[:, :], costs, e, 0)
        values.append(found.value)
        covered.append(found.low <= truth <= found.high)
    assert np.mean(values) == pytest.approx(truth, abs=4 * np.std(values) / np.sqrt(200))
    assert np.mean(covered) >= 0.93


def test_weights_are_clipped_to_half_the_effective_rows_and_labels_of_alarms_alone_recognised():
    w = np.r_[np.ones(900), np.full(100, 200.0)]
    clipped, cut = selective.clipped_weights(w)
    assert effective_rows(clipped) == pytest.approx(500)
    assert clipped.max() == pytest.approx(cut)
    same, cut = selective.clipped_weights(np.ones(10))
    assert (same == 1).all()
    assert np.isinf(cut)
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 3, 5000)
    alarms = p > 0.2
    only = selective.label_selection(alarms, p, alarms)
    assert only.is_alarms_only
    assert only.p_value < 1e-6
    random = selective.label_selection(rng.random(5000) < 0.5, p, alarms)
    assert not random.is_alarms_only
    assert random.p_value > 1e-4
    assert np.isnan(selective.label_selection(np.ones(5000, bool), p, alarms).p_value)


# -- planned numbers of labels and audits ------------------------------------------------------------------------------


def columns(p):
    return np.column_stack([1 - p, p])


@pytest.mark.parametrize("uncertainty", [0.0, 0.08])
def test_labels_for_drift_reach_the_power(uncertainty):
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(-3, 1.2, 5000), np.array([1.0, 10.0])
    n = criteria.labels_for_drift(columns(1 / (1 + np.exp(-logits))), weights, 1, 0.5, uncertainty=uncertainty)
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
    found = criteria.smallest_drift(columns(1 / (1 + np.exp(-logits))), weights, 1, n, uncertainty=uncertainty)
    assert found == pytest.approx(0.5, rel=0.01)
    p = columns(np.full(100, 0.1))
    assert criteria.labels_for_drift(p, np.ones(2), 1, 0.3, uncertainty=0.2) == math.inf  # no number is enough
    for drift, power, wrong in ((0.0, 0.8, "drift"), (0.3, 1.0, "power")):
        with pytest.raises(InvalidParameter, match=wrong):
            criteria.labels_for_drift(p, np.ones(2), 1, drift, power=power)


def test_positives_for_a_recall_bound_are_the_fewest():
    n, needed = criteria.positives_for_recall_bound(0.8, 0.9)
    low, _ = clopper_pearson([needed - 1, needed], n, 0.9)
    assert low[0] < 0.8 <= low[1]
    rng = np.random.default_rng(0)
    assert (rng.binomial(n, 0.9, 20_000) >= needed).mean() == pytest.approx(0.8, abs=0.03)
    assert criteria.positives_for_recall_bound(0.9, 1.0)[0] == 29
    with pytest.raises(InvalidParameter, match="above the bound"):
        criteria.positives_for_recall_bound(0.9, 0.8)
    rows = criteria.labels_for_recall_bound(0.8, 0.9, 0.03)
    n_pos = rng.binomial(rows, 0.03, 20_000)
    low, _ = clopper_pearson(rng.binomial(n_pos, 0.9), n_pos, 0.9)
    assert (low >= 0.8).mean() == pytest.approx(0.8, abs=0.02)


def test_labels_for_a_cost_width_give_that_width():
    rng = np.random.default_rng(1)
    p, costs = columns(rng.beta(0.2, 4, 4000)), np.array([[0, 1.0], [10, 0]])
    actions = np.argmin(p @ costs, axis=1)
    n = criteria.labels_for_cost_width(p, actions, costs, 0.05)
    rows = rng.integers(4000, size=n)
    y = (rng.random(n) < p[rows, 1]).astype(int)
    found = cost_interval(y, actions[rows], costs)
    assert found.high - found.low == pytest.approx(0.05, rel=0.15)
    assert criteria.labels_for_cost_width(p, actions, costs, 1e9) == 1
    assert criteria.labels_for_cost_width(p, actions, costs, 1e-9) == np.inf


@pytest.mark.parametrize(("rule", "share_other"), [("neyman", 0.0), ("uniform", 0.0), ("neyman", 0.1)])
def test_audits_for_a_recall_bound_reach_it(rule, share_other):
    # A share of the rows with an alarm is decided for a third class: rows of this class among them are missed.
    rng = np.random.default_rng(2)
    chance = rng.beta(0.05, 1, 8000)
    p, weights = columns(chance), np.array([1.0, 20.0])
    quiet = chance < 1 / 21
    actions = np.where(quiet, 0, np.where(rng.random(8000) < share_other, 2, 1))
    scores = audit_scores(p, weights) if rule == "neyman" else np.ones(8000)
    own, n_other = np.where(actions == 2, 0.0, chance), chance[actions == 2].sum()
    n = criteria.audits_for_recall_bound(own, quiet, scores, 0.7, n_other=n_other)
    e = audit_probabilities(scores, quiet, n)
    reached = []
    for _ in range(100):
        y = (rng.random(8000) < chance).astype(np.int64)
        is_known = ~quiet | (rng.random(8000) < e)
        bounds, _ = recall_bounds(np.where(is_known, y, -1), actions, np.where(quiet, e, 1.0), 0, 3)
        reached.append(bounds[1] >= 0.7)
    assert 0.68 <= np.mean(reached) <= 0.92
    assert criteria.audits_for_recall_bound(own, quiet, scores, 0.999, n_other=n_other) == math.inf
