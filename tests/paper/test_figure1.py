"""Figure 1: expense from counts, its brackets, its tables and its picture."""

import math
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from crcen.exceptions import MissingExtra
from crcen.paper.figure1 import draw_figure1, expenses, figure1_tables, run_figure1
from crcen.paper.protocol import splits

ALPHAS = [0.5, 1.0, 1.5, 2.0]
RATIO = 9.7
CHOSEN = {"scoring": "f1", "selection": "per_split"}


def both_curves(counts, moved=None, split=0, dataset="abalone", weights=("0.5", "1")):
    shared = {"dataset": dataset, "split": split}
    return [
        {**shared, "curve": curve, "weight": w, "cost_ratio": float(w) * RATIO, "fn": fn, "fp": fp}
        for curve, own in (("retrained", counts), ("threshold", moved or counts))
        for w, (fn, fp) in zip(weights, own, strict=True)
    ]


def test_papers_abalone_example():
    rows = both_curves([(32, 158), (13, 263)])
    first, second = expenses(rows)
    assert first["expense"] == pytest.approx(105 / 19)
    assert (first["curve"], second["curve"]) == ("retrained", "threshold")
    assert (first["from"], first["to"]) == ("0.5", "1")
    assert (first["low"], first["high"]) == (pytest.approx(0.5 * RATIO), pytest.approx(RATIO))
    assert first["verdict"] == "inside"  # 5.53 in [4.85, 9.7]
    assert first["pairs"] == [(32, 158), (13, 263)]
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert (line["expense"], line["bracket"]) == ("5.53", "[4.85, 9.70]")


def test_splits_are_summed_and_shown_separately():
    rows = both_curves([(30, 100), (20, 130)]) + both_curves([(20, 100), (10, 180)], split=1)
    entry = expenses(rows)[0]
    assert entry["expense"] == pytest.approx((30 + 80) / (10 + 10))
    np.testing.assert_allclose(entry["per_split"], [3.0, 8.0])
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert (line["over splits"], line["splits defined"]) == ("3.00 to 8.00", "2 of 2")
    # An undefined split is counted, not clipped.
    rows = both_curves([(30, 100), (20, 130)]) + both_curves([(20, 100), (21, 110)], split=1)
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert (line["expense"], line["splits defined"]) == (f"{40 / 9:.2f}", "1 of 2")


@pytest.mark.parametrize(("end", "reason"), [((32, 263), "no catch was gained"), ((35, 263), "3 catches were lost")])
def test_step_without_a_catch_is_undefined_with_its_reason(end, reason):
    rows = both_curves([(32, 158), end], moved=[(32, 158), (13, 263)])
    entry, other = expenses(rows)
    assert math.isnan(entry["expense"])
    assert (entry["reason"], entry["verdict"]) == (reason, "undefined")
    assert np.isfinite(other["expense"])
    line = figure1_tables(rows, CHOSEN)["figure1"].rows[0]
    assert (line["expense"], line["over splits"], line["splits defined"]) == (reason, "", "0 of 1")
    assert "×" in re.sub(r"(?s)<metadata>.*?</metadata>", "", draw_figure1(rows, "svg").decode())


def test_pairs_are_listed():
    rows = both_curves([(32, 158), (13, 263)], moved=[(30, 150), (12, 270)])
    rows = [row | {"weight": row["weight"].replace("0.5", "½")} for row in rows]
    lines = figure1_tables(rows, CHOSEN)["figure1_pairs"].rows
    pairs = [(line["λ = ½"], line["α = 1"]) for line in lines]
    assert pairs == [("(32, 158)", "(13, 263)"), ("(30, 150)", "(12, 270)")]
    assert lines[0]["split"] == "0"


@pytest.fixture(scope="module")
def six_sets():
    path = [(50, 20), (32, 158), (13, 263), (13, 300), (9, 380)]
    weights = ("0.1", "0.5", "1", "1.5", "2")
    return [row for i in range(6) for row in both_curves(path, dataset=f"set {i}", weights=weights)]


@pytest.mark.parametrize("n_sets", [1, 4])
def test_svg_has_a_panel_for_each_set_and_is_reproducible(six_sets, n_sets):
    names = [f"set {i}" for i in range(n_sets)]
    rows = [row for row in six_sets if row["dataset"] in names]
    svg = draw_figure1(rows, "svg").decode()
    assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert [text for text in re.findall(r"<!-- (.*?) -->", svg) if text.startswith("set ")] == names
    assert svg.count("<!-- expense (false alarms per catch) -->") == n_sets
    assert "bracket" in svg
    assert draw_figure1(rows, "svg").decode() == svg


def test_png_is_valid_and_reproducible_and_needs_an_extra(six_sets, monkeypatch):
    png = draw_figure1(six_sets, "png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert png[-8:-4] == b"IEND"
    assert np.greater(struct.unpack(">II", png[16:24]), (1000, 500)).all()
    assert draw_figure1(six_sets, "png") == png
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"crcen\[plots\]"):
        draw_figure1(six_sets, "svg")


@pytest.fixture
def run(tmp_path, protocol, selection, toy_sets):
    return run_figure1(protocol | {"sets": ["toy", "other"]}, ALPHAS, tmp_path / "figure1", selection, None)


def test_every_weight_and_curve_is_counted_and_written(run, toy, protocol):
    weights, curves = ["½", "0.5", "1", "1.5", "2"], ("retrained", "threshold")
    keys = [(row["dataset"], row["split"], row["weight"], row["curve"]) for row in run.rows]
    assert keys == [(d, s, w, c) for d in ("toy", "other") for s in (0, 1) for w in weights for c in curves]
    for row in run.rows:
        data = toy(row["dataset"], seed=sum(map(ord, row["dataset"])))
        split = splits(data, protocol)[row["split"]]
        train, test = data.y[split.train], data.y[split.test]
        ratio = (train == 0).sum() / train.sum()  # the training rows' IR gives the bracket
        assert row["cost_ratio"] == pytest.approx(1.0 if row["weight"] == "½" else float(row["weight"]) * ratio)
        assert (row["n_pos"], row["n_neg"]) == (test.sum(), (test == 0).sum())
        assert 0 <= row["fn"] <= row["n_pos"]
        assert 0 <= row["fp"] <= row["n_neg"]
    entries = expenses(run.rows)
    assert [entry["to"] for entry in entries][:4] == ["0.5", "1", "1.5", "2"]
    for entry in entries:
        assert entry["low"] <= entry["high"]
        assert entry["high"] / float(entry["to"]) == pytest.approx(ratio, rel=0.2)
    names = {path.name for path in run.folder.iterdir()}
    assert names >= {f"figure1.{suffix}" for suffix in ("md", "csv", "svg", "png")}
    assert names >= {"figure1_pairs.md", "figure1_pairs.csv", "rows.jsonl", "settings.json", "environment.json", "DONE"}
    # A moved threshold gives nested decisions, and both curves start from the plain network.
    for name, split in ((d, s) for d in ("toy", "other") for s in (0, 1)):
        own = [r for r in run.rows if (r["dataset"], r["split"]) == (name, split)]
        moved = [(r["fn"], r["fp"]) for r in own if r["curve"] == "threshold"]
        assert (np.diff([fn for fn, _ in moved]) <= 0).all()
        assert (np.diff([fp for _, fp in moved]) >= 0).all()
        assert (own[0]["fn"], own[0]["fp"]) == moved[0]


@pytest.mark.parametrize("lines", [3, 13])
def test_interrupted_split_is_completed(run, protocol, selection, lines):
    names = ("figure1.csv", "figure1_pairs.csv", "rows.jsonl", "figure1.svg")
    before = {name: (run.folder / name).read_bytes() for name in names}
    kept = before["rows.jsonl"].splitlines(keepends=True)
    (run.folder / "rows.jsonl").write_bytes(b"".join(kept[:lines]) + kept[lines][:20])
    run_figure1(protocol | {"sets": ["toy", "other"]}, ALPHAS, run.folder, selection, None)
    assert {name: (run.folder / name).read_bytes() for name in names} == before
