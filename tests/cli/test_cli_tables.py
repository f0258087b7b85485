"""From a file to decisions by commands: what is printed, how it exits, and what is left behind."""

import json
import os
import signal

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen.commands.demo import demo


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
    for part in ("400 rows held out of training: found", "ticket", "numbers the rows", "budget, cost ratio  5"):
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
        (("fit", tmp_path, "--target", "y"), "no file at"),
        (("fit", tmp_path / "no.csv", "--target", "y"), "is not there"),
        (("predict", tmp_path / "no.crcen", test, "--out", tmp_path / "a.csv"), "is not there"),
        (("predict", test, test, "--out", tmp_path / "a.csv"), "is no model that crcen saved"),
        (("predict", model, test, "--out", tmp_path / "no" / "a.csv"), "create it first"),
        (("predict", model, test, "--out", tmp_path / "a.ods"), ".csv, .tsv, .parquet or .xlsx"),
        (("predict", model, test, "--out", tmp_path / "a.csv", "--budget", -3), "did you mean 3?"),
        (("predict", model, test, "--out", tmp_path / "a.xlsx", "--safe-csv"), "--safe-csv is for text tables"),
        (("predict", model, test, "--out", tmp_path / "a.csv", "--append"), "--append is for tables of databases"),
        (("evaluate", model, test, "--target", "baad"), "did you mean bad?"),
        (("info", test), "is no model that crcen saved"),
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
        ["report", model, test, "--out", test],
        ["report", model, test, "--out", model],
        ["export", model, "--onnx", model],
    ):
        assert "it is the file that is read; give another name" in refusal(*arguments)
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
    assert os.listdir(tmp_path) == []
    assert answer(*how, "--drop", "note")["onnx"] == str(tmp_path / "m.onnx")
    assert sorted(os.listdir(tmp_path)) == ["m.crcen", "m.onnx"]


def test_a_disk_that_takes_no_more_is_one_line(refusal, folder, tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        err = refusal("predict", folder / "model.crcen", folder / "test.csv", "--out", tmp_path / "scored.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
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
    assert fit.n_rows + evaluation.n_rows == 4177
    assert fit.model.weighting_.cost_ratio == pytest.approx(10)
    assert set(json.loads(json.dumps(found[0].to_dict(), allow_nan=False))) == {"fit", "evaluation", "report"}
