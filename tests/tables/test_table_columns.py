"""What a column of cells is taken for: kinds, notations of numbers, and columns that only name or number rows."""

import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crcen import CRCENClassifier, CRCENClassifierCV, TableClassifier, fit_table, load, predict_table, save
from crcen.tables.cells import ColumnCells, read_numbers
from crcen.tables.columns import DroppedColumn, is_nameless_index, learn_column, why_repeating
from crcen.tables.reading import open_table

RNG = np.random.default_rng(5)
N, MANY = 60, 400
SIZES = np.round(np.random.default_rng(0).lognormal(8, 2, N), 2)
GAPS = np.sort(RNG.choice(10 * MANY, MANY, replace=False))
WIDE = np.sort(RNG.choice(10**6, MANY, replace=False))
SMALL = CRCENClassifier(hidden=(), random_state=0)


def learnt(cells, name="x", **options):
    return learn_column(ColumnCells(pd.Series(cells, name=name)), **options)


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (SIZES, "number"),
        (SIZES.astype(str), "number"),
        (RNG.integers(0, 5, N), "number"),
        (pd.array([1, None, 3] * 20, dtype="Int64"), "number"),
        (pd.to_timedelta(SIZES, unit="h"), "number"),
        ([True, False, None] * 20, "boolean"),
        (["Yes", "no", ""] * 20, "boolean"),
        (["Yes", "NO", "y", "n"] * 15, "boolean"),
        (["true", "FALSE", "true"] * 20, "boolean"),
        (["NL", "NO", "DE"] * 20, "category"),
        (pd.Categorical([1, 2, 3] * 20), "category"),
        ([1, "x", None] * 20, "category"),
        (pd.date_range("2024-01-01", periods=N, freq="7h"), "date"),
        (pd.date_range("2024-01-01", periods=N, freq="7h", tz="Europe/Oslo"), "date"),
        ([datetime.date(2024, 1, 1 + i % 30) for i in range(N)], "date"),
        ([f"{1 + i % 28:02d}/{1 + i % 12:02d}/2024" for i in range(N)], "date"),
        (["2024-03-01T12:00:00"] * 30 + ["2023-03-01T12:00:00"] * 30, "date"),
        (["2024-01-31T10:00:00Z", "2023-12-01T11:30:00Z"] * 30, "date"),
        (["31 January 2024", "01 December 2023"] * 30, "date"),
        (["Mon, 01 Jan 2024", "Tue, 02 Jan 2024"] * 30, "date"),
        (["2024-01-31 10:00:00+0100", "2023-12-01 11:00:00+0100"] * 30, "date"),
        (["01/31/2024 10:15 PM", "12/01/2023 09:15 AM"] * 30, "date"),
        (["10:15 p.m. 3 May", "11:15 a.m. 4 June"] * 30, "date"),
        (["word3", "word11"] * 30, "category"),
        (["grade 2", "grade 7"] * 30, "category"),
        (["x1", "2024"] * 30, "category"),
        (["yes", "no", "maybe"] * 20, "category"),
        (["maybe", "yes", "no"] * 20, "category"),
    ],
)
def test_kinds_are_found_out(cells, kind):
    assert learnt(cells).kind == kind


@pytest.mark.parametrize(
    ("name", "cells", "reason"),
    [
        ("x", [None] * N, "every value is missing"),
        ("x", ["a"] * N, "constant: every value is a"),
        ("x", [3.0] * N, "constant: every value is 3"),
        ("x", [np.inf] * 30 + [-np.inf] * 30, "missing or infinite"),
        ("row", np.arange(N) + 17, "row number"),
        ("order_key", [f"{i % 40}x" for i in range(N)], "an identifier"),
        ("x", [[1, 2]] * N, "holds lists"),
        ("x", [datetime.date(2024, 1, 1)] * N, "constant"),
        ("x", GAPS, "with gaps"),
        ("x", GAPS.astype(str), "with gaps"),
        ("x", GAPS.astype(float), "with gaps"),
        ("x", RNG.permutation(GAPS), "with gaps"),  # rows of a shuffled file
        ("x", WIDE, "grow along the file"),
        ("caseid", [f"{i // 60}:{i % 60 // 3}:{i % 3}" for i in range(MANY)], "an identifier"),
        ("x", [f"{i // 90}:{i % 45}:{i % 3}" for i in range(MANY)], "codes in"),
        ("x", [f"AB{i - i % 20 // 19:05d}" for i in range(MANY)], "an identifier"),  # one of twenty is there twice
        ("caseid", RNG.integers(0, 10**5, MANY), "by its name"),
        ("Unnamed: 0", RNG.normal(size=MANY), "pandas wrote"),
        ("__index_level_0__", ["a", "b"] * (MANY // 2), "pandas wrote"),
    ],
)
def test_columns_that_say_nothing_are_left_out_unless_they_are_kept(name, cells, reason):
    found = learnt(cells, name)
    assert (type(found), reason in found.reason) == (DroppedColumn, True)
    is_useless = reason.startswith(("every value", "constant", "missing", "holds lists"))
    assert isinstance(learnt(cells, name, is_kept=True), DroppedColumn) == is_useless


@pytest.mark.parametrize(
    ("name", "cells"),
    [
        ("x", np.sort(RNG.normal(size=MANY))),  # all different, but no whole numbers
        ("amount", RNG.choice(10**6, MANY, replace=False)),
        ("amount", np.unique((RNG.lognormal(10, 2, MANY)).astype(int))),  # a file sorted by an honest column
        ("x", RNG.integers(0, 10 * MANY, MANY)),  # some are there twice, as chance has it
        ("year", np.arange(1000, 1000 + 3 * MANY, 3)),
        ("ts", 1_700_000_000 + GAPS * 7),
        ("x", 1_700_000_000 + GAPS * 7),
        ("arrival", [f"{h:02d}:{m:02d}:{s:02d}" for h, m, s in zip(GAPS % 24, GAPS % 60, GAPS % 59, strict=True)]),
        ("day", [f"{1 + i % 31}/{1 + i % 12}/{10 + i % 13}" for i in range(MANY)]),
        ("name", [f"{a}{b}son" for a in "ABCDEFGHIJKLMNOPQRST" for b in "abcdefghijklmnopqrs"] + ["Johnson"] * 20),
        ("pressure", [f"{a}/{b}" for a, b in RNG.integers([90, 60], [160, 100], (MANY, 2))]),
        ("price", [f"${v:,.2f}" for v in RNG.lognormal(8, 2, MANY)]),
        ("paid", RNG.integers(0, 10**5, MANY)),
    ],
)
def test_honest_columns_stay(name, cells):
    assert not isinstance(learnt(cells, name), DroppedColumn)


def test_names_of_an_index():
    names = ("__index_level_1__", "Unnamed: 0", "Unnamed: 0.1", "Unnamed: 3", "index_level", "unnamed")
    assert [is_nameless_index(name) for name in names] == [True] * 3 + [False] * 3


def test_the_index_of_pandas_is_no_input_from_csv_and_parquet(tmp_path):
    frame = pd.DataFrame({"x": RNG.normal(size=MANY)}, index=RNG.permutation(MANY) * 3)
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


# -- numbers as they are written ---------------------------------------------------------------------------------------


def grouped(value, decimal, thousands, digits=2):
    return f"{value:,.{digits}f}".replace(",", "_").replace(".", decimal).replace("_", thousands)


@pytest.mark.parametrize(
    ("decimal", "thousands"), [(".", ","), (",", "."), (".", " "), (",", "\u00a0"), (".", "’"), (",", "'")]
)
@pytest.mark.parametrize("around", ["{}", "$ {}", "${}", "{} €", "US$ {}", "{} USD", "EUR {}", "{}%", "{} kg", "Kr {}"])
def test_every_notation_gives_the_numbers(decimal, thousands, around):
    values = SIZES * np.where(np.arange(N) % 5, 1, -1)
    cells = pd.Series([around.format(grouped(value, decimal, thousands)) for value in values])
    column = learnt(cells)
    assert (column.kind, "was read as numbers" in column.note) == ("number", True)
    for own in (cells, pd.Series(values)):  # numbers are themselves
        np.testing.assert_array_equal(column.encode(ColumnCells(own)).values[:, 0], values)


@given(st.lists(st.decimals(-(10**9), 10**9, places=2), min_size=20, max_size=30, unique=True))
def test_accounts_in_parentheses_are_negative(amounts):
    values = np.array([float(amount) for amount in amounts])
    cells = [f"({abs(value):,.2f})" if value < 0 else f"{value:,.2f}" for value in values]
    np.testing.assert_array_equal(read_numbers(*pd.factorize(pd.Series(cells, dtype="string"))).values, values)


@pytest.mark.parametrize(
    ("cells", "first"),
    [
        (["1,234", "987", "12,345,678"], 1234.0),
        (["1,234", "0,5", "3,25"], 1.234),
        (["1,234", "5,678", "9,012"], 1234.0),  # as it is written most
        (["1.234 €", "5.678 €", "12 €"], 1234.0),  # money has two decimals
        (["$1.239", "$0.999", "$12.3"], 1.239),
        (["1,234 %", "5,678 %", "9,012 %"], 1.234),
        (["1,23,456", "12,345", "99"], 123456.0),
        (["1.5e3 kg", "2 kg", "3.25 kg"], 1500.0),
        (["1 year", "2 years", "10 Years"], 1.0),
        (["−5 %", "+3 %", "2%"], -5.0),
        (["1.06k", "794", "3.2M"], 1060.0),
        (["1,06k", "794", "3,2M"], 1060.0),
        (["-$1.5M", "$794", "$12,000"], -1.5e6),
        (["1.2bn", "450M", "2B"], 1.2e9),
        (["12k", "794", "3k"], 12e3),
        (["11k", "10M", "7"], 11e3),
        (["$12M", "$794k", "$2B"], 12e6),
        (["5m", "6m", "7m"], 5.0),  # metres
    ],
)
def test_all_cells_decide_what_a_mark_means(cells, first):
    column = learnt(cells * 20)
    assert (column.kind, column.encode(ColumnCells(pd.Series(cells))).values[0, 0]) == ("number", first)


@pytest.mark.parametrize(
    ("cells", "kind", "said"),
    [
        (["$5", "€6", "$7"], "category", "units differ ($, €)"),
        (["5 kg", "6", "7 kg"], "category", 'units differ (kg, no unit), such as "5 kg", "6"; write them in one unit'),
        (["5 kg", "600 g", "7 kg"], "category", 'units differ (kg, g), such as "5 kg", "600 g"'),
        (["3.2M", "794", "1.1M"], "category", "units differ (m, no unit)"),  # millions or metres
        (["1.2k", "5 kg", "6 kg"], "category", "units differ (kg, k)"),
        (["12a", "12b", "7c"], "category", ""),
        (["12b", "14m", "7b"], "category", ""),  # codes, as these of other letters
        (["12b", "14m", "7"], "category", ""),
        ([*"12345678", "3+"], "category", "89% of its cells are numbers: 20 are not (first row 9: '3+')"),
        (
            ["1.5", "2.5", "3,5"],
            "category",
            'numbers with decimal points and commas, such as "1.5" and "3,5"; write them',
        ),
        (["A1", "A2", "B1"], "category", ""),
        (["12:30", "12:45", "1:00"], "category", ""),
        (["1.2.3", "1.10.3", "2.0.1"], "category", ""),
    ],
)
def test_what_is_no_number_stays_what_it_was(cells, kind, said):
    column = learnt(cells * 20)
    assert (column.kind, said in column.note, bool(said) == bool(column.note)) == (kind, True, True)


def test_notes_say_what_suffixes_mean():
    assert 'was read as numbers ("1.06k" is 1060)' in learnt(["1.06k", "794", "33"] * 20).note
    assert "has 20 cells without %, read as % too" in learnt(["12%", "0.4", "33%"] * 20).note
    assert "without" not in learnt(["12%", "4%", "33%"] * 20).note
    money = learnt(["$5", "$60", "$700"] * 20)
    assert np.isnan(money.read(ColumnCells(pd.Series(["$5k"]))))[0]  # not five dollars


@pytest.mark.parametrize("mark", ["?", "-", "N/A", "n.a.", "null", "Unknown", "#DIV/0!", "inf", "not available"])
def test_marks_for_no_number_are_missing(mark):
    cells = np.where(np.arange(N) % 3 == 0, mark, SIZES.astype(str))
    column = learnt(cells)
    assert (column.kind, column.has_missing, mark in column.note) == ("number", True, True)
    encoded = column.encode(ColumnCells(pd.Series(cells)))
    np.testing.assert_array_equal(encoded.values[:, 1], np.arange(N) % 3 == 0)
    assert encoded.odd["unreadable"] == 0


def test_a_saved_model_reads_new_rows_alike_in_chunks(tmp_path):
    rng = np.random.default_rng(1)
    price, rate = rng.lognormal(7, 1.5, 300), rng.uniform(0, 20, 300)
    y = rate + rng.normal(size=300) > 17
    plain = pd.DataFrame({"price": np.round(price, 2), "rate": np.round(rate, 1), "y": y})
    written = plain.assign(price=[f"€ {v:,.2f}" for v in plain.price], rate=[f"{v:.1f} %" for v in plain.rate])
    written.to_csv(tmp_path / "w.csv", index=False)
    frame = open_table(tmp_path / "w.csv").read()
    model = TableClassifier(estimator=SMALL).fit(frame.drop(columns="y"), frame["y"] == "True")
    twin = TableClassifier(estimator=SMALL).fit(plain.drop(columns="y"), plain["y"])
    save(model, tmp_path / "m.crcen")
    scored = predict_table(load(tmp_path / "m.crcen"), tmp_path / "w.csv", chunk_rows=7).frame
    np.testing.assert_array_equal(scored["probability"], twin.predict_proba(plain)[:, 1])


def test_fit_names_the_line_of_an_odd_cell(tmp_path):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=200), rng.random(200) < 0.3
    rows = [f"{a:.3f},{int(b)}" for a, b in zip(x, y, strict=True)]
    rows[3] = "1.0,"  # without a label, left out
    rows[99] = "oops,0"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    quick = CRCENClassifierCV(hidden=(2,), l2=1e-2, encoding="standard", n_members=1, max_epochs=2)
    found = fit_table(tmp_path / "a.csv", target="y", estimator=quick, n_splits=2)
    assert "x has 1 cell without a number, taken as missing (line 101: 'oops')" in " ".join(str(found).split())
    assert any("line 101: 'oops'" in column.get("note", "") for column in found.to_dict()["columns"])


def test_one_busy_bearer_does_not_hide_an_identifier():
    who = np.concatenate([np.zeros(90, dtype=int), np.random.default_rng(0).integers(1, 130, 1500)])
    for name, is_told in (("id", True), ("patient", True), ("site_id", False)):
        found = why_repeating(ColumnCells(pd.Series(who, name=name)), "number")
        assert bool(found) is is_told
