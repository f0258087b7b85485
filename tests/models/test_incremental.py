"""partial_fit: what it learns, what it remembers, what it does not claim."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from crcen import Budget, CSMLPClassifier, Inputs, Lam, Schedule, balance_shift, key_equation, make_rare_events
from crcen.exceptions import InvalidInput, InvalidParameter, TrainingFailed
from crcen.paper.estimators import MovedThresholdClassifier
from grouped_settings import grouped
from papers_training import CRCENClassifier, CRCENClassifierCV

EVENTS = make_rare_events(1000, n_features=4, imbalance_ratio=9)
X, Y = EVENTS.sample(6000)
QUICK = {"hidden": (8,), "batch_size": 64, "l2": 1e-4, "n_members": 1, "random_state": 0, "encoding": "standard"}
PRICE = Budget(5)
PARTS = [(X[i : i + 500], Y[i : i + 500]) for i in range(0, len(X), 500)]


def quick(weighting=PRICE, **how):
    return CRCENClassifier(weighting, **QUICK | how)


def taught(model, **first):
    for i, (rows, labels) in enumerate(PARTS):
        model.partial_fit(rows, labels, **(first if i == 0 else {}))
    return model


@pytest.mark.parametrize("weighting", ["balanced", Lam(0.7), {0: 1, 1: 4}])
def test_three_passes_learn_what_three_epochs_learn(weighting):
    model = quick(weighting)
    for _ in range(3):
        taught(model)
    fitted = quick(weighting, solver="adam", max_epochs=3).fit(X, Y)
    new, _ = EVENTS.sample(20_000, seed=1)
    ours, theirs = (EVENTS.excess_log_loss(new, one.predict_proba(new)[:, 1]) for one in (model, fitted))
    assert ours < 1.1 * theirs
    assert model.weighting_.cost_ratio == pytest.approx(fitted.weighting_.cost_ratio)


def test_the_key_equation_is_not_claimed_but_can_be_had():
    model = taught(quick())
    assert model.status_ == "incremental_unbalanced"
    assert not hasattr(model, "key_equation_")
    assert key_equation(Y, model.weighted_proba(X)[:, 1], model.weighting_).residual > 1e-6
    model.intercepts_[-1] += balance_shift(Y, model.decision_function(X), model.weighting_)
    assert key_equation(Y, model.weighted_proba(X)[:, 1], model.weighting_).residual < 1e-12


def test_counts_run_along_and_given_counts_stay():
    model, seen = quick("balanced"), np.zeros(2)
    for rows, labels in PARTS:
        model.partial_fit(rows, labels)
        seen += [np.sum(labels == 0), np.sum(labels == 1)]
        assert (model.weighting_.n_neg, model.weighting_.n_pos) == tuple(seen)
        assert model.weighting_.alpha == pytest.approx(1.0)
    assert taught(quick("balanced"), class_counts={0: 900, 1: 100}).weighting_.cost_ratio == pytest.approx(9.0)


def test_a_first_call_without_positives():
    rows, labels = X[Y == 0][:300], np.zeros(300, dtype=int)
    model = quick().partial_fit(rows, labels, classes=[0, 1])
    assert model.pos_label_ == 1  # what is absent is the rarer
    assert (model.weighting_.cost_ratio, model.predict(X).tolist()) == (pytest.approx(5.0), [0] * len(X))
    assert model.partial_fit(X, Y).weighting_.n_pos == Y.sum()
    with pytest.raises(InvalidInput, match=r"no row of class 1 came yet: pass class_counts"):
        quick("balanced").partial_fit(rows, labels, classes=[0, 1])
    counted = quick("balanced").partial_fit(rows, labels, classes=[0, 1], class_counts={0: 9, 1: 1})
    assert counted.weighting_.cost_ratio == pytest.approx(9.0)
    with pytest.raises(InvalidInput, match="one class only"):
        quick().partial_fit(rows, labels)


def test_labels_of_text_and_the_positive_class():
    words = np.where(Y == 1, "fraud", "ok")
    model = quick().partial_fit(X, words, classes=["ok", "fraud"])
    assert (model.classes_.tolist(), model.pos_label_) == (["fraud", "ok"], "fraud")
    assert quick(pos_label="ok").partial_fit(X, words).pos_label_ == "ok"


def test_a_copy_goes_on_as_the_original_does_and_a_clone_starts_anew():
    model = quick(n_members=2).partial_fit(X[:500], Y[:500])
    copy = pickle.loads(pickle.dumps(model))
    for one in (model, copy):
        one.partial_fit(X[500:], Y[500:])
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    assert not hasattr(clone(model), "coefs_")
    assert len(model.loss_curve_) == model.n_iter_ == 2


def test_weight_zero_teaches_nothing():
    # The order of batches looks at all labels, so compare what was learnt, not bits.
    weights = np.where(X[:, 0] > 0, 1.0, 0.0)
    garbage = np.where(X[:, 0] > 0, Y, 1 - Y)
    one, other = (quick().partial_fit(X, labels, sample_weight=weights) for labels in (Y, garbage))
    assert one.weighting_ == other.weighting_
    assert np.abs(one.decision_function(X) - other.decision_function(X)).mean() < 0.3


@pytest.mark.parametrize("calibration", [{}, {"training_weighting": None, "balance": "oof", "probability": "auto"}])
def test_it_goes_on_from_a_fit_and_a_fit_starts_anew(calibration):
    """Slope, intercept and price of a map are in the output layer: without a step the answers stay."""
    fitted = quick(max_epochs=3, n_members=2, **calibration).fit(X, Y)
    before = fitted.decision_function(X)
    assert (fitted.probability_map_[0] == 1.0) == (not calibration)
    fitted.set_params(schedule=Schedule(learning_rate=1e-12), l2=0.0).partial_fit(X[:100], Y[:100])
    np.testing.assert_allclose(fitted.decision_function(X), before, atol=1e-4)  # float32 from here on
    assert fitted.weighting_.n_pos == Y.sum() + Y[:100].sum()
    assert (fitted.weighting_.cost_ratio, fitted.status_) == (pytest.approx(5.0), "incremental_unbalanced")
    assert not hasattr(fitted, "key_equation_")
    again, plain = quick(max_epochs=3).partial_fit(X, Y).fit(X, Y), quick(max_epochs=3).fit(X, Y)
    np.testing.assert_array_equal(again.decision_function(X), plain.decision_function(X))
    assert again.status_ == "completed"
    assert again.key_equation_.residual < 1e-12


def test_csmlp_learns_in_parts_too_and_others_do_not():
    model = taught(CSMLPClassifier(Budget(5), **grouped(**QUICK)))
    assert (model.predict(X[Y == 1]) == 1).mean() > (model.predict(X[Y == 0]) == 1).mean() + 0.3
    plain = [CRCENClassifier(schedule=Schedule(solver="lbfgs")), CRCENClassifier(probability="isotonic")]
    for other in (CRCENClassifierCV(), MovedThresholdClassifier(), *plain):
        assert not hasattr(other, "partial_fit")


@pytest.mark.parametrize("encoding", ["auto", "robust", "quantile", "piecewise", "tree"])
def test_every_encoding_is_fixed_by_the_first_call(encoding):
    model = quick(encoding=encoding).partial_fit(X[:500], Y[:500])
    before = model.input_encoding_
    if encoding == "auto":
        np.testing.assert_allclose(before["mean"], X[:500].mean(0), rtol=1e-10)
    assert np.isfinite(taught(model).decision_function(X)).all()
    after = model.input_encoding_
    if encoding in ("piecewise", "tree"):  # the limits of columns include later rows
        assert (after["low"] <= before["low"]).all()
        assert (after["high"] >= before["high"]).all()
        before |= {name: after[name] for name in ("low", "high")}
    np.testing.assert_equal(after, before)


def test_later_rows_beyond_the_range_of_the_first_are_learnt():
    model, first = quick(encoding="steps"), X[:, 0] < 0
    model.partial_fit(X[first], Y[first])
    new = np.zeros((2, X.shape[1]))
    new[:, 0] = 0.5, 2.0
    assert np.ptp(model.decision_function(new)) == 0.0
    assert np.ptp(model.partial_fit(X, Y).decision_function(new)) > 0.0


@pytest.mark.parametrize(
    ("settings", "arguments", "error", "sentence"),
    [
        ({"early_stopping": True}, {}, InvalidParameter, "early_stopping"),
        ({"learning_rate": 1e25}, {}, TrainingFailed, "no finite network"),
        ({}, {"classes": [0, 1, 2]}, InvalidParameter, "binary"),
        ({}, {"classes": [0, 2]}, InvalidInput, "only: got 1"),
        ({}, {"class_counts": {0: 1}}, InvalidParameter, "class_counts"),
        ({}, {"class_counts": {0: 5, 1: 0}}, InvalidParameter, "above 0"),
        ({}, {"class_counts": {0: 5, 1: -2}}, InvalidInput, "class_counts"),
        ({}, {"sample_weight": -np.ones(len(X))}, InvalidInput, "negative"),
        ({"encoding": Inputs(column_scales=True)}, {}, InvalidParameter, "column_scales=True needs all rows"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing_behind(settings, arguments, error, sentence):
    model = quick(**settings)
    before = dict(vars(model))
    with pytest.raises(error, match=sentence):
        model.partial_fit(X, Y, **arguments)
    assert vars(model) == before


@pytest.mark.parametrize(
    ("rows", "labels", "classes", "words"),
    [
        (X, Y + 1, None, "only: got 2"),
        (X, Y, [1, 2], "classes must stay"),
        (X[:, :3], Y, None, "features"),
        (np.full_like(X, np.nan), Y, None, "NaN"),
    ],
)
def test_later_calls_must_fit_the_first(rows, labels, classes, words):
    model = quick("balanced").partial_fit(X, Y)
    before = model.decision_function(X)
    with pytest.raises(InvalidInput, match=words):
        model.partial_fit(rows, labels, classes)
    np.testing.assert_array_equal(model.decision_function(X), before)
