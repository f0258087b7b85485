"""Tables are written whole or not at all, in chunks, in the format that the name says."""

import os

import pandas as pd
import pytest

from crcen import InvalidParameter
from crcen._support.files import atomic_file
from crcen.exceptions import DataUnavailable
from crcen.tables.reading import open_table
from crcen.tables.writing import TableWriter

CHUNKS = [
    pd.DataFrame({"id": ["a", "b"], "p": [0.1, 1 / 3], "decision": ["no", "yes"]}),
    pd.DataFrame({"id": ["c, d"], "p": [1e-12], "decision": ["ja; nein"]}),
]


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.csv.gz", "a.tsv.zst", "a.parquet"])
def test_what_was_written_is_read_again(tmp_path, name):
    with TableWriter(tmp_path / name) as writer:
        for chunk in CHUNKS:
            writer.write(chunk)
        assert not (tmp_path / name).exists()
    found = open_table(tmp_path / name).read().astype({"p": float})
    assert found.to_dict("list") == pd.concat(CHUNKS).to_dict("list")
    assert os.listdir(tmp_path) == [name]


def test_a_column_that_is_empty_at_first(tmp_path):
    with TableWriter(tmp_path / "a.parquet") as writer:
        writer.write(pd.DataFrame({"id": [None, None], "p": [0.1, 0.2]}))
        writer.write(pd.DataFrame({"id": ["x", None], "p": [1, 2]}))
    found = open_table(tmp_path / "a.parquet").read()
    assert (found["id"].dropna().tolist(), found["p"].tolist()) == (["x"], [0.1, 0.2, 1.0, 2.0])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_file_leaves_the_old_one(tmp_path, name, error):
    (tmp_path / name).write_text("mine")

    def interrupted():
        with TableWriter(tmp_path / name) as writer:
            writer.write(CHUNKS[0])
            raise error

    with pytest.raises(error):
        interrupted()
    assert (tmp_path / name).read_text() == "mine"
    assert os.listdir(tmp_path) == [name]


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz", "a.parquet"])
def test_a_file_that_may_not_grow(tmp_path, small_files, name):
    many = pd.DataFrame({"t": [f"{i * 7919 % 100_003} {i}" for i in range(20_000)]})
    with pytest.raises(DataUnavailable, match="was not written: File too large"), TableWriter(tmp_path / name) as w:
        w.write(many)
    assert os.listdir(tmp_path) == []


def test_other_endings_are_refused_and_errors_about_other_files_are_not_ours(tmp_path):
    for name in ("a.ods", "a", "a.parquet.gz", "a.xlsx.gz"):
        with pytest.raises(InvalidParameter, match=r"is written to \.csv, \.tsv, \.parquet or \.xlsx, text also"):
            TableWriter(tmp_path / name)
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "a"):
        (tmp_path / "another").read_bytes()


def test_formulas_are_neutralised_on_request(tmp_path):
    harmless = ["a", "-5", "+3.5e2", "a=b", "", None, " =1"]
    harmful = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)"]
    frame = pd.DataFrame({"id": pd.Series(harmless + harmful, dtype=object), "=p": [-0.5] * 14})
    frame["kind"] = pd.Series(["=x", "y"] * 7, dtype="category")
    for is_safe in (False, True):
        with TableWriter(tmp_path / "a.csv", safe_csv=is_safe) as writer:
            writer.write(frame[:7])
            writer.write(frame[7:])
        found = pd.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False, lineterminator="\n")
        mark = "'" if is_safe else ""
        assert found["id"].tolist() == [*("" if one is None else one for one in harmless), *(mark + x for x in harmful)]
        assert found.columns.tolist() == ["id", f"{mark}=p", "kind"]
        assert found[f"{mark}=p"].tolist() == ["-0.5"] * 14
        assert found["kind"].tolist() == [f"{mark}=x", "y"] * 7
    with pytest.raises(InvalidParameter, match="has no formulas"):
        TableWriter(tmp_path / "a.parquet", safe_csv=True)
