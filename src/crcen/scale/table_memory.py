"""What a streamed model remembers of its training rows: a profile of a sample, and a fingerprint of all of them."""

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.scale.chunks import Chunk
from crcen.tables.columns import Column
from crcen.tables.fingerprint import MOST_HASHES, Fingerprint, row_hashes

__all__ = ["FingerprintOfAll"]

# pandas is optional, and no type checker sees it.
DataFrame = Any

Array = NDArray[np.float64]


class FingerprintOfAll:
    """The `Fingerprint` of rows in passing: the smallest of their hashes, each with how often it was met.

    Parameters
    ----------
    columns
        How each used column is encoded.
    sample, X
        Some of the rows, and the same encoded; they give the salt.
    """

    def __init__(self, columns: list[Column], sample: DataFrame, X: Array) -> None:
        self._columns = columns
        content = np.sort(row_hashes(columns, sample, X, 0)).tobytes()
        self._salt = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big") or 1
        self._hashes, self._counts = np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
        self._limit = 2**64 - 1

    def add(self, frame: DataFrame, X: Array) -> None:
        """Take in rows and the same encoded; the frame may be None where no column is text."""
        hashes = row_hashes(self._columns, frame, X, self._salt)
        hashes = np.append(self._hashes, hashes[hashes <= np.uint64(self._limit)])
        weights = np.append(self._counts, np.ones(len(hashes) - len(self._counts), dtype=np.int64))
        found, at = np.unique(hashes, return_inverse=True)
        counts = np.bincount(at, weights).astype(np.int64)
        self._hashes, self._counts = found[:MOST_HASHES], counts[:MOST_HASHES]
        if len(found) > MOST_HASHES:
            self._limit = int(self._hashes[-1])

    def add_chunks(self, chunks: Iterable[Chunk]) -> None:
        """Take in rows that are encoded already; none of their columns is text."""
        for chunk in chunks:
            self.add(None, chunk.X)

    def fingerprint(self) -> Fingerprint:
        """Of all rows so far."""
        return Fingerprint.of_hashes(self._salt, self._hashes, self._counts[:, None], self._limit)
