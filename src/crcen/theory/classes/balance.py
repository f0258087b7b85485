"""The balance solve of K classes: the K−1 shifts of output biases that make every key equation hold.

Minimising the weighted cross entropy over the shifts alone is a convex problem with one solution whenever every class
has weight. The solve is Newton's on the gaps log out_k − log in_k between what flows out of a class and what flows into
it, computed from logits alone, so that it keeps its relative precision where every probability is saturated. The
matrix of the step is a weighted Laplacian. Where no step brings the gaps down, one sweep of binary solves does: each
class against the rest, then each set of classes that exchange rows among themselves alone, which classes one by one
would move too slowly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.class_weights import check_class_numbers
from crcen.theory.classes.log_sums import log_softmax, log_sum_exp
from crcen.theory.rows import check_row_weights

__all__ = ["ClassBalance", "class_balance_shifts"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]

_CLOSED = 1e-13
_MOST_ROUNDS = 500
_HALVINGS = 8
# Of exchanges, as shares of a class's flow: at these, classes are tied together.
_STRENGTHS = (1e-2, 1e-4, 1e-8, 1e-12)


@dataclass(frozen=True, eq=False)
class ClassBalance:
    """Shifts (K,), the first of them 0, and the largest gap of log flows that they leave."""

    shifts: Array
    gap: float


def class_balance_shifts(
    y: ArrayLike, logits: ArrayLike, class_weights: ArrayLike, sample_weight: ArrayLike | None = None
) -> ClassBalance:
    """What to add to the output biases so that Σ s w (e_y − softmax(logits + shifts)) = 0.

    Parameters
    ----------
    y : array of shape (n,)
        Class numbers 0 … K−1; every class must have a row with weight.
    logits : array of shape (n, K)
        Finite.
    class_weights : array of shape (K,)
        Above 0.
    sample_weight : array of shape (n,), optional
        Finite and not negative.

    Raises
    ------
    InvalidInput
        If a class has no row with weight, or logits are not finite.
    """
    outputs = np.asarray(logits, dtype=np.float64)
    if outputs.ndim != 2 or outputs.shape[1] < 2 or not np.isfinite(outputs).all():
        raise InvalidInput(f"logits must be finite numbers of shape (rows, classes): got shape {outputs.shape}.")
    numbers = check_class_numbers(y, outputs.shape[1])
    if len(numbers) != len(outputs):
        raise InvalidInput(f"logits must have one row a label: got {len(outputs)} for {len(numbers)}.")
    sizes = check_row_weights(sample_weight, numbers.size)
    used = sizes > 0.0
    outputs, numbers = outputs[used], numbers[used]
    absent = np.flatnonzero(np.bincount(numbers, minlength=outputs.shape[1]) == 0)
    if absent.size:
        raise InvalidInput(f"the balance solve needs rows of every class with weight: class {absent[0]} has none.")
    log_weights = np.log(sizes[used]) + np.log(np.asarray(class_weights, dtype=np.float64))[numbers]
    return _solve(outputs, numbers, log_weights)


def _solve(outputs: Array, y: Index, log_weights: Array) -> ClassBalance:
    shifts = np.zeros(outputs.shape[1])
    flows = _Flows(outputs, y, log_weights)
    for _ in range(_MOST_ROUNDS):
        if flows.gap <= _CLOSED:
            break
        better = _newton(outputs, y, log_weights, shifts, flows)
        if better is None:
            swept = _sweep(outputs, y, log_weights, shifts, flows.jacobian())
            moved = np.abs((swept - swept[0]) - (shifts - shifts[0])).max()
            shifts, flows = swept, _Flows(outputs + swept, y, log_weights)
            if moved <= 1e-15 * max(1.0, np.abs(swept).max()):
                break
        else:
            shifts, flows = better
    return ClassBalance(shifts - shifts[0], flows.gap)


class _Flows:
    """What flows out of and into each class, as logarithms, at given logits."""

    def __init__(self, logits: Array, y: Index, log_weights: Array) -> None:
        n, n_classes = logits.shape
        rows = np.arange(n)
        self.log_q = log_softmax(logits)
        others = logits.copy()
        others[rows, y] = -np.inf
        rest = log_sum_exp(others, 1)
        self.log_q_own = self.log_q[rows, y]
        self.log_miss = rest - np.logaddexp(logits[rows, y], rest)  # log(1 − q) of the row's own class
        self.y, self.log_weights = y, log_weights
        terms = np.where(np.arange(n_classes)[None] == y[:, None], -np.inf, log_weights[:, None] + self.log_q)
        self.log_in = log_sum_exp(terms, 0)
        self.log_out = np.array(
            [log_sum_exp((log_weights + self.log_miss)[y == k], 0) for k in range(n_classes)], dtype=np.float64
        )
        self.gaps = self.log_out - self.log_in
        self.gap = float(np.abs(self.gaps).max())

    def jacobian(self) -> Array:
        """Derivatives of the gaps in the shifts; every row sums to zero."""
        own = np.arange(self.log_q.shape[1])[None] == self.y[:, None]
        # Out of class k: shares of its misses, split over where they go. No factor exceeds 1.
        share = np.exp(self.log_weights + self.log_q_own + self.log_miss - self.log_out[self.y])
        went = np.where(own, 0.0, np.exp(np.minimum(self.log_q - self.log_miss[:, None], 0.0)))
        out = (own * share[:, None]).T @ went
        # Into class k: shares of what comes in, times where else those rows might have gone.
        came = np.exp(np.where(own, -np.inf, self.log_weights[:, None] + self.log_q - self.log_in[None]))
        matrix = out + came.T @ np.exp(self.log_q)
        np.fill_diagonal(matrix, 0.0)
        np.fill_diagonal(matrix, -matrix.sum(axis=1))
        return np.asarray(matrix)


def _newton(outputs: Array, y: Index, log_weights: Array, shifts: Array, flows: _Flows) -> tuple[Array, _Flows] | None:
    """The first of a few halved steps that lowers the largest gap."""
    n_classes = len(shifts)
    bordered = np.ones((n_classes + 1, n_classes + 1))
    bordered[:n_classes, :n_classes], bordered[-1, -1] = flows.jacobian(), 0.0
    try:
        step = np.linalg.solve(bordered, np.append(-flows.gaps, 0.0))[:n_classes]
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(step).all():
        return None
    for halving in range(_HALVINGS):
        part = 0.5**halving
        trial = shifts + part * step
        found = _Flows(outputs + trial, y, log_weights)
        if found.gap < flows.gap * (1.0 - 1e-4 * part):
            return trial, found
    return None


def _sweep(outputs: Array, y: Index, log_weights: Array, shifts: Array, jacobian: Array) -> Array:
    """Each class, then each set of classes that hang together, in turn against the rest: binary solves."""
    new = shifts.copy()
    for inside in _sets(jacobian):
        logits = outputs + new
        margin = log_sum_exp(logits[:, inside], 1) - log_sum_exp(logits[:, ~inside], 1)
        new[inside] += _binary_root(margin, inside[y], log_weights)
    return new


def _sets(jacobian: Array) -> list[NDArray[np.bool_]]:
    """Single classes, and the connected parts of the graph of exchanges at a few strengths."""
    n_classes = len(jacobian)
    found = {tuple(row) for row in np.eye(n_classes, dtype=bool).tolist()}
    strength = np.maximum(jacobian, jacobian.T)
    for least in _STRENGTHS:
        reach = (strength > least) | np.eye(n_classes, dtype=bool)
        for _ in range(n_classes.bit_length()):
            reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
        found |= {tuple(row) for row in reach.tolist() if not all(row)}
    return [np.array(one) for one in sorted(found, key=lambda one: (sum(one), one))]


def _binary_root(margin: Array, is_own: NDArray[np.bool_], log_weights: Array) -> float:
    """Where log Σ_own w σ(−(m+d)) = log Σ_rest w σ(m+d), by Newton steps kept in a bracket."""
    own, rest, log_own, log_rest = margin[is_own], margin[~is_own], log_weights[is_own], log_weights[~is_own]
    spread = abs(float(log_sum_exp(log_own, 0)) - float(log_sum_exp(log_rest, 0))) + 40.0
    low, high = -float(margin.max()) - spread, -float(margin.min()) + spread
    shift = min(max(0.0, low), high)
    for _ in range(200):
        missed = log_own - np.logaddexp(0.0, own + shift)
        alarmed = log_rest - np.logaddexp(0.0, -(rest + shift))
        total_missed, total_alarmed = float(log_sum_exp(missed, 0)), float(log_sum_exp(alarmed, 0))
        gap = total_missed - total_alarmed
        slope = -float(np.exp(missed - total_missed) @ np.exp(-np.logaddexp(0.0, -(own + shift))))
        slope -= float(np.exp(alarmed - total_alarmed) @ np.exp(-np.logaddexp(0.0, rest + shift)))
        if gap >= 0.0:
            low = shift
        if gap <= 0.0:
            high = shift
        new = shift - gap / slope if slope < 0.0 else low - 1.0
        if not low < new < high:
            new = 0.5 * (low + high)
        if abs(new - shift) <= 4e-16 * max(1.0, abs(new)):
            return new
        shift = new
    return shift
