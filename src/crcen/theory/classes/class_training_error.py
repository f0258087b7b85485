"""How far a fitted model of K classes may be off by the chance of its training rows, and tests that allow for it."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.chi_square import chi_square_tail

__all__ = ["ClassTrainingError", "f_tail", "quadratic_form"]

Array = NDArray[np.float64]
_DEPENDENT = 1e-10  # of the largest eigenvalue: equations that depend on others say nothing more


@dataclass(frozen=True, eq=False)
class ClassTrainingError:
    """`crcen.theory.residual_test.TrainingError` for K classes: the mean errors of all log-odds together.

    Parameters
    ----------
    covariance : float64 array of shape (K, K)
        Over training sets, of the mean log-odds as the residuals weigh them; a shift of all classes alike is none.
    degrees : float
        Degrees of freedom of its scale as an estimate; infinite where it is known.
    least : float64 array of shape (K, K)
        What it cannot be below, whatever was estimated.
    pairs : float
        By how much each new row raises the variances of the pairwise equations: a model's errors between two classes
        differ from row to row, and their mean does not say them.
    """

    covariance: Array
    degrees: float
    least: Array
    pairs: float = 0.0

    def __post_init__(self) -> None:
        shape = np.shape(self.covariance)
        fit = len(shape) == 2 and shape[0] == shape[1] and np.shape(self.least) == shape
        fit = fit and self.degrees > 0.0 and 0.0 <= self.pairs < math.inf
        if not fit or not all(np.isfinite(part).all() for part in (self.covariance, self.least)):
            raise InvalidInput(
                "a training error needs two finite (K, K) covariances, degrees above 0 and pairs from 0."
            )

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:.2g}" for size in self.sizes)
        return f"log-odds of the classes off by {sizes} in the mean (standard deviations), by chance of training rows"

    @property
    def sizes(self) -> Array:
        """The standard deviation of each class, as far as it is known."""
        both = np.maximum(np.diag(self.covariance), np.diag(self.least))
        return np.asarray(np.sqrt(np.maximum(both, 0.0)))

    def added(self, jacobian: Array) -> tuple[Array, Array]:
        """What the error adds to the covariance of sums that log-odds move so: as estimated, and at least."""
        return jacobian @ self.covariance @ jacobian.T, jacobian @ self.least @ jacobian.T

    def variances(self, variance: Array, jacobian: Array) -> Array:
        """Variances of such sums with the model's own error in them, the larger of both."""
        estimated, least = (np.diag(part) for part in self.added(jacobian))
        return np.asarray(np.diag(variance) + np.maximum(estimated, least))

    def test(self, sums: Array, variance: Array, jacobian: Array) -> tuple[float, int, float]:
        """One statistic for all sums, its degrees of freedom and its p-value.

        The p-value is the larger of two, as for two classes: with what was estimated, by Snedecor's F, and with the
        least there is, which is no estimate.

        Parameters
        ----------
        sums, variance
            Of mean 0 and this covariance for the true posterior.
        jacobian : float64 array of shape (m, K)
            What one unit of each class's log-odds adds to their means.
        """
        found = []
        for part, is_estimate in zip(self.added(jacobian), (True, False), strict=True):
            whole = variance + part
            statistic, degrees = quadratic_form(sums, whole)
            p_value = chi_square_tail(statistic, degrees)
            if is_estimate and math.isfinite(self.degrees):
                # Satterthwaite: only the model's part of the variance was estimated.
                share = float(np.trace(np.linalg.pinv(whole, hermitian=True) @ part)) / degrees
                p_value = f_tail(statistic / degrees, degrees, self.degrees / max(share, 1e-6) ** 2)
            found.append((p_value, statistic, degrees))
        p_value, statistic, degrees = max(found)
        return statistic, degrees, p_value

    def test_pairs(self, sums: Array, variance: Array, share: float) -> tuple[float, int, float]:
        """The same of all pairwise equations, whose variances the error raises by this share."""
        statistic, degrees = quadratic_form(sums, (1.0 + share) * variance)
        below = self.degrees * ((1.0 + share) / max(share, 1e-6)) ** 2
        return statistic, degrees, f_tail(statistic / degrees, degrees, below)


def quadratic_form(sums: Array, variance: Array) -> tuple[float, int]:
    """sumsᵀ variance⁻¹ sums, and how many of the sums are independent."""
    scale = np.sqrt(np.diag(variance))
    values, vectors = np.linalg.eigh(variance / scale[:, None] / scale[None])
    kept = values > _DEPENDENT * values.max()
    along = (vectors.T @ (sums / scale))[kept]
    return float((along**2 / values[kept]).sum()), int(kept.sum())


def f_tail(value: float, degrees: int, below: float) -> float:
    """P(F > value) with these degrees of freedom: the χ² tail, averaged over the estimate below the line."""
    if below > 1e6:
        return chi_square_tail(value * degrees, degrees)
    # log of χ²/below, whose density is x^(below/2) e^(−below·x/2) up to a factor.
    spread = math.sqrt(2.0 / below)
    logs = np.linspace(-12.0 * spread - 40.0 / below, 12.0 * spread, 81)
    density = 0.5 * below * (logs - np.expm1(logs))
    weights = np.exp(density - density.max())
    tails = [chi_square_tail(value * degrees * math.exp(one), degrees) for one in logs]
    return float(np.dot(weights, tails) / weights.sum())
