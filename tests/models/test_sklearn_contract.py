"""scikit-learn's own contract for estimators, on light settings."""

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import crcen
from crcen import Budget, CommitteeClassifier, CRCENClassifier, CRCENClassifierCV, CSMLPClassifier, Inputs, Schedule
from crcen.models.members import lightgbm_trees, networks
from crcen.models.members.lightgbm_trees import TreeSetting
from grouped_settings import grouped

QUICK_ADAM = {"solver": "adam", "batch_size": 32, "learning_rate": 0.05, "max_epochs": 12}
LBFGS = {"schedule": Schedule(solver="lbfgs"), "max_epochs": 20}
WITH_GAPS = {"encoding": Inputs(missing="indicator")}
# The prior of a temperature counts rows, not their weights.
LINEAR = {"hidden": (), "l2": [1e-3, 1e-1], "cv": 3, "balance": "oof", "probability": "shift"}
F1 = {"hidden": (4,), "l2": (1e-2, 1.0), "cv": 2, "scoring": "f1", "n_members": 2, "training_weighting": "price"}
LIGHT = [
    CRCENClassifier(hidden=(4,), max_epochs=30, schedule=Schedule(batch_size=32, learning_rate=0.05)),
    CRCENClassifier(
        None,
        hidden=(4,),
        schedule=Schedule(solver="lbfgs", activation="tanh"),
        max_epochs=20,
        n_members=2,
        calibration="paper",
    ),
    CRCENClassifier(Budget(3), **grouped(hidden=(4,), n_members=1, encoding="standard", **QUICK_ADAM)),
    CRCENClassifier(hidden=(4,), **LBFGS, **WITH_GAPS),
    CSMLPClassifier(hidden=(4,), n_members=2, **LBFGS),
    CRCENClassifierCV(**grouped(cv=2, hidden=[(2,), (4,)], l2=[1e-3, 1e-1], **QUICK_ADAM)),
    CRCENClassifierCV(**grouped(**LINEAR, **(LBFGS | {"max_epochs": 50}), **WITH_GAPS)),
    CRCENClassifierCV([None, Budget(3)], **grouped(**F1, **QUICK_ADAM)),
    CommitteeClassifier(members=("networks", "trees"), cv=2, n_jobs=1),
]


@pytest.fixture
def one_setting(monkeypatch):
    """The contract is not about quality: one setting of each kind of member, and one network of it."""
    search = crcen.CRCENClassifierCV
    few = {"hidden": (8,), "l2": (1e-2,), "max_epochs": 5}
    monkeypatch.setattr(networks, "CRCENClassifierCV", lambda weighting, **how: search(weighting, **few, **how))
    monkeypatch.setattr(networks, "N_SETTINGS", 1)
    monkeypatch.setattr(networks, "N_NETWORKS", 1)
    monkeypatch.setattr(lightgbm_trees.LightGBMTrees, "settings", (TreeSetting(8, 20, 1.0, 1.0),))


def expected_failures(estimator):
    """What is not promised, and why."""
    failures = {}
    is_committee, is_search = (isinstance(estimator, kind) for kind in (CommitteeClassifier, CRCENClassifierCV))
    if is_committee or estimator.recipe().draws_batches or (estimator.calibration == "out_of_fold" and not is_search):
        for form in ("dense", "sparse"):
            failures[f"check_sample_weight_equivalence_on_{form}_data"] = (
                "copies and weights fill other mini-batches and folds, and leaves of trees count rows; the equality is "
                "claimed for L-BFGS with calibration='paper'"
            )
    if estimator.weighting == Budget(3):
        failures["check_classifiers_train"] = (
            "it wants predict to be the argmax of predict_proba; ours decides at the stated price, on natural "
            "probabilities"
        )
    return failures


@pytest.mark.usefixtures("one_setting")
@parametrize_with_checks(LIGHT, expected_failed_checks=expected_failures)
def test_scikit_learn_contract(estimator, check):
    check(estimator)
