"""A goal as the weighting of an estimator: met out of fold, kept in files, refused where nothing is held out."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import crcen
from grouped_settings import grouped

GOALS = [crcen.RecallAtLeast(0.8), crcen.PrecisionAtLeast(0.3), crcen.Capacity(60), crcen.Capacity(15, per=200)]


def search(goal, **how):
    return crcen.CRCENClassifierCV(goal, **grouped(hidden=(), l2=1e-2, cv=3, random_state=0, **how))


@pytest.mark.parametrize("goal", GOALS, ids=str)
@pytest.mark.parametrize("probability", ["shift", "temperature"])
def test_a_search_meets_a_goal_out_of_fold(rare_rows, goal, probability):
    X, y = rare_rows(600, seed=4)
    labels = np.where(y == 1, "fraud", "ok")  # the positive class comes first
    model = search(goal, probability=probability).fit(X, labels)
    alarms = model.oof_decision_function_ < 0
    reached = {
        "RecallAtLeast": alarms[y == 1].mean(),
        "PrecisionAtLeast": y[alarms].mean(),
        "Capacity": -alarms.mean(),
    }[type(goal).__name__]
    wanted = -goal.alarms / (goal.per or 600) if isinstance(goal, crcen.Capacity) else goal.share
    assert wanted <= reached < wanted + 0.1  # met, and not by far more than one row
    p = model.predict_proba(X)[:, 0]
    np.testing.assert_array_equal(model.predict(X) == "fraud", p > model.weighting_.threshold)
    neutral = search(None, probability=probability).fit(X, labels)
    np.testing.assert_allclose(p, neutral.predict_proba(X)[:, 0], rtol=1e-9)
    assert clone(model).weighting == goal


def test_one_network_holds_rows_out_for_a_goal(rare_rows):
    X, y = rare_rows(800, seed=5)
    model = crcen.CRCENClassifier(crcen.RecallAtLeast(0.8), hidden=(), random_state=0).fit(X, y)
    neutral = crcen.CRCENClassifier(None, **grouped(hidden=(), balance="oof", random_state=0)).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), neutral.predict_proba(X), rtol=1e-9)
    X_new, y_new = rare_rows(4000, seed=6)
    assert (model.predict(X_new) == 1)[y_new == 1].mean() == pytest.approx(0.8, abs=0.1)
    assert model.key_equation_.rows == "out-of-fold rows"
    assert model.key_equation_.weighting == model.weighting_


def test_a_committee_and_a_table_meet_a_goal_and_are_saved(rare_rows, tmp_path):
    X, y = rare_rows(300, seed=7)
    model = crcen.TableClassifier(
        estimator=crcen.CommitteeClassifier(crcen.RecallAtLeast(0.7), members=["trees"], cv=2, random_state=0)
    ).fit(X, y)
    assert (model.estimator_.oof_decision_function_[y == 1] > 0).mean() >= 0.7
    again = crcen.load(crcen.save(model, tmp_path / "m.crcen"))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.estimator_.weighting == crcen.RecallAtLeast(0.7)


@pytest.mark.parametrize(
    ("fit", "words"),
    [
        (search(crcen.RecallAtLeast(0.9, confidence=0.95)).fit, "fitted already: fit with RecallAtLeast"),
        (search([crcen.Budget(3), crcen.RecallAtLeast(0.5)]).fit, "a goal stands alone"),
        (crcen.TableClassifier(crcen.RecallAtLeast(0.9), estimator=LogisticRegression()).fit, "none: fit at a price"),
        (search(crcen.Capacity(5, per="day")).fit, "needs the number of rows a day"),
        (crcen.CRCENClassifier(crcen.RecallAtLeast(0.9), hidden=()).partial_fit, "no price by itself"),
    ],
)
def test_a_goal_is_refused_where_nothing_is_held_out(rare_rows, fit, words):
    with pytest.raises(crcen.InvalidParameter, match=words):
        fit(*rare_rows(200))
