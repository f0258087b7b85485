"""scikit-learn's own contract for estimators, for the committee, on light searches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen import Budget, CommitteeClassifier
from crcen.models.members import lightgbm_trees, networks
from crcen.models.members.lightgbm_trees import TreeSetting

LIGHT = [CommitteeClassifier(members=("networks", "trees"), cv=2, n_jobs=1)]


@pytest.fixture
def one_setting(monkeypatch):
    """The contract is not about quality: one setting of each kind of member, and one network of it."""
    search = crcen.CRCENClassifierCV
    few = {"hidden": (8,), "l2": (1e-2,), "max_epochs": 5}
    monkeypatch.setattr(networks, "CRCENClassifierCV", lambda weighting, **how: search(weighting, **few, **how))
    monkeypatch.setattr(networks, "N_SETTINGS", 1)
    monkeypatch.setattr(networks, "N_NETWORKS", 1)
    monkeypatch.setattr(lightgbm_trees, "SETTINGS", (TreeSetting(8, 20, 1.0, 1.0),))


def expected_failures(estimator):
    """What is not promised, and why."""
    why = "folds, bins and the least rows of a leaf count rows, so copies of a row are not the same as its weight"
    return {f"check_sample_weight_equivalence_on_{form}_data": why for form in ("dense", "sparse")}


@pytest.mark.usefixtures("one_setting")
@parametrize_with_checks(LIGHT, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_a_clone_has_its_parameters_and_fits_alike(rows):
    first = CommitteeClassifier(Budget(4), members=("trees",), cv=3, time_limit=60.0, random_state=1)
    second = clone(first)
    assert second.get_params() == first.get_params()
    first, second = (one.fit(*rows).decision_function(rows[0]) for one in (first, second))
    np.testing.assert_array_equal(first, second)


def test_names_of_columns_are_kept_and_checked(rows):
    X, y = rows
    frame = pd.DataFrame(X, columns=list("abcde"))
    committee = CommitteeClassifier(members=("trees",), cv=3, random_state=0).fit(frame, y)
    assert committee.feature_names_in_.tolist() == list("abcde")
    by_numbers = clone(committee).fit(X, y)
    np.testing.assert_array_equal(committee.predict_proba(frame), by_numbers.predict_proba(X))
    with pytest.raises(ValueError, match="feature names should match"):
        committee.predict(frame[list("edcba")])
