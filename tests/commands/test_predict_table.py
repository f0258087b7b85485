"""predict_table: the same answers however the rows come, another price without training, odd tables counted."""

import json
import os
import weakref

import numpy as np
import pandas as pd
import pytest

from crcen import Budget, CostMatrix, CRCENClassifier, InvalidInput, InvalidParameter, TableClassifier, predict_table
from crcen.commands.predict import answer_columns
from crcen.commands.rules import RowRule
from crcen.tables.reading import Table, open_table
from crcen.theory.price import Price


def test_answers_are_those_of_the_model(fitted, new):
    found = predict_table(fitted.model, new)
    assert found.frame.columns.tolist() == ["row", "probability", "decision"]
    np.testing.assert_array_equal(found.frame["row"], np.arange(1, 251))
    np.testing.assert_array_equal(found.frame["probability"], fitted.model.predict_proba(new)[:, 1])
    np.testing.assert_array_equal(found.frame["decision"], fitted.model.predict(new))
    assert found.n_alarms == (fitted.model.predict(new) == "yes").sum()
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert (plain["rows"], plain["alarms"], plain["price"]["positive"]) == (250, found.n_alarms, "yes")
    assert plain["expected_catches"] + plain["expected_false_alarms"] == pytest.approx(found.n_alarms)


@pytest.mark.parametrize("name", ["new.csv", "new.tsv", "new.parquet", "new.csv.gz"])
@pytest.mark.parametrize("out", ["scored.csv", "scored.parquet"])
def test_files_in_chunks_are_the_frame_at_once(model_file, fitted, new, tmp_path, name, out):
    path = tmp_path / name
    if name.endswith("parquet"):
        new.to_parquet(path)
    else:
        new.to_csv(path, index=False, sep="\t" if "tsv" in name else ",")
    done = predict_table(model_file, path, out=tmp_path / out, id=["id", "country"], chunk_rows=60)
    found = open_table(tmp_path / out).read()
    assert found.columns.tolist() == ["id", "country", "probability", "decision"]
    assert found["id"].astype(int).tolist() == new["id"].tolist()
    np.testing.assert_array_equal(found["probability"].astype(float), fitted.model.predict_proba(new)[:, 1])
    assert found["decision"].tolist() == fitted.model.predict(new).tolist()
    assert (done.n_rows, done.frame, done.path) == (250, None, tmp_path / out)


def test_another_price_changes_decisions_and_not_probabilities(fitted, new):
    plain, dear = predict_table(fitted.model, new), predict_table(fitted.model, new, weighting=Budget(50))
    np.testing.assert_array_equal(plain.frame["probability"], dear.frame["probability"])
    np.testing.assert_array_equal(dear.frame["decision"] == "yes", dear.frame["probability"] > 1 / 51)
    assert dear.n_alarms > predict_table(fitted.model, new, weighting=Budget(0.5)).n_alarms
    balanced = predict_table(fitted.model, new, weighting="balanced")
    assert balanced.price.cost_ratio == pytest.approx(fitted.model.weighting_.imbalance_ratio)


def test_what_is_odd_is_counted_over_chunks(fitted, new):
    odd = new.assign(country=np.where(np.arange(250) < 100, "XX", new["country"]), more=1, other=2)
    odd["amount"] = odd["amount"].astype(object)
    odd.loc[odd.index % 10 == 0, "amount"] = "oops"
    notes = predict_table(fitted.model, odd, chunk_rows=30).notes
    assert any("training did not have were ignored: country 100 rows" in note for note in notes)
    assert any("taken as missing: amount 25 rows" in note for note in notes)
    assert any("ignored: 2 (more, other)" in note for note in notes)
    assert predict_table(fitted.model, new).notes == ()


def test_missing_columns_are_named_and_nothing_is_written(fitted, new, tmp_path):
    with pytest.raises(InvalidInput, match="lacks 2 of the 4 columns that the model needs: amount, when"):
        predict_table(fitted.model, new.drop(columns=["amount", "when"]), out=tmp_path / "a.csv")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("model", "change", "options", "error", "said"),
    [
        (None, lambda new: new.iloc[:0], {}, InvalidInput, "has no rows"),
        (None, lambda new: new, {"chunk_rows": 0}, InvalidParameter, "chunk_rows"),
        (None, lambda new: new.assign(decision=1), {"id": "decision"}, InvalidParameter, "must not be called decision"),
        (CRCENClassifier(), lambda new: new, {}, InvalidParameter, "must be fitted"),
    ],
)
def test_refusals(fitted, new, model, change, options, error, said):
    with pytest.raises(error, match=said):
        predict_table(fitted.model if model is None else model, change(new), **options)


def test_a_plain_classifier_takes_a_table_of_numbers(new, tmp_path):
    numbers = new[["amount"]].fillna(0.0).assign(square=lambda f: f["amount"] ** 2)
    y = new["bad"]
    numbers.assign(note="x").to_csv(tmp_path / "a.csv", index=False)
    for X in (numbers, numbers.to_numpy()):
        model = CRCENClassifier(Budget(5), hidden=(), random_state=0).fit(X, y)
        data = tmp_path / "a.csv" if X is numbers else numbers
        np.testing.assert_allclose(predict_table(model, data).frame["probability"], model.predict_proba(X)[:, 1])
    named = CRCENClassifier(Budget(5), hidden=(), random_state=0).fit(numbers, y)
    assert predict_table(named, numbers.assign(**{"": 1})).n_rows == 250  # a column without a name is no target
    with pytest.raises(InvalidInput, match="column amount holds other values"):
        predict_table(model, numbers.assign(amount="x"))


def test_memory_does_not_grow_with_the_rows(model_file, new, tmp_path, monkeypatch):
    """Of many chunks no more than the last two are alive at any time."""
    original, seen, alive = Table.chunks, [], []

    def watched(self, n_rows):
        for chunk in original(self, n_rows):
            seen.append(weakref.ref(chunk))
            alive.append(sum(one() is not None for one in seen))
            yield chunk

    monkeypatch.setattr(Table, "chunks", watched)
    new.to_csv(tmp_path / "a.csv", index=False)
    predict_table(model_file, tmp_path / "a.csv", out=tmp_path / "b.parquet", chunk_rows=10)
    assert len(seen) == 25
    assert max(alive) <= 2


# -- three classes ---------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([np.arange(3), RNG.choice(3, 197, p=[0.7, 0.2, 0.1])])
TABLE = pd.DataFrame({"hours": NUMBERS + RNG.normal(size=200), "site": RNG.choice(["Oslo", "Rome"], 200)})
TABLE["kind"] = np.array(["fine", "worn", "broken"])[NUMBERS]
COSTS = CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["inspect"])


@pytest.fixture(scope="module")
def three():
    networks = CRCENClassifier(hidden=(), random_state=0)
    return TableClassifier(COSTS, estimator=networks).fit(TABLE[["hours", "site"]], TABLE["kind"])


def test_rows_of_three_classes(three):
    found = predict_table(three, TABLE, id="hours", chunk_rows=64)
    p = found.frame[["probability_broken", "probability_fine", "probability_worn"]].to_numpy()
    np.testing.assert_array_equal(p, three.predict_proba(TABLE))
    np.testing.assert_array_equal(found.frame["decision"].to_numpy(), three.predict(TABLE))
    assert found.frame["hours"].tolist() == TABLE["hours"].tolist()
    assert found.n_rows == 200
    assert sum(found.decided.values()) == 200
    assert found.decided["inspect"] == (three.predict(TABLE) == "inspect").sum()
    assert found.expected["worn"] == pytest.approx(p[:, 2].sum())
    assert "inspect" in str(found)
    assert found.to_dict()["rows"] == 200


def test_the_highest_risk_of_three_classes_first(three):
    """Risk is the probability of another class than the most frequent one."""
    found = predict_table(three, TABLE, sort=True).frame
    assert (np.diff(found["probability_fine"]) >= 0).all()
    assert sorted(found["row"]) == list(range(1, 201))


def test_another_prevalence_of_three_classes(three):
    shares, trained = np.array([0.3, 0.3, 0.4]), three.weighting_.counts / 200
    stated = dict(zip(["broken", "fine", "worn"], shares, strict=True))
    found = predict_table(three, TABLE, prevalence=stated).frame
    moved = three.predict_proba(TABLE) * shares / trained
    p = found[["probability_broken", "probability_fine", "probability_worn"]].to_numpy()
    np.testing.assert_allclose(p, moved / moved.sum(axis=1, keepdims=True))
    auto = predict_table(three, TABLE, prevalence="auto")
    own = [auto.to_dict()["prevalence"]["shares"][label] for label in ("broken", "fine", "worn")]
    for k, one in enumerate(own):
        assert one["low"] <= trained[k] <= one["high"]


def test_other_costs_than_those_of_training(three):
    p, ones = three.predict_proba(TABLE), np.ones((3, 3)) - np.eye(3)
    found = predict_table(three, TABLE, costs=CostMatrix(ones, labels=["broken", "fine", "worn"]))
    np.testing.assert_array_equal(found.frame["decision"], three.classes_[p.argmax(axis=1)])
    assert found.expected_cost == pytest.approx((1 - p.max(axis=1)).sum())
    plain = predict_table(three, TABLE, weighting="none")
    np.testing.assert_array_equal(plain.frame["decision"], found.frame["decision"])
    dear = predict_table(three, TABLE, weighting={"broken": 100, "fine": 1, "worn": 1})
    np.testing.assert_array_equal(dear.frame["decision"], three.classes_[(p * [100, 1, 1]).argmax(axis=1)])
    counts = three.weighting_.counts
    balanced = predict_table(three, TABLE, weighting="balanced")
    np.testing.assert_array_equal(balanced.frame["decision"], three.classes_[(p / counts).argmax(axis=1)])


def test_names_of_columns_are_safe_and_unique():
    def columns(*labels):
        return answer_columns(RowRule(labels, Price(np.ones(len(labels)), np.ones(len(labels)))))[1:]

    assert columns("a\nb", "a b", 3) == ["probability_a b", "probability_a b_2", "probability_3"]
    long = columns("x" * 100 + "1", "x" * 100 + "2")
    assert len(set(long)) == 2
    assert max(map(len, long)) < 80
