"""Expense: the paper's example, brackets on exact expected counts, steps of class weights, pairs of classes."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.expense import expense_table, judge_class_steps, outside_chance
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, Price


def test_the_abalone_example():
    (step,) = expense_table([CostRatio(4), CostRatio(8)], fn=[32, 13], fp=[158, 263])
    assert (step.delta_fp, step.catches, round(step.expense, 3)) == (105, 19, 5.526)
    assert (step.bracket_low, step.bracket_high, step.verdict, step.reason) == (4, 8, "inside", "")


def expected_counts(p, mass, price):
    """Misses and false alarms of the right decision at a price, for posterior p on atoms of a known mass."""
    called = p > 1 / (1 + price)
    return float(np.sum(mass * p * ~called)), float(np.sum(mass * (1 - p) * called))


@given(
    st.lists(st.tuples(st.floats(0, 1), st.floats(0.1, 10)), min_size=1, max_size=30),
    st.lists(st.floats(0.05, 100), min_size=2, max_size=6, unique=True),
)
def test_right_probabilities_stay_in_their_bracket(atoms, prices):
    p, mass = np.array(atoms).T
    prices = sorted(prices)
    if min(np.diff(prices) / prices[1:]) < 1e-6:
        return
    counts = [expected_counts(p, mass, price) for price in prices]
    table = expense_table([CostRatio(price) for price in prices], *zip(*counts, strict=True))
    for step in table:
        if step.catches > 1e-6:  # below this a difference of sums is rounding
            assert step.bracket_low * (1 - 1e-6) <= step.expense <= step.bracket_high * (1 + 1e-6)
        else:
            assert abs(step.delta_fp) < 1e-3
    if math.isfinite(table.average_price) and counts[0][0] - counts[-1][0] > 1e-6:
        assert prices[0] * (1 - 1e-6) <= table.average_price <= prices[-1] * (1 + 1e-6)


@pytest.mark.parametrize(
    ("fp_end", "verdict"), [(19, "below"), (20, "inside"), (30, "inside"), (31, "above"), (0, "below")]
)
def test_verdicts(fp_end, verdict):
    (step,) = expense_table([CostRatio(2), CostRatio(3)], [20, 10], [0, fp_end])
    assert (step.expense, step.verdict) == (fp_end / 10, verdict)
    (step,) = expense_table([CostRatio(2), CostRatio(3)], [20, 10], [50, 10])  # nothing is clipped
    assert (step.expense, step.verdict) == (-4.0, "below")
    for at_an_end in (90, 190):  # rounding of a price is no alarm
        assert expense_table([Lam(0.9), Lam(0.95)], [20, 10], [0, at_an_end]).steps[0].verdict == "inside"


@pytest.mark.parametrize(("fn", "reason"), [([5, 5], "no catch was gained"), ([5, 7], "2 catches were lost")])
def test_undefined_steps_say_why(fn, reason):
    table = expense_table([CostRatio(2), CostRatio(3)], fn, [1, 9])
    (step,) = table
    assert np.isnan([step.expense, table.average_price]).all()
    assert (step.reason, step.verdict, reason in str(table)) == (reason, "undefined", True)


def test_a_table():
    path = [None, CostRatio(3), Budget(5), 0.9, Price.binary(0.95, 10, 90)]
    table = expense_table(path, [40, 30, 20, 20, 15], [10, 30, 70, 90, 160])
    assert (len(table), list(table)) == (4, list(table.steps))
    assert table.average_price == pytest.approx(150 / 25)
    prices = [*(step.bracket_low for step in table), *(step.bracket_high for step in table)]
    assert prices == pytest.approx([1, 3, 5, 9, 3, 5, 9, 19])
    assert [step.verdict for step in table] == ["inside", "inside", "undefined", "inside"]
    assert [(step.delta_fp, step.catches) for step in table] == [(20, 10), (40, 10), (20, 0), (70, 5)]
    assert len(str(table).splitlines()) == 6
    assert "average price over the whole path: 6 " in str(table)


@pytest.mark.parametrize(
    ("path", "fn", "fp", "error", "words"),
    [
        ([CostRatio(2)], [1], [1], InvalidParameter, "at least two weightings, got 1"),
        ([CostRatio(3), CostRatio(2)], [1, 1], [1, 1], InvalidParameter, "must increase .* got 3 before 2"),
        ([CostRatio(3), Budget(3)], [1, 1], [1, 1], InvalidParameter, "must increase"),
        ([Alpha(1), Alpha(2)], [1, 1], [1, 1], InvalidParameter, "class counts are needed"),
        ([4.0, 8.0], [1, 1], [1, 1], InvalidParameter, r"did you mean Alpha\(4\) or CostRatio\(4\)"),
        ([0.5, 0.6], [1, 1, 1], [1, 1], InvalidInput, r"fn must be one count for each of the 2 .* \(3,\)"),
        ([0.5, 0.6], [1, 1], [1], InvalidInput, r"fp must be one count for each of the 2 .* \(1,\)"),
        ([0.5, 0.6], [1, -1], [1, 1], InvalidInput, "fn must be finite and not negative, got -1"),
    ],
)
def test_refused(path, fn, fp, error, words):
    with pytest.raises(error, match=words):
        expense_table(path, fn, fp)


# -- steps, tested ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "z", "words"),
    [
        ((150, 850), 0.0, "inside its bracket"),
        ((215, 785), 15 / math.sqrt(160), "below its bracket, within chance"),
        ((300, 700), 100 / math.sqrt(160), "too low"),
        ((0, 1000), -100 / math.sqrt(90), "too high"),
        ((3, 2), math.nan, "too few decisions change"),
        ((0, 0), math.nan, "no decision changes"),
    ],
)
def test_a_step_counts_standard_deviations_outside_its_bracket(counts, z, words):
    """Between 4 and 9 a share of 0.1 to 0.2 of the rows that flip is positive."""
    (one,) = expense_table([CostRatio(4), CostRatio(9)], [counts[0], 0], [0, counts[1]])
    assert one.deviation() == pytest.approx(z, nan_ok=True)
    assert one.deviation(noise=4.0) == pytest.approx(z / 2, nan_ok=True)
    assert words in one.sentence(one.deviation())


# -- K classes -------------------------------------------------------------------------------------------------------


def stepped(seed, n=3000, n_classes=5, moved=0.0):
    """Labels of a softmax; the log-odds of the last class but one may have moved."""
    rng = np.random.default_rng(seed)
    slopes = 1.5 * np.random.default_rng(1).normal(size=(3, n_classes))
    logits = rng.normal(size=(n, 3)) @ slopes - np.linspace(0, 3, n_classes)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    logits[:, -2] += moved
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return y, p, Price(1 / p.mean(axis=0), 9000 * p.mean(axis=0))


def test_a_step_costs_what_the_rows_that_move_lose_for_one_gained():
    y, p, price = stepped(0)
    sizes = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    steps = judge_class_steps(y, p, price, sizes)
    assert len(steps) > 8
    for step in steps:
        weights = [np.where(np.arange(5) == step.number, end, price.weights) for end in (step.low, step.high)]
        before, after = ((p * w).argmax(axis=1) for w in weights)
        moved = before != after
        assert (after[moved] == step.number).all()
        lost = sum(sizes[moved & (y == k) & (before == k)].sum() * price.weights[k] for k in range(5))
        assert step.price == pytest.approx(lost / sizes[moved & (y == step.number)].sum())
        assert step.n_rows == (moved & (sizes > 0)).sum()
        if step.low <= step.price <= step.high:
            assert step.z == 0
        else:
            assert np.sign(step.z) == np.sign(step.price - step.high)


def test_right_probabilities_seldom_leave_a_bracket_and_wrong_ones_do():
    judged = [judge_class_steps(y, p, w, np.ones(len(y))) for y, p, w in map(stepped, range(80))]
    chances = np.array([outside_chance(steps) for steps in judged])
    assert (chances < 0.05).mean() <= 0.05
    y, p, w = stepped(0, moved=1.2)
    steps = judge_class_steps(y, p, w, np.ones(len(y)))
    assert outside_chance(steps) < 1e-4
    assert min(steps, key=lambda one: one.z).number == 3  # more frequent than stated, so cheaper to find
    assert outside_chance(judge_class_steps(y, p, w, np.ones(len(y)), noise=1e6)) > 0.3
    assert outside_chance(()) == 1
    assert judge_class_steps(y[:5], p[:5], w, np.ones(5)) == ()
