"""fit_files and `crcen fit --engine`: mixed tables larger than memory, files of numbers, classes, evidence."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from unittest import mock

import lightgbm
import numpy as np
import pandas as pd
import pytest
import sklearn.metrics
from scipy.special import softmax

import crcen
from crcen.commands import fit_files as large_files
from crcen.scale import memory as memory_bound
from crcen.scale import mixed_table
from crcen.scale.committee import BinnedRows, GrownTrees, StackingRows, grow_trees, plan_trees
from crcen.scale.mixed_table import HeldOutRows, TableSurvey, learn_columns, survey_table
from crcen.scale.sources import Chunk, row_keys
from crcen.tables.cells import TableCells
from crcen.tables.columns import encode_table
from crcen.tables.reading import open_table
from crcen.theory.key_equation import key_equation
from crcen.theory.price import Labels

N = 900


def mixed_rows(n=N, seed=3):
    """Every kind of column, most with gaps; what a row is worth depends on its number, its category and its date."""
    rng = np.random.default_rng(seed)
    amount = rng.gamma(2.0, 50.0, size=n)
    country = rng.choice(["NL", "NO", "DE", "IS"], size=n, p=[0.5, 0.3, 0.19, 0.01])
    when = pd.Timestamp("2024-03-01") + pd.to_timedelta(rng.integers(0, 500 * 24, size=n), unit="h")
    is_late = rng.random(n) < 0.3
    logit = 0.02 * amount + 1.5 * (country == "NO") + is_late - 4.2
    y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-logit)), "fraud", "ok")
    words = np.array(["refund", "invoice", "gift card", "delivery", "late fee", "deposit"])
    said = [f"{a} for {b} no {k}" for a, b, k in zip(rng.choice(words, n), rng.choice(words, n), range(n), strict=True)]
    amount = np.where(rng.random(n) < 0.1, np.nan, amount.round(2))
    columns = {"amount": amount, "country": pd.Series(country).mask(rng.random(n) < 0.05), "when": when}
    columns |= {"late": is_late, "note": said, "constant": 1, "row": np.arange(n) + 1000, "label": y}
    return pd.DataFrame(columns)


@pytest.fixture(scope="module")
def rows():
    return mixed_rows()


@pytest.fixture(params=["parquet", "folder", "csv"])
def data(request, rows, tmp_path):
    """The same rows as a file, as files of uneven length, and as text."""
    path = tmp_path / f"data.{request.param}"
    if request.param == "csv":
        rows.to_csv(path, index=False)
    elif request.param == "parquet":
        rows.to_parquet(path, row_group_size=200)
    else:
        path.mkdir()
        for i, part in enumerate(np.split(np.arange(N), [100, 150, 700])):
            rows.iloc[part].to_parquet(path / f"{i}.parquet", index=False)
    return path


def described(model):
    return [column.describe() for column in model.columns_]


def test_columns_are_those_of_the_table_in_memory(data, rows):
    streamed = crcen.fit_files(data, target="label", epochs=1, hidden=(4,), hold_out=0).model
    memory = crcen.TableClassifier(estimator=crcen.CRCENClassifier(hidden=(), random_state=0), random_state=0)
    memory.fit(rows.drop(columns="label"), rows["label"])
    assert described(streamed) == described(memory)
    assert {one.name for one in streamed.dropped_} == {one.name for one in memory.dropped_} == {"constant", "row"}
    assert (streamed.target_name_, streamed.pos_label_) == ("label", "fraud")
    ours, theirs = streamed.encode(rows), memory.encode(rows)
    words = np.array([": component" in name for name in streamed.encoded_names_])
    np.testing.assert_array_equal(ours.X[:, ~words], theirs.X[:, ~words])
    X, y = ours.X, (rows["label"] == "fraud").to_numpy()
    equation = crcen.key_equation(y, streamed.estimator_.weighted_proba(X)[:, 0], streamed.weighting_)
    assert equation.residual < 1e-10  # on all rows, as the scratch files held them


def test_from_the_command_to_the_report_and_export(data, rows, tmp_path, crcen_command, fit_command, monkeypatch):
    new, scratch = tmp_path / "new.csv", tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    mixed_rows(400, seed=4).to_csv(new, index=False)
    printed, model = fit_command(data, "label", "--epochs", "20", "--budget", "5", "--drop", "note")
    assert "4 used (1 number, 1 category, 1 date, 1 boolean" in printed
    assert list(scratch.iterdir()) == []
    code, printed, said = crcen_command("evaluate", model, new, "--json", "--resamples", "0")
    assert code == 0, said
    assert json.loads(printed)["metrics"]["roc_auc"]["value"] > 0.7
    assert crcen_command("report", model, new, "--out", tmp_path / "report.html")[0] == 0
    assert crcen_command("predict", model, new, "--out", tmp_path / "scored.csv")[0] == 0
    assert crcen_command("info", model)[0] == crcen_command("export", model, "--onnx", tmp_path / "m.onnx")[0] == 0


def test_options_for_columns(rows, tmp_path, fit_command):
    rows.assign(zone=np.arange(N) % 7).to_parquet(tmp_path / "rows.parquet")
    options = "--keep row --categorical zone --drop note --epochs 1 --positive OK --json"
    found = json.loads(fit_command(tmp_path / "rows.parquet", "label", *options.split())[0])
    kinds = {one["name"]: one["kind"] for one in found["columns"]}
    assert list(kinds) == ["amount", "country", "when", "late", "row", "zone"]
    assert list(kinds.values()) == ["number", "category", "date", "boolean", "number", "category"]
    assert found["price"]["positive"] == "ok"
    assert {one["name"]: one["reason"] for one in found["dropped"]}["note"] == "asked for"


def surveyed(path, seed=0, counted=(), **how):
    files = open_table(path)
    names = tuple(name for name in files.columns if name != "label")
    return survey_table(files, TableSurvey(names, "label", frozenset(counted), seed, **how))


def test_facts_are_of_all_rows_whatever_the_sample(data, rows):
    survey = surveyed(data, sample_rows=50)
    assert (survey.n_rows, len(survey.sample.frame)) == (N, 50)
    assert survey.labels == rows["label"].value_counts().to_dict()
    facts, amount, country = survey.facts, rows["amount"], rows["country"]
    found = facts["amount"].n_missing, facts["amount"].low, facts["amount"].high
    assert found == (amount.isna().sum(), amount.min(), amount.max())
    assert facts["country"].counts == country.value_counts().to_dict()
    assert facts["country"].n_missing == country.isna().sum()
    assert facts["row"].is_whole
    learned = {one.name: one for one in learn_columns(survey).used}
    assert "row" not in learned  # no 50 of 900 rows show that it numbers them
    assert learned["country"].categories == ("DE", "IS", "NL", "NO")
    assert learned["country"].has_missing is learned["amount"].has_missing is True


def test_a_sample_is_uniform_and_keeps_rows_whole(rows, tmp_path):
    rows = rows.assign(twice=rows["row"] * 2)
    rows.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    drawn = np.zeros(N)
    for seed in range(20):
        frame = surveyed(tmp_path / "rows.parquet", seed, sample_rows=90).sample.frame
        assert len(frame) == 90
        assert frame["row"].is_monotonic_increasing
        assert (frame["twice"] == 2 * frame["row"]).all()
        drawn[frame["row"] - 1000] += 1
    # 20 draws of a tenth each: the rows of any third of the file are drawn 600 times, give or take a few of √400.
    for third in np.split(drawn, 3):
        assert abs(third.sum() - 600) < 5 * np.sqrt(400)


def test_what_is_rare_in_all_rows_is_seen_though_no_sample_has_it(tmp_path):
    n = 4000
    flag, gap, word = np.zeros(n, dtype=int), np.arange(n) * 0.37, np.full(n, "no", dtype=object)
    flag[3], gap[5], word[7] = 1, np.nan, "yes"
    frame = pd.DataFrame({"flag": flag, "gap": gap, "word": word, "label": np.arange(n) % 2})
    frame.to_parquet(tmp_path / "rows.parquet")
    learned = learn_columns(surveyed(tmp_path / "rows.parquet", sample_rows=100))
    found = {one.name: one for one in learned.used}
    assert {name: one.kind for name, one in found.items()} == {"flag": "number", "gap": "number", "word": "boolean"}
    assert (found["gap"].has_missing, found["flag"].has_missing) == (True, False)
    assert any("random sample of 100 of the 4,000 rows" in note for note in learned.notes)


@pytest.mark.parametrize(
    ("n_files", "sample_rows", "form", "note"),
    [
        (1, 1000, "$ {:,}", "row 138: 'see below'"),
        (2, 1000, "$ {:,}", "row 38 of 2.csv: 'see below'"),
        (1, 20, "{}", "cells of amount that do not have its type are treated as missing: 1"),
    ],
)
def test_money_is_read_and_other_cells_are_missing_and_named(tmp_path, monkeypatch, n_files, sample_rows, form, note):
    monkeypatch.setattr("crcen.scale.mixed_table.SAMPLE_ROWS", sample_rows)
    cells = [form.format(1000.25 + k * 0.5) for k in range(200)]
    cells[137] = "see below"
    table = pd.DataFrame({"amount": cells, "label": np.arange(200) % 2})
    for number, part in enumerate(np.array_split(np.arange(200), n_files), 1):
        table.iloc[part].to_csv(tmp_path / f"{number}.csv", index=False)
    fit = crcen.fit_files(tmp_path, target="label", epochs=1, random_state=1)
    (amount,) = fit.model.columns_
    assert (amount.kind, amount.has_missing) == ("number", True)
    assert note in " ".join(fit.notes)


def test_rows_without_a_label_and_odd_labels(tmp_path, rows):
    labels = rows["label"].map({"fraud": "1", "ok": "0"}).astype(object).where(np.arange(N) >= 20)
    rows.assign(label=labels).to_csv(tmp_path / "rows.csv", index=False)
    fit = crcen.fit_files(tmp_path / "rows.csv", target="label", drop=["note"], positive=1, epochs=1, hold_out=0)
    assert fit.model.classes_.tolist() == [0, 1]
    assert "20 rows without a value of label were left out" in fit.notes
    assert fit.model.weighting_.n_pos + fit.model.weighting_.n_neg == N - 20


@pytest.mark.parametrize("are_numbers", [False, True])
def test_a_target_of_several_values_with_a_positive_one(rows, tmp_path, crcen_command, fit_command, are_numbers):
    names = [7, 8, 9] if are_numbers else ["ok", "unclear", "fraud"]
    label = np.where(rows["label"] == "fraud", 2, np.arange(N) % 2)
    table = rows.assign(label=np.array(names)[label]).drop(columns="note")
    table.to_csv(tmp_path / "rows.csv", index=False)
    options = ("--epochs", "1", "--hold-out", "0")
    said, model = fit_command(tmp_path / "rows.csv", "label", *options, "--positive", names[2])
    others = ", ".join(map(str, sorted(names[:2])))
    assert f"label has 3 values: {names[2]} is the positive class, all others are the negative one ({others})" in said
    weighting = crcen.load(model).weighting_
    assert (weighting.n_pos, weighting.n_neg) == ((label == 2).sum(), (label != 2).sum())
    assert crcen_command("evaluate", model, tmp_path / "rows.csv", "--json")[0] == 0
    fit_command(tmp_path / "rows.csv", "label", *options)
    assert len(crcen.load(model).classes_) == 3  # no positive one: all are told apart


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows.assign(label="ok"), "must have two different values: got one, ok"),
        (lambda rows: rows.assign(label=["fraud"] + ["ok"] * (N - 1)), "at least 2 rows of each value"),
        (lambda rows: rows.assign(label=np.arange(N) % 51), "must have at most 50 different values: got 51 (0, 1, 2"),
        (lambda rows: rows.assign(label=np.arange(N) + 0.5), "must have at most 50 different values: got 900"),
        (lambda rows: rows[["row", "constant", "label"]], "no column is left to learn from"),
        (lambda rows: rows[["label"]], "no column but label"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_that_cannot_be_learned_from_are_rejected(rows, tmp_path, change, words, kind, fit_command):
    table, path = change(rows), tmp_path / f"rows.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    assert words in fit_command(path, "label", fails=True)


def test_categories_that_a_file_declares_and_columns_that_one_file_lacks_values_of(rows, tmp_path, monkeypatch):
    folder = tmp_path / "data"
    folder.mkdir()
    table = rows[["amount", "country", "label"]].assign(zone=pd.Categorical((np.arange(N) % 5).astype(str)))
    table[:300].assign(country=None).to_parquet(folder / "1.parquet")
    table[300:].to_parquet(folder / "2.parquet")
    model = crcen.fit_files(folder, target="label", epochs=1).model
    kinds = {one["name"]: (one["kind"], one["has_missing"]) for one in described(model)}
    assert kinds == {"amount": ("number", True), "country": ("category", True), "zone": ("category", False)}
    # Values beyond the bound are not counted.
    monkeypatch.setattr(mixed_table, "MOST_VALUES", 30)
    words = [f"w{k % 40}" for k in range(2000)]
    pd.DataFrame({"word": words, "label": np.arange(2000) % 2}).to_csv(tmp_path / "rows.csv", index=False)
    survey = surveyed(tmp_path / "rows.csv", sample_rows=200)
    assert survey.facts["word"].counts is None
    (word,) = learn_columns(survey).used
    assert word.kind == "category"


def test_encoded_rows_are_cut_into_groups_and_files_and_come_back(rows, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr(mixed_table, "_FILE_GROUPS", 2)
    rows.drop(columns=["note", "when"]).to_csv(tmp_path / "rows.csv", index=False)
    files = open_table(tmp_path / "rows.csv")
    columns = learn_columns(surveyed(tmp_path / "rows.csv")).used
    folder = tmp_path / "out"
    folder.mkdir()
    how = {"labels": {"ok": 0, "fraud": 1}, "folder": folder, "frame_rows": 100, "group_rows": 128}
    mixed_table.write_encoded(files, columns, "label", **how)
    written = sorted(folder.iterdir())
    assert len(written) > 1
    assert all(pq.ParquetFile(file).num_row_groups <= 2 for file in written)
    source = mixed_table.EncodedRows(folder, columns)
    chunks = [chunk for block in source.blocks(300) for chunk in block]
    expected = encode_table(columns, TableCells(rows)).X
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), expected)
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), rows["label"] == "fraud")
    assert len(source.names) == expected.shape[1]
    (tmp_path / "rows.csv").unlink()  # an error of the table is not one of the scratch folder
    with pytest.raises(crcen.exceptions.DataUnavailable, match=r"^\S*rows.csv (does not exist|was changed)"):
        mixed_table.write_encoded(files, columns, "label", **how)


def test_training_rows_are_known_again_and_rows_unlike_them_are_said(data, rows, tmp_path, crcen_command, fit_command):
    """From every row, whatever the sample; written as another kind of file, in another order."""
    train, new = tmp_path / "train.csv", tmp_path / "new.csv"
    rows.sample(frac=1.0, random_state=0).to_csv(train, index=False)
    fresh = mixed_rows(600, seed=9)
    fresh.to_csv(new, index=False)
    _, model = fit_command(data, "label", "--epochs", "2", "--hold-out", "0")
    seen = crcen.load(model).recognise(rows)
    assert (seen.n_rows, seen.n_seen, seen.status) == (N, N, "seen")
    assert "compared are training rows" in crcen_command("evaluate", model, train, "--resamples", "0")[1]
    assert "are rows of training" not in crcen_command("evaluate", model, new, "--resamples", "0")[1]
    fresh.assign(amount=fresh["amount"] * 100).to_csv(new, index=False)
    code, printed, _ = crcen_command("predict", model, new, "--out", tmp_path / "scored.csv")
    assert code == 0
    assert re.search(r"amount is .*times as large as in training", printed)


def test_the_fingerprint_of_rows_in_passing_is_that_of_all_rows(rows, monkeypatch):
    from crcen.tables.fingerprint import row_hashes

    monkeypatch.setattr(mixed_table, "MOST_HASHES", 40)
    table = pd.concat([rows, rows[:300]]).drop(columns=["label", "constant", "row"])
    memory = crcen.TableClassifier(estimator=crcen.CRCENClassifier(hidden=(), random_state=0), random_state=0)
    memory.learn_columns(table)
    X = memory.encode(table).X
    found = mixed_table.FingerprintOfAll(memory.columns_, table[:100])
    for start in range(0, len(table), 170):
        found.add(TableCells(table[start : start + 170]), X[start : start + 170])
    fingerprint = found.fingerprint()
    hashes = row_hashes(memory.columns_, TableCells(table), X, fingerprint.salt)
    expected, counts = np.unique(hashes, return_counts=True)
    can, matches = fingerprint.compare(expected)
    np.testing.assert_array_equal(np.flatnonzero(can), np.arange(40))
    assert matches[:40].all()
    assert (fingerprint.limit, fingerprint.rows.tolist()) == (expected[39], [counts[:40].sum()])
    assert fingerprint.n_twins == counts[:40][counts[:40] > 1].sum() > 0


def test_a_pattern_is_streamed_to_a_model_that_predicts(crcen_command, fit_command, folder, table, tmp_path):
    options = ("--drop", "w", "--budget", "5", "--epochs", "2", "--hold-out", "0")
    (printed, out), scored = fit_command(f"{folder}/*.parquet", "y", *options), tmp_path / "scored.csv"
    assert "600 training rows" in printed
    assert "cost ratio  5  " in printed
    model = crcen.load(out)
    assert [column.name for column in model.columns_] == ["a", "b", "c"]
    assert [(one.name, one.reason) for one in model.dropped_] == [("w", "asked for")]
    assert (model.target_name_, model.weighting_.n_pos) == ("y", table[1].sum())
    assert crcen_command("predict", out, folder / "part-0.parquet", "--out", scored)[0] == 0
    assert len(scored.read_text().splitlines()) == 51
    same = crcen.fit_stream(folder, "y", crcen.Budget(5), features=["a", "b", "c"], epochs=2, random_state=0)
    np.testing.assert_array_equal(same.coefs_[0], model.estimator_.coefs_[0])
    X = np.column_stack([table[0][:20], np.ones(20)])
    np.testing.assert_array_equal(same.predict_proba(pd.DataFrame(X[:, :3], columns=[*"abc"])), model.predict_proba(X))


def test_options_reach_ray(fit_command, folder, monkeypatch):
    asked = {}

    def fit_ray(source, target, weighting, *, workers, storage, **settings):
        asked.update(source=source.n_files, workers=workers, storage=storage)
        return crcen.fit_stream(source, target, weighting, **settings)

    monkeypatch.setattr("crcen.scale.ray.connected", nullcontext)
    monkeypatch.setattr(crcen, "fit_ray", fit_ray)
    options = "--engine ray --workers 4 --storage /shared/runs --positive 0 --epochs 1 --json"
    said = json.loads(fit_command(f"{folder}/*.parquet", "y", *options.split())[0])
    assert asked == {"source": 4, "workers": 4, "storage": "/shared/runs"}
    assert (said["price"]["positive"], said["engine"]) == (0, "4 workers of Ray")
    assert [column["name"] for column in said["columns"]] == ["a", "b", "c", "w"]


@pytest.mark.parametrize(
    ("target", "options", "words"),
    [
        ("z", "--epochs 1", "the target must be a column of"),
        ("y", "--drop q", "--drop must be a column of"),
        ("y", "--positive yes", "positive must be a value of y, 0, 1: got 'yes'"),
        ("y", "--time a", "--time is for tables in memory"),
        ("y", "--clusters q", "--clusters must be a column of"),
        ("y", "--hold-out 60%", "--hold-out must be a share between 0 and 0.5"),
        ("y", "--hold-out some", "must be a share such as 5%"),
        ("y", "--memory much", "must be a size such as 4GB"),
        ("y", "--learner trees", "--learner must be one of committee, networks with --engine stream: got 'trees'"),
        ("y", "--learner committee --hold-out 0", "a committee is combined on held-out rows"),
        ("y", "--engine ray --learner networks --memory 1GB", "--memory is for the trees of a committee"),
        ("y", "--epochs 0", "--epochs must be a whole number of at least 1"),
        ("state", "--budget 5", "is for two classes, and state has 3"),
        ("state", "--weighting fine=1,worn=5", "every value of state needs a weight: broken has none"),
        ("state", "--weighting fine=1,worn=5,broke=3", "got 'broke'"),
    ],
)
def test_impossible_options_are_rejected(fit_command, folder, files, target, options, words):
    data = files / "train" if target == "state" else folder
    assert words in fit_command(data, target, *options.split(), fails=True)


def test_missing_files_and_engines_are_rejected(fit_command, folder, tmp_path):
    assert "no file at" in fit_command(tmp_path / "*.parquet", "y", "--engine", "ray", fails=True)
    for options, words in (({"engine": "dask"}, "one of stream, ray: got 'dask'"), ({"hold_out": False}, "got False")):
        with pytest.raises(crcen.InvalidParameter, match=f"{next(iter(options))} must be .*{words}"):
            crcen.fit_files(folder, target="y", **options)


@pytest.mark.parametrize(("name", "is_folder"), [(None, True), ("customer", False)])
def test_the_index_of_pandas_is_no_input(crcen_command, fit_command, table, tmp_path, name, is_folder):
    data, scored, stored = tmp_path / "rows", tmp_path / "scored.csv", name or "__index_level_0__"
    # As a person writes it who sorted a data frame: rows keep the numbers they had.
    frame = pd.DataFrame(table[0], columns=["a", "b", "c"]).assign(y=table[1]).sort_values("y").rename_axis(name)
    data.mkdir()
    for number, part in enumerate((frame[:300], frame[300:]) if is_folder else (frame,)):
        part.to_parquet(data / f"{number}.parquet")
    frame.to_csv(tmp_path / "rows.csv", index=False)
    printed, out = fit_command(data if is_folder else data / "0.parquet", "y", "--epochs", "1")
    assert f"{stored} was the index of a pandas data frame and is left out" in printed
    assert crcen_command("predict", out, tmp_path / "rows.csv", "--out", scored)[0] == 0
    assert len(scored.read_text().splitlines()) == 601
    with pytest.warns(UserWarning, match=f"{stored} of .*parquet was the index of a pandas data frame"):
        clf = crcen.fit_stream(data, "y", epochs=1, hidden=(4,), random_state=0)
    assert list(clf.feature_names_in_) == ["a", "b", "c"]
    clf = crcen.fit_stream(data, "y", epochs=1, hidden=(4,), features=["a", stored], random_state=0)
    assert list(clf.feature_names_in_) == ["a", stored]


def machines(n, seed):
    """Mixed columns, and three states of which two are rare."""
    rng = np.random.default_rng(seed)
    age, oil, kind = rng.gamma(2.0, 3.0, n), rng.normal(size=n), rng.choice(["A", "B", "C"], n)
    logits = np.column_stack([np.full(n, 2.5), 0.2 * age + (kind == "B") - 1.0, 2.0 * oil - 1.5])
    state = np.array(["Fine", "worn", "broken"])[(logits + rng.gumbel(size=(n, 3))).argmax(axis=1)]
    missing = rng.random(n) < 0.05
    return pd.DataFrame({"age": age.round(2), "oil": np.where(missing, np.nan, oil), "kind": kind, "state": state})


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("machines")
    (folder / "train").mkdir()
    for i in range(2):
        machines(900, i).to_csv(folder / "train" / f"{i}.csv", index=False)
    machines(900, 9).to_csv(folder / "new.csv", index=False)
    (folder / "costs.csv").write_text(";fine;worn;broken;inspect\nfine;;1;1;0,5\nworn;5;;2;1\nbroken;40;10;;3\n")
    return folder


def test_weights_by_label_and_every_command_after_it(crcen_command, fit_command, files, tmp_path):
    options = ("--epochs", "2", "--hold-out", "0", "--weighting", "fine=1,WORN=5,broken=40")
    (printed, model), scored = fit_command(files / "train", "state", *options), tmp_path / "scored.csv"
    for words in ("classes of state: Fine", "weight: Fine 1, broken 40, worn 5", "on all rows of the stream: residual"):
        assert words in printed
    loaded = crcen.load(model)
    frame = pd.concat([pd.read_csv(files / "train" / f"{i}.csv") for i in range(2)])
    assert loaded.weighting_.counts.tolist() == frame["state"].value_counts()[loaded.classes_].tolist()
    numbers = np.searchsorted(loaded.classes_, frame["state"])
    p = loaded.predict_proba(frame.drop(columns="state")) * [1.0, 40.0, 5.0]
    residual = key_equation(numbers, p / p.sum(axis=1, keepdims=True), loaded.weighting_).residual
    assert residual <= 1e-6  # streamed rows are encoded in single precision
    code, printed, said = crcen_command("evaluate", model, files / "new.csv", "--json")
    assert code == 0, said
    assert json.loads(printed)["key_equation"]["verdict"] in ("holds", "does not hold")
    assert crcen_command("predict", model, files / "new.csv", "--out", scored)[0] == 0
    assert set(pd.read_csv(scored)["decision"]) <= {"Fine", "worn", "broken"}


def test_costs_from_a_file_have_further_actions(crcen_command, fit_command, files, tmp_path):
    options = ("--epochs", "1", "--hold-out", "0", "--costs", files / "costs.csv", "--json")
    (printed, model), scored = fit_command(files / "train", "state", *options), tmp_path / "scored.csv"
    found = json.loads(printed)
    assert (found["classes"], found["price"]["costs"] is not None) == (["Fine", "broken", "worn"], True)
    assert sum(found["rows"]["by_class"]) == 1800
    assert crcen_command("predict", model, files / "new.csv", "--out", scored)[0] == 0
    assert "inspect" in set(pd.read_csv(scored)["decision"])


def interaction_rows(n_classes=2, n=4000, seed=0, kind=True):
    """An interaction that trees find, and a linear effect that a network finds."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    y = (2.0 * X[:, 0] * X[:, 1] + X[:, 2] + rng.normal(size=n) > 2.0).astype(int)
    if n_classes == 3:
        y = np.where((y == 0) & (X[:, 2] < -1.0), 2, y)
    columns = {"kind": rng.choice(["u", "v", "w"], n)} if kind else {}
    return pd.DataFrame(X, columns=["a", "b", "c"]).assign(**columns, y=y)


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    interaction_rows(request.param).to_csv(folder / "rows.csv", index=False)
    fit = crcen.fit_files(folder / "rows.csv", target="y", hold_out=0.3, epochs=3, out=folder / "model.crcen")
    return fit, fit.path, request.param


def test_the_evidence_is_that_of_evaluate_on_rows_that_were_not_trained_on(fitted):
    fit, path, n_classes = fitted
    assert 0.25 * 4000 < fit.n_held_out < 0.35 * 4000
    assert fit.model.weighting_.counts.sum() == 4000 - fit.n_held_out
    whole, text = json.loads(json.dumps(fit.to_dict())), str(fit)
    assert list(whole)[:5] == ["data", "target", "classes", "rows", "price"]
    assert [member["name"] for member in whole["leaderboard"]] == ["networks", "trees", "committee"]
    values = whole["held_out"]["evidence"]
    assert 0.4 * fit.n_held_out < values["rows"] < 0.6 * fit.n_held_out  # the others combine the members
    assert f"held-out rows that were used for nothing else: {values['rows']:,} rows, " in text
    counts = values["counts"] if n_classes == 2 else {}
    assert (f"found {counts['found']} of {counts['positives']}" if counts else "Cost per row") in text
    assert values["metrics"]["cost_per_1000"]["low"] < values["metrics"]["cost_per_1000"]["high"]
    assert values["key_equation"]["p_value"] > 1e-4
    # No evidence row is a training row, which the fingerprint would recognise.
    assert "are rows of training" not in text
    # Members are better together, and the file is whole.
    board = {one.name: one.log_loss for one in fit.model.estimator_.leaderboard_}
    assert board["committee"] <= min(board["networks"], board["trees"]) + 0.015
    assert fit.model.key_equation_.residual < 1e-10
    assert fit.model.held_out_sums_.counts.sum() == fit.evidence.n_rows  # what a monitor compares with
    new = interaction_rows(n_classes, 1000, 7).drop(columns="y")
    np.testing.assert_array_equal(crcen.load(path).predict_proba(new), fit.model.predict_proba(new))


@pytest.mark.parametrize("kind", [True, False])
@pytest.mark.parametrize("clusters", [None, "who"])
def test_every_row_has_one_use_and_clusters_and_copies_stay_together(tmp_path, monkeypatch, kind, clusters):
    frame = interaction_rows(kind=kind, n=1500)
    who = {} if clusters is None else {clusters: np.arange(1700) % 300}
    frame = pd.concat([frame, frame[:200]], ignore_index=True).assign(**who)
    frame.to_parquet(tmp_path / "rows.parquet", row_group_size=100)
    seen, fit_network = {}, crcen.fit_stream

    def fit_stream(source, target, weighting, **settings):
        seen["train"] = np.concatenate([chunk.X[:, 0] for block in source.blocks(300, 1) for chunk in block])
        return fit_network(source, target, weighting, **settings)

    monkeypatch.setattr(crcen, "fit_stream", fit_stream)
    monkeypatch.setattr(large_files, "HeldOutRows", lambda *given: seen.setdefault("held out", HeldOutRows(*given)))
    fit = crcen.fit_files(tmp_path, target="y", clusters=clusters, hold_out=0.4, epochs=1, hidden=(2,))
    held_out = seen["held out"]
    parts = [seen["train"], held_out.evidence.frame["a"].to_numpy(), held_out.stacking.frame["a"].to_numpy()]
    assert all(len(part) > 200 for part in parts)
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(frame["a"]))
    if clusters is None:
        assert not set(parts[0]) & {*parts[1], *parts[2]}
        assert not set(parts[1]) & set(parts[2])
    else:
        assert fit.model.clusters_name_ == "who"
        assert "who" not in [column.name for column in fit.model.columns_]
        held = [set(one.frame["who"]) for one in (held_out.evidence, held_out.stacking)]
        train = set(frame[frame["a"].isin(parts[0]) & ~frame["a"].duplicated(keep=False)]["who"])
        assert not train & (held[0] | held[1])
        assert not held[0] & held[1]
        alone = crcen.evaluate_table(fit.model, held_out.evidence.frame, n_resamples=0).metrics["cost_per_1000"]
        together = fit.evidence.metrics["cost_per_1000"]
        assert together.high - together.low > 1.01 * (alone.high - alone.low)  # rows of a cluster are alike in part


def test_a_network_is_left_out_if_a_trial_gets_no_weight_unless_its_settings_are_stated(monkeypatch):
    read = []

    def trial(rows, blocks, most_rows, epochs):
        read.append((blocks, list(next(blocks))))
        return False

    monkeypatch.setattr(StackingRows, "has_use_for_network", trial)
    fit = crcen.fit_files(interaction_rows(), target="y", epochs=3)
    assert read[0][0].gi_frame is None  # otherwise its row groups would stay in memory
    assert ([one["name"] for one in fit.to_dict()["leaderboard"]], fit.network) == (["trees", "committee"], None)
    assert "the model has no network: a trial" in str(fit)
    assert fit.model.weighting_.counts.sum() == 4000 - fit.n_held_out
    assert crcen.fit_files(interaction_rows(), target="y", epochs=1, hidden=(2,)).network.n_iter_ == 1


def test_a_command_reports_evidence_first_and_networks_alone_remain(fit_command, tmp_path):
    interaction_rows().to_csv(tmp_path / "rows.csv", index=False)
    options = ("--epochs", "2", "--budget", "5")
    printed, _ = fit_command(tmp_path / "rows.csv", "y", *options, "--hold-out", "20%", "--memory", "9GB")
    assert printed.index("found ") < printed.index("Columns ")
    assert "trees      weight" in printed
    rows = interaction_rows()
    rows.assign(fee=np.where(rows["y"] == 1, rows["y"], np.nan)).to_csv(tmp_path / "rows.csv", index=False)
    printed, _ = fit_command(tmp_path / "rows.csv", "y", *options, "--learner", "networks", "--json")
    values = json.loads(printed)
    assert any("fee" in note and "CRC006" in note for note in values["notes"])
    assert values["leaderboard"] == []
    assert values["held_out"]["rows"] == values["held_out"]["evidence"]["rows"] > 0.03 * 4000


def test_a_small_table_says_why_it_has_no_committee_or_evidence(tmp_path):
    interaction_rows(n=150).to_csv(tmp_path / "rows.csv", index=False)
    how = {"target": "y", "epochs": 1, "hidden": (2,)}
    fit = crcen.fit_files(tmp_path / "rows.csv", **how)
    assert "only a network" in " ".join(fit.notes)
    assert isinstance(fit.model.estimator_, crcen.CRCENClassifier)
    assert "No evidence from held-out rows" in str(crcen.fit_files(tmp_path / "rows.csv", hold_out=0, **how))


def test_trees_take_a_share_of_the_rows_that_fits_in_memory():
    X, labels = interaction_rows(kind=False)[["a", "b", "c"]].to_numpy(), Labels(np.arange(2), 1)
    whole = plan_trees([X], labels, 10**6, 10**9)
    half = plan_trees([X[:, :2], X[:, 2:]], labels, 10**6, whole.n_bytes // 2)
    assert 0.3 < half.share < 0.5 < whole.share == 1.0
    assert half.n_bytes == pytest.approx(whole.n_bytes / 2, rel=0.01)
    np.testing.assert_array_equal(half.sample, whole.sample)
    with pytest.raises(crcen.InvalidParameter, match="memory must have room for 40 rows of 75 bytes and 24,000 bytes"):
        plan_trees([X], labels, 10**6, 600)
    assert plan_trees([X[:30]], labels, 30, 10**9).share == 1.0  # few rows are no lack of memory


def test_a_sample_holds_few_rows_more_than_it_keeps():
    whole = pd.DataFrame({"a": np.arange(9000.0), "b": np.arange(9000).astype(str)})
    whole.loc[:2999, "b"] = None  # the column has no type yet in the first parts
    sample, most = mixed_table.FrameSample(500, seed=4), 0
    for start in range(0, len(whole), 100):
        sample.add(whole[start : start + 100], np.arange(start, start + 100), 0, "rows.csv")
        most = max(most, sum(len(part) for _, part in sample._parts))
    assert most <= 1.25 * 500 < 500 + 9000 / 64
    keys = np.concatenate([row_keys(100, 4, 7, "rows.csv", 0, start) for start in range(0, len(whole), 100)])
    kept = np.sort(np.argsort(keys)[:500])
    pd.testing.assert_frame_equal(sample.frame.reset_index(drop=True), whole.iloc[kept].reset_index(drop=True))
    assert sample.frame.index.tolist() == (kept + 1).tolist()


def test_processes_that_start_with_nearly_the_same_memory_divide_it_alike(monkeypatch):
    found = []
    for resident in (150_000_000, 150_350_000, 152_000_000):
        monkeypatch.setattr(memory_bound, "_resident_bytes", lambda resident=resident: resident)
        bound = memory_bound.MemoryBound(700_000_000)
        found.append((bound.rows({}, {"frame": 9000, "group": 4000, "buffer": 5000}), bound.share("trees")))
    assert found[0] == found[1] == found[2]
    assert found[0][1] < 0.6 * (700_000_000 - 152_000_000)  # for safety, the larger one is assumed
    said = []
    for parts in (({"frame": 9e5}, {"bins": 9e6}), ({"bins": 9e6},)):  # the first step states what later ones need
        with pytest.raises(crcen.InvalidParameter, match="memory must be at least") as refused:
            bound.rows({}, *parts)
        said += re.findall(r"[\d,]+ MB for this table", str(refused.value))
    assert len(said) == 2
    assert said[0] == said[1]


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_peak_of_memory_is_within_the_smallest_bound_and_as_announced(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60_000, 3)).round(3), columns=["a", "b", "c"])
    for name, n in (("here", 100), ("there", 20)):
        frame[name] = rng.integers(0, n, len(frame)).astype(str) + "-" + name
    frame["y"] = (frame["a"] + (frame["there"] < "15") + rng.normal(size=len(frame)) > 2).astype(int)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    fit = [sys.executable, "-m", "crcen", "fit", tmp_path / "rows.csv", "--target", "y", "--engine", "stream"]
    fit += ["--epochs", "1", "--out", tmp_path / "m.crcen"]
    code = "import runpy, sys; sys.argv = sys.argv[1:]\ntry: runpy.run_module('crcen', run_name='__main__')\n"
    code += "finally: print(open('/proc/self/status').read())"
    rejected = subprocess.run([*fit, "--memory", "1MB"], capture_output=True, text=True, check=False).stderr
    (smallest,) = re.findall(r"--memory must be at least (\d+) MB for this table", rejected)
    for stated in (["--memory", f"{smallest}MB"], []):
        child = [fit[0], "-c", code, *fit[2:], *stated]
        printed = subprocess.run(child, capture_output=True, text=True, check=True).stdout
        peak = 1024 * int(re.findall(r"VmHWM:\s+(\d+) kB", printed)[0])
        (announced,) = re.findall(r"the fit uses at most (\d+) MB of memory", printed)
        assert 0.75 * int(announced) * 1e6 <= peak <= min(int(announced), int(smallest) if stated else 10**6) * 1e6


def coded(n_classes, folder):
    frame = interaction_rows(n_classes, kind=False)
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["y"].to_numpy()
    labels = Labels(np.arange(n_classes), 1 if n_classes == 2 else None)
    plan = plan_trees([X[:1000]], labels, 3000, 10**9, seed=3)
    chunks = [Chunk(X[i : i + 700], y[i : i + 700], np.ones(700), "rows") for i in (0, 700, 1400, 2100)]
    return plan, BinnedRows(plan, [chunks], folder), X, y, (plan.codes(X[2800:]), labels.target(y[2800:]))


def test_errors_of_rows_are_not_those_of_the_folder(tmp_path):
    plan = coded(2, tmp_path)[0]

    def unreadable():
        raise crcen.exceptions.DataUnavailable("rows.parquet was changed while it was in use.")
        yield

    with pytest.raises(crcen.exceptions.DataUnavailable, match=r"^rows.parquet was changed"):
        BinnedRows(plan, [unreadable()], tmp_path)
    with pytest.raises(crcen.InvalidParameter, match="room for 0 of the rows, which repeat, so that none was drawn"):
        BinnedRows(replace(plan, share=0.0), [[Chunk(np.ones((9, 3)), np.ones(9), np.ones(9), "rows")]], tmp_path)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_are_those_of_lightgbm_in_values_of_the_columns(tmp_path, n_classes):
    plan, binned, X, y, held_out = coded(n_classes, tmp_path)
    assert binned.codes.shape == (2800, 3)
    assert list(tmp_path.iterdir()) == []  # the file of bin numbers disappears with the process
    grown = grow_trees(plan, binned, held_out, GrownTrees())
    assert grow_trees(replace(plan, threads=2), binned, held_out, GrownTrees()).losses == pytest.approx(grown.losses)
    who = pd.Series(np.arange(1200) % 50).mask(lambda one: one == 7)
    rows = StackingRows(
        lambda: [(None, X[2800:])], y[2800:], plan.labels, np.bincount(y[:2800]), grown.ensemble(plan), who, 0
    )
    assert sorted(np.concatenate(rows.folds)) == list(range(1200))
    assert not set.intersection(*(set(who[fold].fillna(-1)) for fold in rows.folds[:2]))
    for shown, is_useful in ((y, True), ((y + 1) % n_classes, False), (0 * y, True)):  # a class is too rare for a trial
        assert rows.has_use_for_network([[Chunk(X[:2800], shown[:2800], np.ones(2800), "rows")]], 3000, 50) == is_useful
    model = lightgbm.Booster(model_str=grown.models[0])
    raw = model.predict(plan.codes(X).astype(float), raw_score=True, num_iteration=grown.n_best)
    found = grown.ensemble(plan).logits(X)
    np.testing.assert_allclose(found[:, 1] if n_classes == 2 else found, raw, rtol=0, atol=1e-9)
    # As good as LightGBM with bins of its own on the same rows in memory.
    params = {key: value for key, value in plan.params().items() if key not in ("min_data_in_bin",)} | {"seed": 3}
    whole = lightgbm.train(params, lightgbm.Dataset(X[:2800], y[:2800]), grown.n_best)
    assert min(grown.losses) < 1.05 * sklearn.metrics.log_loss(y[2800:], whole.predict(X[2800:]))


@pytest.mark.parametrize("n_classes", [2, 3])
def test_trees_continue_from_a_checkpoint(tmp_path, monkeypatch, n_classes):
    monkeypatch.setattr("crcen.scale.committee._TREES_PER_CHECKPOINT", 10)
    plan, binned, X, _, held_out = coded(n_classes, tmp_path)
    path = tmp_path / "trees.checkpoint"

    def killed(grown):
        grown.write(path)
        if len(grown.losses) == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grow_trees(plan, binned, held_out, GrownTrees("this"), killed)
    start = GrownTrees.read(path, "this")
    assert (len(start.losses), GrownTrees.read(path, "another fit").losses) == (20, [])
    whole = grow_trees(plan, binned, held_out, GrownTrees("this"))
    resumed = grow_trees(plan, binned, held_out, start)
    assert (resumed.losses[:20], resumed.models[0]) == (whole.losses[:20], start.models[0])
    assert min(resumed.losses) == pytest.approx(min(whole.losses), rel=0.03)
    # The loss after the restart is that of all trees together.
    logits = resumed.ensemble(plan).logits(X[2800:])
    loss = sklearn.metrics.log_loss(held_out[1].astype(int), softmax(logits, axis=1))
    assert loss == pytest.approx(min(resumed.losses), rel=1e-6)


def test_rows_in_the_storage_folder_are_kept(rows, tmp_path):
    (tmp_path / "rows").mkdir()
    rows.to_csv(tmp_path / "rows" / "0.csv", index=False)
    how = {"target": "label", "epochs": 1, "hidden": (2,), "learner": "networks", "storage": tmp_path}
    crcen.fit_files(tmp_path / "rows", **how, positive="fraud")
    assert {path.name for path in tmp_path.iterdir()} == {"rows", "stream.checkpoint"}
    assert (tmp_path / "rows" / "0.csv").exists()


def test_a_killed_fit_continues_with_its_storage(tmp_path, monkeypatch):
    monkeypatch.setattr("crcen.scale.committee._TREES_PER_CHECKPOINT", 10)
    interaction_rows().to_csv(tmp_path / "rows.csv", index=False)
    how = {"target": "y", "epochs": 1, "hidden": (2,), "hold_out": 0.3, "storage": tmp_path / "run"}
    write = GrownTrees.write

    def killed(grown, path):
        write(grown, path)
        raise KeyboardInterrupt

    with mock.patch.object(GrownTrees, "write", killed), pytest.raises(KeyboardInterrupt):
        crcen.fit_files(tmp_path / "rows.csv", **how)
    with mock.patch.object(large_files, "grow_trees", wraps=large_files.grow_trees) as grow:
        fit = crcen.fit_files(tmp_path / "rows.csv", **how)
    assert (len(grow.call_args.args[3].losses), fit.evidence is not None) == (10, True)
    assert any(note.startswith("trees continue from a checkpoint") for note in fit.notes)
    assert not any(one.is_dir() for one in (tmp_path / "run").iterdir())
