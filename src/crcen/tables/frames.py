"""Any table as a pandas data frame with text names."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from crcen._support.extras import need
from crcen.exceptions import InvalidInput

__all__ = ["as_frame"]

# pandas is optional, and no type checker sees it.
DataFrame = Any


def as_frame(X: Any, names: Any = None) -> DataFrame:
    """A pandas data frame with text names, whatever X is; ``names`` are those an array's columns stand for."""
    pd = need("pandas", "tables")
    if hasattr(X, "to_pandas"):  # polars
        X = X.to_pandas()
    if isinstance(X, Mapping):  # one row, by names of columns
        X = [X]
    if isinstance(X, list | tuple) and X and all(isinstance(row, Mapping) for row in X):
        X = pd.DataFrame(list(X))
    if not isinstance(X, pd.DataFrame):
        X = np.asarray(X)
        if X.ndim != 2:
            raise InvalidInput(f"X must be a table of rows and columns: got {X.ndim} dimension(s).")
        if names is not None and len(names) != X.shape[1]:
            raise InvalidInput(f"X has {X.shape[1]} features, but TableClassifier is expecting {len(names)} features.")
        X = pd.DataFrame(X, columns=names)
    frame = X.set_axis([str(name) for name in X.columns], axis=1)
    twice = sorted(set(frame.columns[frame.columns.duplicated()]))
    if twice:
        raise InvalidInput(f"columns must have names of their own: {', '.join(twice[:5])} is there more than once.")
    return frame
