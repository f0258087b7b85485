"""Text tables: encoding, separator, header and decimal mark are detected, rows are read by PyArrow."""

import codecs
import csv
import io
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice, pairwise
from typing import Any, BinaryIO

import numpy as np

from crcen._support.lazy import arrow_csv, pa, pc
from crcen._support.text import plural
from crcen.exceptions import DataUnavailable, InvalidInput, InvalidParameter
from crcen.tables.locations import DataFile, Part, ReadOptions
from crcen.theory.rows import ArrowArray, RecordBatch

csv.field_size_limit(2**31 - 1)  # values of any length; not set and reset, since the limit is that of all threads
SEPARATORS = (",", ";", "\t", "|")
FIXED = "fixed"
# Rows with their lines, and the positions of fixed-width columns.
Row = tuple[int, list[str]]
Rows = list[Row]
Spans = tuple[tuple[int, int], ...]
# What pandas reads as missing, and what UCI's files write.
MISSING_MARKS = (
    *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA"),
    *("NULL", "NaN", "None", "n/a", "nan", "null", "?"),
)
_SAMPLE_BYTES, _SAMPLE_LINES, _SAMPLE_ROWS = 2**18, 3, 200
_SCAN_BYTES, _LONGEST = 2**20, 2**30
BLOCK_BYTES, BLOCKS_AHEAD = 2**22, 32  # PyArrow reads so many blocks ahead
_TAIL_BYTES, _ROWS = 2**16, 20_000
_CONTROLS = bytes((*range(9), *range(14, 32)))
_NOT_ASCII = re.compile(rb"[\x80-\xff]+")
_UNDEFINED_IN_1252 = re.compile(rb"[\x81\x8d\x8f\x90\x9d]")
_DECIMALS = re.compile(r"[+-]?\d+,\d+"), re.compile(r"[+-]?\d+\.\d+")
_GROUPS, _GROUPED = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+"), re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+")
_NUMBER = re.compile(r"[+-]?(\d+[.,]?\d*|[.,]\d+)([eE][+-]?\d+)?")


class _LineCounter:
    """A file that counts its lines and keeps its end while PyArrow reads it."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._line_end, self.n_lines, self.tail = file, b"", 0, b""

    def read(self, n_bytes: int = -1) -> bytes:
        block = self._file.read(n_bytes)
        self._line_end = self._line_end or (b"\n" if b"\n" in block else b"\r")
        self.n_lines += block.count(self._line_end)
        self.tail = block[-_TAIL_BYTES:] if len(block) >= _TAIL_BYTES else (self.tail + block)[-_TAIL_BYTES:]
        return block

    def close(self) -> None:
        """Nothing: whoever opened the file closes it."""


class TextPart(Part):
    """A text file, of which opening reads the first lines only."""

    kind = "text"
    file: DataFile

    def __init__(self, file: DataFile, options: ReadOptions) -> None:
        super().__init__(file.name, file)
        self._options, self.block_bytes, self._n_lines = options, BLOCK_BYTES, 0
        with file.opened() as opened:
            start, is_whole = _first_lines(opened, file.name)
        self._encoding = options.encoding or _by_first_bytes(start[:_SAMPLE_BYTES]) or "utf-8"
        if error := _decoding_error(start, self._encoding, is_whole):
            self._change_encoding(error, 0)
        self._detect(start.decode(self._encoding, errors="replace"), is_whole)
        n_lines = start.count(b"\n") or start.count(b"\r")
        if not is_whole:
            n_lines = n_lines * os.path.getsize(file.path) // len(start)
        self.n_rows = max(0, n_lines - self._n_skipped) if is_whole or not file.compression else None

    def _detect(self, text: str, is_whole: bool) -> None:
        name, short, options, text = self.name, self.file.short, self._options, text.lstrip("\ufeff")
        if not is_whole:  # up to the last whole row
            text = text[: max(text.rfind("\n"), text.rfind("\r")) + 1] or text
        if not text.strip():
            raise DataUnavailable(f"{name} is empty; a table needs a line of column names and rows under it.")
        if len(coded := text.encode()) - len(coded.translate(None, _CONTROLS)) > len(text) / 1000:
            raise InvalidInput(f"{name} is not a text table: it holds zero bytes or control characters.")
        if re.match(r'\s*(\[\s*)?\{\s*"', text):
            raise InvalidInput(f"{name} holds JSON, not a table of rows and columns: convert it to CSV or Parquet.")
        self._quote = '"' if options.quote is None else options.quote
        self._separator, rows, self._spans = _separated(text, self.file.suffix, options, self._quote)
        if not rows:
            raise InvalidInput(f"{name} is not a text table: no line of it can be read.")
        at = _header_at(rows, options)
        if at:
            title = " ".join(cell.strip() for cell in rows[0][1] if cell.strip())[:40]
            self.notes.append(f"the first {rows[at - 1][0]} lines of {short} were skipped as titles ({title!r})")
        self._n_skipped, header = rows[at]
        stated = options.separator or ""
        if len(stated) > 1 and stated != FIXED and stated not in text:
            message = f"separator must occur in {short}: got {stated!r}; state another one, or leave it out."
            raise InvalidParameter(message, parameter="separator")
        self.columns = columns = filled_names(header, name, options)
        below = [row for _, row in rows[at + 1 :]]
        self._has_rows = bool(below) or not is_whole
        if below and all(len(row) > len(columns) for row in below):
            message = f"{name} has {len(columns)} column names over rows of {len(below[0])} values"
            raise InvalidInput(f"{message}; name every column in the first line, or state the separator.")
        self._decimal, self._is_grouped, unclear = _decimal_mark(below, self._separator, options.decimal)
        if options.decimal is None and (self._decimal == "," or unclear):
            why = f": {unclear} may also be {re.sub('[.,]', '', unclear)}; state the decimal mark" if unclear else ""
            self.notes.append(f"{short} was read with decimal {'commas' if self._decimal == ',' else 'points'}{why}")
        how = {" ": "values between blanks", FIXED: "columns of fixed width"}.get(self._separator)
        if how is not None and not stated:
            self.notes.append(f"{short} was read as {how}: {', '.join(columns[:5])}")
        if len(columns) == 1:
            self.notes.append(f"{short} was read as one column, {columns[0][:40]}: state its separator if it has more")

    def first_line(self, n_rows: int) -> int | None:
        """The line of the first row if each row of the last pass was one line, else None."""
        return self._n_skipped + 1 if self._n_lines - self._n_skipped == n_rows else None

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[RecordBatch]:
        """Rows as strings; missing cells are null and counted in ``marks``."""
        self.marks.clear()
        marks = pa.array(MISSING_MARKS, pa.large_string())
        for batch in self._rows(columns) if self._has_rows else ():
            names, found = batch.schema.names, batch.columns
            if self._decimal == ",":
                found = [_with_points(cells, self._is_grouped) for cells in found]
            together = pa.concat_arrays(found)  # a call for each of many columns takes longer
            is_mark = pc.is_in(together, value_set=marks)
            gone = pc.or_(is_mark, pc.fill_null(pc.utf8_is_space(together), False))
            for place in np.flatnonzero(np.asarray(gone).reshape(len(found), -1).any(axis=1)):
                cells, start = found[place], place * len(batch)
                counts = pc.value_counts(cells.filter(is_mark.slice(start, len(batch)))).to_pylist()
                self.marks.update({(names[place], one["values"]): one["counts"] for one in counts})
                found[place] = pc.if_else(gone.slice(start, len(batch)), None, cells)
            yield pa.RecordBatch.from_arrays(found, names=names)

    def _rows(self, columns: Sequence[str] | None) -> Iterator[RecordBatch]:
        """All rows; reading restarts if a row is longer than a block, or if the encoding turns out to be another."""
        is_plain = len(self._separator) == 1 and self._separator != " "
        n_given = 0
        while True:
            skip = n_given
            try:
                for batch in self._by_arrow(columns) if is_plain else self._by_lines(columns):
                    if skip < batch.num_rows:
                        n_given += batch.num_rows - skip
                        yield batch.slice(skip)
                    skip = max(0, skip - batch.num_rows)
                return
            except UnicodeDecodeError as error:
                self._change_encoding(error, n_given)
            except pa.ArrowInvalid as error:
                if "UTF8" in str(error):
                    self._change_encoding(error, n_given)
                elif "straddling" not in str(error):
                    self._refuse_row(error)
                elif self.block_bytes > _LONGEST:
                    raise InvalidInput(f"a quoted value of {self.name} does not end: a quote is missing.") from error
                else:
                    self.block_bytes *= 4

    def _change_encoding(self, error: Exception, n_given: int) -> None:
        """Continue in Windows-1252, or Latin-1 for its undefined bytes, if the rows so far are the same in it."""
        if self._options.encoding is not None or self._encoding != "utf-8":
            reason = error.reason if isinstance(error, UnicodeDecodeError) else "invalid start byte"
            raise InvalidInput(f"{self.name} is not written in {self._encoding}: {reason}; state another.") from error
        first, is_defined = None, True
        with self.file.opened() as file:
            while block := file.read(_SCAN_BYTES):
                first = first or _NOT_ASCII.search(block)
                is_defined = is_defined and not _UNDEFINED_IN_1252.search(block)
        if n_given and first is not None and not _decoding_error(first[0], "utf-8"):
            message = f"{self.name} mixes UTF-8 with another encoding; state encoding=windows-1252, or repair it."
            raise InvalidInput(message, parameter="encoding") from error
        self._encoding = "windows-1252" if is_defined else "latin-1"
        self.notes.append(f"{self.file.short} is not UTF-8 and was read as {self._encoding.capitalize()}")

    def _by_arrow(self, columns: Sequence[str] | None) -> Iterator[RecordBatch]:
        last = None
        with self.file.opened() as opened:
            file = _LineCounter(opened)
            how = {"block_size": self.block_bytes, "encoding": self._encoding, "skip_rows": self._n_skipped}
            quotes = {"quote_char": self._quote or False, "newlines_in_values": bool(self._quote)}
            parse = arrow_csv.ParseOptions(delimiter=self._separator, **quotes)
            parse.invalid_row_handler = lambda row: "error" if row.text.strip() else "skip"
            convert = arrow_csv.ConvertOptions(
                # Strings: a block of 001, 002 must not become numbers where another holds A17.
                column_types=dict.fromkeys(self.columns, pa.large_string()),
                include_columns=None if columns is None else list(columns),
                strings_can_be_null=True,
                null_values=[""],
            )
            options = arrow_csv.ReadOptions(column_names=list(self.columns), **how)
            for batch in arrow_csv.open_csv(pa.PythonFile(file, mode="r"), options, parse, convert):
                last = batch if batch.num_rows else last
                yield batch
        tail = file.tail[len(file.tail) % 2 :] if "utf-16" in self._encoding.lower() else file.tail
        end = tail.decode(self._encoding, errors="replace")
        self._n_lines = file.n_lines + (not end.endswith(("\n", "\r")))
        if last is not None and self._quote and (columns is None or columns[-1] == self.columns[-1]):
            cell = last.column(last.num_columns - 1)[-1].as_py() or ""
            if end.endswith(self._quote + cell.replace(self._quote, 2 * self._quote)):
                raise InvalidInput(f"{self.name} ends inside a quoted value: a closing quote is missing.")

    def _by_lines(self, columns: Sequence[str] | None) -> Iterator[RecordBatch]:
        """Rows whose values are separated by blanks, have fixed positions, or have separators of several characters."""
        places = [self.columns.index(name) for name in columns or self.columns]
        with self._lines("strict") as lines:
            rows = _split_rows(lines, self._separator, self._quote, self._spans)
            while chunk := list(islice(rows, _ROWS)):
                for line, row in chunk:
                    if len(row) != len(self.columns):
                        raise self._odd_row(line, len(row), is_last=False)
                cells = [[row[place] or None for _, row in chunk] for place in places]
                arrays = [pa.array(one, pa.large_string()) for one in cells]
                yield pa.RecordBatch.from_arrays(arrays, names=[self.columns[place] for place in places])
                self._n_lines = chunk[-1][0]

    @contextmanager
    def _lines(self, errors: str) -> Iterator[Iterator[tuple[int, str]]]:
        with self.file.opened() as file:
            text = io.TextIOWrapper(file, encoding=self._encoding, errors=errors, newline=None)
            yield ((n, line) for n, line in enumerate(text, 1) if n > self._n_skipped and line.strip())
            text.detach()

    def _refuse_row(self, error: Exception) -> None:
        """Raise for the first row that is not as wide as the header; by the csv module, which counts lines."""
        if "Expected" in str(error) and "columns" in str(error):
            fed: list[tuple[int, str]] = []  # lines of the present row
            with self._lines("replace") as lines:
                texts = (fed.append(line) or line[1] for line in lines)  # type: ignore[func-returns-value]
                reader = csv.reader(texts, delimiter=self._separator, **_quoting(self._quote))
                for row in reader:
                    first = fed[0][0]
                    if len(row) != len(self.columns):
                        is_last = next(reader, None) is None and not fed[-1][1].endswith("\n")
                        raise self._odd_row(first, len(row), is_last) from error
                    fed.clear()
        reason = " ".join(str(error).split())[:160]
        raise InvalidInput(f"{self.name} cannot be read as a table: {reason}; repair that line.") from error

    def _odd_row(self, line: int, width: int, is_last: bool) -> Exception:
        n_columns = len(self.columns)
        if is_last and width < n_columns:
            found = f"{self.name} ends in the middle of its last row ({width} of {n_columns} values)"
            return DataUnavailable(f"{found}: it was cut off; download it again, or delete that row.")
        found = f"line {line} of {self.name} has {plural(width, 'value')} under {n_columns} column names"
        return InvalidInput(f"{found}; repair or delete it (a value with the separator in it needs quotation marks).")


def _with_points(cells: ArrowArray, is_grouped: bool) -> ArrowArray:
    """Plain numbers with a decimal point and without groups; cells that hold anything else stay."""
    if is_grouped:
        grouped = pc.match_substring_regex(cells, r"^\s*[+-]?[1-9]\d{0,2}(?:\.\d{3})+(?:,\d+)?\s*$")
        cells = pc.if_else(pc.fill_null(grouped, False), pc.replace_substring(cells, ".", ""), cells)
    return pc.replace_substring_regex(cells, r"^\s*([+-]?\d+),(\d+)\s*$", r"\1.\2")


def _first_lines(file: BinaryIO, name: str) -> tuple[bytes, bool]:
    """At least `_SAMPLE_BYTES` and the header line, however long it is, and two more; and whether that is all."""
    start, n_line_ends = bytearray(), 0
    while len(start) < _SAMPLE_BYTES or n_line_ends < _SAMPLE_LINES:
        if len(start) >= _LONGEST:
            raise InvalidInput(f"{name} is not a text table: its first {_SAMPLE_LINES} lines are longer than 1 GiB.")
        block = file.read(_SCAN_BYTES)
        if not block:
            return bytes(start), True
        start += block
        n_line_ends += block.count(b"\n") or block.count(b"\r")
    return bytes(start), False


def _by_first_bytes(start: bytes) -> str | None:
    """The encoding that a byte-order mark, or the zero bytes of UTF-16 text, show."""
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if start[1::2].count(0) > 0.3 * len(start[1::2]):
        return "utf-16-le"
    return "utf-16-be" if start[::2].count(0) > 0.3 * len(start[::2]) else None


def _decoding_error(start: bytes, encoding: str, is_whole: bool = False) -> UnicodeDecodeError | None:
    """Why bytes are not a text in an encoding, or the first ones of a text; None if they are."""
    try:
        codecs.getincrementaldecoder(encoding)().decode(start, is_whole)
    except UnicodeDecodeError as error:
        return error
    return None


def _quoting(quote: str) -> dict[str, Any]:
    return {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE, "quotechar": None}


def _rows(text: str, separator: str, quote: str) -> Rows:
    """The first rows of a text that are not blank, each with its last line; none if the text is no such table."""
    try:
        reader = csv.reader(io.StringIO(text, newline=None), delimiter=separator, **_quoting(quote))
        found = [(reader.line_num, row) for row in islice(reader, _SAMPLE_ROWS)]
    except csv.Error:
        return []
    return [(line, row) for line, row in found if any(cell.strip() for cell in row)]


def _separated(text: str, suffix: str, options: ReadOptions, quote: str) -> tuple[str, Rows, Spans]:
    """Separator, first rows with their lines, and spans of fixed columns."""
    skip, stated = options.skip_rows or 0, options.separator
    remark = re.match(r"sep=(.)[\r\n]", text)
    likely = remark[1] if remark else "\t" if suffix in (".tsv", ".tab") else ","
    is_plain = stated is not None and len(stated) == 1 and stated != " "
    found: dict[str, tuple[tuple[bool, float, int, bool], Rows]] = {}
    for separator in [stated] if stated is not None and is_plain else SEPARATORS:
        rows = [(line, row) for line, row in _rows(text, separator, quote) if line > skip]
        if rows:
            widths = [len(row) for _, row in rows[_header_at(rows, options) :]]
            agreeing = round(widths.count(widths[0]) / len(widths), 1)
            found[separator] = (widths[0] > 1, agreeing, widths[0], separator == likely), rows
    best = max(found, key=lambda one: found[one][0], default=likely)
    is_table = best in found and found[best][0][0]
    if not is_plain and (stated or not is_table):
        lines = [(n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip() and n > skip][:_SAMPLE_ROWS]
        for separator in [stated] if stated else [" ", FIXED]:
            spans = _spans([line for _, line in lines]) if separator == FIXED else ()
            rows = list(_split_rows(iter(lines), separator, quote, spans))
            width = len(rows[0][1]) if rows else 0
            fits = width > 1 and len(rows) > 2 and all(len(row) == width for _, row in rows)
            if stated or (fits and all(rows[0][1])):
                return separator, rows, spans
    if not found:
        return likely, [], ()
    return (best, found[best][1], ()) if is_table else (likely, found.get(likely, found[best])[1], ())


def _split_rows(lines: Iterator[tuple[int, str]], separator: str, quote: str, spans: Spans) -> Iterator[Row]:
    """Rows of lines that are not separated by one character."""
    for number, line in lines:
        line = line.rstrip("\r\n")
        if separator == FIXED:
            if any(line[a:b].strip() for (_, a), (b, _) in pairwise(spans)):
                message = f"line {number} has text where other lines are blank ({line[:40]!r}): its columns"
                raise InvalidInput(f"{message} are not of fixed width; state the separator.")
            ends = [*(end for _, end in spans[:-1]), len(line)]
            yield number, [line[start:end].strip() for (start, _), end in zip(spans, ends, strict=True)]
        elif separator == " ":
            yield number, next(csv.reader([" ".join(line.split())], delimiter=" ", **_quoting(quote)))
        else:
            yield number, line.split(separator)


def _spans(lines: Sequence[str]) -> Spans:
    """The positions of fixed-width columns: between positions that are blank in all lines."""
    width = max(map(len, lines), default=0)
    is_filled = [any(line[at : at + 1].strip() for line in lines) for at in range(width)]
    starts = [at for at in range(width) if is_filled[at] and not (at and is_filled[at - 1])]
    ends = [at + 1 for at in range(width) if is_filled[at] and not (at + 1 < width and is_filled[at + 1])]
    return tuple(zip(starts, ends, strict=True))


def _header_at(rows: Rows, options: ReadOptions) -> int:
    """The index of the row with the column names; rows above it are titles or remarks of one cell each."""
    first = rows[0][1]
    is_remark = first[0].startswith("#") or re.fullmatch(r"sep=.?", "".join(first)) is not None
    n_filled = sum(bool(cell.strip()) for cell in first)
    has_title = n_filled < 2 or (is_remark and len(rows[-1][1]) != len(first))
    if options.skip_rows is not None or not has_title or (len(first) == 2 and not is_remark):
        return 0  # two cells of which one is empty are a name and a column without one
    at = next((at for at, (_, row) in enumerate(rows) if at and sum(bool(cell.strip()) for cell in row) > 1), 0)
    if not at:
        return 0
    named = [cell.strip() for cell in rows[at][1]]
    below = [row for _, row in rows[at + 1 :] if len(row) == len(named)]
    is_header = len(set(named)) == len(named) and all(named) and not any(map(_NUMBER.fullmatch, named))
    if not is_header or not below or len(below) < 0.8 * (len(rows) - at - 1):
        return 1 if is_remark and len(rows[1][1]) > 1 else 0
    columns, is_apart = zip(*below, strict=True), rows[at][0] - rows[at - 1][0] > 1
    n_numbers = (sum(_NUMBER.fullmatch(cell.strip()) is not None for cell in cells) for cells in columns)
    return at if is_remark or is_apart or any(n > 0.8 * len(below) for n in n_numbers) else 0


def _decimal_mark(rows: list[list[str]], separator: str, stated: str | None) -> tuple[str, bool, str]:
    """The decimal mark of plain numbers, whether points group thousands, and a number that could be read either way."""
    cells = [cell.strip() for row in rows for cell in row] if separator != "," or stated else []
    commas, points = ([cell for cell in cells if mark.fullmatch(cell)] for mark in _DECIMALS)
    may_group = bool(points) and all(map(_GROUPS.fullmatch, points))  # 1.500 and 35.000, but no 0.5
    is_grouped = any(map(_GROUPED.fullmatch, cells))  # 1.234,50: then 1.234 has no decimals either
    is_comma = stated == "," if stated else is_grouped or len(commas) > len(points)
    is_grouped = is_comma and (is_grouped or (may_group and stated == ","))
    is_unclear = may_group and not is_grouped and (separator == ";" or bool(commas))
    if is_comma and not is_grouped and all(_GROUPS.fullmatch(cell.replace(",", ".")) for cell in commas):
        return ",", False, commas[0] if commas else ""  # 1,400 beside 719
    return "," if is_comma else ".", is_grouped, points[0] if is_unclear else ""


def filled_names(header: Sequence[str], name: str, options: ReadOptions) -> tuple[str, ...]:
    """Column names, with one made up for each empty cell; numbers and duplicates are refused."""
    columns = [str(cell).strip() for cell in header]
    if all(_NUMBER.fullmatch(cell) for cell in columns):
        message = f"the first line of {name} must hold column names: got the numbers {', '.join(columns[:4])}"
        raise InvalidInput(f"{message}; put a line of names above them.")
    named = set(columns)
    for place, column in enumerate(columns):
        if not column:
            columns[place] = f"column_{place + 1}"
            while columns[place] in named:  # as in a table that was written with its index twice
                columns[place] += "_"
    return options.unique_names(columns, name)
