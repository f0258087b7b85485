"""Which rows of a table a training job reads, and what each are for."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidParameter

__all__ = ["Index", "RowSets", "digest"]

Index = NDArray[np.int64]


def digest(rows: Index | None) -> bytes:
    """A key that is equal exactly for equal row lists."""
    if rows is None:
        return b"all"
    return hashlib.blake2b(np.ascontiguousarray(rows).tobytes(), digest_size=16).digest()


@dataclass(frozen=True, eq=False, kw_only=True)
class RowSets:
    """The rows of one training job, as row numbers of the table; without any, it trains on the whole table.

    Parameters
    ----------
    own
        The rows it trains on; ``None`` for all rows of ``pool``.
    pool
        The rows that mini-batches are drawn from; those that are not ``own`` weigh nothing. Jobs with one pool and one
        ``shuffle_seed`` share their batches. ``None`` for the whole table.
    watched
        Rows watched for early stopping, or recorded; ``None`` for none.
    balanced
        Rows on which the balance solve makes the key equation exact; ``None`` for its own rows, and those watched for
        early stopping.
    """

    own: Index | None = None
    pool: Index | None = None
    watched: Index | None = None
    balanced: Index | None = None

    def __post_init__(self) -> None:
        """Refuse what are no row numbers, by name."""
        for name in ("own", "pool", "watched", "balanced"):
            given = getattr(self, name)
            if given is not None and np.asarray(given).dtype.kind not in "iu":
                raise InvalidParameter(f"{name} must hold row numbers: got {np.asarray(given).dtype} values.")

    @classmethod
    def fold(cls, rows: Index | None, watched: Index | None = None) -> RowSets:
        """Training on some rows, of which alone batches are drawn; ``None`` is the whole table."""
        return cls(own=rows, pool=rows, watched=watched)

    @property
    def is_whole_table(self) -> bool:
        """Whether every row of the table is trained on."""
        return self.own is None and self.pool is None

    def trained(self, n_rows: int) -> Index:
        """The rows trained on, of a table of so many."""
        return self.drawn(n_rows) if self.own is None else self.own

    def drawn(self, n_rows: int) -> Index:
        """The rows that batches are drawn from."""
        return np.arange(n_rows) if self.pool is None else self.pool

    def n_trained(self, n_rows: int) -> int:
        """Number of rows trained on."""
        return self.n_drawn(n_rows) if self.own is None else len(self.own)

    def n_drawn(self, n_rows: int) -> int:
        """Number of rows that batches are drawn from."""
        return n_rows if self.pool is None else len(self.pool)

    def solved(self, n_rows: int, *, stops_early: bool) -> Index:
        """The rows that the balance solve is for."""
        if self.balanced is not None:
            return self.balanced
        own = self.trained(n_rows)
        return np.concatenate([own, self.watched]) if stops_early and self.watched is not None else own

    def among(self, rows: Index) -> RowSets:
        """The same rows as numbers of a larger table, of which these sets knew ``rows`` alone."""
        own = rows[self.trained(len(rows))]
        watched, balanced = (None if part is None else rows[part] for part in (self.watched, self.balanced))
        return RowSets(own=own, pool=own, watched=watched, balanced=balanced)

    @property
    def key(self) -> tuple[bytes, ...]:
        """Equal exactly for equal sets."""
        return tuple(digest(part) for part in (self.own, self.pool, self.watched, self.balanced))
