"""Metrics and curves against scikit-learn, hand counts and the variance that resampling must have."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics

from crcen import CostMatrix, InvalidInput, InvalidParameter, confusion_counts, g_mean
from crcen.theory import metrics as measured
from crcen.theory.metrics import ConfusionCounts, DecisionCurves, ThresholdCurve, measure_quality
from crcen.theory.price import Price

RNG = np.random.default_rng(0)
P = RNG.dirichlet([2.0, 1.0, 0.5], size=400)
Y = np.array([RNG.choice(3, p=p) for p in P])
COSTS = CostMatrix([[0, 2, 1], [3, 0, 4], [9, 5, 0]], labels=["a", "b", "c"])
COUNTING = (confusion_counts, g_mean)


@st.composite
def decided_rows(draw, k):
    n = draw(st.integers(2, 30)) + k
    labels = st.lists(st.integers(0, k - 1), min_size=n, max_size=n)
    y = [*range(k), *draw(labels)[k:]]
    pred = draw(st.lists(labels, min_size=1, max_size=4))
    weights = draw(st.lists(st.floats(0.125, 8.0), min_size=n, max_size=n))
    return np.array(y), np.array(pred), draw(st.sampled_from([None, np.array(weights)]))


@pytest.mark.parametrize("k", [2, 3])
@given(st.data())
def test_agree_with_scikit_learn(k, data):
    y, pred, weights = data.draw(decided_rows(k))
    many, own = confusion_counts(y, pred, weights), slice(None) if k > 2 else 1  # of two classes, the positive one
    for i, one in enumerate(pred):
        options = {"sample_weight": weights, "zero_division": 0.0, "labels": range(k), "average": None}
        recall = metrics.recall_score(y, one, **options)
        cells = metrics.multilabel_confusion_matrix(y, one, sample_weight=weights, labels=range(k))
        specificity = cells[:, 0, 0] / cells[:, 0].sum(axis=1)
        expected = {
            "recall": recall[own],
            "specificity": specificity[own],
            "precision": metrics.precision_score(y, one, **options)[own],
            "f1": metrics.f1_score(y, one, **options)[own],
            "g_mean": np.prod(recall) ** (1 / k),
            "table": metrics.confusion_matrix(y, one, sample_weight=weights, labels=range(k)),
            **{name: cells[own, i, j] for name, i, j in (("tn", 0, 0), ("fp", 0, 1), ("fn", 1, 0), ("tp", 1, 1))},
        }
        alone = confusion_counts(y, one.astype(bool) if k == 2 else one, weights)
        for name, value in expected.items():
            assert getattr(many, name)[i] == pytest.approx(value, abs=1e-12)
            assert getattr(alone, name) == pytest.approx(value, abs=1e-12)
            assert k > 2 or name == "table" or type(getattr(alone, name)) is float
        assert g_mean(y, one, weights) == pytest.approx(expected["g_mean"], abs=1e-12)
    assert g_mean(y, pred, weights).shape == (len(pred),)


def test_undefined_shares_and_a_class_of_weight_zero():
    silent = confusion_counts([1, 0, 0], [0, 0, 0])
    assert (silent.precision, silent.f1, silent.recall, silent.g_mean) == (0.0, 0.0, 0.0, 0.0)
    no_positive, no_negative = confusion_counts([0, 0], [1, 0]), confusion_counts([1, 1], [1, 0])
    assert np.isnan([no_positive.recall, no_positive.g_mean, no_negative.specificity]).all()
    assert (no_positive.specificity, no_negative.recall, confusion_counts([0], [0]).f1) == (0.5, 0.5, 0.0)
    counts = confusion_counts([1, 0, 0], [[1, 1, 0], [0, 0, 0]], [0, 1, 3])
    assert np.isnan(counts.recall).all()
    np.testing.assert_allclose(counts.specificity, [0.75, 1.0])
    assert ConfusionCounts(1, 2, 3, 4) == ConfusionCounts(1.0, 2.0, 3.0, 4.0) != ConfusionCounts(1, 2, 3, 5)
    with pytest.raises(AttributeError):
        ConfusionCounts(1, 2, 3, 4).tp = 0


# -- decisions at stated costs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("costs", [COSTS, Price(np.array([1.0, 4.0, 15.0]), np.ones(3)).cost_matrix])
def test_quality_is_that_of_scikit_learn_and_sums_by_hand(is_weighted, costs):
    sizes = np.random.default_rng(1).uniform(0.5, 2, 400) if is_weighted else np.ones(400)
    found = measure_quality(Y, P, costs, sizes)
    chosen = (P @ costs.costs).argmin(axis=1)
    options = {"average": None, "sample_weight": sizes}
    np.testing.assert_allclose(found.counts.table, metrics.confusion_matrix(Y, chosen, sample_weight=sizes))
    recalls = metrics.recall_score(Y, chosen, **options)
    np.testing.assert_allclose([one.value for one in found.recalls], recalls)
    np.testing.assert_allclose([one.value for one in found.precisions], metrics.precision_score(Y, chosen, **options))
    assert found.counts.balanced_accuracy == pytest.approx(recalls.mean())
    assert found.counts.g_mean == pytest.approx(np.prod(recalls) ** (1 / 3)) == g_mean(Y, chosen, sizes)
    assert found.counts.macro_f1 == pytest.approx(metrics.f1_score(Y, chosen, average="macro", sample_weight=sizes))
    assert found.log_loss == pytest.approx(metrics.log_loss(Y, P, sample_weight=sizes))
    each = [metrics.average_precision_score(k == Y, P[:, k], sample_weight=sizes) for k in range(3)]
    assert found.average_precisions == pytest.approx(each)
    paid = costs.costs[Y, chosen]
    assert found.cost.value == pytest.approx(np.average(paid, weights=sizes)) == found.cost_by_class.sum()
    assert found.expected_cost == pytest.approx(np.average((P @ costs.costs).min(axis=1), weights=sizes))
    habits = np.average(costs.costs[Y], axis=0, weights=sizes)
    assert found.habit == found.labels[habits.argmin()]
    assert found.saved.value == pytest.approx(habits.min() - found.cost.value)
    if not is_weighted:  # not shorter than the normal interval, which is too short for rare mistakes
        half = 1.96 * paid.std() / np.sqrt(400)
        assert 0.95 * half < found.cost.high - found.cost.value < 2 * half
        areas = [metrics.roc_auc_score(k == Y, P[:, k]) for k in range(3)]
        np.testing.assert_allclose([one.value for one in found.areas], areas)


def test_quality_counts_further_actions_and_long_intervals_do_not_touch():
    found = measure_quality(Y, P, COSTS.with_review(0.5))
    assert (found.costs.names, found.counts.table.shape) == (("a", "b", "c", "review"), (3, 4))
    assert found.counts.table[:, 3].sum() > 0
    assert found.expected_cost <= 0.5 + 1e-12
    assert "review" in "\n".join(found.lines())
    assert found.to_dict()["decisions"] == list(found.costs.names)
    named = measure_quality(Y, P, CostMatrix(COSTS.costs, ["a", "a long name of a class", "c"])).lines()
    assert named[1].endswith("a  a long name…             c")  # short over a column, longer before a row
    long = ["long name, 1", "b", "a name, much longer"]
    alike = CostMatrix(np.c_[COSTS.costs, [[0.5, 0.6]] * 3], long, ["a name, much, 1", "r"])
    head, *table = measure_quality(Y, P, alike).lines()[1:6]
    assert head.split() == ["long", "name,", "1", "b", "(3)", "(4)", "r"]  # those that begin alike by their numbers
    assert [table[k][:8] for k in (2, 3)] == ["(3) a na", "(4) a na"]
    p = np.full((300, 3), 0.3) + np.eye(3)[np.arange(300) % 3] * 0.1
    found = measure_quality(np.where(np.arange(300) < 2, 1, 0), p, CostMatrix(1.0 - np.eye(3)))
    assert max(len(str(one)) for one in found.precisions) >= 24
    rows = found.lines()[found.lines().index("") + 2 :]
    assert [line.count(")  ") for line in rows[:2]] == [2, 2]
    assert "nan" not in rows[2]
    assert "dearer (0." in "\n".join(found.lines())
    assert "In this unit a mistake costs 1 on 0, 1 on 1, 1 on 2" in found.lines()
    assert CostMatrix([[-3, 1], [1, -3]]).unit == ""  # the costs of right decisions matter, too
    costs = CostMatrix([[0, 0.3, 0.1], [0.2, 0, 0.1]], actions=["r"])
    same = measure_quality([0, 1, 1, 1, 1, 0], [[0.5, 0.5]] * 6, costs, actions=[1, 1, 2, 0, 1, 0])  # 0.6, as r for all
    assert (same.saved.value, "0 cheaper (" in "\n".join(same.lines()), costs.unit) == (0.0, True, "")


def test_a_class_without_rows_has_no_shares_and_a_probability_of_zero_a_finite_loss():
    found = measure_quality(Y[Y < 2], P[Y < 2], COSTS)
    assert np.isnan([found.recalls[2].value, found.average_precisions[2]]).all()
    assert found.to_dict()["classes"][2]["recall"]["value"] is None
    assert measured.log_losses(np.array([2]), np.array([[0.5, 0.5, 0.0]]))[0] == pytest.approx(-math.log(1e-15))
    assert measured.log_losses(np.array([True]), np.array([0.0]))[0] == pytest.approx(-math.log(1e-15))


# -- the bootstrap ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["few kinds", "all different"])
def test_sums_vary_as_resampled_rows_do(kind):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 3, (200, 2)).astype(float) if kind == "few kinds" else rng.normal(size=(200, 2))
    sums = measured.bootstrap_sums(rows, 20_000, np.random.default_rng(1))
    assert sums.shape == (20_000, 2)
    expected = 200 * np.cov(rows.T, bias=True)  # n rows drawn independently, each with the covariance of the rows
    np.testing.assert_allclose(np.cov(sums.T), expected, atol=0.04 * expected.max())
    np.testing.assert_allclose(sums.mean(axis=0), rows.sum(axis=0), atol=5 * np.sqrt(expected.max() / 20_000))
    rows = np.random.default_rng(3).normal(size=(50, 40))  # more kinds than an integer can number
    sums = measured.bootstrap_sums(np.vstack([rows, rows]), 2000, np.random.default_rng(4))
    np.testing.assert_allclose(sums.mean(axis=0), 2 * rows.sum(axis=0), atol=5 * 10 / np.sqrt(2000) * 1.5)


@pytest.mark.parametrize("counts", [np.ones(7, dtype=np.int64), np.array([3, 1, 2])])
def test_every_draw_has_as_many_rows(counts):
    drawn = np.concatenate(list(measured.row_draws(counts, 1000, np.random.default_rng(5))))
    assert drawn.shape == (1000, len(counts))
    assert (drawn.sum(axis=1) == counts.sum()).all()
    np.testing.assert_allclose(drawn.mean(axis=0), counts, atol=0.2)


def test_interval_cuts_equal_tails_and_keeps_infinities():
    values = np.arange(1.0, 1001.0)
    assert measured.percentile_interval(values, 0.9) == (50.0, 950.0)
    values[900:] = np.inf
    assert measured.percentile_interval(values, 0.9) == (50.0, np.inf)
    values[:20] = np.nan
    assert np.isfinite(measured.percentile_interval(values, 0.9)[0])
    values[:200] = np.nan  # more than a tail is unknown
    assert np.isnan(measured.percentile_interval(values, 0.9)).all()


@pytest.mark.parametrize(
    ("call", "arguments", "words"),
    [
        *((f, ([0, 1], [0, 1, 1]), r"y_pred must have 2 columns as y has rows, got shape \(3,\)") for f in COUNTING),
        *((f, ([0, 1], [0, 0.7]), "y_pred must be 0/1 or bool") for f in COUNTING),
        *((f, ([1, 2], [0, 1]), "y must be 0/1 or bool.*labels 1, 2") for f in COUNTING),
        *((f, ([0, 1], np.zeros((1, 1, 2))), "1-D or 2-D") for f in COUNTING),
        (measure_quality, ([0, 1], [[0.2, 0.3, 0.5]], COSTS), "same number of rows"),
        (measure_quality, (np.zeros(0, int), np.ones((0, 3)), COSTS), "at least 1"),
        (measure_quality, ([0], [0.5], COSTS), "column for each of 3 classes"),
        (measure_quality, ([0], [[np.nan, 0.5, 0.5]], COSTS), "must lie in"),
        (measure_quality, ([3], [[0.2, 0.3, 0.5]], COSTS), "class numbers from 0 to 2"),
        (ConfusionCounts, ([1, 2], 1, 1, 1), "must have one shape"),
        (ConfusionCounts, (-1, 0, 0, 0), "tp must be finite and not negative, got -1"),
        (ConfusionCounts, (0, 0, float("nan"), 0), "fn must be finite and not negative, got nan"),
        *((measured.bootstrap_sums, (np.ones((3, 1)), n, RNG), "a whole number") for n in (0, -1, 2.5, True, "many")),
        *((measured.percentile_interval, (np.ones(3), x), "between 0 and 1") for x in (0.0, 1.0, 95, float("nan"))),
    ],
)
def test_rows_and_numbers_refused(call, arguments, words):
    with pytest.raises((InvalidInput, InvalidParameter), match=words):
        call(*arguments)


def test_totals_are_sums_of_the_rows_at_or_above_each_score_with_the_areas_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, p = rng.random(200) < 0.3, rng.choice(np.linspace(0.0, 1.0, 15), 200)
    weights, curve = rng.integers(0, 4, (3, 200)).astype(float), ThresholdCurve(y, p)
    assert curve.score.tolist() == sorted(set(p), reverse=True)
    tp, fp = curve.totals(weights)
    assert tp.shape == (3, len(curve.score))
    for k, score in enumerate(curve.score):
        for draw, size in enumerate(weights):
            assert tp[draw, k] == size[(p >= score) & y].sum()
            assert fp[draw, k] == size[(p >= score) & ~y].sum()
    assert np.array_equal(curve.totals(weights[1])[0], tp[1])
    for size in weights:
        totals = curve.totals(size)
        areas = measured.roc_area(*totals), measured.average_precision(*totals)
        theirs = (f(y, p, sample_weight=size) for f in (metrics.roc_auc_score, metrics.average_precision_score))
        assert areas == pytest.approx(tuple(theirs))
    totals = ThresholdCurve(np.zeros(3, dtype=bool), np.array([0.1, 0.2, 0.2])).totals(np.ones(3))
    assert np.isnan([measured.roc_area(*totals), measured.average_precision(*totals)]).all()


@pytest.fixture(params=[False, True], ids=["plain", "tied"])
def rows(request):
    rng = np.random.default_rng(3)
    p = 1 / (1 + np.exp(-rng.normal(-2, 1.5, 600)))
    p = np.round(p, 1) if request.param else p
    return rng.random(600) < p, p, rng.integers(0, 4, 600).astype(float)


def test_net_benefit_is_catches_less_false_alarms_at_prices_above_zero(rows):
    y, p, weights = rows
    prices = np.array([0.5, 3.0, 9.0, 40.0])
    found = DecisionCurves(y, p, weights).net_benefit(prices)
    worth = np.where(y[:, None], 1.0, -1.0 / prices)
    by_hand = [worth * (p[:, None] > 1 / (1 + prices)), worth]
    np.testing.assert_allclose([found.model, found.trivial], np.average(by_hand, axis=1, weights=weights))
    with pytest.raises(InvalidParameter, match="above 0"):
        DecisionCurves(y, p).net_benefit([0.0, 1.0])
    with pytest.raises(InvalidInput, match="one value for each"):
        DecisionCurves(y, p[:5])


def test_the_brier_curve_has_the_area_of_its_score_and_the_cost_curve_is_the_lowest_line(rows):
    y, p, weights = rows
    curves = DecisionCurves(y, p, weights)
    found, best = curves.brier_curve(20_001), curves.brier_curve(20_001, is_best=True)
    area = float(np.mean(found.model[1:] + found.model[:-1]) / 2)
    assert area == pytest.approx(metrics.brier_score_loss(y, p, sample_weight=weights), abs=2e-4)
    assert (best.model <= found.model + 1e-12).all()
    assert (best.model <= found.trivial + 1e-12).all()
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
    assert (area - share / 2) / (1 - share) == pytest.approx(metrics.roc_auc_score(y, p))
    np.testing.assert_allclose(DecisionCurves(y, p).lift().model, found[1:] / shares[1:])
