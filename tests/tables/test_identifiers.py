"""Columns that only name or number rows are left out; honest columns that happen to differ in every row stay."""

import numpy as np
import pandas as pd
import pytest

from crcen import TableClassifier
from crcen.tables.cells import ColumnCells
from crcen.tables.columns import DroppedColumn, is_nameless_index, learn_column, why_repeating
from crcen.tables.reading import open_table

RNG = np.random.default_rng(5)
N = 400
GAPS = np.sort(RNG.choice(10 * N, N, replace=False))
WIDE = np.sort(RNG.choice(10**6, N, replace=False))


def learnt(name, cells, **options):
    return learn_column(ColumnCells(pd.Series(cells, name=name)), **options)


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", GAPS, "with gaps"),
        ("x", GAPS.astype(str), "with gaps"),
        ("x", GAPS.astype(float), "with gaps"),
        ("x", RNG.permutation(GAPS), "with gaps"),  # rows of a shuffled file
        ("x", WIDE, "grow along the file"),
        ("caseid", [f"{i // 60}:{i % 60 // 3}:{i % 3}" for i in range(N)], "an identifier"),
        ("x", [f"{i // 90}:{i % 45}:{i % 3}" for i in range(N)], "codes on"),
        ("x", [f"AB{i - i % 20 // 19:05d}" for i in range(N)], "an identifier"),  # one of twenty is there twice
        ("caseid", RNG.integers(0, 10**5, N), "by its name"),
        ("Unnamed: 0", RNG.normal(size=N), "pandas wrote"),
        ("__index_level_0__", ["a", "b"] * (N // 2), "pandas wrote"),
    ],
)
def test_what_counts_or_names_rows_is_left_out_unless_it_is_kept(name, cells, reason):
    found = learnt(name, cells)
    assert isinstance(found, DroppedColumn)
    assert reason in found.reason
    assert not isinstance(learnt(name, cells, is_kept=True), DroppedColumn)


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("x", np.sort(RNG.normal(size=N))),  # all different, but no whole numbers
        ("amount", RNG.choice(10**6, N, replace=False)),
        ("amount", np.unique((RNG.lognormal(10, 2, N)).astype(int))),  # a file sorted by an honest column
        ("x", RNG.integers(0, 10 * N, N)),  # some are there twice, as chance has it
        ("year", np.arange(1000, 1000 + 3 * N, 3)),
        ("ts", 1_700_000_000 + GAPS * 7),
        ("x", 1_700_000_000 + GAPS * 7),
        ("arrival", [f"{h:02d}:{m:02d}:{s:02d}" for h, m, s in zip(GAPS % 24, GAPS % 60, GAPS % 59, strict=True)]),
        ("day", [f"{1 + i % 31}/{1 + i % 12}/{10 + i % 13}" for i in range(N)]),
        ("name", [f"{a}{b}son" for a in "ABCDEFGHIJKLMNOPQRST" for b in "abcdefghijklmnopqrs"] + ["Johnson"] * 20),
        ("pressure", [f"{a}/{b}" for a, b in RNG.integers([90, 60], [160, 100], (N, 2))]),
        ("price", [f"${v:,.2f}" for v in RNG.lognormal(8, 2, N)]),
        ("paid", RNG.integers(0, 10**5, N)),
    ],
)
def test_honest_columns_stay(name, cells):
    assert not isinstance(learnt(name, cells), DroppedColumn)


def test_names_of_an_index():
    assert [is_nameless_index(name) for name in ("__index_level_1__", "Unnamed: 0", "Unnamed: 0.1")] == [True] * 3
    assert [is_nameless_index(name) for name in ("Unnamed: 3", "index_level", "unnamed")] == [False] * 3


def test_the_index_of_pandas_is_no_input_from_csv_and_parquet(tmp_path):
    frame = pd.DataFrame({"x": RNG.normal(size=N)}, index=RNG.permutation(N) * 3)
    frame.to_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        model = TableClassifier(random_state=0)
        model.learn_columns(open_table(tmp_path / name).read())
        assert [column.name for column in model.columns_] == ["x"], name


@pytest.mark.parametrize(("name", "is_named"), [("patient", True), ("patient_id", True), ("age_in_days", False)])
def test_small_numbers_repeat_like_an_identifier_by_their_name(name, is_named):
    found = why_repeating(ColumnCells(pd.Series(np.random.default_rng(0).integers(1, 200, 400), name=name)), "number")
    assert found.startswith(f"{name} repeats like") if is_named else not found
