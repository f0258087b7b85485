"""Rows that count by weight: models that learnt from such, judged and watched with the weights and without."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import crcen
from crcen import Budget, CRCENClassifierCV, InvalidInput, evaluate_table, fit_table, monitor_table, report_table
from crcen.cli import app
from crcen.theory.decision import weighted_probability

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
    search = CRCENClassifierCV(cv=3, **QUICK)
    options = {"target": "state", "positive": "ill", "weighting": Budget(4), "weight": "people", "drop": ["scored"]}
    fit_table(table(1500, 0), **options, estimator=search, n_refits=0, out=path)
    return path


def test_an_evaluation_without_the_weights_says_what_is_lacking(model):
    without = evaluate_table(model, table(1500, 1), n_resamples=0)
    assert any("name the column people as their weight" in note for note in without.notes)
    with_them = evaluate_table(model, table(1500, 1), weight="people", n_resamples=0)
    assert not any("as their weight" in note for note in with_them.notes)
    assert abs(with_them.equation.z) < 3 < abs(without.equation.z)


def test_the_report_judges_the_share_by_weight(model, tmp_path):
    new = table(1500, 2)
    found = {}
    for times in (1, 1000):
        own = new.assign(people=new.people.astype(float) * times)
        report = report_table(model, own, weight="people", out=tmp_path / "r.html", review=(2, 20))
        found[times] = next(one for one in report.findings if one.code == "CRC004")
    # Weights in another unit are the same weights.
    assert found[1].measured == found[1000].measured
    assert found[1].status == "passed"
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
    assert not any("as their weight" in note for note in watch.notes)
    without = monitor_table(model, rows)
    assert without.is_alarm
    assert any("name the column people as their weight" in note for note in without.notes)
    assert abs(watch.reading.drift) < 0.5 < abs(without.reading.drift)


def test_a_watch_holds_labels_back_until_their_cohort_is_complete(model, tmp_path):
    rows, state = table(1000, 4), tmp_path / "watch.json"
    options = {"weight": "people", "state": state, "cohort": "scored"}
    # Positives of the last five days are known, and none of the negatives.
    first = rows[(rows.scored < "2024-05-06") | (rows.state == "ill")]
    watch = monitor_table(model, first, delay=4, **options)
    is_complete = (first.scored < "2024-05-06").sum()
    assert watch.n_labelled == len(first)
    assert watch.n_held == len(first) - is_complete
    assert watch.reading.n_rows == is_complete
    assert "labelled rows wait until their cohort is complete" in str(watch)
    late = rows[~rows.index.isin(first.index)]
    watch = monitor_table(model, late.assign(scored=late.scored.astype(str)), now="2024-05-20", **options)
    assert (watch.n_held, watch.reading.n_rows) == (0, len(rows))
    assert not watch.alarms  # the columns of rows that came first are another matter
    for change, sentence in (
        ({"delay": 3}, "delay must not change in a watch that was started with a delay of 4"),
        ({"cohort": None}, "cohort must name the column of days or weeks"),
        ({"cohort": "state"}, "cohort must name a column of numbers or dates of one format"),
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
    assert direct.history[None][-1].drift == pytest.approx(watch.reading.drift, abs=1e-9)


def test_weights_that_turn_the_rarer_class_around_are_said(tmp_path):
    rows = table(400, 3).drop(columns="scored")
    rows["people"] = np.where(rows["state"] == "ill", 50, 1)
    options = {"target": "state", "weight": "people", "estimator": CRCENClassifierCV(cv=2, **QUICK), "n_refits": 0}
    found = fit_table(rows, **options)
    assert found.model.pos_label_ == "well"
    assert "well is the positive class because it is rarer by people" in " ".join(found.notes)
    assert "looked for" not in " ".join(fit_table(rows, positive="well", **options).notes)
    with pytest.raises(InvalidInput, match=r"^weight must name .* above 0: people is 0 in every row"):
        fit_table(rows.assign(people=0), **options)
