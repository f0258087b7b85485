"""A committee trained again on other rows without its search, and the error that is measured by it."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import crcen
from crcen.theory.decision import sigmoid


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((400, 3))
    y = np.where(rng.random(400) < sigmoid(-1.5 + 1.5 * X[:, 0]), "ill", "well")
    return X, y


@pytest.fixture(scope="module")
def committee(rows):
    members = ("networks", "trees", LogisticRegression())
    return crcen.CommitteeClassifier(crcen.Budget(5), members=members, cv=3, n_jobs=1, random_state=0).fit(*rows)


def test_on_the_same_rows_it_is_the_same_committee(committee, rows):
    X, y = rows
    # As many networks of each setting as the fit trains: only the order of sums in their stacks may differ.
    again = committee.refit_on(X, y, n_networks=3)
    assert again is not committee
    np.testing.assert_allclose(again.predict_proba(X), committee.predict_proba(X), atol=2e-3)


def test_other_rows_give_other_answers_at_the_same_price(committee, rows):
    X, y = rows
    half = committee.refit_on(X[:200], y[:200], np.ones(200))
    assert half.weighting_ == committee.weighting_
    assert np.abs(half.predict_proba(X) - committee.predict_proba(X)).max() > 0.01
    swapped = committee.refit_on(X[:200], np.where(y[:200] == "ill", "well", "ill"))
    assert np.corrcoef(swapped.predict_proba(X)[:, 0], committee.predict_proba(X)[:, 0])[0, 1] < 0


def test_its_error_is_near_that_of_a_logistic_regression(committee, rows):
    X, y = rows
    own = crcen.training_error(committee, X, y, n_fits=4).log_odds
    plain = crcen.training_error(LogisticRegression().fit(X, y), X, y, weighting=crcen.CostRatio(5), n_fits=4).log_odds
    assert 0.5 * plain < own < 3 * plain


def test_a_file_keeps_what_a_refit_needs(rows, tmp_path):
    X, y = rows
    model = crcen.CommitteeClassifier(members="trees", cv=2, n_jobs=1, random_state=0).fit(X, y)
    crcen.save(model, tmp_path / "m.crcen")
    loaded = crcen.load(tmp_path / "m.crcen")
    np.testing.assert_array_equal(
        loaded.refit_on(X[:200], y[:200]).predict_proba(X), model.refit_on(X[:200], y[:200]).predict_proba(X)
    )
    del loaded.chosen_settings_
    with pytest.raises(crcen.InvalidInput, match="a committee that was fitted with this version"):
        loaded.refit_on(X, y)


def test_a_fit_of_a_table_measures_it(rows, tmp_path):
    import pandas as pd

    X, y = rows
    pd.DataFrame(X, columns=list("abc")).assign(state=y).to_csv(tmp_path / "t.csv", index=False)
    fit = crcen.fit_table(tmp_path / "t.csv", target="state", positive="ill", learner="trees", n_refits=3)
    assert fit.training_error is fit.model.training_error_
    assert fit.training_error.degrees == 2
    assert not isinstance(fit.model.estimator_, crcen.CRCENClassifierCV)


def test_several_classes_are_refitted_alike():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((300, 2))
    y = np.array(["a", "b", "c"])[(np.column_stack([np.ones(300), X]) + rng.gumbel(size=(300, 3))).argmax(axis=1)]
    model = crcen.CommitteeClassifier(cv=2, n_jobs=1, random_state=0, time_limit=5.0).fit(X, y)
    again = model.refit_on(X[:150], y[:150])
    assert again.predict_proba(X).shape == (300, 3)
    assert 0.005 < np.abs(again.predict_proba(X) - model.predict_proba(X)).max() < 0.6
    np.testing.assert_array_equal(again.weighting_.weights, model.weighting_.weights)
