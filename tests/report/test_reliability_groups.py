"""Groups of equal expected positives: a partition, Wilson's interval as SciPy has it, z as the truth makes it."""

import math

import numpy as np
import pytest
from known_models import KnownPosterior, PricedPosterior, draw

from crcen.report.measurements import reliability_groups


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
        assert group.z == pytest.approx(
            ((y[mine] == 1).sum() - p[mine].sum()) / np.sqrt((p[mine] * (1 - p[mine])).sum())
        )


def test_equal_probabilities_stay_together():
    rng = np.random.default_rng(0)
    p = np.repeat([0.1, 0.3, 0.9], [450, 150, 50])  # 45 expected positives each
    groups = reliability_groups(rng.random(p.size) < p, p, None, np.ones(p.size))
    assert [group.n_rows for group in groups] == [450, 150, 50]
    assert [group.mean_p for group in groups] == pytest.approx([0.1, 0.3, 0.9])
    (only,) = reliability_groups(rng.random(500) < 0.2, np.full(500, 0.2), None, np.ones(500))
    assert (only.n_rows, only.mean_q) == (500, None)


def test_probabilities_of_zero_alone_are_one_group():
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
