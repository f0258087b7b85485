"""Counts above every threshold against row-by-row decisions, areas against scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from crcen.theory.threshold_curve import ThresholdCurve, average_precision, roc_area


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    y = rng.random(200) < 0.3
    return y, rng.choice(np.linspace(0.0, 1.0, 15), 200), rng.integers(0, 4, (3, 200)).astype(float)


def test_totals_are_sums_of_the_rows_at_or_above_each_score(rows):
    y, p, weights = rows
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


@pytest.mark.parametrize("threshold", [-1.0, 0.0, 0.3, 0.5, 1.0])
def test_cuts_above_a_threshold(rows, threshold):
    y, p, _ = rows
    curve = ThresholdCurve(y, p)
    k = curve.n_cuts_above(threshold)
    tp, fp = curve.totals(np.ones(200))
    assert (tp[k - 1] + fp[k - 1] if k else 0) == (p > threshold).sum()


def test_areas_are_those_of_scikit_learn(rows):
    y, p, weights = rows
    curve = ThresholdCurve(y, p)
    for size in weights:
        totals = curve.totals(size)
        assert roc_area(*totals) == pytest.approx(roc_auc_score(y, p, sample_weight=size))
        assert average_precision(*totals) == pytest.approx(average_precision_score(y, p, sample_weight=size))


def test_a_class_that_is_absent_has_no_area():
    totals = ThresholdCurve(np.zeros(3, dtype=bool), np.array([0.1, 0.2, 0.2])).totals(np.ones(3))
    assert np.isnan([roc_area(*totals), average_precision(*totals)]).all()
