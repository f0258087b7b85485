"""Expense by pairs: what rows of one class cost in rows of another when class weights change."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.price import Price
from crcen.theory.rows import check_class_numbers, check_row_weights
from crcen.theory.shown import Shown

__all__ = ["ClassExpense", "PairExpense", "class_expense"]

Array = NDArray[np.float64]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class PairExpense:
    """Rows that were decided for one class at the first weights and for another at the second.

    Parameters
    ----------
    source, target : int
        Numbers of the class that rows left, and of the one they went to.
    n_rows : int
        How many.
    lost, gained : float
        Rows of ``source`` and of ``target`` among them: expected ones, or counted where labels were given.
    low, high : float
        The bracket w_target / w_source before and after. A row that moved has a ratio of probabilities inside it.
    """

    source: int
    target: int
    n_rows: int
    lost: float
    gained: float
    low: float
    high: float

    @property
    def expense(self) -> float:
        """Rows of ``source`` lost for one of ``target`` gained; NaN where none was gained."""
        return self.lost / self.gained if self.gained > 0.0 else math.nan

    @property
    def is_inside(self) -> bool:
        """Whether the expense is inside its bracket, as expected ones always are."""
        return self.low * (1.0 - _ROUNDING) <= self.expense <= self.high * (1.0 + _ROUNDING)


@dataclass(frozen=True)
class ClassExpense(Shown):
    """What a change of class weights moved.

    Parameters
    ----------
    pairs : tuple of PairExpense
        For every pair of classes between which rows moved.
    raised : int or None
        The one class whose weight was raised, the others keeping theirs; None for another change.
    price : float
        Then: weight of all rows lost to other classes for one row of ``raised`` gained; else NaN.
    low, high : float
        Then: the weight of ``raised`` before and after, between which an expected price lies.
    """

    pairs: tuple[PairExpense, ...]
    raised: int | None
    price: float
    low: float
    high: float

    def __str__(self) -> str:
        lines = [f"{'from':>6}  {'to':>6}  {'rows':>8}  {'lost':>10}  {'gained':>10}  {'expense':>9}  bracket"]
        for one in self.pairs:
            lines.append(
                f"{one.source:>6}  {one.target:>6}  {one.n_rows:>8,}  {one.lost:>10.4g}  {one.gained:>10.4g}  "
                f"{one.expense:>9.4g}  {one.low:.4g} to {one.high:.4g}"
            )
        if self.raised is not None and not math.isnan(self.price):
            lines.append(
                f"all pairs: {self.price:.4g} for one row of class {self.raised}, between {self.low:.4g} and "
                f"{self.high:.4g}"
            )
        return "\n".join(lines)


def class_expense(
    p: ArrayLike,
    start: Price,
    end: Price,
    y: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
) -> ClassExpense:
    """Price what moves between classes when the weights that decide change.

    A row that goes from class a to class k was decided by w_a p_a ≥ w_k p_k before and w_k p_k ≥ w_a p_a after, so that
    p_a / p_k lies between both ratios w_k / w_a; so does the sum over all such rows, in expectation.

    Parameters
    ----------
    p : array of shape (n, K)
        Natural probabilities.
    start, end : Price
        Weights before and after.
    y : array of shape (n,), optional
        Class numbers; then rows are counted instead of expected.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Raises
    ------
    InvalidInput, InvalidParameter
        If probabilities, labels or weights cannot be used.
    """
    if start.n_classes != end.n_classes:
        raise InvalidParameter(f"both weights must be of as many classes: got {start.n_classes} and {end.n_classes}.")
    before, after = (weights.weighted(p).argmax(axis=1) for weights in (start, end))
    chances = np.asarray(p, dtype=np.float64)
    sizes = check_row_weights(sample_weight, len(chances))[:, None]
    if y is None:
        mass = sizes * chances
    else:
        numbers = check_class_numbers(y, start.n_classes)
        if len(numbers) != len(chances):
            raise InvalidInput(f"p must have one row a label: got {len(chances)} for {len(numbers)}.")
        mass = sizes * (numbers[:, None] == np.arange(start.n_classes))
    pairs = []
    for source, target in sorted({*zip(before.tolist(), after.tolist(), strict=True)}):
        if source == target:
            continue
        mine = (before == source) & (after == target)
        ends = (one.weights[target] / one.weights[source] for one in (start, end))
        lost, gained = mass[mine].sum(axis=0)[[source, target]]
        pairs.append(PairExpense(source, target, int(mine.sum()), float(lost), float(gained), *map(float, ends)))
    return ClassExpense(tuple(pairs), *_together(pairs, start.weights, end.weights))


def _together(pairs: list[PairExpense], start: Array, end: Array) -> tuple[int | None, float, float, float]:
    """The class that was raised, the price of all pairs in units of the other classes' weights, and its bracket."""
    ratio = end / start
    raised = int(np.argmax(ratio))
    others = np.delete(ratio, raised)
    if ratio[raised] <= others[0] * (1.0 + _ROUNDING) or np.ptp(others) > _ROUNDING * others[0]:
        return None, math.nan, math.nan, math.nan
    gained = sum(pair.gained for pair in pairs)
    lost = sum(start[pair.source] * pair.lost for pair in pairs)
    price = lost / gained if gained > 0.0 else math.nan
    return raised, float(price), float(start[raised]), float(end[raised] / others[0])
