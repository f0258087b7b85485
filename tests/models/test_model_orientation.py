"""Which class is positive, which column is which, and what a decision is."""

import numpy as np
import pytest
from scipy.special import logit

from crcen import Budget, InvalidParameter, Schedule, posterior
from papers_training import CRCENClassifier

# labels of (common, rare) rows
LABELS = {
    "0/1": (0, 1),
    "1/0": (1, 0),
    "-1/+1": (-1, 1),
    "+1/-1": (1, -1),
    "bool": (False, True),
    "bool, rare False": (True, False),
    "ok/fraud": ("ok", "fraud"),
    "no/yes": ("no", "yes"),
    "float": (2.0, 1.0),
}
each_labelling = pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)


@pytest.fixture
def fitted_on(rare_rows):
    def fit(labels, model=None):
        X, rare = rare_rows(n=250)
        y = np.array(labels)[rare]
        model = model or CRCENClassifier(
            Budget(3), hidden=(3,), max_epochs=12, random_state=0, schedule=Schedule(solver="lbfgs")
        )
        return model.fit(X, y), X, y, rare.astype(bool)

    return fit


@each_labelling
def test_the_rarer_class_is_positive_and_classes_stay_sorted(fitted_on, labels):
    model, X, y, rare = fitted_on(labels)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.pos_label_ == labels[1]
    assert model.weighting_.n_pos == rare.sum()
    assert model.weighting_.n_neg == (~rare).sum()
    decision, predicted = model.decision_function(X), model.predict(X)
    assert (decision.dtype, predicted.dtype) == (np.float64, y.dtype)
    assert decision.shape == (len(X),)
    np.testing.assert_array_equal(predicted == model.classes_[1], decision > 0)
    assert 0 < np.mean(decision > 0) < 1
    for columns in (model.predict_proba(X), model.weighted_proba(X)):
        assert columns.shape == (len(X), 2)
        assert columns.dtype == np.float64
        np.testing.assert_allclose(columns.sum(axis=1), 1.0, rtol=0, atol=1e-15)
        for column, label in zip(columns.T, model.classes_, strict=True):
            assert column[y == label].mean() > column[y != label].mean()


@each_labelling
def test_labels_change_nothing_but_their_names(fitted_on, labels):
    plain, X, _, _ = fitted_on((0, 1))
    named, *_ = fitted_on(labels)
    rare = named.classes_.tolist().index(labels[1])
    np.testing.assert_array_equal(named.predict_proba(X)[:, rare], plain.predict_proba(X)[:, 1])
    np.testing.assert_array_equal(named.weighted_proba(X)[:, rare], plain.weighted_proba(X)[:, 1])
    np.testing.assert_array_equal(named.predict(X) == labels[1], plain.predict(X) == 1)
    sign = 1 if rare == 1 else -1
    np.testing.assert_array_equal(named.decision_function(X), sign * plain.decision_function(X))


@each_labelling
@pytest.mark.parametrize("n_members", [1, 3])
def test_the_posterior_is_the_weighted_output_with_the_price_taken_out(fitted_on, labels, n_members):
    model = CRCENClassifier(Budget(7), hidden=(3,), max_epochs=6, n_members=n_members, random_state=0)
    model, X, _, _ = fitted_on(labels, model)
    rare = model.classes_.tolist().index(labels[1])
    p, q = model.predict_proba(X)[:, rare], model.weighted_proba(X)[:, rare]
    np.testing.assert_allclose(logit(p), logit(q) - np.log(7.0), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(posterior(q, model.weighting_), p, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X) == labels[1], p > 1 - model.weighting_.lam)
    np.testing.assert_array_equal(model.predict(X) == labels[1], p > model.weighting_.threshold)
    assert model.weighting_.threshold == pytest.approx(1 / 8)


@each_labelling
def test_pos_label_overrules_rarity(fitted_on, labels):
    model = CRCENClassifier(Budget(3), hidden=(), pos_label=labels[0], random_state=0)
    model, X, _, rare = fitted_on(labels, model)
    assert model.pos_label_ == labels[0]
    assert model.weighting_.n_pos == (~rare).sum()
    common = model.classes_.tolist().index(labels[0])
    p = model.predict_proba(X)[:, common]
    np.testing.assert_array_equal(model.predict(X) == labels[0], p > 0.25)


@pytest.mark.parametrize("pos_label", ["fruad", 1, [1], np.array(["fraud", "ok"]), float("nan")], ids=repr)
def test_a_pos_label_that_is_no_class_is_refused(fitted_on, pos_label):
    with pytest.raises(InvalidParameter, match="pos_label must be one of the classes 'fraud', 'ok'"):
        fitted_on(("ok", "fraud"), CRCENClassifier(hidden=(), pos_label=pos_label))


@pytest.mark.parametrize("labels", [(0, 1), ("b", "a"), (True, False)], ids=repr)
def test_on_a_tie_the_second_class_is_positive(labels):
    rng = np.random.default_rng(0)
    y = np.array(labels)[np.arange(40) % 2]
    model = CRCENClassifier(hidden=(), random_state=0).fit(rng.normal(size=(40, 2)), y)
    assert model.pos_label_ == model.classes_[1]


def test_rarity_counts_sample_weights(rare_rows):
    X, y = rare_rows()
    model = CRCENClassifier(hidden=(), random_state=0).fit(X, y, np.where(y == 1, 100.0, 1.0))
    assert model.pos_label_ == 0


def test_weights_that_balance_the_classes_leave_the_rarer_one_positive(rare_rows):
    # The weighted totals are then equal but for rounding, which must not choose the class that is priced.
    for seed in range(6):
        X, y = rare_rows(n=150 + seed, seed=seed)
        names = np.where(y == 1, "fraud", "ok")
        weights = np.where(y == 1, len(y) / (2 * y.sum()), len(y) / (2 * (1 - y).sum()))
        clf = CRCENClassifier(hidden=(), max_epochs=5, random_state=0).fit(X, names, sample_weight=weights)
        assert clf.pos_label_ == "fraud"
