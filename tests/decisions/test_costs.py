"""Cost matrices: one threshold from four entries, checked against the cheaper of two expected costs."""

import numpy as np
import pytest

from crcen import Budget, CostRatio, Costs, InvalidInput, InvalidParameter, Lam, decide
from crcen.theory.costs import expected_cost, realised_cost


def cheaper_by_hand(p, tp, fp, fn, tn):
    return p * tp + (1 - p) * fp < p * fn + (1 - p) * tn


@pytest.mark.parametrize("seed", range(20))
def test_threshold_is_where_an_alarm_becomes_cheaper(seed):
    rng = np.random.default_rng(seed)
    tp, tn = rng.normal(size=2) * 5
    costs = {"tp": tp, "fp": tn + rng.exponential(3), "fn": tp + rng.exponential(30), "tn": tn}
    p = np.linspace(0, 1, 1001)
    assert 0 < Costs(**costs).threshold < 1
    np.testing.assert_array_equal(p > Costs(**costs).threshold, cheaper_by_hand(p, **costs))


def test_every_row_has_its_own_threshold():
    rng = np.random.default_rng(1)
    amount = rng.exponential(100, 500)
    p = rng.uniform(size=500)
    costs = Costs(tp=10.0, fp=10.0, fn=amount)
    by_hand = [cheaper_by_hand(p[i], 10.0, 10.0, amount[i], 0.0) for i in range(500)]
    np.testing.assert_array_equal(decide(p, costs), by_hand)
    assert np.isinf(costs.threshold[amount < 10]).all()  # not worth a visit, whatever p
    assert (costs.threshold[amount > 10] < 1).all()
    assert not decide(np.ones(500), costs)[amount < 10].any()


def test_rows_on_which_an_alarm_always_pays():
    costs = Costs(tp=0.0, fp=np.array([-1.0, 0.0, 1.0]), fn=5.0)
    np.testing.assert_allclose(costs.threshold, [-np.inf, 0.0, 1 / 6])
    assert decide([0.0, 0.0, 0.0], costs).tolist() == [True, False, False]
    assert decide([0.1, 0.1, 0.1], costs).tolist() == [True, True, False]


def test_a_row_indifferent_between_both_gets_no_alarm():
    assert Costs(tp=np.array([3.0]), fp=2.0, fn=3.0, tn=2.0).threshold.tolist() == [np.inf]


@pytest.mark.parametrize("price", [Budget(5), CostRatio(0.3), Lam(0.9), 0.75, None])
def test_a_price_is_a_cost_matrix(price):
    costs = Costs.of_price(price)
    assert costs.weighting.value == pytest.approx(costs.fn)
    np.testing.assert_allclose(costs.threshold, 1 / (1 + costs.fn))


def test_only_the_differences_count():
    plain, moved = Costs(tp=0, fp=1, fn=7, tn=0), Costs(tp=100, fp=51, fn=107, tn=50)
    assert moved.threshold == pytest.approx(plain.threshold)
    assert moved.weighting.value == pytest.approx(7)


def test_costs_add_up_to_the_confusion_matrix():
    rng = np.random.default_rng(3)
    y, alarms = rng.uniform(size=300) < 0.3, rng.uniform(size=300) < 0.4
    total = realised_cost(y, alarms, Costs(tp=2, fp=3, fn=50, tn=-1)).sum()
    by_hand = 2 * (y & alarms).sum() + 3 * (~y & alarms).sum() + 50 * (y & ~alarms).sum() - (~y & ~alarms).sum()
    assert total == pytest.approx(by_hand)


def test_expected_cost_is_the_mean_of_realised_cost():
    costs = Costs(tp=2, fp=3, fn=50, tn=-1)
    for alarm in (0, 1):
        for p in (0.0, 0.2, 1.0):
            mean = p * realised_cost([1], [alarm], costs)[0] + (1 - p) * realised_cost([0], [alarm], costs)[0]
            assert expected_cost([p], [alarm], costs)[0] == pytest.approx(mean)


@pytest.mark.parametrize(
    ("entries", "sentence"),
    [
        ({"tp": 5, "fn": 5}, "never pays: fn must be above tp"),
        ({"tp": 6, "fn": 5}, "never pays"),
        ({"fp": 0}, "always pays: fp must be above tn"),
        ({"fp": -1, "fn": -1}, "least probable rows: did you mean gains"),
        ({"fp": np.array([1.0, -1.0]), "fn": np.array([1.0, -1.0])}, "least probable rows"),
        ({"fn": float("nan")}, "fn of Costs must be finite, got nan"),
        ({"fn": np.array([1.0, np.inf])}, "fn of Costs must be finite, got inf"),
        ({"fn": np.ones((2, 2))}, "got shape"),
        ({"fn": "dear"}, "fn of Costs must be a number"),
        ({"fn": np.ones(3), "fp": np.ones(4)}, "must be plain numbers or have one length"),
    ],
)
def test_matrices_without_a_meaning_are_refused(entries, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        Costs(**entries)


def test_costs_by_row_are_no_single_weighting():
    with pytest.raises(InvalidParameter, match="no single weighting"):
        _ = Costs(fn=np.array([2.0, 3.0])).weighting


@pytest.mark.parametrize("call", [lambda c: decide([0.1, 0.2], c), lambda c: realised_cost([0, 1], [0, 1], c)])
def test_costs_for_other_rows_are_refused(call):
    with pytest.raises(InvalidInput, match="these costs are for 3 rows, got 2"):
        call(Costs(fn=np.array([2.0, 3.0, 4.0])))


def test_costs_show_themselves():
    assert repr(Costs(tp=1, fn=np.ones(7))) == "Costs(tp=1, fp=1, fn=<7 rows>, tn=0)"
