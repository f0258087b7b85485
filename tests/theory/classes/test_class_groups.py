"""Groups under the same costs: figures by hand, the test of two classes at K = 2, differences found, none invented."""

import numpy as np
import pytest
from scipy.stats import fisher_exact

from crcen import CostMatrix, resolve
from crcen.theory.classes.class_groups import compare_class_groups
from crcen.theory.classes.judged_equations import judge_class_equations
from crcen.theory.group_tests import shares_alike
from crcen.theory.groups import compare_groups
from crcen.theory.price import CostRatio, Price

COSTS = CostMatrix([[0, 12, 12], [1, 0, 1], [3, 3, 0]], labels=["x", "y", "z"])
TRAINED = Price(np.array([12.0, 1.0, 3.0]), np.array([1100.0, 6000.0, 2900.0]))


def rows(seed, n=2000, moved=0.0):
    """Labels from a softmax; in group "c" the log-odds of x have moved, which the probabilities do not know."""
    rng = np.random.default_rng(seed)
    X, group = rng.normal(size=(n, 2)), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    logits = np.column_stack([X[:, 0] - 1.5, np.ones(n), X[:, 1]])
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    logits[group == "c", 0] += moved
    return group, np.argmax(logits + rng.gumbel(size=logits.shape), axis=1), p


def test_figures_are_those_of_the_rows_of_a_group():
    group, y, p = rows(0)
    weights = np.random.default_rng(1).choice([0.0, 1.0, 2.0], len(y))
    (found,) = compare_class_groups({"g": group}, y, p, COSTS, TRAINED, weights, noise=1.3)
    assert [one.name for one in found.groups] == ["a", "b", "c"]
    for one in found.groups:
        mine = (group == one.name) & (weights > 0)
        chosen = (p[mine] @ COSTS.costs).argmin(axis=1)
        share = weights[mine] / weights[mine].sum()
        assert one.n_rows == mine.sum()
        assert one.quality.cost.value == pytest.approx(share @ COSTS.costs[y[mine], chosen])
        assert one.expected_cost == pytest.approx(share @ (p[mine] @ COSTS.costs).min(axis=1))
        np.testing.assert_allclose(
            one.expected / one.found, (weights[mine] @ p[mine]) / np.bincount(y[mine], weights[mine])
        )
        own = judge_class_equations(y[mine], p[mine], TRAINED, "xyz", weights[mine], noise=1.3)
        assert one.equations.joint.statistic == pytest.approx(own.joint.statistic)
        assert one.to_dict()["classes"][0]["recall"]["value"] == pytest.approx(
            weights[mine][(y[mine] == 0) & (chosen == 0)].sum() / weights[mine][y[mine] == 0].sum()
        )


def test_two_classes_have_the_calibration_test_of_two_classes():
    rng = np.random.default_rng(3)
    p = rng.beta(1, 4, 3000)
    y, group = rng.random(3000) < p, rng.choice(["a", "b", "c"], 3000)
    price = resolve(CostRatio(4.0), 600, 2400)
    (two,) = compare_groups({"g": group}, y, p, price, price, noise=1.2)
    costs = CostMatrix([[0, 1], [4, 0]], labels=["no", "yes"])
    weights = Price(np.array([1.0, 4.0]), np.array([2400.0, 600.0]))
    (same,) = compare_class_groups({"g": group}, y.astype(int), np.column_stack([1 - p, p]), costs, weights, noise=1.2)
    assert same.tests[2].figure == two.tests[2].figure == "calibration"
    assert same.tests[2].p_value == pytest.approx(two.tests[2].p_value, rel=1e-8)


def test_shares_in_strata_agree_with_fishers_test_where_one_stratum_tells():
    hit = np.r_[np.arange(200) < 150, np.arange(200) < 122, np.ones(100, bool)]
    which, strata = np.r_[np.zeros(200, int), np.ones(200, int), np.tile([0, 1], 50)], np.arange(500) < 400
    exact = fisher_exact([[150, 50], [122, 78]]).pvalue
    assert shares_alike(which, 2, [strata, ~strata], hit, None) == pytest.approx(exact, abs=4 * np.sqrt(exact / 1e4))
    assert np.isnan(shares_alike(which, 2, [~strata], hit, None))


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_group_whose_probabilities_are_wrong_is_found_and_named(is_weighted):
    group, y, p = rows(4, moved=1.2)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, len(y)) if is_weighted else None
    (found,) = compare_class_groups({"g": group}, y, p, COSTS, TRAINED, weights)
    assert "calibration" in found.differing
    assert "rows of x found over expected" in found.sentence
    assert "(c)" in found.sentence
    wrong = next(one for one in found.groups if one.name == "c")
    assert wrong.equations.verdict == "do not hold"
    assert wrong.quality.cost.low > wrong.expected_cost
    assert len(found.lines()) == 4


def test_groups_that_are_alike_are_seldom_called_different():
    """At most .01 for all figures together: 60 tables."""
    called = [
        bool(compare_class_groups({"g": g}, y, p, COSTS, TRAINED)[0].differing)
        for g, y, p in (rows(seed, n=800) for seed in range(60))
    ]
    assert sum(called) <= 3
