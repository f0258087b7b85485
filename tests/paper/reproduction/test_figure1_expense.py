"""Figure 1: expense from counts, its brackets, its tables and its picture."""

import math
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from crcen.exceptions import MissingExtra
from crcen.paper.reproduction.figure1 import draw_figure1, expenses, figure1_tables, run_figure1
from crcen.paper.reproduction.protocol import splits

ALPHAS = [0.5, 1.0, 1.5, 2.0]
RATIO = 9.7


CHOSEN = {"scoring": "f1", "selection": "per_split"}


def hand_rows(counts, split=0, curve="retrained", dataset="abalone", weights=("0.5", "1")):
    return [
        {
            "dataset": dataset,
            "split": split,
            "curve": curve,
            "weight": weight,
            "cost_ratio": float(weight) * RATIO,
            "fn": fn,
            "fp": fp,
        }
        for weight, (fn, fp) in zip(weights, counts, strict=True)
    ]


def both_curves(counts, moved=None, **fields):
    return hand_rows(counts, **fields) + hand_rows(moved or counts, curve="threshold", **fields)


def test_the_papers_abalone_example():
    first, second = expenses(both_curves([(32, 158), (13, 263)]))
    assert first["expense"] == pytest.approx(105 / 19)
    assert (first["curve"], second["curve"]) == ("retrained", "threshold")
    assert (first["from"], first["to"]) == ("0.5", "1")
    assert (first["low"], first["high"]) == (pytest.approx(0.5 * RATIO), pytest.approx(RATIO))
    assert first["verdict"] == "inside"  # 5.53 in [4.85, 9.7]
    assert first["pairs"] == [(32, 158), (13, 263)]
    lines = figure1_tables(both_curves([(32, 158), (13, 263)]), CHOSEN)["figure1"].rows
    assert lines[0]["expense"] == "5.53"
    assert lines[0]["bracket"] == "[4.85, 9.70]"


def test_splits_are_summed_and_shown_apart():
    rows = both_curves([(30, 100), (20, 130)]) + both_curves([(20, 100), (10, 180)], split=1)
    entry = expenses(rows)[0]
    assert entry["expense"] == pytest.approx((30 + 80) / (10 + 10))
    np.testing.assert_allclose(entry["per_split"], [3.0, 8.0])
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert line["over splits"] == "3.00 to 8.00"
    assert line["splits defined"] == "2 of 2"


@pytest.mark.parametrize(("end", "reason"), [((32, 263), "no catch was gained"), ((35, 263), "3 catches were lost")])
def test_a_step_without_a_catch_is_shown_as_such(end, reason):
    rows = both_curves([(32, 158), end], moved=[(32, 158), (13, 263)])
    entry, other = expenses(rows)
    assert math.isnan(entry["expense"])
    assert entry["reason"] == reason
    assert entry["verdict"] == "undefined"
    assert np.isfinite(other["expense"])
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert line["expense"] == reason
    assert line["over splits"] == ""
    assert line["splits defined"] == "0 of 1"
    assert "×" in re.sub(r"(?s)<metadata>.*?</metadata>", "", draw_figure1(rows, "svg").decode())


def test_one_undefined_split_is_counted_and_not_clipped():
    rows = both_curves([(30, 100), (20, 130)]) + both_curves([(20, 100), (21, 110)], split=1)
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert line["expense"] == f"{40 / 9:.2f}"
    assert line["splits defined"] == "1 of 2"


def test_pairs_are_listed():
    rows = both_curves([(32, 158), (13, 263)], moved=[(30, 150), (12, 270)], weights=("0.5", "1"))
    rows = [row | {"weight": {"0.5": "½"}.get(row["weight"], row["weight"])} for row in rows]
    lines = figure1_tables(rows, CHOSEN)["figure1_pairs"].rows
    assert [(line["λ = ½"], line["α = 1"]) for line in lines] == [
        ("(32, 158)", "(13, 263)"),
        ("(30, 150)", "(12, 270)"),
    ]
    assert lines[0]["split"] == "0"


@pytest.fixture(scope="module")
def six_sets():
    path = [(50, 20), (32, 158), (13, 263), (13, 300), (9, 380)]
    weights = ("0.1", "0.5", "1", "1.5", "2")
    return [row for i in range(6) for row in both_curves(path, dataset=f"set {i}", weights=weights)]


def titles(svg):
    return [text for text in re.findall(r"<!-- (.*?) -->", svg) if text.startswith("set ")]


@pytest.mark.parametrize("n_sets", [1, 4])
def test_the_svg_has_a_panel_for_each_set(six_sets, n_sets):
    names = [f"set {i}" for i in range(n_sets)]
    svg = draw_figure1([row for row in six_sets if row["dataset"] in names], "svg").decode()
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert titles(svg) == names
    assert svg.count("<!-- expense (false alarms per catch) -->") == n_sets
    assert "bracket" in svg


def test_the_png_is_one(six_sets):
    png = draw_figure1(six_sets, "png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert png[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", png[16:24])
    assert width > 1000
    assert height > 500


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_same_rows_give_the_same_picture(six_sets, suffix):
    assert draw_figure1(six_sets, suffix) == draw_figure1(six_sets, suffix)


def test_missing_matplotlib_names_its_extra(six_sets, monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"crcen\[plots\]"):
        draw_figure1(six_sets, "svg")


@pytest.fixture
def run(tmp_path, protocol, selection, toy_sets):
    return run_figure1(protocol | {"sets": ["toy", "other"]}, ALPHAS, tmp_path / "figure1", selection, None)


def test_every_weight_and_curve_is_counted(run, toy, protocol):
    weights = ["½", "0.5", "1", "1.5", "2"]
    keys = [(row["dataset"], row["split"], row["weight"], row["curve"]) for row in run.rows]
    assert keys == [
        (d, s, w, c) for d in ("toy", "other") for s in (0, 1) for w in weights for c in ("retrained", "threshold")
    ]
    for row in run.rows:
        data = toy(row["dataset"], seed=sum(map(ord, row["dataset"])))
        split = splits(data, protocol)[row["split"]]
        train, test = data.y[split.train], data.y[split.test]
        ratio = (train == 0).sum() / train.sum()  # the training rows' IR makes the bracket
        wanted = 1.0 if row["weight"] == "½" else float(row["weight"]) * ratio
        assert row["cost_ratio"] == pytest.approx(wanted)
        assert (row["n_pos"], row["n_neg"]) == (test.sum(), (test == 0).sum())
        assert 0 <= row["fn"] <= row["n_pos"]
        assert 0 <= row["fp"] <= row["n_neg"]
    for entry in expenses(run.rows):
        ends = [1.0 if w == "½" else float(w) for w in (entry["from"], entry["to"])]
        assert entry["low"] <= entry["high"]
        assert entry["high"] / ends[1] == pytest.approx(ratio, rel=0.2)
    assert [entry["to"] for entry in expenses(run.rows)][:4] == ["0.5", "1", "1.5", "2"]  # four steps


def test_a_moved_threshold_gives_nested_decisions(run):
    for name in ("toy", "other"):
        for split in (0, 1):
            own = [r for r in run.rows if (r["dataset"], r["split"], r["curve"]) == (name, split, "threshold")]
            assert (np.diff([row["fn"] for row in own]) <= 0).all()
            assert (np.diff([row["fp"] for row in own]) >= 0).all()


def test_both_curves_start_from_the_plain_network(run):
    start = [row for row in run.rows if row["weight"] == "½"]
    for retrained, moved in zip(start[::2], start[1::2], strict=True):
        assert (retrained["fn"], retrained["fp"]) == (moved["fn"], moved["fp"])


def test_everything_is_written(run):
    assert (run.folder / "DONE").exists()
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {f"figure1.{suffix}" for suffix in ("md", "csv", "svg", "png")}
    assert names >= {"figure1_pairs.md", "figure1_pairs.csv", "rows.jsonl", "settings.json", "environment.json"}


@pytest.mark.parametrize("lines", [3, 13])
def test_a_split_whose_rows_were_cut_short_is_completed(run, protocol, selection, lines):
    names = ("figure1.csv", "figure1_pairs.csv", "rows.jsonl", "figure1.svg")
    before = {name: (run.folder / name).read_bytes() for name in names}
    kept = before["rows.jsonl"].splitlines(keepends=True)
    (run.folder / "rows.jsonl").write_bytes(b"".join(kept[:lines]) + kept[lines][:20])
    run_figure1(protocol | {"sets": ["toy", "other"]}, ALPHAS, run.folder, selection, None)
    assert {name: (run.folder / name).read_bytes() for name in names} == before
