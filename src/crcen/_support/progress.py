"""How far long work is: bars on a terminal, lines or nothing elsewhere. Everything goes to standard error."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["busy", "counted", "part_of", "progress_bar", "steps"]

_PATIENCE = 2.0


def _terminal() -> Any:
    """A console, if standard error is a terminal and rich is installed; a bare machine may lack it."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich.console import Console
    except ImportError:
        return None
    console = Console(stderr=True)
    return console if console.is_terminal else None


@contextmanager
def progress_bar(description: str, *, visible: bool) -> Iterator[Callable[[float], None]]:
    """Yield a function that takes the share of work done."""
    console = _terminal() if visible else None
    if console is None:
        yield lambda share: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(description, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@contextmanager
def busy(title: str, *, visible: bool) -> Iterator[None]:
    """Show that work of unknown length goes on."""
    console = _terminal() if visible else None
    if console is None:
        yield
        return
    with console.status(title):
        yield


@contextmanager
def counted(title: str, total: int | None, *, visible: bool) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of things just done; a bar appears after two seconds."""
    console = _terminal() if visible else None
    if console is None:
        yield lambda done: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar: Any = Progress(*columns, console=console, transient=True)
    task, start = bar.add_task(title, total=total), time.monotonic()
    try:

        def advance(done: int) -> None:
            bar.update(task, advance=done)
            if not bar.live.is_started and time.monotonic() - start > _PATIENCE:
                bar.start()

        yield advance
    finally:
        bar.stop()


@contextmanager
def steps(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function to call with a label after each of ``total`` pieces of work; without a terminal, a line each."""
    console = _terminal()
    if console is None:
        yield _lines(title, total)
        return
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TextColumn("left"), TimeRemainingColumn(), console=console) as bar:
        task = bar.add_task(title, total=total)
        yield lambda label: bar.update(task, advance=1, description=f"{title}: {label}")


def _lines(title: str, total: int) -> Callable[[str], None]:
    """A function that writes one line a call."""
    start, done = time.monotonic(), 0

    def line(label: str) -> None:
        nonlocal done
        done += 1
        passed = time.monotonic() - start
        left = passed / done * (total - done)
        sys.stderr.write(f"{title}: {done}/{total} {label} ({passed:.0f} s, about {left:.0f} s left)\n")

    return line


def part_of(progress: Callable[[float], None], begin: float, end: float) -> Callable[[float], None]:
    """Progress of a part of the work as that of the whole."""
    return lambda share: progress(begin + share * (end - begin))
