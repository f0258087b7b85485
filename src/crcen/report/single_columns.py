"""How well each column alone tells the classes apart: what a leak looks like."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.encoded_rows import EncodedColumn
from crcen.report.evidence import Evidence
from crcen.report.operating_points import operating_points

__all__ = ["separations"]

Array = NDArray[np.float64]
Codes = NDArray[np.int64]


def separations(evidence: Evidence, random_state: int = 0) -> list[tuple[str, float]]:
    """Area under the ROC curve of every column by itself, in whichever direction is better.

    Where the model is a table classifier, its columns are looked at as it encodes them: a number is a number whether
    the file wrote it as text or not. Columns that it does not use cannot leak and are left out. For other models
    numbers (as text, too), truth values and dates are ranked as they are. Missing values rank below or above all
    others. Categories are ranked by their share of positives in the other half of the rows, so that names and ids that
    occur once say nothing.

    Parameters
    ----------
    evidence : Evidence
        The rows.
    random_state : int
        Seed of the halves.

    Returns
    -------
    list of (name, area)
        In the order of the columns; an area of ½ says nothing, 1 separates.
    """
    halves = np.random.default_rng(random_state).permutation(evidence.n_rows) % 2 == 0
    found = []
    for number, name in enumerate(evidence.columns):
        cells = evidence.X.iloc[:, number] if hasattr(evidence.X, "iloc") else evidence.X[:, number]
        if evidence.encoded is None:
            rankings = _of_cells(cells, evidence, halves)
        elif name in evidence.encoded.columns:
            column = evidence.encoded.columns[name]
            rankings = _of_encoded(column, evidence.encoded.X[:, column.block], evidence, halves)
            if column.kind == "text":
                rankings.append(_shares(_codes(cells), evidence, halves))
        else:
            continue
        areas = [operating_points(evidence.target, scores, evidence.weights).roc_auc for scores in rankings]
        found.append((name, max(max(area, 1.0 - area) for area in areas)))
    return found


def _of_encoded(column: EncodedColumn, values: Array, evidence: Evidence, halves: NDArray[np.bool_]) -> list[Array]:
    """The rankings that a column's encoded numbers allow."""
    if column.kind == "category":  # one place is 1, or none is: a value that training did not have
        return [_shares(values.argmax(axis=1) + values.any(axis=1), evidence, halves)]
    if not column.has_indicator:
        return list(values.T)
    missing = values[:, -1] == 1.0
    return [one for part in values[:, :-1].T for one in _at_both_ends(np.where(missing, np.nan, part))]


def _of_cells(cells: Any, evidence: Evidence, halves: NDArray[np.bool_]) -> list[Array]:
    """The rankings that a column of any type allows."""
    numbers = _as_numbers(cells)
    return [_shares(_codes(cells), evidence, halves)] if numbers is None else _at_both_ends(numbers)


def _at_both_ends(scores: Array) -> list[Array]:
    """Numbers with missing ones below all others, and above them."""
    missing = np.isnan(scores)
    known = scores[~missing]
    if not missing.any() or not known.size:
        return [np.nan_to_num(scores)]
    return [np.where(missing, end, scores) for end in (known.min() - 1.0, known.max() + 1.0)]


def _as_numbers(cells: Any) -> Array | None:
    """A column as float64 with NaN for what is missing, or None where it is not made of numbers or dates."""
    kind = getattr(cells.dtype, "kind", "O")
    if kind in "mM":
        ticks = np.asarray(cells, dtype="datetime64[ns]" if kind == "M" else "timedelta64[ns]")
        return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64).astype(np.float64))
    if kind not in "biuf":
        return _numbers_as_text(cells)
    numbers = cells.to_numpy(dtype=np.float64, na_value=np.nan) if hasattr(cells, "to_numpy") else cells
    return np.nan_to_num(np.asarray(numbers, dtype=np.float64), nan=np.nan)


def _numbers_as_text(cells: Any) -> Array | None:
    """The numbers that strings stand for; None where one of them is something else."""
    values = np.full(len(cells), np.nan)
    for i, cell in enumerate(np.asarray(cells, dtype=object)):
        if _is_missing(cell):
            continue
        try:
            values[i] = float(cell)
        except (TypeError, ValueError):
            return None
    return np.nan_to_num(values, nan=np.nan)


def _is_missing(cell: Any) -> bool:
    """None, NaN, NaT and pandas' NA; blank text."""
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return True
    return type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and np.isnan(cell))


def _codes(cells: Any) -> Codes:
    """A number for each different value; strings stay as they are, since an array of them is as wide as the longest."""
    place: dict[str, int] = {}
    return np.array(
        [place.setdefault(str(cell), len(place)) for cell in np.asarray(cells, dtype=object)], dtype=np.int64
    )


def _shares(codes: Codes, evidence: Evidence, halves: NDArray[np.bool_]) -> Array:
    """Each row's share of positives among the rows of the other half with the same value."""
    scores = np.empty(codes.size)
    overall = float(np.average(evidence.target, weights=evidence.weights))
    for half in (halves, ~halves):
        other = ~half
        size = np.bincount(codes[other], evidence.weights[other], minlength=codes.max() + 1)
        positive = np.bincount(codes[other], (evidence.weights * evidence.target)[other], minlength=codes.max() + 1)
        shares = np.divide(positive, size, out=np.full(size.size, overall), where=size > 0.0)
        scores[half] = shares[codes[half]]
    return scores
