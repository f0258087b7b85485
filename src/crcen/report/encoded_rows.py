"""Rows as a table classifier's network sees them, so that a check reads the same columns as the model."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["EncodedColumn", "EncodedRows", "encoded_rows"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class EncodedColumn:
    """Where one column of the table stands among the encoded ones.

    Parameters
    ----------
    kind : str
        What the model takes it for: "number", "boolean", "date", "category" or "text".
    block : slice
        Its encoded columns.
    has_indicator : bool
        Whether the last of these says that the value is missing.
    """

    kind: str
    block: slice
    has_indicator: bool


@dataclass(frozen=True)
class EncodedRows:
    """Rows encoded once by a model that encodes each column by itself, row by row.

    Parameters
    ----------
    X : float64 array of shape (n, n_encoded)
        Finite numbers.
    columns : dict of str to EncodedColumn
        The columns that the model uses, by name.
    estimator : object
        What answers about such rows.
    """

    X: Array
    columns: Mapping[str, EncodedColumn]
    estimator: Any


def encoded_rows(model: Any, X: Any) -> EncodedRows | None:
    """Encode rows by a table classifier; None for a model that takes rows as they are.

    Parameters
    ----------
    model : object
        Fitted.
    X : DataFrame or array
        Rows as it takes them.

    Returns
    -------
    EncodedRows or None
        What its inner estimator sees.
    """
    if not all(hasattr(model, name) for name in ("encode", "columns_", "estimator_")):
        return None
    columns, start = {}, 0
    for column in model.columns_:
        block = slice(start, start + len(column.encoded_names))
        columns[column.name] = EncodedColumn(column.kind, block, bool(column.has_missing))
        start = block.stop
    return EncodedRows(np.asarray(model.encode(X).X, dtype=np.float64), columns, model.estimator_)
