"""Which class is positive, what a price or a goal means, and one decision everywhere: methods, tables and graphs."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import Budget, CostRatio, InvalidParameter, Lam, decide, export_onnx, posterior, predict_table
from crcen.models.ensemble import PROBABILITIES
from crcen.theory.price import Price
from grouped_settings import grouped
from papers_training import CRCENClassifier

# labels of (common, rare) rows
LABELS = [(0, 1), (1, 0), (-1, 1), (1, -1), (False, True), (True, False), ("ok", "fraud"), ("no", "yes"), (2.0, 1.0)]
either_order = pytest.mark.parametrize("labels", [("no", "yes"), ("ok", "fraud")], ids=["positive last", "first"])
QUICK = {"hidden": (3,), "solver": "adam", "max_epochs": 4, "batch_size": 32, "random_state": 0}


def assert_one_decision(model, X):
    """Every way to ask gives the same alarms."""
    last = int(model.classes_[1] == model.pos_label_)
    alarms = model.predict(X) == model.pos_label_
    p, c = model.predict_proba(X)[:, last], model.weighting_.cost_ratio
    for same in (p > model.weighting_.threshold, p > 1 / (1 + c), decide(p, model.weighting_), decide(p, CostRatio(c))):
        np.testing.assert_array_equal(same, alarms)
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == model.classes_[1])
    return alarms


def decided_by_onnx(model, X, folder):
    export_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes())
    return session.run(["decision"], {"X": np.ascontiguousarray(X)})[0].astype(str)


@pytest.mark.parametrize("n_members", [1, 3])
@pytest.mark.parametrize("labels", LABELS, ids=repr)
def test_the_rarer_class_is_positive_and_labels_change_nothing_but_names(rare_rows, labels, n_members):
    X, rare = rare_rows(n=250)
    y, how = np.array(labels)[rare], {"n_members": n_members, **QUICK}
    model, plain = CRCENClassifier(Budget(7), **how).fit(X, y), CRCENClassifier(Budget(7), **how).fit(X, rare)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.pos_label_ == labels[1]
    assert (model.weighting_.n_pos, model.weighting_.n_neg) == (rare.sum(), (1 - rare).sum())
    column = model.classes_.tolist().index(labels[1])
    for method in ("predict_proba", "weighted_proba"):
        columns = getattr(model, method)(X)
        assert (columns.shape, columns.dtype) == ((len(X), 2), np.float64)
        np.testing.assert_allclose(columns.sum(axis=1), 1.0, rtol=0, atol=1e-15)
        np.testing.assert_array_equal(columns[:, column], getattr(plain, method)(X)[:, 1])
    assert columns[y == labels[1], column].mean() > columns[y != labels[1], column].mean()
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X), rtol=1e-12)
    decision = model.decision_function(X)
    assert (decision.shape, decision.dtype, model.predict(X).dtype) == ((len(X),), np.float64, y.dtype)
    np.testing.assert_array_equal(decision, (1 if column == 1 else -1) * plain.decision_function(X))
    # The posterior is the weighted output with the price taken out.
    p, q = model.predict_proba(X)[:, column], model.weighted_proba(X)[:, column]
    np.testing.assert_allclose(logit(p), logit(q) - np.log(7.0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(posterior(q, model.weighting_), p, rtol=1e-12)
    assert 0 < assert_one_decision(model, X).mean() < 1
    assert model.weighting_.threshold == pytest.approx(1 / 8)


@pytest.mark.parametrize("labels", LABELS, ids=repr)
def test_pos_label_overrules_rarity(rare_rows, labels):
    X, rare = rare_rows(n=250)
    model = CRCENClassifier(Budget(3), hidden=(), pos_label=labels[0], random_state=0).fit(X, np.array(labels)[rare])
    assert (model.pos_label_, model.weighting_.n_pos) == (labels[0], (1 - rare).sum())
    p = model.predict_proba(X)[:, model.classes_.tolist().index(labels[0])]
    np.testing.assert_array_equal(model.predict(X) == labels[0], p > 0.25)


def test_rarity_counts_sample_weights_but_not_their_rounding(rare_rows):
    X, y = rare_rows()
    model = CRCENClassifier(hidden=(), random_state=0).fit(X, y, np.where(y == 1, 100.0, 1.0))
    assert model.pos_label_ == 0
    # Weights that balance the classes: totals are equal but for rounding, which must not choose the class.
    for seed in range(6):
        X, y = rare_rows(n=150 + seed, seed=seed)
        weights = np.where(y == 1, len(y) / (2 * y.sum()), len(y) / (2 * (1 - y).sum()))
        model = CRCENClassifier(hidden=(), max_epochs=5, random_state=0).fit(X, np.where(y, "fraud", "ok"), weights)
        assert model.pos_label_ == "fraud"


def test_weights_of_classes_follow_sample_weights_labels_and_other_prices(rare_rows):
    X, y = rare_rows()

    def price(weighting="balanced", y=y, sample_weight=None, **how):
        return CRCENClassifier(weighting, hidden=(), **how).fit(X, y, sample_weight).weighting_

    weight = np.where(y == 1, 2.0, 0.5)
    assert price(sample_weight=weight, pos_label=1).cost_ratio == pytest.approx(weight[y == 0].sum() / (2.0 * y.sum()))
    # Weights go by label, whichever class is positive.
    assert price({0: 1.0, 1: 5.0}).cost_ratio == pytest.approx(5)
    assert price({0: 1.0, 1: 5.0}, pos_label=0).cost_ratio == pytest.approx(0.2)
    assert price({False: 1, True: 5}, y == 1).cost_ratio == pytest.approx(5)
    # A resolved price brings its weight, but not its counts: those would make the key equation of these rows wrong.
    fitted = CRCENClassifier(Price.binary(0.8, n_pos=1, n_neg=1000), hidden=()).fit(X, y)
    assert fitted.weighting_ == Price.binary(0.8, y.sum(), (1 - y).sum())
    assert fitted.key_equation_.residual <= 1e-12


@pytest.mark.parametrize(
    ("weighting", "words"),
    [
        ([0.5, 0.5, 0.5], "array of 2 weights"),
        ({0: 1}, "one weight for each of 0, 1: got {0: 1}"),
        ({"0": 1, "1": 5}, "one weight for each of 0, 1"),
        ({0: -2, 1: 1}, "the weight of class 0 must be a finite number above 0"),
        ({0: 1, 1: 0}, "the weight of class 1 must be a finite number above 0"),
        ({0: 1e-300, 1: 1e300}, "λ below 1"),
        (CostRatio(1e300), "milder weighting"),
    ],
    ids=repr,
)
def test_a_weighting_without_meaning_is_refused(rare_rows, weighting, words):
    with pytest.raises(InvalidParameter, match=words):
        CRCENClassifier(weighting, hidden=()).fit(*rare_rows())


@either_order
@pytest.mark.parametrize("kind", PROBABILITIES)
@pytest.mark.parametrize("search", [False, True], ids=["fit", "search"])
def test_methods_tables_and_graphs_decide_alike(rare_rows, kind, labels, search, tmp_path):
    X, y = rare_rows(n=400)
    how = {"hidden": (4,), "max_epochs": 4, "probability": kind, "random_state": 0}
    how |= {"cv": 3, "l2": [1e-3, 1e-1], "encoding": "standard"} if search else {}
    model = (crcen.CRCENClassifierCV if search else crcen.CRCENClassifier)(Budget(4), **grouped(**how))
    model.fit(X, np.array(labels)[y])
    new, _ = rare_rows(n=3000, seed=1)
    assert 0 < assert_one_decision(model, new).sum() < len(new)
    predict_table(model, pd.DataFrame(new), out=tmp_path / "scored.csv")
    assert np.array_equal(pd.read_csv(tmp_path / "scored.csv")["decision"], model.predict(new))
    assert np.array_equal(decided_by_onnx(model, new, tmp_path), model.predict(new))


@either_order
@pytest.mark.parametrize("c", [1.0, 3.0, 10.0, 17.3, 1e3])
def test_rows_next_to_the_threshold(rare_rows, labels, c):
    """A straight line through the threshold, row by row in steps of rounding."""
    X, y = rare_rows(n=400)
    model = crcen.CRCENClassifier(CostRatio(c), hidden=(), random_state=0).fit(X, np.array(labels)[y])
    sign = 1.0 if model.classes_[1] == model.pos_label_ else -1.0
    row, direction = X[:1], np.array([[1.0, 0.0, 0.0]])
    for _ in range(60):  # Newton by secants to where the weighted logit is 0
        here = model.decision_function(row)[0]
        slope = (model.decision_function(row + direction)[0] - here) or 1.0
        row = row - here / slope * direction
    steps = np.arange(-300, 301)[:, None] * 1e-17 * max(1.0, abs(row[0, 0])) * 10
    near = np.concatenate([row + steps * direction, row + 1e5 * steps * direction])
    assert np.abs(model.decision_function(near)).max() < 1e-6
    alarms = assert_one_decision(model, near)
    assert alarms.any()
    assert not alarms.all()
    assert np.array_equal(alarms, sign * model.decision_function(near) > 0)


@either_order
def test_a_tie_is_no_alarm(rare_rows, labels, tmp_path):
    """Corners of an isotonic map at p = 1/11 with a price of 10, and rows without information at a price of 1."""
    X, y = rare_rows(n=400)
    isotonic = grouped(hidden=(), probability="isotonic", random_state=0)
    model = crcen.CRCENClassifier(CostRatio(10), **isotonic).fit(X, np.array(labels)[y])
    corner = np.log(1 / 11) - np.log1p(-1 / 11)
    model.ensemble_ = model.ensemble_.mapped(np.array([[-50.0, -9.0, -8.9, 50.0], [-9.0, -9.0, corner, corner]]))
    assert not assert_one_decision(model, X).any()
    assert np.array_equal(decided_by_onnx(model, X, tmp_path), model.predict(X))
    X, y = np.zeros((40, 1)), (np.arange(40) < 10).astype(int)
    model = crcen.CRCENClassifier(Lam(0.5), hidden=(), random_state=0).fit(X, np.array(labels)[y])
    (group,) = model.ensemble_.members
    flat = replace(group, weights=(0.0 * group.weights[0],), biases=(0.0 * group.biases[0],))
    model.ensemble_ = replace(model.ensemble_, members=(flat,), shift=0.0)
    assert not assert_one_decision(model, X).any()


# -- a goal instead of a price: met out of fold, kept in files, refused where nothing is held out ----------------------

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
    assert (model.key_equation_.rows, model.key_equation_.weighting) == ("out-of-fold rows", model.weighting_)


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
        (search(crcen.RecallAtLeast(0.9, confidence=0.95)).fit, "fitted model: fit without confidence"),
        (search([crcen.Budget(3), crcen.RecallAtLeast(0.5)]).fit, "give a goal by itself"),
        (crcen.TableClassifier(crcen.RecallAtLeast(0.9), estimator=LogisticRegression()).fit, "none: fit at a price"),
        (search(crcen.Capacity(5, per="day")).fit, "needs the number of rows a day"),
        (crcen.CRCENClassifier(crcen.RecallAtLeast(0.9), hidden=()).partial_fit, "not a price by itself"),
    ],
)
def test_a_goal_is_refused_where_nothing_is_held_out(rare_rows, fit, words):
    with pytest.raises(crcen.InvalidParameter, match=words):
        fit(*rare_rows(200))
