"""The paper: its tables and figure, compared methods, and losses of other papers. Only the CLI imports this package."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Bools = NDArray[np.bool_]
Labelled = NDArray[Any]  # labels of any type
Seed = int | np.random.RandomState | None
Classifier = Any  # of scikit-learn's interface
Make = Callable[..., Classifier]  # keyword arguments → unfitted estimator
Values = dict[str, Any]  # by name: a row of a run, parameters, settings
Rows = Sequence[Mapping[str, Any]]
Settings = Mapping[str, Any]
