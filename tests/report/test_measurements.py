"""Numbers of the page: counts at prices, groups of probabilities, several models, against rows counted by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from known_models import KnownPosterior, PricedPosterior, draw
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

import crcen
from crcen import InvalidInput
from crcen.report.evidence import gather
from crcen.report.measurements import OperatingPoints, compare, price_grid, price_ladder, reliability_groups, rounded


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


def test_noise_of_right_probabilities_is_rarely_large_and_the_unit_of_weights_does_not_matter():
    model = KnownPosterior()
    beyond, looked = 0, 0
    for seed in range(40):
        X, y = draw(model, 600, seed=seed)
        points = OperatingPoints(y == 1, model.predict_proba(X)[:, 1], np.ones(y.size))
        noise = [points.deviation(step) for step in points.path(price_ladder(5.0, 8.0))]
        noise = [z for z in noise if not math.isnan(z)]
        beyond, looked = beyond + sum(abs(z) > 3 for z in noise), looked + len(noise)
    assert looked > 200
    assert beyond / looked < 0.01
    rng = np.random.default_rng(1)
    p = rng.uniform(0.1, 0.25, 300)
    target = rng.random(300) < 0.5
    one, seven = (OperatingPoints(target, p, np.full(300, size)) for size in (1.0, 7.0))
    steps = [points.path([3.0, 9.0]).steps[0] for points in (one, seven)]
    assert one.deviation(steps[0]) == pytest.approx(seven.deviation(steps[1]))
    assert one.deviation(steps[0]) > 3


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


# -- groups of equal expected positives --------------------------------------------------------------------------------


def test_groups_part_the_rows_with_about_equal_expected_positives():
    model = PricedPosterior()
    X, y = draw(model, 4000)
    p, q = model.predict_proba(X)[:, 1], model.weighted_proba(X)[:, 1]
    groups = reliability_groups(y == 1, p, q, np.ones(y.size))
    assert len(groups) == 10
    assert sum(group.n_rows for group in groups) == y.size
    assert sum(group.observed_positives for group in groups) == (y == 1).sum()
    expected = np.array([group.expected_positives for group in groups])
    assert expected.sum() == pytest.approx(p.sum())
    assert np.allclose(expected, p.sum() / 10, atol=1.0)
    edges = np.cumsum([0] + [group.n_rows for group in groups])
    order = np.argsort(p)
    for group, start, end in zip(groups, edges, edges[1:], strict=False):
        mine = order[start:end]
        assert group.mean_p == pytest.approx(p[mine].mean())
        assert group.mean_q == pytest.approx(q[mine].mean())
        assert group.observed == pytest.approx((y[mine] == 1).mean())
        deviation = np.sqrt((p[mine] * (1 - p[mine])).sum())
        assert group.z == pytest.approx(((y[mine] == 1).sum() - p[mine].sum()) / deviation)


def test_equal_probabilities_stay_together():
    rng = np.random.default_rng(0)
    p = np.repeat([0.1, 0.3, 0.9], [450, 150, 50])  # 45 expected positives each
    groups = reliability_groups(rng.random(p.size) < p, p, None, np.ones(p.size))
    assert [group.n_rows for group in groups] == [450, 150, 50]
    assert [group.mean_p for group in groups] == pytest.approx([0.1, 0.3, 0.9])
    (only,) = reliability_groups(rng.random(500) < 0.2, np.full(500, 0.2), None, np.ones(500))
    assert (only.n_rows, only.mean_q) == (500, None)
    (only,) = reliability_groups(np.arange(20) < 2, np.zeros(20), None, np.ones(20))
    assert (only.observed_positives, only.expected_positives, only.z) == (2.0, 0.0, math.inf)


def test_a_whole_weight_is_so_many_copies():
    model = KnownPosterior()
    X, y = draw(model, 1200)  # enough positives for ten groups either way
    p = model.predict_proba(X)[:, 1]
    times = np.random.default_rng(4).integers(0, 4, y.size)
    weighted = reliability_groups(y == 1, p, None, times.astype(float))
    copied = reliability_groups(np.repeat(y, times) == 1, np.repeat(p, times), None, np.ones(times.sum()))
    both = zip(weighted, copied, strict=True)
    assert all(a.observed == pytest.approx(b.observed) and a.mean_p == pytest.approx(b.mean_p) for a, b in both)


def test_clusters_enter_the_standard_deviation():
    rng = np.random.default_rng(5)
    p = np.repeat(rng.uniform(0.05, 0.6, 80), 5)
    target = np.repeat(rng.random(80), 5) < p
    ones, copies = np.ones(400), np.repeat(np.arange(80), 5)
    alone, each, together = (reliability_groups(target, p, None, ones, own) for own in (None, np.arange(400), copies))
    for one, single, group in zip(alone, each, together, strict=True):
        assert abs(group.z) <= abs(one.z)
        assert abs(single.z) <= abs(one.z)
        assert group.high - group.low > one.high - one.low
        assert group.degrees < single.degrees
    (only,) = reliability_groups(target, np.full(400, 0.3), None, ones, copies)
    sums = 5.0 * (target[::5] - 0.3)
    assert only.z == pytest.approx(sums.sum() / np.sqrt(np.sum(sums**2)))


# -- several models ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compared():
    model = PricedPosterior()
    X, y = draw(model, 1500, seed=17)
    return model, X, y, model.predict_proba(X)[:, 1]


def test_figures_are_those_of_each_model_at_the_first_ones_price(compared):
    model, X, y, p = compared
    other = p**1.5
    first, second = compare(gather(model, X, y), {"other": other}, "first")
    assert (first["name"], second["name"]) == ("first", "other")
    assert second["roc_auc"] == pytest.approx(roc_auc_score(y, other))
    assert second["average_precision"] == pytest.approx(average_precision_score(y, other))
    assert second["log_loss"] == pytest.approx(log_loss(y, other))
    assert second["brier"] == pytest.approx(brier_score_loss(y, other))
    price = model.weighting_.cost_ratio
    alarms = {name: one > model.weighting_.threshold for name, one in (("first", p), ("other", other))}
    costs = {name: np.where(y == 1, price * ~raised, 1.0 * raised) for name, raised in alarms.items()}
    assert second["found"] == (alarms["other"] & (y == 1)).sum()
    assert second["cost_per_1000"] == pytest.approx(1000 * costs["other"].mean())
    difference = costs["other"] - costs["first"]
    assert second["more_per_1000"] == pytest.approx(1000 * difference.mean())
    half = 1.96 * difference.std() / np.sqrt(len(y))
    assert second["interval"] == pytest.approx([1000 * (difference.mean() - half), 1000 * (difference.mean() + half)])
    assert first["more_per_1000"] == 0.0
    with pytest.raises(InvalidInput, match="the model b must have one probability for each of 1500 rows"):
        compare(gather(model, X, y), {"b": p[:5]}, "first")


def test_the_page_draws_them_in_a_browser(compared, chromium, tmp_path):
    model, X, y, p = compared
    others = {"b <i>": p**1.5, "c": np.full(len(y), 0.1)}
    page = crcen.write_report(model, X, y, tmp_path / "r.html", others=others).path
    chromium.open(page)
    assert chromium.run("document.querySelectorAll('#models tbody tr').length") == 3
    assert chromium.run("document.querySelectorAll('#chart-models svg path').length") >= 3
    assert "b <i>" in chromium.run("document.querySelector('#models').textContent")
    assert chromium.troubles() == []
    assert page.stat().st_size < 1_000_000
    alone = crcen.write_report(model, X, y, tmp_path / "alone.html").path.read_text()
    assert 'id="models"' not in alone
