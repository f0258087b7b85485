"""split_table: a file in two, one for training and one for testing."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import ReadOptions
from crcen._support.files import atomic_file, write_atomic
from crcen._support.lazy import model_selection, pq
from crcen._support.progress import busy, logged
from crcen._support.text import Values, attributes, listed_counts, plural
from crcen.commands import inputs
from crcen.commands.inputs import MOST_CLASSES, Data, check, is_share, require, require_input
from crcen.commands.results import Result, note_lines
from crcen.tables.cells import ColumnCells
from crcen.tables.columns import why_codes, why_numbering, why_repeating
from crcen.tables.fingerprint import are_coarse
from crcen.tables.leaks import Duplicates
from crcen.tables.locations import format_of_name
from crcen.tables.reading import Table, open_table
from crcen.tables.writing import TableWriter
from crcen.theory.rows import Bools, Hashes, Index

Codes = NDArray[np.int8]  # the value of the target of each row, by position

_CHUNK_ROWS = 50_000
# Tables with fewer cells stay in memory between the two passes.
_MOST_CELLS = 20_000_000
# With this many expected test rows of the rarest class, rows are drawn without regard to the class.
_ENOUGH_TEST_ROWS = 50
_LARGE = 0.01  # share of all rows; so many equal rows are drawn one by one, as the files would differ by them
_RECORD_BYTES = 2**20  # of the test file, in the record of a stratified split next to it


@dataclass(frozen=True, repr=False)
class TableSplit(Result):
    """Two files from one; prints itself."""

    train: Path
    test: Path
    target: str
    how: str  # rows were chosen
    counts: dict[str, tuple[int, int]]  # rows of each value of the target in both files; "no value" without one
    duplicates: Duplicates
    option: str = ""  # of `crcen fit`, which validates in the same way
    is_stratified: bool = False  # class counts of the test rows were fixed, which is recorded next to the test file
    notes: tuple[str, ...] = ()

    @property
    def n_rows(self) -> tuple[int, int]:
        """Rows of the two files."""
        train, test = (sum(two[i] for two in self.counts.values()) for i in range(2))
        return train, test

    def to_dict(self) -> Values:
        """Plain values, ready for JSON."""
        found = attributes(self, "target how stratified=is_stratified duplicates notes")
        for i, (name, path) in enumerate((("train", self.train), ("test", self.test))):
            labels = {label: two[i] for label, two in self.counts.items()}
            found[name] = {"path": str(path), "rows": self.n_rows[i], "labels": labels}
        return found

    def __str__(self) -> str:
        evaluation = self.option if self.option.startswith(" --clusters") else ""
        evaluation += " --stratified" if self.is_stratified else ""
        lines = [f"Split {self.how}"]
        for i, path in enumerate((self.train, self.test)):
            shown = listed_counts(((label, two[i]) for label, two in self.counts.items()), most=12)
            lines.append(f"  {path}: {plural(self.n_rows[i], 'row')}; {self.target}: {shown}")
        lines += [
            *inputs.duplicate_lines(self.duplicates),
            *note_lines(self.notes),
            "Next:",
            f"  crcen fit {quote(str(self.train))} --target {quote(self.target)}{self.option} --out model.crcen",
            f"  crcen evaluate model.crcen {quote(str(self.test))}{evaluation}",
        ]
        return "\n".join(lines)


@logged
def split_table(
    data: Data,
    *,
    target: str,
    test: float = 0.25,
    clusters: str | None = None,
    time: str | None = None,
    random_state: int = 0,
    folder: str | Path | None = None,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableSplit:
    """Split a file into training and test rows: what `crcen split` does.

    The files are named as ``data``, with ``_train`` and ``_test`` appended; rows stay in their order. Tables of over
    twenty million cells are read twice, in chunks. Rows are drawn at random; if fewer than 50 test rows of the rarest
    value are expected, each value of the target has the same share in both files. Copies of a row stay in one file.

    Parameters
    ----------
    data : str, Path, list of them, or data frame
        The table. Cells of text tables are unchanged, missing ones empty, but decimal commas become points. Databases
        and frames become Parquet.
    target : str
        Column with the label.
    test : float, default=0.25
        Share of test rows, between 0 and 1.
    clusters, time : str, optional
        Column whose equal values stay in one file, or of dates or numbers: the latest rows are test rows.
    random_state : int, default=0
        Seed.
    folder : str or Path, optional
        Where to write; by default the folder of the file, else the current one. Existing files are not replaced.
    read, verbose
        As in `crcen.fit_table`.
    """
    check("test", test, is_share(test), "be a share between 0 and 1")
    both = "clusters= and time= are two ways to split: give one of them."
    require(clusters is None or time is None, both, "clusters", "time")
    check("random_state", random_state, not (time and random_state), "be left out with time=", "time")
    table = open_table(data, read)
    inputs.check_column(target, table, "the target")
    inputs.role_columns(table, target, {"clusters": clusters, "time": time})
    train, kept = _places(table, None if folder is None else Path(folder))
    chunks: Callable[[], Iterable[pd.DataFrame]] = partial(table.chunks, _CHUNK_ROWS)
    with busy("reading the table", visible=bool(verbose)):
        if table.n_rows is not None and table.n_rows * len(table.columns) <= _MOST_CELLS:
            chunks = partial(list, [*chunks()])
        survey = _survey(table.name, chunks(), target, clusters or time)
    codes, labels = survey.codes, [*survey.labels, "no value"]
    count = partial(Duplicates.of, survey.hashes, codes.astype(np.int64), labels, is_coarse=survey.is_coarse)
    found, members = count(), None
    units = np.bincount(codes, minlength=len(labels))[:-1]
    if found.n_copies and not found.is_coarse and clusters is None and time is None:
        rows, sizes = np.unique(survey.hashes, return_inverse=True, return_counts=True)[1:]
        rows = np.where(sizes[rows] > max(2, _LARGE * len(rows)), len(sizes) + np.arange(len(rows)), rows)
        rows = np.unique(rows, return_inverse=True)[1]
        different = np.bincount(np.unique(rows * len(labels) + codes) % len(labels), minlength=len(labels))[:-1]
        members, units = (rows, different) if different.min() > 1 else (None, units)
    is_stratified = time is None and test * units.min() < _ENOUGH_TEST_ROWS
    if time is not None:
        is_test, how = _latest(survey.cells, test, time)
    elif clusters is not None:
        is_test, how = _whole_clusters(survey, test, random_state, clusters, target, is_stratified)
    else:
        is_test, how = _drawn(survey, test, random_state, target, is_stratified, members)
    _check_labels(survey, is_test, target, "time" if time else "clusters" if clusters else "test")
    with busy("writing both files", visible=bool(verbose)):
        _write(table, chunks(), is_test, train, kept)
    by_file = [np.bincount(codes[part], minlength=len(labels)).tolist() for part in (~is_test, is_test)]
    counts = {label: two for label, two in zip(labels, zip(*by_file, strict=True), strict=True) if any(two)}
    option = f" --clusters {quote(clusters)}" if clusters else f" --time {quote(time)}" if time else ""
    if is_stratified:
        write_atomic(_place_of_record(kept), json.dumps(_record(kept, target)))
    notes = [*table.notes, *([survey.repeating] if survey.repeating and clusters is None else [])]
    return TableSplit(train, kept, target, how, counts, count(is_test), option, is_stratified, tuple(notes))


def was_stratified(table: Table, target: str) -> bool:
    """Whether `split_table` wrote this file with fixed class counts, and it has not changed since."""
    if table.file is None:
        return False
    path = Path(table.file.path)
    try:
        return bool(json.loads(_place_of_record(path).read_bytes()) == _record(path, target))
    except (OSError, ValueError):
        return False


def _place_of_record(path: Path) -> Path:
    return path.with_name(f"{path.name}.split.json")


def _record(path: Path, target: str) -> Values:
    """What is recorded of a stratified file: its target, and a hash of its size and first bytes."""
    with open(path, "rb") as file:
        start = file.read(_RECORD_BYTES)
    content = hashlib.blake2b(start + str(path.stat().st_size).encode(), digest_size=16).hexdigest()
    return {"stratified": True, "target": target, "content": content}


def _places(table: Table, folder: Path | None) -> tuple[Path, Path]:
    name = Path(table.name if table.file is None else table.file.path).name
    suffix, compression = format_of_name(name)
    endings = "".join(Path(name).suffixes[-1 - (compression is not None and suffix != "") :])
    stem = name.removesuffix(endings) if endings else name
    stem = re.sub(r"\W+", "_", stem) if table.file is None else stem
    if table.kind == "text":
        endings = endings if suffix in (".csv", ".tsv", ".tab") else ".csv"
    elif table.kind == "workbook":
        endings = ".xlsx"
    elif table.file is None or not endings:
        endings = ".parquet"
    if folder is None:
        folder = Path() if table.file is None else Path(table.file.path).parent
    require(folder.is_dir(), f"folder must be an existing folder: got {folder}.", "folder")
    places = folder / f"{stem}_train{endings}", folder / f"{stem}_test{endings}"
    for place in (*places, _place_of_record(places[1])):
        there = f"{place} exists, and split does not replace files: move it, or use folder=."
        require(not place.exists(), there, "folder")
    return places


class _Survey(NamedTuple):
    """Of each row its label as a code (the last one: no value), a hash, and the cell of another column."""

    codes: Codes
    labels: list[str]
    hashes: Hashes
    is_coarse: bool
    cells: pd.Series
    repeating: str  # a statement if a column repeats like an identifier


def _survey(name: str, chunks: Iterable[pd.DataFrame], target: str, other: str | None) -> _Survey:
    found: dict[str, int] = {}
    codes, others, hashes, skipped, is_coarse, repeating = [], [], [], None, True, ""
    for chunk in chunks:
        cells = chunk[target].astype("string").str.strip()
        for label in cells.dropna().unique():
            found.setdefault(str(label), len(found))
        too_many = f"the target {target} must have a few different values: got more than {MOST_CLASSES}"
        require_input(len(found) <= MOST_CLASSES, f"{too_many}; is it the label?")
        codes.append(cells.map(found).fillna(-1).to_numpy(dtype=np.int8))
        if other:
            others.append(chunk[other])
        if skipped is None:
            columns = [chunk[name] for name in chunk.columns if name != target]
            kinds = ["number" if pd.api.types.is_numeric_dtype(one.dtype) else "category" for one in columns]
            repeating = next(filter(None, map(why_repeating, map(ColumnCells, columns), kinds)), "")
            skipped = [target, *(one for one in chunk.columns if _numbers_rows(one, chunk[one]))]
            is_coarse = are_coarse([one for one in chunk.columns if one not in skipped], partial(_hashes, chunk))
        hashes.append(_hashes(chunk.drop(columns=skipped)))
    code = np.concatenate(codes) if codes else np.empty(0, dtype=np.int8)
    inputs.class_labels(found, target, None, name, int((code < 0).sum()))
    code = np.where(code < 0, len(found), code).astype(np.int8)
    cells = pd.concat(others, ignore_index=True) if other else pd.Series(dtype=object)
    # Without equal rows in the first chunk, chance explains at most a few among as many pairs of rows.
    n, first, n_different = len(code), hashes[0], len(pd.unique(np.concatenate(hashes)))
    can_compare = skipped is not None and len(skipped) < chunk.shape[1]
    if can_compare and len(pd.unique(first)) == len(first) and n - n_different > 10.0 * (n / len(first)) ** 2:
        is_coarse = False
    return _Survey(code, list(found), np.concatenate(hashes), is_coarse, cells, repeating)


def _numbers_rows(name: str, cells: pd.Series) -> bool:
    """Whether a column only numbers or names the rows, so that copies of a row differ in it."""
    present = cells.dropna()
    n_values = len(np.unique(_hashes(present.to_frame())))
    if not n_values or n_values < len(present):
        return False
    numbers = pd.to_numeric(present, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isfinite(numbers).all():
        return bool(why_numbering(name, numbers))
    return bool(why_codes(name, present.astype(str), n_values, is_amount=False))


def _hashes(frame: pd.DataFrame, columns: Sequence[str] | None = None) -> Hashes:
    """A hash of each row by these columns; of rows without any column their number, as nothing can be compared."""
    frame = frame if columns is None else frame[list(columns)]
    if not frame.shape[1]:
        return np.arange(len(frame), dtype=np.uint64)
    try:
        return pd.util.hash_pandas_object(frame, index=False).to_numpy()
    except TypeError:  # lists or records
        return pd.util.hash_pandas_object(frame.astype(str), index=False).to_numpy()


def _drawn(
    survey: _Survey, test: float, seed: int, target: str, is_stratified: bool, members: Index | None
) -> tuple[Bools, str]:
    """Test rows at random, and how they were chosen; a member stays together, with its rarest label."""
    strata, names, rng = survey.codes.astype(np.int64), survey.labels, np.random.default_rng(seed)
    if not is_stratified:
        strata, names = np.zeros_like(strata), []
    elif members is not None:
        ranks = np.argsort(np.argsort(np.bincount(strata, minlength=len(names) + 1)))
        rarest = np.full(members.max() + 1, len(ranks))
        np.minimum.at(rarest, members, ranks[strata])
        strata = np.argsort(ranks)[rarest[members]]
    is_test = np.zeros(len(strata), dtype=bool)
    for code in range(strata.max() + 1):
        rows = np.flatnonzero(strata == code)
        n, is_label = round(test * len(rows)), code < len(names)
        if members is not None:
            is_test[rows] = _some_of(members[rows], n, rng) if len(rows) else False
        else:
            each = f"the target {target} needs at least 2 rows of each value, one for each file"
            require_input(not is_label or len(rows) >= 2, f"{each}: got 1 of {(*names, '')[code]}.")
            is_test[rng.choice(rows, min(max(n, 1), len(rows) - 1) if is_label else n, replace=False)] = True
    how = f"at random, {_percent(is_test)} test rows"
    how += f", each value of {target} in {'about ' * (members is not None)}the same share" if is_stratified else ""
    return is_test, how + (", copies of a row in the same file" if members is not None else "")


def _some_of(members: Index, n: float, rng: np.random.Generator) -> Bools:
    """About n rows of whole members, of at least one and not of all."""
    members, sizes = np.unique(members, return_inverse=True)[1], np.unique(members, return_counts=True)[1]
    order = rng.permutation(len(sizes))
    n_chosen = int(np.abs(np.cumsum(sizes[order]) - n).argmin()) + 1
    return np.isin(members, order[: min(max(n_chosen, 1), len(sizes) - 1)])


def _whole_clusters(
    survey: _Survey, test: float, seed: int, clusters: str, target: str, is_stratified: bool
) -> tuple[Bools, str]:
    """Test rows at random, whole clusters, and how they were chosen."""
    codes, is_test = survey.codes, np.zeros(len(survey.codes), dtype=bool)
    members, names = pd.factorize(survey.cells, use_na_sentinel=False)
    require_input(len(names) >= 2, f"clusters must have at least two different values: {clusters} has one.", "clusters")
    if is_stratified:
        parts = max(2, round(1.0 / min(test, 1.0 - test)))
        splitter = model_selection.StratifiedGroupKFold(min(parts, len(names)), shuffle=True, random_state=seed)
        is_test[next(splitter.split(codes, codes, members))[1]] = True
        is_test = ~is_test if test > 0.5 else is_test
    else:
        is_test = _some_of(members, test * len(codes), np.random.default_rng(seed))
    alike = f", values of {target} in about the same shares" if is_stratified else ""
    return is_test, f"by {clusters}, each of its values in one file, {_percent(is_test)} test rows{alike}"


def _latest(cells: pd.Series, test: float, time: str) -> tuple[Bools, str]:
    lacks = f"{time} lacks {int(cells.isna().sum())}; fill them or drop the rows."
    require_input(cells.notna().all(), f"time must have a value in each row: {lacks}", "time")
    when = inputs.times_of(cells, time)
    order = np.sort(when)
    is_test = when >= order[min(len(order) - 1, round((1.0 - test) * len(order)))]
    return is_test, f"by {time}, the latest {_percent(is_test)} are test rows"


def _check_labels(survey: _Survey, is_test: Bools, target: str, option: str) -> None:
    for part, name in ((~is_test, "training"), (is_test, "test")):
        for i, label in enumerate(survey.labels):
            absent = f"{option}= leaves no {name} row of {target} = {label}"
            hint = "try another share with test=, or another column."
            require_input((survey.codes[part] == i).any(), f"{absent}: {hint}", option, "test")


def _percent(is_test: Bools) -> str:
    return f"{100.0 * is_test.mean():.3g} %"


def _write(table: Table, chunks: Iterable[pd.DataFrame], is_test: Bools, train: Path, test: Path) -> None:
    """Both files in one pass, in the format of the table; Parquet keeps its types."""
    start, parts, both = 0, chunks, (train, test)
    with ExitStack() as opened:
        if is_parquet := table.kind == "parquet" and table.file is not None and not table.options.to_remember:
            parquet = opened.enter_context(pq.ParquetFile(table.file.path))
            places = [opened.enter_context(atomic_file(place)) for place in both]
            writers = [opened.enter_context(pq.ParquetWriter(place, parquet.schema_arrow)) for place in places]
            parts = parquet.iter_batches(_CHUNK_ROWS)
        else:
            writers = [opened.enter_context(TableWriter(place)) for place in both]
        for part in parts:
            rows = is_test[start : start + len(part)]
            start += len(part)
            for writer, chosen in zip(writers, (~rows, rows), strict=True):
                writer.write(part.filter(chosen) if is_parquet else part[chosen])
