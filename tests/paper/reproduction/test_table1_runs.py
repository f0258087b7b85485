"""Table 1 on a few runs."""

import csv
import io

import numpy as np
import pytest

from crcen.paper.reproduction.published import published
from crcen.paper.reproduction.table1 import run_table1, table1

SETTINGS = {
    "runs": 3,
    "runs_at_once": 2,
    "n_pos": 1000,
    "n_neg": 10000,
    "n_test": 1000,
    "seed": 0,
    "hidden": [10],
    "epochs": 15,
    "learning_rate": 0.01,
}
RHS = {"half": 10.0, "balanced": 1.0, "double": 0.5}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_table1(SETTINGS, tmp_path_factory.mktemp("table1"))


def test_every_run_and_weight_has_its_row(run):
    keys = [(row["simulation"], row["run"], row["weighting"]) for row in run.rows]
    assert len(keys) == len(set(keys))
    assert set(keys) == {(s, r, w) for s in ("sim1", "sim2") for r in range(3) for w in RHS}
    assert {row["weighting"]: row["lam"] for row in run.rows} == {
        "half": 0.5,
        "balanced": pytest.approx(10 / 11),
        "double": pytest.approx(20 / 21),
    }


def test_the_training_equation_holds_in_every_network(run):
    assert all(0 <= row["train_residual"] <= 1e-12 for row in run.rows)


def test_unseen_rows_keep_to_the_theory_within_sampling_noise(run):
    # The published standard deviation is of one run; a mean of 3 lies within 5/√3 of them.
    for name in ("sim1", "sim2"):
        for weight, rhs in RHS.items():
            own = [row for row in run.rows if (row["simulation"], row["weighting"]) == (name, weight)]
            assert all(row["rhs"] == pytest.approx(rhs) for row in own)
            noise = 5 / np.sqrt(len(own)) * published("table1", name, weight, "lhs")[1]
            assert abs(np.mean([row["lhs"] for row in own]) - rhs) < noise


def test_the_left_side_is_that_of_the_class_means(run):
    for row in run.rows:
        assert row["lhs"] == pytest.approx((1 - row["mean_pos"]) / row["mean_neg"], rel=1e-12)


def test_runs_differ(run):
    assert len({row["lhs"] for row in run.rows}) == len(run.rows)


def test_tables_are_written_with_the_published_numbers(run):
    assert (run.folder / "DONE").exists()
    table = table1(run.rows)
    assert (run.folder / "table1.md").read_text() == table.markdown()
    lines = list(csv.DictReader(io.StringIO((run.folder / "table1.csv").read_text())))
    assert [line["paper (LHS)"] for line in lines] == [
        "10.05 (1.13)",
        "1.00 (0.09)",
        "0.50 (0.04)",
        "10.12 (0.67)",
        "1.01 (0.05)",
        "0.50 (0.03)",
    ]
    assert [line["theory (RHS)"] for line in lines] == ["10", "1", "0.5"] * 2
    assert {line["runs"] for line in lines} == {"3"}


def hand_row(run, lhs):
    return {"simulation": "sim1", "weighting": "balanced", "run": run, "lhs": lhs, "rhs": 1.0, "train_residual": 2e-16}


def test_means_and_deviations_of_rows_made_by_hand():
    (line,) = table1([hand_row(0, 0.9), hand_row(1, 1.1), hand_row(2, 1.3)]).rows
    assert line["ours (LHS)"] == "1.10 (0.20)"
    assert line["paper − ours, in our sd"] == "-0.50"  # (1.00 − 1.10) / 0.20
    assert line["largest training residual"] == "2.0e-16"


def test_one_run_has_no_deviation():
    (line,) = table1([hand_row(0, 0.9)]).rows
    assert line["ours (LHS)"] == "0.90 (nan)"


def test_a_finished_run_trains_nothing_again(run, monkeypatch):
    monkeypatch.setattr("crcen.paper.reproduction.table1._simulate", None)
    again = run_table1(SETTINGS, run.folder)
    assert again.rows == run.rows
