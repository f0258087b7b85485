"""One decision everywhere: predict, decision_function, cut probabilities, tables and ONNX graphs agree on every row."""

from dataclasses import replace

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from crcen import Budget, CostRatio, CRCENClassifier, CRCENClassifierCV, Lam, decide, export_onnx, predict_table
from crcen.models.probability import PROBABILITIES
from grouped_settings import grouped

LABELS = {"positive last": ("no", "yes"), "positive first": ("ok", "fraud")}


def rare(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 1)
    return X, X[:, 0] + rng.normal(size=n) > 1.5


def decided_by_onnx(model, X, folder):
    export_onnx(model, folder / "model.onnx")
    session = onnxruntime.InferenceSession((folder / "model.onnx").read_bytes())
    return session.run(["decision"], {"X": np.ascontiguousarray(X)})[0].astype(str)


def assert_one_decision(model, X):
    """Every way to ask gives the same alarms."""
    last = int(model.classes_[1] == model.pos_label_)
    alarms = model.predict(X) == model.pos_label_
    p, c = model.predict_proba(X)[:, last], model.weighting_.cost_ratio
    assert np.array_equal(alarms, p > model.weighting_.threshold)
    assert np.array_equal(alarms, p > 1 / (1 + c))
    assert np.array_equal(alarms, decide(p, model.weighting_))
    assert np.array_equal(alarms, decide(p, CostRatio(c)))
    assert np.array_equal(model.decision_function(X) > 0, model.predict(X) == model.classes_[1])
    return alarms


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("kind", PROBABILITIES)
@pytest.mark.parametrize("search", [False, True], ids=["fit", "search"])
def test_all_ways_to_ask_agree(kind, labels, search, tmp_path):
    X, positive = rare()
    how = {"hidden": (4,), "max_epochs": 8, "probability": kind, "random_state": 0} | ({"cv": 3} if search else {})
    model = (CRCENClassifierCV if search else CRCENClassifier)(Budget(4), **grouped(**how))
    model.fit(X, np.where(positive, labels[1], labels[0]))
    new = np.random.default_rng(1).normal(size=(3000, 3))
    alarms = assert_one_decision(model, new)
    assert 0 < alarms.sum() < len(new)
    predict_table(model, pd.DataFrame(new), out=tmp_path / "scored.csv")
    assert np.array_equal(pd.read_csv(tmp_path / "scored.csv")["decision"], model.predict(new))
    assert np.array_equal(decided_by_onnx(model, new, tmp_path), model.predict(new))


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("c", [1.0, 3.0, 10.0, 17.3, 1e3])
def test_rows_next_to_the_threshold(labels, c):
    """A straight line through the threshold, row by row in steps of rounding."""
    X, positive = rare()
    model = CRCENClassifier(CostRatio(c), hidden=(), random_state=0).fit(X, np.where(positive, labels[1], labels[0]))
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


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_a_step_that_lies_on_the_threshold_is_no_alarm(labels, tmp_path):
    """Corners of an isotonic map at p = 1/11, with a price of 10: a tie for every row of the step."""
    X, positive = rare()
    y = np.where(positive, labels[1], labels[0])
    model = CRCENClassifier(CostRatio(10), **grouped(hidden=(), probability="isotonic", random_state=0)).fit(X, y)
    logit = np.log(1 / 11) - np.log1p(-1 / 11)
    model.ensemble_ = model.ensemble_.mapped(np.array([[-50.0, -9.0, -8.9, 50.0], [-9.0, -9.0, logit, logit]]))
    assert not assert_one_decision(model, X).any()
    assert np.array_equal(decided_by_onnx(model, X, tmp_path), model.predict(X))


def test_a_tie_of_the_plain_logit_is_no_alarm_in_either_order():
    """Rows without information and a price that makes both classes weigh the same."""
    X, positive = np.zeros((40, 1)), np.arange(40) < 10
    for labels in LABELS.values():
        model = CRCENClassifier(Lam(0.5), hidden=(), random_state=0).fit(X, np.where(positive, labels[1], labels[0]))
        (group,) = model.ensemble_.members
        flat = replace(group, weights=(0.0 * group.weights[0],), biases=(0.0 * group.biases[0],))
        model.ensemble_ = replace(model.ensemble_, members=(flat,), shift=0.0)
        assert not assert_one_decision(model, X).any()
