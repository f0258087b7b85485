"""Workbooks in and out: the same table as a CSV file, types kept, odd sheets refused in a sentence."""

import datetime

import numpy as np
import openpyxl
import pandas as pd
import pytest

from crcen import InvalidInput, InvalidParameter, TableClassifier
from crcen.exceptions import DataUnavailable
from crcen.tables import excel
from crcen.tables.reading import open_table
from crcen.tables.writing import TableWriter


@pytest.fixture
def frame():
    return pd.DataFrame(
        {
            "n": [1, 2, 3, 4],
            "x": [0.5, None, -2.25, 1e9],
            "kind": ["a", None, "=b", "c"],
            "flag": [True, False, True, True],
            "when": pd.to_datetime(["2024-01-01", "2024-02-01", None, "2024-03-01"]) + pd.Timedelta(hours=7),
        }
    )


def test_a_workbook_comes_back_as_it_went(frame, tmp_path):
    with TableWriter(tmp_path / "t.xlsx") as writer:
        writer.write(frame[:3])
        writer.write(frame[3:])
    table = open_table(tmp_path / "t.xlsx")
    assert (table.columns, table.n_rows) == (tuple(frame.columns), 4)
    back = table.read()
    pd.testing.assert_frame_equal(back[["n", "x", "flag"]], frame[["n", "x", "flag"]])
    assert back["kind"].tolist()[2] == "=b"
    assert back["kind"].isna().tolist() == [False, True, False, False]
    assert (back["when"].dropna() == frame["when"].dropna()).all()
    assert openpyxl.load_workbook(tmp_path / "t.xlsx").worksheets[0]["C4"].data_type == "s"  # no formula
    assert [len(chunk) for chunk in table.chunks(3)] == [3, 1]


def test_columns_of_several_types_are_text_as_in_a_csv_file(tmp_path):
    book = openpyxl.Workbook()
    for row in (["code", "id", "day", "empty"], [17, 1, datetime.date(2024, 1, 2), None], ["A1", 2, None, None]):
        book.active.append(row)
    book.create_sheet("notes")
    book.active.cell(9, 1).font = openpyxl.styles.Font(bold=True)  # formatted, and empty
    book.save(tmp_path / "t.xlsx")
    table = open_table(tmp_path / "t.xlsx")
    back = table.read()
    assert back["code"].tolist() == ["17", "A1"]
    assert back["id"].tolist() == [1, 2]
    assert back["day"][0] == pd.Timestamp("2024-01-02")
    assert back["empty"].isna().all()
    assert table.notes == ["t.xlsx has 2 sheets (Sheet, notes); Sheet was read"]


def test_a_model_sees_a_workbook_as_it_sees_a_csv_file(tmp_path):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"x": rng.normal(size=80).round(3), "kind": rng.choice(["a", "b"], 80), "y": rng.random(80) < 0.3}
    )
    frame.to_csv(tmp_path / "t.csv", index=False)
    with TableWriter(tmp_path / "t.xlsx") as writer:
        writer.write(frame)
    tables = [open_table(tmp_path / f"t.{ending}").read().drop(columns="y") for ending in ("csv", "xlsx")]
    encoded = [TableClassifier().learn_columns(tables[0]).encode(one).X for one in tables]
    np.testing.assert_array_equal(*encoded)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        ([], "is empty"),
        ([["a", "a"], [1, 2]], "duplicate column name in .*t.xlsx: a"),
    ],
)
def test_sheets_that_are_no_tables_are_refused(tmp_path, rows, sentence):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(InvalidInput, match=sentence):
        open_table(tmp_path / "t.xlsx")


def test_what_is_no_workbook_is_refused(tmp_path, monkeypatch):
    (tmp_path / "t.xlsx").write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(DataUnavailable, match="cannot be read as an Excel workbook"):
        open_table(tmp_path / "t.xlsx")
    monkeypatch.setattr(excel, "MOST_ROWS", 3)
    with (
        pytest.raises(InvalidParameter, match="an Excel sheet holds 2 rows"),
        TableWriter(tmp_path / "o.xlsx") as writer,
    ):
        writer.write(pd.DataFrame({"a": [1, 2, 3]}))
    assert not (tmp_path / "o.xlsx").exists()
    with pytest.raises(InvalidParameter, match="compressed inside"):
        TableWriter(tmp_path / "o.xlsx.gz")
