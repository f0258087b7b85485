"""Progress on standard error (bars on a terminal, lines or nothing elsewhere) and log lines of finished calls."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def _bar(console: Any, *, counts: bool, remaining: bool, transient: bool = False) -> Any:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        ProgressColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[ProgressColumn] = [TextColumn("{task.description}"), BarColumn()]
    columns += [MofNCompleteColumn()] if counts else []
    columns += [TimeElapsedColumn()]
    columns += [TextColumn("left"), TimeRemainingColumn()] if remaining else []
    return Progress(*columns, console=console, transient=transient)


@contextmanager
def progress_bar(description: str, *, visible: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the share of work done."""
    if visible and _LISTENERS:
        _LISTENERS[0](description, 0.0)
        yield lambda share: _LISTENERS[0](description, share)
        return
    console = _terminal() if visible else None
    if console is None:
        yield lambda share: None
        return
    with _bar(console, counts=False, remaining=True) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def busy(title: str, *, visible: bool) -> Iterator[None]:
    """Show that work of unknown length is running."""
    if visible and _LISTENERS:
        _LISTENERS[0](title, None)
    console = _terminal() if visible else None
    if console is None:
        yield
        return
    with console.status(title):
        yield


@contextmanager
def counted(title: str, total: int | None, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items just done; a bar appears after two seconds."""
    if visible and _LISTENERS:
        n_done = 0

        def report(done: int) -> None:
            nonlocal n_done
            n_done += done
            _LISTENERS[0](title, n_done / total if total else None)

        yield report
        return
    console = _terminal() if visible else None
    if console is None:
        yield lambda done: None
        return
    bar = _bar(console, counts=True, remaining=False, transient=True)
    task, start = bar.add_task(title, total=total), time.monotonic()
    try:

        def advance(done: int) -> None:
            bar.update(task, advance=done)
            if not bar.live.is_started and time.monotonic() - start > _SECONDS_TO_SHOW:
                bar.start()

        yield advance
    finally:
        bar.stop()


@contextmanager
def steps(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a label after each of ``total`` steps; without a terminal, a line each."""
    console = _terminal()
    if console is not None:
        with _bar(console, counts=True, remaining=True) as bar:
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
