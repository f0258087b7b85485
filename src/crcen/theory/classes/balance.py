"""The balance solve of K classes: the K−1 shifts of output biases that make every key equation hold.

Minimising the weighted cross entropy over the shifts alone is a convex problem with one solution whenever every class
has weight. The solve is Newton's on the gaps log out_k − log in_k between what flows out of a class and what flows into
it, computed from logits alone, so that it keeps its relative precision where every probability is saturated. The
matrix of the step is a weighted Laplacian. Where no step brings the gaps down, one sweep of binary solves does: each
class against the rest, then each set of classes that exchange rows among themselves alone, which classes one by one
would move too slowly.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput
from crcen.theory.classes.log_sums import log_softmax, log_sum_exp
from crcen.theory.rows import check_class_numbers, check_row_weights

__all__ = ["BalanceRows", "ClassBalance", "class_balance_shifts", "solve_class_balance"]

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
    return solve_class_balance(BalanceRows(lambda: [(outputs, numbers, log_weights)], outputs.shape[1]))


@dataclass(frozen=True, eq=False)
class BalanceRows:
    """Rows that a solve goes over again and again, in parts, and those of other workers.

    Parameters
    ----------
    parts
        Gives (logits (n, K), class numbers, logarithms of row weights) of every part, anew each time it is called.
    n_classes
        K.
    gather
        Brings the arrays of all workers together, stacked; each worker then finds the same shifts.
    """

    parts: Callable[[], Iterable[tuple[Array, Index, Array]]]
    n_classes: int
    gather: Callable[[Array], Array] = lambda array: array[None]

    def flows(self, shifts: Array) -> "_Flows":
        """What flows between classes with these shifts."""
        found = [_part_flows(logits + shifts, y, weights) for logits, y, weights in self.parts()]
        found = found or [_no_flows(self.n_classes)]
        own = _merged(np.stack(found)) if len(found) > 1 else found[0]
        everyone = self.gather(own)
        return _Flows(_merged(everyone) if len(everyone) > 1 else everyone[0])

    def sides(self, shifts: Array, inside: NDArray[np.bool_], extra: float) -> Array:
        """Log of what is missed and alarmed with a set of classes as one, and both slopes (see `_part_sides`)."""
        found = [_part_sides(*_margin(logits + shifts, y, inside), extra, w) for logits, y, w in self.parts()]
        found = found or [np.array([-np.inf, -np.inf, 0.0, 0.0])]
        return _merged_sides(self.gather(_merged_sides(np.stack(found))))

    def ends(self, shifts: Array, inside: NDArray[np.bool_]) -> Array:
        """Lowest and highest margin of a set of classes, and the log weights of its rows and of the others."""
        found = [np.array([np.inf, -np.inf, -np.inf, -np.inf])]
        for logits, y, weights in self.parts():
            margin, is_own = _margin(logits + shifts, y, inside)
            logs = [float(log_sum_exp(weights[own], 0)) for own in (is_own, ~is_own)]
            found.append(np.array([margin.min(initial=np.inf), margin.max(initial=-np.inf), *logs]))
        everyone = self.gather(_merged_ends(np.stack(found)))
        return _merged_ends(everyone)


def solve_class_balance(rows: BalanceRows, closed: float = _CLOSED) -> ClassBalance:
    """`class_balance_shifts` of rows in parts; every class must have a row.

    Parameters
    ----------
    rows : BalanceRows
        What to solve for.
    closed : float
        Largest gap of log flows at which the solve is over.
    """
    shifts = np.zeros(rows.n_classes)
    flows = rows.flows(shifts)
    for _ in range(_MOST_ROUNDS):
        if flows.gap <= closed:
            break
        better = _newton(rows, shifts, flows)
        if better is None:
            swept = _sweep(rows, shifts, flows.jacobian())
            moved = np.abs((swept - swept[0]) - (shifts - shifts[0])).max()
            shifts, flows = swept, rows.flows(swept)
            if moved <= 1e-15 * max(1.0, np.abs(swept).max()):
                break
        else:
            shifts, flows = better
    return ClassBalance(shifts - shifts[0], flows.gap)


def _part_flows(logits: Array, y: Index, log_weights: Array) -> Array:
    """Flows of a part of the rows, (2 + 2K, K): log out, log in, and how both change, as shares of themselves."""
    n, n_classes = logits.shape
    rows = np.arange(n)
    log_q = log_softmax(logits)
    others = logits.copy()
    others[rows, y] = -np.inf
    rest = log_sum_exp(others, 1)
    log_miss = rest - np.logaddexp(logits[rows, y], rest)  # log(1 − q) of the row's own class
    own = np.arange(n_classes)[None] == y[:, None]
    log_in = log_sum_exp(np.where(own, -np.inf, log_weights[:, None] + log_q), 0)
    log_out = np.array([log_sum_exp((log_weights + log_miss)[y == k], 0) for k in range(n_classes)], dtype=np.float64)
    # Out of class k: shares of its misses, split over where they go. No factor exceeds 1.
    share = np.exp(log_weights + log_q[rows, y] + log_miss - log_out[y])
    went = np.where(own, 0.0, np.exp(np.minimum(log_q - log_miss[:, None], 0.0)))
    out = (own * share[:, None]).T @ went
    # Into class k: shares of what comes in, times where else those rows might have gone.
    came = np.exp(np.where(own, -np.inf, log_weights[:, None] + log_q - log_in[None]))
    return np.vstack([log_out, log_in, out, came.T @ np.exp(log_q)])


def _no_flows(n_classes: int) -> Array:
    return np.vstack([np.full((2, n_classes), -np.inf), np.zeros((2 * n_classes, n_classes))])


def _merged(parts: Array) -> Array:
    """Flows of several parts (m, 2 + 2K, K) as those of one."""
    n_classes = parts.shape[2]
    totals = log_sum_exp(parts[:, :2], 0)
    shares = np.exp(parts[:, :2] - np.where(np.isfinite(totals), totals, 0.0))  # (m, 2, K): of each part in each flow
    changes = parts[:, 2:].reshape(len(parts), 2, n_classes, n_classes)
    return np.vstack([totals, *np.einsum("msk,mskj->skj", shares, changes)])


class _Flows:
    """What flows out of and into each class, as logarithms."""

    def __init__(self, table: Array) -> None:
        self._table, self.n_classes = table, table.shape[1]
        self.gaps = table[0] - table[1]
        self.gap = float(np.abs(self.gaps).max())

    def jacobian(self) -> Array:
        """Derivatives of the gaps in the shifts; every row sums to zero."""
        matrix = self._table[2 : 2 + self.n_classes] + self._table[2 + self.n_classes :]
        np.fill_diagonal(matrix, 0.0)
        np.fill_diagonal(matrix, -matrix.sum(axis=1))
        return np.asarray(matrix)


def _newton(rows: BalanceRows, shifts: Array, flows: _Flows) -> tuple[Array, _Flows] | None:
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
        found = rows.flows(trial)
        if found.gap < flows.gap * (1.0 - 1e-4 * part):
            return trial, found
    return None


def _sweep(rows: BalanceRows, shifts: Array, jacobian: Array) -> Array:
    """Each class, then each set of classes that hang together, in turn against the rest: binary solves."""
    new = shifts.copy()
    for inside in _sets(jacobian):
        new[inside] += _binary_root(rows, new, inside)
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


def _margin(logits: Array, y: Index, inside: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Log-odds of a set of classes against the others, and which rows are of it."""
    return log_sum_exp(logits[:, inside], 1) - log_sum_exp(logits[:, ~inside], 1), inside[y]


def _part_sides(margin: Array, is_own: NDArray[np.bool_], shift: float, log_weights: Array) -> Array:
    """log Σ_own w σ(−(m+d)), log Σ_rest w σ(m+d), and the falls of both in d, as shares of themselves."""
    own, rest, log_own, log_rest = margin[is_own], margin[~is_own], log_weights[is_own], log_weights[~is_own]
    missed = log_own - np.logaddexp(0.0, own + shift)
    alarmed = log_rest - np.logaddexp(0.0, -(rest + shift))
    total_missed, total_alarmed = float(log_sum_exp(missed, 0)), float(log_sum_exp(alarmed, 0))
    falls = float(np.exp(missed - total_missed) @ np.exp(-np.logaddexp(0.0, -(own + shift)))) if len(own) else 0.0
    rises = float(np.exp(alarmed - total_alarmed) @ np.exp(-np.logaddexp(0.0, rest + shift))) if len(rest) else 0.0
    return np.array([total_missed, total_alarmed, falls, rises])


def _merged_sides(parts: Array) -> Array:
    totals = log_sum_exp(parts[:, :2], 0)
    shares = np.exp(parts[:, :2] - np.where(np.isfinite(totals), totals, 0.0))
    return np.concatenate([totals, (shares * parts[:, 2:]).sum(axis=0)])


def _merged_ends(parts: Array) -> Array:
    return np.array([parts[:, 0].min(), parts[:, 1].max(), *log_sum_exp(parts[:, 2:], 0)])


def _binary_root(rows: BalanceRows, shifts: Array, inside: NDArray[np.bool_]) -> float:
    """Where log Σ_own w σ(−(m+d)) = log Σ_rest w σ(m+d), by Newton steps kept in a bracket."""
    lowest, highest, log_own, log_rest = rows.ends(shifts, inside).tolist()
    spread = abs(log_own - log_rest) + 40.0
    low, high = -highest - spread, -lowest + spread
    shift = min(max(0.0, low), high)
    for _ in range(200):
        missed, alarmed, falls, rises = rows.sides(shifts, inside, shift).tolist()
        gap, slope = missed - alarmed, -falls - rises
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
