"""The key equation on any rows: (1 − mean_pos) / mean_neg = 1/α, how far off it is, and whether that is chance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.class_means import means_by_law
from crcen.theory.classes.class_training_error import ClassTrainingError
from crcen.theory.classes.key_equations import class_key_equations
from crcen.theory.decision import posterior, sigmoid
from crcen.theory.price import Alpha, Budget, CostRatio, Lam, Price, WeightingLike, resolve
from crcen.theory.residual_test import TrainingError, residual_variance, tail_bound, z_test
from crcen.theory.rows import check_binary_target, check_probabilities, check_row_weights, class_totals
from crcen.theory.shown import Shown
from crcen.theory.tensors import as_numpy

__all__ = [
    "KeyEquation",
    "key_equation",
    "key_equation_of_logits",
    "key_equation_of_moments",
    "on_rows",
    "without_test",
]

_OUT_OF_FOLD = "folds share their training rows, so errors cancel out of fold; test on rows that no fold has seen"


@dataclass(frozen=True)
class KeyEquation(Shown):
    """Both sides of the key equation on some rows, with what belongs to them.

    Parameters
    ----------
    weighting : Price
        The resolved weighting; its counts are those of the training rows where it came resolved.
    lhs : float
        (1 − mean_pos) / mean_neg; inf where mean_neg is 0, NaN for 0/0.
    residual : float
        |λ·n_pos·(1 − mean_pos) − (1−λ)·n_neg·mean_neg| / (λ·n_pos + (1−λ)·n_neg), with the counts of the weighting:
        |Σ w(y−q)| / Σ w on the training rows, and still meaningful on rows with another class ratio.
    imbalance : float
        The same difference, divided by the sum of the two terms: |Σ w(y−q)| / Σ w|y−q| on the training rows. It does
        not become small merely because the classes are separable; 0 where both terms are 0.
    mean_pos, mean_neg : float
        Weighted class means of q.
    var_pos, var_neg : float
        Weighted population variances of q in each class.
    z, p_value : float
        The residual test of `key_equation`; NaN where it says nothing.
    z_reason : str
        Why z is NaN; empty where it is not.
    rows : str
        Which rows these are, in words, as far as whoever evaluated the equation says; empty elsewhere.
    """

    weighting: Price
    lhs: float
    residual: float
    imbalance: float
    mean_pos: float
    mean_neg: float
    var_pos: float
    var_neg: float
    z: float
    p_value: float
    z_reason: str
    rows: str = ""

    @property
    def rhs(self) -> float:
        """The right side, 1/α = n_neg(1−λ) / (n_pos λ)."""
        return 1.0 / self.weighting.alpha

    @property
    def discrimination(self) -> float:
        """D = mean_pos − mean_neg."""
        return self.mean_pos - self.mean_neg

    @property
    def predicted_mean_pos(self) -> float:
        """What the general-λ law makes of D for the positives, (1 + D/α) / (1 + 1/α)."""
        return means_by_law(self.discrimination, self.weighting.alpha)[0]

    @property
    def predicted_mean_neg(self) -> float:
        """What the general-λ law makes of D for the negatives, (1 − D) / (1 + 1/α)."""
        return means_by_law(self.discrimination, self.weighting.alpha)[1]

    def __str__(self) -> str:
        test = f"z = {self.z:.3f}, p-value {self.p_value:.3g}"
        if self.z_reason:
            test = f"not available: {self.z_reason}"
        return "\n".join(
            [
                f"Key equation (1 - mean_pos) / mean_neg = 1/α at λ = {self.weighting.lam:.6g}"
                + (f", on {self.rows}" if self.rows else ""),
                f"  left side       {self.lhs:.6g}",
                f"  right side      {self.rhs:.6g}",
                f"  residual        {self.residual:.3g}   (imbalance {self.imbalance:.3g})",
                f"  positives       mean {self.mean_pos:.6g}, variance {self.var_pos:.6g}, "
                f"mean by the law {self.predicted_mean_pos:.6g}",
                f"  negatives       mean {self.mean_neg:.6g}, variance {self.var_neg:.6g}, "
                f"mean by the law {self.predicted_mean_neg:.6g}",
                f"  discrimination  {self.discrimination:.6g}",
                f"  residual test   {test}",
            ]
        )


def key_equation(
    y: ArrayLike,
    q: ArrayLike,
    weighting: Any,
    sample_weight: ArrayLike | None = None,
    *,
    training_error: TrainingError | ClassTrainingError | None = None,
) -> Any:
    """Evaluate the key equation on any rows, for the output of any model.

    Parameters
    ----------
    y : array of shape (n,)
        0/1 or bool, 1 is positive; both classes must be there.
    q : array of shape (n,) or (n, K)
        Weighted probabilities of the positive class; with a column for each of K classes, y holds class numbers and the
        answer is a `ClassKeyEquations`.
    weighting : Price, Lam, Alpha, CostRatio, Budget, float, "balanced" or None
        What q was trained under; for K classes ``"balanced"``, None, or a weight for each class. A resolved weighting
        brings its training counts; a spec is resolved on these rows.
    sample_weight : array of shape (n,), optional
        Finite and not negative.
    training_error : TrainingError, optional
        The fitted model's own error, as `crcen.training_error` estimates it; without one p is taken for the truth. Two
        classes only.

    Returns
    -------
    KeyEquation
        Both sides, residual, class means and variances, and the residual test.

    Raises
    ------
    InvalidInput
        If labels, probabilities or weights cannot be used, or a class is absent.

    Notes
    -----
    The residual test is Z = Σ w(y−q) / sqrt(Σ s²[λ² p(1−q)² + (1−λ)²(1−p)q²]) on the rows given, with p the natural
    posterior of q, s the sample weight and w = s·λ or s·(1−λ); its two-sided p-value is that of N(0, 1). Where Σ w(y−q)
    has a skewness above ½ under the model, as where it is sure of nearly all rows, Bennett's bound stands for it where
    that is larger. The test assumes

    - that p is the **true** posterior, fixed before these rows were seen. A fitted model has an error of its own and
      the variance grows to 1 + n_new/n_train and more: on as many new rows as training rows a nominal .05 is .17.
      With ``training_error`` that error is in the variance, and under 20 positives Z is NaN: too few;
    - independent rows at the natural class ratio (not resampled, not the training rows).

    On rows that were balanced (|Σ w(y−q)| ≤ 1e-10 · Σ w|y−q|) the equation holds by construction and Z is NaN.
    """
    is_of_two = isinstance(weighting, Price) and weighting.positive is not None
    if np.ndim(q) == 2 and not is_of_two and not isinstance(weighting, Lam | Alpha | CostRatio | Budget | float):
        if isinstance(training_error, TrainingError):
            raise InvalidInput("this training_error is of two classes: give q of the positive class, shape (n,)")
        return class_key_equations(y, q, weighting, sample_weight, training_error=training_error)
    if isinstance(training_error, ClassTrainingError):
        raise InvalidInput("this training_error is of several classes: give q with a column for each, shape (n, K)")
    outputs = check_probabilities(q)
    return _evaluate(y, outputs, 1.0 - outputs, weighting, sample_weight, training_error)


def key_equation_of_logits(
    y: ArrayLike, logits: ArrayLike, weighting: WeightingLike, sample_weight: ArrayLike | None = None
) -> KeyEquation:
    """Evaluate the key equation from weighted logits: `key_equation` that keeps its digits where q rounds to 1.

    Parameters
    ----------
    y, weighting, sample_weight
        As in `key_equation`.
    logits : array of shape (n,)
        The model's weighted output before the sigmoid.

    Returns
    -------
    KeyEquation
        As `key_equation` gives.
    """
    outputs = np.asarray(as_numpy(logits), dtype=np.float64)
    return _evaluate(y, check_probabilities(sigmoid(outputs)), sigmoid(-outputs), weighting, sample_weight)


def _evaluate(
    y: ArrayLike,
    q: NDArray[np.float64],
    complement: NDArray[np.float64],
    weighting: WeightingLike,
    sample_weight: ArrayLike | None,
    training_error: TrainingError | None = None,
) -> KeyEquation:
    """Evaluate from q and 1 − q, each with its own digits."""
    positive = check_binary_target(y)
    if q.shape != positive.shape:
        raise InvalidInput(f"q must have one value for each of the {positive.size} rows, got shape {q.shape}")
    sizes = check_row_weights(sample_weight, positive.size)
    totals = class_totals(positive, sizes)
    resolved = resolve(weighting, *totals)
    s_pos, s_neg = sizes[positive], sizes[~positive]
    q_pos, q_neg = q[positive], q[~positive]

    lam, mu = resolved.lam, resolved.threshold
    # Z does not depend on the scale of the weights; their squares could overflow.
    unit = sizes / sizes.max()
    miss, alarm = unit * lam * complement, unit * mu * q
    mean_pos, mean_neg = float(np.sum(s_pos * q_pos)) / totals[0], float(np.sum(s_neg * q_neg)) / totals[1]
    p = posterior(q, resolved)
    sums = float(miss[positive].sum()), float(alarm[~positive].sum()), residual_variance(miss, alarm, p)
    slope = float(np.sum(miss * p))
    own = 0.0 if training_error is None else (slope * training_error.size) ** 2
    z, p_value, reason = (
        z_test(*sums) if training_error is None else training_error.test(*sums, slope=slope, n_pos=int(positive.sum()))
    )
    return key_equation_of_moments(
        resolved,
        means=(mean_pos, mean_neg),
        variances=(
            float(np.sum(s_pos * (q_pos - mean_pos) ** 2)) / totals[0],
            float(np.sum(s_neg * (q_neg - mean_neg) ** 2)) / totals[1],
        ),
        # From 1 − q itself: 1 − mean_pos would lose the digits of a small miss.
        miss_pos=float(np.sum(s_pos * complement[positive])) / totals[0],
        test=(z, p_value if reason else max(p_value, tail_bound(sums[0] - sums[1], miss, alarm, p, own)), reason),
    )


def key_equation_of_moments(
    weighting: Price,
    *,
    means: tuple[float, float],
    variances: tuple[float, float],
    miss_pos: float,
    test: tuple[float, float, str],
) -> KeyEquation:
    """Put the equation together from class moments, wherever they were summed up.

    Parameters
    ----------
    weighting : Price
        Resolved.
    means, variances : tuple of float
        Of q among positives and among negatives.
    miss_pos : float
        The mean of 1 − q among positives, with its own digits.
    test : tuple
        What `crcen.theory.residual_test.z_test` gave.
    """
    mean_pos, mean_neg = means
    lhs = math.inf if miss_pos > 0.0 else math.nan
    if mean_neg > 0.0:
        lhs = miss_pos / mean_neg
    missed, alarmed = weighting.lam * weighting.n_pos * miss_pos, weighting.threshold * weighting.n_neg * mean_neg
    gap = abs(missed - alarmed)
    z, p_value, z_reason = test
    return KeyEquation(
        weighting=weighting,
        lhs=lhs,
        residual=gap / (weighting.lam * weighting.n_pos + weighting.threshold * weighting.n_neg),
        imbalance=gap / (missed + alarmed) if missed + alarmed > 0.0 else 0.0,
        mean_pos=mean_pos,
        mean_neg=mean_neg,
        var_pos=variances[0],
        var_neg=variances[1],
        z=z,
        p_value=p_value,
        z_reason=z_reason,
    )


def without_test(equation: KeyEquation, reason: str = _OUT_OF_FOLD) -> KeyEquation:
    """The same equation without Z and p-value, for rows on which they have no law that is known."""
    return replace(equation, z=math.nan, p_value=math.nan, z_reason=reason)


def on_rows(equation: KeyEquation, rows: str) -> KeyEquation:
    """The same equation, which says of which rows it is."""
    return replace(equation, rows=rows)
