"""Logits of many rows on several threads: a row's are the same bits in any company, so blocks of rows may go apart.

For fits alone. Prediction starts no threads: a process that forks would lose them.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.training.members import Member, NetworkGroup, grouped

__all__ = ["by_blocks", "mean_logits"]

# Rows of a block; fewer than two of them stay where they are.
_ROWS = 2048

Array = NDArray[np.float64]


def mean_logits(networks: Sequence[Any], X: Array) -> Array:
    """Mean logits of trained networks of one kind, (n, 1), or (n, C) for C classes."""
    member = grouped(networks)
    return by_blocks(member.logits, [member], X)


def by_blocks(logits: Callable[[Array], Array], members: Sequence[Member], X: Array) -> Array:
    """``logits(X)`` by these members, on as many threads as training may use.

    Modules of the caller's own see all rows at a time: their last digits may depend on the company.
    """
    from crcen.training.threads import THREADS, usable_cores  # with torch, which the callers' answers do not need

    threads = min(THREADS.get(), usable_cores())
    if threads < 2 or len(X) < 2 * _ROWS or not all(isinstance(member, NetworkGroup) for member in members):
        return logits(X)
    blocks = [X[start : start + _ROWS] for start in range(0, len(X), _ROWS)]
    with ThreadPoolExecutor(min(threads, len(blocks))) as pool:
        return np.concatenate(list(pool.map(logits, blocks)))
