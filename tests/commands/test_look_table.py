"""A look at a table before a fit: the same columns as a fit, with gaps, ids and leaks named."""

import re

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from crcen import InvalidInput, TableClassifier, look_at_table

RNG = np.random.default_rng(0)
N = 800
Y = RNG.random(N) < 0.15
FRAME = pd.DataFrame(
    {
        "id": [f"C{i:05d}" for i in range(N)],
        "amount": RNG.normal(size=N) + Y,
        "price": [f"${cell:,.2f}" for cell in RNG.gamma(2.0, 900.0, N)],
        "country": RNG.choice(["NL", "NO", "SE"], N),
        "joined": pd.Timestamp("2020-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
        "age": np.where(RNG.random(N) < 0.25, np.nan, RNG.integers(18, 90, N)),
        "collected": np.where(Y, RNG.gamma(2.0, 50.0, N), 0.0),
        "same": 1,
        "late": np.where(Y, "yes", "no"),
    }
)


@pytest.fixture(scope="module")
def look():
    return look_at_table(FRAME, target="late")


def test_kinds_gaps_and_reasons_are_those_of_a_fit(look):
    reader = TableClassifier(random_state=0).learn_columns(FRAME.drop(columns="late"))
    kinds = {one.name: one.kind for one in look.columns}
    assert kinds == {column.name: column.kind for column in reader.columns_} | dict.fromkeys(["id", "same"], "left out")
    assert {one.name: one.plan for one in look.columns if one.kind == "left out"} == {
        one.name: one.reason for one in reader.dropped_
    }
    found = {one.name: one for one in look.columns}
    assert found["age"].n_missing == FRAME.age.isna().sum()
    assert found["age"].plan == "used as a number; missing values are filled and have an indicator column"
    assert "$" in found["price"].note  # money as text
    assert found["country"].n_values == 3
    assert look.counts == {"yes": int(Y.sum()), "no": int((~Y).sum())}


def test_areas_are_those_of_scikit_learn_and_leaks_are_named(look):
    found = {one.name: one for one in look.columns}
    assert found["amount"].area == pytest.approx(roc_auc_score(Y, FRAME.amount), abs=1e-12)
    assert found["collected"].is_suspect
    assert [one.name for one in look.columns if one.is_suspect] == ["collected"]
    assert look.to_dict()["suspects"] == ["collected"]
    assert any("collected alone nearly separates yes" in note for note in look.notes)
    assert found["country"].area < 0.65


def test_it_prints_and_shows_itself_escaped():
    frame = FRAME.rename(columns={"country": "<b>country</b>"})
    look = look_at_table(frame, target="late")
    assert "<b>" not in look._repr_html_()
    assert "\n" not in repr(look)
    lines = str(look).splitlines()
    assert lines[0].startswith(f"the data frame: {N} rows, 8 columns; late: {Y.sum()} yes")
    assert sum(line.split("  ")[0] in frame.columns for line in lines) == 8
    low, middle, high = (f"{value:.4g}" for value in np.quantile(frame["amount"], [0, 0.5, 1]))
    assert f"used as a number; from {low} to {high}, median {middle}" in str(look)


def test_without_a_target_and_with_many_values():
    plain = look_at_table(FRAME)
    assert len(plain.columns) == 9
    assert all(np.isnan(one.area) for one in plain.columns)
    several = look_at_table(FRAME.assign(copy=FRAME["country"]), target="country")
    assert set(several.counts) == set(FRAME["country"])
    assert [one.name for one in several.columns if one.is_suspect] == ["copy"]
    many = look_at_table(FRAME.assign(number=np.arange(N)), target="number")
    assert any(f"number has {N} values, and classes are 2 to 50" in note for note in many.notes)
    one = look_at_table(FRAME, target="country", positive="NO")
    assert set(one.counts) == {"NO", "not NO"}
    with pytest.raises(InvalidInput, match="must be a column"):
        look_at_table(FRAME, target="nothing")


def test_a_table_of_nothing_useful_is_an_answer():
    look = look_at_table(pd.DataFrame({"a": [1, 1, 1], "b": [None, None, None]}))
    assert [one.kind for one in look.columns] == ["left out", "left out"]


def test_the_command_reads_a_file_of_text(crcen_command, tmp_path):
    FRAME.to_csv(tmp_path / "data.csv", index=False)
    code, out, _ = crcen_command("look", tmp_path / "data.csv", "--target", "late", "--drop", "collected")
    assert (code, "nearly separate" in out) == (0, False)
    assert re.search("collected .*asked for", out)
    assert crcen_command("look", tmp_path / "data.csv", "--target", "lat")[0] == 1


def test_a_large_table_is_described_by_a_sample_with_missing_cells_of_all_rows(monkeypatch):
    monkeypatch.setattr("crcen.commands.look._MOST_DESCRIBED", 500)
    rng = np.random.default_rng(0)
    n = 4000
    frame = pd.DataFrame({"x": rng.normal(size=n), "id": np.arange(n), "y": np.where(rng.random(n) < 0.2, "a", "b")})
    frame.loc[:6, "x"] = np.nan
    for target in (None, "y"):
        found = look_at_table(frame, target=target).to_dict()
        columns = {one["name"]: one for one in found["columns"]}
        assert (found["rows"], columns["x"]["n_missing"]) == (n, 7)
        assert columns["x"]["n_values"] <= 500
        assert "numbers the rows" in columns["id"]["plan"]
        assert any("a random sample of 500 rows" in note for note in found["notes"])


@pytest.mark.parametrize(("n_columns", "is_named"), [(8, True), (1, False)])
def test_copies_are_told_from_rows_that_are_equal_by_chance(tmp_path, crcen_command, n_columns, is_named):
    # No column has many values, but eight together tell rows apart.
    rows = pd.DataFrame(np.random.default_rng(0).integers(0, 100, (600, n_columns))).add_prefix("x")
    rows = pd.concat([rows.assign(y=np.arange(600) % 4 == 0)] * 2).sample(frac=1.0, random_state=0)
    rows.to_csv(tmp_path / "a.csv", index=False)
    for command in ("look", "split"):
        _, out, _ = crcen_command(command, tmp_path / "a.csv", "--target", "y")
        assert ("600 of 1,200 rows are copies of other rows" in out) == is_named
        assert ("rows equal others, as columns have few values" in out) != is_named


def test_far_dates_and_words_that_may_be_missing():
    rng = np.random.default_rng(0)
    until = (pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, 200), "D")).strftime("%Y-%m-%d")
    rows = pd.DataFrame({"until": np.where(np.arange(200) % 9 == 0, "9999-12-31", until)})
    rows["state"] = rng.choice(["ND", "SD", "NY", "CA"], 200)  # ND is North Dakota
    rows["grade"] = rng.choice(["low", "high", "nd"], 200)
    found = look_at_table(rows).placeholders
    assert found == {"until": {"9999-12-31": 23}, "grade": {"nd": int((rows.grade == "nd").sum())}}


@pytest.mark.parametrize("rows", ["", "1,\n2,\n"])
def test_a_target_without_values_is_one_sentence(tmp_path, rows):
    (tmp_path / "a.csv").write_text("x,y\n" + rows)
    with pytest.raises(InvalidInput, match=r"^a\.csv has no row with a value of y\.$"):
        look_at_table(tmp_path / "a.csv", target="y")


@pytest.mark.parametrize(("missing", "said"), [([], "are needed"), ([None] * 3, "are needed (3 rows without a value)")])
def test_a_target_of_one_value_is_named_with_its_missing_cells(missing, said):
    rows = pd.DataFrame({"x": range(20 + len(missing)), "y": ["a"] * 20 + missing})
    assert any(note.endswith(said) for note in look_at_table(rows, target="y").notes)
