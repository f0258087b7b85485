"""`reproduce` rebuilds tables and figure, run folders survive interruptions, claims and readings follow from rows."""

import html
import json
import os
import re
import runpy
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
from sklearn.neural_network import MLPClassifier

import crcen
from crcen._support.files import write_atomic
from crcen.exceptions import DataUnavailable
from crcen.paper import protocol as run_folder
from crcen.paper import reproduce as module
from crcen.paper.methods import make_method
from crcen.paper.protocol import RunFolder, published, settings_hash, splits
from crcen.paper.reproduce import READINGS, claims, read_settings, reproduce, run_figure1, run_table1, run_table3

BUNDLED = {"abalone", "satimage"}
ROOT = Path(__file__).parents[2]
READING_TABLE = runpy.run_path(str(ROOT / "scripts" / "reading_table.py"))


@pytest.fixture
def tiny(monkeypatch, protocol, toy_sets):
    """Settings that take seconds, on toy sets with the names of bundled ones."""

    def settings(quick, config=None, reading=None):
        return {
            "table1": {"runs": 2, "runs_at_once": 1, "n_pos": 50, "n_neg": 500, "n_test": 50, "seed": 0}
            | {"hidden": [2], "epochs": 2, "learning_rate": 0.01},
            "protocol": protocol | {"sets": ["abalone", "satimage"]},
            "table3": {"methods": ["mlp", "csmlp", "crcen", "mlp_threshold"]},
            "figure1": {"alphas": [0.5, 1.0, 1.5, 2.0]},
        }

    monkeypatch.setattr(module, "read_settings", settings)


def headings(text):
    return [html.unescape(heading) for heading in re.findall("<h2>(.*?)</h2>", text)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"artefact": "Table1"}, "artefact must be one of 'table1', .*'figure1', 'all': got 'Table1'"),
        ({"scoring": "F1"}, "scoring must be one of .* got 'F1'"),
        ({"selection": "every_split"}, "selection must be one of .* got 'every_split'"),
        ({"reading": "2020"}, "reading must be one of 'today', '2019', 'scikit-learn': got '2020'"),
        ({"artefact": "all", "reading": "2019"}, "the reading 2019 is of table3 and figure1: got all"),
        ({"artefact": "figure1", "reading": "scikit-learn"}, "the reading scikit-learn is of table3: got figure1"),
        ({"methods": "crcn"}, "there is no method 'crcn', did you mean"),
        ({"methods": ""}, "there is no method"),
        ({"methods": "crcen;mlp"}, "there is no method"),
        ({"methods": "focal", "reading": "scikit-learn"}, "there is no method 'focal'.*some of mlp, csmlp"),
    ],
)
def test_unknown_choice_is_rejected_before_a_folder_is_made(tmp_path, given, message):
    with pytest.raises(crcen.InvalidParameter, match=message):
        reproduce(**{"artefact": "table3", "quick": True, "out": tmp_path / "out", **given})
    assert not (tmp_path / "out").exists()


def test_packaged_settings_are_the_papers_protocol_and_quick_ones_need_no_download(monkeypatch, tmp_path):
    quick, full = read_settings(True), read_settings(False)
    assert quick.keys() == full.keys() == {"table1", "protocol", "table3", "figure1"}
    for part, settings in full.items():
        assert quick[part].keys() == settings.keys()
    assert {row.name for row in crcen.list_datasets() if row.paper_name} == set(full["protocol"]["sets"])
    papers = {"splits": 4, "test_size": 0.25, "folds": 4, "selection": "first_split"}
    assert full["protocol"].items() >= papers.items()
    assert max(full["protocol"]["l2"]) >= 0.1  # us_crime needs it
    assert full["figure1"]["alphas"] == [0.5, 1, 1.5, 2]
    simulated = {"runs": 100, "n_pos": 1000, "n_neg": 10000, "n_test": 1000, "hidden": [10]}
    assert full["table1"].items() >= simulated.items()
    for settings in (full, quick):
        assert settings["table3"]["methods"] == [name for name, method in crcen.METHODS.items() if method.in_table3]
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    monkeypatch.setenv("CRCEN_CACHE", str(tmp_path))
    assert {row.name for row in crcen.list_datasets() if row.available == "bundled"} == BUNDLED
    assert set(quick["protocol"]["sets"]) == BUNDLED


def test_config_file_overrides_known_entries(tmp_path):
    path, packaged = tmp_path / "own.toml", read_settings(quick=True)
    path.write_text('[protocol]\nsplits = 3\nscoring = "f1"\n')
    settings = read_settings(quick=True, config=path)
    assert settings["protocol"] == packaged["protocol"] | {"splits": 3, "scoring": "f1"}
    assert settings["table1"] == packaged["table1"]
    for text, message in (
        ("[protocol\n", "cannot be read as TOML"),
        ("[protocol]\nsplit = 3\n", r"unknown entry in \[protocol\] \(split\): allowed are sets, splits"),
        ("[table4]\nruns = 3\n", r"unknown entry in \[table4\].*allowed are the sections table1"),
        ("runs = 3\n", "unknown entry"),
    ):
        path.write_text(text)
        with pytest.raises(crcen.InvalidParameter, match=message):
            read_settings(quick=True, config=path)
    with pytest.raises(crcen.InvalidParameter, match="cannot be read"):
        read_settings(quick=True, config=tmp_path / "nowhere.toml")


HEADINGS = {
    "table1": ["Table 1"],
    "table2": ["Table 2"],
    "table3": ["Table 3", "Table 3, mean ranks"],
    "figure1": ["Figure 1", "Figure 1, expense", "Figure 1, counts"],
}


def test_everything_is_on_one_self_contained_page(tiny, tmp_path):
    report = reproduce("all", out=tmp_path / "out")
    assert report.folder == tmp_path / "out"
    text = (report.folder / "report.html").read_text()
    tags = re.findall(r"<(\w+)", text)
    assert headings(text) == [*(heading for part in HEADINGS.values() for heading in part), "The paper's claims"]
    assert (tags.count("table"), len(report.texts), tags.count("svg")) == (7, 7, 1)
    assert not {"script", "link", "iframe", "img", "object"} & set(tags)
    addresses = re.findall(r"""\b(?:src|href|xlink:href|data|action|poster|srcset)=["'](.*?)["']""", text)
    assert all(address.startswith("#") for address in addresses)
    assert not re.search(r"@import|url\((?!#)", text)
    # What is left are names of XML vocabularies, which nothing loads.
    names = re.findall(r"""(xmlns[\w:]*|rdf:resource)=["']https?://""", text)
    assert len(names) == len(re.findall("https?://", text))
    assert (report.folder / "claims.md").read_text() == report.texts[-1]
    for part in HEADINGS:
        assert (report.folder / part / "DONE").exists()
        assert (report.folder / part / f"{part}.md").read_text() in report.texts
    assert all(number in text for number in ("0.808", "10.05 (1.13)"))


@pytest.mark.parametrize("artefact", HEADINGS)
def test_one_artefact_alone(tiny, tmp_path, artefact):
    report = reproduce(artefact, out=tmp_path)
    parts = {artefact, "selection"} if artefact in ("table3", "figure1") else {artefact}
    assert {path.name for path in tmp_path.iterdir()} == parts | {f"{artefact}.html"}
    assert headings((tmp_path / f"{artefact}.html").read_text()) == HEADINGS[artefact]
    assert len(report.texts) == len([h for h in HEADINGS[artefact] if h != "Figure 1"])


def test_figure_uses_the_choice_of_table_3_and_other_settings_are_rejected(tiny, tmp_path, monkeypatch):
    found = reproduce("table3", out=tmp_path, methods="crcen, adaboost")
    assert [name in found.texts[1] for name in ("AdaBoost", "seconds a fit", "RUSB")] == [True, True, False]
    monkeypatch.setattr("crcen.paper.protocol._search", None)
    reproduce("figure1", out=tmp_path)
    with pytest.raises(crcen.InvalidParameter, match=r"other settings \(scoring\)"):
        reproduce("figure1", out=tmp_path, scoring="f1")


def test_default_folder_follows_the_settings_and_a_file_is_rejected(tiny, tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("mine")
    for out in (path, path / "below"):
        with pytest.raises(crcen.InvalidParameter, match=r"cannot be a run folder \(.*\); give another --out"):
            reproduce("table2", quick=True, out=out)
    assert path.read_text() == "mine"
    monkeypatch.chdir(tmp_path)
    given = [{}, {"scoring": "f1"}, {"scoring": "g_mean"}, {"selection": "per_split"}, {"quick": True}]
    folders = [reproduce("table2", **one).folder for one in given]
    assert len(set(folders)) == len(given)
    assert all(re.fullmatch(r"runs/(full|quick)-[0-9a-f]{8}", str(folder)) for folder in folders)
    assert reproduce("table2", scoring="weighted_log_loss").folder == folders[0]  # the default


def scores(**values):
    given = {"mlp": 0.3, "csmlp": 0.5, "crcen": 0.52, "rusboost": 0.45, "mlp_threshold": 0.51} | values
    rows = []
    for method, value in given.items():
        metrics = dict.fromkeys(("f1", "g_mean", "recall", "specificity"), value)
        metrics |= {"test_lhs": 1.1} if method == "crcen" else {}
        row = {"dataset": "satimage", "split": 0, "method": method}
        rows.append(row | ({"error": "ValueError: no"} if value is None else metrics))
    return rows


def judged(table3):
    table1 = [
        {"simulation": s, "weighting": w, "lhs": lhs}
        for s in ("sim1", "sim2")
        for w, rhs in (("half", 10.0), ("balanced", 1.0), ("double", 0.5))
        for lhs in (0.9 * rhs, 1.1 * rhs)
    ]
    path = zip(("½", "0.5", "1", "1.5", "2"), (60, 30, 20, 12, 12), (10, 100, 120, 220, 300), strict=True)
    figure1 = [
        {"dataset": "satimage", "split": 0, "curve": c, "weight": w, "cost_ratio": r, "fn": fn, "fp": fp}
        for r, (w, fn, fp) in zip((1.0, 4.6, 9.3, 14.0, 18.6), path, strict=True)
        for c in ("retrained", "threshold")
    ]
    lines = claims(table1, table3, figure1, {"scoring": "f1", "selection": "per_split"}).rows
    return {line["claim of the paper"]: (line["verdict here"], line["measured"]) for line in lines}


def test_claims_by_hand():
    found = judged(scores())
    assert found["simulated values match the key equation"][1].startswith("6 of 6")
    comparable = ("holds", "mean difference +0.020, CRCEN ahead in 2 of 2 cells")
    assert found["CRCEN is slightly better than CSMLP and comparable"] == comparable
    assert found["every method gains over the plain MLP in G-mean"] == ("holds", "3 of 3 method-set pairs")
    assert found["the key equation carries over to unseen rows, α = 1: satimage"][0] == "holds within a quarter"
    # Steps of 3, 2, 12.5 and one without a catch.
    assert found["expense rises with α"] == ("in part", "at every step on 0 of 1 sets")
    assert found["no gain on the minority class beyond α = 1: satimage"][0] == "does not hold"  # 20 → 12
    assert found["expense under 2 at α = 1: satimage"][0] == "does not hold"  # 20 / 10 = 2
    for method in ("mlp", "csmlp", "crcen", "rusboost", "mlp_threshold"):  # which may have failed
        assert len(judged(scores(**{method: None}))) >= 8
    for values, claim, verdict in (
        ({"crcen": 0.4}, "CRCEN is slightly better than CSMLP and comparable", "does not hold"),
        ({"crcen": 0.4}, "CRCEN has an overall better performance than the others", "does not hold"),
        ({"rusboost": 0.9}, "RUSBoost is highest on the minority class, at the majority's cost", "holds"),
        ({"csmlp": 0.2}, "every method gains over the plain MLP in G-mean", "in part"),
    ):
        assert judged(scores(**values))[claim][0] == verdict


def rows_of(folder, name):
    return [json.loads(line) for line in (folder / name / "rows.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def readings(tmp_path_factory):
    """Small runs of both readings on one split of one set."""
    found = {}
    for reading, methods in (("2019", '"crcen", "rusboost"'), ("scikit-learn", '"crcen", "mlp", "smote", "rusboost"')):
        folder = tmp_path_factory.mktemp("reading")
        own = folder / "own.toml"
        own.write_text(
            '[protocol]\nsets = ["abalone"]\nsplits = 1\nhidden = [4, 16]\nl2 = [1e-4, 1e-1]\nepochs = 4\n'
            f"[table3]\nmethods = [{methods}]\n"
        )
        found[reading] = reproduce("table3", reading=reading, config=own, out=folder / "run")
    return found


@pytest.mark.parametrize("reading", ["2019", "scikit-learn"])
def test_every_cell_is_selected_by_its_own_metric(readings, reading):
    (chosen,) = rows_of(readings[reading].folder, "selection")  # replaced methods have no search
    best = {}
    for metric, table in (("f1", chosen["grid"]), ("g_mean", chosen["g_mean"]["grid"])):
        best[metric] = max(table, key=lambda one: one["score"])
    assert (chosen["hidden"], chosen["l2"]) == (best["f1"]["hidden"], best["f1"]["l2"])
    row = next(row for row in rows_of(readings[reading].folder, "table3") if row["method"] == "crcen")
    assert (row["g_mean_hidden"], row["g_mean_l2"]) == (best["g_mean"]["hidden"], best["g_mean"]["l2"])
    data = crcen.load_dataset("abalone")
    split = splits(data, read_settings(False, None, reading)["protocol"] | {"splits": 1})[0]
    own = {"schedule": crcen.Schedule(batch_size=200, learning_rate=1e-3)} if reading == "scikit-learn" else {}
    if own:
        own["encoding"] = crcen.Inputs(encoding="standard", standardize=False)
    for metric, one in best.items():
        model = make_method("crcen", hidden=(one["hidden"],), l2=one["l2"], max_epochs=4, random_state=0, **own)
        model.fit(data.X[split.train], data.y[split.train])
        counts = crcen.confusion_counts(data.y[split.test], model.predict(data.X[split.test]))
        assert row[metric] == pytest.approx(float(getattr(counts, metric)))


def test_methods_of_a_reading_are_those_of_their_libraries(readings):
    for run in readings.values():
        row = next(row for row in rows_of(run.folder, "table3") if row["method"] == "rusboost")
        assert row["estimators"] == 50
    forest = READINGS["2019"]["balanced_rf"](random_state=0)
    assert (forest.bootstrap, forest.replacement, forest.sampling_strategy) == (True, False, "auto")
    network = READINGS["scikit-learn"]["mlp"](random_state=0)
    sampler, after = READINGS["scikit-learn"]["smote"](random_state=0)
    assert type(sampler).__name__ == "SMOTE"
    for one in (network, after):
        assert one.get_params() == MLPClassifier((100,), random_state=0).get_params()


def rows_at(gap, sets=("abalone", "scene"), methods=("crcen", "csmlp", "mlp")):
    return [
        {"method": method, "dataset": name, "split": 0, "recall": 0.5, "specificity": 0.5}
        | {metric: published("table3", method, name, metric)[0] + gap for metric in ("f1", "g_mean")}
        for name in sets
        for method in methods
    ]


def test_readings_are_compared_with_the_published_cells_and_judge_the_claims():
    given = {"today": rows_at(0.05, methods=("crcen",)), "2019": rows_at(-0.01, sets=("scene",))}
    table = READING_TABLE["compare_cells"](given)
    lines = {(line["method"], line["cell"]): line for line in table.rows}
    paper = published("table3", "crcen", "scene", "f1")[0]
    both = lines["CRCEN", "scene F1"]
    assert (both["paper"], both["closest"], both["reached"]) == (f"{paper:.3f}", "2019", "yes")
    assert both["today"] == f"{paper + 0.05:.3f} (+0.050)"
    one = lines["CRCEN", "abalone Gm"]
    assert (one["2019"], one["closest"], one["reached"]) == ("–", "today", "no")
    assert "no reading reaches 2 of 8 cells" in table.note
    rows = {"today": rows_at(0.05, methods=["crcen"]), "2019": rows_at(-0.01, methods=["crcen"])}
    table = READING_TABLE["compare_readings"](rows)
    assert [line["method"] for line in table.rows] == ["CRCEN", "all methods"]
    for line in table.rows:
        assert (line["today: mean absolute difference"], line["2019: mean absolute difference"]) == ("0.050", "0.010")
        assert (line["today: within .03"], line["2019: within .03"]) == ("0 of 4", "4 of 4")
        assert line["any reading: within .03"] == "4 of 4"
    table = READING_TABLE["compare_claims"]({"today": rows_at(0.0), "2019": rows_at(0.0, methods=("csmlp", "mlp"))}, {})
    lines = {line["claim of the paper"]: line for line in table.rows}
    wins = lines["CRCEN has an overall better performance than the others"]
    assert wins["today"].startswith("holds: best in 4 of 4 columns of Table 3, 4 in the paper")
    assert "best in 0 of 4" in wins["2019"]
    assert lines["CRCEN is slightly better than CSMLP and comparable"]["2019"] == "–"


def test_parts_of_a_run_are_joined_and_compared(readings, tmp_path, monkeypatch, capsys):
    run = readings["2019"]

    def printed(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(ROOT / "scripts" / script), run_name="__main__")
        return capsys.readouterr().out

    lines = printed("join_runs.py", run.folder, run.folder, "--out", tmp_path).splitlines()
    assert lines[0].startswith("2 of 192 rows of Table 3")
    assert "missing: abalone, split 1, crcen" in lines
    assert "missing: abalone, split 0, crcen" not in lines
    assert (tmp_path / "table3" / "table3.md").exists()
    assert not (tmp_path / "table3" / "DONE").exists()
    given = f"today={ROOT / 'results' / 'full'}", f"2019={tmp_path}"
    assert "### The paper's claims under each reading" in printed("reading_table.py", *given)
    assert "### Table 3, cell by cell" in printed("reading_table.py", "--cells", *given)
    assert np.min(read_settings(False, None, "2019")["protocol"]["l2"]) == 1e-5


KEY = ("dataset", "split")
ROWS = [{"dataset": "a", "split": s, "x": 0.1 * s, "nothing": None, "far": float("-inf")} for s in range(3)]


def opened(folder, **settings):
    return RunFolder(folder, {"seed": 0, **settings}, KEY)


def test_rows_are_on_disk_when_add_returns_and_found_again(tmp_path, monkeypatch):
    synced = []
    run = opened(tmp_path)
    run.add([])
    assert not (tmp_path / "rows.jsonl").exists()
    monkeypatch.setattr(run_folder.os, "fsync", lambda fd: synced.append(os.fstat(fd).st_size))
    run.add(ROWS[:2])
    run.add(ROWS[2:])
    assert synced[-1] == (tmp_path / "rows.jsonl").stat().st_size
    assert run.rows == opened(tmp_path).rows == ROWS
    asked = {"split": 2}, {"split": 3}, {"curve": "none"}
    assert [run.has(dataset="a", **one) for one in asked] == [True, False, False]


TAILS = [b'{"dataset": "a", "spl', b'{"dataset": "a", "split": 9}', b"\x00\x00\xff", b"{", b""]


@pytest.mark.parametrize("tail", TAILS)
def test_truncated_line_is_dropped_from_the_file(tmp_path, tail):
    opened(tmp_path).add(ROWS)
    path = tmp_path / "rows.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    again = opened(tmp_path)
    assert (again.rows, path.read_bytes()) == (ROWS, whole)
    again.add([{"dataset": "b", "split": 0}])
    assert opened(tmp_path).rows == [*ROWS, {"dataset": "b", "split": 0}]


def test_first_row_of_a_key_is_kept_and_other_settings_are_rejected_by_name(tmp_path_factory, tmp_path):
    first = tmp_path_factory.mktemp("first")
    run = opened(first)
    run.add([ROWS[0], {**ROWS[0], "x": "again"}])
    run.add([{**ROWS[0], "x": "another"}, ROWS[1]])
    assert run.rows == ROWS[:2]
    with (first / "rows.jsonl").open("a") as file:
        file.write(json.dumps({**ROWS[1], "x": "of another run"}) + "\n")
    assert opened(first).rows == ROWS[:2]
    opened(first).add(ROWS)
    assert opened(first).rows == ROWS
    opened(tmp_path, folds=4, sets=("a", "b")).add(ROWS)
    opened(tmp_path, folds=4, sets=["a", "b"])  # a tuple and a list are the same setting
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    message = r"other settings \(folds, scoring\); give another --out"
    with pytest.raises(crcen.InvalidParameter, match=message) as caught:
        opened(tmp_path, folds=3, sets=["a", "b"], scoring="f1")
    assert str(tmp_path) in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert settings_hash({"a": 1, "b": 2}) == settings_hash({"b": 2, "a": 1}) != settings_hash({"a": 1})


def test_environment_is_written_once_and_an_interrupted_folder_is_completed(tmp_path, monkeypatch):
    written = []

    def killed(path, content):
        written.append(path.name)
        if len(written) == 2:
            raise KeyboardInterrupt
        write_atomic(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(run_folder, "write_atomic", killed)
        with pytest.raises(KeyboardInterrupt):
            opened(tmp_path)
    run = opened(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"settings.json", "environment.json"}
    run.write_tables({})
    assert (tmp_path / "DONE").exists()
    path = tmp_path / "environment.json"
    environment = json.loads(path.read_text())
    assert environment.keys() == {"crcen", "python", "platform", "processors", "device", "packages", "command"}
    assert environment["packages"].keys() >= {"numpy", "torch", "scikit-learn", "imbalanced-learn"}
    path.write_text("the first run's")
    opened(tmp_path)
    assert path.read_text() == "the first run's"


def test_full_disk_keeps_whole_rows_with_an_error(full_disk):
    run = opened(full_disk)
    run.add(ROWS)
    whole = (full_disk / "rows.jsonl").read_bytes()
    with pytest.raises(DataUnavailable, match=r"rows\.jsonl was not written: No space left on device"):
        run.add([{"dataset": "b", "split": split, "x": "y" * 5_000} for split in range(20)])
    assert (full_disk / "rows.jsonl").read_bytes() == whole
    assert opened(full_disk).rows == run.rows == ROWS


TABLES = {"table1": ("table1",), "table3": ("table3", "table3_ranks"), "figure1": ("figure1", "figure1_pairs")}


QUICK = read_settings(quick=True)
PROTOCOL = QUICK["protocol"] | {"folds": 2, "hidden": [2], "l2": [1e-3, 1e-1], "epochs": 1, "members": 2}
PROTOCOL |= {"selection": "per_split", "scoring": "g_mean"}
TABLE1 = QUICK["table1"] | {"runs": 3, "runs_at_once": 1, "n_pos": 50, "n_neg": 500, "n_test": 50, "hidden": [3]}


def run_all(folder):
    run_table1(TABLE1 | {"epochs": 2}, folder / "table1")
    selection = RunFolder(folder / "selection", PROTOCOL, key=("dataset", "split", "method"))
    run_table3(PROTOCOL, ["crcen", "smote"], folder / "table3", selection, None)
    run_figure1(PROTOCOL, [0.5, 1.0], folder / "figure1", selection, None)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The folder of an undisturbed run, and that of a run stopped in each of its parts, which left half a line."""
    calm, stopped = tmp_path_factory.mktemp("calm"), tmp_path_factory.mktemp("stopped")
    run_all(calm)
    add = RunFolder.add
    # Between the chunks of table 1, after a choice and a row of table 3, and after a split of figure 1.
    for part, n in (("table1", 3), ("table3", 3), ("figure1", 6)):
        path = stopped / part / "rows.jsonl"

        def add_and_stop(self, rows, path=path, n=n):
            add(self, rows)
            if path.exists() and path.read_bytes().count(b"\n") >= n:
                raise KeyboardInterrupt

        with mock.patch.object(RunFolder, "add", add_and_stop), pytest.raises(KeyboardInterrupt):
            run_all(stopped)
        assert not (stopped / part / "DONE").exists()
        assert not (stopped / part / f"{part}.md").exists()
        path.write_bytes(path.read_bytes() + b'{"dataset": "abalone", "sp')
        if part == "figure1":  # within a split, too
            path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]) + b'{"dataset": "abalone", "sp')
    run_all(stopped)
    return calm, stopped


def test_finished_run_computes_nothing(folders, monkeypatch):
    for name in ("_simulate", "_evaluate", "_counts"):
        monkeypatch.setattr(module, name, None)
    run_all(folders[0])


@pytest.mark.parametrize("part", [*TABLES, "selection"])
def test_stopped_run_ends_with_the_same_rows_tables_and_figure(folders, part):
    both = ([{k: v for k, v in row.items() if "seconds" not in k} for row in rows_of(one, part)] for one in folders)
    assert next(both) == next(both)
    names = [f"{name}.{suffix}" for name in TABLES.get(part, ()) for suffix in ("md", "csv")]
    for name in [*names, *(("figure1.svg", "figure1.png") if part == "figure1" else ())]:
        one, other = ((folder / part / name).read_bytes() for folder in folders)
        assert one == other
        assert len(one.splitlines()) > 2
    for folder in folders:
        assert (folder / part / "DONE").exists() == (part in TABLES)
        assert not list((folder / part).rglob("*.part"))
