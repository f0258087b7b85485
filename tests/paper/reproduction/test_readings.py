"""The reading 2019 of Table 3: each cell by its own metric, methods as they were, both readings beside each other."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import crcen
from crcen.paper.methods import make_method
from crcen.paper.reproduction.published import published
from crcen.paper.reproduction.readings import compare_cells, compare_claims, compare_readings
from crcen.paper.reproduction.reproduce import read_settings, reproduce
from crcen.paper.reproduction.stand_ins import STAND_INS


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reading")
    own = folder / "own.toml"
    own.write_text(
        '[protocol]\nsets = ["abalone"]\nsplits = 1\nhidden = [4, 16]\nl2 = [1e-4, 1e-1]\nepochs = 4\n'
        '[table3]\nmethods = ["crcen", "rusboost"]\n'
    )
    return reproduce("table3", reading="2019", config=own, out=folder / "run")


def rows_of(run, name):
    import json

    return [json.loads(line) for line in (run.folder / name / "rows.jsonl").read_text().splitlines()]


def test_every_cell_is_selected_by_its_own_metric(run):
    (chosen,) = rows_of(run, "selection")
    best = {}
    for metric, table in (("f1", chosen["grid"]), ("g_mean", chosen["g_mean"]["grid"])):
        best[metric] = max(table, key=lambda one: one["score"])
    assert (chosen["hidden"], chosen["l2"]) == (best["f1"]["hidden"], best["f1"]["l2"])
    row = next(row for row in rows_of(run, "table3") if row["method"] == "crcen")
    assert (row["g_mean_hidden"], row["g_mean_l2"]) == (best["g_mean"]["hidden"], best["g_mean"]["l2"])
    # The cells are those of networks with these settings.
    data = crcen.load_dataset("abalone")
    settings = read_settings(False, None, "2019")["protocol"] | {"splits": 1, "epochs": 4}
    from crcen.paper.reproduction.protocol import splits

    split = splits(data, settings)[0]
    for metric, one in best.items():
        model = make_method("crcen", hidden=(one["hidden"],), l2=one["l2"], max_epochs=4, random_state=0)
        model.fit(data.X[split.train], data.y[split.train])
        counts = crcen.confusion_counts(data.y[split.test], model.predict(data.X[split.test]))
        assert row[metric] == pytest.approx(float(getattr(counts, metric)))


def test_rusboost_is_that_of_2019(run):
    row = next(row for row in rows_of(run, "table3") if row["method"] == "rusboost")
    assert row["estimators"] == 50
    forest = STAND_INS["balanced_rf"](random_state=0)
    assert (forest.bootstrap, forest.replacement, forest.sampling_strategy) == (True, False, "auto")


def test_readings_are_compared_with_the_published_cells():
    def rows(gap):
        return [
            {"method": "crcen", "dataset": name, "split": 0}
            | {metric: published("table3", "crcen", name, metric)[0] + gap for metric in ("f1", "g_mean")}
            for name in ("abalone", "scene")
        ]

    table = compare_readings({"today": rows(0.05), "2019": rows(-0.01)})
    for line in table.rows:
        assert line["today: mean absolute difference"] == "0.050"
        assert line["2019: mean absolute difference"] == "0.010"
        assert (line["today: within .03"], line["2019: within .03"]) == ("0 of 4", "4 of 4")
    assert [line["method"] for line in table.rows] == ["CRCEN", "all methods"]


def test_what_it_refuses(tmp_path):
    with pytest.raises(crcen.InvalidParameter, match="reading must be one of today, 2019: got '2020'"):
        reproduce("table3", reading="2020", out=tmp_path)
    with pytest.raises(crcen.InvalidParameter, match="the reading 2019 is of table3 and figure1: got all"):
        reproduce("all", reading="2019", out=tmp_path)
    assert np.min(read_settings(False, None, "2019")["protocol"]["l2"]) == 1e-5


def rows_at(gap, sets=("abalone", "scene"), methods=("crcen", "csmlp", "mlp")):
    return [
        {"method": method, "dataset": name, "split": 0, "recall": 0.5, "specificity": 0.5}
        | {metric: published("table3", method, name, metric)[0] + gap for metric in ("f1", "g_mean")}
        for name in sets
        for method in methods
    ]


def test_cells_of_both_readings_are_beside_the_published_one():
    table = compare_cells({"today": rows_at(0.02, methods=("crcen",)), "2019": rows_at(-0.01, sets=("scene",))})
    lines = {(line["method"], line["cell"]): line for line in table.rows}
    paper = published("table3", "crcen", "scene", "f1")[0]
    both = lines["CRCEN", "scene F1"]
    assert (both["paper"], both["nearer"]) == (f"{paper:.3f}", "2019")
    assert both["today"] == f"{paper + 0.02:.3f} (+0.020)"
    one = lines["CRCEN", "abalone Gm"]
    assert (one["2019"], one["nearer"]) == ("–", "today")


def test_claims_are_judged_by_each_reading():
    table = compare_claims({"today": rows_at(0.0), "2019": rows_at(0.0, methods=("csmlp", "mlp"))}, {})
    lines = {line["claim of the paper"]: line for line in table.rows}
    wins = lines["CRCEN has an overall better performance than the others"]
    # Among these three, by the published numbers themselves; without CRCEN's rows nothing is won.
    assert wins["today"].startswith("holds: best in 4 of 4 columns of Table 3, 4 in the paper")
    assert "best in 0 of 4" in wins["2019"]
    assert lines["CRCEN is slightly better than CSMLP and comparable"]["2019"] == "–"


def test_parts_of_a_run_are_joined(run, tmp_path, monkeypatch, capsys):
    root = Path(__file__).parents[3]

    def said(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(root / "scripts" / script), run_name="__main__")
        return capsys.readouterr().out

    lines = said("join_runs.py", run.folder, run.folder, "--out", tmp_path).splitlines()
    assert lines[0].startswith("2 of 192 rows of Table 3")
    assert "missing: abalone, split 1, crcen" in lines
    assert "missing: abalone, split 0, crcen" not in lines
    assert (tmp_path / "table3" / "table3.md").exists()
    assert not (tmp_path / "table3" / "DONE").exists()
    readings = f"today={root / 'results' / 'full'}", f"2019={tmp_path}"
    assert "### The paper's claims under each reading" in said("reading_table.py", *readings)
    assert "### Table 3, cell by cell" in said("reading_table.py", "--cells", *readings)
