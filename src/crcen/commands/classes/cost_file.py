"""A matrix of costs as people make it in a spreadsheet: rows are the truth, columns what is decided."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from crcen import CostMatrix
from crcen._support.extras import need
from crcen._support.text import closest, listed
from crcen._support.values import label_key
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.number_notation import is_missing_mark, read_numbers

__all__ = ["CostTable", "costs_from", "cost_table_of"]

_SEPARATORS = (";", "\t", "|", ",")
_EXCEL = (".xlsx", ".xlsm")
_MOST_BYTES = 2**20


@dataclass(frozen=True)
class CostTable:
    """The cells of such a file, not yet matched with classes.

    Parameters
    ----------
    name : str
        Of the file.
    cells : tuple of tuple of str
        Row by row, all as long; the first has the names of decisions, the first cell of every other one a class.
    first_row : int, default=1
        Number of the first of these rows in the file.
    """

    name: str
    cells: tuple[tuple[str, ...], ...]
    first_row: int = 1

    def for_classes(self, classes: Sequence[Any]) -> CostMatrix:
        """The costs for these classes, in their order; columns that are no class are actions of their own.

        Raises
        ------
        InvalidInput
            With one sentence that names the cell and the file.
        """
        heads = [self._named(cell, (0, j), "decision") for j, cell in enumerate(self.cells[0]) if j]
        sides = [self._named(row[0], (i, 0), "class") for i, row in enumerate(self.cells) if i]
        by_key = {label_key(label): label for label in classes}
        rows, columns = self._placed(sides, by_key, "row"), self._placed(heads, by_key, "column")
        for i, side in enumerate(sides, 1):
            if label_key(side) not in by_key:
                meant = closest(side, [str(label) for label in classes])
                hint = f"did you mean {meant}?" if meant else f"the classes are {listed(classes)}."
                raise InvalidInput(f"{self._at(i, 0)} must name a class: got {side!r}; {hint}")
        actions = [j for j, head in enumerate(heads, 1) if label_key(head) not in by_key]
        order = [*(columns[key] for key in by_key), *actions]
        values = np.array([[self._cost(rows[key], j, key) for j in order] for key in by_key])
        return CostMatrix(values, labels=list(classes), actions=[heads[j - 1] for j in actions])

    def _named(self, cell: str, place: tuple[int, int], what: str) -> str:
        if not cell:
            raise InvalidInput(f"{self._at(*place)} must name a {what}: it is empty.")
        return cell

    def _placed(self, names: list[str], by_key: dict[str, Any], what: str) -> dict[str, int]:
        """Where each class stands among the names of rows or columns."""
        found: dict[str, int] = {}
        for number, name in enumerate(names, 1):
            key = label_key(name)
            if key in found:
                place = (number, 0) if what == "row" else (0, number)
                raise InvalidInput(f"{self._at(*place)} names {name} a second time: each {what} must be its own.")
            found[key] = number
        absent = [label for key, label in by_key.items() if key not in found]
        if absent:
            strange = [name for name in names if label_key(name) not in by_key]
            meant = closest(str(absent[0]), strange)
            hint = f"; did you mean the {what} {meant}?" if meant else f"; it has {listed(names)}."
            raise InvalidInput(f"{self.name} must have a {what} for every class: none is called {absent[0]}{hint}")
        return found

    def _cost(self, i: int, j: int, key: str) -> float:
        cell = self.cells[i][j]
        if not cell or is_missing_mark(cell):
            if label_key(self.cells[0][j]) == key:
                return 0.0  # people leave the diagonal empty: a right decision costs nothing
            raise InvalidInput(f"{self._at(i, j)}, {self._meaning(i, j)}, has no cost: write a number, 0 for none.")
        value = self._numbers.get(cell, math.nan)
        if not math.isfinite(value):
            raise InvalidInput(f"{self._at(i, j)}, {self._meaning(i, j)}, must be a number: got {cell!r}.")
        if value < 0.0:
            raise InvalidInput(
                f"{self._at(i, j)}, {self._meaning(i, j)}, must be 0 or more: got {cell}; write a gain as a smaller "
                f"cost than those beside it."
            )
        return value

    @cached_property
    def _numbers(self) -> dict[str, float]:
        """Every cost by its text, all read as one column of numbers is: decimal commas, thousands, currencies."""
        import pandas as pd

        texts = [text for row in self.cells[1:] for text in row[1:] if text and not is_missing_mark(text)]
        reading = read_numbers(pd.Series(texts, dtype="str"))
        return {} if reading is None else dict(zip(texts, reading.values.tolist(), strict=True))

    def _at(self, i: int, j: int) -> str:
        return f"cell {_letters(j)}{i + self.first_row} of {self.name}"

    def _meaning(self, i: int, j: int) -> str:
        return f"{self.cells[0][j]} decided where {self.cells[i][0]} is true"


def costs_from(given: Any, classes: Sequence[Any]) -> CostMatrix:
    """Costs for some classes from a `CostMatrix`, a data frame with the classes as its index, or a file."""
    if isinstance(given, CostMatrix):
        if given.labels is None:
            return given.for_classes(classes)
        by_key = {label_key(label): label for label in classes}
        if all(label_key(label) in by_key for label in given.labels) and given.n_classes == len(classes):
            spelt = [by_key[label_key(label)] for label in given.labels]  # 1 and "1" are one label
            return CostMatrix(given.costs, labels=spelt, actions=given.actions).for_classes(classes)
        return given.for_classes(classes)
    return cost_table_of(given).for_classes(classes)


def cost_table_of(given: Any) -> CostTable:
    """The cells of a data frame or a file: CSV with commas, semicolons or tabulators, or Excel."""
    if isinstance(given, str | Path):
        path = Path(given)
        grid = _workbook(path) if path.suffix.lower() in _EXCEL else _text(path)
        return _table(path.name, grid)
    if hasattr(given, "to_pandas"):
        given = given.to_pandas()
    if not hasattr(given, "iloc"):
        raise InvalidParameter(
            f"costs must be a CostMatrix, a data frame or the path of a file: got {type(given).__name__}.",
            parameter="costs",
        )
    rows = [
        ["", *given.columns],
        *([label, *cells] for label, cells in zip(given.index, given.to_numpy(), strict=True)),
    ]
    return _table("the costs", rows)


def _table(name: str, grid: Sequence[Sequence[Any]]) -> CostTable:
    """Cells without spaces around them, empty rows and columns at the ends left out."""
    texts = [["" if cell is None or cell != cell else str(cell).strip() for cell in row] for row in grid]
    while texts and not any(texts[-1]):
        texts.pop()
    first = next((i for i, row in enumerate(texts) if any(row)), 0)
    texts = texts[first:]
    width = max((j + 1 for row in texts for j, cell in enumerate(row) if cell), default=0)
    if len(texts) < 3 or width < 3:
        raise InvalidInput(
            f"{name} must be a table of costs: a first line with what can be decided, then a line for each true class, "
            f"its name first; got {len(texts)} lines and {width} columns.",
        )
    return CostTable(name, tuple(tuple((row + [""] * width)[:width]) for row in texts), first + 1)


def _text(path: Path) -> list[list[str]]:
    try:
        with open(path, "rb") as file:
            raw = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    if len(raw) > _MOST_BYTES:
        raise InvalidInput(f"{path.name} must be a small table of costs: it is larger than 1 MiB.")
    text = _decoded(raw)
    if "\0" in text:
        raise InvalidInput(f"{path.name} is no text table of costs: save it as .csv or .xlsx.")
    best = max(_SEPARATORS, key=lambda mark: _fit(text, mark))
    return list(csv.reader(io.StringIO(text), delimiter=best))


def _decoded(raw: bytes) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", errors="replace")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return raw.decode("latin-1")


def _fit(text: str, mark: str) -> tuple[bool, int]:
    """How well a separator cuts a text: lines of one width, more than one cell each; then cells of the first line."""
    rows = [row for row in csv.reader(io.StringIO(text), delimiter=mark) if any(cell.strip() for cell in row)]
    widths = {len(row) for row in rows}
    return len(widths) == 1 and widths != {1}, len(rows[0]) if rows else 0


def _workbook(path: Path) -> list[list[Any]]:
    openpyxl = need("openpyxl", "excel")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except OSError as error:
        raise DataUnavailable(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # openpyxl raises whatever its parsers do
        said = " ".join(str(error).split())[:120]
        raise DataUnavailable(f"{path} cannot be read as an Excel workbook: {said}; save it again as .xlsx.") from error
    try:
        return [list(row) for row in book.worksheets[0].iter_rows(values_only=True, max_row=200, max_col=200)]
    finally:
        book.close()


def _letters(j: int) -> str:
    """The name of a column in a spreadsheet: A, B, … Z, AA."""
    found = ""
    j += 1
    while j:
        j, rest = divmod(j - 1, 26)
        found = chr(ord("A") + rest) + found
    return found
