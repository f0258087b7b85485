"""inspect_table: columns, gaps and signs of leaks in a table before a fit."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from shlex import quote
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crcen import InvalidInput, TableClassifier
from crcen._support.progress import busy, logged
from crcen._support.text import Values, attributes, json_value, listed, listed_counts, plural
from crcen.commands import inputs
from crcen.commands.inputs import MOST_CLASSES, Data, Label, Source, require, require_input
from crcen.tables.cells import ColumnCells, TableCells, placeholder_words, sentinels
from crcen.tables.columns import Column, DateColumn, NumberColumn, blocks_of, encode_table
from crcen.tables.leaks import Cells, Signs, cells_of, find_signs, separations
from crcen.tables.locations import ReadOptions
from crcen.theory.intervals import Interval, share_interval
from crcen.theory.limits import FEWEST_OF_A_CLASS, FEWEST_POSITIVES, LEAK_AREA
from crcen.theory.rows import Array, ShownInOneLine, four_digits, short

# Rows that single columns are ranked on, and examples of cells that are shown.
_MOST_ROWS, _EXAMPLES, _LONGEST, _LONGEST_NAME = 20_000, 3, 24, 32
# Rows from which kinds, values and examples of columns are learned.
_MOST_DESCRIBED = 200_000


@dataclass(frozen=True)
class ColumnLook:
    """One column."""

    name: str
    kind: str  # number, boolean, category, date, text, or left out
    n_missing: int
    n_values: int  # different ones
    examples: tuple[str, ...]  # most frequent values; for numbers the minimum, the median and the maximum
    plan: str  # what a fit would do with it
    note: str = ""  # how it was read, if that is not obvious: money as text, another decimal mark
    area: float = math.nan  # under the ROC curve of the column alone; NaN without a target and if left out

    @property
    def is_suspect(self) -> bool:
        """Whether the column alone nearly separates the classes, as values recorded after the event do."""
        return self.area >= LEAK_AREA

    def cells(self, n_rows: int) -> tuple[str, ...]:
        """The cells of its line of a table, of a column in so many rows."""
        missing = f"{100 * self.n_missing / max(n_rows, 1):.3g} %" if self.n_missing else "–"
        area = "–" if math.isnan(self.area) else f"{self.area:.3f}"
        shown = ""
        if self.kind == "number" and self.examples:
            shown = f"; from {self.examples[0]} to {self.examples[2]}, median {self.examples[1]}"
        elif self.examples and self.kind != "left out":
            shown = f"; such as {', '.join(self.examples)}"
        note = f" ({self.note})" if self.note else ""
        name = short(self.name, _LONGEST_NAME)
        return name, self.kind, missing, f"{self.n_values:,}", area, f"{self.plan}{shown}{note}"


@dataclass(frozen=True, eq=False, repr=False)
class TableLook(ShownInOneLine):
    """A table before a fit; prints itself."""

    data: str
    n_rows: int  # with a target, those with a label
    columns: tuple[ColumnLook, ...]  # in the order of the table, without the target
    target: str | None = None
    counts: Mapping[Label, int] = field(default_factory=dict)  # rows of each label, the rarest first
    notes: tuple[str, ...] = ()
    # Numbers such as -200, and words such as "unknown" and "?", that may stand for a missing value: by column, with the
    # number of their cells.
    sentinels: Mapping[str, Mapping[float, int]] = field(default_factory=dict)
    placeholders: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    signs: Signs = field(default_factory=Signs)  # with a target
    shares: Mapping[Label, Interval] = field(default_factory=dict)  # of labels among all rows, by audit probabilities
    clusters: Values | None = None  # column, number, most rows, clusters of several classes, rows without one

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {
            **attributes(self, "data rows=n_rows target"),
            "labels": [{"label": json_value(label), "rows": n} for label, n in self.counts.items()],
            "columns": [{**json_value(one), "suspect": one.is_suspect} for one in self.columns],
            "suspects": [one.name for one in self.columns if one.is_suspect],
            "sentinels": {
                name: [{"value": value, "cells": n} for value, n in found.items()]
                for name, found in self.sentinels.items()
            },
            **attributes(self, "placeholders"),
            **self.signs.to_dict(),
            **attributes(self, "clusters shares notes"),
        }

    def __str__(self) -> str:
        size = f"{plural(self.n_rows, 'row')}, {plural(len(self.columns), 'column')}"
        lines = [f"{self.data}: {size}{self._labels()}", ""]
        has_area = any(not math.isnan(one.area) for one in self.columns)
        head = ("column", "kind", "missing", "values", "area", "use in a fit")
        table = [head, *(one.cells(self.n_rows) for one in self.columns)]
        width = max(len(cells[0]) for cells in table)
        for name, kind, missing, values, area, plan in table:
            shown = f" {area:>6}" if has_area else ""
            lines.append(f"{name:<{width}}  {kind:<9} {missing:>8} {values:>8}{shown}  {plan}")
        if has_area:
            best = ", for the class with the largest one" if len(self.counts) > 2 else ""
            lines += ["", f"area: ROC area of the column alone{best}; 0.5 = no information"]
        if self.shares:
            shown = listed((f"{label} {share}" for label, share in self.shares.items()), most=6)
            lines += ["", f"Estimated shares among all rows, by audit probabilities: {shown}"]
        if self.clusters is not None:
            name, number, largest, mixed, missing = self.clusters.values()
            several = "" if mixed is None else f"; {mixed:,} have rows of several classes"
            several += f"; fit leaves out {plural(missing, 'row')} without a value" if missing else ""
            lines += ["", f"Clusters of {name}: {number:,} of up to {plural(largest, 'row')}{several}"]
        lines += [f"Note: {note}." for note in self.notes]
        is_plain = self.signs.duplicates.is_coarse and self.signs.duplicates.label is None
        return "\n".join([*lines, *(inputs.duplicate_lines(self.signs.duplicates) if is_plain else [])])

    def _labels(self) -> str:
        if not self.counts:
            return ""
        if len(self.counts) > MOST_CLASSES:
            return f"; {self.target}: {len(self.counts):,} values"
        (rare, few), *_ = self.counts.items()
        ratio = f"; 1 row in {self.n_rows / few:,.0f} is {rare}" if len(self.counts) > 1 else ""
        return f"; {self.target}: {listed_counts(self.counts.items(), most=6)}{ratio}"


@logged
def inspect_table(
    data: Data,
    *,
    target: str | None = None,
    positive: Label | None = None,
    drop: str | Sequence[str] = (),
    keep: Sequence[str] = (),
    categorical: Sequence[str] = (),
    clusters: str | None = None,
    audit_probability: str | None = None,
    random_state: int = 0,
    read: ReadOptions | None = None,
    verbose: int = 0,
) -> TableLook:
    """Summarise a table before a fit, as `crcen look` does.

    Parameters
    ----------
    data, drop, keep, categorical, read
        As in `crcen.fit_table`.
    target : str, optional
        Column with the labels; columns that alone nearly separate the classes are then reported.
    positive : label, optional
        The positive label; without it the target may have up to fifty labels, and each is compared with the rest.
    clusters : str, optional
        Column of rows that belong together, such as a patient; no input.
    audit_probability : str, optional
        Column with the probability that a row was selected for a label. Shares and areas are then weighted by
        1 / probability, and rows without a label are unlabelled, not negative.
    random_state, verbose : int, default=0
        Seed of the samples for the areas of single columns; 1 shows progress on a terminal.
    """
    source = inputs.source_of(data, read)
    with busy("inspecting the table", visible=bool(verbose)):
        rows = _rows(source, target, positive, audit_probability, clusters)
        reasons = dict.fromkeys([drop] if isinstance(drop, str) else drop, "asked for")
        roles = {"audit_probability": audit_probability, "clusters": clusters}
        reasons |= {name: inputs.ROLES[role] for role, name in roles.items() if name is not None}
        reader = TableClassifier(drop=reasons, keep=keep, categorical=categorical, random_state=random_state)
        every = table = TableCells(rows.frame)
        if len(every) > _MOST_DESCRIBED:
            at = np.sort(np.random.default_rng(random_state).choice(len(every), _MOST_DESCRIBED, replace=False))
            table = TableCells(rows.frame.iloc[at])
            sampled = f"columns are described by a random sample of {_MOST_DESCRIBED:,} rows"
            rows.notes.append(f"{sampled}; missing cells and labels are counted in all")
        try:
            reader.learn_columns(table)
        except InvalidInput:  # a table without any usable column is a result here
            if not getattr(reader, "dropped_", []):
                raise
        areas, signs = _areas(reader, every, rows, random_state), Signs()
        columns = _columns(reader, table, every, areas)
        if rows.numbers is not None:
            signs = find_signs(reader.columns_, every, rows.numbers, list(rows.counts), reader.dropped_)
    related = None if clusters is None else _clusters(clusters, rows)
    notes, named = [*rows.notes, *signs.notes], {name for one in signs.leaks for name in one.columns}
    if suspects := [one.name for one in columns if one.is_suspect and one.name not in named]:
        said = f"{listed(suspects, 5)} nearly separate{'s' if len(suspects) == 1 else ''} the classes alone"
        notes.append(f"{said}: check what is recorded after the event, and drop it")
    odd, words = _placeholders(reader, table, source.marks)
    if odd:
        cells = [(name, value, n) for name, found in odd.items() for value, n in found.items()]
        shown = listed(f"{name} {value:g} ({plural(n, 'cell')})" for name, value, n in cells)
        advice = f"treat them as missing with --missing {quote(cells[0][0])}={cells[0][1]:g}"
        notes.append(f"numbers that may stand for a missing value: {shown}; {advice}")
    if words:
        shown = listed(f'{name} "{word}" ({n:,})' for name, found in words.items() for word, n in found.items())
        notes.append(f"words that may stand for a missing value: {shown}")
    found = (tuple(notes), odd, words, signs, rows.shares, related)
    return TableLook(source.name, len(rows.frame), columns, target, rows.counts, *found)


def _clusters(name: str, rows: "_Rows") -> Values:
    is_known, mixed = rows.frame[name].notna().to_numpy(), None
    numbers = inputs.cluster_numbers(rows.frame[name][is_known])
    if rows.numbers is not None:
        pairs = np.unique(numbers * len(rows.counts) + rows.numbers[is_known])
        mixed = int((np.bincount(pairs // len(rows.counts)) > 1).sum())
    sizes, n_missing = np.bincount(numbers), int((~is_known).sum())
    largest = int(sizes.max(initial=0))
    return {"column": name, "number": len(sizes), "largest": largest, "mixed": mixed, "missing": n_missing}


def _placeholders(
    reader: TableClassifier, table: TableCells, marks: Mapping[tuple[str, str], int]
) -> tuple[dict[str, dict[float, int]], dict[str, dict[str, int]]]:
    """Numbers and words that may stand for a missing cell, by column."""
    numbers = [column for column in reader.columns_ if isinstance(column, NumberColumn)]
    odd, words = {one.name: sentinels(one.read(table[one.name])) for one in numbers}, _far_dates(reader, table)
    read: dict[str, dict[str, int]] = {}
    for (name, word), n in marks.items():
        read.setdefault(name, {})[word] = n
    for name in map(str, table.frame.columns):
        cells = table[name]
        if name in read or (cells.plain is None and cells.is_text):
            with suppress(TypeError):  # lists or records
                words[name] = {**words.get(name, {}), **placeholder_words(cells.counts, read.get(name, {}))}
    return {name: one for name, one in odd.items() if one}, {name: one for name, one in words.items() if one}


def _far_dates(reader: TableClassifier, table: TableCells) -> dict[str, dict[str, int]]:
    """Dates that repeat far from all others, such as 9999-12-31, by column."""
    found = {}
    for column in (one for one in reader.columns_ if isinstance(one, DateColumn)):
        cells, days = table[column.name], column.read(table[column.name])
        at = {day: int(np.argmax(days == day)) for day in sentinels(days)}
        found[column.name] = {str(cells.series.iloc[i]): int((days == day).sum()) for day, i in at.items()}
    return found


class _Rows(NamedTuple):
    """Rows without the target; the class of each as an index of ``counts``, and weights if audited."""

    frame: pd.DataFrame
    counts: dict[Label, int]
    notes: list[str]
    numbers: NDArray[np.int64] | None = None
    weights: Array | None = None
    shares: Mapping[Label, Interval] = {}


def _rows(
    source: Source, target: str | None, positive: Label | None, audited: str | None, clusters: str | None
) -> _Rows:
    other = f"audit_probability= needs target=, another column: got {target!r}."
    require(audited is None or target not in (None, audited), other, "audit_probability", "target")
    require(positive is None or target is not None, "positive= needs target=, its column.", "positive", "target")
    inputs.role_columns(source, target, {"audit_probability": audited, "clusters": clusters})
    frame, notes = source.numbered(), source.notes
    if target is None:
        require_input(len(frame), f"{source.name} has no rows.")
        return _Rows(frame, {}, notes)
    inputs.check_column(target, source, "the target")
    values = frame[target].dropna().astype(str).value_counts()
    is_alone = len(values) == 2 and values.min() == 1
    if positive is None and (is_alone or not 2 <= len(values) <= MOST_CLASSES):
        require_input(len(values), f"{source.name} has no row with a value of {target}.")
        instead = "rows of another class are needed" if len(values) < 2 else "name the one to find with --positive"
        unfit = f"{target} has {plural(len(values), 'value')}, and classes are 2 to {MOST_CLASSES}: {instead}"
        notes.append(f"{target} has 1 row of {values.idxmin()}, and a fit needs 2 of each class" if is_alone else unfit)
        known = frame[frame[target].notna()].drop(columns=target)
        return _Rows(known, dict(values.sort_values(kind="stable").items()), notes)
    if audited is not None:
        frame[audited] = inputs.audit_probabilities(frame, audited, frame[target].notna().to_numpy())
    rows = inputs.rows_of(source, target, positive, frame=frame, is_audited=audited is not None)
    names, numbers, sizes = np.unique(rows.y.to_numpy(), return_inverse=True, return_counts=True)
    order = np.lexsort((-np.arange(len(sizes)), sizes))  # the rarest first; on a tie the last, as in a fit
    counts = {names[i]: int(sizes[i]) for i in order}
    place, wanted = np.argsort(order), list(counts)
    if len(names) == 2:
        wanted = [wanted[0] if rows.positive is None else rows.positive]
        rows.notes.extend(inputs.why_positive(wanted[0], counts[wanted[0]] / len(rows.y)) if positive is None else [])
    few = {label: counts[label] for label in wanted if counts[label] < FEWEST_POSITIVES}
    if few:
        width = 98.0 / math.sqrt(min(few.values()))  # of a recall of 1/2, at 95 %
        wide = f"the interval of a recall is up to ±{width:.0f} percentage points"
        wide += ", and leaks cannot be found" if len(rows.y) - sizes.max() < FEWEST_OF_A_CLASS else ""
        rows.notes.append(f"fewer than {FEWEST_POSITIVES} rows of {listed_counts(few.items())}: {wide}")
    if audited is None:
        return _Rows(rows.frame, counts, rows.notes, place[numbers])
    weights = 1.0 / rows.frame[audited].to_numpy(dtype=np.float64)
    shares = {names[i]: share_interval(numbers == i, weights) for i in order}
    return _Rows(rows.frame, counts, rows.notes, place[numbers], weights, shares)


def _columns(
    reader: TableClassifier, table: TableCells, every: TableCells, areas: dict[str, float]
) -> tuple[ColumnLook, ...]:
    """Each column of ``table``, with the missing cells of ``every`` row."""
    used = {column.name: column for column in reader.columns_}
    reasons = {one.name: one.reason for one in reader.dropped_}
    numbers = [column for column in reader.columns_ if column.kind == "number"]
    filled = encode_table(numbers, table).X[:, [block.start for block in blocks_of(numbers)]]  # gaps hold the median
    spreads = np.quantile(filled, [0, 0.5, 1], axis=0, overwrite_input=True).T
    shown = {
        column.name: tuple(map(four_digits, spread)) for column, spread in zip(numbers, spreads.tolist(), strict=True)
    }
    found, n_rows = [], len(every)
    for name in map(str, table.frame.columns):
        n_missing = n_rows - int(np.count_nonzero(every[name].is_there))
        n_values, commonest = table[name].examples(0 if name in shown else _EXAMPLES)
        examples = shown.get(name, tuple(short(one, _LONGEST) for one in commonest))
        if name in reasons:
            found.append(ColumnLook(name, "left out", n_missing, n_values, examples, reasons[name]))
            continue
        column = used[name]
        plan, area = _plan(column, n_missing), areas.get(name, math.nan)
        found.append(ColumnLook(name, column.kind, n_missing, n_values, examples, plan, column.note, area))
    return tuple(found)


def _plan(column: Column, n_missing: int) -> str:
    n_inputs = len(column.encoded_names)
    plans = {
        "number": "used as a number",
        "boolean": "used as 0 and 1",
        "category": plural(n_inputs, "indicator column"),
        "date": f"{plural(n_inputs, 'part')}, such as days and weekday",
        "text": f"{plural(n_inputs, 'component')} of its letters",
    }
    has_gaps = n_missing and column.kind != "category"
    return plans[column.kind] + ("; missing values are filled and have an indicator column" if has_gaps else "")


def _areas(reader: TableClassifier, table: TableCells, rows: _Rows, seed: int) -> dict[str, float]:
    """Area under the ROC curve of each column alone, in the better direction; the largest over the classes."""
    numbers, weights, sizes = rows.numbers, rows.weights, list(rows.counts.values())
    if numbers is None or not reader.columns_:
        return {}
    some: NDArray[np.int64] | slice = slice(None)
    if len(numbers) > _MOST_ROWS:  # rows of rare classes as far as there is room
        rng, chosen, room = np.random.default_rng(seed), [], _MOST_ROWS
        for k, size in enumerate(sizes):  # the rarest first
            own = min(size, room // (len(sizes) - k))
            chosen.append(rng.choice(np.flatnonzero(numbers == k), own, replace=False))
            room -= own
        some = np.sort(np.concatenate(chosen))
    cells = {}
    for column in reader.columns_:
        kind, values, _ = cells_of(column, table[column.name])
        cells[column.name] = [Cells(kind, values[some])]
        if column.kind in ("text", "date"):
            part = column.encode(ColumnCells(table[column.name].series.iloc[some])).values
            cells[column.name] += [Cells("number", one) for one in part.T]
    weights = None if weights is None else weights[some]
    return {one.name: one.area for one in separations(cells, numbers[some], weights, seed)}
