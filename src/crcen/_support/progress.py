"""Progress on standard error (bars on a terminal, lines or nothing elsewhere) and log lines of finished calls."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import wraps
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
Result = TypeVar("Result")

_SECONDS_TO_SHOW = 2.0

# Called with the title of the work and the share done (None if unknown), instead of a bar.
_LISTENERS: list[Callable[[str, float | None], None]] = []

logging.getLogger("crcen").addHandler(logging.NullHandler())


def report_to(listener: Callable[[str, float | None], None]) -> None:
    """Report progress of this process to a function instead of the terminal."""
    _LISTENERS[:] = [listener]


def logged(function: Callable[P, Result]) -> Callable[P, Result]:
    """Log a function's result (its one-line repr) and seconds to the logger "crcen…"; an alarm is a warning."""
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


def _terminal() -> Any:
    """A rich console if standard error is a terminal and rich is installed."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None


def _bar(console: Any) -> Any:
    from rich.progress import Progress, TimeElapsedColumn

    return Progress(*Progress.get_default_columns(), TimeElapsedColumn(), console=console)


@contextmanager
def progress_bar(title: str, total: float | None = 1.0, *, visible: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes how much of the total is done; a bar appears after two seconds."""
    if visible and _LISTENERS:
        _LISTENERS[0](title, 0.0)
        yield lambda done: _LISTENERS[0](title, done / total if total else None)
        return
    console = _terminal() if visible else None
    if console is None:
        yield lambda done: None
        return
    bar, start = _bar(console), time.monotonic()
    task = bar.add_task(title, total=total)

    def update(done: float) -> None:
        bar.update(task, completed=done)
        if not bar.live.is_started and time.monotonic() - start > _SECONDS_TO_SHOW:
            bar.start()

    try:
        yield update
    finally:
        bar.stop()


@contextmanager
def counted(title: str, total: int | None, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just done."""
    n_done = 0
    with progress_bar(title, total, visible=visible) as update:

        def advance(done: int) -> None:
            nonlocal n_done
            n_done += done
            update(n_done)

        yield advance


@contextmanager
def busy(title: str, *, visible: bool) -> Iterator[None]:
    """Show that work of unknown length is running."""
    if visible and _LISTENERS:
        _LISTENERS[0](title, None)
    console = _terminal() if visible else None
    with nullcontext() if console is None else console.status(title):
        yield


@contextmanager
def steps(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a label after each of ``total`` steps; without a terminal, a line each."""
    console = _terminal()
    if console is not None:
        with _bar(console) as bar:
            task = bar.add_task(title, total=total)
            yield lambda label: bar.update(task, advance=1, description=f"{title}: {label}")
        return
    start, done = time.monotonic(), 0

    def line(label: str) -> None:
        nonlocal done
        done += 1
        passed = time.monotonic() - start
        left = passed / done * (total - done)
        sys.stderr.write(f"{title}: {done}/{total} {label} ({passed:.0f} s, about {left:.0f} s left)\n")

    yield line


def part_of(progress: Callable[[float], None], begin: float, end: float) -> Callable[[float], None]:
    """Progress of one part of the work, mapped to that of the whole."""
    return lambda share: progress(begin + share * (end - begin))
