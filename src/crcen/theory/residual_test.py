"""The residual Σ w(y−q) as running sums: its variance under the model, and what it says about a drift in log-odds."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.decision import posterior
from crcen.theory.price import WeightingLike, cost_ratio_of
from crcen.theory.rows import check_binary_target, check_probabilities, check_row_weights

__all__ = [
    "FEWEST_TO_TEST",
    "ResidualSums",
    "TrainingError",
    "residual_sums",
    "residual_variance",
    "tail_bound",
    "two_sided",
    "z_test",
]

# Of Σ w|y−q|: a residual below this share was solved for.
_BALANCED = 1e-10
# Fewer positives than this among new rows, and the residual is not nearly normal.
FEWEST_TO_TEST = 20
# The skewness from which on the tail of a residual is no longer taken for normal. A count of 4 expected events has it.
_LOPSIDED = 0.5


def residual_variance(miss: NDArray[np.float64], alarm: NDArray[np.float64], p: NDArray[np.float64]) -> float:
    """Σ [p·miss² + (1−p)·alarm²], the variance of Σ w(y−q) where p is the true posterior.

    Parameters
    ----------
    miss, alarm : float64 array of shape (n,)
        w(1−q), what a row adds if it is positive, and wq, what it takes off if it is negative.
    p : float64 array of shape (n,)
        Natural posterior under the model.
    """
    return float(np.sum(miss**2 * p + alarm**2 * (1.0 - p)))


def tail_bound(
    residual: float, miss: NDArray[np.float64], alarm: NDArray[np.float64], p: NDArray[np.float64], own: float = 0.0
) -> float:
    """Above which the two-sided p-value of a lopsided residual cannot be, by Bennett's inequality; 0 for others.

    Where a model is sure of nearly all rows, the residual is a count of a few surprises. One of them may lie many
    standard deviations out and still be nothing rare.

    Parameters
    ----------
    residual : float
        Σ w(y−q).
    miss, alarm, p : float64 array of shape (n,)
        As in `residual_variance`.
    own : float
        Variance that the model's own error adds.
    """
    variance = residual_variance(miss, alarm, p) + own
    third = abs(float(np.sum(miss**3 * p - alarm**3 * (1.0 - p))))
    largest = float(np.max(miss if residual > 0.0 else alarm, initial=0.0))
    if not (variance > 0.0 and largest > 0.0) or third <= _LOPSIDED * variance**1.5:
        return 0.0
    far = largest * abs(residual) / variance
    return min(1.0, 2.0 * math.exp(-variance / largest**2 * ((1.0 + far) * math.log1p(far) - far)))


def two_sided(z: float) -> float:
    """The two-sided p-value of a standard normal value."""
    return math.erfc(abs(z) / math.sqrt(2.0))


def z_test(missed: float, alarmed: float, variance: float) -> tuple[float, float, str]:
    """Z of the residual missed − alarmed, its two-sided p-value and, where there is none, the reason."""
    if variance <= 0.0:
        return math.nan, math.nan, "every q is 0 or 1, so the residual has no variance under the model"
    if abs(missed - alarmed) <= _BALANCED * (missed + alarmed):
        return math.nan, math.nan, "these rows were balanced, so the key equation holds on them by construction"
    z = (missed - alarmed) / math.sqrt(variance)
    return z, two_sided(z), ""


@dataclass(frozen=True)
class TrainingError:
    """How far a fitted model's log-odds are off in the mean, by the chance of its training rows.

    Parameters
    ----------
    log_odds : float
        Standard deviation over training sets, of the mean over rows as the residual weighs them.
    degrees : float
        Degrees of freedom of its square as an estimate; infinite where it is known.
    least : float
        What it cannot be below, whatever was estimated.
    """

    log_odds: float
    degrees: float = math.inf
    least: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 <= self.log_odds < math.inf and 0.0 <= self.least < math.inf and self.degrees > 0.0):
            raise InvalidInput(f"a training error needs log_odds and least from 0 and degrees above 0, got {self!r}")

    def __str__(self) -> str:
        return f"log-odds in the mean off by {self.size:.2g} (standard deviation), by the chance of training rows"

    @property
    def size(self) -> float:
        """The standard deviation, as far as it is known."""
        return max(self.log_odds, self.least)

    def noise(self, sums: "ResidualSums") -> float:
        """By how much a residual on rows with these sums varies more than under the true posterior."""
        return 1.0 + (sums.slope * self.size) ** 2 / sums.variance if sums.variance > 0.0 else 1.0

    def test(
        self, missed: float, alarmed: float, variance: float, slope: float, n_pos: int
    ) -> tuple[float, float, str]:
        """As `z_test`, with the model's own error in the variance of the residual and its estimate in the p-value.

        A p-value is the larger of two: with what was estimated, by Student's t, and with the least there is, which is
        no estimate.

        Parameters
        ----------
        missed, alarmed, variance
            As in `z_test`.
        slope : float
            What one unit of log-odds adds to the expected residual.
        n_pos : int
            Positives among the rows.
        """
        z, p_value, reason = z_test(missed, alarmed, variance)
        if not reason and n_pos < FEWEST_TO_TEST:
            return math.nan, math.nan, f"too few: {n_pos} positives, and the test needs {FEWEST_TO_TEST}"
        if reason or self.size == 0.0:
            return z, p_value, reason
        share, surely = ((slope * error) ** 2 / variance for error in (self.log_odds, self.least))
        p_value = two_sided(z / math.sqrt(1.0 + surely))
        if share > 0.0:
            # Satterthwaite: only the part of the variance that is the model's was estimated.
            degrees = self.degrees * ((1.0 + share) / share) ** 2
            p_value = max(p_value, two_sided(_normal_of_t(z / math.sqrt(1.0 + share), degrees)))
        return z / math.sqrt(1.0 + max(share, surely)), p_value, ""


def _normal_of_t(t: float, degrees: float) -> float:
    """The normal value with the tail of Student's t, by Wallace's approximation."""
    if math.isinf(degrees):
        return t
    shrink = (8.0 * degrees + 1.0) / (8.0 * degrees + 3.0)
    return math.copysign(shrink * math.sqrt(degrees * math.log1p(t * t / degrees)), t)


@dataclass(frozen=True)
class ResidualSums:
    """Sums over rows from which the residual test follows; they add, so that rows may come in pieces.

    With s a row's sample weight, q its weighted and p its natural probability under the model:

    Parameters
    ----------
    n_rows, n_pos : int
        Rows, and positives among them.
    missed, alarmed : float
        The two sides of the key equation: Σ sλ(1−q) over positives and Σ s(1−λ)q over negatives.
    slope : float
        Σ sλ(1−q)p, what one unit of log-odds adds to the expected residual, to first order.
    variance : float
        Σ s²[λ²p(1−q)² + (1−λ)²(1−p)q²], the variance of the residual where p is the true posterior.
    squares : float
        Σ of the squared row residuals, whose expectation under the model is `variance`.
    """

    n_rows: int = 0
    n_pos: int = 0
    missed: float = 0.0
    alarmed: float = 0.0
    slope: float = 0.0
    variance: float = 0.0
    squares: float = 0.0

    def __add__(self, other: "ResidualSums") -> "ResidualSums":
        return ResidualSums(
            self.n_rows + other.n_rows,
            self.n_pos + other.n_pos,
            self.missed + other.missed,
            self.alarmed + other.alarmed,
            self.slope + other.slope,
            self.variance + other.variance,
            self.squares + other.squares,
        )

    @property
    def residual(self) -> float:
        """Σ w(y−q)."""
        return self.missed - self.alarmed

    @property
    def z(self) -> float:
        """Z of the residual test, N(0, 1) for the true posterior alone; NaN where the residual has no variance."""
        return self.residual / math.sqrt(self.variance) if self.variance > 0.0 else math.nan


def residual_sums(
    y: ArrayLike, q: ArrayLike, weighting: WeightingLike, sample_weight: ArrayLike | None = None
) -> ResidualSums:
    """Sum what the residual test needs over rows.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive; one class alone is allowed.
    q : array of shape (n,)
        Weighted probabilities of the positive class.
    weighting : Price, Lam, CostRatio, Budget, float or None
        What q was trained under.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Returns
    -------
    ResidualSums
        The sums of these rows.

    Raises
    ------
    InvalidInput
        If labels, probabilities or weights cannot be used.
    """
    positive = check_binary_target(y)
    outputs = check_probabilities(q)
    if outputs.shape != positive.shape:
        raise InvalidInput(f"q must have one value for each of the {positive.size} rows, got shape {outputs.shape}")
    sizes = check_row_weights(sample_weight, positive.size)
    cost = cost_ratio_of(weighting)
    lam, mu = cost / (1.0 + cost), 1.0 / (1.0 + cost)
    p = posterior(outputs, weighting)
    with np.errstate(over="ignore"):  # what overflows is refused below, in words
        miss, alarm = sizes * lam * (1.0 - outputs), sizes * mu * outputs  # of a positive, of a negative row
        sums = ResidualSums(
            n_rows=positive.size,
            n_pos=int(positive.sum()),
            missed=float(miss[positive].sum()),
            alarmed=float(alarm[~positive].sum()),
            slope=float(np.sum(miss * p)),
            variance=residual_variance(miss, alarm, p),
            squares=float(np.sum(miss[positive] ** 2) + np.sum(alarm[~positive] ** 2)),
        )
    if not all(map(math.isfinite, (sums.missed, sums.alarmed, sums.variance, sums.squares))):
        raise InvalidInput("sample_weight must have squares with a finite sum, got weights too large for that")
    return sums
