"""predict_table of a model of several classes: every probability, the decision, in memory and in a file."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CostMatrix, CRCENClassifier, TableClassifier
from crcen.commands.predict import answer_columns
from crcen.commands.rules import RowRule
from crcen.theory.price import Price

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
    with pytest.raises(crcen.InvalidParameter, match=r"Budget\(5.0\) is for two classes, and kind has 3"):
        crcen.predict_table(model, TABLE, weighting=crcen.Budget(5))
    with pytest.raises(crcen.InvalidParameter, match="prevalence must be auto or a share for each of the 3 classes"):
        crcen.predict_table(model, TABLE, prevalence=0.2)
    for name, value in {"review": (2, 30), "cost_column": "hours", "alarm_cost": 2.0, "time": "hours"}.items():
        with pytest.raises(crcen.InvalidParameter, match=f"{name} must be left out: it is for a model that finds one"):
            crcen.predict_table(model, TABLE, **{name: value})


def test_the_highest_risk_first(model):
    """Risk is the probability of another class than the most frequent one."""
    found = crcen.predict_table(model, TABLE, sort=True).frame
    assert (np.diff(found["probability_fine"]) >= 0).all()
    assert sorted(found["row"]) == list(range(1, 201))


def test_another_prevalence(model):
    shares, trained = np.array([0.3, 0.3, 0.4]), model.weighting_.counts / 200
    stated = dict(zip(["broken", "fine", "worn"], shares, strict=True))
    found = crcen.predict_table(model, TABLE, prevalence=stated).frame
    moved = model.predict_proba(TABLE) * shares / trained
    p = found[["probability_broken", "probability_fine", "probability_worn"]].to_numpy()
    np.testing.assert_allclose(p, moved / moved.sum(axis=1, keepdims=True))
    auto = crcen.predict_table(model, TABLE, prevalence="auto")
    own = [auto.to_dict()["prevalence"]["shares"][label] for label in ("broken", "fine", "worn")]
    for k, one in enumerate(own):
        assert one["low"] <= trained[k] <= one["high"]


def test_other_costs_than_those_of_training(model):
    p, ones = model.predict_proba(TABLE), np.ones((3, 3)) - np.eye(3)
    found = crcen.predict_table(model, TABLE, costs=CostMatrix(ones, labels=["broken", "fine", "worn"]))
    np.testing.assert_array_equal(found.frame["decision"], model.classes_[p.argmax(axis=1)])
    assert found.expected_cost == pytest.approx((1 - p.max(axis=1)).sum())
    plain = crcen.predict_table(model, TABLE, weighting="none")
    np.testing.assert_array_equal(plain.frame["decision"], found.frame["decision"])
    dear = crcen.predict_table(model, TABLE, weighting={"broken": 100, "fine": 1, "worn": 1})
    np.testing.assert_array_equal(dear.frame["decision"], model.classes_[(p * [100, 1, 1]).argmax(axis=1)])
    counts = model.weighting_.counts
    balanced = crcen.predict_table(model, TABLE, weighting="balanced")
    np.testing.assert_array_equal(balanced.frame["decision"], model.classes_[(p / counts).argmax(axis=1)])


def test_names_of_columns_are_safe_and_unique():
    def columns(*labels):
        return answer_columns(RowRule(labels, Price(np.ones(len(labels)), np.ones(len(labels)))))[1:]

    assert columns("a\nb", "a b", 3) == ["probability_a b", "probability_a b_2", "probability_3"]
    long = columns("x" * 100 + "1", "x" * 100 + "2")
    assert len(set(long)) == 2
    assert max(map(len, long)) < 80
