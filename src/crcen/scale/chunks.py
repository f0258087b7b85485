"""Rows in passing: a chunk, its checks, in which order chunks are read, and which rows are held out."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crcen.exceptions import InvalidInput

__all__ = ["Chunk", "Stretch", "held_out", "plan_blocks", "reading_order"]

_GOLDEN, _ODD = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9)
_HALF = np.uint64(32)

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Chunk:
    """Rows of a source: X (n, F) float64, labels (n,) as they stand, sample weights (n,), and where they are from.

    X is best in column order: files hold columns, and everything that is done to rows here is done by column.
    """

    X: Array
    labels: NDArray[Any]
    weight: Array
    origin: str

    def __len__(self) -> int:
        return len(self.X)

    def check(self, names: Sequence[str]) -> None:
        """Refuse what cannot be trained on, naming the column and where it stands."""
        if not np.isfinite(self.X).all():
            bad = [names[j] for j in np.flatnonzero(~np.isfinite(self.X).all(axis=0)).tolist()]
            kinds = [k for k, test in (("NaN", np.isnan), ("infinity", np.isinf)) if test(self.X).any()]
            raise InvalidInput(
                f"{self.origin} holds {' and '.join(kinds)} (or missing values) in column {', '.join(bad[:5])}; "
                f"training needs finite numbers, so fill or drop them first."
            )
        fine = np.isfinite(self.weight) & (self.weight >= 0)
        if not fine.all():
            raise InvalidInput(
                f"{self.origin} holds a sample weight of {self.weight[~fine][0]:g}; weights must be finite and not "
                f"negative."
            )

    def target(self, labels: Any) -> NDArray[Any]:
        """Which rows are positive, or class numbers of more than two classes; a new label is refused."""
        try:
            return np.asarray(labels.target(self.labels))
        except InvalidInput as error:
            raise InvalidInput(
                f"{self.origin} now holds a label that was not there at first; labels must not change."
            ) from error


def held_out(X: Array, fraction: float, seed: int) -> NDArray[np.bool_]:
    """Which rows are held out, by a hash of their values alone.

    A row falls on the same side in every epoch, in any order, file or worker, and so do its copies; with few distinct
    rows the share may therefore be far from ``fraction``.
    """
    bits = (X + 0.0).view(np.uint64)  # −0.0 is 0.0
    state = np.full(len(X), np.uint64(seed) ^ _GOLDEN)
    for column in bits.T:
        state = (state ^ column) * _ODD
        state ^= state >> _HALF
    state = (state + _GOLDEN) * _ODD
    state ^= state >> _HALF
    shares: NDArray[np.bool_] = state.astype(np.float64) < fraction * 2.0**64
    return shares


@dataclass(frozen=True)
class Stretch:
    """Rows start…stop−1 of a piece of a source."""

    piece: int
    start: int
    stop: int


def reading_order(n_pieces: int, seed: int | None, epoch: int) -> list[int]:
    """The order of pieces in an epoch: random from (seed, epoch), or as they stand without a seed."""
    if seed is None:
        return list(range(n_pieces))
    rng = np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, 3, epoch])))
    order: list[int] = rng.permutation(n_pieces).tolist()
    return order


def plan_blocks(sizes: Sequence[int], order: Sequence[int], block_rows: int, ways: int) -> list[list[Stretch]]:
    """Cut an epoch into blocks of about ``block_rows`` rows, each drawn from ``ways`` pieces that are open at a time.

    Large pieces are thus read a stretch at a time, and mixed with others. The plan is a function of its arguments, so
    that reading can start again at any block.
    """
    waiting = deque(piece for piece in order if sizes[piece])
    is_open: list[tuple[int, int]] = []
    blocks = []
    while waiting or is_open:
        block, room = [], block_rows
        while room and (waiting or is_open):
            while waiting and len(is_open) < ways:
                is_open.append((waiting.popleft(), 0))
            share = max(1, room // len(is_open))
            still_open = []
            for piece, start in is_open:
                stop = min(start + share, sizes[piece], start + room)
                if stop > start:
                    block.append(Stretch(piece, start, stop))
                room -= stop - start
                if stop < sizes[piece]:
                    still_open.append((piece, stop))
            is_open = still_open
        blocks.append(block)
    return blocks
