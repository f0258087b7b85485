"""Estimators of K classes: probabilities, decisions at weights and costs, key equations, what is refused."""

import numpy as np
import pytest
from class_rows import LABELS, PRIORS, draw
from class_rows import WEIGHTS as W
from scipy.special import softmax
from sklearn.metrics import log_loss

from crcen import Budget, CostMatrix, CRCENClassifier, CSMLPClassifier, Inputs, Schedule, decide, key_equation
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.paper.networks import MovedThresholdClassifier
from crcen.theory.key_equation import judge_equations
from grouped_settings import grouped

COSTS = np.array([[0.0, 1.0, 1.0, 2.0], [5.0, 0.0, 2.0, 2.0], [9.0, 4.0, 0.0, 1.0], [40.0, 30.0, 20.0, 0.0]])


WEIGHTS = dict(zip(LABELS.tolist(), W.tolist(), strict=True))


def rows(n, seed):
    X, y, p = draw(n, seed)
    return X, LABELS[y], p


@pytest.fixture(scope="module")
def data():
    return rows(800, 0)


def linear(weighting="balanced", **settings):
    return CRCENClassifier(weighting, **grouped(hidden=(), l2=1e-4, n_members=1, random_state=0, **settings))


def light(weighting="balanced", **settings):
    settings = {"hidden": (6,), "max_epochs": 8, "n_members": 2, "encoding": "standard"} | settings
    return CRCENClassifier(weighting, **grouped(random_state=0, **settings))


def test_answers_have_a_column_for_each_class(data):
    X, y, _ = data
    model = light(WEIGHTS).fit(X, y)
    p, q, d = model.predict_proba(X), model.weighted_proba(X), model.decision_function(X)
    assert model.classes_.tolist() == LABELS.tolist()
    assert p.shape == q.shape == d.shape == (800, 4)
    np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(q, p * W / (p * W).sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_allclose(softmax(d, axis=1), q, rtol=1e-9)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), p, rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), LABELS[(W * p).argmax(axis=1)])
    np.testing.assert_allclose(model.weighting_.weights, W)
    assert model.costs_ is None
    assert not hasattr(model, "pos_label_")


@pytest.mark.parametrize("weighting", ["balanced", None, WEIGHTS, W])
@pytest.mark.parametrize("settings", [{}, {"hidden": (6,), "max_epochs": 6, "n_members": 2}, {"hidden": (4, 3)}])
def test_key_equations_hold_on_training_rows(data, weighting, settings):
    """What a person recomputes from `weighted_proba` is what was solved for."""
    X, y, _ = data
    model = CRCENClassifier(
        weighting, **grouped(**({"hidden": ()} | settings), balance=True, probability="shift", random_state=0)
    ).fit(X, y)
    numbers = np.searchsorted(LABELS, y)
    assert model.key_equation_.residual <= 1e-12
    assert key_equation(numbers, model.weighted_proba(X), model.weighting_).residual <= 1e-12
    assert "training rows" in model.key_equation_.rows


def test_solved_out_of_fold_after_the_temperature(data):
    X, y, _ = data
    model = light(WEIGHTS, balance="oof", probability="temperature", training_weighting=None).fit(X, y)
    assert "out-of-fold" in model.key_equation_.rows
    assert model.key_equation_.residual <= 1e-12
    assert model.probability_map_.shape == (5,)
    assert model.probability_map_[0] != 1.0
    np.testing.assert_allclose(model.key_equation_.weighting.weights, W)
    np.testing.assert_allclose(model.ensemble_.training_weighting.weights, 1.0)


def test_the_weight_is_taken_out_of_the_probabilities():
    """Known posterior: corrected probabilities cost no more than 1 % of log loss beside those of plain training."""
    X, y, _ = rows(4000, 1)
    new, truth, p = rows(20000, 2)
    plain = log_loss(truth, linear(None).fit(X, y).predict_proba(new))
    weighted = linear(WEIGHTS, training_weighting="price", balance=True, probability="shift").fit(X, y)
    corrected = log_loss(truth, weighted.predict_proba(new))
    assert plain == pytest.approx(log_loss(truth, p), rel=0.01)
    assert corrected == pytest.approx(plain, rel=0.01)
    assert log_loss(truth, weighted.weighted_proba(new)) > 1.2 * plain
    # On new rows the equations hold within their test, which allows for the fitted model.
    numbers = np.searchsorted(LABELS, truth)
    factor = 1.0 + len(truth) / len(y)
    found = judge_equations(numbers, weighted.predict_proba(new), weighted.weighting_, noise=factor)
    assert found.p_value > 1e-3


def test_costs_decide_by_the_cheapest_action(data):
    X, y, _ = data
    model = linear(CostMatrix(COSTS)).fit(X, y)
    expected = model.predict_proba(X) @ COSTS
    np.testing.assert_array_equal(model.predict(X), LABELS[expected.argmin(axis=1)])
    np.testing.assert_allclose(model.decision_function(X), -expected)
    np.testing.assert_array_equal(model.predict(X), decide(model.predict_proba(X), CostMatrix(COSTS, LABELS)))
    assert model.costs_.labels == tuple(LABELS)
    np.testing.assert_allclose(model.weighting_.weights, 1.0)  # no weights say these costs


def test_labelled_costs_are_put_in_the_order_of_the_classes(data):
    X, y, _ = data
    order = [2, 0, 3, 1]
    shuffled = CostMatrix(COSTS[np.ix_(order, order)], LABELS[order])
    np.testing.assert_array_equal(linear(shuffled).fit(X, y).predict(X), linear(CostMatrix(COSTS)).fit(X, y).predict(X))


def test_costs_that_weights_can_say_are_those_weights(data):
    X, y, _ = data
    by_costs = linear(CostMatrix(W[:, None] * (1.0 - np.eye(4)))).fit(X, y)
    by_weights = linear(WEIGHTS).fit(X, y)
    np.testing.assert_allclose(by_costs.weighting_.weights, W)
    np.testing.assert_array_equal(by_costs.predict(X), by_weights.predict(X))
    np.testing.assert_allclose(by_costs.predict_proba(X), by_weights.predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_actions_beside_the_classes(data, n_classes):
    X, y, _ = data
    y = np.where(y == "ash", "ash", "oak") if n_classes == 2 else y
    classes = np.unique(y)
    costs = np.column_stack([10.0 * (1.0 - np.eye(n_classes)), np.ones(n_classes)])
    model = linear(CostMatrix(costs, actions=["review"])).fit(X, y)
    chosen = model.predict(X)
    sure = model.predict_proba(X).max(axis=1) > 0.9
    assert chosen.dtype == object
    assert (chosen[~sure] == "review").all()
    assert set(chosen[sure]) <= set(classes)
    assert model.decision_function(X).shape == (800, n_classes + 1)


def test_csmlp_takes_the_squared_error(data):
    X, y, p = data
    model = CSMLPClassifier(None, hidden=(), max_epochs=300, l2=1e-4, random_state=0).fit(X, y)
    assert model.recipe_.loss == "squared_error"
    assert np.abs(model.predict_proba(X) - p).mean() < 0.05


def test_the_control_trains_without_weights(data):
    X, y, _ = data
    control = MovedThresholdClassifier(WEIGHTS, hidden=(), random_state=0).fit(X, y)
    plain = linear(None, balance=True, probability="shift").fit(X, y)
    assert control.key_equation_.residual <= 1e-12
    np.testing.assert_allclose(control.key_equation_.weighting.weights, 1.0)
    np.testing.assert_array_equal(control.predict(X), LABELS[(W * control.predict_proba(X)).argmax(axis=1)])
    assert (control.predict(X) != plain.predict(X)).any()


def test_early_stopping_and_missing_cells(data):
    X, y, _ = data
    X = X.copy()
    X[::7, 1] = np.nan
    model = light(
        "balanced", schedule=Schedule(early_stopping=True), encoding=Inputs(missing="indicator"), max_epochs=12
    ).fit(X, y)
    assert model.predict_proba(X).shape == (800, 4)
    assert np.isfinite(model.predict_proba(X)).all()


def test_partial_fit_learns_every_class(data):
    X, y, _ = data
    model = light(WEIGHTS, schedule=Schedule(learning_rate=0.02))
    for _ in range(6):
        for part in np.array_split(np.arange(len(y)), 4):
            model.partial_fit(X[part], y[part], classes=LABELS)
    assert model.status_ == "incremental_unbalanced"
    assert not hasattr(model, "key_equation_")
    assert log_loss(y, model.predict_proba(X)) < 0.7
    np.testing.assert_array_equal(model.predict(X), LABELS[(W * model.predict_proba(X)).argmax(axis=1)])


def test_partial_fit_goes_on_from_a_fit(data):
    X, y, _ = data
    model = light(WEIGHTS, balance="oof", probability="auto", training_weighting=None).fit(X, y)
    before = model.predict_proba(X)
    one_row = model.partial_fit(X[:1], y[:1]).predict_proba(X)
    assert 0.0 < np.abs(one_row - before).max() < 0.2


def test_partial_fit_needs_counts_for_balanced_weights(data):
    X, y, _ = data
    some = y != "oak"
    with pytest.raises(InvalidInput, match="no row of class 'oak' came yet"):
        light("balanced").partial_fit(X[some], y[some], classes=LABELS)
    light("balanced").partial_fit(X[some], y[some], classes=LABELS, class_counts=dict(zip(LABELS, PRIORS, strict=True)))


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (linear(Budget(5)), InvalidParameter, "price for two classes, and there are 4: give a weight for each class"),
        (linear(0.8), InvalidParameter, "price for two classes"),
        (linear({"ash": 1.0}), InvalidParameter, "one weight for each of 'ash', 'birch', 'cedar', 'oak'"),
        (linear([1.0, 2.0]), InvalidParameter, "array of 4 weights"),
        (linear([1.0, 2.0, 0.0, 1.0]), InvalidParameter, "above 0"),
        (linear(CostMatrix(np.ones((3, 3)))), InvalidParameter, "for 3 classes, and there are 4"),
        (linear(CostMatrix(np.ones((800, 4, 4)))), InvalidParameter, "differ by row"),
        (linear(pos_label="oak"), InvalidParameter, "pos_label is for two classes"),
        (linear(probability="isotonic"), InvalidParameter, "isotonic.*use 'temperature'"),
        (linear(training_weighting=Budget(5)), InvalidParameter, "price for two classes"),
    ],
)
def test_what_means_nothing_for_several_classes_is_refused(data, model, error, words):
    X, y, _ = data
    with pytest.raises(error, match=words):
        model.fit(X, y)
    assert not hasattr(model, "ensemble_")


def test_a_class_with_one_row(data):
    """Folds cannot hold it out: the default falls back to the training rows, and says so."""
    X, y, _ = data
    keep = (y != "oak") | (np.cumsum(y == "oak") == 1)
    model = light("balanced", balance="auto", probability="auto").fit(X[keep], y[keep])
    assert "not out of fold" in model.key_equation_.rows
    with pytest.raises(InvalidInput, match="folds need 2 rows of each class"):
        light("balanced", balance="oof").fit(X[keep], y[keep])
    with pytest.raises(InvalidInput, match="every row of class oak has sample_weight 0"):
        light("balanced").fit(X, y, sample_weight=(y != "oak").astype(float))


def test_rows_of_weight_k_are_k_copies(data):
    X, y, _ = data
    times = np.random.default_rng(5).integers(1, 4, len(y))
    how = {"schedule": Schedule(tol=1e-9), "balance": True, "probability": "shift"}
    weighted = linear(WEIGHTS, **how).fit(X, y, sample_weight=times)
    copied = linear(WEIGHTS, **how).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    np.testing.assert_allclose(weighted.predict_proba(X), copied.predict_proba(X), atol=1e-6)
