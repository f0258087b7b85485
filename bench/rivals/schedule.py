"""The order of a run's tasks: what will take longest comes first, by what is known of earlier rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

__all__ = ["Task", "longest_first"]


@dataclass(frozen=True)
class Task:
    """One row to come."""

    dataset: str
    split: int
    peer: str


def longest_first(
    tasks: Sequence[Task], rows: Sequence[Mapping[str, Any]], sizes: Mapping[str, int], limit: float
) -> list[Task]:
    """Tasks by falling expected processor seconds, larger sets first among equals.

    Expected is what the peer took on other splits of the set; failing that what it took on other sets, by the square
    root of their sizes (fits grow with a set's size, but few settings fit into the limit on large ones); failing that
    the limit.

    Parameters
    ----------
    tasks
        In any order.
    rows
        Of the run so far.
    sizes
        Rows × columns of the sets.
    limit
        Processor seconds that no task goes far beyond.
    """
    on_set: dict[tuple[str, str], list[float]] = {}
    by_size: dict[str, list[float]] = {}
    for row in rows:
        if (seconds := row.get("processor_fit")) is not None:
            on_set.setdefault((row["peer"], row["dataset"]), []).append(seconds)
            by_size.setdefault(row["peer"], []).append(seconds / sizes[row["dataset"]] ** 0.5)

    def expected(task: Task) -> float:
        if known := on_set.get((task.peer, task.dataset)):
            return min(fmean(known), limit)
        if rates := by_size.get(task.peer):
            return min(fmean(rates) * sizes[task.dataset] ** 0.5, limit)
        return limit

    return sorted(tasks, key=lambda task: (-expected(task), -sizes[task.dataset]))
