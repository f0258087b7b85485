"""In which direction columns work, and by how much: log-odds as one column alone is moved over its values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.evidence import Evidence, positive_column
from crcen.report.importance import Importances

__all__ = ["ColumnEffect", "EffectPoint", "column_effects"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# Columns drawn, the most important first; values of each; rows that they are tried on.
MOST_COLUMNS, MOST_VALUES, MOST_ROWS = 12, 11, 400
_EDGE = 1e-9
_LONGEST = 22


@dataclass(frozen=True)
class EffectPoint:
    """One value of a column.

    Parameters
    ----------
    label : str
        The value as it is written.
    place : float
        Where it stands on the axis: the number itself, days for dates, 0, 1, 2… for categories.
    effect : float
        Mean change of the natural log-odds when rows take this value instead of their own.
    low, high : float
        95 % interval over the rows.
    """

    label: str
    place: float
    effect: float
    low: float
    high: float


@dataclass(frozen=True)
class ColumnEffect:
    """The effect of one column.

    Parameters
    ----------
    name : str
        The column.
    is_ordered : bool
        Whether values have an order, to be joined by a line.
    points : tuple of EffectPoint
        By value, or by effect where there is no order.
    shape : str
        In words: "rises", "falls", "rises and falls", "falls and rises", "is flat", or "differs by value".
    """

    name: str
    is_ordered: bool
    points: tuple[EffectPoint, ...]
    shape: str


def column_effects(evidence: Evidence, importances: Importances, random_state: int = 0) -> tuple[ColumnEffect, ...]:
    """Effects of the most important columns that raise the log loss when shuffled.

    Every chosen row takes every value in turn, its other columns staying as they are (partial dependence), and the
    change of its log-odds is averaged. The interval is that of a mean over rows. Where columns go together, some of
    these rows are unlikely ones.

    Parameters
    ----------
    evidence : Evidence
        The model and its rows.
    importances : Importances
        Which columns come first.
    random_state : int
        Seed of the chosen rows.
    """
    rng = np.random.default_rng(random_state)
    rows = np.arange(evidence.n_rows)
    if evidence.n_rows > MOST_ROWS:
        rows = np.sort(rng.choice(rows, MOST_ROWS, replace=False, p=evidence.weights / evidence.weights.sum()))
    own = _log_odds(_own(evidence, rows))
    place_of = {name: number for number, name in enumerate(evidence.columns)}
    found = []
    for one in importances.columns[:MOST_COLUMNS]:
        if one.increase <= 0.0 or one.name not in place_of:
            continue
        values = _values(evidence, place_of[one.name], one.name)
        if values is None or len(values.rows) < 2:
            continue
        answer = _answering(evidence, rows, place_of[one.name], one.name)
        points = []
        for row, label, place in zip(values.rows, values.labels, values.places, strict=True):
            change = _log_odds(answer(int(row))) - own
            half = 1.96 * float(change.std(ddof=1)) / np.sqrt(len(rows)) if len(rows) > 1 else 0.0
            mean = float(change.mean())
            points.append(EffectPoint(label, float(place), mean, mean - half, mean + half))
        if not values.is_ordered:
            points.sort(key=lambda point: -point.effect)
            points = [EffectPoint(p.label, float(i), p.effect, p.low, p.high) for i, p in enumerate(points)]
        found.append(ColumnEffect(one.name, values.is_ordered, tuple(points), _shape(points, values.is_ordered)))
    return tuple(found)


@dataclass(frozen=True)
class _Values:
    """Rows whose cells stand for the values of a column, what these are called and where they stand."""

    rows: Index
    labels: list[str]
    places: Array
    is_ordered: bool


def _values(evidence: Evidence, number: int, name: str) -> _Values | None:
    """Values of a column: quantiles of what has an order, the commonest of what has none; None for texts."""
    encoded = evidence.encoded
    if encoded is None:
        cells = np.asarray(_column(evidence.X, number))
        try:
            return _quantiles(evidence, cells.astype(np.float64), number)
        except (TypeError, ValueError):
            return _commonest(evidence, number)
    if name not in encoded.columns:
        return None
    column = encoded.columns[name]
    part = encoded.X[:, column.block]
    if column.kind == "number" or (column.kind == "date" and part.shape[1] > 1):
        is_missing = part[:, -1] > 0 if column.has_indicator else np.zeros(len(part), dtype=bool)
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
        labels = [_short(str(cell)[:10]) for cell in _cells(evidence.X, number, rows)]
    else:
        labels = [f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}" for value in values[rows]]
    return _Values(rows, labels, values[rows], True)


def _commonest(evidence: Evidence, number: int) -> _Values | None:
    cells = _column(evidence.X, number)
    texts = np.array(["missing" if cell is None or cell != cell else str(cell) for cell in cells], dtype=object)
    names, first, counts = np.unique(texts.astype(str), return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:MOST_VALUES]
    return _Values(first[order], [_short(str(name)) for name in names[order]], np.arange(float(len(order))), False)


def _column(X: Any, number: int) -> Any:
    return X.iloc[:, number].to_numpy(dtype=object) if hasattr(X, "iloc") else X[:, number]


def _cells(X: Any, number: int, rows: Index) -> Any:
    return _column(X, number)[rows]


def _answering(evidence: Evidence, rows: Index, number: int, name: str) -> Callable[[int], Array]:
    """A function that gives probabilities of the chosen rows with a column's cell of another row."""
    column = positive_column(evidence.model, evidence.pos_label)
    encoded = evidence.encoded
    if encoded is not None:
        X, block = encoded.X[rows], encoded.columns[name].block

        def from_encoded(row: int) -> Array:
            moved = X.copy()
            moved[:, block] = encoded.X[row, block]
            return np.asarray(encoded.estimator.predict_proba(moved), dtype=np.float64)[:, column]

        return from_encoded
    table = evidence.X.iloc[rows] if hasattr(evidence.X, "iloc") else evidence.X[rows]

    def from_table(row: int) -> Array:
        moved = table.copy()
        if hasattr(moved, "isetitem"):
            source = evidence.X.iloc[np.full(len(rows), row), number]
            moved.isetitem(number, source.set_axis(moved.index))
        else:
            moved[:, number] = evidence.X[row, number]
        return np.asarray(evidence.model.predict_proba(moved), dtype=np.float64)[:, column]

    return from_table


def _own(evidence: Evidence, rows: Index) -> Array:
    """What the model itself says of the chosen rows, also where the page is about rows out of fold."""
    column = positive_column(evidence.model, evidence.pos_label)
    if evidence.encoded is not None:
        answer = evidence.encoded.estimator.predict_proba(evidence.encoded.X[rows])
    else:
        answer = evidence.model.predict_proba(
            evidence.X.iloc[rows] if hasattr(evidence.X, "iloc") else evidence.X[rows]
        )
    return np.asarray(answer, dtype=np.float64)[:, column]


def _shape(points: list[EffectPoint], is_ordered: bool) -> str:
    """What the effect does, with turns that are no larger than the intervals left out."""
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
    words = ["rises" if turn > 0 else "falls" for turn in turns]
    if not words:
        return "rises" if effects[-1] > effects[0] else "falls"
    return " and ".join(words) if len(words) <= 3 else "goes up and down"


def _log_odds(p: Array) -> Array:
    inside = np.clip(p, _EDGE, 1.0 - _EDGE)
    return np.asarray(np.log(inside) - np.log1p(-inside))


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
