"""Shapley values of the log-odds between two of K classes, which are as linear in the members as one logit is."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.models.ensemble import Ensemble
from crcen.models.members.tree_arrays import TreeEnsemble
from crcen.models.reasons.shapley import ShapleyValues, adding_up, sampled_values, values_of_trees, walks_of
from crcen.training.network import NetworkGroup

__all__ = ["shapley_of_class_function", "shapley_of_classes"]

Array = NDArray[np.float64]
Index = NDArray[np.int64]


def shapley_of_classes(
    ensemble: Ensemble,
    X: Array,
    background: Array,
    blocks: Sequence[Index],
    pairs: tuple[Index, Index],
    seed: int,
    threads: int,
) -> ShapleyValues:
    """Shapley values of the natural log-odds of a class against another, for each row its own pair.

    Parameters
    ----------
    ensemble
        The fitted model.
    X, background
        Rows to explain, and rows to compare them with.
    blocks
        Columns of X that are one column of the table.
    pairs
        Numbers of the class and of the other one, (n,) each.
    seed
        Of the orders.
    threads
        Pieces of rows at a time; the values do not depend on it.

    Returns
    -------
    ShapleyValues
        ``base`` is (n,): the mean over the background of the log-odds of each row's pair.
    """
    weights = ensemble.member_weights
    if weights is None:
        weights = np.full(len(ensemble.members), 1.0 / len(ensemble.members))
    scaled = [*zip(ensemble.members, (weights * ensemble.probability_map[0]).tolist(), strict=True)]
    values, errors = np.zeros((2, len(X), len(blocks)))
    walked = [(member, weight) for member, weight in scaled if not isinstance(member, TreeEnsemble)]
    for first, second, rows in _by_pair(pairs):
        makers = [walks_of(_between(member, first, second), blocks, weight) for member, weight in walked]
        found = sampled_values(makers, X[rows], background, len(blocks), seed, threads, None)
        values[rows], errors[rows] = found
    # The trees of a class once for all rows that it has a part in.
    for k in range(ensemble.labels.n_classes):
        exact = [(trees, weight) for member, weight in scaled for trees in _trees_of(member, k)]
        for side, sign in zip(pairs, (1.0, -1.0), strict=True):
            rows = np.flatnonzero(side == k)
            if len(rows) and exact:
                values[rows] += sign * values_of_trees(exact, X[rows], background, blocks, threads)
    natural, typical = ensemble.logits(X)[0], ensemble.logits(background)[0].mean(axis=0)
    return _added_up(values, errors, natural, typical, pairs)


def shapley_of_class_function(
    logits: Callable[[Array], Array],
    X: Array,
    background: Array,
    blocks: Sequence[Index],
    pairs: tuple[Index, Index],
    seed: int,
) -> ShapleyValues:
    """The same of any function of rows that gives (n, K), which is asked for every step of every walk."""
    values, errors = np.zeros((2, len(X), len(blocks)))
    for first, second, rows in _by_pair(pairs):
        makers = [walks_of(_OneLogit(_difference(logits, first, second)), blocks, 1.0)]
        found = sampled_values(makers, X[rows], background, len(blocks), seed, 1, None)
        values[rows], errors[rows] = found
    return _added_up(values, errors, logits(X), logits(background).mean(axis=0), pairs)


def _added_up(
    values: Array, errors: Array, natural: Array, typical: Array, pairs: tuple[Index, Index]
) -> ShapleyValues:
    first, second = pairs
    rows = np.arange(len(natural))
    log_odds = natural[rows, first] - natural[rows, second]
    return adding_up(ShapleyValues(values, errors, log_odds, typical[first] - typical[second]))


def _by_pair(pairs: tuple[Index, Index]) -> list[tuple[int, int, Index]]:
    """The different pairs, each with the rows that have it."""
    both = np.column_stack(pairs)
    found = np.unique(both, axis=0)
    return [(int(k), int(r), np.flatnonzero((both == (k, r)).all(axis=1))) for k, r in found]


def _trees_of(member: Any, k: int) -> tuple[TreeEnsemble, ...]:
    """The trees of a class's logit."""
    return (member.column(k),) if isinstance(member, TreeEnsemble) else ()


def _between(member: Any, first: int, second: int) -> Any:
    """A member with one logit: that of a class less that of another."""
    if isinstance(member, NetworkGroup) and not member.is_one_against_all:  # whose logits are not its output units
        last, bias = member.weights[-1], member.biases[-1]
        return replace(
            member,
            weights=(*member.weights[:-1], last[:, :, [first]] - last[:, :, [second]]),
            biases=(*member.biases[:-1], bias[:, [first]] - bias[:, [second]]),
        )
    return _OneLogit(_difference(member.logits, first, second))


def _difference(logits: Callable[[Array], Array], first: int, second: int) -> Callable[[Array], Array]:
    def between(X: Array) -> Array:
        both = logits(X)
        return np.asarray(both[:, first] - both[:, second])

    return between


class _OneLogit:
    """A function of rows as a member."""

    def __init__(self, logit: Callable[[Array], Array]) -> None:
        self._logit = logit

    def logits(self, X: Array) -> Array:
        """Of the rows, (n, 1)."""
        return self._logit(X)[:, None]
