"""The scale of sample weights changes no result, for any learner."""

import numpy as np
import pytest

from crcen import Calibration, CommitteeClassifier, CRCENClassifier, CRCENClassifierCV, fit_stream

N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 4))
SCORE = X[:, 0] * X[:, 1] + X[:, 2] + RNG.normal(size=N)
LABELS = {2: (SCORE > 1.5).astype(int), 3: np.digitize(SCORE, [-1.0, 1.5])}
WEIGHT = RNG.uniform(0.5, 2.0, N)


def committee(member):
    return lambda y, w: CommitteeClassifier(members=(member,), effort="quick", cv=2, random_state=0).fit(X, y, w)


def stream(y, w):
    parts = [slice(i, i + 100) for i in range(0, N, 100)]
    return fit_stream([(X[i], y[i], w[i]) for i in parts], epochs=2, hidden=(4,), random_state=0)


LEARNERS = {
    "network": lambda y, w: CRCENClassifier(hidden=(4,), max_epochs=5, random_state=0).fit(X, y, w),
    "isotonic": lambda y, w: CRCENClassifier(
        hidden=(4,), max_epochs=5, calibration=Calibration(probability="isotonic"), random_state=0
    ).fit(X, y, w),
    "logistic": lambda y, w: CRCENClassifier(hidden=(), random_state=0).fit(X, y, w),
    "search": lambda y, w: CRCENClassifierCV(hidden=[(4,)], l2=[1e-3, 0.1], max_epochs=5, cv=2, random_state=0).fit(
        X, y, w
    ),
    "trees": committee("trees"),
    "catboost": committee("catboost"),
    "forest": committee("forest"),
    "stream": stream,
    "partial_fit": lambda y, w: CRCENClassifier(hidden=(4,), random_state=0).partial_fit(
        X, y, classes=np.unique(y), sample_weight=w
    ),
}


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("learner", LEARNERS)
def test_weights_count_by_their_ratios(learner, n_classes):
    if learner in ("trees", "catboost"):
        pytest.importorskip("lightgbm" if learner == "trees" else "catboost")
    if (learner, n_classes) == ("isotonic", 3):
        pytest.skip("for two classes")
    y, fit = LABELS[n_classes], LEARNERS[learner]
    expected = fit(y, WEIGHT).predict_proba(X)
    assert np.ptp(expected[:, 1]) > 0.1
    for scale in (1e-12, 1e12):
        np.testing.assert_allclose(fit(y, scale * WEIGHT).predict_proba(X), expected, rtol=0, atol=1e-6)
    if learner in ("trees", "forest"):
        equal, none = (fit(y, w).predict_proba(X) for w in (np.full(N, 1e12), None))
        np.testing.assert_allclose(equal, none, atol=1e-9)
