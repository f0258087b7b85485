"""A hundred and fifty small files that are wrong in many ways: every command works, or ends in a sentence of ours."""

import datetime
import decimal
import gzip
import io
import random
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from crcen import Budget, CRCENClassifierCV, CrcenError, evaluate_table, fit_table, predict_table, report_table, save
from crcen.tables import reading

QUICK = CRCENClassifierCV(hidden=(), l2=1e-2, encoding="standard", n_members=1, max_epochs=2)
CELLS = [
    *("1", "2.5", "-3", "1e400", "-1e999", "9" * 30, "0x1f", "1_000", "1 000", "٣", "½", "１２", "5.", "1e", "(5", "$"),
    *("nan", "inf", "", "?", "NA", "-", "null", "true", "yes", "+", "--", ".", "%", "€ 3,000", "7.8%", "1.234,50 €"),
    *("2024-01-01", "31/12/1999", "99999-01-01", "0000-00-00", "79:17:2", "a,b", "a;b", '"', '""', "=1+1", "\t"),
    *("\u00a0", "é", "日本", "\u202e", "\x1b[31m", "a" * 5000, "\\", "\n", "z\x00"),
]
NAMES = ["x", "x.1", "Unnamed: 0", "__index_level_0__", "", " ", "probability", "row", "é", "1", "nan"]
NAMES += ['q"q', "a\nb", "="]
CODECS = ["utf-8", "utf-8-sig", "utf-16", "latin-1", "utf-16-le", "cp1252", "utf-32"]
ENDINGS = [".csv", ".csv", ".csv", ".tsv", ".txt", "", ".csv.gz", ".csv.zst", ".zip", ".parquet"]


def names(rng, n):
    found = [f"c{i}" for i in range(n)] if rng.random() < 0.8 else [rng.choice(NAMES) for _ in range(n)]
    return [*found[:-1], "y" if rng.random() < 0.95 else found[-1]]


def text_file(rng):
    n, k, separator = rng.choice([0, 1, 3, 60, 60, 60]), rng.randint(1, 6), rng.choice(",;\t|")
    rows = [names(rng, k)]
    for _ in range(n):
        pool = CELLS if rng.random() < 0.2 else [rng.choice(CELLS), *(f"{rng.random():.3f}" for _ in range(3))]
        row = [*(rng.choice(pool) for _ in range(k - 1)), rng.choice("01")]
        rows.append(row if rng.random() < 0.999 else rng.choice([row[:-1], [*row, "z"], [*row[:-1], "maybe"]]))
    is_quoted, line_end = rng.random() < 0.7, rng.choice(["\n", "\r\n", "\r", "\n\n"])

    def cell(text):
        return '"' + text.replace('"', '""') + '"' if is_quoted and set(text) & {separator, '"', "\n", "\r"} else text

    content = line_end.join(separator.join(map(cell, row)) for row in rows) + rng.choice([line_end, ""])
    return damaged(rng, content.encode(rng.choice(CODECS), "replace")), rng.choice(ENDINGS)


def damaged(rng, content):
    if rng.random() < 0.05:
        content = bytes(byte ^ 129 if rng.random() < 0.01 else byte for byte in content)
    return content[: rng.randint(0, len(content))] if rng.random() < 0.05 else content


def arrow_column(rng, n):
    draw = np.random.default_rng(rng.randint(0, 10**9))
    offsets = pa.array(np.arange(n + 1, dtype=np.int32)).buffers()[1]
    kinds = [
        lambda: pa.array(draw.normal(size=n)),
        lambda: pa.Array.from_buffers(pa.string(), n, [None, offsets, pa.py_buffer(b"\xff" * max(n, 1))]),  # no UTF-8
        lambda: pa.array(draw.integers(2**60, 2**62, n), type=pa.timestamp(rng.choice(["ms", "us"]))),
        lambda: pa.array(draw.integers(-(2**31), 2**31 - 1, n).astype(np.int32), type=pa.date32()),
        lambda: pa.array([[1, 2]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([[("k", 1)]] * n, type=pa.map_(pa.string(), pa.int64())),
        lambda: pa.array(
            [decimal.Decimal(int(v)) / 100 for v in draw.integers(0, 10**6, n)], type=pa.decimal128(20, 2)
        ),
        lambda: pa.array([None] * n),
        lambda: pa.array([b"\x00\xff"] * n),
        lambda: pa.array(draw.integers(2**62, 2**63, n, dtype=np.uint64) * np.uint64(2)),
        lambda: pa.array(draw.choice([np.inf, -np.inf, np.nan, 1.0], n)),
        lambda: pa.array(draw.choice(["a", "b"], n).tolist()).dictionary_encode(),
        lambda: pa.array(draw.integers(0, 10**9, n), type=pa.duration("s")),
        lambda: pa.array([datetime.time(i % 24) for i in range(n)]),
        lambda: pa.array(draw.integers(0, 2, n).astype(bool)),
        lambda: pa.array(draw.choice(CELLS, n).tolist(), type=pa.string()),
    ]
    return rng.choice(kinds)()


def parquet_file(rng):
    n, k = rng.choice([0, 3, 60, 60, 60]), rng.randint(1, 5)
    columns = [arrow_column(rng, n) for _ in range(k)]
    if rng.random() < 0.85:
        columns[-1] = pa.array([rng.randint(0, 1) for _ in range(n)], type=pa.int64())
    held = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(columns, names=names(rng, k)), held)
    return damaged(rng, held.getvalue()), ".parquet"


def hostile_file(seed, folder):
    rng = random.Random(seed)
    content, ending = text_file(rng) if rng.random() < 0.6 else parquet_file(rng)
    if ending == ".csv.gz" and rng.random() < 0.8:
        content = gzip.compress(content)
    if ending == ".zip":
        held = io.BytesIO()
        with zipfile.ZipFile(held, "w") as archive:
            archive.writestr("a.csv", content)
        content = held.getvalue()
    path = folder / f"hostile{ending}"
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"c0": rng.normal(size=80), "c1": rng.choice(["a", "b"], 80), "y": rng.integers(0, 2, 80)})
    return fit_table(rows, target="y", estimator=QUICK, n_splits=2).model


def said(function, *arguments, **options):
    """What a function gives, or None where it ends in a sentence; any other error or warning fails the test."""
    try:
        return function(*arguments, **options)
    except CrcenError:
        return None


@pytest.mark.parametrize("part", range(5))
def test_only_sentences_come_out(tmp_path, one_thread, model, part):
    n_fits = 0
    for seed in range(30 * part, 30 * part + 30):
        path = hostile_file(seed, tmp_path)
        options = {"positive": "1"} if seed % 2 else {}
        own = said(fit_table, path, target="y", estimator=QUICK, n_splits=2, weighting=Budget(3), **options)
        if own is not None:
            n_fits += 1
            assert predict_table(own.model, path, out=tmp_path / "own.csv").n_rows >= own.n_rows
            assert evaluate_table(own.model, path, n_resamples=0).n_rows == own.n_rows
            save(own.model, tmp_path / "own.crcen")
            if seed % 10 == 0:
                report_table(own.model, path, out=tmp_path / "own.html")
        said(predict_table, model, path, out=tmp_path / "scored.parquet")
        said(evaluate_table, model, path, n_resamples=0)
        path.unlink()
    assert n_fits  # most files are read after all


@pytest.mark.parametrize("command", [("look",), ("fit", "--target", "a", "--quick", "--out", "m.crcen")])
def test_a_table_larger_than_the_free_memory_is_refused(tmp_path, monkeypatch, crcen_command, command):
    pd.DataFrame({"a": [0, 1] * 50_000, "b": range(100_000)}).to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.setattr(reading, "free_memory", lambda: 4_000_000)
    code, _, said = crcen_command(command[0], tmp_path / "a.csv", *command[1:])
    assert (code, "a.csv has 1 MB and needs 5 MB of memory, of which 4 MB are free: use crcen fit" in said) == (1, True)


def test_dates_past_the_year_9999_are_missing(tmp_path, one_thread):
    rng = np.random.default_rng(0)
    days = pa.array([*range(19_000, 19_099), 2**31 - 1], type=pa.date32())
    pq.write_table(pa.table({"when": days, "y": pa.array(rng.integers(0, 2, 100))}), tmp_path / "a.parquet")
    found = fit_table(tmp_path / "a.parquet", target="y", estimator=QUICK, n_splits=2)
    assert [(column.kind, column.has_missing) for column in found.model.columns_] == [("date", True)]
