"""Tables of PostgreSQL, SQLite and DuckDB: types, one state in every pass, bounded memory, secrets, transactions."""

import glob
import os
import shutil
import socket
import sqlite3
import subprocess
import tempfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import crcen
from crcen import CRCENClassifier, InvalidInput, InvalidParameter, ReadOptions, fit_files, predict_table
from crcen.exceptions import DataUnavailable
from crcen.tables.reading import open_table
from crcen.tables.writing import TableWriter
from processes import run_python

duckdb = pytest.importorskip("duckdb")
PASSWORD = "s3cret-Kolibri"
SYSTEMS = ["postgresql", "sqlite", "duckdb"]


@pytest.fixture(scope="module")
def server():
    """A PostgreSQL server of an ordinary user, on loopback, in a temporary folder: its port."""
    pytest.importorskip("adbc_driver_postgresql")
    found = max(glob.glob("/usr/lib/postgresql/*/bin/postgres"), default=shutil.which("postgres"))
    if not found:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    programs, user = Path(found).parent, "postgres" if os.getuid() == 0 else None
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = Path(tempfile.mkdtemp(prefix="crcen-pg-"))
    try:
        (folder / "password").write_text(PASSWORD)
        for path in (folder, folder / "password") if user else ():
            shutil.chown(path, user)

        def run(program, *arguments):
            command, quiet = [programs / program, "-D", folder / "data", *arguments], subprocess.DEVNULL
            subprocess.run(command, check=True, user=user, cwd=folder, stdout=quiet, stderr=quiet)

        run("initdb", "-U", "me", "-N", "-A", "scram-sha-256", "--pwfile", folder / "password")
        # A lock_timeout, since pytest cannot interrupt a driver that waits for a lock.
        settings = f"-c fsync=off -c lock_timeout=20s -h 127.0.0.1 -p {port} -k {folder}"
        run("pg_ctl", "-w", "-o", settings, "start")
        yield port
        run("pg_ctl", "-m", "fast", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def place(request, tmp_path, monkeypatch):
    """The URL of an empty database, and a function that runs statements there."""
    system = request.param
    if system == "postgresql":
        port = request.getfixturevalue("server")
        monkeypatch.setenv("PGPASSWORD", PASSWORD)
        url = f"postgresql://me@127.0.0.1:{port}/postgres"
        # A failed test may leave a transaction open, whose locks would block this one.
        others = "from pg_stat_activity where usename = 'me' and pid <> pg_backend_pid()"
        execute(url, f"select pg_terminate_backend(pid) {others}")
        execute(url, "drop schema public cascade", "create schema public")
    else:
        url = f"{system}:///{tmp_path}/rows.{system}"
    return url, lambda *statements: execute(url, *statements)


def execute(url, *statements):
    """Run statements, each committed; the rows of the last one."""
    system, _, path = url.partition(":///")
    if system == "sqlite":
        connection = sqlite3.connect(path, isolation_level=None)
    elif system == "duckdb":
        connection = duckdb.connect(path)
    else:
        from adbc_driver_postgresql import dbapi

        connection = dbapi.connect(url, autocommit=True)
    with closing(connection), closing(connection.cursor()) as cursor:
        for statement in statements:
            cursor.execute(statement)
        return cursor.fetchall() if statements[-1].startswith("select") else None


def each(*systems):
    return pytest.mark.parametrize("place", systems or SYSTEMS, indirect=True)


@each()
def test_types_are_read_as_they_are(place):
    url, run = place
    time = "text" if url.startswith("sqlite") else "timestamptz"
    run(
        f"create table t (i integer, n numeric(9, 2), d double precision, f boolean, s text, w {time}, e integer)",
        "insert into t values (1, 12.25, 0.5, true, 'a', '2024-01-02 03:04:00+02', null)",
        "insert into t values (null, null, null, null, null, null, null)",
        "insert into t values (-3, 7, 1e300, false, ' ', '2024-06-01 00:00:00+00', null)",
    )
    table = open_table(url, ReadOptions(table="t"))
    frame = table.read()
    assert table.columns == ("i", "n", "d", "f", "s", "w", "e")
    numbers = [[1, 12.25, 0.5, 1, np.nan], [np.nan] * 5, [-3, 7, 1e300, 0, np.nan]]
    np.testing.assert_array_equal(frame[["i", "n", "d", "f", "e"]].astype(float), numbers)
    assert frame["s"].isna().tolist() == [False, True, True]  # a blank is missing
    assert pd.to_datetime(frame["w"], utc=True)[0] == pd.Timestamp("2024-01-02 01:04", tz="UTC")
    assert open_table(url, ReadOptions(query="select i from t where i > 5;")).read().shape == (0, 1)


@each("postgresql", "duckdb")
@pytest.mark.parametrize(("kind", "what"), [("integer[]", "an array"), ("interval", "interval")])
def test_columns_without_single_values_are_rejected_by_name(place, kind, what):
    url, run = place
    run(f"create table t (x integer, odd {kind})")
    with pytest.raises(InvalidInput, match=rf"column odd of t of .* holds .*{what}.*, not single values"):
        open_table(url, ReadOptions(table="t"))
    assert open_table(url, ReadOptions(query="select x from t")).columns == ("x",)


def test_sqlite_columns_of_several_types_are_text_and_database_files_say_how_to_read_them(tmp_path):
    url = f"sqlite:///{tmp_path}/a.db"
    execute(f"duckdb:///{tmp_path}/a.duckdb", "create table t (x integer)")
    execute(url, "create table t (a, b, c)", "insert into t values (1, 2, 3), (1.5, 'x', null), (2, 3.5, 4)")
    found = open_table(url, ReadOptions(table="t")).read()[["a", "b"]].to_dict("list")
    assert found == {"a": [1.0, 1.5, 2.0], "b": ["2", "x", "3.5"]}
    execute(url, "insert into t values (1, x'00ff', 1)")
    with pytest.raises(InvalidInput, match=r"column b of t of .* holds binary"):
        open_table(url, ReadOptions(table="t"))
    for name, system in (("a.db", "sqlite"), ("a.duckdb", "duckdb")):
        with pytest.raises(InvalidInput, match=f"is a database: give {system}:///.*{name}, with table= or query="):
            open_table(tmp_path / name)


@each()
def test_mistakes_are_one_sentence_and_nothing_is_written(place):
    url, run = place
    run("create table rows (x integer)", 'create table "odd ""name" (x integer)', "insert into rows values (1)")
    with pytest.raises(InvalidParameter, match='by table= or query=; it has odd "name, rows'):
        open_table(url)
    assert open_table(url, ReadOptions(table='odd "name')).columns == ("x",)
    with pytest.raises(DataUnavailable, match=r"nowhere.* cannot be read: .*nowhere"):
        open_table(url, ReadOptions(table="nowhere"))
    for query in ("delete from rows", "selec 1", "select 1; delete from rows", "drop table rows", ""):
        with pytest.raises((DataUnavailable, InvalidParameter)) as caught:
            open_table(url, ReadOptions(query=query)).read()
        assert "\n" not in str(caught.value)
    assert run("select count(*) from rows")[0][0] == 1
    with pytest.raises(InvalidInput, match="duplicate column name in the query on"):
        open_table(url, ReadOptions(query="select x, x from rows"))
    renamed = ReadOptions(query="select x, x from rows", rename_duplicates=True)
    assert open_table(url, renamed).read().to_dict("list") == {"x": [1], "x_2": [1]}
    with pytest.raises(InvalidParameter, match=r"and .* is none of these: leave it out"):
        open_table(url, ReadOptions(table="rows", sheet=1))


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        (f"postgresql://me:{PASSWORD}@127.0.0.1/x", "me:***@127.0.0.1/x contains a password"),
        (f"postgresql://me@127.0.0.1/x?password={PASSWORD}", "password=*** contains a password"),
        ("postgresql://me@127.0.0.1:1/x", "cannot be read"),
        ("sqlite://a.db", "must have three slashes"),
        ("sqlite:///nowhere.db", "nowhere.db does not exist"),
    ],
)
def test_secrets_are_never_shown(url, sentence, monkeypatch, crcen_command):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    code, out, said = crcen_command("look", url, "--table", "t")
    assert (code in (1, 2), sentence in said, PASSWORD in out + said) == (True, True, False)


@each("postgresql")
def test_the_password_of_a_service_file_is_never_shown(place, tmp_path, monkeypatch, crcen_command):
    url, run = place
    port = url.rpartition(":")[2].partition("/")[0]
    run("create table rows as select i, random() as x, (i % 3 = 0)::int as y from generate_series(1, 200) s(i)")
    monkeypatch.delenv("PGPASSWORD")
    with pytest.raises(DataUnavailable, match="no password supplied"):
        open_table(url, ReadOptions(table="rows"))
    service = f"[mine]\nhost=127.0.0.1\nport={port}\nuser=me\ndbname=postgres\npassword={PASSWORD}\n"
    (tmp_path / "services").write_text(service)
    monkeypatch.setenv("PGSERVICEFILE", str(tmp_path / "services"))
    model = tmp_path / "m.crcen"
    options = ("--table", "rows", "--target", "y", "--quick", "--drop", "i", "--out", model)
    code, out, said = crcen_command("fit", "postgresql://?service=mine", *options)
    assert code == 0, said
    assert PASSWORD not in out + said + model.read_bytes().decode("latin-1")


@each()
def test_a_streamed_fit_and_scores_in_one_transaction(place, tmp_path, crcen_command):
    url, run = place
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"id": np.arange(400), "x": rng.normal(size=400), "kind": rng.choice(["a", "b"], 400)})
    rows["y"] = (rows["x"] + rng.normal(size=400) > 1).astype(int)
    with TableWriter(f"{url}#rows") as writer:
        writer.write(rows[:300])
        writer.write(rows[300:])
    model = tmp_path / "m.crcen"
    how = ("--table", "rows", "--target", "y", "--engine", "stream", "--epochs", "1", "--drop", "id", "--out", model)
    code, out, said = crcen_command("fit", url, *how)
    assert code == 0, said
    expected = fit_files(rows, target="y", drop=["id"], epochs=1).model
    np.testing.assert_array_equal(crcen.load(model).predict_proba(rows), expected.predict_proba(rows))
    scores, query = f"{url}#scores", ("--query", "select * from rows order by id")
    for append in ((), ("--append",)):
        code, out, said = crcen_command("predict", model, url, *query, "--id", "id", "--out", scores, *append)
        assert code == 0, said
        assert f"Written to {scores}" in out
    found = open_table(url, ReadOptions(query="select * from scores order by id")).read()
    assert found.columns.tolist() == ["id", "probability", "decision"]
    np.testing.assert_array_equal(found["probability"][::2], expected.predict_proba(rows)[:, 1])
    for out, expected_words in (
        ((scores,), "exists and is not replaced: use --append, or another name"),
        ((f"{url}#other", "--append"), "leave --append out"),
    ):
        code, _, said = crcen_command("predict", model, url, *query, "--out", *out)
        assert (code, expected_words in said) == (2, True)
    with pytest.raises(DataUnavailable, match="was not written"), TableWriter(scores, append=True) as writer:
        writer.write(pd.DataFrame({"id": [1], "probability": [0.5], "nothing of this": ["x"]}))
    assert run("select count(*) from scores")[0][0] == 800
    assert not list(Path(tempfile.gettempdir()).glob("crcen-*.parquet"))


def test_a_failed_prediction_writes_no_table(tmp_path):
    rows = pd.DataFrame({"x": np.random.default_rng(0).normal(size=60)})
    model = crcen.TableClassifier(estimator=CRCENClassifier(hidden=(), random_state=0)).fit(rows, rows["x"] > 0.5)
    (tmp_path / "a.csv").write_text("x\n" + "1.5\n" * 70_000 + "1,2\n")
    url = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(InvalidInput, match="line 70002"):
        predict_table(model, tmp_path / "a.csv", out=f"{url}#scores")
    assert not (tmp_path / "a.db").exists()
    for out, append, said in ((url, False, "name the table to write"), (tmp_path / "b.csv", True, "append is for")):
        with pytest.raises(InvalidParameter, match=said):
            predict_table(model, rows, out=out, append=append)


@each()
def test_every_pass_sees_one_state_or_a_change_is_an_error(place):
    url, run = place
    run("create table rows as select 1 as x")
    table = open_table(url, ReadOptions(table="rows"))
    before = table.read()
    run("insert into rows values (-1)", "update rows set x = -x where x < 10")
    if url.startswith("postgresql"):
        pd.testing.assert_frame_equal(table.read(), before)
        assert len(open_table(url, ReadOptions(table="rows")).read()) == 2
        return
    with pytest.raises(DataUnavailable, match="was changed while it was in use"):
        table.read()


@each("postgresql")
def test_a_lost_connection_is_one_sentence(place):
    url, run = place
    run("create table rows as select i as x, repeat('x', 100) as s from generate_series(1, 300000) s(i)")
    table = open_table(url, ReadOptions(table="rows"))
    chunks = table.chunks(1000)
    next(chunks)
    run("select pg_terminate_backend(pid) from pg_stat_activity where pid <> pg_backend_pid() and usename = 'me'")
    with pytest.raises(DataUnavailable, match=r"rows of .* cannot be read: .*(terminat|connection)"):
        list(chunks)


READ = """
import resource, sys
from crcen import ReadOptions
from crcen.tables.reading import open_table
chunks = open_table(sys.argv[1], ReadOptions(query="select * from rows")).chunks(20_000)
n = len(next(chunks))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
n += sum(map(len, chunks))
print(n, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@each()
def test_a_million_rows_take_bounded_memory(place):
    url, run = place
    series = "select i, i * 0.5 as x, 'a text of thirty letters, or so' as s from "
    if url.startswith("sqlite"):
        counted = "with recursive r(i) as (select 1 union all select i + 1 from r where i < 1000000) "
        run(f"create table rows as {counted} {series} r")
    else:
        run(f"create table rows as {series} generate_series(1, 1000000) s(i)")
    n_rows, megabytes = map(float, run_python("-c", READ, url).split())
    assert n_rows == 1_000_000
    assert megabytes < 120  # the rows alone are 50 bytes each, and twice that in a data frame


def test_duckdb_reads_folders_of_parquet(tmp_path):
    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pd.DataFrame({"x": [1, 2, 3]}).to_parquet(tmp_path / f"year={year}" / "a.parquet")
    query = f"select x, year from '{tmp_path}/*/*.parquet' where x > 1 order by year, x"
    for url in ("duckdb://", "duckdb:///:memory:"):
        frame = open_table(url, ReadOptions(query=query)).read()
        assert frame.to_dict("list") == {"x": [2, 3, 2, 3], "year": [2023, 2023, 2024, 2024]}
