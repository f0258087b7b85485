"""The paper: its tables and figure, compared methods, and losses of other papers. Only the CLI imports this package."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from crcen._support.text import Values as Values
from crcen.theory.rows import Array as Array
from crcen.theory.rows import Bools as Bools
from crcen.theory.rows import Index as Index
from crcen.theory.rows import LabelArray as LabelArray

Seed = int | np.random.RandomState | None
Classifier = Any  # of scikit-learn's interface
Make = Callable[..., Classifier]  # keyword arguments → unfitted estimator
Rows = Sequence[Mapping[str, Any]]
Settings = Mapping[str, Any]
