"""Evidence about columns: separation by each one alone, permutation importance, and effects of its values."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crcen.report.evidence import Evidence, chosen_rows, log_odds
from crcen.report.quality import share_log_loss
from crcen.tables.cells import ColumnCells, as_text
from crcen.tables.leaks import Cells, Leak, Separation, cells_of, find_leaks, separations
from crcen.theory.metrics import log_losses
from crcen.theory.rows import Array, Index, Rows, short

_ALL = slice(None)


def cells_by_column(evidence: Evidence) -> dict[str, list[Cells]]:
    """The cells of each column as the model reads them; the encoded parts of texts and dates follow."""
    import pandas as pd

    X, encoded = evidence.X, evidence.encoded
    if encoded is None:
        return {name: [_cells(_column(X, number))] for number, name in enumerate(evidence.columns)}
    found = {}
    for column in evidence.model.columns_:
        parts = [cells_of(column, ColumnCells(pd.Series(_column(X, evidence.columns.index(column.name)))))]
        if column.kind in ("text", "date"):
            parts += [Cells("number", part) for part in encoded.X[:, encoded.blocks[column.name]].T]
        found[column.name] = parts
    return found


def single_columns(evidence: Evidence) -> list[Separation]:
    """How well each column by itself separates the classes."""
    return separations(evidence.of(cells_by_column), evidence.y, evidence.weights, evidence.random_state)


def pure_cells(evidence: Evidence) -> list[Leak]:
    """Cells that occur for one class only."""
    cells = {name: parts[0] for name, parts in evidence.of(cells_by_column).items()}
    return find_leaks(cells, evidence.y, evidence.labels.classes.tolist())


def _column(X: Rows, number: int, rows: Index | slice = _ALL) -> Rows:
    """A pandas Series, or an array of any type."""
    return X.iloc[rows, number] if hasattr(X, "iloc") else X[rows, number]


def _cells(cells: Rows) -> Cells:
    """A column of any type as numbers or dates with NaN for what is missing, or as categories."""
    import pandas as pd

    series = pd.Series(cells)
    if series.dtype.kind in "mM":
        ticks = np.asarray(series, dtype="datetime64[ns]" if series.dtype.kind == "M" else "timedelta64[ns]")
        return Cells("date", np.where(np.isnat(ticks), np.nan, ticks.astype(np.int64).astype(np.float64)))
    text = series if series.dtype.kind in "biuf" else as_text(series)
    numbers = pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if (np.isnan(numbers) == text.isna().to_numpy()).all():
        return Cells("number", np.nan_to_num(numbers, nan=np.nan))
    codes, names = pd.factorize(text)
    return Cells("category", np.where(codes < 0, np.nan, codes), [str(name) for name in names])


# -- permutation importance ---------------------------------------------------------------------------------------

# Rows that are shuffled, repeats of each column, and predictions of single rows for all columns of two classes.
MOST_ROWS, MOST_REPEATS, MOST_PREDICTIONS = 4000, 5, 40_000
# Of more columns these are shuffled with more rows, after all were screened with few.
MOST_PRECISE, _FEWEST_ROWS = 20, 150


@dataclass(frozen=True)
class ColumnImportance:
    """Mean increase of the natural log loss when a column is shuffled, with its 95 % interval over the rows."""

    name: str
    increase: float
    low: float
    high: float


@dataclass(frozen=True)
class Importances:
    """All columns, the most important first."""

    columns: tuple[ColumnImportance, ...]
    n_rows: int  # that were shuffled
    n_repeats: int  # of each column
    log_loss: float  # of the model on these rows
    base_log_loss: float  # of the class shares
    n_precise: int = 0  # first columns for which these rows were shuffled; the others had fewer rows

    @property
    def shares(self) -> Array:
        """Share of each column in the increase over all columns, each shuffled by itself; 0 if none increases."""
        rises = np.array([max(one.increase, 0.0) for one in self.columns])
        return rises / rises.sum() if rises.sum() > 0.0 else rises


def permutation_importance(evidence: Evidence) -> Importances:
    """Shuffle one column at a time and measure the increase of the log loss, with intervals over rows, not refits.

    Columns with the same information share their importance. Of many columns all are screened with fewer rows first.
    """
    names, budget = evidence.columns, 2 * MOST_PREDICTIONS // evidence.labels.n_classes
    every = range(len(names))
    if len(names) <= MOST_PRECISE:
        return _shuffled(evidence, every, budget)
    screened = _shuffled(evidence, every, budget // 2).columns
    found = _shuffled(evidence, [names.index(one.name) for one in screened[:MOST_PRECISE]], budget // 2)
    found = replace(found, columns=(*found.columns, *screened[MOST_PRECISE:]))
    order = sorted(found.columns, key=lambda one: -one.increase)
    return replace(found, columns=tuple(order))


def _shuffled(evidence: Evidence, columns: Sequence[int], budget: int) -> Importances:
    """Importance of these columns by about this number of predicted rows."""
    rng, n_columns = np.random.default_rng(evidence.random_state), max(len(columns), 1)
    rows, weights = chosen_rows(evidence, min(MOST_ROWS, max(budget // n_columns, _FEWEST_ROWS)), rng)
    answer, y = evidence.answers(rows), evidence.y[rows]
    # The model itself predicts shuffled rows, so it is compared with its own predictions.
    own = answer(0, rows) if evidence.is_out_of_fold and evidence.columns else evidence.proba[rows]
    before = log_losses(y, own)
    n_repeats = max(1, min(MOST_REPEATS, budget // (n_columns * len(rows))))
    orders = [rng.permutation(rows) for _ in range(n_repeats)]
    found, total = [], float(weights.sum())
    for number in columns:
        increase = np.mean([log_losses(y, answer(number, order)) - before for order in orders], axis=0)
        mean = float(weights @ increase) / total
        half = 1.96 * float(np.sqrt(np.sum(weights**2 * (increase - mean) ** 2))) / total
        found.append(ColumnImportance(evidence.columns[number], mean, mean - half, mean + half))
    found.sort(key=lambda one: -one.increase)
    loss, base = float(weights @ before) / total, share_log_loss(np.bincount(y, weights))
    return Importances(tuple(found), len(rows), n_repeats, loss, base, len(found))


# -- effects of columns -------------------------------------------------------------------------------------------

# Columns drawn, the most important first; values of each; rows that they are tried on.
MOST_COLUMNS, MOST_VALUES, _EFFECT_ROWS = 12, 9, 150
_FEWEST_CELLS = 5  # rows with a category, so that the page does not name that of a single person
_EDGE = 1e-9
_LONGEST = 22  # characters of a value
# Values of a column: rows whose cells stand for them, their names, their places, and whether they have an order.
_Values = tuple[Index, list[str], Array, bool]


@dataclass(frozen=True)
class EffectPoint:
    """Mean change of the natural log-odds when rows take this value, with its 95 % interval over the rows."""

    label: str
    place: float  # on the axis: the number itself, days for dates, 0, 1, 2… for categories
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class ColumnEffect:
    """The effect of one column."""

    name: str
    is_ordered: bool  # whether values have an order, to be joined by a line
    points: tuple[EffectPoint, ...]  # by value, or by effect if there is no order
    shape: str  # in words, such as "rises" or "falls and rises"


def column_effects(evidence: Evidence) -> tuple[ColumnEffect, ...]:
    """Partial dependence of the log-odds of the positive class on the most important columns, over rows."""
    rng = np.random.default_rng(evidence.random_state)
    rows, column = np.arange(evidence.n_rows), evidence.labels.column
    if evidence.n_rows > _EFFECT_ROWS:
        rows = np.sort(rng.choice(rows, _EFFECT_ROWS, replace=False, p=evidence.weights / evidence.weights.sum()))
    answer = evidence.answers(rows)
    own = log_odds(answer(0, rows)[:, column], _EDGE)
    found = []
    for one in evidence.of(permutation_importance).columns[:MOST_COLUMNS]:
        number = evidence.columns.index(one.name)
        values = _values(evidence, number, one.name) if one.increase > 0.0 else None
        if values is None or len(values[0]) < 2:
            continue
        *of_values, is_ordered = values
        points = []
        for row, label, place in zip(*of_values, strict=True):
            change = log_odds(answer(number, int(row))[:, column], _EDGE) - own
            mean, half = float(change.mean()), 1.96 * float(change.std(ddof=1)) / np.sqrt(len(rows))
            points.append(EffectPoint(label, float(place), mean, mean - half, mean + half))
        if not is_ordered:
            points.sort(key=lambda point: -point.effect)
            points = [replace(point, place=float(i)) for i, point in enumerate(points)]
        found.append(ColumnEffect(one.name, is_ordered, tuple(points), _shape(points, is_ordered)))
    return tuple(found)


def _values(evidence: Evidence, number: int, name: str) -> _Values | None:
    """Values of a column: quantiles of what has an order, the commonest of what has none; None for texts."""
    encoded = evidence.encoded
    if encoded is None:
        try:
            return _quantiles(evidence, np.asarray(_column(evidence.X, number)).astype(np.float64), number)
        except (TypeError, ValueError):
            return _commonest(evidence, number)
    if name not in encoded.columns:
        return None
    column = encoded.columns[name]
    part = encoded.X[:, encoded.blocks[name]]
    if column.kind == "number" or (column.kind == "date" and part.shape[1] > 1):
        is_missing = part[:, -1] > 0 if column.has_missing else np.zeros(len(part), dtype=bool)
        return _quantiles(evidence, np.where(is_missing, np.nan, part[:, 0]), number, is_date=column.kind == "date")
    return None if column.kind in ("text", "date") else _commonest(evidence, number)


def _quantiles(evidence: Evidence, values: Array, number: int, is_date: bool = False) -> _Values | None:
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return None
    order = known[np.argsort(values[known], kind="stable")]
    ranks = np.linspace(0.02, 0.98, MOST_VALUES) * (len(order) - 1)
    _, first = np.unique(values[order[ranks.round().astype(int)]], return_index=True)
    rows = order[ranks.round().astype(int)][first]
    if is_date:
        labels = [str(cell)[:10] for cell in np.asarray(_column(evidence.X, number), dtype=object)[rows]]
    else:
        labels = [f"{value:.4g}" if abs(value) < 1e4 else f"{value:,.0f}" for value in values[rows]]
    return rows, labels, values[rows], True


def _commonest(evidence: Evidence, number: int) -> _Values | None:
    cells = np.asarray(_column(evidence.X, number), dtype=object)
    texts = np.array(["missing" if cell is None or cell != cell else str(cell) for cell in cells], dtype=object)
    names, first, counts = np.unique(texts.astype(str), return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    order = order[counts[order] >= _FEWEST_CELLS]
    return first[order], [short(name, _LONGEST) for name in names[order]], np.arange(float(len(order))), False


def _shape(points: list[EffectPoint], is_ordered: bool) -> str:
    """The course of the effect; turns that are no larger than the intervals are left out."""
    effects = np.array([point.effect for point in points])
    noise = max(float(np.median([point.high - point.low for point in points])), 0.05)
    if np.ptp(effects) <= noise:
        return "is flat"
    if not is_ordered:
        return "differs by value"
    turns: list[int] = []
    last = effects[0]
    for value in effects[1:]:
        if abs(value - last) > noise:
            direction = 1 if value > last else -1
            if not turns or turns[-1] != direction:
                turns.append(direction)
            last = value
        elif turns and (value - last) * turns[-1] > 0:
            last = value
    words = ["rises" if turn > 0 else "falls" for turn in turns or [effects[-1] - effects[0]]]
    return " and ".join(words) if len(words) <= 3 else "goes up and down"
