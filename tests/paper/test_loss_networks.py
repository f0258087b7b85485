"""Networks with the losses of other papers: learning, probabilities and the specifics of each."""

import pickle

import numpy as np
import pytest
import torch
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
    MeanSquaredFalseErrorClassifier,
    OneSidedRegressionClassifier,
    _WeightedSquaredError,
)

NATURAL = [LogitAdjustedClassifier(), ClassBalancedClassifier(), FocalClassifier(), LDAMClassifier()]
OTHERS = [ClassRectificationClassifier(), LearnedCostClassifier(), MeanSquaredFalseErrorClassifier()]
OTHERS += [OneSidedRegressionClassifier(), EmbeddedNeighboursClassifier(cluster_size=60)]
LIGHT = {"hidden": (8,), "max_epochs": 12, "schedule": crcen.Schedule(batch_size=32), "random_state": 0}


def named(models):
    return pytest.mark.parametrize("model", models, ids=lambda m: type(m).__name__)


def table(n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.choice(n_classes, size=400, p=[0.8, 0.2] if n_classes == 2 else [0.7, 0.2, 0.1])
    X = rng.normal(size=(400, 3)) * [1.0, 5.0, 0.1]
    X[:, 0] += 2.5 * y
    return X, np.array(["ok", "bad", "worse"])[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@named(NATURAL + OTHERS)
def test_network_learns_repeats_and_pickles(model, n_classes):
    X, y = table(n_classes)
    fitted = clone(model).set_params(**LIGHT).fit(X, y)
    assert (fitted.predict(X) == y).mean() > 0.75
    p = fitted.predict_proba(X)
    assert p.shape == (400, n_classes)
    assert p.sum(axis=1) == pytest.approx(1.0)
    np.testing.assert_array_equal(clone(model).set_params(**LIGHT).fit(X, y).predict_proba(X), p)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), p)
    assert fitted.decision_function(X).shape == ((400,) if n_classes == 2 else (400, 3))
    with pytest.raises(crcen.InvalidInput, match="two classes"):
        fitted.fit(X[:, :2], np.zeros(len(X)))
    np.testing.assert_array_equal(fitted.predict_proba(X), p)  # a failed fit changes nothing


@pytest.mark.parametrize("n_classes", [2, 3])
@named(NATURAL)
def test_natural_probabilities_match_a_known_posterior(model, n_classes):
    """Normal classes with unit variance: the posterior is softmax of log π_k + μ_k·x − ½μ_k²."""
    rng = np.random.default_rng(0)
    shares, means = ([0.9, 0.1], [0.0, 1.5]) if n_classes == 2 else ([0.8, 0.15, 0.05], [0.0, 1.5, 3.0])
    y = rng.choice(n_classes, size=6000, p=shares)
    x = rng.normal(size=6000) + np.array(means)[y]
    logits = np.log(shares) + np.outer(x, means) - np.square(means) / 2
    truth = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    fitted = clone(model).set_params(hidden=(8,), max_epochs=15, random_state=0).fit(x[:, None], y)
    p = fitted.predict_proba(x[:, None])
    assert p.mean(axis=0) == pytest.approx(np.bincount(y) / 6000, abs=0.012)
    assert np.abs(p - truth).mean() < 0.02
    if isinstance(model, FocalClassifier | LDAMClassifier):  # the softmax of the outputs is no posterior
        raw = torch.from_numpy(fitted._outputs(x[:, None])).softmax(dim=1).numpy()
        assert np.abs(raw - truth).mean() > 1.5 * np.abs(p - truth).mean()
        assert (fitted.predict(x[:, None]) == raw.argmax(axis=1)).all()


@pytest.mark.parametrize("n_classes", [2, 3])
def test_msfe_gradient_is_that_of_the_sum_of_squared_class_errors(n_classes):
    rng = np.random.default_rng(1)
    y = torch.tensor(rng.choice(n_classes, size=60, p=[0.7, 0.3] if n_classes == 2 else [0.6, 0.3, 0.1]))
    logits = torch.tensor(rng.normal(size=(60, n_classes)), requires_grad=True)
    squares = ((torch.nn.functional.one_hot(y) - logits.softmax(dim=1)) ** 2).sum(dim=1)
    errors = torch.stack([squares[y == k].mean() for k in range(n_classes)])
    expected = torch.autograd.grad((errors**2).sum(), logits)[0]
    loss = _WeightedSquaredError(n_classes).double()
    loss.set_errors(errors.detach(), torch.bincount(y).double().numpy())
    ratio = torch.autograd.grad(loss(logits, y), logits)[0] / expected
    assert torch.allclose(ratio, ratio[0, 0].expand_as(ratio), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_msfe_weights_follow_the_class_errors(n_classes):
    rng = np.random.default_rng(0)
    y = np.minimum(np.arange(400) % 10, n_classes - 1)
    X = rng.normal(size=(400, 3)) + 1.2 * y[:, None]
    model = MeanSquaredFalseErrorClassifier(hidden=(8,), max_epochs=12, random_state=0).fit(X, y)
    weights, counts = model.class_weights_, np.bincount(y)
    assert weights.shape == (12, n_classes)
    assert weights[0] == pytest.approx(400 / (n_classes * counts))
    assert weights @ counts == pytest.approx(400)
    q = torch.from_numpy(model._outputs(X)).softmax(dim=1).numpy()
    squares = ((np.eye(n_classes)[y] - q) ** 2).sum(axis=1)
    errors = np.array([squares[y == k].mean() for k in range(n_classes)])
    # The last epoch moves the network once more, by a small step at the end of the one-cycle rate.
    assert weights[-1] / weights[-1, 0] == pytest.approx(errors / counts / (errors[0] / counts[0]), rel=0.1)
    weighted = model.predict_proba(X) * weights[-1]
    assert weighted / weighted.sum(axis=1, keepdims=True) == pytest.approx(q)
    if n_classes == 2:
        assert model.weighting_.cost_ratio == pytest.approx(weights[-1, 0] / weights[-1, 1])  # class 0 is rarer


def test_one_sided_regression_follows_the_costs_and_rejects_other_prices():
    X, y = table(2)
    cheap, dear = (OneSidedRegressionClassifier(crcen.Budget(c), **LIGHT).fit(X, y).predict(X) for c in (1.0, 30.0))
    assert (dear == "bad").sum() > (cheap == "bad").sum()
    stated = crcen.CostMatrix([[0, 30], [1, 0]], labels=["bad", "ok"])
    np.testing.assert_array_equal(OneSidedRegressionClassifier(stated, **LIGHT).fit(X, y).predict(X), dear)

    X, y = table(3)
    with pytest.raises(crcen.InvalidParameter, match="price for two classes"):
        OneSidedRegressionClassifier(crcen.Budget(3), **LIGHT).fit(X, y)
    review = crcen.CostMatrix(1 - np.eye(3)).with_review(0.3)
    with pytest.raises(crcen.InvalidParameter, match="classes alone"):
        OneSidedRegressionClassifier(review, **LIGHT).fit(X, y)


def test_learned_costs_fall_below_one_and_keep_the_order_of_the_shares():
    X, y = table(2)
    costs = LearnedCostClassifier(**LIGHT).fit(X, y).costs_
    assert (costs < 1).all()
    assert costs[0, 0] < costs[1, 1]  # "bad" is the rarer one, and first


def test_margin_of_embedded_neighbours_by_hand():
    """Clusters on a circle, two neighbours, the last of which counts."""
    model = EmbeddedNeighboursClassifier(n_neighbors=2)
    model.classes_ = model.cluster_classes_ = np.array([0, 1])
    angle = np.array([0.0, 0.1, 0.3, 2.0, 2.2])
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    model.cluster_rows_ = [points[:3], points[3:]]
    model.centres_ = np.stack([points[:3].mean(axis=0), points[3:].mean(axis=0)])
    d = dict(zip(angle.tolist(), (2 - 2 * np.cos(0.05 - angle)).tolist(), strict=True))
    scores = model._scores(7.0 * np.array([[np.cos(0.05), np.sin(0.05)]]))
    assert scores[0] == pytest.approx([d[2.0] - max(d[0.0], d[0.1]), min(d[0.0], d[0.1]) - d[2.2]])


def test_clusters_and_neighbours_are_limited_and_rows_on_one_point_make_one_cluster():
    X, y = table(2)
    model = EmbeddedNeighboursClassifier(cluster_size=20, **{**LIGHT, "l2": 1e4, "max_epochs": 3}).fit(X, y)
    assert len(model.cluster_rows_) == len(model.cluster_classes_)
    assert min(map(len, model.cluster_rows_)) > 0
    assert np.isfinite(model.predict_proba(X)).all()
    same = EmbeddedNeighboursClassifier(cluster_size=20, **{**LIGHT, "max_epochs": 2}).fit(np.zeros_like(X), y)
    assert len(same.cluster_rows_) == 2
    X, y = make_classification(300, 4, random_state=0)
    model = EmbeddedNeighboursClassifier(cluster_size=2, max_neighbors=3, **{**LIGHT, "max_epochs": 1}).fit(X, y)
    assert max(np.bincount(model.cluster_classes_)) == 10
    assert max(map(len, model.cluster_rows_)) == 3
    assert model.n_kept_ == sum(map(len, model.cluster_rows_)) <= 60
    assert model.n_rows_ == 300
    with pytest.raises(crcen.InvalidParameter, match="max_neighbors"):
        EmbeddedNeighboursClassifier(max_neighbors=0).fit(X, y)
