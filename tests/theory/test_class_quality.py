"""What decisions between classes cost and how often they are right, against scikit-learn and sums by hand."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, confusion_matrix, log_loss, precision_score, recall_score

from crcen import CostMatrix, InvalidInput
from crcen.theory.classes.class_quality import class_quality, costs_at
from crcen.theory.price import Price

RNG = np.random.default_rng(0)
P = RNG.dirichlet([2.0, 1.0, 0.5], size=400)
Y = np.array([RNG.choice(3, p=p) for p in P])
COSTS = CostMatrix([[0, 2, 1], [3, 0, 4], [9, 5, 0]], labels=["a", "b", "c"])


def test_counts_shares_and_losses_are_those_of_scikit_learn():
    found = class_quality(Y, P, COSTS)
    chosen = (P @ COSTS.costs).argmin(axis=1)
    np.testing.assert_array_equal(found.counts.table, confusion_matrix(Y, chosen))
    np.testing.assert_allclose([one.value for one in found.recalls], recall_score(Y, chosen, average=None))
    np.testing.assert_allclose([one.value for one in found.precisions], precision_score(Y, chosen, average=None))
    assert found.log_loss == pytest.approx(log_loss(Y, P))
    by_class = [average_precision_score(k == Y, P[:, k]) for k in range(3)]
    np.testing.assert_allclose(found.average_precisions, by_class)


def test_cost_is_the_mean_of_what_rows_cost_and_the_habit_is_the_cheapest_column():
    found = class_quality(Y, P, COSTS)
    chosen = (P @ COSTS.costs).argmin(axis=1)
    paid = COSTS.costs[Y, chosen]
    assert found.cost.value == pytest.approx(paid.mean())
    assert found.cost_by_class.sum() == pytest.approx(paid.mean())
    habits = COSTS.costs[Y].mean(axis=0)
    assert found.habit == ["a", "b", "c"][habits.argmin()]
    assert found.saved.value == pytest.approx(habits.min() - paid.mean())
    half = 1.96 * paid.std() / np.sqrt(400)
    assert found.cost.high - found.cost.value == pytest.approx(half)


def test_weight_two_is_two_copies():
    weights = np.where(Y == 2, 2.0, 1.0)
    again = np.concatenate([np.arange(400), np.flatnonzero(Y == 2)])
    weighted, copied = class_quality(Y, P, COSTS, weights), class_quality(Y[again], P[again], COSTS)
    np.testing.assert_allclose(weighted.counts.table, copied.counts.table)
    assert weighted.cost.value == pytest.approx(copied.cost.value)
    assert weighted.log_loss == pytest.approx(copied.log_loss)
    np.testing.assert_allclose(weighted.average_precisions, copied.average_precisions)


def test_an_action_that_is_no_class():
    found = class_quality(Y, P, COSTS.with_review(0.5))
    assert found.names == ("a", "b", "c", "review")
    assert found.counts.table.shape == (3, 4)
    assert found.counts.table[:, 3].sum() > 0
    assert found.cost.value <= 0.5 + 1e-12 or found.habit == "review"
    assert "review" in "\n".join(found.lines())


def test_weights_are_the_costs_that_they_state():
    costs = costs_at(Price(np.array([1.0, 5.0]), np.array([9.0, 3.0])), ["x", "y"])
    assert costs == CostMatrix([[0, 1], [5, 0]], labels=["x", "y"])


def test_a_class_without_rows_has_no_shares():
    found = class_quality(Y[Y < 2], P[Y < 2], COSTS)
    assert np.isnan(found.recalls[2].value)
    assert found.to_dict()["classes"][2]["recall"]["value"] is None
    assert np.isnan(found.average_precisions[2])


def test_costs_need_labels():
    with pytest.raises(InvalidInput, match="must have labels"):
        class_quality(Y, P, CostMatrix(COSTS.costs))
