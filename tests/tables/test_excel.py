"""Workbooks in and out: the same table as a CSV file, types kept, odd sheets refused in a sentence, attacks too."""

import datetime
import re
import zipfile

import numpy as np
import openpyxl
import pandas as pd
import pytest

from crcen import InvalidInput, InvalidParameter, ReadOptions
from crcen.exceptions import DataUnavailable
from crcen.tables import excel
from crcen.tables.reading import open_table
from crcen.tables.writing import TableWriter
from processes import run_python


def saved(path, *rows):
    """A workbook with these rows."""
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def test_a_workbook_comes_back_as_it_went(tmp_path):
    frame = pd.DataFrame({"n": [1, 2, 3, 4], "x": [0.5, None, -2.25, 1e9], "flag": [True, False, True, True]})
    frame["kind"] = ["a", None, "=b", "c"]
    frame["when"] = pd.to_datetime(["2024-01-01", "2024-02-01", None, "2024-03-01"]) + pd.Timedelta(hours=7)
    with TableWriter(tmp_path / "t.xlsx") as writer:
        writer.write(frame[:3])
        writer.write(frame[3:])
    table = open_table(tmp_path / "t.xlsx")
    assert (table.columns, table.n_rows) == (tuple(frame.columns), 4)
    back = table.read()
    pd.testing.assert_frame_equal(back[["n", "x", "flag"]], frame[["n", "x", "flag"]])
    assert back["kind"].fillna("missing").tolist() == ["a", "missing", "=b", "c"]
    assert (back["when"].dropna() == frame["when"].dropna()).all()
    assert openpyxl.load_workbook(tmp_path / "t.xlsx").worksheets[0]["D4"].data_type == "s"  # no formula
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
    assert back[["code", "id"]].to_dict("list") == {"code": ["17", "A1"], "id": [1, 2]}
    assert (back["day"][0], back["empty"].isna().all()) == (pd.Timestamp("2024-01-02"), True)
    assert table.notes == ["t.xlsx has 2 sheets (Sheet, notes); Sheet was read"]


def test_sheets_that_are_no_tables_are_refused_and_not_written(tmp_path, monkeypatch):
    for rows, sentence in (([], "is empty"), ([["a", "a"], [1, 2]], "duplicate column name in .*t.xlsx: a")):
        with pytest.raises(InvalidInput, match=sentence):
            open_table(saved(tmp_path / "t.xlsx", *rows))
    monkeypatch.setattr(excel, "MOST_ROWS", 3)
    with pytest.raises(InvalidParameter, match="Excel sheet holds 2 rows"), TableWriter(tmp_path / "o.xlsx") as writer:
        writer.write(pd.DataFrame({"a": [1, 2, 3]}))
    assert not (tmp_path / "o.xlsx").exists()


def test_titles_merged_names_hidden_rows_and_formulas_are_read_and_reported(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    for place, text in (("B2", "Sales of the North"), ("B4", "Region"), ("C4", "2023"), ("E4", "2024")):
        sheet[place] = text
    for cells in ("B2:F2", "B4:B5", "C4:D4", "E4:F4"):
        sheet.merge_cells(cells)
    for place, name in (("C5", "Q1"), ("D5", "Q2"), ("E5", "Q1"), ("F5", "Q2")):
        sheet[place] = name
    sheet.append([None, "Oslo", 1, 0.15, datetime.date(2024, 1, 2), "=SUM(C6:D6)"])
    sheet.append([None, "Bergen", 2, 0.5, datetime.datetime(2024, 1, 3, 4, 5), 7])
    sheet.append([None, "Bodø", 3, "#N/A", None, 8])
    sheet["D6"].number_format = "0%"
    sheet.row_dimensions[7].hidden = True
    book.save(tmp_path / "t.xlsx")
    table = open_table(tmp_path / "t.xlsx")
    frame = table.read()
    assert table.columns == ("Region", "2023 Q1", "2023 Q2", "2024 Q1", "2024 Q2")
    assert frame["Region"].tolist() == ["Oslo", "Bergen", "Bodø"]
    # A percentage is its number, and a formula has its stored value.
    np.testing.assert_array_equal(frame[["2023 Q2", "2024 Q2"]], [[0.15, np.nan], [0.5, 7], [np.nan, 8]])
    assert frame["2024 Q1"][1] == pd.Timestamp("2024-01-03 04:05")
    assert table.notes == [
        "hidden rows of t.xlsx were read too (1)",
        "1 formulas of t.xlsx have no stored value and are missing: save it in Excel",
        "3 rows above the table in t.xlsx skipped ('Sales of the North')",
        "the names in t.xlsx take 2 rows, joined as in '2024 Q2'",
    ]
    plain = saved(tmp_path / "p.xlsx", ["Report"], [], ["name", "n"], ["a", 1])
    assert open_table(plain).columns == open_table(plain, ReadOptions(skip_rows=2)).columns == ("name", "n")
    assert open_table(plain, ReadOptions(skip_rows=3, rename_duplicates=True)).read().shape == (0, 2)
    with pytest.raises(InvalidParameter, match="skip_rows must leave rows of the sheet Sheet, which has 4: got 9"):
        open_table(plain, ReadOptions(skip_rows=9))


def test_sheets_are_chosen_by_name_or_number_and_hidden_ones_are_not_the_first(tmp_path, crcen_command):
    book = openpyxl.Workbook()
    book.active.append(["secret"])
    book.active.sheet_state = "hidden"
    for name, value in (("May", 5), ("June", 6), ("None", 7)):
        sheet = book.create_sheet(name)
        sheet.append(["month", "x"])
        sheet.append([name, value])
    book.save(tmp_path / "t.xlsx")
    for wanted, value in ((None, 5), ("June", 6), (3, 6), ("2", 5), ("None", 7)):
        assert open_table(tmp_path / "t.xlsx", ReadOptions(sheet=wanted)).read()["x"].tolist() == [value]
    code, _, said = crcen_command("look", tmp_path / "t.xlsx", "--sheet", "July")
    assert code == 2
    assert re.search("--sheet must be a sheet of .*, Sheet, May, June, None: got 'July'", said)
    with pytest.raises(InvalidParameter, match=r"sheet is for Excel workbooks, and .* is none of these"):
        open_table(pd.DataFrame({"a": [1]}), ReadOptions(sheet=1))


def test_a_column_that_another_sheet_may_have_is_looked_for_there(tmp_path, crcen_command):
    book = openpyxl.Workbook()
    book.active.title = "Info"
    for name, rows in (("Info", [["Bericht", "Kredite"], ["Stand", 2026]]), ("Daten", [["x", "Status"], [1, 0]])):
        for row in rows:
            (book[name] if name in book.sheetnames else book.create_sheet(name)).append(row)
    book.save(tmp_path / "kredit.xlsx")
    for target, meant in (
        ("Status", "it has Bericht, Kredite; read another sheet (Daten) with --sheet."),
        ("Kredit", "did you mean Kredite, or another sheet (Daten) with --sheet?"),
    ):
        code, _, said = crcen_command("look", tmp_path / "kredit.xlsx", "--target", target)
        assert (code, said.rstrip().endswith(f"of the sheet Info of kredit.xlsx: got {target!r}; {meant}")) == (2, True)
    assert crcen_command("look", tmp_path / "kredit.xlsx", "--target", "Status", "--sheet", "Daten")[0] == 0
    del book["Daten"]
    book.save(tmp_path / "kredit.xlsx")
    said = crcen_command("look", tmp_path / "kredit.xlsx", "--target", "Status")[2]
    assert said.rstrip().endswith("must be a column of kredit.xlsx: got 'Status'; it has Bericht, Kredite.")


@pytest.mark.parametrize("ending", ["xls", "ods"])
def test_old_and_open_formats(tmp_path, ending):
    frame = pd.DataFrame({"n": [1, 2], "x": [0.5, None], "s": ["a", "b"], "d": pd.to_datetime(["2024-01-02"] * 2)})
    path = tmp_path / f"t.{ending}"
    if ending == "ods":
        pytest.importorskip("odf")
        frame.to_excel(path, index=False, engine="odf")
    else:
        xlwt = pytest.importorskip("xlwt")
        book = xlwt.Workbook()
        sheet, date = book.add_sheet("A"), xlwt.easyxf(num_format_str="YYYY-MM-DD")
        for j, name in enumerate(frame.columns):
            sheet.write(0, j, name)
        for i, row in enumerate(frame.itertuples(index=False), 1):
            for j, cell in enumerate(row):
                if cell == cell:
                    sheet.write(i, j, cell, date) if j == 3 else sheet.write(i, j, cell)
        book.save(path)
    back = open_table(path).read()
    pd.testing.assert_frame_equal(back, frame, check_dtype=False)


def test_totals_below_a_table_are_no_rows(tmp_path):
    rows = [["bad", "x", "z"], *([["no", 1.5, 2]] * 9), ["yes", 2.5, 3], [], ["Total", None, None], ["checked"]]
    table = open_table(saved(tmp_path / "t.xlsx", *rows))
    assert table.read()["bad"].value_counts().to_dict() == {"no": 9, "yes": 1}
    assert "below the table in t.xlsx, 2 rows skipped ('Total')" in table.notes
    rows += [[], ["no", 3.5, 4]]  # a row of the table after a gap
    assert len(open_table(saved(tmp_path / "t.xlsx", *rows)).read()) == 13


# -- attacks -----------------------------------------------------------------------------------------------------------


def changed(source, target, sheet=None, strings=None):
    """A copy of a workbook with another sheet, and with shared strings."""
    with zipfile.ZipFile(source) as old:
        parts = {name: old.read(name) for name in old.namelist()}
    if sheet is not None:
        parts["xl/worksheets/sheet1.xml"] = sheet(parts["xl/worksheets/sheet1.xml"])
    if strings is not None:
        space = b"http://schemas.openxmlformats.org/spreadsheetml/2006/main"
        parts["xl/sharedStrings.xml"] = b'<?xml version="1.0"?><sst xmlns="%s">%s</sst>' % (space, strings)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        for name, content in parts.items():
            new.writestr(name, content)
    return target


def with_rows(rows):
    return lambda xml: xml.replace(b"</sheetData>", rows + b"</sheetData>")


def test_stored_values_of_formulas_and_rows_outside_a_wrong_dimension_are_read(tmp_path):
    path = saved(tmp_path / "t.xlsx", ["a", "b"], [1, "=A2*3"])
    changed(path, path, lambda xml: re.sub(rb"<f>A2\*3</f><v ?/>", b"<f>A2*3</f><v>3</v>", xml))
    table = open_table(path)
    assert (table.read().to_dict("list"), table.notes) == ({"a": [1], "b": [3]}, [])
    path = saved(tmp_path / "t.xlsx", ["a", "b"], *([i, i * i] for i in range(30)))
    other = re.compile(rb'<dimension ref="[^"]*"')
    wrong = changed(path, tmp_path / "w.xlsx", lambda xml: other.sub(b'<dimension ref="A1:B11"', xml))
    assert open_table(wrong).read().to_numpy().tolist() == [[i, i * i] for i in range(30)]


FAR = b'<row r="1048576"><c r="XFD1048576"><v>1</v></c></row>'
ENTITIES = b'<!DOCTYPE x [<!ENTITY a "%s"><!ENTITY b "%s">]>' % (b"x" * 1000, b"&a;" * 1000)
ATTACKS = {
    "a cell far away": (with_rows(FAR), None, "over 1,048,576 rows and 16,384 columns would take"),
    "a prefix": (with_rows(FAR.replace(b"<c ", b"<x:c ").replace(b"</c>", b"</x:c>")), None, "16,384 columns would"),
    "an open value": (with_rows(FAR.replace(b"<c ", b"<c z='<' ")), None, "Excel workbook: not well-formed"),
    "an empty cell": (with_rows(FAR.replace(b"<v>1</v>", b"")), None, ""),
    "cells without places": (
        with_rows(b"<row>" + b"<c><v>0</v></c>" * 16_000 + b"</row>" + b"<row><c><v>0</v></c></row>" * 100_000),
        None,
        "16,000 columns would take",
    ),
    "zeros": (with_rows(b"<row>" + b"<c><v>0</v></c>" * 3_000_000 + b"</row>"), None, "expand to"),
    "one long string": (None, b"<si><t>" + b"y" * 40_000_000 + b"</t></si>", "expand to"),
    "a string many times": (
        with_rows((b"<row>" + b'<c t="s"><v>0</v></c>' * 100 + b"</row>") * 600),
        b"<si><t>" + b"y" * 32_767 + b"</t></si>",
        "would take",
    ),
    "entities": (lambda xml: ENTITIES + xml, None, "defines entities; save it again, or as CSV"),
}
READ = """
import resource, sys
from crcen.exceptions import CrcenError
from crcen.tables import excel, text
from crcen.tables.reading import open_table
import pandas, pyarrow, python_calamine
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    open_table(sys.argv[1]).read()
except CrcenError as error:
    print(error)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


def assert_refused(path, sentence):
    """Reading the file ends with this sentence and takes less than 200 MB."""
    *said, megabytes = run_python("-c", READ, path).splitlines()
    assert sentence in "".join(said)
    assert float(megabytes) < 200


@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_file_cannot_take_much_memory(tmp_path, name):
    sheet, strings, sentence = ATTACKS[name]
    path = changed(saved(tmp_path / "t.xlsx", ["a", "b"], [1, 2]), tmp_path / "w.xlsx", sheet, strings)
    assert path.stat().st_size < 300_000
    assert_refused(path, sentence)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("content.xml", "16,384 columns would take"), ("XL/workbook.xml", "has parts of equal names")],
)
def test_a_further_part_does_not_avoid_the_check(tmp_path, name, sentence):
    path = changed(saved(tmp_path / "t.xlsx", ["a", "b"], [1, "x"]), tmp_path / "w.xlsx", with_rows(FAR))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, b"<x/>")
    assert_refused(path, sentence)


@pytest.mark.parametrize(
    ("rows", "sentence"),
    [
        (
            b'<c r="A1"/><table:table-row table:number-rows-repeated="100000"><table:table-cell office:value="1" '
            b'table:number-columns-repeated="900"/></table:table-row>',
            "90,000,009 cells over 100,003 rows and 900 columns would take",
        ),
        (
            b'<table:table-row table:number-rows-repeated="90000"><table:table-cell/></table:table-row>'
            b'<table:table-row><table:table-cell table:number-columns-repeated="1000"/>'
            b'<table:table-cell office:value-type="float" office:value="1"/></table:table-row>',
            "10 cells over 90,004 rows and 1,001 columns would take",
        ),
        (
            b'<table:table-row table:number-rows-repeated="1000"><table:table-cell office:value-type="string" '
            b'table:number-columns-repeated="9"><text:p>' + b"y" * 50_000 + b"</text:p></table:table-cell>"
            b"</table:table-row>",
            "9,009 cells over 1,003 rows and 9 columns would take 0.8 GiB",
        ),
    ],
)
def test_an_open_document_that_repeats_cells_is_refused(tmp_path, rows, sentence):
    pytest.importorskip("odf")
    pd.DataFrame({"a": [1, 2], "b": [3, 4], "c": [5, 6]}).to_excel(tmp_path / "t.ods", index=False, engine="odf")
    with zipfile.ZipFile(tmp_path / "t.ods") as old, zipfile.ZipFile(tmp_path / "w.ods", "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"</table:table>", rows + b"</table:table>"))
    assert_refused(tmp_path / "w.ods", sentence)


@pytest.mark.parametrize("cut", [4, 30, 200, 2000])
def test_a_truncated_workbook_is_one_sentence(tmp_path, cut):
    content = saved(tmp_path / "t.xlsx", ["a"], *([i] for i in range(999))).read_bytes()
    (tmp_path / "c.xlsx").write_bytes(content[:cut])
    with pytest.raises(DataUnavailable, match="cannot be read as an Excel workbook"):
        open_table(tmp_path / "c.xlsx")
