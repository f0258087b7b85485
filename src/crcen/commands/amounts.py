"""Columns that say how much a row counts or costs: numbers, none of them missing or negative."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput
from crcen.tables.number_notation import read_numbers

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["amounts_of", "rarer_by_weight", "weight_notes", "weights_of"]


def amounts_of(cells: "pd.Series", what: str) -> NDArray[np.float64]:
    """Numbers of a column, however they are written.

    Parameters
    ----------
    cells : pandas Series
        Numbers, or text that holds them, such as ``€ 3,000``.
    what : str
        The parameter that names the column, for the error.

    Raises
    ------
    InvalidInput
        If a cell is missing, negative or no number.
    """
    import pandas as pd

    numbers = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64)
    if np.isnan(numbers).any():
        reading = read_numbers(cells.astype("string").str.strip())
        numbers = numbers if reading is None or reading.units else reading.values
    wrong = ~np.isfinite(numbers) | (numbers < 0.0)
    if wrong.any():
        first = cells.iloc[int(np.flatnonzero(wrong)[0])]
        shown = "a missing cell" if pd.isna(first) else repr(first)
        raise InvalidInput(
            f"{what} must name a column of numbers from 0 on: {cells.name} holds {shown} in {int(wrong.sum())} rows.",
            parameter=what,
        )
    return numbers


def weights_of(cells: "pd.Series", what: str) -> NDArray[np.float64]:
    """What rows count, by a column of amounts; not all of them nothing."""
    weights = amounts_of(cells, what)
    if not weights.any():
        raise InvalidInput(
            f"{what} must name a column with numbers above 0: {cells.name} is 0 in every row.", parameter=what
        )
    return weights


def rarer_by_weight(y: "pd.Series", positive: Any, weight: str | None) -> list[str]:
    """What to say where nobody named the positive class, and the one that is rarer by weight is not so by rows."""
    counts = y.value_counts()
    if weight is None or len(counts) != 2 or counts.iloc[0] == counts.iloc[1] or counts.index[1] == positive:
        return []
    return [
        f"{positive} is what is looked for, since it is rarer by {weight}; by rows {counts.index[1]} is rarer: name "
        f"the value to find where that was meant"
    ]


def weight_notes(model: Any, weight: str | None) -> list[str]:
    """What to say where a model learnt from rows of unequal weight and these count once each."""
    name = getattr(model, "weight_name_", None)
    if weight is not None or name is None:
        return []
    return [
        f"the model learnt from rows counted by {name}, and these count once each, so that its probabilities are of "
        f"other rows: name the column {name} as their weight"
    ]
