"""Types of arrays, and of pandas and PyArrow objects: both packages are optional, and no type checker sees them."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

DataFrame: TypeAlias = Any
Series: TypeAlias = Any
ArrowArray: TypeAlias = Any
ArrowTable: TypeAlias = Any
RecordBatch: TypeAlias = Any
Schema: TypeAlias = Any
Field: TypeAlias = Any
Dataset: TypeAlias = Any
Fragment: TypeAlias = Any
ParquetFile: TypeAlias = Any
# A file system of fsspec, a database connection, and a single value of a table.
FileSystem: TypeAlias = Any
Connection: TypeAlias = Any
Cell: TypeAlias = Any
# Whatever `as_cells` takes: a data frame of any library, an array, a dict or a list of dicts.
TableLike: TypeAlias = Any

Array: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Hashes: TypeAlias = NDArray[np.uint64]
Index: TypeAlias = NDArray[np.int64]
