"""The progress bar of a fit on a Ray cluster: a small actor carries what a worker reports to the one who waits."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crcen._support.progress import progress_bar

__all__ = ["Meter", "cluster_progress"]

_SECONDS_BETWEEN_LOOKS = 0.5


class Meter:
    """Remembers the share of work that is done."""

    def __init__(self) -> None:
        self._share = 0.0

    def put(self, share: float) -> None:
        """Say how much is done."""
        self._share = share

    def get(self) -> float:
        """How much is done."""
        return self._share


@contextmanager
def cluster_progress(ray: Any, description: str, *, visible: bool) -> Iterator[Callable[[float], None] | None]:
    """Draw a bar meanwhile; yield what a worker calls, on any machine, with the share of work done, or ``None``."""
    if not visible:
        yield None
        return
    meter = ray.remote(num_cpus=0)(Meter).remote()
    is_over = threading.Event()

    def follow(show: Callable[[float], None]) -> None:
        while not is_over.wait(_SECONDS_BETWEEN_LOOKS):
            try:
                show(ray.get(meter.get.remote(), timeout=10 * _SECONDS_BETWEEN_LOOKS))
            except ray.exceptions.GetTimeoutError:
                continue
            except ray.exceptions.RayError:  # it was on a machine that is gone: the fit goes on without a bar
                return

    with progress_bar(description, visible=True) as show:
        looking = threading.Thread(target=follow, args=(show,), daemon=True, name="crcen-progress")
        looking.start()
        try:
            yield lambda share: meter.put.remote(share)
            show(1.0)
        finally:
            is_over.set()
            looking.join()
            ray.kill(meter)
