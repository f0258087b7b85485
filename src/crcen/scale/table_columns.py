"""Columns of a mixed table larger than memory, learned from its survey."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crcen.exceptions import InvalidInput
from crcen.scale.table_survey import ColumnFacts, TableSurvey
from crcen.tables.column_kinds import DroppedColumn, category_column, learn_column
from crcen.tables.columns import CategoryColumn, Column, NumberColumn, as_text, clip_limits
from crcen.tables.reading import Table

__all__ = ["LearnedColumns", "frames_of", "learn_columns", "survey_table"]

# pandas is optional, and no type checker sees it.
Series = Any

FRAME_ROWS = 20_000
# Rows on which the words of a text column are learned.
_TEXT_ROWS = 8192
# Fewer rows tell nothing about whether a column numbers them.
_FEWEST_FOR_IDS = 20


@dataclass
class LearnedColumns:
    """How the columns of a table are encoded, which are left out, and what a person should know about it."""

    used: list[Column] = field(default_factory=list)
    dropped: list[DroppedColumn] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def frames_of(table: Table, number: int, columns: Sequence[str]) -> Iterator[Any]:
    """Rows of a file of a table, in order, with categories as what they stand for."""
    import pandas as pd

    for frame in table.chunks(FRAME_ROWS, columns, number):
        kinds = {name: frame[name].dtype for name in columns}
        coded = {name: kind.categories.dtype for name, kind in kinds.items() if isinstance(kind, pd.CategoricalDtype)}
        yield frame.astype(coded) if coded else frame


def survey_table(table: Table, survey: TableSurvey, show: Callable[[float], None] = lambda share: None) -> TableSurvey:
    """Read every file once; ``survey`` is empty before."""
    n_rows = 0
    for number, file in enumerate(table.parts):
        part = survey.of_nothing()
        for frame in frames_of(table, number, [*survey.columns, survey.target]):
            part.add(frame, number, file.name)
            n_rows += len(frame)
            show(min(n_rows / table.n_rows, 1.0) if table.n_rows else 0.0)
        survey.merge(part)
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

    Parameters
    ----------
    survey
        Of all rows.
    keep, categorical
        As in `TableClassifier`.
    declared
        Columns that their file declares to be categories.
    seed
        For the decomposition of free text.
    """
    found = LearnedColumns()
    sample, is_complete = survey.sample.frame, survey.sample.is_complete
    for name in survey.columns:
        facts = survey.facts[name]
        cells = sample[name] if is_complete else _with_witnesses(sample[name], facts)
        if name in declared:
            cells = cells.astype("category")
        is_kept = name in keep or name in categorical
        reason = "" if is_complete or is_kept else _why_row_number(cells, facts)
        how = {"is_kept": is_kept, "is_category": name in categorical, "seed": seed}
        learnt = DroppedColumn(name, reason) if reason else _learnt(cells, how)
        if isinstance(learnt, DroppedColumn):
            found.dropped.append(learnt)
            continue
        learnt = _set_right(learnt, facts, found.notes)
        if isinstance(learnt, DroppedColumn):
            found.dropped.append(learnt)
        else:
            found.used.append(learnt)
    if not found.used:
        reasons = "; ".join(f"{one.name}: {one.reason}" for one in found.dropped[:5])
        raise InvalidInput(f"no column is left to learn from ({reasons}).")
    if not is_complete:
        found.notes.append(
            f"kinds of columns, medians, date formats and words come from a random sample of {len(sample):,} of the "
            f"{survey.n_rows:,} rows; categories, missing cells and ranges from all"
        )
    return found


def _learnt(cells: Series, how: Mapping[str, Any]) -> Column | DroppedColumn:
    """As `learn_column`, with the words of free text from fewer rows: they take time and memory."""
    if len(cells) <= _TEXT_ROWS or not _is_text(cells):
        return learn_column(cells, **how)
    few = learn_column(cells.iloc[:: -(-len(cells) // _TEXT_ROWS)], **how)
    return few if not isinstance(few, DroppedColumn) and few.kind == "text" else learn_column(cells, **how)


def _is_text(cells: Series) -> bool:
    import pandas as pd

    return pd.api.types.is_string_dtype(cells.dtype) or pd.api.types.is_object_dtype(cells.dtype)


def _with_witnesses(cells: Series, facts: ColumnFacts) -> Series:
    """Cells of a sample, and where they are all alike some others: what is rare in all rows may be in no sample."""
    import pandas as pd

    if as_text(cells).nunique() > 1:
        return cells
    if facts.counts:
        others: list[Any] = list(facts.counts)
        if pd.api.types.is_bool_dtype(cells.dtype):
            others = [value == "True" for value in others]
    else:
        others = [facts.low, facts.high] if facts.n_numbers else []
    return pd.concat([cells, pd.Series(others, name=cells.name)], ignore_index=True) if others else cells


def _why_row_number(cells: Series, facts: ColumnFacts) -> str:
    """Why a column only numbers the rows, which a sample cannot show; empty where it does not."""
    n = facts.n_numbers
    if n < _FEWEST_FOR_IDS or facts.n_others or not facts.is_whole or facts.high - facts.low >= 1.5 * n:
        return ""
    present = cells.dropna()
    if present.nunique() < len(present):
        return ""
    return f"numbers the rows: {n} whole numbers, none twice in a sample"


def _set_right(column: Column, facts: ColumnFacts, notes: list[str]) -> Column | DroppedColumn:
    """A column learned from a sample, with what all rows say."""
    import pandas as pd

    has_missing = column.has_missing or facts.n_missing > 0
    if isinstance(column, CategoryColumn):
        if facts.counts:
            counts = pd.Series(facts.counts).sort_values(ascending=False)
            return category_column(column.name, counts, has_missing, column.note)
        notes.append(f"{column.name} has too many values to count; those of the sample have columns of their own")
    if isinstance(column, NumberColumn) and facts.looks_numeric and facts.n_others:
        has_missing = True  # cells that are no numbers, in rows that the sample does not have
    if isinstance(column, NumberColumn) and facts.n_numbers:
        low, high = clip_limits(np.array([facts.low, facts.high]))
        column = replace(column, low=min(low, column.low), high=max(high, column.high))
    return replace(column, has_missing=has_missing)  # type: ignore[type-var]
