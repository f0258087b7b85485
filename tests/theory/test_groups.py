"""Groups under one price: metrics by hand, differences that are there found, none invented; exact tests of counts."""

import math
import re

import numpy as np
import pytest
from scipy.stats import chi2_contingency, fisher_exact, hypergeom, norm

from crcen import Budget, CostMatrix, InvalidInput, resolve
from crcen.theory.groups import MISSING, MOST_GROUPS, OTHERS, compare_groups, shares_alike, shares_p_value
from crcen.theory.intervals import estimate_shares, shifted_probabilities, wilson
from crcen.theory.key_equation import judge_equations
from crcen.theory.price import CostRatio, Price
from crcen.theory.thresholds import fewest_rows, one_per_cluster, precision_cut

PRICE = resolve(Budget(4.0), 100, 900)


def compare(columns, y, p, *settings, **more):
    """Groups by class numbers and probabilities of all classes, or of the positive one of two."""
    return compare_groups(columns, y.astype(int), np.column_stack([1 - p, p]) if p.ndim == 1 else p, *settings, **more)


def rows(n, seed):
    rng = np.random.default_rng(seed)
    p = rng.beta(1, 5, n)
    return rng, p, rng.random(n) < p


def test_figures_are_counts_of_the_group():
    rng, p, y = rows(800, 0)
    group = rng.choice(["a", "b", None], 800, p=[0.6, 0.3, 0.1])
    (found,) = compare({"sex": group}, y, p, PRICE, PRICE)
    assert [one.name for one in found.groups] == ["a", "b", MISSING]
    for one in found.groups:
        mine = group == (None if one.name == MISSING else one.name)
        alarms = p[mine] > 0.2
        assert one.n_rows == mine.sum()
        assert one.recall.low < one.recall.value < one.recall.high
        shares = (one.recall.value, one.precision.value, one.found_over_expected.value)
        by_hand = (alarms[y[mine]].mean(), y[mine][alarms].mean(), y[mine].sum() / p[mine].sum())
        assert shares == pytest.approx(by_hand)
        misses, false = (y[mine] & ~alarms).sum(), (~y[mine] & alarms).sum()
        assert one.cost_per_1000 == pytest.approx(1000 * (4 * misses + false) / mine.sum())
        q = 4 * p[mine] / (4 * p[mine] + 1 - p[mine])
        sides = (1 - q[y[mine]].mean()) / q[~y[mine]].mean(), (~y[mine]).sum() / (4 * y[mine].sum())
        assert (one.equation.lhs, one.equation.rhs) == pytest.approx(sides)


def test_equal_recall_is_reached_at_the_named_price():
    rng, p, y = rows(3000, 1)
    group = rng.choice(["a", "b"], 3000)
    (found,) = compare({"sex": group}, y, p, PRICE, PRICE)
    for one in found.groups:
        mine = group == one.name
        alarms = p[mine] >= 1 / (1 + one.equal_recall["price"]) * (1 - 1e-12)
        assert 0 <= alarms[y[mine]].mean() - found.overall_recall < 1.5 / y[mine].sum()
        assert one.equal_recall["alarms_per_1000"] == pytest.approx(1000 * alarms.mean())


def test_a_recall_that_differs_is_found_and_agrees_with_fishers_test():
    caught = np.r_[np.arange(200) < 150, np.arange(200) < 118, np.zeros(400, bool), True]
    group, labels = np.append(np.tile(np.repeat(["a", "b"], 200), 2), "z"), np.r_[np.arange(800) < 400, True]
    (found,) = compare({"g": group}, labels, np.where(caught, 0.9, 0.05), PRICE, PRICE)
    exact = fisher_exact([[150, 50], [118, 82]]).pvalue
    recall = next(test for test in found.tests if test.figure == "recall")
    assert recall.p_value == pytest.approx(exact, abs=4 * math.sqrt(exact / 10000) + 2e-4)
    assert recall.differs == (recall.p_value < 0.01 / 3)
    assert "recall from 0.59 (b) to 0.75 (a)" in found.sentence  # z, of one row, was not compared


def test_probabilities_that_are_wrong_for_a_group_are_found():
    rng, p, y = rows(6000, 3)
    group = rng.choice(["a", "b", "c"], 6000)
    odds = p / (1 - p) * np.exp(0.8)
    y = np.where(group == "c", rng.random(6000) < odds / (1 + odds), y)
    (found,) = compare({"g": group}, y, p, PRICE, PRICE)
    assert "calibration" in found.differing
    assert "(c)" in found.sentence
    assert next(one for one in found.groups if one.name == "c").found_over_expected.low > 1


def test_groups_that_are_alike_are_seldom_called_different():
    """The chance of any warning over three columns and all figures is at most .01: 60 tables."""
    warned = 0
    for seed in range(60):
        rng, p, y = rows(600, 100 + seed)
        columns = {name: rng.choice(list("abcd"), 600, p=[0.5, 0.3, 0.15, 0.05]) for name in ("x", "y", "z")}
        warned += any(one.differing for one in compare(columns, y, p, PRICE, PRICE))
    assert warned <= 4  # more has a chance of .0004 at a rate of .01
    tables = (classes(seed, n=800) for seed in range(60))
    assert sum(bool(compare({"g": g}, y, p, AT_COSTS, TRAINED)[0].differing) for g, y, p in tables) <= 3


def test_many_values_and_groups_of_one_class():
    rng, p, y = rows(900, 5)
    group = rng.integers(0, 60, 900).astype(str)
    (found,) = compare({"g": group}, y, p, PRICE, PRICE)
    assert (len(found.groups), found.groups[-1].name) == (MOST_GROUPS, OTHERS)
    assert sum(one.n_rows for one in found.groups) == 900
    none = np.where(y, "a", "b")
    (found,) = compare({"g": none}, y, p, PRICE, PRICE)
    assert found.groups[0].equation is None
    assert found.to_dict()["groups"][0]["key_equation"]["left"] is None
    assert all("nan" not in line for line in found.lines())
    with pytest.raises(InvalidInput, match="one value for each"):
        compare({"g": none[:5]}, y, p, PRICE, PRICE)


def test_a_row_of_weight_k_counts_as_k_rows():
    rng, p, y = rows(600, 5)
    group = rng.choice(["a", "b"], 600, p=[0.7, 0.3])
    k = rng.integers(0, 4, 600)
    (weighted,) = compare({"sex": group}, y, p, PRICE, PRICE, 10.0 * k)
    (copied,) = compare({"sex": np.repeat(group, k)}, np.repeat(y, k), np.repeat(p, k), PRICE, PRICE)
    assert weighted.overall_recall == pytest.approx(copied.overall_recall)
    for one, other in zip(weighted.groups, copied.groups, strict=True):
        assert (one.name, one.n_rows) == (other.name, (group == one.name).sum())
        for figure in ("alarm_share", "recall", "precision", "found_over_expected"):
            assert getattr(one, figure).value == pytest.approx(getattr(other, figure).value)
            # Copies look like more rows than there are.
            assert getattr(one, figure).high > getattr(other, figure).high
        assert (one.equation.lhs, one.cost_per_1000) == pytest.approx((other.equation.lhs, other.cost_per_1000))
        assert one.equal_recall == pytest.approx(other.equal_recall)


def test_tests_by_weight_reject_as_often_as_they_say():
    rejected = np.zeros(3)
    for seed in range(200):
        rng, p, y = rows(600, seed)
        group = rng.choice(["a", "b", "c"], 600)
        (found,) = compare({"g": group}, y, p, PRICE, PRICE, rng.gamma(2.0, 3.0, 600), error_rate=0.3)
        rejected += [test.differs for test in found.tests]
    assert ((rejected > 6) & (rejected < 36)).all()  # at .1 each: 20 of 200, with a standard deviation of 4.2


# -- K classes -------------------------------------------------------------------------------------------------------

COSTS = CostMatrix([[0, 12, 12], [1, 0, 1], [3, 3, 0]], labels=["x", "y", "z"])
AT_COSTS = Price(np.ones(3), np.ones(3), COSTS)
TRAINED = Price(np.array([12.0, 1.0, 3.0]), np.array([1100.0, 6000.0, 2900.0]))


def classes(seed, n=2000, moved=0.0):
    """Labels from a softmax; in group "c" the log-odds of x have moved, which the probabilities do not know."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 2)), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    logits = np.column_stack([X[:, 0] - 1.5, np.ones(n), X[:, 1]])
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    logits[group == "c", 0] += moved
    return group, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1), p


@pytest.mark.parametrize("weight", [0.2, 10.0])
def test_random_groups_are_seldom_different_if_hits_have_other_weights(weight):
    rng, p_values = np.random.default_rng(6), []
    for _ in range(400):
        hit, which = rng.random(800) < 0.1, rng.integers(0, 4, 800)
        w = np.where(hit, weight, 1.0) * rng.lognormal(0.0, 0.3, 800)
        p_values.append(shares_alike(which, [np.ones(800, bool)], hit, w, 0.01, None))
    assert np.mean(np.array(p_values) < 0.05) < 0.075
    assert shares_alike(which, [np.ones(800, bool)], hit | (which == 0), w, 0.01, None) < 1e-6


def test_figures_of_k_classes_are_those_of_the_rows_of_a_group():
    group, y, p = classes(0)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.0], len(y))
    (found,) = compare({"g": group}, y, p, AT_COSTS, TRAINED, weights, labels="xyz", noise=1.3)
    assert [one.name for one in found.groups] == ["a", "b", "c"]
    for one in found.groups:
        mine = (group == one.name) & (weights > 0)
        chosen = (p[mine] @ COSTS.costs).argmin(axis=1)
        share = weights[mine] / weights[mine].sum()
        by_hand = share @ COSTS.costs[y[mine], chosen], share @ (p[mine] @ COSTS.costs).min(axis=1)
        assert one.n_rows == mine.sum()
        assert (one.quality.cost.value, one.quality.expected_cost) == pytest.approx(by_hand)
        expected = weights[mine] @ p[mine] / np.bincount(y[mine], weights[mine])
        np.testing.assert_allclose(one.expected / one.quality.counts.table.sum(axis=1), expected)
        own = judge_equations(y[mine], p[mine], TRAINED, "xyz", weights[mine], noise=1.3)
        assert one.equation.equations.statistic == pytest.approx(own.equations.statistic)
        recall = np.average(chosen[y[mine] == 0] == 0, weights=weights[mine][y[mine] == 0])
        assert one.to_dict()["classes"][0]["recall"]["value"] == pytest.approx(recall)


@pytest.mark.parametrize("positive", [0, 1])
def test_columns_of_two_classes_are_the_binary_comparison(positive):
    rng = np.random.default_rng(3)
    p = rng.beta(1, 4, 3000)
    y, group = rng.random(3000) < p, rng.choice(["a", "b", "c"], 3000)
    price = resolve(CostRatio(4.0), 600, 2400)
    (two,) = compare({"g": group}, y, p, price, price, noise=1.2)
    same = Price([1, 4], [2400, 600], None, 1) if positive else Price([4, 1], [600, 2400], None, 0)
    columns = np.column_stack([1 - p, p] if positive else [p, 1 - p])
    (found,) = compare({"g": group}, (y == positive).astype(int), columns, same, same, noise=1.2)
    assert [one.p_value for one in found.tests] == pytest.approx([one.p_value for one in two.tests], rel=1e-8)
    assert found.lines() == two.lines()


def test_shares_in_strata_agree_with_fishers_test_where_one_stratum_tells():
    hit = np.r_[np.arange(200) < 150, np.arange(200) < 122, np.ones(100, bool)]
    which, strata = np.r_[np.zeros(200, int), np.ones(200, int), np.tile([0, 1], 50)], np.arange(500) < 400
    exact = fisher_exact([[150, 50], [122, 78]]).pvalue
    found = shares_alike(which, [strata, ~strata], hit, None, 0.01, None)
    assert found == pytest.approx(exact, abs=4 * np.sqrt(exact / 1e4))
    assert np.isnan(shares_alike(which, [~strata], hit, None, 0.01, None))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_group_whose_probabilities_are_wrong_is_found_and_named(is_weighted):
    group, y, p = classes(4, moved=1.2)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(y)) if is_weighted else None
    (found,) = compare({"g": group}, y, p, AT_COSTS, TRAINED, weights, labels="xyz")
    assert "calibration" in found.differing
    assert re.search(r"rows of x found over expected.*\(c\)", found.sentence)
    wrong = next(one for one in found.groups if one.name == "c")
    assert wrong.quality.cost.low > wrong.quality.expected_cost
    assert (wrong.equation.verdict, len(found.lines())) == ("does not hold", 4)


def clustered(rng, n_clusters=200, size=10, rho=0.5):
    """Probabilities that are right for each row alone, labels that depend within clusters (a probit), clusters."""
    clusters = np.repeat(np.arange(n_clusters), size)
    x = rng.normal(-1.8, 0.8, clusters.size)
    latent = np.sqrt(rho) * rng.standard_normal(n_clusters)[clusters] + np.sqrt(1 - rho) * rng.standard_normal(x.size)
    return norm.cdf(x), latent < x, clusters


def test_clusters_keep_the_error_rate_of_every_test():
    """200 × 10 rows, ρ = .5: at .05 too many samples are called different as independent rows, and few as clusters."""
    rng, hits = np.random.default_rng(3), np.zeros((2, 3))
    for _ in range(200):
        p, y, clusters = clustered(rng)
        group = rng.integers(0, 3, 200)[clusters].astype(str)
        for place, own in enumerate((None, clusters)):
            (found,) = compare({"g": group}, y, p, PRICE, PRICE, clusters=own, error_rate=0.15)
            hits[place] += [test.p_value < 0.05 for test in found.tests]
    assert hits[0, 2] / 200 > 0.12  # calibration
    assert (hits[1] / 200 <= 0.05 + 2.6 * np.sqrt(0.05 * 0.95 / 200)).all()


def test_found_over_expected_has_wilsons_interval_and_its_coverage_where_probabilities_are_wrong():
    """Rows are positive with twice or half their probability, times a factor of their cluster of mean 1."""
    y, ones = np.arange(60) % 5 == 0, np.array(["a"] * 60)
    for p, share in ((0.1, y), (0.3, y), (0.2, y & False)):
        (found,) = compare({"g": ones}, share, np.full(60, p), PRICE, PRICE)
        expected = [float(one) / p for one in wilson(share.mean(), 60)]
        assert found.groups[0].found_over_expected[1:] == pytest.approx(expected, abs=1e-3)
    rng, clusters, covered = np.random.default_rng(0), np.repeat(np.arange(80), 12), np.zeros((2, 2))
    for _ in range(100):
        p, shared = rng.beta(2, 18, 960), rng.gamma(4, 0.25, 80)
        for i, ratio in enumerate((0.5, 2.0)):
            for j, effect in enumerate((np.ones(80), shared)):
                y = rng.random(960) < ratio * p * effect[clusters]
                own = clusters if j else None
                (found,) = compare({"g": np.full(960, "a")}, y, p, PRICE, PRICE, clusters=own)
                low, high = found.groups[0].found_over_expected[1:]
                covered[i, j] += low <= ratio <= high
    assert (np.abs(covered / 100 - 0.95) < 3.3 * np.sqrt(0.05 * 0.95 / 100)).all()


def test_a_real_difference_is_found_with_clusters_and_intervals_are_longer():
    p, y, clusters = clustered(np.random.default_rng(4), 600)
    group = np.where(clusters % 2, "a", "b")
    alone, together = (
        compare({"g": group}, y & ((group == "b") | (p < 0.1)), p, PRICE, PRICE, clusters=own)[0]
        for own in (None, clusters)
    )
    assert "calibration" in together.differing
    for one, other in zip(alone.groups, together.groups, strict=True):
        assert other.found_over_expected.high > one.found_over_expected.high
        assert other.recall.value == one.recall.value


def test_shares_of_groups_are_compared_exactly_below_any_level_and_at_the_level():
    hits, sizes = np.array([30, 10]), np.array([40, 40])
    exact = shares_p_value([(hits, sizes)], 0.01)
    assert exact == pytest.approx(fisher_exact([[30, 10], [10, 30]]).pvalue)
    apart = shares_p_value([(np.array([0, 40]), np.array([40, 40]))], 1e-5)
    assert apart == pytest.approx(2 * hypergeom.pmf(0, 80, 40, 40))
    hits, sizes = np.array([40, 5, 20, 22]), np.array([45, 45, 45, 45])
    level = 0.01 / (3 * 60)
    assert shares_p_value([(hits, sizes)], level) < level
    even = np.array([20, 21, 22, 23])
    drawn = shares_p_value([(even, sizes)], level)
    assert drawn == pytest.approx(chi2_contingency([even, sizes - even]).pvalue, abs=0.15)
    assert np.isnan(shares_p_value([(np.array([0, 0]), np.array([5, 5]))], 0.01))
    assert shares_p_value([(hits, sizes), (even, sizes)], level) < 0.01
    rng = np.random.default_rng(0)
    p_values = np.array([shares_p_value([(rng.binomial(30, 0.4, 3), np.full(3, 30))], 0.05, i) for i in range(200)])
    assert (p_values < 0.05).mean() <= 0.1


def test_guarantees_need_enough_alarms_and_take_one_row_of_each_cluster_at_random():
    assert fewest_rows(0.5, 0.95) == 5
    cases = ((4, 1.0), (50, 0.0), (70, 0.0), (10, 1.0))  # right rows at the top of 100; scores differ or are equal
    cuts = [precision_cut(np.arange(100) < n, -slope * np.arange(100), 0.5, 0.95) for n, slope in cases]
    assert cuts[:3] == [0, 0, 100]
    assert cuts[3] >= 10
    clusters = np.repeat(["a", "b", "c"], [1, 50, 3])
    chosen = one_per_cluster(clusters)
    assert list(clusters[chosen]) == ["a", "b", "c"]
    places = {int(np.flatnonzero(one_per_cluster(clusters, seed))[1]) for seed in range(30)}
    assert len(places) > 10


@pytest.mark.parametrize("n_classes", [2, 3])
def test_class_shares_are_estimated_without_labels(n_classes):
    rng = np.random.default_rng(n_classes)
    trained = np.array([0.9, 0.1]) if n_classes == 2 else np.array([0.7, 0.2, 0.1])
    new = np.array([0.7, 0.3]) if n_classes == 2 else np.array([0.4, 0.3, 0.3])
    centres, covered = 2.0 * np.eye(n_classes), []
    for _ in range(15 if n_classes == 3 else 40):
        x = rng.normal(centres[rng.choice(n_classes, 800, p=new)], 1.0)
        like = np.exp(-0.5 * ((x[:, None] - centres) ** 2).sum(axis=2))
        p = like * trained / (like * trained).sum(axis=1, keepdims=True)
        found = estimate_shares(p, trained)
        covered.append([one.low <= truth <= one.high for one, truth in zip(found, new, strict=True)])
    assert np.mean(covered) >= 0.88
    moved = like * new
    np.testing.assert_allclose(shifted_probabilities(p, trained, new), moved / moved.sum(axis=1, keepdims=True))
    thinned = np.where(x[:, 1] > 1.0, 0.25, 1.0)  # weights of rows that were drawn four times as often there
    many = estimate_shares(np.repeat(p, (4 * thinned).astype(int), axis=0), trained)
    few = estimate_shares(p, trained, 8.0 * thinned)
    assert [one.value for one in few] == pytest.approx([one.value for one in many], abs=1e-4)
    assert all(a.low < b.low and a.high > b.high for a, b in zip(few, many, strict=True))
    np.testing.assert_allclose(estimate_shares(p, trained, np.full(800, 0.2)), found, rtol=1e-6)
    wide = estimate_shares(p, trained, uncertainty=np.full(n_classes, 0.3))
    assert all(a.low < b.low and a.high > b.high for a, b in zip(wide, found, strict=True))
