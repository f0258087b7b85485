"""A worker that hangs is ended, so that Ray puts another in its place.

Ray replaces a worker that dies or raises. One that is out of memory may do neither: a thread that cannot be set up
leaves the one that started it waiting for ever, and the other workers with it.
"""

import faulthandler
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Watch"]


class Watch:
    """Ends this process when nothing moved for some time; where every thread stood is then in its log.

    Python's own fault handler counts the time, in a thread that needs neither the interpreter nor memory.

    Parameters
    ----------
    seconds
        How long nothing may move.
    log
        A file or its descriptor; that of standard error by default.
    """

    def __init__(self, seconds: float, log: Any = 2) -> None:
        self._seconds, self._log, self._next = seconds, log, 0.0

    def moved(self) -> None:
        """Something was read or learned: count anew (now and then, for that takes a new thread)."""
        now = time.monotonic()
        if now >= self._next:
            faulthandler.dump_traceback_later(self._seconds, exit=True, file=self._log)
            self._next = now + 0.1 * self._seconds

    def end(self) -> None:
        """Do not watch any more."""
        faulthandler.cancel_dump_traceback_later()
        self._next = 0.0

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Wait for others, however long they take: they are watched themselves."""
        self.end()
        try:
            yield
        finally:
            self.moved()
