"""Evolutionary undersampling: which negatives to keep, found by CHC, and what makes a choice good."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["evolve", "overlap", "selection_fitness"]

Array = NDArray[np.float64]
Bools = NDArray[np.bool_]

_BALANCE = 0.2  # P of García and Herrera
_REDRAWN = 0.35  # of the bits, where CHC starts again
_SET = 0.25  # a bit that is not set becomes so, where the rules allow it: choices stay small


def selection_fitness(distances: Array, is_pos: Bools, kept: Bools) -> float:
    """G-mean of one nearest neighbour among kept rows, less 0.2·|1 − positives/kept negatives|.

    Parameters
    ----------
    distances : array of shape (n, n)
        Between rows, infinite from a row to itself: no row is its own neighbour.
    is_pos : array of bool, shape (n,)
    kept : array of bool, shape (n_neg,)
        Which of the negatives are kept; positives all are.
    """
    n_pos, n_kept = int(is_pos.sum()), int(kept.sum())
    prototypes = is_pos.copy()
    prototypes[~is_pos] = kept
    among = np.flatnonzero(prototypes)
    predicted = is_pos[among[distances[:, among].argmin(axis=1)]]
    g_mean = float(np.sqrt(predicted[is_pos].mean() * (~predicted[~is_pos]).mean()))
    return g_mean - _BALANCE * (abs(1 - n_pos / n_kept) if n_kept else 1.0)


def overlap(kept: Bools, before: Sequence[Bools]) -> float:
    """The largest Q-statistic with earlier choices: 1 for the same, −1 for the opposite, 0 where none was before.

    A choice that keeps nothing gets 2, as in the authors' program, so that it never lives on.
    """
    if before and not kept.any():
        return 2.0
    largest = -1.0 if before else 0.0
    for other in before:
        same = float((kept & other).sum()) * float((~kept & ~other).sum())
        apart = float((kept & ~other).sum()) * float((~kept & other).sum())
        if same + apart:
            largest = max(largest, (same - apart) / (same + apart))
        else:  # Q does not exist: all or none is kept
            largest = max(largest, float(np.array_equal(kept, other)))
    return largest


def evolve(
    fitness: Callable[[Bools], float],
    n_bits: int,
    n_kept: int,
    *,
    population: int,
    evaluations: int,
    random: np.random.RandomState,
) -> tuple[Bools, float]:
    """The fittest bits that CHC finds, and their fitness.

    CHC (Eshelman 1991) as García and Herrera (2009) have it: parents pair at random and only if they differ enough;
    of the bits in which they differ half change, a set one always and one that is not with probability ¼; the best of
    parents and children live on. Where no child does, parents may differ less; where that is used up, all but the best
    are the best with 35 % of its bits drawn again, each set with probability ¼.

    Parameters
    ----------
    n_bits, n_kept
        Bits, and how many of them are set in each of the first population.
    population, evaluations
        Size, and calls of ``fitness`` at most.
    """
    first = [random.permutation(np.arange(n_bits) < n_kept) for _ in range(min(population, evaluations))]
    living = sorted(((fitness(bits), bits) for bits in first), key=lambda one: -one[0])
    left = evaluations - len(living)
    apart = n_bits // 4
    while left > 0:
        order = random.permutation(len(living))
        children: list[tuple[float, Bools]] = []
        for one, other in zip(order[::2], order[1::2], strict=False):
            a, b = living[one][1], living[other][1]
            differing = np.flatnonzero(a != b)
            if len(differing) // 2 <= apart or len(differing) == 0:
                continue
            changing = differing[random.random_sample(len(differing)) < 0.5]
            for bits in (a.copy(), b.copy()):
                if left > 0:
                    bits[changing] = ~bits[changing] & (random.random_sample(len(changing)) < _SET)
                    children.append((fitness(bits), bits))
                    left -= 1
        worst = living[-1][0]
        if any(child[0] > worst for child in children):
            living = sorted([*living, *children], key=lambda one: -one[0])[: len(living)]
            continue
        apart -= 1
        if apart < 0:
            best = living[0]
            n_new = min(len(living) - 1, left)
            if n_new < 1:
                break
            again = [_redrawn(best[1], random) for _ in range(n_new)]
            living = sorted([best, *((fitness(bits), bits) for bits in again)], key=lambda one: -one[0])
            left -= n_new
            apart = int(_REDRAWN * (1 - _REDRAWN) * n_bits)
    return living[0][1], living[0][0]


def _redrawn(bits: Bools, random: np.random.RandomState) -> Bools:
    drawn: Bools = np.where(random.random_sample(len(bits)) < _REDRAWN, random.random_sample(len(bits)) < _SET, bits)
    return drawn
