"""The memory bound of a streamed fit: rows of each step that fit in it, and the memory that the fit will need."""

import ctypes
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import ceil, inf

from crcen._support.files import free_memory
from crcen._support.lazy import pa
from crcen.exceptions import InvalidParameter

_LIBRARIES = 120_000_000  # code of LightGBM and readers, and their buffers, loaded by the steps that need them; a spare
_TORCH = 200_000_000  # of it, loaded if a network is trained
_SMALLEST_ROOM = 50_000_000
_KEPT = 1.25  # without a bound, allocators keep freed memory, how much differs from run to run
_STEP = 2**25  # the room is the same although a process starts with a little more or less in memory
# Arguments of glibc's mallopt: bytes that it keeps at the end, size of arrays that go back to the system when they are
# freed (these take several times as long to make; by default up to 32 MB), and number of arenas.
_MALLOC = {-1: 2**24, -3: 2**22, -8: 2}
# Parts that are in memory together.
_STEPS = (
    ("frame", "sample", "read"),
    ("kept", "held_out", "encoded", "group", "read"),
    ("kept", "held_out", "buffer", "open"),
    ("kept", "bins"),
    ("kept", "held_out", "trees"),
    ("kept", "held_out", "profile"),
)
# Shares of the room for bytes that are read ahead, row groups that are open and the rows of the trees.
_SHARES = {"read": 0.1, "open": 0.3, "trees": 0.6}
# Share of the room, and the fewest and most rows of each part of the work.
_PARTS = {
    "frame": (0.4, 500, 20_000),  # rows that are read at a time
    "sample": (0.3, 2048, 32_768),  # rows that kinds of columns are learned from
    "held_out": (0.15, 1000, 100_000),
    "encoded": (0.3, 250, 20_000),  # rows that are encoded at a time
    "group": (0.2, 1024, 65_536),  # rows of a row group of encoded rows
    "buffer": (0.3, 1024, 65_536),  # rows that are shuffled together
    "profile": (0.5, 1000, 32_768),
    "bins": (0.25, 1000, 16_384),  # rows that LightGBM finds its bins by
    "open": (0.2, 2, 2),  # row groups that are read at a time, at least
}


class MemoryBound:
    """Bytes that this process may have in memory, libraries included; by default half of the free memory for the trees.

    ``expected`` holds the bytes that each part of the work is expected to take.
    """

    def __init__(self, n_bytes: int | None = None) -> None:
        self.stated = n_bytes
        if n_bytes is not None:
            pa.set_memory_pool(pa.system_memory_pool())
            with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
                for name, value in _MALLOC.items():
                    ctypes.CDLL(None).mallopt(name, value)
        base = _resident_bytes() + _LIBRARIES + (0 if "torch" in sys.modules else _TORCH)
        self._base = ceil(base / _STEP) * _STEP
        self._room = 2**62 if n_bytes is None else n_bytes - self._base
        self.expected: dict[str, float] = {}

    def rows(
        self, most_rows: Mapping[str, float], row_bytes: Mapping[str, float], later: Mapping[str, float] = {}
    ) -> dict[str, int]:
        """Rows of parts of the work, from the bytes of a row; the error of a small bound counts ``later`` parts."""
        sizes = {**later, **row_bytes}
        needs = {name: _PARTS[name][1] * size / _PARTS[name][0] for name, size in sizes.items()}
        if self.stated is not None and self._room < max(_SMALLEST_ROOM, *(needs[name] for name in row_bytes)):
            needed = ceil((self._base + max(_SMALLEST_ROOM, *needs.values())) / 1e6)
            least = f"at least {needed:,} MB for this table, libraries included"
            raise InvalidParameter(f"memory must be {least}: got {self.stated / 1e6:,.0f} MB.", parameter="memory")
        rows = {name: min(_PARTS[name][2], int(_PARTS[name][0] * self._room / row_bytes[name])) for name in row_bytes}
        self.expected |= {name: min(n, most_rows.get(name, inf)) * row_bytes[name] for name, n in rows.items()}
        return rows

    def reserve(self, n_bytes: int) -> None:
        """Leave bytes to what the size of the table decides, whatever the bound."""
        self._base, self._room = self._base + n_bytes, self._room - n_bytes

    def share(self, name: str) -> int:
        """Bytes for a part of the work that is not counted in rows."""
        return free_memory() // 2 if name == "trees" and self.stated is None else int(_SHARES[name] * self._room)

    def release(self, _: object = None) -> None:
        """Return freed memory to the system; called between steps."""
        pa.default_memory_pool().release_unused()
        with suppress(OSError, AttributeError, TypeError):  # another C library than glibc
            ctypes.CDLL(None).malloc_trim(0)

    def releasing(self, show: Callable[[float], None]) -> Callable[[float], None]:
        """``show``, which with a bound also releases memory."""
        return show if self.stated is None else lambda share: self.release(show(share))  # type: ignore[func-returns-value]

    def __str__(self) -> str:
        largest = max(sum(self.expected.get(name, 0.0) for name in step) for step in _STEPS)
        peak = self._base + largest * (_KEPT if self.stated is None else 1.0)
        stated = "" if self.stated is None else f" of the {self.stated / 1e6:,.0f} MB stated"
        return f"at most {peak / 1e6:,.0f} MB of memory{stated}"


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 400_000_000
