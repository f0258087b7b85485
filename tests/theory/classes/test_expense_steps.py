"""Steps of class weights cost what `class_expense` says, and only wrong probabilities leave their brackets."""

import numpy as np
import pytest

from crcen.theory.classes.expense_steps import judge_class_steps, outside_chance
from crcen.theory.classes.pair_expense import class_expense
from crcen.theory.price import Price


def rows(seed, n=3000, n_classes=5, moved=0.0):
    """Labels of a softmax; the log-odds of the last class but one may have moved."""
    rng = np.random.default_rng(seed)
    slopes = 1.5 * np.random.default_rng(1).normal(size=(3, n_classes))
    logits = rng.normal(size=(n, 3)) @ slopes - np.linspace(0, 3, n_classes)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    logits[:, -2] += moved
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return y, p, Price(1 / p.mean(axis=0), 9000 * p.mean(axis=0))


def at(weights, k, value):
    moved = weights.weights.copy()
    moved[k] = value
    return Price(moved, weights.counts)


def test_a_step_costs_what_the_expense_of_all_pairs_says():
    y, p, weights = rows(0)
    sizes = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    steps = judge_class_steps(y, p, weights, sizes)
    assert len(steps) > 8
    for step in steps:
        before, after = at(weights, step.number, step.low), at(weights, step.number, step.high)
        expense = class_expense(p, before, after, y, sizes)
        assert step.price == pytest.approx(expense.price)
        assert step.n_rows == sum(np.sum(sizes[moves] > 0) for moves in [
            before.weighted(p).argmax(axis=1) != after.weighted(p).argmax(axis=1)
        ])  # fmt: skip
        if step.low <= step.price <= step.high:
            assert step.z == 0
        else:
            assert np.sign(step.z) == np.sign(step.price - step.high)


def test_right_probabilities_seldom_leave_a_bracket_and_wrong_ones_do():
    chances = np.array(
        [outside_chance(judge_class_steps(y, p, w, np.ones(len(y)))) for y, p, w in map(rows, range(80))]
    )
    assert (chances < 0.05).mean() <= 0.05
    y, p, w = rows(0, moved=1.2)
    steps = judge_class_steps(y, p, w, np.ones(len(y)))
    assert outside_chance(steps) < 1e-4
    assert min(steps, key=lambda one: one.z).number == 3  # more frequent than stated, so cheaper to find
    assert outside_chance(judge_class_steps(y, p, w, np.ones(len(y)), noise=1e6)) > 0.3
    assert outside_chance(()) == 1
    assert judge_class_steps(y[:5], p[:5], w, np.ones(5)) == ()
