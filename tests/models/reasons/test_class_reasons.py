"""Reasons for a class rather than another: brute force over coalitions, two classes as two classes have them."""

import numpy as np
import pandas as pd
import pytest

from crcen import CommitteeClassifier, CostMatrix, CRCENClassifier, InvalidParameter
from grouped_settings import grouped
from shapley_by_hand import brute_force

RNG = np.random.default_rng(0)
X = RNG.normal(size=(400, 4))
LOGITS = np.column_stack([2 * X[:, 0] * X[:, 1], np.sin(2 * X[:, 2]) + 0.3, X[:, 3] - 0.5])
Y = np.array(["fine", "worn", "broken"])[np.argmax(LOGITS + RNG.gumbel(size=LOGITS.shape), axis=1)]
WEIGHTS = {"fine": 1, "worn": 2, "broken": 6}
COSTS = CostMatrix([[0, 6, 6], [1, 0, 1], [2, 2, 0]], labels=["broken", "fine", "worn"]).with_review(0.7)
SINGLE = [np.array([j]) for j in range(4)]


def network(weighting=WEIGHTS, **options):
    own = {"hidden": (8,), "max_epochs": 10, "random_state": 0, **options}
    return CRCENClassifier(weighting, **grouped(**own)).fit(X, Y)


def by_hand(model, rows, background, found):
    """Brute force on the log-odds of predict_log_proba, row by row its own pair."""
    place = {label: k for k, label in enumerate(model.classes_)}
    truth = np.empty((len(rows), 4))
    for i, (one, other) in enumerate(zip(found.classes, found.rivals, strict=True)):

        def log_odds(some, k=place[one], r=place[other]):
            log_p = model.predict_log_proba(some)
            return log_p[:, k] - log_p[:, r]

        truth[i] = brute_force(log_odds, rows[i : i + 1], background, SINGLE)
    return truth


@pytest.mark.parametrize(
    "make",
    [
        network,
        lambda: network(hidden=(), probability="temperature"),
        lambda: network(loss="one_against_all"),
        lambda: CommitteeClassifier(WEIGHTS, members=("trees",), cv=2, random_state=0, time_limit=0.5).fit(X, Y),
    ],
    ids=["network", "no hidden layer, temperature", "one against all", "trees"],
)
def test_values_are_those_of_the_definition(make):
    model = make()
    found = model.reasons(X[:12], background=X[100:106])
    assert found.classes.tolist() == model.predict(X[:12]).tolist()
    p = model.predict_proba(X[:12])
    for i, (one, other) in enumerate(zip(found.classes, found.rivals, strict=True)):
        rest = {label: value for label, value in zip(model.classes_, p[i], strict=True) if label != one}
        assert other == max(rest, key=rest.get)
    assert np.abs(found.values - by_hand(model, X[:12], X[100:106], found)).max() < 1e-5
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.log_odds, atol=1e-9)


def test_two_classes_have_the_reasons_of_two_classes():
    """Costs with an action make a model of two classes one of the K-path: its log-odds are the logit there is."""
    labels = np.where(Y == "broken", "yes", "no")
    costs = CostMatrix([[0, 1], [3, 0]], labels=["no", "yes"]).with_review(0.4)
    model = CRCENClassifier(costs, **grouped(hidden=(4,), max_epochs=8, random_state=0)).fit(X, labels)
    found = model.reasons(X[:9], background=X[50:55], classes="yes")
    assert found.rivals.tolist() == ["no"] * 9
    assert np.abs(found.values - by_hand(model, X[:9], X[50:55], found)).max() < 1e-5


def test_the_class_can_be_named_and_an_action_is_explained_by_the_likeliest_class():
    model = network(COSTS)
    decided = model.predict(X[:80])
    assert {"review"} < {*decided}
    likeliest = model.classes_[model.predict_proba(X[:80]).argmax(axis=1)]
    found = model.reasons(X[:80], background=X[100:103])
    assert found.classes.tolist() == np.where(decided == "review", likeliest, decided).tolist()
    one, other = (model.reasons(X[:5], background=X[100:103], classes=label) for label in ("worn", ["fine"] * 5))
    assert one.classes.tolist() == ["worn"] * 5
    assert other.classes.tolist() == ["fine"] * 5
    text = str(one)
    assert "worn rather than" in text
    assert "standard error" in text or "exact" in text
    assert len(one.to_dict()["base"]) == 5
    assert "<table>" in one._repr_html_()


def test_any_classifier_in_a_table_has_reasons_too():
    from sklearn.linear_model import LogisticRegression

    from crcen import TableClassifier

    frame = pd.DataFrame(X, columns=list("abcd"))
    model = TableClassifier(estimator=LogisticRegression(), weighting=WEIGHTS).fit(frame, Y)
    found = model.reasons(frame.head(6))
    np.testing.assert_allclose(found.values.sum(axis=1) + found.base, found.log_odds, atol=1e-9)
    # Log-odds of a multinomial logistic regression are linear: slope × (cell − typical cell).
    slopes = model.estimator_.estimator_.coef_
    order = model.classes_.tolist()
    encoded, typical = model.encode(frame.head(6)).X, model.background_.mean(axis=0)
    for i in range(6):
        k, r = order.index(found.classes[i]), order.index(found.rivals[i])
        np.testing.assert_allclose(found.values[i], (slopes[k] - slopes[r]) * (encoded[i] - typical), atol=1e-4)


def test_what_is_refused():
    model = network()
    with pytest.raises(InvalidParameter, match="classes must be of this model, broken, fine, worn: got 'wron'"):
        model.reasons(X[:3], background=X, classes="wron")
    with pytest.raises(InvalidParameter, match="one label a row: got 2 for 3"):
        model.reasons(X[:3], background=X, classes=["fine", "worn"])
    two = CRCENClassifier(5.0 / 6, **grouped(hidden=(), max_epochs=2)).fit(X, Y == "fine")
    with pytest.raises(InvalidParameter, match="classes must be left out"):
        two.reasons(X[:3], background=X, classes=True)
