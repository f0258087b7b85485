"""Expense: the paper's example, and the bracket on exact expected counts of a known posterior."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.expense import expense_table
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, Price, resolve


def test_the_abalone_example():
    (step,) = expense_table([CostRatio(4), CostRatio(8)], fn=[32, 13], fp=[158, 263])
    assert (step.delta_fp, step.catches) == (105, 19)
    assert step.expense == pytest.approx(105 / 19)
    assert round(step.expense, 3) == 5.526
    assert (step.bracket_low, step.bracket_high) == (4, 8)
    assert step.verdict == "inside"
    assert step.reason == ""


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


def test_wrong_probabilities_leave_it():
    """Posteriors that claim twice the true odds pay about twice the stated price."""
    p = np.linspace(0.001, 0.6, 2000)
    claimed = 2 * p / (2 * p + 1 - p)
    counts = []
    for price in (4, 5):
        called = claimed > 1 / (1 + price)
        counts.append((np.sum(p * ~called), np.sum((1 - p) * called)))
    (step,) = expense_table([CostRatio(4), CostRatio(5)], *zip(*counts, strict=True))
    assert step.verdict == "above"
    assert 8 <= step.expense <= 10


@pytest.mark.parametrize(
    ("fp_end", "verdict"), [(19, "below"), (20, "inside"), (30, "inside"), (31, "above"), (-1, None), (0, "below")]
)
def test_verdicts(fp_end, verdict):
    if verdict is None:
        with pytest.raises(InvalidInput, match="fp must be finite and not negative"):
            expense_table([CostRatio(2), CostRatio(3)], [20, 10], [0, fp_end])
        return
    (step,) = expense_table([CostRatio(2), CostRatio(3)], [20, 10], [0, fp_end])
    assert step.verdict == verdict
    assert step.expense == fp_end / 10


def test_nothing_is_clipped():
    (step,) = expense_table([CostRatio(2), CostRatio(3)], [20, 10], [50, 10])
    assert step.expense == -4.0
    assert step.verdict == "below"


def test_rounding_of_a_price_is_no_alarm():
    low, high = Lam(0.9), Lam(0.95)
    assert expense_table([low, high], [20, 10], [0, 90]).steps[0].verdict == "inside"
    assert expense_table([low, high], [20, 10], [0, 190]).steps[0].verdict == "inside"


@pytest.mark.parametrize(("fn", "reason"), [([5, 5], "no catch was gained"), ([5, 7], "2 catches were lost")])
def test_undefined_steps_say_why(fn, reason):
    table = expense_table([CostRatio(2), CostRatio(3)], fn, [1, 9])
    (step,) = table
    assert math.isnan(step.expense)
    assert (step.reason, step.verdict) == (reason, "undefined")
    assert math.isnan(table.average_price)
    assert reason in str(table)


def test_a_table():
    path = [None, CostRatio(3), Budget(5), 0.9, Price.binary(0.95, 10, 90)]
    table = expense_table(path, [40, 30, 20, 20, 15], [10, 30, 70, 90, 160])
    assert len(table) == 4
    assert list(table) == list(table.steps)
    assert table.steps[0].start == Lam(0.5)
    assert table.steps[2].end == Lam(0.9)
    assert table.steps[3].end is path[4]
    assert table.average_price == pytest.approx(150 / 25)
    assert [row["bracket_low"] for row in table.rows()] == pytest.approx([1, 3, 5, 9])
    assert [row["bracket_high"] for row in table.rows()] == pytest.approx([3, 5, 9, 19])
    assert [row["verdict"] for row in table.rows()] == ["inside", "inside", "undefined", "inside"]
    for row in table.rows():
        assert set(map(type, row.values())) <= {float, str}
        assert row["delta_fp"] == row["fp_end"] - row["fp_start"]
        assert row["catches"] == row["fn_start"] - row["fn_end"]
    assert table.rows()[1]["start"] == "CostRatio(3.0)"
    text = str(table)
    assert len(text.splitlines()) == 6
    assert "average price over the whole path: 6 " in text


def test_the_bracket_is_alpha_times_the_imbalance_ratio():
    path = [resolve(Alpha(a), 50, 500) for a in (0.5, 1.0, 2.0)]
    table = expense_table(path, [9, 5, 1], [0, 30, 90])
    assert [step.bracket_low for step in table] == pytest.approx([5, 10])
    assert [step.bracket_high for step in table] == pytest.approx([10, 20])


@pytest.mark.parametrize(
    ("path", "fn", "fp", "error", "words"),
    [
        ([CostRatio(2)], [1], [1], InvalidParameter, "at least two weightings, got 1"),
        ([], [], [], InvalidParameter, "at least two weightings, got 0"),
        ([CostRatio(3), CostRatio(2)], [1, 1], [1, 1], InvalidParameter, "must increase .* got 3 before 2"),
        ([CostRatio(3), Budget(3)], [1, 1], [1, 1], InvalidParameter, "must increase"),
        ([Alpha(1), Alpha(2)], [1, 1], [1, 1], InvalidParameter, "class counts are needed"),
        ([4.0, 8.0], [1, 1], [1, 1], InvalidParameter, r"did you mean Alpha\(4\) or CostRatio\(4\)"),
        ([0.5, 0.6], [1, 1, 1], [1, 1], InvalidInput, r"fn must be one count for each of the 2 .* \(3,\)"),
        ([0.5, 0.6], [1, 1], [1], InvalidInput, r"fp must be one count for each of the 2 .* \(1,\)"),
        ([0.5, 0.6], [1, -1], [1, 1], InvalidInput, "fn must be finite and not negative, got -1"),
        ([0.5, 0.6], [1, 1], [1, float("nan")], InvalidInput, "fp must be finite and not negative, got nan"),
        ([0.5, 0.6], ["a", "b"], [1, 1], InvalidInput, "fn must hold numbers"),
    ],
)
def test_refused(path, fn, fp, error, words):
    with pytest.raises(error, match=words):
        expense_table(path, fn, fp)


def test_what_does_not_exist_is_printed_as_a_dash():
    text = str(expense_table([CostRatio(1), CostRatio(2)], [5, 5], [3, 4]))
    assert "nan" not in text
    assert "–" in text
    assert "no catch was gained" in text
    assert "average price" not in text
