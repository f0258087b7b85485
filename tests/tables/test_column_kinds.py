"""What a column holds is told without loading what only dates and free text need."""

import pandas as pd
import pytest

from crcen.tables.cells import ColumnCells, _may_be_date
from crcen.tables.column_kinds import learn_column
from crcen.tables.columns import CategoryColumn, DateColumn


def learned(cells, **how):
    series = pd.Series(cells, name="x", dtype="string")
    return learn_column(ColumnCells(series), **({"is_kept": True} | how))


@pytest.mark.parametrize("cells", [["word3", "word11"], ["grade 2", "grade 7"], ["x1", "2024"]])
def test_codes_with_digits_are_categories(cells):
    assert isinstance(learned(cells * 20), CategoryColumn)


@pytest.mark.parametrize(
    "cells",
    [
        ["2024-01-31", "2023-12-01"],
        ["2024-01-31T10:00:00Z", "2023-12-01T11:30:00Z"],
        ["31 January 2024", "01 December 2023"],
        ["Mon, 01 Jan 2024", "Tue, 02 Jan 2024"],
        ["31.01.2024", "01.12.2023"],
        ["2024-01-31 10:00:00+0100", "2023-12-01 11:00:00+0100"],
    ],
)
def test_dates_are_still_dates(cells):
    assert _may_be_date(cells[0])
    assert isinstance(learned(cells * 20), DateColumn)


@pytest.mark.parametrize("cell", ["10:15 p.m. 3 May", "01/31/2024 10:15 PM", "2024-01-31 10:00 CEST", "20240131"])
def test_cells_that_may_be_dates_are_tried(cell):
    assert _may_be_date(cell)


@pytest.mark.parametrize("cells", [["yes", "no", "maybe"], ["maybe", "yes", "no"]])
def test_a_third_word_makes_a_category(cells):
    assert isinstance(learned(cells * 10), CategoryColumn)
