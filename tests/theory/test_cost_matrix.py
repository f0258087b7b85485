"""Cost matrices: the cheapest decision against brute force, and the threshold of two classes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crcen import Budget, CostMatrix, decide
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Labels, Price


def cheaper_by_hand(p, tp, fp, fn, tn):
    return p * tp + (1 - p) * fp < p * fn + (1 - p) * tn


@pytest.mark.parametrize("seed", range(20))
def test_threshold_is_where_an_alarm_becomes_cheaper(seed):
    rng = np.random.default_rng(seed)
    tp, tn = rng.normal(size=2) * 5
    costs = {"tp": tp, "fp": tn + rng.exponential(3), "fn": tp + rng.exponential(30), "tn": tn}
    p = np.linspace(0, 1, 1001)
    assert 0 < CostMatrix.binary(**costs).threshold < 1
    np.testing.assert_array_equal(p > CostMatrix.binary(**costs).threshold, cheaper_by_hand(p, **costs))


def test_every_row_has_its_own_threshold():
    rng = np.random.default_rng(1)
    amount = rng.exponential(100, 500)
    p = rng.uniform(size=500)
    costs = CostMatrix.binary(tp=10.0, fp=10.0, fn=amount)
    by_hand = [cheaper_by_hand(p[i], 10.0, 10.0, amount[i], 0.0) for i in range(500)]
    np.testing.assert_array_equal(decide(p, costs), by_hand)
    assert np.isinf(costs.threshold[amount < 10]).all()  # not worth a visit, whatever p
    assert (costs.threshold[amount > 10] < 1).all()
    assert not decide(np.ones(500), costs)[amount < 10].any()
    costs = CostMatrix.binary(tp=0.0, fp=np.array([-1.0, 0.0, 1.0]), fn=5.0)  # an alarm on the first row always pays
    np.testing.assert_allclose(costs.threshold, [-np.inf, 0.0, 1 / 6])
    assert decide([0.0, 0.0, 0.0], costs).tolist() == [True, False, False]
    assert decide([0.1, 0.1, 0.1], costs).tolist() == [True, True, False]
    assert CostMatrix.binary(tp=np.array([3.0]), fp=2.0, fn=3.0, tn=2.0).threshold.tolist() == [np.inf]  # indifferent


@pytest.mark.parametrize("positive", [0, 1])
def test_costs_give_the_price_of_their_ratio(positive):
    labels = Labels(np.array(["fraud", "ok"]), ["fraud", "ok"][positive])
    plain, moved = CostMatrix.binary(tp=0, fp=1, fn=7, tn=0), CostMatrix.binary(tp=100, fp=51, fn=107, tn=50)
    assert moved.threshold == pytest.approx(plain.threshold)
    for costs in (plain, moved):
        price = labels.resolve(costs, labels.by_class(10, 90))
        assert (price.cost_ratio, price.n_pos, price.positive) == (pytest.approx(7), 10, positive)
        assert price.costs.costs[positive, 1 - positive] == costs.costs[1, 0]  # a miss


def test_costs_are_sums_over_the_confusion_matrix_and_expected_ones_their_mean():
    costs, rng = CostMatrix.binary(tp=2, fp=3, fn=50, tn=-1), np.random.default_rng(3)
    y, alarms = rng.uniform(size=300) < 0.3, rng.uniform(size=300) < 0.4
    by_hand = 2 * (y & alarms).sum() + 3 * (~y & alarms).sum() + 50 * (y & ~alarms).sum() - (~y & ~alarms).sum()
    assert costs.realised(y, alarms).sum() == pytest.approx(by_hand)
    for alarm in (0, 1):
        for p in (0.0, 0.2, 1.0):
            mean = p * costs.realised([1], [alarm])[0] + (1 - p) * costs.realised([0], [alarm])[0]
            assert costs.expected([p])[0, alarm] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"tp": 5, "fn": 5}, "fn must be above tp, .* no alarm pays"),
        ({"tp": 6, "fn": 5}, "no alarm pays"),
        ({"fp": 0}, "fp above tn: .* always pays"),
        ({"fp": -1, "fn": -1}, "least probable rows: did you mean gains"),
        ({"fp": np.array([1.0, -1.0]), "fn": np.array([1.0, -1.0])}, "least probable rows"),
        ({"fn": float("nan")}, "the cost fn must be a finite number .* got nan"),
        ({"fn": np.array([1.0, np.inf])}, "the cost fn must be a finite number"),
        ({"fn": np.ones((2, 2))}, "one for each row"),
        ({"fn": "dear"}, "the cost fn must be a number"),
        ({"fn": np.ones(3), "fp": np.ones(4)}, "must be numbers or arrays of one length"),
    ],
)
def test_matrices_without_a_meaning_are_refused(entries, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        CostMatrix.binary(**entries)


def test_probabilities_that_do_not_sum_to_one_are_refused():
    with pytest.raises(InvalidInput, match=r"the columns of p must sum to 1: got sums from 1\.3 to 1\.4"):
        CostMatrix([[0, 1, 1], [2, 0, 1], [5, 5, 0]]).decide([[0.4, 0.9, 0.1], [0.9, 0.1, 0.3]])


@given(st.integers(0, 10**6))
@settings(max_examples=30, deadline=None)
def test_the_cheapest_action_is_that_of_brute_force(seed):
    rng = np.random.default_rng(seed)
    costs, p = rng.uniform(0, 10, (3, 5)), rng.dirichlet(np.ones(3), 20)
    matrix = CostMatrix(costs, labels=["a", "b", "c"], actions=["review", "reject"])
    names = ["a", "b", "c", "review", "reject"]
    for row, decision in zip(p, matrix.decide(p), strict=True):
        expected = [sum(row[k] * costs[k, a] for k in range(3)) for a in range(5)]
        assert decision == names[int(np.argmin(expected))]


def test_class_weights_decide_as_their_matrix_does_and_other_matrices_have_none():
    p, weights = np.random.default_rng(0).dirichlet(np.ones(4), 3000), np.array([1.0, 5.0, 12.0, 40.0])
    matrix = CostMatrix(weights[:, None] * (1 - np.eye(4)) + np.array([[3.0], [0.0], [1.0], [2.0]]))
    assert matrix.class_weights() == pytest.approx(weights)
    assert np.array_equal((p * weights).argmax(1), matrix.choose(p))
    assert CostMatrix([[0, 1, 2], [1, 0, 1], [2, 1, 0]]).class_weights() is None
    assert CostMatrix([[0, 1, 0.3], [20, 0, 2]], actions=["review"]).class_weights() is None
    costs = Price(np.array([1.0, 5.0]), np.array([9.0, 3.0])).cost_matrix.for_classes(["x", "y"])
    assert costs == CostMatrix([[0, 1], [5, 0]], labels=["x", "y"])
    assert decide([0.05, 0.2], CostMatrix([[0, 1], [9, 0]], labels=["ok", "bad"])).tolist() == ["ok", "bad"]
    assert decide([0.05, 0.2], Budget(9)).tolist() == [False, True]


def test_labels_may_come_in_another_order_and_are_printed():
    costs = CostMatrix([[0, 1, 2], [3, 0, 4], [5, 6, 0]], labels=["b", "a", "c"])
    ours = costs.for_classes(np.array(["a", "b", "c"]))
    assert ours.costs.tolist() == [[0, 3, 4], [1, 0, 2], [6, 5, 0]]
    with pytest.raises(InvalidParameter, match=r"must be for the classes \['a', 'b', 'x'\]"):
        costs.for_classes(["a", "b", "x"])
    by_row = CostMatrix.binary(tp=1, fn=np.arange(1.0, 8.0) + 1)
    assert repr(by_row) == "CostMatrix.binary(tp=1, fp=1, fn=<7 rows>, tn=0)"
    assert "review" in str(CostMatrix([[0, 1, 0.3], [20, 0, 2]], labels=["ok", "bad"], actions=["review"]))
    assert "positive" in str(CostMatrix.binary(fn=3))


def test_costs_by_row_and_what_they_came_to():
    costs = np.array([[[0, 1.0], [5, 0]], [[0, 1.0], [0.1, 0]]])
    matrix = CostMatrix(costs)
    assert matrix.choose([[0.6, 0.4], [0.6, 0.4]]).tolist() == [1, 0]
    assert matrix.realised([1, 1], [1, 0]).tolist() == [0.0, 0.1]
    for call in (lambda: matrix.choose([[0.6, 0.4]]), lambda: matrix.realised([0], [0])):
        with pytest.raises(InvalidInput, match="these costs are for 2 rows: got 1"):
            call()
    with pytest.raises(InvalidParameter, match="differ by row"):
        Labels(np.array([0, 1]), 1).resolve(matrix, [1, 1])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: CostMatrix([[0, 1]]), "a row for each true class"),
        (lambda: CostMatrix([[0, np.nan], [1, 0]]), "finite"),
        (lambda: CostMatrix([[0, 1, 2], [1, 0, 2]]), "must name 1 columns of costs"),
        (lambda: CostMatrix([[0, 1], [1, 0]], labels=["a", "a"]), "2 different classes"),
        (lambda: CostMatrix([[0, 1, 2], [1, 0, 2]], labels=["a", "b"], actions=["a"]), "the name of a class"),
        (lambda: CostMatrix([[0, 1, 2], [1, 0, 2], [1, 1, 0]]).threshold, "CostMatrix.binary"),
    ],
)
def test_matrices_that_mean_nothing_are_refused(make, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        make()
