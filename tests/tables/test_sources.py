"""One table from many places: patterns, lists, partitions, object stores, pipes, data frames of every library."""

import gc
import io
import os
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import crcen
from crcen import CRCENClassifier, ReadOptions, TableClassifier, fit_files, fit_table, predict_table
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.reading import open_table

pl = pytest.importorskip("polars")
fsspec = pytest.importorskip("fsspec")
RNG = np.random.default_rng(0)
ROWS = pd.DataFrame(
    {
        "n": np.arange(200),
        "x": np.where(RNG.random(200) < 0.1, np.nan, RNG.normal(size=200)),
        "kind": RNG.choice(["a", "b", None], 200),
        "when": pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(200), unit="h"),
        "flag": RNG.random(200) < 0.5,
    }
)
Y = (ROWS["x"].fillna(0) + RNG.normal(size=200) > 1).to_numpy()
NETWORKS = CRCENClassifier(hidden=(), random_state=0)


@pytest.fixture(scope="module")
def model():
    return TableClassifier(estimator=NETWORKS, drop=["n"]).fit(ROWS, Y)


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "parquet", "xlsx"])
def test_folders_patterns_and_lists_are_one_table(tmp_path, kind):
    (tmp_path / "days").mkdir()
    paths = [tmp_path / "days" / f"{day}.{kind}" for day in (1, 2, 3)]
    for path, (start, stop) in zip(paths, [(0, 50), (50, 120), (120, 200)], strict=True):
        part = ROWS[["n", "x"]][start:stop]
        part = part[["x", "n"]] if path.name.startswith("2") else part  # another order of columns
        writer = {"csv": part.to_csv, "parquet": part.to_parquet, "xlsx": part.to_excel}[kind]
        writer(path, index=False)
    (tmp_path / "days" / "_SUCCESS").touch()
    (tmp_path / "days" / "README.md").write_text("three days")
    for data in (tmp_path / "days", f"{tmp_path}/d*/[123].{kind}", paths, [str(path) for path in paths]):
        table = open_table(data)
        assert (len(table.parts), table.read()["n"].astype(int).tolist()) == (3, ROWS["n"].tolist())
        assert [len(chunk) for chunk in table.chunks(90)] == [90, 90, 20]
        np.testing.assert_allclose(table.read()["x"].astype(float), ROWS["x"])
    paths[1].write_bytes(paths[1].read_bytes()[:9])
    with pytest.raises((DataUnavailable, InvalidInput), match=r"2\."):
        open_table(tmp_path / "days").read()


def test_partitions_of_folders_are_columns(tmp_path):
    table = pa.Table.from_pandas(ROWS.assign(y=Y.astype(int), year=2023 + ROWS.n % 2, land="no"), preserve_index=False)
    pq.write_to_dataset(table, tmp_path / "data", partition_cols=["year", "land"])
    frame = open_table(tmp_path / "data").read()
    assert frame.columns.tolist() == [*ROWS.columns, "y", "year", "land"]
    assert (frame["year"].astype(int) == 2023 + frame["n"] % 2).all()
    assert (set(frame["land"]), len(open_table(f"{tmp_path}/data/year=2024").read())) == ({"no"}, 100)
    for dropped, used in ((["kind", "when", "x", "n"], {"flag", "year"}), (["n"], {*ROWS.columns, "year"} - {"n"})):
        found = fit_files(tmp_path / "data", target="y", drop=dropped, epochs=1)
        assert {one.name for one in found.model.columns_} == used


def test_files_of_one_table_must_agree(tmp_path):
    ROWS[["n"]].to_parquet(tmp_path / "1.parquet")
    for other, said in (
        (ROWS[["n"]].astype(str), r"column 'n' is .*string in .*2\.parquet, but int64 in .*1\.parquet"),
        (ROWS[["x"]], r"2\.parquet lacks the column n of .*1\.parquet and has x instead; all files"),
    ):
        other.to_parquet(tmp_path / "2.parquet")
        with pytest.raises(InvalidInput, match=said):
            open_table(tmp_path)
    ROWS[["n"]].assign(n=0.5, x=1, y=2).to_parquet(tmp_path / "2.parquet")
    table = open_table(tmp_path)
    assert table.read()["n"].sum() == ROWS["n"].sum() + 100
    assert table.notes[0].endswith(
        f"1.parquet lacks are left out: x (in {tmp_path}/2.parquet), y (in {tmp_path}/2.parquet)"
    )
    ROWS[["n"]].to_csv(tmp_path / "3.csv", index=False)
    with pytest.raises(InvalidInput, match="names 2 parquet and 1 text files"):
        open_table(tmp_path)
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text("p;q\n1,5;2\n3,25;4\n")
    assert open_table([tmp_path / f"{name}.csv" for name in "abc"]).notes == [
        "a.csv (and 2 more) was read with decimal commas"
    ]


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_object_stores_through_fsspec(tmp_path, scheme, model):
    home = f"memory://{tmp_path.name}" if scheme == "memory" else f"file://{tmp_path}"
    system = fsspec.filesystem(scheme)
    for kind, writer in {"csv": ROWS.to_csv, "parquet": ROWS.to_parquet, "xlsx": ROWS.to_excel}.items():
        writer(tmp_path / f"a.{kind}", index=False)
    ROWS.assign(y=Y.astype(int))[["flag", "n", "y"]].to_parquet(tmp_path / "train.parquet")
    for path in tmp_path.iterdir() if scheme == "memory" else ():
        system.pipe(f"/{tmp_path.name}/{path.name}", path.read_bytes())
    expected = model.predict_proba(ROWS)[:, 1]
    for kind in ("csv", "parquet", "xlsx"):
        found = predict_table(model, f"{home}/a.{kind}").frame["probability"]
        np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert len(open_table(f"{home}/*.csv").read()) == 200
    sftp = "sftp://me:hunter2@127.0.0.1:1/a.csv"
    for url, said in ((f"{home}/nothing.csv", r"nothing\.csv"), ("no://a/b.csv", "be read"), (sftp, r"me:\*\*\*@")):
        with pytest.raises(DataUnavailable, match=said) as caught:
            open_table(url)
        assert "hunter2" not in str(caught.value)
    streamed = fit_files(f"{home}/train.parquet", target="y", keep=["n"], epochs=1).model
    local = fit_files(tmp_path / "train.parquet", target="y", keep=["n"], epochs=1).model
    np.testing.assert_array_equal(streamed.predict_proba(ROWS), local.predict_proba(ROWS))


# -- pipes and standard input ------------------------------------------------------------------------------------------


no_pipes = pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes of this kind")


def content(kind):
    held = io.BytesIO()
    ROWS.to_csv(held, index=False) if kind == "csv" else ROWS.to_parquet(held)
    return held.getvalue()


@no_pipes
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_named_pipe_is_read_whole_and_leaves_nothing(tmp_path, monkeypatch, kind):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "private"))
    (tmp_path / "private").mkdir()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[content(kind)])
    writer.start()
    table = open_table(tmp_path / "pipe")
    writer.join()
    assert [path.stat().st_mode & 0o077 for path in (tmp_path / "private").iterdir()] == [0]
    assert table.n_rows == 200
    np.testing.assert_array_equal(table.read()["x"].astype(float), ROWS["x"])
    assert [len(chunk) for chunk in table.chunks(150)] == [150, 50]
    del table
    assert not list((tmp_path / "private").iterdir())


@no_pipes
@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_the_command_predicts_from_standard_input(model, tmp_path, name):
    crcen.save(model, tmp_path / "m.crcen")
    command = [sys.executable, "-m", "crcen", "predict", tmp_path / "m.crcen", name, "--out", tmp_path / "s.csv"]
    done = subprocess.run(command, input=content("csv"), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    (tmp_path / "a.csv").write_bytes(content("csv"))
    expected = predict_table(model, tmp_path / "a.csv").frame
    np.testing.assert_array_equal(pd.read_csv(tmp_path / "s.csv")["probability"], expected["probability"])


def test_errors_name_standard_input(monkeypatch):
    for given, said in ((b"", "standard input is empty"), (b"a,b\n1,2\n1\n", "line 3 of standard input has 1 value")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
        with pytest.raises((DataUnavailable, InvalidInput), match=said):
            open_table("-").read()


def test_devices_are_refused_and_words_of_databases_are_not(tmp_path):
    with pytest.raises(DataUnavailable, match="is a device"):
        open_table("/dev/zero")
    for start in ("SQLite,y", "id,name,DUCK"):
        (tmp_path / "a.csv").write_text(f"{start}\n{start.lower()}\n")
        assert list(open_table(tmp_path / "a.csv").columns) == start.split(",")


# -- data frames -------------------------------------------------------------------------------------------------------


KINDS = {
    "pandas": lambda frame: frame,
    "nullable": pd.DataFrame.convert_dtypes,
    "arrow dtypes": lambda frame: frame.convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.from_pandas,
    "lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "pyarrow": lambda frame: pa.Table.from_pandas(frame, preserve_index=False),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_library_gives_the_same_answers_in_its_own_type(kind, model):
    data = KINDS[kind](ROWS)
    found = predict_table(model, data, id="n").frame
    assert type(found) is type(data)
    found = found.collect() if kind == "lazy" else found
    expected = model.predict_proba(ROWS)[:, 1]
    np.testing.assert_array_equal(np.asarray(found["probability"]), expected)
    np.testing.assert_array_equal(np.asarray(found["n"]), ROWS["n"])
    if kind != "lazy":
        np.testing.assert_array_equal(model.predict_proba(data)[:, 1], expected)
        again = TableClassifier(estimator=NETWORKS, drop=["n"]).fit(data, Y)
        np.testing.assert_array_equal(again.predict_proba(data)[:, 1], expected)


@pytest.mark.parametrize("kind", ["polars", "lazy", "pyarrow", "nullable"])
def test_every_command_takes_every_library(kind, tmp_path):
    data = KINDS[kind](ROWS.assign(y=np.where(Y, "yes", "no")))
    streamed = fit_files(data, target="y", drop=["n"], epochs=1)
    assert len(streamed.model.columns_) == 4
    assert crcen.evaluate_table(streamed.model, data, n_resamples=0).n_rows == 200
    with pytest.raises(InvalidParameter, match="separator is for text files, and the data frame is none of these"):
        fit_table(data, target="y", read=ReadOptions(separator=";"))


def test_a_lazy_frame_is_streamed_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = open_table(pl.LazyFrame({"x": range(1000)}).filter(pl.col("x") > 99).with_columns(z=pl.col("x") * 2))
    assert (table.columns, table.n_rows) == (("x", "z"), 900)
    assert [len(chunk) for chunk in table.chunks(400)] == [400, 400, 100]
    del table
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_duckdb_relation_is_a_lazy_frame(model):
    connection = pytest.importorskip("duckdb").connect()
    relation = connection.from_arrow(pa.Table.from_pandas(ROWS, preserve_index=False))
    found = predict_table(model, relation).frame.fetchnumpy()["probability"]
    np.testing.assert_array_equal(found, model.predict_proba(ROWS)[:, 1])


@pytest.mark.parametrize("output", ["pandas", "polars"])
def test_transformers_may_hand_over_data_frames(output):
    X = pd.DataFrame(RNG.normal(size=(150, 2)), columns=["a", "b"])
    y = X["a"] + RNG.normal(size=150) > 1
    plain = make_pipeline(StandardScaler(), NETWORKS).fit(X, y)
    for last in (clone(NETWORKS), TableClassifier(estimator=NETWORKS)):
        framed = make_pipeline(StandardScaler(), last).set_output(transform=output).fit(X, y)
        np.testing.assert_allclose(framed.predict_proba(X), plain.predict_proba(X), rtol=1e-9)
        assert framed[-1].feature_names_in_.tolist() == ["a", "b"]


def test_duplicate_names_in_data_frames_are_refused_or_renamed():
    twice = pd.DataFrame([[1, 2]], columns=["a", "a"])
    for frame in (twice, pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])):
        with pytest.raises(InvalidInput, match="duplicate column name in the data frame: a"):
            open_table(frame)
    assert open_table(twice, ReadOptions(rename_duplicates=True)).columns == ("a", "a_2")
