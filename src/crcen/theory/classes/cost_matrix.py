"""Costs of every decision for every truth, and the cheapest decision for given probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crcen.exceptions import InvalidInput, InvalidParameter
from crcen.theory.classes.class_weights import ClassWeights
from crcen.theory.shown import Shown
from crcen.theory.tensors import as_numpy

__all__ = ["CostMatrix", "costs_of"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CostMatrix(Shown):
    """What each action costs for each true class: rows are the truth, columns what is decided.

    Parameters
    ----------
    costs : array of shape (K, A), or (n, K, A) for costs that differ by row
        Finite, in one unit. The first K columns decide for a class; any further ones are actions of their own, such as
        "review".
    labels : sequence, optional
        The classes, in the order of rows and first columns. Without them the order is that of a model's ``classes_``.
    actions : sequence, optional
        Names of the further columns, one for each.

    Examples
    --------
    >>> costs = CostMatrix([[0, 1, 0.3], [20, 0, 2]], labels=["ok", "fraud"], actions=["review"])
    >>> costs.decide([[0.99, 0.01], [0.9, 0.1], [0.2, 0.8]]).tolist()
    ['ok', 'review', 'fraud']
    """

    costs: Array
    labels: tuple[Any, ...] | None = None
    actions: tuple[Any, ...] = ()

    def __init__(self, costs: ArrayLike, labels: Sequence[Any] | None = None, actions: Sequence[Any] = ()) -> None:
        values = np.array(costs, dtype=np.float64)
        if values.ndim not in (2, 3) or values.shape[-1] < values.shape[-2] or values.shape[-2] < 2:
            raise InvalidParameter(
                f"costs must have a row for each true class and at least as many columns: got shape {values.shape}."
            )
        if not np.isfinite(values).all():
            raise InvalidParameter("costs must be finite numbers.")
        values.setflags(write=False)
        extra = values.shape[-1] - values.shape[-2]
        if isinstance(actions, str):
            actions = (actions,)
        if len(actions) != extra:
            raise InvalidParameter(
                f"{extra} columns of costs decide for no class, so that many actions need a name: got {len(actions)}."
            )
        names = None if labels is None else tuple(_plain(label) for label in labels)
        if names is not None and (len(names) != values.shape[-2] or len(set(names)) != len(names)):
            raise InvalidParameter(f"labels must name {values.shape[-2]} different classes: got {list(names)}.")
        if names is not None and set(names) & set(actions):
            raise InvalidParameter(f"an action must not be called as a class is: got {list(actions)}.")
        for name, value in (("costs", values), ("labels", names), ("actions", tuple(_plain(a) for a in actions))):
            object.__setattr__(self, name, value)

    def with_review(self, cost: float, name: str = "review") -> CostMatrix:
        """The same costs with one more action that costs the same whatever is true: a person looks and finds out.

        Parameters
        ----------
        cost : float
            Of one review, in the unit of the other costs; it must leave rows on which another action is cheaper.
        name : str, default="review"
            What the action is called.
        """
        column = np.full((*self.costs.shape[:-1], 1), float(cost))
        return CostMatrix(np.concatenate([self.costs, column], axis=-1), self.labels, (*self.actions, name))

    @property
    def n_classes(self) -> int:
        """K."""
        return int(self.costs.shape[-2])

    @property
    def n_rows(self) -> int | None:
        """Rows that the costs are for; None where they are the same for all."""
        return int(self.costs.shape[0]) if self.costs.ndim == 3 else None

    def for_classes(self, classes: Sequence[Any]) -> CostMatrix:
        """The same costs with rows and columns in the order of ``classes``."""
        wanted = [_plain(label) for label in classes]
        if len(wanted) != self.n_classes:
            raise InvalidParameter(f"these costs are for {self.n_classes} classes, and there are {len(wanted)}.")
        if self.labels is None:
            return CostMatrix(self.costs, wanted, self.actions)
        if set(wanted) != set(self.labels):
            raise InvalidParameter(f"costs must be for the classes {wanted}: got {list(self.labels)}.")
        order = [self.labels.index(label) for label in wanted]
        columns = order + list(range(self.n_classes, self.costs.shape[-1]))
        return CostMatrix(self.costs[..., order, :][..., columns], wanted, self.actions)

    def expected(self, p: ArrayLike) -> Array:
        """Expected cost of every action for every row, (n, A), by natural probabilities (n, K)."""
        chances = self._checked(p)
        if self.costs.ndim == 3:
            return np.einsum("nk,nka->na", chances, self.costs)
        return np.asarray(chances @ self.costs)

    def choose(self, p: ArrayLike) -> NDArray[np.int64]:
        """Number of the cheapest action of every row; the first of equals."""
        return np.asarray(np.argmin(self.expected(p), axis=1), dtype=np.int64)

    def decide(self, p: ArrayLike) -> NDArray[Any]:
        """The cheapest action of every row by its name: a label, or one of ``actions``."""
        labels = self.labels if self.labels is not None else tuple(range(self.n_classes))
        names: list[Any] = [*labels, *self.actions]
        if self.actions:
            table = np.empty(len(names), dtype=object)
            table[:] = names
        else:
            table = np.array(names)
        return np.asarray(table[self.choose(p)])

    def realised(self, y: ArrayLike, chosen: ArrayLike) -> Array:
        """What the chosen actions (numbers) cost rows of the true classes y (numbers)."""
        truth, action = np.asarray(as_numpy(y), dtype=np.int64), np.asarray(as_numpy(chosen), dtype=np.int64)
        if self.costs.ndim == 3:
            return np.asarray(self.costs[np.arange(len(truth)), truth, action])
        return np.asarray(self.costs[truth, action])

    def class_weights(self) -> Array | None:
        """Weights that decide as these costs do, or None where there are none.

        Class weights state exactly the costs u_k·1{a ≠ k} + v_k: every mistake on a class costs the same.
        """
        if self.actions or self.costs.ndim == 3:
            return None
        added = self.costs - np.diag(self.costs)[:, None]
        away = added[~np.eye(self.n_classes, dtype=bool)].reshape(self.n_classes, -1)
        weights = away.mean(axis=1)
        same = np.abs(away - weights[:, None]).max() <= 1e-12 * np.abs(self.costs).max()
        return np.asarray(weights) if same and (weights > 0.0).all() else None

    def _checked(self, p: ArrayLike) -> Array:
        chances = np.asarray(as_numpy(p), dtype=np.float64)
        if chances.ndim == 1 and self.n_classes == 2:
            chances = np.column_stack([1.0 - chances, chances])
        if chances.ndim != 2 or chances.shape[1] != self.n_classes:
            raise InvalidInput(
                f"probabilities must have a column for each of {self.n_classes} classes: got shape {chances.shape}."
            )
        if not np.isfinite(chances).all() or (chances < 0.0).any() or (chances > 1.0).any():
            raise InvalidInput("probabilities must lie between 0 and 1.")
        if self.n_rows not in (None, len(chances)):
            raise InvalidInput(f"these costs are for {self.n_rows} rows: got {len(chances)} rows of probabilities.")
        return chances

    def __str__(self) -> str:
        if self.costs.ndim == 3:
            return (
                f"costs of {self.costs.shape[2]} actions for {self.n_classes} classes, for each of {self.n_rows} rows"
            )
        labels = [str(one) for one in (self.labels if self.labels is not None else range(self.n_classes))]
        names = [*labels, *map(str, self.actions)]
        width = max(10, *map(len, names)) + 2
        head = " " * width + "".join(f"{name:>{width}}" for name in names)
        rows = (
            f"{label:<{width}}" + "".join(f"{cost:>{width}.6g}" for cost in row)
            for label, row in zip(labels, self.costs.tolist(), strict=True)
        )
        return "\n".join(["true ↓ decided →", head, *rows])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CostMatrix):
            return NotImplemented
        same_names = (self.labels, self.actions) == (other.labels, other.actions)
        return same_names and np.array_equal(self.costs, other.costs)

    def __hash__(self) -> int:
        return hash((self.costs.tobytes(), self.labels, self.actions))


def costs_of(price: CostMatrix | ClassWeights) -> CostMatrix:
    """Class weights as the costs that they state: every mistake on a class costs its weight."""
    if isinstance(price, CostMatrix):
        return price
    return CostMatrix(price.weights[:, None] * (1.0 - np.eye(price.n_classes)))


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value
