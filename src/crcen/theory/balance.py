"""The balance solve: shifts of the output biases that make the key equations hold, from logits for full precision."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crcen._support.lazy import sparse
from crcen.exceptions import InvalidInput
from crcen.theory.checks import check_binary_target, check_class_numbers, check_row_weights, class_totals
from crcen.theory.price import WeightingLike, log_softmax, log_sum_exp, resolve
from crcen.theory.rows import Array, Bools, Index, as_numpy

_CLOSED = 1e-13
_MOST_ROUNDS, _MOST_STEPS = 500, 200
_HALVINGS = 8
_REACH = 40.0  # of a first step, in log-odds
# Exchanges, as shares of a class's flow, from which classes belong together.
_STRENGTHS = (1e-2, 1e-4, 1e-8, 1e-12)


def balance_shift(
    y: ArrayLike, logits: ArrayLike, weighting: WeightingLike, sample_weight: ArrayLike | None = None
) -> Any:
    """The number to add to a network's output bias so that the key equation holds on these rows.

    Parameters
    ----------
    y, weighting, sample_weight
        See `crcen.key_equation`.
    logits : array of shape (n,) or (n, K)
        The network's output before the sigmoid or softmax.

    Returns
    -------
    float, or float64 array of shape (K,) with mean 0
        The shift d with Σ w (y − σ(logits + d)) = 0, or Σ w (e_y − softmax(logits + d)) = 0.
    """
    values = np.asarray(as_numpy(logits), dtype=np.float64)
    if values.ndim == 2:
        numbers = check_class_numbers(y, values.shape[1])
        sizes = check_row_weights(sample_weight, numbers.size)
        counts = np.bincount(numbers, sizes, values.shape[1])
        weights = resolve(weighting, counts=np.where(counts > 0.0, counts, 1.0)).weights
        return class_shifts(numbers, values, weights, sizes)
    target = check_binary_target(y)
    _check_logits(values, target.shape)
    rows = check_row_weights(sample_weight, target.size)
    return solve_shift(target, values, resolve(weighting, *class_totals(target, rows)).row_weights(target, rows))


def _check_logits(values: Array, shape: tuple[int, ...]) -> None:
    if values.shape != shape:
        raise InvalidInput(f"logits must have one row for each label: got shape {values.shape} for {shape[0]} labels.")
    if not np.isfinite(values).all():
        raise InvalidInput("logits must be finite: got NaN or infinity; check the network that made them.")


def solve_shift(y: Bools, logits: Array, weights: Array) -> float:
    """Shift of one output, from logits and row weights (n,)."""
    used = weights > 0.0
    pos, neg = y & used, ~y & used
    if not pos.any() or not neg.any():
        missing = "positive" if not pos.any() else "negative"
        raise InvalidInput(f"the balance solve needs rows of both classes with weight: no {missing} row was given.")
    own, rest, log_own, log_rest = logits[pos], logits[neg], np.log(weights[pos]), np.log(weights[neg])
    return _root(lambda shift: _sides(own + shift, rest + shift, log_own, log_rest), 0.0)


def class_shifts(y: ArrayLike, logits: ArrayLike, class_weights: ArrayLike, sample_weight: ArrayLike | None) -> Array:
    """Shifts (K,), their mean 0, of class numbers y, logits (n, K) and class weights."""
    outputs = np.asarray(logits, dtype=np.float64)
    numbers = check_class_numbers(y, outputs.shape[1])
    _check_logits(outputs, (numbers.size, outputs.shape[1]))
    sizes = check_row_weights(sample_weight, numbers.size)
    used = sizes > 0.0
    outputs, numbers = outputs[used], numbers[used]
    absent = np.flatnonzero(np.bincount(numbers, minlength=outputs.shape[1]) == 0)
    if absent.size:
        raise InvalidInput(f"the balance solve needs rows of every class with weight: class {absent[0]} has none.")
    log_weights = np.log(sizes[used]) + np.log(np.asarray(class_weights, dtype=np.float64))[numbers]
    found = solve_balance(BalanceRows(lambda: [(outputs, numbers, log_weights)], outputs.shape[1]))
    return np.asarray(found - found.mean())


@dataclass(frozen=True, eq=False)
class BalanceRows:
    """Rows that a solve reads many times, in parts, on one or several workers."""

    # (logits (n, K), class numbers, logarithms of row weights) of every part, anew each time it is called
    parts: Callable[[], Iterable[tuple[Array, Index, Array]]]
    n_classes: int
    # stacks the arrays of all workers; each worker then finds the same shifts
    gather: Callable[[Array], Array] = lambda array: array[None]

    def flows(self, shifts: Array) -> Array:
        """Flows between classes with these shifts, as `_part_flows` has them."""
        found = (_part_flows(logits + shifts, y, weights) for logits, y, weights in self.parts())
        return self._together(found, self.n_classes)

    def sides(self, shifts: Array, inside: Bools, extra: float) -> Array:
        """`_sides` with a set of classes as one."""
        found = []
        for logits, y, weights in self.parts():
            moved, is_own = logits + shifts, inside[y]
            if self.n_classes == 2:
                margin = moved[:, 1] - moved[:, 0] + extra
            else:
                margin = log_sum_exp(moved[:, inside], 1) - log_sum_exp(moved[:, ~inside], 1) + extra
            found.append(_sides(margin[is_own], margin[~is_own], weights[is_own], weights[~is_own]))
        return self._together(found, 1)

    def _together(self, tables: Iterable[Array], width: int) -> Array:
        """The table of all parts of all workers; a worker without rows has no flows."""
        found = list(tables) or [np.vstack([np.full((2, width), -np.inf), np.zeros((2 * width, width))])]
        return _merged(self.gather(_merged(np.stack(found))))


def solve_balance(rows: BalanceRows, closed: float = _CLOSED) -> Array:
    """Shifts (K,), the first of them 0, for rows of all classes; the solve ends at this gap of log flows."""
    shifts = np.zeros(rows.n_classes)
    if rows.n_classes == 2:
        shifts[1] = _root(partial(rows.sides, shifts, np.array([False, True])), closed)
        return shifts
    flows = rows.flows(shifts)
    for _ in range(_MOST_ROUNDS):
        if _gap(flows) <= closed:
            break
        better = _newton(rows, shifts, flows)
        if better is None:
            # Each class, then each set of classes that belong together, in turn against the rest: binary solves.
            swept = shifts.copy()
            for inside in _sets(_jacobian(flows)):
                swept[inside] += _root(partial(rows.sides, swept, inside), 0.0)
            moved = np.abs((swept - swept[0]) - (shifts - shifts[0])).max()
            shifts, flows = swept, rows.flows(swept)
            if moved <= 1e-15 * max(1.0, np.abs(swept).max()):
                break
        else:
            shifts, flows = better
    return np.asarray(shifts - shifts[0])


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
    out = (own * share[:, None]).T @ np.where(own, 0.0, np.exp(np.minimum(log_q - log_miss[:, None], 0.0)))
    # Into class k: shares of what comes in, times where else those rows might have gone.
    came = np.exp(np.where(own, -np.inf, log_weights[:, None] + log_q - log_in[None]))
    return np.vstack([log_out, log_in, out, came.T @ np.exp(log_q)])


def _merged(parts: Array) -> Array:
    """Flows of several parts (m, 2 + 2K, K) as those of one: logs of two flows, and how both change."""
    if len(parts) == 1:
        return np.asarray(parts[0])
    n_classes = parts.shape[2]
    totals = log_sum_exp(parts[:, :2], 0)
    shares = np.exp(parts[:, :2] - np.where(np.isfinite(totals), totals, 0.0))  # (m, 2, K): of each part in each flow
    changes = parts[:, 2:].reshape(len(parts), 2, n_classes, n_classes)
    return np.vstack([totals, *np.einsum("msk,mskj->skj", shares, changes)])


def _gap(flows: Array) -> float:
    return float(np.abs(flows[0] - flows[1]).max())


def _jacobian(flows: Array) -> Array:
    """Derivatives of the gaps in the shifts; every row sums to zero."""
    n_classes = flows.shape[1]
    matrix = flows[2 : 2 + n_classes] + flows[2 + n_classes :]
    np.fill_diagonal(matrix, 0.0)
    np.fill_diagonal(matrix, -matrix.sum(axis=1))
    return np.asarray(matrix)


def _newton(rows: BalanceRows, shifts: Array, flows: Array) -> tuple[Array, Array] | None:
    """The first of a few halved steps that lowers the largest gap."""
    n_classes = len(shifts)
    bordered = np.ones((n_classes + 1, n_classes + 1))
    bordered[:n_classes, :n_classes], bordered[-1, -1] = _jacobian(flows), 0.0
    try:
        step = np.linalg.solve(bordered, np.append(flows[1] - flows[0], 0.0))[:n_classes]
    except np.linalg.LinAlgError:
        return None
    if not np.isfinite(step).all():
        return None
    for halving in range(_HALVINGS):
        part = 0.5**halving
        trial = shifts + part * step
        found = rows.flows(trial)
        if _gap(found) < _gap(flows) * (1.0 - 1e-4 * part):
            return trial, found
    return None


def _sets(jacobian: Array) -> list[Bools]:
    """Single classes, and the connected parts of the graph of exchanges at a few strengths."""
    found = {tuple(row) for row in np.eye(len(jacobian), dtype=bool).tolist()}
    for least in _STRENGTHS:
        n_parts, part = sparse.csgraph.connected_components(jacobian > least, directed=False)
        if n_parts > 1:
            found |= {tuple((part == one).tolist()) for one in range(n_parts)}
    return [np.array(one) for one in sorted(found, key=lambda one: (sum(one), one))]


def _sides(own: Array, rest: Array, log_own: Array, log_rest: Array) -> Array:
    """log Σ_own w σ(−m), log Σ_rest w σ(m), and how fast both change in m, as shares of themselves, (4, 1)."""
    missed, alarmed = log_own - np.logaddexp(0.0, own), log_rest - np.logaddexp(0.0, -rest)
    total_missed, total_alarmed = float(log_sum_exp(missed, 0)), float(log_sum_exp(alarmed, 0))
    # Sums and no products of BLAS, whose order of terms depends on the number of threads.
    falls = float(np.sum(np.exp(missed - total_missed - np.logaddexp(0.0, -own)))) if len(own) else 0.0
    rises = float(np.sum(np.exp(alarmed - total_alarmed - np.logaddexp(0.0, rest)))) if len(rest) else 0.0
    return np.array([[total_missed], [total_alarmed], [falls], [rises]])


def _root(sides: Callable[[float], Array], closed: float) -> float:
    """Where the two `_sides` are equal, by Newton steps kept in a bracket, which grows until it holds the root."""
    low, high, shift, reach = -math.inf, math.inf, 0.0, _REACH
    for _ in range(_MOST_STEPS):
        missed, alarmed, falls, rises = sides(shift).ravel().tolist()
        gap, slope = missed - alarmed, -falls - rises
        if abs(gap) <= closed:
            return shift
        low, high = (shift if gap >= 0.0 else low), (shift if gap <= 0.0 else high)
        new = shift - gap / slope if slope < 0.0 else math.copysign(math.inf, gap)
        if abs(new - shift) > reach:
            new, reach = shift + math.copysign(reach, gap), 1024.0 * reach
        if not low < new < high and math.isfinite(low + high):
            new = 0.5 * (low + high)
        if abs(new - shift) <= 4e-16 * max(1.0, abs(new)):
            return new
        shift = new
    return shift
