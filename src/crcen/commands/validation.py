"""How `fit_table` holds rows out, and what a wish for a day or a week means for its rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedGroupKFold

from crcen import InvalidInput, InvalidParameter, TimeSplit
from crcen.commands.inputs import Rows
from crcen.commands.row_order import dates_of, times_of
from crcen.theory.goals import ThresholdGoal

__all__ = ["folds_of", "times_or_clusters", "wish_in_rows"]


def folds_of(rows: Rows, clusters: str | None, time: str | None, n_splits: int, seed: int) -> tuple[Any, str]:
    """The splitter of the search, and what to call it."""
    if isinstance(n_splits, bool) or not isinstance(n_splits, int) or n_splits < 2:
        raise InvalidParameter(f"n_splits must be a whole number of at least 2: got {n_splits!r}.")
    sizes = np.unique(rows.y, return_counts=True)[1]
    # Of several classes those with fewer rows than folds are held out in some of them.
    rarest = int(sizes.min() if len(sizes) == 2 or clusters is not None or time is not None else sizes.max())
    if time is not None:
        count = _folds_over_time(rows, time, max(1, min(n_splits, rarest - 1)))
        return TimeSplit(count), f"{count} fold{'s' * (count > 1)} of later rows by {time}"
    if clusters is None:
        count = min(n_splits, rarest)
        return count, f"{count} stratified folds"
    count = min(n_splits, max(rarest, 2), rows.frame[clusters].nunique())
    if count < 2:
        raise InvalidInput(
            f"clusters must have at least two different values: {clusters} has one.", parameter="clusters"
        )
    return StratifiedGroupKFold(count, shuffle=True, random_state=seed), f"{count} folds that keep {clusters} together"


def _folds_over_time(rows: Rows, time: str, most: int) -> int:
    """As many folds as the moments of the rows allow: there may be few, as with a column of years."""
    when = times_of(rows.frame[time], time)
    for count in range(most, 1, -1):
        try:
            list(TimeSplit(count).split(None, rows.y, when))
        except InvalidInput:
            continue
        return count
    return 1


def times_or_clusters(rows: Rows, clusters: str | None, time: str | None) -> NDArray[Any] | None:
    """What keeps rows together or in order for the splitter, or None."""
    import pandas as pd

    if clusters is not None:
        return pd.factorize(rows.frame[clusters])[0]
    return None if time is None else times_of(rows.frame[time], time)


def wish_in_rows(weighting: Any, rows: Rows, time: str | None) -> Any:
    """A capacity for a day or a week as one for so many rows, by how many there are a day; all else as it is."""
    if not isinstance(weighting, ThresholdGoal) or weighting.period is None:
        return weighting
    if time is None:
        raise InvalidParameter(
            f"{weighting} needs time=, the column of dates that says how many rows a day there are.", parameter="time"
        )
    days = dates_of(rows.frame[time], time).astype("datetime64[D]").astype(np.int64)
    return weighting.over_days(days)
