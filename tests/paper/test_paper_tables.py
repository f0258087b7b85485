"""Protocol, tables and figure: choice of settings, published numbers, rows, ranks, expense, brackets, the picture."""

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
from scipy.special import expit

import crcen
from crcen.datasets.benchmark import Dataset
from crcen.exceptions import MissingExtra, TrainingFailed
from crcen.paper import protocol as module
from crcen.paper import reproduce
from crcen.paper.methods import METHODS, Tuning
from crcen.paper.protocol import _score, _search, candidates, params_of, published, select, splits
from crcen.paper.reproduce import draw_figure1, expenses, figure1_tables, run_table3, table1, table3, table3_ranks
from crcen.training import engine
from crcen.training.jobs import Status, TrainingJob, TrainingResult
from papers_training import CRCENClassifier


@pytest.fixture
def data(toy):
    return toy()


@pytest.fixture
def folds(data):
    return list(module.StratifiedKFold(2, shuffle=True, random_state=0).split(data.X, data.y))


def test_splits_are_stratified_repeated_and_reproducible(data, protocol):
    found = splits(data, protocol | {"splits": 4})
    assert [split.number for split in found] == [0, 1, 2, 3]
    for split in found:
        assert len(split.test) == round(0.25 * data.n_samples)
        np.testing.assert_array_equal(np.sort(np.concatenate([split.train, split.test])), np.arange(data.n_samples))
        assert data.y[split.test].mean() == pytest.approx(data.y.mean(), abs=1 / len(split.test))
    assert not np.array_equal(found[0].test, found[1].test)
    np.testing.assert_array_equal(splits(data, protocol | {"splits": 4})[3].train, found[3].train)


@pytest.mark.parametrize(("where", "used", "times"), [("first_split", 0, 1), ("per_split", 1, 2)])
def test_setting_is_chosen_on_the_right_split_and_kept(data, protocol, selection, monkeypatch, where, used, times):
    searched = []

    def spy(name, X, y, settings, engine):
        searched.append((name, X, y))
        return {"hidden": 4, "l2": 0.1, "score": float(len(searched)), "grid": []}

    monkeypatch.setattr(module, "_search", spy)
    settings = protocol | {"selection": where}
    found = splits(data, settings)
    select(selection, data, found[1], "crcen", settings)
    ((name, X, y),) = searched
    assert name == "crcen"
    np.testing.assert_array_equal(X, data.X[found[used].train])
    np.testing.assert_array_equal(y, data.y[found[used].train])
    assert selection.rows[0]["split"] == used
    chosen = [select(selection, data, split, "crcen", settings) for split in (*found, *found)]
    assert (len(searched), chosen[:2]) == (times, chosen[2:])
    again = module.RunFolder(selection.folder, protocol, selection.key)  # another process
    assert ([select(again, data, split, "crcen", settings) for split in found], len(searched)) == (chosen[:2], times)


@pytest.mark.parametrize("method", ["crcen", "smote"])
@pytest.mark.parametrize("where", ["first_split", "per_split"])
def test_test_rows_have_no_influence_on_the_choice(data, protocol, tmp_path, method, where):
    settings = protocol | {"selection": where}
    split = splits(data, settings)[0]
    garbage = data.X.copy()
    garbage[split.test] = 1e6 * np.random.default_rng(1).normal(size=garbage[split.test].shape)
    rows = []
    for name, X in (("clean", data.X), ("garbage", garbage)):
        other = Dataset(data.name, X, data.y, data.feature_names, data.source)
        run = module.RunFolder(tmp_path / name, settings, key=("dataset", "split", "method"))
        rows.append(select(run, other, split, method, settings))
    assert rows[0] == rows[1]


@pytest.mark.parametrize("name", ["crcen", "smote"])
def test_scaling_is_fitted_on_the_rows_of_a_fold(monkeypatch, data, folds, protocol, name):
    seen = []

    def spy(X, y, jobs):
        results = engine.train(X, y, jobs)
        seen.extend((X, job, result.network) for job, result in zip(jobs, results, strict=True))
        return results

    monkeypatch.setattr(module, "find_engine", lambda _: spy)
    _search(name, data.X, data.y, protocol)
    assert len(seen) == 4 * len(folds)
    for position, (X, job, network) in enumerate(seen):
        own = data.X[folds[position % len(folds)][0]]
        rows = X[job.rows]  # with SMOTE those of the fold and those made from them
        np.testing.assert_allclose(rows[: len(own)], own, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(network.encoding.mean, rows.mean(axis=0), rtol=1e-9)
        np.testing.assert_allclose(network.encoding.scale, rows.std(axis=0), rtol=1e-9)


@pytest.mark.parametrize("name", ["smote", "adasyn"])
def test_resampled_rows_depend_on_their_fold_alone(data, folds, protocol, name):
    training, fold_rows = METHODS[name].training, [train for train, _ in folds]
    pools, rows, labels = module._training_rows(training, name, data.X, data.y, fold_rows, protocol)
    np.testing.assert_array_equal(np.concatenate(pools), np.arange(len(rows)))
    for own, fold in zip(pools, fold_rows, strict=True):
        made = rows[own][len(fold) :]
        assert len(made) > 0
        assert (labels[own][len(fold) :] == 1).all()
        positives = data.X[fold][data.y[fold] == 1]
        np.testing.assert_allclose(made, np.clip(made, positives.min(axis=0), positives.max(axis=0)), rtol=0, atol=1e-9)
    wild, held_out = data.X.copy(), folds[0][1]
    wild[held_out[data.y[held_out] == 1][0]] = 1e6
    wild[held_out[data.y[held_out] == 0][0]] = -1e6
    (first, second), wild_rows, wild_labels = module._training_rows(training, name, wild, data.y, fold_rows, protocol)
    np.testing.assert_array_equal(rows[pools[0]], wild_rows[first])
    np.testing.assert_array_equal(labels[pools[0]], wild_labels[first])
    assert np.abs(wild_rows[second]).max() > 1e5  # the fold that owns the row does see it


@pytest.mark.parametrize("own", [{}, {"batch_size": 32, "learning_rate": 0.003, "standardize": False}])
def test_best_mean_score_wins_and_a_grid_point_scores_as_a_network_trained_alone(data, folds, protocol, own):
    found = _search("crcen", data.X, data.y, protocol | own | {"scoring": "g_mean"})
    grid = [(h, l2) for h in protocol["hidden"] for l2 in protocol["l2"]]
    assert [(entry["hidden"], entry["l2"]) for entry in found["grid"]] == grid
    assert all(entry["score"] == pytest.approx(np.mean(entry["folds"])) for entry in found["grid"])
    best = max(found["grid"], key=lambda entry: entry["score"])
    assert (found["hidden"], found["l2"], found["score"]) == (best["hidden"], best["l2"], best["score"])
    for i, (train, held_out) in enumerate(folds):
        lam = float((data.y[train] == 0).mean())
        job = TrainingJob((1 - lam, lam), rows=train, hidden=(4,), l2=0.1, max_epochs=2, **own)
        network = engine.train(data.X, data.y, [job])[0].network
        alone = crcen.g_mean(data.y[held_out], network.logits(data.X[held_out]) > 0)
        assert found["grid"][3]["folds"][i] == pytest.approx(alone, abs=0.02)
    params = params_of(Tuning(), found, protocol | own, 0)
    assert params.keys() - {"schedule", "encoding"} == {"hidden", "l2", "max_epochs", "random_state"}
    if own:
        assert (params["schedule"].batch_size, params["schedule"].learning_rate) == (32, 0.003)
        assert not params["encoding"].standardize


def test_networks_are_scored_at_the_price_of_their_method(data, protocol, monkeypatch):
    """Every network answers −1.2: p = .231, between 1 − λ of the balanced price and ½."""
    result = SimpleNamespace(network=SimpleNamespace(logits=lambda X: np.full(len(X), -1.2)))
    monkeypatch.setattr(module, "find_engine", lambda _: lambda X, y, jobs: [result for _ in jobs])
    assert 0.15 < data.y.mean() < 0.22
    for name, alarms in (("mlp", False), ("mlp_threshold", True), ("smote", False), ("crcen", False)):
        assert (_search(name, data.X, data.y, protocol | {"scoring": "f1"})["score"] > 0) == alarms, name


def test_scores_by_hand():
    logits, truth = np.array([2.0, -1.0, 0.5, -3.0, -3.0, -3.0]), np.array([1, 1, 0, 0, 0, 0])
    y, price = np.array([1, 1, 0, 0]), crcen.resolve("balanced", 1, 3)  # λ = ¾
    for metric, value in (("f1", 1 / 2), ("g_mean", np.sqrt(1 / 2 * 3 / 4))):  # TP, FP, FN, TN = 1, 1, 1, 3
        assert _score(logits, truth, price, metric) == pytest.approx(value)
    scores, weights = np.array([1.0, -0.5, 0.2, -2.0]), np.array([0.75, 0.75, 0.25, 0.25])

    def loss(logits):
        return (weights * np.log1p(np.exp(-np.where(y == 1, logits, -logits)))).sum() / weights.sum()

    def found(given, **tuning):
        proba = np.column_stack([expit(-given), expit(given)])
        model = SimpleNamespace(decision_function=lambda X: given, predict_proba=lambda X: proba)
        return module._model_score(model, Tuning(**tuning), y, y, price, "weighted_log_loss")

    assert found(scores, is_natural=True) == pytest.approx(-loss(scores + np.log(3)))
    # Without log-odds the scale is free, and the zero is not.
    free = found(scores)
    assert free == pytest.approx(-min(loss(scores * s) for s in np.logspace(-3, 2, 20001)), rel=1e-5)
    assert found(1e6 * scores) == pytest.approx(free, rel=1e-6)
    assert found(scores - 5) < free
    assert found(scores * np.nan) == found(scores * np.nan, is_natural=True) == -np.inf


def replace_make(monkeypatch, name, make):
    monkeypatch.setitem(METHODS, name, dataclasses.replace(METHODS[name], make=make))


def record_fits(monkeypatch, name):
    """The rows of every fit of a method, from now on."""
    rows, method = [], METHODS[name]

    def make(**params):
        model = method.make(**params)
        fit = model.fit
        model.fit = lambda X, y: rows.append(X) or fit(X, y)
        return model

    replace_make(monkeypatch, name, make)
    return rows


@pytest.mark.parametrize("name", ["sosr", "s2s", "msfe", "lmle", "adac2"])
def test_other_methods_are_searched_on_the_same_folds(data, folds, protocol, name, monkeypatch):
    rows = record_fits(monkeypatch, name)
    found = _search(name, data.X, data.y, protocol | {"scoring": "g_mean"})
    for i, seen in enumerate(rows):
        np.testing.assert_array_equal(seen, data.X[folds[i * len(folds) // len(rows)][0]])
    assert (len(found["grid"]), found["score"]) == (4, max(entry["score"] for entry in found["grid"]))
    train, held_out = folds[1]
    tuning = METHODS[name].tuning
    params = params_of(tuning, found["grid"][0], protocol, 0) | dict(tuning.lighter)
    alone = METHODS[name].make(**params).fit(data.X[train], data.y[train])
    by_hand = crcen.g_mean(data.y[held_out], alone.predict(data.X[held_out]))
    assert found["grid"][0]["folds"][1] == pytest.approx(by_hand)


def test_cost_ratios_end_at_the_imbalance_ratio_and_those_that_cannot_be_fitted_lose(data, protocol, monkeypatch):
    y = np.repeat([0, 1], [160, 10])
    grid = candidates(Tuning("cost"), y, protocol)
    np.testing.assert_allclose([entry["cost_ratio"] for entry in grid], [2, 4, 8, 16])
    assert len(candidates(Tuning(), y, protocol)) == 4
    adac = METHODS["adac1"].make

    class Late:
        def __init__(self, **params):
            self.params = params

        def fit(self, X, y):
            if self.params["weighting"].value > 2:
                raise crcen.InvalidInput("no")
            return adac(**self.params).fit(X, y)

    replace_make(monkeypatch, "adac1", Late)
    assert _search("adac1", data.X, data.y, protocol)["cost_ratio"] <= 2


def test_costly_methods_are_judged_by_fewer_networks_and_methods_without_a_search_rejected(data, protocol, monkeypatch):
    for name, fits in {"focal": 24, "crl": 8}.items():
        rows = record_fits(monkeypatch, name)
        _search(name, data.X, data.y, protocol | {"search_networks": 3, "epochs": 1})
        assert len(rows) == fits
    with pytest.raises(crcen.InvalidParameter, match="rusboost has nothing to search over"):
        _search("rusboost", data.X, data.y, protocol)


def test_row_of_a_fit_says_what_was_chosen(data, protocol, selection):
    for name, keys in (("adac3", {"cost_ratio"}), ("focal", {"hidden", "l2"})):
        both = splits(data, protocol)
        row, again = (reproduce._evaluate(data, split, name, protocol, selection, "local") for split in both)
        assert keys <= set(row)
        assert row["cv_score"] == next(r["score"] for r in selection.rows if r["method"] == name)
        assert 0 <= row["g_mean"] <= 1
        assert row["search_seconds"] > row["seconds"] > 0
        assert "search_seconds" not in again


SETS = {"Abalone": "abalone", "Coil": "coil_2000", "Satimage": "satimage"}
SETS |= {"Scene": "scene", "Solar": "solar_flare_m0", "UScrime": "us_crime"}
LABELS = {method.label: name for name, method in METHODS.items() if method.in_paper}


def from_csv(folder, name):
    return list(csv.DictReader(io.StringIO((folder / f"{name}.csv").read_text())))


def test_published_numbers_are_the_papers(paper_tex):
    tables = []  # cells without mark-up, row by row
    for body in re.findall(r"\\begin\{tabular\}.*?\n(.*?)\\end\{tabular\}", paper_tex, re.DOTALL):
        body = re.sub(r"\\(multirow|multicolumn)\{[^}]*\}\{[^}]*\}\{([^}]*)\}", r"\2", body)
        body = re.sub(r"\\textbf\{([^}]*)\}", r"\1", body)
        body = re.sub(r"\\(Tstrut|Bstrut|hline|toprule|midrule|bottomrule)\b", "", body)
        tables.append([[cell.strip() for cell in line.split("&")] for line in body.split(r"\\") if line.strip()])
    first, second, (head, metrics, *third) = tables
    means, spread = {line[0]: line[1:] for line in first if line[0]}, [line[1:] for line in first if not line[0]]
    for i, name in enumerate(("sim1", "sim2")):
        for j, weight in enumerate(RHS):
            cell = float(means[f"LHS (Sim{i + 1})"][j]), float(spread[i][j].strip("()"))
            assert published("table1", name, weight, "lhs") == cell
    assert [line[0] for line in second[1:]] == list(SETS)
    for label, n_samples, n_features, ratio in second[1:]:
        for name, value in (("n_samples", n_samples), ("n_features", n_features), ("imbalance_ratio", ratio)):
            metric = "ratio" if value is ratio else "count"
            assert published("table2", SETS[label], name, metric) == (float(value), None)
    columns = list(zip([SETS[name] for name in head[1:] for _ in (0, 1)], metrics[1:], strict=True))
    assert [line[0] for line in third] == list(LABELS)
    for label, *values in third:
        for (name, metric), value in zip(columns, values, strict=True):
            key = {"F1": "f1", "Gm": "g_mean"}[metric]
            assert published("table3", LABELS[label], name, key) == (float(value), None)
    assert "$(32,158)$ and $(13,263)$ are two pairs of (FN, FP) corresponding to $\\alpha=0.5$" in paper_tex
    pairs = [published("figure1", "abalone", weight, metric)[0] for weight in ("0.5", "1") for metric in ("fn", "fp")]
    assert pairs == [32, 158, 13, 263]
    assert published("table3", "mlp_threshold", "abalone", "f1") is None
    text = resources.files("crcen.paper").joinpath("published.csv").read_text(encoding="utf-8")
    assert len(text.splitlines()) == 1 + 6 + 6 * 3 + 8 * 6 * 2 + 4  # nothing else, and no cell twice


RHS = {"half": 10.0, "balanced": 1.0, "double": 0.5}
SIMULATION = reproduce.read_settings(quick=True)["table1"] | {"runs": 3, "runs_at_once": 2}


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    return reproduce.run_table1(SIMULATION, tmp_path_factory.mktemp("table1"))


def test_every_simulation_run_has_its_row(simulated):
    keys = [(row["simulation"], row["run"], row["weighting"]) for row in simulated.rows]
    assert sorted(keys) == sorted((s, r, w) for s in ("sim1", "sim2") for r in range(3) for w in RHS)
    weights = {"half": 0.5, "balanced": pytest.approx(10 / 11), "double": pytest.approx(20 / 21)}
    assert {row["weighting"]: row["lam"] for row in simulated.rows} == weights
    assert len({row["lhs"] for row in simulated.rows}) == len(simulated.rows)


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
    shown = [line[name] for name in ("ours (LHS)", "paper − ours, in our sd", "largest training residual")]
    assert shown == ["1.10 (0.20)", "-0.50", "2.0e-16"]  # (1.00 − 1.10) / 0.20
    assert (table1([{**shared, "run": 0, "lhs": 0.9}]).rows[0]["ours (LHS)"], table1([]).rows) == ("0.90 (nan)", [])


@pytest.mark.parametrize("is_bundled", [True, False])
def test_data_sets_agree_with_the_paper(tmp_path, monkeypatch, request, is_bundled):
    home = None if is_bundled else request.getfixturevalue("data_home")
    names = ["abalone", "satimage"] if is_bundled else list(SETS.values())
    if is_bundled:
        monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    run = reproduce.run_table2({"sets": names}, tmp_path, home)
    assert [(line["dataset"], line["agrees"]) for line in from_csv(tmp_path, "table2")] == [(n, "yes") for n in names]
    for row in run.rows:
        data = crcen.load_dataset(row["dataset"], home)
        assert (row["n_samples"], row["n_features"], row["source"]) == (*data.X.shape, data.source)
        assert (row["n_pos"], row["imbalance_ratio"]) == (data.y.sum(), (data.y == 0).sum() / data.y.sum())
    assert (run.folder / "DONE").exists()


def test_difference_to_the_papers_description_is_shown():
    row = {"dataset": "abalone", "n_samples": 4177, "n_features": 10, "n_pos": 391, "imbalance_ratio": 9.68}
    changes = {"yes": [{}, {"imbalance_ratio": 9.74}]}  # 9.7 in the paper's two digits
    changes["no"] = [{"n_samples": 4176}, {"n_features": 8}, {"imbalance_ratio": 9.76}]
    for agrees, change in ((agrees, change) for agrees, some in changes.items() for change in some):
        (line,) = reproduce.table2([row | {"source": "by hand"} | change]).rows
        assert (line["agrees"], line["paper n_samples"]) == (agrees, "4177")


def row(method, split, f1, g_mean=0.5, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "f1": f1, "g_mean": g_mean}


def failed(method, split, dataset="abalone"):
    return {"dataset": dataset, "split": split, "method": method, "error": "ValueError: worse than random"}


def test_cells_are_means_and_deviations_over_splits_without_failures():
    rows = [row("mlp", 0, 0.2), row("mlp", 1, 0.4), row("mlp", 2, 0.9), failed("mlp", 3), failed("rusboost", 0)]
    found = reproduce.cells([*rows, row("crcen", 0, 0.3, 0.7)])
    mean, sd, n = found["mlp", "abalone", "f1"]
    assert (mean, n) == (pytest.approx(0.5), 3)
    assert sd == pytest.approx(math.sqrt((0.09 + 0.01 + 0.16) / 2))  # ddof = 1
    assert found["mlp", "abalone", "g_mean"] == (0.5, 0.0, 3)
    assert found["crcen", "abalone", "f1"] == (0.3, pytest.approx(math.nan, nan_ok=True), 1)
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
    assert all(words in table.note for words in ("3 stratified splits", "selected by g_mean (per_split)"))
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
    scores = reproduce._scores(fixed(predicted, np.where(predicted == 1, 0.8, 0.1)), np.zeros((len(y), 1)), y)
    precision, recall, specificity = tp / (tp + fp), tp / (tp + fn), tn / (fp + tn)
    loss = -(tp * math.log(0.8) + fn * math.log(0.1) + fp * math.log(0.2) + tn * math.log(0.9)) / len(y)
    expected = {"tp": tp, "fp": fp, "fn": fn, "tn": tn, "log_loss": loss}
    expected |= {"precision": precision, "recall": recall, "specificity": specificity}
    expected |= {"f1": 2 * precision * recall / (precision + recall), "g_mean": math.sqrt(recall * specificity)}
    expected["average_precision"] = 0.6 * 6 / 16 + 0.4 * 10 / 100  # recall .6 at precision 6/16, then .4 at 10/100
    assert scores == pytest.approx(expected)
    none = reproduce._scores(fixed(np.zeros(4, int), np.full(4, 0.1)), np.zeros((4, 1)), np.array([1, 0, 0, 0]))
    assert (none["f1"], none["g_mean"], none["precision"]) == (0, 0, 0)  # as in the paper


OURS = ["mlp", "crcen", "mlp_threshold", "crcen_ensemble"]


def test_rows_hold_counts_metrics_and_what_was_chosen(tmp_path, protocol, selection, toy_sets, toy):
    run = run_table3(protocol, OURS, tmp_path / "t3", selection, None)
    assert (run.folder / "DONE").exists()
    assert [(r["dataset"], r["split"], r["method"]) for r in run.rows] == [("toy", s, m) for s in (0, 1) for m in OURS]
    assert toy_sets == ["toy"]  # loaded once
    assert {row["method"] for row in selection.rows} == {"mlp", "crcen", "mlp_threshold"}
    data = toy("toy", seed=sum(map(ord, "toy")))
    for row in run.rows:
        test = splits(data, protocol)[row["split"]].test
        assert (row["tp"] + row["fn"], row["fp"] + row["tn"]) == (data.y[test].sum(), (data.y[test] == 0).sum())
        assert all(row[name] in protocol[name] for name in ("hidden", "l2"))
        assert (row["train_residual"] <= 1e-12, row["seconds"] >= 0) == (True, True)
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
    assert all(words in text for words in ("| BRF | failed | failed |", f"Failed: balanced_rf on toy: {sentence}."))

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
    assert (first["curve"], second["curve"]) == ("retrained", "threshold")
    assert [first[name] for name in ("low", "expense", "high")] == pytest.approx([0.5 * RATIO, 105 / 19, RATIO])
    about = [first[name] for name in ("from", "to", "verdict", "pairs")]
    assert about == ["0.5", "1", "inside", [(32, 158), (13, 263)]]  # 5.53 in [4.85, 9.7]
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


def test_figure_has_a_panel_for_each_set_is_reproducible_and_needs_an_extra(monkeypatch):
    path, weights = [(50, 20), (32, 158), (13, 263), (13, 300), (9, 380)], ("0.1", "0.5", "1", "1.5", "2")
    six_sets = [row for i in range(6) for row in both_curves(path, dataset=f"set {i}", weights=weights)]
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
    assert (png[:8], png[-8:-4]) == (b"\x89PNG\r\n\x1a\n", b"IEND")
    assert np.greater(struct.unpack(">II", png[16:24]), (1000, 500)).all()
    assert draw_figure1(six_sets, "png") == png
    for name in [name for name in sys.modules if name.split(".")[0] == "matplotlib"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtra, match=r"crcen\[plots\]"):
        draw_figure1(six_sets, "svg")


def test_every_weight_and_curve_is_counted_and_written(tmp_path, protocol, selection, toy_sets, toy):
    run = reproduce.run_figure1(protocol | {"sets": ["toy", "other"]}, ALPHAS, tmp_path / "figure1", selection, None)
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
        assert row["fn"] in range(row["n_pos"] + 1)
        assert row["fp"] in range(row["n_neg"] + 1)
    entries = expenses(run.rows)
    assert [entry["to"] for entry in entries][:4] == ["0.5", "1", "1.5", "2"]
    for entry in entries:
        assert entry["low"] <= entry["high"]
        assert entry["high"] / float(entry["to"]) == pytest.approx(ratio, rel=0.2)
    files = {"figure1_pairs.md", "figure1_pairs.csv", "rows.jsonl", "settings.json", "environment.json", "DONE"}
    files |= {f"figure1.{suffix}" for suffix in ("md", "csv", "svg", "png")}
    assert {path.name for path in run.folder.iterdir()} >= files
    # A moved threshold gives nested decisions, and both curves start from the plain network.
    for name, split in ((d, s) for d in ("toy", "other") for s in (0, 1)):
        own = [r for r in run.rows if (r["dataset"], r["split"]) == (name, split)]
        moved = [(r["fn"], r["fp"]) for r in own if r["curve"] == "threshold"]
        assert (np.diff(moved, axis=0) * [-1, 1] >= 0).all()
        assert (own[0]["fn"], own[0]["fp"]) == moved[0]
