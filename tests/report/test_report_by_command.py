"""`crcen report` on rows as they come: refusals in one sentence, and memory that long cells do not fill."""

import json
import tracemalloc

import numpy as np
import pandas as pd
import pytest

import crcen


def notes(n, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    words = [f"call {i} {rng.choice(['late', 'early', 'lost'])}" for i in range(n)]
    bad = rng.random(n) < 1 / (1 + np.exp(2.0 - x))
    return pd.DataFrame({"x": x.round(4), "note": words, "bad": np.where(bad, "yes", "no")})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A model of a number and a text column, and rows for it."""
    folder = tmp_path_factory.mktemp("report")
    search = crcen.CRCENClassifierCV(hidden=(), l2=1e-2, max_epochs=3, encoding="standard", n_members=1)
    fit = crcen.fit_table(notes(600, 0), target="bad", weighting=crcen.Budget(5), estimator=search)
    assert [column.kind for column in fit.model.columns_] == ["number", "text"]
    crcen.save(fit.model, folder / "model.crcen")
    return folder


def test_one_long_cell_does_not_cost_its_length_for_every_row(home, tmp_path):
    """5,000 rows and one cell of 20,000 characters: as an array of fixed width that is 400 MB."""
    rows = notes(5000, 1)
    rows.loc[7, "note"] = "x" * 20_000
    rows.to_csv(tmp_path / "rows.csv", index=False)
    model = crcen.load(home / "model.crcen")
    crcen.report_table(model, tmp_path / "rows.csv", out=tmp_path / "warm.html")
    tracemalloc.start()
    done = crcen.report_table(model, tmp_path / "rows.csv", out=tmp_path / "report.html")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert done.n_rows == 5000
    assert peak < 100e6


def sentence(outcome):
    code, out, err = outcome
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert err.startswith("crcen: ")
    return err


@pytest.mark.parametrize("command", ["report", "evaluate"])
def test_what_cannot_be_judged_is_refused_in_one_sentence(crcen_command, home, tmp_path, command):
    rows, path = notes(200, 2), tmp_path / "rows.csv"

    def refusal(frame):
        frame.to_csv(path, index=False)
        out = ("--out", tmp_path / "report.html") if command == "report" else ()
        return sentence(crcen_command(command, home / "model.crcen", path, *out))

    lacks = refusal(rows.drop(columns="x"))
    assert "lacks 1 of the 2 columns that the model needs: x" in lacks
    assert "needs rows of both classes" in refusal(rows[rows["bad"] == "no"])
    assert "must hold the labels of training, no, yes: got maybe" in refusal(rows.assign(bad="maybe"))
    assert "rows.csv has no row with a value of bad" in refusal(rows.assign(bad=None))
    assert "no row" in refusal(rows.iloc[:0])
    assert "the target must be a column of rows.csv: got 'bad'" in refusal(rows.drop(columns="bad"))
    assert not (tmp_path / "report.html").exists()


def test_an_input_of_the_model_is_no_target(crcen_command, home, tmp_path):
    notes(200, 2).assign(x=lambda rows: rows["bad"]).to_csv(tmp_path / "rows.csv", index=False)
    asked = ("evaluate", home / "model.crcen", tmp_path / "rows.csv", "--target", "x")
    assert "a column that the model decides by: got x; that of training was bad" in sentence(crcen_command(*asked))


@pytest.mark.parametrize("n_positive", [1, 9])
def test_a_handful_of_rows_is_never_accused(crcen_command, home, tmp_path, n_positive):
    """Positives with the lowest scores of all, so that every figure is as bad as it gets."""
    rows = pd.DataFrame({"x": -3.0, "note": "call", "bad": ["yes"] * n_positive + ["no"]})
    rows.loc[n_positive, "x"] = 0.0
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = (home / "model.crcen", tmp_path / "rows.csv")
    code, out, _ = crcen_command("report", *asked, "--out", tmp_path / "r.html", "--json")
    found = {one["code"]: one["status"] for one in json.loads(out)["findings"]}
    assert code == 0
    assert {found[f"CRC00{number}"] for number in (5, 6, 7, 9)} == {"unknown"}
    assert found["CRC001"] == "warning"
    if n_positive == 1:
        assert {found["CRC003"], found["CRC004"]} <= {"passed"}
    judged = json.loads(crcen_command("evaluate", *asked, "--json")[1])
    assert judged["key_equation"]["verdict"] == "not tested"


def test_cells_that_are_no_numbers_count_as_missing(crcen_command, home, tmp_path):
    rows = notes(200, 3).astype({"x": object})
    rows.loc[:9, "x"] = "n.n."
    rows.to_csv(tmp_path / "rows.csv", index=False)
    asked = ("report", home / "model.crcen", tmp_path / "rows.csv", "--out", tmp_path / "r.html")
    code, out, err = crcen_command(*asked, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["rows"] == 200


def test_a_model_of_numbers_takes_numbers_written_as_text(crcen_command, tmp_path):
    rows = notes(400, 4)
    model = crcen.CRCENClassifier(crcen.Budget(5), hidden=(), random_state=0).fit(rows[["x"]], rows["bad"])
    crcen.save(model, tmp_path / "model.crcen")
    notes(400, 5)[["bad", "x"]].to_csv(tmp_path / "rows.csv", index=False)
    asked = ("report", tmp_path / "model.crcen", tmp_path / "rows.csv", "--target", "bad", "--out", tmp_path / "r.html")
    code, out, err = crcen_command(*asked, "--json")
    assert (code, err) == (0, "")
    assert {one["code"]: one["status"] for one in json.loads(out)["findings"]}["CRC006"] == "passed"
    notes(400, 5).assign(x="high").to_csv(tmp_path / "rows.csv", index=False)
    assert "the model takes numbers: column x holds other values" in sentence(crcen_command(*asked))
