"""The columns of a table that a model takes, of a type that it takes."""

from typing import TYPE_CHECKING, Any

from crcen import InvalidInput, TableClassifier
from crcen._support.text import missing_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["model_rows"]


def model_rows(model: Any, frame: "pd.DataFrame", ignored: set[str]) -> Any:
    """The columns of a table that a model takes, of a type that it takes; one sentence where columns are missing."""
    is_table = isinstance(model, TableClassifier)
    names = [column.name for column in model.columns_] if is_table else getattr(model, "feature_names_in_", None)
    names = [name for name in frame.columns if name not in ignored] if names is None else list(names)
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise missing_columns(absent, len(names), frame.columns)
    if is_table:
        return frame[names]
    numbers = frame[names].apply(_as_numbers)
    return numbers if hasattr(model, "feature_names_in_") else numbers.to_numpy()


def _as_numbers(cells: "pd.Series") -> "pd.Series":
    import pandas as pd

    try:
        return pd.to_numeric(cells)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"the model takes numbers: column {cells.name} holds other values.") from error
