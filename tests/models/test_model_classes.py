"""Estimators of K classes: probabilities, decisions at weights and costs, key equations, one against all, refusals."""

import numpy as np
import pytest
from scipy.special import expit, softmax
from sklearn.metrics import log_loss

import crcen
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.paper.estimators import MovedThresholdClassifier
from crcen.theory.key_equation import judge_equations
from example_rows import LABELS, PRIORS, gaussian_classes
from example_rows import WEIGHTS as W
from grouped_settings import grouped

COSTS = np.array([[0.0, 1.0, 1.0, 2.0], [5.0, 0.0, 2.0, 2.0], [9.0, 4.0, 0.0, 1.0], [40.0, 30.0, 20.0, 0.0]])
WEIGHTS = dict(zip(LABELS.tolist(), W.tolist(), strict=True))
EXACT = {"training_weighting": "price", "balance": True, "probability": "shift"}
X, NUMBERS, P = gaussian_classes(800, 0, each=3)
Y = LABELS[NUMBERS]


def linear(weighting="balanced", **settings):
    return crcen.CRCENClassifier(weighting, **grouped(hidden=(), l2=1e-4, n_members=1, random_state=0, **settings))


def light(weighting="balanced", **settings):
    settings = {"hidden": (6,), "max_epochs": 8, "n_members": 2, "encoding": "standard"} | settings
    return crcen.CRCENClassifier(weighting, **grouped(random_state=0, **settings))


def one_against_all(**settings):
    return light(W, loss="one_against_all", **settings)


def test_answers_have_a_column_for_each_class():
    model = light(WEIGHTS).fit(X, Y)
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
@pytest.mark.parametrize("hidden", [(), (6,), (4, 3)], ids=len)
def test_key_equations_hold_on_training_rows(weighting, hidden):
    """What a person recomputes from `weighted_proba` is what was solved for."""
    model = light(weighting, hidden=hidden, balance=True, probability="shift").fit(X, Y)
    assert model.key_equation_.residual <= 1e-12
    assert crcen.key_equation(NUMBERS, model.weighted_proba(X), model.weighting_).residual <= 1e-12
    assert "training rows" in model.key_equation_.rows


def test_solved_out_of_fold_after_the_temperature_and_gone_on_from():
    model = light(WEIGHTS, balance="oof", probability="auto", training_weighting=None).fit(X, Y)
    assert "out-of-fold" in model.key_equation_.rows
    assert model.key_equation_.residual <= 1e-12
    assert model.probability_map_.shape == (5,)
    assert model.probability_map_[0] != 1.0
    np.testing.assert_allclose(model.key_equation_.weighting.weights, W)
    np.testing.assert_allclose(model.ensemble_.training_weighting.weights, 1.0)
    # partial_fit continues from there.
    before = model.predict_proba(X)
    assert 0.0 < np.abs(model.partial_fit(X[:1], Y[:1]).predict_proba(X) - before).max() < 0.2


def test_the_weight_is_taken_out_of_the_probabilities():
    """Known posterior: corrected probabilities cost no more than 1 % of log loss beside those of plain training."""
    (many, y, _), (new, truth, p) = gaussian_classes(4000, 1), gaussian_classes(20000, 2)
    plain = log_loss(truth, linear(None).fit(many, y).predict_proba(new))
    weighted = linear(W, **EXACT).fit(many, y)
    assert plain == pytest.approx(log_loss(truth, p), rel=0.01)
    assert log_loss(truth, weighted.predict_proba(new)) == pytest.approx(plain, rel=0.01)
    assert log_loss(truth, weighted.weighted_proba(new)) > 1.2 * plain
    # On new rows the equations hold within their test, which allows for the fitted model.
    factor = 1.0 + len(truth) / len(y)
    found = judge_equations(truth, weighted.predict_proba(new), weighted.weighting_, noise=factor)
    assert found.p_value > 1e-3


def test_costs_decide_by_the_cheapest_action_in_any_order_of_labels():
    model = linear(crcen.CostMatrix(COSTS)).fit(X, Y)
    p = model.predict_proba(X)
    expected = p @ COSTS
    np.testing.assert_array_equal(model.predict(X), LABELS[expected.argmin(axis=1)])
    np.testing.assert_allclose(model.decision_function(X), -expected)
    np.testing.assert_array_equal(model.predict(X), crcen.decide(p, crcen.CostMatrix(COSTS, LABELS)))
    assert model.costs_.labels == tuple(LABELS)
    np.testing.assert_allclose(model.weighting_.weights, 1.0)  # no weights say these costs
    order = [2, 0, 3, 1]
    shuffled = crcen.CostMatrix(COSTS[np.ix_(order, order)], LABELS[order])
    np.testing.assert_array_equal(linear(shuffled).fit(X, Y).predict(X), model.predict(X))


def test_costs_that_weights_can_say_are_those_weights():
    by_costs = linear(crcen.CostMatrix(W[:, None] * (1.0 - np.eye(4)))).fit(X, Y)
    by_weights = linear(WEIGHTS).fit(X, Y)
    np.testing.assert_allclose(by_costs.weighting_.weights, W)
    np.testing.assert_array_equal(by_costs.predict(X), by_weights.predict(X))
    np.testing.assert_allclose(by_costs.predict_proba(X), by_weights.predict_proba(X), rtol=1e-9)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_actions_beside_the_classes(n_classes):
    y = np.where(Y == "ash", "ash", "oak") if n_classes == 2 else Y
    costs = np.column_stack([10.0 * (1.0 - np.eye(n_classes)), np.ones(n_classes)])
    model = linear(crcen.CostMatrix(costs, actions=["review"])).fit(X, y)
    chosen = model.predict(X)
    sure = model.predict_proba(X).max(axis=1) > 0.9
    assert chosen.dtype == object
    assert (chosen[~sure] == "review").all()
    assert set(chosen[sure]) <= set(y)
    assert model.decision_function(X).shape == (800, n_classes + 1)


def test_csmlp_takes_the_squared_error_and_the_control_trains_without_weights():
    model = crcen.CSMLPClassifier(None, hidden=(), max_epochs=300, l2=1e-4, random_state=0).fit(X, Y)
    assert model.recipe_.loss == "squared_error"
    assert np.abs(model.predict_proba(X) - P).mean() < 0.05
    control = MovedThresholdClassifier(WEIGHTS, hidden=(), random_state=0).fit(X, Y)
    plain = linear(None, balance=True, probability="shift").fit(X, Y)
    assert control.key_equation_.residual <= 1e-12
    np.testing.assert_allclose(control.key_equation_.weighting.weights, 1.0)
    np.testing.assert_array_equal(control.predict(X), LABELS[(W * control.predict_proba(X)).argmax(axis=1)])
    assert (control.predict(X) != plain.predict(X)).any()


def test_partial_fit_learns_every_class():
    model = light(WEIGHTS, schedule=crcen.Schedule(learning_rate=0.02))
    for _ in range(6):
        for part in np.array_split(np.random.default_rng(0).permutation(len(Y)), 4):
            model.partial_fit(X[part], Y[part], classes=LABELS)
    assert model.status_ == "incremental_unbalanced"
    assert not hasattr(model, "key_equation_")
    assert log_loss(Y, model.predict_proba(X)) < 0.7
    np.testing.assert_array_equal(model.predict(X), LABELS[(W * model.predict_proba(X)).argmax(axis=1)])
    some = Y != "oak"
    with pytest.raises(InvalidInput, match="no row of class 'oak' came yet"):
        light("balanced").partial_fit(X[some], Y[some], classes=LABELS)
    light("balanced").partial_fit(X[some], Y[some], classes=LABELS, class_counts=dict(zip(LABELS, PRIORS, strict=True)))


def test_a_class_with_one_row():
    """Folds cannot hold it out: the default falls back to the training rows, and says so."""
    keep = (Y != "oak") | (np.cumsum(Y == "oak") == 1)
    model = light("balanced", balance="auto", probability="auto").fit(X[keep], Y[keep])
    assert "not out of fold" in model.key_equation_.rows
    with pytest.raises(InvalidInput, match="folds need 2 rows of each class"):
        light("balanced", balance="oof").fit(X[keep], Y[keep])
    with pytest.raises(InvalidInput, match="every row of class oak has sample_weight 0"):
        light("balanced").fit(X, Y, sample_weight=(Y != "oak").astype(float))


# -- one against all: Li, Li, Pan and Zhu's equation for every class, answers that sum to one --------------------------


@pytest.mark.parametrize("hidden", [(), (6,)])
def test_every_class_has_the_equation_of_two_by_itself(hidden):
    """Σ over a class of w (1 − σ) = Σ over the others of w σ, so that the ratio of the means of errors is fixed."""
    model = one_against_all(hidden=hidden, **EXACT).fit(X, Y)
    (group,) = model.ensemble_.members
    for sigmoids in expit(group.outputs(X)):
        for k in range(4):
            own, mass = k == NUMBERS, W[NUMBERS]
            means = np.mean(1 - sigmoids[own, k]), np.average(sigmoids[~own, k], weights=mass[~own])
            assert means[0] / means[1] == pytest.approx(mass[~own].sum() / mass[own].sum(), rel=1e-9)
    # The answer sums to one, and what flows out of a class flows in again: both hold, each where it is said.
    assert crcen.key_equation(NUMBERS, model.weighted_proba(X), W).residual <= 1e-12
    assert model.key_equation_.residual <= 1e-12


def test_probabilities_are_the_sigmoids_over_their_sum_without_the_weights():
    model = one_against_all(hidden=(), n_members=1, **EXACT | {"balance": False}).fit(X, NUMBERS)
    (outputs,) = model.ensemble_.members[0].outputs(X)
    natural = expit(outputs) / W
    np.testing.assert_allclose(model.predict_proba(X), natural / natural.sum(axis=1, keepdims=True), rtol=1e-9)
    np.testing.assert_array_equal(model.predict(X), (W * model.predict_proba(X)).argmax(axis=1))
    # Near the true posterior on new rows, trained with weights or without; with the weights in them they are not.
    new, labels, truth = gaussian_classes(4000, 1)
    least = log_loss(labels, truth)
    for trained in (None, "price"):
        model = one_against_all(hidden=(), training_weighting=trained).fit(X, NUMBERS)
        # The odds of one class against three others are not quite linear.
        assert log_loss(labels, model.predict_proba(new)) < 1.2 * least
        assert log_loss(labels, model.weighted_proba(new)) > 1.5 * least
        assert model.key_equation_.residual <= 1e-12
        assert model.key_equation_.rows == "out-of-fold rows"


def test_a_search_chooses_and_keeps_it(tmp_path):
    how = {"hidden": [()], "l2": [1e-3, 1e-1], "encoding": "standard", "n_members": 1, "random_state": 0}
    search, other = (
        crcen.CRCENClassifierCV(W, **grouped(loss=loss, **how)).fit(X, Y)
        for loss in ("one_against_all", "cross_entropy")
    )
    assert search.recipe_.loss == "one_against_all"
    assert search.best_params_["l2"] == other.best_params_["l2"] == 1e-3
    assert np.abs(search.oof_proba_ - other.oof_proba_).max() > 1e-3
    assert log_loss(Y, search.oof_proba_) == pytest.approx(log_loss(Y, other.oof_proba_), rel=0.1)
    loaded = crcen.load(crcen.save(search, tmp_path / "search.crcen"))
    np.testing.assert_array_equal(loaded.predict_proba(X), search.predict_proba(X))
    assert loaded.get_params()["schedule__loss"] == "one_against_all"


def test_graphs_answer_alike(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    model = light(crcen.CostMatrix(1.0 - np.eye(4)), loss="one_against_all", max_epochs=2).fit(X, NUMBERS)
    session = onnxruntime.InferenceSession(str(crcen.export_onnx(model, tmp_path / "model.onnx").path))
    far = np.vstack([X, 1e6 * X[:50]])  # where a sigmoid is 0 in double precision
    p, decided = session.run(["probabilities", "decision"], {session.get_inputs()[0].name: far})
    np.testing.assert_allclose(p, model.predict_proba(far), atol=1e-9)
    np.testing.assert_array_equal(np.ravel(decided), model.predict(far))


ONE_AGAINST_ALL = grouped(loss="one_against_all")
TWO = (X, Y == "ash")


@pytest.mark.parametrize(
    ("model", "rows", "words"),
    [
        (linear(crcen.Budget(5)), (X, Y), "price for two classes, and there are 4: give a weight for each class"),
        (linear([1.0, 2.0]), (X, Y), "array of 4 weights"),
        (linear(crcen.CostMatrix(np.ones((3, 3)))), (X, Y), "for 3 classes, and there are 4"),
        (linear(crcen.CostMatrix(np.ones((800, 4, 4)))), (X, Y), "differ by row"),
        (linear(crcen.CostMatrix(-COSTS)), (X, Y), "lowest for right decisions: got 0 .* if these are gains"),
        (linear(crcen.RecallAtLeast(0.9)), (X, Y), "for two classes, and there are 4: choose_weighting"),
        (crcen.CRCENClassifierCV(crcen.Capacity(9)), (X, Y), "for two classes, and there are 4: choose_weighting"),
        (linear(pos_label="oak"), (X, Y), "pos_label is for two classes"),
        (linear(probability="isotonic"), (X, Y), "isotonic.*use 'temperature'"),
        (linear(training_weighting=crcen.Budget(5)), (X, Y), "price for two classes"),
        (crcen.CRCENClassifier(**ONE_AGAINST_ALL), TWO, "is for more than two classes: use"),
        (crcen.CRCENClassifierCV(crcen.CostMatrix([[0, 1], [5, 0]]), **ONE_AGAINST_ALL), TWO, "more than two classes"),
    ],
)
def test_what_means_nothing_for_these_classes_is_refused(model, rows, words):
    with pytest.raises(InvalidParameter, match=words):
        model.fit(*rows)
    assert not hasattr(model, "ensemble_")


def test_one_against_all_is_refused_where_it_has_no_meaning():
    for call, said in (
        (lambda: light(loss="hinge"), r"loss must be one of .*'one_against_all'.*'hinge'"),
        (lambda: one_against_all().partial_fit(X, Y), "partial_fit needs .* loss='cross_entropy'"),
        (lambda: crcen.fit_stream([(X, NUMBERS)], weighting=W, **ONE_AGAINST_ALL), "must be 'cross_entropy' here"),
    ):
        with pytest.raises(InvalidParameter, match=said):
            call()
