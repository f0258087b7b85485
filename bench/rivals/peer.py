"""A peer: what it is, which settings are tried, at what cost, and how a search over them goes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from bench.rivals.budget import Deadline
from bench.rivals.searched import Searched, SearchRows
from bench.rivals.spaces import Pick, Range, candidates
from crcen._support.extras import installed_version

__all__ = ["FAMILIES", "Peer", "Search"]

FAMILIES = ("committee", "neural", "tree", "linear", "ensemble")


@dataclass(frozen=True)
class Peer:
    """One method of the comparison.

    Parameters
    ----------
    name, label, family
        Its key, what tables print, and one of `FAMILIES`.
    package
        The distribution it comes from.
    make
        Setting and seed → unfitted estimator on one thread.
    search
        How its settings are tried and the best one is refitted.
    default, space
        Its settings: the first, and where the others lie; an empty space is the default alone.
    modules
        What must be importable.
    is_weighted
        Whether its rows are weighted so that both classes weigh the same.
    is_costly
        Left out of ``--peers core``.
    max_cells
        Rows × columns of the largest set it is run on; ``None`` for any.
    is_accelerated
        Whether it runs on a graphics card where there is one; ``max_cells`` then does not hold.
    note
        What a reader must know to judge it.
    """

    name: str
    label: str
    family: str
    package: str
    make: Callable[[Mapping[str, Any], int], Any]
    search: "Search"
    default: Mapping[str, Any] = field(default_factory=dict)
    space: Mapping[str, Range | Pick] = field(default_factory=dict)
    modules: Sequence[str] = ()
    is_weighted: bool = False
    is_costly: bool = False
    max_cells: int | None = None
    is_accelerated: bool = False
    note: str = ""

    def settings(self, count: int) -> list[dict[str, Any]]:
        """Up to ``count`` candidates, the default first."""
        return candidates(self.default, self.space, count)

    def device(self) -> str:
        """Name of the graphics card that the peer runs on here, or ``cpu``."""
        import torch

        return torch.cuda.get_device_name() if self.is_accelerated and torch.cuda.is_available() else "cpu"

    def takes(self, cells: int) -> bool:
        """Whether the peer is run on a set of that many rows × columns here."""
        return self.max_cells is None or cells <= self.max_cells or self.device() != "cpu"

    def missing(self) -> str:
        """Why the peer cannot run here, as a sentence, or nothing."""
        try:
            for module in self.modules:
                import_module(module)
        except ImportError as error:
            reason = " ".join(str(error).split())
            return f"{self.package} is not installed here ({reason})" + (f"; {self.note}" if self.note else "")
        return ""

    def version(self) -> str:
        """Package and version."""
        found = installed_version(self.package)
        return self.package if found is None else f"{self.package} {found}"


# Peer, rows, how many settings, until when.
Search = Callable[[Peer, SearchRows, int, Deadline], Searched]
