"""Excel workbooks: a sheet as a table, after a check that reading it is safe, and a table as a workbook."""

import datetime
import math
import os
import re
import zipfile
from collections.abc import Iterator
from typing import Any, BinaryIO
from xml.etree import ElementTree

import numpy as np

from crcen._support.extras import need
from crcen._support.text import listed
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.frames import FramePart
from crcen.tables.locations import DataFile
from crcen.tables.options import ReadOptions
from crcen.tables.text import filled_names
from crcen.tables.typing import DataFrame, Index, Series

Cell = object
Ranges = list[tuple[int, int, int, int]]  # merged cells: top, left, bottom, right

# Of a sheet, its line of names included.
MOST_ROWS = 1_048_576
# Limits of what a file may expand to, checked before it is read: bytes of its parts, and memory for their cells.
_MOST_PARTS, _SMALL_PARTS, _EXPANSION = 10_000, 2**25, 100
_BASE_MEMORY, _MEMORY_PER_BYTE = 2**28, 16
_CELL_BYTES, _AREA_BYTES = 80, 24
_BLOCK = 2**22
_NAME = rb"<(?:\w+:)?"
# Attributes: a tag does not end inside quotation marks.
_INSIDE = rb"[^<>\"'/]*(?:(?:\"[^\"<]*\"|'[^'<]*'|/(?!>))[^<>\"'/]*)*"
_CELL = re.compile(_NAME + rb"c(?=[\s>/])(?:\s+r\s*=\s*[\"']([A-Z]{1,3})(\d{1,7})[\"'])?" + _INSIDE + rb"(/?)>")
_CELL_START = re.compile(_NAME + rb"c(?=[\s>/])")
_ROW_OR_CELL = re.compile(_NAME + rb"(row|c)(?=[\s>/])(" + _INSIDE + rb")/?>")
_PLACE = re.compile(rb"\sr\s*=\s*[\"']([A-Z]{0,3})(\d{1,7})[\"']")
_OPEN_TAG = re.compile(_NAME + rb"(table-row|(?:covered-)?table-cell)(?=[\s>/])(" + _INSIDE + rb")/?>")
_HIDDEN = re.compile(_NAME + rb"row\s[^<>]*?hidden\s*=\s*[\"'](?:1|true)[\"']")
_NO_VALUE = re.compile(_NAME + rb"/?f\b[^<>]*>\s*(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v></(?:\w+:)?v>)?\s*</(?:\w+:)?c>")
_SHARED = re.compile(rb"\st\s*=\s*[\"']s[\"'][^<>]*>\s*<(?:\w+:)?v[^<>]*>\s*(\d+)")
_COLUMNS_REPEATED = re.compile(rb"number-columns-repeated=[\"'](\d+)")
_ROWS_REPEATED = re.compile(rb"number-rows-repeated=[\"'](\d+)")


class SheetPart(FramePart):
    """A sheet of a workbook, read whole: a sheet has a million rows at most."""

    kind = "workbook"

    def __init__(self, file: DataFile, options: ReadOptions) -> None:
        self.name, self.file = file.name, file
        self.notes: list[str] = []
        calamine = need("python_calamine", "excel")
        archive = _checked_archive(file.path, self.name)
        try:
            with open(file.path, "rb") as opened, calamine.load_workbook(opened) as book:
                sheet_name = self._chosen(book, options.sheet)
                _check_sheet(archive, book.sheet_names.index(sheet_name), file, self.notes)
                sheet = book.get_sheet_by_name(sheet_name)
                rows = [list(row) for row in sheet.iter_rows()]
                left = (sheet.start or (0, 0))[1]
                merged = [
                    (top, first - left, bottom, last - left)
                    for (top, first), (bottom, last) in sheet.merged_cell_ranges or ()
                ]
        except CrcenError:
            raise
        except calamine.PasswordError as error:
            raise DataUnavailable(f"{self.name} is protected by a password: save it without one.") from error
        except BaseException as error:  # a panic of calamine is no Exception
            if isinstance(error, KeyboardInterrupt | SystemExit | MemoryError):
                raise
            reason = " ".join(str(error).split())[:120].rstrip(".")
            raise DataUnavailable(
                f"{self.name} cannot be read as an Excel workbook: {reason}; save it again as .xlsx."
            ) from error
        self._hold(self._table(rows, merged, sheet_name, options))

    def _chosen(self, book: Any, wanted: str | int | None) -> str:
        """The name of the sheet to read."""
        names = list(book.sheet_names)
        if wanted is None:
            kinds = {str(one.name): (str(one.typ), str(one.visible)) for one in book.sheets_metadata}
            shown = [name for name in names if kinds[name] == ("SheetTypeEnum.WorkSheet", "SheetVisibleEnum.Visible")]
            if not names:
                raise InvalidInput(f"{self.name} has no sheet.")
            chosen = (shown or names)[0]
            if len(names) > 1:
                self.notes.append(f"{self.file.short} has {len(names)} sheets ({listed(names)}); {chosen} was read")
            return chosen
        if str(wanted) in names:
            return str(wanted)
        if str(wanted).isdecimal() and 1 <= int(wanted) <= len(names):
            return names[int(wanted) - 1]
        message = f"sheet must be a sheet of {self.name}, {listed(names)}: got {wanted!r}."
        raise InvalidParameter(message, parameter="sheet")

    def _table(self, rows: list[list[Cell]], merged: Ranges, sheet: str, options: ReadOptions) -> DataFrame:
        import pandas as pd

        while rows and not any(cell != "" for cell in rows[-1]):  # formatted, but empty
            rows.pop()
        width = max((i + 1 for row in rows for i, cell in enumerate(row) if cell != ""), default=0)
        if not width:
            raise InvalidInput(f"the sheet {sheet} of {self.name} is empty; a table needs a row of column names.")
        first = _header(rows, width) if options.skip_rows is None else options.skip_rows
        if first >= len(rows):
            message = f"skip_rows must leave rows of the sheet {sheet}, which has {len(rows)}: got {first}."
            raise InvalidParameter(message, parameter="skip_rows")
        titles = [str(cell) for row in rows[:first] for cell in row if cell != ""]
        if titles and options.skip_rows is None:
            self.notes.append(f"{first} rows above the names in {self.file.short} were skipped ({titles[0][:40]!r})")
        names, depth = _joined_names(rows, first, width, merged)
        if depth > 1:
            self.notes.append(f"the names in {self.file.short} take {depth} rows, joined as in {names[-1]!r}")
        columns = filled_names(names, self.name, options)
        body = [row for row in rows[first + depth :] if any(cell != "" for cell in row)]
        found = {column: _column([row[i] for row in body]) for i, column in enumerate(columns)}
        return pd.DataFrame(found, columns=list(columns))


def _header(rows: list[list[Cell]], width: int) -> int:
    """The row of the column names: the first that is half filled, with text alone; else the first that is filled."""
    filled = [[cell for cell in row if cell != ""] for row in rows]
    first = next(at for at, cells in enumerate(filled) if cells)
    for at, cells in enumerate(filled):
        if len(cells) >= min(width, max(2, (width + 1) // 2)):
            return at if all(isinstance(cell, str) for cell in cells) else first
    return first


def _joined_names(rows: list[list[Cell]], first: int, width: int, merged: Ranges) -> tuple[list[str], int]:
    """Column names, and how many rows they take: merged cells over further names are put before these."""
    depth = 1
    for top, left, bottom, right in merged:
        if top == first:
            depth = max(depth, bottom - top + 1 + (right > left and bottom == top))
    below = rows[first + 1 : first + depth]
    if any(cell != "" and not isinstance(cell, str) for row in below for cell in row):
        depth = 1  # numbers: rows of the table already
    names = []
    for column in range(width):
        parts: list[str] = []
        for at in range(first, min(first + depth, len(rows))):
            over = [one[:2] for one in merged if one[0] <= at <= one[2] and one[1] <= column <= one[3] and depth > 1]
            row, place = over[0] if over else (at, column)
            text = str(rows[row][place]).strip()
            if text and text not in parts:
                parts.append(text)
        names.append(" ".join(parts))
    return names, depth


def _column(cells: list[Cell]) -> Series:
    """Cells of one type as that type; of several as text, as they would stand in a CSV file."""
    import pandas as pd

    cells = [None if cell == "" or cell == "?" else cell for cell in cells]
    known = [cell for cell in cells if cell is not None]
    kinds = {type(cell) for cell in known}
    if not kinds:
        return pd.Series(np.nan, index=range(len(cells)))
    if kinds <= {int, float}:
        numbers = pd.Series(cells, dtype="float64")
        is_whole = len(known) == len(cells) and bool((numbers.abs() < 2**53).all() and (numbers % 1 == 0).all())
        return numbers.astype("int64") if is_whole else numbers
    if kinds == {bool} and len(known) == len(cells):
        return pd.Series(cells, dtype=bool)
    if kinds <= {datetime.date, datetime.datetime}:
        return pd.to_datetime(pd.Series(cells, dtype=object), errors="coerce")
    return pd.Series([None if cell is None else _text(cell) for cell in cells], dtype="str")


def _text(cell: Cell) -> str:
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


# -- safety ------------------------------------------------------------------------------------------------------------


def _checked_archive(path: str, name: str) -> str | None:
    """Refuse a workbook whose parts expand beyond proportion or define entities; the path if it is an archive."""
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return None  # the old .xls has at most 65,536 rows and 256 columns
    size = os.path.getsize(path)
    try:
        with zipfile.ZipFile(path) as archive:
            parts = archive.infolist()
            total, limit = sum(part.file_size for part in parts), max(_SMALL_PARTS, _EXPANSION * size)
            if len(parts) > _MOST_PARTS or total > limit:
                raise InvalidInput(
                    f"{name} is not safe to read: its {size:,} bytes expand to {total:,}, more than {limit:,}; save it "
                    f"again, or as CSV."
                )
            if any(part.filename.endswith(".bin") and "worksheets" in part.filename for part in parts):
                raise InvalidInput(f"{name} is a binary workbook (.xlsb): save it as .xlsx.")
            for part in parts:
                if part.filename.lower().endswith((".xml", ".rels")):
                    for block in _blocks(archive, part.filename):  # to its end, so that its sizes are checked
                        if b"<!DOCTYPE" in block or b"<!ENTITY" in block:
                            raise InvalidInput(
                                f"{name} is not safe to read: {part.filename} defines entities; save it again, or as "
                                f"CSV."
                            )
            if "content.xml" in archive.namelist():
                _check_open_document(archive, name)
                return None
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, OSError) as error:
        if isinstance(error, CrcenError):
            raise
        raise DataUnavailable(f"{name} cannot be read as an Excel workbook: {error}; save it again.") from error
    return path


def _blocks(archive: zipfile.ZipFile, part: str) -> Iterator[bytes]:
    """The bytes of a part, cut before a ``<``."""
    rest = b""
    with archive.open(part) as file:
        while block := file.read(_BLOCK):
            block = rest + block
            cut = block.rfind(b"<")
            rest = block[cut:] if cut > 0 and len(block) - cut < _BLOCK else b""
            yield block[: len(block) - len(rest)]
    yield rest


def _check_sheet(path: str | None, number: int, file: DataFile, notes: list[str]) -> None:
    """Refuse a sheet whose cells would take memory out of proportion; note hidden rows and formulas without values."""
    if path is None:
        return
    name = file.name
    with zipfile.ZipFile(path) as archive:
        parts = set(archive.namelist())
        sheet = _sheet_part(archive, number)
        if sheet not in parts:
            return
        n_cells = n_hidden = n_empty = n_rows = 0
        columns: set[bytes] = set()
        has_places, n_shared, copied, lengths = True, 0, 0, None
        for block in _blocks(archive, sheet):
            found = _CELL.findall(block)
            if len(found) != len(_CELL_START.findall(block)):
                raise InvalidInput(
                    f"{name} is not safe to read: {sheet} has cells that are not written as usual; save it again, or "
                    f"as CSV."
                )
            filled = [one for one in found if not one[2]]
            n_cells += len(filled)
            has_places = has_places and all(one[0] for one in filled)
            columns.update(one[0] for one in filled)
            n_rows = max(n_rows, max((int(one) for one in {one[1] for one in filled} if one), default=0))
            n_hidden += len(_HIDDEN.findall(block)) if b"hidden" in block else 0
            n_empty += len(_NO_VALUE.findall(block)) if b"f>" in block or b"<f" in block else 0
            n_shared += block.count(b'"s"') + block.count(b"'s'")
        width = max((_place(one) for one in columns if one), default=0)
        if not has_places:
            n_rows, width = _counted_places(archive, sheet)
        strings = next((one for one in parts if one.lower().endswith("sharedstrings.xml")), None)
        if strings is not None and n_shared:
            lengths = _string_lengths(archive, strings)
            copied = n_shared * int(lengths.max(initial=0))
            if copied > _BASE_MEMORY:  # too rough: by the strings that are used
                places = (np.array(_SHARED.findall(block), dtype=np.int64) for block in _blocks(archive, sheet))
                copied = sum(int(lengths[one[one < len(lengths)]].sum()) for one in places)
        total = sum(part.file_size for part in archive.infolist())
        _check_memory(name, n_cells, n_rows, width, copied, total)
    if n_hidden:
        notes.append(f"hidden rows of {file.short} were read too ({n_hidden:,})")
    if n_empty:
        notes.append(f"{n_empty:,} formulas of {file.short} have no stored value and are missing: save it in Excel")


def _string_lengths(archive: zipfile.ZipFile, part: str) -> Index:
    """At most how many bytes each shared string has."""
    starts, before = [], 0
    for block in _blocks(archive, part):
        starts += [before + found.start() for found in re.finditer(_NAME + rb"si(?=[\s>/])", block)]
        before += len(block)
    ends: Index = np.array([*starts, before], dtype=np.int64)
    return ends[1:] - ends[:-1]


def _place(column: bytes) -> int:
    """The number of a column: 1 for A, 27 for AA."""
    number = 0
    for letter in column:
        number = 26 * number + letter - 64
    return number


def _counted_places(archive: zipfile.ZipFile, sheet: str) -> tuple[int, int]:
    """Rows and columns of a sheet in which cells follow each other without references."""
    row = column = n_rows = width = 0
    for block in _blocks(archive, sheet):
        for kind, inside in _ROW_OR_CELL.findall(block):
            place = _PLACE.search(inside)
            if kind == b"row":
                row, column = int(place[2]) if place else row + 1, 0
            else:
                row, column = (int(place[2]), _place(place[1])) if place else (row, column + 1)
                width = max(width, column)
            n_rows = max(n_rows, row)
    return n_rows, width


def _sheet_part(archive: zipfile.ZipFile, number: int) -> str:
    """The name of the part that holds a sheet."""
    book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
    sheets = [one for one in book.iter() if one.tag.endswith("}sheet") or one.tag == "sheet"]
    wanted = next(value for name, value in sheets[number].items() if name.endswith("}id"))
    links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    target = next(one.get("Target", "") for one in links if one.get("Id") == wanted)
    return target.lstrip("/") if target.startswith("/") else f"xl/{target}"


def _check_open_document(archive: zipfile.ZipFile, name: str) -> None:
    """Refuse an OpenDocument file that repeats cells, or spreads them, beyond proportion."""
    n_cells = n_rows = last = width = column = times = 0
    for kind, inside in _OPEN_TAG.findall(archive.read("content.xml")):
        if kind == b"table-row":
            n_rows, times, column = n_rows + times, _times(_ROWS_REPEATED, inside), 0
            continue
        repeats = _times(_COLUMNS_REPEATED, inside)
        column += repeats
        if b"value-type" in inside:
            n_cells, width, last = n_cells + repeats * times, max(width, column), n_rows + times
    total = sum(part.file_size for part in archive.infolist())
    _check_memory(name, n_cells, last, width, 0, total)


def _times(pattern: re.Pattern[bytes], tag: bytes) -> int:
    found = pattern.search(tag)
    return int(found[1]) if found else 1


def _check_memory(name: str, n_cells: int, n_rows: int, width: int, copied: int, total: int) -> None:
    needed, limit = (
        n_rows * width * _AREA_BYTES + n_cells * _CELL_BYTES + 2 * copied,
        _BASE_MEMORY + _MEMORY_PER_BYTE * total,
    )
    if needed > limit:
        raise InvalidInput(
            f"{name} is not safe to read: {n_cells:,} cells over {n_rows:,} rows and {width:,} columns would take "
            f"{needed / 2**30:,.1f} GiB; delete cells far from the table, or save it as CSV."
        )


# -- writing -----------------------------------------------------------------------------------------------------------


class SheetWriter:
    """Rows into the first sheet of a new workbook, written when it is closed."""

    def __init__(self, binary: BinaryIO, name: str) -> None:
        self._binary, self._name, self._n_rows = binary, name, 0
        self._book = need("openpyxl", "excel").Workbook(write_only=True)
        self._sheet = self._book.create_sheet("Sheet")

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
        from openpyxl.cell import WriteOnlyCell

        self._n_rows += 1
        for place, value in enumerate(values):
            if isinstance(value, str) and value.startswith("="):
                values[place] = WriteOnlyCell(self._sheet, value)
                values[place].data_type = "s"  # a text, not a formula
        self._sheet.append(values)

    def close(self) -> None:
        """Write the workbook."""
        self._book.save(self._binary)

    def discard(self) -> None:
        """Give up what was written so far."""
        self._sheet.close()


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
