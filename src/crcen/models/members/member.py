"""What every kind of committee member has in common: its task, its time, and what it returns."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crcen.models.clock import Clock
from crcen.training.network import Member

Array = NDArray[np.float64]
Index = NDArray[np.int64]
Folds = Sequence[tuple[Index, Index]]
Work = TypeVar("Work")
Found = TypeVar("Found")

EFFORTS = ("quick", "standard", "best")


@dataclass(frozen=True, eq=False)
class MemberTask:
    """What a member is fitted on, and how."""

    X: Array  # rows, class numbers from 0, and sample weights with mean 1
    target: Index
    weights: Array
    n_classes: int  # number of classes
    folds: Folds = ()  # training and held-out rows
    seed: int = 0  # seed, device of networks, and threads; results do not depend on the number of threads
    device: str = "cpu"
    threads: int = 1
    effort: str = "standard"  # one of `EFFORTS`
    # time for search and final fit. A member that is not needed raises `OutOfTime` instead of exceeding it
    clock: Clock = field(default_factory=lambda: Clock(None))
    is_needed: bool = True
    progress: Callable[[float], None] = lambda share: None  # called with the share of the work done
    y: Any = None  # labels, classes in the order of their numbers, and rows as the search of networks takes them
    classes: Any = None
    search_rows: Any = None


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A member after its search."""

    name: str  # name on the leaderboard
    parts: tuple[Member, ...]  # models of all rows, averaged as natural logits
    logits: Array  # mean natural logits out of fold; NaN for rows in no test fold
    settings: tuple[str, ...]  # chosen settings, one line each
    n_tried: int  # number of settings tried
    chosen: tuple[Any, ...] = ()  # the settings as values, for `MemberKind.refit`
    seconds: float = 0.0  # time of search and final fit


class MemberKind:
    """A kind of member. A new one is a subclass in a file of its own and an entry in the registry."""

    name = ""
    package: str | None = None  # an optional package that it needs, and the extra that brings it
    extra = "boosting"
    time_share = 0.2  # of a time limit, beside the shares of the other members

    def is_installed(self) -> bool:
        """Whether its package is there."""
        return self.package is None or find_spec(self.package) is not None

    def is_default(self, n_rows: int, n_classes: int) -> bool:
        """Whether it is a member where none were asked for."""
        return True

    def search(self, task: MemberTask) -> FittedMember:
        """Choose settings on the folds and fit them on all rows."""
        raise NotImplementedError

    def refit(self, task: MemberTask, chosen: Sequence[Any]) -> tuple[Member, ...]:
        """Models of chosen settings on all rows of the task, without a search."""
        raise NotImplementedError

    def repeat(self, task: MemberTask, chosen: Sequence[Any]) -> tuple[tuple[Member, ...], Array]:
        """Models of chosen settings on all rows, and out-of-fold logits of such models on the folds of the task."""
        logits = []
        for rows, held_out in task.folds:
            own = replace(task, X=task.X[rows], target=task.target[rows], weights=task.weights[rows], y=task.y[rows])
            logits.append(mean_logits(self.refit(own, chosen), task.X[held_out]))
        return self.refit(task, chosen), fold_logits(task, logits)


def mean_logits(parts: Sequence[Member], X: Array) -> Array:
    """Mean natural logits (n, K) of models; one logit of two classes is that of the second."""
    logits = np.mean([part.logits(X) for part in parts], axis=0)
    return np.column_stack([np.zeros(len(X)), logits]) if logits.shape[1] == 1 else logits


def log_loss(logits: Array, target: Index, weights: Array) -> float:
    """Weighted mean log loss of natural logits (n, K)."""
    top = logits.max(axis=1, keepdims=True)
    own = logits[np.arange(len(target)), target] - top[:, 0]
    return float((np.log(np.exp(logits - top).sum(axis=1)) - own) @ weights / weights.sum())


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


def parallel_map(
    threads: int, function: Callable[[Work], Found], work: Sequence[Work], prepare: Callable[[], Any] | None = None
) -> list[Found]:
    """The function of every piece of work, in up to so many threads, each of which calls ``prepare`` first."""
    if threads <= 1 or len(work) <= 1:
        return [function(one) for one in work]
    with ThreadPoolExecutor(min(threads, len(work)), initializer=prepare) as pool:
        return list(pool.map(function, work))
