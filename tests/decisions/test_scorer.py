"""cost_scorer in scikit-learn's searches: what decisions cost, whatever the labels are called."""

import pickle

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.svm import LinearSVC
from three_classes import LABELS, NEW, TRUTH, WEIGHTS, X, Y

from crcen import Budget, Capacity, CostMatrix, CRCENClassifier, InvalidParameter, cost_scorer


def test_the_score_is_minus_the_cost_of_a_row(rare_rows):
    X, y = rare_rows(400)
    model = LogisticRegression().fit(X, y)
    p = model.predict_proba(X)[:, 1]
    alarms = p > 1 / 11
    cost = (10 * (y == 1) * ~alarms + (y == 0) * alarms).mean()
    assert cost_scorer(Budget(10))(model, X, y) == pytest.approx(-cost)
    assert cost_scorer(CostMatrix.binary(fp=3, fn=30))(model, X, y) == pytest.approx(-3 * cost)
    weights = np.random.default_rng(0).integers(0, 3, 400)
    copies = np.repeat(np.arange(400), weights)
    weighted = cost_scorer("balanced")(model, X, y, sample_weight=weights)
    assert weighted == pytest.approx(cost_scorer("balanced")(model, X[copies], y[copies]))


def test_searches_and_cross_validation_take_it(rare_rows):
    X, y = rare_rows(300)
    named = np.where(y == 1, "fraud", "ok")  # the positive class comes first
    scorer = pickle.loads(pickle.dumps(cost_scorer(Budget(8))))
    scores = cross_val_score(LogisticRegression(), X, y, scoring=scorer, cv=3)
    np.testing.assert_allclose(cross_val_score(LogisticRegression(), X, named, scoring=scorer, cv=3), scores)
    search = GridSearchCV(LogisticRegression(), {"C": [1e-4, 1.0]}, scoring=scorer, cv=3).fit(X, y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])


def test_what_is_no_price_is_refused_at_once(rare_rows):
    X, y = rare_rows(100)
    with pytest.raises(InvalidParameter, match="no price by itself"):
        cost_scorer(Capacity(5))
    with pytest.raises(InvalidParameter, match="one price"):
        cost_scorer(CostMatrix.binary(fn=np.ones(3)))
    with pytest.raises(InvalidParameter, match="LinearSVC has none"):
        cost_scorer(Budget(3))(LinearSVC().fit(X, y), X, y)


def test_a_network_is_scored_at_the_price_of_the_scorer_not_its_own(rare_rows):
    X, y = rare_rows(300)
    model = CRCENClassifier(Budget(2), hidden=(), random_state=0).fit(X, y)
    alarms = model.predict_proba(X)[:, 1] > 1 / 21
    assert (alarms != model.predict(X)).any()
    assert cost_scorer(Budget(20))(model, X, y) == pytest.approx(-np.where(y == 1, 20 * ~alarms, alarms).mean())


@pytest.mark.parametrize(
    "price", [dict(zip(LABELS, WEIGHTS, strict=True)), CostMatrix(WEIGHTS[:, None] * (1 - np.eye(3)), LABELS)]
)
def test_a_scorer_takes_prices_of_more_than_two_classes(price):
    model = LogisticRegression(C=1e6).fit(X, LABELS[Y])
    w = dict(zip(LABELS, WEIGHTS, strict=True))
    own = np.array([w[label] for label in model.classes_])
    decided = model.classes_[(model.predict_proba(NEW) * own).argmax(axis=1)]
    cost = np.where(decided == LABELS[TRUTH], 0.0, WEIGHTS[TRUTH]).mean()
    assert cost_scorer(price)(model, NEW, LABELS[TRUTH]) == pytest.approx(-cost)
