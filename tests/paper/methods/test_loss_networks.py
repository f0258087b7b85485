"""Systems with a loss of their own: each learns, answers for two classes and more, and keeps its own promise."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification

import crcen
from crcen.paper.loss_networks import (
    ClassBalancedClassifier,
    ClassRectificationClassifier,
    EmbeddedNeighboursClassifier,
    FocalClassifier,
    LDAMClassifier,
    LearnedCostClassifier,
    LogitAdjustedClassifier,
    OneSidedRegressionClassifier,
    fit_together,
)

ALL = [
    ClassBalancedClassifier(),
    ClassRectificationClassifier(),
    FocalClassifier(),
    LDAMClassifier(),
    LearnedCostClassifier(),
    LearnedCostClassifier(False),
    LogitAdjustedClassifier(),
    OneSidedRegressionClassifier(),
    EmbeddedNeighboursClassifier(cluster_size=60),
]
LIGHT = {"hidden": (8,), "max_epochs": 12, "schedule": crcen.Schedule(batch_size=32), "random_state": 0}


def table(n_classes):
    rng = np.random.default_rng(n_classes)
    share = np.array([0.8, 0.2] if n_classes == 2 else [0.7, 0.2, 0.1])
    y = rng.choice(n_classes, size=400, p=share)
    X = rng.normal(size=(400, 3)) * [1.0, 5.0, 0.1]
    X[:, 0] += 2.5 * y
    return X, np.array(["ok", "bad", "worse"])[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("model", ALL, ids=lambda m: type(m).__name__)
def test_it_learns_repeats_and_travels(model, n_classes):
    X, y = table(n_classes)
    fitted = clone(model).set_params(**LIGHT).fit(X, y)
    assert (fitted.predict(X) == y).mean() > 0.75
    p = fitted.predict_proba(X)
    assert p.shape == (400, n_classes)
    assert p.sum(axis=1) == pytest.approx(1.0)
    again = clone(model).set_params(**LIGHT).fit(X, y)
    np.testing.assert_array_equal(again.predict_proba(X), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), p)
    assert fitted.decision_function(X).shape == ((400,) if n_classes == 2 else (400, 3))


@pytest.mark.parametrize(
    "model",
    [OneSidedRegressionClassifier(), LearnedCostClassifier(), ClassRectificationClassifier(), FocalClassifier()],
    ids=lambda m: type(m).__name__,
)
def test_a_network_of_a_stack_ends_as_it_does_alone(model):
    X, y = table(2)
    light = {**LIGHT, "max_epochs": 4}
    stack = [clone(model).set_params(**light | {"hidden": (h,), "l2": l2}) for h in (4, 8) for l2 in (1e-4, 0.3)]
    fit_together(stack, X, y)
    for fitted in stack:
        alone = clone(fitted).fit(X, y)
        np.testing.assert_allclose(fitted.decision_function(X), alone.decision_function(X), atol=2e-4)
    assert len({fitted.decision_function(X[:1]).tobytes() for fitted in stack}) == 4


def test_embeddings_are_trained_one_by_one():
    X, y = table(2)
    stack = [EmbeddedNeighboursClassifier(**{**LIGHT, "max_epochs": 2, "l2": l2}) for l2 in (1e-4, 0.3)]
    fit_together(stack, X, y)
    for fitted in stack:
        np.testing.assert_array_equal(fitted.predict_proba(X), clone(fitted).fit(X, y).predict_proba(X))


def test_a_fit_that_fails_leaves_the_last_one_whole():
    X, y = table(2)
    model = FocalClassifier(**{**LIGHT, "max_epochs": 2}).fit(X, y)
    before = model.predict_proba(X)
    with pytest.raises(crcen.InvalidInput, match="two classes"):
        model.fit(X[:, :2], np.zeros(len(X)))
    np.testing.assert_array_equal(model.predict_proba(X), before)


def test_one_sided_regression_decides_the_cheaper_action_and_follows_the_costs():
    X, y = table(2)
    cheap, dear = (OneSidedRegressionClassifier(crcen.Budget(c), **LIGHT).fit(X, y).predict(X) for c in (1.0, 30.0))
    assert (dear == "bad").sum() > (cheap == "bad").sum()
    stated = crcen.CostMatrix([[0, 30], [1, 0]], labels=["bad", "ok"])
    np.testing.assert_array_equal(OneSidedRegressionClassifier(stated, **LIGHT).fit(X, y).predict(X), dear)


def test_one_sided_regression_refuses_what_it_cannot_decide():
    X, y = table(3)
    with pytest.raises(crcen.InvalidParameter, match="a price is for two classes"):
        OneSidedRegressionClassifier(crcen.Budget(3), **LIGHT).fit(X, y)
    review = crcen.CostMatrix(1 - np.eye(3)).with_review(0.3)
    with pytest.raises(crcen.InvalidParameter, match="classes alone"):
        OneSidedRegressionClassifier(review, **LIGHT).fit(X, y)


def test_costs_fixed_at_the_frequencies_are_logit_adjustment():
    X, y = table(3)
    fixed, adjusted = (
        m.set_params(**LIGHT).fit(X, y) for m in (LearnedCostClassifier(False), LogitAdjustedClassifier())
    )
    np.testing.assert_allclose(fixed.predict_proba(X), adjusted.predict_proba(X), atol=1e-4)


def test_learned_costs_leave_one_and_prefer_no_pair_above_its_share():
    X, y = table(2)
    costs = LearnedCostClassifier(**LIGHT).fit(X, y).costs_
    assert (costs < 1).all()
    assert costs[0, 0] < costs[1, 1]  # "bad" is the rarer one, and first


@pytest.mark.parametrize(
    "model", [LogitAdjustedClassifier(), ClassBalancedClassifier()], ids=lambda m: type(m).__name__
)
def test_natural_probabilities_have_the_mean_of_the_labels(model):
    X, y = table(2)
    p = clone(model).set_params(**{**LIGHT, "max_epochs": 40}).fit(X, y).predict_proba(X)[:, 0]
    assert p.mean() == pytest.approx((y == "bad").mean(), abs=0.03)


def test_the_margin_of_embedded_neighbours_by_hand():
    """One dimension more than needed: clusters on a circle, two neighbours, the last of which counts."""
    model = EmbeddedNeighboursClassifier(n_neighbors=2)
    model.classes_ = np.array([0, 1])
    angle = np.array([0.0, 0.1, 0.3, 2.0, 2.2])
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    model.cluster_classes_ = np.array([0, 1])
    model.cluster_rows_ = [points[:3], points[3:]]
    model.centres_ = np.stack([points[:3].mean(axis=0), points[3:].mean(axis=0)])
    q = 0.05

    def d(to):
        return 2 - 2 * np.cos(q - to)

    scores = model._scores(7.0 * np.array([[np.cos(q), np.sin(q)]]))
    by_hand = [d(2.0) - max(d(0.0), d(0.1)), min(d(0.0), d(0.1)) - d(2.2)]
    assert scores[0] == pytest.approx(by_hand)


def test_rows_that_fall_on_one_point_make_one_cluster():
    """A strong penalty maps every row to the same place: fewer clusters than asked for, and answers all the same."""
    X, y = table(2)
    model = EmbeddedNeighboursClassifier(cluster_size=20, **{**LIGHT, "l2": 1e4, "max_epochs": 3}).fit(X, y)
    assert len(model.cluster_rows_) == len(model.cluster_classes_)
    assert min(map(len, model.cluster_rows_)) > 0
    assert np.isfinite(model.predict_proba(X)).all()
    same = EmbeddedNeighboursClassifier(cluster_size=20, **{**LIGHT, "max_epochs": 2}).fit(np.zeros_like(X), y)
    assert len(same.cluster_rows_) == 2


def test_lmle_keeps_to_its_budget_of_neighbours_and_says_it():
    X, y = make_classification(300, 4, random_state=0)
    model = EmbeddedNeighboursClassifier(cluster_size=2, max_neighbors=3, **{**LIGHT, "max_epochs": 1}).fit(X, y)
    assert max(np.bincount(model.cluster_classes_)) == 10
    assert max(map(len, model.cluster_rows_)) == 3
    assert model.n_kept_ == sum(map(len, model.cluster_rows_)) <= 60
    assert model.n_rows_ == 300
    with pytest.raises(crcen.InvalidParameter, match="max_neighbors"):
        EmbeddedNeighboursClassifier(max_neighbors=0).fit(X, y)
