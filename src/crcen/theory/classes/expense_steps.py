"""Whether a class that is worth more costs what its probabilities say: steps of its weight, judged by labels."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crcen.theory.judgements import LEAST_VARIANCE
from crcen.theory.price import Price
from crcen.theory.residual_test import two_sided

__all__ = ["ClassStep", "judge_class_steps", "outside_chance"]

Array = NDArray[np.float64]

# What the weight of a class is multiplied by, from step to step, the others staying what they are.
FACTORS = (0.25, 0.5, 1.0, 2.0, 4.0)


@dataclass(frozen=True)
class ClassStep:
    """Rows that go to a class when its weight is raised.

    Parameters
    ----------
    number : int
        Of the class.
    low, high : float
        Its weight before and after: between these lies what one more row of it costs, by right probabilities.
    n_rows : int
        Rows that moved.
    gained : float
        Rows of the class among them.
    lost : float
        Weight of the rows that were right where they were.
    z : float
        How far the cost lies outside of its bracket, in standard deviations: negative below, positive above, 0 inside.
    """

    number: int
    low: float
    high: float
    n_rows: int
    gained: float
    lost: float
    z: float

    @property
    def price(self) -> float:
        """What one more row of the class cost; infinite where none was gained."""
        return self.lost / self.gained if self.gained > 0.0 else math.inf


def judge_class_steps(
    y: NDArray[np.int64],
    p: Array,
    weights: Price,
    sample_weight: Array,
    noise: float = 1.0,
    factors: Sequence[float] = FACTORS,
) -> tuple[ClassStep, ...]:
    """Raise the weight of every class step by step, and see what each step cost.

    A row that goes from class a to class k has w_a p_a between c p_k at the weights c of k before and after. So the sum
    of w_a 1{y=a} − c 1{y=k} over the rows that move is, up to chance, not below 0 at the first c and not above 0 at the
    second.

    Parameters
    ----------
    y : int64 array of shape (n,)
        Class numbers.
    p : float64 array of shape (n, K)
        Natural probabilities.
    weights : Price
        Where steps begin; only ratios matter.
    sample_weight : float64 array of shape (n,)
        What each row counts.
    noise : float
        How much more sums of new rows vary than under the truth.
    factors : sequence of float
        What the weight of a class is multiplied by, rising.

    Returns
    -------
    tuple of ClassStep
        Those in which enough rows moved to tell.
    """
    found = []
    rows = np.arange(len(y))
    scores = weights.weights * p
    for k in range(weights.n_classes):
        rest = scores.copy()
        rest[:, k] = -math.inf
        rival = rest.argmax(axis=1)
        dearest, chance = weights.weights[rival], p[rows, rival]
        for first, second in pairwise(factors):
            low, high = (float(one * weights.weights[k]) for one in (first, second))
            moved = (dearest * chance >= low * p[:, k]) & (dearest * chance < high * p[:, k]) & (sample_weight > 0.0)
            size, own, other = sample_weight[moved], p[moved, k], chance[moved]
            variance = own * (1.0 - own)
            if float(size @ variance) ** 2 <= LEAST_VARIANCE * float(size**2 @ variance):
                continue
            gained = float(size @ (y[moved] == k))
            worth = dearest[moved]
            lost = float(size @ (worth * (y[moved] == rival[moved])))
            z = 0.0
            for end, is_outside in ((low, lost < low * gained), (high, lost > high * gained)):
                if is_outside:
                    mean = worth * other - end * own
                    spread = float(size**2 @ (worth**2 * other + end**2 * own - mean**2))
                    z = (lost - end * gained) / math.sqrt(spread * noise)
            found.append(ClassStep(k, low, high, int(moved.sum()), gained, lost, z))
    return tuple(found)


def outside_chance(steps: Sequence[ClassStep]) -> float:
    """At most this chance of any step so far outside of its bracket, by right probabilities; 1 where none is."""
    worst = max((abs(step.z) for step in steps), default=0.0)
    return min(1.0, len(steps) * 0.5 * two_sided(worst)) if worst > 0.0 else 1.0
