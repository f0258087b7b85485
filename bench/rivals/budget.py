"""The time that a peer may take, kept also where a single fit would go beyond it.

It is the processor's time of this process, so that a busy machine takes nothing from a peer.
"""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["Deadline", "TimeUp"]


_RING_AGAIN = 0.5
# Functions of XGBoost that its C++ code calls back: what is raised in them is swallowed and leaves its memory broken.
_CALLED_FROM_C = {"_next_wrapper", "_reset_wrapper"}


class TimeUp(BaseException):
    """The time is over; no ``except Exception`` of a package that is being timed can swallow it."""


class Deadline:
    """A limit in processor seconds from now on.

    Parameters
    ----------
    seconds
        The limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.start = time.process_time()

    @property
    def passed(self) -> float:
        """Processor seconds since the start."""
        return time.process_time() - self.start

    @contextmanager
    def within(self, share: float = 1.0) -> Iterator[None]:
        """Raise TimeUp out of the block once that share of the time is used.

        The block is broken off by a signal where the system has one and the thread may set it; elsewhere `check` alone
        keeps the limit.
        """
        left = share * self.seconds - self.passed
        if left <= 0:
            raise TimeUp
        if not hasattr(signal, "SIGPROF") or threading.current_thread() is not threading.main_thread():
            yield
            return
        rang = False

        def ring(_: int, frame: Any) -> None:
            nonlocal rang
            while frame is not None:
                if frame.f_code.co_name in _CALLED_FROM_C:
                    return  # it rings again
                frame = frame.f_back
            rang = True
            raise TimeUp

        before = signal.signal(signal.SIGPROF, ring)
        # It rings again: what is raised inside a destructor or a callback of C code is swallowed there.
        signal.setitimer(signal.ITIMER_PROF, left, _RING_AGAIN)
        try:
            yield
        except BaseException as error:
            if rang:  # a package may turn what a signal raises into an error of its own
                raise TimeUp from error
            raise
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            signal.signal(signal.SIGPROF, before)

    def check(self, share: float = 1.0) -> None:
        """Raise TimeUp if that share of the time is used."""
        if self.passed >= share * self.seconds:
            raise TimeUp
