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
    fit = crcen.fit_table(
        home / "train.csv",
        target="bad",
        weighting=crcen.Budget(5),
        drop=["day", "who"],
        estimator=crcen.CRCENClassifierCV(hidden=(3,), l2=1e-2, max_epochs=3, encoding="standard"),
    )
    crcen.save(fit.model, home / "model.crcen")
    return home


def sentence(err):
    """The one line that a refusal prints."""
    assert err.count("\n") == 1
    assert err.startswith("crcen: ")
    return err


def test_three_commands_from_a_file_to_a_report(crcen_command, folder, tmp_path):
    model, scored, report = (tmp_path / name for name in ("m.crcen", "scored.csv", "report.html"))
    code, out, err = crcen_command(
        *("fit", folder / "train.csv", "--target", "bad", "--budget", 5, "--quick", "--details", "--out", model)
    )
    assert (code, err) == (0, "")
    for part in (
        "400 rows held out of training: found",
        "ticket",
        "numbers the rows",
        "budget, cost ratio  5",
        "key equation",
        f"saved to {model}",
    ):
        assert part in out
    code, out, err = crcen_command("predict", model, folder / "test.csv", "--out", scored, "--id", "ticket")
    assert (code, err) == (0, "")
    assert "200 rows" in out
    assert pd.read_csv(scored).columns.tolist() == ["ticket", "probability", "decision"]
    code, out, err = crcen_command("report", model, folder / "test.csv", "--out", report)
    assert (code, err) == (0, "")
    assert "<html" in report.read_text()
    assert sorted(os.listdir(tmp_path)) == ["m.crcen", "report.html", "scored.csv"]


def content(kind):
    frame = draw(60, 0)
    return {
        "no target": frame.drop(columns="bad").to_csv(index=False),
        "double names": "x,x,bad\n1,2,yes\n",
        "empty": "",
        "only names": "x,bad\n",
        "no names": "1,2\n3,4\n",
    }[kind]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("no target", "the target must be a column of a.csv: got 'bad'"),
        ("double names", "use --rename-duplicates."),
        ("empty", "is empty"),
        ("only names", "has no row with a value of bad"),
        ("no names", "must hold column names"),
    ],
)
def test_files_that_cannot_be_fitted_are_one_sentence(crcen_command, tmp_path, kind, said):
    path = tmp_path / "a.csv"
    path.write_text(content(kind))
    code, out, err = crcen_command("fit", path, "--target", "bad", "--out", tmp_path / "m.crcen")
    assert (code, out) == (1, "")
    assert said in sentence(err)
    assert "--the" not in err
    assert os.listdir(tmp_path) == ["a.csv"]


def test_info_as_json(crcen_command, folder):
    assert json.loads(crcen_command("info", folder / "model.crcen", "--json")[1])["model"] == "TableClassifier"
    assert json.loads(crcen_command("info", "--json")[1])["crcen"] == crcen.__version__


def test_places_that_are_not_there(crcen_command, folder, tmp_path):
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
        code, out, err = crcen_command(*arguments)
        assert (code, out) == (1, "")
        assert said in sentence(err)
    assert os.listdir(tmp_path) == []


def test_nothing_is_written_over_what_is_read(crcen_command, folder, tmp_path):
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
        code, _, err = crcen_command(*arguments)
        assert code == 1
        assert "it is the file that is read; give another name" in sentence(err)
    for name, content in before.items():
        assert (tmp_path / name).read_bytes() == content


@pytest.fixture
def texts(folder, tmp_path_factory):
    """A table with a column of free text, which ONNX cannot carry."""
    frame = pd.read_csv(folder / "train.csv")
    path = tmp_path_factory.mktemp("texts") / "train.csv"
    frame.assign(note=[f"words {i} and {i * 7919 % 1000} more" for i in range(len(frame))]).to_csv(path, index=False)
    return path


def test_onnx_asked_for_with_the_fit(crcen_command, texts, tmp_path, monkeypatch):
    out, graph = tmp_path / "m.crcen", tmp_path / "m.onnx"
    options = ["--target", "bad", "--quick", "--out", out, "--onnx", graph]
    with monkeypatch.context() as patched:  # texts are refused before anything is trained
        patched.setattr(crcen.CRCENClassifierCV, "fit", lambda *_, **__: pytest.fail("a fit was begun"))
        code, printed, err = crcen_command("fit", texts, *options)
    assert (code, printed) == (1, "")
    assert "--drop note" in sentence(err)
    assert os.listdir(tmp_path) == []
    code, printed, err = crcen_command("fit", texts, *options, "--drop", "note", "--json")
    assert (code, err) == (0, "")
    assert json.loads(printed)["onnx"] == str(graph)
    assert sorted(os.listdir(tmp_path)) == ["m.crcen", "m.onnx"]


def test_a_disk_that_takes_no_more_is_one_line(crcen_command, folder, tmp_path):
    resource = pytest.importorskip("resource", reason="this system has no such limit")
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        code, out, err = crcen_command(
            "predict", folder / "model.crcen", folder / "test.csv", "--out", tmp_path / "scored.csv"
        )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (code, out) == (1, "")
    assert "was not written: File too large" in sentence(err)
    assert os.listdir(tmp_path) == []


def test_the_demonstration(crcen_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    original = demo
    small = crcen.CRCENClassifierCV(hidden=(3,), l2=1e-2, max_epochs=2)
    monkeypatch.setattr("crcen.commands.demo.demo", lambda out, verbose: original(out, estimator=small))
    code, out, err = crcen_command("demo")
    assert (code, err) == (0, "")
    assert "3. Report" in out
    assert os.listdir(tmp_path) == ["report.html"]
