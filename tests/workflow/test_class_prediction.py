"""predict_table of a model of several classes: every probability, the decision, in memory and in a file."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifier, TableClassifier

RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([np.arange(3), RNG.choice(3, 197, p=[0.7, 0.2, 0.1])])
TABLE = pd.DataFrame(
    {
        "hours": NUMBERS + RNG.normal(size=200),
        "site": RNG.choice(["Oslo", "Rome"], 200),
        "kind": np.array(["fine", "worn", "broken"])[NUMBERS],
    }
)
COSTS = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["inspect"])


@pytest.fixture(scope="module")
def model():
    networks = CRCENClassifier(hidden=(), random_state=0)
    return TableClassifier(COSTS, estimator=networks).fit(TABLE[["hours", "site"]], TABLE["kind"])


def test_rows_in_memory(model):
    found = crcen.predict_table(model, TABLE, id="hours", chunk_rows=64)
    p = found.frame[["probability_broken", "probability_fine", "probability_worn"]].to_numpy()
    np.testing.assert_array_equal(p, model.predict_proba(TABLE))
    np.testing.assert_array_equal(found.frame["decision"].to_numpy(), model.predict(TABLE))
    assert found.frame["hours"].tolist() == TABLE["hours"].tolist()
    assert found.n_rows == 200
    assert sum(found.decided.values()) == 200
    assert found.decided["inspect"] == (model.predict(TABLE) == "inspect").sum()
    assert found.expected["worn"] == pytest.approx(p[:, 2].sum())
    assert "inspect" in str(found)
    assert found.to_dict()["rows"] == 200


def test_rows_in_a_file_by_a_saved_model(model, tmp_path):
    path, out = crcen.save(model, tmp_path / "model.crcen"), tmp_path / "out.csv"
    TABLE.to_csv(tmp_path / "in.csv", index=False)
    found = crcen.predict_table(path, tmp_path / "in.csv", out=out, chunk_rows=50)
    written = pd.read_csv(out)
    assert found.frame is None
    assert written["decision"].tolist() == model.predict(TABLE).tolist()
    np.testing.assert_allclose(written["probability_fine"], model.predict_proba(TABLE)[:, 1])


def test_what_needs_a_positive_class_is_refused(model):
    with pytest.raises(crcen.InvalidParameter, match="another price is for two classes, and this model has 3"):
        crcen.predict_table(model, TABLE, weighting=crcen.Budget(5))
    with pytest.raises(crcen.InvalidParameter, match="reasons is for two classes"):
        crcen.predict_table(model, TABLE, reasons=2)
    with pytest.raises(crcen.InvalidInput, match="evaluation is for two classes so far"):
        crcen.evaluate_table(model, TABLE)
