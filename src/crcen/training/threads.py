"""Threads and floating-point mode of training.

Everything that trains or solves runs on one torch thread, because a sum shared among threads has other last digits.
Threads that train flush denormals to zero, on which Intel processors are many times slower.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, local

import torch


class ThreadCount:
    """Torch's number of threads. Every Python thread has its own; a new one starts with the value set last."""

    def __init__(self) -> None:
        self._lock, self._users, self._before = Lock(), 0, 1
        self._own = local()

    def get(self) -> int:
        """The number before any fit changed it; one inside a training thread."""
        if getattr(self._own, "is_one_of_several", False):
            return 1
        with self._lock:
            return self._before if self._users else torch.get_num_threads()

    def keep_one(self) -> None:
        """Prepare the calling thread for training: one torch thread, denormals flushed."""
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self._own.count, self._own.is_one_of_several = 1, True

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Use ``count`` torch threads inside the context."""
        outer = getattr(self._own, "count", None)
        with self._lock:
            self._before = self._before if self._users else torch.get_num_threads()
            self._users += 1
            torch.set_num_threads(count)
        self._own.count = count
        try:
            yield
        finally:
            self._own.count = outer
            with self._lock:
                self._users -= 1
                torch.set_num_threads(self._before if outer is None else outer)


THREADS = ThreadCount()


@contextmanager
def reproducible_arithmetic() -> Iterator[None]:
    """One torch thread and flushed denormals in the calling thread; the earlier state is restored."""
    flushed_before = sys.float_info.min / 2 == 0.0  # torch can set the mode but not report it
    with THREADS.set(1):
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(flushed_before)
