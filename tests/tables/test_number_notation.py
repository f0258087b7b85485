"""Money, percent, groups of digits and odd cells: what a column of strings says as numbers."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crcen import CRCENClassifier, TableClassifier, fit_table, load, predict_table, save
from crcen.tables.cells import ColumnCells, read_numbers
from crcen.tables.columns import learn_column
from crcen.tables.reading import open_table

N = 60
SIZES = np.round(np.random.default_rng(0).lognormal(8, 2, N), 2)
SMALL = CRCENClassifier(hidden=(), random_state=0)


def learnt(cells, name="x"):
    return learn_column(ColumnCells(pd.Series(cells, name=name)))


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
    assert column.kind == "number"
    assert "was read as numbers" in column.note
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
    ],
)
def test_all_cells_decide_what_a_mark_means(cells, first):
    column = learnt(cells * 20)
    assert column.kind == "number"
    assert column.encode(ColumnCells(pd.Series(cells))).values[0, 0] == first


@pytest.mark.parametrize(
    ("cells", "kind", "said"),
    [
        (["$5", "€6", "$7"], "category", "units differ ($, €)"),
        (["5 kg", "6", "7 kg"], "category", "units differ (kg, no unit)"),
        ([*"12345678", "3+"], "category", "89% of its cells are numbers: 20 are not (first row 9: '3+')"),
        (["A1", "A2", "B1"], "category", ""),
        (["12:30", "12:45", "1:00"], "category", ""),
        (["1.2.3", "1.10.3", "2.0.1"], "category", ""),
    ],
)
def test_what_is_no_number_stays_what_it_was(cells, kind, said):
    column = learnt(cells * 20)
    assert (column.kind, said in column.note, bool(said) == bool(column.note)) == (kind, True, True)


@pytest.mark.parametrize("mark", ["?", "-", "N/A", "n.a.", "null", "Unknown", "#DIV/0!", "inf", "not available"])
def test_marks_for_no_number_are_missing(mark):
    cells = np.where(np.arange(N) % 3 == 0, mark, SIZES.astype(str))
    column = learnt(cells)
    assert (column.kind, column.has_missing) == ("number", True)
    assert mark in column.note
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


def test_fit_names_the_line_of_an_odd_cell(tmp_path, one_thread):
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=200), rng.random(200) < 0.3
    rows = [f"{a:.3f},{int(b)}" for a, b in zip(x, y, strict=True)]
    rows[3] = "1.0,"  # without a label, left out
    rows[99] = "oops,0"
    (tmp_path / "a.csv").write_text("x,y\n" + "\n".join(rows) + "\n")
    from crcen import CRCENClassifierCV

    quick = CRCENClassifierCV(hidden=(2,), l2=1e-2, encoding="standard", n_members=1, max_epochs=2)
    found = fit_table(tmp_path / "a.csv", target="y", estimator=quick, n_splits=2)
    assert "x has 1 cell without a number, taken as missing (line 101: 'oops')" in " ".join(str(found).split())
    assert any("line 101: 'oops'" in column.get("note", "") for column in found.to_dict()["columns"])
