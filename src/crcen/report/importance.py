"""Which columns matter: how much worse the probabilities get when a column is shuffled, with intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.report.encoded_rows import EncodedRows
from crcen.report.evidence import Evidence, positive_column
from crcen.theory.metrics import log_losses

__all__ = ["ColumnImportance", "Importances", "importances_by", "permutation_importance", "shuffled_answers"]

Array = NDArray[np.float64]

# Rows looked at, and how many predictions of them are made in all: a wide table gets fewer repeats.
MOST_ROWS, MOST_REPEATS, MOST_PASSES = 4000, 5, 250


@dataclass(frozen=True)
class ColumnImportance:
    """One column.

    Parameters
    ----------
    name : str
        Its name.
    increase : float
        Mean increase of the natural log loss when the column is shuffled.
    low, high : float
        95 % interval over the rows.
    """

    name: str
    increase: float
    low: float
    high: float


@dataclass(frozen=True)
class Importances:
    """All columns, the most important first.

    Parameters
    ----------
    columns : tuple of ColumnImportance
        Sorted by increase.
    n_rows, n_repeats : int
        How many rows were shuffled, and how often each column.
    log_loss : float
        Natural log loss of the model on these rows.
    base_log_loss : float
        That of saying the share of positives to everybody.
    """

    columns: tuple[ColumnImportance, ...]
    n_rows: int
    n_repeats: int
    log_loss: float
    base_log_loss: float

    @property
    def share_of_first(self) -> float:
        """The first column's part in the rise over all columns, each shuffled by itself; 0 where none rises."""
        rises = [max(one.increase, 0.0) for one in self.columns]
        return rises[0] / sum(rises) if sum(rises) > 0.0 else 0.0


def permutation_importance(evidence: Evidence, random_state: int = 0) -> Importances:
    """Shuffle one column at a time and see what it costs.

    The same permutations serve every column. The interval is that of a mean over rows, each row's increase being its
    mean over the repeats, so it says how far another sample of rows could differ; it does not cover refitting. Columns
    that say the same thing share their importance, and each may look unimportant.

    Parameters
    ----------
    evidence : Evidence
        The model and its rows. Where there are more than 4,000, all positives (at most half of that) and a random
        part of the others, weighted so that shares stay right, are looked at.
    random_state : int
        Seed of rows and permutations.

    Returns
    -------
    Importances
        One entry a column.
    """
    rng = np.random.default_rng(random_state)
    rows, weights = _chosen_rows(evidence, rng)
    answers = shuffled_answers(evidence.model, evidence.X, evidence.columns, evidence.encoded, rows)
    target, p = evidence.target[rows], evidence.p[rows]
    column = positive_column(evidence.model, evidence.pos_label)

    def losses(answer: Any) -> Array:
        return log_losses(target, np.asarray(answer, dtype=np.float64)[:, column])

    # What is shuffled is the model itself, so it is compared with its own answers.
    before = losses(answers(0, np.arange(rows.size))) if evidence.is_out_of_fold else log_losses(target, p)
    share = float(weights[target].sum() / weights.sum())
    base = float(np.average(log_losses(target, np.full(rows.size, share)), weights=weights))
    return importances_by(evidence.columns, answers, losses, before, base, weights, rng)


def importances_by(
    columns: Sequence[str],
    answers: Callable[[int, NDArray[np.int64]], Any],
    losses: Callable[[Any], Array],
    before: Array,
    base_log_loss: float,
    weights: Array,
    rng: np.random.Generator,
) -> Importances:
    """The importance of every column, by what it costs to shuffle it.

    Parameters
    ----------
    columns : sequence of str
        Their names.
    answers : callable
        As `shuffled_answers` gives it.
    losses : callable
        The log loss of each row by such an answer.
    before, weights : float64 arrays of shape (n,)
        The log loss of each row as it is, and what it counts.
    base_log_loss : float
        That of saying the shares of the classes to everybody.
    rng : Generator
        Of the permutations.
    """
    n_repeats = max(1, min(MOST_REPEATS, MOST_PASSES // max(len(columns), 1)))
    orders = [rng.permutation(len(before)) for _ in range(n_repeats)]
    found = []
    for number, name in enumerate(columns):
        increases = [losses(answers(number, order)) - before for order in orders]
        found.append(_importance(name, np.mean(increases, axis=0), weights))
    found.sort(key=lambda one: -one.increase)
    log_loss = float(np.average(before, weights=weights))
    return Importances(tuple(found), len(before), n_repeats, log_loss, base_log_loss)


def _chosen_rows(evidence: Evidence, rng: np.random.Generator) -> tuple[NDArray[np.int64], Array]:
    if evidence.n_rows <= MOST_ROWS:
        return np.arange(evidence.n_rows), evidence.weights
    parts, weights = [], []
    positives, negatives = np.flatnonzero(evidence.target), np.flatnonzero(~evidence.target)
    few = min(positives.size, MOST_ROWS // 2)
    for rows, wanted in ((positives, few), (negatives, min(negatives.size, MOST_ROWS - few))):
        chosen = np.sort(rng.choice(rows, wanted, replace=False))
        parts.append(chosen)
        weights.append(evidence.weights[chosen] * (rows.size / wanted))
    return np.concatenate(parts), np.concatenate(weights)


def shuffled_answers(
    model: Any, X: Any, columns: Sequence[str], encoded: EncodedRows | None, rows: NDArray[np.int64]
) -> Callable[[int, NDArray[np.int64]], Any]:
    """A function that gives the model's answers for these rows after a column was put into another order."""
    if encoded is None:
        some = X.iloc[rows] if hasattr(X, "iloc") else X[rows]
        return lambda number, order: model.predict_proba(_shuffled(some, number, order))
    return _by_encoding(columns, encoded, rows)


def _by_encoding(
    columns: Sequence[str], encoded: EncodedRows, rows: NDArray[np.int64]
) -> Callable[[int, NDArray[np.int64]], Any]:
    """The same where columns are encoded one by one: to shuffle what comes of a column is the same, and quicker."""
    X, unused = encoded.X[rows], slice(0, 0)
    blocks = [encoded.columns[name].block if name in encoded.columns else unused for name in columns]

    def answer(number: int, order: NDArray[np.int64]) -> Any:
        shuffled = X.copy()
        shuffled[:, blocks[number]] = X[order, blocks[number]]
        return encoded.estimator.predict_proba(shuffled)

    return answer


def _shuffled(X: Any, number: int, order: NDArray[np.int64]) -> Any:
    """A copy of the rows with one column in another order, its type kept."""
    copy = X.copy()
    if hasattr(copy, "isetitem"):
        copy.isetitem(number, X.iloc[order, number].set_axis(X.index))
    else:
        copy[:, number] = X[order, number]
    return copy


def _importance(name: str, increase: Array, weights: Array) -> ColumnImportance:
    total = float(weights.sum())
    mean = float(np.sum(weights * increase)) / total
    half = 1.96 * float(np.sqrt(np.sum(weights**2 * (increase - mean) ** 2))) / total
    return ColumnImportance(name, mean, mean - half, mean + half)
