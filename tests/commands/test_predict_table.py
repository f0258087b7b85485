"""predict_table: the same answers however the rows come, another price without training, odd tables counted."""

import json
import os
import weakref

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, Capacity, CRCENClassifier, InvalidInput, InvalidParameter, RecallAtLeast, predict_table
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
    assert any('did not occur in training were ignored: country 100 rows (such as "XX")' in note for note in notes)
    assert any('treated as missing: amount 25 rows (such as "oops")' in note for note in notes)
    assert any("ignored: 2 (more, other)" in note for note in notes)
    assert predict_table(fitted.model, new).notes == ()


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


RNG = np.random.default_rng(0)
NUMBERS = np.concatenate([np.arange(3), RNG.choice(3, 197, p=[0.7, 0.2, 0.1])])
TABLE = pd.DataFrame({"hours": NUMBERS + RNG.normal(size=200), "site": RNG.choice(["Oslo", "Rome"], 200)})
TABLE["kind"] = np.array(["fine", "worn", "broken"])[NUMBERS]
COSTS = crcen.CostMatrix(np.column_stack([10.0 * (1 - np.eye(3)), np.ones(3)]), actions=["inspect"])


@pytest.fixture(scope="module")
def three():
    networks = CRCENClassifier(hidden=(), random_state=0)
    return crcen.TableClassifier(COSTS, estimator=networks).fit(TABLE[["hours", "site"]], TABLE["kind"])


def test_rows_of_three_classes(three):
    found = predict_table(three, TABLE, id="hours", chunk_rows=64)
    p = found.frame[["probability_broken", "probability_fine", "probability_worn"]].to_numpy()
    np.testing.assert_array_equal(p, three.predict_proba(TABLE))
    np.testing.assert_array_equal(found.frame["decision"].to_numpy(), three.predict(TABLE))
    assert (found.frame["hours"].tolist(), found.n_rows) == (TABLE["hours"].tolist(), 200)
    assert (sum(found.decided.values()), found.decided["inspect"]) == (200, (three.predict(TABLE) == "inspect").sum())
    assert found.expected["worn"] == pytest.approx(p[:, 2].sum())
    assert "inspect" in str(found)
    # The highest risk is the probability of another class than the most frequent one.
    by_risk = predict_table(three, TABLE, sort=True).frame
    assert (np.diff(by_risk["probability_fine"]) >= 0).all()
    assert sorted(by_risk["row"]) == list(range(1, 201))


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
    with pytest.raises(crcen.InvalidParameter, match=r"shares that sum to 1: got 0\.9\.$"):
        predict_table(three, TABLE, prevalence=dict.fromkeys(stated, 0.3))


def test_other_costs_than_those_of_training(three):
    p, ones = three.predict_proba(TABLE), np.ones((3, 3)) - np.eye(3)
    found = predict_table(three, TABLE, costs=crcen.CostMatrix(ones, labels=["broken", "fine", "worn"]))
    np.testing.assert_array_equal(found.frame["decision"], three.classes_[p.argmax(axis=1)])
    assert found.expected_cost == pytest.approx((1 - p.max(axis=1)).sum())
    plain = predict_table(three, TABLE, weighting="none")
    np.testing.assert_array_equal(plain.frame["decision"], found.frame["decision"])
    dear = predict_table(three, TABLE, weighting={"broken": 100, "fine": 1, "worn": 1})
    np.testing.assert_array_equal(dear.frame["decision"], three.classes_[(p * [100, 1, 1]).argmax(axis=1)])
    assert " per row, if a mistake costs 100 on broken, 1 on fine, 1 on worn" in str(dear)
    counts = three.weighting_.counts
    balanced = predict_table(three, TABLE, weighting="balanced")
    np.testing.assert_array_equal(balanced.frame["decision"], three.classes_[(p / counts).argmax(axis=1)])


def test_gains_are_refused_as_costs_and_as_losses_decide_for_the_largest_gain(three):
    labels, gains = ["broken", "fine", "worn"], np.array([[40.0, 0, 3, 1], [0, 1, 0, 1], [2, 0, 9, 1]])
    for some in (gains[:, :3], np.diag([9.0, 9, 9]), np.diag([0.0, 0, 1])):
        with pytest.raises(crcen.InvalidParameter, match=r"lowest for right decisions: got .* if these are gains"):
            predict_table(three, TABLE, costs=crcen.CostMatrix(some, labels=labels))
    with pytest.raises(crcen.InvalidParameter, match="got 40 for deciding broken where it is true, and less"):
        predict_table(three, TABLE, costs=crcen.CostMatrix(gains, labels=labels, actions=["look"]))
    losses = crcen.CostMatrix(gains.max() - gains, labels=labels, actions=["look"])
    expected = np.array([*labels, "look"])[(three.predict_proba(TABLE) @ gains).argmax(axis=1)]
    np.testing.assert_array_equal(predict_table(three, TABLE, costs=losses).frame["decision"], expected)


def test_a_class_may_not_be_worth_its_decision(three):
    costs = crcen.CostMatrix([[0, 5, 5], [1, 0, 1], [1, 1, 2]])  # what is worn costs more to repair than to leave
    assert "worn" not in {*predict_table(three, TABLE, costs=costs).frame["decision"]}
    only_actions = crcen.CostMatrix([[50, 50, 50, 9, 0]] * 2 + [[50, 50, 50, 0, 9]], actions=["sell", "keep"])
    assert {*predict_table(three, TABLE, costs=only_actions).frame["decision"]} <= {"sell", "keep"}


def test_names_of_columns_are_safe_and_unique():
    def columns(*labels):
        return answer_columns(RowRule(labels, Price(np.ones(len(labels)), np.ones(len(labels)))))[1:]

    assert columns("a\nb", "a b", 3) == ["probability_a b", "probability_a b_2", "probability_3"]
    long = columns("x" * 100 + "1", "x" * 100 + "2")
    assert len(set(long)) == 2
    assert max(map(len, long)) < 80


def test_the_riskiest_rows_of_a_file_are_taken_in_chunks(model_file, new, tmp_path):
    new.to_csv(tmp_path / "new.csv", index=False)
    done = predict_table(
        model_file, tmp_path / "new.csv", out=tmp_path / "s.csv", weighting=Capacity(20), chunk_rows=60
    )
    found = open_table(tmp_path / "s.csv").read()
    p = found["probability"].astype(float).to_numpy()
    alarms = (found["decision"] == "yes").to_numpy()
    assert alarms.sum() == done.n_alarms == 20
    assert p[alarms].min() >= p[~alarms].max()
    assert done.price.cost_ratio == pytest.approx(done.goal.price[0])
    assert p[alarms].min() > done.price.threshold >= p[~alarms].max()
    assert "at most 20 alarms" in str(done)
    assert done.to_dict()["goal"]["expected_recall"] == pytest.approx(p[alarms].sum() / p.sum())


def test_a_capacity_for_each_week_goes_by_a_column_of_dates(fitted, new):
    found = predict_table(fitted.model, new, weighting=Capacity(2, per="week"), time="when", id="when")
    weeks = pd.to_datetime(found.frame["when"]).dt.to_period("W-SUN")
    by_week = (found.frame["decision"] == "yes").groupby(weeks).sum()
    np.testing.assert_array_equal(by_week, np.minimum(2, weeks.value_counts().sort_index()))
    assert found.goal.n_periods == weeks.nunique()


@pytest.mark.parametrize("goal", [RecallAtLeast(0.8), crcen.PrecisionAtLeast(0.22)], ids=str)
def test_labelled_rows_choose_the_price_of_a_goal(fitted, new, mixed_table, goal):
    labelled = mixed_table(800, seed=8)
    found = predict_table(fitted.model, new, weighting=goal, held_out=labelled)
    p, y = fitted.model.predict_proba(labelled)[:, 1], (labelled["bad"] == "yes").to_numpy()
    alarms = p > found.chosen.threshold
    assert (y[alarms].sum() / y.sum() if isinstance(goal, RecallAtLeast) else y[alarms].mean()) >= goal.share
    np.testing.assert_array_equal(found.frame["decision"] == "yes", found.frame["probability"] > found.chosen.threshold)


def test_a_guarantee_is_refused_on_rows_of_training(fitted, new, mixed_table):
    goal = RecallAtLeast(0.8, confidence=0.9)
    sure = predict_table(fitted.model, new, weighting=goal, held_out=mixed_table(800, seed=8))
    plain = predict_table(fitted.model, new, weighting=RecallAtLeast(0.8), held_out=mixed_table(800, seed=8))
    assert sure.n_alarms >= plain.n_alarms
    assert "not valid after a refit" in str(sure)
    with pytest.raises(InvalidInput, match="rows compared are training rows"):
        predict_table(fitted.model, new, weighting=goal, held_out=mixed_table(600, seed=0))
    seen = predict_table(fitted.model, new, weighting=RecallAtLeast(0.8), held_out=mixed_table(600, seed=0))
    assert [any("are training rows" in note for note in one.notes) for one in (plain, seen)] == [False, True]
    with pytest.raises(InvalidParameter, match="needs labelled rows"):
        predict_table(fitted.model, new, weighting=goal)


def test_rows_between_two_prices_go_to_review(fitted, new, tmp_path):
    done = predict_table(fitted.model, new, out=tmp_path / "s.parquet", review=(2, 30), chunk_rows=40)
    found = open_table(tmp_path / "s.parquet").read()
    p = found["probability"].to_numpy()
    expected = np.select([p > 1 / 3, p > 1 / 31], ["yes", "review"], "no")
    np.testing.assert_array_equal(found["decision"], expected)
    assert done.review.counts["review"] == (expected == "review").sum()
    assert done.review.price == pytest.approx(fitted.model.weighting_.cost_ratio)
    assert "to review" in str(done)
    assert predict_table(fitted.model, new, review=crcen.Review(2, 30)).n_alarms == (expected == "yes").sum()


def test_rows_have_costs_of_their_own(fitted, new):
    amounts = np.random.default_rng(0).gamma(2.0, 50.0, len(new))
    table = new.assign(worth=[f"€ {one:,.2f}" for one in amounts])
    found = predict_table(fitted.model, table, cost_column="worth", alarm_cost=12.5)
    p = found.frame["probability"].to_numpy()
    # What an alarm costs in expectation against what silence does.
    np.testing.assert_array_equal(found.frame["decision"] == "yes", (1 - p) * 12.5 < p * amounts.round(2))
    assert found.price is None
    assert found.to_dict()["price"] is None


def test_another_base_rate_multiplies_the_odds(fitted, new):
    plain, rare = predict_table(fitted.model, new), predict_table(fitted.model, new, prevalence=0.02)
    before, after = (one.frame["probability"].to_numpy() for one in (plain, rare))
    trained = fitted.model.weighting_
    ratio = (0.02 / 0.98) / (trained.n_pos / trained.n_neg)
    np.testing.assert_allclose(after / (1 - after), ratio * before / (1 - before))
    assert "Probabilities adjusted to the prevalence stated: 2 % of rows are yes, " in str(rare)
    same = predict_table(fitted.model, new, prevalence=trained.n_pos / (trained.n_pos + trained.n_neg))
    np.testing.assert_allclose(same.frame["probability"], before)


def test_all_columns_and_the_riskiest_first(fitted, new, tmp_path):
    predict_table(fitted.model, new, out=tmp_path / "s.csv", id="id", all_columns=True, sort=True, chunk_rows=33)
    found = pd.read_csv(tmp_path / "s.csv")
    assert found.columns.tolist() == [*new.columns, "probability", "decision"]
    assert (np.diff(found["probability"]) <= 0).all()
    back = found.set_index("id").loc[new["id"]]
    np.testing.assert_array_equal(back["country"], new["country"])
    np.testing.assert_allclose(back["probability"], fitted.model.predict_proba(new)[:, 1])


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"time": "when"}, "time must go with a capacity"),
        ({"weighting": Capacity(3, per="day"), "time": "country"}, "time must name a column"),
        ({"weighting": Capacity(3), "review": (2, 30)}, "both decide"),
        ({"weighting": Budget(3), "cost_column": "amount"}, "must go without another price"),
        ({"cost_column": "amount"}, "cost_column must name a column of numbers from 0 on"),
        ({"cost_column": "amout"}, "did you mean amount"),
        ({"cost_column": "bad"}, "cost_column must be another column than the target"),
        ({"review": 3}, "two prices"),
        ({"held_out": "x.csv", "prevalence": 0.1}, "cannot be combined"),
        ({"held_out": "x.csv"}, "held_out must go with a recall"),
        ({"data": pd.DataFrame({"amount": []})}, "has no rows"),
        ({"data": pd.DataFrame({"country": ["NL"], "is_new": 1})}, "lacks 2 of the 4 columns that .*: amount, when"),
        ({"chunk_rows": 0}, "chunk_rows"),
        ({"data": pd.DataFrame({"decision": [1]}), "id": "decision"}, "the column decision must be renamed"),
        ({"model": CRCENClassifier()}, "must be fitted"),
    ],
)
def test_what_is_refused_and_writes_nothing(fitted, new, tmp_path, how, sentence):
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        predict_table(**{"model": fitted.model, "data": new, "out": tmp_path / "a.csv"} | how)
    assert os.listdir(tmp_path) == []


def test_missing_columns_are_looked_for_in_another_sheet(fitted, new, tmp_path):
    with pd.ExcelWriter(tmp_path / "a.xlsx") as book:
        pd.DataFrame({"month": ["May"], "sales": 1}).to_excel(book, sheet_name="Sum", index=False)
        new.to_excel(book, sheet_name="Rows", index=False)
    with pytest.raises(InvalidInput, match=r"the table lacks 4 of the 4 .*; read another sheet \(Rows\) with sheet="):
        predict_table(fitted.model, tmp_path / "a.xlsx", out=tmp_path / "a.csv")
