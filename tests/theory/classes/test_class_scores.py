"""Scores of K classes against scikit-learn and hand counts; expense by pairs inside its bracket."""

import math

import numpy as np
import pytest
from scipy.special import softmax
from sklearn import metrics

from crcen import CostMatrix
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.classes.class_scores import class_average_precisions, class_log_losses, class_scores
from crcen.theory.classes.pair_expense import class_expense
from crcen.theory.price import Price

COSTS = CostMatrix([[0, 1, 2, 0.4], [5, 0, 3, 1], [20, 9, 0, 2]], actions=["look"])


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    p = softmax(np.array([1.5, 0, -1.5]) + rng.normal(0, 1.5, (n, 3)), axis=1)
    return p, (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


@pytest.mark.parametrize("is_weighted", [False, True])
def test_scores_are_those_of_scikit_learn(is_weighted):
    p, y = rows()
    sizes = np.random.default_rng(1).uniform(0.5, 2, len(y)) if is_weighted else np.ones(len(y))
    w = np.array([1.0, 4.0, 15.0])
    found = class_scores(y, p, Price(w, np.ones(3)), sizes)
    decided = (w * p).argmax(axis=1)
    recalls = metrics.recall_score(y, decided, average=None, sample_weight=sizes)
    assert found.balanced_accuracy == pytest.approx(recalls.mean())
    assert found.g_mean == pytest.approx(np.prod(recalls) ** (1 / 3))
    assert found.macro_f1 == pytest.approx(metrics.f1_score(y, decided, average="macro", sample_weight=sizes))
    assert found.log_loss == pytest.approx(metrics.log_loss(y, p, sample_weight=sizes))
    each = [metrics.average_precision_score(y == k, p[:, k], sample_weight=sizes) for k in range(3)]
    assert found.average_precisions == pytest.approx(each)
    assert found.macro_average_precision == pytest.approx(np.mean(each))
    mean = np.average(w[y] * (decided != y), weights=sizes)
    assert found.cost == pytest.approx(mean)
    habits = [np.average(w[y] * (y != k), weights=sizes) for k in range(3)]
    assert found.relative_cost == pytest.approx(mean / min(habits))


def test_costs_of_further_actions_are_counted():
    p, y = rows()
    found = class_scores(y, p, COSTS)
    chosen = (p @ COSTS.costs).argmin(axis=1)
    assert found.cost == pytest.approx(COSTS.costs[y, chosen].mean())
    assert found.expected_cost == pytest.approx((p @ COSTS.costs).min(axis=1).mean())
    assert found.cost_of_habit == pytest.approx(COSTS.costs[y].mean(axis=0).min())
    assert found.counts.table.shape == (3, 4)
    free = class_scores([0, 0], [[0.9, 0.05, 0.05]] * 2, CostMatrix(1 - np.eye(3)))
    assert math.isnan(free.relative_cost)
    assert np.isnan(free.average_precisions[1:]).all()


def test_a_probability_of_zero_is_a_finite_loss():
    assert class_log_losses([2], [[0.5, 0.5, 0.0]])[0] == pytest.approx(-math.log(1e-15))


@pytest.mark.parametrize(
    ("y", "p", "sentence"),
    [
        ([0, 1], [[0.5, 0.5]], "one row a label"),
        ([0], [0.5], "column for each class"),
        ([0], [[np.nan, 0.5]], "finite column"),
        ([3], [[0.2, 0.3, 0.5]], "class numbers from 0 to 2"),
    ],
)
def test_what_cannot_be_scored_is_refused(y, p, sentence):
    with pytest.raises(InvalidInput, match=sentence):
        class_average_precisions(y, p)


def test_expected_expenses_lie_inside_their_brackets_and_so_does_the_price_of_all_pairs():
    p, _ = rows(20_000)
    start, end = (Price(np.array(w), np.ones(3)) for w in ([1.0, 4.0, 5.0], [1.0, 4.0, 30.0]))
    found = class_expense(p, start, end)
    assert {(pair.source, pair.target) for pair in found.pairs} == {(0, 2), (1, 2)}
    moved = (p * start.weights).argmax(axis=1) != (p * end.weights).argmax(axis=1)
    assert sum(pair.n_rows for pair in found.pairs) == moved.sum()
    for pair in found.pairs:
        assert (pair.low, pair.high) == pytest.approx((5 / start.weights[pair.source], 30 / start.weights[pair.source]))
        assert pair.is_inside
        assert pair.low < pair.expense < pair.high
    assert found.raised == 2
    assert (found.low, found.high) == (5.0, 30.0)
    assert 5.0 < found.price < 30.0
    lost = sum(start.weights[pair.source] * pair.lost for pair in found.pairs)
    assert found.price == pytest.approx(lost / sum(pair.gained for pair in found.pairs))
    assert "all pairs" in str(found)
    # The same ratios in other units are the same change.
    scaled = class_expense(p, start, Price(7 * end.weights, np.ones(3)))
    assert (scaled.price, scaled.high) == pytest.approx((found.price, found.high))


def test_counted_expenses_come_near_the_expected_ones():
    p, y = rows(100_000, 2)
    start, end = (Price(np.array(w), np.ones(3)) for w in ([1.0, 4.0, 5.0], [1.0, 4.0, 30.0]))
    expected, counted = class_expense(p, start, end), class_expense(p, start, end, y)
    assert counted.price == pytest.approx(expected.price, rel=0.1)
    for a, b in zip(expected.pairs, counted.pairs, strict=True):
        mine = ((p * start.weights).argmax(axis=1) == b.source) & ((p * end.weights).argmax(axis=1) == b.target)
        assert b.lost == (y[mine] == b.source).sum()
        assert b.expense == pytest.approx(a.expense, rel=0.15)


def test_a_change_of_several_weights_has_pairs_and_no_price_of_all():
    p, y = rows()
    one, other = (
        Price(np.array([1.0, 2.0, 3.0]), np.ones(3)),
        Price(np.array([1.0, 9.0, 20.0]), np.ones(3)),
    )
    found = class_expense(p, one, other, y)
    assert found.raised is None
    assert math.isnan(found.price)
    assert found.pairs
    with pytest.raises(InvalidParameter, match="as many classes"):
        class_expense(p, one, Price(np.ones(2), np.ones(2)))
    with pytest.raises(InvalidInput, match="one row a label"):
        class_expense(p, one, other, y[:3])
