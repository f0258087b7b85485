"""Tables and figure: published numbers, rows, means, ranks, expense, brackets, and the picture."""

import csv
import dataclasses
import io
import json
import math
import re
import struct
import sys
import xml.etree.ElementTree as ElementTree
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pytest

import crcen
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import MissingExtra, TrainingFailed
from crcen.paper.figure1 import draw_figure1, expenses, figure1_tables, run_figure1
from crcen.paper.protocol import splits
from crcen.paper.reproduce import read_settings
from crcen.paper.run_folder import published
from crcen.paper.table1 import run_table1, table1
from crcen.paper.table2 import run_table2, table2
from crcen.paper.table3 import _scores, cells, run_table3, table3, table3_ranks
from crcen.training.jobs import Status, TrainingResult
from papers_training import CRCENClassifier

SETS = {"Abalone": "abalone", "Coil": "coil_2000", "Satimage": "satimage"}
SETS |= {"Scene": "scene", "Solar": "solar_flare_m0", "UScrime": "us_crime"}
METHODS = {method.label: name for name, method in crcen.METHODS.items() if method.in_paper}


def from_csv(folder, name):
    return list(csv.DictReader(io.StringIO((folder / f"{name}.csv").read_text())))


@pytest.fixture(scope="module")
def tex_tables(paper_tex):
    """The cells of the paper's tables without mark-up, row by row."""
    tables = []
    for body in re.findall(r"\\begin\{tabular\}.*?\n(.*?)\\end\{tabular\}", paper_tex, re.DOTALL):
        body = re.sub(r"\\(multirow|multicolumn)\{[^}]*\}\{[^}]*\}\{([^}]*)\}", r"\2", body)
        body = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body)
        body = re.sub(r"\\(Tstrut|Bstrut|hline|toprule|midrule|bottomrule)\b", "", body)
        tables.append([[cell.strip() for cell in line.split("&")] for line in body.split(r"\\") if line.strip()])
    assert len(tables) == 3
    return tables


def test_published_numbers_are_the_papers(tex_tables, paper_tex):
    first, second, (head, metrics, *third) = tex_tables
    means, spread = {line[0]: line[1:] for line in first if line[0]}, [line[1:] for line in first if not line[0]]
    for i, name in enumerate(("sim1", "sim2")):
        for j, weight in enumerate(RHS):
            cell = float(means[f"LHS (Sim{i + 1})"][j]), float(spread[i][j].strip("()"))
            assert published("table1", name, weight, "lhs") == cell
    assert [line[0] for line in second[1:]] == list(SETS)
    for label, n_samples, n_features, ratio in second[1:]:
        assert published("table2", SETS[label], "n_samples", "count") == (float(n_samples), None)
        assert published("table2", SETS[label], "n_features", "count") == (float(n_features), None)
        assert published("table2", SETS[label], "imbalance_ratio", "ratio") == (float(ratio), None)
    columns = list(zip([SETS[name] for name in head[1:] for _ in (0, 1)], metrics[1:], strict=True))
    assert [line[0] for line in third] == list(METHODS)
    for label, *values in third:
        for (name, metric), value in zip(columns, values, strict=True):
            key = {"F1": "f1", "Gm": "g_mean"}[metric]
            assert published("table3", METHODS[label], name, key) == (float(value), None)
    assert "$(32,158)$ and $(13,263)$ are two pairs of (FN, FP) corresponding to $\\alpha=0.5$" in paper_tex
    pairs = [published("figure1", "abalone", weight, metric)[0] for weight in ("0.5", "1") for metric in ("fn", "fp")]
    assert pairs == [32, 158, 13, 263]
    assert published("table3", "mlp_threshold", "abalone", "f1") is None
    text = resources.files("crcen.paper").joinpath("published.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + 6 + 6 * 3 + 8 * 6 * 2 + 4  # nothing else, and no cell twice


RHS = {"half": 10.0, "balanced": 1.0, "double": 0.5}
SIMULATION = read_settings(quick=True)["table1"] | {"runs": 3, "runs_at_once": 2}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return run_table1(SIMULATION, tmp_path_factory.mktemp("table1"))


def test_every_simulation_run_has_its_row_and_is_not_repeated(simulated, monkeypatch):
    keys = [(row["simulation"], row["run"], row["weighting"]) for row in simulated.rows]
    assert sorted(keys) == sorted((s, r, w) for s in ("sim1", "sim2") for r in range(3) for w in RHS)
    weights = {"half": 0.5, "balanced": pytest.approx(10 / 11), "double": pytest.approx(20 / 21)}
    assert {row["weighting"]: row["lam"] for row in simulated.rows} == weights
    assert len({row["lhs"] for row in simulated.rows}) == len(simulated.rows)
    monkeypatch.setattr("crcen.paper.table1._simulate", None)
    assert run_table1(SIMULATION, simulated.folder).rows == simulated.rows


def test_key_equation_holds_in_training_and_on_unseen_rows_within_noise(simulated):
    for row in simulated.rows:
        assert 0 <= row["train_residual"] <= 1e-12
        assert row["lhs"] == pytest.approx((1 - row["mean_pos"]) / row["mean_neg"], rel=1e-12)
    # The published standard deviation is of one run; a mean of 3 lies within 5/√3 of them.
    for name in ("sim1", "sim2"):
        for weight, rhs in RHS.items():
            own = [row for row in simulated.rows if (row["simulation"], row["weighting"]) == (name, weight)]
            assert all(row["rhs"] == pytest.approx(rhs) for row in own)
            noise = 5 / np.sqrt(len(own)) * published("table1", name, weight, "lhs")[1]
            assert abs(np.mean([row["lhs"] for row in own]) - rhs) < noise


def test_table1_is_written_with_the_published_numbers_and_follows_from_rows(simulated):
    assert (simulated.folder / "DONE").exists()
    assert (simulated.folder / "table1.md").read_text() == table1(simulated.rows).markdown()
    lines = from_csv(simulated.folder, "table1")
    paper = ["10.05 (1.13)", "1.00 (0.09)", "0.50 (0.04)", "10.12 (0.67)", "1.01 (0.05)", "0.50 (0.03)"]
    assert [line["paper (LHS)"] for line in lines] == paper
    assert [line["theory (RHS)"] for line in lines] == ["10", "1", "0.5"] * 2
    assert {line["runs"] for line in lines} == {"3"}
    shared = {"simulation": "sim1", "weighting": "balanced", "rhs": 1.0, "train_residual": 2e-16}
    (line,) = table1([{**shared, "run": run, "lhs": lhs} for run, lhs in enumerate((0.9, 1.1, 1.3))]).rows
    assert line["ours (LHS)"] == "1.10 (0.20)"
    assert line["paper − ours, in our sd"] == "-0.50"  # (1.00 − 1.10) / 0.20
    assert line["largest training residual"] == "2.0e-16"
    assert table1([{**shared, "run": 0, "lhs": 0.9}]).rows[0]["ours (LHS)"] == "0.90 (nan)"
    assert table1([]).rows == []


@pytest.mark.parametrize("is_bundled", [True, False])
def test_data_sets_agree_with_the_paper(tmp_path, monkeypatch, request, is_bundled):
    home = None if is_bundled else request.getfixturevalue("data_home")
    names = ["abalone", "satimage"] if is_bundled else list(SETS.values())
    if is_bundled:
        monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    run = run_table2({"sets": names}, tmp_path, home)
    assert [(line["dataset"], line["agrees"]) for line in from_csv(tmp_path, "table2")] == [(n, "yes") for n in names]
    for row in run.rows:
        data = crcen.load_dataset(row["dataset"], home)
        assert (row["n_samples"], row["n_features"]) == data.X.shape
        assert row["n_pos"] == data.y.sum()
        assert row["imbalance_ratio"] == (data.y == 0).sum() / data.y.sum()
        assert row["source"] == data.source
    assert (run.folder / "DONE").exists()


def test_difference_to_the_papers_description_is_shown():
    row = {"dataset": "abalone", "n_samples": 4177, "n_features": 10, "n_pos": 391, "imbalance_ratio": 9.68}
    changes = {"yes": [{}, {"imbalance_ratio": 9.74}]}  # 9.7 in the paper's two digits
    changes["no"] = [{"n_samples": 4176}, {"n_features": 8}, {"imbalance_ratio": 9.76}]
    for agrees, change in ((agrees, change) for agrees, some in changes.items() for change in some):
        (line,) = table2([row | {"source": "by hand"} | change]).rows
        assert (line["agrees"], line["paper n_samples"]) == (agrees, "4177")


def row(method, split, f1, g_mean=0.5, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "f1": f1, "g_mean": g_mean}


def failed(method, split, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "error": "ValueError: worse than random"}


def test_cells_are_means_and_deviations_over_splits_without_failures():
    rows = [row("mlp", 0, 0.2), row("mlp", 1, 0.4), row("mlp", 2, 0.9), failed("mlp", 3), failed("rusboost", 0)]
    found = cells([*rows, row("crcen", 0, 0.3, 0.7)])
    mean, sd, n = found["mlp", "abalone", "f1"]
    assert (mean, n) == (pytest.approx(0.5), 3)
    assert sd == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 2))  # ddof = 1
    assert found["mlp", "abalone", "g_mean"] == (0.5, 0.0, 3)
    assert found["crcen", "abalone", "f1"][0] == 0.3
    assert math.isnan(found["crcen", "abalone", "f1"][1])
    assert {key[0] for key in found} == {"mlp", "crcen"}


def test_table3_shows_ours_the_papers_the_best_and_failures():
    given = {"mlp": (0.1, 0.3), "crcen": (0.4, 0.8), "smote": (0.4, 0.7), "mlp_threshold": (0.39, 0.81)}
    rows = [row(method, s, *value) for method, value in given.items() for s in range(3)]
    rows += [failed("rusboost", s) for s in range(3)]
    table = table3(rows, {"splits": 3, "scoring": "g_mean", "selection": "per_split"})
    lines = {line["method"]: line for line in table.rows}
    best = "**0.400** ± 0.000 (paper **0.400**, +0.000)"
    assert lines["CRCEN"]["abalone F1"] == lines["SMOTE"]["abalone F1"] == best
    assert lines["CRCEN"]["abalone Gm"] == "0.800 ± 0.000 (paper **0.808**, -0.008)"
    assert lines["MLP"]["abalone F1"] == "0.100 ± 0.000 (paper 0.000, +0.100)"
    assert lines["MLP, threshold"]["abalone Gm"] == "**0.810** ± 0.000"  # not in the paper
    assert lines["RUSB"]["abalone F1"] == "failed (paper 0.385)"
    assert table.note.endswith("Failed: rusboost on abalone: ValueError: worse than random.")
    assert "3 stratified splits" in table.note
    assert "selected by g_mean (per_split)" in table.note
    assert "**" not in table.csv()
    assert next(csv.DictReader(io.StringIO(table.csv())))["abalone F1"] == "0.100 ± 0.000 (paper 0.000, +0.100)"
    assert f"| CRCEN | {best} |" in table.markdown()
    assert "<td><b>0.400</b> ± 0.000 (paper <b>0.400</b>, +0.000)</td>" in table.html()
    partly = table3([row("mlp", 0, 0.2)], {"splits": 3, "scoring": "f1", "selection": "per_split"})
    assert "[1 of 3 splits]" in partly.rows[0]["abalone F1"]


def test_ranks_by_hand():
    rows = [row("crcen", 0, 0.4, 0.8), row("smote", 0, 0.4, 0.7), row("mlp", 0, 0.1, 0.3), failed("rusboost", 0)]
    lines = {line["method"]: line for line in table3_ranks([*rows, row("mlp_threshold", 0, 0.39, 0.9)]).rows}
    # F1: crcen and smote share 1 and 2, threshold 3, mlp 4, the failure 5.
    # G-mean: threshold, crcen, smote, mlp, the failure.
    ours = {label: line["ours"] for label, line in lines.items()}
    assert ours == {"CRCEN": "1.75", "SMOTE": "2.25", "MLP": "4.00", "RUSB": "5.00", "MLP, threshold": "2.00"}
    among = {label: line["ours, the paper's methods only"] for label, line in lines.items()}
    assert (among["CRCEN"], among["SMOTE"], among["MLP, threshold"]) == ("1.25", "1.75", "")
    # Published on Abalone, F1 .400 .400 0 .385 and G-mean .808 .808 0 .792.
    paper = {label: line["paper"] for label, line in lines.items()}
    assert paper == {"CRCEN": "1.50", "SMOTE": "1.50", "MLP": "4.00", "RUSB": "3.00", "MLP, threshold": ""}
    # A method that failed on one set ranks last there.
    rows = [row("crcen", 0, 0.4, 0.8), row("mlp", 0, 0.1, 0.3), row("rusboost", 0, 0.5, 0.9)]
    rows += [row("crcen", 0, 0.4, 0.8, "scene"), row("mlp", 0, 0.5, 0.3, "scene"), failed("rusboost", 0, "scene")]
    lines = {line["method"]: line["ours"] for line in table3_ranks(rows).rows}
    assert lines == {"CRCEN": "1.75", "MLP": "2.25", "RUSB": "2.00"}  # crcen 2 2 2 1, mlp 3 3 1 2, rusboost 1 1 3 3
    costly = table3_ranks([row("mlp", 0, 0.5), row("lmle", 0, 0.5)]).note
    assert "At most: LMLE 10 clusters of a class" in costly
    assert "At most" not in table3_ranks(rows).note


def fixed(predicted, p):
    """A model with given decisions and probabilities."""
    return SimpleNamespace(predict=lambda X: predicted, predict_proba=lambda X: np.column_stack([1 - p, p]))


def test_scores_are_the_papers_formulas():
    tp, fp, fn, tn = 6, 10, 4, 80
    y = np.repeat([1, 0, 1, 0], [tp, fp, fn, tn])
    predicted = np.repeat([1, 1, 0, 0], [tp, fp, fn, tn])
    scores = _scores(fixed(predicted, np.where(predicted == 1, 0.8, 0.1)), np.zeros((len(y), 1)), y)
    precision, recall, specificity = tp / (tp + fp), tp / (tp + fn), tn / (fp + tn)
    loss = -(tp * math.log(0.8) + fn * math.log(0.1) + fp * math.log(0.2) + tn * math.log(0.9)) / len(y)
    expected = {"tp": tp, "fp": fp, "fn": fn, "tn": tn, "log_loss": loss}
    expected |= {"precision": precision, "recall": recall, "specificity": specificity}
    expected |= {"f1": 2 * precision * recall / (precision + recall), "g_mean": math.sqrt(recall * specificity)}
    expected["average_precision"] = 0.6 * 6 / 16 + 0.4 * 10 / 100  # recall .6 at precision 6/16, then .4 at 10/100
    assert scores == pytest.approx(expected)
    none = _scores(fixed(np.zeros(4, int), np.full(4, 0.1)), np.zeros((4, 1)), np.array([1, 0, 0, 0]))
    assert (none["f1"], none["g_mean"], none["precision"]) == (0, 0, 0)  # as in the paper


OURS = ["mlp", "crcen", "mlp_threshold", "crcen_ensemble"]


def replace_make(monkeypatch, name, make):
    monkeypatch.setitem(crcen.METHODS, name, dataclasses.replace(crcen.METHODS[name], make=make))


def test_rows_hold_counts_metrics_and_what_was_chosen(tmp_path, protocol, selection, toy_sets, toy):
    run = run_table3(protocol, OURS, tmp_path / "t3", selection, None)
    assert (run.folder / "DONE").exists()
    assert [(r["dataset"], r["split"], r["method"]) for r in run.rows] == [("toy", s, m) for s in (0, 1) for m in OURS]
    assert toy_sets == ["toy"]  # loaded once
    assert {row["method"] for row in selection.rows} == {"mlp", "crcen", "mlp_threshold"}
    data = toy("toy", seed=sum(map(ord, "toy")))
    for row in run.rows:
        test = splits(data, protocol)[row["split"]].test
        assert row["tp"] + row["fn"] == data.y[test].sum()
        assert row["fp"] + row["tn"] == (data.y[test] == 0).sum()
        assert row["hidden"] in protocol["hidden"]
        assert row["l2"] in protocol["l2"]
        assert row["train_residual"] <= 1e-12
        assert row["seconds"] >= 0
    row, split = run.rows[7], splits(data, protocol)[1]  # the average on the second split
    given = {"hidden": (row["hidden"],), "l2": row["l2"], "max_epochs": protocol["epochs"], "n_members": 2}
    model = CRCENClassifier(**given, random_state=1, encoding="standard").fit(data.X[split.train], data.y[split.train])
    counts = crcen.confusion_counts(data.y[split.test], model.predict(data.X[split.test]))
    assert [row[name] for name in ("tp", "fp", "fn", "tn")] == [counts.tp, counts.fp, counts.fn, counts.tn]
    assert row["f1"] == counts.f1


@pytest.mark.parametrize("error", [ValueError("BaseClassifier is worse\n than random"), TrainingFailed("lost")])
def test_failed_method_is_a_row_and_a_missing_extra_stops(tmp_path, protocol, selection, toy_sets, monkeypatch, error):
    def broken(**params):
        raise error

    replace_make(monkeypatch, "balanced_rf", broken)
    run = run_table3(protocol, ["balanced_rf", "mlp"], tmp_path / "t3", selection, None)
    failures = [row for row in run.rows if row["method"] == "balanced_rf"]
    sentence = f"{type(error).__name__}: {' '.join(str(error).split())}"
    assert [row["error"] for row in failures] == [sentence] * 2
    assert "f1" not in failures[0]
    assert all("f1" in row for row in run.rows if row["method"] == "mlp")
    text = (run.folder / "table3.md").read_text()
    assert "| BRF | failed | failed |" in text
    assert f"Failed: balanced_rf on toy: {sentence}." in text

    def missing(**params):
        raise MissingExtra("imblearn is not installed; get it with: pip install 'crcen[baselines]'")

    replace_make(monkeypatch, "balanced_rf", missing)
    with pytest.raises(MissingExtra, match="baselines"):
        run_table3(protocol, ["mlp", "balanced_rf"], tmp_path / "missing", selection, None)
    rows = (tmp_path / "missing" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in rows] == ["mlp"]  # finished rows are kept
    assert not (tmp_path / "missing" / "DONE").exists()


def test_failed_search_is_a_row_with_the_error(tmp_path, protocol, selection, monkeypatch):
    # Every positive row has only positive neighbours: ADASYN has nothing to generate.
    y = (np.arange(200) < 40).astype(int)
    X = np.random.default_rng(0).normal(size=(200, 2)) + 100 * y[:, None]
    monkeypatch.setattr(crcen, "load_dataset", lambda *_: Dataset("toy", X, y, ("a", "b"), "separable"))
    run = run_table3(protocol, ["adasyn", "smote"], tmp_path / "t3", selection, None)
    for row in run.rows:
        is_adasyn = row["method"] == "adasyn"
        assert is_adasyn == ("adasyn cannot rebalance these rows" in row.get("error", ""))
        assert is_adasyn != ("f1" in row)

    def diverged(X, y, jobs):
        lost = TrainingResult(network=None, status=Status.DIVERGED, n_iter=1, loss_curve=np.array([np.nan]))
        return [lost for _ in jobs]

    monkeypatch.setattr("crcen.paper.protocol.find_engine", lambda _: diverged)
    run = run_table3(protocol, ["mlp"], tmp_path / "diverged", selection, None)
    assert all("every setting lost a network" in row["error"] for row in run.rows)


def test_second_run_computes_nothing_and_the_seed_gives_the_same_rows(
    tmp_path, protocol, selection, toy_sets, monkeypatch
):
    methods = ["mlp", "smote"]
    first, other = (run_table3(protocol, methods, tmp_path / name, selection, None) for name in "ab")
    same = [[{k: v for k, v in row.items() if "seconds" not in k} for row in run.rows] for run in (first, other)]
    assert same[0] == same[1]
    files = {p.name: p.read_bytes() for p in first.folder.iterdir()}
    monkeypatch.setattr("crcen.paper.table3._evaluate", None)
    assert run_table3(protocol, methods, tmp_path / "a", selection, None).rows == first.rows
    assert {p.name: p.read_bytes() for p in first.folder.iterdir()} == files


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
    rows = both_curves([(32, 158), (13, 263)], moved=[(30, 150), (12, 270)])
    lines = figure1_tables([row | {"weight": row["weight"].replace("0.5", "½")} for row in rows], CHOSEN)
    pairs = [(line["split"], line["λ = ½"], line["α = 1"]) for line in lines["figure1_pairs"].rows]
    assert pairs == [("0", "(32, 158)", "(13, 263)"), ("0", "(30, 150)", "(12, 270)")]


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


@pytest.fixture(scope="module")
def six_sets():
    path = [(50, 20), (32, 158), (13, 263), (13, 300), (9, 380)]
    weights = ("0.1", "0.5", "1", "1.5", "2")
    return [row for i in range(6) for row in both_curves(path, dataset=f"set {i}", weights=weights)]


def test_figure_has_a_panel_for_each_set_is_reproducible_and_needs_an_extra(six_sets, monkeypatch):
    for n_sets in (1, 4):
        names = [f"set {i}" for i in range(n_sets)]
        rows = [row for row in six_sets if row["dataset"] in names]
        svg = draw_figure1(rows, "svg").decode()
        assert ElementTree.fromstring(svg).tag == "{http://www.w3.org/2000/svg}svg"
        assert [text for text in re.findall(r"<!-- (.*?) -->", svg) if text.startswith("set ")] == names
        assert svg.count("<!-- expense (false alarms per catch) -->") == n_sets
        assert "bracket" in svg
        assert draw_figure1(rows, "svg").decode() == svg
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
