"""Reasons: contributions of columns to the natural log-odds of rows, and the rows for comparison."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.text import listed
from crcen._support.values import label_key
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.reasons.shapley import shapley_of_ensemble, shapley_of_function
from crcen.models.validation import Seed
from crcen.theory.checks import check_whole_number
from crcen.theory.price import Labels, sigmoid
from crcen.theory.rows import Array, DataFrame, Estimator, Index

_SHOWN_ROWS = 10
# Columns of whole numbers in this range are years.
_YEARS = (1800.0, 2200.0)


@dataclass(frozen=True, eq=False)
class Reasons:
    """Contributions of columns to the natural log-odds of rows.

    Parameters
    ----------
    columns : tuple of str
        Columns of the table.
    values : float64 array of shape (n, columns)
        Shapley values of each column of each row, compared with typical rows; their sum plus ``base`` is
        ``log_odds``.
    errors : float64 array of shape (n, columns)
        Their standard errors.
    log_odds : float64 array of shape (n,)
        Natural log-odds of the positive class; without a positive class log p(class) / p(rival).
    base : float, or float64 array of shape (n,)
        Mean log-odds of the background rows; one value for each row without a positive class.
    cells : object array of shape (n, columns)
        The cells as text.
    classes, rivals : object arrays of shape (n,), optional
        Without a positive class: the explained class of each row, and the most probable other class.
    """

    columns: tuple[str, ...]
    values: Array
    errors: Array
    log_odds: Array
    base: float | Array
    cells: NDArray[np.object_]
    classes: NDArray[np.object_] | None = None
    rivals: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def standard_error(self) -> float:
        """The largest standard error of a value."""
        return float(self.errors.max(initial=0.0))

    @property
    def comparisons(self) -> list[str]:
        """For several classes the two that each row compares, such as "worn rather than fine"; otherwise empty."""
        if self.classes is None or self.rivals is None:
            return []
        return [f"{one} rather than {other}" for one, other in zip(self.classes, self.rivals, strict=True)]

    def sentences(self, number: int = 3, n_rows: int | None = None) -> list[list[str]]:
        """The strongest reasons of every row in words, such as "balance 2,310: +1.4 log-odds".

        Parameters
        ----------
        number : int, default=3
            Number of reasons, at most the number of columns.
        n_rows : int, optional
            Number of rows; by default all.
        """
        number = check_whole_number(number, "number", 1)
        order = np.argsort(-np.abs(self.values[:n_rows]), axis=1, kind="stable")[:, :number]
        return [
            [f"{self.columns[j]} {self.cells[i, j]}: {_signed(self.values[i, j])} log-odds" for j in own]
            for i, own in enumerate(order)
        ]

    def columns_of(self, number: int = 3) -> list[list[str]]:
        """The same by rank: the strongest reason of every row, then the second, and so on; "" for none."""
        found = self.sentences(number)
        return [[one[i] if i < len(one) else "" for one in found] for i in range(number)]

    def to_frame(self) -> DataFrame:
        """The values as a data frame with the columns of the table."""
        import pandas as pd

        return pd.DataFrame(self.values, columns=list(self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = {"classes": self.classes, "rivals": self.rivals}
        return {
            "columns": list(self.columns),
            "values": self.values.tolist(),
            "errors": self.errors.tolist(),
            "log_odds": self.log_odds.tolist(),
            "base": self.base.tolist() if isinstance(self.base, np.ndarray) else self.base,
            "standard_error": self.standard_error,
            **{name: [str(one) for one in labels] for name, labels in pairs.items() if labels is not None},
        }

    @property
    def about(self) -> str:
        """The comparison of the values, and their precision."""
        exact = f"standard error at most {self.standard_error:.2g} log-odds" if self.standard_error else "exact"
        if isinstance(self.base, np.ndarray):
            return f"against typical rows, for a class rather than the likeliest other one, {exact}"
        p = sigmoid(np.array(self.base))
        return f"against typical rows with log-odds {self.base:.2f} (probability {p:.3g}), {exact}"

    def __repr__(self) -> str:
        return f"<Reasons of {len(self):,} rows and {len(self.columns)} columns, {self.about}>"

    def __str__(self) -> str:
        lines, compared = [f"Reasons of {len(self):,} rows {self.about}"], self.comparisons
        for i, reasons in enumerate(self.sentences(n_rows=_SHOWN_ROWS)):
            lines.append(": ".join([f"  {i + 1}", *compared[i : i + 1], "; ".join(reasons)]))
        return "\n".join([*lines, *(["  …"] if len(self) > _SHOWN_ROWS else [])])

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{i + 1}</td><td>{log_odds:.2f}</td>{''.join(f'<td>{escape(one)}</td>' for one in reasons)}</tr>"
            for i, (log_odds, reasons) in enumerate(
                zip(self.log_odds, self.sentences(n_rows=_SHOWN_ROWS), strict=False)
            )
        )
        head = "<tr><th>row</th><th>log-odds</th><th>reasons, the strongest first</th></tr>"
        return f"<table>{head}{rows}</table><p>{escape(f'{len(self):,} rows, {self.about}')}</p>"


def spelled(values: Array) -> NDArray[np.object_]:
    """Numbers of a column as text, "missing" for NaN."""
    present = values[~np.isnan(values)]
    are_years = present.size > 0 and bool(
        ((present >= _YEARS[0]) & (present <= _YEARS[1]) & (present == np.round(present))).all()
    )
    return np.array([_number(float(value), are_years) for value in values], dtype=object)


def _number(value: float, is_year: bool) -> str:
    if np.isnan(value):
        return "missing"
    if is_year:
        return f"{value:.0f}"
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e15):
        return f"{value:.4g}"
    if value == round(value) or size >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4g}"


def _signed(value: float) -> str:
    """Two digits: smaller differences are below the standard error."""
    return f"{value:+.1f}" if abs(value) >= 1.0 else f"{value:+.2f}"


# Number of typical rows, and largest number of background rows given by the caller.
_N_TYPICAL, _MOST_ROWS = 32, 64
# Largest number of training rows that are used, and number of orders that are tried for a column.
_LOOKED_AT, _ORDERS = 50_000, 64


def typical_rows(X: Array, blocks: Sequence[Index], averaged: Sequence[bool] = (), n_rows: int = _N_TYPICAL) -> Array:
    """Artificial rows with the distribution of every column, (n_rows, n_features)."""
    rng = np.random.default_rng(0)
    if len(X) > _LOOKED_AT:
        X = X[np.sort(rng.choice(len(X), _LOOKED_AT, replace=False))]
    ranks = ((np.arange(n_rows) + 0.5) / n_rows * len(X)).astype(np.int64)
    edges = (np.arange(n_rows + 1) / n_rows * len(X)).astype(np.int64)
    found = np.empty((n_rows, X.shape[1]))
    gram, orders = np.zeros((n_rows, n_rows)), np.tile(np.arange(n_rows), (_ORDERS, 1))
    for j, block in enumerate(blocks):
        part = X[:, block]
        order = np.lexsort(part.T[::-1])
        cells = part[order[ranks]]
        if len(averaged) and averaged[j]:
            pieces = [part[order[a : max(b, a + 1)]] for a, b in itertools.pairwise(edges)]
            cells = np.array([piece.mean(axis=0) for piece in pieces])
        # Of some random orders the one with the least correlation to the earlier columns.
        tried = rng.permuted(orders, axis=1)
        place = tried[int(np.argmin(((tried @ gram) * tried).sum(axis=1)))]
        centred = place - place.mean()
        gram += np.outer(centred, centred)
        found[:, block] = cells[place]
    return found


# Smallest probability in the log-odds of classifiers without logits.
_LEAST = 1e-7


def explain_rows(
    model: Estimator,
    X: Array,
    background: Array | None,
    blocks: Sequence[Index],
    columns: Sequence[str],
    cells: NDArray[np.object_],
    random_state: Seed,
    *,
    is_made_up: bool = False,
    classes: ArrayLike | None = None,
) -> Reasons:
    """Reasons of encoded rows."""
    has_several = len(model.classes_) > 2 or getattr(getattr(model, "weighting_", None), "positive", 1) is None
    if classes is not None and not has_several:
        raise InvalidParameter("classes must be left out: reasons of two classes are for the positive one.")
    seed = check_whole_number(random_state, "random_state", 0)
    if background is None or not len(background):
        raise InvalidParameter(
            "reasons compare rows with others, and this model stores none: give some as background=, such as the "
            "training rows.",
            parameter="background",
        )
    if not is_made_up and len(background) > _MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(background), _MOST_ROWS, replace=False)
        background = background[np.sort(rows)]
    if has_several:
        pairs = _class_pairs(model, X, classes)
    else:
        labels = model.ensemble_.labels if hasattr(model, "ensemble_") else Labels.of_model(model)
        pairs = np.full(len(X), labels.column), np.full(len(X), 1 - labels.column)
    if hasattr(model, "ensemble_"):
        found = shapley_of_ensemble(model.ensemble_, X, background, blocks, pairs, seed, joblib.cpu_count())
    else:
        found = shapley_of_function(_logits_of(model, has_several), X, background, blocks, pairs, seed)
    if not np.isfinite(found.values).all():
        raise InvalidInput("X holds values too large for this model: its output overflows.")
    values = (tuple(columns), found.values, found.errors, found.log_odds)
    if not has_several:
        return Reasons(*values, float(found.base[0]), cells)
    labelled = (np.array([model.classes_.tolist()[k] for k in side], dtype=object) for side in pairs)
    return Reasons(*values, found.base, cells, *labelled)


def _class_pairs(model: Estimator, X: Array, classes: ArrayLike | None) -> tuple[Index, Index]:
    """Numbers of the explained class of each row, by default the decided one, and of the most probable other class."""
    p = np.array(model.predict_proba(X), dtype=np.float64)
    labels, costs = model.classes_.tolist(), getattr(model, "costs_", None)
    actions = () if costs is None else costs.actions
    classes = model.predict(X) if classes is None else classes
    place = {label_key(label): k for k, label in enumerate(labels)}
    given: list[Any] = [classes] * len(p) if np.ndim(classes) == 0 else [*np.asarray(classes, dtype=object)]
    if len(given) != len(p):
        raise InvalidParameter(f"classes must have one label a row: got {len(given)} for {len(p)}.")
    known = {*place, *map(label_key, actions)}
    unknown = next((one for one in given if label_key(one) not in known), None)
    if unknown is not None:
        raise InvalidParameter(f"classes must be of this model, {listed(labels)}: got {unknown!r}.")
    likeliest = p.argmax(axis=1)  # explains an action
    first = np.array([place.get(label_key(one), k) for one, k in zip(given, likeliest, strict=True)], np.int64)
    p[np.arange(len(p)), first] = -1.0
    return first, p.argmax(axis=1)


def _logits_of(model: Estimator, has_several: bool) -> Callable[[Array], Array]:
    """Natural logits (n, K) of any classifier; the negative class of a binary problem has the logit 0."""

    def logits(X: Array) -> Array:
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
        if has_several:
            return np.log(np.clip(p, _LEAST, 1.0))
        labels = Labels.of_model(model)
        positive = np.clip(p[:, labels.column], _LEAST, 1.0 - _LEAST)
        return labels.columns(np.log(positive) - np.log1p(-positive))

    return logits
