"""From a file to decisions by commands: what is printed, goals, how it exits, and what is left behind."""

import json
import os
import re

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands.demo import demo
from crcen.commands.fit import QUICK


def draw(n, seed):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=n), rng.choice(["a", "b", "c"], n)
    bad = rng.random(n) < 1 / (1 + np.exp(2.2 - 1.5 * x - (kind == "c")))
    frame = pd.DataFrame({"ticket": np.arange(n), "x": x.round(3), "kind": kind, "bad": np.where(bad, "yes", "no")})
    return frame.assign(day=pd.date_range("2024-01-01", periods=n).strftime("%d/%m/%Y"), who=np.arange(n) // 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """train.csv, test.csv and model.crcen of a quick fit."""
    home = tmp_path_factory.mktemp("tables")
    draw(400, 0).to_csv(home / "train.csv", index=False)
    draw(200, 1).to_csv(home / "test.csv", index=False)
    search = crcen.CRCENClassifierCV(hidden=(3,), l2=1e-2, max_epochs=3, encoding="standard")
    how = {"weighting": crcen.Budget(5), "drop": ["day", "who"], "estimator": search, "out": home / "model.crcen"}
    crcen.fit_table(home / "train.csv", target="bad", **how)
    return home


def test_three_commands_from_a_file_to_a_report(printed, folder, tmp_path):
    model, scored, report = (tmp_path / name for name in ("m.crcen", "scored.csv", "report.html"))
    how = ("--target", "bad", "--budget", 5, "--quick", "--details", "--out", model)
    out = printed("fit", folder / "train.csv", *how)
    for part in ("400 rows held out of training: found", "ticket", "row number", "budget, cost ratio  5"):
        assert part in out
    assert "key equation" in out
    assert f"saved to {model}" in out
    assert "200 rows" in printed("predict", model, folder / "test.csv", "--out", scored, "--id", "ticket")
    assert pd.read_csv(scored).columns.tolist() == ["ticket", "probability", "decision"]
    printed("report", model, folder / "test.csv", "--out", report)
    assert "<html" in report.read_text()
    assert sorted(os.listdir(tmp_path)) == ["m.crcen", "report.html", "scored.csv"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (draw(60, 0).drop(columns="bad").to_csv(index=False), "the target must be a column of a.csv: got 'bad'"),
        ("x,x,bad\n1,2,yes\n", "use --rename-duplicates."),
        ("", "is empty"),
        ("x,bad\n", "has no row with a value of bad"),
        ("1,2\n3,4\n", "must hold column names"),
    ],
    ids=["no target", "double names", "empty", "only names", "no names"],
)
def test_files_that_cannot_be_fitted_are_one_sentence(refusal, tmp_path, content, said):
    (tmp_path / "a.csv").write_text(content)
    err = refusal("fit", tmp_path / "a.csv", "--target", "bad", "--out", tmp_path / "m.crcen")
    assert said in err
    assert "--the" not in err
    assert os.listdir(tmp_path) == ["a.csv"]


def test_info(answer, printed, folder):
    assert answer("info", folder / "model.crcen")["model"] == "TableClassifier"
    installed = answer("info")
    assert (installed["crcen"], installed["packages"]["numpy"]) == (crcen.__version__, np.__version__)
    assert "networks are trained on" in printed("info")


def test_places_that_are_not_there(refusal, folder, tmp_path):
    model, test = folder / "model.crcen", folder / "test.csv"
    for arguments, said in (
        (("fit", tmp_path, "--target", "y"), "no file in the folder"),
        (("fit", tmp_path / "no.csv", "--target", "y"), "does not exist"),
        (("predict", tmp_path / "no.crcen", test, "--out", tmp_path / "a.csv"), "does not exist"),
        (("predict", test, test, "--out", tmp_path / "a.csv"), "is not a model file of crcen"),
        (("predict", model, test, "--out", tmp_path / "no" / "a.csv"), "create it first"),
        (("predict", model, test, "--out", tmp_path / "a.ods"), ".csv, .tsv, .parquet or .xlsx"),
        (("predict", model, test, "--out", tmp_path / "a.xlsx", "--safe-csv"), "--safe-csv is for text tables"),
        (("predict", model, test, "--out", tmp_path / "a.csv", "--append"), "--append is for tables of databases"),
        (("evaluate", model, test, "--target", "baad"), "did you mean bad?"),
        (("info", test), "is not a model file of crcen"),
    ):
        assert said in refusal(*arguments)
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_over_what_is_read(refusal, folder, tmp_path):
    before = {name: (folder / name).read_bytes() for name in ("train.csv", "test.csv", "model.crcen")}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    train, test, model = (tmp_path / name for name in before)
    link = tmp_path / "link.csv"
    link.symlink_to(test)
    for arguments in (
        ["fit", train, "--target", "bad", "--quick", "--out", train],
        ["predict", model, test, "--out", test],
        ["predict", model, test, "--out", link],
        ["predict", model, train, test, "--out", test],
        ["predict", model, tmp_path / "t*.csv", "--out", test],
        ["predict", model, test, "--costs", train, "--out", train],
        ["report", model, test, "--out", test],
        ["report", model, test, "--out", model],
        ["export", model, "--onnx", model],
        ["serve", model, "--log", model],
    ):
        assert "it is the file that is read; give another name" in refusal(*arguments)
    page = tmp_path / "page.html"
    for arguments, both in (
        (["fit", train, "--target", "bad", "--out", page, "--report", page], "--out and --report"),
        (["fit", train, "--target", "bad", "--onnx", page, "--report", page], "--onnx and --report"),
        (["monitor", model, test, "--state", page, "--page", page], "--state and --page"),
    ):
        assert f"{both} must be two files: got {page} twice" in refusal(*arguments)
    for arguments in (
        ["report", model, test, "--out", tmp_path / "page.json"],
        ["monitor", model, test, "--page", tmp_path / "page.json"],
        ["demo", "--out", tmp_path / "page.json"],
    ):
        assert f"{arguments[-2]} must be an HTML page: got {arguments[-1]}." in refusal(*arguments)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content


def test_onnx_asked_for_with_the_fit(answer, refusal, folder, tmp_path, tmp_path_factory, monkeypatch):
    """A column of free text, which ONNX cannot carry, is refused before anything is trained."""
    frame, path = pd.read_csv(folder / "train.csv"), tmp_path_factory.mktemp("texts") / "train.csv"
    frame.assign(note=[f"words {i} and {i * 7919 % 1000} more" for i in range(len(frame))]).to_csv(path, index=False)
    how = ("fit", path, "--target", "bad", "--quick", "--out", tmp_path / "m.crcen", "--onnx", tmp_path / "m.onnx")
    with monkeypatch.context() as patched:
        patched.setattr(crcen.CRCENClassifierCV, "fit", lambda *_, **__: pytest.fail("a fit was begun"))
        assert "--drop note" in refusal(*how)
    assert (os.listdir(tmp_path), answer(*how, "--drop", "note")["onnx"]) == ([], str(tmp_path / "m.onnx"))
    assert sorted(os.listdir(tmp_path)) == ["m.crcen", "m.onnx"]


@pytest.mark.usefixtures("small_files")
def test_a_disk_that_takes_no_more_is_one_line(refusal, folder, tmp_path):
    err = refusal("predict", folder / "model.crcen", folder / "test.csv", "--out", tmp_path / "scored.csv")
    assert "was not written: File too large" in err
    assert os.listdir(tmp_path) == []


def test_the_demonstration_tells_the_whole_story(printed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small, found = crcen.CRCENClassifierCV(hidden=(3,), l2=1e-2, max_epochs=2, n_members=1), []

    def small_demo(out, verbose):
        found.append(demo(out, estimator=small))
        return found[0]

    monkeypatch.setattr("crcen.commands.demo.demo", small_demo)
    out = printed("demo")
    for part in ("1. Fit", "2. Evaluate", "3. Report", "recall", "report.html"):
        assert part in out
    assert os.listdir(tmp_path) == ["report.html"]
    fit, evaluation = found[0].fit, found[0].evaluation
    assert (fit.n_rows + evaluation.n_rows, fit.model.weighting_.cost_ratio) == (4177, pytest.approx(10))
    assert set(json.loads(json.dumps(found[0].to_dict(), allow_nan=False))) == {"fit", "evaluation", "report"}


@pytest.fixture
def predict(folder, tmp_path):
    return ("predict", folder / "model.crcen", folder / "test.csv", "--out", tmp_path / "s.csv")


@pytest.mark.parametrize("name", ["--top", "--capacity"])
def test_the_riskiest_rows_by_either_name(answer, predict, tmp_path, name):
    found = answer(*predict, name, 12)
    assert (found["alarms"], found["goal"]["goal"]) == (12, "at most 12 alarms")
    assert (pd.read_csv(tmp_path / "s.csv")["decision"] == "yes").sum() == 12


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--top", 5, "--budget", 3), 2, "--top and --budget both state the price"),
        (("--budget", 3, "--capacity=5"), 2, "--capacity and --budget both state the price"),
        (("--top", "many"), 2, "--top must be a whole number of alarms, such as 200, 20/day, 100/week or 5/1000"),
        (("--capacity", "many"), 2, "--capacity must be a whole number of alarms"),
        (("--confidence", 0.9), 2, "--confidence must go with --recall"),
        (("--review", "2"), 2, "--review must be two prices"),
        (("--top=0",), 2, "--top must be a whole number of at least 1"),
        (("--top", "3/day"), 2, "needs --time"),
        (("--recall", 90), 2, "--recall must be a share above 0 and at most 1, got 90: did you mean 0.9"),
        (("--recall", 0.9, "--confidence", 0.95), 2, "name their file with --held-out"),
        (("--review", "30,2"), 2, "low of --review must be below"),
        (("--alarm-cost", 3), 2, "--alarm-cost must go with --cost-column"),
        (("--review", "2,30", "--cost-column", "x"), 2, "--review and --cost-column both decide which rows are alarms"),
        (("--prevalence", 2), 2, "--prevalence must be a share"),
        (("--cost-column", "x", "--alarm-cost", -3), 2, "--alarm-cost must be a finite number above 0"),
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
    command = ("evaluate", folder / "model.crcen", folder / "test.csv", "--resamples", 40, f"--{option}", value)
    is_floor, sentence = option != "capacity", f"new rows miss this {option} in "
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
    model, train, out = (places / name for name in ("model.crcen", "train.csv", "out.csv"))
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
    assert pd.read_csv(out)["decision"].astype(str).tolist() == names[(p * [9, 1, 2]).argmax(axis=1)].tolist()


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        (("--weighting", "fine=1"), 2, "every value of state needs a weight: 3, worn out have none"),
        (("--weighting", "fien=1"), 2, "values of state, 3, fine, worn out: got 'fien'"),
        (("--weighting", "much"), 2, "--weighting must be balanced, none, or"),
        (("--weighting", "none", "--budget", 3), 2, "both state the price"),
        (("--costs", "nothing.csv"), 1, "nothing.csv does not exist"),
        (("--learner", "xyz"), 2, "--learner must be one of committee"),
        (("--review", "2,30"), 2, "fit has no --review: it is an option of predict, evaluate, report."),
        (("--min-recall", 1), 2, "fit has no --min-recall: it is an option of evaluate."),
        (("--quik",), 2, "No such option: --quik"),
        (("--drop", "nothing"), 2, "--drop names columns that do not exist"),
        (("--target", "nothing"), 2, "the target must be a column of"),
        (("--target", "b"), 1, "must have at most 50 different values: got 300 ("),
    ],
)
def test_what_fit_refuses(refusal, places, options, code, sentence):
    assert sentence in refusal("fit", places / "train.csv", "--target", "state", "--quick", *options, code=code)


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
    assert "both state the price" in err


def test_reasons_for_a_class(printed, places, model_file):
    predict = ("predict", model_file, places / "train.csv", "--out", places / "why.csv")
    text = printed(*predict, "--reasons", 2)
    assert "Reasons for 300 rows, in log-odds of a class against the most probable other class" in text
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
