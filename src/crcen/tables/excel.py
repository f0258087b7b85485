"""Excel workbooks: a sheet as a table, after a check that reading it is safe, and a table as a workbook."""

import datetime
import math
import os
import re
import zipfile
from collections import Counter
from functools import cache, reduce
from typing import Any, BinaryIO
from xml.etree import ElementTree
from xml.parsers import expat

import numpy as np

from crcen._support.extras import need
from crcen._support.lazy import pd
from crcen._support.text import listed, plural
from crcen.exceptions import CrcenError, DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.frames import FramePart
from crcen.tables.locations import DataFile, Part, ReadOptions
from crcen.tables.text import filled_names
from crcen.theory.rows import Cell, DataFrame, Series

Ranges = list[tuple[int, int, int, int]]  # merged cells: top, left, bottom, right

# Of a sheet, its line of names included.
MOST_ROWS = 1_048_576
# Rows below a table that may be totals and remarks.
_MOST_BELOW = 5
# Limits of what a file may expand to, checked before it is read: bytes of its parts, and memory for their cells.
_MOST_PARTS, _SMALL_PARTS, _EXPANSION = 10_000, 2**25, 100
_BASE_MEMORY, _MEMORY_PER_BYTE = 2**28, 16
_CELL_BYTES, _AREA_BYTES = 80, 24
_PLACE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
_OPEN_SHEETS = "content.xml"  # the part with all sheets of an OpenDocument file
_STRING = re.compile(rb"<(?!/)(?:[^\s<>:]*:)?si(?=[\s>/])")  # with any prefix, also one that is not well-formed


class SheetPart(FramePart):
    """A sheet of a workbook, read whole: a sheet has a million rows at most."""

    kind = "workbook"
    file: DataFile

    def __init__(self, file: DataFile, options: ReadOptions) -> None:
        Part.__init__(self, file.name, file)
        calamine = need("python_calamine", "excel")
        try:
            parts = _check_archive(file.path, self.name)
            is_excel = "xl/workbook.xml" in parts
            if _OPEN_SHEETS in parts and not is_excel:
                self._check_sheet(_OPEN_SHEETS, parts)  # before calamine opens it, since that reads all sheets
            with open(file.path, "rb") as opened, calamine.load_workbook(opened) as book:
                sheet_name = self._chosen(book, options.sheet)
                self.sheets = [sheet_name, *(str(one) for one in book.sheet_names if one != sheet_name)]
                if is_excel:
                    self._check_sheet(_sheet_part(file.path, book.sheet_names.index(sheet_name)), parts)
                sheet = book.get_sheet_by_name(sheet_name)
                rows = [list(row) for row in sheet.iter_rows()]
                left, ranges = (sheet.start or (0, 0))[1], sheet.merged_cell_ranges or ()
                merged = [(top, first - left, bottom, last - left) for (top, first), (bottom, last) in ranges]
        except (CrcenError, KeyboardInterrupt, SystemExit, MemoryError):
            raise
        except calamine.PasswordError as error:
            raise DataUnavailable(f"{self.name} is protected by a password: save it without one.") from error
        except BaseException as error:  # a panic of calamine is no Exception
            reason = " ".join(str(error).split())[:120].rstrip(".")
            message = f"{self.name} cannot be read as an Excel workbook: {reason}; save it again as .xlsx."
            raise DataUnavailable(message) from error
        self._hold(self._table(rows, merged, sheet_name, options))

    def _chosen(self, book: Any, wanted: str | int | None) -> str:
        names = list(map(str, book.sheet_names))
        if not names:
            raise InvalidInput(f"{self.name} has no sheet.")
        if wanted is not None:
            if str(wanted) in names:
                return str(wanted)
            if str(wanted).isdecimal() and 1 <= int(wanted) <= len(names):
                return names[int(wanted) - 1]
            message = f"sheet must be a sheet of {self.name}, {listed(names)}: got {wanted!r}."
            raise InvalidParameter(message, parameter="sheet")
        kinds = {str(one.name): (str(one.typ), str(one.visible)) for one in book.sheets_metadata}
        shown = [name for name in names if kinds[name] == ("SheetTypeEnum.WorkSheet", "SheetVisibleEnum.Visible")]
        chosen = (shown or names)[0]
        if len(names) > 1:
            self.notes.append(f"{self.file.short} has {len(names)} sheets ({listed(names)}); {chosen} was read")
        return chosen

    def _check_sheet(self, part: str, parts: dict[str, zipfile.ZipInfo]) -> None:
        """Refuse a sheet whose cells would take memory out of proportion; note hidden rows and formulas."""
        with zipfile.ZipFile(self.file.path) as archive:
            strings = parts.get("xl/sharedstrings.xml")
            texts = [] if strings is None else _STRING.split(archive.read(strings))[1:]
            limit = _BASE_MEMORY + _MEMORY_PER_BYTE * sum(one.file_size for one in parts.values())
            found = _Extent(archive, part)
        copied = found.n_repeated + sum(n * len(texts[at]) for at, n in found.shared.items() if at < len(texts))
        needed = found.n_rows * found.width * _AREA_BYTES + found.n_cells * _CELL_BYTES + 2 * copied
        if needed > limit:
            size = f"{found.n_cells:,} cells over {found.n_rows:,} rows and {found.width:,} columns"
            message = f"{self.name} is not safe to read: {size} would take {needed / 2**30:,.1f} GiB"
            raise InvalidInput(f"{message}; delete cells far from the table, or save it as CSV.")
        short, n = self.file.short, found.n_without_value
        if found.n_hidden:
            self.notes.append(f"hidden rows of {short} were read too ({found.n_hidden:,})")
        if n:
            self.notes.append(f"{n:,} formulas of {short} have no stored value and are missing: save it in Excel")

    def _table(self, rows: list[list[Cell]], merged: Ranges, sheet: str, options: ReadOptions) -> DataFrame:
        while rows and not any(cell != "" for cell in rows[-1]):  # formatted, but empty
            rows.pop()
        width = len(rows[0]) if rows else 0
        while width and all(row[width - 1] == "" for row in rows):
            width -= 1
        if not width:
            raise InvalidInput(f"the sheet {sheet} of {self.name} is empty; a table needs a row of column names.")
        first = _header(rows, width) if options.skip_rows is None else options.skip_rows
        if first >= len(rows):
            message = f"skip_rows must leave rows of the sheet {sheet}, which has {len(rows)}: got {first}."
            raise InvalidParameter(message, parameter="skip_rows")
        titles = [str(cell)[:40] for row in rows[:first] for cell in row if cell != ""]
        if titles and options.skip_rows is None:
            self.notes.append(f"{plural(first, 'row')} above the table in {self.file.short} skipped ({titles[0]!r})")
        names, depth = _joined_names(rows, first, width, merged)
        if depth > 1:
            self.notes.append(f"the names in {self.file.short} take {depth} rows, joined as in {names[-1]!r}")
        columns = filled_names(names, self.name, options)
        body = rows[first + depth :]
        if n := _n_below(body, width):
            text = next(str(cell) for cell in body[-n] if cell != "")
            self.notes.append(f"below the table in {self.file.short}, {plural(n, 'row')} skipped ({text[:40]!r})")
            body = body[:-n]
        body = [row for row in body if any(cell != "" for cell in row)]
        cells = zip(*body, strict=True) if body else ((),) * width
        return pd.DataFrame({name: _column(list(own)) for name, own in zip(columns, cells, strict=False)})


def _header(rows: list[list[Cell]], width: int) -> int:
    """The row of the column names: the first that is half filled, with text alone; else the first that is filled."""
    filled = [[cell for cell in row if cell != ""] for row in rows]
    first = next(at for at, cells in enumerate(filled) if cells)
    at = next((at for at, cells in enumerate(filled) if len(cells) >= min(width, max(2, (width + 1) // 2))), first)
    return at if all(isinstance(cell, str) for cell in filled[at]) else first


def _n_below(body: list[list[Cell]], width: int) -> int:
    """Rows after the last empty one that are no rows of the table, such as totals and remarks: a few, nearly empty."""
    n_filled = [sum(cell != "" for cell in row) for row in body]
    n = n_filled[::-1].index(0) if 0 in n_filled else 0
    above = n_filled[: len(body) - n]
    is_table = not any(above) or max(n_filled[len(body) - n :], default=0) > width // 2
    return 0 if is_table or n > _MOST_BELOW or np.median([count for count in above if count]) <= width // 2 else n


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
    """Cells of one type as that type; of several types as text, as in a CSV file."""
    if str in set(map(type, cells)):
        cells = [None if cell in ("", "?") else cell for cell in cells]
    known = [cell for cell in cells if cell is not None]
    kinds = set(map(type, known))
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
    texts = [int(cell) if isinstance(cell, float) and cell.is_integer() else cell for cell in cells]
    return pd.Series([None if cell is None else str(cell) for cell in texts], dtype="str")


def _check_archive(path: str, name: str) -> dict[str, zipfile.ZipInfo]:
    """Parts by name in small letters, unless they expand beyond proportion; none of an .xls, of 65,536 rows at most."""
    with open(path, "rb") as file:
        if file.read(4) != b"PK\x03\x04":
            return {}
    size = os.path.getsize(path)
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
        total, limit = sum(part.file_size for part in parts), max(_SMALL_PARTS, _EXPANSION * size)
        found = {part.filename.lower(): part for part in parts}
        if len(found) < len(parts):
            raise InvalidInput(f"{name} is not safe to read: it has parts of equal names; save it again, or as CSV.")
        if len(parts) > _MOST_PARTS or total > limit:
            message = f"its {size:,} bytes expand to {total:,}, more than {limit:,}"
            raise InvalidInput(f"{name} is not safe to read: {message}; save it again, or as CSV.")
        if any(part.filename.endswith(".bin") and "worksheets" in part.filename for part in parts):
            raise InvalidInput(f"{name} is a binary workbook (.xlsb): save it as .xlsx.")
        if broken := archive.testzip():  # sizes differ from those that were stated, too
            raise zipfile.BadZipFile(f"{broken} is damaged")
    return found


class _Extent:
    """Cells of a sheet and the area that they span, counted from its XML: calamine allocates the whole area."""

    def __init__(self, archive: zipfile.ZipFile, part: str) -> None:
        self.n_cells = self.n_rows = self.width = self.n_hidden = self.n_without_value = 0
        self.n_repeated = 0  # characters of repeated cells
        self.shared: Counter[int] = Counter()  # places of the shared strings
        self._row = self._column = self._times = self._copies = 0
        self._is_shared = self._is_formula = self._is_value = False
        self._parser = expat.ParserCreate()
        self._parser.buffer_text = True
        self._parser.StartElementHandler = self._start_open if part == _OPEN_SHEETS else self._start
        self._parser.StartDoctypeDeclHandler = self._refuse_entities
        with archive.open(part) as file:
            self._parser.ParseFile(file)

    def _refuse_entities(self, *_: object) -> None:
        raise InvalidInput("the workbook is not safe to read: it defines entities; save it again, or as CSV.")

    def _start(self, tag: str, given: dict[str, str]) -> None:
        name = tag.rpartition(":")[2] if ":" in tag else tag
        self._is_value = name == "v"
        if name in ("v", "is"):
            self._add(1)
        elif name == "c":
            place = _PLACE.fullmatch(given.get("r", ""))
            if place is not None:
                self._column, self._row = _column_number(place[1]), int(place[2])
            elif "r" in given:
                raise ValueError(f"a cell at {given['r'][:20]}")
            else:
                self._column += 1
            self._is_shared, self._is_formula = given.get("t") == "s", False
            self._parser.CharacterDataHandler = self._text if self._is_shared else None  # a call for each text is slow
        elif name == "f":
            self.n_without_value += 1
            self._is_formula, self._parser.CharacterDataHandler = True, self._text
        elif name == "row":
            self._row, self._column = int(given.get("r", self._row + 1)), 0
            self.n_hidden += given.get("hidden") in ("1", "true")

    def _start_open(self, tag: str, given: dict[str, str]) -> None:
        """A tag of an OpenDocument file, which may state repetitions."""
        name = tag.rpartition(":")[2]
        if name == "table-row":
            self._times, self._column = max(1, int(given.get("table:number-rows-repeated", 1))), 0
            self._row += self._times
        elif name in ("table-cell", "covered-table-cell"):
            repeats = max(1, int(given.get("table:number-columns-repeated", 1)))
            self._column += repeats
            self._copies = repeats * self._times
            if any(key.startswith("office:") or key == "table:formula" for key in given):
                self._add(self._copies)
                self.n_repeated += self._copies * len(given.get("office:string-value", ""))
            self._parser.CharacterDataHandler = self._repeat if self._copies > 1 else None

    def _add(self, n_cells: int) -> None:
        self.n_cells += n_cells
        if self._row > self.n_rows:
            self.n_rows = self._row
        if self._column > self.width:
            self.width = self._column

    def _repeat(self, data: str) -> None:
        self.n_repeated += self._copies * len(data)

    def _text(self, data: str) -> None:
        if self._is_value and (data := data.strip()):
            self.n_without_value -= self._is_formula
            if self._is_shared:
                self.shared[int(data)] += 1
            self._is_formula = self._is_shared = False


@cache
def _column_number(letters: str) -> int:
    """1 for A, 27 for AA."""
    return reduce(lambda number, letter: 26 * number + ord(letter) - 64, letters, 0)


def _sheet_part(path: str, number: int) -> str:
    with zipfile.ZipFile(path) as archive:
        book = ElementTree.fromstring(archive.read("xl/workbook.xml"))
        links = ElementTree.fromstring(archive.read("xl/_rels/workbook.xml.rels"))
    sheets = [one for one in book.iter() if one.tag.endswith("}sheet") or one.tag == "sheet"]
    wanted = next(value for name, value in sheets[number].items() if name.endswith("}id"))
    target = next(one.get("Target", "") for one in links if one.get("Id") == wanted)
    return target.lstrip("/") if target.startswith("/") else f"xl/{target}"


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
            most = f"an Excel sheet holds {MOST_ROWS - 1:,} rows"
            raise InvalidParameter(f"{most}: {self._name} would have more; write .csv or .parquet.")
        for row in chunk.itertuples(index=False, name=None):
            self._append([_cell(value) for value in row])

    def _append(self, values: list[Cell]) -> None:
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


def _cell(value: Cell) -> Cell:
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE

    value = value.item() if hasattr(value, "item") else value
    if value is None or value is pd.NaT or value is pd.NA or (isinstance(value, float) and not math.isfinite(value)):
        return None
    if isinstance(value, pd.Timestamp):
        return value.tz_localize(None).to_pydatetime() if value.tzinfo else value.to_pydatetime()
    if isinstance(value, str):
        return ILLEGAL_CHARACTERS_RE.sub("", value)
    return value if isinstance(value, bool | int | float) else str(value)
