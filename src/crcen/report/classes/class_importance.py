"""Which columns matter to a model of several classes: how much the log loss rises when a column is shuffled."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.classes.findings import ClassRows
from crcen.report.encoded_rows import EncodedRows
from crcen.report.importance import MOST_ROWS, Importances, importances_by, shuffled_answers

__all__ = ["class_importance", "rows_of_each_class"]

Array = NDArray[np.float64]

_SMALLEST = 1e-15
# An answer for K classes takes K trees where one for two takes one: with more classes fewer rows are shuffled.
_FEWEST_ROWS = 1000


def class_importance(
    model: Any, X: Any, encoded: EncodedRows | None, rows: ClassRows, random_state: int = 0
) -> Importances:
    """Shuffle one column at a time; of many rows some of each class are looked at, which count for all.

    Parameters
    ----------
    model : object
        Of several classes.
    X : DataFrame
        The rows as it takes them.
    encoded : EncodedRows or None
        The same as its network sees them.
    rows : ClassRows
        Its answers.
    random_state : int
        Seed of rows and permutations.
    """
    rng = np.random.default_rng(random_state)
    most = max(_FEWEST_ROWS, 2 * MOST_ROWS // len(rows.labels))
    chosen, weights = rows_of_each_class(rows, most, rng)
    y = rows.y[chosen]
    columns = [str(name) for name in X.columns]
    answers = shuffled_answers(model, X, columns, encoded, chosen)

    def losses(answer: Any) -> Array:
        own = np.asarray(answer, dtype=np.float64)[np.arange(len(y)), y]
        return np.asarray(-np.log(np.clip(own, _SMALLEST, 1.0)))

    # What is shuffled is the model itself, so it is compared with its own answers.
    before = losses(answers(0, np.arange(len(y))) if rows.is_out_of_fold else rows.p[chosen])
    shares = np.bincount(y, weights, len(rows.labels)) / weights.sum()
    base = float(-(shares[shares > 0.0] @ np.log(shares[shares > 0.0])))
    return importances_by(columns, answers, losses, before, base, weights, rng)


def rows_of_each_class(rows: ClassRows, most: int, rng: np.random.Generator) -> tuple[NDArray[np.int64], Array]:
    """Rows and what each counts: all, or of many some of each class that count for all of it."""
    if len(rows.y) <= most:
        return np.arange(len(rows.y)), rows.weights
    chosen, weights = [], []
    # Half by the size of a class, half for each class alike: rare ones are few, and often dear.
    for k, size in enumerate(rows.counts):
        own = np.flatnonzero(rows.y == k)
        wanted = min(int(size), max(1, int(0.5 * most * size / len(rows.y) + 0.5 * most / len(rows.labels))))
        some = np.sort(rng.choice(own, wanted, replace=False))
        if wanted:
            chosen.append(some)
            weights.append(rows.weights[some] * (rows.weights[own].sum() / rows.weights[some].sum()))
    return np.concatenate(chosen), np.concatenate(weights)
