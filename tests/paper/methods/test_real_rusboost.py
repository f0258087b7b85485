"""RUSBoost by SAMME.R, against the definition written out once more."""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils import check_random_state

from crcen import InvalidParameter
from crcen.paper.boosting import RealRUSBoostClassifier


def draw(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, (X[:, 0] + 0.5 * X[:, 1] + rng.normal(size=n) > 2.0).astype(int)


def by_definition(X, y, new, n_estimators, seed):
    """Zhu and others 2009, algorithm 4 with K = 2: h_k = (K−1)(log p_k − mean log p), w ← w·exp(−(K−1)/K · y·log p)."""
    random = check_random_state(seed)
    weights, votes = np.full(len(y), 1 / len(y)), np.zeros((len(new), 2))
    for _ in range(n_estimators):
        kept = random.choice(np.flatnonzero(y == 0), y.sum(), replace=False)
        rows = np.concatenate([np.flatnonzero(y == 1), kept])
        stump = DecisionTreeClassifier(max_depth=1, random_state=random.randint(2**31 - 1))
        stump.fit(X[rows], y[rows], sample_weight=weights[rows])
        eps = np.finfo(float).eps
        log_p, log_new = (np.log(np.clip(stump.predict_proba(Z), eps, None)) for Z in (X, new))
        votes += log_new - log_new.mean(axis=1, keepdims=True)
        coded = np.where(np.arange(2) == y[:, None], 1.0, -1.0)
        weights = weights * np.exp(-0.5 * (coded * log_p).sum(axis=1))
        weights /= weights.sum()
    return votes


def test_it_is_the_definition():
    X, y = draw()
    new, _ = draw(200, 1)
    model = RealRUSBoostClassifier(12, random_state=3).fit(X, y)
    votes = by_definition(X, y, new, 12, 3)
    np.testing.assert_allclose(model.decision_function(new), votes[:, 1], rtol=1e-9)
    np.testing.assert_array_equal(model.predict(new), votes.argmax(axis=1))
    assert len(model.estimators_) == 12


def test_it_does_not_stop_where_stumps_are_worse_than_chance_on_all_rows():
    """Today's RUSBoost ends with the first such stump."""
    X, y = draw(2000)
    model = RealRUSBoostClassifier(random_state=0).fit(X, y)
    new, labels = draw(4000, 1)
    alarms = model.predict(new) == 1
    assert len(model.estimators_) == 50
    assert alarms[labels == 1].mean() > 0.55
    assert alarms[labels == 0].mean() < 0.4


def test_labels_of_text_and_bad_numbers():
    X, y = draw()
    text = RealRUSBoostClassifier(5, random_state=0).fit(X, np.where(y == 1, "a", "b"))
    number = RealRUSBoostClassifier(5, random_state=0).fit(X, y)
    np.testing.assert_array_equal(text.predict(X) == "a", number.predict(X) == 1)
    with pytest.raises(InvalidParameter, match="n_estimators"):
        RealRUSBoostClassifier(0).fit(X, y)
