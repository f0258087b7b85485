"""The search for K classes: chosen by hand-made scores, its out-of-fold evidence, its answers."""

import numpy as np
import pytest
from scipy.special import log_softmax, softmax
from sklearn.metrics import confusion_matrix, f1_score, log_loss, recall_score

from crcen import CostMatrix, CRCENClassifierCV, TimeSplit
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.search.grid import SCORES, log_losses
from crcen.theory.labels import Labels
from grouped_settings import grouped

LABELS = np.array(["ash", "birch", "oak"])
WEIGHTS = {"ash": 1.0, "birch": 4.0, "oak": 12.0}
W = np.array(list(WEIGHTS.values()))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.concatenate([np.repeat(np.arange(3), 5), rng.choice(3, 285, p=[0.75, 0.17, 0.08])])
    centres = np.array([[0.0, 0.0], [1.5, 0.0], [0.0, 2.0]])
    order = rng.permutation(300)
    return (centres[y] + rng.normal(size=(300, 2)))[order], LABELS[y][order]


def search(weighting=WEIGHTS, **settings):
    light = {"hidden": [(), (4,)], "l2": [1e-3, 1e-1], "encoding": "standard", "n_members": 2, "max_epochs": 6, "cv": 3}
    return CRCENClassifierCV(weighting, **grouped(random_state=0, **light | settings))


@pytest.fixture(scope="module")
def fitted(data):
    return search(training_weighting="price", balance="oof", probability="shift").fit(*data)


def test_the_solve_is_exact_on_out_of_fold_rows(data, fitted):
    _, y = data
    assert fitted.key_equation_.residual <= 1e-12
    assert "out-of-fold" in fitted.key_equation_.rows
    assert fitted.oof_key_equation_.residual > 1e-6
    assert "errors cancel" in fitted.oof_key_equation_.equations.reason
    numbers = np.searchsorted(LABELS, y)
    q = softmax(fitted.oof_decision_function_, axis=1)
    flows = W[numbers] @ (np.eye(3)[numbers] - q)
    assert np.abs(flows).max() / W[numbers].sum() <= 1e-12
    assert fitted.oof_shift_.shape == (3,)


def test_answers_of_the_refit_and_counts_of_the_best_setting(data, fitted):
    X, y = data
    p = fitted.predict_proba(X)
    np.testing.assert_array_equal(fitted.predict(X), LABELS[(W * p).argmax(axis=1)])
    assert log_loss(y, p) < 0.6
    assert fitted.best_params_["hidden"] in [(), (4,)]
    assert len(fitted.cv_results_["params"]) == 4
    (counts,) = fitted.oof_counts_  # every row once
    assert counts.shape == (3, 3)
    np.testing.assert_array_equal(counts.sum(axis=1), np.unique(data[1], return_counts=True)[1])
    assert fitted.oof_expense_ is None


def test_scores_are_scikit_learns():
    rng = np.random.default_rng(1)
    target, logits = rng.integers(0, 4, 200), rng.normal(size=(200, 4))
    weights, chosen = rng.uniform(0.5, 2.0, 200), logits.argmax(axis=1)
    f1 = f1_score(target, chosen, average="macro", sample_weight=weights)
    recalls = recall_score(target, chosen, average=None, sample_weight=weights)
    labels = Labels(np.arange(4))
    assert SCORES["f1"](logits, target, weights, labels) == pytest.approx(f1)
    assert SCORES["g_mean"](logits, target, weights, labels) == pytest.approx(np.prod(recalls) ** 0.25)


@pytest.mark.parametrize("natural", [True, False])
def test_log_losses_are_those_of_the_posterior(natural):
    rng = np.random.default_rng(2)
    target, logits, s = rng.integers(0, 3, 40), rng.normal(size=(2, 40, 3)), rng.uniform(0.5, 2.0, 40)
    price = Labels(LABELS).resolve(WEIGHTS, np.bincount(target))
    found = log_losses(logits, target, s, price, natural=natural)
    log_p = log_softmax(logits - np.log(W) if natural else logits, axis=2)[:, np.arange(40), target]
    weights = s if natural else s * W[target]
    np.testing.assert_allclose(found, -(log_p * weights).sum(axis=1) / weights.sum())


@pytest.mark.parametrize("scoring", ["g_mean", "f1", "average_precision", "balanced_accuracy", "neg_log_loss"])
def test_any_scoring_chooses(data, scoring):
    model = search(scoring=scoring, hidden=(), l2=[1e-3, 10.0], n_members=1).fit(*data)
    assert model.best_score_ == model.cv_results_["mean_test_score"].max()


def test_a_temperature_and_a_training_weight_of_its_own(data):
    X, y = data
    model = search(training_weighting=None, balance="oof", probability="temperature", hidden=(4,)).fit(X, y)
    assert model.scorer_ == "neg_log_loss"
    assert model.probability_map_[0] != 1.0
    assert model.key_equation_.residual <= 1e-12
    np.testing.assert_allclose(model.ensemble_.training_weighting.weights, 1.0)


def test_weightings_are_searched(data):
    model = search(["balanced", None], hidden=(), l2=1e-2, training_weighting="price").fit(*data)
    assert len(model.oof_counts_) == 2
    # Balanced weights find more of the rarest class.
    assert model.oof_counts_[0][2, 2] >= model.oof_counts_[1][2, 2]


def test_costs_and_actions(data):
    X, y = data
    costs = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["review"])
    model = search(costs, hidden=(), l2=1e-2).fit(X, y)
    expected = model.predict_proba(X) @ costs.costs
    np.testing.assert_array_equal(model.predict(X), np.append(LABELS.astype(object), "review")[expected.argmin(axis=1)])
    assert model.oof_counts_[0].shape == (3, 4)
    expected = -model.costs_.expected(model.oof_proba_)
    np.testing.assert_allclose(model.oof_decision_function_, expected, rtol=1e-9, atol=1e-12)
    assert model.oof_decision_function_.shape == (300, 4)


def test_folds_over_time_leave_the_first_rows_out(data):
    X, y = data
    model = search(hidden=(), l2=1e-2, cv=TimeSplit(2)).fit(X, y, groups=np.arange(300))
    unseen = np.isnan(model.oof_decision_function_).all(axis=1)
    assert 0 < unseen.sum() < 250
    assert not np.isnan(model.oof_decision_function_[~unseen]).any()
    assert "as far as folds agree" in model.key_equation_.rows


def test_what_cannot_be_searched_is_refused(data):
    X, y = data
    with pytest.raises(InvalidParameter, match="pos_label"):
        search(pos_label="oak").fit(X, y)
    with pytest.raises(InvalidParameter, match="price for two classes"):
        search([0.5, 0.9], training_weighting="price").fit(X, y)
    alone = np.where((y == "oak") & (np.cumsum(y == "oak") > 1), "ash", y)
    with pytest.raises(InvalidInput, match=r"rows? of the rarest class|cannot split"):
        search(cv=[(np.arange(150), np.arange(150, 300)), (np.arange(150, 300), np.arange(150))]).fit(X, alone)


def test_a_class_with_one_row_is_trained_on_in_every_fold(data):
    X, y = data
    X, y = np.vstack([X, [[5.0, 5.0]]]), np.append(y, "yew")
    with pytest.warns(UserWarning, match="too few rows to be trained on and held out for 1 label:"):
        model = search("balanced", hidden=[()], l2=[1e-2]).fit(X, y)
    assert model.classes_.tolist() == ["ash", "birch", "oak", "yew"]
    assert np.isfinite(model.oof_proba_).all()
    assert model.key_equation_.residual <= 1e-12
    # Folds of a person's own stay as they are.
    own = [(np.arange(150), np.arange(150, 301)), (np.arange(150, 301), np.arange(150))]
    with pytest.raises(InvalidInput, match="holds no row of a class"):
        search("balanced", hidden=[()], l2=[1e-2], cv=own).fit(X, y)


def test_balanced_on_the_training_rows(data):
    X, y = data
    model = search(hidden=(), l2=1e-2, balance=True, probability="shift").fit(X, y)
    numbers, q = np.searchsorted(LABELS, y), model.weighted_proba(X)
    assert np.abs(W[numbers] @ (np.eye(3)[numbers] - q)).max() / W[numbers].sum() <= 1e-12
    assert confusion_matrix(y, model.predict(X)).trace() > 200
