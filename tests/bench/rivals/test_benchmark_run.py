"""Runs on toy sets: rows, failures, resuming, merging, tables, and the two ways to start one."""

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import crcen
from bench.rivals import page
from bench.rivals import run as run_module
from bench.rivals.__main__ import main
from bench.rivals.peer import Peer
from bench.rivals.peers import PEERS, choose_peers
from bench.rivals.results import METRICS
from bench.rivals.run import benchmark
from bench.rivals.search import cross_validated
from crcen.exceptions import MissingExtra

LOAD, DRAW = crcen.load_dataset, page.draw_ranks
SMALL = {"sets": ["ecoli", "oil"], "splits": 2, "settings": 2, "jobs": 1}


@pytest.fixture(autouse=True)
def toys(toy_sets):
    """Toy rows under the benchmark's names; what an earlier test loaded is forgotten."""
    run_module._loaded.cache_clear()
    yield toy_sets
    run_module._loaded.cache_clear()


@pytest.fixture(autouse=True)
def no_diagrams(monkeypatch):
    """Diagrams take longer than toy runs: they are drawn in the one test that asks for them."""

    def missing(rankings, suffix):
        raise MissingExtra("matplotlib is not installed")

    monkeypatch.setattr(page, "draw_ranks", missing)


def rows_of(folder):
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def without_times(rows):
    return sorted(
        ({k: v for k, v in row.items() if not k.startswith(("seconds", "processor_"))} for row in rows), key=str
    )


def fail(setting, seed):
    raise MemoryError("no room\nleft")


def test_a_run_gives_a_row_for_each_set_split_and_peer(tmp_path, monkeypatch):
    monkeypatch.setattr(page, "draw_ranks", DRAW)
    done = benchmark("crcen,logistic", **SMALL, out=tmp_path)
    rows = rows_of(tmp_path)
    assert {(r["dataset"], r["split"], r["peer"]) for r in rows} == {
        (d, s, p) for d in ("ecoli", "oil") for s in (0, 1) for p in ("crcen", "logistic")
    }
    for row in rows:
        assert "error" not in row
        assert all(np.isfinite(row[metric]) for metric in METRICS)
        assert row["seconds_fit"] > 0
        assert row["seconds_predict"] > 0
        assert row["settings"] == (2 if row["peer"] == "logistic" else 1)
    assert done.folder == tmp_path
    assert "Mean ranks, all sets" in "".join(done.texts)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"settings.json", "environment.json", "g_mean.csv", "ranks_development.md", "ranks_confirmation.svg",
            "budgets.md", "own_decisions.md", "log_loss.md"} <= names  # fmt: skip
    assert "failures.md" not in names


def test_a_row_is_what_the_protocol_says(tmp_path, toy):
    """Logistic regression at its default, by hand."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score
    from sklearn.model_selection import StratifiedShuffleSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    benchmark("logistic", **{**SMALL, "settings": 1}, out=tmp_path)
    data = toy("oil", seed=sum(map(ord, "oil")))
    train, test = list(StratifiedShuffleSplit(4, test_size=0.25, random_state=0).split(data.X, data.y))[1]
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X[train], data.y[train])
    row = next(r for r in rows_of(tmp_path) if (r["dataset"], r["split"]) == ("oil", 1))
    p = model.predict_proba(data.X[test])[:, 1]
    assert row["average_precision"] == pytest.approx(average_precision_score(data.y[test], p))
    assert row["g_mean"] == pytest.approx(crcen.g_mean(data.y[test], p > row["threshold_g_mean"]))
    assert row["own_f1"] == pytest.approx(crcen.confusion_counts(data.y[test], p > 0.5).f1)


def test_a_finished_run_runs_nothing_again(tmp_path, toys, monkeypatch):
    benchmark("logistic", **SMALL, out=tmp_path)
    before = (tmp_path / "rows.jsonl").read_bytes()
    monkeypatch.setattr(run_module, "evaluate", None)
    benchmark("logistic", **SMALL, out=tmp_path)
    benchmark("all", **SMALL, out=tmp_path, tables_only=True)
    assert (tmp_path / "rows.jsonl").read_bytes() == before


def test_an_interrupted_run_goes_on(tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    benchmark("logistic", **SMALL, out=whole)
    evaluate, calls = run_module.evaluate, []

    def interrupted(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return evaluate(*arguments)

    monkeypatch.setattr(run_module, "evaluate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        benchmark("logistic", **SMALL, out=tmp_path / "cut")
    assert len(rows_of(tmp_path / "cut")) == 2
    with open(tmp_path / "cut" / "rows.jsonl", "ab") as file:
        file.write(b'{"dataset": "ec')  # a line that a kill cut off
    benchmark("logistic", **SMALL, out=tmp_path / "cut")
    assert len(calls) == 5
    assert without_times(rows_of(tmp_path / "cut")) == without_times(rows_of(whole))


def test_more_splits_go_on_from_fewer_and_keep_their_rows(tmp_path):
    benchmark("logistic", **{**SMALL, "splits": 1}, out=tmp_path / "grown")
    benchmark("logistic", **SMALL, out=tmp_path / "grown")
    benchmark("logistic", **SMALL, out=tmp_path / "whole")
    assert without_times(rows_of(tmp_path / "grown")) == without_times(rows_of(tmp_path / "whole"))


def test_other_settings_are_refused(tmp_path):
    benchmark("logistic", **SMALL, out=tmp_path)
    with pytest.raises(crcen.InvalidParameter, match="other settings"):
        benchmark("logistic", **{**SMALL, "settings": 3}, out=tmp_path)


@pytest.fixture
def broken(monkeypatch):
    """A peer that always fails, and one that is not installed."""
    always = Peer("broken", "broken", "tree", "nowhere", fail, cross_validated)
    for peer in (always, replace(always, name="absent", label="absent", modules=("no_such_module",), note="a pity")):
        monkeypatch.setitem(PEERS, peer.name, peer)


def test_failures_are_rows_that_say_so(tmp_path, broken):
    done = benchmark("broken,absent,logistic", **{**SMALL, "splits": 1}, out=tmp_path)
    errors = {row["peer"]: row["error"] for row in rows_of(tmp_path) if "error" in row}
    assert errors["broken"] == "MemoryError: no room left"
    assert errors["absent"] == "nowhere is not installed here (No module named 'no_such_module'); a pity"
    assert sum(row["peer"] == "absent" for row in rows_of(tmp_path)) == 1
    text = done.texts[-1]
    assert "| broken | MemoryError: no room left | ecoli 0, oil 0 |" in text.replace("oil 0, ecoli 0", "ecoli 0, oil 0")
    assert "| all sets |" in text
    ranks = (tmp_path / "ranks_all.csv").read_text().splitlines()
    assert [line.split(",")[:3] for line in ranks[1:]] == [["logistic regression", "linear", "1.00"],
                                                          ["broken", "tree", "2.00"]]  # fmt: skip


def test_over_budget_is_a_row_and_can_be_redone(tmp_path, monkeypatch):
    class Endless:
        def fit(self, X, y):
            while True:
                pass

    slow = Peer("slow", "slow", "tree", "nowhere", lambda setting, seed: Endless(), cross_validated)
    monkeypatch.setitem(PEERS, "slow", slow)
    small = {**SMALL, "sets": ["ecoli"], "splits": 1}
    benchmark("slow", **small, out=tmp_path, time_limit=0.2)
    assert (
        rows_of(tmp_path)[0]["error"] == "over budget: no setting was fitted and refitted within 0.2 processor seconds"
    )
    monkeypatch.setitem(PEERS, "slow", replace(PEERS["logistic"], name="slow"))
    benchmark("slow", **small, out=tmp_path)
    assert "error" in rows_of(tmp_path)[0]
    benchmark("slow", **small, out=tmp_path, redo="failed")
    assert "error" not in rows_of(tmp_path)[0]


def test_redo_forgets_one_peer_only(tmp_path):
    small = {**SMALL, "splits": 1}
    benchmark("logistic,logistic_weighted", **small, out=tmp_path)
    kept = [row for row in rows_of(tmp_path) if row["peer"] == "logistic"]
    benchmark("logistic", **small, out=tmp_path, redo="logistic_weighted")
    assert rows_of(tmp_path) == kept
    with pytest.raises(crcen.InvalidParameter, match="there is no peer logstic to redo"):
        benchmark("logistic", **small, out=tmp_path, redo="logstic")


def test_rows_of_another_machine_are_taken_over(tmp_path):
    small = {**SMALL, "splits": 1}
    benchmark("logistic", **small, out=tmp_path / "here")
    benchmark("logistic_weighted", **small, out=tmp_path / "there")
    benchmark("logistic", **small, out=tmp_path / "here", rows_from=[tmp_path / "there"])
    assert {row["peer"] for row in rows_of(tmp_path / "here")} == {"logistic", "logistic_weighted"}
    benchmark("logistic", **{**small, "settings": 1}, out=tmp_path / "other")
    with pytest.raises(crcen.InvalidParameter, match="other settings"):
        benchmark("logistic", **small, out=tmp_path / "here", rows_from=[tmp_path / "other"])
    with pytest.raises(crcen.InvalidParameter, match="holds no run"):
        benchmark("logistic", **small, out=tmp_path / "here", rows_from=[tmp_path])


def test_a_peer_with_a_size_limit_is_not_run_beyond_it(tmp_path, monkeypatch):
    limited = replace(PEERS["logistic"], name="limited", max_cells=336 * 7)  # ecoli's size
    monkeypatch.setitem(PEERS, "limited", limited)
    benchmark("logistic,limited", **{**SMALL, "splits": 1}, out=tmp_path)
    assert {row["dataset"] for row in rows_of(tmp_path) if row["peer"] == "limited"} == {"ecoli"}
    assert "Not ranked here, since run on some sets or splits only" in (tmp_path / "ranks_all.md").read_text()
    assert "1 of 2 sets × 1 split" in (tmp_path / "partial_all.md").read_text()
    assert "2,352 numbers" in (tmp_path / "budgets.md").read_text()


def test_a_size_limit_does_not_hold_on_a_graphics_card(monkeypatch):
    import torch

    peer = replace(PEERS["tabm"], max_cells=100)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert (peer.takes(100), peer.takes(101), peer.device()) == (True, False, "cpu")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "card 9")
    assert (peer.takes(101), peer.device()) == (True, "card 9")
    assert not replace(peer, is_accelerated=False).takes(101)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"peers": "lightgmb"}, "there is no peer lightgmb: choose core, all or committee"),
        ({"splits": 0}, "splits must be at least 1: got 0"),
        ({"settings": 0}, "settings must be at least 1"),
        ({"jobs": 0}, "jobs must be at least 1"),
        ({"time_limit": 0.0}, "time_limit must be above 0"),
        ({"sets": ["nothing"]}, "nothing is not in the benchmark"),
    ],
)
def test_bad_choices_are_refused_before_anything_is_written(tmp_path, options, sentence):
    with pytest.raises(crcen.InvalidParameter, match=sentence):
        benchmark(**options, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_give_the_rows_of_one(tmp_path, monkeypatch):
    """On the package's own abalone: toy sets do not reach other processes."""
    monkeypatch.setattr(crcen, "load_dataset", LOAD)
    for jobs in (1, 2):
        benchmark("logistic", sets=["abalone"], splits=2, settings=1, jobs=jobs, out=tmp_path / str(jobs))
    assert without_times(rows_of(tmp_path / "1")) == without_times(rows_of(tmp_path / "2"))


def test_a_bare_machine_can_run_it(tmp_path):
    """`python -m` where neither typer nor rich can be imported."""
    code = (
        "import sys, runpy\n"
        "sys.modules['rich'] = sys.modules['typer'] = None\n"
        "sys.argv = ['benchmark', *sys.argv[1:]]\n"
        "runpy.run_module('bench.rivals', run_name='__main__')\n"
    )
    options = ["--peers", "logistic", "--sets", "abalone", "--splits", "1", "--settings", "1", "--jobs", "1"]
    command = [sys.executable, "-c", code, *options, "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "benchmark: 1/1 abalone split 0 logistic" in done.stderr
    assert done.stdout.endswith(f"Written to {tmp_path}\n")


def test_the_plain_entry_refuses_in_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr("sys.argv", ["benchmark", "--peers", "nobody", "--out", str(tmp_path)])
    assert main() == 1
    assert capsys.readouterr().err.startswith("crcen: there is no peer nobody: choose core, all or committee, ")


def test_the_plain_entry_says_that_it_can_be_resumed(monkeypatch, capsys, tmp_path):
    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(run_module, "evaluate", interrupt)
    options = ["--peers", "logistic", "--sets", "ecoli", "--jobs", "1", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["benchmark", *options])
    assert main() == 130
    assert capsys.readouterr().err == "crcen: interrupted; run the same command again to resume.\n"


def test_core_leaves_out_the_costly_ones():
    core = {peer.name for peer in choose_peers("core")}
    assert {peer.name for peer in choose_peers("all")} - core == {
        "catboost", "catboost_weighted", "realmlp", "tabm",
    }  # fmt: skip
    assert [peer.name for peer in choose_peers("lightgbm,crcen_cv")] == ["crcen_cv", "lightgbm"]


def test_searched_peers_have_as_many_settings_as_asked():
    for peer in PEERS.values():
        assert len(peer.settings(16)) in (1, 16), peer.name
        assert (
            peer.name
            in (
                "committee",
                "crcen_settings",
                "crcen_cv",
                "crcen_cv_balanced",
                "crcen",
                "mlp_threshold",
                "realmlp",
                "tabm",
            )
            or len(peer.settings(16)) == 16
        )


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.space])
def test_every_setting_of_a_peer_makes_an_estimator(name):
    peer = PEERS[name]
    if peer.missing():
        pytest.skip(peer.missing())
    made = [peer.make(setting, 0) for setting in peer.settings(16)]
    assert len({str(model.get_params()) for model in made}) == 16


LIGHT = {
    "lightgbm_weighted": {"n_estimators": 20},
    "xgboost": {"n_estimators": 20},
    "hist_gb_weighted": {"max_iter": 20},
    "catboost_weighted": {"iterations": 20},
    "balanced_rf": {"n_estimators": 10},
    "easy_ensemble": {"n_estimators": 2, "rounds": 5, "learning_rate": 1.0, "depth": 1},
    "rusboost": {"n_estimators": 10, "learning_rate": 1.0, "depth": 2},
    "smote_mlp": {"hidden": (4,), "l2": 1e-3},
    "adasyn_mlp": {"hidden": (4,), "l2": 1e-3},
    "sklearn_mlp_weighted": {"hidden_layer_sizes": (8,), "max_iter": 60, "learning_rate_init": 0.01},
}


@pytest.mark.parametrize("name", LIGHT)
def test_a_peer_scores(name, tmp_path, monkeypatch):
    if PEERS[name].missing():
        pytest.skip(PEERS[name].missing())
    monkeypatch.setitem(PEERS, name, replace(PEERS[name], default=LIGHT[name], space={}))
    benchmark(name, sets=["ecoli"], splits=1, jobs=1, out=tmp_path)
    (row,) = rows_of(tmp_path)
    assert "error" not in row
    assert row["roc_auc"] > 0.6
