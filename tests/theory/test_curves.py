"""Counts above every threshold and the curves that follow, against brute force and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, roc_auc_score

from crcen import InvalidInput, InvalidParameter
from crcen.theory.metrics import DecisionCurves, ThresholdCurve, average_precision, roc_area


@pytest.fixture
def scored():
    rng = np.random.default_rng(0)
    y = rng.random(200) < 0.3
    return y, rng.choice(np.linspace(0.0, 1.0, 15), 200), rng.integers(0, 4, (3, 200)).astype(float)


def test_totals_are_sums_of_the_rows_at_or_above_each_score(scored):
    y, p, weights = scored
    curve = ThresholdCurve(y, p)
    assert curve.score.tolist() == sorted(set(p), reverse=True)
    tp, fp = curve.totals(weights)
    assert tp.shape == (3, len(curve.score))
    for k, score in enumerate(curve.score):
        for draw, size in enumerate(weights):
            assert tp[draw, k] == size[(p >= score) & y].sum()
            assert fp[draw, k] == size[(p >= score) & ~y].sum()
    one = curve.totals(weights[1])
    assert np.array_equal(one[0], tp[1])


def test_areas_are_those_of_scikit_learn(scored):
    y, p, weights = scored
    curve = ThresholdCurve(y, p)
    for size in weights:
        totals = curve.totals(size)
        assert roc_area(*totals) == pytest.approx(roc_auc_score(y, p, sample_weight=size))
        assert average_precision(*totals) == pytest.approx(average_precision_score(y, p, sample_weight=size))


def test_a_class_that_is_absent_has_no_area():
    totals = ThresholdCurve(np.zeros(3, dtype=bool), np.array([0.1, 0.2, 0.2])).totals(np.ones(3))
    assert np.isnan([roc_area(*totals), average_precision(*totals)]).all()


@pytest.fixture(params=[False, True], ids=["plain", "tied"])
def rows(request):
    rng = np.random.default_rng(3)
    p = 1 / (1 + np.exp(-rng.normal(-2, 1.5, 600)))
    p = np.round(p, 1) if request.param else p
    return rng.random(600) < p, p, rng.integers(0, 4, 600).astype(float)


def test_net_benefit_is_catches_less_false_alarms(rows):
    y, p, weights = rows
    prices = np.array([0.5, 3.0, 9.0, 40.0])
    found = DecisionCurves(y, p, weights).net_benefit(prices)
    for price, model, everybody in zip(prices, found.model, found.trivial, strict=True):
        alarms = p > 1 / (1 + price)
        worth = np.where(y, 1.0, -1.0 / price)
        assert model == pytest.approx(np.average(worth * alarms, weights=weights))
        assert everybody == pytest.approx(np.average(worth, weights=weights))


def test_the_area_under_the_brier_curve_is_the_brier_score(rows):
    y, p, weights = rows
    curves = DecisionCurves(y, p, weights)
    found, best = curves.brier_curve(20_001), curves.brier_curve(20_001, is_best=True)
    area = float(np.mean(found.model[1:] + found.model[:-1]) / 2)
    assert area == pytest.approx(brier_score_loss(y, p, sample_weight=weights), abs=2e-4)
    assert (best.model <= found.model + 1e-12).all()
    assert (best.model <= found.trivial + 1e-12).all()


def test_the_cost_curve_is_the_lowest_line_of_all_thresholds(rows):
    y, p, _ = rows
    found = DecisionCurves(y, p).cost_curve(11)
    thresholds = [-1.0, *np.unique(p)]
    for share, lowest in zip(found.x, found.model, strict=True):
        lines = [share * (p[y] <= t).mean() + (1 - share) * (p[~y] > t).mean() for t in thresholds]
        assert lowest == pytest.approx(min(lines))
    assert (found.model <= found.trivial + 1e-12).all()


def test_gains_are_shares_of_rows_in_order_and_have_the_area_of_the_roc_curve(rows):
    y, p, _ = rows
    shares, found, _ = DecisionCurves(y, p).gains()
    for rows_taken, positives in zip(shares[1:4], found[1:4], strict=True):
        threshold = np.sort(p)[::-1][round(rows_taken * len(p)) - 1]
        assert positives == pytest.approx((p[y] >= threshold).mean())
        assert rows_taken == pytest.approx((p >= threshold).mean())
    area = float(np.sum(np.diff(shares) * (found[1:] + found[:-1]) / 2))
    share = y.mean()
    assert (area - share / 2) / (1 - share) == pytest.approx(roc_auc_score(y, p))
    np.testing.assert_allclose(DecisionCurves(y, p).lift().model, found[1:] / shares[1:])


def test_prices_must_be_prices(rows):
    y, p, _ = rows
    with pytest.raises(InvalidParameter, match="above 0"):
        DecisionCurves(y, p).net_benefit([0.0, 1.0])
    with pytest.raises(InvalidInput, match="one value for each"):
        DecisionCurves(y, p[:5])
