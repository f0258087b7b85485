"""How many threads torch may use, and for how long."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Lock, local

import torch

__all__ = ["FEW_THREADS", "OPERATIONS_FOR_THREADS", "THREADS"]

# From this many operations a step a single piece is worth several threads, where there are more than a few.
OPERATIONS_FOR_THREADS = 5e7
FEW_THREADS = 4


class ThreadCount:
    """Torch's number of threads: every thread of Python has its own, and a new one starts with the last that was set.

    So each fit puts back, in its own thread, what the first of those that run at a time found.
    """

    def __init__(self) -> None:
        self._lock, self._users, self._before = Lock(), 0, 1
        self._own = local()

    def get(self) -> int:
        """The number before any fit changed it."""
        with self._lock:
            return self._before if self._users else torch.get_num_threads()

    def keep(self, count: int) -> None:
        """Let torch use so many threads in the calling thread, as long as that lives."""
        torch.set_num_threads(count)
        self._own.count = count

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

    def for_work(self, operations: float) -> AbstractContextManager[None]:
        """One thread where there is little to do: several would wait for each other longer than they work."""
        return nullcontext() if operations >= OPERATIONS_FOR_THREADS else self.set(1)


THREADS = ThreadCount()
