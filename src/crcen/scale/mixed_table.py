"""Mixed tables larger than memory: facts of one pass, columns learned from them, encoded rows in a scratch folder."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from crcen._support.lazy import pa, pc, pd, pq
from crcen.exceptions import InvalidInput
from crcen.scale.sources import ArrowSource, Chunk, kept_in, labels_of, numbers_of, row_keys, row_shares
from crcen.tables import columns as kinds
from crcen.tables.cells import ColumnCells, TableCells, as_arrow, as_text
from crcen.tables.columns import CategoryColumn, Column, DroppedColumn, NumberColumn
from crcen.tables.fingerprint import MOST_HASHES, Fingerprint, encoded_are_coarse, row_hashes
from crcen.tables.reading import Table
from crcen.theory.rows import Array, ArrowTable, Bools, DataFrame, Index, LabelArray, RecordBatch

SAMPLE_ROWS = 32_768  # from which kinds, medians, date formats and words are learned
MOST_VALUES = 4096  # different values of a column that are counted; a column of more has no counts
_MOST_LABELS = 1000
_MOST_PARTS, _SPARE = 16, 1.25  # of a sample: parts, and share of its size, before rows that are not drawn are dropped
_HOLD_OUT_SEED = 0x5EED  # apart from the seed of rows for early stopping


@dataclass
class ColumnFacts:
    """Facts of all rows about one column."""

    n_missing: int = 0  # cells that are missing, or infinite in a column of numbers
    n_numbers: int = 0  # cells that are finite numbers, their range, and whether all are whole
    low: float = np.inf
    high: float = -np.inf
    is_whole: bool = True
    n_others: int = 0  # cells that are there and no number; not counted further once most of a chunk were none
    looks_numeric: bool = True
    counts: dict[str, int] | None = None  # rows of each value as text; None if there are too many values

    def add(self, cells: ColumnCells, *, is_counted: bool) -> None:
        """Add cells; values of numbers are counted only with ``is_counted``."""
        series, dtype = cells.series, cells.series.dtype
        is_number = pd.api.types.is_numeric_dtype(dtype) and not pd.api.types.is_bool_dtype(dtype)
        if pd.api.types.is_datetime64_any_dtype(dtype):
            self.n_missing += int(series.isna().sum())
            return
        if (is_counted or not is_number) and self.counts is not None:
            texts = cells.arrow if cells.arrow is not None else as_arrow(cells.text)
            values, numbers = texts.value_counts().flatten()
            if len(values) <= MOST_VALUES:  # otherwise they need not be counted
                found = zip(pc.utf8_trim_whitespace(values).to_pylist(), numbers.to_pylist(), strict=True)
                self.counts.update({value: self.counts.get(value, 0) + number for value, number in found if value})
            if max(len(self.counts), len(values)) > MOST_VALUES:
                self.counts = None
        if is_number:
            self.n_missing += len(series) - self._take_numbers(cells.numbers)
            return
        n_present = int(cells.is_there.sum())
        self.n_missing += len(series) - n_present
        if self.looks_numeric and n_present:
            n_numbers = self._take_numbers(cells.numbers)
            self.n_others += n_present - n_numbers
            self.looks_numeric = 2 * n_numbers >= n_present

    def _take_numbers(self, values: Array) -> int:
        known = values[np.isfinite(values)]
        if len(known):
            self.n_numbers += len(known)
            self.low, self.high = min(self.low, float(known.min())), max(self.high, float(known.max()))
            self.is_whole &= bool((known == np.round(known)).all())
        return len(known)


class FrameSample:
    """A uniform sample of rows of a bounded size: those with the smallest of random numbers, one drawn for each row."""

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._seed, self.n_seen = size, seed, 0
        self._parts: list[tuple[Array, DataFrame]] = []  # rows of random number, file and row of the file; the cells
        self._bar = np.inf  # no row with a larger number can be kept
        self._names: dict[int, str] = {}

    def add(self, frame: DataFrame, rows: Index, file: int, origin: str) -> None:
        """Offer rows of a file by their numbers, in order; its name and the rows before decide their random numbers."""
        self._names[file] = Path(origin).name
        keys = row_keys(len(frame), self._seed, 7, origin, file, self.n_seen)
        self.n_seen += len(frame)
        good = keys < self._bar
        self._take([(np.column_stack([keys, np.full(len(keys), file), rows])[good], frame[good])])

    def merge(self, other: "FrameSample") -> None:
        """Add the sample of other files."""
        self.n_seen += other.n_seen
        self._names |= other._names
        self._take(other._parts)

    def _take(self, parts: list[tuple[Array, DataFrame]]) -> None:
        self._parts += [part for part in parts if len(part[0])]
        # Rarely, since it copies.
        if len(self._parts) > _MOST_PARTS or sum(len(places) for places, _ in self._parts) > _SPARE * self._size:
            self._draw()
            if len(self._parts[0][0]) == self._size:
                self._bar = float(self._parts[0][0][:, 0].max())

    def _draw(self) -> None:
        """Keep the rows with the smallest numbers, in the order of files, as one part."""
        keys = np.concatenate([places[:, 0] for places, _ in self._parts])
        is_kept = np.zeros(len(keys), dtype=bool)
        is_kept[np.argsort(keys, kind="stable")[: self._size]] = True
        ends = np.cumsum([len(places) for places, _ in self._parts])
        for i, kept in enumerate(np.split(is_kept, ends[:-1])):  # one after the other, so that few rows are held twice
            places, part = self._parts[i]
            self._parts[i] = places[kept], part[kept]
        columns, parts = self._parts[0][1].columns, [part for _, part in self._parts]
        if not all(part.dtypes.equals(parts[0].dtypes) for part in parts):
            # A column that is empty in a part takes the type that it has elsewhere.
            parts = [part.dropna(axis=1, how="all") for part in parts]
        whole = pd.concat(parts, ignore_index=True).reindex(columns=columns)
        places = np.concatenate([own for own, _ in self._parts])
        order = np.lexsort((places[:, 2], places[:, 1]))
        self._parts = [(places[order], whole.iloc[order])]  # which also joins the pieces of Arrow's columns

    @property
    def frame(self) -> DataFrame:
        """The rows in the order of the files; the index is the row number in the file, counted from 1."""
        self._draw()
        [(places, drawn)] = self._parts
        files, rows = places[:, 1].astype(np.int64).tolist(), places[:, 2].astype(np.int64) + 1
        named = [f"{row} of {self._names[file]}" for file, row in zip(files, rows.tolist(), strict=True)]
        return drawn.set_axis(pd.Index(rows if len(self._names) == 1 else named, name="row"))

    @property
    def is_complete(self) -> bool:
        """Whether the sample has every row."""
        return self.n_seen <= self._size


class HeldOutRows:
    """Rows that are not trained on, by a hash of their encoded values or of their cluster: copies stay together.

    ``share`` of all rows is held out, ``stacking_share`` of all to combine members on; the others are evidence. Of each
    kind at most ``most_rows`` are kept, as a random sample. ``n_training`` counts the other rows by cell of the target.
    """

    def __init__(
        self, share: float, stacking_share: float, target: str, clusters: str | None, seed: int, most_rows: int = 10**5
    ) -> None:
        self.share, self.clusters, self.seed = share, clusters, seed + _HOLD_OUT_SEED
        self._target, self.n_training = target, Counter[object]()
        self._evidence_share = share - stacking_share
        self.evidence, self.stacking = FrameSample(most_rows, self.seed), FrameSample(most_rows, self.seed + 1)

    @property
    def n_rows(self) -> int:
        """All held-out rows."""
        return self.evidence.n_seen + self.stacking.n_seen

    def split(self, frame: DataFrame, X: Array, file: int, origin: str) -> Bools:
        """Take the held-out rows of a frame, with their encoded values X; return which rows are to train on."""
        if self.clusters is not None:  # a number for each cell, the same for equal texts
            texts = as_text(frame[self.clusters]).fillna("").to_numpy(dtype=object)
            hashes = pd.util.hash_array(texts, categorize=False)  # most are different, so that groups take longer
            X = np.asarray((hashes >> np.uint64(12)).astype(np.float64)[:, None])
        shares = row_shares(X, self.seed)
        is_evidence, is_training = shares < self._evidence_share, shares >= self.share
        for rows, kept in ((is_evidence, self.evidence), (~is_evidence & ~is_training, self.stacking)):
            if rows.any():
                kept.add(frame[rows], np.flatnonzero(rows), file, origin)
        self.n_training.update(frame[self._target][is_training].value_counts().to_dict())
        return is_training


@dataclass
class TableSurvey:
    """Facts of one pass over a table."""

    columns: tuple[str, ...]  # names of the columns to learn from
    target: str  # name of the column of labels; rows without a label are skipped
    counted: frozenset[str] = frozenset()  # columns of numbers whose values are counted, too
    seed: int = 0  # of the sample
    sample_rows: int = SAMPLE_ROWS
    labels: Counter[object] = field(default_factory=Counter)  # rows of each label
    n_rows: int = 0  # with a label
    n_unlabelled: int = 0

    def __post_init__(self) -> None:
        self.facts = {name: ColumnFacts(counts={}) for name in self.columns}
        self.sample = FrameSample(self.sample_rows, self.seed)

    def add(self, frame: DataFrame, file: int, origin: str, start: int) -> None:
        """Add rows of a file, of which the first has the number ``start``."""
        known = frame[self.target].notna().to_numpy()
        rows, n_unlabelled = start + np.flatnonzero(known), int((~known).sum())
        frame = frame[known] if n_unlabelled else frame
        self.n_rows, self.n_unlabelled = self.n_rows + len(frame), self.n_unlabelled + n_unlabelled
        if not len(frame):
            return
        self.labels.update(frame[self.target].value_counts().to_dict())
        if len(self.labels) > _MOST_LABELS:
            message = f"the target {self.target} must have 2 to 50 different values: got more than {_MOST_LABELS}"
            raise InvalidInput(f"{message}; make them fewer first.")
        cells = TableCells(frame)
        cells.load(name for name, facts in self.facts.items() if facts.looks_numeric)
        for name, facts in self.facts.items():
            facts.add(cells[name], is_counted=name in self.counted)
        self.sample.add(frame[[*self.columns, self.target]], rows, file, origin)


FRAME_ROWS = 20_000
_TEXT_ROWS = 8192  # on which the words of a text column are learned
_FEWEST_FOR_IDS = 20  # numbers from which on it is tested whether a column numbers the rows


@dataclass
class LearnedColumns:
    """Encoded columns, columns that are left out, and notes for the user."""

    used: list[Column] = field(default_factory=list)
    dropped: list[DroppedColumn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def frames_of(
    table: Table, columns: Sequence[str], show: Callable[[float], None] = lambda share: None, n_rows: int = FRAME_ROWS
) -> Iterator[tuple[int, int, DataFrame]]:
    """All rows of a table in order, categories decoded: number of the file, first row there, and a frame."""
    n_read = 0
    for number in range(len(table.parts)):
        start = 0
        for frame in table.chunks(n_rows, columns, number):
            dtypes = {name: frame[name].dtype for name in columns}
            coded = {name: one.categories.dtype for name, one in dtypes.items() if isinstance(one, pd.CategoricalDtype)}
            yield number, start, frame.astype(coded) if coded else frame
            start, n_read = start + len(frame), n_read + len(frame)
            show(min(n_read / table.n_rows, 1.0) if table.n_rows else 0.0)


def survey_table(
    table: Table, survey: TableSurvey, show: Callable[[float], None] = lambda share: None, n_rows: int = FRAME_ROWS
) -> TableSurvey:
    """Read every file once, some rows at a time; ``survey`` is empty before."""
    for number, start, frame in frames_of(table, [*survey.columns, survey.target], show, n_rows):
        survey.add(frame, number, table.parts[number].name, start)
    return survey


def learn_columns(
    survey: TableSurvey,
    *,
    keep: Collection[str] = (),
    categorical: Collection[str] = (),
    declared: Collection[str] = (),
    seed: int = 0,
) -> LearnedColumns:
    """Kinds and what they remember: from the sample as `TableClassifier` learns them, set right by facts of all rows.

    ``declared`` are columns that their file declares to be categories; the seed is that of free text.
    """
    found = LearnedColumns()
    sample, is_complete = survey.sample.frame, survey.sample.is_complete
    for name in survey.columns:
        facts, cells = survey.facts[name], TableCells(sample[[name]])[name]
        if not is_complete:
            cells = _with_witnesses(cells, facts)
        if name in declared:
            cells = ColumnCells(cells.series.astype("category"))
        is_kept = name in keep or name in categorical
        how = {"is_kept": is_kept, "is_category": name in categorical, "seed": seed}
        reason = f"row number: {facts.n_numbers:,} whole numbers, none twice in a sample"
        is_number = not is_complete and not is_kept and _is_row_number(cells, facts)
        learnt = DroppedColumn(name, reason) if is_number else _learnt(cells, how)
        learnt = learnt if isinstance(learnt, DroppedColumn) else _set_right(learnt, facts, found.notes)
        if isinstance(learnt, DroppedColumn):
            found.dropped.append(learnt)
        else:
            found.used.append(learnt)
    if not found.used:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in found.dropped[:5])
        raise InvalidInput(f"no column is left to learn from ({reasons}).")
    if not is_complete:
        source = f"a random sample of {len(sample):,} of the {survey.n_rows:,} rows"
        note = f"column types, medians, date formats and words come from {source}"
        found.notes.append(f"{note}; categories, missing cells and ranges from all")
    return found


def _learnt(cells: ColumnCells, how: Mapping[str, Any]) -> Column | DroppedColumn:
    """As `learn_column`, with the words of free text from fewer rows: they take time and memory."""
    series, dtype = cells.series, cells.series.dtype
    is_text = pd.api.types.is_string_dtype(dtype) or pd.api.types.is_object_dtype(dtype)
    if len(series) <= _TEXT_ROWS or not is_text or cells.plain is not None:
        return kinds.learn_column(cells, **how)
    few = kinds.learn_column(ColumnCells(series.iloc[:: -(-len(series) // _TEXT_ROWS)]), **how)
    is_free = not isinstance(few, DroppedColumn) and few.kind == "text"
    return few if is_free else kinds.learn_column(cells, **how)


def _with_witnesses(cells: ColumnCells, facts: ColumnFacts) -> ColumnCells:
    """Cells of a sample; if all are equal, also rare values of all rows, which a sample may miss."""
    known = () if cells.plain is None else cells.plain[cells.is_there]
    if np.ptp(known) > 0.0 if len(known) else cells.n_values > 1:
        return cells
    others: list[object] = [facts.low, facts.high] if facts.n_numbers else []
    if facts.counts:
        is_bool = pd.api.types.is_bool_dtype(cells.series.dtype)
        others = [value == "True" if is_bool else value for value in facts.counts]
    more = pd.Series(others, name=cells.name)
    return ColumnCells(pd.concat([cells.series, more], ignore_index=True)) if others else cells


def _is_row_number(cells: ColumnCells, facts: ColumnFacts) -> bool:
    """Whether a column only numbers the rows: whole numbers in a narrow range, none twice in the sample."""
    n = facts.n_numbers
    is_narrow = n >= _FEWEST_FOR_IDS and facts.is_whole and facts.high - facts.low < 1.5 * n
    return is_narrow and not facts.n_others and bool(cells.series.dropna().is_unique)


def _set_right(column: Column, facts: ColumnFacts, notes: list[str]) -> Column | DroppedColumn:
    """A column learned from a sample, corrected by the facts of all rows."""
    has_missing = column.has_missing or facts.n_missing > 0
    if isinstance(column, CategoryColumn):
        if facts.counts:
            counts = pd.Series(facts.counts).sort_values(ascending=False)
            return kinds.category_column(column.name, counts, has_missing, column.note)
        notes.append(f"{column.name} has too many values to count; those of the sample have columns of their own")
    if isinstance(column, NumberColumn) and facts.looks_numeric and facts.n_others:
        has_missing = True  # cells that are no numbers, in rows that the sample does not have
    if isinstance(column, NumberColumn) and facts.n_numbers:
        low, high = map(float, kinds.clip_limits(np.array(facts.low), np.array(facts.high)))
        column = replace(column, low=min(low, column.low), high=max(high, column.high))
    return replace(column, has_missing=has_missing)


class FingerprintOfAll:
    """The `Fingerprint` of streamed rows: the smallest of their hashes with counts; a sample gives the rest."""

    def __init__(self, columns: list[Column], sample: DataFrame) -> None:
        self._columns, cells = columns, TableCells(sample)
        parts = stored_parts(columns, cells, Counter())
        content = np.sort(row_hashes(columns, cells, parts, 0)).tobytes()
        self._is_coarse = encoded_are_coarse(columns, cells, parts)
        self._salt = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") or 1
        self._hashes, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        self._limit = 2**64 - 1

    def add(self, table: TableCells, X: Array | list[LabelArray], rows: slice | Bools = slice(None)) -> None:
        """Add rows of a table and its encoding; cells are needed if a column is text."""
        hashes = row_hashes(self._columns, table, X, self._salt)[rows]
        hashes = np.append(self._hashes, hashes[hashes <= np.uint64(self._limit)])
        weights = np.append(self._counts, np.ones(len(hashes) - len(self._counts), dtype=np.int64))
        found, at = np.unique(hashes, return_inverse=True)
        self._hashes, self._counts = found[:MOST_HASHES], np.bincount(at, weights).astype(np.int64)[:MOST_HASHES]
        if len(found) > MOST_HASHES:
            self._limit = int(self._hashes[-1])

    def fingerprint(self) -> Fingerprint:
        """The fingerprint of all rows so far."""
        counts = self._counts[:, None]
        return Fingerprint.of_hashes(self._salt, self._hashes, counts, self._limit, is_coarse=self._is_coarse)


_TARGET = "target"
_FILE_GROUPS = 16  # row groups of a file: several files give the readers of a cluster work
_BLOCK_BYTES = 2**23  # encoded at a time
_BATCH_BYTES, _BATCH_SHARE = (2**21, 2**24), 1 / 64  # decoded at a time: small batches take time for each column


def stored_widths(columns: Sequence[Column]) -> list[int]:
    """Encoded columns of each stored column: categories are stored as codes."""
    widths = [(len(column.encoded_names), isinstance(column, CategoryColumn)) for column in columns]
    return [width for n, is_category in widths for width in ([n] if is_category else [1] * n)]


class EncodedRows(ArrowSource):
    """The rows that `write_encoded` wrote to a folder, as the network sees them."""

    def __init__(self, folder: Path, columns: Sequence[Column], open_bytes: float | None = None) -> None:
        self._widths = stored_widths(columns)
        batch_bytes = int(np.clip(_BATCH_SHARE * (np.inf if open_bytes is None else open_bytes), *_BATCH_BYTES))
        self._batch_rows = max(256, min(type(self)._batch_rows, batch_bytes // (8 * sum(self._widths))))
        super().__init__(folder, _TARGET, features=[str(j) for j in range(len(self._widths))], open_bytes=open_bytes)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(str(j) for j in range(sum(self._widths)))

    def _chunk(self, batch: RecordBatch, name: str) -> Chunk:
        X = np.zeros((batch.num_rows, sum(self._widths)), order="F")
        at = 0
        for stored, width in zip(self._features, self._widths, strict=True):
            values = numbers_of(batch.column(stored))
            if width == 1:
                X[:, at] = values
            else:
                rows = np.flatnonzero(values >= 0)
                X[rows, at + values[rows]] = 1.0
            at += width
        return Chunk(X, labels_of(batch.column(_TARGET), _TARGET, name), np.ones(batch.num_rows), name)


def encoded_blocks(columns: Sequence[Column], frame: DataFrame) -> Iterator[tuple[DataFrame, Array]]:
    """Rows of a frame and their encoded values, a few megabytes at a time."""
    n_rows = max(256, _BLOCK_BYTES // (8 * sum(len(column.encoded_names) for column in columns)))
    for start in range(0, len(frame), n_rows):
        part = frame.iloc[start : start + n_rows]
        yield part, kinds.encode_table(columns, TableCells(part)).X


def write_encoded(
    table: Table,
    columns: Sequence[Column],
    target: str,
    labels: Mapping[object, object],
    folder: Path,
    use: Callable[[TableCells, list[LabelArray], int], slice | Bools] = lambda table, parts, file: slice(None),
    show: Callable[[float], None] = lambda share: None,
    also: Sequence[str] = (),
    *,
    frame_rows: int,
    group_rows: int,
) -> dict[str, int]:
    """Write all rows with a label to an empty folder, as Parquet files of numbers and the label.

    ``labels`` maps cells of the target to labels. ``use`` takes the rows with a label, `stored_parts` of them and the
    number of their file; it returns which ones to write. ``also`` names further columns for it. At
    most ``frame_rows`` rows are encoded at a time; a row group has about ``group_rows``.

    Returns cells by column that are not of its kind, and were taken as missing.
    """
    unreadable: Counter[str] = Counter()
    names = [*(column.name for column in columns), target, *also]

    def tables() -> Iterator[ArrowTable]:
        for number, _, frame in frames_of(table, names, show, frame_rows):
            known = frame[target].notna()
            frame = frame if known.all() else frame[known].reset_index(drop=True)
            if not len(frame):
                continue
            cells = TableCells(frame)
            parts = stored_parts(columns, cells, unreadable)
            rows = use(cells, parts, number)
            at, values = pd.factorize(frame[target][rows])
            y = pa.array([labels[cell] for cell in values.tolist()]).take(pa.array(at))
            stored = chain.from_iterable(part.T if part.ndim > 1 else [part] for part in parts)
            if len(y):
                yield pa.table({**{str(j): part[rows] for j, part in enumerate(stored)}, _TARGET: y})

    with kept_in(folder, "the encoded rows", "use a larger disk (TMPDIR, or storage)"):
        _write(tables(), folder, group_rows)
    return dict(+unreadable)


def stored_parts(columns: Sequence[Column], table: TableCells, unreadable: Counter[str]) -> list[LabelArray]:
    """Encoded columns of each column, (n, k), or the places of a category, (n,); counts cells not of their kind."""
    table.load(column.name for column in columns if column.kind == "number")
    parts: list[LabelArray] = []
    for column in columns:
        if isinstance(column, CategoryColumn) and len(column.encoded_names) > 1:
            parts.append(column.places(table[column.name])[0].astype(np.int32))
        else:
            found = column.encode(table[column.name])
            parts.append(found.values)
            unreadable[column.name] += found.odd.get("unreadable", 0)
    return parts


def _write(tables: Iterator[ArrowTable], folder: Path, group_rows: int) -> None:
    """Write tables of any length as row groups of a few files."""

    def groups() -> Iterator[ArrowTable]:
        waiting: list[ArrowTable] = []
        for table in chain(tables, [None]):
            waiting += [] if table is None else [table]
            if waiting and (table is None or sum(map(len, waiting)) >= group_rows):
                yield pa.concat_tables(waiting)
                waiting = []

    found = groups()
    for number, first in enumerate(found):
        how = {"use_dictionary": False, "compression": "lz4"}  # takes half of the time, and more of the disk
        with pq.ParquetWriter(folder / f"rows-{number:05d}.parquet", first.schema, **how) as file:
            for group in chain([first], islice(found, _FILE_GROUPS - 1)):
                file.write_table(group, row_group_size=len(group))
