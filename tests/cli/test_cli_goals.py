"""Goals by options of the command: what they say, and what they refuse."""

import json

import numpy as np
import pandas as pd
import pytest

import crcen


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.csv, test.csv and a quick model of them."""
    home = tmp_path_factory.mktemp("goals")
    X, rng = np.random.default_rng(0).normal(size=(600, 3)), np.random.default_rng(1)
    bad = rng.random(600) < 1 / (1 + np.exp(1.5 - X @ [1.0, 1.0, 0.0]))
    day = pd.date_range("2024-01-01", periods=600, freq="h")
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(bad=bad.astype(int), day=day)
    frame[:400].to_csv(home / "train.csv", index=False)
    frame[400:].to_csv(home / "test.csv", index=False)
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-2, cv=2)
    fit = crcen.fit_table(home / "train.csv", target="bad", weighting=crcen.Budget(5), drop=["day"], estimator=search)
    crcen.save(fit.model, home / "model.crcen")
    return home


@pytest.fixture
def predict(folder, tmp_path):
    return ("predict", folder / "model.crcen", folder / "test.csv", "--out", tmp_path / "s.csv")


@pytest.mark.parametrize("name", ["--top", "--capacity"])
def test_the_riskiest_rows_by_either_name(answer, predict, tmp_path, name):
    found = answer(*predict, name, 12)
    assert (found["alarms"], found["goal"]["goal"]) == (12, "at most 12 alarms")
    assert (pd.read_csv(tmp_path / "s.csv")["decision"] == 1).sum() == 12


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--top", 5, "--budget", 3), 2, "--capacity and --budget both say where alarms begin"),
        (("--recall", 0.9, "--precision", 0.5), 2, "--recall and --precision both say"),
        (("--top", "many"), 2, "such as 200, 20/day, 100/week or 5/1000"),
        (("--top", "5/month"), 2, "got '5/month'"),
        (("--confidence", 0.9), 2, "--confidence must go with --recall"),
        (("--review", "2"), 2, "--review must be two prices"),
        (("--top", 0), 1, "--capacity must be a whole number of at least 1"),
        (("--top", "3/day"), 1, "needs --time"),
        (("--recall", 90), 1, "--recall must be a share above 0 and at most 1, got 90: did you mean 0.9"),
        (("--recall", 0.9, "--confidence", 0.95), 1, "name their file with --held-out"),
        (("--review", "30,2"), 1, "low of --review must be below"),
        (("--alarm-cost", 3), 1, "--alarm-cost must go with --cost-column"),
        (("--review", "2,30", "--cost-column", "a"), 1, "--review and --cost-column both decide which rows are alarms"),
        (("--prevalence", 2), 1, "--prevalence must be a share"),
    ],
)
def test_refusals_speak_of_options(refusal, predict, options, code, sentence):
    assert sentence in refusal(*predict, *options, code=code)


def test_a_guarantee_from_a_file_of_labelled_rows(printed, refusal, predict, folder):
    held_out = ("--held-out", folder / "test.csv")
    said = "recall of at least 0.5 with confidence 0.9"
    assert said in printed(*predict, "--recall", 0.5, "--confidence", 0.9, *held_out)
    said = "needs at least 299 positive rows"
    assert said in refusal(*predict, "--recall", 0.99, "--confidence", 0.95, *held_out)


@pytest.mark.parametrize(("option", "value"), [("precision", 0.5), ("recall", 0.8), ("capacity", 20)])
def test_a_goal_without_a_confidence_says_how_often_it_is_missed(crcen_command, folder, option, value):
    command = ("evaluate", folder / "model.crcen", folder / "test.csv", "--resamples", 20, f"--{option}", value)
    is_floor, sentence = option != "capacity", f"new rows miss this {option} in 50 to "
    assert (sentence in crcen_command(*command)[1]) is is_floor
    stated = json.loads(crcen_command(*command, "--json")[1])["chosen"]["misses"]
    assert stated.startswith(sentence) if is_floor else stated is None
    if option == "recall":
        assert sentence not in crcen_command(*command, "--confidence", 0.8)[1]


def test_a_fit_takes_a_goal_and_writes_its_report(answer, printed, refusal, folder, tmp_path):
    fit = ("fit", folder / "train.csv", "--target", "bad", "--out", tmp_path / "m.crcen")
    quick = (*fit, "--drop", "day", "--quick")
    found = answer(*quick, "--recall", 0.8, "--report", tmp_path / "r.html")
    assert (found["goal"], found["out_of_fold"]["recall"] >= 0.8) == ("recall of at least 0.8", True)
    assert "out of fold" in (tmp_path / "r.html").read_text()
    stated = "--recall 0.8 is for tables in memory, not for --engine stream: state a price."
    assert refusal(*fit, "--engine", "stream", "--recall", 0.8) == f"crcen: {stated}"
    said = printed(*quick, "--capacity", 30, "--details")
    assert "the price is where the goal is met" in " ".join(said.split())  # so its equation was not closed
    assert "later rows" not in said


def test_an_evaluation_fails_with_3(crcen_command, printed, refusal, folder):
    asked = ("evaluate", folder / "model.crcen", folder / "test.csv", "--resamples", 0)
    code, out, _ = crcen_command(*asked, "--min-recall", 0.999)
    assert (code, "Failed: recall is" in out) == (3, True)
    printed(*asked, "--min-recall", 0.01, "--fail-on", "CRC008")
    stated = "--fail-on must name checks of the report, CRC001 to CRC011, or any: got CRC99."
    assert refusal(*asked, "--fail-on", "CRC99") == f"crcen: {stated}"
