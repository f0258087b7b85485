"""A committee for K classes: trees as plain arrays, weights out of fold, answers, files and graphs."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import crcen
from crcen import CommitteeClassifier, CostMatrix
from crcen.models.committee.classes import fit_class_stacking
from crcen.models.trees.boosted_trees import BoostedTrees
from crcen.models.trees.class_trees import ClassTrees
from crcen.models.trees.search import search_trees
from crcen.models.trees.setting import TreeSetting

LABELS = np.array(["low", "middle", "high"])
RNG = np.random.default_rng(0)
Y = np.concatenate([np.repeat(np.arange(3), 4), RNG.choice(3, 228, p=[0.7, 0.2, 0.1])])
X = RNG.normal(size=(240, 3)) + 1.5 * Y[:, None]
WEIGHTS = {"low": 1.0, "middle": 3.0, "high": 10.0}


def trees_of(model):
    return ClassTrees(
        tuple(
            BoostedTrees.from_nodes([trees[k].nodes for trees in model._predictors], baseline, model.n_features_in_)
            for k, baseline in enumerate(model._baseline_prediction[0])
        )
    )


def test_trees_give_scikit_learns_logits():
    holes = np.where(RNG.random(X.shape) < 0.1, np.nan, X)
    model = HistGradientBoostingClassifier(max_iter=7, random_state=0).fit(holes, Y)
    np.testing.assert_allclose(softmax(trees_of(model).logits(holes), axis=1), model.predict_proba(holes), rtol=1e-10)


def test_two_classes_have_one_set_of_trees():
    model = HistGradientBoostingClassifier(max_iter=5, random_state=0).fit(X, Y > 0)
    logits = trees_of(model).logits(X)
    np.testing.assert_allclose(logits[:, 1] - logits[:, 0], model.decision_function(X), rtol=1e-10)


def test_the_search_judges_by_the_log_loss_of_held_out_rows():
    order = RNG.permutation(240)
    folds = [(np.sort(order[:160]), np.sort(order[160:])), (np.sort(order[80:]), np.sort(order[:80]))]
    (best,) = search_trees(X, Y, np.ones(240), folds, seed=0, settings=[TreeSetting(4, 5, 1.0, 1.0)], n_best=1)
    losses = [log_loss(Y[test], softmax(best.logits[test], axis=1), labels=[0, 1, 2]) for _, test in folds]
    # Rows of both test folds keep the second fold's logits.
    both = np.intersect1d(folds[0][1], folds[1][1])
    assert not len(both)
    assert best.loss == pytest.approx(np.mean(losses), rel=1e-6)


def test_stacking_is_the_least_penalised_log_loss():
    """At the optimum the gradient is zero: here for weights inside their bounds, by central differences."""
    logits = RNG.normal(size=(300, 2, 3)) + 2.0 * np.eye(3)[RNG.integers(0, 3, 300)][:, None]
    target, s = logits.mean(axis=1).argmax(axis=1), RNG.uniform(0.5, 2.0, 300)
    target[::5] = (target[::5] + 1) % 3
    found = fit_class_stacking(logits, target, s, ridge=20.0)

    def objective(weights, intercepts):
        log_p = log_softmax(np.einsum("nmk,m->nk", logits, weights) + intercepts, axis=1)
        return -(s / s.mean()) @ log_p[np.arange(300), target] + 20.0 * ((weights - 0.5) ** 2).sum()

    assert (found.weights > 0).all()
    for i in range(2):
        step = 1e-4 * np.eye(2)[i]
        rise = objective(found.weights + step, found.intercepts) - objective(found.weights - step, found.intercepts)
        assert abs(rise / 2e-4) < 1e-2
    for k in range(3):
        step = 1e-4 * np.eye(3)[k]
        rise = objective(found.weights, found.intercepts + step) - objective(found.weights, found.intercepts - step)
        assert abs(rise / 2e-4) < 1e-2


@pytest.fixture(scope="module")
def committee():
    members = ("trees", LogisticRegression(max_iter=2000))
    return CommitteeClassifier(WEIGHTS, members=members, cv=2, time_limit=0.1, random_state=0).fit(X, LABELS[Y])


def test_answers_of_a_committee(committee):
    w = np.array([10.0, 1.0, 3.0])
    p = committee.predict_proba(X)
    assert committee.classes_.tolist() == ["high", "low", "middle"]
    np.testing.assert_array_equal(committee.predict(X), committee.classes_[(w * p).argmax(axis=1)])
    assert committee.key_equation_.residual <= 1e-12
    assert "out-of-fold" in committee.key_equation_.rows
    assert committee.oof_decision_function_.shape == (240, 3)
    assert [line.name for line in committee.leaderboard_] == ["trees", "LogisticRegression", "committee"]
    assert log_loss(LABELS[Y], p) < 0.6


def test_networks_and_trees_on_disk_and_as_a_graph(tmp_path):
    pytest.importorskip("onnxruntime")
    costs = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
    model = CommitteeClassifier(costs, cv=2, time_limit=0.1, random_state=0).fit(X, LABELS[Y])
    assert set(model.predict(X)) <= {*LABELS, "review"}
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert crcen.export_onnx(model, tmp_path / "model.onnx").largest_difference <= 1e-9
