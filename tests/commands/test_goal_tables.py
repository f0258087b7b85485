"""Prices of decisions: goals, row weights, conditions, the report of a fit, and costs as people write them down."""

import json

import numpy as np
import openpyxl
import pandas as pd
import pytest
from typer.testing import CliRunner

import crcen
from crcen import Budget, Capacity, CostMatrix, RecallAtLeast, evaluate_table, fit_table, monitor_table
from crcen.cli import app
from crcen.commands.rules import costs_from
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.theory.price import weighted_probability


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
    assert found.notes[0].startswith(
        f"at most 3 alarms a week was taken for at most 3 alarms in {found.goal.per} rows,"
    )
    with pytest.raises(InvalidParameter, match="needs time="):
        fit(table, small_search, weighting=Capacity(3, per="week"))
    with pytest.raises(InvalidParameter, match="3 alarms a day allows an alarm on every row: there are 2 rows"):
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


def test_weights_must_be_numbers_of_another_column(mixed_table, fitted, test_rows, tmp_path):
    with pytest.raises(crcen.InvalidInput, match="weight must name a column of numbers"):
        evaluate_table(fitted.model, test_rows, weight="country")
    with pytest.raises(crcen.InvalidParameter, match="weight must be a column of the data frame"):
        crcen.report_table(fitted.model, test_rows, out=tmp_path / "r.html", weight="wight")
    page = crcen.report_table(fitted.model, test_rows.assign(w=2.0), out=tmp_path / "r.html", weight="w")
    assert "by weight" in page.path.read_text()


def test_an_evaluation_meets_a_goal_where_labels_are(fitted, test_rows, mixed_table):
    found = evaluate_table(fitted.model, test_rows, weighting=RecallAtLeast(0.8, confidence=0.9), n_resamples=0)
    plain = evaluate_table(fitted.model, test_rows, weighting=RecallAtLeast(0.8), n_resamples=0)
    assert found.metrics["recall"].value >= plain.metrics["recall"].value >= 0.8
    assert found.price.cost_ratio == pytest.approx(found.chosen.weighting.value)
    assert "not valid after a refit" in str(found)
    with pytest.raises(crcen.InvalidInput, match="a guarantee needs rows that the model did not see"):
        evaluate_table(fitted.model, mixed_table(600, seed=0), weighting=RecallAtLeast(0.8, confidence=0.9))
    with pytest.raises(InvalidParameter, match="every price has precision"):
        evaluate_table(fitted.model, test_rows, weighting=crcen.PrecisionAtLeast(0.05))


def test_a_review_saves_what_errors_between_its_prices_cost(fitted, test_rows):
    found = evaluate_table(fitted.model, test_rows, weighting=Budget(6), review=(2, 30), n_resamples=0).review
    p, y = fitted.model.predict_proba(test_rows)[:, 1], (test_rows["bad"] == "yes").to_numpy()
    between = (p > 1 / 31) & (p <= 1 / 3)
    assert (found.rows[1], found.positives[1]) == (between.sum(), y[between].sum())
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
    assert (found.silence, found.alarms) == (pytest.approx(worth[y].sum()), pytest.approx(9.0 * (~y).sum()))


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
    for wrong in ("CRC3", "", ","):  # an empty variable of a pipeline must not switch the condition off
        with pytest.raises(InvalidParameter, match="fail_on must name checks of the report, CRC001 to CRC011"):
            evaluate_table(fitted.model, test_rows, fail_on=wrong)
    with pytest.raises(InvalidParameter, match="min_recall must be a share"):
        evaluate_table(fitted.model, test_rows, min_recall=70)


def test_a_fit_writes_the_report_of_rows_held_out(mixed_table, small_search, tmp_path):
    found = fit(mixed_table(500), small_search, weighting=Budget(5), report=tmp_path / "r.html")
    page = found.report.read_text()
    assert "out of fold" in page
    y = mixed_table(500)["bad"].to_numpy()
    curve = crcen.ExpenseCurve.from_cv(found.model.estimator_, y, [Budget(5), Budget(6)])
    finds = f"It finds {curve.counts.tp[0]:,.0f} of "
    for part in (finds, "CRC008", "scored by models that did not see it"):
        assert part in page


QUICK = {"hidden": (), "max_epochs": 10, "l2": 1e-3, "encoding": "standard", "n_members": 1}


def table(n, seed):
    """Rows of which the positive ones were drawn four times as often as they should, which weights undo."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(6 * n)
    y = rng.random(6 * n) < 1 / (1 + np.exp(3.0 - 1.5 * x))
    drawn = np.flatnonzero(rng.random(6 * n) < np.where(y, 0.8, 0.2))[:n]
    day = pd.Timestamp("2024-05-01") + pd.to_timedelta(np.arange(n) * 10 // n, unit="D")
    people, state = np.where(y[drawn], "125", "500"), np.where(y[drawn], "ill", "well")
    columns = {"x": x[drawn], "other": rng.standard_normal(n), "people": people, "state": state, "scored": day}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("weighted") / "model.crcen"
    search = crcen.CRCENClassifierCV(cv=3, **QUICK)
    options = {"target": "state", "positive": "ill", "weighting": Budget(4), "weight": "people", "drop": ["scored"]}
    fit_table(table(1500, 0), **options, estimator=search, n_refits=0, out=path)
    return path


def test_an_evaluation_without_the_weights_says_what_is_lacking(model):
    without = evaluate_table(model, table(1500, 1), n_resamples=0)
    assert any("take --weight people" in note for note in without.notes)
    with_them = evaluate_table(model, table(1500, 1), weight="people", n_resamples=0)
    assert not any("take --weight" in note for note in with_them.notes)
    assert [any("CRC004" in note for note in one.notes) for one in (without, with_them)] == [True, False]
    assert abs(with_them.equation.z) < 3 < abs(without.equation.z)


def test_the_report_judges_the_share_by_weight(model, tmp_path):
    new = table(1500, 2)
    found = {}
    for times in (1, 1000):
        own = new.assign(people=new.people.astype(float) * times)
        report = crcen.report_table(model, own, weight="people", out=tmp_path / "r.html", review=(2, 20))
        found[times] = next(one for one in report.findings if one.code == "CRC004")
    # Weights in another unit are the same weights.
    assert (found[1].measured, found[1].status) == (found[1000].measured, "passed")
    judged = evaluate_table(model, own, weight="people", review=(2, 20), n_resamples=0)
    assert str(report.review) in str(report)
    assert report.to_dict()["review"] == report.review.to_dict() == judged.review.to_dict()


def test_the_scale_of_weights_changes_no_digit(tmp_path):
    """Fit, evaluate, report and watch with weights in other units, as the command prints them."""
    shown = {}
    for times in (1.0, 1e-6, 1e6):
        folder = tmp_path / f"{times:g}"
        folder.mkdir()
        for name, seed in (("train", 0), ("test", 1)):
            own = table(900, seed).drop(columns="scored")
            own["people"] = times * own["people"].astype(float) * np.linspace(0.5, 2.0, len(own))
            own.to_csv(folder / f"{name}.csv", index=False)
        model, test, state = (str(folder / name) for name in ("m.crcen", "test.csv", "state.json"))
        judged = [model, test, "--weight", "people", "--json"]
        options = ["--target", "state", "--positive", "ill", "--budget", "4", "--weight", "people", "--quick", "--json"]
        calls = [
            ["fit", str(folder / "train.csv"), *options, "--out", model],
            ["evaluate", *judged, "--groups", "x"],
            ["report", *judged, "--out", str(folder / "r.html")],
            ["monitor", *judged, "--state", state],
            ["monitor", *judged[:-1], "--state", state],
        ]
        found = [CliRunner().invoke(app, call).output.replace(str(folder), "") for call in calls]
        own = json.loads(found[0])
        own.pop("seconds")
        shown[times] = [own, *found[1:]]
    assert json.loads(shown[1.0][1])["metrics"]["recall"]["value"] > 0.0
    assert shown[1.0] == shown[1e-6] == shown[1e6]


def test_a_watch_counts_labels_by_weight(model, tmp_path):
    rows = table(4000, 3)
    watch = monitor_table(model, rows, weight="people", state=tmp_path / "a.json")
    assert not watch.is_alarm
    assert not any("take --weight" in note for note in watch.notes)
    without = monitor_table(model, rows)
    assert without.is_alarm
    assert any("take --weight people" in note for note in without.notes)
    assert abs(watch.reading.drift_by_class[0]) < 0.5 < abs(without.reading.drift_by_class[0])


def test_a_watch_holds_labels_back_until_their_cohort_is_complete(model, tmp_path):
    rows, state = table(1000, 4), tmp_path / "watch.json"
    options = {"weight": "people", "state": state, "cohort": "scored"}
    # Positives of the last five days are known, and none of the negatives.
    first = rows[(rows.scored < "2024-05-06") | (rows.state == "ill")]
    watch = monitor_table(model, first, delay=4, **options)
    is_complete = (first.scored < "2024-05-06").sum()
    assert (watch.n_labelled, watch.n_held) == (len(first), len(first) - is_complete)
    assert watch.reading.n_rows == is_complete
    assert "labelled rows wait until their cohort is complete" in str(watch)
    late = rows[~rows.index.isin(first.index)]
    watch = monitor_table(model, late.assign(scored=late.scored.astype(str)), now="2024-05-20", **options)
    assert (watch.n_held, watch.reading.n_rows) == (0, len(rows))
    assert not watch.alarms  # the columns of rows that came first are another matter
    for change, sentence in (
        ({"delay": 3}, "delay must not change in a monitor that was started with 4: got 3"),
        ({"cohort": None}, "cohort must name the column of days or weeks"),
        ({"cohort": "state"}, "cohort must be another column than the target"),
    ):
        with pytest.raises(crcen.CrcenError, match=sentence):
            monitor_table(model, late, **{**options, **change})
    # The same evidence as that of the monitor itself.
    from crcen import load

    own = load(model)
    p = own.predict_proba(rows[["x", "other"]])[:, list(own.classes_).index("ill")]
    direct = crcen.KeyEquationMonitor(own, delay=0)
    q, weights = weighted_probability(p, own.weighting_), rows.people.astype(float)
    direct.update(q=q, y=rows.state, cohort=rows.scored.to_numpy(), now="2024-05-20", sample_weight=weights)
    assert direct.history[None][-1].drift_by_class[0] == pytest.approx(watch.reading.drift_by_class[0], abs=1e-9)


def test_weights_that_turn_the_rarer_class_around():
    rows = table(400, 3).drop(columns="scored")
    how = {"target": "state", "weight": "people", "estimator": crcen.CRCENClassifierCV(cv=2, **QUICK), "n_refits": 0}
    weighted = rows.assign(people=np.where(rows["state"] == "ill", 50, 1))
    assert "well is the positive class because it is rarer by people" in " ".join(fit_table(weighted, **how).notes)
    with pytest.raises(crcen.InvalidInput, match=r"^weight must name .* above 0: people is 0 in every row"):
        fit_table(rows.assign(people=0), **how)


CLASSES = ["broken", "fine", "worn"]
WANTED = CostMatrix([[0, 40, 10, 3], [1, 0, 1, 0.5], [2, 5, 0, 1]], labels=CLASSES, actions=["inspect"])
ROWS = [
    ["", "fine", "worn", "broken", "inspect"],
    ["fine", 0, 1, 1, 0.5],
    ["worn", 5, 0, 2, 1],
    ["broken", 40, 10, 0, 3],
]


def cost_text(separator=",", decimal=".", end="\n", rows=ROWS):
    cells = [[str(cell).replace(".", decimal) for cell in row] for row in rows]
    return end.join(separator.join(row) for row in cells) + end


@pytest.mark.parametrize(
    "raw",
    [
        cost_text().encode(),
        cost_text(";", ",").encode("utf-8-sig"),
        cost_text("\t", ",", "\r\n").encode("utf-16"),
        cost_text("|").replace("fine", " fine ").encode(),
        ("\n" + cost_text() + "\n,,,,\n").encode(),
        cost_text().replace("fine", "FINE").encode(),
        cost_text().replace(",0,", ",,").encode(),  # the diagonal left empty
        cost_text(rows=[row[:1] + [f"€ {cell}" for cell in row[1:]] if row[0] else row for row in ROWS]).encode(),
    ],
)
def test_one_matrix_however_it_is_written(tmp_path, raw):
    (tmp_path / "costs.csv").write_bytes(raw)
    assert costs_from(tmp_path / "costs.csv", CLASSES) == WANTED


def test_excel_and_data_frames(tmp_path):
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append([None if cell == "" else cell for cell in row])
    book.active.append([None])
    book.save(tmp_path / "costs.xlsx")
    assert costs_from(tmp_path / "costs.xlsx", CLASSES) == WANTED
    frame = pd.DataFrame([row[1:] for row in ROWS[1:]], columns=ROWS[0][1:], index=[row[0] for row in ROWS[1:]])
    for own in (frame, frame.rename_axis("fine")):
        assert costs_from(own, CLASSES) == WANTED


def test_labels_that_are_numbers(tmp_path):
    (tmp_path / "costs.csv").write_text("true,3,1,2\n1.0,9,0,4\n2,7,8,0\n3,0,5,6\n")
    found = costs_from(tmp_path / "costs.csv", [1, 2, 3])
    np.testing.assert_array_equal(found.costs, [[0, 4, 9], [8, 0, 7], [5, 6, 0]])
    assert found.labels == (1, 2, 3)
    assert costs_from(CostMatrix(found.costs, labels=["1", "2", "3"]), [1, 2, 3]) == found
    (tmp_path / "costs.csv").write_text("true,1,2\n1,-,4\n2,8,n/a\n")  # nothing on the diagonal
    assert costs_from(tmp_path / "costs.csv", [1, 2]).costs.tolist() == [[0.0, 4.0], [8.0, 0.0]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("fine,0,1,1,0.5", "fine,0,,1,0.5"), "worn decided where fine is true must be a number, 0 or more: got an"),
        (("fine,0,1,1,0.5", "fine,0,n/a,1,0.5"), "worn decided where fine is true must be a number, 0 or more"),
        (("40,10", "40,-10"), "of worn decided where broken is true must be a number, 0 or more: got '-10'"),
        (("40,10", "40,much"), "of worn decided where broken is true must be a number, 0 or more: got 'much'"),
        (("worn,5", "wron,5"), "must have a row for every class: none is called worn; did you mean the row wron?"),
        ((",worn,", ",wron,"), "a column for every class: none is called worn; did you mean the column wron?"),
        (("worn,5,0,2,1\n", ""), "must have a row for every class: none is called worn; it has fine, broken."),
        (("worn,5", "fine,5"), "must name every row and column, each by its own name: row 3 is called 'fine'"),
        ((",inspect", ",broken"), "duplicate column name in {folder}/costs.csv: broken."),
        (("worn,5,0,2,1", ",5,0,2,1"), "must name every row and column, each by its own name: row 3 is called ''"),
        ((",inspect", ","), "must name every row and column, each by its own name: column 5 is called ''"),
        (("broken,40", "other,1,1,1,1\nbroken,40"), "rows for the classes broken, fine, worn only: got other"),
    ],
)
def test_what_is_wrong_is_said_with_its_cell(tmp_path, change, sentence):
    (tmp_path / "costs.csv").write_text(cost_text().replace(*change))
    with pytest.raises(InvalidInput) as error:
        costs_from(tmp_path / "costs.csv", CLASSES)
    assert sentence.format(folder=tmp_path) in str(error.value)
    assert str(error.value).count(". ") == 0


def test_files_that_are_no_matrix(tmp_path):
    with pytest.raises(DataUnavailable, match="does not exist"):
        costs_from(tmp_path / "none.csv", CLASSES)
    for name in ("a.xlsx", "a.csv"):
        (tmp_path / name).write_text("fine\n")
        with pytest.raises(InvalidInput, match="must be a table of costs"):
            costs_from(tmp_path / name, CLASSES)
    with pytest.raises(InvalidParameter, match="got int"):
        costs_from(3, CLASSES)
