"""Reasons: Shapley values of a table's columns for any fitted model, in natural log-odds, with standard errors."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise, permutations
from math import comb
from typing import Any, NamedTuple, TypeGuard

import joblib
import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.lazy import pd, threadpoolctl
from crcen._support.text import attributes, label_key, listed
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.models.ensemble import Ensemble, apply_map
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.models.validation import Seed
from crcen.theory.checks import check_whole_number
from crcen.theory.price import Labels, sigmoid
from crcen.theory.rows import Array, Bools, DataFrame, Estimator, Index, Shown
from crcen.training.network import InputEncoding, Member, NetworkGroup, activate

Floats = NDArray[np.float32]
Logits = Callable[[Array], Array]
Pairs = tuple[Index, Index]

_SHOWN_ROWS = 10
# Columns of whole numbers in this range are years.
_YEARS = (1800.0, 2200.0)


@dataclass(frozen=True, eq=False)
class Reasons(Shown):
    """Contributions of columns to the natural log-odds of rows."""

    columns: tuple[str, ...]  # of the table
    values: Array  # (n, columns): Shapley values; their sum plus ``base`` is ``log_odds``
    errors: Array  # (n, columns): their standard errors
    log_odds: Array  # (n,): natural, of the positive class; without a positive class log p(class) / p(rival)
    base: float | Array  # mean log-odds of the background rows; (n,) without a positive class
    cells: NDArray[np.object_]  # (n, columns): the cells as text
    # Without a positive class: the explained class of each row, and the most probable other class.
    classes: NDArray[np.object_] | None = None
    rivals: NDArray[np.object_] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def standard_error(self) -> float:
        """The largest standard error of a value."""
        return float(self.errors.max(initial=0.0))

    @property
    def comparisons(self) -> list[str]:
        """For several classes the two that each row compares, such as "worn rather than fine"; otherwise empty."""
        if self.classes is None or self.rivals is None:
            return []
        return [f"{one} rather than {other}" for one, other in zip(self.classes, self.rivals, strict=True)]

    def sentences(self, number: int = 3, n_rows: int | None = None) -> list[list[str]]:
        """The strongest reasons of every row, or of the first ``n_rows``, such as "balance 2,310: +1.4 log-odds".

        Each row has this number of reasons, at most the number of columns.
        """
        number = check_whole_number(number, "number", 1)
        order = np.argsort(-np.abs(self.values[:n_rows]), axis=1, kind="stable")[:, :number]
        found = []
        for cells, values, own in zip(self.cells, self.values, order, strict=False):
            digits = [1 if abs(values[j]) >= 1.0 else 2 for j in own]  # smaller ones are below the standard error
            pairs = zip(own, digits, strict=True)
            found.append([f"{self.columns[j]} {cells[j]}: {values[j]:+.{n}f} log-odds" for j, n in pairs])
        return found

    def columns_of(self, number: int = 3) -> list[list[str]]:
        """The same by rank: the strongest reason of every row, then the second, and so on; "" for none."""
        found = self.sentences(number)
        return [[one[i] if i < len(one) else "" for one in found] for i in range(number)]

    def to_frame(self) -> DataFrame:
        """The values as a data frame with the columns of the table."""
        return pd.DataFrame(self.values, columns=list(self.columns))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        pairs = {"classes": self.classes, "rivals": self.rivals}
        labelled = {name: [str(one) for one in labels] for name, labels in pairs.items() if labels is not None}
        return attributes(self, "columns values errors log_odds base standard_error") | labelled

    @property
    def about(self) -> str:
        """The comparison of the values, and their precision."""
        exact = f"standard error at most {self.standard_error:.2g} log-odds" if self.standard_error else "exact"
        if isinstance(self.base, np.ndarray):
            return f"against background rows, for a class rather than the most probable other class, {exact}"
        p = sigmoid(np.array(self.base))
        return f"against background rows with log-odds {self.base:.2f} (probability {p:.3g}), {exact}"

    def __repr__(self) -> str:
        return f"<Reasons for {len(self):,} rows and {len(self.columns)} columns, {self.about}>"

    def __str__(self) -> str:
        lines, compared = [f"Reasons for {len(self):,} rows {self.about}"], self.comparisons
        for i, reasons in enumerate(self.sentences(n_rows=_SHOWN_ROWS)):
            lines.append(": ".join([f"  {i + 1}", *compared[i : i + 1], "; ".join(reasons)]))
        return "\n".join([*lines, *(["  …"] if len(self) > _SHOWN_ROWS else [])])


def spelled(values: Array) -> NDArray[np.object_]:
    """Numbers of a column as text, "missing" for NaN."""
    present = values[~np.isnan(values)]
    are_years = present.size > 0 and bool(
        ((present >= _YEARS[0]) & (present <= _YEARS[1]) & (present == np.round(present))).all()
    )
    return np.array([_number(float(value), are_years) for value in values], dtype=object)


def _number(value: float, is_year: bool) -> str:
    if np.isnan(value):
        return "missing"
    if is_year:
        return f"{value:.0f}"
    size = abs(value)
    has_commas = size < 1e15 and (value == round(value) or size >= 1000)
    return f"{value:,.0f}" if has_commas else f"{value:.4g}"


# Smallest probability in the log-odds of classifiers without logits.
_LEAST = 1e-7
# Number of typical rows, and largest number of background rows given by the caller.
_N_TYPICAL, _MOST_ROWS = 32, 64
# Largest number of training rows that are used, and number of orders that are tried for a column.
_LOOKED_AT, _ORDERS = 50_000, 64


def typical_rows(X: Array, blocks: Sequence[slice], averaged: Sequence[bool] = (), n_rows: int = _N_TYPICAL) -> Array:
    """Artificial rows with the distribution of every column, (n_rows, n_features)."""
    rng = np.random.default_rng(0)
    if len(X) > _LOOKED_AT:
        X = X[np.sort(rng.choice(len(X), _LOOKED_AT, replace=False))]
    ranks = ((np.arange(n_rows) + 0.5) / n_rows * len(X)).astype(np.int64)
    edges = (np.arange(n_rows + 1) / n_rows * len(X)).astype(np.int64)
    found = np.empty((n_rows, X.shape[1]))
    gram, orders = np.zeros((n_rows, n_rows)), np.tile(np.arange(n_rows), (_ORDERS, 1))
    for j, block in enumerate(blocks):
        part = X[:, block]
        order = np.lexsort(part.T[::-1])
        cells = part[order[ranks]]
        if len(averaged) and averaged[j]:
            pieces = [part[order[a : max(b, a + 1)]] for a, b in pairwise(edges)]
            cells = np.array([piece.mean(axis=0) for piece in pieces])
        # Of some random orders the one with the least correlation to the earlier columns.
        tried = rng.permuted(orders, axis=1)
        place = tried[int(np.argmin(((tried @ gram) * tried).sum(axis=1)))]
        centred = place - place.mean()
        gram += np.outer(centred, centred)
        found[:, block] = cells[place]
    return found


def explain_rows(
    model: Estimator,
    X: Array,
    background: Array | None,
    blocks: Sequence[Index],
    columns: Sequence[str],
    cells: NDArray[np.object_],
    random_state: Seed,
    *,
    classes: ArrayLike | None = None,
) -> Reasons:
    """Reasons of encoded rows."""
    has_several = len(model.classes_) > 2 or getattr(getattr(model, "weighting_", None), "positive", 1) is None
    if classes is not None and not has_several:
        raise InvalidParameter("classes must be left out: reasons of two classes are for the positive one.")
    seed = check_whole_number(random_state, "random_state", 0)
    if background is None or not len(background):
        words = "reasons compare rows with background rows: pass background=, such as the training rows."
        raise InvalidParameter(words, parameter="background")
    if len(background) > _MOST_ROWS:
        rows = np.random.default_rng(seed).choice(len(background), _MOST_ROWS, replace=False)
        background = background[np.sort(rows)]
    if has_several:
        pairs = _class_pairs(model, X, classes)
    else:
        labels = model.ensemble_.labels if hasattr(model, "ensemble_") else Labels.of_model(model)
        pairs = np.full(len(X), labels.column), np.full(len(X), 1 - labels.column)
    if hasattr(model, "ensemble_"):
        found = shapley_of_ensemble(model.ensemble_, X, background, blocks, pairs, seed, joblib.cpu_count())
    else:
        found = shapley_of_function(_logits_of(model, has_several), X, background, blocks, pairs, seed)
    if not np.isfinite(found.values).all():
        raise InvalidInput("X holds values too large for this model: its output overflows.")
    if not has_several:
        return Reasons(tuple(columns), *found[:3], float(found.base[0]), cells)
    labelled = (np.array([model.classes_.tolist()[k] for k in side], dtype=object) for side in pairs)
    return Reasons(tuple(columns), *found, cells, *labelled)


def _class_pairs(model: Estimator, X: Array, classes: ArrayLike | None) -> tuple[Index, Index]:
    """Numbers of the explained class of each row, by default the decided one, and of the most probable other class."""
    p = np.array(model.predict_proba(X), dtype=np.float64)
    labels, costs = model.classes_.tolist(), getattr(model, "costs_", None)
    actions = () if costs is None else costs.actions
    classes = model.predict(X) if classes is None else classes
    place = {label_key(label): k for k, label in enumerate(labels)}
    given: list[Any] = [classes] * len(p) if np.ndim(classes) == 0 else [*np.asarray(classes, dtype=object)]
    if len(given) != len(p):
        raise InvalidParameter(f"classes must have one label per row: got {len(given)} for {len(p)}.")
    known = {*place, *map(label_key, actions)}
    unknown = next((one for one in given if label_key(one) not in known), None)
    if unknown is not None:
        raise InvalidParameter(f"classes must be of this model, {listed(labels)}: got {unknown!r}.")
    likeliest = p.argmax(axis=1)  # explains an action
    first = np.array([place.get(label_key(one), k) for one, k in zip(given, likeliest, strict=True)], np.int64)
    p[np.arange(len(p)), first] = -1.0
    return first, p.argmax(axis=1)


def _logits_of(model: Estimator, has_several: bool) -> Callable[[Array], Array]:
    """Natural logits (n, K) of any classifier; the negative class of a binary problem has the logit 0."""

    def logits(X: Array) -> Array:
        p = np.asarray(model.predict_proba(X), dtype=np.float64)
        if has_several:
            return np.log(np.clip(p, _LEAST, 1.0))
        labels = Labels.of_model(model)
        positive = np.clip(p[:, labels.column], _LEAST, 1.0 - _LEAST)
        return labels.columns(np.log(positive) - np.log1p(-positive))

    return logits


# Target of the standard error, in log-odds, and the largest number of rounds.
STANDARD_ERROR, MOST_ROUNDS = 0.05, 64
# Orders, each with its reverse, before a standard error is estimated.
_FIRST_ORDERS = 64
# Columns up to which all orders are used: there is no error then.
_FEW_COLUMNS = 4
# Rows at a time: of paths, whose numbers should stay in the cache, and of trees.
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE, _TREE_ROWS = 256, 2**20, 5_000
# Columns on a path of a tree up to which a table of all patterns is kept.
_TABLED = 12


class Paths:
    """Logits along paths from a background row to rows of a table, whose columns are replaced one after another."""

    def __init__(self, logits: Logits, blocks: Sequence[Index], weight: float, background: Array) -> None:
        self._logits_of, self._blocks, self._weight, self._Z = logits, blocks, weight, background

    def set_rows(self, X: Array) -> None:
        """Set the rows at which paths end."""
        self._X = X

    def add_logits(self, start: int, order: Index, out: Array) -> None:
        """Add logits (steps + 1, n) of the path from a background row, whose columns are replaced in this order."""
        n, n_features = self._X.shape
        rows = np.empty((len(order) + 1, n, n_features))
        rows[0] = self._Z[start]
        for step, j in enumerate(order):
            rows[step + 1] = rows[step]
            rows[step + 1][:, self._blocks[j]] = self._X[:, self._blocks[j]]
        out += self._weight * self._logits_of(rows.reshape(-1, n_features)).reshape(len(order) + 1, n)


class NetworkPaths(Paths):
    """Paths of networks: a column enters their first layer as a sum, so that a step is an addition there.

    Single precision is enough for differences that are known to hundredths, and half the work.
    """

    def __init__(self, group: NetworkGroup, blocks: Sequence[Index], weight: float, background: Array) -> None:
        self._group, n = group, len(group)
        weights, biases = group.weights, group.biases
        self._first = weights[0]
        layers = [(w.astype(np.float32), b.astype(np.float32)[:, None]) for w, b in zip(weights, biases, strict=True)]
        self._bias, self._inner = layers[0][1], layers[1:-1]
        # With no hidden layer the first layer is the output; its units are the networks' logits.
        self._last = (weights[-1] * (weight / n)).astype(np.float32) if len(weights) > 1 else None
        self._last_bias = float(biases[-1].sum() * weight / n)
        self._share = weight / n
        self._inputs = [np.flatnonzero(np.isin(_sources_of(group.encoding), block)) for block in blocks]
        self._starts = self._parts(background)

    def set_rows(self, X: Array) -> None:
        """As in `Paths`, for what columns add to the first layer."""
        self._ends = self._parts(X)
        self._units = np.empty_like(self._ends[0])

    def _parts(self, X: Array) -> list[Floats]:
        """Contribution of each block to the first layer, (networks, n, units)."""
        encoded = self._group.encoding(X)
        return [(encoded[:, own] @ self._first[:, own]).astype(np.float32) for own in self._inputs]

    def add_logits(self, start: int, order: Index, out: Array) -> None:
        """As in `Paths`."""
        here = self._bias + sum(part[:, start : start + 1] for part in self._starts)
        out[0] += self._logits(here.copy())
        # What rows add so far; what the background still adds is the same for all of them.
        added = np.zeros_like(self._units)
        for step, j in enumerate(order):
            added += self._ends[j]
            here = here - self._starts[j][:, start : start + 1]
            out[step + 1] += self._logits(np.add(added, here, out=self._units))

    def _logits(self, units: Floats) -> Floats:
        """Logits of pre-activations (networks, n, units), which are overwritten."""
        if self._last is None:
            return np.asarray(units[:, :, 0].sum(axis=0) * self._share)
        activate(self._group.activation, units)
        for weight, bias in self._inner:
            units = np.matmul(units, weight)
            units += bias
            activate(self._group.activation, units)
        return np.asarray(np.matmul(units, self._last)[:, :, 0].sum(axis=0) + self._last_bias)


def _sources_of(encoding: InputEncoding) -> Index:
    columns = np.arange(encoding.size) if encoding.columns is None else encoding.columns
    if encoding.indicators is None or not len(encoding.indicators):
        return columns
    n_features = int(columns.max()) + 1 - len(encoding.indicators)
    return np.where(columns < n_features, columns, encoding.indicators[np.maximum(columns - n_features, 0)])


class ShapleyValues(NamedTuple):
    """Contributions of columns to the log-odds of one class against another."""

    values: Array  # Shapley values and their standard errors
    errors: Array
    log_odds: Array  # the sum of a row's values and its base; the base is the mean log-odds of the background rows
    base: Array


def shapley_of_ensemble(
    ensemble: Ensemble, X: Array, background: Array, blocks: Sequence[Index], pairs: Pairs, seed: int, threads: int
) -> ShapleyValues:
    """Shapley values of the natural log-odds between two classes, one pair of classes for each row."""
    weights = ensemble.member_weights
    if weights is None:
        weights = np.full(len(ensemble.members), 1.0 / len(ensemble.members))
    labels, state = ensemble.labels, ensemble.probability_map
    is_affine = state.ndim == 1
    scaled = [*zip(ensemble.members, (weights * (state[0] if is_affine else 1.0)).tolist(), strict=True)]
    trees = [(one, weight) for one, weight in scaled if is_affine and _is_sum_of_trees(one)]
    sampled = [(one, weight) for one, weight in scaled if not (is_affine and _is_sum_of_trees(one))]
    outer = None
    if not is_affine:  # a map of binary log-odds that is no line
        shift = labels.margin(ensemble.shift - ensemble.weighting.log_weights)
        outer = lambda logits: apply_map(state, logits + shift)  # noqa: E731
    values, errors = np.zeros((2, len(X), len(blocks)))
    orders = _orders(len(blocks), len(background), seed)
    for pair, rows in _by_pair(pairs):
        own = pair if labels.positive is None else None
        makers = [_paths_of(member, own, blocks, weight, background) for member, weight in sampled]
        values[rows], errors[rows] = _sampled_values(makers, X[rows], orders, threads, outer)
    # The trees of a class once for all rows that it has a part in; binary members have the logit of the positive class.
    for k in range(labels.n_classes) if labels.positive is None else (labels.column,):
        exact = [(one.column(k) if labels.positive is None else one, weight) for one, weight in trees]
        for side, sign in zip(pairs, (1.0, -1.0), strict=True):
            rows = np.flatnonzero(side == k)
            if len(rows) and exact:
                values[rows] += sign * _values_of_trees(exact, X[rows], background, blocks, threads)
    return _adding_up(values, errors, ensemble.logits(X)[0], ensemble.logits(background)[0], pairs)


def shapley_of_function(
    logits: Logits, X: Array, background: Array, blocks: Sequence[Index], pairs: Pairs, seed: int
) -> ShapleyValues:
    """The same for any function that returns logits (n, K); slow, because it evaluates every step of every path."""
    values, errors = np.zeros((2, len(X), len(blocks)))
    orders = _orders(len(blocks), len(background), seed)
    for pair, rows in _by_pair(pairs):
        paths = partial(Paths, _margin(logits, pair), blocks, 1.0, background)
        values[rows], errors[rows] = _sampled_values([paths], X[rows], orders)
    return _adding_up(values, errors, logits(X), logits(background), pairs)


def _is_sum_of_trees(member: Member) -> TypeGuard[TreeEnsemble]:
    """Whether the member's logits are a sum over its trees, so that its values can be computed exactly."""
    return isinstance(member, TreeEnsemble) and not member.has_shares


def _values_of_trees(
    trees: Sequence[tuple[TreeEnsemble, float]], X: Array, background: Array, blocks: Sequence[Index], threads: int
) -> Array:
    """Exact values (n, blocks) of trees, each multiplied by its weight."""
    values = np.zeros((len(X), len(blocks)))
    with ThreadPoolExecutor(threads) as pool:

        def explain(start: int) -> None:
            rows = slice(start, start + _TREE_ROWS)
            for one, weight in trees:
                values[rows] += weight * tree_values(one, X[rows], background, blocks)

        list(pool.map(explain, range(0, len(X), _TREE_ROWS)))
    return values


def _by_pair(pairs: Pairs) -> list[tuple[tuple[int, int], Index]]:
    both = np.column_stack(pairs)
    return [((int(k), int(r)), np.flatnonzero((both == (k, r)).all(axis=1))) for k, r in np.unique(both, axis=0)]


def _paths_of(
    member: Member, pair: tuple[int, int] | None, blocks: Sequence[Index], weight: float, background: Array
) -> Callable[[], Paths]:
    """A factory of the paths of a member: of the difference of two logits, or of its only one."""
    if isinstance(member, NetworkGroup) and not member.is_one_against_all:  # whose logits are its output units
        if pair is not None:
            last, bias, (first, second) = member.weights[-1], member.biases[-1], pair
            weights = (*member.weights[:-1], last[:, :, [first]] - last[:, :, [second]])
            biases = (*member.biases[:-1], bias[:, [first]] - bias[:, [second]])
            member = replace(member, weights=weights, biases=biases)
        return partial(NetworkPaths, member, blocks, weight, background)
    return partial(Paths, _margin(member.logits, pair), blocks, weight, background)


def _margin(logits: Logits, pair: tuple[int, int] | None) -> Logits:
    """The difference of two columns of logits, or the only column."""

    def margin(X: Array) -> Array:
        found = logits(X)
        return np.asarray(found[:, 0] if pair is None else found[:, pair[0]] - found[:, pair[1]])

    return margin


def _adding_up(values: Array, errors: Array, logits: Array, of_background: Array, pairs: Pairs) -> ShapleyValues:
    """Values with an exact sum: the rounding error of single precision is distributed by the columns' variances."""
    rows, (first, second), typical = np.arange(len(logits)), pairs, of_background.mean(axis=0)
    log_odds, base = logits[rows, first] - logits[rows, second], typical[first] - typical[second]
    missing, variance = log_odds - base - values.sum(axis=1), errors**2 + 1e-30
    values = values + missing[:, None] * variance / variance.sum(axis=1, keepdims=True)
    return ShapleyValues(values, errors, log_odds, base)


def _sampled_values(
    makers: Sequence[Callable[[], Paths]], X: Array, orders: Index, threads: int = 1, outer: Logits | None = None
) -> tuple[Array, Array]:
    """Values and errors by random orders, (n, blocks) each; the orders of a round are the same for all rows."""
    _, n_starts, n_blocks = orders.shape
    values, errors = np.zeros((2, len(X), n_blocks))
    if not makers:
        return values, errors
    at_once = max(8, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // (n_starts * n_blocks)))

    def explain(start: int) -> None:
        rows = slice(start, start + at_once)
        values[rows], errors[rows] = _values_of_rows([make() for make in makers], X[rows], orders, outer)

    with threadpoolctl.threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        list(pool.map(explain, range(0, len(X), at_once)))
    return values, errors


def _orders(n_blocks: int, n_starts: int, seed: int) -> Index:
    """Orders by round and background row, each for itself and its reverse."""
    if n_blocks <= _FEW_COLUMNS:
        half = [one for one in permutations(range(n_blocks)) if n_blocks < 2 or one[0] < one[-1]]
        return np.repeat(np.array(half, dtype=np.int64)[:, None], n_starts, axis=1)
    rng = np.random.default_rng(seed)
    return np.array([[rng.permutation(n_blocks) for _ in range(n_starts)] for _ in range(MOST_ROUNDS)])


def _values_of_rows(paths: Sequence[Paths], X: Array, orders: Index, outer: Logits | None) -> tuple[Array, Array]:
    """Values and errors of a few rows: two rounds, then more for those that need them."""
    n, (n_rounds, n_starts, n_blocks) = len(X), orders.shape
    values, errors = np.empty((2, n, n_blocks))
    is_exact = n_blocks <= _FEW_COLUMNS
    wanted = n_rounds if is_exact else min(max(2, -(-_FIRST_ORDERS // n_starts)), n_rounds)
    left, done = np.arange(n), 0
    # By column, background row and row: sums over rounds.
    first, second = np.zeros((2, n_blocks, n_starts, n))
    while len(left):
        for path in paths:
            path.set_rows(X[left])
        for order_of in orders[done:wanted]:
            steps = _steps(paths, order_of, len(left), outer)
            first += steps
            second += steps**2
        done = wanted
        variance = np.maximum(second - first**2 / done, 0.0) / max(done - 1, 1)
        values[left] = first.mean(axis=1).T / done
        if is_exact:
            errors[left] = 0.0
            break
        errors[left] = np.sqrt(variance.sum(axis=1).T / done) / n_starts
        worst = errors[left].max(axis=1)
        again = worst > STANDARD_ERROR
        if done >= n_rounds or not again.any():
            break
        needed = done * (float(np.median(worst[again])) / STANDARD_ERROR) ** 2
        wanted = int(np.clip(np.ceil(1.1 * needed), done + 1, n_rounds))
        left, first, second = left[again], first[:, :, again], second[:, :, again]
    return values, errors


def _steps(paths: Sequence[Paths], order_of: Index, n: int, outer: Logits | None) -> Array:
    """Differences along the paths of a round, in each order and its reverse: by column, background row and row."""
    found = np.zeros((order_of.shape[1], len(order_of), n))
    for start, forward in enumerate(order_of):
        for order in (forward, forward[::-1]):
            out = np.zeros((len(order) + 1, n))
            for path in paths:
                path.add_logits(start, order, out)
            found[order, start] += 0.5 * np.diff(out if outer is None else outer(out), axis=0)
    return found


def tree_values(trees: TreeEnsemble, X: Array, background: Array, blocks: Sequence[Index]) -> Array:
    """Exact Shapley values (n, blocks) of the trees' logit (Lundberg and others 2020, for one reference row).

    A leaf is reached where every column on its path is satisfied by the row's cell or, for columns still at the
    background row z, by that of z. With n₁ columns satisfied by the row alone and n₀ by z alone, each of the first kind
    has (n₁−1)! n₀! / (n₁+n₀)! of the leaf's value, and each of the second loses n₁! (n₀−1)! / (n₁+n₀)! of it.
    """
    block_of = np.zeros(trees.n_features, dtype=np.int64)
    for j, block in enumerate(blocks):
        block_of[block] = j
    values = np.zeros((len(blocks), len(X)))
    for root, end in zip(trees.roots, np.append(trees.roots[1:], len(trees.value)), strict=True):
        inner = [node for node in range(int(root), int(end)) if trees.left[node] != node]
        left = {node: (_goes_left(trees, X, node), _goes_left(trees, background, node)) for node in inner}
        for value, path in _leaves(trees, int(root)):
            own: dict[int, tuple[Bools, Bools]] = {}
            for node, is_left in path:
                j = int(block_of[trees.feature[node]])
                here, there = left[node] if is_left else (~left[node][0], ~left[node][1])
                own[j] = (own[j][0] & here, own[j][1] & there) if j in own else (here, there)
            if own:
                _add_leaf(values, value, own)
    return values.T


def _goes_left(trees: TreeEnsemble, X: Array, node: int) -> Bools:
    cells = X[:, trees.feature[node]]
    is_left: Bools = cells <= trees.threshold[node]
    return is_left | np.isnan(cells) if trees.missing_left[node] else is_left


def _leaves(trees: TreeEnsemble, root: int) -> list[tuple[float, list[tuple[int, bool]]]]:
    """The value of every leaf, and the path to it as nodes and sides."""
    found: list[tuple[float, list[tuple[int, bool]]]] = []
    waiting: list[tuple[int, list[tuple[int, bool]]]] = [(root, [])]
    while waiting:
        node, path = waiting.pop()
        if trees.left[node] == node:
            found.append((float(trees.value[node, 0]), path))
        else:
            sides = ((int(trees.left[node]), True), (int(trees.right[node]), False))
            waiting += [(child, [*path, (node, is_left)]) for child, is_left in sides]
    return found


def _add_leaf(values: Array, value: float, own: dict[int, tuple[Bools, Bools]]) -> None:
    patterns, at = _patterns(_codes([here for here, _ in own.values()]), len(own))
    others, counts = np.unique(_codes([there for _, there in own.values()]), return_counts=True)
    bits = np.arange(len(own))
    a, b = ((one[:, None] >> bits & 1).astype(np.float64) for one in (patterns, others))
    n_gained, n_lost = (a @ (1.0 - b).T).astype(np.int64), ((1.0 - a) @ b.T).astype(np.int64)
    share = np.where((1.0 - a) @ (1.0 - b).T > 0.0, 0.0, value * counts / counts.sum())
    gains, losses = _shares(len(own))
    table = a * ((share * gains[n_gained, n_lost]) @ (1.0 - b))
    table -= (1.0 - a) * ((share * losses[n_gained, n_lost]) @ b)
    for j, column in zip(own, table.T, strict=True):
        values[j] += column[at]


def _codes(satisfied: list[Bools]) -> Index:
    """Truth values of each row as the bits of one number."""
    found = np.zeros(len(satisfied[0]), dtype=np.int64)
    for bit, one in enumerate(satisfied):
        found |= one.astype(np.int64) << bit
    return found


def _patterns(codes: Index, n_bits: int) -> tuple[Index, Index]:
    """The distinct numbers, and the position of each row's number among them."""
    if n_bits > _TABLED:
        found, at = np.unique(codes, return_inverse=True)
        return found, at
    found = np.flatnonzero(np.bincount(codes, minlength=1 << n_bits))
    place = np.zeros(1 << n_bits, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[codes]


@cache
def _shares(most: int) -> tuple[Array, Array]:
    """(n₁−1)! n₀! / (n₁+n₀)! and n₁! (n₀−1)! / (n₁+n₀)! by n₁ and n₀; 0 where there is no such column."""
    gains = np.zeros((most + 1, most + 1))
    for n_gained in range(1, most + 1):
        for n_lost in range(most + 1):
            gains[n_gained, n_lost] = 1.0 / (n_gained * comb(n_gained + n_lost, n_gained))
    return gains, gains.T
