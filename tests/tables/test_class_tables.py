"""Mixed tables with more than two classes: networks and other classifiers behind them, on disk too."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import crcen
from crcen import CostMatrix, CRCENClassifier, CRCENClassifierCV, TableClassifier

RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([np.arange(3), RNG.choice(3, 297, p=[0.7, 0.2, 0.1])])
LABELS = np.array(["fine", "worn", "broken"])[NUMBERS]
TABLE = pd.DataFrame(
    {
        "hours": np.where(RNG.random(300) < 0.1, np.nan, 10.0 * NUMBERS + RNG.normal(0, 4, 300)),
        "site": np.where(NUMBERS == 2, RNG.choice(["Oslo", "Lima"], 300), RNG.choice(["Oslo", "Rome"], 300)),
        "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 90, 300), unit="D"),
    }
)
WEIGHTS = {"fine": 1.0, "worn": 3.0, "broken": 20.0}
COSTS = CostMatrix(10.0 * (1 - np.eye(3)) + np.array([[0], [0], [5.0]]), labels=["broken", "fine", "worn"])
NETWORKS = CRCENClassifier(hidden=(), random_state=0)
SEARCH = CRCENClassifierCV(hidden=(), l2=[1e-3, 1e-2], encoding="standard", cv=2, n_members=1, random_state=0)


@pytest.mark.parametrize("weighting", [WEIGHTS, "balanced", COSTS], ids=["weights", "balanced", "costs"])
@pytest.mark.parametrize(
    "estimator", [NETWORKS, SEARCH, LogisticRegression(max_iter=5000)], ids=["networks", "search", "logistic"]
)
def test_a_table_of_three_classes(estimator, weighting, tmp_path):
    model = TableClassifier(weighting, estimator=estimator, random_state=0).fit(TABLE, LABELS)
    p = model.predict_proba(TABLE)
    assert model.classes_.tolist() == ["broken", "fine", "worn"]
    assert p.shape == (300, 3)
    assert not hasattr(model, "pos_label_")
    if weighting is COSTS:
        expected = model.classes_[(p @ COSTS.costs).argmin(axis=1)]
    else:
        weighted = model.weighting_.weights * p
        expected = model.classes_[weighted.argmax(axis=1)]
        np.testing.assert_allclose(model.weighted_proba(TABLE), weighted / weighted.sum(axis=1, keepdims=True))
        if weighting is WEIGHTS:
            np.testing.assert_allclose(model.weighting_.weights / model.weighting_.weights[1], [20, 1, 3])
    np.testing.assert_array_equal(model.predict(TABLE), expected)
    assert (model.predict(TABLE) == LABELS).mean() > 0.6
    assert model.decision_function(TABLE).shape == (300, 3)
    again = crcen.load(crcen.save(model, tmp_path / "model.crcen"))
    np.testing.assert_array_equal(again.predict_proba(TABLE), p)
    np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
    if estimator not in (NETWORKS, SEARCH):  # the probabilities of another classifier stay its own
        np.testing.assert_array_equal(p, model.estimator_.estimator_.predict_proba(model.encode(TABLE).X))
    if estimator is SEARCH:  # solved on these rows: no residual is left
        sums = again.held_out_sums_
        assert sums.counts.tolist() == np.unique(LABELS, return_counts=True)[1].tolist()
        assert np.abs(sums.residuals).max() < 1e-9 * sums.flows.sum()


@pytest.mark.parametrize("estimator", [NETWORKS, LogisticRegression()])
def test_a_price_of_two_classes_is_refused(estimator):
    with pytest.raises(crcen.InvalidParameter, match="price for two classes"):
        TableClassifier(crcen.Budget(5), estimator=estimator).fit(TABLE, LABELS)
