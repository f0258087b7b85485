"""Cost of every decision for every true class, and the cheapest decision for given probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen._support.text import listed
from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.checks import check_probabilities
from crcen.theory.rows import Array, FloatOrArray, Shown, alarms_above, as_numpy, divided, scalar

# By which the sum of the probabilities of a row may differ from 1.
_MOST_OFF = 1e-3


@dataclass(frozen=True, eq=False)
class CostMatrix(Shown):
    """Cost of each action for each true class: true classes in rows, decisions in columns. A gain is a negative cost.

    Parameters
    ----------
    costs : array of shape (K, A), or (n, K, A) for costs that differ by row
        Finite. The first K columns are decisions for a class; other columns are actions, such as "review".
    labels : sequence, optional
        The classes, in the order of rows and first columns; by default the order of a model's ``classes_``.
    actions : sequence, optional
        Names of the other columns.
    is_binary : bool
        Whether rows and columns are (negative, positive), for any order of the labels: see `CostMatrix.binary`.

    Examples
    --------
    >>> costs = CostMatrix([[0, 1, 0.3], [20, 0, 2]], labels=["ok", "fraud"], actions=["review"])
    >>> costs.decide([[0.99, 0.01], [0.9, 0.1], [0.2, 0.8]]).tolist()
    ['ok', 'review', 'fraud']
    """

    costs: Array
    labels: tuple[object, ...] | None = None
    actions: tuple[Any, ...] = ()
    is_binary: bool = False

    def __init__(
        self,
        costs: ArrayLike,
        labels: Sequence[object] | None = None,
        actions: Sequence[object] = (),
        is_binary: bool = False,
    ) -> None:
        values = np.array(costs, dtype=np.float64)
        if values.ndim not in (2, 3) or not 2 <= values.shape[-2] <= values.shape[-1] or not np.isfinite(values).all():
            text = f"costs must be finite, with a row for each true class and as many columns or more: got {costs!r}."
            raise InvalidParameter(text, parameter="costs")
        values.setflags(write=False)
        n_classes, n_actions = values.shape[-2:]
        others = tuple(_plain(one) for one in ([actions] if isinstance(actions, str) else actions))
        names = None if labels is None else tuple(_plain(label) for label in labels)
        if len(others) != n_actions - n_classes:
            raise InvalidParameter(f"actions must name {n_actions - n_classes} columns of costs: got {list(others)}.")
        given = (*(names or ()), *others)
        if (names is not None and len(names) != n_classes) or len(set(given)) < len(given):
            got = f"got {None if names is None else list(names)} and {list(others)}"
            raise InvalidParameter(f"labels must name {n_classes} classes and actions others, each different: {got}.")
        if is_binary and (n_classes != 2 or names is not None):
            raise InvalidParameter("is_binary is for two classes without labels: use CostMatrix.binary.")
        self.__dict__.update(costs=values, labels=names, actions=others, is_binary=bool(is_binary))

    @classmethod
    def binary(cls, tp: ArrayLike = 0.0, fp: ArrayLike = 1.0, fn: ArrayLike = 1.0, tn: ArrayLike = 0.0) -> "CostMatrix":
        """Costs of the four outcomes of a binary decision; numbers, or an array (n,) with one for each row.

        The alarm is cheaper exactly where p exceeds ``threshold`` = (fp − tn) / ((fp − tn) + (fn − tp)). Numbers need
        fn > tp and fp > tn. With arrays a row on which an alarm never pays (threshold inf) or always pays (−inf) is
        allowed; only rows with fn < tp and fp < tn are rejected.

        Examples
        --------
        >>> CostMatrix.binary(tp=1, fp=1, fn=20).threshold  # every alarm costs one visit, a miss costs 20
        0.05
        """
        entries = {name: _entry(value, name) for name, value in (("tp", tp), ("fp", fp), ("fn", fn), ("tn", tn))}
        lengths = {name: len(value) for name, value in entries.items() if value.ndim}
        if len(set(lengths.values())) > 1:
            raise InvalidParameter(f"costs of outcomes must be numbers or arrays of one length: got {lengths}.")
        tp, fp, fn, tn = np.broadcast_arrays(*entries.values())
        found = cls(np.stack([np.stack([tn, fp], -1), np.stack([fn, tp], -1)], -2), is_binary=True)
        saved, added = found.added_by_mistake(1), found.added_by_mistake(0)
        if ((saved < 0.0) & (added < 0.0)).any():
            raise InvalidParameter("fn < tp and fp < tn raise alarms on the least probable rows: did you mean gains?")
        if not found.is_per_row and min(saved, added) <= 0.0:
            pays = "no alarm pays" if saved <= 0.0 else "an alarm on every row always pays"
            raise InvalidParameter(f"fn must be above tp, and fp above tn: got {found!r}, at which {pays}.")
        return found

    def with_review(self, cost: float, name: str = "review") -> "CostMatrix":
        """The same costs with one more action, whose cost is the same for every true class."""
        costs = np.concatenate([self.costs, np.full((*self.costs.shape[:-1], 1), float(cost))], axis=-1)
        return CostMatrix(costs, self.labels, (*self.actions, name), self.is_binary)

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.costs.shape[-2])

    @property
    def n_actions(self) -> int:
        """A, the classes included."""
        return int(self.costs.shape[-1])

    @property
    def names(self) -> tuple[object, ...]:
        """Possible decisions: the classes (numbers without labels), then the other actions."""
        return (*(self.labels or range(self.n_classes)), *self.actions)

    @property
    def n_rows(self) -> int | None:
        """Rows that the costs are for; None if they are the same for all rows."""
        return int(self.costs.shape[0]) if self.is_per_row else None

    @property
    def is_per_row(self) -> bool:
        """Whether costs differ by row."""
        return self.costs.ndim == 3

    @property
    def is_price(self) -> bool:
        """Whether a cost ratio states the same: `CostMatrix.binary` with one price for all rows and no review."""
        return self.is_binary and not self.actions and not self.is_per_row

    @property
    def threshold(self) -> FloatOrArray:
        """Posterior above which an alarm is cheaper; inf on a row where it never is, −inf where it always is."""
        if not self.is_binary or self.actions:
            raise InvalidParameter("only CostMatrix.binary without further actions has a threshold: use choose(p).")
        added, saved = self.added_by_mistake(0), self.added_by_mistake(1)
        never, always = (saved < 0.0) | ((saved == 0.0) & (added == 0.0)), (added < 0.0) & (saved >= 0.0)
        total = np.where(never | always, 1.0, added + saved)
        return scalar(np.where(never, np.inf, np.where(always, -np.inf, added / total)))

    def added_by_mistake(self, k: int) -> Array:
        """Cost of the cheapest error on class k minus that of being right; of two classes fp − tn or fn − tp."""
        errors = np.delete(self.costs[..., k, : self.n_classes], k, axis=-1)
        return np.asarray(errors.min(axis=-1) - self.costs[..., k, k])

    def check_right_is_cheapest(self) -> None:
        """Reject gains: costs in which errors are cheaper than right decisions."""
        added = [float(np.max(self.added_by_mistake(k))) for k in range(self.n_classes)]
        # Beside others or further actions, some class may not be worth deciding right.
        k, may_be_meant = int(np.argmin(added)), (self.n_classes > 2 or self.actions) and max(added) > 0.0
        if added[k] < 0.0 and not may_be_meant:
            got = f"got {self.costs[..., k, k].max() + 0.0:g} for deciding {self.names[k]} where it is true"
            gains = f"{got}, and less for an error; if these are gains, subtract each of them from the largest one."
            raise InvalidParameter(f"costs must be lowest for right decisions: {gains}", parameter="costs")

    def for_classes(self, classes: Sequence[object], positive: object = None) -> "CostMatrix":
        """The same costs with rows and columns in the order of ``classes``; a binary matrix needs the positive one."""
        wanted = [_plain(label) for label in classes]
        if len(wanted) != self.n_classes:
            raise InvalidParameter(f"these costs are for {self.n_classes} classes, and there are {len(wanted)}.")
        if self.labels is None:
            is_reversed = self.is_binary and positive is not None and _plain(positive) == wanted[0]
            named = CostMatrix(self.costs, wanted[::-1] if is_reversed else wanted, self.actions)
            return named.for_classes(wanted) if is_reversed else named
        if set(wanted) != set(self.labels):
            raise InvalidParameter(f"costs must be for the classes {wanted}: got {[*self.labels]}.", parameter="costs")
        order = [self.labels.index(label) for label in wanted]
        columns = order + list(range(self.n_classes, self.n_actions))
        return CostMatrix(self.costs[..., order, :][..., columns], wanted, self.actions)

    def expected(self, p: ArrayLike) -> Array:
        """Expected cost of every action for every row, (n, A), by natural probabilities (n, K)."""
        chances = self.probabilities(p)
        return np.einsum("nk,nka->na", chances, self.costs) if self.is_per_row else np.asarray(chances @ self.costs)

    def choose(self, p: ArrayLike) -> NDArray[np.int64]:
        """Number of the cheapest action of every row; the first one on a tie."""
        if self.is_binary and not self.actions:
            return alarms_above(self.probabilities(p)[:, 1], self.threshold).astype(np.int64)
        return np.asarray(np.argmin(self.expected(p), axis=1), dtype=np.int64)

    def decide(self, p: ArrayLike) -> NDArray[np.generic]:
        """The cheapest action of every row: a label or action; of a binary matrix whether it is an alarm."""
        if self.is_binary and not self.actions:
            return self.choose(p).astype(np.bool_)
        return np.asarray(np.array(self.names, dtype=object if self.actions else None)[self.choose(p)])

    def realised(self, y: ArrayLike, chosen: ArrayLike) -> Array:
        """Cost of the chosen actions (numbers) for rows with the true classes y (numbers)."""
        truth, action = np.asarray(as_numpy(y)).astype(np.int64), np.asarray(as_numpy(chosen)).astype(np.int64)
        self._check_n_rows(len(truth))
        rows = (np.arange(len(truth)),) if self.is_per_row else ()
        return np.asarray(self.costs[(*rows, truth, action)])

    def class_weights(self) -> Array | None:
        """Weights that decide as these costs do, u_k·1{a ≠ k} + v_k, or None if there are none."""
        if self.actions or self.is_per_row:
            return None
        added = self.costs - np.diag(self.costs)[:, None]
        away = added[~np.eye(self.n_classes, dtype=bool)].reshape(self.n_classes, -1)
        weights = away.mean(axis=1)
        same = np.abs(away - weights[:, None]).max() <= 1e-12 * np.abs(self.costs).max()
        return np.asarray(weights) if same and (weights > 0.0).all() else None

    @property
    def unit(self) -> str:
        """What a mistake costs if right decisions cost nothing and mistakes the weight of their class; else empty."""
        weights = self.class_weights()
        if weights is None or np.diag(self.costs).any():
            return ""
        return "a mistake costs " + listed(f"{w:.4g} on {label}" for w, label in zip(weights, self.names, strict=True))

    def probabilities(self, p: ArrayLike) -> Array:
        """Checked probabilities (n, K); those of the second one of two classes may be given alone, (n,)."""
        chances = check_probabilities(p, "p")
        if chances.ndim == 1 and self.n_classes == 2:
            chances = np.column_stack([1.0 - chances, chances])
        if chances.ndim != 2 or chances.shape[1] != self.n_classes:
            raise InvalidInput(f"p must have a column for each of {self.n_classes} classes: got shape {chances.shape}.")
        sums = chances.sum(axis=1)
        if len(sums) and np.abs(sums - 1.0).max() > _MOST_OFF:
            raise InvalidInput(f"the columns of p must sum to 1: got sums from {sums.min():.4g} to {sums.max():.4g}.")
        self._check_n_rows(len(chances))
        return chances

    def _check_n_rows(self, n_rows: int) -> None:
        if self.n_rows not in (None, n_rows):
            raise InvalidInput(f"these costs are for {self.n_rows} rows: got {n_rows}.")

    def __str__(self) -> str:
        if self.is_per_row:
            return f"costs of {self.n_actions} actions for {self.n_classes} classes, for each of {self.n_rows} rows"
        return decision_table(("negative", "positive", *self.actions) if self.is_binary else self.names, self.costs)

    def __repr__(self) -> str:
        if not self.is_binary or self.actions:
            parts = [str(self.costs.tolist()) if not self.is_per_row else f"<{self.n_rows} rows>"]
            parts += [f"{name}={list(getattr(self, name))}" for name in ("labels", "actions") if getattr(self, name)]
            return f"CostMatrix({', '.join(parts)})"
        cells = zip(("tp", "fp", "fn", "tn"), ((1, 1), (0, 1), (1, 0), (0, 0)), strict=True)
        values = {name: self.costs[..., row, column] for name, (row, column) in cells}
        shown = (
            f"{name}={value.flat[0]:g}" if value.size and np.ptp(value) == 0.0 else f"{name}=<{value.size} rows>"
            for name, value in values.items()
        )
        return f"CostMatrix.binary({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CostMatrix):
            return NotImplemented
        mine, theirs = ((one.labels, one.actions, one.is_binary) for one in (self, other))
        return mine == theirs and np.array_equal(self.costs, other.costs)

    def __hash__(self) -> int:
        return hash((self.costs.tobytes(), self.labels, self.actions))


def decision_table(names: Sequence[object], table: Array, *, has_recall: bool = False) -> str:
    """Numbers by true class and decision as text; ``names`` are those of the columns, the classes first."""
    shares = divided(np.diag(table), table.sum(axis=1)) if has_recall else None
    texts = [str(name) for name in names]
    width = max(10, *map(len, texts)) + 2
    ends = [""] * len(table) if shares is None else [f"{share:>10.3f}" for share in shares]
    head = " " * width + "".join(f"{text:>{width}}" for text in texts) + ("" if shares is None else f"{'recall':>10}")
    rows = [
        f"{text:<{width}}" + "".join(f"{value:>{width}.6g}" for value in row) + end
        for text, row, end in zip(texts, table.tolist(), ends, strict=False)
    ]
    return "\n".join(["true ↓ decided →", head, *rows])


def _entry(value: ArrayLike, name: str) -> Array:
    try:
        costs = np.asarray(as_numpy(value), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidParameter(f"the cost {name} must be a number or one number for each row: {error}") from error
    if costs.ndim > 1 or not np.isfinite(costs).all():
        raise InvalidParameter(f"the cost {name} must be a finite number or one for each row: got {value!r}.")
    return costs


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
