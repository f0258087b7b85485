"""Data frames of any library as pandas data frames with text names, and back."""

import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen._support.lazy import narwhals, pa, pd
from crcen.exceptions import InvalidInput
from crcen.tables.cells import TableCells
from crcen.tables.locations import Part, ReadOptions
from crcen.theory.rows import ArrowTable, Cell, DataFrame, Series, TableLike

_ARRAYS = (str, bytes, np.ndarray, list, tuple, Mapping)


def as_cells(X: TableLike, names: NDArray[np.object_] | None = None) -> TableCells:
    """The cells of X as a table with text names; ``names`` are the column names of an array."""
    if isinstance(X, TableCells):
        return X
    rows = as_dicts(X, sys.maxsize)
    frame = _from_library(X) if rows is None else pd.DataFrame(rows)
    if frame is None:
        X = np.asarray(X)
        if X.ndim != 2:
            raise InvalidInput(f"X must be a table of rows and columns: got {X.ndim} dimension(s).")
        if names is not None and len(names) != X.shape[1]:
            raise InvalidInput(f"X has {X.shape[1]} features, but TableClassifier is expecting {len(names)} features.")
        frame = pd.DataFrame(X, columns=names)
    return TableCells(_named(frame, ReadOptions()))


def as_dicts(X: TableLike, most: int = 64) -> list[Mapping[str, Cell]] | None:
    """One dict, or a list of at most so many, which are encoded faster than a data frame; None for anything else."""
    rows = [X] if isinstance(X, Mapping) else X
    is_short = isinstance(rows, list | tuple) and 0 < len(rows) <= most
    return list(rows) if is_short and all(isinstance(row, Mapping) for row in rows) else None


def _named(frame: DataFrame, options: ReadOptions) -> DataFrame:
    unique = list(options.unique_names(list(map(str, frame.columns)), "the data frame"))
    return frame if unique == list(frame.columns) else frame.set_axis(unique, axis=1)


def _from_library(data: TableLike) -> DataFrame | None:
    """A data frame of pandas, or of another library that narwhals supports, as pandas; None for anything else."""
    if isinstance(data, pd.DataFrame):
        arrow = [place for place, dtype in enumerate(data.dtypes) if isinstance(dtype, pd.ArrowDtype)]
        if arrow:
            typed = as_pandas(pa.table([pa.array(data.iloc[:, place]) for place in arrow], list(map(str, arrow))))
            columns = [data.iloc[:, i] for i in range(data.shape[1])]
            for place, (_, cells) in zip(arrow, typed.items(), strict=True):
                columns[place] = cells.set_axis(data.index)
            data = pd.concat(columns, axis=1).set_axis(data.columns, axis=1)
        return data
    frame = _narwhal(data)
    return None if frame is None else as_pandas(frame.lazy().collect("pyarrow").to_native())


def _narwhal(data: TableLike) -> Any:
    """What narwhals makes of a data frame of another library than pandas; None for anything else."""
    if isinstance(data, (*_ARRAYS, pd.DataFrame)) or data is None:
        return None
    try:
        return narwhals.from_native(data)
    except TypeError:
        return None
    except narwhals.exceptions.DuplicateError as error:
        twice = sorted({str(name) for name in data.schema.names if data.schema.names.count(name) > 1})
        raise InvalidInput(f"duplicate column name in the data frame: {', '.join(twice)}; rename one.") from error


def spooled(data: TableLike) -> Any:
    """A lazy frame as a temporary Parquet file, written as its library streams it; None for anything else."""
    frame = _narwhal(data)
    if frame is None or not hasattr(frame, "sink_parquet"):
        return None
    held = tempfile.NamedTemporaryFile(prefix="crcen-", suffix=".parquet")  # noqa: SIM115 - its table closes it
    frame.sink_parquet(held.name)
    return held


def as_pandas(table: ArrowTable) -> DataFrame:
    """An Arrow table as a pandas data frame, with decimals as floats."""
    for place, field in enumerate(table.schema):
        if pa.types.is_decimal(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.float64()))
    # Dates as times: Python's dates end with the year 9999.
    return table.to_pandas(ignore_metadata=True, date_as_object=False)


def native_like(frame: DataFrame, native: TableLike) -> TableLike:
    """A pandas data frame as one of the library, and as lazy, as another; as it is for pandas and for no data frame."""
    like = _narwhal(native)
    if like is None:
        return frame
    backend = like.implementation
    is_lazy = isinstance(like, narwhals.LazyFrame)
    is_eager = backend.is_polars() or backend.is_pyarrow() or backend.is_modin() or backend.is_cudf()
    table = pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata()
    made = narwhals.from_arrow(table, backend=backend if is_eager else "pyarrow")
    return (made.lazy(None if is_eager else backend) if is_lazy else made).to_native()


class FramePart(Part):
    """A data frame in memory."""

    kind = "frame"

    def __init__(self, data: TableLike, options: ReadOptions) -> None:
        super().__init__("the data frame")
        found = None if isinstance(data, _ARRAYS) else _from_library(data)
        if found is None:
            raise InvalidInput(f"data must be a data frame or the location of a table: got {type(data).__name__}.")
        self._hold(_named(found, options))

    def _hold(self, frame: DataFrame) -> None:
        self.frame, self.columns, self.n_rows = frame, tuple(frame.columns), len(frame)

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[DataFrame]:
        """The data frame."""
        yield self.frame if columns is None else self.frame[list(columns)]


def without_blanks(frame: DataFrame) -> DataFrame:
    """The table with missing cells instead of empty strings and of cells that contain only spaces."""
    found: dict[str, Series] = {}
    for name, cells in frame.items():
        is_category = isinstance(cells.dtype, pd.CategoricalDtype)
        texts = pd.Series(cells.cat.categories) if is_category else cells
        if isinstance(texts.dtype, pd.StringDtype):
            is_blank = (texts.str.strip() == "").fillna(False).astype(bool)
        elif texts.dtype == object:
            is_blank = texts.map(lambda cell: isinstance(cell, str) and not cell.strip()).astype(bool)
        else:
            continue
        if is_blank.any():
            found[name] = cells.cat.remove_categories(texts[is_blank]) if is_category else cells.mask(is_blank)
    if not found:
        return frame
    return pd.DataFrame({name: found.get(name, cells) for name, cells in frame.items()}, index=frame.index)
