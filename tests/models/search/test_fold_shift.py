"""What held-out rows may move the output bias by: a bias that all folds share, not a drift between them."""

import numpy as np
import pytest
from scipy.special import expit

from crcen import Budget, TimeSplit, balance_shift
from crcen.models.fitting import FitRows, agreed_shift, shifts_of_folds
from crcen.theory.labels import Labels
from papers_training import CRCENClassifierCV

SEARCH = {"hidden": (8,), "l2": 1e-3, "encoding": "standard", "n_members": 1, "max_epochs": 8, "random_state": 0}


def by_fold(y, logits, held_out):
    """Shifts and variances of the positive class."""
    labels = Labels(np.array([False, True]), True)
    folds = [(np.empty(0, dtype=np.int64), rows) for rows in held_out]
    rows = FitRows(np.empty((len(y), 0)), y, np.ones(len(y)), labels, folds)
    shifts, variances = shifts_of_folds(labels.columns(logits), rows, rows.resolve(0.5))
    assert not np.nan_to_num(shifts[:, 0]).any()  # the negative class stays
    return shifts[:, 1], variances[:, 1]


def _seasons(n=4000, seed=0):
    """Rows in time whose rate of positives goes up and down, and a column of that time."""
    rng = np.random.default_rng(seed)
    time = np.sort(rng.random(n))
    x = rng.normal(size=n)
    season = np.select([time < 0.3, time < 0.45], [0.0, 0.8], -0.7)
    y = rng.random(n) < expit(-2.2 + 0.3 * x + season)
    return np.column_stack([x, time]), y.astype(int), time


def test_a_model_over_seasons_keeps_the_share_of_its_rows():
    """The pooled shift of the folds comes from seasons that they had not seen; the refit has seen all of them."""
    X, y, time = _seasons(seed=1)
    clf = CRCENClassifierCV(Budget(5), cv=TimeSplit(4), **SEARCH).fit(X, y, groups=time)
    seen = np.isfinite(clf.oof_decision_function_)
    before = clf.oof_decision_function_ - clf.oof_shift_
    pooled = balance_shift(y[seen], before[seen], clf.weighting_)
    assert abs(pooled) > 0.15
    assert clf.oof_shift_ == 0.0
    # The natural probabilities of training rows sum to about their positives.
    p = clf.predict_proba(X)[:, 1]
    assert p.sum() == pytest.approx(y.sum(), rel=0.1)


def test_the_attributes_are_those_of_the_model_that_was_kept():
    X, y, time = _seasons()
    clf = CRCENClassifierCV(Budget(5), cv=TimeSplit(4), **SEARCH).fit(X, y, groups=time)
    plain = CRCENClassifierCV(Budget(5), cv=TimeSplit(4), balance=False, **SEARCH).fit(X, y, groups=time)
    np.testing.assert_allclose(
        clf.decision_function(X), plain.decision_function(X) + clf.oof_shift_, rtol=0, atol=1e-12
    )
    assert clf.probability_map_.tolist() == [1.0, clf.oof_shift_]
    # On the rows it was solved on, with the counts of all rows.
    seen = np.isfinite(clf.oof_decision_function_)
    q = expit(clf.oof_decision_function_)
    missed = 5 * (y == 1).sum() * (1 - q[seen & (y == 1)].mean())
    alarmed = (y == 0).sum() * q[seen & (y == 0)].mean()
    total = 5 * (y == 1).sum() + (y == 0).sum()
    assert clf.key_equation_.residual == pytest.approx(abs(missed - alarmed) / total, rel=1e-9)


class TestAgreement:
    def test_a_common_bias_is_kept_and_a_drift_is_not(self):
        rng = np.random.default_rng(0)
        n, folds = 20_000, np.array_split(np.arange(20_000), 5)[1:]
        truth = rng.normal(-2, 1, n)
        y = rng.random(n) < expit(truth)
        for drifts, low, high in (([0.0] * 4, 0.95, 1.0), ([1.5, -1.5, 1.0, -1.2], 0.0, 0.0)):
            logits = truth + 0.7  # a network that says too much, by 0.7 everywhere
            logits[folds[0][0] :] += np.repeat(drifts, [len(fold) for fold in folds])
            logits[: folds[0][0]] = np.nan
            seen = np.isfinite(logits)
            pooled = balance_shift(y[seen], logits[seen], 0.5)
            shifts, variances = by_fold(y, logits, folds)
            np.testing.assert_allclose(shifts, -0.7 - np.array(drifts), atol=0.15)
            assert low * abs(pooled) <= abs(agreed_shift(pooled, shifts, variances)) <= high * abs(pooled)

    def test_the_variance_is_that_of_repeated_draws(self):
        rng, folds = np.random.default_rng(1), [np.arange(800)]
        logits = rng.normal(-1.5, 1, 800)
        found = []
        for _ in range(300):
            y = rng.random(800) < expit(logits)
            found.append([values[0] for values in by_fold(y, logits, folds)])
        shifts, variances = np.array(found).T
        assert variances.mean() == pytest.approx(shifts.var(), rel=0.2)

    def test_a_fold_without_one_class_has_no_say(self):
        y, logits = np.array([1, 0, 0, 1, 0, 0], dtype=bool), np.zeros(6)
        shifts, variances = by_fold(y, logits, [np.arange(3), np.array([4, 5])])
        np.testing.assert_array_equal(np.isfinite([shifts, variances]), [[True, False], [True, False]])
        assert agreed_shift(-0.4, shifts, variances) == -0.4
