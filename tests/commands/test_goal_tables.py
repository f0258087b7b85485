"""Goals, row weights, conditions and the report of a fit, from tables."""

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import Budget, Capacity, InvalidInput, InvalidParameter, RecallAtLeast, evaluate_table, report_table


@pytest.fixture(scope="module")
def test_rows(mixed_table):
    return mixed_table(800, seed=9)


def fit(table, search, **how):
    return crcen.fit_table(table, target="bad", drop=["nothing"], estimator=search, **how)


@pytest.mark.parametrize("goal", [RecallAtLeast(0.7), Capacity(60)], ids=str)
def test_a_fit_meets_a_goal_on_rows_held_out(mixed_table, small_search, goal):
    found = fit(mixed_table(500), small_search, weighting=goal)
    assert found.goal == goal
    assert f"Goal: {goal}" in str(found)
    assert found.to_dict()["goal"] == str(goal)
    alarms = found.positive.counts.tp + found.positive.counts.fp
    assert found.positive.metrics["recall"].value >= 0.7 if isinstance(goal, RecallAtLeast) else alarms <= 60


def test_so_many_a_week_is_so_many_in_the_rows_of_a_week(mixed_table, small_search):
    table = mixed_table(600)  # over 300 days: 14 rows a week
    found = fit(table, small_search, weighting=Capacity(3, per="week"), time="when")
    assert found.goal.per == pytest.approx(14, abs=1)
    with pytest.raises(InvalidParameter, match="needs time="):
        fit(table, small_search, weighting=Capacity(3, per="week"))
    with pytest.raises(InvalidParameter, match="2 rows a day"):
        fit(table, small_search, weighting=Capacity(3, per="day"), time="when")


def test_row_weights_are_shares_of_copies(mixed_table, small_search, fitted, test_rows):
    table = mixed_table(300).assign(copies=np.random.default_rng(0).integers(1, 3, 300))
    found = fit(table, small_search, weighting=Budget(5), weight="copies")
    is_bad = (table["bad"] == "yes").to_numpy()
    by_copies = table["copies"][is_bad].sum() / table["copies"].mean()  # weights are 1 on average
    assert found.model.weighting_.n_pos == pytest.approx(by_copies, rel=1e-8)
    assert "copies" not in [column.name for column in found.model.columns_]
    counts = found.to_dict()["out_of_fold"]["counts"]
    assert counts["found"] + counts["missed"] == pytest.approx(by_copies, abs=1.0)
    weighted = test_rows.assign(copies=np.random.default_rng(1).integers(0, 4, len(test_rows)))
    copied = weighted.loc[weighted.index.repeat(weighted["copies"])].reset_index(drop=True)
    by_weight = evaluate_table(fitted.model, weighted, weight="copies", n_resamples=0)
    assert "At that price, by weight: " in str(by_weight)
    by_copies = evaluate_table(fitted.model, copied, n_resamples=0)
    for name, one in by_weight.metrics.items():
        assert one.value == pytest.approx(by_copies.metrics[name].value, rel=1e-9), name
    assert by_weight.equation.to_dict()["left"] == pytest.approx(by_copies.equation.to_dict()["left"])


def test_the_share_of_positives_is_judged_by_weight(fitted, test_rows):
    """Many times the positives, each of as much less weight: the share by weight is that of training."""
    is_bad = test_rows["bad"] == "yes"
    many = pd.concat([test_rows] + [test_rows[is_bad]] * 7, ignore_index=True)
    weighted = many.assign(weight=np.where(many["bad"] == "yes", 1 / 8, 1.0))
    assert any("CRC004" in note for note in evaluate_table(fitted.model, many, n_resamples=0).notes)
    by_weight = evaluate_table(fitted.model, weighted, weight="weight", n_resamples=0)
    assert not any("CRC004" in note for note in by_weight.notes)


def test_weights_must_be_numbers_of_another_column(mixed_table, fitted, test_rows, tmp_path):
    with pytest.raises(InvalidInput, match="weight must name a column of numbers"):
        evaluate_table(fitted.model, test_rows, weight="country")
    with pytest.raises(InvalidInput, match="weight must be a column of the data frame"):
        report_table(fitted.model, test_rows, out=tmp_path / "r.html", weight="wight")
    page = report_table(fitted.model, test_rows.assign(w=2.0), out=tmp_path / "r.html", weight="w")
    assert "by weight" in page.path.read_text()


def test_an_evaluation_meets_a_goal_where_labels_are(fitted, test_rows, mixed_table):
    found = evaluate_table(fitted.model, test_rows, weighting=RecallAtLeast(0.8, confidence=0.9), n_resamples=0)
    plain = evaluate_table(fitted.model, test_rows, weighting=RecallAtLeast(0.8), n_resamples=0)
    assert found.metrics["recall"].value >= plain.metrics["recall"].value >= 0.8
    assert found.price.cost_ratio == pytest.approx(found.chosen.weighting.value)
    assert "a refit voids it" in str(found)
    with pytest.raises(InvalidInput, match="a guarantee needs rows that the model did not see"):
        evaluate_table(fitted.model, mixed_table(600, seed=0), weighting=RecallAtLeast(0.8, confidence=0.9))
    with pytest.raises(InvalidParameter, match="every price has precision"):
        evaluate_table(fitted.model, test_rows, weighting=crcen.PrecisionAtLeast(0.05))


def test_a_review_saves_what_errors_between_its_prices_cost(fitted, test_rows):
    found = evaluate_table(fitted.model, test_rows, weighting=Budget(6), review=(2, 30), n_resamples=0).review
    p, y = fitted.model.predict_proba(test_rows)[:, 1], (test_rows["bad"] == "yes").to_numpy()
    between = (p > 1 / 31) & (p <= 1 / 3)
    assert found.rows["review"] == between.sum()
    assert found.positives["review"] == y[between].sum()
    errors = np.where(y, 6.0 * (p <= 1 / 7), 1.0 * (p > 1 / 7))
    outside = np.where(y, 6.0 * (p <= 1 / 31), 1.0 * (p > 1 / 3))
    assert found.saved == pytest.approx(errors.sum() - outside[~between].sum())


def test_costs_of_rows_add_up(fitted, test_rows):
    worth = np.random.default_rng(3).gamma(2.0, 30.0, len(test_rows))
    found = evaluate_table(fitted.model, test_rows.assign(worth=worth), cost_column="worth", alarm_cost=9.0).row_costs
    p, y = fitted.model.predict_proba(test_rows)[:, 1], (test_rows["bad"] == "yes").to_numpy()
    alarms = p * worth > (1 - p) * 9.0
    assert found.n_alarms == alarms.sum()
    assert found.by_row == pytest.approx(worth[y & ~alarms].sum() + 9.0 * (alarms & ~y).sum())
    assert found.silence == pytest.approx(worth[y].sum())
    assert found.alarms == pytest.approx(9.0 * (~y).sum())


def test_conditions_of_a_pipeline(fitted, test_rows, mixed_table):
    kept = evaluate_table(fitted.model, test_rows, min_recall=0.01, n_resamples=0)
    assert kept.failures == ()
    wanted = {"min_recall": 0.999, "min_precision": 0.999}
    with pytest.raises(InvalidParameter, match="at most 3 alarms a day has no single price"):
        evaluate_table(fitted.model, test_rows, weighting=Capacity(3, per="day"), n_resamples=0)
    broken = evaluate_table(fitted.model, test_rows, weighting=Capacity(100), **wanted, n_resamples=0)
    assert [one.split()[0] for one in broken.failures] == ["recall", "precision"]
    seen = evaluate_table(fitted.model, mixed_table(600, seed=0), fail_on="CRC001, crc008", n_resamples=0)
    assert any(one.startswith("CRC008 warns") for one in seen.failures)
    assert {one.code for one in seen.findings} == {f"CRC{i:03d}" for i in (1, 2, 3, 4, 5, 7, 8, 11)}
    assert not any(one.startswith("CRC008") for one in evaluate_table(fitted.model, test_rows, fail_on="any").failures)
    with pytest.raises(InvalidParameter, match="fail_on must name checks of the report, CRC001 to CRC011"):
        evaluate_table(fitted.model, test_rows, fail_on="CRC3")
    with pytest.raises(InvalidParameter, match="min_recall must be a share"):
        evaluate_table(fitted.model, test_rows, min_recall=70)


def test_a_fit_writes_the_report_of_rows_held_out(mixed_table, small_search, tmp_path):
    found = fit(mixed_table(500), small_search, weighting=Budget(5), report=tmp_path / "r.html")
    page = found.report.read_text()
    assert "out of fold" in page
    y = mixed_table(500)["bad"].to_numpy()
    curve = crcen.ExpenseCurve.from_cv(found.model.estimator_, y, [Budget(5), Budget(6)])
    finds = f"It finds {curve.counts.tp[0]:,.0f} of "
    for part in (finds, "CRC008", "judged by models that did not see it"):
        assert part in page
