"""What functions did, under Python's logger "crcen": one line each, silent unless somebody listens."""

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

__all__ = ["logged"]

P = ParamSpec("P")
Result = TypeVar("Result")

logging.getLogger("crcen").addHandler(logging.NullHandler())


def logged(function: Callable[P, Result]) -> Callable[P, Result]:
    """Log a function's result, by its one-line representation, and its seconds; an alarm is a warning."""
    logger = logging.getLogger(function.__module__)

    @wraps(function)
    def wrapper(*args: P.args, **options: P.kwargs) -> Result:
        start = time.perf_counter()
        result = function(*args, **options)
        level = logging.WARNING if getattr(result, "is_alarm", False) else logging.INFO
        if logger.isEnabledFor(level):
            logger.log(level, "%s: %r, %.1f s", function.__name__, result, time.perf_counter() - start)
        return result

    return wrapper
