"""Expense: the paper's example, brackets on exact expected counts, steps of class weights, pairs of classes."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.expense import expense_steps, expense_table, outside_chance, price_paths
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, Price


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
    (step,) = expense_table([[1, 3, 2], {0: 2, 1: 6, 2: 8}], [20, 10], [5, 30])  # ratios of weights matter
    assert (step.number, step.bracket_low, step.bracket_high, step.expense) == (2, 2, 4, 2.5)


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
        ([[1, 2, 3], [1, 3, 4]], [1, 1], [1, 1], InvalidParameter, "must raise the weight of one class and keep"),
        ([[1, 2, 3], [1, 2, 3]], [1, 1], [1, 1], InvalidParameter, "increase in the weight of one class, got 1 bef"),
    ],
)
def test_refused(path, fn, fp, error, words):
    with pytest.raises(error, match=words):
        expense_table(path, fn, fp)


# -- steps, tested ---------------------------------------------------------------------------------------------------


def mixed_z(count, n, share, noise):
    """Exact z of a binomial count whose log-odds have a normal error, by quadrature."""
    error = np.linspace(-9, 9, 2001)
    spread = math.sqrt((noise - 1) / (n * share * (1 - share)))
    q = special.expit(special.logit(share) + spread * error)
    chances = stats.binom.cdf(count, n, q) if count < n * share else stats.binom.sf(count - 1, n, q)
    z = stats.norm.isf(np.average(chances, weights=stats.norm.pdf(error)))
    return -z if count < n * share else z


@pytest.mark.parametrize(
    ("counts", "share", "words"),
    [
        ((215, 785), 0.2, "below its bracket, within chance"),
        ((300, 700), 0.2, "too low"),
        ((60, 940), 0.1, "too high"),
        ((0, 196), 0.1, "too high"),  # 19.6 are expected
        ((10, 150), 0.1, "above its bracket, within chance"),
    ],
)
@pytest.mark.parametrize("noise", [1.0, 2.4, 4.0])
def test_a_step_counts_standard_deviations_outside_its_bracket(counts, share, words, noise):
    """Between 4 and 9 a share of 0.1 to 0.2 of the rows that flip is positive."""
    (one,) = expense_table([CostRatio(4), CostRatio(9)], [counts[0], 0], [0, counts[1]])
    expected = mixed_z(counts[0], sum(counts), share, noise)
    assert one.deviation(noise) == pytest.approx(expected, abs=0.06)
    assert words in one.sentence(one.deviation())
    halved = replace(one, fn_start=counts[0] / 2, fp_end=counts[1] / 2)
    weighted = replace(halved, squares=sum(counts) / 4)  # rows that weigh one half
    assert weighted.deviation(noise) == pytest.approx(one.deviation(noise))
    assert one.deviation(noise, effect=2.0) == pytest.approx(halved.deviation(noise), nan_ok=True)  # half the rows


@pytest.mark.parametrize(
    ("counts", "noise", "z", "words"),
    [
        ((150, 850), 1.0, 0.0, "inside its bracket"),
        ((201, 802), 1.0, 0.0, "below its bracket, within chance"),  # by less than half a catch
        ((3, 2), 1.0, math.nan, "too few decisions change between"),
        ((0, 57), 1.0, math.nan, "too few decisions change between"),  # no catch of 6 is not rare enough
        ((0, 196), 40.0, math.nan, "given the model uncertainty, even no catch is within chance"),
        ((0, 0), 1.0, math.nan, "no decision changes"),
    ],
)
def test_a_step_that_cannot_be_judged_says_why(counts, noise, z, words):
    (one,) = expense_table([CostRatio(4), CostRatio(9)], [counts[0], 0], [0, counts[1]])
    assert one.deviation(noise) == pytest.approx(z, nan_ok=True)
    assert words in one.sentence(one.deviation(noise))


# -- K classes -------------------------------------------------------------------------------------------------------


def stepped(seed, k, n=3000, moved=0.0):
    """Labels of a softmax; the log-odds of the last class may have moved."""
    rng = np.random.default_rng(seed)
    slopes = 1.5 * np.random.default_rng(1).normal(size=(3, k))
    logits = rng.normal(size=(n, 3)) @ slopes - np.linspace(0, 3, k)
    p = np.exp(logits)
    p /= p.sum(axis=1, keepdims=True)
    logits[:, -1] += moved
    y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
    return y, p, Price(1 / p.mean(axis=0), 9000 * p.mean(axis=0), positive=1 if k == 2 else None)


def judged(y, p, price, sizes=None):
    sizes = np.ones(len(y)) if sizes is None else sizes
    paths = [(path, [one.decide(p) for one in path]) for path in price_paths(price)]
    return [step for path, chosen in paths for step in expense_steps(y, sizes, path, chosen, p)]


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_step_costs_what_the_rows_that_move_lose_for_one_gained(k):
    y, p, price = stepped(0, k)
    sizes = np.random.default_rng(2).integers(0, 3, len(y)).astype(float)
    steps = judged(y, p, price, sizes)
    assert [step.number for step in steps] == ([1] * 4 if k == 2 else np.repeat(range(k), 4).tolist())
    w = price.weights / (price.weights[0] if k == 2 else 1)  # two classes: in false alarms
    for step in steps:
        ends = (step.bracket_low, step.bracket_high)
        before, after = ((p * np.where(np.arange(k) == step.number, end, w)).argmax(axis=1) for end in ends)
        moved = before != after
        assert (after[moved] == step.number).all()
        lost = sum(sizes[moved & (y == j) & (before == j)].sum() * w[j] for j in range(k))
        gained = sizes[moved & (y == step.number)].sum()
        assert (step.delta_fp, step.catches, step.expense) == pytest.approx((lost, gained, lost / gained))
        assert step.fn_end == pytest.approx(sizes[(y == step.number) & (after != y)].sum())
        z, pair = step.deviation(), p[moved, before[moved]] + p[moved, step.number]
        if step.verdict == "inside":
            assert z == 0
        elif not math.isnan(z):  # at the end, worth · P(old class) = end · P(class)
            end = ends[step.verdict == "above"]
            variance = end * np.sum(sizes[moved] ** 2 * w[before[moved]] * pair)
            assert z == pytest.approx((end * gained - lost) / math.sqrt(variance), rel=0.2, abs=0.3)


@pytest.mark.parametrize("k", [2, 5])
def test_right_probabilities_seldom_leave_a_bracket_and_wrong_ones_do(k):
    def known(*rows):
        return [(z, step.number) for step in judged(*rows) if not math.isnan(z := step.deviation())]

    chances = np.array([outside_chance([z for z, _ in known(*stepped(seed, k))]) for seed in range(80)])
    assert (chances < 0.05).mean() <= 0.05
    y, p, price = stepped(0, k, moved=1.2)
    found = known(y, p, price)
    assert outside_chance([z for z, _ in found]) < 1e-4
    assert max(found)[1] == k - 1  # more frequent than stated, so cheaper to find
    assert outside_chance([step.deviation(1e6) for step in judged(y, p, price)][-4:]) > 0.3
    assert outside_chance([]) == 1
    assert not [z for z, _ in known(y[:5], p[:5], price) if z]
