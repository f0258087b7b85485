"""A new part is one entry: a member, a check, a goal and a metric are planted, used by commands, and removed."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

import crcen
from crcen.commands.monitor import EXPECTED_METRICS, ExpectedMetric
from crcen.models.members.forest import Forest
from crcen.models.members.registry import MEMBERS
from crcen.report.checks import CHECKS, check
from crcen.report.quality import METRICS, Metric
from crcen.theory import goals
from crcen.theory.intervals import Interval


@pytest.fixture
def files(mixed_table, new, tmp_path):
    """Rows to fit, new rows, and a place for the model."""
    mixed_table().to_csv(tmp_path / "data.csv", index=False)
    new.to_csv(tmp_path / "new.csv", index=False)
    return tmp_path / "data.csv", tmp_path / "new.csv", tmp_path / "m.crcen"


def test_a_member_is_one_class_and_one_entry(files, monkeypatch, crcen_command):
    class Grove(Forest):
        name = "grove"

    monkeypatch.setitem(MEMBERS, "grove", Grove())
    data, new, model = files
    code, out, err = crcen_command("fit", data, "--target", "bad", "--learner", "grove", "--out", model, "--json")
    assert (code, json.loads(out)["leaderboard"][0]["name"]) == (0, "grove"), err
    monkeypatch.undo()
    assert crcen.predict_table(model, new).frame["probability"].nunique() > 50  # the file has arrays alone


def test_a_check_is_one_function(files, model_file, crcen_command, tmp_path):
    how = {"tested": "number of rows", "title": "few rows", "limit": "fewer than 300", "advice": "Get more."}
    check("CRC099", **how)(lambda evidence: (evidence.n_rows < 300, f"{evidence.n_rows} rows"))
    try:
        code, out, _ = crcen_command("evaluate", model_file, files[1], "--fail-on", "CRC099", "--json")
        page = crcen.report_table(model_file, files[1], out=tmp_path / "r.html")
    finally:
        del CHECKS["CRC099"]
    assert (code, page.findings[-1].sentence) == (3, "few rows: 250 rows. Get more.")
    assert "CRC099" in out
    assert "few rows" in (tmp_path / "r.html").read_text()


def plant_goal():
    @dataclass(frozen=True)
    class AlarmRate(goals.ThresholdGoal):
        share: float
        name: ClassVar[str] = "alarm_rate"
        statement: ClassVar[goals.Statement] = goals.Statement("At most this share of rows with an alarm.")

        def __str__(self):
            return f"alarms on at most {self.share:g} of the rows"

        def cuts(self, totals):
            return totals.last(totals.alarm_share <= self.share)

    return AlarmRate


def test_a_goal_is_one_class(files, small_search, tmp_path):
    (data, new, model), kind = files, plant_goal()
    assert goals.GOALS[type("Own", (kind,), {}).name] is kind  # a subclass is no other goal
    try:
        fit = crcen.fit_table(data, target="bad", estimator=small_search, weighting=kind(0.2), out=model)
        assert crcen.load(model).estimator.weighting == fit.goal == kind(0.2)
        assert crcen.predict_table(model, new, weighting=kind(0.1)).n_alarms == 25
        with pytest.raises(crcen.InvalidParameter, match="no threshold has alarms on at most 0 of the rows"):
            crcen.decide([0.2, 0.4], kind(0.0))
    finally:
        del goals.GOALS["alarm_rate"]
    assert fit.to_dict()["goal"] == "alarms on at most 0.2 of the rows"
    script = "import sys, test_extension_points as test; test.plant_goal(); from crcen.cli import main; main()"
    for command, key in ((["predict", "--out", tmp_path / "scored.csv"], "goal"), (["evaluate"], "chosen")):
        call = [sys.executable, "-c", script, *command, model, new, "--alarm-rate", "0.1", "--json"]
        done = subprocess.run(call, capture_output=True, text=True, check=False, cwd=Path(__file__).parent)
        assert json.loads(done.stdout)[key]["goal"] == "alarms on at most 0.1 of the rows", done.stderr
    with pytest.raises(crcen.InvalidInput, match="AlarmRate"):
        crcen.load(model)


def test_a_metric_is_one_entry(model_file, new, monkeypatch):
    monkeypatch.setitem(METRICS, "wins", Metric("share of wins", lambda sample: sample.counts.accuracy))
    monkeypatch.setitem(EXPECTED_METRICS, "wins", ExpectedMetric("wins", lambda rows: Interval(0.5, 0.4, 0.6)))
    found, watch = crcen.evaluate_table(model_file, new, n_resamples=40), crcen.monitor_table(model_file, new)
    assert found.to_dict()["metrics"]["wins"]["value"] == found.to_dict()["accuracy"]
    assert "  share of wins " in str(found)
    assert watch.to_dict()["expected"]["wins"]["value"] == 0.5
    assert "wins 0.50 (0.40 to 0.60" in str(watch)
