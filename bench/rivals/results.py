"""Rows of a run as scores: which metrics there are, who ran where, and means over splits."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.rivals.peers import PEERS
from bench.rivals.plan import HALVES, half_of

__all__ = ["COSTS", "MAIN", "METRICS", "Metric", "Results", "span"]

Rows = Sequence[Mapping[str, Any]]
Place = tuple[str, int]  # a set and the number of a split


@dataclass(frozen=True)
class Metric:
    """A column of the rows: its title and which way is better."""

    name: str
    title: str
    sign: int = 1


METRICS = {
    metric.name: metric
    for metric in (
        Metric("g_mean", "G-mean"),
        Metric("f1", "F1"),
        Metric("average_precision", "average precision"),
        Metric("log_loss", "log loss", -1),
        Metric("calibration_error", "calibration error", -1),
        Metric("roc_auc", "ROC AUC"),
        Metric("brier", "Brier score", -1),
        Metric("cost_2", "cost at 2", -1),
        Metric("cost_5", "cost at 5", -1),
        Metric("cost_20", "cost at 20", -1),
        Metric("cost_ir", "cost at IR", -1),
    )
}
# Those that the target names.
MAIN = ("g_mean", "f1", "average_precision", "log_loss")
COSTS = ("cost_2", "cost_5", "cost_20", "cost_ir")


def span(numbers: Collection[int]) -> str:
    """The lowest to the highest of some numbers."""
    return f"{min(numbers)} to {max(numbers)}" if len(set(numbers)) > 1 else str(min(numbers))


class Results:
    """Scores of a run.

    Parameters
    ----------
    rows
        As `RunFolder` keeps them.
    half
        Keep one half's sets, or "all".
    """

    def __init__(self, rows: Rows, half: str = "all") -> None:
        kept = [row for row in rows if row["dataset"] != "*" and half in ("all", half_of(row["dataset"]))]
        self.rows = kept
        self._by_key = {(row["peer"], row["dataset"], row["split"]): row for row in kept}
        self._tried: dict[str, set[Place]] = {}
        self._scored: dict[tuple[str, str], set[int]] = {}
        for row in kept:
            self._tried.setdefault(row["peer"], set()).add((row["dataset"], row["split"]))
            if "error" not in row:
                self._scored.setdefault((row["peer"], row["dataset"]), set()).add(row["split"])

    @cached_property
    def peers(self) -> list[str]:
        """Who has rows, in the order of `PEERS`."""
        return [name for name in PEERS if name in self._tried]

    @cached_property
    def sets(self) -> list[str]:
        """Sets with rows, development before confirmation, in alphabetical order."""
        order = (*HALVES, "other")
        return sorted({row["dataset"] for row in self.rows}, key=lambda name: (order.index(half_of(name)), name))

    def places(self, peer: str) -> set[Place]:
        """Where a peer was tried, failures included."""
        return self._tried[peer]

    def within(self, places: set[Place]) -> "Results":
        """The same rows at some places only."""
        return Results([row for row in self.rows if (row["dataset"], row["split"]) in places])

    def coverage(self, peer: str, n_sets: int) -> str:
        """On how many of so many sets, with how many splits each, a peer was tried."""
        counts = Counter(dataset for dataset, _ in self._tried.get(peer, ())).values()
        splits = f" × {span(counts)} split{'s' * (max(counts) > 1)}" if counts else ""
        return f"{len(counts)} of {n_sets} sets{splits}"

    def cut_short(self, peer: str, asked: int) -> Rows:
        """Rows of a peer whose search tried fewer settings than were asked for: the time limit came first."""
        return [row for row in self.rows if row["peer"] == peer and row.get("settings", asked) < asked]

    @cached_property
    def complete(self) -> list[str]:
        """Peers that were tried wherever any peer was: only they can be ranked."""
        everywhere = set().union(*self._tried.values())
        return [peer for peer in self.peers if self.places(peer) == everywhere]

    @cached_property
    def metrics(self) -> list[str]:
        """Metrics that every row with scores has: rows of older versions lack some, and are not ranked by them."""
        done = [row for row in self.rows if "error" not in row]
        return [name for name in METRICS if all(row.get(name) is not None for row in done)]

    def values(self, peer: str, dataset: str, metric: str, splits: Iterable[int]) -> NDArray[np.float64]:
        """A peer's scores on splits of a set, NaN where it failed."""
        found = [self._by_key.get((peer, dataset, split), {}).get(metric) for split in splits]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)

    def splits(self, dataset: str, *peers: str) -> list[int]:
        """Splits of a set on which all of these peers gave scores."""
        return sorted(set.intersection(*(self._scored.get((peer, dataset), set()) for peer in peers)))

    def mean(self, peer: str, dataset: str, metric: str) -> float:
        """Mean over the splits that gave a score; NaN where none did."""
        values = self.values(peer, dataset, metric, self.splits(dataset, peer))
        return float(values.mean()) if len(values) else float("nan")

    def table(self, metric: str, peers: Sequence[str]) -> NDArray[np.float64]:
        """Means with the sign that makes higher better, (sets, peers)."""
        sign = METRICS[metric].sign
        return np.array([[sign * self.mean(peer, name, metric) for peer in peers] for name in self.sets])
