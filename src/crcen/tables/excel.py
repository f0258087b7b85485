"""Excel workbooks: the first sheet as a table, and a table as a workbook."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crcen._support.extras import need
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter

__all__ = ["ENDINGS", "MOST_ROWS", "SheetWriter", "Workbook", "open_workbook"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

ENDINGS = (".xlsx", ".xlsm")
# Of a sheet, its line of names included.
MOST_ROWS = 1_048_576


@dataclass(frozen=True)
class Workbook:
    """The first sheet of a workbook, read whole: a sheet has a million rows at most.

    Parameters
    ----------
    path : Path
        The file.
    columns : tuple of str
        Names in its first row.
    frame : DataFrame
        The rows under it.
    sheets : tuple of str
        Names of all sheets; the first is read.
    """

    path: Path
    columns: tuple[str, ...]
    frame: DataFrame = field(repr=False, compare=False)
    sheets: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a person should know about how it was read."""
        if len(self.sheets) < 2:
            return ()
        return (f"{self.path.name} has {len(self.sheets)} sheets; the first, {self.sheets[0]}, was read",)

    def chunks(self, n_rows: int) -> Iterator[DataFrame]:
        """The rows in pieces of at most ``n_rows``, in order; at least one, which may be empty."""
        for start in range(0, max(len(self.frame), 1), n_rows):
            yield self.frame.iloc[start : start + n_rows].reset_index(drop=True)


def open_workbook(path: Path) -> Workbook:
    """Read the first sheet of a workbook.

    Raises
    ------
    DataUnavailable
        If it cannot be opened.
    InvalidInput
        If a column has no name or another's.
    MissingExtra
        If openpyxl is not installed.
    """
    openpyxl = need("openpyxl", "excel")
    import pandas as pd

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises whatever its parsers do
        said = " ".join(str(error).split())[:120]
        raise DataUnavailable(f"{path} cannot be read as an Excel workbook: {said}; save it again as .xlsx.") from error
    try:
        sheet = book.worksheets[0] if book.worksheets else None
        rows = [] if sheet is None else [list(row) for row in sheet.iter_rows(values_only=True)]
    finally:
        book.close()
    while rows and all(cell is None for cell in rows[-1]):  # formatted, but empty
        rows.pop()
    if not rows:
        raise InvalidInput(f"the first sheet of {path.name} is empty; a table needs a row of column names.")
    width = max((i + 1 for row in rows for i, cell in enumerate(row) if cell is not None), default=0)
    names = _names(rows[0][:width], path.name)
    frame = pd.DataFrame([row[:width] for row in rows[1:]], columns=list(names), dtype=object)
    return Workbook(path, names, frame.apply(_column), tuple(book.sheetnames))


def _names(cells: list[Any], name: str) -> tuple[str, ...]:
    missing = [number for number, cell in enumerate(cells, 1) if cell is None or not str(cell).strip()]
    if missing:
        raise InvalidInput(f"column {missing[0]} of {name} has no name in the first row; give it one.")
    names = tuple(str(cell).strip() for cell in cells)
    twice = sorted(column for column, count in Counter(names).items() if count > 1)
    if twice:
        raise InvalidInput(f"columns must have names of their own: {', '.join(twice[:5])} is twice in {name}.")
    return names


def _column(cells: Any) -> Any:
    """Cells of one type as that type; of several as text, as they would stand in a CSV file."""
    import pandas as pd

    cells = cells.where(cells.notna(), None).mask(cells.isin(["?", "#N/A", "#DIV/0!", "#VALUE!", "#REF!", "#NUM!", ""]))
    known = cells.dropna()
    kinds = {type(cell) for cell in known}
    if kinds <= {int, float} and kinds:
        return pd.to_numeric(cells)
    if kinds == {bool} and len(known) == len(cells):
        return cells.astype(bool)
    if kinds and all(hasattr(cell, "year") for cell in known):
        return pd.to_datetime(cells, errors="coerce")
    return cells.map(lambda cell: str(cell), na_action="ignore").astype("str") if kinds else cells.astype("float64")


class SheetWriter:
    """Rows into the first sheet of a new workbook, written when it is closed."""

    def __init__(self, binary: Any, name: str) -> None:
        self._binary, self._name, self._n_rows = binary, name, 0
        self._book = need("openpyxl", "excel").Workbook()
        self._sheet = self._book.active

    def write(self, chunk: DataFrame) -> None:
        """Append rows, after the names of the columns the first time."""
        if not self._n_rows:
            self._append([str(column) for column in chunk.columns])
        if self._n_rows + len(chunk) > MOST_ROWS:
            raise InvalidParameter(
                f"an Excel sheet holds {MOST_ROWS - 1:,} rows: {self._name} would have more; write .csv or .parquet."
            )
        for row in chunk.itertuples(index=False, name=None):
            self._append([_cell(value) for value in row])

    def _append(self, values: list[Any]) -> None:
        self._sheet.append(values)
        self._n_rows += 1
        for column, value in enumerate(values, 1):
            if isinstance(value, str) and value.startswith("="):
                self._sheet.cell(self._n_rows, column).data_type = "s"  # a text, not a formula

    def close(self) -> None:
        """Write the workbook."""
        self._book.save(self._binary)


def _cell(value: Any) -> Any:
    """A value that a cell can hold."""
    import pandas as pd
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    if value is None or value is pd.NaT or value is pd.NA:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, pd.Timestamp):
        return value.tz_localize(None).to_pydatetime() if value.tzinfo else value.to_pydatetime()
    if isinstance(value, str):
        return ILLEGAL_CHARACTERS_RE.sub("", value)
    return value if isinstance(value, bool | int | float) else str(value)
