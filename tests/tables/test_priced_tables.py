"""TableClassifier takes a price first, like its siblings, and any classifier with probabilities."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

import crcen
from crcen import Budget, CRCENClassifier, InvalidParameter, PosteriorCorrection, TableClassifier


def _rows(n=400, seed=0, labels=("no", "yes")):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b"], n)
    y = rng.random(n) < 1 / (1 + np.exp(2 - 1.5 * x - (kind == "b")))
    return pd.DataFrame({"x": x, "kind": kind}), np.where(y, labels[1], labels[0])


@pytest.mark.parametrize("labels", [("no", "yes"), ("ok", "fraud")], ids=["rare last", "rare first"])
def test_a_logistic_regression_is_decided_at_the_price(labels, tmp_path):
    X, y = _rows(labels=labels)
    model = TableClassifier(Budget(6), estimator=LogisticRegression()).fit(X, y)
    encoded = model.encode(X).X
    own = LogisticRegression().fit(encoded, y)
    np.testing.assert_allclose(model.predict_proba(X), own.predict_proba(encoded), rtol=1e-9)
    p = own.predict_proba(encoded)[:, list(own.classes_).index(labels[1])]
    np.testing.assert_array_equal(model.predict(X) == labels[1], p > 1 / 7)
    assert model.weighting_.cost_ratio == pytest.approx(6)
    assert model.pos_label_ == labels[1]
    q = model.weighted_proba(X)[:, list(model.classes_).index(labels[1])]
    np.testing.assert_allclose(q, 6 * p / (6 * p + 1 - p))
    np.testing.assert_array_equal(model.decision_function(X) > 0, model.predict(X) == model.classes_[1])
    assert np.isfinite(model.key_equation_.lhs)
    loaded = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_prices_of_the_table_and_of_its_estimator():
    X, y = _rows(200)
    balanced = TableClassifier(estimator=LogisticRegression()).fit(X, y)
    assert balanced.weighting_.alpha == pytest.approx(1)
    assert balanced.get_params(deep=False)["weighting"] is None
    model = TableClassifier(Budget(10), random_state=0)
    assert clone(model).weighting == Budget(10)
    model.set_params(estimator=CRCENClassifier(hidden=(), max_epochs=3, random_state=0)).fit(X, y)
    assert model.weighting_.cost_ratio == pytest.approx(10)
    assert model.estimator.weighting == "balanced"
    default = TableClassifier(Budget(10))._unfitted()
    assert (type(default).__name__, default.weighting) == ("CRCENClassifierCV", Budget(10))
    weights = np.where(y == "yes", 3.0, 1.0)
    weighted = TableClassifier(estimator=LogisticRegression()).fit(X, y, sample_weight=weights)
    own = LogisticRegression().fit(weighted.encode(X).X, y, sample_weight=weights)
    np.testing.assert_allclose(weighted.estimator_.estimator_.coef_, own.coef_)
    assert weighted.weighting_.n_pos == weights[y == "yes"].sum()


@pytest.mark.parametrize(
    "estimator",
    [
        RandomForestClassifier(n_estimators=10, random_state=0),
        make_pipeline(StandardScaler(), LogisticRegression()),
        PosteriorCorrection(LogisticRegression(class_weight="balanced"), price=Budget(1)),
    ],
    ids=["forest", "pipeline", "corrected weights"],
)
def test_any_classifier_goes_through_the_workflow(estimator, tmp_path):
    X, y = _rows()
    model = TableClassifier(Budget(5), estimator=estimator).fit(X, y)
    new, labels = _rows(300, seed=1)
    answer = crcen.predict_table(model, new)
    assert answer.unlike == ()
    np.testing.assert_array_equal(answer.frame["decision"], model.predict(new))
    np.testing.assert_array_equal(answer.frame["decision"] == "yes", answer.frame["probability"] > 1 / 6)
    found = crcen.evaluate_table(model, new.assign(bad=labels), target="bad", n_resamples=0)
    assert found.recognition.status == "new"
    assert model.recognise(X).status == "seen"
    crcen.write_report(model, new, labels, tmp_path / "r.html")


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (LinearSVC(), "LinearSVC has no predict_proba"),
        (LinearRegression(), "LinearRegression has no predict_proba"),
        (LogisticRegression(class_weight="balanced"), "wrap it in crcen.PosteriorCorrection"),
        (make_pipeline(LogisticRegression(class_weight={"no": 1, "yes": 9})), "gives weighted probabilities"),
        (LogisticRegression, "must be a classifier"),
        ("forest", "must be a classifier"),
    ],
)
def test_others_are_refused_in_one_sentence(estimator, said):
    X, y = _rows(60)
    with pytest.raises(InvalidParameter, match=said):
        TableClassifier(estimator=estimator).fit(X, y)


def test_what_it_cannot_do_is_said():
    X, y = _rows(60)
    with pytest.raises(InvalidParameter, match="KNeighborsClassifier takes no sample weights"):
        TableClassifier(estimator=KNeighborsClassifier()).fit(X, y, sample_weight=np.ones(60))
    with pytest.raises(InvalidParameter, match="LogisticRegression does not cross-validate"):
        TableClassifier(estimator=LogisticRegression()).fit(X, y, groups=np.arange(60))
    with pytest.raises(InvalidParameter, match="did you mean"):
        TableClassifier("balance", estimator=LogisticRegression()).fit(X, y)
    with pytest.raises(InvalidParameter, match="KNeighborsClassifier"):
        crcen.save(TableClassifier(estimator=KNeighborsClassifier()).fit(X, y), "never.crcen")
