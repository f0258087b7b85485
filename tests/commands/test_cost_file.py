"""Costs as people make them in a spreadsheet: how they are read, and what is said of what cannot be."""

import numpy as np
import openpyxl
import pandas as pd
import pytest

from crcen import CostMatrix
from crcen.commands.prices import costs_from
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter

CLASSES = ["broken", "fine", "worn"]
WANTED = CostMatrix([[0, 40, 10, 3], [1, 0, 1, 0.5], [2, 5, 0, 1]], labels=CLASSES, actions=["inspect"])
ROWS = [
    ["", "fine", "worn", "broken", "inspect"],
    ["fine", 0, 1, 1, 0.5],
    ["worn", 5, 0, 2, 1],
    ["broken", 40, 10, 0, 3],
]


def text(separator=",", decimal=".", end="\n", rows=ROWS):
    cells = [[str(cell).replace(".", decimal) for cell in row] for row in rows]
    return end.join(separator.join(row) for row in cells) + end


@pytest.mark.parametrize(
    "raw",
    [
        text().encode(),
        text(";", ",").encode("utf-8-sig"),
        text("\t", ",", "\r\n").encode("utf-16"),
        text("|").replace("fine", " fine ").encode(),
        ("\n" + text() + "\n,,,,\n").encode(),
        text().replace("fine", "FINE").encode(),
        text().replace(",0,", ",,").encode(),  # the diagonal left empty
        text(rows=[row[:1] + [f"€ {cell}" for cell in row[1:]] if row[0] else row for row in ROWS]).encode(),
    ],
)
def test_one_matrix_however_it_is_written(tmp_path, raw):
    (tmp_path / "costs.csv").write_bytes(raw)
    assert costs_from(tmp_path / "costs.csv", CLASSES) == WANTED


def test_excel_and_data_frames(tmp_path):
    book = openpyxl.Workbook()
    for row in ROWS:
        book.active.append([None if cell == "" else cell for cell in row])
    book.active.append([None])
    book.save(tmp_path / "costs.xlsx")
    assert costs_from(tmp_path / "costs.xlsx", CLASSES) == WANTED
    frame = pd.DataFrame([row[1:] for row in ROWS[1:]], columns=ROWS[0][1:], index=[row[0] for row in ROWS[1:]])
    for own in (frame, frame.rename_axis("fine")):
        assert costs_from(own, CLASSES) == WANTED


def test_labels_that_are_numbers(tmp_path):
    (tmp_path / "costs.csv").write_text("true,3,1,2\n1.0,9,0,4\n2,7,8,0\n3,0,5,6\n")
    found = costs_from(tmp_path / "costs.csv", [1, 2, 3])
    np.testing.assert_array_equal(found.costs, [[0, 4, 9], [8, 0, 7], [5, 6, 0]])
    assert found.labels == (1, 2, 3)
    spelt = CostMatrix(found.costs, labels=["1", "2", "3"])
    assert costs_from(spelt, [1, 2, 3]) == found
    (tmp_path / "costs.csv").write_text("true,1,2\n1,-,4\n2,8,n/a\n")  # nothing on the diagonal
    assert costs_from(tmp_path / "costs.csv", [1, 2]).costs.tolist() == [[0.0, 4.0], [8.0, 0.0]]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (("fine,0,1,1,0.5", "fine,0,,1,0.5"), "costs.csv of worn decided where fine is true is missing"),
        (("fine,0,1,1,0.5", "fine,0,n/a,1,0.5"), "costs.csv of worn decided where fine is true is missing"),
        ((",5,0,2,1\nbroken,40", ",,0,2,1\nbroken,"), "costs.csv of fine decided where broken is true is missing"),
        (("40,10", "40,-10"), "of worn decided where broken is true must be 0 or more: got -10"),
        (("40,10", "40,much"), "of worn decided where broken is true must be a number: got 'much'"),
        (("worn,5", "wron,5"), "must have a row for every class: none is called worn; did you mean the row wron?"),
        ((",worn,", ",wron,"), "a column for every class: none is called worn; did you mean the column wron?"),
        (("worn,5,0,2,1\n", ""), "must have a row for every class: none is called worn; it has fine, broken."),
        (("worn,5", "fine,5"), "costs.csv names the row fine a second time: each row must be its own"),
        ((",inspect", ",broken"), "duplicate column name in {folder}/costs.csv: broken."),
        (("worn,5,0,2,1", ",5,0,2,1"), "costs.csv must name every row and column: row 3 has no name"),
        ((",inspect", ","), "costs.csv must name every row and column: column 5 has no name"),
        (
            ("broken,40", "other,1,1,1,1\nbroken,40"),
            "must have rows for the classes broken, fine, worn only: got other",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_cell(tmp_path, change, sentence):
    (tmp_path / "costs.csv").write_text(text().replace(*change))
    with pytest.raises(InvalidInput) as error:
        costs_from(tmp_path / "costs.csv", CLASSES)
    assert sentence.format(folder=tmp_path) in str(error.value)
    assert str(error.value).count(". ") == 0


def test_files_that_are_no_matrix(tmp_path):
    with pytest.raises(DataUnavailable, match="is not there"):
        costs_from(tmp_path / "none.csv", CLASSES)
    for name in ("a.xlsx", "a.csv"):
        (tmp_path / name).write_text("fine\n")
        with pytest.raises(InvalidInput, match="must be a table of costs"):
            costs_from(tmp_path / name, CLASSES)
    with pytest.raises(InvalidParameter, match="got int"):
        costs_from(3, CLASSES)
