"""Parallel fits, each on one thread: a small fit cannot use several cores by itself."""

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import joblib
from sklearn.exceptions import ConvergenceWarning

from crcen.models.classifier import CRCENClassifier
from crcen.models.module_classifier import ModuleClassifier
from crcen.theory.rows import Estimator

Part = TypeVar("Part")
Fitted = TypeVar("Fitted")


def parallel_fits(model: Estimator, fit: Callable[[Part], Fitted], parts: Sequence[Part]) -> list[Fitted]:
    """``fit(part)`` of every part, in parallel for our networks on a CPU; other classifiers may use their own threads.

    Convergence warnings are suppressed.
    """
    with warnings.catch_warnings():  # once: all threads share the filters
        warnings.simplefilter("ignore", ConvergenceWarning)
        workers = min(_threads_of(model), len(parts))
        if workers < 2:
            return [fit(part) for part in parts]
        from crcen.training.device import THREADS

        with ThreadPoolExecutor(workers, initializer=THREADS.keep_one) as pool:
            return list(pool.map(fit, parts))


def _threads_of(model: Estimator) -> int:
    if not isinstance(model, CRCENClassifier) or isinstance(model, ModuleClassifier):
        return 1
    from crcen.training.device import THREADS, find_device  # torch, which the refits load

    return min(THREADS.get(), joblib.cpu_count()) if find_device(model.device).type == "cpu" else 1
