"""How well each column alone tells the classes apart: what a leak looks like."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.evidence import Evidence
from crcen.report.operating_points import operating_points

__all__ = ["separations"]

Array = NDArray[np.float64]


def separations(evidence: Evidence, random_state: int = 0) -> list[tuple[str, float]]:
    """Area under the ROC curve of every column by itself, in whichever direction is better.

    Numbers, truth values and dates are ranked as they are, missing values below or above all others. Anything else is
    ranked by its share of positives in the other half of the rows, so that names and ids that occur once say nothing.

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
        values = evidence.X.iloc[:, number] if hasattr(evidence.X, "iloc") else evidence.X[:, number]
        scores = _as_numbers(values)
        if scores is None:
            areas = [_area(_shares(values, evidence, halves), evidence)]
        else:
            missing = np.isnan(scores)
            known = scores[~missing]
            ends = (known.min() - 1.0, known.max() + 1.0) if known.size else (0.0, 0.0)
            areas = [_area(np.where(missing, end, scores), evidence) for end in (ends if missing.any() else ends[:1])]
        found.append((name, max(max(area, 1.0 - area) for area in areas)))
    return found


def _area(scores: Array, evidence: Evidence) -> float:
    return operating_points(evidence.target, scores, evidence.weights).roc_auc


def _as_numbers(values: Any) -> Array | None:
    """A column as float64 with NaN for what is missing, or None where it is not made of numbers or dates."""
    kind = getattr(values.dtype, "kind", "O")
    if kind in "mM":
        ticks = np.asarray(values, dtype="datetime64[ns]" if kind == "M" else "timedelta64[ns]")
        return np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64).astype(np.float64))
    if kind not in "biuf":
        return None
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan) if hasattr(values, "to_numpy") else values
    return np.nan_to_num(np.asarray(numbers, dtype=np.float64), nan=np.nan)


def _shares(values: Any, evidence: Evidence, halves: NDArray[np.bool_]) -> Array:
    """Each row's share of positives among the rows of the other half with the same value."""
    _, codes = np.unique(np.asarray(values).astype(str), return_inverse=True)
    scores = np.empty(codes.size)
    overall = float(np.average(evidence.target, weights=evidence.weights))
    for half in (halves, ~halves):
        other = ~half
        size = np.bincount(codes[other], evidence.weights[other], minlength=codes.max() + 1)
        positive = np.bincount(codes[other], (evidence.weights * evidence.target)[other], minlength=codes.max() + 1)
        shares = np.divide(positive, size, out=np.full(size.size, overall), where=size > 0.0)
        scores[half] = shares[codes[half]]
    return scores
