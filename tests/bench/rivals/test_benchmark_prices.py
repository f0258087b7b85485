"""Costs at a price and the calibration error, against counts made by hand and a known posterior."""

import numpy as np
import pytest

from bench.rivals.prices import PRICES, calibration_error, costs, relative_cost
from bench.rivals.results import COSTS, METRICS


def test_cost_is_counted_over_the_cheaper_habit():
    y, p = np.array([1, 1, 0, 0, 0, 0, 0, 0]), np.array([0.9, 0.1, 0.3, 0.2, 0.0, 0.0, 0.0, 0.0])
    # At 2 alarms are above 1/3: one miss worth 2, no false alarm; never alarming costs 4, always 6.
    assert relative_cost(y, p, 2.0) == pytest.approx(2 / 4)
    # At 4 alarms are above 1/5: one miss, one false alarm (0.2 itself is none); always alarming costs 6, never 8.
    assert relative_cost(y, p, 4.0) == pytest.approx((4 + 1) / 6)


@pytest.mark.parametrize("price", [1.5, 7.0])
def test_a_habit_costs_at_least_one(price):
    y = np.repeat([1, 0], [10, 40])
    habits = [relative_cost(y, np.full(50, p), price) for p in (0.0, 1.0)]
    assert min(habits) == 1.0
    assert max(habits) == pytest.approx(max(price * 10, 40) / min(price * 10, 40))


def test_the_columns_are_the_metrics_and_the_last_price_is_the_training_ratio():
    y_train = np.repeat([1, 0], [10, 70])
    y, p = np.array([1, 0, 0, 0]), np.array([0.2, 0.15, 0.1, 0.1])
    found = costs(y_train, y, p)
    assert tuple(found) == tuple(PRICES) == COSTS
    assert set(COSTS) <= set(METRICS)
    assert found["cost_ir"] == relative_cost(y, p, 7.0) == pytest.approx(1 / 3)


def test_right_probabilities_have_a_small_error_and_scaled_ones_have_theirs():
    rng = np.random.default_rng(0)
    p = rng.beta(0.3, 5.0, 50_000)
    y = (rng.random(len(p)) < p).astype(int)
    right = calibration_error(y, p)
    assert right < 0.06
    assert calibration_error(y, 2 * p) == pytest.approx(2 * p.sum() / y.sum() - 1, abs=1e-9)
    assert calibration_error(y, np.zeros(len(p))) == 1.0  # all positives are missing


def test_error_does_not_depend_on_the_order_of_rows_and_keeps_ties_together():
    rng = np.random.default_rng(1)
    p = np.round(rng.random(500) * 0.3, 1)
    y = (rng.random(500) < p).astype(int)
    order = rng.permutation(500)
    assert calibration_error(y, p) == pytest.approx(calibration_error(y[order], p[order]))
    groups = [abs(p[p == value].sum() - y[p == value].sum()) for value in np.unique(p)[1:]]
    assert calibration_error(y, p) == pytest.approx(sum(groups) / y.sum())
