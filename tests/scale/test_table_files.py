"""Mixed tables larger than memory: strings, categories, dates, texts and gaps, streamed to a model of tables."""

import json

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("skrub")

import crcen  # noqa: E402
from crcen.scale import encoded_rows, table_survey  # noqa: E402
from crcen.scale.table_survey import TableSurvey, learn_columns, survey_table  # noqa: E402
from crcen.tables.cells import TableCells  # noqa: E402
from crcen.tables.columns import encode_table  # noqa: E402
from crcen.tables.reading import open_table  # noqa: E402

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
    assert streamed.target_name_ == "label"
    assert streamed.pos_label_ == "fraud"
    ours, theirs = streamed.encode(rows), memory.encode(rows)
    words = np.array([": component" in name for name in streamed.encoded_names_])
    np.testing.assert_array_equal(ours.X[:, ~words], theirs.X[:, ~words])
    X, y = ours.X, (rows["label"] == "fraud").to_numpy()
    equation = crcen.key_equation(y, streamed.estimator_.weighted_proba(X)[:, 0], streamed.weighting_)
    assert equation.residual < 1e-10  # on all rows, as the scratch files held them


def test_from_the_command_to_the_report(data, rows, tmp_path, crcen_command, fit_command):
    new = tmp_path / "new.csv"
    mixed_rows(400, seed=4).to_csv(new, index=False)
    printed, model = fit_command(data, "label", "--epochs", "20", "--budget", "5", "--drop", "note")
    assert "4 used (1 number, 1 category, 1 date, 1 boolean" in printed
    code, printed, said = crcen_command("evaluate", model, new, "--json", "--resamples", "0")
    assert code == 0, said
    assert json.loads(printed)["metrics"]["roc_auc"]["value"] > 0.7
    assert crcen_command("report", model, new, "--out", tmp_path / "report.html")[0] == 0
    assert crcen_command("predict", model, new, "--out", tmp_path / "scored.csv")[0] == 0
    assert crcen_command("info", model)[0] == 0


def test_options_for_columns(rows, tmp_path, fit_command):
    rows.assign(zone=np.arange(N) % 7).to_parquet(tmp_path / "rows.parquet")
    options = "--keep row --categorical zone --drop note --epochs 1 --positive OK --json"
    found = json.loads(fit_command(tmp_path / "rows.parquet", "label", *options.split())[0])
    assert {one["name"]: one["kind"] for one in found["columns"]} == {
        **{"amount": "number", "country": "category", "when": "date"},
        **{"late": "boolean", "row": "number", "zone": "category"},
    }
    assert found["price"]["positive"] == "ok"
    assert {one["name"]: one["reason"] for one in found["dropped"]}["note"] == "asked for"


def surveyed(path, seed=0, counted=(), **how):
    files = open_table(path)
    names = tuple(name for name in files.columns if name != "label")
    return survey_table(files, TableSurvey(names, "label", frozenset(counted), seed, **how))


def test_facts_are_of_all_rows_whatever_the_sample(data, rows):
    survey = surveyed(data, sample_rows=50)
    assert survey.n_rows == N
    assert survey.labels == rows["label"].value_counts().to_dict()
    assert len(survey.sample.frame) == 50
    facts = survey.facts
    assert facts["amount"].n_missing == rows["amount"].isna().sum()
    assert facts["amount"].low == rows["amount"].min()
    assert facts["amount"].high == rows["amount"].max()
    assert facts["country"].counts == rows["country"].value_counts().to_dict()
    assert facts["country"].n_missing == rows["country"].isna().sum()
    assert facts["row"].is_whole
    learned = {one.name: one for one in learn_columns(survey).used}
    assert "row" not in learned  # no 50 of 900 rows show that it numbers them
    assert learned["country"].categories == ("DE", "IS", "NL", "NO")
    assert learned["country"].has_missing
    assert learned["amount"].has_missing


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
    assert found["gap"].has_missing
    assert not found["flag"].has_missing
    assert any("random sample of 100 of the 4,000 rows" in note for note in learned.notes)


@pytest.mark.parametrize(
    ("n_files", "sample_rows", "form", "note"),
    [
        (1, 1000, "$ {:,}", "row 138: 'see below'"),
        (2, 1000, "$ {:,}", "row 38 of 2.csv: 'see below'"),
        (1, 20, "{}", "cells of amount that are not of its kind were taken as missing: 1"),
    ],
)
def test_money_is_read_and_other_cells_are_missing_and_named(tmp_path, monkeypatch, n_files, sample_rows, form, note):
    monkeypatch.setattr("crcen.scale.table_survey.SAMPLE_ROWS", sample_rows)
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
    monkeypatch.setattr(table_survey, "MOST_VALUES", 30)
    words = [f"w{k % 40}" for k in range(2000)]
    pd.DataFrame({"word": words, "label": np.arange(2000) % 2}).to_csv(tmp_path / "rows.csv", index=False)
    survey = surveyed(tmp_path / "rows.csv", sample_rows=200)
    assert survey.facts["word"].counts is None
    (word,) = learn_columns(survey).used
    assert word.kind == "category"


def test_encoded_rows_are_cut_into_groups_and_files_and_come_back(rows, tmp_path, monkeypatch):
    import pyarrow.parquet as pq

    monkeypatch.setattr(encoded_rows, "_FILE_GROUPS", 2)
    rows.drop(columns=["note", "when"]).to_csv(tmp_path / "rows.csv", index=False)
    files = open_table(tmp_path / "rows.csv")
    columns = learn_columns(surveyed(tmp_path / "rows.csv")).used
    folder = tmp_path / "out"
    folder.mkdir()
    how = {"labels": {"ok": 0, "fraud": 1}, "folder": folder, "frame_rows": 100, "group_rows": 128}
    encoded_rows.write_encoded(files, columns, "label", **how)
    written = sorted(folder.iterdir())
    assert len(written) > 1
    assert all(pq.ParquetFile(file).num_row_groups <= 2 for file in written)
    source = encoded_rows.EncodedRows(folder, columns)
    chunks = [chunk for block in source.blocks(300) for chunk in block]
    expected = encode_table(columns, TableCells(rows)).X
    np.testing.assert_array_equal(np.concatenate([chunk.X for chunk in chunks]), expected)
    np.testing.assert_array_equal(np.concatenate([chunk.labels for chunk in chunks]), rows["label"] == "fraud")
    assert len(source.names) == expected.shape[1]
    (tmp_path / "rows.csv").unlink()  # an error of the table is not one of the scratch folder
    with pytest.raises(crcen.exceptions.DataUnavailable, match=r"^\S*rows.csv (is not there|was changed)"):
        encoded_rows.write_encoded(files, columns, "label", **how)


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
    assert "amount is" in printed
    assert "times as large as in training" in printed


def test_the_fingerprint_of_rows_in_passing_is_that_of_all_rows(rows, monkeypatch):
    from crcen.tables.fingerprint import row_hashes

    monkeypatch.setattr(encoded_rows, "MOST_HASHES", 40)
    table = pd.concat([rows, rows[:300]]).drop(columns=["label", "constant", "row"])
    memory = crcen.TableClassifier(estimator=crcen.CRCENClassifier(hidden=(), random_state=0), random_state=0)
    memory.learn_columns(table)
    X = memory.encode(table).X
    found = encoded_rows.FingerprintOfAll(memory.columns_, [(table[:100], X[:100])])
    for start in range(0, len(table), 170):
        found.add(table[start : start + 170], X[start : start + 170])
    fingerprint = found.fingerprint()
    expected, counts = np.unique(
        row_hashes(memory.columns_, TableCells(table), X, fingerprint.salt), return_counts=True
    )
    can, matches = fingerprint.compare(expected)
    np.testing.assert_array_equal(np.flatnonzero(can), np.arange(40))
    assert matches[:40].all()
    assert fingerprint.limit == expected[39]
    assert fingerprint.rows.tolist() == [counts[:40].sum()]
    assert fingerprint.n_twins == counts[:40][counts[:40] > 1].sum() > 0


def test_streamed_table_can_be_exported_and_leaves_no_scratch_files(rows, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    rows.to_csv(tmp_path / "rows.csv", index=False)
    how = {"drop": ["note", "when"], "epochs": 1, "out": tmp_path / "m.crcen"}
    fit = crcen.fit_files(tmp_path / "rows.csv", target="label", **how)
    assert list(scratch.iterdir()) == []
    crcen.export_onnx(crcen.load(fit.path), tmp_path / "m.onnx")
    assert (tmp_path / "m.onnx").stat().st_size > 0
