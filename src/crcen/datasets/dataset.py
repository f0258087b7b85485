"""A data set for rare-event classification: rows, labels and their source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows with labels 0 and 1, where 1 is the minority class; compared by identity.

    Parameters
    ----------
    name : str
        Name of the data set.
    X : ndarray of shape (n_samples, n_features)
        Features, float64 in C order; other numeric arrays are converted.
    y : ndarray of shape (n_samples,)
        Labels, int64, 0 for the majority and 1 for the minority class.
    feature_names : tuple of str
        One name per column of ``X``.
    source : str
        Where the rows come from, in words.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    feature_names: tuple[str, ...]
    source: str

    def __post_init__(self) -> None:
        X, y = np.ascontiguousarray(self.X, dtype=np.float64), np.asarray(self.y)
        wrong = ""
        if y.ndim != 1 or not np.isin(y, (0, 1)).all():
            found = f"labels of shape {y.shape} with values {np.unique(y)[:5].tolist()}"
            wrong = f"{found}, but only one dimension of 0 and 1 is allowed; try (y == minority_label).astype(int)."
        elif np.ndim(self.X) != 2 or len(X) != len(y):
            found = f"X of shape {np.shape(self.X)} and y of shape {y.shape}"
            wrong = f"{found}, but X must have two dimensions and one row per label; try X.reshape(len(y), -1)."
        elif len(self.feature_names) != X.shape[1]:
            found = f"{len(self.feature_names)} feature names for {X.shape[1]} columns"
            wrong = f"{found}, but needs exactly one per column; try names x0, x1, …"
        if wrong:
            raise InvalidInput(f"The data set {self.name!r} got {wrong}")
        for name, value in (("X", X), ("y", y.astype(np.int64)), ("feature_names", tuple(self.feature_names))):
            object.__setattr__(self, name, value)

    @property
    def n_samples(self) -> int:
        """Number of rows."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return int(self.X.shape[1])

    @property
    def n_pos(self) -> int:
        """Number of rows of the minority class."""
        return int(np.count_nonzero(self.y))

    @property
    def n_neg(self) -> int:
        """Number of rows of the majority class."""
        return self.n_samples - self.n_pos

    @property
    def imbalance_ratio(self) -> float:
        """Majority rows per minority row; infinite without minority rows."""
        return self.n_neg / self.n_pos if self.n_pos else float("inf")
