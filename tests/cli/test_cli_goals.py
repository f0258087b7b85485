"""Goals by options of the command: what they say, and what they refuse."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands.fit import QUICK


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


COSTS = ";fine;worn out;3;look\nfine;;1;1;0,2\nworn out;5;;1;0,2\n3;40;9;;0,2\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """train.csv with labels of text and a number, numbers with a currency, and costs.csv."""
    home, rng = tmp_path_factory.mktemp("classes"), np.random.default_rng(0)
    kind = np.concatenate([np.arange(3).repeat(4), rng.choice(3, 288, p=[0.7, 0.2, 0.1])])
    amount = [f"€ {10 + value:.2f}" for value in kind + rng.normal(size=300)]
    state = np.array(["fine", "worn out", "3"])[kind]
    frame = pd.DataFrame({"amount": amount, "b": rng.normal(size=300), "state": state})
    frame.to_csv(home / "train.csv", index=False)
    (home / "costs.csv").write_text(COSTS)
    return home


@pytest.fixture(scope="module")
def model_file(places):
    """A model of these rows at these costs."""
    options = {"costs": places / "costs.csv", "estimator": crcen.CRCENClassifierCV(**QUICK)}
    crcen.fit_table(places / "train.csv", target="state", **options, out=places / "own.crcen")
    return places / "own.crcen"


def test_fit_then_predict(answer, printed, places):
    model, train, out = (
        places / "model.crcen",
        places / "train.csv",
        places / "out.csv",
    )
    costs = ("--costs", places / "costs.csv")
    fitted = answer("fit", train, "--target", "state", "--quick", *costs, "--out", model)
    held_out = fitted["out_of_fold"]
    assert fitted["classes"] == ["3", "fine", "worn out"]
    assert held_out["decisions"] == ["3", "fine", "worn out", "look"]
    assert held_out["cost_per_row"]["value"] <= held_out["habit"]["cost_per_row"]
    assert np.sum(held_out["confusion"]) == 300
    found, written = answer("predict", model, train, "--out", out, "--id", "state"), pd.read_csv(out)
    assert list(written) == ["state", "decision", "probability_3", "probability_fine", "probability_worn out"]
    p = written.iloc[:, 2:].to_numpy()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    costs = np.array([[0, 40, 9, 0.2], [1, 0, 1, 0.2], [1, 5, 0, 0.2]])
    names = np.array(["3", "fine", "worn out", "look"])
    assert written["decision"].astype(str).tolist() == names[(p @ costs).argmin(axis=1)].tolist()
    assert found["expected_cost"] == pytest.approx((p @ costs).min(axis=1).sum())
    printed("predict", model, train, "--out", out, "--weighting", "fine=1,worn out=2,3=9")
    chosen = names[(p * [9, 1, 2]).argmax(axis=1)]
    assert pd.read_csv(out)["decision"].astype(str).tolist() == chosen.tolist()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--weighting", "fine=1"), 1, "every value of state needs a weight: 3, worn out have none"),
        (("--weighting", "fien=1"), 1, "values of state, 3, fine, worn out: got 'fien'; did you mean fine?"),
        (("--weighting", "much"), 2, "--weighting must be balanced, none, or"),
        (("--weighting", "none", "--budget", 3), 2, "both say what mistakes are worth"),
        (("--costs", "nothing.csv"), 1, "nothing.csv is not there"),
    ],
)
def test_what_fit_refuses(refusal, places, options, code, sentence):
    assert sentence in refusal("fit", places / "train.csv", "--target", "state", "--quick", *options, code=code)


def test_a_target_of_many_numbers(refusal, places):
    err = refusal("fit", places / "train.csv", "--target", "b", "--quick")
    assert "must have at most 50 different values: got 300 (" in err
    assert " and 292 more); name the one to find with --positive" in err


def test_a_report_at_other_costs(answer, printed, refusal, places, model_file):
    """The page decides as `evaluate` does at these costs, and says that they are not the model's own."""
    page, other = places / "report.html", places / "other.csv"
    rows = (model_file, places / "train.csv")
    printed("report", *rows, "--out", page)
    assert "Decisions at the model’s costs" in page.read_text(encoding="utf-8")
    other.write_text(";fine;worn out;3\nfine;0;2;2\nworn out;1;0;1\n3;1;1;0\n")
    printed("report", *rows, "--out", page, "--costs", other)
    assert "Decisions at the stated costs" in page.read_text(encoding="utf-8")
    cells = re.findall(r"<td class=\"(?:right)?\">([\d,]+)</td>", page.read_text(encoding="utf-8"))
    judged = answer("evaluate", *rows, "--costs", other)
    assert [int(cell.replace(",", "")) for cell in cells] == [int(n) for row in judged["confusion"] for n in row]
    err = refusal("report", *rows, "--out", page, "--weighting", "fine=1,worn out=2")
    assert err == "crcen: every value of state needs a weight: 3 has none."
    err = refusal("report", *rows, "--out", page, "--weighting", "none", "--costs", other, code=2)
    assert "both say what mistakes are worth" in err


def test_reasons_for_a_class(printed, refusal, places, model_file):
    predict = ("predict", model_file, places / "train.csv", "--out", places / "why.csv")
    text = printed(*predict, "--reasons", 2)
    assert "Reasons of 300 rows, in log-odds of a class against the likeliest other one" in text
    written = pd.read_csv(places / "why.csv", dtype={"decision": str})
    p = written[["probability_3", "probability_fine", "probability_worn out"]].to_numpy()
    names = np.array(["3", "fine", "worn out"])
    classes, rivals = written["reasons_for"].str.split(" rather than ", n=1, expand=True).to_numpy().T
    is_class = (written["decision"] != "look").to_numpy()
    assert 0 < is_class.sum() < 300
    np.testing.assert_array_equal(classes, np.where(is_class, written["decision"], names[p.argmax(axis=1)]))
    others = np.where(names == classes[:, None], -1, p)
    np.testing.assert_array_equal(rivals, names[others.argmax(axis=1)])
    assert written["reason_1"].str.contains(r"^(?:amount|b) .*: [+-][0-9.]+ log-odds$").all()
    err = refusal(*predict, "--background", places / "train.csv")
    assert err == "crcen: --background must go with --reasons, which states how many."
