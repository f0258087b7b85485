"""Searches of a few settings, and one committee that tests share."""

import numpy as np
import pytest

import crcen
from crcen import Budget, CommitteeClassifier
from crcen.models.members.lightgbm_trees import TreeSetting
from example_rows import interaction_rows


def _shrink(patch):
    members = "crcen.models.members"
    patch.setattr(
        f"{members}.lightgbm_trees.LightGBMTrees.settings", (TreeSetting(8, 20, 1.0, 1.0), TreeSetting(4, 10, 1.0, 0.5))
    )
    patch.setattr(f"{members}.catboost_trees._TREES", 40)
    search = crcen.CRCENClassifierCV
    patch.setattr(
        f"{members}.networks.CRCENClassifierCV",
        lambda weighting, **how: search(weighting, hidden=(8,), l2=(1e-3, 1e-2), **how),
    )


@pytest.fixture(autouse=True)
def small_searches(monkeypatch):
    """Two tree settings and two networks, so that a test takes seconds."""
    _shrink(monkeypatch)


@pytest.fixture(scope="session")
def rows():
    return interaction_rows()


@pytest.fixture(scope="session")
def with_gaps():
    """A committee fitted on rows with missing values."""
    X, y = interaction_rows()
    X[::3, 0] = np.nan
    with pytest.MonkeyPatch.context() as patch:
        _shrink(patch)
        return CommitteeClassifier(Budget(8), random_state=0, cv=3).fit(X, y)
