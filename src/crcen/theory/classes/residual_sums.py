"""The residuals of K classes as running sums: their variance under the model, and what a drift of log-odds adds."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.price import Price
from crcen.theory.residual_test import ResidualSums
from crcen.theory.rows import check_class_numbers, check_row_weights
from crcen.theory.tensors import as_numpy, rounding_of

__all__ = ["ClassResidualSums", "class_residual_sums"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ClassResidualSums:
    """Sums over rows that add over batches.

    Parameters
    ----------
    n_rows : int
        Rows.
    counts : int64 array of shape (K,)
        Rows of each class.
    flows : float64 array of shape (K, K)
        F_jk = w_j Σ_{y=j} s q_k; the residual of a class is what flows out less what flows in.
    slope : float64 array of shape (K, K)
        A = Σ s (w·p)(diag q − q qᵀ): log-odds that are off by d make a mean residual of A d, to first order.
    variance : float64 array of shape (K, K)
        Of the residuals, where the model is right.
    squares : float64 array of shape (K,)
        Σ of the rows' squared residuals.
    """

    n_rows: int
    counts: Index
    flows: Array
    slope: Array
    variance: Array
    squares: Array

    @classmethod
    def none(cls, n_classes: int) -> "ClassResidualSums":
        """Of no rows."""
        square = np.zeros((n_classes, n_classes))
        return cls(0, np.zeros(n_classes, dtype=np.int64), square, square, square, np.zeros(n_classes))

    def __add__(self, other: "ClassResidualSums") -> "ClassResidualSums":
        return ClassResidualSums(
            self.n_rows + other.n_rows,
            self.counts + other.counts,
            self.flows + other.flows,
            self.slope + other.slope,
            self.variance + other.variance,
            self.squares + other.squares,
        )

    @property
    def n_classes(self) -> int:
        """K."""
        return len(self.counts)

    @property
    def residuals(self) -> Array:
        """Σ s w_y (e_y − q); they sum to zero."""
        return np.asarray(self.flows.sum(axis=1) - self.flows.sum(axis=0))

    def of_class(self, k: int) -> ResidualSums:
        """One class against the others, as the sums of two classes."""
        stays = self.flows[k, k]
        return ResidualSums(
            n_rows=self.n_rows,
            n_pos=int(self.counts[k]),
            missed=float(max(self.flows[k].sum() - stays, 0.0)),
            alarmed=float(max(self.flows[:, k].sum() - stays, 0.0)),
            slope=float(self.slope[k, k]),
            variance=float(self.variance[k, k]),
            squares=float(self.squares[k]),
        )


def class_residual_sums(
    y: ArrayLike, q: ArrayLike, weighting: Price, sample_weight: ArrayLike | None = None
) -> ClassResidualSums:
    """Sum what tests of the key equations of K classes need over rows.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers; classes may be absent.
    q : array of shape (n, K)
        Weighted probabilities; rows sum to 1.
    weighting : Price
        What q was trained under.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Raises
    ------
    InvalidInput
        If labels, probabilities or weights cannot be used.
    """
    w, n_classes = weighting.weights, weighting.n_classes
    numbers, outputs = check_class_numbers(y, n_classes), np.asarray(as_numpy(q), dtype=np.float64)
    if outputs.shape != (numbers.size, n_classes):
        raise InvalidInput(
            f"q must have a row for each of the {numbers.size} labels and a column for each of {n_classes} classes, "
            f"got shape {outputs.shape}"
        )
    slack = max(1e-6, n_classes * rounding_of(q))
    if (
        not np.isfinite(outputs).all()
        or (outputs < 0.0).any()
        or np.abs(outputs.sum(axis=1) - 1.0).max(initial=0.0) > slack
    ):
        raise InvalidInput("q must hold probabilities in [0, 1], each row with the sum 1")
    sizes = check_row_weights(sample_weight, numbers.size)
    p = weighting.posterior(outputs)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below, in words
        flows, squares = np.zeros((n_classes, n_classes)), np.zeros(n_classes)
        mass = sizes * w[numbers]
        np.add.at(flows, numbers, mass[:, None] * outputs)
        residual = -mass[:, None] * outputs
        residual[np.arange(numbers.size), numbers] += mass
        squares = (residual**2).sum(axis=0)
        second = sizes[:, None] ** 2 * p * w**2
        crossed = second.T @ outputs
        variance = np.diag(second.sum(axis=0)) - crossed - crossed.T
        variance += (outputs * second.sum(axis=1)[:, None]).T @ outputs
        weight = (sizes * (p @ w))[:, None] * outputs
        slope = np.diag(weight.sum(axis=0)) - weight.T @ outputs
        # Differences of nearly equal sums lose a diagonal that is tiny: sum it by itself.
        rest = 1.0 - outputs
        np.fill_diagonal(slope, (weight * rest).sum(axis=0))
        others = second.sum(axis=1)[:, None] - second
        np.fill_diagonal(variance, (second * rest**2 + np.maximum(others, 0.0) * outputs**2).sum(axis=0))
    if not all(np.isfinite(values).all() for values in (flows, squares, variance, slope)):
        raise InvalidInput("sample_weight must have squares with a finite sum, got weights too large for that")
    counts = np.bincount(numbers, minlength=n_classes)
    return ClassResidualSums(numbers.size, counts, flows, slope, variance, squares)
