"""Threads and arithmetic of training: one thread of torch, numbers that do not become denormal, cores that are there.

A sum that is shared out by the number of threads has other last digits on another machine, and training makes a digit
into a different network. So whatever trains or solves runs on one thread of torch. Several pieces of work run side by
side, and how work is cut into pieces does not depend on the number of threads either.

Weights that the penalty drives to zero pass through the denormal numbers, on which Intel processors are many times
slower. In threads that train such numbers are zero.
"""

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock, local

import torch

__all__ = ["THREADS", "reproducible_arithmetic", "usable_cores"]


class ThreadCount:
    """Torch's number of threads: every thread of Python has its own, and a new one starts with the last that was set.

    So each fit puts back, in its own thread, what the first of those that run at a time found.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._before = Lock(), 0, 1
        self._own = local()

    def get(self) -> int:
        """The number before any fit changed it; one in a thread that is one of several that train."""
        if getattr(self._own, "is_one_of_several", False):
            return 1
        with self._lock:
            return self._before if self._users else torch.get_num_threads()

    def keep_one(self) -> None:
        """Let the calling thread train: one thread of torch and no denormal numbers as long as it lives."""
        torch.set_num_threads(1)
        torch.set_flush_denormal(True)
        self._own.count, self._own.is_one_of_several = 1, True

    @contextmanager
    def set(self, count: int) -> Iterator[None]:
        """Let torch use so many threads for a while."""
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
    """One thread of torch and zeros for denormal numbers, in the calling thread; what was found is put back."""
    flushed_before = _flushes_denormals()
    with THREADS.set(1):
        torch.set_flush_denormal(True)
        try:
            yield
        finally:
            torch.set_flush_denormal(flushed_before)


def _flushes_denormals() -> bool:
    """Whether denormal numbers are zero in the calling thread; torch can set that but not tell."""
    return sys.float_info.min / 2 == 0.0


def usable_cores() -> int:
    """Cores that this process may use: those it is bound to, and no more than a container's share of time."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(cores, _container_cores()))


def _container_cores(folder: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores' worth of time that a container has, rounded up; many where there is no limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()
        return math.ceil(int(quota) / int(period))
    except (OSError, ValueError):  # no file, or "max"
        pass
    try:
        quota, period = ((folder / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else sys.maxsize
    except (OSError, ValueError):
        return sys.maxsize
