"""When rows were: a column of numbers or dates as numbers in order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen import InvalidInput
from crcen.tables.columns import as_dates, as_text
from crcen.tables.notation import date_format

__all__ = ["dates_of", "times_of"]


def times_of(cells: Any, name: str) -> NDArray[np.float64]:
    """Numbers that are in the order of a column's times.

    Parameters
    ----------
    cells : pandas Series
        Numbers, dates, or text that holds either; none missing.
    name : str
        Of the column, for the error.

    Raises
    ------
    InvalidInput
        If they are neither numbers nor dates of one format.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(cells.dtype) or pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return cells.rank(method="dense").to_numpy(dtype=np.float64)
    numbers = pd.to_numeric(cells, errors="coerce")
    if numbers.notna().all():
        return numbers.to_numpy(dtype=np.float64)
    return _dates(cells, name).rank(method="dense").to_numpy(dtype=np.float64)


def dates_of(cells: Any, name: str) -> NDArray[np.datetime64]:
    """The dates of a column, to count by day or week.

    Parameters
    ----------
    cells : pandas Series
        Dates, or text that holds them; none missing.
    name : str
        Of the column, for the error.

    Raises
    ------
    InvalidInput
        If they are no dates of one format.
    """
    import pandas as pd

    is_number = pd.api.types.is_numeric_dtype(cells.dtype) or pd.to_numeric(cells, errors="coerce").notna().all()
    if cells.isna().any() or (is_number and not pd.api.types.is_datetime64_any_dtype(cells.dtype)):
        held = "missing cells" if cells.isna().any() else "numbers"
        raise InvalidInput(
            f"time must name a column of dates to count by day or week: {name} holds {held}.", parameter="time"
        )
    dates = cells if pd.api.types.is_datetime64_any_dtype(cells.dtype) else _dates(cells, name)
    if getattr(dates.dt, "tz", None) is not None:
        dates = dates.dt.tz_localize(None)
    return dates.to_numpy().astype("datetime64[s]")


def _dates(cells: Any, name: str) -> Any:
    text = as_text(cells)
    form = None if text.isna().any() else date_format(text)
    if form is None:
        raise InvalidInput(
            f"time must name a column of numbers or dates of one format: {name} holds other values.", parameter="time"
        )
    return as_dates(text, form)
