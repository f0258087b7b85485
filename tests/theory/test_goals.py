"""Goals in place of a price: met on rows, refused where they mean nothing, guaranteed where rows allow it."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import crcen
from crcen.theory.price import sigmoid
from crcen.theory.thresholds import fewest_rows


def probabilities(n, seed=0):
    return sigmoid(np.random.default_rng(seed).normal(-2.5, 1.5, n))


def by_day(times):
    return crcen.decide([0.1, 0.5], crcen.Capacity(1, per="day"), times=times)


@pytest.mark.parametrize("n", [1, 7, 400])
def test_a_capacity_takes_exactly_the_riskiest_rows(n):
    p = probabilities(500)
    alarms = crcen.decide(p, crcen.Capacity(n))
    assert set(np.flatnonzero(alarms)) == set(np.argsort(-p)[:n])
    met = crcen.Capacity(n).meet(p)
    price, same = met.price
    assert price == same
    np.testing.assert_array_equal(crcen.decide(p, crcen.Budget(price)), alarms)
    assert met.expected_catches == pytest.approx(p[alarms].sum())


def test_equal_probabilities_at_the_border_are_taken_by_order_and_said():
    p = np.array([0.5, 0.2, 0.2, 0.9, 0.2, 0.1])
    met = crcen.Capacity(3).meet(p)
    np.testing.assert_array_equal(met.alarms, [True, True, False, True, False, False])
    assert met.ties == (3, 1)
    assert "1 of 3 rows with equal probability" in str(met)
    assert "equal probability" not in str(crcen.Capacity(2).meet(p))
    near = crcen.Capacity(1).meet(np.array([1.0 - 1e-9, 1.0 - 2e-6, 0.5]))
    assert "1 alarm on 3 rows\n" in str(near)
    assert "(probability above 1 − 4.5e-08)" in str(near)  # √(1e-9 · 2e-6), and not above 1


def test_a_capacity_above_the_rows_takes_all_of_them_and_one_of_so_many_rows_is_a_share():
    met = crcen.Capacity(200).meet(probabilities(50))
    assert (met.n_alarms, met.thresholds, met.to_dict()["price"]) == (50, (0.0, 0.0), [None, None])
    assert "every row" in str(met)
    assert crcen.decide(probabilities(1000), crcen.Capacity(3, per=100)).sum() == 30
    for n, n_alarms in ((1114, 5), (150, 0)):  # at most, not rounded
        met, p = crcen.Capacity(5, per=1000).meet(probabilities(n)), probabilities(n)
        assert (met.n_alarms, (p > met.thresholds[0]).sum()) == (n_alarms, n_alarms)
        assert ("for the last catch" in str(met), "precision unknown" in str(met)) == (n_alarms > 0, n_alarms == 0)


@pytest.mark.parametrize(("per", "days"), [("day", 1), ("week", 7)])
def test_a_capacity_by_time_takes_the_riskiest_of_each_period(per, days):
    p = probabilities(600, 1)
    first = np.datetime64("2024-01-01")  # a Monday
    day = np.random.default_rng(2).integers(0, 21, 600)
    alarms = crcen.decide(p, crcen.Capacity(5, per=per), times=first + day)
    for period in range(21 // days):
        own = np.flatnonzero(day // days == period)
        assert set(own[alarms[own]]) == set(own[np.argsort(-p[own])[:5]])
    met = crcen.Capacity(5, per=per).meet(p, first + day)
    assert (met.n_periods, met.n_alarms) == (21 // days, 5 * 21 // days)
    assert met.price[0] < met.price[1]


@pytest.mark.parametrize("goal", [0.5, 0.9])
def test_recall_and_precision_are_met_as_the_probabilities_expect(goal):
    p = probabilities(2000, 3)
    falling = np.sort(p)[::-1]
    recall, precision = np.cumsum(falling) / p.sum(), np.cumsum(falling) / np.arange(1, 2001)
    assert crcen.decide(p, crcen.RecallAtLeast(goal)).sum() == np.argmax(recall >= goal) + 1
    assert crcen.decide(p, crcen.PrecisionAtLeast(0.4)).sum() == np.flatnonzero(precision >= 0.4)[-1] + 1
    met = crcen.RecallAtLeast(goal).meet(p)
    assert (met.recall, met.precision) == pytest.approx((recall[met.n_alarms - 1], precision[met.n_alarms - 1]))
    summary = crcen.decision_summary(p, crcen.Capacity(20))
    assert summary.n_alarms == 20
    assert summary.average_price < summary.marginal_price[0]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: crcen.Capacity(0), "Capacity must be a whole number of at least 1, got 0"),
        (lambda: crcen.Capacity(2.5), "whole number"),
        (lambda: crcen.Capacity(20, per="month"), "per of Capacity must be 'day', 'week'"),
        (lambda: crcen.Capacity(20, per=10), "allows an alarm on every row"),
        (lambda: crcen.RecallAtLeast(90), "did you mean 0.9"),
        (lambda: crcen.RecallAtLeast("high"), "got the text"),
        (lambda: crcen.RecallAtLeast(0.9, confidence=1.0), "below 1"),
        (lambda: crcen.RecallAtLeast(1.0, confidence=0.9), "cannot be guaranteed"),
        (lambda: crcen.PrecisionAtLeast(1.0), "below 1"),
        (lambda: crcen.Review(30, 2), "low of Review must be below high: got 30 and 2; swap them"),
        *((lambda n=n: crcen.Capacity(5, per="day").over_days(np.arange(12) // n), f"{n} rows a day") for n in (1, 4)),
        (lambda: by_day(None), "needs times"),
        (lambda: by_day(["2024-01-01"]), "one known value for each of 2 rows"),
        (lambda: by_day(["2024-01-01", "soon"]), "times must be dates"),
        (lambda: by_day(np.array(["2024-01-01", "NaT"], dtype="datetime64[D]")), "1 are missing"),
        (lambda: crcen.decide([0.1, 0.5], crcen.RecallAtLeast(0.9, confidence=0.95)), "only labelled rows can give"),
        (lambda: crcen.resolve(crcen.Capacity(20), 10, 90), r"Capacity\(20\) is not a price by itself: give"),
        (lambda: crcen.resolve(crcen.Review(2, 30), 10, 90), "not a price by itself: give it to decide"),
    ],
)
def test_what_means_nothing_is_refused(make, sentence):
    with pytest.raises((crcen.InvalidParameter, crcen.InvalidInput), match=sentence):
        make()


# -- guarantees --------------------------------------------------------------------------------------------------------


def guaranteed(y, p, goal):
    curve = crcen.ExpenseCurve.from_predictions(y, p, [crcen.Budget(1), crcen.Budget(5)], n_resamples=2)
    return crcen.choose_weighting(curve, goal)


@pytest.mark.parametrize("n", [29, 60, 1000, 40_000])
@pytest.mark.parametrize(("share", "confidence"), [(0.9, 0.95), (0.7, 0.99)])
def test_rows_that_may_be_lost_are_those_of_the_binomial(n, share, confidence):
    p = np.linspace(0.1, 0.9, n)
    chosen = guaranteed(np.arange(n + 1) < n, np.append(p, 0.05), crcen.RecallAtLeast(share, confidence=confidence))
    lost = int((p <= chosen.threshold).sum())
    assert binom.sf(lost, n, 1 - share) >= confidence - 1e-12
    assert binom.sf(lost + 1, n, 1 - share) < confidence
    assert fewest_rows(0.9, 0.95) == 29


def test_a_guarantee_holds_as_often_as_it_says():
    """400 samples of 60 positives: the recall of new rows, known in closed form, is below .8 in 10 % at most."""
    rng, held = np.random.default_rng(0), []
    for _ in range(400):
        p = np.concatenate([rng.uniform(size=60), 0.5 * rng.uniform(size=60)])
        chosen = guaranteed(np.arange(120) < 60, p, crcen.RecallAtLeast(0.8, confidence=0.9))
        held.append(1.0 - chosen.threshold >= 0.8)  # positives are uniform
    assert 0.9 - 3 * np.sqrt(0.09 / 400) <= np.mean(held) <= 0.97


def test_ties_make_a_guarantee_safer_never_weaker():
    y, p = np.arange(200) < 100, np.concatenate([np.repeat([0.2, 0.6], 50), np.repeat([0.1, 0.3], 50)])
    chosen = guaranteed(y, p, crcen.RecallAtLeast(0.9, confidence=0.95))
    assert chosen.recall.value == 1.0
    assert 0.1 <= chosen.threshold < 0.2


def test_a_guarantee_needs_enough_positives_of_one_model_without_weights(rare_rows):
    p = probabilities(100)
    with pytest.raises(crcen.InvalidParameter, match="needs at least 29 positive rows that were held out, got 28"):
        guaranteed(np.arange(100) < 28, p, crcen.RecallAtLeast(0.9, confidence=0.95))
    assert guaranteed(np.arange(100) < 29, p, crcen.RecallAtLeast(0.9, confidence=0.95)).recall.value == 1.0
    X, y = rare_rows(300)
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-2, cv=3, random_state=0).fit(X, y)
    with pytest.raises(crcen.InvalidParameter, match="out-of-fold rows were scored by other models"):
        crcen.choose_weighting(search, crcen.RecallAtLeast(0.5, confidence=0.9), y=y)
    with pytest.raises(crcen.InvalidParameter, match="is not available with row weights"):
        crcen.choose_weighting(search, crcen.RecallAtLeast(0.5, confidence=0.9), X, y, sample_weight=np.arange(300.0))


# -- review ------------------------------------------------------------------------------------------------------------


def test_review_lies_between_two_prices():
    p = probabilities(1000, 6)
    answers = crcen.decide(p, crcen.Review(low=2, high=30))
    np.testing.assert_array_equal(answers == "alarm", crcen.decide(p, crcen.Budget(2)))
    np.testing.assert_array_equal(answers != "no alarm", crcen.decide(p, crcen.Budget(30)))
    rows, middle = crcen.Review(2, 30).meet(p, price=10.0), p[answers == "review"]
    saved = sum(min(1 - one, 10 * one) for one in middle)
    found = (rows.share, rows.saved, rows.break_even)
    assert found == pytest.approx(((answers == "review").mean(), saved, saved / len(middle)))
    assert "saves the cost of 12,346 false alarms, so" in str(replace(rows, saved=12345.67))
    for cost, miss in ((0.3, 20), (0.05, 3)):  # a review at a cost lies between two prices
        review = crcen.Review(low=cost / (1 - cost), high=miss / cost - 1)
        matrix = crcen.CostMatrix([[0, 1], [miss, 0]], labels=["no alarm", "alarm"]).with_review(cost)
        np.testing.assert_array_equal(crcen.decide(p, review), matrix.decide(p))


def test_a_day_is_that_of_the_time_zone_of_the_times():
    times = pd.date_range("2024-01-01", periods=96, freq="15min", tz="Asia/Tokyo")
    dates = pd.Series(times).dt.tz_localize(None)
    arrow = pd.Series(times).astype("timestamp[us, tz=Asia/Tokyo][pyarrow]")
    for given in (times, pd.Series(times), list(times), dates, arrow, dates.astype("date32[day][pyarrow]")):
        assert crcen.decide(np.linspace(0.01, 0.99, 96), crcen.Capacity(5, per="day"), times=given).sum() == 5
