"""predict_table without a plain price: goals, review, costs of rows, another base rate; all columns, sorted."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, Capacity, InvalidInput, InvalidParameter, RecallAtLeast, Review, predict_table
from crcen.tables.reading import open_table


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
    assert "a refit voids it" in str(sure)
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
    assert predict_table(fitted.model, new, review=Review(2, 30)).n_alarms == (expected == "yes").sum()


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
        ({"review": 3}, "two prices"),
        ({"held_out": "x.csv", "prevalence": 0.1}, "do not go together"),
        ({"held_out": "x.csv"}, "held_out must go with a recall"),
    ],
)
def test_what_contradicts_itself_is_refused(fitted, new, how, sentence):
    with pytest.raises((InvalidInput, InvalidParameter), match=sentence):
        predict_table(fitted.model, new, **how)
