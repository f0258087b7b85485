"""How good probabilities of K classes and the decisions they lead to were, on labelled rows."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.class_counts import ClassCounts, class_counts
from crcen.theory.cost_matrix import CostMatrix
from crcen.theory.price import Price
from crcen.theory.rows import check_class_numbers, check_row_weights
from crcen.theory.threshold_curve import ThresholdCurve, average_precision

__all__ = ["ClassScores", "class_average_precisions", "class_log_losses", "class_scores"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

# A probability of exactly 0 would make the log loss infinite.
_SMALLEST = 1e-15


@dataclass(frozen=True, eq=False)
class ClassScores:
    """Scores of probabilities and decisions on labelled rows.

    Parameters
    ----------
    counts : ClassCounts
        How rows of each class were decided; precision, recall and F1 of each class are there.
    log_loss : float
        Mean −log p of the rows' own classes.
    average_precisions : float64 array of shape (K,)
        Of each class against all others; NaN for a class without rows.
    cost, expected_cost : float
        What a row cost on average, and what the probabilities expected.
    cost_of_habit : float
        What it would have cost with the one decision for all rows that is cheapest on these rows.
    """

    counts: ClassCounts
    log_loss: float
    average_precisions: Array
    cost: float
    expected_cost: float
    cost_of_habit: float

    @property
    def balanced_accuracy(self) -> float:
        """Mean recall of the classes that have rows."""
        return self.counts.balanced_accuracy

    @property
    def g_mean(self) -> float:
        """Geometric mean of their recalls."""
        return self.counts.g_mean

    @property
    def macro_f1(self) -> float:
        """Mean F1 of the classes that are there, in truth or as a decision."""
        return self.counts.macro_f1

    @property
    def macro_average_precision(self) -> float:
        """Mean average precision of the classes that have rows."""
        return float(np.nanmean(self.average_precisions))

    @property
    def relative_cost(self) -> float:
        """Cost over that of the cheapest habit: 1 is no better than one decision for all; NaN where that is free."""
        return self.cost / self.cost_of_habit if self.cost_of_habit > 0.0 else float("nan")


def class_log_losses(y: ArrayLike, p: ArrayLike) -> Array:
    """−log p of every row's own class; a probability of 0 counts as 1e-15.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers.
    p : array of shape (n, K)
        Natural probabilities.
    """
    numbers, chances = _checked(y, p)
    own = chances[np.arange(len(numbers)), numbers]
    return np.asarray(-np.log(np.maximum(own, _SMALLEST)))


def class_average_precisions(y: ArrayLike, p: ArrayLike, sample_weight: ArrayLike | None = None) -> Array:
    """Average precision of each class against all others, (K,); NaN for a class without rows.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers.
    p : array of shape (n, K)
        Natural probabilities, or anything that ranks rows for each class.
    sample_weight : array of shape (n,), optional
        Finite and not negative.
    """
    numbers, chances = _checked(y, p)
    weights = check_row_weights(sample_weight, numbers.size)
    columns = enumerate(chances.T)
    return np.array([average_precision(*ThresholdCurve(numbers == k, column).totals(weights)) for k, column in columns])


def class_scores(
    y: ArrayLike, p: ArrayLike, price: CostMatrix | Price, sample_weight: ArrayLike | None = None
) -> ClassScores:
    """Score probabilities of K classes, and the decisions they lead to at a price.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers, in the order of the columns of p and of the costs.
    p : array of shape (n, K)
        Natural probabilities.
    price : CostMatrix or Price
        What decisions cost; with class weights every mistake on a class costs its weight.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Raises
    ------
    InvalidInput
        If labels, probabilities or weights cannot be used.
    """
    numbers, chances = _checked(y, p)
    weights, costs = (
        check_row_weights(sample_weight, numbers.size),
        (price.cost_matrix if isinstance(price, Price) else price),
    )
    expected, chosen = costs.expected(chances), costs.choose(chances)
    n_actions, rows, total = expected.shape[1], np.arange(len(numbers)), weights.sum()
    paid = np.stack([costs.realised(numbers, np.full(len(numbers), action)) for action in range(n_actions)], axis=1)
    return ClassScores(
        counts=class_counts(numbers, chosen, costs.n_classes, weights, n_actions=n_actions),
        log_loss=float(weights @ class_log_losses(numbers, chances) / total),
        average_precisions=class_average_precisions(numbers, chances, weights),
        cost=float(weights @ paid[rows, chosen] / total),
        expected_cost=float(weights @ expected[rows, chosen] / total),
        cost_of_habit=float((weights @ paid).min() / total),
    )


def _checked(y: ArrayLike, p: ArrayLike) -> tuple[Index, Array]:
    chances = np.asarray(p, dtype=np.float64)
    if chances.ndim != 2 or chances.shape[1] < 2 or not np.isfinite(chances).all():
        raise InvalidInput(f"p must have a finite column for each class: got shape {chances.shape}.")
    numbers = check_class_numbers(y, chances.shape[1])
    if len(numbers) != len(chances):
        raise InvalidInput(f"p must have one row a label: got {len(chances)} for {len(numbers)}.")
    return numbers, chances
