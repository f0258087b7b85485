"""Counts at prices against decisions made row by row, noise against simulation."""

import math
from itertools import pairwise

import numpy as np
import pytest
from known_models import KnownPosterior, draw

import crcen
from crcen.report.measurements import OperatingPoints, price_grid, price_ladder, rounded


@pytest.fixture(params=["plain", "weighted", "ties", "weighted ties"])
def rows(request):
    model = KnownPosterior()
    X, y = draw(model, 700, seed=3)
    p = model.predict_proba(X)[:, 1]
    if "ties" in request.param:
        p = np.round(p, 1)
    weights = np.random.default_rng(0).uniform(0.2, 3.0, y.size) if "weighted" in request.param else np.ones(y.size)
    return y == 1, p, weights


@pytest.mark.parametrize("price", [0.01, 0.5, 1.0, 4.0, 9.0, 37.3, 1e4])
def test_counts_are_those_of_decisions_at_the_price(rows, price):
    target, p, weights = rows
    counts = OperatingPoints(target, p, weights).counts(price)
    wanted = crcen.confusion_counts(target, crcen.decide(p, crcen.Budget(price)), weights)
    for cell in ("tp", "fp", "fn", "tn"):
        assert getattr(counts, cell) == pytest.approx(getattr(wanted, cell), abs=1e-9)


def test_noise_is_zero_inside_and_counts_standard_deviations_outside():
    # 100 rows flip between the prices 3 and 9 (thresholds 1/4 and 1/10).
    p = np.full(100, 0.2)
    for positives, wanted in ((15, 0.0), (40, (40 - 25) / math.sqrt(100 * 0.25 * 0.75)), (4, (4 - 10) / 3.0)):
        points = OperatingPoints(np.arange(100) < positives, p, np.ones(100))
        step = points.path([3.0, 9.0]).steps[0]
        assert points.judge(step).z == pytest.approx(wanted)
    assert math.isnan(points.judge(points.path([0.1, 0.2]).steps[0]).z)  # nothing flips
    few = OperatingPoints(np.arange(20) < 9, np.full(20, 0.2), np.ones(20))
    assert math.isnan(few.judge(few.path([3.0, 9.0]).steps[0]).z)  # a variance of 20 · ¼ · ¾ is too little to tell


def test_noise_of_right_probabilities_is_rarely_large():
    model = KnownPosterior()
    beyond, looked = 0, 0
    for seed in range(40):
        X, y = draw(model, 600, seed=seed)
        points = OperatingPoints(y == 1, model.predict_proba(X)[:, 1], np.ones(y.size))
        noise = [points.judge(step).z for step in points.path(price_ladder(5.0, 8.0))]
        noise = [z for z in noise if not math.isnan(z)]
        beyond, looked = beyond + sum(abs(z) > 3 for z in noise), looked + len(noise)
    assert looked > 200
    assert beyond / looked < 0.01


def test_weights_of_one_size_leave_the_noise_alone():
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.25, 300)
    target = rng.random(300) < 0.5
    one, seven = (OperatingPoints(target, p, np.full(300, size)) for size in (1.0, 7.0))
    steps = [points.path([3.0, 9.0]).steps[0] for points in (one, seven)]
    assert one.judge(steps[0]).z == pytest.approx(seven.judge(steps[1]).z)
    assert one.judge(steps[0]).z > 3


def test_thinned_points_are_exact_at_the_prices_asked_for():
    rng = np.random.default_rng(2)
    p = rng.beta(0.5, 5.0, 20_000)
    target = rng.random(p.size) < p
    points = OperatingPoints(target, p, np.ones(p.size))
    grid = price_grid(5.0, 10.0)
    kept = points.thinned(grid, 2000)
    assert kept.size <= 2000 < points.score.size
    scores = points.score[kept]
    for price in grid:
        k = int((scores > 1 / (1 + price)).sum())
        fp = points.fp[kept + 1][k - 1] if k else 0.0
        assert fp == (~target & (p > 1 / (1 + price))).sum()
    few = OperatingPoints(target[:50], p[:50], np.ones(50))
    assert np.array_equal(few.thinned(grid, 2000), np.arange(few.score.size))


@pytest.mark.parametrize(("price", "ratio"), [(5.0, 10.0), (0.03, 4.0), (1.0, 1.0), (1e12, 5000.0), (1e-9, 2.0)])
def test_prices_of_the_slider_rise_and_have_three_digits(price, ratio):
    grid = price_grid(price, ratio)
    assert all(a < b for a, b in pairwise(grid))
    assert all(one == rounded(one) == float(f"{one:.2e}") for one in grid)
    assert len(grid) < 1600
    if 1e-6 < price < 1e9:
        assert grid[0] < price < grid[-1]
        assert grid[0] <= 1.0 <= ratio <= grid[-1]
    assert len(price_ladder(price, ratio)) >= 4
