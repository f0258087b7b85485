"""Labels of a watch that are held back until their cohort is complete: the options for it, and the column."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput, InvalidParameter
from crcen.commands.watch_state import WatchState

__all__ = ["check_cohorts", "cohorts_of", "present_cohort"]


def check_cohorts(kept: WatchState, delay: int | None, cohort: str | None, now: Any) -> None:
    """Refuse a delay without cohorts, cohorts without a delay, and another delay than the watch was begun with."""
    own = kept.monitor.delay
    if delay is not None and delay != own:
        begun = "without a delay" if own is None else f"with a delay of {own}"
        raise InvalidParameter(
            f"delay must be left as it is in a watch that was begun {begun}: got {delay}.", parameter="delay"
        )
    if own is not None and cohort is None:
        raise InvalidParameter(
            "cohort must name the column of days or weeks, since this watch holds labels back.", parameter="cohort"
        )
    if own is None and (cohort is not None or now is not None):
        raise InvalidParameter(
            "cohort= and now= need delay=, which says how long labels are held back.",
            parameter=("cohort", "now", "delay"),
        )


def cohorts_of(cells: list[Any]) -> NDArray[Any]:
    """Days or whole numbers, from cells that may be text."""
    import pandas as pd

    column = pd.concat(cells)
    if column.isna().any():
        raise InvalidInput(
            f"cohort must be known for every labelled row: {column.name} is missing in some.", parameter="cohort"
        )
    numbers = pd.to_numeric(column, errors="coerce")
    if not numbers.isna().any() and column.dtype.kind != "M":
        return np.asarray(numbers)
    try:
        return pd.to_datetime(column, format="ISO8601").to_numpy().astype("datetime64[D]")
    except (ValueError, TypeError) as error:
        raise InvalidInput(
            f"cohort must be dates such as 2024-05-01 or whole numbers: {column.name} holds {column.iloc[0]!r}.",
            parameter="cohort",
        ) from error


def present_cohort(now: Any) -> Any:
    """The present cohort as a date or a number, also from text."""
    return int(now) if isinstance(now, str) and now.strip().lstrip("-").isdigit() else now
