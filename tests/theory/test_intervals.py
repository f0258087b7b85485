"""Intervals of shares, areas and costs, also from audits: coverage, other implementations; planned numbers of rows."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta, binomtest, norm

from crcen.exceptions import InvalidParameter
from crcen.theory import criteria, intervals, selective
from crcen.theory.limits import UNMEASURED
from crcen.theory.price import Price
from crcen.theory.residual_test import residual_test, residual_values, variance_of
from crcen.theory.rows import effective_rows
from crcen.theory.selective import audit_probabilities, audit_scores, recall_bounds


def columns(p):
    return np.column_stack([1 - p, p])


COSTS = {2: np.array([[0, 1.0], [20, 0]]), 3: np.array([[0, 1.0, 2, 0.4], [2, 0, 1, 0.4], [20, 10, 0, 0.4]])}


@pytest.mark.parametrize(("count", "size"), [(0, 5), (5, 5), (3, 17), (120, 400)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_share_limits_match_scipy(count, size, level):
    result = binomtest(count, size)
    for ours, method in (
        (intervals.wilson(count / size, size, level), "wilson"),
        (intervals.clopper_pearson(count, size, level), "exact"),
    ):
        np.testing.assert_allclose(ours, result.proportion_ci(level, method), atol=1e-12)
    assert intervals.share_p_value(count, size, 0.3) == pytest.approx(binomtest(count, size, 0.3, "greater").pvalue)
    none = intervals.share_interval(np.zeros(0, bool)), intervals.share_interval(np.ones(3, bool), np.zeros(3))
    assert np.isnan([*none[0], *none[1], *intervals.wilson(np.nan, 0)]).all()


def test_weights_count_by_effective_rows():
    rng = np.random.default_rng(0)
    hit, w = rng.random(200) < 0.7, rng.pareto(1.5, 200) + 1
    one, scaled = intervals.share_interval(hit, w), intervals.share_interval(hit, 3e7 * w)
    np.testing.assert_allclose(one, scaled, rtol=1e-12)
    assert effective_rows(w) == pytest.approx(w.sum() ** 2 / (w**2).sum())
    linear = one.value * (1.0 - one.value) * w.sum() ** 2 / ((w * (hit - one.value)) ** 2).sum()
    assert intervals.share_rows(np.tile(hit, 50), np.tile(w, 50)) == pytest.approx(50 * linear, rel=0.05)
    none = np.zeros(200, bool)  # the weight of an unseen hit may be the largest
    np.testing.assert_allclose(intervals.share_interval(none, w)[2], intervals.wilson(0.0, w.sum() / w.max())[1])
    np.testing.assert_allclose(intervals.share_interval(hit, np.full(200, 4.0)), intervals.share_interval(hit))


@pytest.mark.parametrize(("share", "weight", "n"), [(0.9, 0.2, 500), (0.2, 10.0, 2000), (0.9, 5.0, 500)])
def test_shares_cover_if_hits_have_other_weights(share, weight, n):
    rng, drawn = np.random.default_rng(n), share / (share + weight * (1.0 - share))
    covered = []
    for _ in range(400):
        hit = rng.random(n) < drawn
        found = intervals.share_interval(hit, np.where(hit, weight, 1.0))
        covered.append(found.low <= share <= found.high)
    assert 0.92 <= np.mean(covered) <= 0.985


def test_areas_and_shares_cover_with_weights_that_restore_a_population():
    rng, within = np.random.default_rng(5), []
    x = np.linspace(-8, 8, 20_001)
    positive, negative = (norm.pdf(x) * expit(sign * (1.5 * x - 2.0)) for sign in (1.0, -1.0))
    area = positive @ (np.cumsum(negative) - 0.5 * negative) / positive.sum() / negative.sum()
    for _ in range(250):
        x = rng.normal(1.0, 1.0, 2000)
        w, target = np.exp(0.5 - x), rng.random(2000) < expit(1.5 * x - 2.0)
        both = intervals.auc_interval(target, x, w), intervals.share_interval(x > 0.8, w)
        within.append([one.low <= truth <= one.high for one, truth in zip(both, (area, norm.sf(0.8)), strict=True)])
    assert np.mean(within, axis=0).min() >= 0.91


def test_clusters_of_equal_rows_count_once():
    rng = np.random.default_rng(1)
    hit = rng.random(40) < 0.6
    repeated, clusters = np.repeat(hit, 5), np.repeat(np.arange(40), 5)
    once, found = intervals.share_interval(hit), intervals.share_interval(repeated, None, clusters)
    assert found.value == once.value
    assert found.high - found.low == pytest.approx(once.high - once.low, rel=0.06)
    assert intervals.design_effect(rng.random(200), np.ones(200), np.arange(200)) == pytest.approx(1.0, abs=0.05)
    assert intervals.design_effect(np.ones(200), np.ones(200), clusters) == pytest.approx(5.0)


@pytest.mark.parametrize("n_pos", [4, 60])
def test_area_matches_pairs_and_covers(n_pos):
    rng = np.random.default_rng(2)
    target, covered = np.r_[np.ones(n_pos, bool), np.zeros(150, bool)], []
    truth = norm.cdf(2.2 / np.sqrt(2))
    for _ in range(150):
        scores = rng.normal(0, 1, len(target)) + 2.2 * target
        found = intervals.auc_interval(target, scores)
        covered.append(found.low <= truth <= found.high)
    above = scores[target][:, None] - scores[~target]
    assert found.value == pytest.approx((above > 0).mean() + 0.5 * (above == 0).mean())
    assert np.mean(covered) >= 0.93


def test_area_counts_weights_ties_and_clusters():
    rng = np.random.default_rng(3)
    target, scores = rng.random(300) < 0.2, np.round(rng.normal(0, 1, 300), 1)
    scores[target] += 1
    copies = rng.integers(1, 4, 300)
    weighted = intervals.auc_interval(target, scores, copies.astype(float))
    repeated = intervals.auc_interval(np.repeat(target, copies), np.repeat(scores, copies))
    assert weighted.value == pytest.approx(repeated.value)
    plain = intervals.auc_interval(target, scores)
    once = intervals.auc_interval(np.tile(target, 4), np.tile(scores, 4), None, np.tile(np.arange(300), 4))
    assert once.high - once.low == pytest.approx(plain.high - plain.low, rel=0.05)
    perfect = intervals.auc_interval(np.arange(50) > 40, np.arange(50.0))
    assert perfect.value == perfect.high == 1.0
    assert 0.5 < perfect.low < 1.0
    assert np.isnan(intervals.auc_interval(np.ones(3, bool), np.arange(3.0))).all()


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("n_pos", [3, 56])
def test_cost_interval_covers(n_classes, n_pos):
    rng, costs = np.random.default_rng(n_pos), COSTS[n_classes]
    rare = n_pos / 1000
    shares = np.array([1 - rare, rare]) if n_classes == 2 else np.array([0.95 - rare, 0.05, rare])
    chance = np.array([[0.97, 0.03], [0.3, 0.7]])
    if n_classes == 3:
        chance = np.array([[0.95, 0.02, 0.01, 0.02], [0.2, 0.6, 0.1, 0.1], [0.1, 0.1, 0.7, 0.1]])
    cells = (shares[:, None] * chance).ravel()
    truth, covered = float(cells @ costs.ravel()), []
    for counts in rng.multinomial(1000, cells, 300):
        y, actions = np.divmod(np.repeat(np.arange(len(cells)), counts), costs.shape[1])
        found = intervals.cost_interval(y, actions, costs)
        covered.append(found.low <= truth <= found.high)
    assert np.mean(covered) >= 0.93
    assert found.value == pytest.approx(costs[y, actions].mean())
    moved = intervals.cost_interval(y, actions, costs + 5.0)
    np.testing.assert_allclose(np.subtract(moved, 5.0), found, atol=1e-9)
    half = intervals.cost_interval(y, actions, costs, np.full(1000, 0.01))
    np.testing.assert_allclose(half, found, rtol=1e-9)


def test_cost_p_value_inverts_the_upper_limit_and_expected_counts_have_their_interval():
    y, actions = np.repeat([0, 0, 1, 1], [900, 30, 12, 58]), np.repeat([0, 1, 0, 1], [900, 30, 12, 58])
    high = intervals.cost_interval(y, actions, COSTS[2], level=0.9).high
    assert intervals.cost_p_value(y, actions, COSTS[2], high) == pytest.approx(0.05, rel=1e-3)
    assert intervals.cost_p_value(y, actions, COSTS[2], 0.01) == 1.0
    assert intervals.cost_p_value(y, actions, COSTS[2], 15.0) < 1e-10
    p, actions = np.tile([[0.9, 0.1], [0.3, 0.7]], (500, 1)), np.tile([0, 1], 500)
    y = np.r_[np.repeat([0, 1], [450, 50]), np.repeat([0, 1], [150, 350])]
    observed = intervals.cost_interval(y, np.repeat([0, 1], 500), COSTS[2])
    np.testing.assert_allclose(intervals.expected_cost_interval(p, actions, COSTS[2], 1000), observed)


# -- audits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_audits", [5.0, 120.0, 899.0])
def test_probabilities_add_up_to_the_expected_number(n_audits):
    rng = np.random.default_rng(0)
    scores, quiet = rng.pareto(1, 1000), np.arange(1000) >= 100
    e = audit_probabilities(scores, quiet, n_audits, floor=0.3)
    assert (e[:100] == 1).all()
    assert e[100:].sum() == pytest.approx(n_audits)
    assert e[100:].min() >= 0.3 * n_audits / 900 - 1e-12
    inside = (e > 0.3 * n_audits / 900 + 1e-9) & (e < 1) & quiet
    if inside.sum() > 1:
        np.testing.assert_allclose(np.ptp(e[inside] / scores[inside]), 0.0, atol=1e-9 * n_audits)
    assert audit_probabilities(np.ones(1000), quiet, 90.0)[100:] == pytest.approx(0.1)
    with pytest.raises(InvalidParameter, match="above 0"):
        audit_probabilities(scores, quiet, 0.0)
    scores[500:] = 0.0  # probabilities of 0: their rows are drawn when no others are left
    e = audit_probabilities(scores, quiet, n_audits)
    assert e[100:].sum() == pytest.approx(n_audits)
    assert e[100:500].min() >= e[500:].max()
    p, c = np.array([0.001, 0.02, 0.3, 0.9]), 20.0  # scores of two classes are Neyman's allocation
    scores, own = audit_scores(columns(p), np.array([1.0, c])), c / (c * p + 1 - p) * np.sqrt(p * (1 - p))
    np.testing.assert_allclose(scores / scores[0], own / own[0])


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
        bounds, missed = recall_bounds(y, actions, e, 0, n_classes)
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
    assert (effective_rows(clipped), clipped.max()) == (pytest.approx(500), pytest.approx(cut))
    same, cut = selective.clipped_weights(np.ones(10))
    assert ((same == 1).all(), cut) == (True, math.inf)
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 3, 5000)
    alarms = p > 0.2
    only, random = (selective.label_selection(one, p, alarms) for one in (alarms, rng.random(5000) < 0.5))
    assert (only.is_alarms_only, random.is_alarms_only) == (True, False)
    assert only.p_value < 1e-6 < 1e-4 < random.p_value
    assert np.isnan(selective.label_selection(np.ones(5000, bool), p, alarms).p_value)


# -- planned numbers of labels and audits ------------------------------------------------------------------------------


@pytest.mark.parametrize(("drift", "uncertainty"), [(0.5, 0.0), (0.5, 0.08), (1.0, 0.0)])
def test_labels_for_drift_reach_the_power_up_and_down(drift, uncertainty):
    rng = np.random.default_rng(0)
    logits, weights, rates = rng.normal(-3, 1.2, 5000), np.array([1.0, 10.0]), []
    model = columns(1 / (1 + np.exp(-logits)))
    n = int(criteria.labels_for_drift(model, weights, 1, drift, uncertainty=uncertainty))
    for sign in (-1, 1):
        found = []
        for _ in range(300):
            chosen = rng.choice(logits, n)
            p = columns(1 / (1 + np.exp(-chosen)))
            shift = sign * drift + uncertainty * rng.standard_normal()
            y = (rng.random(n) < 1 / (1 + np.exp(-chosen - shift))).astype(int)
            values = residual_values(p, weights, 1)
            extra = (uncertainty * float(p[:, 1] @ values[:, 1])) ** 2
            found.append(y.sum() >= 20 and residual_test(values, p, y, uncertainty=[(extra, math.inf)]).p_value < 0.05)
        rates.append(np.mean(found))
    assert min(rates) == pytest.approx(0.8, abs=0.08)
    least = criteria.smallest_drift(model, weights, 1, n, uncertainty=uncertainty)
    # More rows are needed for the larger drift, which leaves fewer positives, than for a smaller one.
    assert least == pytest.approx(0.5, rel=0.02) if drift == 0.5 else least < 0.9
    assert criteria.smallest_drift(model, weights, 1, 300) == math.inf  # no drift leaves 20 positives
    p = columns(np.full(100, 0.1))
    assert criteria.labels_for_drift(p, np.ones(2), 1, 0.3, uncertainty=0.2) == math.inf  # no number is enough


def test_model_uncertainty_that_was_not_measured_is_that_of_the_test():
    p, n = columns(np.random.default_rng(0).beta(0.5, 5, 1000)), 400
    price = Price(np.array([1.0, 10.0]), np.array([900, 60]), positive=1)
    spread = criteria.model_uncertainty(None, price, p, 1)
    values = residual_values(p, price.weights, 1)
    added = variance_of(values, p) * n / 1000 * UNMEASURED * n / 960  # to the variance of the residual of n rows
    assert spread == pytest.approx(math.sqrt(added) / (p[:, 1] @ values[:, 1] * n / 1000))


def test_labels_for_a_recall_bound_reach_it():
    rng = np.random.default_rng(0)
    for bound, recall, share in ((0.8, 0.9, 0.03), (0.6, 0.676, 0.3)):
        n_pos = rng.binomial(criteria.labels_for_recall_bound(bound, recall, share), share, 20_000)
        low, _ = intervals.clopper_pearson(rng.binomial(n_pos, recall), n_pos, 0.9)
        assert (low >= bound).mean() == pytest.approx(0.8, abs=0.02)
    assert criteria.labels_for_recall_bound(0.9, 1.0, 1.0 - 1e-9) == 29  # 0.9²⁹ < 0.05 < 0.9²⁸
    assert criteria.labels_for_recall_bound(0.9, 0.9001, 0.1) == math.inf


def test_labels_for_a_cost_width_give_that_width():
    rng = np.random.default_rng(1)
    p, costs = columns(rng.beta(0.2, 4, 4000)), np.array([[0, 1.0], [10, 0]])
    actions = np.argmin(p @ costs, axis=1)
    n = criteria.labels_for_cost_width(p, actions, costs, 0.05)
    rows = rng.integers(4000, size=n)
    y = (rng.random(n) < p[rows, 1]).astype(int)
    found = intervals.cost_interval(y, actions[rows], costs)
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
