"""Table 3 run on small sets: what a row holds, and what becomes of a method that fails."""

import dataclasses
import json

import numpy as np
import pytest

import crcen
from crcen.datasets.dataset import Dataset
from crcen.exceptions import MissingExtra, TrainingFailed
from crcen.paper.reproduction.protocol import splits
from crcen.paper.reproduction.table3 import run_table3
from crcen.training.jobs import Status, TrainingResult
from papers_training import CRCENClassifier

OURS = ["mlp", "crcen", "mlp_threshold", "crcen_ensemble"]


def replace_make(monkeypatch, name, make):
    monkeypatch.setitem(crcen.METHODS, name, dataclasses.replace(crcen.METHODS[name], make=make))


def without_seconds(rows):
    return [{k: v for k, v in row.items() if k not in ("seconds", "search_seconds")} for row in rows]


def test_rows_hold_counts_metrics_and_what_was_chosen(tmp_path, protocol, selection, toy_sets, toy):
    run = run_table3(protocol, OURS, tmp_path / "t3", selection, None)
    assert (run.folder / "DONE").exists()
    assert [(r["dataset"], r["split"], r["method"]) for r in run.rows] == [("toy", s, m) for s in (0, 1) for m in OURS]
    data = toy("toy", seed=sum(map(ord, "toy")))
    for row in run.rows:
        test = splits(data, protocol)[row["split"]].test
        assert row["tp"] + row["fn"] == data.y[test].sum()
        assert row["fp"] + row["tn"] == (data.y[test] == 0).sum()
        assert {"recall", "specificity", "precision", "f1", "g_mean", "average_precision", "log_loss"} <= row.keys()
        assert row["hidden"] in protocol["hidden"]
        assert row["l2"] in protocol["l2"]
        assert row["train_residual"] <= 1e-12
        assert row["seconds"] >= 0
    assert toy_sets == ["toy"]  # loaded once
    # An average of networks takes what was chosen for one.
    assert {row["method"] for row in selection.rows} == {"mlp", "crcen", "mlp_threshold"}


def test_the_row_is_the_method_fitted_on_training_rows_and_scored_on_test_rows(
    tmp_path, protocol, selection, toy_sets, toy
):
    run = run_table3(protocol, ["crcen_ensemble"], tmp_path / "t3", selection, None)
    data = toy("toy", seed=sum(map(ord, "toy")))
    row = run.rows[1]
    split = splits(data, protocol)[1]
    model = CRCENClassifier(
        hidden=(row["hidden"],),
        l2=row["l2"],
        max_epochs=protocol["epochs"],
        n_members=2,
        random_state=1,
        encoding="standard",
    ).fit(data.X[split.train], data.y[split.train])
    counts = crcen.confusion_counts(data.y[split.test], model.predict(data.X[split.test]))
    assert [row[name] for name in ("tp", "fp", "fn", "tn")] == [counts.tp, counts.fp, counts.fn, counts.tn]
    assert row["f1"] == counts.f1


@pytest.mark.parametrize("error", [ValueError("BaseClassifier is worse\n than random"), TrainingFailed("lost")])
def test_a_method_that_raises_becomes_a_row_that_says_so(tmp_path, protocol, selection, toy_sets, monkeypatch, error):
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


def test_a_missing_extra_is_no_failure_of_the_method(tmp_path, protocol, selection, toy_sets, monkeypatch):
    def missing(**params):
        raise MissingExtra("imblearn is not installed; get it with: pip install 'crcen[baselines]'")

    replace_make(monkeypatch, "balanced_rf", missing)
    with pytest.raises(MissingExtra, match="baselines"):
        run_table3(protocol, ["mlp", "balanced_rf"], tmp_path / "t3", selection, None)
    rows = (tmp_path / "t3" / "rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["method"] for line in rows] == ["mlp"]  # what was done is kept
    assert not (tmp_path / "t3" / "DONE").exists()


def test_adasyn_with_nothing_to_generate_is_a_row_that_says_so(tmp_path, protocol, selection, monkeypatch):
    # Every positive row has only positive neighbours: ADASYN has nowhere to put a row.
    rng = np.random.default_rng(0)
    y = (np.arange(200) < 40).astype(int)
    X = rng.normal(size=(200, 2)) + 100 * y[:, None]
    monkeypatch.setattr(crcen, "load_dataset", lambda *_: Dataset("toy", X, y, ("a", "b"), "separable"))
    run = run_table3(protocol, ["adasyn", "smote"], tmp_path / "t3", selection, None)
    by_method = {m: [row for row in run.rows if row["method"] == m] for m in ("adasyn", "smote")}
    assert all("adasyn cannot rebalance these rows" in row["error"] for row in by_method["adasyn"])
    assert all("f1" in row for row in by_method["smote"])
    assert "failed" in (run.folder / "table3.md").read_text()


def test_networks_that_all_diverge_are_a_row_that_says_so(tmp_path, protocol, selection, toy_sets, monkeypatch):
    def diverged(X, y, jobs):
        lost = TrainingResult(network=None, status=Status.DIVERGED, n_iter=1, loss_curve=np.array([np.nan]))
        return [lost for _ in jobs]

    monkeypatch.setattr("crcen.paper.reproduction.protocol.find_engine", lambda _: diverged)
    run = run_table3(protocol, ["mlp"], tmp_path / "t3", selection, None)
    assert all("diverged" in row["error"] or "infinite or NaN" in row["error"] for row in run.rows)


def test_a_second_start_computes_nothing_and_writes_the_same(tmp_path, protocol, selection, toy_sets, monkeypatch):
    first = run_table3(protocol, ["mlp"], tmp_path / "t3", selection, None)
    files = {p.name: p.read_bytes() for p in first.folder.iterdir()}
    monkeypatch.setattr("crcen.paper.reproduction.table3._evaluate", None)
    second = run_table3(protocol, ["mlp"], tmp_path / "t3", selection, None)
    assert second.rows == first.rows
    assert {p.name: p.read_bytes() for p in first.folder.iterdir()} == files


def test_the_seed_gives_the_same_rows(tmp_path, protocol, selection, toy_sets):
    first, second = (run_table3(protocol, ["mlp", "smote"], tmp_path / name, selection, None) for name in "ab")
    assert without_seconds(first.rows) == without_seconds(second.rows)
