"""The key equations of K classes: what flows out of a class equals what flows in, and whether a gap is chance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.chi_square import chi_square_tail
from crcen.theory.classes.class_training_error import ClassTrainingError
from crcen.theory.classes.log_sums import softmax
from crcen.theory.price import Price, resolve
from crcen.theory.rows import check_class_numbers, check_row_weights
from crcen.theory.shown import Shown, in_one_line
from crcen.theory.tensors import as_numpy, rounding_of

__all__ = [
    "ClassKeyEquations",
    "ClassKeySums",
    "JointTest",
    "class_key_equations",
    "class_key_equations_of_logits",
    "class_key_sums",
]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_BALANCED = 1e-10  # of all flows: a residual below this share was solved for


@dataclass(frozen=True)
class JointTest(Shown):
    """One χ² statistic for several equations at once.

    Parameters
    ----------
    statistic, p_value : float
        NaN where the test says nothing.
    degrees : int
        Independent equations.
    reason : str
        Why it says nothing; empty where it does.
    """

    statistic: float
    degrees: int
    p_value: float
    reason: str = ""

    def __str__(self) -> str:
        if self.reason:
            return f"not available: {self.reason}"
        return f"χ² = {self.statistic:.4g} with {self.degrees} degrees of freedom, p-value {self.p_value:.3g}"


@dataclass(frozen=True, eq=False)
class ClassKeyEquations(Shown):
    """Every class's equation on some rows.

    Parameters
    ----------
    weighting : Price
        Resolved; its counts are those of the training rows where it came resolved.
    flows : float64 array of shape (K, K)
        F_jk = w_j Σ_{y=j} s q_k: weight of class j that the model gives to class k.
    equations : JointTest
        The K−1 key equations, which training enforces.
    pairs : JointTest
        All K(K−1)/2 pairwise equations E F_jk = E F_kj. True posteriors satisfy them, training does not enforce them.
    rows : str
        Which rows these are, where the model that was fitted on them says so.
    """

    weighting: Price
    flows: Array
    equations: JointTest
    pairs: JointTest
    rows: str = ""

    @property
    def lhs(self) -> Array:
        """What flows out of each class: w_k Σ_{y=k} s (1 − q_k)."""
        return np.asarray(self._between().sum(axis=1))

    @property
    def rhs(self) -> Array:
        """What flows into each class from the others."""
        return np.asarray(self._between().sum(axis=0))

    @property
    def residuals(self) -> Array:
        """(out − in) / Σ s w for each class; they sum to zero, so K−1 of them are independent."""
        return np.asarray((self.lhs - self.rhs) / self.flows.sum())

    @property
    def residual(self) -> float:
        """The largest of them in size."""
        return float(np.abs(self.residuals).max())

    @property
    def confusion(self) -> Array:
        """The soft confusion matrix M: rows of class j have the mean output M_jk for class k."""
        return np.asarray(self.flows / self.flows.sum(axis=1, keepdims=True))

    @property
    def shares(self) -> Array:
        """π, the weighted share of each class on these rows; π M = π where the key equations hold."""
        mass = self.flows.sum(axis=1)
        return np.asarray(mass / mass.sum())

    @property
    def discrimination(self) -> Array:
        """D_k: mean output for k of rows of k, less that of all other rows (weighted by class).

        Where the equations hold, M_kk = π_k + (1 − π_k) D_k: the general law.
        """
        pi, m = self.shares, self.confusion
        others = (pi @ m - pi * np.diag(m)) / (1.0 - pi)
        return np.asarray(np.diag(m) - others)

    @property
    def drift(self) -> Array:
        """Log-odds d_k, their mean 0, by which the truth seems to have moved from the model.

        Where the truth is p_k e^{d_k} up to a factor, log E F_jk / E F_kj = d_j − d_k; least squares over the pairs.
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(self.flows) - np.log(self.flows.T)
        ratio = np.where(np.isfinite(ratio), ratio, np.nan)
        return np.asarray(np.nanmean(ratio, axis=1))

    def table(self, labels: Sequence[Any] | None = None) -> str:
        """A readable line for each class."""
        names = [str(label) for label in (labels if labels is not None else range(len(self.flows)))]
        width = max(5, *map(len, names))
        lines = [f"{'class':<{width}}  {'flows out':>12}  {'flows in':>12}  {'residual':>10}  {'mean output':>11}  D"]
        for k, name in enumerate(names):
            lines.append(
                f"{name:<{width}}  {self.lhs[k]:>12.6g}  {self.rhs[k]:>12.6g}  {self.residuals[k]:>10.2e}  "
                f"{self.confusion[k, k]:>11.4f}  {self.discrimination[k]:.4f}"
            )
        of_rows = [f"of {self.rows}"] if self.rows else []
        return "\n".join([*of_rows, *lines, f"equations  {self.equations}", f"pairs      {self.pairs}"])

    __repr__ = in_one_line

    def __str__(self) -> str:
        return self.table()

    def _between(self) -> Array:
        between = self.flows.copy()
        np.fill_diagonal(between, 0.0)
        return between


def class_key_equations(
    y: ArrayLike,
    q: ArrayLike,
    weighting: Any,
    sample_weight: ArrayLike | None = None,
    *,
    variance_factor: float = 1.0,
    training_error: ClassTrainingError | None = None,
) -> ClassKeyEquations:
    """Evaluate the key equations of K classes on any rows, for the output of any model.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers 0 … K−1; every class must be there.
    q : array of shape (n, K)
        Weighted probabilities; rows sum to 1.
    weighting : Price, "balanced", None, dict or array of shape (K,)
        What q was trained under. A spec is resolved on these rows.
    sample_weight : array of shape (n,), optional
        Finite and not negative.
    variance_factor : float, default=1
        By how much a fitted model's own error raises the variance of the residuals; 1 is for the true posterior.
    training_error : ClassTrainingError, optional
        That error as `crcen.training_error` measures it, instead of a factor.

    Raises
    ------
    InvalidInput
        If labels, probabilities or weights cannot be used, or a class is absent.

    Notes
    -----
    For two classes the key equation fixes the ratio of the class means of errors. For more it does not: K−1 equations
    leave the means of K classes free. Li, Li, Pan and Zhu (2020) call softmax "indeterministic" for this, and
    one-against-all logistic outputs "deterministic"; their equations are these, one pair of classes at a time.
    """
    outputs = np.asarray(as_numpy(q), dtype=np.float64)
    if outputs.ndim != 2 or outputs.shape[1] < 2:
        raise InvalidInput(f"q must have a column for each class: got shape {outputs.shape}.")
    slack = max(1e-6, outputs.shape[1] * rounding_of(q))
    if not np.isfinite(outputs).all() or (outputs < 0.0).any() or np.abs(outputs.sum(axis=1) - 1.0).max() > slack:
        raise InvalidInput("q must hold probabilities, each row with the sum 1.")
    if slack > 1e-6:  # rounded by half precision
        outputs = outputs / outputs.sum(axis=1, keepdims=True)
    numbers = check_class_numbers(y, outputs.shape[1])
    if len(numbers) != len(outputs):
        raise InvalidInput(f"q must have one row a label: got {len(outputs)} for {len(numbers)}.")
    sizes = check_row_weights(sample_weight, numbers.size)
    counts = np.bincount(numbers, weights=sizes, minlength=outputs.shape[1])
    if not counts.all():
        raise InvalidInput(f"every class must have a row with weight: class {int(np.argmin(counts))} has none.")
    resolved = resolve(weighting, counts=counts)
    scale = float(sizes.max())  # so that squares of weights do not overflow
    sums = class_key_sums(numbers, outputs, sizes / scale, resolved.weights)
    found = sums.key_equations(resolved, variance_factor, scale)
    if training_error is None:
        return found
    p = resolved.posterior(outputs)
    weight = (sizes / scale * (p @ resolved.weights))[:, None] * outputs
    slope = np.diag(weight.sum(axis=0)) - weight.T @ outputs
    residual = sums.flows.sum(axis=1) - sums.flows.sum(axis=0)
    equations, pairs = found.equations, found.pairs
    if not equations.reason:
        equations = JointTest(*training_error.test(residual[1:], sums.variance[1:, 1:], slope[1:]))
    if not pairs.reason:
        share = training_error.pairs * float(sizes.sum() / scale)
        pairs = JointTest(*training_error.test_pairs(sums.pairs, sums.pair_variance, share))
    return replace(found, equations=equations, pairs=pairs)


def class_key_equations_of_logits(
    y: ArrayLike, logits: ArrayLike, weighting: Any, sample_weight: ArrayLike | None = None, **how: Any
) -> ClassKeyEquations:
    """`class_key_equations` from weighted logits (n, K)."""
    return class_key_equations(y, softmax(np.asarray(logits, dtype=np.float64)), weighting, sample_weight, **how)


@dataclass(frozen=True, eq=False)
class ClassKeySums:
    """What the key equations of rows are made of; sums of parts of the rows add up.

    Parameters
    ----------
    flows : float64 array of shape (K, K)
        F_jk = w_j Σ_{y=j} s q_k.
    variance : float64 array of shape (K, K)
        Of the residuals under the model.
    pairs : float64 array of shape (P,)
        Σ s (w_j 1{y=j} q_k − w_k 1{y=k} q_j) of every pair j < k.
    pair_variance : float64 array of shape (P, P)
        Of these, under the model.
    """

    flows: Array
    variance: Array
    pairs: Array
    pair_variance: Array

    def __add__(self, other: ClassKeySums) -> ClassKeySums:
        return ClassKeySums(
            self.flows + other.flows,
            self.variance + other.variance,
            self.pairs + other.pairs,
            self.pair_variance + other.pair_variance,
        )

    def key_equations(self, weighting: Price, factor: float = 1.0, scale: float = 1.0) -> ClassKeyEquations:
        """The equations of these rows.

        Parameters
        ----------
        weighting : Price
            What q is at.
        factor : float
            By how much a fitted model's own error raises the variances.
        scale : float
            What sample weights were divided by.
        """
        residual = self.flows.sum(axis=1) - self.flows.sum(axis=0)
        pairs = _joint(self.pairs, factor * self.pair_variance)
        if np.abs(residual).max() <= _BALANCED * self.flows.sum():
            nothing = "these rows were balanced, so the key equations hold on them by construction"
            equations = JointTest(np.nan, len(residual) - 1, np.nan, nothing)
        else:  # the equations sum to zero: drop the first
            equations = _joint(residual[1:], factor * self.variance[1:, 1:])
        return ClassKeyEquations(weighting, scale * self.flows, equations, pairs)


def class_key_sums(y: Index, q: Array, sizes: Array, w: Array) -> ClassKeySums:
    """Sum rows of class numbers y, weighted probabilities q (n, K) and sample weights, at class weights w."""
    n_classes = len(w)
    p = q / w
    p = p / p.sum(axis=1, keepdims=True)
    flows = np.zeros((n_classes, n_classes))
    np.add.at(flows, y, sizes[:, None] * q)
    second = sizes[:, None] ** 2 * p * w**2
    variance = np.diag(second.sum(axis=0)) - second.T @ q - q.T @ second + (q * second.sum(axis=1)[:, None]).T @ q
    one, other = np.triu_indices(n_classes, 1)
    sums, pair_variance = np.zeros(len(one)), np.zeros((len(one), len(one)))
    for label in range(n_classes):
        value = np.where(one == label, w[label] * q[:, other], 0.0)
        value -= np.where(other == label, w[label] * q[:, one], 0.0)
        value *= sizes[:, None]
        sums += value[y == label].sum(axis=0)
        pair_variance += (value * p[:, [label]]).T @ value
    return ClassKeySums(w[:, None] * flows, variance, sums, pair_variance)


def _joint(sums: Array, variance: Array) -> JointTest:
    scale = np.sqrt(np.diag(variance))
    if not (scale > 0.0).all():
        return JointTest(np.nan, len(sums), np.nan, "an output is 0 or 1 on every row, so it has no variance")
    normed = variance / scale[:, None] / scale[None]
    try:
        statistic = float((sums / scale) @ np.linalg.solve(normed, sums / scale))
    except np.linalg.LinAlgError:
        statistic = np.nan
    if not np.isfinite(statistic) or statistic < 0.0:
        return JointTest(np.nan, len(sums), np.nan, "the equations depend on each other on these rows")
    return JointTest(statistic, len(sums), chi_square_tail(statistic, len(sums)))
