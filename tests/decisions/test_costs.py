"""Cost matrices: one threshold from four entries, checked against the cheaper of two expected costs."""

import numpy as np
import pytest

from crcen import CostMatrix, InvalidInput, InvalidParameter, decide
from crcen.theory.labels import Labels


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


def test_rows_on_which_an_alarm_always_pays():
    costs = CostMatrix.binary(tp=0.0, fp=np.array([-1.0, 0.0, 1.0]), fn=5.0)
    np.testing.assert_allclose(costs.threshold, [-np.inf, 0.0, 1 / 6])
    assert decide([0.0, 0.0, 0.0], costs).tolist() == [True, False, False]
    assert decide([0.1, 0.1, 0.1], costs).tolist() == [True, True, False]


def test_a_row_indifferent_between_both_gets_no_alarm():
    assert CostMatrix.binary(tp=np.array([3.0]), fp=2.0, fn=3.0, tn=2.0).threshold.tolist() == [np.inf]


@pytest.mark.parametrize("positive", [0, 1])
def test_costs_give_the_price_of_their_ratio(positive):
    labels = Labels(np.array(["fraud", "ok"]), ["fraud", "ok"][positive])
    plain, moved = CostMatrix.binary(tp=0, fp=1, fn=7, tn=0), CostMatrix.binary(tp=100, fp=51, fn=107, tn=50)
    assert moved.threshold == pytest.approx(plain.threshold)
    for costs in (plain, moved):
        price = labels.resolve(costs, labels.by_class(10, 90))
        assert (price.cost_ratio, price.n_pos, price.positive) == (pytest.approx(7), 10, positive)
        assert price.costs.costs[positive, 1 - positive] == costs.costs[1, 0]  # a miss


def test_costs_add_up_to_the_confusion_matrix():
    rng = np.random.default_rng(3)
    y, alarms = rng.uniform(size=300) < 0.3, rng.uniform(size=300) < 0.4
    total = CostMatrix.binary(tp=2, fp=3, fn=50, tn=-1).realised(y, alarms).sum()
    by_hand = 2 * (y & alarms).sum() + 3 * (~y & alarms).sum() + 50 * (y & ~alarms).sum() - (~y & ~alarms).sum()
    assert total == pytest.approx(by_hand)


def test_expected_cost_is_the_mean_of_realised_cost():
    costs = CostMatrix.binary(tp=2, fp=3, fn=50, tn=-1)
    for alarm in (0, 1):
        for p in (0.0, 0.2, 1.0):
            mean = p * costs.realised([1], [alarm])[0] + (1 - p) * costs.realised([0], [alarm])[0]
            assert costs.expected([p])[0, alarm] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"tp": 5, "fn": 5}, "never pays: fn must be above tp"),
        ({"tp": 6, "fn": 5}, "never pays"),
        ({"fp": 0}, "always pays: fp must be above tn"),
        ({"fp": -1, "fn": -1}, "least probable rows: did you mean gains"),
        ({"fp": np.array([1.0, -1.0]), "fn": np.array([1.0, -1.0])}, "least probable rows"),
        ({"fn": float("nan")}, "the cost fn must be finite: got nan"),
        ({"fn": np.array([1.0, np.inf])}, "the cost fn must be finite: got inf"),
        ({"fn": np.ones((2, 2))}, "got shape"),
        ({"fn": "dear"}, "the cost fn must be a number"),
        ({"fn": np.ones(3), "fp": np.ones(4)}, "must be numbers or arrays of one length"),
    ],
)
def test_matrices_without_a_meaning_are_refused(entries, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        CostMatrix.binary(**entries)


def test_costs_by_row_are_no_price_of_a_fit():
    with pytest.raises(InvalidParameter, match="differ by row"):
        Labels(np.array([0, 1]), 1).resolve(CostMatrix.binary(fn=np.array([2.0, 3.0])), [1, 1])


@pytest.mark.parametrize("call", [lambda c: decide([0.1, 0.2], c), lambda c: c.realised([0, 1], [0, 1])])
def test_costs_for_other_rows_are_refused(call):
    with pytest.raises(InvalidInput, match="these costs are for 3 rows: got 2"):
        call(CostMatrix.binary(fn=np.array([2.0, 3.0, 4.0])))


def test_costs_show_themselves():
    assert (
        repr(CostMatrix.binary(tp=1, fn=np.arange(1.0, 8.0) + 1)) == "CostMatrix.binary(tp=1, fp=1, fn=<7 rows>, tn=0)"
    )
