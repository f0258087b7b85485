"""What every kind of committee member has in common: its task, its time, and what it returns."""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from crcen.models.clock import Clock, OutOfTime
from crcen.theory.price import log_softmax
from crcen.theory.rows import Array, Index
from crcen.training.network import Member

Folds = Sequence[tuple[Index, Index]]
Chosen: TypeAlias = Sequence[Any]  # settings as values, by kind of member
Work = TypeVar("Work")
Found = TypeVar("Found")

_PRUDENCE = 0.7  # share of the time to plan with
MOST_COLUMNS = 2_000  # that a boosted tree chooses from, at random: its time grows with columns times leaves
EFFORTS = ("quick", "standard", "best")


@dataclass(frozen=True, eq=False)
class MemberTask:
    """What a member is fitted on, and how."""

    X: Array
    target: Index  # class numbers from 0
    weights: Array  # sample weights with mean 1
    n_classes: int
    folds: Folds = ()  # training and held-out rows
    seed: int = 0
    device: str = "cpu"  # of networks
    threads: int = 1  # results do not depend on it
    effort: str = "standard"  # one of `EFFORTS`
    clock: Clock = field(default_factory=lambda: Clock(None))  # time for search and final fit
    is_needed: bool = True  # a member that is not needed raises `OutOfTime` instead of exceeding the time
    # Lowest log loss out of fold of the members before, waiting for them; infinite if there is none.
    best_loss: Callable[[], float] = lambda: np.inf
    # Raises where held-out logits have no weight.
    check_weight: Callable[[Array, Index], object] = lambda logits, rows: None
    progress: Callable[[float], None] = lambda share: None  # called with the share of the work done
    y: NDArray[np.generic] = field(default_factory=lambda: np.empty(0))  # labels
    classes: Sequence[object] = ()  # in the order of their numbers
    search_rows: Any = None  # `FitRows`, as the search of networks takes them


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A member after its search."""

    name: str  # name on the leaderboard
    parts: tuple[Member, ...]  # models of all rows, averaged as natural logits
    logits: Array  # mean natural logits out of fold; NaN for rows in no test fold
    settings: tuple[str, ...]  # chosen settings, one line each
    n_tried: int  # number of settings tried
    chosen: Chosen = ()  # the settings as values, for `MemberKind.refit`
    seconds: float = 0.0  # time of search and final fit


class MemberKind:
    """A kind of member. A new one is a subclass in a file of its own and an entry in the registry."""

    name = ""
    package: str | None = None  # an optional package that it needs, and the extra that brings it
    extra = "boosting"
    max_rows = np.inf  # with more rows it is not a default member
    is_per_class = False  # whether rows count for this limit once for every class but one
    efforts: tuple[str, ...] = EFFORTS[1:]  # with which it is a default member
    time_share = 0.2  # of a time limit, beside the shares of the other members

    def is_installed(self) -> bool:
        """Whether its package is there."""
        return self.package is None or find_spec(self.package) is not None

    def search(self, task: MemberTask) -> FittedMember:
        """Choose settings on the folds and fit them on all rows."""
        raise NotImplementedError

    def refit(self, task: MemberTask, chosen: Chosen) -> tuple[Member, ...]:
        """Models of chosen settings on all rows of the task, without a search."""
        raise NotImplementedError


def log_loss(logits: Array, target: Index, weights: Array) -> float:
    """Weighted mean log loss of natural logits (n, K)."""
    return float(-log_softmax(logits)[np.arange(len(target)), target] @ weights / weights.sum())


def best_prefix(logits: Array, target: Index, weights: Array) -> int:
    """How many of the first settings have the lowest log loss as a mean; logits are (settings, n, K), out of fold."""
    known = np.isfinite(logits).all(axis=(0, 2))
    means = np.cumsum(logits[:, known], axis=0) / np.arange(1, len(logits) + 1).reshape(-1, 1, 1)
    return int(np.argmin([log_loss(mean, target[known], weights[known]) for mean in means])) + 1


def fold_logits(task: MemberTask, found: Sequence[Array]) -> Array:
    """The folds' held-out logits, (rows, K) each, in one table; NaN for rows in no fold."""
    logits = np.full((len(task.X), task.n_classes), np.nan)
    for (_, held_out), own in zip(task.folds, found, strict=True):
        logits[held_out] = own
    return logits


def affordable_trees(
    task: MemberTask, fit: Callable[[int], object], rounds: float, *, trial: int, fewest: int, most: int
) -> int:
    """The number of trees that there is time for in some rounds of fits, by the time of a few trees."""
    if not task.clock.is_limited:
        return most
    times = []
    for n_trees in (1, 1, trial):  # the first time imports a library
        start = time.perf_counter()
        fit(n_trees)
        times.append(time.perf_counter() - start)
    # Preparing the rows takes as long for one tree as for many.
    tree = max((times[2] - times[1]) / (trial - 1), 0.01 * times[2])
    found = int((_PRUDENCE * task.clock.left / rounds - times[1]) / tree)
    if found < fewest and not task.is_needed:
        raise OutOfTime
    return max(trial, min(found, most))


def parallel_map(
    threads: int, function: Callable[[Work], Found], work: Sequence[Work], prepare: Callable[[], object] | None = None
) -> list[Found]:
    """The function of every piece of work, in up to this number of threads, each of which calls ``prepare`` first."""
    if threads <= 1 or len(work) <= 1:
        return [function(one) for one in work]
    with ThreadPoolExecutor(min(threads, len(work)), initializer=prepare) as pool:
        return list(pool.map(function, work))
