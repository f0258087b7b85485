"""Signs of leaks in labelled rows: cells of one class only, copies of rows, and repeating identifiers.

A column that is recorded after the event is often set for one class only, which the area under the ROC curve does not
show. Each set of such rows is compared with the share of the class by an exact binomial test, corrected for all tests.
In honest tables the more frequent class often has cells alone: it is tested only where these cells decide the class.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, islice
from typing import NamedTuple

import numpy as np

from crcen._support.lazy import stats
from crcen._support.text import json_value, listed
from crcen.tables.cells import ColumnCells, TableCells, stacked
from crcen.tables.columns import BooleanColumn, Column, DateColumn, DroppedColumn, NumberColumn, why_repeating
from crcen.tables.fingerprint import are_coarse, copied_pairs, duplicated_class, name_key, times_written
from crcen.theory.limits import FEWEST_OF_A_CLASS, LEAK_AREA, NEAR_PERFECT_AREA
from crcen.theory.rows import Array, Bools, Hashes, Index
from crcen.theory.selective import mixed_bits

# Chance of any false sign, over all comparisons of a table.
_LEVEL = 1e-4
# So many rows of a set, so large a share of one class among them, and so large a share of that class.
_FEWEST_ROWS, _PURITY, _COVERAGE = 20, 0.98, 0.1
# Classes with a larger share are not tested: for presence and order of cells, for values, and for ranges.
_MOST_FOR_PRESENCE, _MOST_FOR_VALUES, _MOST_FOR_RANGES = 0.6, 0.2, 0.1
# Flags of 0 and 1 are also tested in larger classes, more strictly.
_FLAG_COVERAGE, _MOST_FOR_FLAGS = 0.3, 0.5
# Flags and presence are tested with fewer rows if these have one class without exception.
_FEWEST_PURE_ROWS = 12
# Cells decide a class of any size if they have no other, cover so much of it, and few rows elsewhere are of the class.
_DECISIVE_COVERAGE, _DECISIVE_REST = 0.95, 0.1
# Values that are tested one by one, and pairs of dates that are compared.
_MOST_VALUES, _MOST_DATES = 255, 10
# Classes that single columns are ranked for, the commonest first, and rows that they are ranked on.
_MOST_CLASSES, _MOST_RANKED = 10, 20_000
# Cells of columns that are ranked together.
_MOST_CELLS = 2**20


class Cells(NamedTuple):
    """A column for these tests: numbers, NaN if missing; of a category its numbers, and their names."""

    kind: str
    values: Array
    names: Sequence[str] = ()


@dataclass(frozen=True)
class Leak:
    """Cells that occur for one class only; ``coverage`` is the share of the class that has them."""

    columns: tuple[str, ...]
    label: object
    n_rows: int
    coverage: float
    p_value: float
    sentence: str


@dataclass(frozen=True)
class Duplicates:
    """Rows that are equal in all columns used, with their labels.

    ``shares`` of each class have a twin; ``label`` was duplicated beyond chance; ``n_crossing`` test rows have a twin
    in training. ``is_coarse``: rows are equal by chance, see `are_coarse`; not if the table was ``n_times`` written or
    some rows were copied.
    """

    n_rows: int
    n_copies: int
    shares: dict[object, float] = field(default_factory=dict)
    label: object = None
    n_crossing: int = 0
    is_coarse: bool = False
    n_times: int = 1

    @classmethod
    def of(
        cls, codes: Hashes, numbers: Index, labels: Sequence[object], is_test: Bools | None = None, *, is_coarse: bool
    ) -> "Duplicates":
        """Count copies among rows with these codes and class numbers (by place in ``labels``)."""
        at = np.unique(codes, return_inverse=True)[1] * len(labels) + numbers
        counts, rows = np.bincount(at), np.bincount(numbers, minlength=len(labels))
        n_distinct = int((counts > 0).sum())
        twins = np.bincount(numbers, counts[at] > 1, minlength=len(labels)).astype(np.int64)
        own = duplicated_class(rows, twins, n_distinct)
        shares = {label: float(m / n) for label, m, n in zip(labels, twins, rows, strict=True) if n}
        n_crossing = 0 if is_test is None else int((is_test & (np.bincount(at, ~is_test) > 0)[at]).sum())
        label = None if own is None else labels[own]
        n_times = times_written(counts)
        is_coarse = is_coarse and n_times == 1 and not copied_pairs(counts)
        return cls(len(codes), len(codes) - n_distinct, shares, label, n_crossing, is_coarse, n_times)

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        return {**json_value(self), "label": None if self.label is None else str(self.label)}

    @property
    def notes(self) -> list[str]:
        """Sentences about the copies; none if they are expected and do not depend on the label."""
        if not self.n_copies or (self.is_coarse and self.label is None):
            return []
        message = f"{self.n_copies:,} of {self.n_rows:,} rows are copies of other rows"
        if self.n_times > 1:
            often = f"{self.n_times} times"
            message += f" (each row occurs {often} or a multiple: was the table written {often}?)"
        if self.n_crossing:
            message += f", and {self.n_crossing:,} test rows are also training rows: results on them are too good"
        if self.label is None:
            return [message] if self.n_crossing or self.n_copies >= 0.01 * self.n_rows else []
        shares = listed(f"{share:.0%} of {label}" for label, share in self.shares.items())
        return [
            f"{message}; copies depend on the label ({shares} have a twin): was {self.label} oversampled? Remove the "
            "copies before the split, and state the price instead (CRC008)"
        ]


@dataclass(frozen=True)
class Signs:
    """What labelled rows say about leaks; ``notes`` are sentences for a person."""

    leaks: tuple[Leak, ...] = ()
    duplicates: Duplicates = Duplicates(0, 0)
    identifiers: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        leaks = [json_value(one) | {"label": str(one.label)} for one in self.leaks]
        return {"leaks": leaks, "duplicates": self.duplicates.to_dict(), "identifiers": dict(self.identifiers)}

    @property
    def notes(self) -> list[str]:
        """One sentence for each sign."""
        advice = "ask when it is recorded, and drop it if that is after the event (CRC006)"
        found = [f"{one.sentence}: {advice}" for one in self.leaks[:5]]
        if len(self.leaks) > 5:
            more = listed(dict.fromkeys(name for one in self.leaks[5:] for name in one.columns))
            found.append(f"the same holds for {more} (CRC006)")
        return [*found, *self.identifiers.values(), *self.duplicates.notes]


def find_signs(
    columns: list[Column], table: TableCells, numbers: Index, labels: Sequence[object], dropped: list[DroppedColumn]
) -> Signs:
    """Look for leaks, copies and repeating identifiers; ``numbers`` are classes by place in ``labels``."""
    kinds = {column.name: column.kind for column in columns}
    kinds |= {one.name: "category" for one in dropped if one.reason.startswith("an identifier")}
    table.load(kinds)
    cells = {column.name: cells_of(column, table[column.name]) for column in columns}
    reasons = {name: why_repeating(table[name], kind) for name, kind in kinds.items()}
    leaks = _separating(cells, numbers, labels)
    named = {one.columns for one in leaks}
    leaks += [one for one in find_leaks(cells, numbers, labels) if one.columns not in named]
    is_coarse = are_coarse(list(cells), lambda names: _row_codes({name: cells[name] for name in names}, len(numbers)))
    duplicates = Duplicates.of(_row_codes(cells, len(numbers)), numbers, labels, is_coarse=is_coarse)
    return Signs(tuple(leaks), duplicates, {name: reason for name, reason in reasons.items() if reason})


def _row_codes(cells: Mapping[str, Cells], n_rows: int) -> Hashes:
    """A hash of each row; without columns all rows are equal."""
    found = np.zeros(n_rows, dtype=np.uint64)
    for names, values in stacked({name: one.values for name, one in cells.items()}):
        keys = np.array([name_key(name) for name in names])[:, None]
        found += mixed_bits(np.where(np.isnan(values), np.nan, values + 0.0).view(np.uint64) ^ keys).sum(axis=0)
    return found


def cells_of(column: Column, cells: ColumnCells) -> Cells:
    """A column as these tests need it: numbers are not clipped, rare categories are not pooled."""
    if isinstance(column, NumberColumn | BooleanColumn | DateColumn):
        return Cells("date" if column.kind == "date" else "number", column.read(cells))
    codes, names = cells.codes
    return Cells(column.kind, np.where(codes < 0, np.nan, codes), names)


def find_leaks(cells: Mapping[str, Cells], numbers: Index, labels: Sequence[object]) -> list[Leak]:
    """Columns with cells that occur for one class only, the most telling first; one entry for each column."""
    n, n_classes = len(numbers), len(labels)
    totals = np.bincount(numbers, minlength=n_classes)
    without = _columns_without_sets(cells, numbers, totals)
    others = {name: column for name, column in cells.items() if name not in without}
    candidates = [one for name, column in others.items() for one in _sets(name, column, numbers, totals)]
    candidates += _date_orders(cells, numbers, n_classes)
    found, telling = dict[tuple[str, ...], Leak](), dict[tuple[str, ...], _Set]()
    for one in candidates:
        m, k = int(one.counts.sum()), int(one.counts.argmax())
        own, share, coverage = int(one.counts[k]), totals[k] / n, one.counts[k] / max(totals[k], 1)
        is_strict = one.limit == _MOST_FOR_FLAGS and share > _MOST_FOR_VALUES
        purity, least = (1.0, _FLAG_COVERAGE) if is_strict else (_PURITY, _COVERAGE)
        is_short = own == m and one.limit in (_MOST_FOR_FLAGS, _MOST_FOR_PRESENCE)
        fewest = _FEWEST_PURE_ROWS if is_short else _FEWEST_ROWS
        decides = own == m and coverage >= _DECISIVE_COVERAGE and totals[k] - own <= _DECISIVE_REST * (n - m)
        if m < fewest or (not decides and (share > one.limit or own < purity * m or coverage < least)):
            continue
        p_value = len(candidates) * n_classes * float(stats.binom.sf(own - 1, m, share))
        if p_value > _LEVEL or (one.columns in found and found[one.columns].coverage >= coverage):
            continue
        counts = f"{own:,} of {m:,} such rows, {100 * share:.2g} % of all rows"
        message = f"{one.what} only in rows of class {labels[k]} ({counts})"
        found[one.columns] = Leak(one.columns, labels[k], m, float(coverage), p_value, message)
        if decides and one.rows is not None:
            telling[one.columns] = one
    for name, of in telling.items():
        unnamed = {other: [column] for other, column in cells.items() if (other,) not in found}
        for shadow in separations(unnamed, np.asarray(of.rows, dtype=np.int64)):
            if shadow.area >= LEAK_AREA:
                what = f"{shadow.name} nearly tells whether {of.what} (area under the ROC curve {shadow.area:.4f})"
                message = f"{what}, which is so only in rows of class {found[name].label}"
                found[(shadow.name,)] = replace(found[name], columns=(shadow.name,), sentence=message)
    return sorted(found.values(), key=lambda one: -one.coverage)


@dataclass(frozen=True)
class Separation:
    """How well a column alone separates classes: areas under the ROC curve of each class against the rest."""

    name: str
    areas: dict[int, float]
    least_pair: float  # the smallest area between two classes

    @property
    def area(self) -> float:
        """The largest area."""
        return max(self.areas.values(), default=0.5)


def separations(
    cells: Mapping[str, Sequence[Cells]], numbers: Index, weights: Array | None = None, seed: int = 0
) -> list[Separation]:
    """Area of every column by itself, in the better direction and by the best of its parts; empty with few rows.

    Missing cells rank below or above all others. Categories are ranked by their share of the class in the other half
    of the rows, so that names and identifiers that occur once tell nothing.
    """
    rng = np.random.default_rng(seed)
    halves, weights = rng.permutation(len(numbers)) % 2 == 0, np.ones(len(numbers)) if weights is None else weights
    if len(numbers) > _MOST_RANKED:
        rows = np.sort(rng.choice(len(numbers), _MOST_RANKED, replace=False))
        numbers, weights, halves = numbers[rows], weights[rows], halves[rows]
        cells = {name: [Cells(kind, one[rows]) for kind, one, _ in parts] for name, parts in cells.items()}
    counts = np.bincount(numbers)
    known = [int(k) for k in np.argsort(-counts, kind="stable") if counts[k] >= FEWEST_OF_A_CLASS][:_MOST_CLASSES]
    if not known or len(numbers) - counts.max() < FEWEST_OF_A_CLASS:
        return []
    return _Ranked(numbers, weights, halves, known[-1:] if len(counts) == 2 else known).separations(cells)


def suspects(found: Sequence[Separation], n_classes: int) -> list[tuple[Separation, int, float]]:
    """Columns that nearly separate a class, with its area; with several classes, all of them or as the only column."""
    least, best = LEAK_AREA if n_classes == 2 else NEAR_PERFECT_AREA, dict[int, list[float]]()
    for one in found:
        for k, area in one.areas.items():
            best[k] = sorted([*best.get(k, [0.5, 0.5]), area])[1:]  # the two largest areas of each class
    return [
        (one, k, area)
        for one in found
        for k, area in one.areas.items()
        if area >= least and (one.least_pair >= least or best[k][0 if area == best[k][1] else 1] < LEAK_AREA)
    ]


@dataclass(frozen=True)
class _Ranked:
    """Rows by which columns are ranked: classes, weights, halves, and classes with enough rows."""

    y: Index
    weights: Array
    halves: Bools
    known: Sequence[int]

    def separations(self, cells: Mapping[str, Sequence[Cells]]) -> list[Separation]:
        """The best rankings of each column, for each class."""
        totals, known = np.bincount(self.y, self.weights), list(self.known)
        areas = np.full((len(cells), len(known)), 0.5)
        pairs = np.full((len(cells), len(known), len(known)), 0.5)
        parts = ((place, part) for place, own in enumerate(cells.values()) for part in own)
        rankings = ((place, *one) for place, part in parts for one in self._rankings(part.kind, part.values))
        while some := list(islice(rankings, max(1, _MOST_CELLS // len(self.y)))):
            tables = self._pair_areas(np.stack([scores for *_, scores in some]))
            for i, k in enumerate(known):
                own = [number for number, (_, classes, _) in enumerate(some) if k in classes]
                places, table, others = [some[number][0] for number in own], tables[own, i], np.delete(totals, k)
                area = np.delete(table, k, axis=1) @ others / others.sum()
                np.maximum.at(areas, (places, i), np.maximum(area, 1.0 - area))
                np.maximum.at(pairs, (places, i), np.maximum(table, 1.0 - table)[:, known])
        inside = np.maximum(pairs, pairs.transpose(0, 2, 1))[:, ~np.eye(len(known), dtype=bool)]
        least = inside.min(axis=1) if len(known) > 1 else areas[:, 0]
        return [
            Separation(name, dict(zip(known, own, strict=True)), smallest)
            for name, own, smallest in zip(cells, areas.tolist(), least.tolist(), strict=True)
        ]

    def _rankings(self, kind: str, values: Array) -> Iterator[tuple[Sequence[int], Array]]:
        """Scores by which the rows of some classes are ranked against others."""
        is_missing = np.isnan(values)
        if kind in ("number", "date"):
            present = values[~is_missing]
            ends = (present.min() - 1.0, present.max() + 1.0) if is_missing.any() and present.size else (0.0,)
            yield from ((self.known, np.where(is_missing, end, values)) for end in ends)
            return
        codes = np.where(is_missing, -1.0, values).astype(np.int64) + 1
        size = int(codes.max(initial=0)) + 1
        for k in self.known:
            scores, own = np.empty(codes.size), self.weights * (self.y == k)
            for half in (self.halves, ~self.halves):
                total = np.bincount(codes[~half], self.weights[~half], size)
                shares = np.full(size, float(own.sum() / self.weights.sum()))
                np.divide(np.bincount(codes[~half], own[~half], size), total, out=shares, where=total > 0.0)
                scores[half] = shares[codes[half]]
            yield (k,), scores

    def _pair_areas(self, scores: Array) -> Array:
        """How often rows of a known class outscore those of each class, ties by half: (rankings, known, classes)."""
        totals = np.bincount(self.y, self.weights)
        order = np.argsort(scores, axis=1)
        ranked = np.take_along_axis(scores, order, axis=1)
        is_new = np.ones(scores.shape, dtype=bool)
        is_new[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
        value = np.cumsum(is_new).reshape(scores.shape) - 1  # different ones are numbered through all rankings
        places = (value * len(totals) + self.y[order]).ravel()
        table = np.bincount(places, self.weights[order].ravel(), (value[-1, -1] + 1) * len(totals))
        table = table.reshape(-1, len(totals))
        before = np.repeat(np.arange(len(scores)), np.diff([*value[:, 0], len(table)]))[:, None] * totals
        below = np.cumsum(table, axis=0) - before - 0.5 * table
        sums = [np.add.reduceat(table[:, [k]] * below, value[:, 0], axis=0) for k in self.known]
        totals = np.maximum(totals, 1e-300)
        return np.asarray(np.stack(sums, axis=1) / np.outer(totals[self.known], totals))


def _separating(cells: Mapping[str, Cells], numbers: Index, labels: Sequence[object]) -> list[Leak]:
    sizes, found = np.bincount(numbers, minlength=len(labels)).tolist(), {}
    ranked = separations({name: [one] for name, one in cells.items()}, numbers)
    for one, k, area in sorted(suspects(ranked, len(labels)), key=lambda suspect: suspect[2]):
        said = f"{one.name} alone nearly separates {labels[k]} (area under the ROC curve {area:.4f})"
        found[one.name] = Leak((one.name,), labels[k], sizes[k], 1.0, 0.0, said)
    return [found[name] for name in cells if name in found]


class _Set(NamedTuple):
    """Rows that may be of one class: their columns, their classes counted, the largest share of a class, a sentence."""

    columns: tuple[str, ...]
    counts: Index
    limit: float
    what: str
    rows: Bools | None = None


def _columns_without_sets(cells: Mapping[str, Cells], numbers: Index, totals: Index) -> set[str]:
    """Columns of numbers for which `_sets` has none, as far as that shows without sorting them."""
    n, found = len(numbers), set[str]()
    values = {name: one.values for name, one in cells.items() if one.kind == "number"}
    rare: Sequence[int] = np.flatnonzero(totals <= _MOST_FOR_RANGES * n).tolist() if n > _FEWEST_ROWS else []
    middle, ends = [(n - 1) // 2, n // 2], [min(_FEWEST_ROWS, n) - 1, max(n - _FEWEST_ROWS, 0)]
    for names, own in stacked({name: one for name, one in values.items() if not np.isnan(one).any()}):
        at = np.partition(own, [*middle, *ends], axis=1)
        n_ends = sum((own == end[:, None]).sum(axis=1) for end in (own.min(axis=1), own.max(axis=1)))
        n_common = np.maximum(*((own == at[:, [place]]).sum(axis=1) for place in middle))
        has_sets = (n_ends >= n) | (2 * n_common >= n)
        for only in _only_value_elsewhere(own, numbers).values():
            has_sets |= ~np.isnan(only)
        for beyond in own < at[:, ends[:1]], own > at[:, ends[1:]]:
            for k in rare:
                has_sets |= ~(beyond & (numbers != k)).any(axis=1)
        found |= {name for name, has in zip(names, has_sets, strict=True) if not has}
    return found


def _sets(name: str, column: Cells, numbers: Index, totals: Index) -> Iterator[_Set]:
    """Missing cells, others, all but the only value of other classes, single values, all but the commonest, ends."""

    def of(inside: Bools, limit: float, what: str) -> _Set:
        return _Set((name,), np.bincount(numbers[inside], minlength=len(totals)), limit, f"{name} {what}")

    values, is_missing = column.values, np.isnan(column.values)
    if is_missing.any() and not is_missing.all():
        yield of(is_missing, _MOST_FOR_PRESENCE, "is missing")
        yield of(~is_missing, _MOST_FOR_PRESENCE, "is filled in")
    if is_missing.all() or column.kind == "text":
        return
    codes, known = values[~is_missing], numbers[~is_missing]
    elsewhere = {} if column.kind == "date" else _only_value_elsewhere(codes[None], known)
    for (value,) in elsewhere.values():
        rows = ~is_missing & (values != value)
        if not np.isnan(value) and rows.any():
            word = "above" if codes.min() == value else "below" if codes.max() == value else "not"
            is_one = f"not {column.names[int(value)]}" if column.kind == "category" else f"{word} {value:.6g}"
            yield of(rows, 0.0, f"is {is_one}")._replace(rows=rows)
    if column.kind == "category":
        cells = codes.astype(np.int64) * len(totals) + known
        table = np.bincount(cells, minlength=len(column.names) * len(totals)).reshape(-1, len(totals))
        for value in np.flatnonzero(table.sum(axis=1) >= _FEWEST_ROWS)[:_MOST_VALUES]:
            yield _Set((name,), table[value], _MOST_FOR_VALUES, f"{name} is {column.names[value]}")
        return
    distinct, counts = np.unique(codes, return_counts=True)
    if len(distinct) == 2:
        for value in distinct:
            yield of(values == value, _MOST_FOR_FLAGS, f"is {value:.6g}")
        return
    if column.kind == "date":
        return
    mode = distinct[counts.argmax()]
    if counts.max() >= 0.5 * codes.size:
        yield of((values != mode) & ~is_missing, _MOST_FOR_VALUES, f"is not {mode:.6g}")
        yield of(values > mode, _MOST_FOR_VALUES, f"is above {mode:.6g}")
        yield of(values < mode, _MOST_FOR_VALUES, f"is below {mode:.6g}")
    order = np.argsort(codes, kind="stable")
    for end, rows in (("above", order[::-1]), ("below", order)):
        if n := _pure_end(codes, rows, known, totals):
            found = np.bincount(known[rows[:n]], minlength=len(totals))
            yield _Set((name,), found, _MOST_FOR_RANGES, f"{name} is {end} {codes[rows[n]]:.6g}")


def _only_value_elsewhere(values: Array, numbers: Index) -> dict[int, Array]:
    """For each class the value of every column in all rows of other classes, NaN if there are several: (columns,)."""
    order = np.argsort(numbers, kind="stable")
    classes, starts = np.unique(numbers[order], return_index=True)
    ends = [edge.reduceat(values[:, order], starts, axis=1) for edge in (np.minimum, np.maximum)]
    found = {}
    for place, k in enumerate(classes.tolist() if len(classes) > 1 else []):
        low, high = (np.delete(end, place, axis=1) for end in ends)
        found[k] = np.where(low.min(axis=1) == high.max(axis=1), low[:, 0], np.nan)
    return found


def _pure_end(values: Array, rows: Index, numbers: Index, totals: Index) -> int:
    """How many of these sorted rows one rare class has alone, if it is as rare as elsewhere in the next rows."""
    own, share = numbers[rows[0]], totals[numbers[rows[0]]] / totals.sum()
    others = np.flatnonzero(numbers[rows] != own)
    if share > _MOST_FOR_RANGES or not others.size:
        return 0
    n = int(np.argmax(values[rows] == values[rows[others[0]]]))  # rows with the same value belong together
    return n if n >= _FEWEST_ROWS and (numbers[rows[n : 2 * n]] == own).mean() <= max(0.1, 2.0 * share) else 0


def _date_orders(cells: Mapping[str, Cells], numbers: Index, n_classes: int) -> Iterator[_Set]:
    dates = [name for name, column in cells.items() if column.kind == "date"][:_MOST_DATES]
    for first, second in combinations(dates, 2):
        a, b = cells[first].values, cells[second].values
        for inside, word in ((a < b, "before"), (a > b, "after"), (a == b, "the same as")):
            counts = np.bincount(numbers[inside], minlength=n_classes)
            yield _Set((first, second), counts, _MOST_FOR_PRESENCE, f"{first} is {word} {second}")
