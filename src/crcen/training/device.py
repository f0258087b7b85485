"""Where training runs: threads and floating-point mode, devices, encoded rows and logits on a GPU.

Everything that trains or solves runs on one torch thread, because a sum shared among threads has other last digits.
Threads that train flush denormals to zero, on which Intel processors are many times slower.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock, local
from typing import Any, TypeVar

import numpy as np
import torch
from joblib import cpu_count
from numpy.typing import NDArray
from torch import Tensor

from crcen.exceptions import DeviceMissing, InvalidParameter
from crcen.theory.rows import Array
from crcen.training.network import SMOOTH_LIMIT, InputEncoding, NetworkGroup
from crcen.training.stack import activate_in_place

_Found = TypeVar("_Found")
# Rows and numbers of logits computed at a time: a GPU needs large products.
_ROWS_AT_ONCE, _NUMBERS_AT_ONCE = 2048, 2**27


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

    def keep_one(self, flushes: bool = True) -> None:
        """Prepare the calling thread: one torch thread, and denormals flushed, as training needs it, or not."""
        torch.set_num_threads(1)
        torch.set_flush_denormal(flushes)
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


def on_threads(function: Callable[[Any], _Found], items: Iterable[Any]) -> list[_Found]:
    """The function of every item, on as many threads as torch and the cores allow, with the caller's arithmetic."""
    todo = list(items)
    workers = min(len(todo), THREADS.get(), cpu_count())
    if workers < 2:
        return list(map(function, todo))
    same_mode = (sys.float_info.min / 2 == 0.0,)
    with THREADS.set(1), ThreadPoolExecutor(workers, initializer=THREADS.keep_one, initargs=same_mode) as pool:
        return list(pool.map(function, todo))


def find_device(name: str) -> torch.device:
    """``"auto"`` is CUDA if available; a named device that is missing is an error."""
    if name not in ("auto", "cpu", "cuda") and not name.startswith("cuda:"):
        raise InvalidParameter(f"device must be 'auto', 'cpu' or 'cuda': got {name!r}.")
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise DeviceMissing(f"device={name!r} was asked for, but torch sees no CUDA device; use 'auto' or 'cpu'.")
    return torch.device(name)


def sent(values: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device; pinned memory avoids waiting for queued GPU work."""
    return values.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else values.to(device)


def encoded_on(device: torch.device, encoding: InputEncoding, X: Array | Tensor) -> Tensor:
    """``encoding(X)`` as a float64 tensor (n, E) on a device; a GPU computes it with the same operations."""
    if device.type == "cpu" or encoding.knots is not None:
        return torch.from_numpy(encoding(X.cpu().numpy() if isinstance(X, Tensor) else X)).to(device)
    return _encoded(device, encoding, X)


def _encoded(device: torch.device, encoding: InputEncoding, X: Array | Tensor) -> Tensor:
    def there(values: NDArray[np.generic]) -> Tensor:
        return sent(torch.from_numpy(values), device)

    x = X if isinstance(X, Tensor) else there(np.ascontiguousarray(X, dtype=np.float64))
    if encoding.indicators is not None:
        x = torch.cat([x, x[:, there(encoding.indicators)].isnan().double()], 1)
    if encoding.columns is not None:
        x = x[:, there(encoding.columns)]
    z = (x - there(encoding.mean)).div_(there(encoding.scale))
    if encoding.low is not None and encoding.high is not None:
        z.clamp_(there(encoding.low), there(encoding.high))
    if encoding.is_smooth:
        z.div_(torch.sqrt(1.0 + (z / SMOOTH_LIMIT) ** 2))
    return z.nan_to_num_(nan=0.0, posinf=torch.inf, neginf=-torch.inf) if encoding.indicators is not None else z


def outputs_on(device: torch.device, group: NetworkGroup, X: Array) -> Tensor:
    """``group.outputs(X)`` as a tensor on a device."""
    if device.type == "cpu":
        return torch.from_numpy(group.outputs(X))
    weights, biases = (
        [torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in parts]
        for parts in (group.weights, group.biases)
    )
    widest, n_outputs = max(weight.shape[2] for weight in weights), weights[-1].shape[2]
    at_once = max(64, min(_ROWS_AT_ONCE, _NUMBERS_AT_ONCE // max(len(group) * widest, group.encoding.size)))
    found = torch.empty(len(group), len(X), n_outputs, dtype=torch.float64, device=device)
    with torch.inference_mode():
        for start in range(0, len(X), at_once):
            h = encoded_on(device, group.encoding, X[start : start + at_once])[None]
            for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
                h = activate_in_place(group.activation, (h @ weight).add_(bias[:, None]))
            found[:, start : start + at_once] = h @ weights[-1] + biases[-1][:, None]
    return found[..., 0] if n_outputs == 1 else found
